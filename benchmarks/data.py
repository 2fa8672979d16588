"""Simulated spectra in memory and on disk, and a model fitted to them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from sizes import N_PARAMETERS, SEED

import specinvert


def make_parameters(n: int, seed: int = SEED) -> np.ndarray:
    """Parameters (n, 3), uniform between 0 and 1."""
    return np.random.default_rng([seed, 0]).uniform(0.0, 1.0, (n, N_PARAMETERS))


def make_spectra(n: int, n_bands: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Smooth spectra (n, D) of three parameters (n, 3) and a nuisance, with 1 % noise."""
    rng = np.random.default_rng([seed, 1])
    u, t, w = np.linspace(0.0, 1.0, n_bands), make_parameters(n, seed), rng.normal(size=(n, 1))
    spectra = 0.3 + 0.2 * np.sin(3 * u + 3 * t[:, :1]) + 0.2 * t[:, 1:2] * np.cos(5 * u)
    spectra += 0.1 * t[:, 2:] ** 2 * np.sin(9 * u) + 0.02 * w * np.cos(20 * u * (1 + t[:, :1]))
    return spectra + 0.01 * rng.standard_normal(spectra.shape), t


def wavelengths(n_bands: int) -> tuple[str, np.ndarray, dict[str, str]]:
    """The wavelength coordinate of the bands, in nm."""
    return "band", np.linspace(400.0, 2500.0, n_bands), {"units": "nm"}


@cache
def fitted(n_bands: int, n_components: int, n_latent: int) -> specinvert.GLLiMInverter:
    """An inverter fitted to 10 000 spectra in 30 iterations."""
    spectra, parameters = make_spectra(10_000, n_bands)
    training = xr.Dataset({"reflectance": (("sample", "band"), spectra)})
    training = training.assign({f"p{i}": ("sample", parameters[:, i]) for i in range(N_PARAMETERS)})
    training = training.assign_coords(wavelength=wavelengths(n_bands))
    inverter = specinvert.GLLiMInverter(n_components, n_latent, random_state=0, max_iter=30, tol=0.0)
    return inverter.fit(training)


def cube_in_memory(n: int, n_bands: int) -> xr.DataArray:
    """float32 pixels (y, x, band), n in all, a multiple of 100."""
    pixels = np.empty((n, n_bands), dtype=np.float32)
    step = min(n, 50_000)
    for start in range(0, n, step):
        part = pixels[start : start + step]
        part[...] = make_spectra(len(part), n_bands, seed=2 + start)[0]
    cube = xr.DataArray(pixels.reshape(-1, 100, n_bands), dims=("y", "x", "band"))
    return cube.assign_coords(wavelength=wavelengths(n_bands))


class Files:
    """A temporary folder of float32 Zarr stores, each written once, block by block, when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def cube(self, side: int, block: int, n_bands: int) -> Path:
        """A cube (side, side, D) in square blocks."""
        path = self.folder / f"cube-{side}.zarr"
        if not path.exists():
            sizes = ((block,) * (side // block),) * 2 + ((n_bands,),)
            pixels = da.map_blocks(_pixels, chunks=sizes, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))
            _write(xr.Dataset({"reflectance": (("y", "x", "band"), pixels)}), path)
        return path

    def training(self, n: int, chunk: int, n_bands: int) -> Path:
        """A training set (n, D) in chunks, with its parameters."""
        path = self.folder / f"training-{n}.zarr"
        if not path.exists():
            sizes = ((chunk,) * (n // chunk), (n_bands,))
            spectra = da.map_blocks(_samples, chunks=sizes, dtype=np.float32, meta=np.empty((0, 0), np.float32))
            parameters = np.concatenate([make_parameters(chunk, seed=i) for i in range(n // chunk)])
            data = xr.Dataset({"reflectance": (("sample", "band"), spectra)})
            _write(data.assign({f"p{i}": ("sample", parameters[:, i]) for i in range(N_PARAMETERS)}), path)
        return path

    def model(self, n_bands: int, n_components: int, n_latent: int) -> Path:
        """A model file of the fitted inverter."""
        path = self.folder / "model.nc"
        if not path.exists():
            fitted(n_bands, n_components, n_latent).to_netcdf(path)
        return path

    def remove(self, path: Path) -> None:
        """Give the disk back."""
        shutil.rmtree(path)


@contextmanager
def temporary_files() -> Iterator[Files]:
    """Files that are deleted at the end."""
    with TemporaryDirectory(prefix="specinvert-benchmarks-") as folder:
        yield Files(Path(folder))


def _write(data: xr.Dataset, path: Path) -> None:
    data.assign_coords(wavelength=wavelengths(data.sizes["band"])).to_zarr(path, consolidated=False)


def _pixels(block_info: Any = None) -> np.ndarray:
    (rows, columns, n_bands), (i, j, _) = block_info[None]["chunk-shape"], block_info[None]["chunk-location"]
    spectra = make_spectra(rows * columns, n_bands, seed=1_000_000 + 1_000 * i + j)[0]
    return spectra.astype(np.float32).reshape(rows, columns, n_bands)


def _samples(block_info: Any = None) -> np.ndarray:
    (n, n_bands), (i, _) = block_info[None]["chunk-shape"], block_info[None]["chunk-location"]
    return make_spectra(n, n_bands, seed=i)[0].astype(np.float32)
