"""Errors of the instrument and of the simulator: noise, gain, offset, a smooth discrepancy, shifted wavelengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..cubes import Bands, require_flags
from .base import Draws, FloatArray, Nuisance, require, require_at_least_zero, require_positive

KERNELS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "squared_exponential": lambda d: np.exp(-0.5 * d**2),
    "matern32": lambda d: (1 + np.sqrt(3) * d) * np.exp(-np.sqrt(3) * d),
    "matern52": lambda d: (1 + np.sqrt(5) * d + 5 / 3 * d**2) * np.exp(-np.sqrt(5) * d),
}
"""Correlation of a smooth discrepancy at two wavelengths, of their distance over the length scale."""

SMALLEST_EIGENVALUE = 1e-10
"""Directions of a kernel with less than this share of its largest eigenvalue are not drawn."""


@dataclass(frozen=True, init=False)
class Noise(Nuisance):
    """Noise independent from band to band: y + sqrt(white^2 + (relative y)^2) z, z ~ N(0, 1).

    Attributes
    ----------
    white : standard deviation in the units of the spectra, one number or one a band, (D,).
    relative : standard deviation as a share of the spectrum, one number or one a band, (D,).

    Raises
    ------
    TypeError : a value is no number.
    ValueError : a value is negative or not finite; later, where there is one a band and the spectra have others.

    Examples
    --------
    >>> Noise(white=0.005, relative=0.02)
    Noise(white=0.005, relative=0.02)
    """

    white: float | tuple[float, ...] = 0.0
    relative: float | tuple[float, ...] = 0.0

    def __init__(self, white: ArrayLike = 0.0, relative: ArrayLike = 0.0) -> None:
        for name, given in (("white", white), ("relative", relative)):
            values = np.asarray(given)
            if values.dtype.kind not in "iuf":
                shown = " ".join(repr(given).split())[:60]
                raise TypeError(f"Noise: {name} is {shown}; give one number, or one a band")
            values = values.astype(np.float64)
            if values.ndim > 1:
                raise ValueError(f"Noise: {name} has shape {values.shape}; give one number, or one a band")
            wrong = ~(values >= 0) | np.isinf(values)
            if wrong.any():
                raise ValueError(f"Noise: {name} is {values[wrong][0]:g}; give finite numbers, 0 or more")
            object.__setattr__(self, name, float(values) if values.ndim == 0 else tuple(values.tolist()))

    def matched(self, bands: Bands, units: str | None) -> Noise:
        """Itself, where there is one number, or one a band."""
        for name, given in (("white", self.white), ("relative", self.relative)):
            if isinstance(given, tuple) and len(given) != bands.size:
                raise ValueError(f"Noise: {name} has {len(given)} numbers and the spectra have {bands.size} bands")
        return self

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``z`` (n, D), standard normal."""
        return {"z": rng.standard_normal((n, bands.size))}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra with noise."""
        return spectra + np.sqrt(self._variance(spectra)) * draws["z"]

    def _variance(self, spectra: FloatArray) -> FloatArray:
        variance: FloatArray = np.square(self.white) + np.square(np.asarray(self.relative) * spectra)
        return variance

    def _covariance(self, bands: Bands, spectrum: FloatArray | None) -> FloatArray:
        known = self._spectrum(spectrum) if np.any(self.relative) else np.zeros(bands.size)
        return np.diag(self._variance(known))


@dataclass(frozen=True)
class Gain(Nuisance):
    """A wrong calibration factor, the same in all bands: y (1 + std z), z ~ N(0, 1).

    Attributes
    ----------
    std : standard deviation of the factor about 1.

    Raises
    ------
    TypeError : a value is no number.
    ValueError : ``std`` is negative or not finite.

    Examples
    --------
    >>> Gain(0.02).covariance(None, spectrum=[1.0, 2.0]).round(4).tolist()
    [[0.0004, 0.0008], [0.0008, 0.0016]]
    """

    std: float
    recorded: ClassVar[Mapping[str, str | None]] = {"factor": "1"}

    def __post_init__(self) -> None:
        require_at_least_zero(self, std=self.std)

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``factor`` (n,)."""
        return {"factor": 1.0 + self.std * rng.standard_normal(n)}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra times their factor."""
        return spectra * draws["factor"][:, None]

    def _covariance(self, bands: Bands, spectrum: FloatArray | None) -> FloatArray:
        known = self._spectrum(spectrum)
        return self.std**2 * np.outer(known, known)


@dataclass(frozen=True)
class Offset(Nuisance):
    """Stray light or a dark level, the same in all bands: y + mean + std z, z ~ N(0, 1).

    Attributes
    ----------
    std : standard deviation in the units of the spectra.
    mean : mean in the units of the spectra; its covariance leaves it out.

    Raises
    ------
    TypeError : a value is no number.
    ValueError : ``std`` is negative, or a value is not finite.

    Examples
    --------
    >>> Offset(0.1).covariance([500.0, 600.0]).round(3).tolist()
    [[0.01, 0.01], [0.01, 0.01]]
    """

    std: float
    mean: float = 0.0
    recorded: ClassVar[Mapping[str, str | None]] = {"level": None}

    def __post_init__(self) -> None:
        require_at_least_zero(self, std=self.std)
        require(self, "a finite number", np.isfinite, mean=self.mean)

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``level`` (n,)."""
        return {"level": self.mean + self.std * rng.standard_normal(n)}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra plus their level."""
        return spectra + draws["level"][:, None]

    def _covariance(self, bands: Bands, spectrum: FloatArray | None) -> FloatArray:
        return np.full((bands.size, bands.size), self.std**2)


@dataclass(frozen=True)
class Discrepancy(Nuisance):
    """What simulations get wrong, smooth in wavelength: y + std g, or y (1 + std g) where ``relative``.

    g is a Gaussian process of mean 0, variance 1 and correlation ``k(|lam - lam'| / length_scale)``.

    Attributes
    ----------
    std : standard deviation in the units of the spectra, or as a share of them where ``relative``.
    length_scale : in nm; curves change over distances of this size.
    kernel : ``"squared_exponential"``, or ``"matern52"`` or ``"matern32"``, which are rougher.
    relative : whether the curve is a share of the spectrum.

    Raises
    ------
    TypeError : a value is no number.
    ValueError : ``std`` is negative, ``length_scale`` is not above 0, the kernel is unknown; later, where the spectra
        have no wavelengths.

    Examples
    --------
    >>> Discrepancy(std=0.1, length_scale=80.0).covariance([500.0, 580.0]).round(4).tolist()
    [[0.01, 0.0061], [0.0061, 0.01]]
    """

    std: float
    length_scale: float
    kernel: str = "squared_exponential"
    relative: bool = False
    needs_wavelength: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_at_least_zero(self, std=self.std)
        require_positive(self, length_scale=self.length_scale)
        require_flags(relative=self.relative)
        if not isinstance(self.kernel, str) or self.kernel not in KERNELS:
            raise ValueError(f"Discrepancy: kernel is {self.kernel!r}; give one of {', '.join(map(repr, KERNELS))}")

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``curve`` (n, D), of standard deviation ``std``."""
        root = _root(self.kernel, self.length_scale, self._wavelength(bands).tobytes())
        return {"curve": self.std * (rng.standard_normal((n, root.shape[0])) @ root)}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra with their curve."""
        return spectra + (spectra * draws["curve"] if self.relative else draws["curve"])

    def _covariance(self, bands: Bands, spectrum: FloatArray | None) -> FloatArray:
        additive = self.std**2 * _correlation(self.kernel, self.length_scale, self._wavelength(bands))
        if not self.relative:
            return additive
        known = self._spectrum(spectrum)
        return additive * np.outer(known, known)


@dataclass(frozen=True)
class WavelengthShift(Nuisance):
    """Band centres that are off by the same distance: y(lam + distance), distance ~ N(0, std^2).

    Between bands the spectrum is interpolated linearly, which smooths it where the shift is near half the distance of
    two bands; beyond the first and last it is held.

    Attributes
    ----------
    std : standard deviation of the distance in nm.

    Raises
    ------
    TypeError : a value is no number.
    ValueError : ``std`` is negative or not finite; later, where the spectra have no wavelengths.

    Examples
    --------
    >>> WavelengthShift(std=1.5)
    WavelengthShift(std=1.5)
    """

    std: float
    recorded: ClassVar[Mapping[str, str | None]] = {"distance": "nm"}
    needs_wavelength: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_at_least_zero(self, std=self.std)

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """``distance`` (n,) in nm."""
        return {"distance": self.std * rng.standard_normal(n)}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra seen at the shifted wavelengths."""
        wavelength = self._wavelength(bands)
        order = np.argsort(wavelength)
        increasing, spectra = wavelength[order], spectra[:, order]
        shifted = np.empty_like(spectra)
        for row, spectrum, distance in zip(shifted, spectra, draws["distance"], strict=True):
            row[:] = np.interp(wavelength + distance, increasing, spectrum)
        return shifted


def _correlation(kernel: str, length_scale: float, wavelength: FloatArray) -> FloatArray:
    """The kernel at all pairs of wavelengths, (D, D)."""
    return KERNELS[kernel](np.abs(np.subtract.outer(wavelength, wavelength)) / length_scale)


@lru_cache(maxsize=8)
def _root(kernel: str, length_scale: float, wavelength: bytes) -> FloatArray:
    """R (r, D) with R'R the correlation, r as few as it needs; ``wavelength`` holds float64 in nm.

    The signs of eigenvectors are those that make their product with a fixed direction positive: a seed then gives the
    same curves with any linear algebra library, to rounding.
    """
    values, vectors = np.linalg.eigh(_correlation(kernel, length_scale, np.frombuffer(wavelength)))
    kept = values > SMALLEST_EIGENVALUE * values[-1]
    direction = np.random.default_rng(0).standard_normal(len(vectors))
    signs = np.where(direction @ vectors[:, kept] < 0, -1.0, 1.0)
    root = np.ascontiguousarray((vectors[:, kept] * (signs * np.sqrt(values[kept]))).T)
    root.flags.writeable = False
    return root
