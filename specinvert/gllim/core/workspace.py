"""Arrays that are used again from block to block.

New memory costs a page fault for each 4 kB where the allocator hands freed memory straight back to the system, as it
does on dask.distributed's workers: as much time as the products themselves.
"""

from __future__ import annotations

import threading
from math import prod

import numpy as np

from .arrays import Array

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
