"""`save_maps`: maps to netCDF or GeoTIFF, whole or not at all, with no encoding inherited from the input."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import rasterio
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
import zarr
from affine import Affine
from dask.array.core import slices_from_chunks
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window
from rioxarray.exceptions import MissingSpatialDimensionError
from xarray.backends import NetCDF4DataStore
from xarray.backends.common import ArrayWriter

from .atomic import check_target
from .blocks import ProgressCallback, Write, block_layout, kept_blocks, side_folder

_NETCDF = frozenset({".nc", ".nc4"})
_ZARR = frozenset({".zarr"})
_GEOTIFF = frozenset({".tif", ".tiff"})
_FLAG = "quality_flag"
_OpenFile = Callable[[xr.Dataset, Path], AbstractContextManager[Write]]
_PIXEL_TOLERANCE = 0.1
_PACKING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "grid_mapping")


def save_maps(
    maps: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: ProgressCallback | None = None,
    compression: int = 0,
) -> None:
    """Write maps to a netCDF (.nc, .nc4), Zarr (.zarr) or GeoTIFF (.tif, .tiff) file.

    Lazy maps are computed block by block, each block once for all variables, and kept in a hidden folder beside the
    file (:mod:`specinvert.io.blocks`). The file grows there too as blocks arrive, in memory bounded by a few of them,
    and appears under its name only when complete; the folder stays behind when a run is stopped, for ``resume``.

    netCDF holds every variable: floats with NaN as fill value, integers compressed without a fill value, coordinates
    and CRS. GeoTIFF holds the maps as bands named after the variables, NaN for no data, in the
    smallest float type that holds them all; the variable `quality_flag` goes to `<name>_flag.tif` beside it.

    Parameters
    ----------
    maps : Dataset; for GeoTIFF, every variable two-dimensional and numeric.
    path : the file to write; an existing one is replaced.
    resume : go on with the blocks that a stopped run of the same maps left behind.
    progress : called after each block with a :class:`specinvert.io.blocks.BlockProgress`.
    compression : deflate level of float variables in netCDF, 0 (none) to 9. Level 1 makes noisy maps a fifth smaller
        and the whole inversion a tenth longer; maps with much nodata shrink more.

    Raises
    ------
    ValueError : another suffix, a compression that is no level, no variables, for GeoTIFF a variable that is no 2-D
        map or no number, or blocks of other maps to resume from.
    TypeError : `maps` is not a Dataset.
    FileNotFoundError, PermissionError : the directory is missing or cannot be written to.
    """
    if not isinstance(maps, xr.Dataset):
        raise TypeError(f"maps must be an xarray.Dataset, not {type(maps).__name__}; use array.to_dataset(name=...)")
    if compression not in range(10):
        raise ValueError(f"compression={compression!r} is no level of deflate: use 0 (none) to 9 (smallest)")
    suffix = Path(path).suffix.lower()
    if suffix not in _NETCDF | _ZARR | _GEOTIFF:
        accepted = ", ".join(sorted(_NETCDF | _ZARR | _GEOTIFF))
        raise ValueError(f"{os.fspath(path)}: cannot write {suffix or 'a name without suffix'}; use one of {accepted}")
    if not maps.data_vars:
        raise ValueError(f"{os.fspath(path)}: the Dataset has no variables to write")
    final = Path(path)
    if suffix in _GEOTIFF:
        maps = _raster_maps(maps, final)
    final = check_target(final)
    maps = _numbers_lazy(maps)
    made = [final.name]
    netcdf_file = partial(_netcdf_file, compression=compression)
    open_file = netcdf_file if suffix in _NETCDF else _zarr_store if suffix in _ZARR else _geotiff_files
    if suffix in _GEOTIFF and _FLAG in maps:
        made.append(check_target(final.with_name(_flag_name(final))).name)
    if block_layout(maps) is not None:
        with kept_blocks(maps, side_folder(final), resume, progress) as run:
            with _file(open_file, maps, run.folder / final.name, made) as write:
                _write_lazy(maps, write, leave=set(run.lazy))
                run.compute(write)
            _publish(run.folder, final.parent, made)
    else:
        with tempfile.TemporaryDirectory(prefix=f".{final.stem}-", dir=final.parent) as folder:
            with open_file(maps, Path(folder) / final.name) as write:
                _write_lazy(maps, write, leave=set())
            _publish(Path(folder), final.parent, made)


def _numbers_lazy(maps: xr.Dataset) -> xr.Dataset:
    """The maps with lazy variables that a file encodes, such as dates and text, in memory."""
    maps = maps.copy()
    for variable in maps.variables.values():
        if variable.chunks is not None and variable.dtype.kind not in "biuf":
            variable.load()
    return maps


def _write_lazy(maps: xr.Dataset, write: Write, leave: set[str]) -> None:
    """Write lazy variables that share no grid of blocks, each block by block."""
    for name, variable in maps.variables.items():
        if variable.chunks is not None and name not in leave:
            for place in slices_from_chunks(variable.chunks):
                write(str(name), place, variable[place].values)


@contextmanager
def _file(open_file: _OpenFile, maps: xr.Dataset, path: Path, made: list[str]) -> Iterator[Write]:
    """A new file in a folder that outlives a failure; the file does not."""
    remains = [path.with_name(name) for name in made]
    for remain in remains:
        _remove(remain)
    try:
        with open_file(maps, path) as write:
            yield write
    except BaseException:
        for remain in remains:
            _remove(remain)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _publish(folder: Path, target: Path, names: list[str]) -> None:
    """Give finished files their final place, the first one last; what was there goes."""
    for name in reversed(names):
        if (target / name).is_dir():
            (target / name).rename(folder / f"{name}.replaced")
        os.replace(folder / name, target / name)


@contextmanager
def _netcdf_file(maps: xr.Dataset, path: Path, compression: int) -> Iterator[Write]:
    """A netCDF file of all that is in memory, and how to write the lazy variables; guarded by xarray's locks."""
    with dask.config.set(scheduler="threads"):  # or xarray takes a lock from the cluster
        store = NetCDF4DataStore.open(path, mode="w", format="NETCDF4")  # type: ignore[no-untyped-call]
    try:
        writer = ArrayWriter()  # type: ignore[no-untyped-call]
        _encoded(maps, partial(_netcdf_encoding, compression)).dump_to_store(store, writer=writer)
        targets = {target.variable_name: target for target in writer.targets}
        for target in targets.values():
            if target.shape:
                _cache_two_chunks(target.get_array())
        yield lambda name, place, values: targets[name].__setitem__(place, values)
    finally:
        store.close()


def _cache_two_chunks(variable: Any) -> None:
    """Cache little, because blocks are written once; the library would hold 64 MB a variable."""
    chunk = int(np.prod(variable.chunking(), dtype=np.int64)) * variable.dtype.itemsize
    variable.set_var_chunk_cache(size=2 * chunk, preemption=1.0)


@contextmanager
def _zarr_store(maps: xr.Dataset, path: Path) -> Iterator[Write]:
    """A Zarr store of all that is in memory, and how to write the lazy variables."""
    with warnings.catch_warnings():
        # consolidated metadata are an extension that readers without it ignore
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        encoded = _encoded(maps, _zarr_encoding)
        encoded.to_zarr(path, mode="w-", consolidated=True, safe_chunks=False, compute=False)
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    arrays: dict[Any, Any] = {
        name: group[str(name)] for name, variable in maps.variables.items() if variable.chunks is not None
    }
    yield lambda name, place, values: arrays[name].__setitem__(place, values)


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


def _netcdf_encoding(compression: int, array: xr.DataArray, is_coordinate: bool) -> dict[str, Any]:
    encoding: dict[str, Any] = {}
    level = compression if array.dtype.kind == "f" and not is_coordinate else max(1, compression)
    if array.ndim and array.dtype.kind in "fiub" and level:
        encoding |= {"zlib": True, "complevel": level}
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


def _flag_name(path: Path) -> str:
    return f"{path.stem}_flag{path.suffix}"


def _raster_maps(maps: xr.Dataset, path: Path) -> xr.Dataset:
    """The maps (y, x) with what a GeoTIFF holds of their coordinates."""
    dims = _two_dimensional(maps, path)
    if set(maps.data_vars) == {_FLAG}:
        raise ValueError(f"{path}: the Dataset has no maps beside {_FLAG!r}; save it as .nc")
    lazy = [name for name, coordinate in maps.coords.items() if coordinate.chunks is not None]
    return maps.drop_vars(lazy).transpose(*dims, ...)


@contextmanager
def _geotiff_files(maps: xr.Dataset, path: Path) -> Iterator[Write]:
    """A GeoTIFF file of the maps and one of their flag, in-memory maps written, and how to write the lazy ones."""
    y_dim, x_dim = _two_dimensional(maps, path)
    names = [str(name) for name in maps.data_vars if name != _FLAG]
    profile = {
        "driver": "GTiff",
        "height": maps.sizes[y_dim],
        "width": maps.sizes[x_dim],
        "crs": maps.rio.crs,
        "transform": _transform(maps),
        "compress": "deflate",
        "tiled": True,
        "bigtiff": "if_safer",
    }
    dtype = np.result_type(np.float32, *(maps[name].dtype for name in names))
    with ExitStack() as stack:
        bands = _bands(stack, path, [maps[name] for name in names], {**profile, "dtype": dtype, "nodata": np.nan})
        if _FLAG in maps:
            flag = maps[_FLAG]
            bands |= _bands(stack, path.with_name(_flag_name(path)), [flag], {**profile, "dtype": flag.dtype})

        def write(name: str, place: tuple[slice, ...], values: np.ndarray) -> None:
            file, index = bands[name]
            rows, columns = place
            window = Window.from_slices(rows, columns, height=file.height, width=file.width)
            file.write(values.astype(file.dtypes[0], copy=False), index, window=window)

        for name, array in maps.data_vars.items():
            if array.chunks is None:
                write(str(name), (slice(None), slice(None)), array.values)
        yield write


def _bands(
    stack: ExitStack, path: Path, maps: list[xr.DataArray], profile: dict[str, Any]
) -> dict[str, tuple[Any, int]]:
    """A new file, open as long as the stack, of bands named after maps; where each map is to go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        file = stack.enter_context(rasterio.open(path, "w", count=len(maps), **profile))
    for index, array in enumerate(maps, start=1):
        file.set_band_description(index, str(array.name))
        if "units" in array.attrs:
            file.set_band_unit(index, str(array.attrs["units"]))
    return {str(array.name): (file, index) for index, array in enumerate(maps, start=1)}


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
