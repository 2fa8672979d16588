"""The array type of the core, arrays that are used again from block to block, and numbers that stand for values.

New memory costs a page fault for each 4 kB where the allocator hands freed memory straight back to the system, as it
does on dask.distributed's workers: as much time as the products themselves.
"""

from __future__ import annotations

import hashlib
import threading
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
"""Floating-point arrays; computations are in float64, input may be float32."""
Hashes = NDArray[np.uint64]

LOG_2PI = float(np.log(2.0 * np.pi))

_local = threading.local()


class Workspace:
    """Float64 arrays by name, for one thread; an array holds until the next one of its name is asked for."""

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    @classmethod
    def of_this_thread(cls) -> Workspace:
        """One that lasts as long as the thread, for work that hands out none of its arrays."""
        if not hasattr(_local, "workspace"):
            _local.workspace = cls()
        workspace: Workspace = _local.workspace
        return workspace

    def array(self, name: str, *shape: int) -> Array:
        """An array of any content."""
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size)
        return buffer[:size].reshape(shape)


def row_hash(values: Array) -> Hashes:
    """(n,) of ``values`` (n, m) alone, whatever their order and chunks; equal rows have equal numbers."""
    state = np.zeros(len(values), dtype=np.uint64)
    for column in np.ascontiguousarray(values, dtype=np.float64).view(np.uint64).T:
        state = _mixed(state ^ column)
    return state


def _mixed(state: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def hold_out(share: float, *columns: Array) -> NDArray[np.bool_]:
    """Which rows (n,) are of a random ``share``, by a hash of their ``columns`` (n, m): copies of a row go together."""
    values = np.concatenate([np.asarray(part, dtype=np.float64) for part in columns], axis=1)
    return np.asarray(row_hash(values) < np.uint64(share * 2.0**64))


def fingerprint(*parts: str | bytes | Array) -> str:
    """SHA-256 of texts, bytes and the values of arrays, as hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes())
    return digest.hexdigest()
