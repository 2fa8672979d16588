"""A cheap labelled training set, cubes of the same kind in any shape, and models fitted to them in a moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr

from specinvert import GLLiMInverter

WAVELENGTHS = np.array([450.0, 520.0, 610.0, 700.0, 830.0, 995.0, 960.0, 1200.0])
"""Band centres in nm, not in order."""
PARAMETERS = ["water", "dust"]
QUICK_FIT: dict[str, Any] = {"n_components": 3, "tol": 0.0, "max_iter": 4, "random_state": 0}
"""Settings that fit in well under a second, without a warning on convergence."""
QUICK: dict[str, Any] = QUICK_FIT | {"transforms": {}}
"""The same of an inverter of the parameters as they are."""
SIZES = {"time": 2, "y": 5, "x": 6}
"""Sizes that pixel dimensions have in cubes."""
TRUTH_ATTRS = {"water": {"units": "g m-2", "long_name": "leaf water"}, "dust": {"units": "1"}}


def spectra_of(water: Any, dust: Any, haze: Any = 0.0) -> np.ndarray:
    """Smooth, non-linear spectra (..., 8) of two parameters and a nuisance."""
    water, dust, haze = (np.asarray(v, dtype=np.float64)[..., None] for v in (water, dust, haze))
    bend = np.sin(WAVELENGTHS / 150.0)
    bands = 0.5 + 0.3 * bend * np.exp(-water) - 0.2 * dust * np.cos(WAVELENGTHS / 250.0) * (1.0 + water)
    return np.asarray(bands + 0.1 * haze * (WAVELENGTHS / 1000.0) ** -2)


def wavelength_coordinate(dim: str = "band", unit: str = "nm") -> tuple[str, np.ndarray, dict[str, str]]:
    """The wavelength coordinate along ``dim`` in nm, um or m."""
    return dim, WAVELENGTHS * {"nm": 1.0, "um": 1e-3, "m": 1e-9}[unit], {"units": unit}


def make_training(n: int = 150, seed: int = 0, noise: float = 0.02, dim: str = "sample") -> xr.Dataset:
    """Reflectance (sample, band) with wavelengths, and the parameters it was made with."""
    rng = np.random.default_rng(seed)
    water, dust, haze = rng.uniform(0.0, 2.0, n), rng.uniform(0.0, 1.0, n), rng.normal(size=n)
    values = spectra_of(water, dust, haze) + noise * rng.normal(size=(n, len(WAVELENGTHS)))
    return xr.Dataset(
        {
            "reflectance": ((dim, "band"), values, {"units": "1", "long_name": "reflectance"}),
            "water": (dim, water, TRUTH_ATTRS["water"]),
            "dust": (dim, dust, TRUTH_ATTRS["dust"]),
        },
        coords={"wavelength": wavelength_coordinate()},
    )


def make_truth(dims: tuple[str, ...] = ("y", "x"), seed: int = 1) -> xr.Dataset:
    """True maps of the parameters over any of the pixel dimensions, with CRS and transform where there are y and x."""
    rng = np.random.default_rng(seed)
    shape = [SIZES[d] for d in dims]
    truth = xr.Dataset(
        {
            name: (dims, rng.uniform(0.1, high, shape), TRUTH_ATTRS[name])
            for name, high in (("water", 1.9), ("dust", 0.9))
        }
    )
    places = {"time": [0.0, 1.0], "y": 5806110.0 - 30.0 * np.arange(5), "x": 366030.0 + 30.0 * np.arange(6)}
    truth = truth.assign_coords({d: places[d] for d in dims})
    if {"y", "x"} <= set(dims):
        truth = truth.rio.write_crs("EPSG:32633").rio.write_transform()
    return truth


def make_cube(dims: tuple[str, ...] = ("y", "x", "band"), dtype: Any = np.float64, noise: float = 0.02) -> xr.DataArray:
    """A cube with dimensions in the order given, ``band`` among them, of the truth of :func:`make_truth`."""
    pixel_dims = tuple(d for d in dims if d != "band")
    truth = make_truth(pixel_dims)
    values = spectra_of(truth["water"].values, truth["dust"].values)
    values = values + noise * np.random.default_rng(2).normal(size=values.shape)
    cube = xr.DataArray(
        values.astype(dtype),
        dims=(*pixel_dims, "band"),
        coords={**truth.coords, "wavelength": wavelength_coordinate()},
        attrs={"units": "1", "long_name": "surface reflectance", "wavelength_units": "nm", "sensor": "none"},
        name="reflectance",
    )
    return cube.transpose(*dims)


@cache
def fitted(n_latent: int = 0, sigma: str = "iso", noise: float = 0.02) -> GLLiMInverter:
    """An inverter trained once; do not change it."""
    return GLLiMInverter(n_latent=n_latent, sigma=sigma, **QUICK).fit(make_training(noise=noise))


@cache
def unsupervised() -> GLLiMInverter:
    """An inverter without parameters, of two latents."""
    return GLLiMInverter(n_latent=2, **QUICK).fit(make_training(), parameters=[])


def make_responsibilities(training: xr.Dataset, n_components: int = 3, seed: int = 5) -> np.ndarray:
    """Soft responsibilities (n, K) that part the samples by their water: no component degenerates."""
    water = training["water"].values.ravel()
    group = np.minimum((n_components * water / 2.0).astype(int), n_components - 1)
    noise = np.random.default_rng(seed).dirichlet(np.ones(n_components), len(water))
    return np.asarray(0.8 * np.eye(n_components)[group] + 0.2 * noise)


def assert_close(actual: Any, expected: Any, rtol: float = 1e-12) -> None:
    """Same names, dimensions, dtypes and NaN; values within ``rtol`` of the largest expected."""
    if isinstance(expected, xr.DataArray):
        actual, expected = actual.to_dataset(name="array"), expected.to_dataset(name="array")
    assert set(actual.variables) == set(expected.variables)
    for name, wanted in expected.data_vars.items():
        assert actual[name].dims == wanted.dims, name
        assert actual[name].dtype == wanted.dtype, name
        size = float(np.nanmax(np.abs(wanted.values), initial=0.0))
        np.testing.assert_allclose(actual[name].values, wanted.values, rtol=0, atol=rtol * size, err_msg=str(name))


def assert_same_fit(actual: GLLiMInverter, expected: GLLiMInverter, rtol: float = 0.0) -> None:
    """Same log-likelihoods, training ranges and maps; ``rtol`` 0 asks for the same bits."""
    np.testing.assert_allclose(actual.log_likelihoods_, expected.log_likelihoods_, rtol=rtol)
    assert actual.model_.names == expected.model_.names
    np.testing.assert_array_equal(actual.model_.low, expected.model_.low)
    np.testing.assert_array_equal(actual.model_.high, expected.model_.high)
    assert actual.n_latent_ == expected.n_latent_
    spectra = make_training(20, seed=9)["reflectance"]
    outputs = ("mean", "cov", "log_evidence") if expected.model_.names else ("log_evidence",)
    assert_close(actual.invert(spectra, outputs=outputs), expected.invert(spectra, outputs=outputs), rtol)


@contextmanager
def refuses(kind: type[Exception], *parts: str) -> Iterator[None]:
    """The block raises exactly this kind of error, its message one line that holds every part."""
    with pytest.raises(kind) as caught:
        yield
    text = str(caught.value)
    assert type(caught.value) is kind
    assert "\n" not in text
    for part in parts:
        assert part in text
