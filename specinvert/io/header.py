"""What an ENVI header or the tags of a GeoTIFF say of the bands, whatever the keys are spelled like."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..cubes.bands import is_wavelength_name, is_wavelength_units_key
from ..cubes.units import is_unknown, length_unit

_FWHM = frozenset(
    {"fwhm", "fwhms", "fhwm", "fwmh", "fullwidthhalfmaximum", "fullwidthathalfmaximum", "bandwidth", "bandwidths"}
)
_GOOD = frozenset({"bbl", "badbandlist", "badbandslist", "badbandmultiplier", "good", "goodwavelengths", "goodbands"})
_IGNORE = frozenset({"dataignorevalue", "ignorevalue", "nodata", "nodatavalue"})
_SCALE = frozenset(
    {"reflectancescalefactor", "reflectancescale", "reflectancescalingfactor", "reflectencescalefactor", "scalefactor"}
)
DATA_SUFFIXES = ("", ".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", ".envi")


@dataclass(frozen=True)
class BandTags:
    """What a raster's metadata says of its D bands; None for what it does not say.

    Attributes
    ----------
    wavelength : (D,) in `unit`; NaN for a band without one.
    unit : as written.
    fwhm : (D,) in `unit`.
    good : (D,) bool, False for bands listed as bad.
    ignore_value : the value that stands for no data.
    scale : factor from stored numbers to reflectance: one over ENVI's "reflectance scale factor", which divides;
        a factor below 1, such as 0.0001, can only be meant to multiply, and does.
    """

    wavelength: np.ndarray | None = None
    unit: str | None = None
    fwhm: np.ndarray | None = None
    good: np.ndarray | None = None
    ignore_value: float | None = None
    scale: float | None = None


def is_fwhm_name(name: object) -> bool:
    """Tell whether `name` is a known spelling of the bands' full width at half maximum."""
    return _letters(name) in _FWHM


def is_good_name(name: object) -> bool:
    """Tell whether `name` is a known name of a list of bands, 1 for good and 0 for bad."""
    return _letters(name) in _GOOD


def read_band_tags(dataset: Any, path: str) -> BandTags:
    """Collect what an open rasterio dataset says of its bands.

    Lists for the whole file (ENVI header, file tags) come before tags of single bands, and these before
    GDAL's IMAGERY tags in micrometres.

    Raises
    ------
    ValueError : a list has another length than there are bands, an entry is no number, or wavelengths come in
        what is no unit of length.
    """
    whole = {**dataset.tags(), **dataset.tags(ns="ENVI")}
    each = [dataset.tags(index) for index in dataset.indexes]

    def per_band(wanted: Callable[[object], bool]) -> np.ndarray | None:
        for key, text in whole.items():
            if wanted(key) and ("," in text or "{" in text or dataset.count == 1):
                return _numbers(text, dataset.count, key, path)
        texts = [_find(tags, wanted) for tags in each]
        if all(text is None for text in texts):
            return None
        return np.array([_number(text, f"band {i + 1}", path) for i, text in enumerate(texts)])

    units = (_find(tags, is_wavelength_units_key) for tags in (whole, *each))
    unit = next((text for text in units if text), None)
    wavelength, fwhm, good = per_band(is_wavelength_name), per_band(is_fwhm_name), per_band(is_good_name)
    if wavelength is None:
        imagery = [dataset.tags(index, ns="IMAGERY") for index in dataset.indexes]
        if any("CENTRAL_WAVELENGTH_UM" in tags for tags in imagery):
            unit = "um"
            wavelength = _imagery(imagery, "CENTRAL_WAVELENGTH_UM", path)
            fwhm = _imagery(imagery, "FWHM_UM", path) if any("FWHM_UM" in tags for tags in imagery) else fwhm
    if wavelength is not None and not is_unknown(unit) and length_unit(unit) is None:
        raise ValueError(f"{path}: wavelengths in {unit!r} are not understood; convert the metadata to nm, um or m")
    ignore = _find(whole, lambda key: _letters(key) in _IGNORE)
    factor = _find(whole, lambda key: _letters(key) in _SCALE)
    return BandTags(
        wavelength=wavelength,
        unit=None if is_unknown(unit) else unit,
        fwhm=fwhm,
        good=None if good is None else good != 0,
        ignore_value=None if ignore is None else _number(ignore, "data ignore value", path),
        scale=None if factor is None else _scale(_number(factor, "reflectance scale factor", path), path),
    )


def data_file_of_header(header: Path) -> Path:
    """Return the data file that an ENVI header belongs to.

    Raises
    ------
    ValueError : `header` is no ENVI header, or several files could be its data.
    FileNotFoundError : there is no data file beside it.
    """
    with header.open("rb") as file:
        if not file.read(4).upper() == b"ENVI":
            raise ValueError(f"{header}: not an ENVI header (the first line is not 'ENVI'); give the data file")
    stem = header.with_suffix("")
    beside = [path for path in header.parent.iterdir() if path.name.startswith(stem.name) and path != header]
    endings = {path: path.name[len(stem.name) :].lower() for path in beside if path.is_file()}
    found = [path for suffix in DATA_SUFFIXES for path, ending in endings.items() if ending == suffix]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{header}: several data files ({', '.join(p.name for p in found)}); give the right one")
    raise FileNotFoundError(f"{header}: no data file beside it (looked for {stem.name} and {stem.name}.img, ...)")


def check_envi_size(dataset: Any, path: str) -> None:
    """Raise where the size of an ENVI data file contradicts its header.

    Raises
    ------
    ValueError : the file is truncated, or holds whole bands that the header does not know of.
    """
    tags = dataset.tags(ns="ENVI")
    if tags.get("file_compression", "0").strip() not in ("", "0"):
        return
    item = np.dtype(dataset.dtypes[0]).itemsize
    band = dataset.height * dataset.width * item
    promised = int(tags.get("header_offset", 0)) + dataset.count * band
    held = Path(path).stat().st_size
    if held < promised:
        raise ValueError(f"{path}: truncated, {held} bytes where the header promises {promised}; copy it again")
    if held > promised and (held - promised) % band == 0:
        bands = dataset.count + (held - promised) // band
        raise ValueError(
            f"{path}: the header tells of {dataset.count} bands and the file holds {bands}; correct the header"
        )


def _letters(name: object) -> str:
    return re.sub(r"[^a-z]", "", str(name).lower())


def _find(tags: Mapping[str, str], wanted: Callable[[object], bool]) -> str | None:
    return next((text.strip() for key, text in tags.items() if wanted(key)), None)


def _number(text: str | None, what: str, path: str) -> float:
    if text is None:
        return np.nan
    try:
        return float(text.strip().strip("{}"))
    except ValueError:
        raise ValueError(f"{path}: {what} holds {text!r} where a number belongs; correct the metadata") from None


def _numbers(text: str, count: int, key: str, path: str) -> np.ndarray:
    entries = [entry for entry in text.strip().strip("{}").split(",") if entry.strip()]
    if len(entries) != count:
        raise ValueError(
            f"{path}: the metadata list {len(entries)} values of {key!r} for {count} bands; correct the header"
        )
    return np.array([_number(entry, repr(key), path) for entry in entries])


def _imagery(imagery: Sequence[Mapping[str, str]], key: str, path: str) -> np.ndarray:
    return np.array([_number(tags.get(key), f"band {i + 1}", path) for i, tags in enumerate(imagery)])


def _scale(factor: float, path: str) -> float:
    if not factor > 0:
        raise ValueError(f"{path}: reflectance scale factor {factor:g} is not positive; correct the header")
    return 1.0 / factor if factor > 1 else factor
