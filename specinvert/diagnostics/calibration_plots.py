"""Figures of calibration: PIT histograms and coverage against the level of intervals.

Each row is a wide panel and a narrow one, as in `ranking_plots`: see `layout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from specinvert.diagnostics.calibration import coverage, pit_histogram, uniformity
from specinvert.diagnostics.layout import BAND_COLOUR, DOT, MARK, SMALL, SOFT, TITLE, paired_rows, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_LEVEL = 0.9
"""Level of the intervals that the title speaks of."""

SMALL_DEPARTURE = 0.02
"""Kolmogorov-Smirnov statistic below which PIT values are called uniform, whatever their number."""

_TAIL_99 = 2.576
_LEAST_HEIGHT = 1.6


def plot_calibration(pit: xr.Dataset, bins: int = 20) -> Figure:
    """Draw calibration, a row a parameter: the histogram of PIT values, and coverage against level.

    Grey bands hold 99 % of what calibrated posteriors give, bin by bin and level by level, for independent
    simulations.  A curve below the diagonal says that intervals are too narrow, one above that they are too wide.

    Parameters
    ----------
    pit
        PIT values (the posterior's CDF at the true value), a variable a parameter, any dimensions, lazy or not,
        NaN where there is no estimate.
    bins
        Number of bins of the histogram.

    Returns
    -------
    A matplotlib Figure; `plots.save_figure` writes it.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If `bins` is below 1, or `pit` holds no variable or a value outside [0, 1].

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
