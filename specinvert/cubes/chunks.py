"""Training data that dask holds: a sum is one map over chunks and a tree reduction in a fixed order.

On a dask.distributed cluster the workers load and sum. What they hold, they hold by tasks that the scheduler can run
again, so a worker that dies takes nothing with it but time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from operator import add
from typing import Any

import dask
import dask.array as da
import numpy as np

from ..gllim.em import Chunk, Mask, Sum, evenly_spaced, join, sum_blocks
from ..gllim.model import Scaling
from .labels import places_of_blocks

PERSIST_BYTES = 1_000_000_000
"""Training spectra up to this size are kept in memory between iterations, where the user leaves the choice to us."""
MERGED_BYTES = 8_000_000
"""Blocks smaller than this are merged with their neighbours into one chunk..."""
MERGED_CHUNKS = 256
"""...but not into fewer chunks than this, so that many workers have a share."""

Part = tuple[np.ndarray, np.ndarray, np.ndarray | None]


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


def large_graphs() -> AbstractContextManager[Any]:
    """Lets graphs of any size go to a cluster without a warning: those that hold a model, once, on purpose.

    Without a cluster nothing is set: a setting made before distributed is imported takes its defaults away at the end.
    """
    if active_client() is None:
        return nullcontext()
    setting: AbstractContextManager[Any] = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"})
    return setting


@dataclass(frozen=True)
class DaskChunks:
    """Delayed chunks, the numbers of their rows in the order of samples, and the client whose cluster works on them."""

    chunks: list[Any]
    numbers: list[np.ndarray]
    client: Any = None

    def sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None = None, row_numbers: int = 1) -> Sum:
        """Sum over the chunks, pairwise so that few terms are alive at a time."""
        total: Sum = self._compute(self.delayed_sum(function, scaling, row_numbers))[0]
        return total

    def delayed_sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None, row_numbers: int) -> Any:
        """The sum, yet to be computed; on a cluster, what is to be done is on its way to the workers."""
        (step,) = _hold([(function, scaling, row_numbers)], self.client)
        terms = [dask.delayed(_sum_chunk)(step, chunk) for chunk in self.chunks]
        while len(terms) > 1:
            pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
            terms = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return terms[0]

    def sample(self, n_rows: int) -> Chunk:
        """At most ``n_rows`` evenly spaced rows, in the order of samples whatever the chunks."""
        ordered = np.sort(np.concatenate(self.numbers))
        wanted = ordered[evenly_spaced(len(ordered), n_rows)]
        places = [np.flatnonzero(np.isin(numbers, wanted)) for numbers in self.numbers]
        parts = [dask.delayed(Chunk.rows)(chunk, place) for chunk, place in zip(self.chunks, places, strict=True)]
        chosen = np.concatenate([numbers[place] for numbers, place in zip(self.numbers, places, strict=True)])
        return join(list(self._compute(*parts))).rows(np.argsort(chosen))

    def where(self, mask: Mask) -> DaskChunks:
        """Chunks of the rows for which a function of a chunk is True."""
        masks = self._compute(*[dask.delayed(mask)(chunk) for chunk in self.chunks])
        held = _hold(list(masks), self.client)
        chunks = [dask.delayed(Chunk.rows)(chunk, rows) for chunk, rows in zip(self.chunks, held, strict=True)]
        numbers = [numbers[chosen] for numbers, chosen in zip(self.numbers, masks, strict=True)]
        return DaskChunks(chunks, numbers, self.client)

    def persist(self) -> DaskChunks:
        """The same chunks, loaded and held by dask's workers."""
        with _needing(self.client):
            held = dask.persist(*self.chunks) if self.client is None else self.client.persist(self.chunks)
        return DaskChunks(list(held), self.numbers, self.client)

    def _compute(self, *values: Any) -> tuple[Any, ...]:
        with _needing(self.client):
            results: tuple[Any, ...] = dask.compute(*values, scheduler=self.client)
        return results


def delayed_chunks(
    spectra: da.Array, parameters: np.ndarray, weights: np.ndarray, given: np.ndarray | None
) -> DaskChunks:
    """Chunks of ``spectra`` (*samples, D), one block of bands, with what belongs to their samples.

    ``parameters`` (n, L_t), ``weights`` (n,) and ``given`` responsibilities (n, K) are in the order of the flattened
    samples. Blocks are flattened one by one, never rechunked; empty ones are left out.
    """
    client = active_client()
    grid = np.arange(len(weights)).reshape(spectra.shape[:-1])
    every = [grid[place].ravel() for place in places_of_blocks(spectra.chunks[:-1])]
    places = [place for place in every if len(place)]
    blocks = [block for place, block in zip(every, spectra.to_delayed().ravel(), strict=True) if len(place)]
    row_bytes = spectra.shape[-1] * spectra.dtype.itemsize
    runs = _merged_runs([len(place) * row_bytes for place in places])
    numbers = [np.concatenate(places[run]) if run.stop - run.start > 1 else places[run.start] for run in runs]
    held = _hold([_part(rows, parameters, weights, given) for rows in numbers], client)
    chunks = [dask.delayed(_chunk)(blocks[run], part) for run, part in zip(runs, held, strict=True)]
    return DaskChunks(chunks, numbers, client)


def _merged_runs(sizes: list[int]) -> list[slice]:
    """Runs of consecutive blocks of small size; they follow from the sizes alone, so that sums keep their bits."""
    limit = min(MERGED_BYTES, sum(sizes) // MERGED_CHUNKS)
    starts, held = [0], 0
    for number, size in enumerate(sizes):
        if number > 0 and held + size > limit:
            starts.append(number)
            held = 0
        held += size
    return [slice(start, stop) for start, stop in pairwise([*starts, len(sizes)])]


def _part(numbers: np.ndarray, parameters: np.ndarray, weights: np.ndarray, given: np.ndarray | None) -> Part:
    consecutive = bool((np.diff(numbers) == 1).all())
    rows = slice(numbers[0], numbers[-1] + 1) if consecutive else numbers
    return parameters[rows], weights[rows], None if given is None else given[rows]


def _chunk(blocks: list[np.ndarray], part: Part) -> Chunk:
    rows = [block.reshape(-1, block.shape[-1]) for block in blocks]
    return Chunk(rows[0] if len(rows) == 1 else np.concatenate(rows), *part)


def _hold(values: list[Any], client: Any) -> list[Any]:
    """Values that tasks refer to, sent to the cluster once: in a task of their own, which outlives a worker."""
    held = [dask.delayed(value, traverse=False) for value in values]
    if client is None:
        return held
    with _needing(client), large_graphs():
        return list(client.persist(held))


@contextmanager
def _needing(client: Any) -> Iterator[None]:
    """One line for whatever distributed raises where the client's cluster is gone."""
    try:
        yield
    except Exception as error:
        if isinstance(error, CancelledError) or (client is not None and client.status != "running"):
            raise RuntimeError(
                f"the cluster was closed or cancelled the training ({error}): run it again when the cluster is back; "
                "with checkpoint=... it goes on from the last state kept"
            ) from error
        raise


def _sum_chunk(step: tuple[Callable[[Chunk], Any], Scaling | None, int], chunk: Chunk) -> Any:
    function, scaling, row_numbers = step
    return sum_blocks(function, chunk, scaling, row_numbers)
