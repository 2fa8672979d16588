"""Units of length and of reflectance as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NM_PER_UNIT = {"nm": 1.0, "um": 1e3, "mm": 1e6, "m": 1e9, "angstrom": 0.1}

_SPELLINGS = {
    "nm": "nm nms nanometer nanometers nanometre nanometres",
    "um": "um ums µm μm micron microns micrometer micrometers micrometre micrometres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "m": "m meter meters metre metres",
    "angstrom": "å ang angstrom angstroms ångström ångströms ångstrom ångstroms",
}
_LENGTHS = {spelling: unit for unit, text in _SPELLINGS.items() for spelling in text.split()}
_UNKNOWN = frozenset({"", "unknown", "none", "n/a", "na", "-"})
_FRACTION = (
    *("", "1", "1.0", "-", "none"),
    *("reflectance", "unitless", "dimensionless", "adimensional", "fraction", "ratio", "unity"),
)
_SAME = {**dict.fromkeys(_FRACTION, "1"), **dict.fromkeys(("%", "percent", "per cent", "pct"), "%")}
_REMEDY = {("1", "%"): "divide by 100", ("%", "1"): "multiply by 100"}


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
    """Raise where two units are both known and contradict each other.

    Spellings of a plain fraction ("1", "", "reflectance", "unitless", ...) are one unit, and so are "%" and
    "percent", and those of each unit of length; others are compared without regard to case and blanks.

    Parameters
    ----------
    expected : unit that the model was trained with, or None where unknown.
    given : unit of the data in hand, or None where unknown.
    what : what carries the unit, for the message: "cube".

    Raises
    ------
    ValueError : the units differ; the message says how to convert where that is known.

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
