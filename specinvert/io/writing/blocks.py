"""Lazy maps, computed block by block into a side folder that survives a stop.

A block is computed once for all variables and kept in one file; a file under its final name is whole. Stopping at
any moment loses the blocks under way and nothing else, and a later run with ``resume`` goes on from there. As soon as
a block is kept it goes to the file of the maps, so that others are computed meanwhile and memory holds a few blocks.
Blocks are written by this process alone, one at a time, whoever computes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
import xarray as xr

from ...cubes import CUBE_FILE, active_client, large_graphs
from .. import atomic_path, file_identity

_PLAN = "plan.json"


@dataclass(frozen=True)
class BlockProgress:
    """How far a run is: blocks and pixels done and in all, an earlier run's included, and the rate of this one."""

    blocks: int
    n_blocks: int
    pixels: int
    n_pixels: int
    pixels_per_second: float

    @property
    def seconds_left(self) -> float:
        """Estimate from the rate so far."""
        return (self.n_pixels - self.pixels) / self.pixels_per_second if self.pixels_per_second > 0 else np.inf


ProgressCallback = Callable[[BlockProgress], None]
Write = Callable[[str, tuple[slice, ...], np.ndarray], None]
"""Puts values of a variable at their place in it; called by one thread at a time, not always the same."""


def side_folder(path: str | os.PathLike[str]) -> Path:
    """Where the finished blocks of ``path`` are kept while it is being made."""
    final = Path(os.path.realpath(path))
    return final.with_name(f".{final.name}.blocks")


def block_layout(maps: xr.Dataset) -> dict[Hashable, tuple[int, ...]] | None:
    """Block sizes along each pixel dimension, or None where the lazy variables do not share one grid of blocks."""
    lazy = [array.variable for array in maps.data_vars.values() if array.chunks is not None]
    if not lazy:
        return None
    dims = [dim for dim in lazy[0].dims if all(dim in array.dims for array in lazy)]
    layout = {dim: lazy[0].chunksizes[dim] for dim in dims}
    for array in lazy:
        sizes = array.chunksizes
        if any(sizes[dim] != layout[dim] for dim in dims):
            return None
        if any(len(sizes[dim]) > 1 for dim in array.dims if dim not in layout):
            return None
    return layout


def block_place(chunks: tuple[tuple[int, ...], ...], index: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a block lies in a lazy array of these chunks."""
    starts = (sum(sizes[:number]) for sizes, number in zip(chunks, index, strict=True))
    return tuple(slice(start, start + sizes[i]) for start, sizes, i in zip(starts, chunks, index, strict=True))


@contextmanager
def kept_blocks(
    maps: xr.Dataset, folder: Path, resume: bool = False, progress: ProgressCallback | None = None
) -> Iterator[_Run]:
    """A run over the blocks of the maps, which are kept in ``folder`` until the end of the ``with``.

    The folder is taken up where ``resume`` (ValueError where it has blocks of other maps), else removed and made anew.
    An exception leaves it with the blocks that are finished, or none where none is. ``progress`` is called after each
    block, in this process.
    """
    layout = block_layout(maps)
    if layout is None:
        raise ValueError("the variables do not share one grid of blocks: give them the same chunks")
    run = _Run(maps, folder, layout, progress)
    try:
        run.prepare(resume)
        yield run
    except BaseException:
        if folder.exists() and not any(folder.glob("block-*")):
            with suppress(OSError):  # threads of Zarr write on for a moment
                shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def _gather(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return parts


@dataclass
class _Run:
    """The blocks of lazy maps: those kept in ``folder``, and those yet to be computed."""

    maps: xr.Dataset
    folder: Path
    layout: dict[Hashable, tuple[int, ...]]
    progress: ProgressCallback | None
    lock: Any = field(default_factory=threading.Lock)
    started: float = field(default_factory=time.monotonic)
    done_here: int = 0
    done: int = 0
    blocks_done: int = 0
    stopped: bool = False
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of this run, in its plan: what is published is its own."""

    def __post_init__(self) -> None:
        self.lazy = {str(name): a for name, a in self.maps.data_vars.items() if a.chunks is not None}
        self.delayed = {name: a.data.to_delayed(optimize_graph=False) for name, a in self.lazy.items()}
        self.n_pixels = int(np.prod([sum(sizes) for sizes in self.layout.values()], dtype=np.int64))

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(len(sizes) for sizes in self.layout.values())

    def compute(self, write: Write) -> None:
        """Compute the blocks that are not kept yet, keep them, and write each one, kept before or now, once."""
        every = list(np.ndindex(*self.grid))
        todo = [index for index in every if not self.file(index).exists()]
        for index in sorted(set(every) - set(todo)):
            self.write(write, index, self.load(index))
        self.done = self.n_pixels - sum(map(self.pixels, todo))
        self.blocks_done = len(every) - len(todo)
        self.report()
        tasks = [dask.delayed(_gather)(self.parts(index)) for index in todo]
        client = active_client()
        try:
            if client is None:
                keep = [dask.delayed(self.keep)(write, *one) for one in zip(todo, tasks, strict=True)]
                dask.compute(*keep)
            else:
                _keep_from_cluster(client, self, write, dict(zip(todo, tasks, strict=True)))
        except BaseException:
            self.stop()
            raise

    def plan(self) -> dict[str, Any]:
        content = {
            "variables": {name: [str(a.dtype), a.data.name] for name, a in self.lazy.items()},
            "blocks": {str(dim): list(sizes) for dim, sizes in self.layout.items()},
            "source": str(self.maps.attrs.get("source", "")),
        }
        cube = self.maps.encoding.get(CUBE_FILE)
        if cube is not None and os.path.exists(cube):  # whoever opened it may not know that it was written again
            content["cube"] = file_identity(cube)
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return {"digest": digest, "source": content["source"], "run": self.mark}

    def prepare(self, resume: bool) -> None:
        plan = self.folder / _PLAN
        if self.folder.exists() and not (resume and plan.exists()):  # blocks without a plan are nobody's
            shutil.rmtree(self.folder)
        if plan.exists():
            kept = json.loads(plan.read_text())
            if kept.get("digest") != self.plan()["digest"]:
                raise ValueError(
                    f"{self.folder}: holds blocks of another run ({kept.get('source', 'unknown')}), of another cube, "
                    "model, outputs or chunks: run as before to resume, or without resume to start anew"
                )
        self.folder.mkdir(exist_ok=True)
        with atomic_path(plan) as temporary:
            temporary.write_text(json.dumps(self.plan()))

    def require_own(self) -> None:
        """Raise where another run has taken the folder (BlockingIOError), or the cube has changed meanwhile."""
        plan = self.folder / _PLAN
        kept = json.loads(plan.read_text()) if plan.exists() else {}
        if kept.get("run") != self.mark:
            raise BlockingIOError(f"{self.folder}: another run has taken this folder; start again, or use another name")
        if kept["digest"] != self.plan()["digest"]:
            raise ValueError("the file of the cube was written again while maps were made of it; start anew")

    def file(self, index: tuple[int, ...]) -> Path:
        return self.folder / ("block-" + "-".join(map(str, index)) + ".npy")

    def parts(self, index: tuple[int, ...]) -> dict[str, Any]:
        return {name: self.delayed[name][self.position(array, index)] for name, array in self.lazy.items()}

    def position(self, array: xr.DataArray, index: tuple[int, ...]) -> tuple[int, ...]:
        place = dict(zip(self.layout, index, strict=True))
        return tuple(place.get(dim, 0) for dim in array.dims)

    def pixels(self, index: tuple[int, ...]) -> int:
        return int(np.prod([sizes[i] for sizes, i in zip(self.layout.values(), index, strict=True)], dtype=np.int64))

    def report(self) -> None:
        if self.progress is not None:
            rate = self.done_here / max(time.monotonic() - self.started, 1e-9)
            n_blocks, done = int(np.prod(self.grid)), self.done + self.done_here
            self.progress(BlockProgress(self.blocks_done, n_blocks, done, self.n_pixels, rate))

    def stop(self) -> None:
        """Write nothing more: threads that are still at a block do not hear of an error elsewhere."""
        self.stopped = True
        with self.lock:  # whoever was writing has ended
            return

    def keep(self, write: Write, index: tuple[int, ...], parts: dict[str, np.ndarray]) -> None:
        with self.lock:
            if self.stopped:
                return
            with atomic_path(self.file(index)) as temporary, temporary.open("wb") as file:
                for name in self.lazy:
                    np.save(file, parts[name], allow_pickle=False)
            self.write(write, index, parts)
            self.done_here += self.pixels(index)
            self.blocks_done += 1
            self.report()

    def load(self, index: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The values of a block that is kept, by variable."""
        with self.file(index).open("rb") as file:
            return {name: np.load(file, allow_pickle=False) for name in self.lazy}

    def write(self, write: Write, index: tuple[int, ...], parts: dict[str, np.ndarray]) -> None:
        for name, array in self.lazy.items():
            write(name, block_place(array.chunks or (), self.position(array, index)), parts[name])


def _keep_from_cluster(client: Any, run: _Run, write: Write, tasks: dict[tuple[int, ...], Any]) -> None:
    """Compute on the cluster, write here as blocks arrive."""
    from distributed import as_completed

    indices = list(tasks)
    with large_graphs():
        futures = client.compute([tasks[index] for index in indices])
    place = dict(zip((future.key for future in futures), indices, strict=True))
    arriving: Iterator[Any] = as_completed(futures)
    del futures
    try:
        for future in arriving:
            run.keep(write, place[future.key], future.result())
            future.release()
    except CancelledError as error:
        raise RuntimeError("the cluster cancelled the run; resume it when the cluster is back") from error
