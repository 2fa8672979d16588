"""The paper's table of Mars ("tab:planeto_err"), on a database of polar ices and dust made from optical constants.

15 407 spectra of 184 bands, five parameters of which three are regressed; 10 000 to train, the rest to test, drawn anew
for each repeat; K = 50, equal diagonal noise. NRMSE of the three parameters, and maps of a scene. ICES and DUST are
netCDF tables of optical constants (see polar.py). The run can be stopped at any time, and goes on where it was. The
whole takes hours, a trial with --quick a minute.

    python examples/paper/table4.py ICES.nc DUST.nc --output results
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
from common import Record, failures, markdown, numbers_of, quiet, run_tasks, write_csv, write_text
from methods import RVM_SEARCHES, Kernel, bic_records, methods_option, rvm_name, search_option, unfitted
from polar import KNOWN, digest, make_database, polar_scene, read_constants

from specinvert import GLLiMInverter
from specinvert._version import __version__
from specinvert.figures import plot_results, save_figure
from specinvert.gllim import GLLiM

N_SPECTRA, N_TRAIN, N_COMPONENTS = 15_407, 10_000, 50
METHODS = ("jgmm", "sir-1", "sir-2", "rvm", "gllim", "gllim-parameters")
STARTS = {"gllim": "kmeans-joint", "gllim-parameters": "kmeans"}
SUFFIX = {"kmeans-joint": "", "kmeans": ", start on parameters"}
PAPER_KERNEL: Kernel = ("poly3", 6.0)
SEARCH_REPEAT = 1000
SEARCH_TRAIN = 1000
PAPER = {
    "JGMM": (0.83, 0.62, 0.79),
    "SIR-1": (1.27, 1.03, 0.70),
    "SIR-2": (0.96, 0.87, 0.63),
    "RVM": (0.52, 0.40, 0.48),
    "MLE": (0.54, 0.42, 0.61),
    "hGLLiM-1": (0.36, 0.28, 0.45),
    "hGLLiM-2": (0.34, 0.25, 0.39),
    "hGLLiM-3": (0.35, 0.25, 0.39),
    "hGLLiM-4": (0.38, 0.28, 0.38),
    "hGLLiM-5": (0.43, 0.32, 0.41),
    "hGLLiM-20": (0.51, 0.38, 0.47),
    "hGLLiM-BIC": (0.34, 0.25, 0.39),
}
"""NRMSE of the share of carbon dioxide ice, of dust, and of the grain size of water ice."""


@dataclass(frozen=True)
class PolarTask:
    """A method fitted to one split of the database."""

    ices: Path
    dust: Path
    n_spectra: int
    n_components: int
    noise: float
    repeat: int
    method: str
    start: str = "kmeans-joint"

    @property
    def key(self) -> str:
        """Repeat, method, start."""
        return f"{self.repeat} {self.method} {self.start}"

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices to train and to test; the search for a kernel has few of both."""
        order = np.random.default_rng([2014, self.repeat]).permutation(self.n_spectra)
        n_train = round(self.n_spectra * N_TRAIN / N_SPECTRA)
        return order[: SEARCH_TRAIN if self.repeat == SEARCH_REPEAT else n_train], order[n_train:]


def run_task(task: PolarTask) -> Record:
    """NRMSE of the three parameters on the test spectra, and GLLiM's BIC."""
    database = make_database(task.ices, task.dust, task.n_spectra, task.noise)
    spectra, targets = database["reflectance"].values, np.stack([database[name].values for name in KNOWN], axis=1)
    train, test = task.split()
    record: Record = {}
    with failures(record):
        gllim = {"n_components": task.n_components, "sigma": "diag", "tied_sigma": True, "init": task.start}
        jgmm = {"n_components": task.n_components, "covariance_type": "tied"}
        model = unfitted(task.method, task.repeat, gllim, jgmm, rvm={"max_candidates": 1000})
        model.fit(spectra[train], targets[train])
        squares = ((model.predict(spectra[test]) - targets[test]) ** 2).sum(axis=0)
        nrmse = np.sqrt(squares / ((targets[test] - targets[test].mean(axis=0)) ** 2).sum(axis=0))
        if not np.isfinite(nrmse).all():
            raise ValueError("estimates are not finite")
        record["nrmse"] = [float(f"{value:.5g}") for value in nrmse]
        if isinstance(model, GLLiM):
            record["bic"] = round(model.bic_, 1)
    return record


def mean_of(records: list[Record]) -> tuple[np.ndarray, np.ndarray, int]:
    """Mean and standard deviation over repeats of the NRMSE (3,), and how many failed."""
    values = np.array([record["nrmse"] for record in records if "failed" not in record]).reshape(-1, len(KNOWN))
    failed = len(records) - len(values)
    nothing = np.full(len(KNOWN), np.nan)
    return (values.mean(axis=0), values.std(axis=0), failed) if len(values) else (nothing, nothing, failed)


def verdict(rows: dict[str, list[Record]]) -> list[str]:
    """How far hGLLiM-2 lies below the better of RVM and MLE."""
    if not {"hGLLiM-2", "RVM", "MLE"} <= set(rows):
        return []
    better = min((mean_of(rows[name])[0] for name in ("RVM", "MLE")), key=np.mean)
    drop = 100 * (1 - mean_of(rows["hGLLiM-2"])[0] / better)
    cells = ", ".join(f"{name} {value:.0f} %" for name, value in zip(KNOWN, drop, strict=True))
    return [f"hGLLiM-2 below the better of RVM and MLE: {cells} (paper: 36 % on average)"]


@click.command()
@click.argument("ices", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("dust", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"), help="Folder to write.")
@click.option("--repeats", default=20, show_default=True, help="Splits, numbered from 0.")
@click.option("--spectra", default=N_SPECTRA, show_default=True, help="Of the database; 65 % are to train.")
@click.option("--components", default=N_COMPONENTS, show_default=True, help="K.")
@click.option("--noise", default=0.001, show_default=True, help="Standard deviation of the noise, in reflectance.")
@methods_option(METHODS)
@click.option("--latents", default="0-5,20", show_default=True, help="The L_w to try.")
@search_option("few")
@click.option("--scene", default=80, show_default=True, help="Pixels a side of the scene; 0 for none.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--quick", is_flag=True, help="One repeat of 1500 spectra, K = 10, L_w of 0 to 2, a small scene.")
def main(
    ices: Path,
    dust: Path,
    output: Path,
    repeats: int,
    spectra: int,
    components: int,
    noise: float,
    methods: list[str],
    latents: str,
    rvm_search: str,
    scene: int,
    workers: int,
    quick: bool,
) -> None:
    """Run the experiment with the optical constants in ICES and DUST."""
    if quick:
        repeats, spectra, components, latents, rvm_search, scene = 1, 1500, 10, "0-2", "paper", min(scene, 24)
    constants = read_constants(ices, dust)
    about = {"spectra": spectra, "components": components, "noise": noise, "data": digest(ices, dust)}
    go = partial(run_tasks, run_task, log=output / "runs" / "table4.jsonl", about=about, workers=workers)
    task = partial(PolarTask, ices, dust, spectra, components, noise)
    kernel = PAPER_KERNEL
    if "rvm" in methods and rvm_search != "paper":
        choices = RVM_SEARCHES[rvm_search]
        found = go([task(SEARCH_REPEAT, rvm_name(kernel)) for kernel in choices], label="kernels")
        kernel = min(zip(choices, found, strict=True), key=lambda pair: np.mean(pair[1].get("nrmse", np.inf)))[0]

    rows: dict[str, list[Record]] = {}
    notes = []
    for name in methods:
        if name not in STARTS:
            method = rvm_name(kernel) if name == "rvm" else name
            rows[name.upper()] = go([task(r, method) for r in range(repeats)], label=name)
            continue
        wanted, start = numbers_of(latents), STARTS[name]
        records = go([task(r, f"gllim-{n}", start) for r in range(repeats) for n in wanted], label=name)
        fits = {n: records[i :: len(wanted)] for i, n in enumerate(wanted)}
        for n, some in fits.items():
            rows[("MLE" if n == 0 else f"hGLLiM-{n}") + SUFFIX[start]] = some
        rows["hGLLiM-BIC" + SUFFIX[start]], picks = bic_records(fits)
        counts = ", ".join(f"{n}: {c}" for n, c in sorted(picks.items()))
        notes.append(f"BIC{SUFFIX[start]} chose (L_w: times) {counts}")

    texts, table = [], []
    for label, some in rows.items():
        mean, spread, failed = mean_of(some)
        paper = PAPER.get(label.removesuffix(SUFFIX["kmeans"]))
        cells = [label]
        for i, name in enumerate(KNOWN):
            cells += [f"{mean[i]:.3f} ± {spread[i]:.3f}", "" if paper is None else f"{paper[i]:.2f}"]
            table.append([label.replace(", ", " "), name, f"{mean[i]:.4f}", f"{spread[i]:.4f}", failed])
        texts.append([*cells, str(failed or "")])
    lines = [
        f"specinvert {__version__}, {spectra} spectra, noise {noise:g}, K = {components}, {repeats} repeats",
        *([f"RVM kernel: {kernel[0]}, scale {kernel[1]:g}, 1000 candidates"] if "rvm" in methods else []),
        "",
        *markdown(["method", *(text for name in KNOWN for text in (name, "paper")), "failed"], texts),
        "",
        *verdict(rows),
        *notes,
    ]
    write_text(output / "table4.txt", lines)
    write_csv(output / "table4.csv", ["method", "parameter", "nrmse", "deviation_over_repeats", "failed"], table)
    click.echo("\n".join(lines))
    if scene:
        database = make_database(ices, dust, spectra, noise)
        hidden = ["water_ice", "co2_grain_size"]
        inverter = GLLiMInverter(components, 2, sigma="diag", tied_sigma=True, init="kmeans-joint", random_state=0)
        with quiet():
            inverter.fit(database.drop_vars(hidden))
        cube, truth = polar_scene(constants, (scene, scene), noise)
        maps = inverter.invert(cube)
        save_figure(plot_results(maps, truth[list(KNOWN)], list(KNOWN)), output / "table4.png", dpi=120)


if __name__ == "__main__":
    main()
