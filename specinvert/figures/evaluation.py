"""Figures of estimates against the truth, of calibration, and of spectra beside those that a model expects."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..cubes import describe_bands, units_of
from ..scores import BY_BAND, BY_WINDOW, coverage, misfits, paired, pit_histogram, uniformity, windows_of
from .layout import (
    BAND_COLOUR,
    DOT,
    MARK,
    SMALL,
    SOFT,
    TITLE,
    BandAxis,
    chosen,
    lines_of,
    new_figure,
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


def plot_check(check: xr.Dataset) -> Figure:
    """Draw spectra beside those that a model expects: the result of :meth:`specinvert.GLLiMInverter.check`.

    Above, what was observed and what the model reconstructs at its estimates: median, and 5 to 95 % of the spectra.
    Below, the errors of bands that are predicted from those outside of their window, mean and standard deviation, in
    standard deviations of the prediction: within the grey band, about zero, if the model is right. Each window has its
    q, the mean squared error over predictive variance, 1 if the model is right; windows that do not fit are shaded, the
    worst the darkest.
    Where bands were predicted one by one too, the dotted line is the mean error of these.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    KeyError : ``check`` is no result of a check.

    Examples
    --------
    >>> from specinvert import GLLiMInverter
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, n_latent=0, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
    >>> figure = plot_check(inverter.check(training["reflectance"]))
    >>> len(figure.axes)
    2
    """
    bands = describe_bands(check["residual"], str(check["residual"].dims[0]))
    axis, parts = BandAxis.of(bands), windows_of(bands)
    figure = new_figure(9.0, 5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1.5, 1))
    low, middle, high = check["observed"].values
    upper.fill_between(axis.x, axis.y(low), axis.y(high), color=BAND_COLOUR, linewidth=0)
    upper.plot(axis.x, axis.y(middle), color="black", linewidth=1.4, marker=axis.marker, label="observed")
    for values, width in zip(check["reconstructed"].values, (0.8, 1.4, 0.8), strict=True):
        label = "reconstructed" if width > 1.0 else None
        upper.plot(axis.x, axis.y(values), "--", color=MARK, linewidth=width, label=label)
    upper.set_ylabel(with_units("spectra", units_of(check["observed"].attrs)))
    upper.legend(
        fontsize=SMALL, frameon=False, ncols=2, title="median, and 5 to 95 % of the spectra", title_fontsize=SMALL
    )
    upper.set_title(lines_of(check.attrs["verdict"], 3, 100), fontsize=TITLE)
    _draw_errors(lower, check, axis)
    places = np.empty(bands.size)
    places[axis.order] = axis.places
    firsts, lasts = (np.array([places[window[end]] for window in parts]) for end in (0, -1))
    inner = (lasts[:-1] + firsts[1:]) / 2
    edges, bad = np.concatenate([firsts[:1], inner, lasts[-1:]]), misfits(check)
    for number, (low, high) in enumerate(pairwise(edges)):
        wrong = number in bad
        if wrong:
            share = float(check["q"][number] / check["q"].max())
            lower.axvspan(low, high, color=MARK, alpha=0.25 * share, linewidth=0, zorder=0)
        lower.annotate(
            f"q {float(check['q'][number]):.2g}",
            ((low + high) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL,
            color=MARK if wrong else SOFT,
        )
    for place in inner:
        lower.axvline(place, color="0.6", linewidth=0.6, linestyle=":")
    for ax in (upper, lower):
        ax.tick_params(labelsize=SMALL)
    return figure


def plot_adaptation(found: xr.Dataset) -> Figure:
    """Draw what measured spectra show that simulations lack: the result of :func:`specinvert.adapt`.

    Above, its amplitude by band, beside the standard deviation of training. Below, by window of bands predicted from
    the others, the squared error over the variance predicted, before and after, and of simulations: 1 is right.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    KeyError : ``found`` is no result of adapt.
    """
    amplitude = found["amplitude"]
    axis = BandAxis.of(describe_bands(amplitude, str(amplitude.dims[0])))
    figure = new_figure(9.0, 5.6)
    upper, lower = figure.subplots(2, 1, height_ratios=(1.5, 1))
    training = amplitude.values / found["share"].values
    upper.plot(axis.x, axis.y(training), color=SOFT, linewidth=1.2, marker=axis.marker, label="std of training")
    upper.plot(axis.x, axis.y(amplitude.values), color=MARK, linewidth=1.6, marker=axis.marker, label="discrepancy")
    upper.set(xlabel=axis.label, ylim=(0, None))
    upper.set_ylabel(with_units("amplitude", units_of(amplitude.attrs)), fontsize=SMALL)
    upper.legend(fontsize=SMALL, frameon=False, ncols=2)
    upper.set_title(lines_of(found.attrs["verdict"], 3, 100), fontsize=TITLE)
    rows = np.arange(found.sizes["window"])
    shown = (("q_before", "before", SOFT), ("q_after", "after", MARK), ("q_simulated", "simulations", "black"))
    for shift, (name, label, colour) in zip((-0.15, 0.0, 0.15), shown, strict=True):
        lower.plot(rows + shift, found[name].values, "o", color=colour, label=label)
    lower.axhline(1.0, color="0.6", linewidth=0.8)
    lower.set(yscale="log", xticks=rows, xticklabels=found["window"].values)
    lower.set_ylabel("squared error / predicted", fontsize=SMALL)
    lower.legend(fontsize=SMALL, frameon=False, ncols=3)
    for ax in (upper, lower):
        ax.tick_params(labelsize=SMALL)
    return figure


def _draw_errors(ax: Axes, check: xr.Dataset, axis: BandAxis) -> None:
    broad = check.sel(left_out=BY_WINDOW)
    mean, square = broad["offset"].values, broad["ratio"].values ** 2
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    ax.axhspan(-1.0, 1.0, color=BAND_COLOUR, linewidth=0, zorder=0, label="± 1, if the model is right")
    ax.axhline(0.0, color="black", linewidth=0.6)
    ax.fill_between(axis.x, axis.y(mean - spread), axis.y(mean + spread), color=DOT, alpha=0.25, linewidth=0)
    ax.plot(axis.x, axis.y(mean), color=DOT, linewidth=1.4, marker=axis.marker, label="from outside the window, ± std")
    if BY_BAND in check["left_out"].values:
        alone = axis.y(check["offset"].sel(left_out=BY_BAND).values)
        ax.plot(axis.x, alone, ":", color="black", linewidth=1.0, label="from all other bands")
    ends = [np.nanmax(np.abs(mean) + spread, initial=1.5), np.nanmax(np.abs(check["offset"].values), initial=0.0)]
    ax.set(
        ylim=(-1.1 * max(ends), 1.1 * max(ends)), xlabel=axis.label, ylabel="observed less predicted\n(predicted std)"
    )
    ax.legend(fontsize=SMALL, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.28))
