"""Files beside an image that tell of it: finding them whatever the case of their names, and reading XML.

HDF5 files through h5py, with clear errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import xarray as xr

from ...cubes import describe_bands


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


def read_xml(path: Path) -> ElementTree.Element:
    """The root of an XML file, its namespaces taken off.

    Raises
    ------
    ValueError : the file is empty, truncated or no XML.
    """
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: not readable as XML, damaged or truncated ({error}); copy it again") from error
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error
    for element in root.iter():
        element.tag = str(element.tag).rsplit("}", 1)[-1]
    return root


def number_of(element: ElementTree.Element | None, what: str, path: Path) -> float:
    """The number that an XML element holds.

    Raises
    ------
    ValueError : there is no such element, or it holds no finite number.
    """
    text = None if element is None else (element.text or "").strip()
    try:
        value = float(text or "")
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        found = "is missing" if not text else f"holds {text!r} where a number belongs"
        raise ValueError(f"{path}: {what} {found}; get the metadata anew")
    return value


def texts(root: ElementTree.Element, tag: str) -> Iterator[str]:
    """What the elements called `tag` hold, wherever they are, without blanks around it."""
    return (element.text.strip() for element in root.iter(tag) if element.text and element.text.strip())


def checked(cube: xr.DataArray, path: Path, dim: str = "wavelength") -> xr.DataArray:
    """The cube, where its wavelengths along `dim` make sense.

    Raises
    ------
    ValueError : wavelengths are missing, repeated, or in no unit of length; the message names the file.
    """
    try:
        describe_bands(cube, dim)
    except ValueError as error:
        wrong = str(error).partition("; drop ")[0]
        remedy = "" if wrong == str(error) else "; correct the metadata, or write the file without these bands"
        raise ValueError(f"{path}: {wrong}{remedy}") from error
    return cube


MAGIC = b"\x89HDF\r\n\x1a\n"


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file; PermissionError, which names it, where it may not be read."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error


@contextmanager
def open_hdf5(path: Path, kind: str) -> Iterator[Any]:
    """An open `h5py.File`; ValueError where the file is damaged or no HDF5, with `kind` in the message."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error
    except OSError as error:
        raise ValueError(f"{path}: not a readable {kind}, damaged, truncated or of another kind ({error})") from error
    with file:
        yield file


def claims(path: Path, head: bytes, name_claims: bool, looks_right: Callable[[Any], bool]) -> bool:
    """Whether a file is of a kind: by its content where HDF5 opens it, else by its name. Never raises.

    Parameters
    ----------
    path : the file.
    head : its first bytes; none for a folder.
    name_claims : whether the name is one of this kind.
    looks_right : whether the open `h5py.File` is of this kind.
    """
    if not head:
        return False
    if not head.startswith(MAGIC):
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


def engine_options(engine: str) -> dict[str, Any]:
    """What xarray's engines need to be told: a Zarr store is read whether its metadata are consolidated or not."""
    return {"consolidated": False} if engine == "zarr" else {}
