"""Measure specinvert: one command for the JSON file, the tables, the figure and docs/performance.md.

    python benchmarks/run.py                      # all of it, at full size
    python benchmarks/run.py --quick --only core  # to see that it works
    python benchmarks/run.py --docs               # and rewrite docs/performance.md with its figure

What is compared takes turns in one process, so that ratios hold where times drift. Full size needs about 12 GB of
memory and 8 GB of disk, in the folder that TMPDIR names, for about half an hour of two cores.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from core import em, inversion
from data import Files, temporary_files
from figure import draw
from peers import peers
from report import markdown, rewrite
from scale import files, training
from sizes import FULL, QUICK, SEED, Sizes
from startup import startup
from sweeps import em_sweeps, inversion_sweeps
from timing import machine, say
from workers import graphs, workers

DOCS = Path(__file__).parents[1] / "docs"
BENCHMARKS: dict[str, Callable[[Sizes, Files], list[dict[str, Any]]]] = {
    "core": lambda sizes, _: [*em(sizes), *inversion(sizes)],
    "files": files,
    "startup": lambda sizes, _: startup(sizes),
    "graphs": graphs,
    "workers": workers,
    "sweeps": lambda sizes, _: [*em_sweeps(sizes), *inversion_sweeps(sizes)],
    "peers": peers,
    "training": training,
}


def measure(names: tuple[str, ...], quick: bool, output: Path) -> dict[str, Any]:
    """Run the benchmarks named, in order; each is kept in the file as soon as it is done."""
    found: dict[str, Any] = {"machine": machine(), "seed": SEED, "quick": quick, "results": {}}
    with temporary_files() as place:
        for name in names:
            start = perf_counter()
            say(f"{name} ...")
            found["results"][name] = BENCHMARKS[name](QUICK if quick else FULL, place)
            output.write_text(json.dumps(found, indent=1), encoding="utf-8")
            say(f"{name}: {perf_counter() - start:.0f} s")
    return found


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("benchmarks.json"), show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Leave out the others.")
@click.option("--quick", is_flag=True, help="Small sizes, to see that it all works.")
@click.option("--docs", is_flag=True, help="Rewrite docs/performance.md and its figure.")
@click.option("--from", "source", type=click.Path(path_type=Path), help="Measure nothing, show an earlier run's JSON.")
def main(output: Path, only: tuple[str, ...], quick: bool, docs: bool, source: Path | None) -> None:
    """Run the benchmarks; write JSON, a figure of the same name, and print the tables."""
    if source is None:
        found = measure(tuple(name for name in BENCHMARKS if not only or name in only), quick, output)
    else:
        found = json.loads(source.read_text(encoding="utf-8"))
    text = markdown(found)
    click.echo(text)
    draw(found, DOCS / "images" / "performance.png" if docs else output.with_suffix(".png"))
    if docs:
        rewrite(DOCS / "performance.md", text)


if __name__ == "__main__":
    main()
