"""Figures that compare: methods by their errors and times, models on spectra without labels, K and L_w."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..cubes import units_of
from ..scores import CALIBRATED, best_of, require_score, scores_of
from .layout import BAND_COLOUR, DOT, MARK, SMALL, SOFT, TITLE, new_figure, plain, title_of, with_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_BAR_ALPHA = 0.3
WIDE = 30.0
"""Where the largest score is so many times the smallest, its axis is logarithmic."""
MOST_LABELS = 12
"""Models of a ranking above which their points have no numbers."""

_LABELS = {"nrmse": "NRMSE", "rmse": "RMSE", "mae": "mean absolute error", "r2": "R2"}


def plot_comparison(table: xr.Dataset, score: str = "nrmse") -> Figure:
    """Draw a comparison: a panel a parameter with one score, and one with the times to fit; a row a method.

    The best of each parameter is filled. A method that failed is marked so, and so is a score that is not defined, as
    NRMSE is not for a single test spectrum.

    Parameters
    ----------
    table : the result of `comparison.compare`.
    score : one of `comparison.SCORES`.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : there is no such score.

    Examples
    --------
    >>> from specinvert.scores.comparison import compare
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


def _draw(ax: Axes, values: np.ndarray, best: int | None, labelled: bool = True) -> None:
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
    for row in rows[np.isfinite(values)] if labelled else ():
        value = values[row]
        place, side = ((-6, 0), "right") if value < 0 else ((6, 0), "left")
        text = f"{value:.{3 if abs(value) >= 100 else 2}g}".replace("-", "\N{MINUS SIGN}")
        ax.annotate(
            *(text, (value, row), place), textcoords="offset points", ha=side, va="center", fontsize=SMALL, color=SOFT
        )


_RANKED = {
    "window_error": "error of left-out bands\n(their standard deviations)",
    "window_q": "squared errors of left-out bands\nover predictive variance",
    "disagreement": "squared moves of estimates\nover what is expected",
    "mean_log_evidence": "log evidence, nats\n(does not count)",
}


def plot_ranking(table: xr.Dataset) -> Figure:
    """Draw a ranking, best on top: its error of left-out bands, the two figures of calibration, and the evidence.

    Beyond the dotted line a model is not calibrated. Filled is the choice of the ranking, and that of the evidence.

    Parameters
    ----------
    table : the result of :func:`specinvert.rank`.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    """
    names = [plain(name) for name in table["model"].values]
    shown = [name for name in _RANKED if name in table]
    figure = new_figure(2.5 * len(shown) + 1.0, 0.35 * len(names) + 1.5)
    for ax, name in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False).flat, shown, strict=True):
        values = np.where(np.isfinite(table[name].values), table[name].values, np.nan)
        chosen = _best(values, "r2") if name == "mean_log_evidence" else 0
        _draw(ax, values, chosen, len(names) <= MOST_LABELS)
        if name in ("window_q", "disagreement"):
            ax.axvline(CALIBRATED, color=MARK, linewidth=1.0, linestyle=":")
        ax.set_xlabel(_RANKED[name], fontsize=SMALL)
        ax.tick_params(labelsize=SMALL)
        ax.tick_params(axis="y", length=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    figure.suptitle(f"best first, of {int(table['n'][0]):,} spectra", fontsize=TITLE)
    return figure


MOST_LINES = 7
"""With more L_w than this, the grid is a heat map."""

COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8A6D00")
"""Of the lines: told apart by the colour-blind, and by markers and names as well."""

MARKERS = "os^Dv<P"

_NAMES = {"bic": "BIC", "aic": "AIC", "icl": "ICL"}
_MARGIN = 0.12


def plot_selection(table: xr.Dataset, criterion: str = "bic") -> Figure:
    """Draw a criterion over K, a line for each L_w; a heat map where these are many. The best is ringed.

    Grey is what was not tried, K beyond the grid. A fit that failed has no point.

    Parameters
    ----------
    table : the table of :func:`specinvert.select_model`.
    criterion : `"bic"`, `"aic"` or `"icl"`, drawn less that of the best; or `"held_out"`.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : there is no such criterion, or the table holds no number of it.
    """
    best = best_of(table, criterion)
    scores = scores_of(table, criterion)
    if criterion == "held_out":
        label = "held-out log-likelihood\n(nats a spectrum, larger is better)"
    else:
        scores = scores - scores[best]
        label = f"{_NAMES[criterion]} less that of the best\n(smaller is better)"
    sizes, dimensions = table["n_components"].values, table["n_latent"].values
    figure = new_figure(6.0, 4.0)
    ax = figure.subplots()
    if len(dimensions) > MOST_LINES:
        _draw_map(ax, table, scores, best, label, "cividis" if criterion == "held_out" else "cividis_r")
    else:
        _draw_lines(ax, scores, sizes, dimensions, best)
        ax.set_ylabel(label)
        gaps = scores[scores > 0]
        if criterion != "held_out" and gaps.size and gaps.max() > WIDE * gaps.min():
            _spread_small_gaps(ax, gaps)
    ax.set_xlabel("K, the number of affine maps")
    ax.set_title(f"best: K = {sizes[best[0]]}, L_w = {dimensions[best[1]]} (ringed)", fontsize=TITLE)
    ax.tick_params(labelsize=SMALL)
    return figure


def _draw_lines(ax: Axes, scores: np.ndarray, sizes: np.ndarray, dimensions: np.ndarray, best: tuple[int, int]) -> None:
    from matplotlib.ticker import NullLocator

    for column, n_latent in enumerate(dimensions):
        ax.plot(
            *(sizes, scores[:, column]),
            color=COLOURS[column],
            marker=MARKERS[column],
            markersize=5,
            linewidth=1.4,
            label=f"L_w = {n_latent}",
        )
    _ring(ax, sizes[best[0]], scores[best])
    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sizes, [str(size) for size in sizes])
    beyond = (sizes[-1] / sizes[0]) ** _MARGIN if len(sizes) > 1 else 1.5
    low, high = sizes[0] / beyond, sizes[-1] * beyond
    ax.set_xlim(low, high)
    edges = [(sizes[-1] * beyond**0.25, high)]
    if sizes[0] > 1:
        edges.append((low, sizes[0] / beyond**0.25))
    for left, right in edges:
        ax.axvspan(left, right, color=BAND_COLOUR, linewidth=0, zorder=0)
        middle = np.sqrt(left * right)
        ax.text(
            *(middle, 0.5, "not tried"),
            transform=ax.get_xaxis_transform(),
            rotation=90,
            ha="center",
            va="center",
            fontsize=SMALL,
            color=SOFT,
        )
    ax.legend(fontsize=SMALL, frameon=False)


def _draw_map(ax: Axes, table: xr.Dataset, scores: np.ndarray, best: tuple[int, int], label: str, colours: str) -> None:
    shown = ax.pcolormesh(scores.T, cmap=colours, edgecolors="white", linewidth=0.5)
    ax.figure.colorbar(shown, ax=ax).set_label(label, fontsize=SMALL)
    ax.set_facecolor(BAND_COLOUR)
    _ring(ax, best[0] + 0.5, best[1] + 0.5)
    for set_ticks, values in ((ax.set_xticks, table["n_components"].values), (ax.set_yticks, table["n_latent"].values)):
        set_ticks(np.arange(len(values)) + 0.5, [str(value) for value in values])
    ax.set_ylabel("L_w, latent dimensions")


def _spread_small_gaps(ax: Axes, gaps: np.ndarray) -> None:
    """A logarithmic axis of differences, which begins with the zero of the best."""
    first, last = int(np.floor(np.log10(gaps.min()))), int(np.floor(np.log10(gaps.max())))
    ax.set_yscale("symlog", linthresh=10.0**first, linscale=0.5)
    ticks = [0.0, *(10.0**power for power in range(first, last + 1))]
    ax.set_yticks(ticks, [f"{tick:,.6g}" for tick in ticks], minor=False)
    ax.set_ylim(-0.6 * 10.0**first, 2.0 * gaps.max())


def _ring(ax: Axes, x: float, y: float) -> None:
    ax.plot(x, y, "o", markerfacecolor="none", markeredgecolor=MARK, markeredgewidth=2.0, markersize=14)
