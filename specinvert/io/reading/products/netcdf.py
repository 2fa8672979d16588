"""Reads cubes from netCDF files and Zarr stores, with the grid mapping where rioxarray looks for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import netCDF4
import numpy as np
import xarray as xr

from ....cubes import find_band_dim, is_fwhm_name, is_good_name, is_wavelength_name, length_unit
from ... import is_geographic
from ..convention import STORED, stored_as
from ..lazy import Chunks, chunk_cube
from ..metadata import MAGIC as HDF5_MAGIC
from ..metadata import engine_options, first_bytes, is_zarr

_MAGIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05", HDF5_MAGIC)
_SUFFIXES = frozenset({".nc", ".nc4", ".cdf", ".netcdf"})


def matches(path: Path, head: bytes) -> bool:
    """Whether the path is a netCDF file by its first bytes or its name, an HDF5 file, or a Zarr store."""
    return head.startswith(_MAGIC) or is_zarr(path) or (bool(head) and path.suffix.lower() in _SUFFIXES)


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open one variable of a netCDF file or Zarr store as a cube, its dimensions in the order of the file.

    See `open_cube` for the convention.

    Parameters
    ----------
    path : an existing netCDF file or Zarr store.
    chunks : as for `open_cube`.
    variable : name of the cube, with that of its group before it where it is in one ("group/name"); None for the
        only variable of the root group with a band dimension.

    Raises
    ------
    ValueError : the file is damaged or of another kind; `variable` is not in it or holds no numbers; or, without
        `variable`, none or several variables have a band dimension.
    """
    group, _, variable = (None, "", None) if variable is None else variable.strip("/").rpartition("/")
    dataset = open_group(path, group or None)
    dataset = with_metadata(dataset)
    name = _choose(dataset, path, variable or None)
    cube = _with_places(dataset, dataset[name])
    band_dim = _band_dim(cube)
    cube = _with_grid_mapping(dataset, cube)
    for coordinate in cube.coords.values():
        if coordinate.ndim < 2:
            coordinate.load()
    source, stored = dict(cube.encoding), stored_as(cube)
    cube = chunk_cube(cube, chunks, whole=band_dim or "", path=str(path))
    if cube.dtype != np.float32 and np.dtype(source.get("dtype", cube.dtype)).kind in "iu":
        cube = cube.astype(np.float32, keep_attrs=True)
    if band_dim is not None:
        cube = _rename_metadata(cube, band_dim)
    cube.encoding = {"source": str(path), STORED: stored}
    if "grid_mapping" in source:
        cube.encoding["grid_mapping"] = source["grid_mapping"]
    return cube


def with_metadata(dataset: xr.Dataset) -> xr.Dataset:
    """The Dataset with what describes its bands as coordinates: wavelengths, widths, lists of bad bands.

    A coordinate in nm, um or angstrom along a dimension of its own name, "band" for instance, holds wavelengths too.
    """
    dataset = dataset.set_coords([name for name in dataset.data_vars if _is_band_metadata(dataset[name])])
    for name, array in list(dataset.coords.items()):
        if array.dims == (name,) and length_unit(array.attrs.get("units", "")) in ("nm", "um", "angstrom"):
            told = any(is_wavelength_name(other) and c.dims == (name,) for other, c in dataset.coords.items())
            if not told and "wavelength" not in dataset.variables and "wavelength" not in dataset.dims:
                dataset = dataset.assign_coords(wavelength=(name, array.values, array.attrs))
    return dataset


def open_group(path: Path, group: str | None = None) -> xr.Dataset:
    """Open one group of a netCDF file or Zarr store, decoded and unread; None for the root group.

    Raises
    ------
    PermissionError : the file may not be read.
    ValueError : the file is damaged or of another kind, or has no such group.
    """
    engine: Literal["zarr", "netcdf4"] = "zarr" if path.is_dir() else "netcdf4"
    head = b""
    if engine == "netcdf4":
        head = first_bytes(path, len(HDF5_MAGIC))
        if not head.startswith(_MAGIC):
            raise ValueError(f"{path}: not a netCDF file, it starts with {head!r}; check how it was written or copied")
    try:
        options = engine_options(engine)
        opened = xr.open_dataset(path, engine=engine, group=group, decode_timedelta=False, cache=False, **options)
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        if group is not None and re.search("group not found|no group found", str(error), re.IGNORECASE):
            raise ValueError(f"{path}: has no group {group!r}; get the file anew, or see what it holds") from error
        kind = "Zarr store" if engine == "zarr" else "netCDF file"
        raise ValueError(f"{path}: not a readable {kind}, damaged or truncated ({error})") from error
    if head[:3] == b"CDF":
        _check_classic_size(path, head[3])
    return opened


def _check_classic_size(path: Path, version: int) -> None:
    """Raise where a netCDF-3 file is too short for its header and variables: the library reads zeros past its end.

    Source: NetCDF Classic Format Specification (Unidata); values count as their types take, without padding.
    """
    word = 8 if version == 5 else 4
    offset = 4 if version == 1 else 8

    def text(name: str) -> int:
        return word + _padded(len(name.encode()))

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        promised = 4 + word + 2 * (4 + word) + 4 + word  # magic, records, three lists
        promised += sum(text(name) + word for name in file.dimensions)
        holders: list[Any] = [file, *file.variables.values()]
        for holder in holders:
            for name in holder.ncattrs():
                value = holder.getncattr(name)
                size = len(value.encode()) if isinstance(value, str) else np.asarray(value).nbytes
                promised += text(name) + 4 + word + _padded(size)
        for name, array in file.variables.items():
            promised += text(name) + word + array.ndim * word + 4 + word + 4 + word + offset
            promised += array.size * array.dtype.itemsize
    held = path.stat().st_size
    if held < promised:
        raise ValueError(f"{path}: truncated, {held} bytes where its variables take {promised}; copy it again")


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _choose(dataset: xr.Dataset, path: Path, variable: str | None) -> str:
    arrays = dataset.data_vars.items()
    numeric = [str(name) for name, array in arrays if array.ndim and array.dtype.kind in "iuf"]
    if variable is not None:
        if variable not in dataset.data_vars:
            raise ValueError(f"{path}: no variable {variable!r}; the file has {_listed(dataset, numeric)}")
        if variable not in numeric:
            raise ValueError(f"{path}: variable {variable!r} holds no array of numbers ({dataset[variable].dtype})")
        return variable
    found = [name for name in numeric if _band_dim(dataset[name]) is not None]
    found = [name for name in found if dataset[name].ndim > 1] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{path}: several variables have a band dimension ({', '.join(found)}); pass variable=")
    raise ValueError(
        f"{path}: no variable has a dimension that carries wavelengths (the root group has "
        f"{_listed(dataset, numeric)}); pass variable=, or add a wavelength coordinate to the file"
    )


def _with_places(dataset: xr.Dataset, cube: xr.DataArray) -> xr.DataArray:
    """The cube with latitude and longitude of every pixel, though the file does not say that they belong to it."""
    found = {}
    for name, array in dataset.data_vars.items():
        if name != cube.name and array.ndim == 2 and set(array.dims) <= set(cube.dims) and is_geographic(name, array):
            found[name] = array.variable
    return cube.assign_coords(found)


def _band_dim(array: xr.DataArray) -> str | None:
    try:
        return find_band_dim(array)
    except ValueError:
        return None


def _is_band_metadata(array: xr.DataArray) -> bool:
    name = array.name
    return array.ndim == 1 and (is_wavelength_name(name) or is_fwhm_name(name) or is_good_name(name))


def _with_grid_mapping(dataset: xr.Dataset, cube: xr.DataArray) -> xr.DataArray:
    declared = cube.attrs.pop("grid_mapping", None)
    name = "spatial_ref" if declared is None else declared.split()[0].rstrip(":")
    if name in dataset.variables:
        cube = cube.assign_coords({name: dataset[name].variable})
        cube.encoding["grid_mapping"] = name
    return cube


def _rename_metadata(cube: xr.DataArray, band_dim: str) -> xr.DataArray:
    for wanted, matches in (("fwhm", is_fwhm_name), ("good", is_good_name)):
        names = [name for name, array in cube.coords.items() if array.dims == (band_dim,) and matches(name)]
        if len(names) == 1:
            values = cube[names[0]].variable
            cube = cube.drop_vars(names).assign_coords({wanted: values})
    if "good" in cube.coords:
        cube = cube.assign_coords(good=(cube.good != 0).assign_attrs(long_name="band not listed as bad"))
    return cube


def _listed(dataset: xr.Dataset, names: list[str]) -> str:
    return ", ".join(f"{name} {tuple(map(str, dataset[name].dims))}" for name in names) or "no numeric variables"
