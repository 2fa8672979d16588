"""Reads tables of spectra: text files with one spectrum a row, a column a band, and columns of anything else."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ....cubes import is_wavelength_name
from ..band_tags import SpectralColumns, columns_of_sensor, numbered_bands, spectral_columns
from ..convention import Chunks, chunk_cube, fill_places, tell, with_bands
from ..files import clear_errors

SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
SPECTRA = "reflectance"
_DELIMITERS = ("\t", ";", ",")
_TAIL_BYTES = 4_000_000
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
    lines = [line for line in head.decode("utf-8-sig", "replace").splitlines() if not line.startswith("#")]
    try:
        delimiter = _delimiter(lines[0], suffix)
        names = next(csv.reader(lines[:1], delimiter=delimiter, skipinitialspace=True))
    except (csv.Error, StopIteration, IndexError):
        return False
    names = [_plain(name, delimiter) for name in (names[:-1] if len(lines) == 1 else names)]
    if spectral_columns(names) or len(numbered_bands(names)) > 1:
        return True
    return bool(names) and is_wavelength_name(names[0])


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
    text, and unnamed ones are left out.

    Values in percent are divided by 100: where the names of the columns say percent, or where more than half of the
    values are above 1.5 and none is above 130. NaN are -9999, -32768 and values beyond 1e15, which are fills of other
    formats or averages over some of them. Attribute `history` says what was done, and so does a warning of the log.

    Parameters
    ----------
    path : an existing text file, UTF-8, with names in the first line that does not begin with "#". Columns are
        separated by commas, semicolons (then decimals may have commas) or tabulators; in .txt by blanks too.
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
    chosen = _choose(groups if given is None else [given], columns, names, path)
    table = _columns(path, names, options)
    values = np.stack([_numbers(table.pop(called[name]), name, path) for name in chosen.names], axis=1)
    history = []
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
    if chosen.sensor is not None:
        attrs["sensor"] = chosen.sensor
        spectra.fwhm.attrs["comment"] = f"from the table of {chosen.sensor}"
    if history:
        attrs["history"] = "; ".join(history)
        tell(path, attrs["history"])
    spectra.attrs = attrs
    return spectra.to_dataset()


def _layout(path: Path) -> tuple[list[str], str, dict[str, Any]]:
    """Names of the columns, what separates them, and how pandas is to read the rows."""
    told = "not a table in UTF-8 text ({0.reason}); save it as CSV in UTF-8"
    with clear_errors(path, told, UnicodeDecodeError), path.open(encoding="utf-8-sig", newline="") as file:
        skipped, first = 0, file.readline()
        while first.startswith("#"):
            skipped, first = skipped + 1, file.readline()
        second = file.readline()
    if not first.strip() or "\0" in first:
        raise ValueError(f"{path}: the first line is no list of column names; check how the file was written or copied")
    delimiter = _delimiter(first, path.suffix.lower())
    names = _fields(first, delimiter)
    if not second.strip():
        raise ValueError(f"{path}: has names of columns and no rows; check how the file was written or copied")
    last = len(_fields(_last_line(path), delimiter))
    if last != len(names):
        raise ValueError(
            f"{path}: the last row has {last} fields for {len(names)} columns: truncated, or not a table; copy it again"
        )
    twice = [name for name, count in Counter(names).items() if count > 1 and name.strip()]
    if twice:
        raise ValueError(f"{path}: several columns are called {_some(twice)}; rename them")
    comma = delimiter == ";" and re.search(r"\d,\d", second) is not None and re.search(r"\d\.\d", second) is None
    separator = r"\s+" if delimiter == " " else delimiter
    return names, delimiter, {"sep": separator, "decimal": "," if comma else ".", "skiprows": skipped + 1}


def _plain(name: str, delimiter: str) -> str:
    """A column's name with a point where its number has a decimal comma, as between semicolons it may."""
    return re.sub(r"(?<=\d),(?=\d)", ".", name) if delimiter == ";" else name


def _delimiter(line: str, suffix: str) -> str:
    counts = {delimiter: line.count(delimiter) for delimiter in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda delimiter: counts[delimiter])
    return best if counts[best] or suffix != ".txt" else " "


def _fields(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True), [])


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        lines = file.read().splitlines()
    return next((line.decode("utf-8", "replace") for line in reversed(lines) if line.strip()), "")


def _columns(path: Path, names: list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Columns by name, without those that have none."""
    import pandas as pd

    plain = {"encoding": "utf-8-sig", "skipinitialspace": True, "header": None, "index_col": False}
    try:
        frame = pd.read_csv(path, names=list(range(len(names))), **plain | options)
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: not a readable table ({' '.join(str(error).split())})") from error
    return {name: frame[i] for i, name in enumerate(names) if name.strip() and not name.startswith("Unnamed:")}


def _choose(groups: list[SpectralColumns], wanted: str | None, names: list[str], path: Path) -> SpectralColumns:
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
        turned = " (wavelengths run down the rows: turn the table, one spectrum a row)"
        raise ValueError(
            f"{path}: no columns are named by wavelength, such as '550', 'Wave_550' or '550nm'; the columns are "
            f"{_some(names)}{turned if is_wavelength_name(names[0]) else ''}"
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
