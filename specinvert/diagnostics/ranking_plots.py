"""Figure of a ranking of models by their evidence.

Each row is a wide panel and a narrow one, as in `calibration_plots`: see `layout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from specinvert.diagnostics.layout import DOT, SMALL, SOFT, TITLE, paired_rows, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 30.0
"""Where the largest difference is so many times the smallest, the axis is logarithmic beyond the smallest."""

_TAIL_95 = 1.96
_BAR_ALPHA = 0.3


def plot_ranking(table: xr.Dataset) -> Figure:
    """Draw a ranking, best on top: differences from the best with 95 % intervals, and the shares of spectra won.

    Parameters
    ----------
    table
        The result of `ranking.rank` for two models or more.

    Returns
    -------
    A matplotlib Figure; `plots.save_figure` writes it.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If the table holds no difference, as that of one model.

    Examples
    --------
    >>> from specinvert.diagnostics.ranking import rank
    >>> evidence = xr.DataArray([3.0, 5.0], dims="pixel")
    >>> figure = plot_ranking(rank({"a": evidence, "b": evidence + 1.0}))
    >>> len(figure.axes)
    2
    """
    if "difference" not in table:
        raise ValueError("there is no difference to draw: rank two models or more")
    names = [plain(name) for name in table["model"].values]
    figure, grid = paired_rows(1, 0.5 * len(names) + 1.3, 1.8, sharey=True)
    left, right = grid[0]
    _draw_differences(left, table["difference"].values, table["standard_error"].values)
    _draw_shares(right, table["best_share"].values)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.7)
    for ax in (left, right):
        ax.tick_params(axis="y", length=0)
    left.set_title(f"mean ± standard error of {int(table['n'][0]):,} spectra; bars: 95 %", fontsize=TITLE)
    return figure


def _draw_differences(ax: Axes, difference: np.ndarray, error: np.ndarray) -> None:
    rows = np.arange(len(difference))
    spread = _TAIL_95 * np.nan_to_num(error)
    ax.axvline(0.0, color="black", linewidth=0.8)
    ax.errorbar(difference, rows, xerr=spread, fmt="o", color=DOT, markersize=5, elinewidth=1.4, capsize=3)
    for row, value, wide in zip(rows, difference, error, strict=True):
        text, place, side = ("best", (7, 0), "left") if row == 0 else (_with_error(value, wide), (0, 10), "center")
        label = ax.annotate(
            *(text, (value, row), place), textcoords="offset points", ha=side, va="center", fontsize=SMALL, color=SOFT
        )
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    sizes = -difference[difference < 0]
    if sizes.size and sizes.max() > WIDE * sizes.min():
        ax.set_xscale("symlog", linthresh=10.0 ** np.floor(np.log10(sizes.min())), linscale=0.5)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
    ax.margins(x=0.16)
    ax.set_xlabel("log evidence less that of the best (nats a spectrum)")


def _draw_shares(ax: Axes, share: np.ndarray) -> None:
    rows = np.arange(len(share))
    bars = ax.barh(rows, 100 * share, height=0.55, color=DOT, alpha=_BAR_ALPHA, edgecolor=DOT)
    ax.bar_label(bars, [f"{100 * value:.3g} %" for value in share], padding=3, fontsize=SMALL, color=SOFT)
    ax.set(xlim=(0, 125), xticks=(0, 50, 100), xlabel="best for so many spectra (%)")


def _with_error(value: float, error: float) -> str:
    """A difference to the digits that its error leaves."""
    text = f"{value:.3g}"
    if error > 0:
        digits = max(0, 1 - int(np.floor(np.log10(error))))
        text = f"{value:,.{digits}f} ± {error:.{digits}f}"
    return text.replace("-", "\N{MINUS SIGN}")
