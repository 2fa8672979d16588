"""Real files of six kinds, from `open_cube` to maps: EnMAP, EMIT, AVIRIS (two), Sentinel-2 and leaf spectra.

Every file is opened with one call. Canopies are simulated once, at 1 nm, and averaged to each sensor by
`fit(sensor=...)`; scenes that no simulator describes are unmixed into surfaces of their own. Maps are written as
netCDF, Zarr and GeoTIFF.

    python examples/real_cubes.py DATA_FOLDER -o real_cubes

Files that are not in the folder, or in a folder of it, are left out. Needs the extra `examples`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np
import prosail
import xarray as xr

import specinvert
from specinvert.figures import save_figure
from specinvert.flags import flag_shares
from specinvert.nuisance import Discrepancy, Gain, Noise, Offset, ThinCloud, apply
from specinvert.physics.prosail_model import simulate_prosail
from specinvert.scores.metrics import format_table

# nm: the ends of the sensors, oxygen, where detectors overlap, water vapour and carbon dioxide.
UNUSABLE = ((0, 420), (755, 770), (890, 1000), (1100, 1165), (1335, 1480), (1780, 2015), (2400, 9999))
# What PROSAIL, the atmospheric correction and the sensor get wrong.
LAND_ERRORS = Discrepancy(std=0.03, length_scale=150.0, relative=True) | Gain(0.03) | Noise(white=0.002, relative=0.01)
CANOPY = {
    "lai": ("logit", 0.0, 8.0),
    "chlorophyll": ("logit", 0.0, 100.0),
    "leaf_water": ("logit", 0.001, 0.05),
}
SURFACES = {  # of the scene at the Salton Sea: rows and columns of pixels taken as pure, by eye
    "green_crop": (slice(0, 3), slice(11, 13)),
    "brown_field": (slice(34, 38), slice(4, 7)),
    "red_mud": (slice(20, 27), slice(22, 27)),
    "pale_crust": (slice(12, 30), slice(46, 54)),
}
MATERIALS = ("tree", "water", "soil", "road")


@dataclass
class Run:
    """What the scenes share: where files are and go, and the canopies, simulated once."""

    data: Path
    output: Path
    seed: int
    quick: bool

    @cached_property
    def canopies(self) -> xr.Dataset:
        """PROSAIL canopies at 1 nm, any sun from 20 to 60 degrees."""
        follow = {"carotenoids": lambda drawn: 0.2 * drawn["chlorophyll"] + 1.0}
        return simulate_prosail(900 if self.quick else 3000, priors=follow, seed=self.seed)

    def inverter(self, n_components: int, n_latent: int, **settings: Any) -> specinvert.GLLiMInverter:
        """An inverter with the seed of the run."""
        return specinvert.GLLiMInverter(
            n_components, n_latent, max_iter=40, tol=1e-2, random_state=self.seed, **{"sigma": "diag"} | settings
        )

    def save(self, maps: xr.Dataset, name: str, truth: xr.Dataset | None = None) -> None:
        """Write results in all formats that hold them, and their figure; print the shares of the flags."""
        maps = maps.compute()
        for suffix in (".nc", ".zarr", ".tif") if "y" in maps.dims else (".nc",):
            specinvert.save_maps(maps, self.output / f"{name}{suffix}")
        save_figure(maps.gllim.plot(truth=truth), self.output / f"{name}.png")
        shares = flag_shares(maps["quality_flag"])
        click.echo(
            ", ".join(f"{f} {100 * float(s):.1f} %" for f, s in zip(shares.flag_name.values, shares, strict=True))
        )


def invert_canopies(run: Run, path: Path, name: str, sun: float) -> None:
    """Leaf area, chlorophyll and water of plants, the sun's zenith angle known."""
    cube = specinvert.open_cube(path)
    bands = specinvert.select_bands(cube, exclude=UNUSABLE)
    training, test = run.canopies.isel(sample=slice(None, -300)), run.canopies.isel(sample=slice(-300, None))
    inverter = run.inverter(5, 14, transforms=CANOPY)
    inverter.fit(training, parameters=[*CANOPY, "sun_zenith"], sensor=bands, noise=LAND_ERRORS)
    run.save(cube.gllim.invert(inverter, known={"sun_zenith": sun})[[*with_std(CANOPY), "quality_flag"]], name)
    test = apply(specinvert.resample(test, bands), LAND_ERRORS, seed=run.seed + 1)
    scores = inverter.evaluate(test, known={"sun_zenith": test["sun_zenith"]})
    click.echo(format_table(scores.sel(parameter=list(CANOPY))))


def enmap(run: Run, path: Path) -> None:
    """Potsdam, 2022-07-24 10:45 UTC."""
    invert_canopies(run, path, "enmap", sun=34.0)


def emit(run: Run, path: Path) -> None:
    """Pasadena, 2025-03-24 22:10 UTC."""
    invert_canopies(run, path, "emit", sun=44.0)


def invert_mixtures(run: Run, cube: xr.DataArray, pure: dict[str, xr.DataArray], name: str, truth: Any = None) -> None:
    """Shares of surfaces, from mixtures of their pure pixels."""
    training = mix(pure, 1000 if run.quick else 3000, run.seed)
    inverter = run.inverter(5, 0, sigma="full", transforms={tuple(pure): "ilr"})
    inverter.fit(training, band_dim=cube.dims[-1], noise=Noise(white=0.003, relative=0.01))
    maps = cube.gllim.invert(inverter, band_dim=cube.dims[-1])
    run.save(maps, name, truth)
    if truth is not None:
        click.echo(format_table(inverter.evaluate(truth.assign(reflectance=cube), band_dim=cube.dims[-1])))


def mix(pure: dict[str, xr.DataArray], n: int, seed: int) -> xr.Dataset:
    """Linear mixtures, each of one pixel a surface drawn from the pure ones, under a brightness of 0.7 to 1.2."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(len(pure), 0.5), n)
    drawn = [pixels.values[rng.integers(len(pixels), size=n)] for pixels in pure.values()]
    spectra = rng.uniform(0.7, 1.2, (n, 1)) * np.einsum("sn,snb->nb", shares.T, np.array(drawn))
    first = next(iter(pure.values())).isel(pixel=0, drop=True)
    made = xr.DataArray(spectra, dims=("sample", *first.dims), coords=first.coords)
    labels = {
        name: ("sample", shares[:, i], {"units": "1", "long_name": f"share of {name}"}) for i, name in enumerate(pure)
    }
    return xr.Dataset({"reflectance": made, **labels})


def salton_sea(run: Run, path: Path) -> None:
    """Fields and a dry shore: shares of four surfaces that are the scene's own."""
    cube = specinvert.open_cube(path)
    bands = specinvert.select_bands(cube, exclude=UNUSABLE)
    pure = {
        n: bands.isel(y=rows, x=columns).stack(pixel=("y", "x"), create_index=False)
        for n, (rows, columns) in SURFACES.items()
    }
    invert_mixtures(run, cube, {name: pixels.transpose("pixel", ...) for name, pixels in pure.items()}, "salton_sea")


def jasper(run: Run, path: Path) -> None:
    """Jasper Ridge: shares of four materials, against those that come with the image."""
    cube = specinvert.open_cube(path) / 10000
    shares = specinvert.open_cube(path, variable="A")
    flat = cube.stack(pixel=("y", "x"), create_index=False).transpose("pixel", ...).compute()
    pure = {m: flat[(shares[..., i] > 0.97).values.ravel()] for i, m in enumerate(MATERIALS)}
    invert_mixtures(run, cube, pure, "jasper", xr.Dataset({m: shares[..., i] for i, m in enumerate(MATERIALS)}))


def sentinel2(run: Run, path: Path) -> None:
    """Leaf area of wheat, against field measurements."""
    table = specinvert.open_cube(path)
    inverter = run.inverter(10, 0, sigma="full", transforms={"lai": CANOPY["lai"]}, n_ensemble=2 if run.quick else 4)
    inverter.fit(run.canopies, parameters=["lai"], sensor=table, noise=ThinCloud(probability=0.3) | LAND_ERRORS)
    measured = table[table["lai"].notnull().values]
    estimates = measured.gllim.invert(inverter, outputs=("mean", "std", "ci90", "flag"))
    run.save(estimates.reset_coords(drop=True), "sentinel2", measured.reset_coords("lai")[["lai"]])
    click.echo(format_table(inverter.evaluate(measured.to_dataset())))


def leaves(run: Run, path: Path) -> None:
    """Water and dry matter of leaves, against laboratory measurements."""
    table = specinvert.open_cube(path).rename(H20_g_m2="water", LMA_g_m2="dry_matter")
    bands = specinvert.resample(table, (np.arange(1310.0, 2391.0, 20.0), 20.0))
    training = simulate_leaves(1000 if run.quick else 5000, run.seed)
    inverter = run.inverter(10, 0, sigma="full", transforms={"water": "log", "dry_matter": "log"})
    errors = Discrepancy(std=0.01, length_scale=50.0) | Gain(0.02) | Offset(0.01) | Noise(white=0.01)
    inverter.fit(training, sensor=bands, noise=errors)
    estimates = bands.gllim.invert(inverter, outputs=("mean", "std", "ci90", "flag"))
    run.save(
        estimates.reset_coords(drop=True),
        "leaves",
        bands.reset_coords(["water", "dry_matter"])[["water", "dry_matter"]],
    )
    click.echo(format_table(inverter.evaluate(bands.to_dataset())))


def simulate_leaves(n: int, seed: int) -> xr.Dataset:
    """PROSPECT-D leaves at 1 nm, with water and dry matter in g m-2."""
    rng = np.random.default_rng(seed)
    usual = np.abs(rng.normal([1.6, 130.0, 60.0], [0.4, 70.0, 35.0], (n, 3)))
    structure, water, dry = usual.T + np.array([[0.2], [20.0], [5.0]])
    fine = [
        prosail.run_prospect(s, 40.0, 9.0, 0.0, w / 1e4, d / 1e4, ant=1.0, prospect_version="D")[1]
        for s, w, d in zip(structure, water, dry, strict=True)
    ]
    return xr.Dataset(
        {
            "reflectance": (("sample", "wavelength"), np.array(fine), {"units": "1"}),
            "water": ("sample", water, {"units": "g m-2", "long_name": "leaf water per leaf area"}),
            "dry_matter": ("sample", dry, {"units": "g m-2", "long_name": "leaf dry mass per leaf area"}),
        },
        coords={"wavelength": ("wavelength", np.arange(400.0, 2501.0), {"units": "nm"})},
    )


def with_std(names: Any) -> list[str]:
    """Names of means and of their standard deviations."""
    return [column for name in names for column in (name, f"{name}_std")]


FILES: dict[str, Callable[[Run, Path], None]] = {
    "enmap_potsdam_tile_128_128.tif": enmap,
    "emit_jpl_unmix_ex": emit,
    "salton_sea_roi.mat": salton_sea,
    "UPCGIT_Jasper.mat": jasper,
    "crop_traits_lai.csv": sentinel2,
    "ely_plsr_data.csv": leaves,
}


@click.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default="real_cubes", show_default=True
)
@click.option("--seed", default=0, show_default=True, help="Of simulations, noise and starts.")
@click.option("--quick", is_flag=True, help="Few simulations: seconds, and worse maps.")
@click.option("--only", type=click.Choice(sorted(FILES)), multiple=True, help="Only this file.")
def main(data: Path, output: Path, seed: int, quick: bool, only: tuple[str, ...]) -> None:
    """Invert the real files found in DATA or in its folders."""
    output.mkdir(parents=True, exist_ok=True)
    run = Run(data, output, seed, quick)
    for name, treat in FILES.items():
        found = sorted(data.rglob(name))
        if not found or (only and name not in only):
            continue
        click.echo(f"\n{name}: {treat.__doc__}")
        start = time.perf_counter()
        treat(run, found[0])
        click.echo(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
