"""Reads tables of spectra: text files with one spectrum a row, a column a band, and columns of anything else."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ....cubes import is_fwhm_name, is_good_name, is_wavelength_name, length_unit
from ..band_tags import SpectralColumns, columns_of_sensor, is_percent, numbered_bands, spectral_columns
from ..convention import Chunks, chunk_cube, fill_places, tell, with_bands
from ..files import clear_errors, first_bytes
from .spectral_library import NAME

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
SPECTRA = "reflectance"
_DELIMITERS = ("\t", ";", ",")
_TAIL_BYTES = 4_000_000
_FIRST_LINES = 50
_LEAST_ROWS, _LONGEST_UM, _SHORTEST_NM, _LONGEST_NM = 5, 100.0, 100.0, 1e5
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_WITH_COMMA, _WITH_POINT = (re.compile(rf"[-+]?\d*{mark}\d+(e[-+]?\d+)?", re.IGNORECASE) for mark in (",", r"\."))
_LARGEST_FRACTION, _LARGEST_PERCENT = 2.0, 130.0
_LEAST_MEDIAN_PERCENT = 1.5
_SHOWN = 8


def matches(path: Path, head: bytes) -> bool:
    """Whether a file is a table of spectra: by its name, for .txt by columns named by wavelength or by the first one.

    Never raises.
    """
    suffix = path.suffix.lower()
    if not head or suffix not in SUFFIXES:
        return False
    if suffix != ".txt":
        return True
    lines = head.decode(_encoding(head), "replace").splitlines()
    if any(_is_axis(_first_field(line)) for line in lines):
        return True
    lines = [line for line in lines if not (line.startswith("#") or _SEPARATOR.fullmatch(line))]
    try:
        delimiter = _delimiter(lines[0], *lines[1:2], suffix=suffix)
        names = next(csv.reader(lines[:1], delimiter=delimiter, skipinitialspace=True))
    except (csv.Error, StopIteration, IndexError):
        return False
    names = [_plain(name, delimiter) for name in (names[:-1] if len(lines) == 1 else names)]
    return bool(spectral_columns(names)) or len(numbered_bands(names)) > 1 or (bool(names) and _is_axis(names[0]))


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open a table of spectra, one a row, as (sample, wavelength); other columns are coordinates along `sample`.

    The table is read whole, and then cut into blocks. What columns and values may look like, and what is raised, is
    told at :func:`read_spectra_table`, whose `columns` is `variable`.
    """
    spectra = read_spectra_table(path, variable)[SPECTRA]
    spectra = spectra.astype(np.float32).rename(f"{SPECTRA} {variable}")
    return chunk_cube(spectra, chunks, whole="wavelength", path=str(path)).rename(SPECTRA)


def read_spectra_table(
    path: Path, columns: str | None = None, sensor: tuple[np.ndarray, np.ndarray | None] | None = None
) -> xr.Dataset:
    """Read a table of spectra into memory.

    Columns named by wavelength ("550", "550nm", "Wave_550", "R550.5", "0.55 um", "B1_450nm") or by bands of Sentinel-2
    ("B02", "B8A", where no column is called by a further number) make the variable `reflectance` (sample, wavelength);
    the wavelengths of the latter are those of Sentinel-2A. Other columns are coordinates along `sample`, numbers or
    text, and unnamed ones are left out. Where no columns are named so and the first is called "wavelength", "lambda",
    "nm" or the like, each further column is a spectrum, and its name the coordinate `spectrum_name`.

    Values in percent are divided by 100: where the names of the columns say percent, or where more than half of the
    values are above 1.5 and none is above 130. NaN are -9999, -32768 and values beyond 1e15, which are fills of other
    formats or averages over some of them. Attribute `history` says what was done, and so does a warning of the log.

    Parameters
    ----------
    path : an existing text file, UTF-8 or UTF-16, with names in the first line that does not begin with "#", is not
        Excel's "sep=;" and has as many fields as the rows. Columns are separated by commas, semicolons or tabulators,
        in .txt by blanks too; decimals may have commas where columns are not separated by these.
    columns : what the names of the wanted columns have in common, such as "R" for "R550", where several groups of
        columns could be spectra; None for the largest group.
    sensor : wavelengths and widths (D,) in nm, those of the columns "B1", "B2", ... where no others are spectra.

    Raises
    ------
    PermissionError : the file may not be read.
    ValueError : the file is empty, truncated or no text; no columns are named by wavelength, or several groups could
        be the spectra; a name occurs twice, or stands for something else in the result; or a spectrum holds text.
    """
    names, delimiter, options = _layout(path)
    called = {_plain(name, delimiter): name for name in names}
    groups = spectral_columns(list(called))
    given = None if groups or sensor is None else columns_of_sensor(list(called), *sensor)
    history, turned = [], not groups and given is None and columns is None and _is_axis(names[0])
    if turned:
        chosen, values = _down_the_rows(_columns(path, names, options), path)
        table, history = {}, ["wavelengths run down the rows, each further column is a spectrum"]
    else:
        hint = "" if groups or given is not None else _hint(_columns(path, names, options))
        chosen = _choose(groups if given is None else [given], columns, names, hint, path)
        table = _columns(path, names, options)
        values = np.stack([_numbers(table.pop(called[name]), name, path) for name in chosen.names], axis=1)
    if chosen.sensor is not None:
        history.append(f"wavelengths are those of {chosen.sensor}, told by the names of the columns")
    if given is not None:
        history.append(
            f"columns {given.names[0]} to {given.names[-1]} taken for the bands of the sensor in their order"
        )
    fills = fill_places(values, values.dtype)
    if fills.any():
        values[fills] = np.nan
        history.append(f"{int(fills.sum())} values of -9999, -32768 or beyond 1e15 set to NaN")
    attrs = {"long_name": "reflectance"}
    reason = _percent(values, chosen)
    if reason:
        values /= 100.0
        attrs["units"] = "1"
        history.append(f"divided by 100, from percent to a fraction, because {reason}")
    spectra = xr.DataArray(values, dims=("sample", "wavelength"), name=SPECTRA)
    spectra = with_bands(spectra, chosen.wavelength, chosen.unit, path, fwhm=chosen.fwhm)
    _check_free(list(table), spectra, path)
    spectra = spectra.assign_coords({name: ("sample", _column(column)) for name, column in table.items()})
    if turned:
        names_of = np.array(chosen.names)
        spectra = spectra.assign_coords({NAME: ("sample", names_of, {"long_name": "name of the spectrum"})})
    if chosen.sensor is not None:
        attrs["sensor"] = chosen.sensor
        spectra.fwhm.attrs["comment"] = f"from the table of {chosen.sensor}"
    if history:
        attrs["history"] = "; ".join(history)
        tell(path, attrs["history"])
    spectra.attrs = attrs
    return spectra.to_dataset()


def read_columns(path: Path) -> pd.DataFrame:
    """A small table of numbers in text: columns by their names, or by 0, 1, ... where the first line holds numbers.

    What separates columns and decimals, and what is raised, is as for :func:`read_spectra_table`.
    """
    names, delimiter, options = _layout(path, bare=True)
    if _bare(names, delimiter):
        return _frame(path, len(names), options | {"skiprows": options["skiprows"] - 1})
    return _frame(path, len(names), options).set_axis([name.strip() for name in names], axis=1)


def _layout(path: Path, bare: bool = False) -> tuple[list[str], str, dict[str, Any]]:
    """Names of the columns, what separates them, and how pandas is to read the rows; `bare` tables may have no names.

    A table begins after comments, Excel's "sep=;", and lines of fewer fields than the names and the rows have.
    """
    encoding = _encoding(first_bytes(path, 2))
    told = "not a table in UTF-8 text ({0.reason}); save it as CSV in UTF-8"
    lines: list[str] = []
    with clear_errors(path, told, UnicodeDecodeError), path.open(encoding=encoding, newline="") as file:
        for line in islice(file, _FIRST_LINES):
            lines.append(line.rstrip("\r\n"))
            if len(lines) > 1 and sum(map(len, lines)) > _TAIL_BYTES:
                break
    stated = [_SEPARATOR.fullmatch(line) for line in lines]
    separator = next((match[1] for match in stated if match), None)
    begun = [not (line.startswith("#") or match) for line, match in zip(lines, stated, strict=True)]
    start = begun.index(True) if True in begun else len(lines)
    if start == len(lines) or "\0" in lines[start]:
        raise ValueError(f"{path}: the first line is no list of column names; check how the file was written or copied")
    ending = _last_line(path, encoding)
    suffix = path.suffix.lower()
    skipped = _beginning(lines, start, ending, separator, suffix, bare)
    delimiter = separator or _delimiter(*lines[skipped : skipped + 2], suffix=suffix)
    names, last = _fields(lines[skipped], delimiter), len(_fields(ending, delimiter))
    if not names or not lines[skipped].strip():
        raise ValueError(f"{path}: the first line is no list of column names; check how the file was written or copied")
    if not "".join(lines[skipped + 1 :]).strip() and not (bare and _bare(names, delimiter)):
        raise ValueError(f"{path}: has names of columns and no rows; check how the file was written or copied")
    if last != len(names):
        raise ValueError(
            f"{path}: the last row has {last} fields for {len(names)} columns: truncated, or not a table; copy it again"
        )
    twice = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if twice and not (bare and _bare(names, delimiter)):
        raise ValueError(f"{path}: several columns are called {_some(twice)}; rename them")
    shown = [field.strip() for line in lines[skipped + (not bare) :] for field in _fields(line, delimiter)]
    with_comma, with_point = (any(map(kind.fullmatch, shown)) for kind in (_WITH_COMMA, _WITH_POINT))
    comma = delimiter != "," and with_comma and not with_point
    options = {"decimal": "," if comma else ".", "skiprows": skipped + 1, "encoding": encoding}
    return names, delimiter, {"sep": r"\s+" if delimiter == " " else delimiter, **options}


def _beginning(lines: list[str], start: int, ending: str, separator: str | None, suffix: str, bare: bool) -> int:
    """Which line has the names of the columns: the first, or one after a preamble that has as many as the rows.

    A line that begins with a name of wavelengths has them, even where the preamble is as wide.
    """
    for i, line in enumerate(lines[start:-1], start):
        if _is_axis(_first_field(line)):
            delimiter = separator or _delimiter(*lines[i : i + 2], suffix=suffix)
            if len(_fields(line, delimiter)) == len(_fields(lines[i + 1], delimiter)):
                return i
    widest = max(len(_fields(ending, delimiter)) for delimiter in ([separator] if separator else _DELIMITERS))
    most = len(_fields(lines[start], separator or _delimiter(*lines[start : start + 2], suffix=suffix)))
    if most >= widest:
        return start
    for i in range(start + 1, len(lines) - 1):
        delimiter = separator or _delimiter(*lines[i : i + 2], suffix=suffix)
        names, row, last = (_fields(line, delimiter) for line in (*lines[i : i + 2], ending))
        if most < len(names) == len(row) == len(last) and not (bare and _bare(names, delimiter)):
            return i
        most = max(most, len(names))
    return start


def _encoding(head: bytes) -> str:
    return "utf-16" if head[:2] in _UTF_16 else "utf-8-sig"


def _first_field(line: str) -> str:
    return re.split(r"[\t;,]", line, maxsplit=1)[0].strip(' "')


def _bare(names: list[str], delimiter: str) -> bool:
    """Whether the first line of a table holds numbers."""
    return all(_NUMBER.fullmatch(_plain(name, delimiter).strip()) for name in names)


def _plain(name: str, delimiter: str) -> str:
    """A column's name with a point where its number has a decimal comma, which it may where commas do not part."""
    return name if delimiter == "," else re.sub(r"(?<=\d),(?=\d)", ".", name)


def _delimiter(line: str, following: str = "", *, suffix: str) -> str:
    """What parts a line and the one that follows into as many fields, else what is most frequent."""
    for delimiter in _DELIMITERS:
        if 1 < len(_fields(line, delimiter)) == len(_fields(following, delimiter)):
            return delimiter
    counts = {delimiter: line.count(delimiter) for delimiter in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda delimiter: counts[delimiter])
    return best if counts[best] or suffix != ".txt" else " "


def _fields(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error as error:
        raise ValueError(f"a line of {len(line)} characters is none of a table ({error}): check the file") from None


def _last_line(path: Path, encoding: str) -> str:
    with path.open("rb") as file:
        mark = file.read(2) if encoding == "utf-16" else b""
        size = os.fstat(file.fileno()).st_size
        file.seek(max(len(mark), size - _TAIL_BYTES - size % 2))
        lines = re.split(r"[\r\n]+", (mark + file.read()).decode(encoding, "replace"))
    return next((line for line in reversed(lines) if line.strip()), "")


def _frame(path: Path, n_columns: int, options: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    plain = {"skipinitialspace": True, "header": None, "index_col": False}
    try:
        return pd.read_csv(path, names=list(range(n_columns)), **plain | options)
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: not a readable table ({' '.join(str(error).split())})") from error


def _columns(path: Path, names: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Columns by name, without those that have none."""
    frame = _frame(path, len(names), options)
    return {name: frame[i] for i, name in enumerate(names) if name.strip() and not name.startswith("Unnamed:")}


def _is_axis(name: str) -> bool:
    """Whether a column of this name holds wavelengths: "Wavelength (nm)", "lambda", "nm"."""
    return is_wavelength_name(name) or length_unit(name.strip()) in ("nm", "um")


def _down_the_rows(table: dict[str, Any], path: Path) -> tuple[SpectralColumns, np.ndarray]:
    """The further columns of a table whose first holds wavelengths, and their values as (sample, wavelength)."""
    first, *others = table
    wrong = [name for name in others if is_fwhm_name(name) or is_good_name(name)]
    if wrong or not others:
        raise ValueError(f"{path}: has wavelengths and no spectra, but {_some(wrong) or 'nothing'}; give their columns")
    wavelength = _numbers(table[first], first, path)
    words = [length_unit(word) for word in re.findall(r"[a-zµμ]+", first.lower())]
    unit = next((word for word in words if word in ("nm", "um")), "um" if wavelength.max() < _LONGEST_UM else "nm")
    values = np.stack([_numbers(table[name], name, path) for name in others])
    percent = all(is_percent(name) for name in others)
    return SpectralColumns("", tuple(others), wavelength, unit, percent), values


def _hint(table: dict[str, Any]) -> str:
    """What to do where the first column of a table without spectra may hold wavelengths; else empty."""
    name, column = next(iter(table.items()), ("", None))
    if column is None or column.dtype.kind not in "iuf" or len(column) < _LEAST_ROWS:
        return ""
    low, high = column.min(), column.max()
    if not column.is_monotonic_increasing or low < _SHORTEST_NM or high > _LONGEST_NM:
        return ""
    return f"; if wavelengths run down the rows, {low:g} to {high:g} in {name!r}, call that column 'wavelength'"


def _choose(
    groups: list[SpectralColumns], wanted: str | None, names: list[str], hint: str, path: Path
) -> SpectralColumns:
    listed = ", ".join(f"{group.label!r} ({len(group.names)} columns such as {group.names[0]!r})" for group in groups)
    if wanted is not None:
        named = [group for group in groups if group.label.lower() == wanted.strip(" _.-").lower()]
        if not named:
            raise ValueError(f"{path}: no spectra in columns called {wanted!r}; there are {listed or 'none'}")
        groups = named
    numbered = numbered_bands(names)
    if not groups and len(numbered) > 1:
        raise ValueError(
            f"{path}: columns called {_some(numbered)} tell the numbers of bands and not which sensor's; name them by "
            "wavelength, as in 'B1_450nm' or '450nm', or give a sensor= with as many bands in training"
        )
    if not groups:
        raise ValueError(
            f"{path}: no columns are named by wavelength, such as '550', 'Wave_550' or '550nm'; the columns are "
            f"{_some(names)}{hint}"
        )
    if len(groups) > 1 and len(groups[0].names) == len(groups[1].names):
        raise ValueError(f"{path}: several groups of columns could be the spectra: {listed}; pass variable=")
    return groups[0]


def _numbers(column: Any, name: str, path: Path) -> np.ndarray:
    if column.dtype.kind in "iuf":
        return np.asarray(column.to_numpy(), dtype=np.float64)
    for row, value in enumerate(column):
        try:
            float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{path}: column {name!r} holds {value!r} in row {row + 1} where a number belongs; correct it, or "
                "leave it empty"
            ) from None
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _percent(values: np.ndarray, columns: SpectralColumns) -> str:
    """Why values are in percent; empty where they are not, or may not be."""
    if columns.percent:
        return "the names of the columns say percent"
    finite = values[np.isfinite(values)]
    if not finite.size or not _LARGEST_FRACTION < finite.max() <= _LARGEST_PERCENT:
        return ""
    median = float(np.median(finite))
    return f"half of the values are above {median:.3g}" if median > _LEAST_MEDIAN_PERCENT else ""


def _column(column: Any) -> np.ndarray:
    """Numbers as they are, anything else as text, empty where missing."""
    if column.dtype.kind in "biuf":
        return np.asarray(column.to_numpy())
    return np.array(["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)])


def _check_free(names: list[str], spectra: xr.DataArray, path: Path) -> None:
    taken = {SPECTRA, "wavelength", *map(str, spectra.coords)}
    clashing = [name for name in names if name in taken]
    if clashing:
        raise ValueError(
            f"{path}: a column is called {clashing[0]!r}, which the spectra need for themselves; rename it"
        )


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
