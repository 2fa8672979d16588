"""Spectra in figures: bands in the order of their wavelengths, lines that break where bands are left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specinvert.cubes.bands import Bands
from specinvert.cubes.units import NM_PER_UNIT

_GAP = 4.0
_FEW = 25


@dataclass(frozen=True)
class BandAxis:
    """Where bands are drawn: ``order`` (D,) sorts them, ``places`` (D,) are sorted, ``breaks`` follow gaps."""

    order: np.ndarray
    places: np.ndarray
    breaks: np.ndarray
    label: str

    @classmethod
    def of(cls, bands: Bands) -> BandAxis:
        """By wavelength in the unit that the bands came in, else by number."""
        if bands.wavelength is None or bands.unit is None:
            places = np.arange(bands.size, dtype=np.float64)
            return cls(np.arange(bands.size), places, np.empty(0, dtype=np.intp), "band")
        order = np.argsort(bands.wavelength, kind="stable")
        places = bands.wavelength[order] / NM_PER_UNIT[bands.unit]
        steps = np.diff(places)
        wide = np.flatnonzero(steps > _GAP * np.median(steps)) + 1 if bands.size > _FEW else np.empty(0, dtype=np.intp)
        return cls(order, places, wide, f"wavelength ({bands.unit})")

    @property
    def marker(self) -> str:
        """A dot for each band where bands are few."""
        return "." if self.places.size <= _FEW else ""

    @property
    def x(self) -> np.ndarray:
        """Places of a line, with one more at each break."""
        return np.insert(self.places, self.breaks, self.places[self.breaks])

    def y(self, spectrum: np.ndarray) -> np.ndarray:
        """Values of a line for a spectrum (D,) in the order of the bands, NaN at each break."""
        return np.insert(np.asarray(spectrum, dtype=np.float64)[self.order], self.breaks, np.nan)
