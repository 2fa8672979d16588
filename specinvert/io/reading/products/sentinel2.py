"""Sentinel-2 level 2A: the SAFE folder as ESA delivers it, and GeoTIFFs of bands stacked under their names.

Source: Sentinel-2 Products Specification Document, S2-PDGS-TAS-DI-PSD, issue 14.9 (ESA).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import xarray as xr
from dask.array.core import normalize_chunks

from ....cubes import NM_PER_UNIT, is_wavelength_name, letters_of
from ..band_tags import NAMES, SATELLITES, BandTags, band_name, band_wavelengths, is_auxiliary
from ..convention import STORED, Chunks, band_coords, checked, rename_chunks, stored_in_words, tell, wanted_blocks
from ..files import TIFF_MAGIC, number_of, read_xml, texts
from .raster import Description, build_cube, describe_raster, open_gdal

_METADATA = "MTD_MSIL2A.xml"
_OTHER_LEVEL = "MTD_MSIL1C.xml"
_PRODUCT = re.compile(r"S2[A-D]_MSIL(1C|2A)_\w+", re.IGNORECASE)
_SATELLITE = re.compile(r"S(?:ENTINEL[-_ ]?)?2([A-D])(?![0-9A-Z])", re.IGNORECASE)
_OURS = re.compile(r"SENTINEL[-_ ]?2|(?<![A-Z0-9])S2[A-D]?(?![A-Z0-9])|MSIL2A", re.IGNORECASE)
_RESOLUTIONS = ("10m", "20m", "60m")
_NODATA, _SATURATED = 0.0, 65535.0
_QUANTIFICATION = 10_000.0
_FIRST_OFFSET_BASELINE = 4.0
_OFFSET = -1000.0
"""Of stored numbers of all bands from that baseline on; the metadata could tell others and never did."""
_BASELINE = re.compile(r"(?<![A-Z0-9])N(\d\d)(\d\d)(?![0-9A-Z])", re.IGNORECASE)
_WINDOW, _LARGEST_FRACTION = 128, 10.0
_FAR_NM = 20.0


def matches(path: Path, head: bytes) -> bool:
    """A SAFE folder, its metadata file or zip by name, or a GeoTIFF whose bands are called as Sentinel-2's."""
    if not head:
        return path.suffix.upper() == ".SAFE" or any((path / name).exists() for name in (_METADATA, _OTHER_LEVEL))
    if path.name in (_METADATA, _OTHER_LEVEL) or (path.suffix.lower() == ".zip" and _PRODUCT.match(path.name)):
        return True
    return head.startswith(TIFF_MAGIC) and _is_stack(path)


def read(path: Path, chunks: Chunks, variable: str | None) -> xr.DataArray:
    """Open surface reflectance as a cube (y, x, wavelength), bands in the order of their wavelengths.

    Coordinate `band_name` keeps the names. Value = (stored + offset) / quantification, both from the metadata,
    so that the offset of processing baseline 04.00 is applied where the product has one; 0 and 65535
    (saturated) are NaN. Wavelengths and widths are those of the satellite that the product names.

    Parameters
    ----------
    path : the SAFE folder or its MTD_MSIL2A.xml; or a GeoTIFF with bands called B1 or B01 to B12 and B8A, other
        layers of the product among them being left out. A GeoTIFF of integers without a scale is divided by
        10000, after the offset that a tag BOA_ADD_OFFSET, the metadata file beside it or the processing baseline, in a
        tag or its name, tells. Attribute `comment` says what was assumed.
    variable : "10m", "20m" (also None) or "60m", for a SAFE folder: the images of that pixel size. B08, which
        comes in 10 m alone, is averaged over the larger pixels.

    Raises
    ------
    FileNotFoundError : the metadata or an image that they list is missing.
    ValueError : damaged files, another level than 2A, several granules, or an unknown `variable`.
    """
    if path.is_file() and path.name not in (_METADATA, _OTHER_LEVEL) and path.suffix.lower() != ".zip":
        return _read_stack(path, chunks, variable)
    if path.suffix.lower() == ".zip":
        raise ValueError(f"{path}: unzip the product, and give its .SAFE folder")
    if variable not in (None, *_RESOLUTIONS):
        raise ValueError(f"{path}: variable={variable!r} is no pixel size; use one of {', '.join(_RESOLUTIONS)}")
    folder = path.parent if path.is_file() else path
    metadata = folder / _METADATA
    if not metadata.is_file():
        if (folder / _OTHER_LEVEL).is_file():
            raise ValueError(f"{path}: level 1C, which is not surface reflectance; get the level 2A product")
        raise FileNotFoundError(f"{path}: no {_METADATA} in this folder; copy the product anew")
    return _read_safe(folder, metadata, chunks, variable or "20m")


@dataclass(frozen=True)
class _Product:
    """What MTD_MSIL2A.xml tells: images without suffix; offsets, centres and widths (nm) by band."""

    satellite: str
    images: list[str]
    offsets: dict[str, float]
    quantification: float
    centres: dict[str, float]
    widths: dict[str, float]


def _read_safe(folder: Path, metadata: Path, chunks: Chunks, resolution: str) -> xr.DataArray:
    product = _read_metadata(metadata)
    images = _images(folder, product, resolution, metadata)
    factors = {name: int(resolution[:-1]) // int(image.stem[-3:-1]) for name, image in images.items()}
    descriptions = {name: describe_raster(image) for name, image in images.items()}
    grid = next(name for name, factor in factors.items() if factor == 1)
    rows, columns = descriptions[grid].shape
    for name, description in descriptions.items():
        if description.shape != (rows * factors[name], columns * factors[name]):
            raise ValueError(
                f"{images[name]}: its {description.shape} pixels do not fit the {(rows, columns)} of "
                f"{images[grid].name}; copy the product anew"
            )
    blocks = _blocks(images[grid], len(images), chunks)
    bands = {
        name: _band(image, descriptions[name], product, name, _times(blocks, factors[name]))
        for name, image in images.items()
    }
    arrays = [_block_means(band.data, factors[name]) for name, band in bands.items()]
    coords = bands[grid].coords
    cube = xr.DataArray(np.stack(arrays, axis=2), dims=("y", "x", "wavelength"), coords=coords, name="cube")
    if blocks is not None:
        cube = cube.chunk(wavelength=blocks["wavelength"])
    if product.satellite not in SATELLITES and not images.keys() <= product.centres.keys():
        raise ValueError(
            f"{metadata}: no central wavelengths, which {product.satellite!r} needs; get the metadata anew"
        )
    cube = _with_wavelengths(cube, list(images), product.satellite, product.centres, product.widths)
    offsets = [product.offsets.get(name, 0.0) / product.quantification for name in images]
    told = stored_in_words(np.dtype(np.uint16), [1 / product.quantification], offsets, [_NODATA, _SATURATED])
    cube.encoding = {"grid_mapping": "spatial_ref", "_FillValue": np.nan, "source": str(folder), STORED: told}
    return checked(cube, metadata)


def _read_metadata(metadata: Path) -> _Product:
    root = read_xml(metadata)
    if root.tag != "Level-2A_User_Product":
        raise ValueError(f"{metadata}: a {root.tag}, not a Level-2A_User_Product; get the level 2A product")
    satellite = next(texts(root, "SPACECRAFT_NAME"), None)
    if satellite is None:
        raise ValueError(f"{metadata}: no SPACECRAFT_NAME, so no wavelengths; get the metadata anew")
    named = {element.get("bandId"): element for element in root.iter("Spectral_Information")}
    ids = {str(i): name for i, name in enumerate(NAMES)}
    ids |= {key: name for key, element in named.items() if key and (name := band_name(element.get("physicalBand")))}
    bands = {ids[key]: element for key, element in named.items() if key in ids}
    offsets = {
        ids[key]: number_of(element, f"BOA_ADD_OFFSET of band {key}", metadata)
        for element in root.iter("BOA_ADD_OFFSET")
        if (key := element.get("band_id", "")) in ids
    }
    baseline = root.find(".//PROCESSING_BASELINE")
    if not offsets and number_of(baseline, "PROCESSING_BASELINE", metadata) >= _FIRST_OFFSET_BASELINE:
        raise ValueError(f"{metadata}: no BOA_ADD_OFFSET, which baseline 04.00 and later have; get the metadata anew")
    return _Product(
        satellite=satellite,
        images=[*texts(root, "IMAGE_FILE"), *texts(root, "IMAGE_FILE_2A")],
        offsets=offsets,
        quantification=_quantification(root, metadata),
        centres={
            name: number_of(centre, f"CENTRAL of {name}", metadata)
            for name, band in bands.items()
            if (centre := band.find(".//CENTRAL")) is not None
        },
        widths={name: width for name, band in bands.items() if (width := _width(band, name, metadata)) is not None},
    )


def _width(band: ElementTree.Element, name: str, metadata: Path) -> float | None:
    """Full width at half maximum (nm) of a band's response in the metadata, linear between its values; None without."""
    listed, step = band.find(".//Spectral_Response/VALUES"), band.find(".//Spectral_Response/STEP")
    if listed is None or step is None:
        return None
    try:
        response = np.array((listed.text or "").split(), dtype=np.float64)
    except ValueError:
        raise ValueError(f"{metadata}: the response of {name} holds no numbers; get the metadata anew") from None
    above = np.flatnonzero(response >= 0.5 * response.max(initial=0.0))
    if response.size < 3 or not response.max() > 0 or above[0] == 0 or above[-1] == response.size - 1:
        return None
    rise, fall = ((inner, outer) for inner, outer in ((above[0], above[0] - 1), (above[-1], above[-1] + 1)))
    parts = [(response[i] - 0.5 * response.max()) / (response[i] - response[o]) for i, o in (rise, fall)]
    return float((above[-1] - above[0] + sum(parts)) * number_of(step, f"STEP of the response of {name}", metadata))


def _quantification(root: ElementTree.Element, metadata: Path) -> float:
    element = root.find(".//BOA_QUANTIFICATION_VALUE")
    older = root.find(".//L2A_BOA_QUANTIFICATION_VALUE")
    value = number_of(older if element is None else element, "BOA_QUANTIFICATION_VALUE", metadata)
    if value <= 0:
        raise ValueError(f"{metadata}: BOA_QUANTIFICATION_VALUE {value:g} is not positive; get the metadata anew")
    return value


def _images(folder: Path, product: _Product, resolution: str, metadata: Path) -> dict[str, Path]:
    """The image of every band at this resolution, in the order of wavelengths; B08 from 10 m where it has no other."""
    for image in product.images:
        if Path(image).is_absolute() or ".." in Path(image).parts:
            raise ValueError(f"{metadata}: names the image {image!r}, outside its folder; get the product anew")
    granules = {Path(image).parts[:2] for image in product.images}
    if len(granules) > 1:
        raise ValueError(f"{folder}: {len(granules)} granules; products of one tile only are read")
    listed: dict[tuple[str, str], Path] = {}
    for image in product.images:
        if named := re.search(r"_(B\d[0-9A])_(\d0m)$", image):
            listed[named[1], named[2]] = folder / f"{image}.jp2"
    chosen = {name: path for (name, size), path in listed.items() if size == resolution}
    if not chosen:
        raise ValueError(f"{metadata}: lists no {resolution} images of bands; get the metadata anew")
    if "B08" not in chosen and ("B08", "10m") in listed:
        chosen["B08"] = listed["B08", "10m"]
    for path in chosen.values():
        if not path.is_file():
            raise FileNotFoundError(f"{path}: missing, though {_METADATA} lists it; copy the product anew")
    return {name: chosen[name] for name in NAMES if name in chosen}


def _blocks(grid: Path, count: int, chunks: Chunks) -> Any:
    """Block lengths along y and x of the grid, and along the `count` bands; None to read at once."""
    if chunks is None:
        return None
    wanted = wanted_blocks(rename_chunks(chunks, "band", "wavelength"), ("y", "x", "wavelength"), "wavelength")
    with open_gdal(grid) as dataset:
        shape, stored = dataset.shape, dataset.block_shapes[0]
    pixel = np.dtype((np.void, count * np.dtype(np.float32).itemsize))
    rows, columns = normalize_chunks(wanted[:2], shape=shape, dtype=pixel, previous_chunks=stored)
    return {"y": rows, "x": columns, "wavelength": wanted[2]}


def _times(blocks: Any, factor: int) -> Any:
    """The same blocks on a grid whose pixels are `factor` times smaller."""
    if blocks is None:
        return None
    return {dim: tuple(length * factor for length in blocks[dim]) for dim in ("y", "x")}


def _band(image: Path, description: Description, product: _Product, name: str, blocks: Any) -> xr.DataArray:
    """One image as reflectance (y, x)."""
    offset = product.offsets.get(name, 0.0)
    description = replace(
        description,
        nodata=[_NODATA],
        scales=[1.0 / product.quantification],
        offsets=[offset / product.quantification],
        saturated=(_SATURATED,),
    )
    return build_cube(image, description, blocks).isel(band=0, drop=True)


def _block_means(values: Any, factor: int) -> Any:
    """Means over `factor` x `factor` pixels, NaN where none has a value; `values` (rows, columns), NumPy or dask."""
    if factor == 1:
        return values
    if isinstance(values, np.ndarray):
        return _means(values, factor)
    chunks = tuple(tuple(length // factor for length in lengths) for lengths in values.chunks)
    return values.map_blocks(_means, factor, chunks=chunks, dtype=values.dtype, meta=np.empty((0, 0), values.dtype))


def _means(values: np.ndarray, factor: int) -> np.ndarray:
    rows, columns = values.shape
    cells = values.reshape(rows // factor, factor, columns // factor, factor)
    count = np.isfinite(cells).sum(axis=(1, 3))
    total = np.nansum(cells, axis=(1, 3))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(values.dtype)


def _is_stack(path: Path) -> bool:
    try:
        with open_gdal(path) as dataset:
            names = [band_name(text) for text in dataset.descriptions]
            told = any(is_wavelength_name(key) for key in (*dataset.tags(), *dataset.tags(1)))
            words = " ".join([path.name, *dataset.tags(), *dataset.tags().values()])
            rest = [text for text, name in zip(dataset.descriptions, names, strict=True) if name is None]
            told |= _contradicted(dataset.descriptions, names)
    except ValueError:
        return False
    ours = "B8A" in names or (any(names) and _OURS.search(words) is not None)
    return ours and not told and all(is_auxiliary(text) for text in rest)


def _contradicted(texts: Sequence[str | None], names: Sequence[str | None]) -> bool:
    """Whether the names of bands tell wavelengths far from those of Sentinel-2."""
    named = band_wavelengths([text for text, name in zip(texts, names, strict=True) if name is not None])
    if named is None:
        return False
    table = dict(zip(NAMES, SATELLITES["Sentinel-2A"], strict=True))
    expected = np.array([table[name][0] for name in names if name is not None])
    return bool((np.abs(named.wavelength * NM_PER_UNIT[named.unit] - expected) > _FAR_NM).any())


def _read_stack(path: Path, chunks: Chunks, variable: str | None) -> xr.DataArray:
    if variable is not None:
        raise ValueError(f"{path}: variable={variable!r} chooses images of a SAFE folder, and this is a GeoTIFF")
    description = describe_raster(path)
    names = [band_name(text) for text in description.names]
    kept = [i for i, name in enumerate(names) if name is not None]
    if not kept or len({names[i] for i in kept}) < len(kept):
        raise ValueError(
            f"{path}: its bands are called {', '.join(map(str, description.names[:5]))}, which are not the names "
            "of Sentinel-2 bands, each once; name them B01 to B12 and B8A"
        )
    with open_gdal(path) as dataset:
        tags = dataset.tags(1) | dataset.tags()
        darkest = _darkest(dataset, [index + 1 for index in kept])
    told = _SATELLITE.search(" ".join([path.name, *tags.values()]))
    comments = []
    plain = set(description.scales) == {1.0} and set(description.offsets) == {0.0}
    offsets, source = _stack_offsets(path, tags, names) if plain else ([], "its scale")
    if plain and description.dtype.kind in "iu":
        scale = description.tags.scale or 1.0 / _QUANTIFICATION
        comments += [] if description.tags.scale else ["integers divided by 10000"]
        description = replace(
            description, scales=[scale] * len(names), offsets=[scale * x for x in offsets or [0.0] * len(names)]
        )
        if any(offsets):
            comments.append(f"offset of {_span(offsets)} applied, as {source} tells")
        elif not source:
            comments.append("no offset of baseline 04.00 applied, for the file tells none")
    if not source and darkest >= -_OFFSET:
        comments.append(
            "but nothing is darker than 0.1, as in products of baseline 04.00 and later without their offset of -1000: "
            "if it is one, name it as the product (.._N0510_..), give it the tag BOA_ADD_OFFSET=-1000, or subtract"
        )
    if description.dtype.kind in "iu":
        nodata = [_NODATA if value is None else value for value in description.nodata]
        description = replace(description, nodata=nodata, saturated=(_SATURATED,))
    satellite = f"Sentinel-2{told[1].upper()}" if told else "Sentinel-2"
    if satellite not in SATELLITES:
        comments.append("wavelengths of Sentinel-2A, for those of the satellite are not told")
    bare = BandTags(scale=description.tags.scale)
    description = replace(description, tags=bare, names=[None] * len(names))
    cube = build_cube(path, description, rename_chunks(chunks, "wavelength", "band"))
    cube = cube.isel(band=kept).rename(band="wavelength")
    cube = _with_wavelengths(cube, [str(names[i]) for i in kept], satellite, {}, {})
    if comments:
        cube.attrs["comment"] = "; ".join(comments)
        tell(path, cube.attrs["comment"])
    return cube


def _stack_offsets(path: Path, tags: Mapping[str, str], names: list[str | None]) -> tuple[list[float], str]:
    """Offsets of stored numbers that tags, the metadata file beside or the baseline tell, and which; else none, ""."""
    own = {letters_of(key): text for key, text in tags.items()}
    for key, text in tags.items():
        if letters_of(key).startswith("boaaddoffset"):
            try:
                return [float(text)] * len(names), f"its tag {key}"
            except ValueError:
                raise ValueError(f"{path}: its tag {key} holds {text!r} where a number belongs; correct it") from None
    metadata = path.with_name(_METADATA)
    if metadata.is_file():
        offsets = _read_metadata(metadata).offsets
        return [offsets.get(str(name), 0.0) for name in names], metadata.name
    baseline = _BASELINE.search(" ".join([path.name, *tags.values()]))
    number = own.get("processingbaseline") or (f"{baseline[1]}.{baseline[2]}" if baseline else "")
    if not re.fullmatch(r"\d+\.\d+", number):
        return [], ""
    later = float(number) >= _FIRST_OFFSET_BASELINE
    return [_OFFSET if later else 0.0] * len(names), f"its processing baseline {number}"


def _darkest(dataset: Any, bands: list[int]) -> float:
    """The darkest of the bands at the darkest hundredth of pixels with data, as of numbers of 10000 for 1."""
    side, lowest = _WINDOW, []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        row, column = int(share * max(0, dataset.height - side)), int(share * max(0, dataset.width - side))
        part = dataset.read(bands, window=((row, row + side), (column, column + side)), boundless=False)
        values = part.reshape(len(bands), -1).astype(np.float64)
        values = values[:, np.isfinite(values).all(axis=0) & (values > 0).all(axis=0)]
        lowest.append(values)
    values = np.concatenate(lowest, axis=1)
    if not values.size:
        return 0.0
    unit = 1.0 if dataset.dtypes[0][0] in "iu" or np.median(values) > _LARGEST_FRACTION else _QUANTIFICATION
    return float(np.quantile(values, 0.01, axis=1).min() * unit)


def _span(numbers: list[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _with_wavelengths(
    cube: xr.DataArray, names: list[str], satellite: str, centres: Mapping[str, float], widths: Mapping[str, float]
) -> xr.DataArray:
    """Label the bands: by the table of the satellite, else `centres` and `widths`, else the table of Sentinel-2A."""
    if satellite not in SATELLITES and centres:
        wavelengths = np.array([centres[name] for name in names])
        told = "from the responses in the metadata"
    else:
        table = dict(zip(NAMES, SATELLITES.get(satellite, SATELLITES["Sentinel-2A"]), strict=True))
        wavelengths = np.array([table[name][0] for name in names])
        widths = {name: table[name][1] for name in names}
        told = f"from the table of {satellite if satellite in SATELLITES else 'Sentinel-2A'}"
    fwhm = np.array([widths[name] for name in names]) if set(names) <= set(widths) else None
    labels = {"band_name": ("wavelength", np.array(names), {"long_name": "band name"})}
    cube = cube.assign_coords(labels | band_coords("wavelength", "nm", wavelengths, fwhm))
    if fwhm is not None:
        cube.fwhm.attrs["comment"] = told
    cube.attrs["sensor"] = satellite
    return cube
