"""Nuisances of every kind for tests, and a background spectrum for them to mix in."""

from typing import Any, ClassVar

import numpy as np
import xarray as xr

from labelled import wavelength_coordinate
from specinvert.nuisance import (
    Background,
    Discrepancy,
    Draws,
    Gain,
    Haze,
    Noise,
    Nuisance,
    Offset,
    ThinCloud,
    WavelengthShift,
)

SPECTRUM = np.array([0.1, 0.5, 0.3, 0.2, 0.6, 0.4, 0.45, 0.35])
SOIL = xr.DataArray(
    np.stack([np.linspace(0.1, 0.3, 8), np.full(8, 0.25)]),
    dims=("soil", "band"),
    coords={"wavelength": wavelength_coordinate()},
    attrs={"units": "1"},
)
GAUSSIAN = {
    "white": Noise(white=0.02),
    "relative": Noise(relative=0.1),
    "noise": Noise(white=0.02, relative=0.1),
    "noise of each band": Noise(white=np.linspace(0.0, 0.07, 8), relative=np.linspace(0.1, 0.0, 8)),
    "gain": Gain(0.05),
    "offset": Offset(0.03, mean=0.2),
    "smooth": Discrepancy(0.02, 80.0),
    "matern32": Discrepancy(0.02, 80.0, kernel="matern32"),
    "matern52": Discrepancy(0.02, 200.0, kernel="matern52"),
    "smooth share": Discrepancy(0.1, 300.0, relative=True),
    "chain": Noise(0.005, 0.02) | Discrepancy(0.01, 80.0) | Offset(0.01),
}
OTHERS = {
    "cloud": ThinCloud(),
    "haze": Haze(probability=0.7),
    "background": Background(SOIL, fraction=(0.1, 0.4), probability=0.5),
    "shift": WavelengthShift(2.0),
}


class Ripple(Nuisance):
    """A nuisance of a user: an exponential amplitude, over which last bits may vary, times a fixed ripple."""

    recorded: ClassVar = {"amplitude": "1"}

    def draw(self, rng: np.random.Generator, n: int, bands: Any) -> Draws:
        return {"amplitude": np.exp(0.1 * rng.standard_normal(n)) - 1.0}

    def perturb(self, spectra: np.ndarray, bands: Any, draws: Draws) -> np.ndarray:
        return spectra + draws["amplitude"][:, None] * (-1.0) ** np.arange(bands.size)


EVERYTHING = [*GAUSSIAN.values(), *OTHERS.values(), Ripple()]
