"""Files beside an image that tell of it: finding them whatever the case of their names, and reading XML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import xarray as xr

from ...cubes.bands import describe_bands


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
