"""What readers share: arrays that stay in their file, cut into dask blocks; band metadata and geolocation of a cube.

xarray's documentation names `xarray.core.indexing`, and dask's `dask.array.core.normalize_chunks`, for arrays in files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from zlib import error as ZlibError

import numpy as np
import xarray as xr
from affine import Affine
from dask.array.core import normalize_chunks
from dask.tokenize import tokenize
from xarray.backends import BackendArray
from xarray.core import indexing

from ...cubes import describe_bands, is_unknown
from ...progress import warn_user
from .. import file_identity

logger = logging.getLogger(__name__)

STORED = "stored"
"""Key of a cube's `encoding` that tells in words how its numbers are stored."""

Data = TypeVar("Data", xr.DataArray, xr.Dataset)
Chunks = Literal["auto"] | Mapping[str, int | Literal["auto"]] | None
Key = tuple[int | slice, ...]
Read = Callable[[tuple[slice, ...]], np.ndarray]


def file_variable(dims: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype, read: Read) -> xr.Variable:
    """A variable that `read` takes from a file, as :class:`FileArray` says, when its values are wanted."""
    return xr.Variable(dims, indexing.LazilyIndexedArray(FileArray(shape, dtype, read)))


class FileArray(BackendArray):
    """An array that a function of one slice of step 1 for each axis reads from a file; it pickles where that does."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, read: Read):
        self.shape = shape
        self.dtype = dtype
        self._read = read

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        """Read what `key` selects."""
        basic = indexing.IndexingSupport.BASIC
        return np.asarray(indexing.explicit_indexing_adapter(key, self.shape, basic, self._window))

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
    token = tokenize(path, file_identity(path), array.name, blocks)
    data = array.variable.chunk(dict(zip(array.dims, blocks, strict=True)), name=f"open_cube-{token}")
    return array.copy(data=data.data)


def without_fills(
    array: xr.DataArray,
    path: Path,
    stored: np.dtype | None = None,
    scale: float = 1.0,
    offset: float = 0.0,
    declared: Sequence[float | None] = (),
    valid: tuple[float, float] | None = None,
) -> xr.DataArray:
    """The array as floats, lazy where it is, with NaN for what stands for no data though the file does not say so.

    That is what :func:`fill_places` says of stored numbers, and what is further out of a range of valid values than
    this is wide. Reading such values warns, by the same words for all blocks.

    Parameters
    ----------
    array : values = numbers * scale + offset.
    stored : the type of the numbers; None for that of the array.
    declared : numbers that the file declares to stand for no data, of which nothing is said.
    valid : lowest and highest valid value.
    """
    made = np.dtype(np.float64 if array.dtype == np.float64 else np.float32)
    told = tuple(sorted({float(value) for value in declared if value is not None}))
    clear = partial(_cleared, str(path), np.dtype(stored or array.dtype), scale, offset, told, valid, made)
    if array.chunks is None:
        return array.copy(data=clear(array.values))
    meta = np.empty((0,) * array.ndim, made)
    return array.copy(data=array.data.map_blocks(clear, dtype=made, meta=meta))


def _cleared(
    path: str,
    stored: np.dtype,
    scale: float,
    offset: float,
    declared: tuple[float, ...],
    valid: tuple[float, float] | None,
    made: np.dtype,
    block: np.ndarray,
) -> np.ndarray:
    plain = scale == 1.0 and offset == 0.0
    numbers = block if plain else (block.astype(np.float64) - offset) / scale
    fills = fill_places(numbers, stored)
    if valid is not None:
        with np.errstate(invalid="ignore"):
            low, high = 2 * valid[0] - valid[1], 2 * valid[1] - valid[0]
            fills |= (block < low) | (block > high)
    with np.errstate(over="ignore"):
        values = block.astype(made)
    if fills.any():
        values[fills] = np.nan
        found = np.unique(np.asarray(numbers[fills], np.float64))
        if not np.isclose(found[:, None], np.array(declared)).any(axis=1).all():
            warn_of_fills(path)
    return values


def warn_of_fills(path: str | Path) -> None:
    """Warn that a file has values that stand for no data and that it does not declare."""
    warn_user(
        f"{path}: values that the file does not declare as fills are taken for no data: -9999, -32768, the ends of "
        "integer types, what is beyond 1e15 or far out of the valid range"
    )


_LARGEST_VALUE = 1e15


def fill_places(numbers: np.ndarray, stored: np.dtype) -> np.ndarray:
    """Where numbers, of the type `stored` in their file, are what commonly stands for no data.

    They are -9999, of floats also -32768 and what is beyond 1e15, as float32's lowest and netCDF's default fill are, or
    averages over some of them; of integers in two bytes or more also the ends of their type.
    """
    if stored.kind == "b" or (stored.kind in "iu" and stored.itemsize < 2):
        return np.zeros(numbers.shape, bool)
    if stored.kind == "f":
        with np.errstate(invalid="ignore"):
            fills = np.abs(numbers) > _LARGEST_VALUE
        wanted: tuple[int, ...] = (-9999, -32768)
    else:
        ends = np.iinfo(stored)
        wide = stored.itemsize > 2 or stored.kind == "u"
        wanted = (-9999, int(ends.min), int(ends.min) + 1) if stored.kind == "i" else ()
        wanted += (int(ends.max),) if wide else ()
        fills = np.zeros(numbers.shape, bool)
    for value in wanted:
        fills |= numbers == value if numbers.dtype.kind in "iu" else np.abs(numbers - value) < 0.01
    return np.asarray(fills)


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


def stored_as(array: xr.DataArray) -> str:
    """How an array opened by xarray is stored in its file, in words."""
    encoding = array.encoding
    fill = encoding.get("_FillValue", encoding.get("missing_value"))
    scale, offset = encoding.get("scale_factor", 1.0), encoding.get("add_offset", 0.0)
    return stored_in_words(np.dtype(encoding.get("dtype", array.dtype)), [scale], [offset], [fill])


def stored_in_words(
    dtype: np.dtype, scales: Sequence[float], offsets: Sequence[float], nodata: Sequence[float | None]
) -> str:
    """How numbers are stored: their type, scale and offset where there are any, and what stands for no data.

    One scale, offset and no-data value a band, or one for all.
    """
    scale, offset = _span(scales), _span(offsets)
    formula = "" if scale == "1" else f" * {scale}"
    formula += "" if offset == "0" else f" + {offset}"
    known = [float(value) for value in nodata if value is not None]
    parts = [dtype.name] + ([f"value = number{formula}"] if formula else [])
    return ", ".join(parts + ([f"no data {_span(known)}"] if known else []))


def _span(values: Sequence[float]) -> str:
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.7g}" if low == high or np.isnan(low) else f"({low:.7g} to {high:.7g})"


def checked(cube: xr.DataArray, path: Path, dim: str = "wavelength") -> xr.DataArray:
    """The cube; ValueError, which names the file, where wavelengths are missing, repeated or in no unit of length."""
    try:
        describe_bands(cube, dim)
    except ValueError as error:
        wrong = str(error).partition("; drop ")[0]
        remedy = "" if wrong == str(error) else "; correct the metadata, or write the file without these bands"
        raise ValueError(f"{path}: {wrong}{remedy}") from error
    return cube


def with_bands(
    cube: xr.DataArray,
    wavelength: np.ndarray,
    unit: str | None,
    path: Path,
    fwhm: np.ndarray | None = None,
    good: np.ndarray | None = None,
) -> xr.DataArray:
    """The cube with coordinates `wavelength`, `fwhm` and `good` along its dimension `wavelength`.

    Parameters
    ----------
    cube : with a dimension `wavelength`, D bands.
    wavelength : (D,) in `unit`.
    unit : of wavelength and fwhm, as the file spells it; None where it does not tell.
    path : the file, for messages.
    fwhm : (D,) full width at half maximum, in `unit`.
    good : (D,) False for bands listed as bad.

    Raises
    ------
    ValueError : a list has not D entries; wavelengths are missing, repeated or in no unit of length.
    """
    size = cube.sizes["wavelength"]
    for what, values in (("wavelengths", wavelength), ("widths (fwhm)", fwhm), ("marks of good bands", good)):
        if values is not None and np.size(values) != size:
            raise ValueError(
                f"{path}: {np.size(values)} {what} for {size} bands; the file contradicts itself, get it anew"
            )
    return checked(cube.assign_coords(band_coords("wavelength", unit, wavelength, fwhm, good)), path)


def band_coords(
    dim: str,
    unit: str | None = None,
    wavelength: np.ndarray | None = None,
    fwhm: np.ndarray | None = None,
    good: np.ndarray | None = None,
) -> dict[str, tuple[str, np.ndarray, dict[str, str]]]:
    """Coordinates along a band dimension of what is known of its bands, as :func:`with_bands` takes it."""
    units = {} if is_unknown(unit) else {"units": str(unit)}
    named = {
        "wavelength": (wavelength, {"long_name": "wavelength"} | units),
        "fwhm": (fwhm, {"long_name": "full width at half maximum"} | units),
        "good": (None if good is None else np.asarray(good) != 0, {"long_name": "band not listed as bad"}),
    }
    return {name: (dim, np.asarray(values), attrs) for name, (values, attrs) in named.items() if values is not None}


def tell(path: Path, assumed: str) -> None:
    """Log a warning of what a reader assumed of a file, which commands say on stderr."""
    logger.warning("%s: %s", path, assumed)


def require_no_variable(variable: str | None, path: Path, holds: str) -> None:
    """Raise ValueError where a variable is to be chosen from a file that `holds` but one thing, in words."""
    if variable is not None:
        raise ValueError(f"{path}: variable={variable!r} is for netCDF files; {holds}")


def with_geolocation(cube: xr.DataArray, latitude: xr.DataArray, longitude: xr.DataArray, path: Path) -> xr.DataArray:
    """The cube with two-dimensional coordinates `lat` and `lon`, in the blocks of the cube where it is lazy.

    Raises ValueError where their dimensions are not the pixels' ones.
    """
    named = {"lat": ("latitude", "degrees_north", latitude), "lon": ("longitude", "degrees_east", longitude)}
    for name, (standard_name, units, values) in named.items():
        attrs = {"standard_name": standard_name, "long_name": standard_name, "units": units}
        cube = with_pixel_coordinate(cube, name, values, attrs, path)
    return cube


def with_pixel_coordinate(
    cube: xr.DataArray, name: str, values: xr.DataArray, attrs: Mapping[str, object], path: Path
) -> xr.DataArray:
    """The cube with one more coordinate over its pixels; ValueError where its dimensions are not the pixels' ones."""
    expected = {dim: size for dim, size in cube.sizes.items() if dim != "wavelength"}
    if dict(values.sizes) != expected:
        raise ValueError(
            f"{path}: {name} is over {dict(values.sizes)} where the pixels are over {expected}; get it anew"
        )
    blocks: Chunks = None
    if cube.chunks is not None:
        blocks = {str(dim): cube.chunksizes[dim][0] for dim in expected}
    variable = chunk_cube(values.rename(name), blocks, whole="", path=str(path)).variable
    variable.attrs = dict(attrs)
    variable.encoding = {}
    return cube.assign_coords({name: variable})


def georeferenced(data: Data, crs: str | int, transform: Affine, what: str) -> Data:
    """Data over (y, x) with CRS, transform and attributes of x and y where `data.rio` finds them.

    Raises ValueError where `crs`, an EPSG code or text, is not understood; `what` it belongs to starts the message.
    """
    import rioxarray  # noqa: F401  (registers the .rio accessor)

    try:
        data = data.rio.write_crs(crs)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{what}: CRS {str(crs)[:60]!r} is not understood ({error})") from error
    made: Data = data.rio.write_transform(transform).rio.write_coordinate_system()
    return made


def rename_chunks(chunks: Chunks, old: str, new: str) -> Chunks:
    """`chunks` as the caller gave them, with the file's name of a dimension replaced by that of the convention."""
    if not isinstance(chunks, Mapping):
        return chunks
    return {new if name == old else name: length for name, length in chunks.items()}
