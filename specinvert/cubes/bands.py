"""The band axis: which dimension it is, its wavelengths and their units, and matching one axis to another.

Wavelengths are matched in nanometres within a tolerance and never through xarray's float indexes, which silently drop
coordinates that differ in the last digits.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

logger = logging.getLogger(__name__)

NM_PER_UNIT = {"nm": 1.0, "um": 1e3, "mm": 1e6, "m": 1e9, "angstrom": 0.1}

_LENGTH_SPELLINGS = {
    "nm": "nm nms nanometer nanometers nanometre nanometres",
    "um": "um ums µm μm micron microns micrometer micrometers micrometre micrometres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "m": "m meter meters metre metres",
    "angstrom": "å ang angstrom angstroms ångström ångströms ångstrom ångstroms",
}
_LENGTHS = {spelling: unit for unit, text in _LENGTH_SPELLINGS.items() for spelling in text.split()}
_UNKNOWN = frozenset({"", "unknown", "none", "n/a", "na", "-"})
_FRACTION = (
    *("", "1", "1.0", "-", "none"),
    *("reflectance", "unitless", "dimensionless", "adimensional", "fraction", "ratio", "unity"),
)
_SAME = {**dict.fromkeys(_FRACTION, "1"), **dict.fromkeys(("%", "percent", "per cent", "pct"), "%")}
_REMEDY = {("1", "%"): "divide by 100", ("%", "1"): "multiply by 100"}

_STANDARD_NAMES = frozenset({"radiation_wavelength", "sensor_band_central_radiation_wavelength"})
_SPELLINGS = (
    *("wavelength", "radiationwavelength", "wavelen", "wvlen", "wvl", "wl", "lambda"),
    *("wavelenght", "wavelegth", "wavelegnth", "wavelenth", "wavelngth", "wavlength", "wavelengh", "wavelnegth"),
)
_FWHM = ("fwhm", "fwhms", "fhwm", "fwmh", "fullwidthhalfmaximum", "fullwidthathalfmaximum", "bandwidth", "bandwidths")
_GOOD = ("bbl", "badbandlist", "badbandslist", "badbandmultiplier", "good", "goodwavelengths", "goodbands")
_NAME_PREFIX = re.compile(r"^(sensorband|band)?(center|centre|central|centered|mean|nominal)?")
_NAME_UNIT = re.compile(r"[\s_\-\[(]+(?P<unit>nm|nanomet(?:er|re)s?|um|µm|μm|microns?|micromet(?:er|re)s?)[\])]?$")

_SHORTEST_NM, _LONGEST_NM = 100.0, 1e5
_NARROWEST_NM = 0.05
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Bands:
    """The band axis of a training set or a cube.

    Attributes
    ----------
    dim : name of the dimension.
    size : number of bands, D.
    wavelength : (D,) float64 in nanometres, in the order of the axis; None where the axis carries none.
    unit : the unit the wavelengths came in ("nm", "um", "mm", "m", "angstrom"); None without wavelengths.
    guessed : True where no unit was given and it was guessed from the values.
    labels : (D,) the plain coordinate of the dimension where there are no wavelengths; None without one.
    """

    dim: str
    size: int
    wavelength: np.ndarray | None = None
    unit: str | None = None
    guessed: bool = False
    labels: np.ndarray | None = None

    def name(self, index: int) -> str:
        """How messages name a band: by its wavelength, its label or its number."""
        if self.wavelength is not None:
            return f"{self.wavelength[index]:g} nm"
        return f"band {self.labels[index] if self.labels is not None else index}"


def is_wavelength_name(name: Hashable) -> bool:
    """Tell whether `name` spells wavelength, in any case, with a prefix, a unit or a known slip."""
    text = str(name).strip().lower()
    letters = re.sub(r"[^a-z]", "", _NAME_UNIT.sub("", text))
    return _NAME_PREFIX.sub("", letters).removesuffix("s") in _SPELLINGS


def is_wavelength_units_key(key: Hashable) -> bool:
    """Tell whether an attribute named `key` holds the unit of wavelengths, like "wavelength_units"."""
    match = re.fullmatch(r"(.+?)[\s_\-]*units?", str(key).strip().lower())
    return match is not None and is_wavelength_name(match[1])


def find_band_dim(array: xr.DataArray, band_dim: str | None = None) -> str:
    """Return the name of the dimension of `array` that carries wavelengths.

    A dimension carries wavelengths where a 1-D numeric coordinate along it has a known spelling of
    wavelength as its name, or a CF standard_name of one.

    Parameters
    ----------
    array : spectra of any number of dimensions in any order.
    band_dim : the answer, where the caller knows it; it only has to exist.

    Raises
    ------
    ValueError : `band_dim` is no dimension of `array`; none or several dimensions carry wavelengths; or the
        coordinate that should hold wavelengths holds text.

    Examples
    --------
    >>> cube = xr.DataArray(np.zeros((2, 5)), dims=("b", "x"), coords={"wavelength": ("b", [500.0, 600.0])})
    >>> find_band_dim(cube)
    'b'
    """
    sizes = _sizes(array)
    if band_dim is not None:
        if band_dim not in array.dims:
            raise ValueError(f"band_dim={band_dim!r} is not a dimension; the dimensions are {sizes}")
        return band_dim
    along: list[Any] = [dim for dim in array.dims if wavelength_coordinate(array, dim) is not None]
    if len(along) == 1:
        return along[0]  # type: ignore[no-any-return]  # a name of any kind
    if along:
        names = ", ".join(repr(str(dim)) for dim in along)
        raise ValueError(f"several dimensions carry wavelengths ({names} of {sizes}); pass band_dim=")
    raise ValueError(
        f"no dimension carries wavelengths (dimensions: {sizes}); pass band_dim= or attach a 1-D numeric "
        "coordinate named 'wavelength' to the band dimension"
    )


def describe_bands(array: xr.DataArray, dim: str) -> Bands:
    """Describe the axis `dim` of `array`, with wavelengths converted to nanometres where it carries them.

    The unit is read from the coordinate's `units`, else from the array's attributes (`wavelength_units`),
    else from the coordinate's name (`wavelength_nm`); failing these it is guessed where the values leave one
    choice between nm, um and m, and the guess is logged.

    Parameters
    ----------
    array : spectra, dimension `dim` among theirs; wavelengths need not be monotonic.
    dim : the band dimension, as `find_band_dim` returns it.

    Raises
    ------
    ValueError : wavelengths are text, NaN, not positive or repeated; their unit is not one of length, is
        missing and cannot be guessed, or contradicts the values.
    """
    if dim not in array.dims:
        raise ValueError(f"{dim!r} is not a dimension; the dimensions are {_sizes(array)}")
    size = array.sizes[dim]
    coordinate = wavelength_coordinate(array, dim)
    if coordinate is None and dim in array.coords and length_unit(array.coords[dim].attrs.get("units")):
        coordinate = array.coords[dim]
    if coordinate is None:
        labels = _labels(array.coords[dim].values) if dim in array.coords else None
        return Bands(dim=dim, size=size, labels=labels)
    values = np.asarray(coordinate.values, dtype=np.float64)
    name = str(coordinate.name)
    _check_wavelengths(values, name, dim)
    declared = _declared_unit(coordinate, array.attrs)
    unit = declared or _guess_unit(values, name)
    nanometres = values * NM_PER_UNIT[unit]
    if nanometres.size and not _plausible(nanometres):
        likely = [u for u in ("nm", "um", "m") if _plausible(values * NM_PER_UNIT[u])]
        hint = f" (they look like {' or '.join(likely)})" if likely else ""
        raise ValueError(
            f"units {unit!r} contradict the values of {name!r}, {_span(values)}{hint}; "
            "correct the coordinate's 'units' attribute or its values"
        )
    return Bands(dim=dim, size=size, wavelength=nanometres, unit=unit, guessed=declared is None)


def wavelength_coordinate(array: xr.DataArray, dim: Hashable) -> xr.DataArray | None:
    """The 1-D numeric coordinate of `array` along `dim` that holds wavelengths, in its own unit; None without one.

    Raises ValueError where the coordinate that should hold them holds text.
    """
    named: list[xr.DataArray] = [
        coordinate
        for name, coordinate in array.coords.items()
        if coordinate.dims == (dim,)
        and (is_wavelength_name(name) or coordinate.attrs.get("standard_name") in _STANDARD_NAMES)
    ]
    numeric = [coordinate for coordinate in named if coordinate.dtype.kind in "iuf"]
    if named and not numeric:
        name, kind = named[0].name, named[0].dtype
        raise ValueError(
            f"coordinate {name!r} along {dim!r} should hold wavelengths but holds {kind} values; use numbers"
        )
    if not numeric:
        return None
    return min(numeric, key=lambda c: (c.name != dim, str(c.name).lower() != "wavelength"))


def read_fwhm(array: xr.DataArray, bands: Bands) -> np.ndarray | None:
    """Full widths at half maximum (D,) of the bands in nanometres; None where `array` has no coordinate `fwhm`.

    They are in the `units` of the coordinate, else in those of the wavelengths.

    Raises
    ------
    ValueError : widths are NaN, not positive, or so small or large that they must be in another unit.
    """
    coordinate = array.coords.get("fwhm")
    if coordinate is None or bands.wavelength is None or bands.unit is None or coordinate.dims != (bands.dim,):
        return None
    given = coordinate.attrs.get("units")
    unit = bands.unit if is_unknown(given) else length_unit(given)
    if unit is None:
        raise ValueError(f"units {given!r} of 'fwhm' are not understood; convert to nm, um or m")
    widths = np.asarray(coordinate.values, dtype=np.float64) * NM_PER_UNIT[unit]
    bad = ~((widths >= _NARROWEST_NM) & (widths <= bands.wavelength))
    if bad.any():
        where = np.flatnonzero(bad)
        raise ValueError(
            f"'fwhm' in {unit} makes {where.size} of {widths.size} bands NaN, narrower than {_NARROWEST_NM:g} nm or "
            f"wider than their wavelength (positions {_some(where)}, values {_some(coordinate.values[where])}); "
            "correct the values or the coordinate's 'units', or drop those bands"
        )
    return widths


def read_good(array: xr.DataArray, dim: str) -> np.ndarray | None:
    """Which bands are good, (D,) bool; None where `array` has no coordinate `good` along `dim`.

    Raises ValueError where it holds anything but True and False, or 1 and 0.
    """
    coordinate = array.coords.get("good")
    if coordinate is None or coordinate.dims != (dim,):
        return None
    values = coordinate.values
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(f"'good' along {dim!r} holds {_some(np.unique(values))}; use True and False, or 1 and 0")
    return np.asarray(values != 0)


def match_bands(wanted: Bands, offered: Bands, tolerance: float = 1.0, of: str = "") -> np.ndarray:
    """Return, for every wanted band, the index of the offered band to use.

    With wavelengths on both sides each wanted band takes the nearest offered one within `tolerance`; an
    offered band serves once, the closest pair first. Offered bands may be more, and in any order. Without
    wavelengths on both sides the counts must agree and labels, where both have them, too.

    Parameters
    ----------
    wanted : the bands of the model.
    offered : the bands of the cube.
    tolerance : largest accepted difference in nanometres.
    of : what offers bands for messages, "the noise"; by default a cube.

    Returns
    -------
    (wanted.size,) integer indices into the offered axis.

    Raises
    ------
    ValueError : a wanted band has no partner, counts or labels differ, only one side has wavelengths, or
        `tolerance` is negative or NaN.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance={tolerance} must be a number of nanometres, 0 or more")
    if wanted.wavelength is not None and offered.wavelength is not None:
        return _match_wavelengths(wanted.wavelength, offered.wavelength, tolerance, of)
    if wanted.wavelength is not None or offered.wavelength is not None:
        has, lacks = ("training", "cube") if wanted.wavelength is not None else ("cube", "training")
        dim = offered.dim if lacks == "cube" else wanted.dim
        raise ValueError(
            f"bands of the {has} have wavelengths and those of the {lacks} have none; attach a 'wavelength' "
            f"coordinate along {dim!r} of the {lacks}, or drop it from the {has} to match by position"
        )
    if wanted.size != offered.size:
        raise ValueError(
            f"{wanted.size} bands in training but {offered.size} in {of or 'the cube'}, and no wavelengths to match "
            "them by; select the same bands, or attach a 'wavelength' coordinate to both"
        )
    if wanted.labels is None or offered.labels is None:
        return np.arange(wanted.size)
    return _match_labels(list(wanted.labels), list(offered.labels), of or "the cube")


def _labels(values: np.ndarray) -> np.ndarray:
    """Labels (D,) as a model file holds them: numbers, times in microseconds, or text."""
    if values.dtype.kind in "mM":
        return values.astype(f"{values.dtype.kind}8[us]")
    if values.dtype.kind == "S":
        return np.asarray(np.char.decode(values, "utf-8", "replace"))
    return np.array(list(map(str, values))) if values.dtype.kind == "O" else values.copy()


def _check_wavelengths(values: np.ndarray, name: str, dim: str) -> None:
    count = values.size
    for bad, word in ((~np.isfinite(values), "NaN or infinite"), (values <= 0, "not positive")):
        if bad.any():
            where = np.flatnonzero(bad)
            raise ValueError(
                f"{name!r} is {word} for {where.size} of {count} bands (positions {_some(where)}); "
                f"drop those bands with .isel({dim}=...) or correct them"
            )
    unique, counts = np.unique(values, return_counts=True)
    if unique.size < count:
        raise ValueError(
            f"{name!r} holds repeated values ({_some(unique[counts > 1])}); drop one band of each pair with "
            f".isel({dim}=...) or correct them"
        )


def _declared_unit(coordinate: xr.DataArray, attrs: Mapping[Hashable, object]) -> str | None:
    name = str(coordinate.name)
    of_array = next((value for key, value in attrs.items() if is_wavelength_units_key(key)), None)
    suffix = _NAME_UNIT.search(name.strip().lower())
    said = (coordinate.attrs.get("units"), of_array, suffix and suffix["unit"])
    given = next((unit for unit in said if not is_unknown(unit)), None)
    if given is None:
        return None
    unit = length_unit(given)
    if unit is None:
        raise ValueError(f"units {given!r} of {name!r} are not understood; convert to nm, um or m")
    return unit


def _guess_unit(values: np.ndarray, name: str) -> str:
    fits = [unit for unit in ("nm", "um", "m") if values.size and _plausible(values * NM_PER_UNIT[unit])]
    if len(fits) != 1:
        raise ValueError(
            f"{name!r} has no units and its values, {_span(values)}, do not tell which; "
            "set the coordinate's 'units' attribute to nm, um or m"
        )
    logger.info("%r has no units; its values, %s, are taken as %s", name, _span(values), fits[0])
    return fits[0]


def _plausible(nanometres: np.ndarray) -> bool:
    return bool(nanometres.min() >= _SHORTEST_NM * (1 - 1e-9) and nanometres.max() <= _LONGEST_NM * (1 + 1e-9))


def _match_wavelengths(wanted: np.ndarray, offered: np.ndarray, tolerance: float, of: str) -> np.ndarray:
    chosen = np.full(wanted.size, -1, dtype=np.intp)
    distance = np.abs(wanted[:, None] - offered[None, :])
    rows, columns = np.nonzero(distance <= tolerance)
    free = np.ones(offered.size, dtype=bool)
    for pair in np.argsort(distance[rows, columns], kind="stable"):
        row, column = rows[pair], columns[pair]
        if chosen[row] < 0 and free[column]:
            chosen[row] = column
            free[column] = False
    missing = np.flatnonzero(chosen < 0)
    if not missing.size:
        return chosen
    if not offered.size:
        raise ValueError(f"none of the {wanted.size} bands wanted is offered: {of or 'the cube'} has no bands")
    shown = ", ".join(
        f"{value:.2f} nm (nearest {offered[np.argmin(np.abs(offered - value))]:.2f})"
        for value in wanted[missing[:_SHOWN]]
    )
    more = ", ..." if missing.size > _SHOWN else ""
    remedy = (
        f"give {of} at these wavelengths, or raise tolerance"
        if of
        else "train for the sensor's bands (fit(training, sensor=cube)), average finer spectra to the model's "
        "(resample), drop those bands from training, raise tolerance, or give the cube these bands with NaN, as "
        "select_bands(drop=False) does"
    )
    raise ValueError(
        f"{missing.size} of {wanted.size} bands have no partner of their own{of and f' in {of}'} within "
        f"{tolerance:g} nm: {shown}{more}; {remedy}"
    )


def _match_labels(wanted: list[object], offered: list[object], of: str) -> np.ndarray:
    position = {label: index for index, label in enumerate(offered)}
    unique = len(position) == len(offered) and len(set(wanted)) == len(wanted)
    if unique and set(wanted) == set(offered):
        return np.array([position[label] for label in wanted], dtype=np.intp)
    if not unique and wanted == offered:
        return np.arange(len(wanted))
    missing = [label for label in wanted if label not in position]
    detail = f"labels {_some(missing)} are not in {of}" if missing else "repeated labels are in another order"
    raise ValueError(
        f"band labels differ: {detail}, whose labels are {_some(offered)}; rename or reorder its bands, "
        "or drop the labels to match by position"
    )


def _sizes(array: xr.DataArray) -> str:
    return ", ".join(f"{dim}: {size}" for dim, size in array.sizes.items()) or "none"


def _span(values: np.ndarray) -> str:
    return f"{values.min():g} to {values.max():g}" if values.size else "of which there are none"


def _some(values: np.ndarray | list[object]) -> str:
    shown = [str(value) for value in list(values)[:_SHOWN]]
    return ", ".join(shown) + (", ..." if len(values) > _SHOWN else "")


def is_fwhm_name(name: object) -> bool:
    """Tell whether `name` is a known spelling of the bands' full width at half maximum."""
    return letters_of(name) in _FWHM


def is_good_name(name: object) -> bool:
    """Tell whether `name` is a known name of a list of bands, 1 for good and 0 for bad."""
    return letters_of(name) in _GOOD


def letters_of(name: object) -> str:
    """A name in lower case without anything but letters."""
    return re.sub(r"[^a-z]", "", str(name).lower())


def is_unknown(unit: object) -> bool:
    """Tell whether `unit` says nothing: None, blank, "unknown" and the like."""
    return unit is None or as_text(unit).strip().lower() in _UNKNOWN


def length_unit(unit: object) -> str | None:
    """Return the key of `NM_PER_UNIT` that `unit` spells, or None where it is no unit of length."""
    text = as_text(unit).strip().strip("[]()").rstrip(".")
    if text == "A":
        return "angstrom"
    if text.startswith("M") and len(text) == 2:  # megametres, not millimetres
        return None
    return _LENGTHS.get(text.lower())


def check_units(expected: object, given: object, what: str) -> None:
    """Raise ValueError where two units are both known, not None, and contradict each other.

    Spellings of a plain fraction ("1", "", "reflectance", "unitless", ...) are one unit, and so are "%" and
    "percent", and those of each unit of length; others are compared without regard to case and blanks.

    ``what`` carries the unit given, for the message, which says how to convert where that is known.

    Examples
    --------
    >>> check_units("1", "reflectance", "cube")
    """
    if expected is None or given is None:
        return
    pair = _canonical(as_text(expected)), _canonical(as_text(given))
    if pair[0] != pair[1]:
        remedy = _REMEDY.get(pair, f"convert it to {expected!r}")
        raise ValueError(
            f"{what} is in {given!r} but {expected!r} is expected; {remedy}, or correct its 'units' attribute"
        )


def as_text(unit: object) -> str:
    """A unit as text, though a file gave bytes or a number."""
    return unit.decode("utf-8", "replace") if isinstance(unit, bytes) else str(unit)


def _canonical(unit: str) -> str:
    text = " ".join(unit.lower().split())
    return _SAME.get(text) or length_unit(unit) or text


def units_of(*attrs: Mapping[Any, Any]) -> str:
    """The first units among attributes, "" for none and for those of a pure number."""
    first = next((str(given["units"]).strip() for given in attrs if given.get("units")), "")
    return "" if first == "1" else first
