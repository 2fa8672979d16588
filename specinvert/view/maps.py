"""Maps for the viewer, and their cube as a picture: what files hold, without reading it, and views of bounded size."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import xarray as xr

from ..cubes import Bands, describe_bands, legible, listed, units_of
from ..figures import edges_of, entry_text, is_tiff, open_geotiff_maps, pixel_dims, robust_limits
from ..flags import FLAG_VARIABLE, Flag, read_flags
from ..io.reading import SUFFIXES, open_dataset, open_group

MOST = 1000
"""Pixels a side that a view reads at most."""
_MARGIN = 0.25
"""Share of the visible length that is read beyond either end, so that a short pan shows data at once."""


@dataclass(frozen=True)
class Window:
    """Pixels ``start`` to ``stop`` of an axis, of which one in ``stride`` is shown: that in the middle of each step."""

    start: int
    stop: int
    stride: int

    @property
    def indices(self) -> np.ndarray:
        """The pixels that are shown."""
        return np.minimum(np.arange(self.start, self.stop, self.stride) + self.stride // 2, self.stop - 1)

    def shows(self, wanted: Window) -> bool:
        """Whether the window has all pixels of another, as densely."""
        return self.stride <= wanted.stride and self.start <= wanted.start and self.stop >= wanted.stop

    @classmethod
    def of(cls, start: int, stop: int, size: int, margin: float = _MARGIN) -> Window:
        """Around the visible pixels ``start`` to ``stop`` of ``size``, aligned to its stride."""
        extra = int(np.ceil(margin * (stop - start)))
        start, stop = max(start - extra, 0), min(stop + extra, size)
        stride = max(-(-(stop - start) // MOST), 1)
        return cls(start // stride * stride, min(-(-stop // stride) * stride, size), stride)


@dataclass(frozen=True)
class PixelAxis:
    """A dimension of the maps: pixel i reaches from ``first + i * step`` to ``first + (i + 1) * step``."""

    dim: str
    size: int
    first: float
    step: float
    units: str
    placed: bool

    @classmethod
    def of(cls, maps: xr.Dataset, dim: str, placed: bool) -> PixelAxis:
        """By the coordinate where it is evenly spaced and ``placed``, else by number."""
        size = maps.sizes[dim]
        edges = edges_of(maps, dim) if placed else None
        if edges is None:
            return cls(dim, size, -0.5, 1.0, "", False)
        return cls(dim, size, edges[0], (edges[1] - edges[0]) / size, units_of(maps[dim].attrs), True)

    @property
    def label(self) -> str:
        """Name and units."""
        if not self.placed:
            return f"{self.dim} (number)"
        return f"{self.dim} ({self.units})" if self.units else self.dim

    @property
    def digits(self) -> int:
        """Decimals that tell neighbouring pixels apart."""
        return max(0, 1 - int(np.floor(np.log10(abs(self.step))))) if self.placed else 0

    def centre(self, index: int) -> float:
        """Coordinate of the middle of a pixel."""
        return self.first + (index + 0.5) * self.step

    def index(self, value: float) -> int | None:
        """The pixel at a coordinate; None outside the map."""
        index = int(np.floor((value - self.first) / self.step))
        return index if 0 <= index < self.size else None

    def span(self, window: Window) -> tuple[float, float]:
        """Lower end and length of the cells of a window, whose last one may reach beyond the map."""
        count = len(window.indices) * window.stride
        ends = self.first + window.start * self.step, self.first + (window.start + count) * self.step
        return min(ends), abs(ends[1] - ends[0])

    def visible(self, low: float, high: float) -> Window:
        """The window to read where coordinates ``low`` to ``high`` are in sight; the whole axis where none of it is."""
        ends = sorted((value - self.first) / self.step for value in (low, high))
        start, stop = (int(end) for end in np.clip([np.floor(ends[0]), np.ceil(ends[1])], 0, self.size))
        return self.whole if start >= stop else Window.of(start, stop, self.size)

    @property
    def whole(self) -> Window:
        """All of it."""
        return Window.of(0, self.size, self.size)


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
        placed = len(self.dims) == 2 and all(edges_of(dataset, dim) is not None for dim in self.dims)
        self.axes = tuple(PixelAxis.of(dataset, dim, placed) for dim in self.dims)  # two are placed together
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
        views = {"value": self.view(self.dataset[layer.name], layer, windows)}
        std = self.std_of(layer)
        if std is not None:
            views["std"] = self.view(std, layer, windows)
        if self.flag_variable is not None:
            flags = self.view(self.flag_variable, layer, windows)
            views["flag"] = np.nan_to_num(flags, nan=0).astype(np.int32)
        for name in self.geolocation:
            views[name] = self.view(self.dataset[name], layer, windows)
        return {key: a if a.dtype == np.int32 else a.astype(np.float32) for key, a in views.items()}

    def view(self, array: xr.DataArray, layer: Layer, windows: Sequence[Window]) -> np.ndarray:
        """Every so many pixels of a variable over the windows, read in tiles of at most a few chunks."""
        flat = array.isel({dim: index for dim, index in layer.selection.items() if dim in array.dims})
        chunks = array.encoding.get("preferred_chunks", {})
        flat = flat.isel({dim: 0 for dim in flat.dims if dim not in self.dims}).transpose(*self.dims)
        return read_tiles(flat, windows, [chunks.get(dim, 1) for dim in self.dims])


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


def read_tiles(
    array: xr.DataArray, windows: Sequence[Window], chunks: Sequence[int], bytes_each: int | None = None
) -> np.ndarray:
    """Every so many pixels over the windows of the first dimensions, read in tiles of at most a few chunks.

    ``bytes_each`` is what the reading of a pixel takes, where that is more than the array shows.
    """
    dims = [str(dim) for dim in array.dims[: len(windows)]]
    lengths = tile_lengths(windows, chunks, bytes_each or array.dtype.itemsize)
    out = np.empty([*(len(w.indices) for w in windows), *array.shape[len(windows) :]], dtype=array.dtype)
    for tile in product(*(list(tiles(window, length)) for window, length in zip(windows, lengths, strict=True))):
        block = array.isel({dim: slice(i[0], i[-1] + 1) for dim, (_, i) in zip(dims, tile, strict=True)}).values
        out[tuple(place for place, _ in tile)] = block[np.ix_(*(i - i[0] for _, i in tile))]
    return out


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


COLOURS = (640.0, 550.0, 470.0)
"""Wavelengths in nm of red, green and blue."""
_NEAR = 60.0
"""Nanometres from one of these at which a band still stands for it."""
_BLANK = 0xD1


class SceneImage:
    """A picture of spectra over ``dims``, the vertical and the horizontal dimension.

    Each band is stretched from its 2nd to its 98th percentile in the first view. Bands marked bad are not taken.
    """

    def __init__(self, spectra: xr.DataArray, band_dim: str, dims: Sequence[str], fill: float | None = None) -> None:
        self.spectra, self.band_dim, self.dims, self.fill = spectra, band_dim, tuple(dims), fill
        bands = describe_bands(spectra, band_dim)
        good = spectra["good"].values if "good" in spectra.coords and spectra["good"].dims == (band_dim,) else None
        self.chosen, self.title = _choose(bands, good)
        self._limits: list[tuple[float, float]] = []

    def read(self, windows: Sequence[Window], selection: Mapping[Hashable, int]) -> np.ndarray:
        """Colours (rows, columns) as uint32 of the pixels that the windows show, grey where there is no data.

        Read in tiles, at the entry of dimensions beside the pixels that ``selection`` names.
        """
        values = self._values(windows, selection)
        if not self._limits:
            self._limits = [robust_limits(values[..., i]) for i in range(values.shape[-1])]
        low, high = np.array(self._limits).T
        there = np.isfinite(values).all(axis=-1)
        levels = np.clip((np.where(there[..., None], values, low) - low) / (high - low), 0.0, 1.0)
        shown = np.full((*there.shape, 4), 255, dtype=np.uint8)
        shown[..., :3] = np.where(there[..., None], np.round(255 * levels), _BLANK)
        return shown.view(np.uint32)[..., 0]

    def _values(self, windows: Sequence[Window], selection: Mapping[Hashable, int]) -> np.ndarray:
        beside = {d: selection.get(d, 0) for d in self.spectra.dims if d not in (*self.dims, self.band_dim)}
        flat = self.spectra.isel(beside).transpose(*self.dims, self.band_dim)
        blocks, bytes_each = flat.variable.chunksizes, flat.dtype.itemsize * flat.sizes[self.band_dim]
        chunks = [max(blocks.get(dim, (1,))) for dim in self.dims]
        out = read_tiles(flat.isel({self.band_dim: self.chosen}), windows, chunks, bytes_each).astype(np.float64)
        return out if self.fill is None else np.where(out == self.fill, np.nan, out)


def _choose(bands: Bands, good: np.ndarray | None) -> tuple[list[int], str]:
    """Bands that stand for red, green and blue, or one in the middle, and what they are."""
    usable = np.arange(bands.size) if good is None or not good.any() else np.flatnonzero(good)
    if bands.wavelength is None:
        middle = int(usable[usable.size // 2])
        name = f"number {middle}" if bands.labels is None else legible(bands.labels[middle])
        return [middle], f"image of the cube: band {name}"
    wavelength = np.where(np.isin(np.arange(bands.size), usable), bands.wavelength, np.inf)
    nearest = [int(np.argmin(np.abs(wavelength - colour))) for colour in COLOURS]
    if all(abs(wavelength[i] - colour) <= _NEAR for i, colour in zip(nearest, COLOURS, strict=True)):
        shown = ", ".join(f"{wavelength[i]:.4g}" for i in nearest)
        return nearest, f"image of the cube: red, green, blue at {shown} nm"
    middle = int(usable[np.argsort(wavelength[usable], kind="stable")[usable.size // 2]])
    return [middle], f"image of the cube: {wavelength[middle]:.4g} nm"
