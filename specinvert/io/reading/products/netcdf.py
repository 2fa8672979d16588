"""Reads cubes from netCDF files and Zarr stores, with the grid mapping where rioxarray looks for it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import netCDF4
import numpy as np
import xarray as xr

from ....cubes import find_band_dim, is_fwhm_name, is_good_name, is_wavelength_name, length_unit
from ... import NETCDF_LOCK, is_geographic
from ..band_tags import declared_scale, is_scale_name
from ..convention import (
    STORED,
    Chunks,
    chunk_cube,
    file_variable,
    rename_chunks,
    stored_as,
    with_geolocation,
    without_fills,
)
from ..files import HDF5_MAGIC, clear_errors, first_bytes, is_zarr, require_whole

_MAGIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05", HDF5_MAGIC)
_NONE = "no numeric variables"
_SUFFIXES = frozenset({".nc", ".nc4", ".cdf", ".netcdf"})


def matches(path: Path, head: bytes) -> bool:
    """Whether the path is a netCDF file by its first bytes or its name, an HDF5 file, or a Zarr store."""
    return head.startswith(_MAGIC) or is_zarr(path) or (bool(head) and path.suffix.lower() in _SUFFIXES)


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open one variable of a netCDF file or Zarr store as a cube, its dimensions in the order of the file.

    Parameters
    ----------
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
    cube = _cleared(cube, source, path)
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


def open_group(path: Path, group: str | None = None, **options: Any) -> xr.Dataset:
    """Open one group of a netCDF file or Zarr store, decoded and unread; None for the root group.

    A Zarr store is read whether its metadata are consolidated or not. Scales by other names than CF's, such as
    `reflectance_scale_factor`, are applied to what is no vector. `options` are of `xarray.open_dataset`.

    Raises
    ------
    PermissionError : the file may not be read.
    ValueError : the file is damaged or of another kind, or has no such group.
    """
    engine: Literal["zarr", "netcdf4"] = "zarr" if path.is_dir() else "netcdf4"
    options |= {"engine": engine, "group": group, "decode_timedelta": False, "cache": False}
    head = b""
    if engine == "zarr":
        options["consolidated"] = False
    else:
        head = first_bytes(path, len(HDF5_MAGIC))
        if not head.startswith(_MAGIC):
            raise ValueError(f"{path}: not a netCDF file, it starts with {head!r}; check how it was written or copied")
    told = f"not a readable {'Zarr store' if engine == 'zarr' else 'netCDF file'}, damaged or truncated ({{}})"
    try:
        with clear_errors(path, told, OSError, RuntimeError, KeyError, ValueError):
            opened = xr.open_dataset(path, **options)
    except ValueError as error:
        if group is not None and re.search("group not found|no group found", str(error), re.IGNORECASE):
            raise ValueError(f"{path}: has no group {group!r}; get the file anew, or see what it holds") from error
        raise
    if head[:3] == b"CDF":
        _check_classic_size(path, head[3])
    return _with_scales(opened, path)


def choose_cube(
    data: xr.Dataset, cubes: Sequence[str], variable: str | None, preferred: Sequence[str], told: str, path: Path
) -> str:
    """The variable called so, else a preferred one, else the only one, of the `cubes` of a product.

    ValueError where there is none or several; `told` is where they are and over what, in words.
    """
    if variable is not None and variable not in cubes:
        raise ValueError(f"{path}: no cube {variable!r}; the cubes {told} are {', '.join(cubes) or 'none'}")
    if variable is not None:
        return variable
    chosen = [name for name in preferred if name in cubes][:1] or cubes
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        raise ValueError(f"{path}: several cubes ({', '.join(cubes)}); pass variable=")
    raise ValueError(f"{path}: no cube {told}, only {listed(data)}")


def swath_cube(raw: xr.DataArray, dim: str, sensor: str, chunks: Chunks, path: Path) -> xr.DataArray:
    """A variable of a product as a float cube with `wavelength` in place of its band dimension, without coordinates."""
    bare = raw.drop_vars(list(raw.coords)).rename({dim: "wavelength"})
    bare.encoding["preferred_chunks"] = rename_chunks(raw.encoding.get("preferred_chunks", {}), dim, "wavelength")
    cube = chunk_cube(bare, rename_chunks(chunks, dim, "wavelength"), whole="wavelength", path=str(path))
    cube = _cleared(cube, raw.encoding, path)
    cube.attrs = {"sensor": sensor} | ({"units": raw.attrs["units"]} if "units" in raw.attrs else {})
    cube.encoding = {"source": str(path), STORED: stored_as(raw)}
    return cube


def with_group_geolocation(
    cube: xr.DataArray, group: xr.Dataset, names: tuple[str, str], called: str, path: Path
) -> xr.DataArray:
    """The cube with the latitude and longitude of these names from the group that is called so."""
    missing = [name for name in names if name not in group]
    if missing:
        raise ValueError(f"{path}: group {called!r} lacks {' and '.join(missing)}; get the product anew")
    return with_geolocation(cube, group[names[0]], group[names[1]], path)


def _check_classic_size(path: Path, version: int) -> None:
    """Raise where a netCDF-3 file is too short for its header and variables: the library reads zeros past its end.

    Source: NetCDF Classic Format Specification (Unidata); values count as their types take, without padding.
    """
    word = 8 if version == 5 else 4
    offset = 4 if version == 1 else 8

    def text(name: str) -> int:
        return word + _padded(len(name.encode()))

    with NETCDF_LOCK, netCDF4.Dataset(path) as file:
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
    require_whole(path, promised, "its variables take")


def _padded(size: int) -> int:
    return -(-size // 4) * 4


def _with_scales(dataset: xr.Dataset, path: Path) -> xr.Dataset:
    """The Dataset with the scales applied, unread, that attributes such as `reflectance_scale_factor` declare."""
    for name, array in list(dataset.data_vars.items()):
        scale = declared_scale(array.attrs, str(path)) if array.ndim > 1 and array.dtype.kind in "iuf" else None
        if scale is not None and "scale_factor" not in array.encoding:
            dtype = np.result_type(array.dtype, np.float32)
            unread = file_variable(
                tuple(map(str, array.dims)), array.shape, dtype, partial(_times, array.variable, dtype.type(scale))
            )
            unread.attrs = {key: value for key, value in array.attrs.items() if not is_scale_name(key)}
            unread.encoding = {"dtype": array.dtype, **array.encoding, "scale_factor": scale}
            lazy = unread if array.chunks is None else unread.chunk(dict(array.chunksizes))
            dataset = dataset.assign({name: lazy})
    return dataset


def clear_spectra(dataset: xr.Dataset, path: Path) -> xr.Dataset:
    """The Dataset whose arrays with a band dimension have NaN for fills that the file does not declare."""
    spectra = {name: array for name, array in dataset.data_vars.items() if array.ndim > 1 and array.dtype.kind == "f"}
    spectra = {name: array for name, array in spectra.items() if _band_dim(array) is not None}
    return dataset.assign({name: _cleared(array, array.encoding, path) for name, array in spectra.items()})


def _cleared(cube: xr.DataArray, encoding: Mapping[str, Any], path: Path) -> xr.DataArray:
    """A cube opened by xarray as floats, float32 where integers are stored, without fills; `encoding` as opened."""
    stored = np.dtype(encoding.get("dtype", cube.dtype))
    scale, offset = float(encoding.get("scale_factor", 1.0)), float(encoding.get("add_offset", 0.0))
    declared = [encoding[key] for key in ("_FillValue", "missing_value") if np.ndim(encoding.get(key, [])) == 0]
    ends = cube.attrs.get("valid_range", (cube.attrs.get("valid_min"), cube.attrs.get("valid_max")))
    valid = None
    if len(ends) == 2 and None not in ends:
        packed = np.asarray(ends[0]).dtype.kind == stored.kind  # CF: they are of the type of the stored numbers, or not
        low, high = (float(end) * scale + offset if packed else float(end) for end in ends)
        valid = (low, high) if low < high else None
    cube = without_fills(cube, path, stored, scale, offset, declared, valid)
    return cube.astype(np.float32) if stored.kind in "iu" else cube


def _times(variable: xr.Variable, scale: np.generic, window: tuple[slice, ...]) -> np.ndarray:
    return np.asarray(variable[window].values * scale)


def _choose(dataset: xr.Dataset, path: Path, variable: str | None) -> str:
    arrays = dataset.data_vars.items()
    numeric = [str(name) for name, array in arrays if array.ndim and array.dtype.kind in "iuf"]
    if variable is not None:
        if variable not in dataset.data_vars:
            raise ValueError(f"{path}: no variable {variable!r}; the file has {listed(dataset, numeric, _NONE)}")
        if variable not in numeric:
            raise ValueError(f"{path}: variable {variable!r} holds no array of numbers ({dataset[variable].dtype})")
        return variable
    spectra = [name for name in numeric if _band_dim(dataset[name]) is not None]
    spectra = [name for name in spectra if dataset[name].ndim > 1] or spectra
    if len(spectra) == 1:
        return spectra[0]
    if spectra:
        raise ValueError(f"{path}: several variables have a band dimension ({', '.join(spectra)}); pass variable=")
    raise ValueError(
        f"{path}: no variable has a dimension that carries wavelengths (the root group has "
        f"{listed(dataset, numeric, _NONE)}); pass variable=, or add a wavelength coordinate to the file"
    )


def _with_places(dataset: xr.Dataset, cube: xr.DataArray) -> xr.DataArray:
    """The cube with latitude and longitude of every pixel, though the file does not say that they belong to it."""
    places = {}
    for name, array in dataset.data_vars.items():
        if name != cube.name and array.ndim == 2 and set(array.dims) <= set(cube.dims) and is_geographic(name, array):
            places[name] = array.variable
    return cube.assign_coords(places)


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


def listed(dataset: xr.Dataset, names: Iterable[Hashable] | None = None, none: str = "nothing") -> str:
    """Variables with their dimensions, those of these names or all; `none` where there are none."""
    chosen = dataset.variables if names is None else names
    return ", ".join(f"{name} {tuple(map(str, dataset[name].dims))}" for name in chosen) or none
