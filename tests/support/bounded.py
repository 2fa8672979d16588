"""Spectra of parameters with bounds and of a composition, and a model trained with every kind of transform."""

from functools import cache
from typing import Any

import numpy as np
import xarray as xr

from labelled import WAVELENGTHS
from specinvert import GLLiMInverter

NAMES = ["grain", "cover", "lai", "ice", "rock", "soil"]
PARTS = ["ice", "rock", "soil"]
TRANSFORMS: dict[Any, Any] = {
    "grain": "log",
    "cover": ("logit", -1.0, 3.0),
    "lai": "sqrt",
    ("ice", "rock", "soil"): "ilr",
}
SETTINGS: dict[str, Any] = {"n_components": 3, "max_iter": 8, "tol": 0.0, "random_state": 0}


def make_training(n: int = 400, seed: int = 0) -> xr.Dataset:
    """Spectra of six parameters: a size, a share of bounds -1 and 3, an index, and a composition of three parts."""
    rng = np.random.default_rng(seed)
    parts = rng.dirichlet([3.0, 2.0, 2.0], n)
    values = {
        "grain": 10.0 ** rng.uniform(0.0, 3.0, n),
        "cover": 4.0 * rng.beta(2.0, 2.0, n) - 1.0,
        "lai": rng.gamma(2.0, 1.0, n),
        **dict(zip(PARTS, parts.T, strict=True)),
    }
    bands = WAVELENGTHS / 1000.0
    spectra = (
        0.2 * np.log10(values["grain"])[:, None] * np.cos(3.0 * bands)
        + 0.2 * values["cover"][:, None] * np.sin(5.0 * bands)
        + 0.2 * np.sqrt(values["lai"])[:, None] * np.cos(9.0 * bands)
        + parts @ np.stack([np.sin(12.0 * bands), np.cos(16.0 * bands), np.sin(20.0 * bands)])
        + 0.02 * rng.normal(size=(n, 8))
    )
    coords = {"wavelength": ("band", WAVELENGTHS, {"units": "nm"})}
    table = {name: ("sample", array, {"units": "1"}) for name, array in values.items()}
    return xr.Dataset({"reflectance": (("sample", "band"), spectra), **table}, coords=coords)


@cache
def bounded(n_ensemble: int = 1) -> GLLiMInverter:
    """Trained with every kind of transform; do not change it."""
    return GLLiMInverter(transforms=TRANSFORMS, n_ensemble=n_ensemble, n_latent=0, **SETTINGS).fit(make_training())


@cache
def logarithmic() -> GLLiMInverter:
    """Of one parameter and its logarithm."""
    data = make_training()[["reflectance", "grain", "lai"]]
    return GLLiMInverter(transforms={"grain": "log", "lai": "identity"}, n_latent=0, **SETTINGS).fit(data)


def scaled_spectra(scale: float, n: int = 1000) -> xr.DataArray:
    like = make_training(n, seed=1)["reflectance"]
    return like.copy(data=scale * np.random.default_rng(int(np.log10(scale)) + 10).normal(size=(n, 8)))
