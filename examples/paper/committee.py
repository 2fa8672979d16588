"""A committee of fits on the paper's synthetic functions f, g and h, beside a single fit.

The functions, the training sets and the test spectra are those of synthetic.py: 200 training pairs, 50 bands, 6 dB,
K = 5 components with equal isotropic noise, L_w = 3. Prints the mean absolute error of t, and the share of true t
inside 90 % intervals, which are taken as they come, without recalibration.

    python examples/paper/committee.py --output results --functions 20
"""

from __future__ import annotations

import warnings
from pathlib import Path

import click
import numpy as np
import xarray as xr
from sklearn.exceptions import ConvergenceWarning
from synthetic import N_COMPONENTS, draw_function
from table2 import PAPER

from specinvert import GLLiMInverter
from specinvert._version import __version__

N_LATENT = 3
WITH_LATENTS = [f"hGLLiM-{n}" for n in range(1, 5)]
"""The paper's rows of a given number of latents."""


def spectra_of(values: np.ndarray) -> xr.DataArray:
    """Labelled spectra."""
    return xr.DataArray(values, dims=("sample", "band"), name="y")


def scores_of(kind: str, seed: int, n_ensemble: int, ensemble_weights: str = "equal") -> tuple[float, float, float]:
    """Mean absolute error, share inside the 90 % intervals and their mean width, of one random function."""
    t, y, t_test, y_test = draw_function(kind, seed)
    inverter = GLLiMInverter(
        N_COMPONENTS,
        N_LATENT,
        sigma="iso",
        tied_sigma=True,
        n_ensemble=n_ensemble,
        ensemble_weights=ensemble_weights,
        random_state=seed,
    ).fit(xr.Dataset({"y": spectra_of(y), "t": ("sample", t)}), band_dim="band")
    maps = inverter.invert(spectra_of(y_test), outputs=("mean", "ci90"), band_dim="band")
    low, high = maps["t_ci90_lower"].values, maps["t_ci90_upper"].values
    error = np.abs(maps["t"].values - t_test)
    return float(error.mean()), float(((low <= t_test) & (t_test <= high)).mean()), float((high - low).mean())


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--functions", default=20, show_default=True, help="Functions of each kind; the paper has 100.")
@click.option("--members", default=8, show_default=True, help="Fits of the committee.")
def main(output: Path, functions: int, members: int) -> None:
    """Run the experiment."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    output.mkdir(parents=True, exist_ok=True)
    lines = [
        f"specinvert {__version__}, {functions} functions a kind, seeds 0 to {functions - 1}",
        "",
        "| function | fits | weights | mean absolute error | inside 90 % intervals | mean width | paper, best L_w |",
        "| --- " * 7 + "|",
    ]
    for column, kind in enumerate("fgh"):
        paper = min(scores[column][0] for method, scores in PAPER.items() if method in WITH_LATENTS)
        for count, weights in ((1, "equal"), (members, "equal"), (members, "evidence")):
            runs = [scores_of(kind, seed, count, weights) for seed in range(functions)]
            error, inside, width = np.mean(runs, axis=0)
            spread = np.std([run[0] for run in runs], ddof=1) / np.sqrt(functions)
            shown = "" if count == 1 else weights
            cells = [kind, str(count), shown, f"{error:.3f} ± {spread:.3f}", f"{inside:.3f}", f"{width:.2f}"]
            lines.append("| " + " | ".join([*cells, f"{paper:.2f}"]) + " |")
            click.echo(lines[-1])
    (output / "committee.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
