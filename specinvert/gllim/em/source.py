"""Where training data live, seen by EM as "something that sums over chunks".

EM asks a :class:`ChunkSource` for sums only. In memory the sum runs over row blocks; elsewhere (dask) it may be a
map over chunks and a reduction. Terms are always added in the same order, so a sum has the same bits for any
number of threads or workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np

from ..core import Array, Workspace, available_cpus, one_blas_thread
from ..model import Moments, Scaling

BLOCK_NUMBERS = 2**19
"""Float64 numbers that a block's largest temporary may hold: 4 MB, near a core's cache."""
LEAST_ROWS = 1024
"""Rows below which a block is not split for the sake of threads."""
LANES = 16
"""Runs of consecutive blocks summed on their own; fixed, so that sums do not depend on the number of threads."""

Sum = TypeVar("Sum", bound="Addable")


class Addable(Protocol):
    """A sum over rows: has ``+``."""

    def __add__(self: Sum, other: Sum) -> Sum: ...


@dataclass(frozen=True)
class Chunk:
    """Rows of training data: spectra (n, D), parameters (n, L_t), weights (n,), responsibilities (n, K) or None."""

    spectra: Array
    parameters: Array
    weights: Array
    responsibilities: Array | None = None

    def __len__(self) -> int:
        return len(self.weights)

    def rows(self, select: Any) -> Chunk:
        """The chunk of some rows."""
        given = None if self.responsibilities is None else self.responsibilities[select]
        return Chunk(self.spectra[select], self.parameters[select], self.weights[select], given)

    def scaled(self, scaling: Scaling | None, workspace: Workspace | None = None) -> Chunk:
        """The chunk in float64 and in the units of ``scaling``, in arrays of ``workspace`` if given."""
        if scaling is None:
            spectra, parameters = self.spectra, self.parameters
        else:
            spectra, parameters = scaling.apply(self.spectra, self.parameters, workspace)
        spectra, parameters = np.asarray(spectra, dtype=np.float64), np.asarray(parameters, dtype=np.float64)
        return Chunk(spectra, parameters, self.weights, self.responsibilities)


Mask = Callable[[Chunk], np.ndarray[Any, np.dtype[np.bool_]]]
"""Whether each row of a chunk is wanted, (n,)."""


class ChunkSource(ABC):
    """Training data that can be summed over."""

    @abstractmethod
    def sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None = None, row_numbers: int = 1) -> Sum:
        """Sum of ``function`` over row blocks, scaled; ``row_numbers`` float64 numbers are needed for a row."""

    @abstractmethod
    def sample(self, n_rows: int) -> Chunk:
        """At most ``n_rows`` evenly spaced rows, in the user's units."""

    @abstractmethod
    def where(self, mask: Mask) -> ChunkSource:
        """The rows for which a function of a chunk is True."""

    @abstractmethod
    def map(self, function: Callable[[Chunk], Chunk]) -> ChunkSource:
        """The rows as a function of a chunk, row by row, makes them: now in memory, else each time they are read."""


def block_rows(row_numbers: int) -> int:
    """Rows of a block whose largest temporary holds ``row_numbers`` float64 numbers a row."""
    return int(np.clip(BLOCK_NUMBERS // max(row_numbers, 1), 64, 8192))


def blocks(chunk: Chunk, size: int) -> Iterator[Chunk]:
    """The chunk's blocks of rows; an empty chunk gives one empty block."""
    for start in range(0, max(len(chunk), 1), size):
        yield chunk.rows(slice(start, start + size))


def sum_blocks(function: Callable[[Chunk], Sum], chunk: Chunk, scaling: Scaling | None, row_numbers: int) -> Sum:
    """Sum of ``function`` over the row blocks of one chunk, in order, with BLAS in one thread."""
    with one_blas_thread():
        return reduce(add, (function(block.scaled(scaling)) for block in blocks(chunk, block_rows(row_numbers))))


class ArrayChunks(ChunkSource):
    """Training data in memory: one chunk, or a sequence of chunks in order."""

    def __init__(self, chunks: Chunk | list[Chunk]) -> None:
        self.chunks = [chunks] if isinstance(chunks, Chunk) else list(chunks)

    def sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None = None, row_numbers: int = 1) -> Sum:
        """Sum over row blocks, in fixed lanes that threads share."""
        lane_rows = -(-sum(map(len, self.chunks)) // LANES)
        size = min(block_rows(row_numbers), max(lane_rows, LEAST_ROWS))
        pieces = [block for chunk in self.chunks for block in blocks(chunk, size)]
        bounds = np.linspace(0, len(pieces), min(LANES, len(pieces)) + 1).astype(int)

        def lane(index: int) -> Sum:
            run = pieces[bounds[index] : bounds[index + 1]]
            return reduce(add, (function(block.scaled(scaling)) for block in run))

        with ThreadPoolExecutor(available_cpus()) as pool:
            return reduce(add, pool.map(lane, range(len(bounds) - 1)))

    def where(self, mask: Mask) -> ArrayChunks:
        """Chunks of the rows for which a function of a chunk is True."""
        return ArrayChunks([chunk.rows(mask(chunk)) for chunk in self.chunks])

    def map(self, function: Callable[[Chunk], Chunk]) -> ArrayChunks:
        """Chunks that a function makes of these."""
        return ArrayChunks([function(chunk) for chunk in self.chunks])

    def sample(self, n_rows: int) -> Chunk:
        """At most ``n_rows`` evenly spaced rows."""
        lengths = [len(chunk) for chunk in self.chunks]
        ends = np.cumsum([0, *lengths])
        wanted = evenly_spaced(int(ends[-1]), n_rows)
        parts = [
            chunk.rows(wanted[(wanted >= start) & (wanted < stop)] - start)
            for chunk, start, stop in zip(self.chunks, ends[:-1], ends[1:], strict=True)
        ]
        return join(parts)


def join(parts: list[Chunk]) -> Chunk:
    """Chunks one after the other."""
    given = [p.responsibilities for p in parts if p.responsibilities is not None]
    return Chunk(
        np.concatenate([p.spectra for p in parts]),
        np.concatenate([p.parameters for p in parts]),
        np.concatenate([p.weights for p in parts]),
        np.concatenate(given) if len(given) == len(parts) else None,
    )


def evenly_spaced(n: int, wanted: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """At most ``wanted`` evenly spaced indices into ``n`` rows."""
    if n <= wanted:
        return np.arange(n)
    return np.linspace(0, n - 1, wanted).astype(np.intp)


@dataclass(frozen=True)
class DataMoments:
    """What a first pass tells of the training data, in the user's units."""

    spectra: Moments
    parameters: Moments

    def arrays(self) -> list[Array]:
        """All arrays: what tells one training set from another."""
        return [values for part in (self.spectra, self.parameters) for values in part.arrays()]

    def __add__(self, other: DataMoments) -> DataMoments:
        return DataMoments(self.spectra + other.spectra, self.parameters + other.parameters)


def moments_of(chunk: Chunk) -> DataMoments:
    """The chunk's moments."""
    return DataMoments(Moments.of(chunk.spectra, chunk.weights), Moments.of(chunk.parameters, chunk.weights))


def check_weights(weights: Any, n_rows: int) -> Array:
    """Sample weights as float64 (n,): ones where None, an error where negative, NaN or of another length."""
    if weights is None:
        return np.ones(n_rows)
    values = as_numbers("sample weights", weights)
    if values.shape != (n_rows,):
        raise ValueError(f"sample weights have shape {values.shape}, the {n_rows} samples need ({n_rows},)")
    bad = np.count_nonzero(~(values >= 0) | ~np.isfinite(values))
    if bad:
        raise ValueError(f"{bad} sample weights are negative or not finite: weights are frequencies, zero or more")
    return values


def check_responsibilities(responsibilities: Any, n_rows: int) -> Array | None:
    """Responsibilities as float64 (n, K), rows summing to one."""
    if responsibilities is None:
        return None
    values = as_numbers("responsibilities", responsibilities)
    if values.ndim != 2 or len(values) != n_rows:
        raise ValueError(f"responsibilities have shape {values.shape}, the {n_rows} samples need ({n_rows}, K)")
    if not np.all(values >= 0) or not np.allclose(values.sum(axis=1), 1.0, rtol=0, atol=1e-6):
        raise ValueError("responsibilities must be zero or more and sum to one over the components of each sample")
    return values


def as_numbers(what: str, given: Any) -> Array:
    """An array of float64; ValueError where it is none."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be an array of numbers, not {brief(given)}") from None


def brief(given: Any) -> str:
    """What was given, on one line of an error message."""
    return " ".join(repr(given).split())[:60]
