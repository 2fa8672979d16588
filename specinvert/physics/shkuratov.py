"""Albedo of a powder from optical constants, and photometric functions, after Shkuratov.

The albedo model is Shkuratov, Starukhina, Hoffmann & Arnold (1999, Icarus 137, 235): geometrical optics of one grain
in one dimension, and a layered medium of such grains. The photometric function is that of Shkuratov et al. (2011,
Planetary and Space Science 59, 1326).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .geometry import FloatArray, Geometry, refuse


@dataclass(frozen=True, eq=False)
class _Surface:
    """Mean reflectances of a grain's surface: backward and forward outside, inside; transmittances in and out."""

    backward: FloatArray
    forward: FloatArray
    inside: FloatArray
    into: FloatArray
    out: FloatArray

    @classmethod
    def of(cls, n: FloatArray) -> _Surface:
        """The paper's fits to Fresnel's formulas, meant for n of 1.4 to 1.7."""
        outside = ((n - 1.0) / (n + 1.0)) ** 2 + 0.05
        backward = (0.28 * n - 0.20) * outside
        inside = 1.04 - 1.0 / n**2
        return cls(backward, outside - backward, inside, 1.0 - outside, 1.0 - inside)


def shkuratov_albedo(
    n: ArrayLike, k: ArrayLike, grain_size: ArrayLike, wavelength: ArrayLike, filling: ArrayLike
) -> FloatArray:
    """Albedo of a powder from its optical constants.

    Parameters
    ----------
    n, k : real and imaginary refractive index of the grains; n above 1, k at least 0 and small against n.
    grain_size : mean path of light through a grain, S, in um, above 0.
    wavelength : in nm, above 0.
    filling : q, share of the volume that grains fill, above 0 to 1: one minus the porosity.

    Returns
    -------
    Albedo in 0..1, of the broadcast shape of the arguments. It stands for the brightness at a phase angle of about 30
    degrees, not for a hemispherical albedo.

    Raises
    ------
    ValueError : an argument is outside its range.

    Examples
    --------
    >>> float(shkuratov_albedo(1.5, 1e-4, 30.0, 1000.0, 0.4).round(3))
    0.487
    """
    n, size, lam, q = _checked(n, grain_size, wavelength, filling)
    k = np.asarray(k, dtype=np.float64)
    refuse(k, k < 0.0, "k is {:g}; it must be at least 0")
    s = _Surface.of(n)
    tau = 4.0 * np.pi * k * size / (lam / 1000.0)
    again = 0.5 * s.into * s.out * s.inside * np.exp(-2.0 * tau) / (1.0 - s.inside * np.exp(-tau))
    back = q * (s.backward + again)
    ahead = q * (s.forward + s.into * s.out * np.exp(-tau) + again) + 1.0 - q
    half = (1.0 + back**2 - ahead**2) / (2.0 * back)
    return np.asarray(1.0 / (half + np.sqrt(np.maximum(half**2 - 1.0, 0.0))))


def shkuratov_k(
    albedo: ArrayLike, n: ArrayLike, grain_size: ArrayLike, wavelength: ArrayLike, filling: ArrayLike
) -> FloatArray:
    """Imaginary refractive index of the grains of a powder from its albedo: the inverse of `shkuratov_albedo`.

    Parameters
    ----------
    albedo : above 0 to 1.
    n, grain_size, wavelength, filling : as in `shkuratov_albedo`.

    Returns
    -------
    k, of the broadcast shape; NaN where no k of at least 0 gives that albedo: it is brighter than the powder without
    absorption, or darker than one that absorbs everything inside its grains.

    Raises
    ------
    ValueError : an argument is outside its range.

    Examples
    --------
    >>> float(shkuratov_k(shkuratov_albedo(1.5, 1e-4, 30.0, 1000.0, 0.4), 1.5, 30.0, 1000.0, 0.4).round(12))
    0.0001
    """
    n, size, lam, q = _checked(n, grain_size, wavelength, filling)
    bright = np.asarray(albedo, dtype=np.float64)
    refuse(bright, (bright <= 0.0) | (bright > 1.0), "albedo is {:g}; it must be above 0 and at most 1")
    s = _Surface.of(n)
    y = (1.0 - bright) ** 2 / (2.0 * bright)
    a = s.into * s.out * (y * s.inside + q * s.into)
    b = y * s.backward * s.inside + 0.5 * q * s.into**2 * (1.0 + s.out) - s.into * (1.0 - q * s.backward)
    c = 2.0 * y * s.backward - 2.0 * s.into * (1.0 - q * s.backward) + q * s.into**2
    root = (b / a) ** 2 - c / a
    transmitted = b / a + np.sqrt(np.where(root >= 0.0, root, np.nan))
    possible = (transmitted > 0.0) & (transmitted <= 1.0 + 1e-12)
    depth = np.abs(np.log(np.where(possible, np.minimum(transmitted, 1.0), np.nan)))
    return np.asarray(depth * (lam / 1000.0) / (4.0 * np.pi * size))


def shkuratov_reflectance(
    albedo: ArrayLike,
    geometry: Geometry,
    *,
    slope: ArrayLike,
    mu1: ArrayLike,
    mu2: ArrayLike = 0.0,
    m: ArrayLike = 0.0,
) -> FloatArray:
    """Reflectance factor of a surface by Shkuratov's phase function and Akimov's disk function (2011).

    A (exp(-mu1 g) + m exp(-mu2 g)) / (1 + m) * D / mu0, g the phase angle in radians and
    D = cos(g / 2) cos(pi / (pi - g) (lon - g / 2)) / cos(lon) * cos(lat)^(slope g (pi - g)), with the photometric
    longitude and latitude of the geometry.

    Parameters
    ----------
    albedo : a, the reflectance factor at i = e = 0, at least 0.
    geometry : directions.
    slope : nu, the roughness of the disk function.
    mu1, mu2, m : slopes of two exponentials of the phase angle, 1/rad, and the weight of the second, at least 0.

    Returns
    -------
    Reflectance factor r pi / mu0, of the broadcast shape.

    Raises
    ------
    ValueError : an albedo or a weight is negative.

    Examples
    --------
    >>> float(shkuratov_reflectance(0.3, Geometry(0.0, 0.0), slope=0.1, mu1=1.0))
    0.3
    """
    bright, m = np.asarray(albedo, dtype=np.float64), np.asarray(m, dtype=np.float64)
    refuse(bright, bright < 0.0, "albedo is {:g}; it must be at least 0")
    refuse(m, m < 0.0, "m is {:g}; it must be at least 0")
    g = np.radians(geometry.phase_angle)
    longitude, cos_latitude = _photometric(geometry)
    surge = (np.exp(-np.asarray(mu1) * g) + m * np.exp(-np.asarray(mu2) * g)) / (1.0 + m)
    disk = np.cos(g / 2.0) * np.cos(np.pi / (np.pi - g) * (longitude - g / 2.0)) / np.cos(longitude)
    disk = disk * cos_latitude ** (np.asarray(slope) * g * (np.pi - g))
    return np.asarray(bright * surge * disk / geometry.mu0)


def _photometric(geometry: Geometry) -> tuple[FloatArray, FloatArray]:
    """Longitude (radians, from the observer) and cosine of latitude: mu = cos lat cos lon."""
    g = np.radians(geometry.phase_angle)
    sin_g = np.sin(g)
    level = sin_g < 1e-9  # in opposition the equator is undefined: take it through the normal
    along = np.where(level, np.tan(np.radians(geometry.emergence)), 0.0)
    np.divide(geometry.mu0 / geometry.mu - np.cos(g), sin_g, out=along, where=~level)
    longitude = np.arctan(along)
    return longitude, np.minimum(geometry.mu / np.cos(longitude), 1.0)


def _checked(
    n: ArrayLike, grain_size: ArrayLike, wavelength: ArrayLike, filling: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    index, size, lam, q = (np.asarray(value, dtype=np.float64) for value in (n, grain_size, wavelength, filling))
    refuse(index, index <= 1.0, "n is {:g}; it must be above 1")
    refuse(size, size <= 0.0, "grain_size is {:g}; it must be above 0 um")
    refuse(lam, lam <= 0.0, "wavelength is {:g}; it must be above 0 nm")
    refuse(q, (q <= 0.0) | (q > 1.0), "filling is {:g}; it must be above 0 and at most 1")
    return index, size, lam, q
