"""Macroscopic roughness of a surface made of tilted facets: Hapke (1984, Icarus 59, 41)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .geometry import FloatArray, Geometry, refuse


@dataclass(frozen=True, eq=False)
class Roughness:
    """What roughness makes of a geometry; shapes are those of the slope and the geometry, broadcast.

    Attributes
    ----------
    mu0 : effective cosine of incidence.
    mu : effective cosine of emergence.
    shadowing : S, the factor of the reflectance of a smooth surface at these cosines.
    """

    mu0: FloatArray
    mu: FloatArray
    shadowing: FloatArray


def roughen(geometry: Geometry, mean_slope: ArrayLike) -> Roughness:
    """Return effective cosines and the shadowing function.

    Parameters
    ----------
    geometry : directions.
    mean_slope : mean slope angle theta-bar of the facets in degrees, 0 (smooth) to below 90, any shape that broadcasts
        with the geometry. The theory is first order in it: meant for about 40 at most.

    Returns
    -------
    At 0 the cosines are those of the geometry and the shadowing is 1.

    Raises
    ------
    ValueError : a slope is outside 0 to below 90.

    Examples
    --------
    >>> rough = roughen(Geometry(60.0, 30.0, 90.0), 20.0)
    >>> float(rough.shadowing.round(3))
    0.852
    """
    slope = np.asarray(mean_slope, dtype=np.float64)
    outside = (slope < 0.0) | (slope >= 90.0)
    refuse(slope, outside, "theta_bar is {:g} degrees; it must be within 0 to below 90")
    tan_slope = np.tan(np.radians(slope))
    shrink = 1.0 / np.sqrt(1.0 + np.pi * tan_slope**2)
    i, e, psi = np.radians([geometry.incidence, geometry.emergence, geometry.azimuth])
    steep, grazing = np.minimum(i, e), np.maximum(i, e)
    steep_1, steep_2 = _hidden(steep, tan_slope)
    grazing_1, grazing_2 = _hidden(grazing, tan_slope)
    half = np.sin(psi / 2.0) ** 2
    share = 2.0 - grazing_1 - psi / np.pi * steep_1

    tilted = np.sin(grazing) * tan_slope * (grazing_2 - half * steep_2) / share
    mu_grazing = shrink * (np.cos(grazing) + tilted)
    tilted = np.sin(steep) * tan_slope * (np.cos(psi) * grazing_2 + half * steep_2) / share
    mu_steep = shrink * (np.cos(steep) + tilted)
    alone_grazing = shrink * (np.cos(grazing) + np.sin(grazing) * tan_slope * grazing_2 / (2.0 - grazing_1))
    alone_steep = shrink * (np.cos(steep) + np.sin(steep) * tan_slope * steep_2 / (2.0 - steep_1))

    towards_sun = i <= e
    mu0, mu = np.where(towards_sun, mu_steep, mu_grazing), np.where(towards_sun, mu_grazing, mu_steep)
    alone_mu = np.where(towards_sun, alone_grazing, alone_steep)
    alone_mu0 = np.where(towards_sun, alone_steep, alone_grazing)
    overlap = np.exp(-2.0 * np.tan(psi / 2.0))
    seen = 1.0 - overlap + overlap * shrink * np.cos(steep) / alone_steep
    return Roughness(mu0, mu, mu / alone_mu * geometry.mu0 / alone_mu0 * shrink / seen)


def _hidden(angle: FloatArray, tan_slope: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E1 = exp(-2 x / pi) and E2 = exp(-x^2 / pi), x = cot(slope) cot(angle); both 0 where x is infinite."""
    with np.errstate(divide="ignore", over="ignore"):
        x = 1.0 / (tan_slope * np.tan(angle))
        return np.exp(-2.0 / np.pi * x), np.exp(-(x**2) / np.pi)
