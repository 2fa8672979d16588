"""Arrays that stay in their file until a window of them is wanted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

Key = tuple[int | slice, ...]


class FileArray(BackendArray):
    """An array that a function reads from a file, window by window; it pickles where the function does.

    Parameters
    ----------
    shape : of the whole array.
    dtype : of the whole array.
    read : takes one slice of step 1 for each axis, and returns these values.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, read: Callable[[tuple[slice, ...]], np.ndarray]):
        self.shape = shape
        self.dtype = dtype
        self._read = read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        """Read what `key` selects."""
        support = indexing.IndexingSupport.BASIC
        values: np.ndarray = indexing.explicit_indexing_adapter(key, self.shape, support, self._window)
        return values

    def _window(self, key: Key) -> np.ndarray:
        windows, rests = zip(*(_window(part, size) for part, size in zip(key, self.shape, strict=True)), strict=True)
        return self._read(windows)[rests]


def _window(part: int | slice, size: int) -> tuple[slice, int | slice]:
    """The smallest window of step 1 that holds `part` of an axis, and `part` within that window."""
    if not isinstance(part, slice):
        index = int(part) % size
        return slice(index, index + 1), 0
    places = range(*part.indices(size))
    if not places:
        return slice(0, 0), slice(None)
    return slice(min(places), max(places) + 1), slice(None, None, places.step)
