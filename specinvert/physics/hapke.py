"""Reflectance of a semi-infinite particulate surface after Hapke, and training sets of it seen from many directions.

r = w / (4 pi) * mu0e / (mu0e + mue) * (p(g) (1 + B(g)) + M(mu0e, mue)) * S

w single-scattering albedo, p phase function, B opposition effect (`phase`), mu0e, mue and S effective cosines and
shadowing of a rough surface (`roughness`), M multiple scattering. The variants differ in M:

| variant | M | H function | source |
| --- | --- | --- | --- |
| "1981" | isotropic | (1 + 2 x) / (1 + 2 x sqrt(1 - w)) | Hapke 1981, J. Geophys. Res. 86, 3039 |
| "1993" | isotropic | second approximation in gamma | Hapke 1993, Theory of Reflectance and Emittance Spectroscopy |
| "2002" | anisotropic | second approximation in w | Hapke 2002, Icarus 157, 523 |
| "exact" | isotropic | Chandrasekhar's, by quadrature | Chandrasekhar 1960, Radiative Transfer |

Isotropic M is H(mu0e) H(mue) - 1. In a training set the directions take the place of bands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from .geometry import FloatArray, Geometry, refuse
from .mixing import MixtureParameter, with_ranges
from .phase import ISOTROPIC, HenyeyGreenstein, PhaseFunction, opposition_surge
from .roughness import roughen

HFunction = Callable[[FloatArray, FloatArray], FloatArray]

QUANTITIES: Mapping[str, str] = MappingProxyType(
    {
        "reff": "reflectance factor: r pi / mu0, relative to a perfect Lambert surface lit alike",
        "radf": "radiance factor: r pi, relative to a perfect Lambert surface lit from the normal (I/F)",
        "brdf": "bidirectional reflectance distribution function: r / mu0, 1/sr",
        "r": "bidirectional reflectance: radiance over incident flux across the beam, 1/sr",
    }
)
"""What `hapke_reflectance` can return."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def h_1981(x: ArrayLike, w: ArrayLike) -> FloatArray:
    """Two-stream approximation of the H function, within 4.1 % of the exact one (Hapke 1981).

    Examples
    --------
    >>> float(h_1981(0.5, 0.9).round(3))
    1.519
    """
    x, w = np.asarray(x, dtype=np.float64), np.asarray(w, dtype=np.float64)
    return np.asarray((1.0 + 2.0 * x) / (1.0 + 2.0 * x * np.sqrt(1.0 - w)))


def h_1993(x: ArrayLike, w: ArrayLike) -> FloatArray:
    """Second approximation of the H function, within 0.8 % of the exact one (Hapke 1993).

    Examples
    --------
    >>> float(h_1993(0.5, 0.9).round(3))
    1.558
    """
    x, gamma = np.asarray(x, dtype=np.float64), np.sqrt(1.0 - np.asarray(w, dtype=np.float64))
    r0 = (1.0 - gamma) / (1.0 + gamma)
    return np.asarray(1.0 / (1.0 - (1.0 - gamma) * x * (r0 + (1.0 - r0 / 2.0 - r0 * x) * np.log((1.0 + x) / x))))


def h_2002(x: ArrayLike, w: ArrayLike) -> FloatArray:
    """Second approximation of the H function, within 1 % of the exact one (Hapke 2002).

    Examples
    --------
    >>> float(h_2002(0.5, 0.9).round(3))
    1.545
    """
    x, w = np.asarray(x, dtype=np.float64), np.asarray(w, dtype=np.float64)
    gamma = np.sqrt(1.0 - w)
    r0 = (1.0 - gamma) / (1.0 + gamma)
    return np.asarray(1.0 / (1.0 - w * x * (r0 + (0.5 - r0 * x) * np.log((1.0 + x) / x))))


def h_exact(x: ArrayLike, w: ArrayLike) -> FloatArray:
    """Chandrasekhar's H function of isotropic scattering, to 1e-8.

    ln H(x) = -x / pi * integral over t from 0 to infinity of ln(1 - w arctan(t) / t) / (1 + x^2 t^2), by
    Gauss-Legendre quadrature; 64 times the work of an approximation.

    Parameters
    ----------
    x : cosine of an angle from the normal, 0 to 1, any shape; the approximations want it above 0.
    w : single-scattering albedo, 0 to 1, broadcast with x.

    Examples
    --------
    >>> float(h_exact(0.5, 0.9).round(3))
    1.556
    """
    x, w = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(w, dtype=np.float64))
    u = 0.5 * (_NODES + 1.0)
    angle = 0.5 * np.pi * u**3 * (10.0 - 15.0 * u + 6.0 * u**2)  # flat at both ends, where the integrand has corners
    weight = 0.25 * np.pi * _WEIGHTS * 30.0 * u**2 * (1.0 - u) ** 2
    total = np.zeros(x.shape)
    for theta, part in zip(angle, weight, strict=True):
        lost = theta**2 / 3.0 + theta**4 / 45.0 if theta < 1e-2 else 1.0 - theta / np.tan(theta)
        logarithm = np.log(1.0 - w + w * lost)
        total = total + part * logarithm / (np.cos(theta) ** 2 + (x * np.sin(theta)) ** 2)
    return np.asarray(np.exp(-x / np.pi * total))


@dataclass(frozen=True)
class Variant:
    """How a variant of the model treats multiple scattering."""

    h: HFunction
    anisotropic: bool


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        "1981": Variant(h_1981, anisotropic=False),
        "1993": Variant(h_1993, anisotropic=False),
        "2002": Variant(h_2002, anisotropic=True),
        "exact": Variant(h_exact, anisotropic=False),
    }
)
"""Accepted names of `variant`."""


def hapke_reflectance(
    w: ArrayLike,
    geometry: Geometry,
    *,
    phase: PhaseFunction = ISOTROPIC,
    opposition: tuple[ArrayLike, ArrayLike] | None = None,
    theta_bar: ArrayLike = 0.0,
    variant: str = "2002",
    quantity: str = "reff",
) -> FloatArray:
    """Reflectance of a particulate surface, for any mixture of parameters, wavelengths and geometries.

    Everything broadcasts: w of shape (sample, wavelength, 1) and a geometry of shape (geometry,) give
    (sample, wavelength, geometry).

    Parameters
    ----------
    w : single-scattering albedo, 0 to 1.
    geometry : directions.
    phase : single-particle phase function; its parameters broadcast too.
    opposition : amplitude B0 and width h of the shadow-hiding opposition effect; None for none.
    theta_bar : mean slope angle of the macroscopic roughness in degrees, 0 to below 90.
    variant : "1981", "1993", "2002" or "exact": the multiple scattering, see the table above. The model of 1984 is
        "1981" with theta_bar.
    quantity : "reff", "radf", "brdf" or "r": see `QUANTITIES`.

    Returns
    -------
    Reflectance, of the broadcast shape. A NaN parameter gives NaN.

    Raises
    ------
    ValueError : a parameter is outside its range or a name is unknown.

    Examples
    --------
    >>> hapke_reflectance([[0.2], [0.9]], Geometry(30.0, [0.0, 40.0, 60.0])).shape
    (2, 3)
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant is {variant!r}; choose from {', '.join(VARIANTS)}")
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity is {quantity!r}; choose from {', '.join(QUANTITIES)}")
    albedo = np.asarray(w, dtype=np.float64)
    refuse(albedo, (albedo < 0.0) | (albedo > 1.0), "w is {!r}; a single-scattering albedo is within 0 to 1")
    rough = roughen(geometry, theta_bar)
    angle = geometry.phase_angle
    single = phase(np.cos(np.radians(angle)))
    if opposition is not None:
        single = single * (1.0 + opposition_surge(angle, *opposition))
    multiple = _multiple(rough.mu0, rough.mu, albedo, VARIANTS[variant], phase)
    r = albedo / (4.0 * np.pi) * rough.mu0 / (rough.mu0 + rough.mu) * (single + multiple) * rough.shadowing
    if quantity in ("reff", "radf"):
        r = np.pi * r
    return np.asarray(r / geometry.mu0 if quantity in ("reff", "brdf") else r)


def _multiple(mu0: FloatArray, mu: FloatArray, w: FloatArray, variant: Variant, phase: PhaseFunction) -> FloatArray:
    """M of the isotropic kind, or P(mu0) (H - 1) + P(mu) (H0 - 1) + P (H0 - 1) (H - 1) of Hapke (2002)."""
    h0, h = variant.h(mu0, w), variant.h(mu, w)
    if not variant.anisotropic or phase.order == 0:
        return h0 * h - 1.0
    from_mu0, from_mu, average = _downward(mu0, mu, phase)
    return from_mu0 * (h - 1.0) + from_mu * (h0 - 1.0) + average * (h0 - 1.0) * (h - 1.0)


def _downward(mu0: FloatArray, mu: FloatArray, phase: PhaseFunction) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean of p over the lower hemisphere for light from mu0, from mu, and for light from everywhere above.

    P(x) = 1 + sum A_n b_n P_n(x) and P = 1 + sum A_n^2 b_n, where A_n = -integral of P_n over 0..1: zero for even n.
    """
    from_mu0, from_mu, average, share = np.ones_like(mu0), np.ones_like(mu), np.ones(()), -0.5
    for n, (at_mu0, at_mu) in enumerate(zip(_legendre(mu0, phase.order), _legendre(mu, phase.order), strict=True), 1):
        if n % 2:
            b = phase.coefficient(n)
            from_mu0 = from_mu0 + share * b * at_mu0
            from_mu = from_mu + share * b * at_mu
            average = average + share**2 * b
            share *= -n / (n + 3)
    return from_mu0, from_mu, average


def _legendre(x: FloatArray, order: int) -> Iterator[FloatArray]:
    """P_1(x) to P_order(x), one after another."""
    previous, current = np.ones_like(x), x
    for n in range(1, order + 1):
        yield current
        previous, current = current, ((2 * n + 1) * x * current - n * previous) / (n + 1)


PARAMETERS: Mapping[str, MixtureParameter] = MappingProxyType(
    {
        "w": MixtureParameter(0.0, 1.0, "1", "single-scattering albedo", limits=(0.0, 1.0)),
        "theta_bar": MixtureParameter(0.0, 35.0, "degree", "mean slope angle", limits=(0.0, 89.0)),
        "b": MixtureParameter(0.0, 0.9, "1", "width of the phase function's lobes", limits=(0.0, 0.99)),
        "c": MixtureParameter(0.0, 1.0, "1", "share of the backward lobe", limits=(0.0, 1.0)),
        "b0": MixtureParameter(0.0, 1.0, "1", "amplitude of the opposition effect"),
        "h": MixtureParameter(0.02, 1.0, "1", "width of the opposition effect", limits=(1e-6, np.inf)),
    }
)
"""Hapke's parameters and the ranges `simulate_brdf` draws from."""

_BLOCK = 4096


def brdf(
    parameters: Mapping[str, FloatArray], geometry: Geometry, *, variant: str = "2002", quantity: str = "reff"
) -> FloatArray:
    """Reflectance at every geometry for Hapke's six parameters.

    Parameters
    ----------
    parameters : `w`, `theta_bar` (degrees), `b`, `c`, `b0`, `h`: numbers or arrays that broadcast, shape (...).
    geometry : directions, shape (geometry,).
    variant, quantity : as in `hapke_reflectance`.

    Returns
    -------
    Shape (..., geometry).

    Raises
    ------
    ValueError : a parameter is missing or outside its range.

    Examples
    --------
    >>> parameters = {"w": 0.5, "theta_bar": 10.0, "b": 0.3, "c": 0.4, "b0": 1.0, "h": 0.1}
    >>> brdf(parameters, Geometry(30.0, [0.0, 30.0], 0.0)).round(3).tolist()
    [0.133, 0.229]
    """
    missing = [name for name in PARAMETERS if name not in parameters]
    if missing:
        raise ValueError(f"parameters lack {', '.join(missing)}; give {', '.join(PARAMETERS)}")
    p = {name: np.asarray(parameters[name], dtype=np.float64)[..., np.newaxis] for name in PARAMETERS}
    return hapke_reflectance(
        p["w"],
        geometry,
        phase=HenyeyGreenstein(p["b"], p["c"]),
        opposition=(p["b0"], p["h"]),
        theta_bar=p["theta_bar"],
        variant=variant,
        quantity=quantity,
    )


def simulate_brdf(
    n_samples: int,
    geometry: Geometry,
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    variant: str = "2002",
    quantity: str = "reff",
    seed: int = 0,
) -> xr.Dataset:
    """Make a training set of reflectances over geometries, parameters drawn evenly from their ranges.

    Parameters
    ----------
    n_samples : how many, at least 1.
    geometry : directions, shape (geometry,).
    ranges : other ranges (low, high) for some of `PARAMETERS`; equal for a constant.
    variant, quantity : as in `hapke_reflectance`.
    seed : of the draws.

    Returns
    -------
    Dataset with `reflectance` (sample, geometry), `w`, `theta_bar`, `b`, `c`, `b0`, `h` over sample with units and long
    names, and the angles as coordinates of geometry in degrees. No noise is added. Train with
    `GLLiMInverter().fit(training, band_dim="geometry")`.

    Raises
    ------
    ValueError : n_samples is below 1, the geometry is not a list, or a range is out of the model's limits.

    Examples
    --------
    >>> dict(simulate_brdf(5, Geometry(30.0, [0.0, 30.0, 60.0])).sizes)
    {'sample': 5, 'geometry': 3}
    """
    if n_samples < 1:
        raise ValueError(f"n_samples is {n_samples}; ask for at least 1")
    if len(geometry.shape) != 1 or geometry.shape[0] == 0:
        raise ValueError(f"geometry has shape {geometry.shape}; give a non-empty list of directions")
    chosen = with_ranges(PARAMETERS, ranges)
    draws = np.random.default_rng(seed).random((len(chosen), n_samples))
    values = {name: p.from_unit(u) for (name, p), u in zip(chosen.items(), draws, strict=True)}
    spectra = np.empty((n_samples, geometry.shape[0]))
    for start in range(0, n_samples, _BLOCK):
        rows = slice(start, start + _BLOCK)
        part = {name: value[rows] for name, value in values.items()}
        spectra[rows] = brdf(part, geometry, variant=variant, quantity=quantity)
    units = "1" if quantity in ("reff", "radf") else "sr-1"
    return xr.Dataset(
        {
            "reflectance": (("sample", "geometry"), spectra, {"units": units, "long_name": QUANTITIES[quantity]}),
            **{name: ("sample", values[name], p.attrs) for name, p in chosen.items()},
        },
        coords=geometry_coordinates(geometry),
        attrs={"source": f"specinvert Hapke BRDF simulator, variant {variant}"},
    )


def geometry_coordinates(geometry: Geometry) -> dict[str, tuple[str, FloatArray, dict[str, str]]]:
    """Coordinates of a list of directions along `geometry`, in degrees.

    Examples
    --------
    >>> list(geometry_coordinates(Geometry([30.0, 30.0], [0.0, 30.0], 0.0)))
    ['incidence', 'emergence', 'azimuth']
    """
    angles = {
        "incidence": (geometry.incidence, "angle of the incident light from the normal"),
        "emergence": (geometry.emergence, "angle of the observer from the normal"),
        "azimuth": (geometry.azimuth, "angle between the planes of incidence and emergence"),
    }
    return {name: ("geometry", a, {"units": "degree", "long_name": text}) for name, (a, text) in angles.items()}
