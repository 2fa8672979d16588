"""Whether posteriors are as wide as they say, from PIT values.

The probability integral transform (PIT) of a simulation is its posterior's CDF at the true value, F(t). Over
simulations drawn from the prior, spectra with all their noise, PIT values of calibrated posteriors are uniform on
[0, 1]: this is simulation-based calibration (Talts et al., 2018, arXiv:1804.06788), with F(t) in place of the rank of
the truth among posterior draws. Nothing else is needed, so every function here takes PIT values: a Dataset with one
variable a parameter, any dimensions, lazy or not, NaN where there is no estimate. Lazy input is computed once and held
in memory, eight bytes a value.

Bands and p-values assume independent simulations; pixels of one scene are not. Calibration is that of each parameter by
itself and on average over the simulations, not in every corner of the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from ..cubes import Recalibration as Recalibration
from ..cubes import pit_values as pit_values
from ..gllim.core import Array

LEVELS = tuple(round(0.01 * i, 2) for i in range(1, 100))
"""Levels of central intervals whose coverage is counted: 0.01 to 0.99."""

_BAND = 0.99


def coverage(pit: xr.Dataset, levels: Sequence[float] = LEVELS) -> xr.Dataset:
    """Count the truths inside the central interval of each level.

    Parameters
    ----------
    pit : PIT values, a variable a parameter.
    levels : probabilities that intervals claim to hold, from 0 to 1. A truth is inside the interval of level 0.9 where
        its PIT is in [0.05, 0.95].

    Returns
    -------
    Dataset over (parameter, level), in memory: `coverage`, the share of truths inside, and `standard_error`, the
    binomial one that the coverage of a calibrated posterior has, sqrt(level (1 - level) / n). A coverage below its
    level says that intervals are too narrow. NaN for a parameter without values.

    Raises
    ------
    ValueError : `levels` is empty or one is outside [0, 1], or `pit` holds no variable or a value outside [0, 1].

    Examples
    --------
    >>> pit = xr.Dataset({"lai": ("sample", [0.02, 0.3, 0.5, 0.9])})
    >>> float(coverage(pit, [0.9])["coverage"][0, 0])
    0.75
    """
    levels_ = np.asarray(levels, dtype=np.float64)
    if levels_.ndim != 1 or levels_.size == 0 or not ((levels_ >= 0) & (levels_ <= 1)).all():
        raise ValueError(f"levels are {levels!r}; give a list of probabilities between 0 and 1, such as [0.5, 0.9]")
    values = pit_values(pit)
    n = np.array([u.size for u in values.values()])[:, None]
    inside = np.array(
        [np.searchsorted(np.sort(abs(2 * u - 1)), levels_ + 1e-12, side="right") for u in values.values()]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = inside / n
        error = np.where(n > 0, np.sqrt(levels_ * (1 - levels_) / n), np.nan)
    columns = {
        "coverage": (share, "share of truths inside the interval"),
        "standard_error": (error, "standard error if calibrated"),
    }
    level = {"level": ("level", levels_, {"long_name": "level of interval", "units": "1"})}
    return _table(values, columns, ("level",)).assign_coords(level)


def weighted_calibration(pit: xr.Dataset, weights: xr.DataArray) -> xr.Dataset:
    """The coverage and calibration error of :func:`calibration_table`, each truth counting by its weight.

    Parameters
    ----------
    pit : PIT values, a variable a parameter. weights : zero or more, on the grid of each.
    """
    rows = []
    for name in pit.data_vars:
        u, w = (array.transpose(*weights.dims).values.ravel().astype(np.float64) for array in (pit[name], weights))
        there = np.isfinite(u) & (w > 0.0)
        gap = np.abs(2.0 * u[there] - 1.0)
        order = np.argsort(gap)
        ends = np.concatenate([[0.0], np.cumsum(w[there][order])])
        shares = ends[np.searchsorted(gap[order], np.array(LEVELS) + 1e-12, side="right")]
        rows.append(shares / ends[-1] if ends[-1] > 0.0 else np.full(len(LEVELS), np.nan))
    table = np.array(rows)
    columns = {f"coverage_{percent}": table[:, LEVELS.index(percent / 100)] for percent in (50, 90, 95)}
    texts = {name: f"share of truths inside {name.removeprefix('coverage_')} % intervals" for name in columns}
    columns["calibration_error"] = np.abs(table - LEVELS).mean(axis=1)
    texts["calibration_error"] = "mean absolute difference between coverage and level"
    return _table(dict.fromkeys(map(str, pit.data_vars), np.empty(0)), {n: (columns[n], texts[n]) for n in columns})


def pit_histogram(pit: xr.Dataset, bins: int = 20) -> xr.Dataset:
    """Count PIT values in equal bins, with the band where counts of uniform values fall.

    Parameters
    ----------
    pit : PIT values, a variable a parameter.
    bins : number of bins from 0 to 1, at least 1.

    Returns
    -------
    Dataset over (parameter, bin), in memory: `density`, 1 where as many values are in the bin as expected; over
    parameter: `band_lower` and `band_upper`, between which 99 % of densities of a bin of uniform values are, and `n`,
    the number of values. The coordinates `bin`, `bin_lower` and `bin_upper` are centres and edges. High at both ends:
    posteriors too narrow; high in the middle: too wide; a slope: biased.

    Raises
    ------
    ValueError : `bins` is below 1, or `pit` holds no variable or a value outside [0, 1].

    Examples
    --------
    >>> pit = xr.Dataset({"lai": ("sample", [0.1, 0.2, 0.3, 0.9])})
    >>> pit_histogram(pit, bins=2)["density"].values.tolist()
    [[1.5, 0.5]]
    """
    from scipy.stats import binom

    if bins < 1:
        raise ValueError(f"bins={bins} must be 1 or more")
    values = pit_values(pit)
    n = np.array([u.size for u in values.values()])
    edges = np.linspace(0.0, 1.0, bins + 1)
    counts = np.array([np.histogram(u, edges)[0] for u in values.values()])
    with np.errstate(divide="ignore", invalid="ignore"):
        density = counts * bins / n[:, None]
        band = [
            np.where(n > 0, binom.ppf(p, n, 1 / bins), np.nan) * bins / n for p in (0.5 - _BAND / 2, 0.5 + _BAND / 2)
        ]
    columns = {
        "density": (density, "density of PIT values"),
        "band_lower": (band[0], "0.5 % quantile if uniform"),
        "band_upper": (band[1], "99.5 % quantile if uniform"),
        "n": (n, _UNIFORMITY["n"]),
    }
    return _table(values, columns, ("bin",)).assign_coords(
        bin=0.5 * (edges[1:] + edges[:-1]), bin_lower=("bin", edges[:-1]), bin_upper=("bin", edges[1:])
    )


def uniformity(pit: xr.Dataset) -> xr.Dataset:
    """Test PIT values for being uniform.

    Parameters
    ----------
    pit : PIT values, a variable a parameter.

    Returns
    -------
    Dataset over parameter, in memory: `ks_statistic`, the largest distance between the CDF of the PIT values and that
    of uniform ones (Kolmogorov-Smirnov), `ks_p`, its p-value, `mean` and `variance` of the PIT values and `n`, their
    number. Uniform values have mean 1/2, and estimates that are too low a larger one; they have variance 1/12, and
    posteriors that are too narrow a larger one. With many values, `ks_p` is small for departures too small to matter:
    read `ks_statistic`. All but `n` are NaN for a parameter without values.

    Raises
    ------
    ValueError : `pit` holds no variable or a value outside [0, 1].

    Examples
    --------
    >>> pit = xr.Dataset({"lai": ("sample", [0.5, 0.5, 0.5])})
    >>> float(uniformity(pit)["ks_statistic"][0])
    0.5
    """
    from scipy.stats import kstest

    values = pit_values(pit)
    rows = [
        (*kstest(u, "uniform"), u.mean(), u.var(), u.size) if u.size else (*[np.nan] * 4, 0) for u in values.values()
    ]
    columns = zip(_UNIFORMITY.items(), zip(*rows, strict=True), strict=True)
    return _table(values, {name: (np.array(column), text) for (name, text), column in columns})


def calibration_table(pit: xr.Dataset) -> xr.Dataset:
    """Summarise calibration, one line a parameter; `metrics.format_table` lays it out as text.

    Parameters
    ----------
    pit : PIT values, a variable a parameter.

    Returns
    -------
    Dataset over parameter, in memory: `coverage_50`, `coverage_90` and `coverage_95`, the shares of truths inside
    central intervals of these percentages; `ks_statistic` and `ks_p` of `uniformity`; and `calibration_error`, the mean
    over the levels 0.01 to 0.99 of the absolute difference between coverage and level. NaN for a parameter without
    values.

    Raises
    ------
    ValueError : `pit` holds no variable or a value outside [0, 1].

    Examples
    --------
    >>> pit = xr.Dataset({"lai": ("sample", np.linspace(0.0, 1.0, 101))})
    >>> float(calibration_table(pit)["coverage_90"].round(2)[0])
    0.9
    """
    pit = pit.compute()
    shares = coverage(pit)["coverage"]
    table = xr.Dataset({f"coverage_{percent}": shares.sel(level=percent / 100, drop=True) for percent in (50, 90, 95)})
    for name, values in table.items():
        values.attrs["long_name"] = f"share of truths inside {str(name).removeprefix('coverage_')} % intervals"
    table = table.merge(uniformity(pit)[["ks_statistic", "ks_p"]])
    error = abs(shares - shares["level"]).mean("level", skipna=False)
    attrs = {"long_name": "mean absolute difference between coverage and level", "units": "1"}
    return table.assign(calibration_error=error.assign_attrs(attrs))


_UNIFORMITY = {
    "ks_statistic": "largest distance between the CDF of PIT values and the uniform one",
    "ks_p": "p-value of the Kolmogorov-Smirnov test",
    "mean": "mean of PIT values, 1/2 if uniform",
    "variance": "variance of PIT values, 1/12 if uniform",
    "n": "number of PIT values",
}


def _table(
    values: Mapping[str, Array], columns: Mapping[str, tuple[np.ndarray, str]], dims: tuple[str, ...] = ()
) -> xr.Dataset:
    """A Dataset over parameter, and for arrays of more dimensions over ``dims``, of arrays with their long names."""
    return xr.Dataset(
        {
            name: (("parameter", *dims)[: array.ndim], array, {"long_name": long_name, "units": "1"})
            for name, (array, long_name) in columns.items()
        },
        coords={"parameter": ("parameter", list(values), {"long_name": "estimated parameter"})},
    )
