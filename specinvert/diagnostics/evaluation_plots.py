"""Figure of estimates against the truth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from specinvert.diagnostics.layout import (
    DOT,
    TITLE,
    chosen,
    panel_grid,
    robust_limits,
    spans_decades,
    title_of,
    units_of,
    with_units,
)
from specinvert.diagnostics.metrics import paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 3000
"""More pairs than these are drawn as a density, of all of them."""

MAX_ERROR_BARS = 400
_CELLS = 60
_BULK = (0.001, 0.999)
"""A density leaves the most extreme estimates out."""


def plot_evaluation(estimates: xr.Dataset, truth: xr.Dataset, evaluation: xr.Dataset) -> Figure:
    """Draw estimates against the truth, one panel a parameter, with the 1:1 line and the NRMSE.

    Parameters
    ----------
    estimates
        Estimated parameters, any dimensions, with error bars from `<parameter>_std` where present.
    truth
        True parameters on the same grid.
    evaluation
        The result of `metrics.evaluation`; its `parameter` coordinate says which panels to draw.

    Returns
    -------
    A matplotlib Figure; up to 3000 pairs are points, evenly spaced 400 of them with error bars of one standard
    deviation, and more pairs a density.  Axes are logarithmic where all values, true and estimated, are positive and
    span more than two decades.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If a parameter is missing, or the grids differ.

    Examples
    --------
    >>> from specinvert.diagnostics.metrics import evaluation
    >>> truth = xr.Dataset({"lai": ("sample", [1.0, 2.0, 4.0])})
    >>> estimates = truth + 0.1
    >>> figure = plot_evaluation(estimates, truth, evaluation(estimates, truth, ["lai"]))
    >>> len(figure.axes)
    1
    """
    names = chosen(estimates, truth, [str(name) for name in evaluation["parameter"].values])
    spreads = [f"{name}_std" for name in names if f"{name}_std" in estimates]
    for name in names:
        paired(estimates[name], truth[name], name)
    estimates, truth = estimates[[*names, *spreads]].compute(), truth[names].compute()

    figure, axes = panel_grid(len(names), 3.8, 3.6)
    for ax, name in zip(axes, names, strict=True):
        _draw_pairs(ax, estimates, truth, name)
        score = float(evaluation["nrmse"].sel(parameter=name))
        ax.set_title(f"{title_of(name)}\nNRMSE {score:.3f}", fontsize=TITLE)
    return figure


def _draw_pairs(ax: Axes, estimates: xr.Dataset, truth: xr.Dataset, name: str) -> None:
    x, y = (side.values.ravel() for side in reversed(paired(estimates[name], truth[name], name)))
    seen = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    x, y = x[seen].astype(np.float64), y[seen].astype(np.float64)
    dense = seen.size > MAX_POINTS
    both = np.concatenate([x, y])
    wide = spans_decades(both, robust_limits(both))
    if wide:
        ax.set(xscale="log", yscale="log")
    if dense:
        _draw_density(ax, x, y, wide)
    else:
        ax.plot(x, y, ".", markersize=3, markeredgewidth=0, alpha=0.4, color=DOT, rasterized=True)
        if f"{name}_std" in estimates:
            spread = estimates[f"{name}_std"].transpose(*estimates[name].dims).values.ravel()[seen]
            some = slice(None, None, max(1, math.ceil(seen.size / MAX_ERROR_BARS)))
            ax.errorbar(x[some], y[some], spread[some], fmt="none", elinewidth=0.5, color="0.7", zorder=1)
    if seen.size:
        bulk = np.quantile(y, _BULK if dense else (0.0, 1.0))
        low, high = min(x.min(), bulk[0]), max(x.max(), bulk[1])
        if wide:
            room = (high / low) ** 0.04
            ends = (low / room, high * room)
        else:
            margin = 0.04 * (high - low) or 1.0
            ends = (low - margin, high + margin)
        ax.plot(ends, ends, color="black", linewidth=0.8)
        ax.set(xlim=ends, ylim=ends)
    ax.set_aspect("equal")
    units = units_of(estimates[name].attrs, truth[name].attrs)
    ax.set(xlabel=with_units("true", units), ylabel=with_units("estimated", units))


def _draw_density(ax: Axes, x: np.ndarray, y: np.ndarray, wide: bool) -> None:
    from matplotlib.colors import LogNorm

    ends = [(x.min(), x.max()), np.quantile(y, _BULK)]
    if wide:
        x, y, ends = np.log10(x), np.log10(y), [np.log10(side) for side in ends]
    counts, *edges = np.histogram2d(x, y, _CELLS, range=ends)
    edges = [10**side for side in edges] if wide else edges
    cells = ax.pcolormesh(
        *edges, np.where(counts > 0, counts, np.nan).T, norm=LogNorm(1, max(counts.max(), 2)), cmap="viridis_r"
    )
    ax.figure.colorbar(cells, ax=ax, label="pairs", shrink=0.7)
