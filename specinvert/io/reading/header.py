"""What an ENVI header or the tags of a GeoTIFF say of the bands, whatever the keys are spelled like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...cubes import (
    is_fwhm_name,
    is_good_name,
    is_unknown,
    is_wavelength_name,
    is_wavelength_units_key,
    length_unit,
    letters_of,
)
from .metadata import beside
from .spectra_table import band_wavelengths

_IGNORE = frozenset({"dataignorevalue", "ignorevalue", "nodata", "nodatavalue"})
_SCALE = frozenset(
    {"reflectancescalefactor", "reflectancescale", "reflectancescalingfactor", "reflectencescalefactor", "scalefactor"}
)
DATA_SUFFIXES = ("", ".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", ".envi", ".rfl", ".refl", ".rdn", ".cube")
_INTERLEAVES = frozenset({"bsq", "bil", "bip"})
_NO_DATA_SUFFIXES = (
    ".hdr",
    ".xml",
    ".txt",
    ".toml",
    ".png",
    ".jpg",
    ".jpeg",
    ".pdf",
    ".kml",
    ".enp",
    ".sta",
    ".ovr",
    ".prj",
)


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
    source : of the wavelengths, where it is not tags: "names of the bands".
    """

    wavelength: np.ndarray | None = None
    unit: str | None = None
    fwhm: np.ndarray | None = None
    good: np.ndarray | None = None
    ignore_value: float | None = None
    scale: float | None = None
    source: str | None = None


def read_band_tags(dataset: Any, path: str, indexes: Sequence[int]) -> BandTags:
    """Collect what an open rasterio dataset says of its bands, of which `indexes`, from 1, are of the cube.

    Lists for the whole file (ENVI header, file tags) come before tags of single bands, these before GDAL's IMAGERY
    tags in micrometres, and all before the names of bands, where every one tells a wavelength.

    Raises
    ------
    ValueError : a list has another length than there are bands, an entry is no number, or wavelengths come in
        what is no unit of length.
    """
    whole = {**dataset.tags(), **dataset.tags(ns="ENVI")}
    each = [dataset.tags(index) for index in indexes]

    def per_band(wanted: Callable[[object], bool]) -> np.ndarray | None:
        for key, text in whole.items():
            if wanted(key) and (set(",{[") & set(text) or len(text.split()) == len(indexes)):
                return _numbers(text, len(indexes), key, path)
        texts = [_find(tags, wanted) for tags in each]
        if all(text is None for text in texts):
            return None
        return np.array([_number(text, f"band {i + 1}", path) for i, text in enumerate(texts)])

    units = (_find(tags, is_wavelength_units_key) for tags in (whole, *each))
    unit = next((text for text in units if text), None)
    wavelength, fwhm, good = per_band(is_wavelength_name), per_band(is_fwhm_name), per_band(is_good_name)
    if wavelength is None:
        imagery = [dataset.tags(index, ns="IMAGERY") for index in indexes]
        if any("CENTRAL_WAVELENGTH_UM" in tags for tags in imagery):
            unit = "um"
            wavelength = _imagery(imagery, "CENTRAL_WAVELENGTH_UM", path)
            fwhm = _imagery(imagery, "FWHM_UM", path) if any("FWHM_UM" in tags for tags in imagery) else fwhm
    source = None
    if wavelength is None:
        named = band_wavelengths([dataset.descriptions[index - 1] for index in indexes])
        if named is not None:
            wavelength, unit, source = named.wavelength, named.unit, "names of the bands"
    if wavelength is not None and not is_unknown(unit) and length_unit(unit) is None:
        raise ValueError(f"{path}: wavelengths in {unit!r} are not understood; convert the metadata to nm, um or m")
    ignore = _find(whole, lambda key: letters_of(key) in _IGNORE)
    factors = {_find(tags, lambda key: letters_of(key) in _SCALE) for tags in each}
    factor = _find(whole, lambda key: letters_of(key) in _SCALE) or (factors.pop() if len(factors) == 1 else None)
    return BandTags(
        wavelength=wavelength,
        unit=None if is_unknown(unit) else unit,
        fwhm=fwhm,
        good=None if good is None else good != 0,
        ignore_value=None if ignore is None else _number(ignore, "data ignore value", path),
        scale=None if factor is None else _scale(_number(factor, "reflectance scale factor", path), path),
        source=source,
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
    if not found:
        found = [path for path, ending in endings.items() if not ending.endswith(_NO_DATA_SUFFIXES)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{header}: several data files ({', '.join(p.name for p in found)}); give the right one")
    raise FileNotFoundError(f"{header}: no data file beside it (looked for {stem.name} and {stem.name}.img, ...)")


def header_of(image: Path) -> Path | None:
    """The ENVI header beside a data file, `name.hdr` or `name.img.hdr` in any case; None where there is none."""
    for name in (f"{image.name}.hdr", f"{image.stem}.hdr"):
        header = beside(image, name)
        if header is not None and header != image:
            return header
    return None


def check_envi(dataset: Any, path: str) -> None:
    """Raise where an ENVI header lacks what GDAL makes up, or the size of the data file contradicts it.

    Raises
    ------
    ValueError : no interleave, or an unknown one; an offset that is no number; the file is truncated, or longer than
        the header says by a row, a column or a band at least.
    """
    tags = dataset.tags(ns="ENVI")
    interleave = tags.get("interleave", "").strip()
    if interleave.lower() not in _INTERLEAVES and dataset.count > 1:
        found = f"interleave {interleave!r}, which is none of bsq, bil and bip" if interleave else "no interleave"
        raise ValueError(f"{path}: its header has {found}; correct it, or copy it again")
    if tags.get("file_compression", "0").strip() not in ("", "0"):
        return
    sizes = (dataset.count, dataset.height, dataset.width)
    offset = tags.get("header_offset", "0").strip()
    if not offset.isdigit():
        raise ValueError(f"{path}: header offset holds {offset!r} where a number of bytes belongs; correct the header")
    item = np.dtype(dataset.dtypes[0]).itemsize
    promised = int(offset) + prod(sizes) * item
    held = Path(path).stat().st_size
    if held < promised:
        raise ValueError(f"{path}: truncated, {held} bytes where the header promises {promised}; copy it again")
    if held - promised >= min(prod(sizes) // size for size in sizes) * item:
        raise ValueError(
            f"{path}: {held} bytes where the header promises {promised}, {sizes[0]} bands of {sizes[1]} lines of "
            f"{sizes[2]} samples of {item} bytes: one of these is wrong; correct the header"
        )


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
    entries = _entries(text)
    if len(entries) != count:
        raise ValueError(
            f"{path}: the metadata list {len(entries)} values of {key!r} for {count} bands; correct the header"
        )
    return np.array([_number(entry, repr(key), path) for entry in entries])


def _entries(text: str) -> list[str]:
    """What a list in braces, brackets or none holds, with commas or blanks between."""
    bare = text.strip().strip("{}[]()")
    return [entry.strip() for entry in (bare.split(",") if "," in bare else bare.split()) if entry.strip()]


def _imagery(imagery: Sequence[Mapping[str, str]], key: str, path: str) -> np.ndarray:
    return np.array([_number(tags.get(key), f"band {i + 1}", path) for i, tags in enumerate(imagery)])


def _scale(factor: float, path: str) -> float:
    if not factor > 0:
        raise ValueError(f"{path}: reflectance scale factor {factor:g} is not positive; correct the header")
    return 1.0 / factor if factor > 1 else factor
