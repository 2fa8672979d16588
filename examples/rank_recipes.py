"""Does `specinvert.rank` pick good recipes?  Twenty recipes a measured set, ranked without labels, then scored.

A recipe is a nuisance, a structure of the model, and sometimes a wrong prior; they are the same for all sets, in units
of the root mean square of the spectra.  The error of a recipe is the geometric mean over parameters of its RMSE on the
labels, which the ranking never sees; what counts is the error of the recipe that comes first over that of the best.

    python examples/rank_recipes.py lai crop_traits_lai.csv --output rank_recipes
    python examples/rank_recipes.py corn_mp5 path/to/corn --output rank_recipes

Every run adds its set to the table and to the figure of the folder.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from measured_sets import SETS, MeasuredSet

import specinvert
from specinvert.nuisance import Discrepancy, Gain, Noise, Nuisance, Offset, apply

ROWS = 4000  # training spectra of a recipe
PRIORS = {"lower": (0.0, 0.6), "middle": (0.2, 0.8)}  # quantiles of the first parameter that a wrong prior keeps
PICKS = {"rank": "black", "predictive": "#0072b2", "evidence": "#d55e00", "middle": "0.6"}


@dataclass(frozen=True)
class Recipe:
    """How a model is trained on the simulations of a set."""

    name: str
    nuisance: Nuisance
    settings: dict[str, Any]
    prior: str = ""


def recipes(problem: MeasuredSet) -> Iterator[Recipe]:
    """Recipes of a set: the nuisance that it declares and others, three structures, two wrong priors."""
    size = float(np.sqrt((problem.training["reflectance"] ** 2).mean()))
    few = problem.settings["n_components"] < 5
    small = problem.settings | {"n_components": 1 if few else 8}
    latent = {
        "n_components": 2 if few else 8,
        "n_latent": min(3, problem.target.sizes["wavelength"] - 2),
        "sigma": "diag",
    }
    own, smooth = problem.nuisance, Discrepancy(std=0.02 * size, length_scale=300.0)
    nuisances = {
        "declared": own,
        "declared + smooth 2 %": own | smooth,
        "white 0.2 %": Noise(white=0.002 * size),
        "white 1 %": Noise(white=0.01 * size),
        "white 5 %": Noise(white=0.05 * size),
        "white 15 %": Noise(white=0.15 * size),
        "relative 10 %": Noise(white=0.002 * size, relative=0.1),
        "smooth 2 %": smooth | Noise(white=0.002 * size),
        "smooth 5 %": Discrepancy(std=0.05 * size, length_scale=300.0) | Noise(white=0.002 * size),
        "gain and offset": Gain(0.1) | Offset(0.03 * size) | Noise(white=0.005 * size),
    }
    for name, nuisance in nuisances.items():
        yield Recipe(f"{name}, small", nuisance, small)
        if name in ("declared", "declared + smooth 2 %", "white 1 %", "white 5 %"):
            yield Recipe(f"{name}, as declared", nuisance, problem.settings)
            yield Recipe(f"{name}, latent", nuisance, latent | {"tol": 5e-3})
    for prior in PRIORS:
        yield Recipe(f"declared, small, {prior} prior", own, small, prior)


def train(problem: MeasuredSet, recipe: Recipe, seed: int) -> specinvert.GLLiMInverter:
    """The model of a recipe."""
    training, rng = problem.training, np.random.default_rng(seed)
    if recipe.prior:
        values = training[problem.parameters[0]].values
        low, high = np.quantile(values, PRIORS[recipe.prior])
        training = training.isel(row=np.flatnonzero((low <= values) & (values <= high)))
    if training.sizes["row"] > ROWS:
        training = training.isel(row=np.sort(rng.choice(training.sizes["row"], ROWS, replace=False)))
    inverter = specinvert.GLLiMInverter(**recipe.settings, random_state=seed)
    return inverter.fit(apply(training, recipe.nuisance, seed=seed), parameters=problem.parameters)


def run(name: str, path: Path, seed: int) -> pd.DataFrame:
    """The ranking of a set's recipes, with their errors over the least and their coverage."""
    problem = SETS[name](path)
    labelled = problem.target[["reflectance", *(name for name in problem.parameters if name in problem.target)]]
    inverters, scores = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few samples a component, which is part of the trial
        for recipe in recipes(problem):
            inverter = train(problem, recipe, seed)
            found: xr.Dataset = inverter.evaluate(labelled, measured=True)
            inverters[recipe.name] = inverter
            scores[recipe.name] = {
                "error": float(np.exp(np.log(found["rmse"]).mean())),
                "inside": 100.0 * float(found["coverage_90"].mean()),
            }
        ranking = specinvert.rank(inverters, problem.target["reflectance"])
    click.echo(f"{name}, seed {seed}: {ranking.attrs['verdict']}")
    table = ranking.to_dataframe().join(pd.DataFrame(scores).T)
    table["error"] /= table["error"].min()
    return table.reset_index().assign(set=name, seed=seed, place=np.arange(1, len(table) + 1))


def picked(table: pd.DataFrame) -> dict[str, float]:
    """Error over the least of what each way picks from one ranking, and of the middle recipe."""
    return {
        "rank": float(table.error.iloc[0]),
        "predictive": float(table.error[table.predictive.idxmax()]),
        "evidence": float(table.error[table.mean_log_evidence.idxmax()]),
        "middle": float(table.error.median()),
    }


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Picks of each set, the geometric mean over seeds."""
    groups = table.groupby(["set", "seed"], sort=False)
    rows = [{"set": group[0], **picked(part.reset_index(drop=True))} for group, part in groups]
    return pd.DataFrame(rows).groupby("set", sort=False).agg(lambda values: float(np.exp(np.log(values).mean())))


def markdown(table: pd.DataFrame) -> str:
    """The summary, with how the first recipe is called, its coverage, and how often it was within 1.15 of the best."""
    picks = summary(table)
    lines = ["| set | first | `rank` | predictive density | evidence | middle recipe | inside, % |", "| --- " * 7 + "|"]
    for name, row in picks.iterrows():
        first = table[(table.set == name) & (table.place == 1)]
        cells = " | ".join(f"{row[pick]:.2f}" for pick in PICKS)
        lines.append(f"| {name} | {'; '.join(dict.fromkeys(first.model))} | {cells} | {first.inside.mean():.0f} |")
    good = (picks <= 1.15).sum()
    lines.append("| sets within 1.15 | | " + " | ".join(f"{good[pick]} of {len(picks)}" for pick in PICKS) + " | |")
    return "\n".join(lines)


def gated(table: pd.DataFrame, limit: float) -> pd.Series:
    """What to minimise to order recipes as `rank` does, with another limit."""
    worst = table[["disagreement", "window_q"]].max(axis=1)
    return table.window_error.where(worst < limit, 1e6 + worst)


def orders(table: pd.DataFrame) -> str:
    """Other orders by the same figures: the error of what they pick, over that of the best."""
    names = ("window_error", "window_q", "disagreement", "expected_error")
    costs = {f"`rank`, limit {limit:g}": gated(table, limit) for limit in (1.2, 1.5, 2.0, 2.5, 3.0, 5.0)}
    costs |= {f"least `{name}`": table[name] for name in names}
    costs |= {"predictive density": -table.predictive, "evidence": -table.mean_log_evidence}
    lines = ["| order | geometric mean | sets within 1.15 |", "| --- | --- | --- |"]
    for name, cost in costs.items():
        rows = table.assign(cost=cost).sort_values("cost", kind="stable").groupby(["set", "seed"]).error.first()
        each = np.exp(np.log(rows).groupby("set").mean())
        lines.append(f"| {name} | {np.exp(np.log(each).mean()):.2f} | {(each <= 1.15).sum()} of {len(each)} |")
    return "\n".join(lines)


def plot(table: pd.DataFrame) -> Figure:
    """Errors over the least: all recipes as dots, and what each way picks."""
    picks, names = summary(table), list(dict.fromkeys(table.set))
    figure = Figure(figsize=(8, 0.5 * len(names) + 1.6), layout="constrained")
    axis = figure.subplots()
    axis.axvspan(1.0, 1.15, color="#009e73", alpha=0.15, lw=0)
    for y, name in enumerate(names):
        axis.plot(
            table.error[table.set == name], np.full((table.set == name).sum(), y), ".", color="0.8", ms=4, zorder=1
        )
    for offset, (pick, colour) in zip((0.0, 0.12, 0.24), list(PICKS.items())[:3], strict=True):
        axis.plot(picks[pick], np.arange(len(names)) - offset, "o", color=colour, ms=6, label=pick, zorder=3)
    axis.plot(picks["middle"], np.arange(len(names)), "|", color=PICKS["middle"], ms=14, mew=2, label="middle recipe")
    axis.set_xscale("log")
    axis.set_xticks([1, 1.5, 2, 3, 4], ["1", "1.5", "2", "3", "4"], minor=False)
    axis.set_xticks([], minor=True)
    axis.set(
        xlim=(0.97, 4.2), xlabel="error of the picked recipe over that of the best (dots: all recipes; green: 1.15)"
    )
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return figure


@click.command()
@click.argument("name", type=click.Choice(list(SETS)))
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="rank_recipes", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds 0, 1, ... averaged.")
def main(name: str, path: Path, output: Path, seeds: int) -> None:
    """Rank the recipes of a set NAME whose file or folder is PATH."""
    output.mkdir(parents=True, exist_ok=True)
    file = output / "rank_recipes.csv"
    table = pd.concat([run(name, path, seed) for seed in range(seeds)])
    if file.exists():
        before = pd.read_csv(file)
        table = pd.concat([before[before.set != name], table])
    table.to_csv(file, index=False, float_format="%.4g")
    text = f"{markdown(table)}\n\n{orders(table)}"
    (output / "rank_recipes.md").write_text(text + "\n", encoding="utf-8")
    plot(table).savefig(output / "rank_recipes.png", dpi=110)
    click.echo(text)


if __name__ == "__main__":
    main()
