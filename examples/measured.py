"""One recipe on measured sets: trained on what is declared, adapted without labels, calibrated by 20 values.

"blind" is `fit` with the noise that is declared; "adapted" adds what `specinvert.adapt` finds in unlabelled spectra,
and is the blind one where that refuses; then `calibrate` is given 20 measured values of 5 groups, drawn many times, and
scored on all other groups.  Beside them: the recipe that was picked with scores in sight, where there is one, what came
with the data, and other methods on the same training spectra, whose intervals are the quantiles of their errors on a
fifth of those spectra.

    python examples/measured.py lai crop_traits_lai.csv --output results
    python examples/measured.py corn_mp5 path/to/corn --output results

Every run adds its set to the table and to the figure of the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import lai_sentinel2
import leaf_traits
import matplotlib
import numpy as np
import pandas as pd
import xarray as xr
from measured_sets import SETS, SOURCES, MeasuredSet

import specinvert
from specinvert.baselines import make_method
from specinvert.nuisance import apply

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OTHERS = ("pls", "rf", "mlp", "lut")
HELD_OUT = 5  # one spectrum in so many gives the other methods their intervals
FOREST_ROWS = 1000
VALUES, CLUSTERS, MOST_SCORED = 20, 5, 300
OUTPUTS = ("mean", "ci90")
FORCED = "adapted by force"
OWN = ("blind", "adapted", "20 values", "adapted, 20 values", "informed")
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
MARKS = {  # marker, colour and size
    "blind": ("o", "#d55e00", 45),
    "adapted": ("o", "#0072b2", 45),
    FORCED: ("D", "#009e73", 25),
    "20 values": ("^", "#e69f00", 30),
    "adapted, 20 values": ("^", "#56b4e9", 30),
    "informed": ("*", "black", 50),
    "pls": ("|", "grey", 40),
    "rf": ("x", "grey", 25),
    "mlp": ("+", "grey", 35),
    "lut": ("1", "grey", 40),
}
Estimate = dict[str, np.ndarray]
"""Of a parameter p: `p`, and where there are intervals `p_low` and `p_high`, (n,)."""


def score(
    found: Estimate, truth: xr.Dataset, rows: np.ndarray | slice = slice(None), fineness: float = 0.0
) -> Iterator[dict[str, float | str]]:
    """RMSE, bias, share inside 90 % intervals and their mean width, of each parameter, at some rows of the truth."""
    for name in (str(variable) for variable in truth.data_vars if variable in found):
        values = truth[name].values[rows]
        error = found[name] - values
        known = np.isfinite(error)
        row: dict[str, float | str] = {"parameter": name, "rmse": float(np.sqrt((error[known] ** 2).mean()))}
        row |= {"bias": float(error[known].mean()), "n": int(known.sum()), "std": float(values[known].std())}
        if f"{name}_low" in found:
            low, high = found[f"{name}_low"][known], found[f"{name}_high"][known]
            holds = (low - fineness <= values[known]) & (values[known] <= high + fineness)
            row["inside"] = 100.0 * float(holds.mean())
            row["width"] = float((high - low).mean())
        yield row


def estimates(maps: xr.Dataset, names: list[str]) -> Estimate:
    """What `invert` gave, as arrays."""
    kinds = {"": "", "_low": "_ci90_lower", "_high": "_ci90_upper"}
    return {f"{name}{end}": maps[f"{name}{kind}"].values for name in names for end, kind in kinds.items()}


def other_method(name: str, problem: MeasuredSet, noisy: xr.Dataset, seed: int) -> Estimate:
    """Another method on the same noisy training spectra; intervals of one width by split conformal."""
    x = noisy["reflectance"].values
    t = np.stack([noisy[parameter].values for parameter in problem.parameters], axis=1)
    clusters = np.unique(t, axis=0, return_inverse=True)[1].ravel()  # copies of a spectrum stay together
    held = np.random.default_rng(seed).permutation(clusters.max() + 1)[clusters] % HELD_OUT == 0
    rows = np.flatnonzero(~held)
    if name == "rf":
        rows = np.random.default_rng(seed).permutation(rows)[:FOREST_ROWS]
    method = make_method(name, random_state=seed).fit(x[rows], t[rows])
    errors = t[held] - np.reshape(method.predict(x[held]), (-1, t.shape[1]))
    mean = np.reshape(method.predict(problem.target["reflectance"].values), (-1, t.shape[1]))
    low, high = np.quantile(errors, [0.05, 0.95], axis=0)
    found: Estimate = {}
    for i, parameter in enumerate(problem.parameters):
        found |= {
            parameter: mean[:, i],
            f"{parameter}_low": mean[:, i] + low[i],
            f"{parameter}_high": mean[:, i] + high[i],
        }
    return found


def informed(name: str, problem: MeasuredSet, path: Path, seed: int) -> Estimate | None:
    """What the recipe gives that was picked with these scores in sight, where there is one."""
    if name == "lai":
        field = lai_sentinel2.labelled(problem.target["lai"].values, problem.target["reflectance"].values)
        recipe = lai_sentinel2.INFORMED
        clean = lai_sentinel2.labelled(problem.training["lai"].values, problem.training["reflectance"].values)
        return {
            f"lai{end}": table.to_numpy()
            for end, (_, table) in zip(
                ("", "_low", "_high"), lai_sentinel2.estimate(recipe, clean, field, seed).items(), strict=True
            )
        }
    if name == "leaves":
        _, maps = leaf_traits.score(
            leaf_traits.INFORMED, leaf_traits.FULL, leaf_traits.Simulations(), leaf_traits.read_leaves(path), seed
        )
        found: Estimate = {}
        for trait in leaf_traits.TRAITS:
            mean, margin = maps[trait].values, leaf_traits.Z90 * maps[f"{trait}_std"].values
            found |= {trait: mean, f"{trait}_low": mean - margin, f"{trait}_high": mean + margin}
        return found
    return None


def draws(groups: np.ndarray, n: int, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of 20 values in 5 groups, as evenly as these allow, and 300 rows of all other groups, or all they have."""
    rng, names = np.random.default_rng(seed), np.unique(groups)
    while n > 0:
        chosen = rng.permutation(names)[:CLUSTERS]
        rows = [rng.permutation(np.flatnonzero(groups == name)) for name in chosen]
        turns = [(turn, i) for i, own in enumerate(rows) for turn in range(len(own))]
        if len(turns) >= VALUES:
            taken = [rows[i][turn] for turn, i in sorted(turns)[:VALUES]]
            yield np.sort(taken), rng.permutation(np.flatnonzero(~np.isin(groups, chosen)))[:MOST_SCORED]
            n -= 1


def run(name: str, path: Path, seeds: int, n_draws: int) -> tuple[pd.DataFrame, list[str]]:
    """Scores of a set, a row a method, parameter and seed, and what `adapt` said."""
    problem = SETS[name](path)
    scores: list[dict[str, Any]] = []
    said: list[str] = []
    names = problem.parameters
    truth = problem.target[[name for name in names if name in problem.target]]

    def add(method: str, seed: int, found: Estimate, rows: np.ndarray | slice = slice(None)) -> None:
        rated = score(found, truth, rows, problem.fineness)
        scores.extend({"set": name, "method": method, "seed": seed} | row for row in rated)

    for method, given in problem.others.items():
        add(method, 0, {str(variable): values.values for variable, values in given.items()})
    for seed in range(seeds):
        inverter = specinvert.GLLiMInverter(**problem.settings, random_state=seed)
        inverter.fit(problem.training, parameters=names, noise=problem.nuisance, progress=False)
        spectra = problem.target[["reflectance"]]
        blind = estimates(inverter.invert(spectra, outputs=OUTPUTS), names)
        add("blind", seed, blind)
        found = specinvert.adapt(inverter, spectra, problem.training, noise=problem.nuisance, force=True)
        adapted = estimates(inverter.invert(spectra, noise=found, outputs=OUTPUTS), names)
        refused = found.attrs["verdict"].startswith("forced")
        add("adapted", seed, blind if refused else adapted)
        if refused:
            add(FORCED, seed, adapted)
        said.append(f"{name}, seed {seed}: {found.attrs['verdict']}")
        if seed == 0:
            for i, (known, rest) in enumerate(draws(problem.target["group"].values, n_draws)):
                for method, noise in (("20 values", None), ("adapted, 20 values", None if refused else found)):
                    inverter.calibrate(problem.target.isel(row=known), groups="group", noise=noise)
                    maps = inverter.invert(spectra.isel(row=rest), noise=noise, outputs=OUTPUTS)
                    add(method, i, estimates(maps, names), rest)
            inverter.calibrate(None)
        noisy = apply(problem.training, problem.nuisance, seed=seed)
        for method in OTHERS:
            add(method, seed, other_method(method, problem, noisy, seed))
        best = informed(name, problem, path, seed)
        if best is not None:
            add("informed", seed, best)
        click.echo(f"{name}, seed {seed}")
    return pd.DataFrame(scores), said


def means(scores: pd.DataFrame) -> pd.DataFrame:
    """Over the seeds or draws, a row a set, parameter and method, in their order."""
    return scores.groupby(["set", "parameter", "method"], sort=False).mean(numeric_only=True).drop(columns="seed")


def cell(row: pd.Series | None) -> str:
    """RMSE, share inside and width as they stand in a table."""
    if row is None:
        return ""
    intervals = "" if np.isnan(row["inside"]) else f" ({row['inside']:.0f} %, {row['width']:.3g})"
    return f"{row['rmse']:.3g}{intervals}"


def markdown(table: pd.DataFrame, methods: tuple[str, ...], rest: str = "") -> str:
    """A row a set and parameter, a column a method; the methods of no table in a last column, where it has a name."""
    head = ["set", "parameter", "n", "std", *methods, *([rest] if rest else [])]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for (name, parameter), rows in table.groupby(level=["set", "parameter"], sort=False):
        found = rows.droplevel(["set", "parameter"])
        whole = found.loc["blind"]
        cells = [cell(found.loc[method] if method in found.index else None) for method in methods]
        if rest:
            own = [m for m in found.index if m not in (*OWN, *OTHERS, FORCED)]
            cells.append("; ".join(f"{method} {cell(found.loc[method])}" for method in own))
        lines.append("| " + " | ".join([name, parameter, f"{whole.n:.0f}", f"{whole['std']:.3g}", *cells]) + " |")
    return "\n".join(lines) + "\n"


def draw(table: pd.DataFrame) -> plt.Figure:
    """RMSE over the standard deviation of the truth, and share inside 90 % intervals, of each set and parameter."""
    places = {key: i for i, key in enumerate(dict.fromkeys(key[:2] for key in table.index))}
    spread = table.xs("blind", level="method")["std"].loc[list(places)].to_numpy()
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 1.2 + 0.3 * len(places)), sharey=True, layout="constrained", width_ratios=(3, 2)
    )
    for method, (marker, colour, size) in MARKS.items():
        found = table[table.index.get_level_values("method") == method].reset_index()
        if found.empty:
            continue
        y = [places[key] for key in zip(found["set"], found["parameter"], strict=True)]
        style = {"marker": marker, "color": colour, "s": size, "zorder": 3}
        left.scatter(found["rmse"] / spread[y], y, label=method, **style)
        right.scatter(found["inside"], y, **style)
    left.axvline(1.0, color="grey", lw=0.8)
    right.axvline(90.0, color="grey", lw=0.8)
    left.set(xscale="log", xlabel="RMSE / standard deviation of the truth (1: as good as their mean)")
    left.set_yticks(list(places.values()), [f"{name}: {parameter}" for name, parameter in places])
    left.invert_yaxis()
    left.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    left.minorticks_off()
    right.set(xlabel="% inside 90 % intervals", xlim=(-3, 103))
    for axis in (left, right):
        axis.grid(axis="y", lw=0.4)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
    return figure


@click.command(epilog="\n\n".join(f"{name}: {source}" for name, source in SOURCES.items()))
@click.argument("name", metavar="SET", type=click.Choice(list(SETS)))
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="measured", show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Seeds 0, 1, ... averaged.")
@click.option("--draws", "n_draws", type=click.IntRange(0), default=200, show_default=True, help="Of 20 field values.")
def main(name: str, path: Path, output: Path, seeds: int, n_draws: int) -> None:
    """Run the recipe on a SET whose file or folder is PATH."""
    output.mkdir(parents=True, exist_ok=True)
    scores, said = run(name, path, seeds, n_draws)
    scores.to_csv(output / f"measured_{name}.csv", index=False, float_format="%.4g")
    for line in said:
        click.echo(line)
    kept = [output / f"measured_{made}.csv" for made in SETS]
    table = means(pd.concat([pd.read_csv(file) for file in kept if file.exists()]))
    text = markdown(table, OWN) + "\n" + markdown(table, (*OTHERS, FORCED), "came with the data")
    (output / "measured.md").write_text(text, encoding="utf-8")
    draw(table).savefig(output / "measured.png", dpi=110)
    click.echo(f"{text}\nwritten to {output}")


if __name__ == "__main__":
    main()
