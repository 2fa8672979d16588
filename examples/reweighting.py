"""A step to the prior of the scene, on the sets of `measured.py` and on simulations of a narrower prior.

Each set is trained on what is declared, with and without what `specinvert.adapt` finds; then `specinvert.reweight`
takes its step, by force where it is refused, so that the errors show whether the refusal was right.

    python examples/reweighting.py lai crop_traits_lai.csv --output results
    python examples/reweighting.py simulations --output results

Every run adds its set to `reweighting.csv` in the folder.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import xarray as xr
from measured_sets import SETS

import specinvert
from specinvert.nuisance import Noise, apply
from specinvert.physics.mixing import simulate_mixtures

SIMULATIONS = "simulations"
NAMES = ["ice_fraction", "grain_size"]
SCENES = {  # of the simulated scenes, the shares of ice that they hold
    "all of the prior": (0.0, 1.0),
    "a half": (0.5, 1.0),
    "a third": (1 / 3, 2 / 3),
    "a tenth": (0.3, 0.4),
}


def step(
    inverter: specinvert.GLLiMInverter, test: xr.Dataset, noise: Any, labels: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Errors before and after a step to the prior of the test's spectra, a row a parameter."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            made = specinvert.reweight(inverter, test["reflectance"], noise, force=True)
    except ValueError as error:
        yield labels | {"verdict": f"refused: {error}"}
        return
    told = made.model_.scene_prior
    assert told is not None
    widths = dict(zip(inverter.model_.names, told.width_ratio, strict=False))  # none where nothing changed
    before, after = (one.evaluate(test, noise=noise, measured=True) for one in (inverter, made))
    for name in before["parameter"].values:
        pair = [table.sel(parameter=name) for table in (before, after)]
        rmse, inside = ([float(one[what]) for one in pair] for what in ("rmse", "coverage_90"))
        yield labels | {
            "parameter": name,
            "verdict": told.verdict.replace("forced", "refused"),
            "effective": told.effective,
            "step": told.step,
            "width": widths.get(name, 1.0),
            "rmse": rmse[0],
            "ratio": rmse[1] / rmse[0],
            "inside": 100.0 * inside[0],
            "inside_after": 100.0 * inside[1],
        }


def of_measured(name: str, path: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of a set of `measured.py`."""
    of = SETS[name](path)
    inverter = specinvert.GLLiMInverter(**of.settings, random_state=seed)
    inverter.fit(of.training, spectra="reflectance", parameters=of.parameters, noise=of.nuisance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = specinvert.adapt(
            inverter, of.target["reflectance"], of.training, of.nuisance, spectra="reflectance", random_state=seed
        )
    test = of.target[["reflectance", *(one for one in of.parameters if one in of.target)]]
    for kind, noise in ({"blind": None} | ({} if found.attrs["refused"] else {"adapted": found})).items():
        yield from step(inverter, test, noise, {"set": name, "seed": seed, "model": kind})


def of_simulations(seed: int) -> Iterator[dict[str, Any]]:
    """Rows of simulated scenes whose share of ice lies in a part of that of training."""
    for white in (0.02, 0.1):
        made = [simulate_mixtures(n, seed=100 * seed + i) for i, n in enumerate((3000, 6000))]
        training, many = (one.isel(wavelength=slice(None, None, 6)) for one in made)
        inverter = specinvert.GLLiMInverter(10, n_latent=0, sigma="full", tol=0.01, random_state=seed)
        inverter.fit(training, parameters=NAMES, noise=white)
        ice = many["ice_fraction"]
        for name, (low, high) in SCENES.items():
            scene = many.isel(sample=np.flatnonzero((low <= ice) & (ice <= high))[:500])
            test = apply(scene, Noise(white), seed=seed + 7)
            yield from step(inverter, test, None, {"set": f"{name}, noise {white:g}", "seed": seed, "model": "blind"})


@click.command()
@click.argument("name", type=click.Choice((SIMULATIONS, *SETS)))
@click.argument("path", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("results"))
@click.option("--seeds", default=3, show_default=True)
def main(name: str, path: Path | None, output: Path, seeds: int) -> None:
    """Take steps on a set, and add them to the table."""
    if (path is None) != (name == SIMULATIONS):
        raise click.UsageError("give the file of a measured set, and none for simulations")
    rows = []
    for seed in range(seeds):
        rows += list(of_simulations(seed) if path is None else of_measured(name, path, seed))
    output.mkdir(parents=True, exist_ok=True)
    table, file = pd.DataFrame(rows), output / "reweighting.csv"
    if file.exists():
        known = pd.read_csv(file)
        table = pd.concat([known[~known["set"].isin(table["set"])], table])
    table.to_csv(file, index=False)
    print(table.to_string(columns=[one for one in table if one != "verdict"], index=False, float_format="%.3g"))


if __name__ == "__main__":
    main()
