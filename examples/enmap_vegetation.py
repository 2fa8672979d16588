"""Leaf area, chlorophyll and water maps of an EnMAP tile, from PROSAIL simulations alone.

Simulates vegetation with PROSAIL, resamples it to the tile's own bands, trains hybrid GLLiM models, compares them on
simulations kept aside, inverts the tile with the chosen one, and writes maps.nc and enmap_vegetation.png.

    python examples/enmap_vegetation.py path/to/enmap_tile.tif --output results

Needs the extra `examples`: pip install 'specinvert[examples]'.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import prosail
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave

import specinvert
from specinvert.diagnostics.plots import plot_maps

PARAMETERS = {
    "lai": ("leaf area index", "1"),
    "leaf_chlorophyll": ("leaf chlorophyll content per leaf area", "ug cm-2"),
    "leaf_water": ("leaf water content per leaf area", "g m-2"),
    "canopy_water": ("leaf water content per ground area", "kg m-2"),
}
# Left out, in nm: the ends, oxygen at 760, where the two detectors overlap and disagree (with water vapour at 940), and
# water vapour and carbon dioxide; a little wider than the absorption where the tile's spectra show steps.
EXCLUDED = ((0, 435), (755, 770), (895, 1000), (1100, 1165), (1335, 1480), (1780, 2015), (2400, 9999))
MODELS = (("diag", 0), ("diag", 2), ("diag", 4), ("full", 0))
CHOSEN = ("diag", 4)


def read_tile(path: Path) -> xr.DataArray:
    """The tile in reflectance, without empty, badly listed or excluded bands; bands stay in the file's order."""
    cube = specinvert.open_cube(path, chunks=None)
    wavelength = cube["wavelength"].values
    kept = cube["good"].values & cube.notnull().any(("y", "x")).values
    for low, high in EXCLUDED:
        kept &= (wavelength < low) | (wavelength > high)
    print(f"{path.name}: {cube.sizes['y']} x {cube.sizes['x']} pixels, {kept.sum()} of {kept.size} bands kept")
    return cube.isel(wavelength=kept)


def draw_inputs(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of PROSAIL, one of each a simulation, wide enough for summer crops, grass and trees at 52 degrees N."""
    uniform = rng.uniform
    cab = uniform(2.0, 75.0, n)
    return {
        "n": uniform(1.2, 2.4, n),
        "cab": cab,
        "car": cab * uniform(0.12, 0.3, n) + uniform(0.5, 3.0, n),
        "ant": uniform(0.0, 3.0, n),
        "cbrown": uniform(0.0, 1.0, n) ** 2,
        "cw": uniform(0.002, 0.035, n),
        "cm": uniform(0.002, 0.014, n),
        "lai": uniform(0.0, 7.0, n),
        "lidfa": uniform(30.0, 75.0, n),
        "hspot": uniform(0.01, 0.4, n),
        "tts": uniform(32.0, 37.0, n),
        "tto": uniform(0.0, 15.0, n),
        "psi": uniform(0.0, 180.0, n),
        "rsoil": uniform(0.0, 1.5, n),
        "psoil": uniform(0.0, 1.0, n),
    }


def gaussian_response(wavelength: np.ndarray, fwhm: np.ndarray) -> np.ndarray:
    """Weights (2101, D) that turn spectra from 400 to 2500 nm in steps of 1 nm into those of the sensor."""
    grid = np.arange(400.0, 2501.0)[:, None]
    response = np.exp(-4.0 * np.log(2.0) * ((grid - wavelength) / fwhm) ** 2)
    return response / response.sum(axis=0)


def simulate(inputs: dict[str, np.ndarray], response: np.ndarray, block: int = 500) -> np.ndarray:
    """Directional reflectance (n, D) of the canopies, by PROSPECT-D and 4SAIL."""
    n = inputs["lai"].size
    spectra = np.empty((n, response.shape[1]))
    for start in range(0, n, block):
        rows = range(start, min(start + block, n))
        fine = [
            prosail.run_prosail(
                **{name: float(values[i]) for name, values in inputs.items()},
                prospect_version="D",
                typelidf=2,
                factor="SDR",
            )
            for i in rows
        ]
        spectra[rows.start : rows.stop] = np.array(fine) @ response
    return spectra


def disturb(spectra: np.ndarray, wavelength: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What a real sensor, its calibration and its atmospheric correction add: smooth, stepwise and white errors."""
    n, n_bands = spectra.shape
    position = np.log(wavelength / 420.0) / np.log(2450.0 / 420.0)
    waves = np.cos(np.pi * np.arange(5)[:, None] * position)
    smooth = rng.normal(0.0, 0.02, (n, 5)) @ waves
    second_detector = np.cumsum(np.diff(wavelength, prepend=wavelength[0]) < 0) > 0
    step = rng.normal(0.0, 0.02, (n, 1)) * second_detector
    haze = rng.normal(0.0, 0.004, (n, 1)) * (wavelength / 550.0) ** -1.5
    relative = rng.normal(0.0, 0.015, (n, n_bands))
    return spectra * (1.0 + smooth + step + relative) + haze + rng.normal(0.0, 0.002, (n, n_bands))


def training_set(n: int, cube: xr.DataArray, seed: int) -> xr.Dataset:
    """Simulated and disturbed spectra on the cube's bands with the parameters wanted; the other inputs are left out."""
    rng = np.random.default_rng(seed)
    inputs = draw_inputs(n, rng)
    wavelength = cube["wavelength"]
    spectra = disturb(simulate(inputs, gaussian_response(wavelength.values, cube["fwhm"].values)), wavelength.values, rng)
    values = {
        "lai": inputs["lai"],
        "leaf_chlorophyll": inputs["cab"],
        "leaf_water": 1e4 * inputs["cw"],
        "canopy_water": 10.0 * inputs["cw"] * inputs["lai"],
    }
    attrs = {name: {"long_name": text, "units": units} for name, (text, units) in PARAMETERS.items()}
    data = xr.Dataset({name: ("sample", array, attrs[name]) for name, array in values.items()})
    return data.assign(reflectance=(("sample", "wavelength"), spectra)).assign_coords(wavelength=wavelength)
