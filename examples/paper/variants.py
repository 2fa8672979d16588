"""Convergence of the general EM and of its variants (marginal EM, ECM, AECM) from the same start.

Spectra of K affine maps of parameters and latents, with noise of unequal variances. Every algorithm starts from the
same responsibilities. Prints the iterations and seconds until the log-likelihood is within 1e-3 and 1e-5 nats a sample
of the greatest that any reached, and writes a table and a figure.

    python examples/paper/variants.py --output results
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from specinvert._version import __version__
from specinvert.figures import save_figure
from specinvert.gllim import GLLiM

N_SAMPLES, N_BANDS, N_COMPONENTS, N_PARAMETERS, N_LATENT = 2000, 40, 4, 2, 3
ALGORITHMS = {"general": "#0072b2", "marginal": "#d55e00", "ecm": "#009e73", "aecm": "#cc79a7"}
NOISE: dict[str, dict[str, Any]] = {
    "iso": {"sigma": "iso"},
    "iso, tied": {"sigma": "iso", "tied_sigma": True},
    "diag": {"sigma": "diag"},
    "blocks of 8 bands": {"sigma": "block", "sigma_blocks": [band // 8 for band in range(N_BANDS)]},
}
GAPS = (1e-3, 1e-5)
INTRODUCTION = """\
Every algorithm starts from the same responsibilities and reaches the same likelihood. Under iso noise "marginal" and
"ecm" are one algorithm. Integrating the latents out takes a few iterations where the general EM takes tens or hundreds,
for K arrays of D x D and an eigenvalue decomposition of each; "aecm" halves the iterations without them, at two passes
over the data each. Seconds are those of one run.

![Distance from the best log-likelihood over iterations and seconds](variants.png)"""


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spectra (n, D), parameters (n, L_t) and responsibilities (n, K) to start from."""
    rng = np.random.default_rng(seed)
    label = rng.integers(N_COMPONENTS, size=N_SAMPLES)
    t = rng.normal(size=(N_COMPONENTS, N_PARAMETERS))[label] + rng.normal(size=(N_SAMPLES, N_PARAMETERS))
    x = np.concatenate([t, rng.normal(size=(N_SAMPLES, N_LATENT))], axis=1)
    maps = rng.normal(size=(N_COMPONENTS, N_BANDS, x.shape[1]))
    maps[:, :, N_PARAMETERS:] *= 0.4
    y = np.einsum("ndl,nl->nd", maps[label], x)
    y += rng.uniform(0.3, 1.5, N_BANDS) * rng.standard_normal(y.shape)
    start = 0.7 * np.eye(N_COMPONENTS)[label] + 0.3 * rng.dirichlet(np.ones(N_COMPONENTS), N_SAMPLES)
    return y, t, start


def trace(algorithm: str, noise: dict[str, Any], seed: int, max_iter: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood a sample after each iteration, and the seconds until then."""
    y, t, start = draw(seed)
    seconds: list[float] = []
    model = GLLiM(n_latent=N_LATENT, algorithm=algorithm, max_iter=max_iter, tol=0.0, **noise)
    begun = perf_counter()
    model.fit(y, t, responsibilities=start, progress=lambda *_: seconds.append(perf_counter() - begun))
    return model.log_likelihoods_ / len(y), np.array(seconds)


def first_within(values: np.ndarray, best: float, gap: float) -> int | None:
    """Index of the first value within a gap of the best."""
    found = np.flatnonzero(values >= best - gap)
    return int(found[0]) if len(found) else None


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--iterations", default=150, show_default=True, help="Iterations of each algorithm.")
@click.option("--seed", default=0, show_default=True)
def main(output: Path, iterations: int, seed: int) -> None:
    """Run the comparison."""
    output.mkdir(parents=True, exist_ok=True)
    lines = [
        "# The general EM and its variants",
        "",
        *INTRODUCTION.splitlines(),
        "",
        f"specinvert {__version__}: N = {N_SAMPLES}, D = {N_BANDS}, K = {N_COMPONENTS}, L_t = {N_PARAMETERS}, "
        f"L_w = {N_LATENT}, seed {seed}, {iterations} iterations",
        "",
        "| noise | algorithm | "
        + " | ".join(f"iterations to {gap:g} | seconds to {gap:g}" for gap in GAPS)
        + " | ms an iteration | gap at the end, nats a sample |",
        "| --- " * (2 + 2 * len(GAPS) + 2) + "|",
    ]
    figure = Figure(figsize=(9.0, 5.2), layout="constrained")
    axes = figure.subplots(2, len(NOISE), sharey=True, squeeze=False)
    for column, (name, noise) in enumerate(NOISE.items()):
        trace("marginal", noise, seed, 2)  # compiled before the clock runs
        runs = {algorithm: trace(algorithm, noise, seed, iterations) for algorithm in ALGORITHMS}
        best = max(values.max() for values, _ in runs.values())
        for algorithm, (values, seconds) in runs.items():
            cells = []
            for gap in GAPS:
                at = first_within(values, best, gap)
                cells += ["-", "-"] if at is None else [str(at + 1), f"{seconds[at]:.2f}"]
            pace = 1e3 * (seconds[-1] - seconds[0]) / (iterations - 1)
            end = max(best - values[-1], 0.0)
            lines.append(f"| {name} | {algorithm} | " + " | ".join(cells) + f" | {pace:.1f} | {end:.1e} |")
            below = np.maximum(best - values, 1e-9)
            style = {"color": ALGORITHMS[algorithm], "label": algorithm, "linewidth": 1.4}
            axes[0, column].plot(1 + np.arange(iterations), below, **style)
            axes[1, column].plot(seconds, below, **style)
        axes[0, column].set(title=name, xlabel="iteration", xscale="log", yscale="log", ylim=(1e-8, None))
        axes[1, column].set(xlabel="seconds", xscale="log")
        axes[1, column].set_xlim(left=0.03)
        axes[1, column].xaxis.set_minor_formatter(NullFormatter())
    for row in axes:
        row[0].set_ylabel("below the best,\nnats a sample")
    axes[0, 0].legend(frameon=False, fontsize="small")
    save_figure(figure, output / "variants.png", dpi=120)
    (output / "variants.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
