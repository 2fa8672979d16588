"""Says in a few lines what a data file holds."""

from __future__ import annotations

import os

import numpy as np
import xarray as xr

from ..cubes.bands import describe_bands, find_band_dim
from ..cubes.units import NM_PER_UNIT
from .open import choose_reader, open_cube
from .tables import open_dataset

_SHOWN = 20


def describe_file(path: str | os.PathLike[str], variable: str | None = None, reader: str | None = None) -> str:
    """Reader, sizes, bands, units, sensor, CRS, pixel size and geolocation of a cube, or the variables of a Dataset.

    `variable` and `reader` as for :func:`specinvert.open_cube`; raises what that raises on a file that cannot be
    read. Without `variable`, of a netCDF file or Zarr store all variables are listed. Files are opened lazily where
    `open_cube` does so.
    """
    _, chosen = choose_reader(path, reader)
    if chosen.name == "netcdf" and variable is None:
        data = open_dataset(path)
        lines = [f"{os.fspath(path)}: {_sizes(data.sizes)}", f"  reader {chosen.name}"]
        for name in list(data.data_vars)[:_SHOWN]:
            array = data[name]
            units = array.attrs.get("units")
            lines.append(f"  {name} ({', '.join(map(str, array.dims))}) {array.dtype}{f', {units}' if units else ''}")
            lines += _bands(array)
        if len(data.data_vars) > _SHOWN:
            lines.append(f"  and {len(data.data_vars) - _SHOWN} more variables")
        return "\n".join(lines + _place(data))
    cube = open_cube(path, variable=variable, reader=chosen.name)
    lines = [
        f"{os.fspath(path)}: {_sizes(cube.sizes)}, {cube.dtype}, {cube.nbytes / 1e6:.4g} MB",
        f"  reader {chosen.name}",
    ]
    lines += [f"  {key} {cube.attrs[key]}" for key in ("sensor", "units", "comment") if key in cube.attrs]
    return "\n".join(lines + _bands(cube) + _place(cube))


def _sizes(sizes: object) -> str:
    return ", ".join(f"{dim} {size}" for dim, size in dict(sizes).items())  # type: ignore[call-overload]


def _bands(array: xr.DataArray) -> list[str]:
    try:
        dim = find_band_dim(array)
    except ValueError:
        names = array.coords["band"].values.tolist() if "band" in array.dims and "band" in array.coords else []
        return [f"    {len(names)} bands: {', '.join(map(str, names[:_SHOWN]))}"] if names else []
    try:
        bands = describe_bands(array, dim)
    except ValueError as error:
        return [f"    {array.sizes[dim]} bands, {error}"]
    if bands.wavelength is None or bands.unit is None:
        return []
    values = bands.wavelength / NM_PER_UNIT[bands.unit]
    guess = " (unit guessed)" if bands.guessed else ""
    order = "" if np.all(np.diff(values) > 0) else ", not in order"
    lines = [f"    {bands.size} bands, {values.min():g} to {values.max():g} {bands.unit}{guess}{order}"]
    good = array.coords.get("good")
    if good is not None and good.ndim == 1:
        lines.append(f"    {int(good.sum())} bands marked good")
    return lines


def _place(data: xr.Dataset | xr.DataArray) -> list[str]:
    """CRS and pixel size of a grid, names of the geolocation of a swath."""
    import rioxarray  # noqa: F401  (registers the .rio accessor)

    lines = []
    crs = data.rio.crs
    if crs is not None:
        size = ""
        if {"x", "y"} <= set(data.indexes) and min(data.sizes["x"], data.sizes["y"]) > 1:
            width, height = (abs(length) for length in data.rio.resolution())
            size = f", pixels of {width:g} x {height:g} {_unit(crs)}"
        epsg = crs.to_epsg()
        lines.append(f"  CRS {crs.to_string() if epsg is None else f'EPSG:{epsg}'}{size}")
    if {"lat", "lon"} <= set(data.coords) and data.coords["lat"].ndim == 2:
        lines.append(f"  latitude and longitude of every pixel ({', '.join(map(str, data.coords['lat'].dims))})")
    return lines


def _unit(crs: object) -> str:
    return "degrees" if getattr(crs, "is_geographic", False) else str(getattr(crs, "linear_units", ""))
