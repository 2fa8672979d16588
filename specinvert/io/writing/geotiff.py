"""Maps as cloud-optimised GeoTIFF: a plain tiled file that takes blocks in any order, then one copy of it in order."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.shutil
import xarray as xr
from rasterio.errors import NotGeoreferencedWarning
from rasterio.windows import Window

from .. import is_geographic, spatial_dims, transform_of
from .blocks import Write

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
_NO_TAGS = frozenset(
    {"Conventions", "units", "_FillValue", "missing_value", "scale_factor", "add_offset", "grid_mapping", "coordinates"}
)


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
    dtype = np.result_type(np.float32, *(maps[name].dtype for name in names))
    wanted = {path: (names, {**profile, "dtype": dtype, "nodata": np.nan}, "average")}
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
                    write(str(name), (slice(None), slice(None)), array.values)
            yield write
        for final, (_, _, resampling) in wanted.items():
            with rasterio.Env(GDAL_CACHEMAX=_CACHE_BYTES):
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
