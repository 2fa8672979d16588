"""What readers ask of files: those beside an image, whether one is whole, XML and HDF5, with errors that name them."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
DATA_SUFFIXES = ("", ".img", ".dat", ".bsq", ".bil", ".bip", ".raw", ".bin", ".envi", ".rfl", ".refl", ".rdn", ".cube")
_SUFFIXES_BESIDE = (
    *(".hdr", ".xml", ".txt", ".toml", ".png", ".jpg", ".jpeg", ".pdf"),
    *(".kml", ".enp", ".sta", ".ovr", ".prj"),
)
"""Endings of files beside an image that are not its data."""


@contextmanager
def clear_errors(path: Path, told: str, *kinds: type[Exception]) -> Iterator[None]:
    """What goes wrong while a file is read as an error that names it: PermissionError, or ValueError for these kinds.

    `told`, formatted with the error, says what the ValueError does of the file.
    """
    try:
        yield
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error
    except kinds as error:
        raise ValueError(f"{path}: {told.format(error)}") from error


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file; PermissionError, which names it, where it may not be read."""
    with clear_errors(path, ""), path.open("rb") as file:
        return file.read(count)


def require_whole(path: Path, promised: int, by: str) -> int:
    """The bytes that a file has; ValueError where these are fewer than promised, `by` what in words."""
    held = path.stat().st_size
    if held < promised:
        raise ValueError(f"{path}: truncated, {held} bytes where {by} {promised}; copy it again")
    return held


def require_size(path: Path, offset: int, sizes: Mapping[str, int], item: int) -> None:
    """ValueError where a file is shorter than its header says, or longer by one index along a dimension at least.

    `sizes` are those of its dimensions, by their names in words; `item` bytes are a number.
    """
    count = prod(sizes.values())
    promised = offset + count * item
    held = require_whole(path, promised, "the header promises")
    if held - promised >= min(count // size for size in sizes.values()) * item:
        shape = " of ".join(f"{size} {name}" for name, size in sizes.items())
        raise ValueError(
            f"{path}: {held} bytes where the header promises {promised}, {shape} of {item} bytes: one of these is "
            "wrong; correct the header"
        )


def beside(path: Path, name: str) -> Path | None:
    """The file called `name`, in any case, in the folder of `path`; None where there is none."""
    direct = path.with_name(name)
    if direct.is_file():
        return direct
    try:
        others = (other for other in path.parent.iterdir() if other.name.lower() == name.lower())
        return next((other for other in others if other.is_file()), None)
    except OSError:
        return None


def data_file_of_header(header: Path) -> Path:
    """The data file of an ENVI header; ValueError where it is none or several could be, FileNotFoundError without."""
    if first_bytes(header, 7).removeprefix(BOM_UTF8)[:4].upper() != b"ENVI":
        raise ValueError(f"{header}: not an ENVI header (the first line is not 'ENVI'); give the data file")
    stem = header.with_suffix("")
    others = [path for path in header.parent.iterdir() if path.name.startswith(stem.name) and path != header]
    endings = {path: path.name[len(stem.name) :].lower() for path in others if path.is_file()}
    data = [path for suffix in DATA_SUFFIXES for path, ending in endings.items() if ending == suffix]
    if not data:
        data = [path for path, ending in endings.items() if not ending.endswith(_SUFFIXES_BESIDE)]
    if len(data) == 1:
        return data[0]
    if data:
        raise ValueError(f"{header}: several data files ({', '.join(p.name for p in data)}); give the right one")
    raise FileNotFoundError(f"{header}: no data file beside it (looked for {stem.name} and {stem.name}.img, ...)")


def header_of(image: Path) -> Path | None:
    """The ENVI header beside a data file, `name.hdr` or `name.img.hdr` in any case; None where there is none."""
    for name in (f"{image.name}.hdr", f"{image.stem}.hdr"):
        header = beside(image, name)
        if header is not None and header != image:
            return header
    return None


def read_xml(path: Path) -> ElementTree.Element:
    """The root of an XML file, its namespaces taken off; ValueError where it is empty, truncated or no XML."""
    with clear_errors(path, "not readable as XML, damaged or truncated ({}); copy it again", ElementTree.ParseError):
        root = ElementTree.parse(path).getroot()
    for element in root.iter():
        element.tag = str(element.tag).rsplit("}", 1)[-1]
    return root


def number_of(element: ElementTree.Element | None, what: str, path: Path) -> float:
    """The number that an XML element holds; ValueError where there is no such element, or it holds no finite one."""
    text = None if element is None else (element.text or "").strip()
    try:
        value = float(text or "")
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        wrong = "is missing" if not text else f"holds {text!r} where a number belongs"
        raise ValueError(f"{path}: {what} {wrong}; get the metadata anew")
    return value


def texts(root: ElementTree.Element, tag: str) -> Iterator[str]:
    """What the elements called `tag` hold, wherever they are, without blanks around it."""
    return (element.text.strip() for element in root.iter(tag) if element.text and element.text.strip())


@contextmanager
def open_hdf5(path: Path, kind: str) -> Iterator[Any]:
    """An open `h5py.File`; ValueError where the file is damaged or no HDF5, with `kind` in the message."""
    import h5py

    with clear_errors(path, f"not a readable {kind}, damaged, truncated or of another kind ({{}})", OSError):
        file = h5py.File(path, "r")
    with file:
        yield file


def claims(path: Path, head: bytes, name_claims: bool, looks_right: Callable[[Any], bool]) -> bool:
    """Whether a file is of a kind: by the open `h5py.File` where HDF5 opens it, else by its name. Never raises."""
    if not head:
        return False
    if not head.startswith(HDF5_MAGIC):
        return name_claims
    try:
        with open_hdf5(path, "HDF5 file") as file:
            return bool(looks_right(file))
    except (OSError, ValueError, KeyError, RuntimeError, TypeError):
        return name_claims


def text(value: object) -> str:
    """An attribute as text, whether stored as bytes, text or an array of one of them."""
    first = np.ravel(np.asarray(value))[:1]
    single = first[0] if first.size else ""
    return single.decode("utf-8", "replace") if isinstance(single, bytes) else str(single)


def is_zarr(path: Path) -> bool:
    """Whether the path is the folder of a Zarr store."""
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))
