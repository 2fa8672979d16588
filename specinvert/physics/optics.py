"""Single-scattering albedo of grains from the refractive index of what they are made of, and mixtures.

The grain is the equivalent slab of Hapke (1981, J. Geophys. Res. 86, 3039; 2012, Theory of Reflectance and Emittance
Spectroscopy, chapter 6): surface reflections averaged over all directions by Fresnel's formulas, absorption along a
mean path, internal scatterers if wanted. Grains are large against the wavelength; their extinction efficiency is 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from ..cubes import describe_bands
from .geometry import FloatArray, refuse

ComplexArray = NDArray[np.complex128]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_SMALLEST_K = 1e-12


def optical_constants(wavelength: ArrayLike, n: ArrayLike, k: ArrayLike, *, units: str = "nm") -> xr.Dataset:
    """Label optical constants.

    Parameters
    ----------
    wavelength : shape (wavelength,).
    n, k : real and imaginary refractive index, shape (wavelength,) or a number.
    units : of the wavelengths: "nm", "um", "m".

    Returns
    -------
    Dataset with `n` and `k` over `wavelength`, as `refractive_index` and `simulate_polar_ices` take them.

    Raises
    ------
    ValueError : the wavelengths are not a list, or n or k has another length.

    Examples
    --------
    >>> list(optical_constants([1.0, 2.0], 1.3, [1e-6, 1e-3], units="um").data_vars)
    ['n', 'k']
    """
    lam, real, imaginary = (np.asarray(v, dtype=np.float64) for v in (wavelength, n, k))
    if lam.ndim != 1 or any(v.shape not in ((), lam.shape) for v in (real, imaginary)):
        raise ValueError(
            f"wavelength, n and k have shapes {lam.shape}, {real.shape} and {imaginary.shape}; give a list of "
            "wavelengths, and n and k of the same length or numbers"
        )
    real, imaginary = np.broadcast_to(real, lam.shape), np.broadcast_to(imaginary, lam.shape)
    return xr.Dataset(
        {
            "n": ("wavelength", real, {"units": "1", "long_name": "real refractive index"}),
            "k": ("wavelength", imaginary, {"units": "1", "long_name": "imaginary refractive index"}),
        },
        coords={"wavelength": ("wavelength", lam, {"units": units, "standard_name": "radiation_wavelength"})},
    )


def refractive_index(constants: xr.Dataset, wavelength: ArrayLike, *, name: str = "constants") -> ComplexArray:
    """Interpolate optical constants to the bands of a sensor: n evenly, k in its logarithm.

    Parameters
    ----------
    constants : `n` and `k` over one dimension that carries wavelengths, in any order and in any unit of length. k is at
        least 0; below 1e-12 it is taken as 1e-12. Rows without numbers at either end are as if absent.
    wavelength : in nm, shape (band,).
    name : what the constants are of, for messages.

    Returns
    -------
    n + i k, complex, shape (band,).

    Raises
    ------
    ValueError : `n` or `k` is missing, not along one dimension with wavelengths, has a gap or a negative value, or does
        not cover the bands.

    Examples
    --------
    >>> ice = optical_constants([1.0, 2.0], 1.3, [1e-6, 1e-4], units="um")
    >>> refractive_index(ice, [1500.0]).round(9)
    array([1.3+1.e-05j])
    """
    missing = [v for v in ("n", "k") if v not in constants]
    if missing:
        raise ValueError(
            f"{name} has no {' and no '.join(missing)}, only {', '.join(map(str, constants.data_vars))}; "
            "rename the real refractive index to n and the imaginary one to k"
        )
    if constants["n"].ndim != 1 or constants["k"].dims != constants["n"].dims:
        raise ValueError(
            f"{name} has n over {constants['n'].dims} and k over {constants['k'].dims}; give one and the same dimension"
        )
    bands = describe_bands(constants["n"], str(constants["n"].dims[0]))
    if bands.wavelength is None:
        raise ValueError(f"{name} has no wavelengths along {bands.dim!r}; add them as a coordinate with units")
    order = np.argsort(bands.wavelength)
    known = bands.wavelength[order]
    n, k = (constants[v].to_numpy().astype(np.float64)[order] for v in ("n", "k"))
    rows = np.flatnonzero(np.isfinite(n) & np.isfinite(k))
    if rows.size == 0:
        raise ValueError(f"{name} has no row with both n and k")
    whole = slice(rows[0], rows[-1] + 1)
    known, n, k = known[whole], n[whole], k[whole]
    wrong = ~((n > 0) & np.isfinite(n) & (k >= 0) & np.isfinite(k))
    if wrong.any():
        raise ValueError(
            f"{name} has n {n[wrong][0]:g} and k {k[wrong][0]:g} at {known[wrong][0]:g} nm; n must be above 0 and k at "
            "least 0 there: fill the gap or drop the row"
        )
    lam = np.asarray(wavelength, dtype=np.float64)
    outside = ~((lam >= known[0]) & (lam <= known[-1]))
    if outside.any():
        raise ValueError(
            f"{name} covers {known[0]:g} to {known[-1]:g} nm, not {lam[outside].flat[0]:g} nm; choose other bands"
        )
    real = np.interp(lam, known, n)
    imaginary = np.exp(np.interp(lam, known, np.log(np.maximum(k, _SMALLEST_K))))
    return np.asarray(real + 1j * imaginary)


def fresnel_averages(index: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Reflectance of a surface under diffuse light, from outside and from inside.

    Means of Fresnel's reflectances for unpolarised light over a hemisphere, weighted by the cosine, by quadrature:
    Hapke's S_e and S_i. Without absorption, 1 - S_e = n^2 (1 - S_i).

    Parameters
    ----------
    index : complex refractive index n + i k against the surrounding medium, n above 0, any shape.

    Returns
    -------
    outside : S_e, of the same shape.
    inside : S_i, total reflection included.

    Raises
    ------
    ValueError : n is not above 0, or k is negative.

    Examples
    --------
    >>> [float(s.round(4)) for s in fresnel_averages(1.5)]
    [0.0918, 0.5963]
    """
    m = np.asarray(index, dtype=np.complex128)
    wrong = (m.real <= 0.0) | (m.imag < 0.0)
    refuse(m, wrong, "refractive index is {:g}; n must be above 0 and k at least 0")
    return _diffuse_reflectance(m), _diffuse_reflectance(1.0 / m)


def grain_albedo(
    index: ArrayLike, diameter: ArrayLike, wavelength: ArrayLike, *, internal_scattering: ArrayLike = 0.0
) -> FloatArray:
    """Single-scattering albedo of grains: the equivalent slab.

    w = S_e + (1 - S_e) (1 - S_i) T / (1 - S_i T), T the share of light that crosses the grain. The mean path of
    light is 2/3 (n^2 - (n^2 - 1)^1.5 / n) diameters, and 2/3 where n is below 1.

    Parameters
    ----------
    index : complex refractive index n + i k, shape (band,).
    diameter : in um, above 0, shape (..., 1) to broadcast with the bands.
    wavelength : in nm, shape (band,).
    internal_scattering : coefficient s of scatterers inside the grain, 1/um, at least 0; broadcast.

    Returns
    -------
    w in 0..1, of the broadcast shape.

    Raises
    ------
    ValueError : n, a diameter or a wavelength is not above 0, or k or a coefficient is negative.

    Examples
    --------
    >>> grain_albedo(1.3 + 1e-5j, [[100.0], [1000.0]], [1500.0]).round(3)
    array([[0.988],
           [0.892]])
    """
    m, lam = np.asarray(index, dtype=np.complex128), np.asarray(wavelength, dtype=np.float64)
    size, s = np.asarray(diameter, dtype=np.float64), np.asarray(internal_scattering, dtype=np.float64)
    refuse(lam, lam <= 0.0, "wavelength is {:g} nm; it must be above 0")
    refuse(size, size <= 0.0, "grain diameter is {:g} um; it must be above 0")
    refuse(s, s < 0.0, "internal_scattering is {:g} per um; it must be at least 0")
    outside, inside = fresnel_averages(m)
    absorption = 4.0 * np.pi * m.imag / (lam / 1000.0)
    n = np.maximum(m.real, 1.0)
    path = 2.0 / 3.0 * (n**2 - (n**2 - 1.0) ** 1.5 / n) * size
    if (s > 0.0).any():
        total = absorption + s
        share = np.sqrt(np.divide(absorption, total, out=np.zeros_like(total), where=total > 0.0))
        back = (1.0 - share) / (1.0 + share)
        decay = np.exp(-np.sqrt(absorption * total) * path)
        crossing = (back + decay) / (1.0 + back * decay)
    else:
        crossing = np.exp(-absorption * path)
    albedo = outside + (1.0 - outside) * (1.0 - inside) * crossing / (1.0 - inside * crossing)
    return np.minimum(albedo, 1.0)  # rounding adds to the one of grains that do not absorb


def intimate_mixture(
    albedo: Sequence[ArrayLike], volume: Sequence[ArrayLike], diameter: Sequence[ArrayLike]
) -> FloatArray:
    """Single-scattering albedo of grains mixed grain by grain: the mean by cross-section.

    A share v of the volume in grains of diameter D has a cross-section proportional to v / D (Hapke 1981, equation 17,
    for grains of one shape and an extinction efficiency of 1).

    Parameters
    ----------
    albedo : single-scattering albedo of each constituent, 0 to 1, shapes that broadcast.
    volume : share of the grain volume of each; they sum to 1.
    diameter : grain diameter of each, in one unit, above 0.

    Returns
    -------
    w of the mixture, of the broadcast shape.

    Raises
    ------
    ValueError : there is not one of each, an albedo is outside 0 to 1, a share is negative, a diameter is not above 0,
        or the shares do not sum to 1.

    Examples
    --------
    >>> float(intimate_mixture([0.9, 0.5], [0.5, 0.5], [10.0, 30.0]).round(6))
    0.8
    """
    shares = _shares(volume, len(albedo), len(diameter))
    sizes, albedos = ([np.asarray(v, dtype=np.float64) for v in given] for given in (diameter, albedo))
    for size in sizes:
        refuse(size, size <= 0.0, "grain diameter is {:g}; it must be above 0")
    for w in albedos:
        refuse(w, (w < 0.0) | (w > 1.0), "albedo is {!r}; a single-scattering albedo is within 0 to 1")
    weights = [v / size for v, size in zip(shares, sizes, strict=True)]
    return np.minimum(_weighted(weights, albedos) / sum(weights), 1.0)


def areal_mixture(reflectance: Sequence[ArrayLike], area: Sequence[ArrayLike]) -> FloatArray:
    """Reflectance of patches side by side, each seen alone: the mean by area.

    Parameters
    ----------
    reflectance : of each patch, shapes that broadcast.
    area : share of each; they sum to 1.

    Raises
    ------
    ValueError : there is not one share for each patch, a share is negative, or they do not sum to 1.

    Examples
    --------
    >>> float(areal_mixture([0.8, 0.2], [0.25, 0.75]).round(6))
    0.35
    """
    return _weighted(_shares(area, len(reflectance)), reflectance)


def _weighted(weights: Sequence[FloatArray], values: Sequence[ArrayLike]) -> FloatArray:
    terms = [weight * np.asarray(value, dtype=np.float64) for weight, value in zip(weights, values, strict=True)]
    return np.asarray(sum(terms[1:], terms[0]))


def _shares(given: Sequence[ArrayLike], *counts: int) -> list[FloatArray]:
    shares = [np.asarray(share, dtype=np.float64) for share in given]
    if not shares or any(count != len(shares) for count in counts):
        raise ValueError(f"{len(shares)} shares for {' and '.join(map(str, counts))} constituents; give one for each")
    for share in shares:
        refuse(share, share < 0.0, "a share is {:g}; shares are at least 0")
    total = np.asarray(sum(shares[1:], shares[0]))
    refuse(total, np.abs(total - 1.0) > 1e-6, "shares sum to {:g}; they must sum to 1")
    return shares


def _diffuse_reflectance(m: ComplexArray) -> FloatArray:
    """Integral of Fresnel's reflectance over u = sin^2 of the incidence, 0 to 1, in two parts.

    They meet at the angle of total reflection, and v^2 (3 - 2 v) takes the square roots out of their ends.
    """
    v = 0.5 * (_NODES + 1.0)
    smooth, weight = v**2 * (3.0 - 2.0 * v), 0.5 * _WEIGHTS * 6.0 * v * (1.0 - v)
    m = m[..., np.newaxis]
    corner = np.clip((m**2).real, 0.0, 1.0)
    total = np.zeros(m.shape[:-1])
    for low, high in ((0.0, corner), (corner, 1.0)):
        u = low + (high - low) * smooth
        cosine, inner = np.sqrt(1.0 - u), np.sqrt(m**2 - u)
        with np.errstate(invalid="ignore"):  # 0 / 0 in an empty part where m is 1
            across = (cosine - inner) / (cosine + inner)
            along = (m**2 * cosine - inner) / (m**2 * cosine + inner)
        part = np.where(low == high, 0.0, 0.5 * (np.abs(across) ** 2 + np.abs(along) ** 2))
        total = total + ((high - low) * part * weight).sum(axis=-1)
    return np.asarray(total)
