"""The paper's table of synthetic functions ("tab:functions_err"): all methods on random functions f, g and h.

200 noisy training pairs (t, y), D = 50, 6 dB, w hidden; 200 test spectra; K = 5, equal isotropic noise. Average,
standard deviation and share of extreme ones of the absolute errors of t, for GLLiM from two starts with L_w = 0 to 10
and by BIC, and what BIC chooses. The run can be stopped at any time, and goes on where it was. The whole
takes about an hour, a trial with --quick a minute.

    python examples/paper/table2.py --output results
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click
from common import Record, Scores, markdown, run_tasks, write_csv, write_text
from methods import RVM_SEARCHES, Kernel, best_kernel, methods_option, rvm_name, search_option
from synthetic import MAX_LATENT, PAPER_KERNEL, STARTS, TRUE_LATENT, Trial, run_trial

from specinvert._version import __version__

METHODS = ("jgmm", "sir-1", "sir-2", "rvm", "gllim", "gllim-joint")
SEARCH_SEED = 1000
"""Seed of the first function on which the kernel of the relevance vector machine is chosen."""
PAPER = {
    "JGMM": ((1.78, 2.21, 19.5), (2.45, 2.76, 28.4), (2.26, 2.87, 22.4)),
    "SIR-1": ((1.28, 1.07, 5.92), (1.73, 1.39, 14.9), (1.64, 1.31, 13.0)),
    "SIR-2": ((0.60, 0.69, 1.02), (1.02, 1.02, 4.20), (1.03, 1.06, 4.91)),
    "RVM": ((0.59, 0.53, 0.30), (0.86, 0.68, 0.52), (0.93, 0.75, 1.00)),
    "MLE": ((0.36, 0.53, 0.50), (0.36, 0.34, 0.04), (0.61, 0.69, 0.99)),
    "hGLLiM-1": ((0.20, 0.24, 0.00), (0.25, 0.28, 0.01), (0.46, 0.48, 0.22)),
    "hGLLiM-2": ((0.23, 0.24, 0.00), (0.25, 0.25, 0.00), (0.36, 0.38, 0.04)),
    "hGLLiM-3": ((0.24, 0.24, 0.00), (0.26, 0.25, 0.00), (0.34, 0.34, 0.01)),
    "hGLLiM-4": ((0.23, 0.23, 0.01), (0.28, 0.27, 0.00), (0.35, 0.34, 0.01)),
    "hGLLiM-BIC": ((0.18, 0.21, 0.00), (0.24, 0.26, 0.00), (0.33, 0.35, 0.06)),
}
"""Average, deviation and percentage of extreme errors for f, g and h."""
START_NAMES = {"kmeans": "", "kmeans-joint": ", joint start"}


def trials_of(method: str, functions: int, kernel: Kernel, max_latent: int) -> list[Trial]:
    """The fits of one of :data:`METHODS`."""
    start = "kmeans-joint" if method == "gllim-joint" else "kmeans"
    names = {"rvm": [rvm_name(kernel)]}.get(method, [method])
    if method.startswith("gllim"):
        names = [f"gllim-{n}" for n in range(max_latent + 1)]
    return [Trial(kind, seed, name, start) for seed in range(functions) for kind in "fgh" for name in names]


def choose_kernel(search: str, functions: int, log: Path, workers: int) -> Kernel:
    """Kernel and scale of least error on functions of their own, all kinds together; the paper's if not searched."""
    if search == "paper":
        return PAPER_KERNEL
    seeds = range(SEARCH_SEED, SEARCH_SEED + functions)
    losses = {}
    tasks = {
        choice: [Trial(kind, seed, rvm_name(choice)) for seed in seeds for kind in "fgh"]
        for choice in RVM_SEARCHES[search]
    }
    found = iter(run_tasks(run_trial, [task for some in tasks.values() for task in some], log, {}, workers, "kernels"))
    for choice, some in tasks.items():
        losses[choice] = [next(found) for _ in some]
    return best_kernel(losses)


def label_of(trial: Trial) -> str:
    """The paper's name of a method, and the start where it is not the default one."""
    if not trial.method.startswith("gllim"):
        return trial.method.split()[0].upper()
    name = "MLE" if trial.method == "gllim-0" else "hGLLiM" + trial.method.removeprefix("gllim")
    return name + START_NAMES[trial.start]


def chosen_by_bic(records: Mapping[Trial, Record], kind: str, start: str) -> tuple[list[Record], Counter[int]]:
    """For each function the record of least BIC, and how often each L_w was it."""
    fits: dict[int, dict[int, Record]] = {}
    for trial, record in records.items():
        if trial.kind == kind and trial.start == start and "bic" in record:
            fits.setdefault(trial.seed, {})[int(trial.method.removeprefix("gllim-"))] = record
    picks = {seed: min(found, key=lambda n, found=found: found[n]["bic"]) for seed, found in fits.items()}
    return [fits[seed][pick] for seed, pick in picks.items()], Counter(picks.values())


def score_rows(records: Mapping[Trial, Record], starts: list[str]) -> dict[str, list[Scores]]:
    """Scores for f, g and h of each method, hGLLiM-BIC after the others of its start."""
    rows: dict[str, list[list[Record]]] = {}
    for trial, record in records.items():
        rows.setdefault(label_of(trial), [[], [], []])["fgh".index(trial.kind)].append(record)
    for start in starts:
        rows["hGLLiM-BIC" + START_NAMES[start]] = [chosen_by_bic(records, kind, start)[0] for kind in "fgh"]
    return {name: [Scores.of(some) for some in columns] for name, columns in rows.items()}


def bic_lines(records: Mapping[Trial, Record], starts: list[str], max_latent: int) -> list[str]:
    """Table of what BIC chose."""
    rows = []
    for start in starts:
        counts = {kind: chosen_by_bic(records, kind, start)[1] for kind in "fgh"}
        expected = sum(counts[kind][TRUE_LATENT[kind]] for kind in "fgh")
        total = sum(found.total() for found in counts.values())
        for kind, found in counts.items():
            rows.append([start, kind, *(str(found[n]) if found[n] else "" for n in range(max_latent + 1))])
        rows.append(
            [f"{start}: expected L_w chosen", f"{100 * expected / total:.0f} % (paper: 72 %)", *[""] * (max_latent + 1)]
        )
    return markdown(["start", "function", *(f"L_w = {n}" for n in range(max_latent + 1))], rows)


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--functions", default=100, show_default=True, help="Functions of each kind, seeds from 0.")
@methods_option(METHODS)
@search_option("all")
@click.option("--rvm-functions", default=2, show_default=True, help="Functions of each kind to choose the kernel on.")
@click.option("--max-latent", default=MAX_LATENT, show_default=True, help="Largest L_w.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--quick", is_flag=True, help="Two functions of each kind, L_w up to 2, the paper's kernel.")
def main(
    output: Path,
    functions: int,
    methods: list[str],
    rvm_search: str,
    rvm_functions: int,
    max_latent: int,
    workers: int,
    quick: bool,
) -> None:
    """Run the experiment."""
    if quick:
        functions, max_latent, rvm_search = 2, 2, "paper"
    log = output / "runs" / "table2.jsonl"
    kernel = choose_kernel(rvm_search, rvm_functions, log, workers) if "rvm" in methods else PAPER_KERNEL
    trials = [trial for name in methods for trial in trials_of(name, functions, kernel, max_latent)]
    records = dict(zip(trials, run_tasks(run_trial, trials, log, {}, workers, "table 2"), strict=True))
    starts = [start for start, name in zip(STARTS, ("gllim", "gllim-joint"), strict=True) if name in methods]
    rows = score_rows(records, starts)

    texts, numbers = [], []
    for name, scores in rows.items():
        paper = PAPER.get(name.removesuffix(START_NAMES["kmeans-joint"]))
        cells = [name]
        for column, score in enumerate(scores):
            cells += score.cells()
            cells.append("" if paper is None else " / ".join(f"{value:g}" for value in paper[column]))
            numbers.append([name.replace(", ", " "), "fgh"[column], *score.cells(), score.failed])
        texts.append([*cells, str(sum(score.failed for score in scores)) if any(s.failed for s in scores) else ""])
    columns = [text for kind in "fgh" for text in (f"{kind} avg", "std", "ex %", "paper")]
    lines = [
        f"specinvert {__version__}, {functions} functions a kind, seeds 0 to {functions - 1}",
        *([f"RVM kernel: {kernel[0]}, scale {kernel[1]:g}"] if "rvm" in methods else []),
        "",
        *markdown(["method", *columns, "failed"], texts),
        "",
        *bic_lines(records, starts, max_latent),
    ]
    write_text(output / "table2.txt", lines)
    write_csv(
        output / "table2.csv", ["method", "function", "average", "deviation", "extreme_percent", "failed"], numbers
    )
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
