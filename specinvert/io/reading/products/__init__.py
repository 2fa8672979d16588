"""Which reader opens a file: one module a kind of product, asked in order, the most particular first.

A reader's module offers two functions. `matches(path, head)` is cheap and never raises: it tells from the name,
the first bytes, the files beside, or the groups and attributes of an HDF5 file whether the path claims to be
such a product. `read(path, chunks, variable)` opens it by the convention of `open_cube`, whose `chunks` it takes,
and `variable` where there is something to choose; it raises ValueError where the product is damaged: no other reader is
tried then. `path` is an existing file or folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import xarray as xr

from ..convention import Chunks

Matches = Callable[[Path, bytes], bool]
Open = Callable[[Path, Chunks, str | None], xr.DataArray]

BUILT_IN = (
    *("sentinel2", "enmap", "spectral_library", "crism", "emit", "pace", "prisma"),
    *("matlab", "csv", "netcdf", "raster"),
)


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    Attributes
    ----------
    name : what `open_cube(reader=)` calls it.
    matches : tells from the path and the first bytes of the file (none for a folder) whether it is of this kind.
    open : opens the path, with `chunks` and `variable` as for `open_cube`.
    """

    name: str
    matches: Matches
    open: Open


def _call(module: str, function: str, *args: Any) -> Any:
    return getattr(import_module(f".{module}", __name__), function)(*args)


_readers = [Reader(name, partial(_call, name, "matches"), partial(_call, name, "read")) for name in BUILT_IN]


def reader_names() -> list[str]:
    """Names of all readers in the order in which they are asked."""
    return [reader.name for reader in _readers]


def register_reader(name: str, matches: Matches, open: Open, before: str | None = None) -> None:
    """Teach `open_cube` another kind of file.

    Parameters
    ----------
    name : for `open_cube(reader=)`; registering a name of your own again replaces the reader.
    matches : called with the path and the first bytes of the file (none for a folder); True where this reader
        is to open it. Should be cheap, and not raise on files of other kinds.
    open : called with the path, `chunks` and `variable` of `open_cube`; returns the cube as a DataArray, by
        the convention of `open_cube`. It raises ValueError where the file is damaged.
    before : the reader that is asked after this one; None to be asked first of all.

    Raises
    ------
    ValueError : `name` is empty or that of a reader of the package, or there is no reader `before`.
    TypeError : `matches` or `open` cannot be called.

    Examples
    --------
    >>> import numpy as np
    >>> def matches(path, head):
    ...     return head.startswith(b"MYSENSOR")
    >>> def read(path, chunks, variable):
    ...     return xr.DataArray(np.fromfile(path, "<f4", offset=8).reshape(-1, 2, 3), dims=("y", "x", "band"))
    >>> register_reader("mysensor", matches, read)
    >>> from specinvert import open_cube
    >>> Path("image.my").write_bytes(b"MYSENSOR" + np.ones(24, "<f4").tobytes())
    104
    >>> dict(open_cube("image.my").sizes)
    {'y': 4, 'x': 2, 'band': 3}
    """
    if not isinstance(name, str) or not name or name in BUILT_IN:
        raise ValueError(f"name={name!r} cannot be given to a reader; choose one beside {', '.join(BUILT_IN)}")
    for what, function in (("matches", matches), ("open", open)):
        if not callable(function):
            raise TypeError(f"{what}={function!r} must be a function")
    if before is not None:
        find_reader(before)
    others = [reader for reader in _readers if reader.name != name]
    places = [reader.name for reader in others]
    if before == name:
        raise ValueError(f"before={before!r} is the reader itself; name another, one of {', '.join(places)}")
    others.insert(0 if before is None else places.index(before), Reader(name, matches, open))
    _readers[:] = others


def find_reader(name: str) -> Reader:
    """The reader of this name; ValueError lists the names where there is none."""
    for reader in _readers:
        if reader.name == name:
            return reader
    raise ValueError(f"no reader is called {name!r}; there are {', '.join(reader_names())}")


def match_reader(path: Path, head: bytes) -> Reader | None:
    """The first reader that takes the file, or None."""
    return next((reader for reader in _readers if reader.matches(path, head)), None)
