"""What a file says of its bands: the tags of a raster or an ENVI header, and names of bands and columns, as they come.

Source of the wavelengths and widths of Sentinel-2: ESA, Sentinel-2 MSI user guide, table of those of S2A and S2B,
derived from the measured spectral responses (COPE-GSEG-EOPG-TN-15-0007).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

_IGNORE = frozenset({"dataignorevalue", "ignorevalue", "nodata", "nodatavalue"})
_SCALE = frozenset(
    {
        *("scale", "scalefactor", "scalingfactor", "datascale", "datascalefactor", "reflectancescale"),
        *("reflectancescalefactor", "reflectancescalingfactor", "reflectencescalefactor", "reflectancefactor"),
    }
)
_UNITS = frozenset({"units", "unit", "dataunits", "dataunit", "reflectanceunits", "reflectanceunit", "valueunits"})
_TIMES = re.compile(r"reflectance[^0-9]*[*x×][^0-9]*(10+)\b", re.IGNORECASE)


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
    scale : factor from stored numbers to reflectance, as :func:`declared_scale` or units such as percent tell.
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
    tags in micrometres, and all before the names of bands, where every one tells a wavelength. ValueError where a list
    has another length than there are bands, an entry is no number, or wavelengths come in what is no unit of length.
    """
    whole = _told({**dataset.tags(), **dataset.tags(ns="ENVI")})
    each = [_told(dataset.tags(index)) for index in indexes]

    def per_band(wanted: Callable[[object], bool]) -> np.ndarray | None:
        for key, text in whole.items():
            if wanted(key) and (set(",{[") & set(text) or len(text.split()) == len(indexes)):
                return _numbers(text, len(indexes), key, path)
        return _each([_find(tags, wanted) for tags in each], path)

    units = (_find(tags, is_wavelength_units_key) for tags in (whole, *each))
    unit = next((text for text in units if text), None)
    wavelength, fwhm, good = per_band(is_wavelength_name), per_band(is_fwhm_name), per_band(is_good_name)
    if wavelength is None:
        imagery = [dataset.tags(index, ns="IMAGERY") for index in indexes]
        wavelength = _each([tags.get("CENTRAL_WAVELENGTH_UM") for tags in imagery], path)
        if wavelength is not None:
            widths = _each([tags.get("FWHM_UM") for tags in imagery], path)
            unit, fwhm = "um", fwhm if widths is None else widths
    source = None
    if wavelength is None:
        named = band_wavelengths([dataset.descriptions[index - 1] for index in indexes])
        if named is not None:
            wavelength, unit, source = named.wavelength, named.unit, "names of the bands"
    if wavelength is not None and not is_unknown(unit) and length_unit(unit) is None:
        raise ValueError(f"{path}: wavelengths in {unit!r} are not understood; convert the metadata to nm, um or m")
    ignore = _find(whole, lambda key: letters_of(key) in _IGNORE)
    factors = {declared_scale(tags, path) for tags in each}
    scales = [declared_scale(whole, path), *(factors if len(factors) == 1 else ()), _scale_of_units(whole)]
    return BandTags(
        wavelength=wavelength,
        unit=None if is_unknown(unit) else unit,
        fwhm=fwhm,
        good=None if good is None else good != 0,
        ignore_value=None if ignore is None else _number(ignore, "data ignore value", path),
        scale=next((scale for scale in scales if scale is not None), None),
        source=source,
    )


def _told(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags without those that hold nothing, as empty braces."""
    return {key: text for key, text in tags.items() if text.strip("{}[]() \t\r\n")}


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
            f"{path}: the metadata list {len(entries)} values of {key!r} for {count} bands; correct the header, in "
            f"which lists are written as in: {key} = {{1, 2, ...}}"
        )
    return np.array([_number(entry, repr(key), path) for entry in entries])


def _entries(text: str) -> list[str]:
    """What a list in braces, brackets or none holds, with commas, semicolons or blanks between."""
    bare = text.strip().strip("{}[]()").replace(";", ",")
    return [entry.strip() for entry in (bare.split(",") if "," in bare else bare.split()) if entry.strip()]


def _each(texts: Sequence[str | None], path: str) -> np.ndarray | None:
    """Numbers told band by band, NaN where one is not; None where none is."""
    if all(text is None for text in texts):
        return None
    return np.array([_number(text, f"band {i + 1}", path) for i, text in enumerate(texts)])


def is_percent(name: str) -> bool:
    """Tell whether a column's name says that its values are in percent."""
    return _PERCENT.search(name.lower()) is not None


def is_scale_name(name: object) -> bool:
    """Tell whether `name` is a known name of the scale of stored numbers."""
    return letters_of(name) in _SCALE


def declared_scale(tags: Mapping[Any, Any], path: str) -> float | None:
    """The factor from stored numbers to fractions that metadata declare; None where they do not.

    It is one over ENVI's "reflectance scale factor", or another name of a scale, which divides; a factor below 1, such
    as 0.0001, can only be meant to multiply, and does. ValueError where it is not positive, differs between bands or,
    unless it is called "scale" and nothing else, is no number.
    """
    key = next((key for key in tags if is_scale_name(key)), None)
    if key is None:
        return None
    called = str(key).replace("_", " ")
    entries = {text for value in np.ravel(tags[key]) for text in _entries(str(value))}
    if letters_of(key) == "scale" and not all(re.fullmatch(r"[-+.\deE]+", entry) for entry in entries):
        return None
    factors = {_number(entry, called, path) for entry in entries}
    if len(factors) != 1:
        raise ValueError(f"{path}: {called} differs between bands; divide each by its own, and remove it")
    factor = factors.pop()
    if not factor > 0:
        raise ValueError(f"{path}: {called} {factor:g} is not positive; correct the header")
    return 1.0 / factor if factor > 1 else factor


def _scale_of_units(tags: Mapping[str, str]) -> float | None:
    """The factor from numbers in percent, or in "reflectance * 10000", to fractions; None where units are others."""
    units = " ".join(text for key, text in tags.items() if letters_of(key) in _UNITS).lower()
    times = _TIMES.search(units)
    return 1.0 / float(times[1]) if times else 0.01 if _PERCENT.search(units) else None


NAMES = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12")
"""In the order of the metadata's band identifiers, 0 to 12."""

SATELLITES: dict[str, tuple[tuple[float, float], ...]] = {
    "Sentinel-2A": (
        *((442.7, 21.0), (492.4, 66.0), (559.8, 36.0), (664.6, 31.0), (704.1, 15.0), (740.5, 15.0), (782.8, 20.0)),
        *((832.8, 106.0), (864.7, 21.0), (945.1, 20.0), (1373.5, 31.0), (1613.7, 91.0), (2202.4, 175.0)),
    ),
    "Sentinel-2B": (
        *((442.2, 21.0), (492.1, 66.0), (559.0, 36.0), (664.9, 31.0), (703.8, 16.0), (739.1, 15.0), (779.7, 20.0)),
        *((832.9, 106.0), (864.0, 22.0), (943.2, 21.0), (1376.9, 30.0), (1610.4, 94.0), (2185.7, 185.0)),
    ),
}
"""Centre and width of every band of `NAMES` in nanometres."""

_AUXILIARY = re.compile(
    r"(AOT|WVP|SCL|SNW|CLD|TCI(_[RGB])?|QA(10|20|60)|MSK_\w+|CLOUD\w*|SNOW\w*|DATAMASK)", re.IGNORECASE
)


def band_name(text: str | None) -> str | None:
    """The name of `NAMES` that a band is called by: "B1", "b01", "Band 8A", "B08_20m", "B2 (490 nm)"; else None."""
    pattern = r"(?:B|BAND)[ _.-]?0?(1[0-2]|[1-9]|8A)(?:[ _][126]0 ?M| *\(.*\))?"
    match = re.fullmatch(pattern, (text or "").strip().upper())
    return None if match is None else f"B{match[1].zfill(2)}"


def is_auxiliary(text: str | None) -> bool:
    """Tell whether a band of this name is a layer delivered with the reflectance, such as the scene classes."""
    return _AUXILIARY.fullmatch((text or "").strip()) is not None


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
_BAND_NUMBER = r"(?:sr[ _.-]*)?(?:b|band|bands|channel|ch)[ _.-]*0*\d+[a-z]?"
_AFTER_NUMBER = "band_number"
"""Stands for the number of a band in front of its wavelength."""
_NUMBER_FIRST = re.compile(_BAND_NUMBER + r"[ _.:,-]+(?=\d)")
_SATELLITE = "Sentinel-2A"


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
    below 100 that all have decimals are micrometres: "x1", "x2" count columns and are no wavelengths. A number of the
    band may come first, as in "B1_450nm" or "Band 1 (0.45)".
    """
    made = _groups(names)
    sentinel = _sentinel(names)
    return sorted(made if sentinel is None else [*made, sentinel], key=lambda group: -len(group.names))


def _groups(names: Sequence[str]) -> list[SpectralColumns]:
    groups: dict[tuple[str, str, bool], list[tuple[str, str]]] = {}
    for name in names:
        if (parsed := _parse(name)) is not None:
            groups.setdefault(parsed[:3], []).append((name, parsed[3]))
    made = []
    for (prefix, told, percent), entries in groups.items():
        called, digits = zip(*entries, strict=True)
        wavelength = np.array([float(number) for number in digits])
        unit = told or _implied_unit(digits, wavelength, counted=prefix == _AFTER_NUMBER)
        if prefix == _AFTER_NUMBER and len(set(digits)) < len(digits):
            continue  # of a year or a replicate
        if len(called) > 1 and unit is not None:
            made.append(SpectralColumns(prefix, called, wavelength, unit, percent))
    return made


def band_wavelengths(names: Sequence[str | None]) -> SpectralColumns | None:
    """The wavelengths that the names of an image's bands tell, where every one does and none twice.

    "450.5 nm" does, "Band 1 (0.45 um)", and what the columns of tables may be called. Bare whole numbers from 1900 to
    2100 may be years, and do not.
    """
    texts = [name or "" for name in names]
    if len(set(texts)) < len(texts):
        return None
    stated = [_STATED.findall(text) for text in texts]
    if len(names) > 1 and all(len(numbers) == 1 for numbers in stated):
        digits, units = zip(*(numbers[0] for numbers in stated), strict=True)
        unit = {str(length_unit(text)) for text in units}
        if len(unit) == 1:
            return SpectralColumns("", tuple(texts), np.array([float(number) for number in digits]), unit.pop())
    whole = [group for group in _groups(texts) if len(group.names) == len(names)]
    if not whole:
        return None
    low, high = whole[0].wavelength.min(), whole[0].wavelength.max()
    years = all(text.isdigit() for text in texts) and _YEARS[0] <= low and high <= _YEARS[1]
    return None if years else whole[0]


def _parse(name: str) -> tuple[str, str, bool, str] | None:
    """Prefix, unit, whether in percent, and digits of a column's name; None where it is of another kind."""
    text = " ".join(re.sub(r"[\[\](){}]", " ", name.lower()).split())
    bare = _PERCENT.sub(" ", text).strip(" _.-")
    parts = _NUMBERED.fullmatch(_NUMBER_FIRST.sub(f"{_AFTER_NUMBER} ", bare))
    if parts is None:
        return None
    prefix = re.sub(r"[ _.-]+", "_", parts["prefix"] or "").strip("_")
    unit = "" if parts["unit"] is None else length_unit(parts["unit"])
    if unit not in ("", "nm", "um"):
        return None
    known = (
        prefix in ("", _AFTER_NUMBER)
        or prefix in _PREFIXES
        or is_wavelength_name(prefix)
        or (bool(unit) and prefix in ("b", "band"))
    )
    return (prefix, unit, bare != text.strip(" _.-"), parts["number"]) if known else None


def _implied_unit(digits: Sequence[str], wavelength: np.ndarray, counted: bool) -> str | None:
    """The unit that the numbers leave; `counted` where these come after numbers that count the bands."""
    if wavelength.min() >= 200:
        return "nm"
    decimals = (any if counted else all)("." in number for number in digits)
    return "um" if decimals and wavelength.min() >= 0.1 and wavelength.max() < 100 else None


def numbered_bands(names: Sequence[str]) -> list[str]:
    """Names that tell the number of a band and nothing else of it: "B1", "band_01", "SR_B5", "Band.8A"."""
    return [name for name in names if re.fullmatch(_BAND_NUMBER, name.strip().lower()) is not None]


def columns_of_sensor(names: Sequence[str], wavelength: np.ndarray, fwhm: np.ndarray | None) -> SpectralColumns | None:
    """Columns that number the bands of a sensor, by its wavelengths and widths (D,) in nm; None where others number D.

    The first number is that of the first band.
    """
    numbered = numbered_bands(names)
    if len(numbered) != wavelength.size:
        return None
    return SpectralColumns("", tuple(numbered), wavelength, "nm", fwhm=fwhm)


def _sentinel(names: Sequence[str]) -> SpectralColumns | None:
    """Bands of Sentinel-2, where they are called so and nothing contradicts it.

    B8A is called so by no other satellite. B12 is, where B10 is not there, which L2A lacks. Further numbers, or a
    wavelength in one of the names, tell of another sensor.
    """
    called = {name: band for name in names if (band := band_name(name)) is not None}
    bands = set(called.values())
    telling = "B8A" in bands or ("B12" in bands and "B10" not in bands)
    if not telling or set(numbered_bands(names)) - set(called) or any(_parse(name) for name in called):
        return None
    index = [NAMES.index(band) for band in called.values()]
    table = np.array(SATELLITES[_SATELLITE])[index]
    return SpectralColumns("B", tuple(called), table[:, 0], "nm", fwhm=table[:, 1], sensor=_SATELLITE)
