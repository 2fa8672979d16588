"""Leaf water and dry matter of measured leaves, from PROSPECT-D simulations only.

Field values are never used in training: they only score the estimates.  Two recipes are compared, each with four
structures of the model.  "blind" was written before any score was seen; "informed" was chosen with the scores in sight.

    python examples/leaf_traits.py ely_plsr_data.csv --output leaf_traits
    python examples/leaf_traits.py ely_plsr_data.csv --output leaf_traits --study
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import click
import matplotlib
import numpy as np
import pandas as pd
import prosail
import xarray as xr
from scipy.stats import qmc, truncnorm, uniform

import specinvert

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GRID = np.arange(500, 2401)  # nm: what the leaves were measured at
TRAITS = {"water": ("H20_g_m2", "leaf water"), "lma": ("LMA_g_m2", "leaf dry mass per area (LMA)")}
PROSPECT = ("structure", "chlorophyll", "carotenoids", "anthocyanins", "brown", "water", "lma")
Z90 = 1.645
WHITE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}

BROAD: dict[str, tuple[float, ...]] = {  # (low, high): uniform; wide enough for most leaves
    "structure": (1.0, 3.0),
    "chlorophyll": (5.0, 100.0),  # ug/cm2
    "carotenoids": (1.0, 25.0),
    "anthocyanins": (0.0, 5.0),
    "brown": (0.0, 0.5),
    "water": (40.0, 400.0),  # g/m2
    "lma": (15.0, 150.0),
}
TYPICAL: dict[
    str, tuple[float, ...]
] = {  # (low, high, mean, std): normal, cut to the same ranges; what leaves usually are
    "structure": (1.0, 3.0, 1.6, 0.4),
    "chlorophyll": (5.0, 100.0, 40.0, 20.0),
    "carotenoids": (1.0, 25.0, 9.0, 4.0),
    "anthocyanins": (0.0, 5.0, 1.0, 1.5),
    "brown": (0.0, 0.5, 0.0, 0.1),
    "water": (40.0, 400.0, 130.0, 70.0),
    "lma": (15.0, 150.0, 60.0, 35.0),
}
PRIORS = {"broad": BROAD, "typical": TYPICAL}


@dataclass(frozen=True)
class Recipe:
    """How the training set is made: a prior on leaves, and how the instrument and the simulator err."""

    name: str
    prior: str
    n_simulations: int
    n_components: int
    first_nm: int
    step_nm: int
    noise: float  # standard deviation of white noise
    offset: tuple[float, float]  # range of a specular offset, the same in all bands of a spectrum
    gain: float  # standard deviation of a factor about 1
    smooth: float = 0.0  # standard deviation of a smooth random curve added to each spectrum
    length_nm: float = 50.0  # over which that curve changes
    tied_full: bool = False  # one full Sigma for all components: needed where they hold few samples

    @property
    def wavelengths(self) -> np.ndarray:
        """The bands used, nm."""
        return np.arange(self.first_nm, GRID[-1] + 1, self.step_nm)


@dataclass(frozen=True)
class Structure:
    """The structure of the model's noise."""

    sigma: str
    n_latent: int = 0  # L_w

    def __str__(self) -> str:
        return self.sigma if self.sigma == "full" else f"{self.sigma}, L_w = {self.n_latent}"


BLIND = Recipe("blind", "broad", 5000, 50, 500, 10, noise=0.01, offset=(-0.01, 0.03), gain=0.05, tied_full=True)
INFORMED = Recipe("informed", "typical", 10000, 10, 1300, 20, noise=0.01, offset=(-0.02, 0.02), gain=0.02, smooth=0.01)
NAIVE = replace(INFORMED, name="noise-free", noise=0.0005, offset=(0.0, 0.0), gain=0.0, smooth=0.0)
RECIPES = (BLIND, INFORMED, NAIVE)
ISO2, FULL = Structure("iso", 2), Structure("full")
STRUCTURES = (Structure("iso", 0), Structure("iso", 1), ISO2, FULL)


def study_runs() -> list[tuple[Recipe, Structure]]:
    """From blind to informed, each step on top of those before it; then one change of the informed recipe at a time."""
    size: dict[str, Any] = {"n_simulations": 10000, "n_components": 10, "step_nm": 20, "tied_full": False}
    steps = [replace(BLIND, name="+ 10000 spectra, K = 10, 20 nm", **size)]
    further: dict[str, dict[str, Any]] = {
        "+ offset about 0, gain 0.02": {"offset": INFORMED.offset, "gain": INFORMED.gain},
        "+ typical prior": {"prior": INFORMED.prior},
        "+ from 1300 nm": {"first_nm": INFORMED.first_nm},
        "+ smooth curves = informed": {"smooth": INFORMED.smooth},
    }
    for name, change in further.items():
        steps.append(replace(steps[-1], name=name, **change))
    changes: list[dict[str, Any]] = [{"noise": v} for v in (0.001, 0.003, 0.02)]
    changes += [{"smooth": v} for v in (0.005, 0.02)] + [{"length_nm": v} for v in (100, 200)]
    changes += [{"n_components": v} for v in (5, 20)] + [{"n_simulations": 5000}, {"first_nm": 500}, {"prior": "broad"}]
    single = [replace(INFORMED, name=" ".join(f"{k} = {v}" for k, v in c.items()), **c) for c in changes]
    runs = [*product(steps + single, (ISO2, FULL)), (replace(INFORMED, tied_full=True, name="tied Sigma"), FULL)]
    return runs + [(INFORMED, Structure("iso", n)) for n in (3, 5, 8)]


def read_leaves(path: Path) -> xr.Dataset:
    """Measured reflectance as a fraction, and the field values, labelled."""
    table = pd.read_csv(path)
    reflectance = table[[f"Wave_{nm}" for nm in GRID]].to_numpy(dtype=float) / 100
    values = {name: table[column].to_numpy(dtype=float) for name, (column, _) in TRAITS.items()}
    return labelled(GRID, reflectance, values)


def labelled(wavelengths: np.ndarray, reflectance: np.ndarray, values: dict[str, np.ndarray]) -> xr.Dataset:
    """Spectra and traits as the Dataset that GLLiMInverter takes."""
    traits = {n: ("leaf", v, {"units": "g/m2", "long_name": TRAITS[n][1]}) for n, v in values.items()}
    return xr.Dataset(
        {"reflectance": (("leaf", "wavelength"), reflectance, {"units": "1"}), **traits},
        coords={"wavelength": ("wavelength", wavelengths.astype(float), {"units": "nm"})},
    )


def simulate(prior: str, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """PROSPECT-D without nuisance: parameters (n, 7) and reflectance (n, 1901)."""
    cube = qmc.LatinHypercube(len(PROSPECT), seed=seed).random(n)
    columns = []
    for u, name in zip(cube.T, PROSPECT, strict=True):
        low, high, *normal = PRIORS[prior][name]
        if normal:
            mean, std = normal
            columns.append(truncnorm.ppf(u, (low - mean) / std, (high - mean) / std, mean, std))
        else:
            columns.append(uniform.ppf(u, low, high - low))
    leaves = np.stack(columns, axis=1)
    spectra = np.empty((n, GRID.size))
    for i, (structure, cab, car, ant, brown, water, lma) in enumerate(leaves):
        cw, cm = water / 1e4, lma / 1e4  # cm and g/cm2, from g/m2
        spectra[i] = prosail.run_prospect(structure, cab, car, brown, cw, cm, ant=ant, prospect_version="D")[1][
            GRID - 400
        ]
    return leaves, spectra


def add_nuisance(clean: np.ndarray, recipe: Recipe, rng: np.random.Generator) -> np.ndarray:
    """What separates a real spectrum from a simulated one, drawn anew for every spectrum."""
    n, n_bands = clean.shape
    spectra = clean * (1 + recipe.gain * rng.standard_normal((n, 1))) + rng.uniform(*recipe.offset, (n, 1))
    if recipe.smooth:
        distance = np.subtract.outer(recipe.wavelengths, recipe.wavelengths) / recipe.length_nm
        root = np.linalg.cholesky(np.exp(-0.5 * distance**2) + 1e-8 * np.eye(n_bands))
        spectra += recipe.smooth * rng.standard_normal((n, n_bands)) @ root.T
    return spectra + recipe.noise * rng.standard_normal((n, n_bands))


class Simulations:
    """Clean simulations of each prior, made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}

    def clean(self, prior: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Parameters and spectra of `n` leaves."""
        if (prior, n) not in self._made:
            start = time.perf_counter()
            self._made[prior, n] = simulate(prior, n)
            click.echo(f"simulated {n} leaves, {prior} prior: {time.perf_counter() - start:.0f} s")
        return self._made[prior, n]

    def training(self, recipe: Recipe, seed: int) -> xr.Dataset:
        """A recipe's training set; the nuisance depends on the seed."""
        leaves, spectra = self.clean(recipe.prior, recipe.n_simulations)
        clean = spectra[:, recipe.wavelengths - GRID[0]]
        noisy = add_nuisance(clean, recipe, np.random.default_rng(seed))
        return labelled(recipe.wavelengths, noisy, {n: leaves[:, PROSPECT.index(n)] for n in TRAITS})


def score(
    recipe: Recipe, structure: Structure, simulations: Simulations, field: xr.Dataset, seed: int
) -> tuple[pd.DataFrame, xr.Dataset]:
    """Train on simulations, invert the measured leaves, compare: one row a trait, and the estimates."""
    start = time.perf_counter()
    inverter = specinvert.GLLiMInverter(
        n_components=recipe.n_components,
        n_latent=structure.n_latent,
        sigma=structure.sigma,
        tied_sigma=structure.sigma == "full" and recipe.tied_full,
        tol=5e-3,
        random_state=seed,
    ).fit(simulations.training(recipe, seed), parameters=list(TRAITS))
    leaves = field.sel(wavelength=recipe.wavelengths)
    maps = inverter.invert(leaves, outputs=("mean", "std", "flag"))
    metrics = inverter.evaluate(leaves)
    rows = []
    for name in TRAITS:
        row: dict[str, object] = {"recipe": recipe.name, "model": str(structure), "trait": name, "seed": seed}
        for metric in ("rmse", "bias", "correlation_squared", "nrmse"):
            row[metric] = float(metrics[metric].sel(parameter=name))
        error, std = np.abs(maps[name] - leaves[name]), maps[f"{name}_std"]
        row |= {"coverage_90": float((error <= Z90 * std).mean()), "median_std": float(std.median())}
        rows.append(row)
    click.echo(
        f"{recipe.name:32s} {structure!s:12s} seed {seed}: "
        + ", ".join(f"{r['trait']} RMSE {r['rmse']:5.1f} bias {r['bias']:6.1f}" for r in rows)
        + f"  ({inverter.n_iter_} iterations, {time.perf_counter() - start:.0f} s)"
    )
    return pd.DataFrame(rows), maps


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, and how much the RMSE differs between them."""
    groups = rows.drop(columns="seed").groupby(["trait", "recipe", "model"], sort=False)
    table = groups.mean()
    table.insert(1, "rmse_spread", groups["rmse"].std(ddof=0))
    return table.reset_index().sort_values("trait", kind="stable", ascending=False)


def markdown(table: pd.DataFrame) -> str:
    """The summary as Markdown, one table a trait."""
    lines: list[str] = []
    for name in TRAITS:
        lines += [f"**{TRAITS[name][1]}**, g/m2", ""]
        lines += ["| recipe | model | RMSE | bias | squared correlation | NRMSE | 90 % coverage | median std |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
        for r in table[table.trait == name].itertuples():
            lines.append(
                f"| {r.recipe} | {r.model} | {r.rmse:.1f} ± {r.rmse_spread:.1f} | {r.bias:+.1f} "
                f"| {r.correlation_squared:.2f} | {r.nrmse:.2f} | {r.coverage_90:.2f} | {r.median_std:.1f} |"
            )
        lines.append("")
    return "\n".join(lines)


def plot_trait(name: str, field: xr.Dataset, maps: dict[tuple[str, str], xr.Dataset]) -> plt.Figure:
    """Measured against estimated, one row a recipe, one column a model."""
    truth = field[name].values
    high = 1.5 * truth.max()
    figure, axes = plt.subplots(3, 4, figsize=(11, 8.7), sharex=True, sharey=True, layout="constrained")
    for axis, (recipe, structure) in zip(axes.flat, product(RECIPES, STRUCTURES), strict=True):
        found = maps[recipe.name, str(structure)]
        estimate, std = found[name].values, found[f"{name}_std"].values
        axis.errorbar(truth, estimate, Z90 * std, fmt="none", ecolor="tab:blue", alpha=0.25, lw=0.8)
        axis.plot(truth, estimate, "o", ms=2.5, color="tab:blue", mec="none")
        axis.axline((0, 0), slope=1, color="black", lw=0.8)
        words = f"RMSE {np.sqrt(np.mean((estimate - truth) ** 2)):.1f}, bias {np.mean(estimate - truth):+.1f}"
        outside = int(((estimate < 0) | (estimate > high)).sum())
        words += f"\n{outside} leaves off the axes" if outside else ""
        axis.text(0.04, 0.96, words, transform=axis.transAxes, va="top", fontsize=8.5, bbox=WHITE)
        axis.set_title(f"{recipe.name}: {structure}", fontsize=10)
        axis.set(xlim=(0, 1.1 * truth.max()), ylim=(0, high))
    figure.supxlabel(f"measured {TRAITS[name][1]}, g/m²", fontsize=10)
    figure.supylabel("estimated, g/m² (bars: 90 % interval)", fontsize=10)
    return figure


def plot_spectra(field: xr.Dataset, simulations: Simulations) -> plt.Figure:
    """Simulated percentiles around the measured ones, and what no simulation explains."""
    measured = field["reflectance"].values
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 6.5), sharex=True, layout="constrained")
    for recipe, colour in ((BLIND, "tab:orange"), (INFORMED, "tab:blue")):
        spread = np.percentile(simulations.training(recipe, 0)["reflectance"].values, (5, 95), axis=0)
        label = f"training, {recipe.name}: 5-95 %"
        top.fill_between(recipe.wavelengths, *spread, color=colour, alpha=0.3, lw=0, label=label)
    top.plot(GRID, np.percentile(measured, (5, 95), axis=0).T, "k--", lw=1, label=["measured: 5 and 95 %", None])
    top.plot(GRID, np.median(measured, axis=0), "k-", lw=1, label="measured: median")
    top.set(ylabel="reflectance", ylim=(0, None), xlim=(GRID[0], GRID[-1]))
    top.legend(fontsize=9, frameon=False)
    clean = simulations.clean(INFORMED.prior, INFORMED.n_simulations)[1]
    for first, colour in ((500, "tab:orange"), (INFORMED.first_nm, "tab:blue")):
        used = np.arange(first - GRID[0], GRID.size, 10)
        residual = measured[:, used] - nearest(measured[:, used], clean[:, used])
        mean, std = residual.mean(axis=0), residual.std(axis=0)
        bottom.plot(GRID[used], mean, color=colour, lw=1.2, label=f"closest over {first}-2400 nm: mean, std")
        bottom.fill_between(GRID[used], mean - std, mean + std, color=colour, alpha=0.2, lw=0)
    bottom.axhline(0, color="black", lw=0.8)
    bottom.set(xlabel="wavelength, nm", ylabel="measured - closest simulation")
    bottom.legend(fontsize=9, frameon=False, loc="lower right")
    return figure


def nearest(spectra: np.ndarray, simulated: np.ndarray) -> np.ndarray:
    """The mean of the five clean simulations closest to each spectrum."""
    distance = (simulated**2).sum(axis=1) - 2 * spectra @ simulated.T
    closest: np.ndarray = simulated[np.argsort(distance, axis=1)[:, :5]]
    return np.asarray(closest.mean(axis=1))


@click.command()
@click.argument("leaves", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="leaf_traits", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Seeds 0, 1, ... averaged.")
@click.option("--study", is_flag=True, help="Instead, change one thing of the recipes at a time.")
def main(leaves: Path, output: Path, seeds: int, study: bool) -> None:
    """Estimate water and LMA of the LEAVES (a CSV file with columns Wave_500 ... Wave_2400 in percent)."""
    output.mkdir(parents=True, exist_ok=True)
    field, simulations = read_leaves(leaves), Simulations()
    runs = study_runs() if study else list(product(RECIPES, STRUCTURES))
    rows: list[pd.DataFrame] = []
    maps: dict[tuple[str, str], xr.Dataset] = {}
    for recipe, structure in runs:
        for seed in range(seeds):
            scores, estimates = score(recipe, structure, simulations, field, seed)
            rows.append(scores)
            maps.setdefault((recipe.name, str(structure)), estimates)
    table = summary(pd.concat(rows))
    name = "study" if study else "table"
    table.to_csv(output / f"leaf_traits_{name}.csv", index=False, float_format="%.4g")
    (output / f"leaf_traits_{name}.md").write_text(markdown(table), encoding="utf-8")
    click.echo("\n" + markdown(table))
    if not study:
        for trait in TRAITS:
            plot_trait(trait, field, maps).savefig(output / f"leaf_traits_{trait}.png", dpi=110)
        plot_spectra(field, simulations).savefig(output / "leaf_traits_spectra.png", dpi=110)
    click.echo(f"written to {output}")


if __name__ == "__main__":
    main()
