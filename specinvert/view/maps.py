"""Maps for the viewer: what a file holds, found without reading it, and views of it of bounded size."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import xarray as xr

from specinvert.cubes.labels import listed
from specinvert.diagnostics.entries import entry_text, pixel_dims
from specinvert.diagnostics.flags import FLAG_VARIABLE, Flag, read_flags
from specinvert.diagnostics.layout import units_of
from specinvert.diagnostics.maps_file import is_tiff, open_geotiff_maps
from specinvert.io.netcdf import open_group
from specinvert.io.spectra_table import SUFFIXES
from specinvert.io.tables import open_dataset

from .axes import PixelAxis, Window, map_axes

TILE_BYTES = 16_000_000
"""Read at once, where the chunks of the file allow it."""
MOST_SLICES = 40
"""Entries of dimensions beside the pixels that the list of maps offers one by one."""
_GEOLOCATION = ("lat", "lon")


@dataclass(frozen=True)
class Layer:
    """A map to show: a variable at an entry of its dimensions beside the pixels, which ``entry`` tells in words."""

    name: str
    selection: Mapping[Hashable, int] = field(default_factory=dict)
    entry: str = ""
    units: str = ""
    long_name: str = ""

    @property
    def what(self) -> str:
        """The name to read."""
        return self.name.replace("_", " ")

    @property
    def title(self) -> str:
        """Name and entry."""
        return f"{self.what}, {self.entry}" if self.entry else self.what

    def at_entry_of(self, other: Layer) -> bool:
        """Whether it is of the entry that another map is of; where that has none, of the first."""
        return all(other.selection.get(dim, 0) == index for dim, index in self.selection.items())


class MapSource:
    """Maps of a Dataset over one or two pixel dimensions.

    Parameters
    ----------
    dataset : in memory or lazy.
    name : to show.

    Raises
    ------
    ValueError : there is no variable of numbers over any dimension, or a dimension is empty.
    """

    def __init__(self, dataset: xr.Dataset, name: str) -> None:
        self.dataset, self.name = dataset, name
        numbers = {key: array for key, array in dataset.data_vars.items() if array.ndim and array.dtype.kind in "iuf"}
        if not numbers:
            raise ValueError(f"{name}: no maps in it, its variables are {listed(dataset.data_vars)}")
        self.dims = pixel_dims(numbers)
        if not all(dataset.sizes[dim] for dim in self.dims):
            raise ValueError(f"{name}: the maps are empty, their sizes are {dict(dataset.sizes)}")
        self.axes: tuple[PixelAxis, ...] = map_axes(dataset, self.dims)
        self.flag_variable = numbers.pop(FLAG_VARIABLE, None)
        self.flags: list[Flag] = [] if self.flag_variable is None else read_flags(self.flag_variable)
        self.omitted: list[str] = []
        listing = sorted(numbers, key=lambda key: any(str(key).startswith(f"{other}_") for other in numbers))
        self.layers = [layer for key in listing for layer in self._layers(str(key), numbers[key])]
        if not self.layers and self.omitted:
            raise ValueError(
                f"{name}: more than {MOST_SLICES} entries to list, {'; '.join(self.omitted)}: choose one, with "
                "--select or .isel"
            )
        if not self.layers:
            raise ValueError(f"{name}: no maps over {self.dims} in it, its variables are {listed(dataset.data_vars)}")
        self.geolocation = [
            key for key in _GEOLOCATION if key in dataset.variables and set(dataset[key].dims) == set(self.dims)
        ]
        self.geolocation = self.geolocation if len(self.dims) == 2 else []

    def _layers(self, name: str, array: xr.DataArray) -> list[Layer]:
        if not set(self.dims) <= set(array.dims):
            return []
        beside = {dim: size for dim, size in array.sizes.items() if dim not in self.dims}
        if np.prod(list(beside.values()), dtype=int) > MOST_SLICES:
            self.omitted.append(f"{name} over {', '.join(f'{size} {dim}' for dim, size in beside.items())}")
            return []
        made = []
        for entries in product(*(range(size) for size in beside.values())):
            selection = dict(zip(beside, entries, strict=True))
            where = ", ".join(f"{dim} {self._entry(dim, entry)}" for dim, entry in selection.items())
            made.append(Layer(name, selection, where, units_of(array.attrs), str(array.attrs.get("long_name", ""))))
        return made

    def _entry(self, dim: Hashable, index: int) -> str:
        return entry_text(self.dataset[dim].values[index]) if dim in self.dataset.indexes else str(index)

    def std_of(self, layer: Layer) -> xr.DataArray | None:
        """The standard deviations that belong to a map."""
        array = self.dataset.get(f"{layer.name}_std")
        return array if array is not None and set(self.dims) <= set(array.dims) else None

    def read(self, layer: Layer, windows: Sequence[Window]) -> dict[str, np.ndarray]:
        """``value`` of a map, ``std``, ``flag``, ``lat`` and ``lon`` where there are any, in float32 and int32."""
        found = {"value": self.view(self.dataset[layer.name], layer, windows)}
        std = self.std_of(layer)
        if std is not None:
            found["std"] = self.view(std, layer, windows)
        if self.flag_variable is not None:
            flags = self.view(self.flag_variable, layer, windows)
            found["flag"] = np.nan_to_num(flags, nan=0).astype(np.int32)
        for name in self.geolocation:
            found[name] = self.view(self.dataset[name], layer, windows)
        return {key: a if a.dtype == np.int32 else a.astype(np.float32) for key, a in found.items()}

    def view(self, array: xr.DataArray, layer: Layer, windows: Sequence[Window]) -> np.ndarray:
        """Every so many pixels of a variable over the windows, read in tiles of at most a few chunks."""
        flat = array.isel({dim: index for dim, index in layer.selection.items() if dim in array.dims})
        chunks = array.encoding.get("preferred_chunks", {})
        flat = flat.isel({dim: 0 for dim in flat.dims if dim not in self.dims}).transpose(*self.dims)
        out = np.empty([len(window.indices) for window in windows], dtype=flat.dtype)
        lengths = tile_lengths(windows, [chunks.get(dim, 1) for dim in self.dims], flat.dtype.itemsize)
        parts = (list(tiles(window, length)) for window, length in zip(windows, lengths, strict=True))
        for tile in product(*parts):
            spans = {dim: slice(i[0], i[-1] + 1) for dim, (_, i) in zip(self.dims, tile, strict=True)}
            block = flat.isel(spans).values
            out[tuple(place for place, _ in tile)] = block[np.ix_(*(i - i[0] for _, i in tile))]
        return out


def open_maps(maps: str | os.PathLike[str] | xr.Dataset | MapSource, name: str = "maps") -> MapSource:
    """Maps of a netCDF file, Zarr store or GeoTIFF, unread, of a table, or of a Dataset called ``name``.

    Raises
    ------
    FileNotFoundError : no such file. PermissionError : it may not be read.
    ValueError : it is damaged or of another kind, or holds no maps, or too many entries of a dimension to list.
    """
    if isinstance(maps, MapSource):
        return maps
    if isinstance(maps, xr.Dataset):
        return MapSource(maps, name)
    return MapSource(open_unread(maps), Path(maps).name)


def open_unread(path: str | os.PathLike[str]) -> xr.Dataset:
    """The Dataset of a file of maps, unread but for tables; raises as :func:`open_maps` on files."""
    file = Path(path)
    if is_tiff(file):
        return open_geotiff_maps(file)
    maps = open_dataset(file) if file.suffix.lower() in SUFFIXES else open_group(file)
    return maps[sorted(maps.data_vars, key=str)] if file.is_dir() else maps


def tile_lengths(windows: Sequence[Window], chunks: Sequence[int], itemsize: int) -> list[int]:
    """Pixels of a tile along each dimension: a chunk, then more along the last dimension and the first."""
    lengths = [min(chunk, window.stop - window.start) for window, chunk in zip(windows, chunks, strict=True)]
    for axis in reversed(range(len(lengths))):
        room = TILE_BYTES // (itemsize * int(np.prod(lengths)))
        lengths[axis] = min(lengths[axis] * max(room, 1), windows[axis].stop - windows[axis].start)
    return lengths


def tiles(window: Window, length: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Places in the view and the pixels that go there, pixels of about one length after the other."""
    indices, step = window.indices, max(length // window.stride, 1)
    for start in range(0, len(indices), step):
        yield slice(start, min(start + step, len(indices))), indices[start : start + step]
