"""Where commands compute, and what they tell meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .base import Session

if TYPE_CHECKING:
    from ..io.blocks import BlockProgress

BAR = 20


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """A dask cluster to work on, where an address is given."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs dask's distributed: pip install 'specinvert[cluster]'") from None
    with Client(address, timeout="10s"):
        yield


@contextmanager
def em_progress(session: Session, max_iter: int) -> Iterator[Callable[[str, int, float], None]]:
    """Tells how far EM is; stops threads that still fit when the run is interrupted."""
    started: dict[str, tuple[float, int]] = {}

    def progress(label: str, iteration: int, log_likelihood: float) -> None:
        if session.stopped.is_set():
            raise KeyboardInterrupt
        begun, first = started.setdefault(label, (time.monotonic(), iteration))
        done = iteration + 1
        left = ""
        if iteration > first:
            seconds = (time.monotonic() - begun) / (iteration - first) * (max_iter - done)
            left = f", at most {duration(seconds)} left"
        text = f"EM, {label}: iteration {done} of {max_iter}, log-likelihood {log_likelihood:.6g}{left}"
        session.console.progress(text, last=done == max_iter)

    yield progress
    session.console.clear()


@contextmanager
def block_progress(session: Session) -> Iterator[Callable[[BlockProgress], None]]:
    """Tells how many pixels are done, their rate and the time left."""

    def progress(state: BlockProgress) -> None:
        share = state.pixels / max(state.n_pixels, 1)
        bar = "#" * round(BAR * share)
        text = f"[{bar:-<{BAR}}] {share:4.0%}, block {state.blocks} of {state.n_blocks}"
        if state.pixels_per_second > 0:
            text += f", {state.pixels_per_second:,.0f} pixels/s, {duration(state.seconds_left)} left"
        session.console.progress(text, last=state.blocks == state.n_blocks)

    yield progress
    session.console.clear()


def duration(seconds: float) -> str:
    """Seconds as ``42 s``, ``3:05 min`` or ``2:10:00 h``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def kept_by(checkpoint: Path | None, result: str, run: str, content: str) -> str:
    """What a stopped run leaves behind: no ``result``, and in its checkpoint, where there is one, ``content``."""
    if checkpoint is None:
        return f"no {result} was written; with --checkpoint FILE a stopped {run} can go on later"
    if not checkpoint.exists():
        return f"no {result} was written, and {checkpoint} keeps nothing yet; run the same command again"
    return f"no {result} was written; {checkpoint} keeps {content}, run the same command again to go on"


def require_spectra(path: Path) -> Path:
    """The path, of what is to hold spectra; ValueError where it is a model, as arguments in the wrong order make it."""
    from ..io.model import is_model

    if path.is_file() and is_model(path):
        raise ValueError(f"{path}: a trained model, where spectra are wanted; check the order of the arguments")
    return path


def check_targets(targets: Iterable[Path | None]) -> None:
    """Raise where one of the files cannot be written."""
    from ..io.atomic import check_target

    for target in targets:
        if target is not None:
            check_target(target)


def check_model_target(target: Path) -> None:
    """Raise where a model cannot be written there, or would have the name of another kind of file."""
    from ..io.atomic import check_target

    if target.suffix.lower() not in (".nc", ".nc4"):
        raise ValueError(f"{target}: a model is a netCDF file; give it a name that ends in .nc")
    check_target(target)


def write_table(table: Any, output: Path | None) -> None:
    """Write a table as CSV, where a file is given."""
    from ..io.atomic import atomic_path

    if output is not None:
        with atomic_path(output) as temporary:
            table.to_dataframe().to_csv(temporary)


def tell_written(targets: Iterable[Path | None]) -> None:
    """Say which files were written."""
    for target in targets:
        if target is not None:
            click.echo(f"wrote {target}")
