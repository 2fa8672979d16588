"""Reads PACE OCI Level 2 netCDF files in the geometry of the swath: surface and remote-sensing reflectance.

The layout is that of NASA's ocean colour Level 2 files: cubes (number_of_lines, pixels_per_line, wavelength_3d) in the
group `geophysical_data`, wavelengths in `sensor_band_parameters`, the place of each pixel in `navigation_data`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ....cubes import is_fwhm_name
from ..convention import Chunks, with_bands, with_pixel_coordinate
from ..files import claims, text
from .netcdf import choose_cube, open_group, swath_cube, with_group_geolocation

_DATA, _BANDS, _NAVIGATION = "geophysical_data", "sensor_band_parameters", "navigation_data"
_BAND_DIM = "wavelength_3d"
_FLAGS = "l2_flags"
_PREFERRED = ("rhos", "Rrs")


def matches(path: Path, head: bytes) -> bool:
    """Whether the file is a Level 2 file of OCI; by its name where it is damaged."""
    return claims(path, head, path.name.upper().startswith("PACE_OCI"), _is_oci)


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open a cube as (number_of_lines, pixels_per_line, wavelength), with `lat`, `lon` and `l2_flags` of its pixels.

    Scale and offset are applied, fills are NaN; pixels that `l2_flags` warn of keep their values.

    Parameters
    ----------
    chunks : as for `open_cube`; a mapping may call the band dimension "wavelength_3d" or "wavelength".
    variable : the cube, such as "Rrs_unc"; None for `rhos`, else `Rrs`, else the only one.

    Raises
    ------
    ValueError : the file is damaged or lacks a group or list of the layout, lists contradict the number of bands, or
        `variable` is missing or ambiguous.
    """
    data, parameters = open_group(path, _DATA), open_group(path, _BANDS)
    cubes = [str(name) for name, array in data.data_vars.items() if array.ndim == 3 and array.dims[-1] == _BAND_DIM]
    wanted = None if variable is None else variable.removeprefix(f"{_DATA}/")
    name = choose_cube(data, cubes, wanted, _PREFERRED, f"over {_BAND_DIM!r} in group {_DATA!r}", path)
    if _BAND_DIM not in parameters.variables:
        raise ValueError(f"{path}: group {_BANDS!r} has no wavelengths of the cubes ({_BAND_DIM!r}); get the file anew")
    wavelength = parameters[_BAND_DIM]
    bare = swath_cube(data[name], _BAND_DIM, "PACE OCI", chunks, path)
    widths = [array for key, array in parameters.variables.items() if is_fwhm_name(str(key).removesuffix("_3d"))]
    widths = [array for array in widths if array.dims == (_BAND_DIM,)]
    cube = with_bands(
        *(bare.astype(np.float32), wavelength.values.astype(np.float64), wavelength.attrs.get("units", "nm"), path),
        fwhm=widths[0].values if widths else None,
    )
    cube.attrs, cube.encoding = bare.attrs, bare.encoding
    navigation = open_group(path, _NAVIGATION)
    cube = with_group_geolocation(cube, navigation, ("latitude", "longitude"), _NAVIGATION, path)
    if _FLAGS not in data:
        return cube
    kept = ("long_name", "flag_masks", "flag_meanings")
    attrs = {key: data[_FLAGS].attrs[key] for key in kept if key in data[_FLAGS].attrs}
    return with_pixel_coordinate(cube, _FLAGS, data[_FLAGS], attrs, path)


def _is_oci(file: Any) -> bool:
    if _DATA not in file and _BANDS not in file:
        return False
    said = " ".join(text(file.attrs.get(key, "")) for key in ("instrument", "title", "product_name"))
    by_name = "OCI" in said.replace("_", " ").replace(".", " ").split()
    return by_name or (_BANDS in file and _BAND_DIM in file[_BANDS])
