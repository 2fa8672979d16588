"""Which columns of a table hold spectra, told by their names: "550", "550nm", "Wave_550", "R550.5", "B02"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cubes.bands import is_wavelength_name
from ..cubes.units import length_unit
from .readers.sentinel2_bands import NAMES, SATELLITES, band_name

_NUMBERED = re.compile(r"(?P<prefix>[a-z][a-z _.-]*?)?[ _.-]*(?P<number>\d+(?:\.\d+)?)[ _.-]*(?P<unit>[a-zµμ]+)?")
_STATED = re.compile(
    r"(?<![\w.–-])(\d+(?:\.\d+)?) ?(nm|nanomet(?:er|re)s?|um|[µμ]m|microns?|micromet(?:er|re)s?)(?![a-zµμ])",
    re.IGNORECASE,
)
_YEARS = (1900.0, 2100.0)
_PERCENT = re.compile(r"%|(?<![a-z])(?:percent|pct|perc)(?![a-z])")
_PREFIXES = frozenset(
    {"x", "w", "r", "rho", "rfl", "refl", "reflectance", "rrs", "spec", "spectrum", "spectra", "wave", "waves"}
    | {"hcrf", "hdrf", "brf"}
)
_SATELLITE = "Sentinel-2A"
_TELLING = frozenset({"B8A", "B12"})
"""Bands that no other satellite calls so: tables with B1 to B7 alone may be of Landsat or MODIS."""


@dataclass(frozen=True)
class SpectralColumns:
    """Columns that make up spectra.

    Attributes
    ----------
    label : what their names have in common, "" for bare numbers.
    names : as in the table, D of them.
    wavelength : (D,) in `unit`.
    unit : "nm" or "um".
    percent : whether the names say that values are in percent.
    fwhm : (D,) in `unit`, for the bands of a satellite.
    sensor : whose bands they are, where the names tell.
    """

    label: str
    names: tuple[str, ...]
    wavelength: np.ndarray
    unit: str
    percent: bool = False
    fwhm: np.ndarray | None = None
    sensor: str | None = None


def spectral_columns(names: Sequence[str]) -> list[SpectralColumns]:
    """Groups of two columns or more whose names tell wavelengths, the largest first.

    Names with a unit are taken at their word. Without one, numbers of 200 and above are nanometres, and numbers
    below 100 that all have decimals are micrometres: "x1", "x2" count columns and are no wavelengths.
    """
    made = _groups(names)
    sentinel = _sentinel(names)
    return sorted(made if sentinel is None else [*made, sentinel], key=lambda group: -len(group.names))


def _groups(names: Sequence[str]) -> list[SpectralColumns]:
    groups: dict[tuple[str, str, bool], list[tuple[str, str]]] = {}
    for name in names:
        found = _parse(name)
        if found is not None:
            groups.setdefault(found[:3], []).append((name, found[3]))
    made = [_Group(*key, entries).columns() for key, entries in groups.items()]
    return [group for group in made if group is not None]


def band_wavelengths(names: Sequence[str | None]) -> SpectralColumns | None:
    """The wavelengths that the names of an image's bands tell, where every one does and none twice.

    "450.5 nm" does, "Band 1 (0.45 um)", and what the columns of tables may be called. Bare whole numbers from 1900 to
    2100 may be years, and do not.
    """
    texts = [name or "" for name in names]
    if len(set(texts)) < len(texts):
        return None
    found = [_STATED.findall(text) for text in texts]
    if len(names) > 1 and all(len(stated) == 1 for stated in found):
        digits, units = zip(*(stated[0] for stated in found), strict=True)
        unit = {str(length_unit(text)) for text in units}
        if len(unit) == 1:
            return SpectralColumns("", tuple(texts), np.array([float(number) for number in digits]), unit.pop())
    whole = [group for group in _groups(texts) if len(group.names) == len(names)]
    if not whole:
        return None
    low, high = whole[0].wavelength.min(), whole[0].wavelength.max()
    years = all(text.isdigit() for text in texts) and _YEARS[0] <= low and high <= _YEARS[1]
    return None if years else whole[0]


@dataclass(frozen=True)
class _Group:
    """Columns of one prefix and unit, with the digits of their numbers."""

    prefix: str
    unit: str
    percent: bool
    entries: list[tuple[str, str]]

    def columns(self) -> SpectralColumns | None:
        names, digits = zip(*self.entries, strict=True)
        wavelength = np.array([float(number) for number in digits])
        unit = self.unit or _implied_unit(digits, wavelength)
        if len(names) < 2 or unit is None:
            return None
        return SpectralColumns(self.prefix, names, wavelength, unit, self.percent)


def _parse(name: str) -> tuple[str, str, bool, str] | None:
    """Prefix, unit, whether in percent, and digits of a column's name; None where it is of another kind."""
    text = " ".join(re.sub(r"[\[\](){}]", " ", name.lower()).split())
    bare = _PERCENT.sub(" ", text).strip(" _.-")
    found = _NUMBERED.fullmatch(bare)
    if found is None:
        return None
    prefix = re.sub(r"[ _.-]+", "_", found["prefix"] or "").strip("_")
    unit = "" if found["unit"] is None else length_unit(found["unit"])
    if unit not in ("", "nm", "um"):
        return None
    known = not prefix or prefix in _PREFIXES or is_wavelength_name(prefix) or (bool(unit) and prefix in ("b", "band"))
    return (prefix, unit, bare != text.strip(" _.-"), found["number"]) if known else None


def _implied_unit(digits: Sequence[str], wavelength: np.ndarray) -> str | None:
    if wavelength.min() >= 200:
        return "nm"
    decimals = all("." in number for number in digits)
    return "um" if decimals and wavelength.min() >= 0.1 and wavelength.max() < 100 else None


def _sentinel(names: Sequence[str]) -> SpectralColumns | None:
    called = {name: found for name in names if (found := band_name(name)) is not None}
    if not _TELLING & set(called.values()):
        return None
    index = [NAMES.index(band) for band in called.values()]
    table = np.array(SATELLITES[_SATELLITE])[index]
    return SpectralColumns("B", tuple(called), table[:, 0], "nm", fwhm=table[:, 1], sensor=_SATELLITE)
