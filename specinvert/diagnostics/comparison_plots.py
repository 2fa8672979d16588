"""Figure of a comparison of methods.

A panel a parameter and one for the time, side by side: see `layout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from specinvert.diagnostics.comparison import require_score
from specinvert.diagnostics.layout import DOT, SMALL, SOFT, TITLE, new_figure, plain, title_of, units_of, with_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 30.0
"""Where the largest score is so many times the smallest, its axis is logarithmic."""

_BAR_ALPHA = 0.3
_LABELS = {"nrmse": "NRMSE", "rmse": "RMSE", "mae": "mean absolute error", "r2": "R2"}


def plot_comparison(table: xr.Dataset, score: str = "nrmse") -> Figure:
    """Draw a comparison: a panel a parameter with one score, and one with the times to fit; a row a method.

    The best of each parameter is filled. A method that failed is marked so, and so is a score that is not defined, as
    NRMSE is not for a single test spectrum.

    Parameters
    ----------
    table
        The result of `comparison.compare`.
    score
        One of `comparison.SCORES`.

    Returns
    -------
    A matplotlib Figure; `layout.save_figure` writes it.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If there is no such score.

    Examples
    --------
    >>> from specinvert.diagnostics.comparison import compare
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> train, test = simulate_mixtures(300, noise=0.01, seed=0), simulate_mixtures(50, noise=0.01, seed=1)
    >>> figure = plot_comparison(compare(train, test, ["sir-1", "pls"], ["grain_size"]))
    >>> len(figure.axes)
    2
    """
    require_score(score)
    methods = [str(name) for name in table["method"].values]
    parameters = [str(name) for name in table["parameter"].values]
    units = table["units"].values if "units" in table.coords else [""] * len(parameters)
    shown = _LABELS.get(score, title_of(score))
    pure = table[score].attrs.get("units") == "1"
    figure = new_figure(1.6 + 2.3 * (len(parameters) + 1), 0.34 * len(methods) + 1.2)
    axes = figure.subplots(1, len(parameters) + 1, sharey=True, squeeze=False)[0]
    for ax, name, unit in zip(axes, parameters, units, strict=False):
        values = table[score].sel({"parameter": name}).values
        _draw(ax, values, best=None if score == "bias" else _best(values, score))
        ax.set_title(title_of(name), fontsize=TITLE)
        ax.set_xlabel(shown if pure else with_units(shown, units_of({"units": unit})), fontsize=SMALL)
    seconds = table["fit_seconds"].values
    _draw(axes[-1], seconds, best=None)
    axes[-1].set_title("time to fit", fontsize=TITLE)
    axes[-1].set_xlabel("s", fontsize=SMALL)
    axes[0].set_yticks(range(len(methods)), [plain(name) for name in methods])
    axes[0].set_ylim(len(methods) - 0.4, -0.6)
    failed = [bool(error) for error in table["error"].values]
    for ax in axes:
        ax.tick_params(labelsize=SMALL)
        ax.tick_params(axis="y", length=0)
    for ax, values in zip(axes, [*table[score].transpose("parameter", "method").values, seconds], strict=True):
        for row in np.flatnonzero(~np.isfinite(values)):
            ax.annotate(
                *("failed" if failed[row] else "undefined", (0.03, row)),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=SMALL,
                color=SOFT,
            )
    return figure


def _best(values: np.ndarray, score: str) -> int:
    """The row of the least value, of the greatest r2; -1 where all failed."""
    if not np.isfinite(values).any():
        return -1
    return int(np.nanargmax(values) if score == "r2" else np.nanargmin(values))


def _draw(ax: Axes, values: np.ndarray, best: int | None) -> None:
    rows = np.arange(len(values))
    colours = [DOT if row == best else "white" for row in rows]
    positive = values[np.isfinite(values) & (values > 0)]
    logarithmic = positive.size == np.isfinite(values).sum() > 0 and positive.max() > WIDE * positive.min()
    if logarithmic:
        ax.set_xscale("log")
        left = positive.min() / 3
        ax.hlines(rows, left, values, color=DOT, alpha=_BAR_ALPHA, linewidth=2)
        ax.set_xlim(left, positive.max() * 8)
    else:
        ax.hlines(rows, 0, values, color=DOT, alpha=_BAR_ALPHA, linewidth=2)
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.margins(x=0.3)
        if not np.isfinite(values).any():
            ax.set_xlim(0, 1)
            ax.set_xticks([])
        if (values[np.isfinite(values)] >= 0).all():
            ax.set_xlim(left=0)
    ax.scatter(values, rows, c=colours, edgecolors=DOT, s=26, zorder=3)
    for row, value in zip(rows[np.isfinite(values)], values[np.isfinite(values)], strict=True):
        place, side = ((-6, 0), "right") if value < 0 else ((6, 0), "left")
        text = f"{value:.2g}".replace("-", "\N{MINUS SIGN}")
        ax.annotate(
            *(text, (value, row), place), textcoords="offset points", ha=side, va="center", fontsize=SMALL, color=SOFT
        )
