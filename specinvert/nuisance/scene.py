"""What lies between the surface and the sensor, or beside the surface: thin cloud, haze, a background."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..cubes import Bands, check_units, describe_bands, find_band_dim, match_bands, require_numbers
from .base import (
    Draws,
    FloatArray,
    Nuisance,
    require_at_least_zero,
    require_positive,
    require_probability,
    require_range,
)

CLOUD_IS_WHITE_UP_TO_NM = 1300.0
HAZE_REFERENCE_NM = 1000.0


@dataclass(frozen=True)
class ThinCloud(Nuisance):
    """A thin cloud in some of the spectra: (1 - f) y + f b d(lam).

    f is 0 with probability 1 - ``probability``, else exponential of mean ``mean_fraction`` and at most 1; the
    brightness b is uniform; d is 1 up to 1300 nm and exp(-damping (lam - 1300 nm) / 1000 nm) beyond, for droplets and
    crystals absorb there.

    Attributes
    ----------
    probability : share of the spectra that have any cloud, 0 to 1.
    mean_fraction : mean of the share of cloud in those that do, above 0.
    brightness : (low, high) of the cloud's reflectance up to 1300 nm.
    damping : fall of the brightness beyond 1300 nm, for each 1000 nm; 0 is white everywhere and needs no wavelengths.
    units : those of ``brightness``; spectra whose units contradict them are refused.

    Raises
    ------
    TypeError : a value is no number.
    ValueError : a value outside its range; later, where the spectra have no wavelengths and ``damping`` is not 0, or
        have other units.

    Examples
    --------
    >>> ThinCloud(brightness=(60.0, 95.0), units="percent").probability
    0.5
    """

    probability: float = 0.5
    mean_fraction: float = 0.05
    brightness: tuple[float, float] = (0.6, 0.95)
    damping: float = 0.7
    units: str = "1"
    recorded: ClassVar[Mapping[str, str | None]] = {"fraction": "1", "brightness": None}

    def __post_init__(self) -> None:
        require_probability(self, self.probability)
        require_positive(self, mean_fraction=self.mean_fraction)
        require_range(self, "brightness", self.brightness)
        require_at_least_zero(self, damping=self.damping)

    def matched(self, bands: Bands, units: str | None) -> ThinCloud:
        """Itself, where units agree and wavelengths are there if needed."""
        _require_units(self, self.units, units)
        if self.damping:
            self._wavelength(bands, " or pass damping=0")
        return self

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``fraction`` and ``brightness`` (n,)."""
        present = rng.random(n) < self.probability
        fraction = np.minimum(rng.exponential(self.mean_fraction, n), 1.0)
        return {"fraction": np.where(present, fraction, 0.0), "brightness": rng.uniform(*self.brightness, n)}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra mixed with their cloud."""
        cloud = draws["brightness"][:, None] * self._damped(bands)
        return spectra + draws["fraction"][:, None] * (cloud - spectra)

    def _damped(self, bands: Bands) -> FloatArray:
        if not self.damping:
            return np.ones(bands.size)
        beyond = np.maximum(self._wavelength(bands) - CLOUD_IS_WHITE_UP_TO_NM, 0.0) / 1000.0
        return np.exp(-self.damping * beyond)


@dataclass(frozen=True)
class Haze(Nuisance):
    """Haze that thins with wavelength: t y + (1 - t) b, t = exp(-2 tau (lam / 1000 nm)^-slope).

    The optical depth tau is 0 with probability 1 - ``probability``, else exponential; the brightness b is uniform.

    Attributes
    ----------
    mean_depth : mean optical depth at 1000 nm in the spectra that have haze, above 0.
    probability : share of the spectra that have haze, 0 to 1.
    brightness : (low, high) of the reflectance of haze so thick that nothing shines through.
    slope : how fast the depth falls with wavelength, 0 or more; near 0 for coarse dust, 1.3 for fine particles.
    units : those of ``brightness``; spectra whose units contradict them are refused.

    Raises
    ------
    TypeError : a value is no number.
    ValueError : a value outside its range; later, where the spectra have no wavelengths, or other units.

    Examples
    --------
    >>> Haze(mean_depth=0.05).slope
    1.3
    """

    mean_depth: float = 0.05
    probability: float = 1.0
    brightness: tuple[float, float] = (0.3, 0.5)
    slope: float = 1.3
    units: str = "1"
    recorded: ClassVar[Mapping[str, str | None]] = {"depth": "1", "brightness": None}
    needs_wavelength: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(self, mean_depth=self.mean_depth)
        require_probability(self, self.probability)
        require_range(self, "brightness", self.brightness)
        require_at_least_zero(self, slope=self.slope)

    def matched(self, bands: Bands, units: str | None) -> Nuisance:
        """Itself, where units agree and wavelengths are there."""
        _require_units(self, self.units, units)
        return super().matched(bands, units)

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``depth`` and ``brightness`` (n,), and what the depth lets through, ``transmission`` (n, D)."""
        present = rng.random(n) < self.probability
        depth = np.where(present, rng.exponential(self.mean_depth, n), 0.0)
        fall = (self._wavelength(bands) / HAZE_REFERENCE_NM) ** -self.slope
        return {
            "depth": depth,
            "brightness": rng.uniform(*self.brightness, n),
            "transmission": np.exp(-2.0 * depth[:, None] * fall),
        }

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra seen through their haze."""
        haze = draws["brightness"][:, None]
        return haze + draws["transmission"] * (spectra - haze)


@dataclass(frozen=True, eq=False)
class Background(Nuisance):
    """Another surface in the same pixel: (1 - f) y + f s, s one of the background spectra, all as likely.

    f is 0 with probability 1 - ``probability``, else uniform.

    Attributes
    ----------
    spectra : one spectrum or a table of them, with the bands of the spectra to change, in any order, and more if you
        like; every dimension but the band's is a sample dimension. dask-backed ones are loaded.
    fraction : (low, high) of the share of background, within 0 to 1.
    probability : share of the spectra that have any background, 0 to 1.
    band_dim : the background's band dimension; None where its wavelengths tell.
    tolerance : largest difference of two wavelengths taken as the same, nm.

    Raises
    ------
    TypeError : ``spectra`` is no DataArray, or another value no number.
    ValueError : a value outside its range, background spectra that are empty or hold NaN; later, where bands have no
        partner or units differ.

    Examples
    --------
    >>> soil = xr.DataArray([0.1, 0.2], dims="wavelength", coords={"wavelength": [500.0, 600.0]})
    >>> Background(soil, fraction=(0.0, 0.3)).apply([[0.5, 0.5]], [600.0, 500.0], np.random.default_rng(0)).shape
    (1, 2)
    """

    spectra: xr.DataArray = field(repr=False)
    fraction: tuple[float, float] = (0.0, 0.3)
    probability: float = 1.0
    band_dim: str | None = None
    tolerance: float = 1.0
    recorded: ClassVar[Mapping[str, str | None]] = {"fraction": "1", "row": "1"}

    def __post_init__(self) -> None:
        if not isinstance(self.spectra, xr.DataArray):
            raise TypeError(f"the background must be an xarray DataArray, not {type(self.spectra).__name__}")
        require_range(self, "fraction", self.fraction, high=1.0)
        require_probability(self, self.probability)
        require_at_least_zero(self, tolerance=self.tolerance)
        array = require_numbers(self.spectra, "background spectra").compute()
        if array.size == 0 or not np.isfinite(array.values).all():
            what = "are empty" if array.size == 0 else "hold NaN or infinite values"
            raise ValueError(f"the background spectra {what} ({dict(array.sizes)}); give finite ones only")
        object.__setattr__(self, "spectra", array)
        object.__setattr__(self, "band_dim", find_band_dim(array, self.band_dim))

    def matched(self, bands: Bands, units: str | None) -> Background:
        """The same with its spectra as rows of exactly ``bands``."""
        given = self.spectra.attrs.get("units")
        check_units(units, None if given is None else str(given), "the background")
        own = describe_bands(self.spectra, str(self.band_dim))
        rows = self.spectra.transpose(..., own.dim).values.reshape(-1, own.size).astype(np.float64)
        table = xr.DataArray(rows[:, _partners(bands, own, self.tolerance)], dims=("row", "band"))
        return replace(self, spectra=table, band_dim="band")

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``fraction`` (n,), and which spectrum of the background, ``row`` (n,), from 0."""
        present = rng.random(n) < self.probability
        row = rng.integers(self.spectra.size // bands.size, size=n)
        return {"fraction": np.where(present, rng.uniform(*self.fraction, n), 0.0), "row": row.astype(np.float64)}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra mixed with their background."""
        background = self.spectra.values.reshape(-1, bands.size)[draws["row"].astype(np.intp)]
        return spectra + draws["fraction"][:, None] * (background - spectra)


def _require_units(owner: ThinCloud | Haze, expected: str, given: str | None) -> None:
    name = type(owner).__name__
    try:
        check_units(expected, given, "the spectra")
    except ValueError as error:
        raise ValueError(f"{name}: {error}; or pass {name}(brightness=..., units={given!r})") from error


def _partners(bands: Bands, own: Bands, tolerance: float) -> NDArray[np.intp]:
    """Positions in the background of the spectra's bands."""
    try:
        return match_bands(bands, own, tolerance, of="the background")
    except ValueError as error:
        raise ValueError(
            "the background does not have the bands of the spectra (in what follows it is the cube, they are the "
            f"training): {error}"
        ) from error
