"""The paper's table of faces ("tab:face_err"): pose of a head with the light hidden, and light with the pose hidden.

FACES.mat holds 698 images of 32 x 32 pixels, of which every second one is kept each way. 597 images to train, 100 to
test, drawn anew for each repeat; K = 10, equal isotropic noise. Pixels that are the same in all training images are
left out. The run can be stopped at any time, and goes on where it was; more repeats or more L_w add to it. The whole
takes hours, a trial with --quick a minute.

    python examples/paper/table3.py FACES.mat --output results
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
from common import Record, Scores, error_record, failures, markdown, numbers_of, run_tasks, write_csv, write_text
from faces import N_COMPONENTS, RANGES, TARGETS, draw_reconstructions, read_faces, varying_pixels
from methods import RVM_SEARCHES, Kernel, best_kernel, bic_records, methods_option, rvm_name, search_option, unfitted

from specinvert._version import __version__
from specinvert.figures import save_figure
from specinvert.gllim import GLLiM

METHODS = ("jgmm", "sir-1", "sir-2", "rvm", "gllim", "gllim-joint")
PAPER_KERNEL: Kernel = ("linear_spline", 20.0)
LATENTS = "0-30"
EXPECTED = {"pose": 1, "light": 2}
SEARCH_REPEAT = 1000
PAPER = {
    "JGMM": ((13.2, 26.6, 8.2), (2.32, 3.01, 7.0), (18.2, 21.0, 6.7)),
    "SIR-1": ((16.0, 11.3, 1.4), (2.64, 2.06, 4.9), (15.2, 13.2, 3.2)),
    "SIR-2": ((10.6, 9.73, 0.4), (1.81, 1.66, 1.9), (13.6, 13.2, 2.8)),
    "RVM": ((14.0, 12.2, 1.9), (2.63, 2.13, 5.8), (18.7, 15.7, 4.82)),
    "MLE": ((6.01, 5.35, 0.0), (1.84, 1.64, 1.8), (10.9, 8.84, 0.2)),
    "hGLLiM, expected L_w": ((3.80, 4.33, 0.0), (1.58, 1.46, 1.0), (10.1, 8.84, 0.2)),
    "hGLLiM, best L_w": ((2.65, 2.39, 0.0), (1.19, 1.11, 0.2), (8.71, 7.54, 0.0)),
    "hGLLiM-BIC": ((4.11, 4.66, 0.0), (1.58, 1.47, 1.0), (10.3, 8.66, 0.2)),
}
"""Average, deviation and percentage of extreme errors of pan, tilt and light."""
PLACES = [(target, i) for target, names in TARGETS.items() for i in range(len(names))]


@dataclass(frozen=True)
class FaceTask:
    """A method fitted to one split of the images."""

    path: Path
    target: str
    repeat: int
    method: str
    start: str = "kmeans"

    @property
    def key(self) -> str:
        """Target, repeat, method, start."""
        return f"{self.target} {self.repeat} {self.method} {self.start}"


def run_task(task: FaceTask) -> Record:
    """Errors of the wanted parameters on the test images, and GLLiM's BIC."""
    faces = read_faces(task.path)
    train, test = faces.split(task.repeat)
    kept, truth = varying_pixels(faces.images[train]), faces.targets(task.target)
    record: Record = {}
    with failures(record):
        gllim = {"n_components": N_COMPONENTS, "sigma": "iso", "tied_sigma": True, "init": task.start}
        model = unfitted(task.method, task.repeat, gllim, jgmm={"n_components": N_COMPONENTS})
        model.fit(faces.images[train][:, kept], truth[train])
        error = model.predict(faces.images[test][:, kept]).reshape(len(test), -1) - truth[test]
        record |= error_record(error, np.array([np.ptp(RANGES[name]) / 3 for name in TARGETS[task.target]]))
        if isinstance(model, GLLiM):
            record["bic"] = round(model.bic_, 2)
    return record


def best_latent(fits: dict[int, list[Record]]) -> int:
    """The L_w of least average error, each parameter's over its own at the least L_w."""
    scores = {n: Scores.of(records).average for n, records in fits.items()}
    return min(scores, key=lambda n: float(np.mean(scores[n] / scores[min(scores)])))


def draw_latents(curves: dict[str, dict[str, dict[int, list[Record]]]], output: Path) -> None:
    """Average errors against L_w, a panel a parameter, a line a start."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    for axis, (target, i) in zip(figure.subplots(1, 3), PLACES, strict=True):
        for colour, (start, fits) in zip(("#0072b2", "#d55e00"), curves[target].items(), strict=False):
            means = {n: Scores.of(records).average[i] for n, records in fits.items()}
            axis.plot(list(means), list(means.values()), "o-", ms=3, color=colour, label=start)
        name = TARGETS[target][i]
        axis.axhline(
            PAPER["hGLLiM, best L_w"][PLACES.index((target, i))][0],
            color="0.5",
            linewidth=0.8,
            label="paper, best $L_w$",
        )
        unit = "" if name == "light" else ", degrees"
        axis.set(xlabel="latent dimensions $L_w$", title=f"mean error of {name}{unit}", ylim=(0, None))
    axis.legend(frameon=False, fontsize="small")
    save_figure(figure, output / "table3.png", dpi=120)


@click.command()
@click.argument("faces", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--repeats", default=50, show_default=True, help="Splits, numbered from 0.")
@methods_option(METHODS)
@click.option("--latents", default=LATENTS, show_default=True, help='The L_w to try, such as "0-4,10".')
@search_option("few")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--quick", is_flag=True, help="Two repeats, L_w of 0 to 2, the paper's kernel.")
def main(
    faces: Path,
    output: Path,
    repeats: int,
    methods: list[str],
    latents: str,
    rvm_search: str,
    workers: int,
    quick: bool,
) -> None:
    """Run the experiment on FACES, the MATLAB file of images and parameters."""
    if quick:
        repeats, latents, rvm_search = 2, "0-2", "paper"
    about = {"data": read_faces(faces).digest}
    go = partial(run_tasks, run_task, log=output / "runs" / "table3.jsonl", about=about, workers=workers)
    kernels = dict.fromkeys(TARGETS, PAPER_KERNEL)
    if "rvm" in methods and rvm_search != "paper":
        for target in TARGETS:
            choices = RVM_SEARCHES[rvm_search]
            tasks = [FaceTask(faces, target, SEARCH_REPEAT, rvm_name(kernel)) for kernel in choices]
            kernels[target] = best_kernel({c: [r] for c, r in zip(choices, go(tasks, label="kernels"), strict=True)})
    rows: dict[str, dict[str, list[Record]]] = {}
    curves: dict[str, dict[str, dict[int, list[Record]]]] = {target: {} for target in TARGETS}
    notes = []
    for name in methods:
        if not name.startswith("gllim"):
            for target in TARGETS:
                method = rvm_name(kernels[target]) if name == "rvm" else name
                tasks = [FaceTask(faces, target, r, method) for r in range(repeats)]
                rows.setdefault(name.upper(), {})[target] = go(tasks, label=f"{name} {target}")
            continue
        start = "kmeans-joint" if name == "gllim-joint" else "kmeans"
        suffix = ", joint start" if name == "gllim-joint" else ""
        wanted = numbers_of(latents)
        tasks = [
            FaceTask(faces, target, r, f"gllim-{n}", start)
            for r in range(repeats)
            for target in TARGETS
            for n in wanted
        ]
        found = dict(zip(tasks, go(tasks, label=name), strict=True))
        for target in TARGETS:
            fits: dict[int, list[Record]] = {n: [] for n in wanted}
            for task, record in found.items():
                if task.target == target:
                    fits[int(task.method.removeprefix("gllim-"))].append(record)
            curves[target][start] = fits
            best, (by_bic, picks) = best_latent(fits), bic_records(fits)
            parts = {"hGLLiM, best L_w": fits[best], "hGLLiM-BIC": by_bic}
            parts |= {"MLE": fits[0]} if 0 in fits else {}
            parts |= {"hGLLiM, expected L_w": fits[EXPECTED[target]]} if EXPECTED[target] in fits else {}
            for label in PAPER:
                if label in parts:
                    rows.setdefault(label + suffix, {})[target] = parts[label]
            counts = ", ".join(f"{n}: {c}" for n, c in sorted(picks.items()))
            notes.append(f"- {target}{suffix}: best L_w {best}; BIC chose (L_w: times) {counts}")

    texts, table = [], []
    for label, some in rows.items():
        paper = PAPER.get(label.removesuffix(", joint start"))
        cells = [label]
        for column, (target, i) in enumerate(PLACES):
            score = Scores.of(some[target])
            cells += score.cells(min(i, len(score.average) - 1))
            cells.append("" if paper is None else " / ".join(f"{value:g}" for value in paper[column]))
            table.append([label.replace(", ", " "), TARGETS[target][i], *cells[-4:-1], score.failed])
        texts.append(cells)
    columns = [t for target, i in PLACES for t in (f"{TARGETS[target][i]} avg", "std", "ex %", "paper")]
    lines = [
        f"specinvert {__version__}, {repeats} repeats, L_w of {latents}",
        *(f"RVM kernel of {target}: {k}, scale {s:g}" for target, (k, s) in kernels.items() if "rvm" in methods),
        "",
        *markdown(["method", *columns], texts),
        "",
        *notes,
    ]
    write_text(output / "table3.txt", lines)
    write_csv(
        output / "table3.csv", ["method", "parameter", "average", "deviation", "extreme_percent", "failed"], table
    )
    if any(curves[target] for target in TARGETS):
        draw_latents(curves, output)
        first = next(iter(curves["pose"]))
        save_figure(draw_reconstructions(read_faces(faces), first), output / "table3_reconstructions.png", dpi=120)
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
