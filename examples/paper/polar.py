"""Polar ices and dust from the user's optical constants: a database of spectra, and a scene with its true maps.

The tables of constants are netCDF files with the names of biosnicar's: `re_Wrn08`, `im_Wrn08`, `re_co2ice`,
`im_co2ice` over `wvl` in um for the ices; `idx_rfr_rel`, `idx_rfr_img` over `bnd` in m for the dust.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import xarray as xr

from specinvert.physics import (
    Geometry,
    grain_albedo,
    hapke_reflectance,
    intimate_mixture,
    optical_constants,
    refractive_index,
    simulate_polar_ices,
)
from specinvert.physics.ices import CONSTITUENTS, default_wavelengths

KNOWN = ("co2_ice", "dust", "water_grain_size")
"""The parameters that are regressed; the share of water ice and the grain size of carbon dioxide ice are hidden."""
DUST_DIAMETER = 10.0
TABLES = {
    "water_ice": ("ices", "wvl", "re_Wrn08", "im_Wrn08", "um"),
    "co2_ice": ("ices", "wvl", "re_co2ice", "im_co2ice", "um"),
    "dust": ("dust", "bnd", "idx_rfr_rel", "idx_rfr_img", "m"),
}


@lru_cache(maxsize=1)
def read_constants(ices: Path, dust: Path) -> dict[str, xr.Dataset]:
    """Optical constants of the constituents from the two files.

    Raises
    ------
    ValueError : a file lacks a variable.
    """
    with xr.open_dataset(ices) as of_ices, xr.open_dataset(dust) as of_dust:
        files = {"ices": (ices, of_ices.load()), "dust": (dust, of_dust.load())}
    found = {}
    for name, (file, *columns, units) in TABLES.items():
        path, table = files[file]
        missing = [column for column in columns if column not in table.variables]
        if missing:
            raise ValueError(f"{path} has no {', '.join(missing)}, which hold the constants of {name}")
        found[name] = optical_constants(*(table[column].values for column in columns), units=units)
    return found


def digest(*paths: Path) -> str:
    """Tells files from others."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


@lru_cache(maxsize=1)
def make_database(ices: Path, dust: Path, n_spectra: int, noise: float) -> xr.Dataset:
    """`simulate_polar_ices` with seed 0 in 184 bands, white noise added."""
    database = simulate_polar_ices(n_spectra, read_constants(ices, dust), dust_diameter=DUST_DIAMETER, seed=0)
    spectra = database["reflectance"]
    draw = np.random.default_rng([1, n_spectra]).standard_normal(spectra.shape)
    return database.assign(reflectance=spectra + noise * draw)


def polar_spectra(constants: dict[str, xr.Dataset], parameters: xr.Dataset) -> np.ndarray:
    """Reflectance (..., band) of given shares and grain sizes, by the same model as the database."""
    wavelength = default_wavelengths()
    sizes = {"water_ice": "water_grain_size", "co2_ice": "co2_grain_size"}
    diameters = [
        parameters[sizes[name]].values[..., None] if name in sizes else np.array([DUST_DIAMETER])
        for name in CONSTITUENTS
    ]
    albedo = [
        grain_albedo(refractive_index(constants[name], wavelength, name=name), diameter, wavelength)
        for name, diameter in zip(CONSTITUENTS, diameters, strict=True)
    ]
    shares = [parameters[name].values[..., None] for name in CONSTITUENTS]
    return hapke_reflectance(intimate_mixture(albedo, shares, diameters), Geometry(60.0, 0.0))


def polar_scene(
    constants: dict[str, xr.Dataset], shape: tuple[int, int], noise: float
) -> tuple[xr.DataArray, xr.Dataset]:
    """A cube (y, x, wavelength) and the true maps (y, x): layers of dusty ice in a slope, frost, an outcrop.

    Spectra are those of four patches a pixel, averaged, so that pixels at borders are mixed; the truth is the mean of
    the patches' parameters. The outcrop is dustier than the database; a detector column and a corner have no data.
    """
    rng = np.random.default_rng(7)
    y, x = np.meshgrid(*((np.arange(2 * side) + 0.5) / (2 * side) for side in shape), indexing="ij")
    height = y + 0.12 * np.sin(5.0 * x + 1.0) + 0.05 * np.sin(13.0 * x * y)
    layer = np.floor(9.0 * height)
    dusty = np.random.default_rng(3).random(40)[layer.astype(int) + 5]
    frost = np.hypot(y - 0.75, 0.8 * (x - 0.3)) < 0.18
    outcrop = np.hypot(y - 0.25, x - 0.78) < 0.07
    water = 0.0008 + 0.0010 * (0.5 + 0.5 * np.sin(7.0 * x + 2.0))
    dust = np.where(frost, 0.0007, np.where(outcrop, 0.004, 0.0007 + 0.0012 * dusty))
    fine = xr.Dataset(
        {
            "water_ice": (("y", "x"), water),
            "co2_ice": (("y", "x"), 1.0 - water - dust),
            "dust": (("y", "x"), dust),
            "water_grain_size": (("y", "x"), np.where(frost, 70.0, 120.0 + 250.0 * y)),
            "co2_grain_size": (("y", "x"), 2e3 * 20.0 ** (0.5 + 0.5 * np.sin(4.0 * x + 3.0 * y))),
        }
    )
    patches = xr.DataArray(
        polar_spectra(constants, fine), dims=("y", "x", "wavelength"), coords={"wavelength": default_wavelengths()}
    )
    cube = patches.coarsen(y=2, x=2).mean()
    cube = cube + noise * rng.standard_normal(cube.shape)
    cube[:, shape[1] // 2] = np.nan
    cube[: shape[0] // 8, : shape[1] // 8] = np.nan
    cube["wavelength"].attrs.update(units="nm", standard_name="radiation_wavelength")
    return cube.rename("reflectance"), fine.coarsen(y=2, x=2).mean()
