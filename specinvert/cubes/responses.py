"""Spectral responses of a sensor's bands, and the weights with which they average finer spectra.

A fine spectrum is taken as constant over the cell of each of its samples, so that the weight of sample j in band i is
the integral of the response r_i over cell j, divided by that over all cells. Imports numpy and xarray only.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from .bands import Bands, describe_bands, find_band_dim, read_fwhm, read_good, wavelength_coordinate
from .labels import require_flags

RESPONSE_DIM = "response_wavelength"
"""The dimension, and its coordinate, along which responses are tabulated."""
_SIGMAS_PER_FWHM = 1.0 / math.sqrt(8.0 * math.log(2.0))
_GAP = 3.0
_NEAREST = 4
_erf = np.frompyfunc(math.erf, 1, 1)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Gaussians of ``centre`` and ``fwhm`` (B,) in nm, cut off ``reach`` FWHM to either side."""

    centre: np.ndarray
    fwhm: np.ndarray
    reach: float

    @property
    def lower(self) -> np.ndarray:
        """Where responses begin, (B,)."""
        return self.centre - self.reach * self.fwhm

    @property
    def upper(self) -> np.ndarray:
        """Where they end, (B,)."""
        return self.centre + self.reach * self.fwhm

    def integral(self, band: int, wavelength: np.ndarray) -> np.ndarray:
        """Half the error function of the distance in standard deviations over root two."""
        sigma = self.fwhm[band] * _SIGMAS_PER_FWHM
        z = (wavelength - self.centre[band]) / (sigma * math.sqrt(2.0))
        return np.asarray(0.5 * _erf(z).astype(np.float64))

    def take(self, bands: np.ndarray) -> Gaussian:
        """The responses of some of the bands."""
        return replace(self, centre=self.centre[bands], fwhm=self.fwhm[bands])

    def describe(self) -> str:
        """In words, for the history."""
        least, most = f"{self.fwhm.min():.4g}", f"{self.fwhm.max():.4g}"
        width = least if least == most else f"{least} to {most}"
        return f"Gaussian responses (FWHM {width} nm, {self.reach:g} FWHM to either side)"


@dataclass(frozen=True, eq=False)
class Tabulated:
    """Responses (B, m) at ``grid`` (m,) in nm, rising; linear between, zero beyond."""

    grid: np.ndarray
    values: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        """Where responses begin, (B,): the sample before the first that is not zero."""
        first = np.argmax(self.values > 0, axis=1)
        return np.asarray(self.grid[np.maximum(first - 1, 0)])

    @property
    def upper(self) -> np.ndarray:
        """Where they end, (B,)."""
        last = self.grid.size - 1 - np.argmax(self.values[:, ::-1] > 0, axis=1)
        return np.asarray(self.grid[np.minimum(last + 1, self.grid.size - 1)])

    def integral(self, band: int, wavelength: np.ndarray) -> np.ndarray:
        """The exact integral of the broken line."""
        grid, values = self.grid, self.values[band]
        width = np.diff(grid)
        whole = np.concatenate([[0.0], np.cumsum(0.5 * width * (values[1:] + values[:-1]))])
        left = np.clip(np.searchsorted(grid, wavelength, side="right") - 1, 0, grid.size - 2)
        into = np.clip(wavelength - grid[left], 0.0, width[left])
        slope = (values[left + 1] - values[left]) / width[left]
        return np.asarray(whole[left] + into * (values[left] + 0.5 * slope * into))

    def take(self, bands: np.ndarray) -> Tabulated:
        """The responses of some of the bands."""
        return replace(self, values=self.values[bands])

    def describe(self) -> str:
        """In words, for the history."""
        return f"responses tabulated from {self.grid[0]:g} to {self.grid[-1]:g} nm"


Response = Gaussian | Tabulated
"""Responses r_i of B bands, each zero beyond ``lower[i]`` and ``upper[i]`` in nm; ``integral`` is an antiderivative."""


@dataclass(frozen=True, eq=False)
class Sensor:
    """Bands to resample to: centres (B,) in nm, responses, and ``coords`` along ``dim`` for the result."""

    dim: str
    centre: np.ndarray
    response: Response
    coords: dict[str, xr.Variable]

    def take(self, bands: np.ndarray) -> Sensor:
        """Some of the bands, by index."""
        coords = {name: variable.isel({self.dim: bands}) for name, variable in self.coords.items()}
        return Sensor(self.dim, self.centre[bands], self.response.take(bands), coords)


@dataclass(frozen=True, eq=False)
class Cells:
    """What each of S samples of a spectrum stands for, in nm.

    Attributes
    ----------
    lower, upper : (S,) ends of the cells over which the spectrum is taken as constant.
    covered : (m, 2) stretches of wavelength that the samples cover, rising and apart from each other.
    """

    lower: np.ndarray
    upper: np.ndarray
    covered: np.ndarray

    @classmethod
    def of(cls, centre: np.ndarray, fwhm: np.ndarray | None) -> Cells:
        """The cells of samples at ``centre`` (S,), in any order: as wide as their FWHM, else half-way to neighbours.

        Where neighbours are three times as far apart as those on both sides, and as the middle of the four nearest
        pairs on either side, bands were left out: a cell ends there as far from its sample as on the other side. Where
        two detectors overlap, near pairs alternate with far ones, none of which is a gap.
        """
        order = np.argsort(centre)
        low, high = np.empty(centre.size), np.empty(centre.size)
        low[order], high[order] = _between(centre[order], None if fwhm is None else fwhm[order])
        lower, upper = (low, high) if fwhm is None else (centre - fwhm / 2.0, centre + fwhm / 2.0)
        return cls(lower, upper, _union(np.minimum(low, lower), np.maximum(high, upper)))


def read_sensor(sensor: Any, reach: float = 0.5, good_only: bool = False) -> Sensor:
    """Read the bands of a cube, a table of responses, or (centres, FWHM).

    Raises
    ------
    TypeError : ``sensor`` is none of these.
    ValueError : no wavelengths, no FWHM, impossible ones, a table that is not one, or ``reach`` out of range.
    """
    if not isinstance(reach, numbers.Real) or isinstance(reach, bool) or not 0 < reach < math.inf:
        raise ValueError(f"reach={reach!r} must be a number of FWHM above 0: 0.5, or 1.5 for almost all of a Gaussian")
    require_flags(good_only=good_only)
    if isinstance(sensor, tuple | list) and len(sensor) == 2:
        sensor = _of_arrays(*sensor)
    if isinstance(sensor, xr.Dataset):
        sensor = _of_dataset(sensor)
    if not isinstance(sensor, xr.DataArray):
        raise TypeError(
            "sensor must be a cube with 'wavelength' and 'fwhm' coordinates, a table of responses along "
            f"{RESPONSE_DIM!r}, or a pair (centres, fwhm), not {type(sensor).__name__}"
        )
    if RESPONSE_DIM in sensor.dims:
        return _read_table(sensor, good_only)
    dim = find_band_dim(sensor)
    sensor = _without_bad(sensor, dim, good_only)
    bands = describe_bands(sensor, dim)
    fwhm = read_fwhm(sensor, bands)
    if bands.wavelength is None or fwhm is None:
        raise ValueError(
            f"the sensor has no 'fwhm' coordinate along {dim!r}: attach one as with .assign_coords(fwhm=({dim!r}, "
            f"widths)), pass (centres, fwhm), or a table of responses along {RESPONSE_DIM!r}"
        )
    return Sensor(dim, bands.wavelength, Gaussian(bands.wavelength, fwhm, float(reach)), _coords(sensor, bands))


def band_weights(response: Response, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Weights (B, S) whose rows sum to one, zero where nothing is covered; and the share (B,) of responses covered."""
    lower, upper = response.lower, response.upper
    weights = np.zeros((lower.size, cells.lower.size))
    covered = np.zeros(lower.size)
    for i, ends in enumerate(zip(lower, upper, strict=True)):
        within = np.flatnonzero((cells.upper > ends[0]) & (cells.lower < ends[1]))
        weights[i, within] = _integrals(response, i, cells.lower[within], cells.upper[within], ends)
        stretches = _integrals(response, i, cells.covered[:, 0], cells.covered[:, 1], ends)
        whole = _integrals(response, i, np.array(ends[:1]), np.array(ends[1:]), ends)
        covered[i] = stretches.sum() / whole[0]
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), covered


def _integrals(
    response: Response, band: int, lower: np.ndarray, upper: np.ndarray, ends: tuple[float, float]
) -> np.ndarray:
    """Integrals of a response over intervals (m,), cut to its ends."""
    edges = np.clip(np.concatenate([lower, upper]), *ends)
    low, high = np.split(response.integral(band, edges), 2)
    return np.asarray(np.maximum(high - low, 0.0))


def _between(centre: np.ndarray, fwhm: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Ends of cells (S,) half-way between rising centres (S,), no further across gaps than on the other side."""
    space = np.diff(centre)
    if not space.size:
        if fwhm is None:
            raise ValueError("one band without 'fwhm' tells no width to resample: attach its 'fwhm'")
        return centre - fwhm / 2.0, centre + fwhm / 2.0
    usual = np.maximum(_usual_before(space), _usual_before(space[::-1])[::-1])
    gap = (space > _GAP * usual) & (space.size > 1)
    half = np.where(gap, np.nan, space / 2.0)
    left, right = np.append(np.nan, half), np.append(half, np.nan)
    alone = np.isnan(left) & np.isnan(right)
    left, right = (np.where(alone, np.nanmedian(half), side) for side in (left, right))
    return centre - np.where(np.isnan(left), right, left), centre + np.where(np.isnan(right), left, right)


def _usual_before(space: np.ndarray) -> np.ndarray:
    """Of the spaces before each (m,): the larger of the last and the median of the nearest; 0 before the first."""
    nearest = np.full((_NEAREST, space.size), np.nan)
    for i in range(min(_NEAREST, space.size - 1)):
        nearest[i, i + 1 :] = space[: space.size - 1 - i]
    usual = np.zeros(space.size)
    usual[1:] = np.maximum(nearest[0, 1:], np.nanmedian(nearest[:, 1:], axis=0))
    return usual


def _union(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The intervals merged where they touch, (m, 2)."""
    order = np.argsort(lower)
    lower, reached = lower[order], np.maximum.accumulate(upper[order])
    apart = np.flatnonzero(lower[1:] > reached[:-1] + 1e-9)
    return np.stack([lower[np.append(0, apart + 1)], reached[np.append(apart, lower.size - 1)]], axis=1)


def _of_arrays(centre: Any, fwhm: Any) -> xr.DataArray:
    values, widths = np.asarray(centre, dtype=np.float64), np.asarray(fwhm, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or widths.shape not in ((), values.shape):
        raise ValueError(
            f"sensor=(centres, fwhm) have shapes {values.shape} and {widths.shape}: give (B,) centres and (B,) widths"
        )
    coords = {"wavelength": values, "fwhm": ("wavelength", np.broadcast_to(widths, values.shape).copy())}
    return xr.DataArray(np.empty(values.size), dims="wavelength", coords=coords)


def _of_dataset(sensor: xr.Dataset) -> xr.DataArray:
    tables = [name for name, array in sensor.data_vars.items() if RESPONSE_DIM in array.dims]
    if len(tables) > 1:
        raise ValueError(f"several variables lie along {RESPONSE_DIM!r} ({tables}): pass the one with the responses")
    vectors = [name for name, array in sensor.data_vars.items() if array.ndim == 1]
    sensor = sensor.set_coords(vectors)
    if tables:
        return sensor[tables[0]]
    if "fwhm" not in sensor.coords:
        raise ValueError(
            f"the sensor has neither 'fwhm' nor responses along {RESPONSE_DIM!r} (variables: "
            f"{[str(name) for name in sensor.variables]}): attach widths as with .assign_coords(fwhm=...)"
        )
    return sensor["fwhm"].assign_attrs(sensor.attrs)


def _read_table(table: xr.DataArray, good_only: bool) -> Sensor:
    if table.ndim != 2 or RESPONSE_DIM not in table.coords:
        raise ValueError(
            f"a table of responses has two dimensions, bands and {RESPONSE_DIM!r} with a coordinate of that name; this "
            f"has {dict(table.sizes)} and coordinates {[str(name) for name in table.coords]}"
        )
    dim = next(str(d) for d in table.dims if d != RESPONSE_DIM)
    table = _without_bad(table, dim, good_only)
    along = table.coords[RESPONSE_DIM]
    axis = xr.DataArray(np.empty(along.size), dims="r", coords={"wavelength": ("r", along.values, along.attrs)})
    grid = describe_bands(axis, "r").wavelength
    assert grid is not None
    order = np.argsort(grid)
    values = np.asarray(table.transpose(dim, RESPONSE_DIM).values, dtype=np.float64)[:, order]
    if grid.size < 2 or not np.isfinite(values).all() or (values < 0).any() or not (values > 0).any(axis=1).all():
        raise ValueError(
            f"responses along {RESPONSE_DIM!r} must be two numbers or more a band, none NaN or negative and not all 0: "
            "clip noise below 0, fill NaN with 0, drop bands without a response"
        )
    response = Tabulated(grid[order], values)
    bands = describe_bands(table, dim)
    centre, coords = bands.wavelength, _coords(table, bands)
    if centre is None:
        centre = band_weights(response, Cells.of(response.grid, None))[0] @ response.grid
        attrs = {"units": "nm", "long_name": "centroid of the response"}
        coords["wavelength"] = xr.Variable((dim,), centre, attrs)
    return Sensor(dim, centre, response, coords)


def _without_bad(array: xr.DataArray, dim: str, good_only: bool) -> xr.DataArray:
    good = read_good(array, dim) if good_only else None
    if good is None:
        return array
    if not good.any():
        raise ValueError(f"none of the sensor's {good.size} bands is good: correct its coordinate 'good'")
    return array.isel({dim: good})


def _coords(array: xr.DataArray, bands: Bands) -> dict[str, xr.Variable]:
    """What describes the bands: wavelengths and FWHM with the unit they were read in, ``good``, and names of bands."""
    coords: dict[str, xr.Variable] = {}
    centres = wavelength_coordinate(array, bands.dim)
    named = {"fwhm": array.coords.get("fwhm"), "good": array.coords.get("good"), "wavelength": centres}
    if bands.wavelength is None and bands.labels is not None:
        named["band"] = array.coords[bands.dim]
    for name, coordinate in named.items():
        if coordinate is None or coordinate.dims != (bands.dim,):
            continue
        attrs = dict(coordinate.attrs)
        if name == "wavelength" or (name == "fwhm" and "units" not in attrs):
            attrs["units"] = bands.unit
        coords[name] = xr.Variable((bands.dim,), coordinate.values, attrs)
    return coords
