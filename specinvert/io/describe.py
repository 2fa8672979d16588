"""Says in a few lines what a data file holds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import xarray as xr

from ..cubes.bands import describe_bands, find_band_dim
from ..cubes.units import NM_PER_UNIT
from .open import open_cube
from .tables import open_dataset

_SHOWN = 20


def describe_file(path: str | os.PathLike[str]) -> str:
    """Sizes, bands, units, CRS and variables of a Dataset or an image cube.

    Raises what :func:`specinvert.open_cube` raises on a file that cannot be read.
    """
    if Path(path).suffix.lower() in (".nc", ".nc4"):
        data = open_dataset(path)
        lines = [f"{os.fspath(path)}: {_sizes(data.sizes)}"]
        for name in list(data.data_vars)[:_SHOWN]:
            array = data[name]
            units = array.attrs.get("units")
            lines.append(f"  {name} ({', '.join(map(str, array.dims))}) {array.dtype}{f', {units}' if units else ''}")
            lines += _bands(array)
        if len(data.data_vars) > _SHOWN:
            lines.append(f"  and {len(data.data_vars) - _SHOWN} more variables")
        return "\n".join(lines + _crs(data))
    cube = open_cube(path)
    lines = [f"{os.fspath(path)}: {_sizes(cube.sizes)}, {cube.dtype}, {cube.nbytes / 1e6:.4g} MB"]
    return "\n".join(lines + _bands(cube) + _crs(cube))


def _sizes(sizes: object) -> str:
    return ", ".join(f"{dim} {size}" for dim, size in dict(sizes).items())  # type: ignore[call-overload]


def _bands(array: xr.DataArray) -> list[str]:
    try:
        bands = describe_bands(array, find_band_dim(array))
    except ValueError:
        return []
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


def _crs(data: xr.Dataset | xr.DataArray) -> list[str]:
    import rioxarray  # noqa: F401  (registers the .rio accessor)

    crs = data.rio.crs
    return [] if crs is None else [f"  CRS {crs.to_string() if crs.to_epsg() is None else f'EPSG:{crs.to_epsg()}'}"]
