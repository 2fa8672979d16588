"""Whether spectra are on the scale of those of training: 0 to 10 000 or percent against a fraction, for instance."""

from __future__ import annotations

import numpy as np

from ..gllim.core import Array
from ..gllim.model import GLLiMParameters
from ..gllim.transforms import SpectraTransform
from ..progress import warn_user

LEAST_TIMES, LEAST_BEYOND = 30.0, 20.0
"""How many times the values of training those of a band are in the median, and the largest of all bands the largest,
where they are on another scale: snow is brighter than water by less."""
LARGEST_TIMES = 3e6
"""Beyond it are values that stand for no data."""
SPECTRA = 1000
"""Spectra of a block that are looked at, about."""


def typical_values(theta: GLLiMParameters, transform: SpectraTransform) -> Array:
    """Root mean square (D,) of each band of training spectra, in their own units, by the model without its noise."""
    squares = transform.inverse(theta.centres()) ** 2
    if transform.kind is None:
        squares = squares + np.einsum("kdl,klm,kdm->kd", theta.A, theta.Gamma, theta.A)
    return np.asarray(np.sqrt(theta.pi @ squares))


def times_training(spectra: Array, typical: Array) -> float | None:
    """The power of ten by which values of spectra (n, D) exceed those typical of training (D,), below 1 the other way.

    None where they are on one scale. Medians judge, of bands and of all, so that neither a bright scene nor few odd
    values or bands are taken for another scale.
    """
    size = np.where(np.isfinite(spectra), np.abs(spectra), np.nan)
    use = (typical > 0.0) & ~np.isnan(size).all(axis=0)
    if not use.any():
        return None
    bands, expected = np.nanmedian(size[:, use], axis=0), typical[use]
    times = float(np.median(bands / expected))
    largest = float(bands.max() / expected.max())
    larger = LEAST_TIMES <= times <= LARGEST_TIMES and largest >= LEAST_BEYOND
    smaller = LEAST_TIMES <= 1.0 / max(times, 1e-99) <= LARGEST_TIMES and largest <= 1.0 / LEAST_BEYOND
    return float(10.0 ** round(np.log10(times))) if larger or smaller else None


def warn_of_scale(times: float) -> None:
    """Warn of spectra on another scale than those of training."""
    shown = f"{max(times, 1 / times):,.0f}".replace(",", " ")
    seen, do = (f"{shown} times", f"divide them by {shown}") if times > 1 else (f"1/{shown} of", f"multiply by {shown}")
    warn_user(
        f"the values of the spectra are about {seen} those of training: {do}, or declare their scale "
        "(scale_factor, or reflectance scale factor in a header); the maps of such spectra mean nothing"
    )
