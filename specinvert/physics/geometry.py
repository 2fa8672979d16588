"""Directions of light at a surface: incidence, emergence, azimuth and the phase angle between them.

Angles are in degrees at the public face and in radians inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def refuse(values: np.ndarray, wrong: NDArray[np.bool_], told: str) -> None:
    """Raise ValueError where values, of any shape, are marked as wrong; `told` is formatted with the first of them."""
    if wrong.any():
        raise ValueError(told.format(values[wrong].flat[0].item()))


@dataclass(frozen=True, eq=False)
class Geometry:
    """Directions of illumination and observation, three arrays of one shape.

    Attributes
    ----------
    incidence : angle of the incident light from the surface normal, degrees, 0 to below 90.
    emergence : angle of the observer from the surface normal, degrees, 0 to below 90.
    azimuth : angle between the planes of incidence and emergence, degrees, 0 where source and observer are on one
        side of the normal, 180 where they are opposite; any number, folded to 0..180.

    Raises
    ------
    ValueError : an angle is outside its range or not finite, or the shapes do not broadcast.

    Examples
    --------
    >>> Geometry(30.0, [0.0, 30.0], 0.0).phase_angle.round(6)
    array([30.,  0.])
    """

    incidence: FloatArray
    emergence: FloatArray
    azimuth: FloatArray

    def __init__(self, incidence: ArrayLike, emergence: ArrayLike, azimuth: ArrayLike = 0.0) -> None:
        given = [np.array(angle, dtype=np.float64) for angle in (incidence, emergence, azimuth)]
        for name, angle in zip(("incidence", "emergence"), given[:2], strict=True):
            outside = ~((angle >= 0.0) & (angle < 90.0))
            refuse(angle, outside, f"{name} is {{:g}} degrees; it must be within 0 to below 90")
        if not np.isfinite(given[2]).all():
            raise ValueError("azimuth is not finite everywhere; give degrees")
        try:
            incidence, emergence, azimuth = np.broadcast_arrays(*given)
        except ValueError:
            shapes = ", ".join(str(angle.shape) for angle in given)
            raise ValueError(f"incidence, emergence and azimuth have shapes {shapes}, which do not broadcast") from None
        object.__setattr__(self, "incidence", incidence)
        object.__setattr__(self, "emergence", emergence)
        object.__setattr__(self, "azimuth", 180.0 - np.abs(180.0 - azimuth % 360.0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Common shape of the angles."""
        return self.incidence.shape

    @property
    def mu0(self) -> FloatArray:
        """Cosine of the incidence angle."""
        return np.asarray(np.cos(np.radians(self.incidence)))

    @property
    def mu(self) -> FloatArray:
        """Cosine of the emergence angle."""
        return np.asarray(np.cos(np.radians(self.emergence)))

    @property
    def phase_angle(self) -> FloatArray:
        """Angle between the directions to the source and to the observer, degrees, 0 in opposition."""
        i, e, psi = np.radians([self.incidence, self.emergence, self.azimuth])
        squared = np.sin((i - e) / 2) ** 2 + np.sin(i) * np.sin(e) * np.sin(psi / 2) ** 2
        return np.asarray(np.degrees(2 * np.arcsin(np.sqrt(np.minimum(squared, 1.0)))))
