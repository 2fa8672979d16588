"""Leaf area index of wheat fields from Sentinel-2 reflectance, from PROSAIL simulations only.

Field values never enter training: they only score the estimates.  "blind" is the recipe written before any score was
seen; every step after it, to "informed", was chosen with the scores in sight.

    python examples/lai_sentinel2.py crop_traits_lai.csv --output lai_sentinel2
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import pandas as pd
import prosail
import xarray as xr
from matplotlib.figure import Figure
from scipy.stats import qmc, truncnorm, uniform

import specinvert
from specinvert.nuisance import Discrepancy, Gain, Noise, Nuisance, ThinCloud, apply

BANDS = {  # centre and full width at half maximum, nm
    "B02": (492.4, 66.0),
    "B03": (559.8, 36.0),
    "B04": (664.6, 31.0),
    "B05": (704.1, 15.0),
    "B06": (740.5, 15.0),
    "B07": (782.8, 20.0),
    "B8A": (864.7, 21.0),
    "B11": (1613.7, 91.0),
    "B12": (2202.4, 175.0),
}
PROSAIL_NM = np.arange(400, 2501)
LAI_MAX = 8.0
PRIOR: dict[str, tuple[float, ...]] = {  # (low, high): uniform; (low, high, mean, std): normal cut to the range
    "structure": (1.0, 2.5, 1.5, 0.2),
    "chlorophyll": (0.0, 100.0, 50.0, 40.0),  # ug/cm2; carotenoids are 0.223 of it and 1
    "water": (0.0, 0.1, 0.04, 0.02),  # cm
    "dry_matter": (0.0, 0.01),  # g/cm2
    "lai": (0.0, LAI_MAX),
    "leaf_angle": (30.0, 70.0),
    "soil_brightness": (0.0, 1.0),
    "soil_moisture": (0.0, 1.0),
    "sun_zenith": (25.0, 50.0),
    "view_zenith": (0.0, 10.0),
    "azimuth": (0.0, 180.0),
    "hotspot": (0.01, 0.2),
}
DATE_MISMATCHED = "2019-04-20"
OTHER = "other tool"


@dataclass(frozen=True)
class Recipe:
    """How the training set and the model are made."""

    name: str
    nuisance: Nuisance
    n_components: int
    n_ensemble: int
    logit: bool = False


WORLD = ThinCloud(probability=0.5, mean_fraction=0.05, brightness=(0.6, 0.95)) | Noise(white=0.005, relative=0.02)
WIDER = (
    ThinCloud(probability=0.5, mean_fraction=0.05, brightness=(0.6, 0.95))
    | Discrepancy(std=0.02, length_scale=100.0)
    | Gain(0.05)
    | Noise(white=0.005, relative=0.02)
)
BLIND = Recipe("blind", WORLD, 25, 1)
FEWER = replace(BLIND, name="+ K = 10", n_components=10)
COMMITTEE = replace(FEWER, name="+ committee of 8", n_ensemble=8)
DISCREPANT = replace(COMMITTEE, name="+ smooth curves and gain", nuisance=WIDER)
INFORMED = replace(DISCREPANT, name="+ logit = informed", logit=True)
ALONE = replace(INFORMED, name="informed, one fit", n_ensemble=1)
RECIPES = (BLIND, FEWER, COMMITTEE, DISCREPANT, INFORMED, ALONE)


def simulate(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """LAI (n,) and reflectance (n, 9) of PROSAIL canopies, by Gaussian band responses."""
    response = np.stack([np.exp(-4 * np.log(2) * ((PROSAIL_NM - c) / w) ** 2) for c, w in BANDS.values()])
    response /= response.sum(axis=1, keepdims=True)
    columns = {}
    for u, (name, (low, high, *normal)) in zip(
        qmc.LatinHypercube(len(PRIOR), seed=seed).random(n).T, PRIOR.items(), strict=True
    ):
        if normal:
            mean, std = normal
            columns[name] = truncnorm.ppf(u, (low - mean) / std, (high - mean) / std, mean, std)
        else:
            columns[name] = uniform.ppf(u, low, high - low)
    spectra = np.empty((n, len(BANDS)))
    for i in range(n):
        p = {name: float(values[i]) for name, values in columns.items()}
        spectra[i] = response @ prosail.run_prosail(
            p["structure"],
            p["chlorophyll"],
            0.223 * p["chlorophyll"] + 1.0,
            0.0,
            p["water"],
            p["dry_matter"],
            p["lai"],
            p["leaf_angle"],
            p["hotspot"],
            p["sun_zenith"],
            p["view_zenith"],
            p["azimuth"],
            prospect_version="D",
            rsoil=p["soil_brightness"],
            psoil=p["soil_moisture"],
        )
    return columns["lai"], spectra


def labelled(lai: np.ndarray, spectra: np.ndarray) -> xr.Dataset:
    """Spectra and LAI as the Dataset that GLLiMInverter takes."""
    wavelength = [centre for centre, _ in BANDS.values()]
    return xr.Dataset(
        {
            "reflectance": (("row", "wavelength"), spectra, {"units": "1"}),
            "lai": ("row", lai, {"units": "1", "long_name": "leaf area index"}),
        },
        coords={"wavelength": ("wavelength", wavelength, {"units": "nm"})},
    )


def estimate(recipe: Recipe, clean: xr.Dataset, field: xr.Dataset, seed: int) -> pd.DataFrame:
    """Estimate and 90 % interval of every field row."""
    start = time.perf_counter()
    inverter = specinvert.GLLiMInverter(
        n_components=recipe.n_components,
        n_latent=0,
        sigma="full",
        n_ensemble=recipe.n_ensemble,
        transforms={"lai": ("logit", 0, LAI_MAX + 0.01)} if recipe.logit else None,
        tol=5e-3,
        random_state=seed,
    ).fit(apply(clean, recipe.nuisance, seed=seed), parameters=["lai"])
    maps = inverter.invert(field, outputs=("mean", "ci90"))
    click.echo(f"{recipe.name}, seed {seed}: {time.perf_counter() - start:.0f} s")
    return pd.DataFrame(
        {"lai": maps["lai"].values, "low": maps["lai_ci90_lower"].values, "high": maps["lai_ci90_upper"].values}
    )


def score(found: pd.DataFrame, truth: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """RMSE, bias, share inside the 90 % intervals and their mean width, of some rows."""
    error = (found.lai - truth)[rows]
    inside = (truth >= found.low) & (truth <= found.high)
    return {
        "rmse": float(np.sqrt((error**2).mean())),
        "bias": float(error.mean()),
        "inside": 100.0 * float(inside[rows].mean()),
        "width": float((found.high - found.low)[rows].mean()),
    }


def markdown(scores: pd.DataFrame, groups: dict[str, np.ndarray]) -> str:
    """A row a recipe; RMSE with its standard deviation between seeds, bias, percent inside, width."""
    head = [f"{name} ({rows.sum()}): RMSE | bias | inside, % | width" for name, rows in groups.items()]
    lines = ["| recipe | " + " | ".join(head) + " |", "| --- " * (1 + 4 * len(groups)) + "|"]
    for recipe, group in scores.groupby("recipe", sort=False):
        cells = []
        for name in groups:
            part = group[group.rows == name]
            spread = f" ± {part.rmse.std(ddof=0):.2f}" if len(part) > 1 else ""
            cells += [f"{part.rmse.mean():.2f}{spread}", f"{part.bias.mean():+.2f}"]
            cells += [f"{part.inside.mean():.0f}", f"{part.width.mean():.2f}"]
        lines.append(f"| {recipe} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(found: dict[str, pd.DataFrame], truth: np.ndarray, matched: np.ndarray) -> Figure:
    """Field LAI against the estimates, with 90 % intervals."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    for axis, (name, table) in zip(
        figure.subplots(1, len(found), sharex=True, sharey=True), found.items(), strict=True
    ):
        for rows, colour, label in ((matched, "#0072b2", "2022"), (~matched, "#d55e00", DATE_MISMATCHED)):
            axis.vlines(truth[rows], table.low[rows], table.high[rows], color=colour, alpha=0.25, lw=0.8)
            axis.plot(truth[rows], table.lai[rows], "o", ms=3, color=colour, label=label)
        axis.axline((0, 0), slope=1, color="black", lw=0.8)
        rmse = score(table, truth, matched)["rmse"]
        axis.set(title=f"{name}: RMSE {rmse:.2f} in 2022", xlabel="field LAI", xlim=(0, 7.5), ylim=(0, 8.2))
        axis.title.set_fontsize(10)
    figure.axes[0].set_ylabel("estimated LAI (bars: 90 % interval)")
    figure.axes[0].legend(frameon=False, loc="upper left")
    return figure


@click.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="lai_sentinel2", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Seeds 0, 1, ... averaged.")
@click.option("--simulations", type=click.IntRange(100), default=10000, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), help="An .npz file that keeps the simulations.")
def main(table: Path, output: Path, seeds: int, simulations: int, cache: Path | None) -> None:
    """Estimate LAI of the TABLE (a CSV file with columns B02 ... B12, lai, date_model, lai_all, lai_q05_all, ...)."""
    output.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(table).dropna(subset=["lai"]).reset_index(drop=True)
    truth, matched = rows["lai"].to_numpy(), (rows["date_model"] != DATE_MISMATCHED).to_numpy()
    groups = {"all": np.ones(len(rows), dtype=bool), "2022": matched, DATE_MISMATCHED: ~matched}
    field = labelled(truth, rows[list(BANDS)].to_numpy())
    if cache is not None and cache.exists():
        with np.load(cache) as kept:
            lai, spectra = kept["lai"], kept["spectra"]
    else:
        lai, spectra = simulate(simulations)
        if cache is not None:
            np.savez(cache, lai=lai, spectra=spectra)
    clean = labelled(lai, spectra)
    other = rows[["lai_all", "lai_q05_all", "lai_q95_all"]].set_axis(["lai", "low", "high"], axis=1)
    scores, first = [], {}
    for recipe in RECIPES:
        for seed in range(seeds):
            found = estimate(recipe, clean, field, seed)
            first.setdefault(recipe.name, found)
            scores += [
                {"recipe": recipe.name, "rows": n, "seed": seed} | score(found, truth, r) for n, r in groups.items()
            ]
    scores += [{"recipe": OTHER, "rows": n, "seed": 0} | score(other, truth, r) for n, r in groups.items()]
    scored = pd.DataFrame(scores)
    scored.to_csv(output / "lai_sentinel2_table.csv", index=False, float_format="%.4g")
    text = markdown(scored, groups)
    (output / "lai_sentinel2_table.md").write_text(text + "\n", encoding="utf-8")
    click.echo(text)
    shown = {"blind": first[BLIND.name], "informed": first[INFORMED.name], OTHER: other}
    plot(shown, truth, matched).savefig(output / "lai_sentinel2.png", dpi=110)
    click.echo(f"written to {output}")


if __name__ == "__main__":
    main()
