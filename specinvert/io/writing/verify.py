"""Files of maps read back before they are published: what was written is there, to the last bit.

Some libraries drop errors that a system reports when a file is closed, as of a full disk or a quota, and say nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import netCDF4
import numpy as np
import rasterio
import xarray as xr
import zarr
from rasterio.windows import Window

from .. import NETCDF_LOCK, not_whole, write_errors
from .blocks import Write

Place = tuple[slice, ...]
_Read = Callable[[str, Place], np.ndarray]


class WrittenValues:
    """Checksums of the values written to a file, by variable and place, to compare with what is read back.

    ``dtypes`` are those that the file has of variables, where they are not those of the maps.
    """

    def __init__(self, maps: xr.Dataset, dtypes: dict[str, np.dtype]) -> None:
        self._dtypes = dtypes
        self._sums: dict[tuple[str, tuple[tuple[int, int], ...]], int] = {}
        for name, variable in maps.variables.items():
            if variable.chunks is None and variable.dtype.kind in "iuf" and (name in maps.data_vars or not dtypes):
                self._note(str(name), tuple(slice(0, size) for size in variable.shape), variable.values)

    def noting(self, write: Write, path: Path) -> Write:
        """The function, which notes what it writes, and whose errors name the file."""

        def noted(name: str, place: Place, values: np.ndarray) -> None:
            with write_errors(path):
                write(name, place, values)
            self._note(name, place, values)

        return noted

    def _note(self, name: str, place: Place, values: np.ndarray) -> None:
        stored = values.astype(self._dtypes.get(name, values.dtype), copy=False)
        self._sums[name, tuple((part.start or 0, part.stop) for part in place)] = _checksum(stored)

    def check(self, path: Path, files: list[Path]) -> None:
        """Raise OSError where the file at ``path``, of these files or folders, does not hold what was written to it."""
        for file in files:
            if file.is_file():
                _to_disk(file)
        with _reading(path, files) as read:
            for (name, place), wanted in self._sums.items():
                try:
                    found = _checksum(read(name, tuple(slice(*ends) for ends in place)))
                except (OSError, RuntimeError, KeyError, IndexError, ValueError) as error:
                    raise not_whole(path, str(error)) from error
                if found != wanted:
                    raise not_whole(path, f"{name} differs when it is read back")


def _checksum(values: np.ndarray) -> int:
    """Of values, in which every NaN is the same and zeros have no sign."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    return crc32(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")).tobytes())


def _to_disk(file: Path) -> None:
    """Wait until the file is on its disk: quotas of some file systems are told only then."""
    with write_errors(file), file.open("rb+") as opened:
        os.fsync(opened.fileno())


@contextmanager
def _reading(path: Path, files: list[Path]) -> Iterator[_Read]:
    """How to read from a file of maps, whose parts are these files; OSError where it cannot be opened."""
    with ExitStack() as stack:
        try:
            read = _opened(stack, path, files)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise not_whole(path, str(error)) from error
        yield read


def _opened(stack: ExitStack, path: Path, files: list[Path]) -> _Read:
    suffix = path.suffix.lower()
    if suffix == ".zarr":
        group: Any = zarr.open_group(path, mode="r", use_consolidated=False)
        return lambda name, place: np.asarray(group[name][place])
    if suffix in (".nc", ".nc4"):
        stack.enter_context(NETCDF_LOCK)
        file = stack.enter_context(netCDF4.Dataset(path))
        file.set_auto_maskandscale(False)
        return lambda name, place: np.asarray(file.variables[name][place])
    bands: dict[str, tuple[Any, int]] = {}
    for part in files:
        raster = stack.enter_context(rasterio.open(part))
        bands |= {str(name): (raster, index) for index, name in enumerate(raster.descriptions, start=1)}

    def read(name: str, place: Place) -> np.ndarray:
        raster, index = bands[name]
        return np.asarray(raster.read(index, window=Window.from_slices(*place)))

    return read
