"""Reads PRISMA Level 2 products (HDF-EOS5): two detectors, one cube, in map geometry (L2D) or that of the swath (L2C).

The layout is that of ASI's PRISMA Products Specification: cubes (y, band, x) of 16-bit numbers in
`HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields`, and everything else in the attributes of the root group. Corners of the
product are centres of its corner pixels, which are 30 m long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from affine import Affine

from ..convention import (
    STORED,
    Chunks,
    chunk_cube,
    file_variable,
    georeferenced,
    stored_in_words,
    with_bands,
    with_geolocation,
)
from ..files import claims, open_hdf5, text

_KIND = "PRISMA product (HDF5)"
_DETECTORS = ("Vnir", "Swir")
_LARGEST = 65535
_PIXEL = 30.0
_UNITS = {"2B": "W m-2 sr-1 um-1", "2C": "1", "2D": "1"}
_GROUP = re.compile(r"PRS_L(?P<level>\w+)_HCO")


@dataclass(frozen=True)
class _Detector:
    """One of the two cubes: `kept` are its bands that were acquired; reflectance is low + number * step."""

    path: str
    shape: tuple[int, int, int]
    kept: np.ndarray
    wavelength: np.ndarray
    fwhm: np.ndarray
    low: float
    step: float


def matches(path: Path, head: bytes) -> bool:
    """Whether the file has the groups of a PRISMA product; by its name where it is damaged."""
    named = path.suffix.lower() == ".he5" and path.name.upper().startswith("PRS_L")
    return claims(path, head, named, lambda file: _product(file) is not None)


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open the cubes of both detectors as one (y, x, wavelength), its bands sorted by wavelength.

    Bands without a wavelength were not acquired and are left out. Where the detectors overlap, at 940 to 980 nm, the
    bands of both are kept. The number 0, which stands for no data and for what was cut off below the smallest
    value, is NaN. The products' error matrices are not read. Level 2D has CRS and transform; 2B and 2C have `lat`
    and `lon` of each pixel.

    Parameters
    ----------
    variable : "VNIR" or "SWIR" for one of the detectors; None for both.

    Raises
    ------
    ValueError : the file is damaged, of Level 1, or lacks a cube or attribute; lists contradict the number of bands,
        the cubes or the corners contradict each other; or `variable` is neither of the detectors.
    """
    wanted = [
        name for name in _DETECTORS if variable is None or variable.upper() in (name.upper(), f"{name.upper()}_CUBE")
    ]
    if not wanted:
        raise ValueError(f"{path}: variable={variable!r} is no detector; use 'VNIR', 'SWIR', or None for both")
    with open_hdf5(path, _KIND) as file:
        product = _product(file)
        if product is None:
            raise ValueError(f"{path}: has no group HDFEOS/SWATHS/PRS_L2?_HCO; no PRISMA product, or a damaged one")
        group, level = product
        if level not in _UNITS:
            raise ValueError(f"{path}: is of Level {level}; the levels read are {', '.join(_UNITS)}")
        detectors = [_detector(file, group, name, path) for name in wanted]
        attrs = dict(file.attrs)
    if len({detector.shape[::2] for detector in detectors}) > 1:
        raise ValueError(f"{path}: VNIR {detectors[0].shape} and SWIR {detectors[1].shape} differ in size; get it anew")
    cube = _cube(path, detectors, chunks)
    cube.attrs = {"sensor": "PRISMA", "units": _UNITS[level]}
    steps, lows = ([getattr(detector, part) for detector in detectors] for part in ("step", "low"))
    cube.encoding = {"source": str(path), STORED: stored_in_words(np.dtype(np.uint16), steps, lows, [0])}
    return _on_grid(cube, attrs, path) if level == "2D" else _on_swath(cube, group, path)


def _product(file: Any) -> tuple[str, str] | None:
    """The group of the hyperspectral cubes, and the level of the product."""
    for parent in ("HDFEOS/SWATHS", "HDFEOS/GRIDS"):
        for name in file.get(parent, ()):
            match = _GROUP.fullmatch(name)
            if match:
                return f"{parent}/{name}", match["level"]
    return None


def _detector(file: Any, group: str, name: str, path: Path) -> _Detector:
    where = f"{group}/Data Fields/{name.upper()}_Cube"
    if where not in file:
        raise ValueError(f"{path}: has no cube {where}; get the product anew")
    cube = file[where]
    if cube.ndim != 3 or cube.dtype != np.uint16:
        raise ValueError(f"{path}: {where} is {cube.dtype} {cube.shape}, not 16-bit numbers (y, band, x)")
    wavelength = np.ravel(_attribute(file.attrs, f"List_Cw_{name}", path)).astype(np.float64)
    fwhm = np.ravel(_attribute(file.attrs, f"List_Fwhm_{name}", path)).astype(np.float64)
    flags = np.ravel(file.attrs.get(f"List_Cw_{name}_Flags", np.ones(wavelength.size)))
    low = _number(file.attrs, f"L2Scale{name}Min", path)
    high = _number(file.attrs, f"L2Scale{name}Max", path)
    for what, size in (("wavelengths", wavelength.size), ("widths", fwhm.size), ("flags", flags.size)):
        if size != cube.shape[1]:
            raise ValueError(f"{path}: {size} {what} for {cube.shape[1]} {name.upper()} bands; get the product anew")
    if not high > low:
        raise ValueError(f"{path}: L2Scale{name}Min {low:g} is not below L2Scale{name}Max {high:g}; get it anew")
    kept = np.flatnonzero((wavelength > 0) & (flags != 0))
    return _Detector(where, cube.shape, kept, wavelength[kept], fwhm[kept], low, (high - low) / _LARGEST)


def _cube(path: Path, detectors: list[_Detector], chunks: Chunks) -> xr.DataArray:
    wavelength = np.concatenate([detector.wavelength for detector in detectors])
    if not wavelength.size:
        raise ValueError(f"{path}: lists no wavelength above 0; get the product anew")
    order = np.argsort(wavelength, kind="stable")
    rows, _, columns = detectors[0].shape
    shape, window = (rows, columns, wavelength.size), partial(_window, path, tuple(detectors), order)
    unread = file_variable(("y", "x", "wavelength"), shape, np.dtype(np.float32), window)
    raw = xr.DataArray(unread, name=" ".join(detector.path for detector in detectors))
    cube = chunk_cube(raw, chunks, whole="wavelength", path=str(path)).rename("cube")
    fwhm = np.concatenate([detector.fwhm for detector in detectors])
    return with_bands(cube, wavelength[order], "nm", path, fwhm=fwhm[order])


def _window(path: Path, detectors: tuple[_Detector, ...], order: np.ndarray, places: tuple[slice, ...]) -> np.ndarray:
    """Values (y, x, band) of a window, decoded; reads the bands of the file from the first wanted to the last."""
    rows, columns, bands = places
    wanted = order[bands]
    made = np.empty((rows.stop - rows.start, columns.stop - columns.start, wanted.size), dtype=np.float32)
    first = 0
    with open_hdf5(path, _KIND) as file:
        for detector in detectors:
            mine = np.flatnonzero((wanted >= first) & (wanted < first + detector.kept.size))
            if mine.size:
                stored = detector.kept[wanted[mine] - first]
                low = stored.min()
                numbers = file[detector.path][rows, low : stored.max() + 1, columns][:, stored - low]
                values = numbers * np.float32(detector.step) + np.float32(detector.low)
                made[:, :, mine] = np.where(numbers == 0, np.float32(np.nan), values).transpose(0, 2, 1)
            first += detector.kept.size
    return made


def _on_grid(cube: xr.DataArray, attrs: dict[str, Any], path: Path) -> xr.DataArray:
    left, top = (_number(attrs, f"Product_ULcorner_{axis}", path) for axis in ("easting", "northing"))
    right, bottom = (_number(attrs, f"Product_LRcorner_{axis}", path) for axis in ("easting", "northing"))
    expected = {"x": (right - left) / _PIXEL + 1, "y": (top - bottom) / _PIXEL + 1}
    for dim, size in expected.items():
        if abs(size - cube.sizes[dim]) > 0.5:
            raise ValueError(
                f"{path}: the corners are {size:.2f} pixels of {_PIXEL:g} m apart along {dim}, where the cube has "
                f"{cube.sizes[dim]}; get the product anew"
            )
    epsg = int(_number(attrs, "Epsg_Code", path))
    coords = {"y": top - _PIXEL * np.arange(cube.sizes["y"]), "x": left + _PIXEL * np.arange(cube.sizes["x"])}
    transform = Affine(_PIXEL, 0.0, left - _PIXEL / 2, 0.0, -_PIXEL, top + _PIXEL / 2)
    return georeferenced(cube.assign_coords(coords), epsg, transform, str(path))


def _on_swath(cube: xr.DataArray, group: str, path: Path) -> xr.DataArray:
    places = []
    with open_hdf5(path, _KIND) as file:
        for name in ("Latitude", "Longitude"):
            where = f"{group}/Geolocation Fields/{name}"
            if where not in file:
                raise ValueError(f"{path}: has no {where}; get the product anew")
            places.append(xr.DataArray(file[where][...], dims=("y", "x")))
    return with_geolocation(cube, places[0], places[1], path)


def _attribute(attrs: Any, name: str, path: Path) -> Any:
    if name not in attrs:
        raise ValueError(f"{path}: the attribute {name!r} is missing; get the product anew")
    return attrs[name]


def _number(attrs: Any, name: str, path: Path) -> float:
    value = _attribute(attrs, name, path)
    try:
        return float(text(value))
    except ValueError:
        raise ValueError(f"{path}: the attribute {name!r} is {value!r} where a number belongs") from None
