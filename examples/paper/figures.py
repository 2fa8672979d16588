"""The paper's figures of synthetic functions: error against L_w (to 10, and on to JGMM), K, D and signal to noise.

The functions and fits are those of table2.py, whose log is shared: what it has computed is not computed again.

    python examples/paper/figures.py --output results --functions 50
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from common import Scores, run_tasks, write_csv
from matplotlib.figure import Figure
from methods import rvm_name
from synthetic import PAPER_KERNEL, Trial, run_trial

from specinvert.figures import save_figure

RVM = rvm_name(PAPER_KERNEL)
NAMES = {"gllim-0": "MLE", "gllim-1": "hGLLiM-1", "gllim-3": "hGLLiM-3", "sir-1": "SIR-1", "sir-2": "SIR-2", RVM: "RVM"}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
AXES = {
    "latents": "latent dimensions $L_w$",
    "to-jgmm": "latent dimensions $L_w$, function h",
    "components": "components K, function h",
    "bands": "bands D, function h",
    "snr": "signal to noise, dB, function f",
}
FIGURES = tuple(AXES)
Curve = dict[float, list[Trial]]


def plan(figure: str, functions: int, quick: bool) -> dict[str, Curve]:
    """The curves of a figure: what is fitted, over the values of its axis."""
    seeds = range(functions)
    if figure == "latents":
        wanted = range(3) if quick else range(11)
        return {kind: {n: [Trial(kind, s, f"gllim-{n}") for s in seeds] for n in wanted} for kind in "fgh"}
    if figure == "to-jgmm":
        wanted = (0, 2) if quick else (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 35, 40, 45)
        level = {method: [Trial("h", s, method) for s in seeds] for method in ("gllim-0", "jgmm")}
        return {
            "hGLLiM": {n: [Trial("h", s, f"gllim-{n}") for s in seeds] for n in wanted[1:]},
            **{NAMES.get(method, method.upper()): dict.fromkeys(wanted, some) for method, some in level.items()},
        }
    methods = ["sir-1", "sir-2", RVM, "gllim-0", "gllim-1" if figure == "snr" else "gllim-3"]
    methods += [] if figure == "bands" else ["jgmm"]
    values, field, kind = {
        "components": ((2, 5, 10, 15, 20), "n_components", "h"),
        "bands": ((5, 10, 20, 30, 50, 75, 100), "n_bands", "h"),
        "snr": ((-10.0, -3.0, 0.0, 3.0, 6.0, 10.0, 20.0), "snr", "f"),
    }[figure]
    flat = {"sir-1", "sir-2", RVM} if figure == "components" else set()
    return {
        NAMES.get(method, method.upper()): {
            value: [
                Trial(kind, s, method) if method in flat else replace(Trial(kind, s, method), **{field: value})
                for s in seeds
            ]
            for value in (values[:2] if quick else values)
        }
        for method in methods
    }


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--functions", default=50, show_default=True, help="Functions, seeds from 0.")
@click.option("--figures", default=",".join(FIGURES), show_default=True, help="Some of these, with commas.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--quick", is_flag=True, help="One function, the first values of each axis.")
def main(output: Path, functions: int, figures: str, workers: int, quick: bool) -> None:
    """Run the experiments and draw them; what does not depend on the axis is a broken line."""
    names = figures.split(",")
    strange = [name for name in names if name not in FIGURES]
    if strange:
        raise click.BadParameter(f"{', '.join(strange)} not among {', '.join(FIGURES)}", param_hint="--figures")
    log, count = output / "runs" / "table2.jsonl", 1 if quick else functions
    columns = min(len(names), 3)
    figure = Figure(figsize=(4.4 * columns, 3.8 * -(-len(names) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(names) // columns), columns, squeeze=False).ravel()
    for axis in axes[len(names) :]:
        axis.remove()
    rows = []
    for axis, name in zip(axes, names, strict=False):
        curves = plan(name, count, quick)
        trials = [trial for curve in curves.values() for some in curve.values() for trial in some]
        found = dict(zip(trials, run_tasks(run_trial, trials, log, {}, workers, name), strict=True))
        for colour, (label, curve) in zip(COLOURS, curves.items(), strict=False):
            scores = {value: Scores.of([found[trial] for trial in some]) for value, some in curve.items()}
            means = {value: float(score.average[0]) for value, score in scores.items()}
            rows += [[name, label, value, f"{mean:.4f}", scores[value].failed] for value, mean in means.items()]
            if len(set(means.values())) == 1:
                axis.axhline(next(iter(means.values())), ls="--", lw=1.2, color=colour, label=label)
                continue
            axis.plot(list(means), list(means.values()), "o-", ms=3, color=colour, label=label)
            least = min(means, key=means.__getitem__)
            axis.plot(least, means[least], "o", ms=7, color=colour)
        axis.set(xlabel=AXES[name], ylabel="mean absolute error of $t$", ylim=(0.0, None))
        axis.legend(frameon=False, fontsize="small")
    output.mkdir(parents=True, exist_ok=True)
    save_figure(figure, output / "figures.png", dpi=120)
    write_csv(output / "figures.csv", ["figure", "curve", "value", "average", "failed"], rows)


if __name__ == "__main__":
    main()
