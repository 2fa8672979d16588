"""CRISM and other images with a PDS3 label: GDAL reads the pixels, label or files beside tell the wavelengths.

Source: CRISM Data Product Software Interface Specification (JHU/APL); Planetary Data System Standards
Reference, version 3.8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ....cubes import is_unknown
from ..band_tags import BandTags, band_wavelengths
from ..convention import Chunks, checked, require_no_variable
from ..files import beside, data_file_of_header, first_bytes, require_whole
from .raster import build_cube, describe_raster, open_gdal

_MARK = b"PDS_VERSION_ID"
_IMAGE_SUFFIXES = frozenset({".img", ".hdr", ".qub", ".cub"})
_POINTER = re.compile(r'\^(?:IMAGE|SPECTRAL_QUBE|QUBE)\s*=\s*\(?\s*"([^"]+)"')
_POINTERS = frozenset({"^IMAGE", "^SPECTRAL_QUBE", "^QUBE"})
_PRODUCT = re.compile(r"^([A-Z]{3}[0-9A-F]{8}_[0-9A-F]{2}_[A-Z]{2}\d{3}[SLJ]_|T\d{4}_MRR)", re.IGNORECASE)
_SAMPLES = re.compile("REAL|INTEGER|UNSIGNED|FLOAT", re.IGNORECASE)
_WAVELENGTH_FILE = "MRO:WAVELENGTH_FILE_NAME"
_NONE = frozenset({"", "N/A", "NULL", "UNK"})
_FILL = 65535.0
_CRISM = "CRISM"
_RANGE_NM = (350.0, 4100.0)
_LABEL_BYTES = 1_000_000


def matches(path: Path, head: bytes) -> bool:
    """A PDS3 label, alone or before its image; an image or header beside such a label, or called as CRISM's are."""
    if _MARK in head[:512]:
        return True
    if not head or path.suffix.lower() not in _IMAGE_SUFFIXES:
        return False
    return _PRODUCT.match(path.name) is not None or _label_beside(path) is not None


def read(path: Path, chunks: Chunks, variable: str | None) -> xr.DataArray:
    """Open the image as a cube (y, x, wavelength), or (y, x, band) where the label names no wavelengths at all.

    Wavelengths are those of an ENVI header beside the image, else BAND_BIN_CENTER of the label, else those of
    the file that MRO:WAVELENGTH_FILE_NAME of the label names: a table, or a WA image of one wavelength a band
    and column, of which the median over columns is taken; else those that every BAND_NAME tells. 65535 stands for no
    data in CRISM images, the label's MISSING_CONSTANT in others. I/F is a cube without unit; radiance keeps the
    label's unit. An image converted to ENVI needs no label where its name still begins as those of CRISM's products.

    Parameters
    ----------
    path : the label, the image with a label of the same name beside it or at its start, or its ENVI header.

    Raises
    ------
    FileNotFoundError : the image or the wavelength file that the label names is not beside it.
    ValueError : damaged or truncated files, or a header, a label and a wavelength file that contradict each other.
    """
    require_no_variable(variable, path, "a PDS3 image holds one cube")
    label = path if _MARK in first_bytes(path, 512) else _label_beside(path)
    if label is None:
        return _read_converted(path, chunks)
    image = _image_of(label)
    with _open_label(label) as dataset:
        content = _content(dataset)
        count = dataset.count
        _check_size(dataset, image, content)
    header = beside(image, f"{image.stem}.hdr")
    source = label if header is None else image
    description = describe_raster(source)
    if len(description.names) != count:
        raise ValueError(
            f"{header}: {len(description.names)} bands where {label.name} has {count}; correct one of them"
        )
    tags = description.tags
    names = _find(content, "BAND_NAME")
    if tags.wavelength is None or tags.source is not None:
        tags = replace(_wavelengths(content, label, count, names), good=tags.good)
    sensor = str(_find(content, "INSTRUMENT_ID") or "")
    description = replace(
        description,
        tags=tags,
        nodata=[_FILL] * count if sensor == _CRISM else description.nodata,
        names=names if isinstance(names, list) and len(names) == count else [None] * count,
        units=_units(_find(content, "UNIT")),
    )
    cube = build_cube(source, description, chunks)
    if tags.wavelength is not None:
        cube = checked(cube, label)
    if sensor not in _NONE:
        cube.attrs["sensor"] = sensor
    return cube


def _read_converted(path: Path, chunks: Chunks) -> xr.DataArray:
    """A CRISM image without its label, the bands described by its ENVI header."""
    header = path if path.suffix.lower() == ".hdr" else beside(path, f"{path.stem}.hdr")
    if header is None:
        raise FileNotFoundError(
            f"{path}: neither a PDS3 label {path.stem}.LBL nor an ENVI header beside it; copy it there"
        )
    image = data_file_of_header(path) if path == header else path
    description = describe_raster(image)
    if description.tags.wavelength is None:
        raise ValueError(f"{header}: no wavelengths; add them, or copy the PDS3 label and its wavelength file there")
    nodata = [_FILL if value is None else value for value in description.nodata]
    cube = checked(build_cube(image, replace(description, nodata=nodata), chunks), header)
    cube.attrs["sensor"] = _CRISM
    return cube


def _label_beside(path: Path) -> Path | None:
    label = beside(path, f"{path.stem}.lbl")
    try:
        return label if label is not None and _MARK in first_bytes(label, 512) else None
    except OSError:
        return None


@contextmanager
def _open_label(label: Path) -> Iterator[Any]:
    start = first_bytes(label, _LABEL_BYTES)
    if re.search(rb"^\s*END\s*$", start, re.MULTILINE) is None:
        raise ValueError(f"{label}: truncated, the label has no END; copy it again")
    with open_gdal(label, "PDS") as dataset:
        yield dataset


def _image_of(label: Path) -> Path:
    """The image that a label describes: the file that it names, else itself."""
    pointer = _POINTER.search(first_bytes(label, _LABEL_BYTES).decode("latin-1"))
    if pointer is None:
        return label
    image = beside(label, pointer[1])
    if image is None:
        raise FileNotFoundError(
            f"{label}: the image {pointer[1]} that it describes is not beside it; copy it there too"
        )
    return image


def _check_size(dataset: Any, image: Path, content: dict[str, Any]) -> None:
    """Raise where the numbers are of no known kind, or the image ends before its last pixel: GDAL would read zeros."""
    kind = str(_find(content, "SAMPLE_TYPE") or _find(content, "CORE_ITEM_TYPE") or "")
    if kind and _SAMPLES.search(kind) is None:
        raise ValueError(f"{image}: its label has SAMPLE_TYPE {kind!r}, which is not understood; correct the label")
    start = next((value for key, value in _entries(content) if key in _POINTERS), 1)
    start = start[-1] if isinstance(start, list) and len(start) > 1 else start
    record = int(_find(content, "RECORD_BYTES") or 1)
    if isinstance(start, dict):  # with a unit, which is bytes
        start, record = start.get("value", 1), 1
    skipped = (start - 1) * record if isinstance(start, int) else 0
    promised = skipped + dataset.count * dataset.height * dataset.width * np.dtype(dataset.dtypes[0]).itemsize
    require_whole(image, promised, "its label promises")


def _content(dataset: Any) -> dict[str, Any]:
    """The label as GDAL parses it; rasterio takes its JSON text for a tag and cuts it at the first colon."""
    label: dict[str, Any] = json.loads(":".join(next(iter(dataset.tags(ns="json:PDS").items()))))
    return label


def _entries(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keywords and values of a label, those of outer objects first."""
    yield from content.items()
    for value in content.values():
        if isinstance(value, dict):
            yield from _entries(value)


def _find(content: dict[str, Any], keyword: str) -> Any:
    return next((value for key, value in _entries(content) if key == keyword), None)


def _units(unit: object) -> str | None:
    text = str(unit or "").strip()
    if is_unknown(text) or text.upper() in _NONE | {"I_OVER_F", "I/F"}:
        return None
    return text


def _wavelengths(content: dict[str, Any], label: Path, count: int, names: Any) -> BandTags:
    centres = _find(content, "BAND_BIN_CENTER")
    if centres is not None:
        unit = _find(content, "BAND_BIN_UNIT")
        widths = _find(content, "BAND_BIN_WIDTH")
        return BandTags(
            wavelength=_numbers(centres, "BAND_BIN_CENTER", label, count),
            unit=None if is_unknown(unit) else str(unit),
            fwhm=None if widths is None else _numbers(widths, "BAND_BIN_WIDTH", label, count),
        )
    name = str(_find(content, _WAVELENGTH_FILE) or "").strip()
    if name.upper() in _NONE:
        told = band_wavelengths(list(map(str, names))) if isinstance(names, list) and len(names) == count else None
        return BandTags() if told is None else BandTags(told.wavelength, told.unit, source="names of the bands")
    file = beside(label, name)
    if file is None:
        raise FileNotFoundError(
            f"{label}: the wavelengths are in {name}, which is not beside it; copy it there, and its label, or put "
            f"an ENVI header {label.stem}.hdr with the wavelengths there"
        )
    values = _of_image(file) if file.suffix.lower() == ".img" else _of_table(file)
    if values.size != count:
        raise ValueError(
            f"{file}: wavelengths of {values.size} bands where {label.name} has {count}; get the right file"
        )
    return BandTags(wavelength=values, unit="nm")


def _numbers(values: Any, keyword: str, label: Path, count: int) -> np.ndarray:
    listed = values if isinstance(values, list) else [values]
    if len(listed) != count:
        raise ValueError(f"{label}: {len(listed)} values of {keyword} for {count} bands; correct the label")
    try:
        return np.array([float(value["value"] if isinstance(value, dict) else value) for value in listed])
    except (TypeError, ValueError):
        raise ValueError(f"{label}: {keyword} holds {listed[:5]} where numbers belong; correct the label") from None


def _of_image(file: Path) -> np.ndarray:
    """Of a WA image (bands, 1, columns) the median over the columns that see the scene, a band (nm)."""
    label = beside(file, f"{file.stem}.lbl")
    if label is None:
        raise FileNotFoundError(f"{file}: no label {file.stem}.LBL beside it, which tells its size; copy it there too")
    with _open_label(label) as dataset:
        content = _content(dataset)
        _check_size(dataset, _image_of(label), content)
        values = dataset.read().astype(np.float64).reshape(dataset.count, -1)
    values[(values <= 0) | (values >= _FILL)] = np.nan
    seen = np.isfinite(values).any(axis=1)
    centres = np.full(len(values), np.nan)
    centres[seen] = np.nanmedian(values[seen], axis=1)
    return centres


def _of_table(file: Path) -> np.ndarray:
    """The first column of a table, comma between, of which every value is a wavelength of CRISM in nanometres."""
    rows = [line.split(",") for line in file.read_text(encoding="latin-1").splitlines() if line.strip()]
    low, high = _RANGE_NM
    for column in zip(*rows, strict=False):
        try:
            values = np.array([float(entry) for entry in column])
        except ValueError:
            continue
        if ((values >= low) & (values <= high)).all():
            return values
    raise ValueError(f"{file}: no column of wavelengths from {low:g} to {high:g} nm; get the table anew")
