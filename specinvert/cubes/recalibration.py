"""The correction of posteriors that are not as wide as they say, from PIT values: fitted, applied and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from ..gllim.core import Array

_ROUNDING = 1e-6

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

    def recalibrated(self, pit: xr.Dataset) -> xr.Dataset:
        """PIT values, a variable a parameter in the order of `raw`, as they are with the correction."""
        return pit.assign({name: pit[name].copy(data=self.level(i, pit[name])) for i, name in enumerate(pit.data_vars)})

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
    flat: dict[str, Array] = {}
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
