"""Maps dressed for CF-1.11: names, units, coordinates and links between variables as the conventions want them.

What the user's data say is kept: attributes are added where missing, and what CF cannot hold is told in a warning.

Units are told by the grammar of UDUNITS and the units in common use: every text accepted is a unit of UDUNITS, and a
few of its rarer ones are not known. Libraries do not replace that: cf-units 3.3 has no wheels for Linux on ARM or with
musl, and of the 995 names in the registry of pint for CF, 0.2 s to load, UDUNITS does not know 577.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Hashable, Iterable
from itertools import count

import numpy as np
import xarray as xr

from ...cubes import check_units, is_fwhm_name, is_unknown, is_wavelength_name, length_unit
from .. import GEOGRAPHIC_AXES, grid_mapping, has_places, is_geographic, spatial_dims, transform_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DEGREES = frozenset({"", "°", "deg", "degs", "degree", "degrees", "decimal_degrees"})
_AS_GIVEN = "units_as_given"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PREFIXES = _words("Y Z E P T G M k h da d c m u µ μ n p f a z y")
_PREFIX_NAMES = _words("tera giga mega kilo hecto deci centi milli micro nano pico")
_SYMBOLS = _words("m g s A K mol cd rad sr Hz N Pa J W C V F S T H lm lx Bq Gy Sv L l t eV bar")
_NAMES = _words(
    "meter metre gram second ampere kelvin mole candela radian steradian newton pascal joule watt coulomb volt "
    "ohm tesla lumen becquerel liter litre electronvolt"
)
_PLAIN = _words(
    "1 % percent ppm ppb ppmv count min h d hour hours minute minutes day days week weeks year years month months "
    "are hectare hectares angstrom angstroms micron microns degree degrees degree_north degrees_north degree_east "
    "degrees_east degC degree_C degrees_C degree_Celsius celsius Celsius °C degF ° atm Å in inch inches ft foot feet "
    "mile miles pound pounds erg cal gauss hertz siemens lux"
)
_UNIT = re.compile(
    f"(?:{'|'.join(_PREFIXES)})?(?:{'|'.join(_SYMBOLS)})"
    f"|(?:{'|'.join(_PREFIX_NAMES)})?(?:{'|'.join(_NAMES)})s?|{'|'.join(map(re.escape, _PLAIN))}"
)
_TOKEN = re.compile(
    r"(?P<bracket>[()])|(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)|(?P<sign>\s*(?:/|\*|·|\.|\bper\b)\s*)"
    r"|(?P<unit>[A-Za-zµμÅ°%]+(?:_[A-Za-z]+)*)(?:(?:\^|\*\*)?[-+]?\d+|[²³])?|(?P<blank>\s+)|(?P<other>.)"
)


def cf_units(text: str) -> str | None:
    """The units as UDUNITS reads them: the text itself, or a known spelling of a fraction, percent or length.

    None where the text says that they are unknown; ValueError where it is no unit known here.

    Examples
    --------
    >>> cf_units("g/cm2"), cf_units("unitless"), cf_units("Nanometers")
    ('g/cm2', '1', 'nm')
    """
    text = text.strip()
    if is_udunits(text):
        return text
    for plain in ("1", "%"):
        if _same(plain, text):
            return plain
    if length_unit(text) is not None:
        return length_unit(text)
    if is_unknown(text):
        return None
    raise ValueError(f"{text!r} is not a unit of UDUNITS")


def is_udunits(text: str) -> bool:
    """Whether the text is a product or quotient of numbers and known units with whole exponents."""
    said = _TOKEN.sub(_kind, text)
    while said != (simpler := re.sub(r"\(u(?:/?u)*\)", "u", said)):
        said = simpler
    return re.fullmatch(r"u(?:/?u)*", said) is not None


def _kind(token: re.Match[str]) -> str:
    """A token as one letter: "u" for a number or a known unit, "/" for a sign between two, "?" for what is unknown."""
    if token["unit"] is not None and token["unit"] != "per":
        return "u" if _UNIT.fullmatch(token["unit"]) else "?"
    return {"unit": "/", "number": "u", "sign": "/", "blank": "", "other": "?"}.get(str(token.lastgroup), token[0])


def _same(plain: str, text: str) -> bool:
    try:
        check_units(plain, text, "")
    except ValueError:
        return False
    return True


def dress(maps: xr.Dataset) -> xr.Dataset:
    """The maps with what CF-1.11 asks of a file, where their attribute `Conventions` claims CF; others as they are.

    Values and types stay, and so do the maps given. Names become letters, digits and underscores; a dimension whose
    coordinate is not monotonic is renamed, so that it becomes an auxiliary coordinate; known spellings of units become
    those of UDUNITS, and text that is no unit goes to the attribute `units_as_given`; coordinates get standard names,
    axes and units, and are made from the transform where there are none; `ancillary_variables` name variables that are
    there. A warning tells what was renamed and which units are none.
    """
    if "CF" not in str(maps.attrs.get("Conventions", "")):
        return maps
    maps = _cf_names(_projection_coordinates(maps.copy()))
    maps = _monotonic(maps)
    unknown = []
    for name, variable in maps.variables.items():
        attrs = dict(variable.attrs)
        if name in maps.coords:
            attrs = _coordinate_attrs(str(name), variable, attrs)
        if not _with_cf_units(attrs):
            unknown.append(f"{attrs[_AS_GIVEN]!r} of {name!r}")
        _link(attrs, maps.variables)
        if "flag_masks" in attrs and variable.dtype.kind in "iu":
            attrs["flag_masks"] = np.asarray(attrs["flag_masks"]).astype(variable.dtype)
        maps[name].attrs = attrs
    if unknown:
        warnings.warn(
            f"units {', '.join(unknown)} are none of UDUNITS, which CF asks for: written as {_AS_GIVEN!r} instead of "
            "'units'; correct the attribute 'units' where the data come from, as in 'g m-2'",
            stacklevel=3,
        )
    return maps


def cf_title(name: Hashable) -> str:
    """A name in words."""
    return str(name).replace("_", " ")


def _cf_names(maps: xr.Dataset) -> xr.Dataset:
    """Names of letters, digits and underscores; the name given stays as the long name."""
    every = [*dict.fromkeys((*maps.variables, *maps.sizes))]
    taken = {str(name) for name in every if _NAME.fullmatch(str(name))}
    renamed: dict[Hashable, str] = {}
    for name in every:
        if not _NAME.fullmatch(str(name)):
            renamed[name] = _free_name(str(name), taken | {*renamed.values()})
    if not renamed:
        return maps
    told = ", ".join(f"{str(old)!r} as {new!r}" for old, new in renamed.items())
    warnings.warn(f"CF names are letters, digits and underscores, so the file has {told}", stacklevel=4)
    for name, variable in maps.variables.items():
        words = str(variable.attrs.get("ancillary_variables", ""))
        for old in sorted(renamed, key=lambda old: -len(str(old))):  # names with blanks are no words
            words = re.sub(rf"(?<!\S){re.escape(str(old))}(?!\S)", renamed[old], words)
        if words:
            variable.attrs["ancillary_variables"] = words
        if name in renamed:
            variable.attrs.setdefault("long_name", cf_title(name))
        for place in (variable.attrs, variable.encoding):
            if place.get("grid_mapping") in renamed:
                place["grid_mapping"] = renamed[place["grid_mapping"]]
    return maps.rename(renamed)


def _free_name(name: str, taken: Collection[str]) -> str:
    """A name in letters, digits and underscores that is not taken."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    plain = plain if plain[:1].isalpha() else f"v{plain}"
    candidates = (plain if number == 1 else f"{plain}_{number}" for number in count(1))
    return next(candidate for candidate in candidates if candidate not in taken)


def _projection_coordinates(maps: xr.Dataset) -> xr.Dataset:
    """The maps with coordinates along y and x, from the transform where they have none, and their CF attributes."""
    dims = spatial_dims(maps)
    mapping = next((name for array in maps.data_vars.values() if (name := grid_mapping(maps, array))), None)
    if dims is None or mapping is None or maps.rio.crs is None or not set(dims) <= set(maps.sizes):
        return maps
    if not set(dims) & set(maps.coords):
        transform = transform_of(maps)
        if transform.is_identity or not transform.is_rectilinear:
            return maps
        y_dim, x_dim = dims
        maps = maps.assign_coords(
            {
                y_dim: transform.f + transform.e * (np.arange(maps.sizes[y_dim]) + 0.5),
                x_dim: transform.c + transform.a * (np.arange(maps.sizes[x_dim]) + 0.5),
            }
        )
    if has_places(maps, dims):
        own = {dim: maps[dim].attrs for dim in dims}
        maps = maps.rio.write_coordinate_system()
        for dim in dims:
            maps[dim].attrs |= own[dim]
    return maps


def _monotonic(maps: xr.Dataset) -> xr.Dataset:
    """The maps with other names for dimensions whose coordinate of the same name is not strictly monotonic."""
    renamed = {}
    for dim in maps.sizes:
        if dim in maps.coords and maps[dim].dtype.kind in "iufM" and maps[dim].dims == (dim,):
            steps = np.diff(maps[dim].values.astype(np.float64))
            if not (np.all(steps > 0) or np.all(steps < 0)):
                renamed[dim] = f"{dim}_number"
    if not renamed:
        return maps
    told = ", ".join(f"{str(old)!r} as {new!r}" for old, new in renamed.items())
    warnings.warn(
        f"CF wants coordinates of dimensions to rise or fall strictly, so the file has dimension {told} "
        "and the coordinate along it",
        stacklevel=4,
    )
    return maps.rename_dims(renamed)


def _coordinate_attrs(name: str, variable: xr.Variable, attrs: dict[str, object]) -> dict[str, object]:
    """Attributes of a coordinate, completed."""
    units = str(attrs.get("units", ""))
    kind = is_geographic(name, variable)
    if "grid_mapping_name" in attrs or "crs_wkt" in attrs:
        return attrs
    if kind is not None:
        attrs.setdefault("standard_name", kind)
        if units.strip().lower() in _DEGREES:
            attrs["units"] = GEOGRAPHIC_AXES[kind][0]
    elif variable.dtype.kind == "M":
        attrs.setdefault("standard_name", "time")
        attrs.setdefault("units_metadata", "leap_seconds: unknown")
        if variable.dims == (name,):
            attrs.setdefault("axis", "T")
    elif is_wavelength_name(name) and length_unit(units) is not None:
        attrs.setdefault("standard_name", "radiation_wavelength")
    elif is_fwhm_name(name):
        attrs.setdefault("long_name", "full width at half maximum of the band")
    attrs.setdefault("long_name", cf_title(name))
    return attrs


def _with_cf_units(attrs: dict[str, object]) -> bool:
    """Put units as UDUNITS reads them; False where they are none, and moved to another attribute."""
    if "units" not in attrs:
        return True
    text = str(attrs.pop("units"))
    if " since " in text:
        attrs["units"] = text
        return True
    try:
        units = cf_units(text)
    except ValueError:
        attrs[_AS_GIVEN] = text
        return False
    if units is not None:
        attrs["units"] = units
    return True


def _link(attrs: dict[str, object], names: Iterable[Hashable]) -> None:
    """Leave variables out of the ancillary ones that are not in the file."""
    if "ancillary_variables" in attrs:
        there = [word for word in str(attrs.pop("ancillary_variables")).split() if word in set(names)]
        if there:
            attrs["ancillary_variables"] = " ".join(there)
