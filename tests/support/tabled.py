"""Spectra in a table with all their maps, and spectra of a square, whose posteriors have two modes."""

from functools import cache

import numpy as np
import xarray as xr

from labelled import WAVELENGTHS, fitted, make_training
from specinvert import GLLiMInverter

EVERY = (
    *("mean", "std", "q05", "q5", "q975", "ci90", "hdi90", "mode", "n_modes", "cov", "entropy"),
    *("residual", "fit_rmse", "log_evidence", "flag"),
)
ROWS = 6


@cache
def table() -> xr.DataArray:
    """Spectra (sample, band) that no model of the tests has seen."""
    return make_training(ROWS, seed=21)["reflectance"]


@cache
def maps_of_table() -> xr.Dataset:
    return fitted(1).invert(table(), outputs=EVERY)


@cache
def square_training() -> xr.Dataset:
    """Spectra of the square of t, which do not tell t from -t."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-1.0, 1.0, 1500)
    values = t[:, None] ** 2 * np.linspace(0.5, 1.0, 8) + 0.01 * rng.normal(size=(1500, 8))
    coords = {"wavelength": ("band", WAVELENGTHS, {"units": "nm"})}
    return xr.Dataset({"reflectance": (("sample", "band"), values), "t": ("sample", t)}, coords=coords)


@cache
def square_model() -> GLLiMInverter:
    return GLLiMInverter(n_components=12, n_latent=0, max_iter=20, tol=0.0, random_state=0).fit(square_training())


def spectra_of_squares(t: list[float]) -> xr.DataArray:
    values = np.array(t)[:, None] ** 2 * np.linspace(0.5, 1.0, 8)
    return square_training()["reflectance"][: len(t)].copy(data=values)
