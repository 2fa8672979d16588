"""Whether posteriors are as wide as they say, from PIT values.

The probability integral transform (PIT) of a simulation is its posterior's CDF at the true value, F(t). Over
simulations drawn from the prior, spectra with all their noise, PIT values of calibrated posteriors are uniform on
[0, 1]: this is simulation-based calibration (Talts et al., 2018, arXiv:1804.06788), with F(t) in place of the rank of
the truth among posterior draws. Nothing else is needed, so every function here takes PIT values: a Dataset with one
variable a parameter, any dimensions, lazy or not, NaN where there is no estimate. Lazy input is computed once and held
in memory, eight bytes a value.

Bands and p-values assume independent simulations; pixels of one scene are not. Calibration is that of each parameter by
itself and on average over the simulations, not in every corner of the prior. Imports NumPy, SciPy and xarray only.

The correction of posteriors that are not as wide as they say, from PIT values (:mod:`.calibration`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LEVELS = tuple(round(0.01 * i, 2) for i in range(1, 100))
"""Levels of central intervals whose coverage is counted: 0.01 to 0.99."""

_ROUNDING = 1e-6
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
    columns: dict[str, list[float]] = {name: [] for name in _UNIFORMITY}
    for u in values.values():
        test = kstest(u, "uniform") if u.size else None
        columns["ks_statistic"].append(test.statistic if test else np.nan)
        columns["ks_p"].append(test.pvalue if test else np.nan)
        columns["mean"].append(u.mean() if u.size else np.nan)
        columns["variance"].append(u.var() if u.size else np.nan)
        columns["n"].append(u.size)
    return _table(values, {name: (np.array(column), _UNIFORMITY[name]) for name, column in columns.items()})


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


def pit_values(pit: xr.Dataset) -> dict[str, Array]:
    """PIT values in memory, flat, in double precision and without NaN, by parameter.

    Raises
    ------
    ValueError : `pit` holds no variable or a value outside [0, 1].
    """
    names = [str(name) for name, values in pit.data_vars.items() if "grid_mapping_name" not in values.attrs]
    if not names:
        raise ValueError("the Dataset of PIT values holds no variable; give one for each parameter")
    loaded = pit[names].compute()
    flat = {}
    for name in names:
        u = loaded[name].values.ravel().astype(np.float64)
        u = u[~np.isnan(u)]
        if u.size and not (u.min() >= -_ROUNDING and u.max() <= 1 + _ROUNDING):
            raise ValueError(
                f"PIT values of {name} run from {u.min():g} to {u.max():g}; give the posterior's CDF at the truth, "
                "between 0 and 1"
            )
        flat[name] = np.clip(u, 0.0, 1.0)
    return flat


def _table(
    values: Mapping[str, Array], columns: Mapping[str, tuple[np.ndarray, str]], dims: tuple[str, ...] = ()
) -> xr.Dataset:
    """A Dataset over parameter, and for arrays of more dimensions over ``dims``, of arrays with their long names."""
    coordinate = {"parameter": ("parameter", list(values), {"long_name": "estimated parameter"})}
    return xr.Dataset(
        {
            name: (("parameter", *dims)[: array.ndim], array, {"long_name": long_name, "units": "1"})
            for name, (array, long_name) in columns.items()
        },
        coords=coordinate,
    )


GRID: Array = np.concatenate([[0.0], np.sin(0.5 * np.pi * np.arange(1, 200) / 200) ** 2, [1.0]])
"""Levels (201,) where a recalibration is stored.

Their step, 0.0157 sqrt(p (1 - p)), is a fixed share of the sampling error of an empirical CDF at level p: 0.7 of it
for 2000 values.
"""

IDENTITY_SHARE = 1e-11
"""Share of the identity in a recalibration: what makes it strictly increasing where PIT values repeat.

Raw levels so stay distinct in double precision next to 1. Between the levels 0.05 and 0.95 none is nearer than 5e-13 to
0 or 1, 7 standard deviations of a Gaussian.
"""


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Levels to ask of a posterior so that its quantiles hold what they say (Kuleshov et al., 2018).

    With G the CDF of PIT values on simulations that were not trained on, the quantile of level p is taken from the
    posterior at the raw level G^-1(p), and a PIT value u becomes G(u). For the central interval of level 0.9, take the
    raw levels of 0.05 and 0.95. The map is piecewise linear and strictly increasing from (0, 0) to (1, 1); it corrects
    each parameter by itself, on average over simulations like those held out.

    A PIT of exactly 0 or 1 says only that the truth is beyond what double precision resolves (about 8 standard
    deviations). Where a share a of the values is there, no raw level reaches the truth, and intervals of level above
    1 - 2 a hold less than they say; `reach` gives that level.

    Source: Kuleshov, Fenner and Ermon, 2018, Accurate uncertainties for deep learning using calibrated regression,
    ICML, arXiv:1807.00263.

    Attributes
    ----------
    levels : (M,) nominal levels from 0 to 1.
    raw : (P, M) raw level of each parameter at these.

    Examples
    --------
    >>> pit = xr.Dataset({"lai": ("sample", np.linspace(0.0, 1.0, 2001) ** 2)})
    >>> correction = Recalibration.of(pit)
    >>> correction.raw_level(0, [0.5]).round(3).tolist()
    [0.25]
    """

    levels: Array
    raw: Array

    def __post_init__(self) -> None:
        if self.levels.ndim != 1 or self.raw.ndim != 2 or self.raw.shape[1:] != self.levels.shape:
            raise ValueError(
                f"raw levels of shape {self.raw.shape} do not fit levels of shape {self.levels.shape}; "
                "they need (parameters, levels)"
            )
        for name, rows in (("levels", self.levels[None]), ("raw", self.raw)):
            rising = (np.diff(rows) > 0).all() and (rows[:, 0] == 0).all() and (rows[:, -1] == 1).all()
            if not rising:
                raise ValueError(f"{name} of a recalibration must increase strictly from 0 to 1")

    @classmethod
    def of(cls, pit: xr.Dataset, minimum: int = 2000) -> Recalibration:
        """Estimate the map from PIT values of simulations that were held out of training.

        Parameters
        ----------
        pit : PIT values, a variable a parameter; their order is that of the rows of `raw`.
        minimum : fewest values to accept for any parameter. The CDF of n values errs by sqrt(p (1 - p) / n): with 2000,
            coverage of 90 % intervals by 0.7 %.

        Raises
        ------
        ValueError : a parameter has fewer values than `minimum`, or `pit` holds no variable or a value outside [0, 1].
        """
        values = pit_values(pit)
        for name, u in values.items():
            if u.size < max(minimum, 1):
                raise ValueError(
                    f"{name} has {u.size} finite pairs of truth and estimate, recalibration needs {max(minimum, 1)}: "
                    "hold out more simulations, or accept a coarser map with a smaller minimum"
                )
        return cls(GRID.copy(), np.array([_quantiles(u) for u in values.values()]))

    @property
    def reach(self) -> Array:
        """(P,) level of the widest central interval whose ends double precision resolves; 1 if all are."""
        near = np.array([2 * IDENTITY_SHARE, 1 - 2 * IDENTITY_SHARE])
        below, above = np.array([self.level(i, near) for i in range(self.raw.shape[0])]).T
        beyond = np.maximum(below, 1 - above)
        return np.asarray(np.where(beyond < self.levels[2], 1.0, 1 - 2 * beyond))

    def raw_level(self, parameter_index: int, level: ArrayLike) -> Array:
        """Say at which raw level the posterior has the quantile of a level.

        Parameters
        ----------
        parameter_index : row of `raw`.
        level : levels of quantiles, any shape, from 0 to 1; not levels of intervals.

        Returns
        -------
        Raw levels, shape of `level`; NaN stays NaN.

        Raises
        ------
        ValueError : a level is outside [0, 1].
        """
        asked: Array = np.asarray(level, dtype=np.float64)
        if ((asked < 0) | (asked > 1)).any():
            raise ValueError(f"levels run from {np.nanmin(asked):g} to {np.nanmax(asked):g}; give them between 0 and 1")
        return np.asarray(np.interp(asked, self.levels, self.raw[parameter_index]))

    def level(self, parameter_index: int, raw: ArrayLike) -> Array:
        """Invert `raw_level`: the recalibrated PIT of a raw PIT.

        Parameters
        ----------
        parameter_index : row of `raw`.
        raw : raw levels or PIT values, any shape; below 0 and above 1 count as 0 and 1.

        Returns
        -------
        Levels, shape of `raw`; NaN stays NaN.
        """
        return np.asarray(np.interp(np.asarray(raw, dtype=np.float64), self.raw[parameter_index], self.levels))

    def to_arrays(self) -> dict[str, Array]:
        """Return what a model file stores: `recalibration_level` (M,) and `recalibration_raw` (P, M)."""
        return {"recalibration_level": self.levels, "recalibration_raw": self.raw}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Recalibration:
        """Make it again from `to_arrays`; other entries are left alone.

        Raises
        ------
        KeyError : an array is missing.
        ValueError : shapes do not fit or a map does not increase from 0 to 1.
        """
        return cls(*(np.asarray(arrays[f"recalibration_{name}"], dtype=np.float64) for name in ("level", "raw")))


def _quantiles(u: Array) -> Array:
    """G^-1 on `GRID`: the sorted values at i / (n + 1), joined by lines, with a trace of the identity."""
    knots = np.concatenate([[0.0], np.sort(u), [1.0]])
    inverse = np.interp(GRID, np.linspace(0.0, 1.0, u.size + 2), knots)
    return np.asarray((1 - IDENTITY_SHARE) * inverse + IDENTITY_SHARE * GRID)
