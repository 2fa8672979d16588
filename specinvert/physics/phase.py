"""Single-particle phase functions and the opposition effect, by phase angle g.

g is 0 in opposition (backscattering) and 180 degrees straight ahead. Phase functions are normalised so that
their mean over the sphere is 1, and are written as Legendre series p(g) = 1 + sum_n b_n P_n(cos g), in which a
positive b_1 scatters backwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import eval_legendre

from .geometry import FloatArray, refuse

_SERIES_TOLERANCE = 1e-10


class PhaseFunction(Protocol):
    """What a model of reflectance asks of a phase function."""

    def __call__(self, cos_phase: ArrayLike) -> FloatArray:
        """Return p at the cosines of the phase angle; parameters broadcast against them."""

    @property
    def order(self) -> int:
        """Last order n of the Legendre series that matters."""

    def coefficient(self, n: int) -> FloatArray | float:
        """Return b_n of the Legendre series, n from 1 to `order`."""


@dataclass(frozen=True, eq=False)
class HenyeyGreenstein:
    """Henyey & Greenstein (1941) with one or two lobes of one width.

    p(g) = c (1 - b^2) / (1 - 2 b cos g + b^2)^1.5 + (1 - c) (1 - b^2) / (1 + 2 b cos g + b^2)^1.5

    Attributes
    ----------
    b : width of the lobes, 0 (isotropic) to below 1, any shape.
    c : share of the backward lobe, any shape that broadcasts with b. Within 0 to 1 unless a fit wants otherwise:
        outside, p may become negative. 0 is the one-parameter function, forward scattering with asymmetry b;
        1 is backward. (Hapke 2012 writes c' = 2 c - 1.)

    Raises
    ------
    ValueError : b is outside 0 to below 1.

    Examples
    --------
    >>> float(HenyeyGreenstein(0.0)(0.3))
    1.0
    """

    b: FloatArray
    c: FloatArray

    def __init__(self, b: ArrayLike, c: ArrayLike = 0.0) -> None:
        width, share = np.asarray(b, dtype=np.float64), np.asarray(c, dtype=np.float64)
        refuse(width, (width < 0.0) | (width >= 1.0), "b is {:g}; it must be within 0 to below 1")
        object.__setattr__(self, "b", width)
        object.__setattr__(self, "c", share)

    def __call__(self, cos_phase: ArrayLike) -> FloatArray:
        """Return p at the cosines of the phase angle."""
        cos_g = np.asarray(cos_phase, dtype=np.float64)
        square, cross = 1.0 + self.b**2, 2.0 * self.b * cos_g
        backward, forward = (square - cross) ** -1.5, (square + cross) ** -1.5
        return np.asarray((1.0 - self.b**2) * (self.c * backward + (1.0 - self.c) * forward))

    @property
    def order(self) -> int:
        """Order from which b^n no longer matters, for the widest b given."""
        largest = float(np.nanmax(self.b, initial=0.0))
        return 0 if largest == 0.0 else max(1, int(np.ceil(np.log(_SERIES_TOLERANCE) / np.log(largest))))

    def coefficient(self, n: int) -> FloatArray:
        """b_n = (2 n + 1) b^n (c + (1 - c) (-1)^n)."""
        sign = -1.0 if n % 2 else 1.0
        return np.asarray((2 * n + 1) * self.b**n * (self.c + sign * (1.0 - self.c)))


@dataclass(frozen=True, eq=False)
class Legendre:
    """Legendre series p(g) = 1 + sum_n b_n P_n(cos g).

    Attributes
    ----------
    coefficients : b_1, b_2, ...; each a number or an array that broadcasts with the others. Empty: isotropic.

    Examples
    --------
    >>> float(Legendre([0.5])(1.0))
    1.5
    """

    coefficients: Sequence[ArrayLike] = ()

    def __call__(self, cos_phase: ArrayLike) -> FloatArray:
        """Return p at the cosines of the phase angle."""
        cos_g = np.asarray(cos_phase, dtype=np.float64)
        total = np.ones_like(cos_g)
        for n, b in enumerate(self.coefficients, start=1):
            total = total + np.asarray(b, dtype=np.float64) * eval_legendre(n, cos_g)
        return total

    @property
    def order(self) -> int:
        """Number of coefficients."""
        return len(self.coefficients)

    def coefficient(self, n: int) -> FloatArray:
        """b_n."""
        return np.asarray(self.coefficients[n - 1], dtype=np.float64)


ISOTROPIC = Legendre()
"""Scattering alike into all directions."""


def opposition_surge(phase_angle: ArrayLike, amplitude: ArrayLike, width: ArrayLike) -> FloatArray:
    """Shadow-hiding opposition effect B(g) = B0 / (1 + tan(g / 2) / h), Hapke (1986, Icarus 67, 264).

    Parameters
    ----------
    phase_angle : g in degrees, any shape.
    amplitude : B0, at least 0, 1 for opaque grains; broadcasts with g.
    width : h, above 0, in radians: B falls to B0 / 2 at tan(g / 2) = h.

    Returns
    -------
    B, by which single scattering is raised: p (1 + B).

    Raises
    ------
    ValueError : an amplitude is negative or a width is not above 0.

    Examples
    --------
    >>> opposition_surge([0.0, 180.0], 1.0, 0.1).round(6)
    array([1., 0.])
    """
    b0, h = np.asarray(amplitude, dtype=np.float64), np.asarray(width, dtype=np.float64)
    refuse(b0, b0 < 0.0, "opposition amplitude is {:g}; it must be at least 0")
    refuse(h, h <= 0.0, "opposition width is {:g}; it must be above 0")
    return np.asarray(b0 / (1.0 + np.tan(np.radians(phase_angle) / 2.0) / h))
