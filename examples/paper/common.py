"""What the scripts of the paper's experiments share: runs that can be stopped and resumed, errors, tables.

A run is many independent tasks, one fit each. Every result is appended to a file of JSON lines as soon as it is there;
a second run reads them and does what is left, on any number of processes, to the same numbers.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from specinvert._version import __version__
from specinvert.io.atomic import atomic_path

Record = dict[str, Any]


class Task(Protocol):
    """One fit."""

    @property
    def key(self) -> str:
        """Tells it from all others of its run."""


def run_tasks(
    work: Callable[[Any], Record],
    tasks: Sequence[Task],
    log: Path,
    about: Mapping[str, Any],
    workers: int = 1,
    label: str = "",
) -> list[Record]:
    """Results of tasks, in their order, computed where the log does not have them yet.

    Parameters
    ----------
    work : from a task to its result, which JSON can hold; importable by name where there are several workers.
    log : file of JSON lines; the first says what the run is, the others are results.
    about : settings that hold for the whole run.
    workers : processes, of one BLAS thread each.

    Raises
    ------
    ValueError : the log is of another run or another version.
    """
    heading = {"version": __version__, **about}
    known = _read_log(log, heading)
    left = list({task.key: task for task in tasks if task.key not in known}.values())
    if left:
        log.parent.mkdir(parents=True, exist_ok=True)
        _write_log(log, heading, known)
        bar = click.progressbar(_results(work, left, workers), len(left), label=label)
        with log.open("a", encoding="utf-8") as stream, bar as results:
            for key, result in results:
                known[key] = result
                stream.write(_line({"key": key, **result}))
                stream.flush()
        _write_log(log, heading, known)
    return [known[task.key] for task in tasks]


def _results(work: Callable[[Any], Record], tasks: Sequence[Task], workers: int) -> Iterator[tuple[str, Record]]:
    if workers == 1:
        with threadpool_limits(1):
            for task in tasks:
                yield task.key, _quietly(work, task)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=threadpool_limits, initargs=(1,))
    try:
        futures = {pool.submit(_quietly, work, task): task.key for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _quietly(work: Callable[[Any], Record], task: Task) -> Record:
    with quiet():
        return work(task)


@contextmanager
def quiet() -> Iterator[None]:
    """Say nothing of fits that are stopped before they converge: the iterations are as many as the defaults allow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _read_log(log: Path, heading: Mapping[str, Any]) -> dict[str, Record]:
    """Results by key; a last line that a stop has cut off is left out."""
    if not log.exists():
        return {}
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    if records and records[0] != json.loads(json.dumps(heading)):
        raise ValueError(f"{log} is of another run, {records[0]}, not {dict(heading)}: write to another folder")
    return {record.pop("key"): record for record in records[1:]}


def _write_log(log: Path, heading: Mapping[str, Any], known: Mapping[str, Record]) -> None:
    with atomic_path(log) as temporary:
        lines = [_line(heading), *(_line({"key": key, **known[key]}) for key in sorted(known))]
        temporary.write_text("".join(lines), encoding="utf-8")


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def error_record(error: np.ndarray, extreme: float | np.ndarray) -> Record:
    """Sums over samples of absolute errors (n,) or (n, p), and how many are above ``extreme``, a number or (p,)."""
    table = np.abs(error).reshape(len(error), -1)
    return {
        "n": len(table),
        "sum": _rounded(table.sum(axis=0)),
        "squares": _rounded((table**2).sum(axis=0)),
        "extreme": (table > extreme).sum(axis=0).tolist(),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


@contextmanager
def failures(record: Record) -> Iterator[None]:
    """Put what a fit raises of its data or settings into the record."""
    try:
        yield
    except (ValueError, np.linalg.LinAlgError) as problem:
        record["failed"] = " ".join(str(problem).split())


@dataclass(frozen=True)
class Scores:
    """Of absolute errors: average, standard deviation and share of extreme ones in percent, each (p,); failed fits."""

    average: np.ndarray
    deviation: np.ndarray
    extreme: np.ndarray
    failed: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> Scores:
        """Scores of all samples of several records."""
        whole = [record for record in records if "failed" not in record]
        if not whole:
            nothing = np.full(1, np.nan)
            return cls(nothing, nothing, nothing, len(records))
        n = sum(record["n"] for record in whole)
        total, squares, extreme = (
            np.sum([record[name] for record in whole], axis=0) / n for name in ("sum", "squares", "extreme")
        )
        return cls(total, np.sqrt(np.maximum(squares - total**2, 0.0)), 100.0 * extreme, len(records) - len(whole))

    def cells(self, parameter: int = 0) -> list[str]:
        """Average, deviation and share of extreme errors as texts."""
        values = (self.average[parameter], self.deviation[parameter], self.extreme[parameter])
        return [f"{value:{form}}" for value, form in zip(values, (".3f", ".3f", ".2f"), strict=True)]


def numbers_of(text: str) -> list[int]:
    """The numbers of a text such as "0-4,10"."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return sorted({number for part in ends for number in range(part[0], part[-1] + 1)})


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table."""
    return ["| " + " | ".join(cells) + " |" for cells in (heading, ["---"] * len(heading), *rows)]


def write_text(path: Path, lines: Sequence[str]) -> None:
    """Write lines under a temporary name, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_csv(path: Path, heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV; cells hold no commas."""
    write_text(path, [",".join(map(str, cells)) for cells in (heading, *rows)])
