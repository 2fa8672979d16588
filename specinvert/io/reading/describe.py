"""Says in a few lines what a data file holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import numpy as np
import xarray as xr

from ...cubes import NM_PER_UNIT, describe_bands, find_band_dim, read_fwhm, read_good
from .. import is_geographic
from .convention import STORED, Chunks, stored_as
from .open import choose_reader, open_cube
from .products.netcdf import open_group, with_metadata

_Open = Callable[[Chunks], xr.DataArray]
_SHOWN = 20
_HISTORY = 3
"""Lines of a history that are told, the last."""
_WHOLE_BYTES = 50_000_000
"""Cubes up to this size are read whole for the share of missing values; of others, windows."""
_WINDOWS, _WINDOW_PIXELS = 9, 4096


def describe_file(path: str | os.PathLike[str], variable: str | None = None, reader: str | None = None) -> str:
    """What a cube is and how it is stored, or the variables of a Dataset; one thing a line.

    Told are reader, sizes in memory and on disk, blocks, how numbers were decoded, sensor, bands, their widths and
    which are bad, the share of missing values (of windows spread over the image where it is large), and the place.
    `variable` and `reader` as for :func:`specinvert.open_cube`; raises what that raises on a file that cannot be
    read. Without `variable`, of a netCDF file or Zarr store all variables are listed.
    """
    _, chosen = choose_reader(path, reader)
    if chosen.name == "netcdf" and variable is None:
        return "\n".join(_of_dataset(Path(path)))
    cube = open_cube(path, variable=variable, reader=chosen.name)
    held = _on_disk(Path(cube.encoding.get("source", path)))
    size = f"{_bytes(cube.nbytes)} in memory, {_bytes(held)} on disk"
    lines = [f"{os.fspath(path)}: {_sizes(cube.sizes)}, {cube.dtype}, {size}", f"  reader {chosen.name}"]
    if STORED in cube.encoding:
        lines.append(f"  stored as {cube.encoding[STORED]}")
    if cube.chunks is not None:
        lines.append(f"  blocks of {_sizes({dim: sizes[0] for dim, sizes in cube.chunksizes.items()})}")
    lines += [f"  {key} {cube.attrs[key]}" for key in ("sensor", "units", "comment") if key in cube.attrs]
    if "history" in cube.attrs:
        lines.append(f"  history {str(cube.attrs['history']).splitlines()[-1]}")
    seen = _values(cube, lambda chunks: open_cube(path, chunks=chunks, variable=variable, reader=chosen.name))
    return "\n".join([*lines, *_bands(cube), *seen, *_place(cube)])


def _of_dataset(path: Path) -> list[str]:
    data = with_metadata(open_group(path))
    lines = [f"{path}: {_sizes(data.sizes)}, {_bytes(_on_disk(path))} on disk", "  reader netcdf", *_origin(data)]
    for name in list(data.data_vars)[:_SHOWN]:
        array = data[name]
        units = array.attrs.get("units")
        lines.append(f"  {name} ({', '.join(map(str, array.dims))}) {array.dtype}{f', {units}' if units else ''}")
        bands = _bands(array)
        if bands and array.ndim > 1:
            lines.append(f"    stored as {stored_as(array)}")
            bands += _values(open_cube(path, variable=str(name), reader="netcdf"))
        lines += bands
    if len(data.data_vars) > _SHOWN:
        lines.append(f"  and {len(data.data_vars) - _SHOWN} more variables")
    named = {str(array.attrs.get("grid_mapping", "spatial_ref")).split()[0].rstrip(":") for array in data.values()}
    return lines + _place(data.set_coords([name for name in named if name in data.data_vars]))


def _origin(data: xr.Dataset) -> list[str]:
    """What made a Dataset, such as maps: source, training ranges and the last lines of the history."""
    told = [key for key in ("source", "training_ranges") if key in data.attrs]
    lines = [f"  {key.replace('_', ' ')} {data.attrs[key]}" for key in told]
    history = str(data.attrs.get("history", "")).splitlines()
    if len(history) > _HISTORY:
        lines.append(f"  {len(history) - _HISTORY} earlier lines of history")
    return lines + [f"  history {line}" for line in history[-_HISTORY:]]


def _sizes(sizes: object) -> str:
    return ", ".join(f"{dim} {size}" for dim, size in dict(sizes).items())  # type: ignore[call-overload]


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} GB"


def _on_disk(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _bands(array: xr.DataArray) -> list[str]:
    try:
        dim = find_band_dim(array)
    except ValueError:
        names = array.coords["band"].values.tolist() if "band" in array.dims and "band" in array.coords else []
        return [f"    {len(names)} bands: {', '.join(map(str, names[:_SHOWN]))}"] if names else []
    try:
        bands = describe_bands(array, dim)
        widths, good = read_fwhm(array, bands), read_good(array, dim)
    except ValueError as error:
        return [f"    {array.sizes[dim]} bands, {error}"]
    if bands.wavelength is None or bands.unit is None or not bands.size:
        return []
    values = bands.wavelength / NM_PER_UNIT[bands.unit]
    guess = " (unit guessed)" if bands.guessed else ""
    order = "" if np.all(np.diff(values) > 0) else ", not in order"
    lines = [f"    {bands.size} bands, {values.min():g} to {values.max():g} {bands.unit}{guess}{order}"]
    if widths is None and array.ndim > 1:
        lines.append("    no widths (fwhm), which training for these bands needs")
    elif widths is not None:
        told = array.coords["fwhm"].attrs.get("comment", "from the file")
        shown = widths / NM_PER_UNIT[bands.unit]
        lines.append(f"    widths (fwhm) {shown.min():.4g} to {shown.max():.4g} {bands.unit}, {told}")
    if good is not None:
        runs = _runs(values, good)
        listed = f", {(~good).sum()} bad: {', '.join(runs)} {bands.unit}" if runs else ""
        lines.append(f"    {good.sum()} bands marked good{listed}")
    return lines


def _runs(values: np.ndarray, good: np.ndarray) -> list[str]:
    """Wavelengths of the bad bands, those of neighbours in the file as first and last."""
    bad = np.flatnonzero(~good)
    runs = np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1) if bad.size else []
    shown = [f"{values[run[0]]:g}" + (f" to {values[run[-1]]:g}" if run.size > 1 else "") for run in runs[:_SHOWN]]
    return [*shown, "..."] if len(runs) > _SHOWN else shown


def _values(cube: xr.DataArray, reopen: _Open | None = None) -> list[str]:
    """Which share of the values is missing, and the range of the others; of the whole cube, or of some windows."""
    if not cube.size:
        return []
    whole = cube.nbytes <= _WHOLE_BYTES
    parts = [cube] if whole else list(_windows(cube, reopen))
    held = np.concatenate([np.ravel(part) for part in dask.compute(*(part.data for part in parts))])
    there = held[np.isfinite(held)]
    of = "" if whole else f" (among {held.size / cube.size:.1%} of them, from {len(parts)} places)"
    span = f", others {there.min():.4g} to {there.max():.4g}" if there.size else ""
    return [f"    {1 - there.size / held.size:.1%} of the values missing{of}{span}"]


def _windows(cube: xr.DataArray, reopen: _Open | None) -> Iterator[xr.DataArray]:
    """Parts of the cube in small blocks, spread over its diagonal."""
    try:
        whole = {find_band_dim(cube)}
    except ValueError:
        whole = {"band"}
    pixels = [dim for dim in cube.dims if dim not in whole]
    side = max(1, round(_WINDOW_PIXELS ** (1 / max(len(pixels), 1))))
    fine = cube if reopen is None else reopen({str(dim): side for dim in pixels})
    for share in np.linspace(0.0, 1.0, _WINDOWS):
        corner = {dim: int(share * max(0, cube.sizes[dim] - 1)) // side * side for dim in pixels}
        yield fine.isel({dim: slice(start, start + side) for dim, start in corner.items()})


def _place(data: xr.Dataset | xr.DataArray) -> list[str]:
    """CRS and pixel size of a grid, names of the geolocation of a swath."""
    import rioxarray  # noqa: F401  (registers the .rio accessor)
    from pyproj import CRS

    lines = []
    crs = data.rio.crs
    if crs is not None:
        size = ""
        transform = data.rio.transform(recalc=False)
        if {"x", "y"} <= set(data.indexes) and min(data.sizes["x"], data.sizes["y"]) > 1:
            transform = data.rio.transform(recalc=True)
        if not transform.is_identity:
            width, height = np.hypot(transform.a, transform.d), np.hypot(transform.b, transform.e)
            unit = "degrees" if crs.is_geographic else crs.linear_units
            size = f", pixels of {width:g} x {height:g} {unit}"
            size += "" if transform.is_rectilinear else ", turned against the axes"
        epsg, name = crs.to_epsg(), CRS.from_wkt(crs.to_wkt()).name
        lines.append(f"  CRS {name if epsg is None else f'EPSG:{epsg}'}{size}{'' if epsg is None else f', {name}'}")
    swath = [name for name, array in data.coords.items() if array.ndim == 2 and is_geographic(name, array)]
    if isinstance(data, xr.Dataset):
        swath += [name for name, array in data.data_vars.items() if array.ndim == 2 and is_geographic(name, array)]
    if len(swath) > 1:
        lines.append(f"  latitude and longitude of every pixel ({', '.join(map(str, data[swath[0]].dims))})")
    return lines
