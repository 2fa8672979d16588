"""Arrays that stay in their file until a window of them is wanted, and how they are cut into dask blocks.

xarray's documentation names `xarray.core.indexing`, and dask's `dask.array.core.normalize_chunks`, for this use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal
from zlib import error as ZlibError

import numpy as np
import xarray as xr
from dask.array.core import normalize_chunks
from dask.tokenize import tokenize
from xarray.backends import BackendArray
from xarray.core import indexing

Key = tuple[int | slice, ...]
Read = Callable[[tuple[slice, ...]], np.ndarray]


def file_variable(dims: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype, read: Read) -> xr.Variable:
    """A variable that `read` takes from a file, as :class:`FileArray` says, when its values are wanted."""
    return xr.Variable(dims, indexing.LazilyIndexedArray(FileArray(shape, dtype, read)))


class FileArray(BackendArray):
    """An array that a function reads from a file, window by window; it pickles where the function does.

    Parameters
    ----------
    shape : of the whole array.
    dtype : of the whole array.
    read : takes one slice of step 1 for each axis, and returns these values.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, read: Read):
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


Chunks = Literal["auto"] | Mapping[str, int | Literal["auto"]] | None


def chunk_cube(array: xr.DataArray, chunks: Chunks, whole: str, path: str) -> xr.DataArray:
    """Cut `array`, still unread, into dask blocks; with `chunks=None` read it into memory instead.

    Parameters
    ----------
    array : an array backed by the file; `encoding["preferred_chunks"]` says how the file is cut.
    chunks : "auto" keeps dimension `whole` in one block and sizes the others to dask's `array.chunk-size`,
        counted in the floats that integers are decoded to;
        a mapping gives block lengths by dimension (-1 or absent: whole).
    whole : the band dimension.
    path : the file, for names of tasks that change when the file does, and for messages.

    Raises
    ------
    ValueError : `chunks` is none of these, or names a dimension that `array` lacks. Blocks that cannot be read raise
        it, naming the file, when they are computed.
    """
    array = named_errors(array, path)
    if chunks is None:
        return array.load()
    stored = array.encoding.get("preferred_chunks", {})
    wanted = wanted_blocks(chunks, tuple(map(str, array.dims)), whole)
    blocks = normalize_chunks(
        tuple(-1 if part == "auto" and not array.size else part for part in wanted),
        shape=array.shape,
        dtype=np.result_type(array.dtype, np.float32),
        previous_chunks=tuple(stored.get(dim, size) for dim, size in array.sizes.items()),
    )
    token = tokenize(path, os.stat(path).st_mtime_ns, array.name, blocks)
    data = array.variable.chunk(dict(zip(array.dims, blocks, strict=True)), name=f"open_cube-{token}")
    return array.copy(data=data.data)


def wanted_blocks(chunks: Chunks, dims: tuple[str, ...], whole: str) -> tuple[Any, ...]:
    """Block lengths along each dimension as dask takes them, raised as :func:`chunk_cube` does."""
    if isinstance(chunks, Mapping):
        unknown = [name for name in chunks if name not in dims]
        if unknown:
            raise ValueError(f"chunks= names {unknown}, but the dimensions are {list(dims)}")
        return tuple(chunks.get(dim, -1) for dim in dims)
    if chunks != "auto":
        raise ValueError(f"chunks={chunks!r} is not understood; use 'auto', a dict such as {{'y': 100}}, or None")
    return tuple(-1 if dim == whole else "auto" for dim in dims)


def named_errors(array: xr.DataArray, path: str) -> xr.DataArray:
    """The array, whose reading tells the file that is damaged, whatever the library that reads it raises."""
    read = partial(_read, array.variable, path)
    return array.copy(data=indexing.LazilyIndexedArray(FileArray(array.shape, array.dtype, read)))


def _read(variable: xr.Variable, path: str, window: tuple[slice, ...]) -> np.ndarray:
    try:
        return np.asarray(variable[window].values)
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error
    except (OSError, RuntimeError, ValueError, LookupError, EOFError, ZlibError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        if reason.startswith(path):
            raise
        raise ValueError(
            f"{path}: its values cannot be read, damaged or truncated ({reason}); copy it again"
        ) from error
