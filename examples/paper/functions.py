"""Inversion of the paper's synthetic functions f, g and h (section "High-dimensional Function Inversion").

For each of a number of random functions: 200 noisy training pairs (t, y), D = 50, 6 dB, w hidden; K = 5 components
with equal isotropic noise; 200 test spectra. Prints the mean absolute error of t for each L_w and for the L_w that BIC
picks, beside the paper's figures, and writes a table and a figure.

    python examples/paper/functions.py --output results --functions 20
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import click
import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from synthetic import MAX_LATENT, N_COMPONENTS, draw_function

from specinvert import __version__
from specinvert.diagnostics.plots import save_figure
from specinvert.gllim import GLLiM

PAPER = {
    "f": {0: 0.36, 1: 0.20, 2: 0.23, 3: 0.24, 4: 0.23, "BIC": 0.18},
    "g": {0: 0.36, 1: 0.25, 2: 0.25, 3: 0.26, 4: 0.28, "BIC": 0.24},
    "h": {0: 0.61, 1: 0.46, 2: 0.36, 3: 0.34, 4: 0.35, "BIC": 0.33},
}


def errors_of(kind: str, seed: int) -> tuple[dict[int, float], int]:
    """Mean absolute error of t for each L_w, and the L_w of least BIC."""
    t, y, t_test, y_test = draw_function(kind, seed)
    errors, bics = {}, {}
    for n_latent in range(MAX_LATENT + 1):
        model = GLLiM(N_COMPONENTS, n_latent=n_latent, sigma="iso", tied_sigma=True, random_state=seed)
        model.fit(y, t)
        errors[n_latent] = float(np.abs(model.predict(y_test) - t_test).mean())
        bics[n_latent] = model.bic_
    return errors, min(bics, key=bics.__getitem__)


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--functions", default=20, show_default=True, help="Functions of each kind; the paper has 100.")
def main(output: Path, functions: int) -> None:
    """Run the experiment."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    output.mkdir(parents=True, exist_ok=True)
    lines = [
        f"specinvert {__version__}, {functions} functions a kind, seeds 0 to {functions - 1}",
        "",
        "| function | "
        + " | ".join(f"L_w = {n}" for n in range(5))
        + " | BIC | BIC picks (L_w: times) | paper, best L_w |",
        "| --- " * 9 + "|",
    ]
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for kind, colour in zip("fgh", ("#0072b2", "#d55e00", "#009e73"), strict=True):
        with click.progressbar(range(functions), label=f"function {kind}") as seeds:
            runs = [errors_of(kind, seed) for seed in seeds]
        mean = {n: np.mean([errors[n] for errors, _ in runs]) for n in range(MAX_LATENT + 1)}
        chosen = np.mean([errors[pick] for errors, pick in runs])
        picks = ", ".join(f"{n}: {c}" for n, c in sorted(Counter(pick for _, pick in runs).items()))
        paper = PAPER[kind]
        best = min(v for k, v in paper.items() if k != "BIC")
        cells = [f"{mean[n]:.3f}" for n in range(5)] + [f"{chosen:.3f}", picks, f"{best:.2f} (BIC {paper['BIC']:.2f})"]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
        axes.plot(list(mean), list(mean.values()), "o-", color=colour, label=f"{kind}, here")
        axes.plot(
            [n for n in paper if n != "BIC"], [paper[n] for n in range(5)], "x:", color=colour, label=f"{kind}, paper"
        )
        axes.axhline(float(chosen), color=colour, linewidth=0.8, alpha=0.6)
    axes.set(xlabel="latent dimensions $L_w$", ylabel="mean absolute error of $t$", ylim=(0.0, None))
    axes.set_title("Thin lines: $L_w$ chosen by BIC", fontsize="medium")
    axes.legend(ncols=3, frameon=False)
    save_figure(figure, output / "functions.png", dpi=120)
    (output / "functions.md").write_text("\n".join(lines) + "\n")
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
