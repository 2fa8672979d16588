"""New netCDF files and Zarr stores with encodings of our own alone, open for the values of lazy maps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from xarray.backends import NetCDF4DataStore
from xarray.backends.common import ArrayWriter
from xarray.backends.netCDF4_ import NETCDF4_PYTHON_LOCK

from .blocks import Write
from .place import grid_mapping, refresh_transform

_PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "grid_mapping")


@contextmanager
def netcdf_file(maps: xr.Dataset, path: Path, compression: int) -> Iterator[Write]:
    """A netCDF file of all that is in memory, and how to write the lazy variables.

    Guarded by the lock that xarray reads netCDF files under. The one that it would combine with another for writing may
    hold the same two in the other order, and a thread that reads a cube and one that writes wait for each other.
    """
    store = NetCDF4DataStore.open(  # type: ignore[no-untyped-call]
        path, mode="w", format="NETCDF4", lock=NETCDF4_PYTHON_LOCK
    )
    try:
        writer = ArrayWriter()  # type: ignore[no-untyped-call]
        _encoded(maps, partial(_netcdf_encoding, compression)).dump_to_store(store, writer=writer)
        targets = {target.variable_name: target for target in writer.targets}
        for name, target in targets.items():
            if target.shape and name not in maps.sizes:  # or the library takes the dimension for the variable
                _cache_two_chunks(target.get_array())
        yield lambda name, place, values: targets[name].__setitem__(place, values)
    finally:
        store.close()


def _cache_two_chunks(variable: Any) -> None:
    """Cache little, because blocks are written once; the library would hold 64 MB a variable."""
    chunk = int(np.prod(variable.chunking(), dtype=np.int64)) * variable.dtype.itemsize
    variable.set_var_chunk_cache(size=2 * chunk, preemption=1.0)


@contextmanager
def zarr_store(maps: xr.Dataset, path: Path) -> Iterator[Write]:
    """A Zarr store of all that is in memory, and how to write the lazy variables."""
    with warnings.catch_warnings():
        # consolidated metadata are an extension that readers without it ignore
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        encoded = _encoded(_with_strings(maps), _zarr_encoding)
        encoded.to_zarr(path, mode="w-", consolidated=True, safe_chunks=False, compute=False)
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    arrays: dict[Any, Any] = {
        name: group[str(name)] for name, variable in maps.variables.items() if variable.chunks is not None
    }
    yield lambda name, place, values: arrays[name].__setitem__(place, values)


def _with_strings(maps: xr.Dataset) -> xr.Dataset:
    """The maps with text as strings of any length: those of fixed length have no specification in Zarr."""
    text = [name for name, variable in maps.variables.items() if variable.dtype.kind == "U"]
    return maps.assign_coords({name: maps[name].astype(object) for name in text if name in maps.coords}).assign(
        {name: maps[name].astype(object) for name in text if name not in maps.coords}
    )


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
