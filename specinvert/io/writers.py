"""`save_maps`: maps to netCDF or GeoTIFF, whole or not at all, with no encoding inherited from the input."""

from __future__ import annotations

import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import numpy as np
import rasterio
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from affine import Affine
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window
from rioxarray.exceptions import MissingSpatialDimensionError

from .atomic import atomic_path, check_target
from .blocks import ProgressCallback, block_layout, compute_blocks, side_folder

_NETCDF = frozenset({".nc", ".nc4"})
_ZARR = frozenset({".zarr"})
_GEOTIFF = frozenset({".tif", ".tiff"})
_FLAG = "quality_flag"
_PIXEL_TOLERANCE = 0.1
_PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "grid_mapping")


def save_maps(
    maps: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: ProgressCallback | None = None,
) -> None:
    """Write maps to a netCDF (.nc, .nc4), Zarr (.zarr) or GeoTIFF (.tif, .tiff) file.

    Lazy maps are computed block by block, each block once for all variables, into a hidden folder beside the file
    (:mod:`specinvert.io.blocks`), and the file is assembled from it, in memory bounded by a few blocks. The file
    appears under its name only when complete; the folder stays behind when a run is stopped, for ``resume``.

    netCDF holds every variable: floats compressed with NaN as fill value, integers without a fill value,
    coordinates and CRS. GeoTIFF holds the maps as bands named after the variables, NaN for no data, in the
    smallest float type that holds them all; the variable `quality_flag` goes to `<name>_flag.tif` beside it.

    Parameters
    ----------
    maps : Dataset; for GeoTIFF, every variable two-dimensional and numeric.
    path : the file to write; an existing one is replaced.
    resume : go on with the blocks that a stopped run of the same maps left behind.
    progress : called after each block with a :class:`specinvert.io.blocks.BlockProgress`.

    Raises
    ------
    ValueError : another suffix, no variables, for GeoTIFF a variable that is no 2-D map or no number, or blocks of
        other maps to resume from.
    TypeError : `maps` is not a Dataset.
    FileNotFoundError, PermissionError : the directory is missing or cannot be written to.
    """
    if not isinstance(maps, xr.Dataset):
        raise TypeError(f"maps must be an xarray.Dataset, not {type(maps).__name__}; use array.to_dataset(name=...)")
    suffix = Path(path).suffix.lower()
    if suffix not in _NETCDF | _ZARR | _GEOTIFF:
        accepted = ", ".join(sorted(_NETCDF | _ZARR | _GEOTIFF))
        raise ValueError(f"{os.fspath(path)}: cannot write {suffix or 'a name without suffix'}; use one of {accepted}")
    if not maps.data_vars:
        raise ValueError(f"{os.fspath(path)}: the Dataset has no variables to write")
    if suffix in _GEOTIFF:
        _two_dimensional(maps, Path(path))
    final = check_target(path)
    folder = side_folder(final)
    blockwise = block_layout(maps) is not None
    if blockwise:
        maps = compute_blocks(maps, folder, resume, progress)
    with dask.config.set(scheduler="synchronous"):
        if suffix in _NETCDF:
            _save_netcdf(maps, final)
        elif suffix in _ZARR:
            _save_zarr(maps, final)
        else:
            _save_geotiff(maps, final)
    if blockwise:
        shutil.rmtree(folder)


def _save_netcdf(maps: xr.Dataset, path: Path) -> None:
    with atomic_path(path) as temporary:
        _encoded(maps, _netcdf_encoding).to_netcdf(temporary, engine="netcdf4", format="NETCDF4")


def _save_zarr(maps: xr.Dataset, path: Path) -> None:
    encoded = _encoded(maps, _zarr_encoding)
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex[:12]}{path.suffix}")
    replaced = temporary.with_suffix(".replaced")
    try:
        with warnings.catch_warnings():
            # consolidated metadata are an extension that readers without it ignore
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            encoded.to_zarr(temporary, mode="w-", consolidated=True, safe_chunks=False)
        if path.exists():
            path.rename(replaced)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _encoded(maps: xr.Dataset, encoding: Callable[[xr.DataArray, bool], dict[str, Any]]) -> xr.Dataset:
    """The maps with encodings of our own alone, and the grid mapping that they had."""
    source = _refresh_transform(maps)
    encoded = source.copy()
    encoded.encoding = {}
    for name in encoded.variables:
        original, array = source[name], encoded[name]
        array.attrs = {key: value for key, value in original.attrs.items() if key not in _PACKING}
        array.encoding = encoding(original, name in source.coords)
        mapping = _grid_mapping(source, original)
        if mapping is not None:
            array.encoding["grid_mapping"] = mapping
    return encoded


def _zarr_encoding(array: xr.DataArray, is_coordinate: bool) -> dict[str, Any]:
    encoding: dict[str, Any] = {}
    if array.chunks is not None:
        encoding["chunks"] = tuple(sizes[0] for sizes in array.chunks)
    if array.dtype.kind == "f" and not is_coordinate:
        encoding["_FillValue"] = array.dtype.type(np.nan)
    elif array.dtype.kind in "fiubmM":
        encoding["_FillValue"] = None
    return encoding


def _netcdf_encoding(array: xr.DataArray, is_coordinate: bool) -> dict[str, Any]:
    encoding: dict[str, Any] = {}
    if array.ndim and array.dtype.kind in "fiub":
        encoding |= {"zlib": True, "complevel": 1}
    if array.chunks is not None:
        encoding["chunksizes"] = tuple(max(sizes) for sizes in array.chunks)
    if array.dtype.kind == "f" and not is_coordinate:
        encoding["_FillValue"] = array.dtype.type(np.nan)
    elif array.dtype.kind in "fiubmM":
        encoding["_FillValue"] = None
    return encoding


def _grid_mapping(maps: xr.Dataset, array: xr.DataArray) -> str | None:
    if array.name in maps.coords:
        return None
    places = [array.encoding, array.attrs]
    dims = _spatial_dims(maps)
    if dims is not None and set(dims) <= set(array.dims):
        places += [maps.encoding, maps.attrs, {"grid_mapping": "spatial_ref"}]
    name = next((place["grid_mapping"] for place in places if "grid_mapping" in place), None)
    return name if name in maps.coords else None


def _spatial_dims(maps: xr.Dataset) -> tuple[str, str] | None:
    try:
        return str(maps.rio.y_dim), str(maps.rio.x_dim)
    except MissingSpatialDimensionError:
        return None


def _refresh_transform(maps: xr.Dataset) -> xr.Dataset:
    """Rewrite the transform stored with the CRS where the coordinates, sliced since, disagree with it."""
    name = _georeference(maps)
    if name is None:
        return maps
    transform = _transform(maps)
    if transform == _stored_transform(maps):
        return maps
    refreshed: xr.Dataset = maps.rio.write_transform(transform, grid_mapping_name=name)
    return refreshed


def _transform(maps: xr.Dataset) -> Affine:
    """Return the stored transform where it agrees with the coordinates, else the one of the coordinates."""
    stored, dims = _stored_transform(maps), _spatial_dims(maps)
    if dims is None or not set(dims) <= set(maps.coords):
        return stored or Affine.identity()
    if stored is not None and (stored.b or stored.d):
        return stored
    y_dim, x_dim = dims
    if stored is None and 1 in (maps.sizes[y_dim], maps.sizes[x_dim]):
        raise ValueError(
            f"maps of {maps.sizes[y_dim]} x {maps.sizes[x_dim]} pixels do not tell the size of a pixel; "
            f"set it with maps.rio.write_transform(...), or drop the coordinates {y_dim!r} and {x_dim!r}"
        )
    fresh: Affine = maps.rio.transform(recalc=True)
    if stored is None:
        return fresh
    far_x, far_y = maps.sizes[x_dim], maps.sizes[y_dim]
    start = max(abs(fresh.c - stored.c) / abs(stored.a), abs(fresh.f - stored.f) / abs(stored.e))
    scale = max(abs(fresh.a / stored.a - 1) * far_x, abs(fresh.e / stored.e - 1) * far_y)
    return stored if start + scale < _PIXEL_TOLERANCE else fresh


def _stored_transform(maps: xr.Dataset) -> Affine | None:
    name = _georeference(maps)
    return None if name is None else Affine.from_gdal(*map(float, maps[name].attrs["GeoTransform"].split()))


def _georeference(maps: xr.Dataset) -> str | None:
    names = (_grid_mapping(maps, array) for array in maps.data_vars.values())
    return next((name for name in names if name and "GeoTransform" in maps[name].attrs), None)


def _save_geotiff(maps: xr.Dataset, path: Path) -> None:
    dims = _two_dimensional(maps, path)
    names = [str(name) for name in maps.data_vars if name != _FLAG]
    if not names:
        raise ValueError(f"{path}: the Dataset has no maps beside {_FLAG!r}; save it as .nc")
    with ExitStack() as stack:
        temporary = stack.enter_context(atomic_path(path))
        flag_path = path.with_name(f"{path.stem}_flag{path.suffix}")
        flag_temporary = stack.enter_context(atomic_path(flag_path)) if _FLAG in maps else None
        computed = maps.transpose(*dims, ...)
        dtype = np.result_type(np.float32, *(computed[name].dtype for name in names))
        profile = {
            "driver": "GTiff",
            "height": computed.sizes[dims[0]],
            "width": computed.sizes[dims[1]],
            "crs": computed.rio.crs,
            "transform": _transform(computed),
            "compress": "deflate",
            "tiled": True,
            "bigtiff": "if_safer",
        }
        _write_bands(temporary, [computed[name] for name in names], {**profile, "dtype": dtype, "nodata": np.nan})
        if flag_temporary is not None:
            flag = computed[_FLAG]
            _write_bands(flag_temporary, [flag], {**profile, "dtype": flag.dtype})


def _two_dimensional(maps: xr.Dataset, path: Path) -> tuple[str, str]:
    dims = _spatial_dims(maps)
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


def _write_bands(path: Path, bands: list[xr.DataArray], profile: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", count=len(bands), **profile) as file:
            for index, band in enumerate(bands, start=1):
                for window, values in _windows(band):
                    file.write(values.astype(profile["dtype"], copy=False), index, window=window)
                file.set_band_description(index, str(band.name))
                if "units" in band.attrs:
                    file.set_band_unit(index, str(band.attrs["units"]))


def _windows(band: xr.DataArray) -> Iterator[tuple[Window, np.ndarray]]:
    """A 2-D map block by block, each with its place."""
    chunks = band.chunks or tuple((size,) for size in band.shape)
    ends = [np.cumsum([0, *sizes]) for sizes in chunks]
    for top, bottom in pairwise(ends[0]):
        for left, right in pairwise(ends[1]):
            yield Window(left, top, right - left, bottom - top), band[top:bottom, left:right].values
