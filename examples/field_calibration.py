"""What a calibration by a few field values is worth: drawn again and again from measured sets, judged on the rest.

Each draw takes 20 values of five groups, calibrates a model that was trained on simulations alone, and asks the other
spectra what share of truths intervals hold, how wide they are, and how large errors are.

    python examples/field_calibration.py --lai crop_traits_lai.csv --leaves ely_plsr_data.csv \
        --sea seawifs_matchups.csv --samson samson.mat --jasper UPCGIT_Jasper.mat --output field_calibration
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import lai_sentinel2
import leaf_traits
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy.io import loadmat

import specinvert
from specinvert.nuisance import apply

MOST_JUDGED = 300
"""Spectra of the rest that are judged in a draw."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SETTINGS: dict[str, Any] = {"n_latent": 0, "sigma": "full", "tol": 5e-3, "random_state": 0}


@dataclass(frozen=True)
class Case:
    """A model trained on simulations, and a field set of one sample dimension, ``row``, with its ``group``."""

    name: str
    inverter: specinvert.GLLiMInverter
    field: xr.Dataset


def labelled(spectra: np.ndarray, wavelength: Any, values: dict[str, np.ndarray]) -> xr.Dataset:
    """Spectra (row, wavelength) and values of them."""
    return xr.Dataset(
        {"reflectance": (("row", "wavelength"), spectra), **{name: ("row", array) for name, array in values.items()}},
        coords={"wavelength": ("wavelength", np.asarray(wavelength, dtype=float), {"units": "nm"})},
    )


def wheat(path: Path) -> Iterator[Case]:
    """Leaf area of wheat: the blind and the informed recipe of lai_sentinel2.py; groups are parcels on a day."""
    rows = pd.read_csv(path).dropna(subset=["lai"]).reset_index(drop=True)
    field = lai_sentinel2.labelled(rows["lai"].to_numpy(), rows[list(lai_sentinel2.BANDS)].to_numpy())
    group = rows["location"] + rows["parcel"].astype(str) + rows["date_insitu"].astype(str).str[:10]
    clean = lai_sentinel2.labelled(*lai_sentinel2.simulate(4000))
    for recipe in (lai_sentinel2.BLIND, lai_sentinel2.ALONE):
        bounds = {"lai": ("logit", 0, lai_sentinel2.LAI_MAX + 0.01)} if recipe.logit else None
        inverter = specinvert.GLLiMInverter(recipe.n_components, transforms=bounds, **SETTINGS)
        inverter.fit(apply(clean, recipe.nuisance, seed=0), parameters=["lai"])
        yield Case(f"wheat, {recipe.name.split(',')[0]}", inverter, field.assign(group=("row", group.to_numpy())))


def leaves(path: Path) -> Iterator[Case]:
    """Leaf water and dry matter: recipes of leaf_traits.py with 3000 simulations; groups are species."""
    species = pd.read_csv(path)["Common_Name"].to_numpy()
    field = leaf_traits.read_leaves(path).rename(leaf="row").assign(group=("row", species))
    simulations = leaf_traits.Simulations()
    for recipe in (replace(leaf_traits.BLIND, n_components=25), leaf_traits.INFORMED):
        recipe = replace(recipe, n_simulations=3000)
        inverter = specinvert.GLLiMInverter(recipe.n_components, tied_sigma=recipe.tied_full, **SETTINGS)
        inverter.fit(simulations.training(recipe, 0).rename(leaf="row"), parameters=list(leaf_traits.TRAITS))
        yield Case(f"leaves, {recipe.name}", inverter, field.sel(wavelength=recipe.wavelengths))


def sea(path: Path) -> Iterator[Case]:
    """Chlorophyll of the sea from SeaWiFS bands, by a bio-optical model of open water; groups are months."""
    table = pd.read_csv(path).iloc[::2]
    nm = np.array([443.0, 490.0, 510.0, 555.0, 670.0])
    rng, n = np.random.default_rng(0), 5000
    chl = 10.0 ** rng.uniform(-2.3, 1.0, n)
    water = np.array([0.00707, 0.0150, 0.0325, 0.0596, 0.439])  # absorption, 1/m
    slope, power = np.array([[0.0394, 0.0274, 0.0180, 0.0070, 0.0189], [0.3435, 0.361, 0.26, 0.2, 0.149]])
    algae = slope * chl[:, None] ** (1.0 - power) * np.exp(0.2 * rng.standard_normal((n, 1)))
    yellow = algae[:, :1] * np.exp(0.5 * rng.standard_normal((n, 1)) - rng.normal(0.015, 0.002, (n, 1)) * (nm - 443.0))
    particles = 0.3 * chl**0.62 * (0.002 + 0.02 * (0.5 - 0.25 * np.log10(chl))) * np.exp(0.4 * rng.standard_normal(n))
    back = 0.00225 * (443.0 / nm) ** 4.32 + particles[:, None] * (550.0 / nm) ** rng.uniform(0.3, 1.6, (n, 1))
    u = back / (water + algae + yellow + back)
    below = 0.0949 * u + 0.0794 * u**2
    above = 0.52 * below / (1.0 - 1.7 * below)
    above *= 1.0 + 0.02 * rng.standard_normal(above.shape)
    above += np.array([3.0, 2.0, 2.0, 1.0, 0.5]) * 1e-4 * rng.standard_normal(above.shape)
    inverter = specinvert.GLLiMInverter(20, transforms={"chl": "log"}, **SETTINGS)
    inverter.fit(labelled(above, nm, {"chl": chl}))
    measured = table[[f"rrs{band:.0f}" for band in nm]].to_numpy()
    field = labelled(measured, nm, {"chl": table["in_situ_chl"].to_numpy()})
    yield Case("sea", inverter, field.assign(group=("row", table["obs_date"].str[:7].to_numpy())))


def scene(name: str, path: Path) -> Iterator[Case]:
    """Shares of materials in an image, from mixtures of its pure pixels; groups are blocks of 12 by 12 pixels."""
    table = loadmat(path)
    spectra = table["Y"].T / table["Y"].max()
    height, width = table["S_GT"].shape[:2]
    shares = table["A"].T if "A" in table else table["S_GT"].reshape(height * width, -1, order="F")
    spectra = spectra[:, :: max(1, spectra.shape[1] // 50)]
    rng, n = np.random.default_rng(0), 4000
    drawn = rng.dirichlet(np.full(shares.shape[1], 0.5), n)
    pure = [spectra[share > 0.97] for share in shares.T]
    mixed = np.einsum("sn,snb->nb", drawn.T, np.array([p[rng.integers(len(p), size=n)] for p in pure]))
    mixed = rng.uniform(0.7, 1.2, (n, 1)) * mixed + 0.005 * rng.standard_normal(mixed.shape)

    def named(of: np.ndarray) -> dict[str, np.ndarray]:
        return {f"material {i + 1}": share for i, share in enumerate(of.T)}

    nm = np.arange(spectra.shape[1]) + 400.0  # stands for band numbers, which are all that is needed
    inverter = specinvert.GLLiMInverter(10, tied_sigma=True, **SETTINGS).fit(labelled(mixed, nm, named(drawn)))
    block = np.arange(len(spectra)) // width // 12 * 100 + np.arange(len(spectra)) % width // 12
    kept = (shares.max(axis=1) < 0.97) & (rng.random(len(spectra)) < 0.35)
    field = labelled(spectra[kept], nm, named(np.clip(shares[kept], 0.0, 1.0)))
    yield Case(name, inverter, field.assign(group=("row", block[kept])))


def drawn_rows(group: np.ndarray, values: int, groups: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of some groups, one of each and the others at random."""
    names, counts = np.unique(group, return_counts=True)
    while True:
        chosen = rng.choice(names[counts > 1], groups, replace=False)
        each = [rng.permutation(np.flatnonzero(group == name)) for name in chosen]
        if sum(map(len, each)) >= values:
            others = rng.permutation(np.concatenate([rows[1:] for rows in each]))[: values - groups]
            return np.concatenate([[rows[0] for rows in each], others])


def judged(inverter: specinvert.GLLiMInverter, field: xr.Dataset) -> dict[str, pd.DataFrame]:
    """Whether the truth is inside intervals, their width and the error, under a log in decades, of each spectrum."""
    pit, maps, found = inverter.pit(field), inverter.invert(field["reflectance"], outputs=["estimate", "ci90"]), {}
    for i, name in enumerate(inverter.model_.names):
        estimate, truth = maps[name].values, field[name].values
        if inverter.model_.transforms.entry(i).kind == "log":
            estimate, truth = np.log10(estimate), np.log10(truth)
        level = np.abs(2.0 * pit[name].values - 1.0)
        width = (maps[f"{name}_ci90_upper"] - maps[f"{name}_ci90_lower"]).values
        columns = {"inside_50": level <= 0.5, "inside_90": level <= 0.9, "width": width, "error": estimate - truth}
        found[name] = pd.DataFrame(columns)
    return found


def summed(rows: pd.DataFrame, when: str) -> dict[str, float]:
    """Shares inside, the median width and the RMSE."""
    inside = {f"inside_{p}_{when}": float(rows[f"inside_{p}"].mean()) for p in (50, 90)}
    rmse = float(np.sqrt((rows["error"] ** 2).mean()))
    return {**inside, f"width_{when}": float(rows["width"].median()), f"rmse_{when}": rmse}


def draws(case: Case, count: int, values: int, groups: int, unrelated: bool) -> pd.DataFrame:
    """A row a draw and parameter: the rest before and after. ``unrelated``: values dealt out to the spectra anew."""
    inverter, field, rng, found = case.inverter, case.field, np.random.default_rng(0), []
    before = judged(inverter, field)
    for number in range(count):
        if unrelated:
            order = rng.permutation(field.sizes["row"])
            field = field.assign({name: ("row", field[name].values[order]) for name in inverter.model_.names})
            before = judged(inverter.calibrate(None), field)
        rows = drawn_rows(field["group"].values, values, groups, rng)
        rest = rng.permutation(np.setdiff1d(np.arange(field.sizes["row"]), rows))[:MOST_JUDGED]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that values do not follow the estimates is in the table
            inverter.calibrate(field.isel(row=rows), "group")
        after, calibration = judged(inverter, field.isel(row=rest)), inverter.model_.calibration
        assert calibration is not None
        for name, found_after in after.items():
            told = calibration.table[name]
            row = summed(before[name].iloc[rest], "before") | summed(found_after, "after")
            row |= {"kind": told["kind"], "said": not told["signal"]}
            found.append({"set": case.name, "parameter": name, "draw": number} | row)
    return pd.DataFrame(found)


def markdown(table: pd.DataFrame) -> str:
    """A row a set and parameter, means over draws."""
    lines = [
        "| set | parameter | inside 50 %, before | after | inside 90 %, before | after, mean (10 % of draws below) | "
        "width, before | after | RMSE, before | after | bias, slope corrected, % | no signal told, % |",
        "| --- " * 12 + "|",
    ]
    for (name, parameter), group in table.groupby(["set", "parameter"], sort=False):
        mean = group.mean(numeric_only=True)
        kinds = [100.0 * float((group["kind"] == kind).mean()) for kind in ("bias", "slope")]
        cells = [f"{100 * mean[f'inside_50_{when}']:.0f}" for when in ("before", "after")]
        low = 100 * float(group["inside_90_after"].quantile(0.1))
        cells += [f"{100 * mean['inside_90_before']:.0f}", f"{100 * mean['inside_90_after']:.0f} ({low:.0f})"]
        cells += [f"{mean[f'width_{when}']:.2g}" for when in ("before", "after")]
        cells += [f"{mean[f'rmse_{when}']:.2g}" for when in ("before", "after")]
        cells += [f"{kinds[0]:.0f}, {kinds[1]:.0f}", f"{100 * group['said'].mean():.0f}"]
        lines.append(f"| {name} | {parameter} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(table: pd.DataFrame) -> Figure:
    """Shares in 90 % intervals before and after: means, and from a tenth to nine tenths of the draws."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axis = figure.subplots()
    groups = list(table.groupby(["set", "parameter"], sort=False))
    for place, (_, group) in enumerate(groups):
        for when, colour, shift in (("before", "#d55e00", 0.12), ("after", "#0072b2", -0.12)):
            inside = 100.0 * group[f"inside_90_{when}"]
            axis.plot(inside.quantile([0.1, 0.9]), [place + shift] * 2, color=colour, lw=1.5)
            axis.plot(inside.mean(), place + shift, "o", color=colour, label=when if place == 0 else None)
    axis.axvline(90.0, color="black", lw=0.8)
    axis.set_yticks(range(len(groups)), [f"{name}: {parameter}" for (name, parameter), _ in groups], fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="truths inside 90 % intervals, % (mean, and 10 to 90 % of draws)", xlim=(0, 100))
    axis.legend(frameon=False, loc="lower left")
    return figure


@click.command()
@click.option("--lai", type=FILE, help="crop_traits_lai.csv")
@click.option("--leaves", "leaf", type=FILE, help="ely_plsr_data.csv")
@click.option("--sea", "ocean", type=FILE, help="seawifs_matchups.csv")
@click.option("--samson", type=FILE, help="samson.mat")
@click.option("--jasper", type=FILE, help="UPCGIT_Jasper.mat")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="field_calibration")
@click.option("--draws", "count", type=click.IntRange(2), default=200, show_default=True)
@click.option("--values", type=click.IntRange(15), default=20, show_default=True, help="Field values of a draw.")
@click.option("--groups", type=click.IntRange(4), default=5, show_default=True, help="Groups that they are of.")
@click.option("--unrelated", is_flag=True, help="Deal the values out to the spectra anew: no signal.")
def main(
    lai: Path | None,
    leaf: Path | None,
    ocean: Path | None,
    samson: Path | None,
    jasper: Path | None,
    output: Path,
    count: int,
    values: int,
    groups: int,
    unrelated: bool,
) -> None:
    """Draw field values again and again, calibrate, and judge on the rest; sets whose files are given."""
    output.mkdir(parents=True, exist_ok=True)
    cases: list[Iterator[Case]] = []
    cases += [wheat(lai)] if lai else []
    cases += [leaves(leaf)] if leaf else []
    cases += [sea(ocean)] if ocean else []
    cases += [scene("Samson", samson)] if samson else []
    cases += [scene("Jasper Ridge", jasper)] if jasper else []
    if not cases:
        raise click.UsageError("give the file of one set at least")
    tables = []
    for of_file in cases:
        for case in of_file:
            enough = int((np.unique(case.field["group"].values, return_counts=True)[1] > 1).sum())
            if enough <= groups:
                click.echo(f"{case.name}: left out, {enough} groups")
                continue
            tables.append(draws(case, count, values, groups, unrelated))
            click.echo(case.name)
    table = pd.concat(tables)
    name = f"{values}_of_{groups}{'_unrelated' if unrelated else ''}"
    table.to_csv(output / f"{name}.csv", index=False, float_format="%.4g")
    text = markdown(table)
    (output / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    plot(table).savefig(output / f"{name}.png", dpi=110)
    click.echo(text)


if __name__ == "__main__":
    main()
