"""Reads ENVI spectral libraries: a header, and beside it spectra one after the other, as (sample, wavelength).

The header has `file type = ENVI Spectral Library`, as many lines as there are spectra, as many samples as bands, and
one band. Source: ENVI Header Files, NV5 Geospatial Software documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from ..band_tags import BandTags, read_band_tags
from ..convention import (
    STORED,
    Chunks,
    chunk_cube,
    file_variable,
    fill_places,
    require_no_variable,
    stored_in_words,
    warn_of_fills,
    with_bands,
)
from ..files import DATA_SUFFIXES, beside, data_file_of_header, first_bytes, header_of, require_size

NAME = "spectrum_name"
"""Coordinate along `sample` with the names of the spectra."""
_SUFFIX = ".sli"
_KIND = "envi spectral library"
_TYPES = {1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 12: "u2", 13: "u4", 14: "i8", 15: "u8"}
_ENTRY = re.compile(r"^\s*([^={}\n]+?)\s*=\s*(\{[^}]*\}|\[[^\]{}=]*\]|\([^){}=]*\)|[^\n]*)", re.MULTILINE)
_UNSPECIFIED = "<unspecified>"


@dataclass(frozen=True)
class _Library:
    """Where the N spectra of D bands are in a file, and how they are decoded."""

    path: Path
    stored: np.dtype
    offset: int
    shape: tuple[int, int]
    ignore: float | None
    scale: float

    @property
    def dtype(self) -> np.dtype:
        """Of the decoded values."""
        return np.dtype(np.float64 if self.stored.kind == "f" and self.stored.itemsize == 8 else np.float32)

    def window(self, places: tuple[slice, ...]) -> np.ndarray:
        """Decoded values of some spectra and bands."""
        numbers = np.memmap(self.path, self.stored, "r", self.offset, self.shape)[places]
        values = numbers.astype(self.dtype)
        if self.ignore is not None:
            values[numbers == self.ignore] = np.nan
        fills = fill_places(numbers, self.stored) & ~np.isnan(values)
        if fills.any():
            values[fills] = np.nan
            warn_of_fills(self.path)
        return np.asarray(values if self.scale == 1 else values * self.dtype.type(self.scale))


@dataclass(frozen=True)
class _Tags:
    """The entries of a header as an open raster gives them to `read_band_tags`."""

    header: Mapping[str, str]
    descriptions: tuple[None, ...]

    def tags(self, index: int | None = None, ns: str | None = None) -> Mapping[str, str]:
        """All entries are of the whole file."""
        return self.header if index is None and ns is None else {}


def matches(path: Path, head: bytes) -> bool:
    """Whether the header, or that beside the file, is of a spectral library; a .sli without a readable one, too."""
    if not head:
        return False
    try:
        if path.suffix.lower() == ".hdr":
            return _kind(path) == _KIND
        if path.suffix.lower() == _SUFFIX:
            header = header_of(path)
            return header is None or _kind(header) in (None, _KIND)
        headers = [path.with_name(f"{path.name}.hdr")]
        if path.suffix.lower() in DATA_SUFFIXES and beside(path, f"{path.stem}{_SUFFIX}") is None:
            headers.append(path.with_suffix(".hdr"))
        return any(header.is_file() and _kind(header) == _KIND for header in headers)
    except (OSError, ValueError):
        return path.suffix.lower() == _SUFFIX


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open a library as (sample, wavelength), with the names of the spectra as coordinate `spectrum_name`.

    Values are divided by the header's reflectance scale factor, and NaN where they equal its data ignore value.

    Parameters
    ----------
    path : the .sli file or its header, beside each other.

    Raises
    ------
    FileNotFoundError : the header or the file of the spectra is not beside the other.
    PermissionError : one of them may not be read.
    ValueError : the header is damaged, of another kind, without wavelengths or contradicts itself or the size of the
        file; wavelengths are repeated or in no unit of length; or numbers are of a type that is not supported.
    """
    require_no_variable(variable, path, "a spectral library holds one table")
    header, data = _both(path)
    entries = _entries(header)
    kind = entries.get("file type", "")
    if kind.lower() != _KIND:
        raise ValueError(
            f"{header}: file type is {kind or 'not told'}, not ENVI Spectral Library; leave the reader out"
        )
    bands, spectra = _count(entries, "samples", header), _count(entries, "lines", header)
    if _count(entries, "bands", header, 1) != 1:
        raise ValueError(f"{header}: {entries['bands']} bands, where a spectral library has 1; correct the header")
    if entries.get("wavelength units", "").lower() == _UNSPECIFIED:
        del entries["wavelength units"]
    tags = read_band_tags(_Tags(entries, (None,) * bands), str(header), range(1, bands + 1))
    if tags.wavelength is None:
        raise ValueError(
            f"{header}: lists no wavelengths; add them to the header, as in: wavelength = {{450, 460, ...}}"
        )
    library = _library(header, data, entries, (spectra, bands), tags)
    unread = file_variable(("sample", "wavelength"), library.shape, library.dtype, library.window)
    raw = xr.DataArray(unread, name="spectra")
    table = chunk_cube(raw, chunks, whole="wavelength", path=str(data)).rename("cube")
    table = with_bands(table, tags.wavelength, tags.unit, header, fwhm=tags.fwhm, good=tags.good)
    listed = entries.get("spectra names", "").strip("{}[] \t\r\n").removesuffix(",")
    if listed:
        names = [" ".join(name.split()) for name in listed.split(",")]
        if len(names) != spectra:
            raise ValueError(
                f"{header}: {len(names)} spectra names for {spectra} spectra, the lines; correct the header, in which "
                "commas part names"
            )
        table = table.assign_coords({NAME: ("sample", np.array(names), {"long_name": "name of the spectrum"})})
    table.encoding = {
        "source": str(data),
        STORED: stored_in_words(library.stored, [library.scale], [0.0], [library.ignore]),
    }
    return table


def _both(path: Path) -> tuple[Path, Path]:
    """Header and file of the spectra, of which one is given."""
    if path.suffix.lower() == ".hdr":
        return path, beside(path, f"{path.stem}{_SUFFIX}") or data_file_of_header(path)
    header = header_of(path)
    if header is None:
        raise FileNotFoundError(
            f"{path}: no header beside it, which a spectral library needs (looked for {path.stem}.hdr and "
            f"{path.name}.hdr)"
        )
    return header, path


def _kind(header: Path) -> str | None:
    """The file type that an ENVI header tells, in lower case; None where the file is no header."""
    text = header.read_bytes().decode("utf-8-sig", "replace")
    entries = _ENTRY.findall(text) if text[:4].upper() == "ENVI" else []
    return next((value.strip().lower() for key, value in reversed(entries) if key.lower() == "file type"), None)


def _entries(header: Path) -> dict[str, str]:
    """What a header tells, by keys in lower case."""
    if not first_bytes(header, 4):
        raise ValueError(f"{header}: the file is empty (0 bytes); check how it was written or copied")
    text = header.read_bytes().decode("utf-8-sig", "replace")
    if not text.upper().startswith("ENVI"):
        raise ValueError(f"{header}: not an ENVI header (the first line is not 'ENVI'); check how it was copied")
    if text.count("{") != text.count("}"):
        raise ValueError(f"{header}: a list lacks its closing brace: truncated or damaged; copy it again")
    return {" ".join(key.lower().split()): value.strip() for key, value in _ENTRY.findall(text)}


def _count(entries: Mapping[str, str], key: str, header: Path, default: int | None = None) -> int:
    text = entries.get(key, "" if default is None else str(default))
    if not text.isdecimal():
        wrong = f"{key} holds {text!r} where a number belongs" if text else f"does not tell {key!r}"
        raise ValueError(f"{header}: {wrong}; correct the header")
    return int(text)


def _library(header: Path, data: Path, entries: Mapping[str, str], shape: tuple[int, int], tags: BandTags) -> _Library:
    if not all(shape):
        raise ValueError(f"{header}: {shape[0]} spectra of {shape[1]} bands; correct the header")
    kind, order = _count(entries, "data type", header), _count(entries, "byte order", header, 0)
    if kind not in _TYPES or order not in (0, 1):
        types = ", ".join(map(str, _TYPES))
        raise ValueError(
            f"{header}: data type {kind} in byte order {order}; real numbers of types {types} are read, in order 0 or 1"
        )
    if _count(entries, "file compression", header, 0):
        raise ValueError(f"{header}: the spectra are compressed; write them without compression")
    stored = np.dtype(f"{'<>'[order]}{_TYPES[kind]}")
    offset = _count(entries, "header offset", header, 0)
    first_bytes(data, 1)  # or it may not be read
    sizes = {"spectra (lines)": shape[0], "bands (samples)": shape[1]}
    require_size(data, offset, sizes, stored.itemsize)
    ignore = None if tags.ignore_value is None or np.isnan(tags.ignore_value) else tags.ignore_value
    return _Library(data, stored, offset, shape, ignore, 1.0 if tags.scale is None else tags.scale)
