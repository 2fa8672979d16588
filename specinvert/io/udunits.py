"""Units as CF wants them: text that UDUNITS reads, told by its grammar and the units in common use.

Every text accepted here is a unit of UDUNITS; a few of its rarer units are not known here.
"""

from __future__ import annotations

import re

from ..cubes.units import check_units, is_unknown, length_unit


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


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
_TOKEN = re.compile(
    r"(?P<open>\()|(?P<close>\))|(?P<number>\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|(?P<unit>[A-Za-zµμÅ°%]+(?:_[A-Za-z]+)*)(?:(?:\^|\*\*)?[-+]?\d+|[²³])?"
    r"|(?P<sign>\s*(?:/|\*|·|\.|\bper\b)\s*)|(?P<blank>\s+)"
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
    position, depth, wants_operand = 0, 0, True
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return False
        kind, position = token.lastgroup, token.end()
        if kind == "unit" and token["unit"] == "per":
            kind = "sign"
        if kind in ("unit", "number"):
            if kind == "unit" and not _is_known(token["unit"]):
                return False
            wants_operand = False
        elif kind == "sign":
            if wants_operand:
                return False
            wants_operand = True
        elif kind == "open":
            depth, wants_operand = depth + 1, True
        elif kind == "close":
            depth -= 1
            if depth < 0 or wants_operand:
                return False
    return depth == 0 and not wants_operand


def _is_known(unit: str) -> bool:
    if unit in _PLAIN or unit in _SYMBOLS:
        return True
    singular = unit.removesuffix("s")
    if {unit, singular} & _NAMES:
        return True
    if any(unit.startswith(prefix) and unit.removeprefix(prefix) in _SYMBOLS for prefix in _PREFIXES):
        return True
    return any(singular.startswith(prefix) and singular.removeprefix(prefix) in _NAMES for prefix in _PREFIX_NAMES)


def _same(plain: str, text: str) -> bool:
    try:
        check_units(plain, text, "")
    except ValueError:
        return False
    return True
