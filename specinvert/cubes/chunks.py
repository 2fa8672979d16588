"""Training data that dask holds: a sum is one map over chunks and a tree reduction in a fixed order.

With an active dask.distributed client the chunks are loaded, and summed, where the cluster decides; what an iteration
needs of theta is sent once to each worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from typing import Any

import dask
import dask.array as da
import numpy as np

from ..gllim.chunks import Chunk, Sum, evenly_spaced, join, sum_blocks
from ..gllim.scaling import Scaling

PERSIST_BYTES = 1_000_000_000
"""Training spectra up to this size are kept in memory between iterations, where the user leaves the choice to us."""


def active_client() -> Any:
    """The active dask.distributed client, or None where there is none or ``dask.config`` names another scheduler."""
    if dask.config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
        return None
    try:
        from distributed import get_client
    except ImportError:
        return None
    try:
        client = get_client()
    except ValueError:
        return None
    return client if client.status == "running" else None


@dataclass(frozen=True)
class DaskChunks:
    """Delayed chunks in order, with their numbers of rows."""

    chunks: list[Any]
    lengths: list[int]

    def sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None = None, row_numbers: int = 1) -> Sum:
        """Sum over the chunks, pairwise so that few terms are alive at a time."""
        shipped = _ship((function, scaling))
        terms = [dask.delayed(_sum_chunk)(shipped, chunk, row_numbers) for chunk in self.chunks]
        while len(terms) > 1:
            pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
            terms = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        total: Sum = dask.compute(terms[0])[0]
        return total

    def sample(self, n_rows: int) -> Chunk:
        """At most ``n_rows`` evenly spaced rows, chunk by chunk."""
        ends = np.cumsum([0, *self.lengths])
        wanted = evenly_spaced(int(ends[-1]), n_rows)
        parts = [
            dask.delayed(Chunk.rows)(chunk, wanted[(wanted >= start) & (wanted < stop)] - start)
            for chunk, start, stop in zip(self.chunks, ends[:-1], ends[1:], strict=True)
        ]
        return join(list(dask.compute(*parts)))

    def apply(self, function: Callable[[Chunk], Chunk]) -> DaskChunks:
        """Chunks changed by a function, one to one; counts their rows."""
        changed = [dask.delayed(function)(chunk) for chunk in self.chunks]
        return DaskChunks(changed, list(dask.compute(*[dask.delayed(len)(chunk) for chunk in changed])))

    def persist(self) -> DaskChunks:
        """The same chunks, loaded and held by dask's workers."""
        return DaskChunks(list(dask.persist(*self.chunks)), self.lengths)


def delayed_chunks(rows: da.Array, parameters: np.ndarray, weights: np.ndarray, given: np.ndarray | None) -> DaskChunks:
    """Chunks of spectra ``rows`` (n, D), one block of bands, with what belongs to their samples."""
    lengths = list(rows.chunks[0])
    ends = np.cumsum([0, *lengths])
    parts = [(parameters[a:b], weights[a:b], None if given is None else given[a:b]) for a, b in pairwise(ends)]
    client = active_client()
    held = parts if client is None else client.scatter(parts, hash=False)
    pieces = rows.to_delayed()[:, 0]
    chunks = [dask.delayed(_chunk)(piece, part) for piece, part in zip(pieces, held, strict=True)]
    return DaskChunks(chunks, lengths)


def _chunk(spectra: np.ndarray, part: tuple[np.ndarray, np.ndarray, np.ndarray | None]) -> Chunk:
    return Chunk(spectra, *part)


def _ship(value: Any) -> Any:
    client = active_client()
    if client is None:
        return dask.delayed(value, traverse=False)
    return client.scatter(value, broadcast=True, hash=False)


def _sum_chunk(shipped: tuple[Callable[[Chunk], Any], Scaling | None], chunk: Chunk, row_numbers: int) -> Any:
    function, scaling = shipped
    return sum_blocks(function, chunk, scaling, row_numbers)
