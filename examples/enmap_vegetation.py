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
from specinvert.figures import plot_maps
from specinvert.scores.metrics import format_table

PARAMETERS = {
    "lai": ("leaf area index", "1"),
    "leaf_chlorophyll": ("leaf chlorophyll content per leaf area", "ug cm-2"),
    "leaf_water": ("leaf water content per leaf area", "g m-2"),
    "canopy_water": ("leaf water content per ground area", "kg m-2"),
}
# Left out, in nm: the ends, oxygen at 760, where the two detectors overlap and disagree (with water vapour at 940), and
# water vapour and carbon dioxide; a little wider than the absorption where the tile's spectra show steps.
EXCLUDED = ((0, 435), (755, 770), (895, 1000), (1100, 1165), (1335, 1480), (1780, 2015), (2400, 9999))
# Sigma, latent dimensions, components.
MODELS = (("diag", 0, 20), ("diag", 4, 20), ("diag", 8, 20), ("diag", 14, 20), ("full", 0, 20), ("full", 0, 5))
OUT_OF_DOMAIN = 4
WATER_NIR, VEGETATION_NDVI = 0.06, 0.6


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
    return np.asarray(response / response.sum(axis=0))


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
    return np.asarray(spectra * (1.0 + smooth + step + relative) + haze + rng.normal(0.0, 0.002, (n, n_bands)))


def training_set(n: int, cube: xr.DataArray, seed: int) -> xr.Dataset:
    """Simulated, disturbed spectra on the cube's bands and the parameters wanted; the other inputs stay unobserved."""
    rng = np.random.default_rng(seed)
    inputs = draw_inputs(n, rng)
    wavelength = cube["wavelength"].values
    clean = simulate(inputs, gaussian_response(wavelength, cube["fwhm"].values))
    values = {
        "lai": inputs["lai"],
        "leaf_chlorophyll": inputs["cab"],
        "leaf_water": 1e4 * inputs["cw"],
        "canopy_water": 10.0 * inputs["cw"] * inputs["lai"],
    }
    data = xr.Dataset({"reflectance": (("sample", "wavelength"), disturb(clean, wavelength, rng))})
    data = data.assign_coords(wavelength=cube["wavelength"])
    for name, (long_name, units) in PARAMETERS.items():
        data[name] = ("sample", values[name], {"long_name": long_name, "units": units})
    return data


def coverage(test: xr.Dataset, estimates: xr.Dataset) -> float:
    """Share of true values within the central 90 % of a Gaussian of the estimated mean and std, all parameters."""
    inside = [abs(estimates[p] - test[p]) < 1.645 * estimates[f"{p}_std"] for p in PARAMETERS]
    return float(np.mean(inside))


def train_models(training: xr.Dataset, test: xr.Dataset, seed: int) -> list[specinvert.GLLiMInverter]:
    """Train every model and print its scores on the test simulations; the one of least mean NRMSE comes first."""
    scored = []
    print("| Sigma | L_w | K | " + " | ".join(PARAMETERS) + " | 90 % coverage | iterations | fit (s) |")
    print("|---|---|---|" + "---|" * (len(PARAMETERS) + 3))
    for sigma, n_latent, n_components in MODELS:
        start = time.perf_counter()
        inverter = specinvert.GLLiMInverter(
            n_components, n_latent, sigma=sigma, init="kmeans-joint", max_iter=40, tol=1e-3, random_state=seed
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*converge")
            inverter.fit(training)
        seconds = time.perf_counter() - start
        nrmse = inverter.evaluate(test)["nrmse"].values
        inside = coverage(test, inverter.invert(test, outputs=("mean", "std")))
        cells = [sigma, n_latent, inverter.n_components_, *(f"{v:.3f}" for v in nrmse), f"{inside:.2f}"]
        print("|", " | ".join(map(str, [*cells, inverter.n_iter_, f"{seconds:.0f}"])), "|", flush=True)
        scored.append((float(nrmse.mean()), inverter))
    return [inverter for _, inverter in sorted(scored, key=lambda pair: pair[0])]


def nearest(cube: xr.DataArray, wavelength: float) -> np.ndarray:
    """The band nearest to a wavelength in nm, whatever the order of the bands."""
    return cube.isel(wavelength=int(np.abs(cube["wavelength"].values - wavelength).argmin())).values


def vegetation_index(cube: xr.DataArray) -> np.ndarray:
    """NDVI, NaN where both bands are zero."""
    red, nir = nearest(cube, 665.0), nearest(cube, 860.0)
    with np.errstate(invalid="ignore"):
        return np.asarray((nir - red) / (nir + red))


def print_plausibility(maps: xr.Dataset, cube: xr.DataArray, held_out: xr.DataArray) -> None:
    """Ranges and medians by class of pixel, negative values, correlation with NDVI, flags there and of simulations."""
    ndvi, water = vegetation_index(cube), nearest(cube, 860.0) < WATER_NIR
    vegetation = ~water & (ndvi > VEGETATION_NDVI)
    classes = {"water": water, "vegetation": vegetation, "other": ~water & ~vegetation}
    print("\n| map | " + " | ".join(f"{c} ({w.sum()})" for c, w in classes.items()) + " | 2 to 98 % | < 0 |")
    print("|---" * (len(classes) + 3) + "|")
    for p in PARAMETERS:
        values, std = maps[p].values, maps[f"{p}_std"].values
        cells = [f"{np.median(values[w]):.3g} ± {np.median(std[w]):.2g}" for w in classes.values()]
        low, high = np.percentile(values, (2, 98))
        print("|", " | ".join([p, *cells, f"{low:.2g} to {high:.3g}", str((values < 0).sum())]), "|")
    flags = maps["quality_flag"]
    print("\n| flag | " + " | ".join(classes) + " | test simulations |")
    print("|---" * (len(classes) + 2) + "|")
    told = dict(zip(flags.attrs["flag_meanings"].split(), flags.attrs["flag_masks"].astype(int), strict=True))
    for name, mask in {**told, "any of them": sum(told.values())}.items():
        bits = [*(flags.values[w] for w in classes.values()), held_out.values]
        shares = [(values & mask > 0).mean() for values in bits]
        print("|", " | ".join([name, *(f"{100 * share:.1f} %" for share in shares)]), "|")
    for where, name in ((~water, "land"), (vegetation, "vegetation")):
        r = [f"{p} {np.corrcoef(maps[p].values[where], ndvi[where])[0, 1]:.2f}" for p in PARAMETERS]
        print(f"correlation with NDVI, {name}: {', '.join(r)}")


def print_agreement(inverters: list[specinvert.GLLiMInverter], maps: xr.Dataset, cube: xr.DataArray) -> None:
    """How far the other models are from the chosen one on vegetation: what the std of one model does not hold."""
    where = (nearest(cube, 860.0) >= WATER_NIR) & (vegetation_index(cube) > VEGETATION_NDVI)
    print("\n| vegetation: median (RMS difference from the chosen model) | " + " | ".join(PARAMETERS) + " |")
    print("|---" * (len(PARAMETERS) + 1) + "|")
    for inverter in inverters:
        other = inverter.invert(cube, outputs=("mean",))
        cells = []
        for p in PARAMETERS:
            values, chosen = other[p].values[where], maps[p].values[where]
            cells.append(f"{np.median(values):.3g} ({np.sqrt(np.mean((values - chosen) ** 2)):.2g})")
        print(f"| {inverter.sigma}, L_w={inverter.n_latent_}, K={inverter.n_components_} |", " | ".join(cells), "|")


def overview(cube: xr.DataArray, training: xr.Dataset, width: float) -> Figure:
    """True colour and NDVI of the tile, and its spectra beside the simulated ones."""
    figure = Figure(figsize=(width, 3.3), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.1, 1.22, 1.7))
    colour = np.stack([nearest(cube, nm) for nm in (640.0, 560.0, 480.0)], axis=-1)
    left.imshow(np.clip(colour / np.percentile(colour, 98), 0, 1) ** 0.7)
    left.set_title("true colour")
    image = middle.imshow(vegetation_index(cube), cmap="RdYlGn", vmin=-0.2, vmax=0.9)
    middle.set_title("NDVI")
    middle.set_facecolor("0.82")
    figure.colorbar(image, ax=middle, shrink=0.9)
    for ax in (left, middle):
        ax.set(xticks=[], yticks=[])
    order = np.argsort(cube["wavelength"].values)
    nm = cube["wavelength"].values[order]
    gaps = np.flatnonzero(np.diff(nm) > 30.0) + 1
    land = cube.values[nearest(cube, 860.0) >= WATER_NIR]
    for spectra, tint, label in (
        (training["reflectance"].values, "#0072B2", "simulated"),
        (land, "#D55E00", "land pixels"),
    ):
        low, mid, high = np.insert(np.percentile(spectra, (2, 50, 98), axis=0)[:, order], gaps, np.nan, axis=1)
        x = np.insert(nm, gaps, np.nan)
        right.fill_between(x, low, high, color=tint, alpha=0.25, linewidth=0)
        right.plot(x, mid, color=tint, label=label)
    right.set(xlabel="wavelength (nm)", ylabel="reflectance", title="median and 2 to 98 %")
    right.legend(frameon=False)
    return figure


def save_stacked(figures: list[Figure], path: Path, dpi: int = 100) -> None:
    """Write figures of one width below each other as one image."""
    images = []
    for figure in figures:
        figure.set_dpi(dpi)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba())[..., :3])
    width = min(image.shape[1] for image in images)
    imsave(path, np.concatenate([image[:, :width] for image in images]))


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tile", type=Path, help="EnMAP L2A GeoTIFF")
    parser.add_argument("--output", type=Path, default=Path("."), help="folder for maps.nc and enmap_vegetation.png")
    parser.add_argument("--simulations", type=int, default=10000, help="size of the training set (10000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of simulations, noise and starts (0)")
    options = parser.parse_args()

    start = time.perf_counter()
    cube = read_tile(options.tile)
    data = training_set(options.simulations + options.simulations // 5, cube, options.seed)
    training = data.isel(sample=slice(options.simulations))
    test = data.isel(sample=slice(options.simulations, None))
    print(f"{training.sizes['sample']} + {test.sizes['sample']} simulations in {time.perf_counter() - start:.0f} s\n")
    inverters = train_models(training, test, options.seed)
    inverter = inverters[0]
    print(f"\nchosen: {inverter}\n{format_table(inverter.evaluate(test))}")

    maps = inverter.invert(cube, outputs=("mean", "std", "flag")).compute()
    print_plausibility(maps, cube, inverter.invert(test, outputs=("mean", "flag"))["quality_flag"])
    print_agreement(inverters, maps, cube)
    options.output.mkdir(parents=True, exist_ok=True)
    specinvert.save_maps(maps, options.output / "maps.nc")
    trusted = (maps["quality_flag"] & OUT_OF_DOMAIN) == 0
    shown = maps.map(lambda values: values if values.name == "quality_flag" else values.where(trusted))
    figure = plot_maps(shown, parameters=list(PARAMETERS))
    picture = options.output / "enmap_vegetation.png"
    save_stacked([overview(cube, training, figure.get_size_inches()[0]), figure], picture)
    print(f"wrote {options.output / 'maps.nc'} and {picture}")
    print(f"{time.perf_counter() - start:.0f} s in all, {time.process_time():.0f} s of processor time")


if __name__ == "__main__":
    main()
