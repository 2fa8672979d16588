"""Figures of estimates against the truth, and of calibration: PIT histograms and coverage against level."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..cubes import units_of
from ..scores import coverage, paired, pit_histogram, uniformity
from .layout import (
    BAND_COLOUR,
    DOT,
    MARK,
    SMALL,
    SOFT,
    TITLE,
    chosen,
    paired_rows,
    panel_grid,
    robust_limits,
    spans_decades,
    title_of,
    with_units,
)

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
    estimates : estimated parameters, any dimensions, with error bars from `<parameter>_std` where present.
    truth : true parameters on the same grid.
    evaluation : the result of `metrics.evaluation`; its `parameter` coordinate says which panels to draw.

    Returns
    -------
    A matplotlib Figure; up to 3000 pairs are points, evenly spaced 400 of them with error bars of one standard
    deviation, and more pairs a density. Axes are logarithmic where all values, true and estimated, are positive and
    span more than two decades.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : a parameter is missing, or the grids differ.

    Examples
    --------
    >>> from specinvert.scores.metrics import evaluation
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


SHOWN_LEVEL = 0.9
"""Level of the intervals that the title speaks of."""

SMALL_DEPARTURE = 0.02
"""Kolmogorov-Smirnov statistic below which PIT values are called uniform, whatever their number."""

_TAIL_99 = 2.576
_LEAST_HEIGHT = 1.6


def plot_calibration(pit: xr.Dataset, bins: int = 20) -> Figure:
    """Draw calibration, a row a parameter: the histogram of PIT values, and coverage against level.

    Grey bands hold 99 % of what calibrated posteriors give, bin by bin and level by level, for independent simulations.
    A curve below the diagonal says that intervals are too narrow, one above that they are too wide.

    Parameters
    ----------
    pit : PIT values (the posterior's CDF at the true value), a variable a parameter, any dimensions, lazy or not, NaN
        where there is no estimate.
    bins : number of bins of the histogram.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : `bins` is below 1, or `pit` holds no variable or a value outside [0, 1].

    Examples
    --------
    >>> figure = plot_calibration(xr.Dataset({"lai": ("sample", np.linspace(0.0, 1.0, 101))}))
    >>> len(figure.axes)
    2
    """
    pit = pit.compute()
    histogram, shares, tests = pit_histogram(pit, bins), coverage(pit), uniformity(pit)
    names = [str(name) for name in shares["parameter"].values]
    figure, grid = paired_rows(len(names), 2.9 * len(names) + 0.4, 1.25)
    explained = False
    for i, (name, (left, right)) in enumerate(zip(names, grid, strict=True)):
        left.set_ylabel(f"{title_of(name)}\ndensity")
        if int(tests["n"][i]) == 0:
            left.set_title("no estimate", fontsize=TITLE)
            right.set_axis_off()
            continue
        _draw_histogram(left, histogram.isel(parameter=i))
        left.set_title(_verdict(tests.isel(parameter=i)), fontsize=TITLE)
        _draw_coverage(right, shares.isel(parameter=i))
        if not explained:
            left.legend(loc="upper center", fontsize=SMALL, frameon=False, ncols=2)
            _name_sides(right)
            explained = True
    grid[-1, 0].set_xlabel("PIT: share of the posterior below the truth")
    grid[-1, 1].set_xlabel("level of the interval (%)")
    return figure


def _draw_histogram(ax: Axes, histogram: xr.Dataset) -> None:
    from matplotlib.ticker import MaxNLocator

    density = histogram["density"].values
    edges = np.append(histogram["bin_lower"].values, 1.0)
    band = float(histogram["band_lower"]), float(histogram["band_upper"])
    ax.stairs(density, edges, fill=True, color=DOT, alpha=0.3)
    ax.stairs(density, edges, color=DOT, linewidth=1.4, label="found")
    ax.axhspan(*band, color=BAND_COLOUR, zorder=0, label="99 % band if calibrated")
    ax.axhline(1.0, color="black", linewidth=0.8)
    ax.set(xlim=(0, 1), ylim=(0, 1.2 * max(density.max(), band[1], _LEAST_HEIGHT)))
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _draw_coverage(ax: Axes, shares: xr.Dataset) -> None:
    level, held = (100 * np.append(shares[name].values, 1.0) for name in ("level", "coverage"))
    spread = 100 * _TAIL_99 * np.append(shares["standard_error"].values, 0.0)
    shown = 100 * float(shares["coverage"].sel(level=SHOWN_LEVEL)), 100 * SHOWN_LEVEL
    ax.fill_between(level, level - spread, level + spread, color=BAND_COLOUR, linewidth=0)
    ax.plot([0, 100], [0, 100], color="black", linewidth=0.8)
    ax.plot(level, held, color=DOT, linewidth=1.8)
    ax.plot([shown[1]] * 2, shown, "-o", color=MARK, markersize=5, markevery=[0], linewidth=1.2, clip_on=False)
    ax.set(xlim=(0, 100), ylim=(0, 100), ylabel="truths inside (%)")
    ax.set_aspect("equal")
    ax.set_title(f"{shown[1]:.0f} % intervals hold {_percent(shown[0])}", fontsize=TITLE)


def _name_sides(ax: Axes) -> None:
    for x, y, text in ((0.28, 0.72, "intervals\ntoo wide"), (0.72, 0.28, "intervals\ntoo narrow")):
        ax.text(x, y, text, transform=ax.transAxes, ha="center", va="center", fontsize=SMALL, color=SOFT)


def _verdict(test: xr.Dataset) -> str:
    """Say in words how PIT values depart most from uniform ones."""
    if float(test["ks_p"]) >= 0.01 or float(test["ks_statistic"]) < SMALL_DEPARTURE:
        return "as expected of calibrated posteriors"
    shift, widening = float(test["mean"]) - 1 / 2, float(test["variance"]) ** 0.5 - 12**-0.5
    if abs(shift) > abs(widening):
        return f"estimates too {'low' if shift > 0 else 'high'}"
    return f"posteriors too {'narrow' if widening > 0 else 'wide'}"


def _percent(held: float) -> str:
    return f"{held:.1f} %" if 99.5 <= held < 100 else f"{held:.0f} %"
