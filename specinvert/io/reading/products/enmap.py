"""EnMAP level 2A: surface reflectance in a GeoTIFF, its bands described in the METADATA.XML beside it.

Source: EnMAP Product Specification Document, EN-PCV-ICD-2009-2 (DLR).
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ....cubes import is_wavelength_name
from ..band_tags import BandTags
from ..convention import Chunks, checked, require_no_variable
from ..files import TIFF_MAGIC, beside, number_of, read_xml
from .raster import build_cube, describe_raster, open_gdal

_IMAGE = re.compile(r"^(?P<product>.+)-SPECTRAL_IMAGE(_COG)?\.TIFF?$", re.IGNORECASE)
_METADATA = re.compile(r"^(?P<product>.+)-METADATA\.XML$", re.IGNORECASE)
_IMAGE_NAMES = ("-SPECTRAL_IMAGE.TIF", "-SPECTRAL_IMAGE_COG.TIF", "-SPECTRAL_IMAGE.TIFF")
_BACKGROUND = -32768.0
_FEWEST_BANDS = 200
_LOOKS = 4
_LOOK_PIXELS = 64


def matches(path: Path, head: bytes) -> bool:
    """A product's image or metadata by its name, or a GeoTIFF cut from one: called so, with tags of its bands."""
    name = path.name
    if _IMAGE.match(name) or (_METADATA.match(name) and name.upper().startswith("ENMAP")):
        return True
    return "enmap" in name.lower() and head.startswith(TIFF_MAGIC) and _has_band_tags(path)


def read(path: Path, chunks: Chunks, variable: str | None) -> xr.DataArray:
    """Open the reflectance of a product as a cube (y, x, wavelength), bands in the order of the file.

    The VNIR and SWIR detectors overlap, so wavelengths are not in order. Bands of which no pixel has a value,
    as those in the water vapour windows, are marked in `good`. Quality layers beside the image are not read.

    Parameters
    ----------
    path : `...-SPECTRAL_IMAGE.TIF`, or the `...-METADATA.XML` beside it; or a GeoTIFF cut from a product, the
        wavelengths in the tags of its bands.

    Raises
    ------
    FileNotFoundError : the image lacks its metadata, or the metadata their image.
    ValueError : damaged files, another level than 2A, or metadata that do not fit the bands.
    """
    require_no_variable(variable, path, "an EnMAP product holds one cube")
    image, metadata = _files(path)
    description = describe_raster(image)
    if metadata is None:
        if description.tags.wavelength is None:
            raise ValueError(f"{path}: no wavelengths in the tags of its bands; give the product's -SPECTRAL_IMAGE.TIF")
    else:
        tags, gain, offset, background = _bands(metadata)
        count = len(description.names)
        if len(gain) != count:
            raise ValueError(f"{metadata}: describes {len(gain)} bands where {image.name} holds {count}; get both anew")
        good = _bands_with_data(image, background)
        description = replace(
            description,
            tags=replace(tags, good=good),
            scales=gain.tolist(),
            offsets=offset.tolist(),
            nodata=[background] * count,
        )
    cube = checked(build_cube(image, description, chunks), image if metadata is None else metadata)
    cube.attrs["sensor"] = "EnMAP"
    return cube


def _has_band_tags(path: Path) -> bool:
    try:
        with open_gdal(path) as dataset:
            return dataset.count >= _FEWEST_BANDS and any(is_wavelength_name(key) for key in dataset.tags(1))
    except ValueError:
        return False


def _files(path: Path) -> tuple[Path, Path | None]:
    """The image and its metadata; no metadata for a GeoTIFF cut from a product."""
    if named := _METADATA.match(path.name):
        for ending in _IMAGE_NAMES:
            image = beside(path, named["product"] + ending)
            if image is not None:
                return image, path
        raise FileNotFoundError(f"{path}: no image beside it (looked for {named['product']}{_IMAGE_NAMES[0]})")
    if named := _IMAGE.match(path.name):
        name = f"{named['product']}-METADATA.XML"
        metadata = beside(path, name)
        if metadata is None:
            raise FileNotFoundError(f"{path}: no {name} beside it, which tells its wavelengths; copy it there too")
        return path, metadata
    return path, None


def _bands(metadata: Path) -> tuple[BandTags, np.ndarray, np.ndarray, float]:
    """Wavelengths and widths, gain, offset and the background value."""
    root = read_xml(metadata)
    level = (root.findtext(".//base/level") or "L2A").strip()
    if level.upper() not in ("L2A", "2A"):
        raise ValueError(
            f"{metadata}: a product of level {level}, which is not surface reflectance; get the level 2A product"
        )
    characterisation = root.find(".//bandCharacterisation")
    bands = [] if characterisation is None else characterisation.findall("bandID")
    if not bands:
        raise ValueError(f"{metadata}: no bandCharacterisation, so no wavelengths; get the metadata anew")
    numbers = [band.get("number", str(i)) for i, band in enumerate(bands, start=1)]
    if numbers != [str(i) for i in range(1, len(bands) + 1)]:
        raise ValueError(f"{metadata}: bands are not numbered from 1 to {len(bands)} in order; get the metadata anew")

    def each(tag: str) -> np.ndarray:
        return np.array(
            [number_of(b.find(tag), f"{tag} of band {n}", metadata) for b, n in zip(bands, numbers, strict=True)]
        )

    background = root.find(".//backgroundValue")
    return (
        BandTags(wavelength=each("wavelengthCenterOfBand"), unit="nm", fwhm=each("FWHMOfBand")),
        each("GainOfBand"),
        each("OffsetOfBand"),
        _BACKGROUND if background is None else number_of(background, "backgroundValue", metadata),
    )


def _bands_with_data(image: Path, background: float) -> np.ndarray:
    """Which bands have values where any has: a band without is without in the whole scene.

    Looks at a few blocks with data, from the middle of the image outwards.
    """
    with open_gdal(image) as dataset:
        filled = np.zeros(dataset.count, dtype=bool)
        looks = 0
        for window in _windows(dataset):
            here = (dataset.read(window=window) != background).any(axis=(1, 2))
            filled |= here
            looks += bool(here.any())
            if filled.all() or looks == _LOOKS:
                break
    return filled


def _windows(dataset: Any) -> list[Any]:
    """Blocks spread over the image, the middle one first."""
    from rasterio.windows import Window

    size = [min(length, _LOOK_PIXELS) for length in dataset.shape]
    room = [length - part for length, part in zip(dataset.shape, size, strict=True)]
    steps = np.linspace(0.0, 1.0, 9)
    places = sorted(product(steps, steps), key=lambda place: abs(place[0] - 0.5) + abs(place[1] - 0.5))
    corners = dict.fromkeys((int(row * room[0]), int(column * room[1])) for row, column in places)
    return [Window(column, row, size[1], size[0]) for row, column in corners]
