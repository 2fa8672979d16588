"""Reads EMIT products in the geometry of the swath: L2A reflectance, and what has the same layout (L1B radiance...).

The layout is that of the netCDF files of the EMIT Level 2A Product User Guide: cubes (downtrack, crosstrack, bands)
in the root group, band metadata in `sensor_band_parameters`, and the place of each pixel in `location` beside the
lookup table that resamples the swath to a map, which :func:`orthorectify` applies.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine
from dask.array.core import normalize_chunks

from ....cubes import Lookup, is_fwhm_name, is_good_name, is_wavelength_name, resample_swath
from ..convention import Chunks, Data, georeferenced, with_bands, with_pixel_coordinate
from ..files import claims, text
from .netcdf import choose_cube, listed, open_group, swath_cube, with_group_geolocation

_BANDS, _LOCATION = "sensor_band_parameters", "location"
_SWATH = ("downtrack", "crosstrack")
_NAME = "values to orthorectify"
_HIDDEN_FILL = np.float32(-0.01)
"""Stands for no data in the bands of deep water vapour absorption, which are marked not good."""


def matches(path: Path, head: bytes) -> bool:
    """Whether the file says that it is of EMIT and has the swath's dimensions; by its name where it is damaged."""
    return claims(path, head, path.name.upper().startswith("EMIT_L"), _is_emit)


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open a cube as (downtrack, crosstrack, wavelength), with `lat`, `lon` and `elev` of its pixels.

    -9999 is NaN, and so is -0.01 in bands that are marked not good, where it stands for no data too.

    Parameters
    ----------
    chunks : as for `open_cube`; a mapping may call the band dimension "bands" or "wavelength".
    variable : the cube, such as "reflectance_uncertainty"; None for the only one.

    Raises
    ------
    ValueError : the file is damaged or lacks a group or list of the layout, lists contradict the number of bands, or
        `variable` is missing or ambiguous.
    """
    root = open_group(path)
    cubes = [str(name) for name, array in root.data_vars.items() if array.dims == (*_SWATH, "bands")]
    told = "(downtrack, crosstrack, bands) in the root group"
    name = choose_cube(root, cubes, variable, ("reflectance",), told, path)
    parameters = open_group(path, _BANDS)
    wavelength = _band_list(parameters, is_wavelength_name)
    if wavelength is None:
        raise ValueError(f"{path}: group {_BANDS!r} lists no wavelengths, only {listed(parameters)}")
    fwhm, good = _band_list(parameters, is_fwhm_name), _band_list(parameters, is_good_name)
    bare = swath_cube(root[name], "bands", "EMIT", chunks, path)
    cube = with_bands(
        *(bare, wavelength.values, wavelength.attrs.get("units"), path),
        fwhm=None if fwhm is None else fwhm.values,
        good=None if good is None else good.values,
    )
    if "good" in cube.coords and not cube.good.values.all():
        cube = cube.where((cube != _HIDDEN_FILL) | cube.good)
    cube.attrs, cube.encoding = bare.attrs, bare.encoding
    location = open_group(path, _LOCATION)
    cube = with_group_geolocation(cube, location, ("lat", "lon"), _LOCATION, path)
    if "elev" not in location:
        return cube
    attrs = {"long_name": "surface elevation", "units": location["elev"].attrs.get("units", "m")}
    return with_pixel_coordinate(cube, "elev", location["elev"], attrs, path)


def read_lookup(path: str | os.PathLike[str]) -> Lookup:
    """Read the table that says which pixel of the swath each pixel of the map takes, from an EMIT product.

    Raises
    ------
    FileNotFoundError, PermissionError : the file is missing or may not be read.
    ValueError : the file is damaged, or has no lookup table, geotransform or CRS.

    Examples
    --------
    >>> transform, table = (10.0, 0.5, 0.0, 50.0, 0.0, -0.5), (("ortho_y", "ortho_x"), [[1, 2, 0]])
    >>> xr.Dataset(attrs={"geotransform": transform, "spatial_ref": "EPSG:4326"}).to_netcdf("scene.nc")
    >>> xr.Dataset({"glt_x": table, "glt_y": table}).to_netcdf("scene.nc", mode="a", group="location")
    >>> read_lookup("scene.nc").shape
    (1, 3)
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    root, location = open_group(path), open_group(path, _LOCATION)
    missing = [name for name in ("glt_x", "glt_y") if name not in location]
    missing += [name for name in ("geotransform", "spatial_ref") if name not in root.attrs]
    if missing:
        raise ValueError(f"{path}: has no lookup table to a map, {', '.join(missing)} missing; get the product anew")
    glt_x, glt_y = (np.nan_to_num(location[name].values).astype(np.int32) for name in ("glt_x", "glt_y"))
    transform = tuple(float(value) for value in np.ravel(root.attrs["geotransform"]))
    swath = (root.sizes[_SWATH[0]], root.sizes[_SWATH[1]]) if set(_SWATH) <= set(root.sizes) else None
    try:
        return Lookup(glt_x, glt_y, transform, str(root.attrs["spatial_ref"]), _SWATH, swath)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def orthorectify(maps: Data, lookup: Lookup | str | os.PathLike[str]) -> Data:
    """Resample maps, or a cube, from the geometry of a swath to that of a map: nearest neighbour, lazy where they are.

    Inverting the swath and resampling the maps costs less than the other way round, and inverts each spectrum once.
    Pixels of the map that have none of the swath are NaN, and have the nodata bit in quality flags. Memory holds
    a few blocks, and for each the smallest rectangle of the swath that holds its pixels.

    Parameters
    ----------
    maps : Dataset or DataArray over both dimensions of the swath; all of it, not a part.
    lookup : the EMIT file that the cube came from, or a :class:`specinvert.Lookup`.

    Returns
    -------
    The same kind of object over (y, x), with `x`, `y`, CRS and transform where `maps.rio` and
    :func:`specinvert.save_maps` find them. Attributes and data types are those of `maps`.

    Raises
    ------
    TypeError : `maps` is neither Dataset nor DataArray, or `lookup` neither a Lookup nor a path.
    FileNotFoundError, PermissionError : the file is missing or may not be read.
    ValueError : the file has no lookup table; the lookup is of another swath or points outside; or `maps` lacks
        the swath's dimensions or has flags without a bit for no data.

    Examples
    --------
    >>> import numpy as np
    >>> maps = xr.Dataset({"lai": (("downtrack", "crosstrack"), [[1.0, 2.0], [3.0, 4.0]])})
    >>> lookup = Lookup(np.array([[0, 1, 2]]), np.array([[0, 2, 1]]), (10.0, 0.5, 0.0, 50.0, 0.0, -0.5), "EPSG:4326")
    >>> orthorectify(maps, lookup)["lai"].values.tolist()
    [[nan, 3.0, 2.0]]
    """
    if not isinstance(maps, xr.DataArray | xr.Dataset):
        raise TypeError(f"maps must be a Dataset or DataArray, not {type(maps).__name__}")
    if not isinstance(lookup, Lookup | str | os.PathLike):
        raise TypeError(f"lookup must be a Lookup or the path of a file with one, not {type(lookup).__name__}")
    table = lookup if isinstance(lookup, Lookup) else read_lookup(lookup)
    if isinstance(maps, xr.DataArray):
        made: Data = resample_swath(maps.to_dataset(name=_NAME), table)[_NAME].rename(maps.name)
    else:
        made = resample_swath(maps, table)
    return georeferenced(made, table.crs, Affine.from_gdal(*table.transform), "the lookup")


def in_blocks(maps: xr.Dataset, dims: tuple[str, str]) -> xr.Dataset:
    """The maps with variables over both dimensions of a swath in one grid of dask blocks, lazy ones as they are.

    Blocks of all these variables together have dask's `array.chunk-size`; further dimensions stay whole.
    """
    held = [name for name, array in maps.data_vars.items() if set(dims) <= set(array.dims) and array.chunks is None]
    if not held:
        return maps
    shape = tuple(maps.sizes[dim] for dim in dims)
    pixel = sum(maps[name].nbytes for name in held) // max(prod(shape), 1)
    lengths = normalize_chunks("auto", shape=shape, dtype=np.dtype(f"V{max(pixel, 1)}"))
    return maps.assign({name: maps[name].chunk(dict(zip(dims, lengths, strict=True))) for name in held})


def _is_emit(file: Any) -> bool:
    said = " ".join(text(file.attrs.get(key, "")) for key in ("instrument", "sensor", "title"))
    return "EMIT" in said.split() and (_SWATH[0] in file or _BANDS in file or _LOCATION in file)


def _band_list(parameters: xr.Dataset, wanted: Any) -> xr.DataArray | None:
    lists = [array for name, array in parameters.variables.items() if wanted(name) and array.ndim == 1]
    return xr.DataArray(lists[0]).load() if lists else None
