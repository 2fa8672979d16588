"""Datasets as files can hold them, in plain types and attributes, and new files of them, open for values of lazy maps.

NetCDF files and Zarr stores have encodings of our own alone. A cloud-optimised GeoTIFF is a plain tiled file that takes
blocks in any order, then one copy of it in order.
"""

from __future__ import annotations

import json
import numbers
import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import rasterio
import rasterio.shutil
import xarray as xr
import zarr
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window
from xarray.backends import NetCDF4DataStore
from xarray.indexes import PandasMultiIndex

from ...cubes import native, require_known_sizes
from .. import (
    NETCDF_LOCK,
    grid_mapping,
    is_geographic,
    refresh_transform,
    spatial_dims,
    transform_of,
    write_errors,
)
from .blocks import Write

_PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "grid_mapping")
_ENCODED = frozenset({"units", "calendar"})
"""Attributes that the file has of times, from how they are encoded."""
_RESERVED = frozenset(
    {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
)
"""Attributes by which HDF5 and netCDF know dimensions."""
FLAG = "quality_flag"
"""The map that goes to a file of its own."""
_TILE = 512
_COG = {
    "driver": "COG",
    "compress": "deflate",
    "predictor": "yes",
    "blocksize": _TILE,
    "bigtiff": "if_safer",
    "statistics": "yes",
}
_CACHE_BYTES = 64 << 20
"""GDAL would keep the whole of a file in memory, up to a share of the machine's."""
_PATIENCE = 5.0
"""Seconds that a stop waits for threads that read."""
_NO_TAGS = frozenset(
    {"Conventions", "units", "_FillValue", "missing_value", "scale_factor", "add_offset", "grid_mapping", "coordinates"}
)


def storable(maps: xr.Dataset, path: str | os.PathLike[str]) -> xr.Dataset:
    """A copy of the maps in types, and with attributes, that files hold; values stay.

    Numbers come in this machine's byte order, floats in single or double precision. What pandas has types of its own
    for becomes numbers with NaN, times in UTC, or text (categories, intervals, periods). Attributes that are None are
    left out, True and False become 1 and 0, dates and dicts text. ValueError where the maps are empty or of unknown
    size, have a MultiIndex, or a variable of no type that files hold.
    """
    shown = os.fspath(path)
    for index in maps.xindexes.values():
        if isinstance(index, PandasMultiIndex):
            raise ValueError(
                f"{shown}: files hold no MultiIndex, as there is along {index.dim!r}: save "
                f"maps.unstack({index.dim!r}), or maps.reset_index({index.dim!r})"
            )
    if 0 in maps.sizes.values():
        raise ValueError(f"{shown}: the maps are empty, their sizes are {dict(maps.sizes)}: select at least one pixel")
    made = maps.copy()
    for name, given in maps.variables.items():
        what = f"{shown}: {name!r}"
        require_known_sizes(maps[name], what)
        variable = _plain(given, what)
        if variable is not given:
            made = (made.assign_coords if name in maps.coords else made.assign)({name: variable})
        made[name].attrs = _plain_attrs(given.attrs, _RESERVED | _ENCODED if _is_time(variable) else _RESERVED)
    made.attrs = _plain_attrs(maps.attrs)
    return made


def _plain(variable: xr.Variable, what: str) -> xr.Variable:
    """The variable in a type that files hold; itself where it is."""
    dtype: Any = variable.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _with_values(variable, pd.DatetimeIndex(variable.data).tz_convert(None).values)
    if not isinstance(dtype, np.dtype):
        return _with_values(variable, _plain_objects(variable.values, what))
    if dtype.kind in "cV":
        raise ValueError(f"{what} holds {dtype} values, which files do not: drop it, or split it into plain numbers")
    if dtype.kind == "f" and dtype.itemsize == 2:
        return variable.astype(np.float32)
    if dtype.kind in "iuf":
        return native(variable)
    if dtype.kind == "S":
        return _with_values(variable, np.char.decode(variable.values, "utf-8", "replace"))
    if dtype.kind == "O" and variable.chunks is None:
        values = variable.values
        plain = _plain_objects(values, what)
        return variable if plain is values else _with_values(variable, plain)
    return variable


def _with_values(variable: xr.Variable, values: np.ndarray) -> xr.Variable:
    return xr.Variable(variable.dims, values, variable.attrs, variable.encoding)


def _plain_objects(values: np.ndarray, what: str) -> np.ndarray:
    """Objects (*shape) as numbers or text where that is what they are; times of other calendars as they are."""
    if values.dtype.kind != "O":
        return values
    there = ~pd.isnull(values)
    kinds = {type(value) for value in values[there]}
    if all(issubclass(kind, pd.Interval | pd.Period) for kind in kinds) and kinds:
        return np.where(there, values.astype(str), "")
    if all(issubclass(kind, numbers.Real | np.bool_) for kind in kinds) and kinds:
        return np.where(there, values, np.nan).astype(np.float64)
    if kinds == {date}:
        return values.astype("datetime64[s]")
    if all(issubclass(kind, str) for kind in kinds) or (len(kinds) == 1 and hasattr(next(iter(kinds)), "calendar")):
        return values
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"{what} holds {names}, which files do not hold together: make it text, as with .astype(str)")


def _is_time(variable: xr.Variable) -> bool:
    kind = variable.dtype.kind
    return kind in "mM" or (kind == "O" and variable.size > 0 and hasattr(variable.values.flat[0], "calendar"))


def _plain_attrs(attrs: Mapping[Any, Any], without: frozenset[str] = _RESERVED) -> dict[Hashable, Any]:
    """Attributes as files hold them: text, numbers, lists of one kind of them."""
    kept = {str(key).replace("/", "_"): value for key, value in attrs.items() if value is not None}
    return {key: _plain_attr(value) for key, value in kept.items() if key not in without}


def _plain_attr(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, list | tuple | np.ndarray | np.number | int | float):
        return _plain_numbers(value)
    return json.dumps(value, default=str) if isinstance(value, dict) else str(value)


def _plain_numbers(value: Any) -> Any:
    """A number or a list of them as it is, and so lists of texts; others as text."""
    if isinstance(value, list | tuple) and value and all(isinstance(entry, str) for entry in value):
        return list(value)
    try:
        array = np.asarray(value)
    except ValueError:
        return json.dumps(value, default=str)
    if array.dtype.kind in "iuf" and array.ndim < 2:
        return value
    if array.dtype.kind == "b":
        return array.astype(np.int8)
    return json.dumps(array.tolist(), default=str) if array.ndim else str(value)


@contextmanager
def netcdf_file(maps: xr.Dataset, path: Path, compression: int) -> Iterator[Write]:
    """A netCDF file of all that is in memory, and how to write the lazy variables.

    Guarded by the lock that xarray reads netCDF files under. The one that it would combine with another for writing may
    hold the same two in the other order, and a thread that reads a cube and one that writes wait for each other.
    """
    with NETCDF_LOCK, write_errors(path):
        file = netCDF4.Dataset(path, "w", format="NETCDF4")
    try:
        store = NetCDF4DataStore(file, lock=NETCDF_LOCK)  # type: ignore[no-untyped-call]
        with write_errors(path):
            _encoded(maps, partial(_netcdf_encoding, compression)).dump_to_store(store)
        with NETCDF_LOCK:
            file.set_auto_maskandscale(False)
            for name, variable in maps.variables.items():
                if variable.chunks and name not in maps.sizes:  # or the library takes the dimension for the variable
                    made: Any = file.variables[str(name)]
                    chunk = int(np.prod(made.chunking(), dtype=np.int64)) * made.dtype.itemsize
                    made.set_var_chunk_cache(size=2 * chunk, preemption=1.0)  # not 64 MB: blocks are written once

        def write(name: str, place: tuple[slice, ...], values: np.ndarray) -> None:
            with NETCDF_LOCK:
                file.variables[name][place] = values

        yield write
    except KeyboardInterrupt:
        _wait_for_lock()
        file.close()
        raise
    except BaseException:
        with NETCDF_LOCK, write_errors(path):
            file.close()
        raise
    with NETCDF_LOCK, write_errors(path):
        file.close()


def _wait_for_lock() -> None:
    """Wait until no thread is in the library, but not for ever: an interrupt while a lock is taken leaves it taken."""
    patience = time.monotonic() + _PATIENCE
    while NETCDF_LOCK.locked() and time.monotonic() < patience:
        time.sleep(0.01)


@contextmanager
def zarr_store(maps: xr.Dataset, path: Path) -> Iterator[Write]:
    """A Zarr store of all that is in memory, and how to write the lazy variables."""
    with warnings.catch_warnings():
        # consolidated metadata are an extension that readers without it ignore
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        encoded = _encoded(_with_strings(maps), _zarr_encoding)
        with write_errors(path):
            encoded.to_zarr(path, mode="w-", consolidated=True, safe_chunks=False, compute=False)
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    arrays: dict[Any, Any] = {
        name: group[str(name)] for name, variable in maps.variables.items() if variable.chunks is not None
    }
    yield lambda name, place, values: arrays[name].__setitem__(place, values)


def _with_strings(maps: xr.Dataset) -> xr.Dataset:
    """The maps with text as strings of any length: those of fixed length have no specification in Zarr."""
    text = {name: maps[name].astype(object) for name, array in maps.variables.items() if array.dtype.kind == "U"}
    return maps.assign(text)


def _encoded(maps: xr.Dataset, encoding: Callable[[xr.DataArray, bool], dict[str, Any]]) -> xr.Dataset:
    """The maps with encodings of our own alone, and the grid mapping that they had."""
    source = refresh_transform(maps)
    encoded = source.copy()
    encoded.encoding = {}
    for name in encoded.variables:
        original, array = source[name], encoded[name]
        array.attrs = {key: value for key, value in original.attrs.items() if key not in _PACKING}
        array.encoding = encoding(original, name in source.coords)
        mapping = grid_mapping(source, original)
        if mapping is not None:
            array.encoding["grid_mapping"] = mapping
        if name in original.dims and original.ndim > 1:
            _name_coordinates(source, array)
    return encoded


def _name_coordinates(maps: xr.Dataset, array: xr.DataArray) -> None:
    """List the auxiliary coordinates of a variable with the name of a dimension of its own: xarray lists none."""
    mappings = {grid_mapping(maps, variable) for variable in maps.data_vars.values()}
    beside = [str(name) for name in maps[array.name].coords if name not in maps.sizes and name not in mappings]
    if beside:
        array.encoding["coordinates"] = " ".join(beside)


def _zarr_encoding(array: xr.DataArray, is_coordinate: bool) -> dict[str, Any]:
    encoding = _fill_value(array, is_coordinate)
    if array.chunks is not None:
        encoding["chunks"] = tuple(max(sizes) for sizes in array.chunks)
    return encoding


def _netcdf_encoding(compression: int, array: xr.DataArray, is_coordinate: bool) -> dict[str, Any]:
    encoding = _fill_value(array, is_coordinate)
    level = compression if array.dtype.kind == "f" and not is_coordinate else max(1, compression)
    if array.ndim and array.dtype.kind in "fiub" and level:
        encoding |= {"zlib": True, "complevel": level}
    if array.chunks is not None:
        encoding["chunksizes"] = tuple(max(sizes) for sizes in array.chunks)
    if array.dtype.kind in "UO" and array.dims == (array.name,):
        encoding["dtype"] = "S1"  # labels of a dimension as characters: a coordinate variable would be numeric
    return encoding


def _fill_value(array: xr.DataArray, is_coordinate: bool) -> dict[str, Any]:
    if array.dtype.kind == "f" and not is_coordinate:
        return {"_FillValue": array.dtype.type(np.nan)}
    return {"_FillValue": None} if array.dtype.kind in "fiubmM" else {}


def flag_name(path: Path) -> str:
    """Name of the file of the flags beside the maps."""
    return f"{path.stem}_flag{path.suffix}"


def raster_maps(maps: xr.Dataset, path: Path) -> xr.Dataset:
    """The maps (y, x) with what a GeoTIFF holds of their coordinates.

    Raises ValueError where they are no 2-D maps of numbers on a regular grid.
    """
    dims = _two_dimensional(maps, path)
    if set(maps.data_vars) == {FLAG}:
        raise ValueError(f"{path}: the Dataset has no maps beside {FLAG!r}; save it as .nc")
    swath = [str(name) for name, array in maps.coords.items() if array.ndim > 1 and is_geographic(name, array)]
    if swath and transform_of(maps).is_identity:
        raise ValueError(
            f"{path}: the maps are a swath, placed by {' and '.join(swath)} of every pixel, and GeoTIFF holds a "
            "regular grid: save as .nc, resample them, or drop these coordinates to write pixels without a place"
        )
    lazy = [name for name, coordinate in maps.coords.items() if coordinate.chunks is not None]
    return maps.drop_vars(lazy).transpose(*dims, ...)


def raster_dtype(maps: xr.Dataset) -> np.dtype:
    """The smallest float type that holds all maps but their flag."""
    return np.result_type(np.float32, *(array.dtype for name, array in maps.data_vars.items() if name != FLAG))


@contextmanager
def geotiff_files(maps: xr.Dataset, path: Path) -> Iterator[Write]:
    """A GeoTIFF file of the maps and one of their flag, in-memory maps written, and how to write the lazy ones.

    The files are there at the end of the ``with``; nothing is after an exception.
    """
    y_dim, x_dim = _two_dimensional(maps, path)
    names = [name for name in maps.data_vars if name != FLAG]
    profile = {
        "driver": "GTiff",
        "height": maps.sizes[y_dim],
        "width": maps.sizes[x_dim],
        "crs": maps.rio.crs,
        "transform": transform_of(maps),
        "tiled": True,
        "blockxsize": _TILE,
        "blockysize": _TILE,
        "interleave": "band",
        "bigtiff": "if_safer",
    }
    wanted = {path: (names, {**profile, "dtype": raster_dtype(maps), "nodata": np.nan}, "average")}
    if FLAG in maps:
        wanted[path.with_name(flag_name(path))] = [FLAG], {**profile, "dtype": maps[FLAG].dtype}, "nearest"
    plain = {final: final.with_name(f".plain-{final.name}") for final in wanted}
    try:
        with rasterio.Env(GDAL_CACHEMAX=_CACHE_BYTES), ExitStack() as stack:
            bands: dict[Hashable, tuple[Any, int]] = {}
            for final, (members, options, _) in wanted.items():
                bands |= _bands(stack, plain[final], maps[members], options)

            def write(name: str, place: tuple[slice, ...], values: np.ndarray) -> None:
                file, index = bands[name]
                rows, columns = place
                window = Window.from_slices(rows, columns, height=file.height, width=file.width)
                file.write(values.astype(file.dtypes[0], copy=False), index, window=window)

            for name, array in maps.data_vars.items():
                if array.chunks is None:
                    with write_errors(path):
                        write(str(name), (slice(None), slice(None)), array.values)
            yield write
        for final, (_, _, resampling) in wanted.items():
            with rasterio.Env(GDAL_CACHEMAX=_CACHE_BYTES), write_errors(final):
                rasterio.shutil.copy(plain[final], final, **_COG, overview_resampling=resampling)
            plain[final].unlink()
    finally:
        for remain in plain.values():
            remain.unlink(missing_ok=True)


def _bands(stack: ExitStack, path: Path, maps: xr.Dataset, profile: dict[str, Any]) -> dict[Hashable, tuple[Any, int]]:
    """A new file, open as long as the stack, of bands named after maps; where each map is to go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        file = stack.enter_context(rasterio.open(path, "w", count=len(maps.data_vars), **profile))
    file.update_tags(**_tags(maps.attrs))
    for index, (name, array) in enumerate(maps.data_vars.items(), start=1):
        file.set_band_description(index, str(name))
        file.update_tags(index, **_tags(array.attrs))
        if "units" in array.attrs:
            file.set_band_unit(index, str(array.attrs["units"]))
    return {name: (file, index) for index, name in enumerate(maps.data_vars, start=1)}


def _tags(attrs: dict[Hashable, Any]) -> dict[str, str]:
    """Attributes as text, lists separated by blanks."""
    kept = {str(key): value for key, value in attrs.items() if key not in _NO_TAGS}
    return {
        key: value if isinstance(value, str) else " ".join(map(str, np.ravel(value))) for key, value in kept.items()
    }


def _two_dimensional(maps: xr.Dataset, path: Path) -> tuple[str, str]:
    dims = spatial_dims(maps)
    if dims is None:
        raise ValueError(
            f"{path}: GeoTIFF needs dimensions 'y' and 'x', and these are {tuple(map(str, maps.sizes))}; "
            "rename them, or save as .nc"
        )
    arrays = maps.data_vars.items()
    odd = [f"{name} {tuple(map(str, array.dims))}" for name, array in arrays if set(array.dims) != set(dims)]
    if odd:
        raise ValueError(
            f"{path}: GeoTIFF holds maps over {dims} only, not {', '.join(odd)}; "
            "select 2-D maps, drop these, or save as .nc"
        )
    text = [f"{name} ({array.dtype})" for name, array in arrays if array.dtype.kind not in "iuf"]
    if text:
        raise ValueError(f"{path}: GeoTIFF holds numbers, not {', '.join(text)}; drop these, or save as .nc")
    return dims
