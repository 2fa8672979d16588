"""Reads EMIT products in the geometry of the swath: L2A reflectance, and what has the same layout (L1B radiance...).

The layout is that of the netCDF files of the EMIT Level 2A Product User Guide: cubes (downtrack, crosstrack, bands)
in the root group, band metadata in `sensor_band_parameters`, and the place of each pixel in `location` beside the
lookup table that resamples the swath to a map, which :func:`specinvert.orthorectify` applies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ....cubes import Lookup, is_fwhm_name, is_good_name, is_wavelength_name
from ..convention import with_bands, with_pixel_coordinate
from ..files import claims, text
from ..lazy import Chunks
from .netcdf import choose_cube, listed, open_group, swath_cube, with_group_geolocation

_BANDS, _LOCATION = "sensor_band_parameters", "location"
_SWATH = ("downtrack", "crosstrack")
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


def _is_emit(file: Any) -> bool:
    said = " ".join(text(file.attrs.get(key, "")) for key in ("instrument", "sensor", "title"))
    return "EMIT" in said.split() and (_SWATH[0] in file or _BANDS in file or _LOCATION in file)


def _band_list(parameters: xr.Dataset, wanted: Any) -> xr.DataArray | None:
    lists = [array for name, array in parameters.variables.items() if wanted(name) and array.ndim == 1]
    return xr.DataArray(lists[0]).load() if lists else None
