"""Figure of a choice of K and L_w: the criterion over the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from specinvert.diagnostics.layout import BAND_COLOUR, MARK, SMALL, SOFT, TITLE, new_figure
from specinvert.diagnostics.selection import best_of, scores_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 7
"""With more L_w than this, the grid is a heat map."""

COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8A6D00")
"""Of the lines: told apart by the colour-blind, and by markers and names as well."""

MARKERS = "os^Dv<P"

_NAMES = {"bic": "BIC", "aic": "AIC", "icl": "ICL"}
_MARGIN = 0.12

WIDE = 30.0
"""Where the largest difference is so many times the smallest, the axis is logarithmic beyond the smallest."""


def plot_selection(table: xr.Dataset, criterion: str = "bic") -> Figure:
    """Draw a criterion over K, a line for each L_w; a heat map where these are many. The best is ringed.

    Grey is what was not tried, K beyond the grid. A fit that failed has no point.

    Parameters
    ----------
    table
        The table of :func:`specinvert.select_model`.
    criterion
        `"bic"`, `"aic"` or `"icl"`, drawn less that of the best; or `"held_out"`.

    Returns
    -------
    A matplotlib Figure; `plots.save_figure` writes it.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If there is no such criterion, or the table holds no number of it.
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
        _draw_map(ax, scores, sizes, dimensions, best, label, larger=criterion == "held_out")
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


def _draw_map(
    ax: Axes,
    scores: np.ndarray,
    sizes: np.ndarray,
    dimensions: np.ndarray,
    best: tuple[int, int],
    label: str,
    larger: bool,
) -> None:
    shown = ax.pcolormesh(scores.T, cmap="cividis" if larger else "cividis_r", edgecolors="white", linewidth=0.5)
    ax.figure.colorbar(shown, ax=ax).set_label(label, fontsize=SMALL)
    ax.set_facecolor(BAND_COLOUR)
    _ring(ax, best[0] + 0.5, best[1] + 0.5)
    ax.set_xticks(np.arange(len(sizes)) + 0.5, [str(size) for size in sizes])
    ax.set_yticks(np.arange(len(dimensions)) + 0.5, [str(n) for n in dimensions])
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
