"""Datasets as files can hold them: types of their own spelled in plain ones, attributes as numbers and text."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Hashable, Mapping
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasMultiIndex

from ..cubes.values import native, require_known_sizes

_ENCODED = frozenset({"units", "calendar"})
"""Attributes that the file has of times, from how they are encoded."""
_RESERVED = frozenset(
    {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
)
"""Attributes by which HDF5 and netCDF know dimensions."""


def storable(maps: xr.Dataset, path: str | os.PathLike[str]) -> xr.Dataset:
    """A copy of the maps in types, and with attributes, that files hold; values stay.

    Numbers come in this machine's byte order, floats in single or double precision. What pandas has types of its own
    for becomes numbers with NaN, times in UTC, or text (categories, intervals, periods). Attributes that are None are
    left out, True and False become 1 and 0, dates and dicts text.

    Raises
    ------
    ValueError : the maps are empty or of unknown size, have a MultiIndex, or a variable of no type that files hold.
    """
    shown = os.fspath(path)
    for index in maps.xindexes.values():
        if isinstance(index, PandasMultiIndex):
            raise ValueError(
                f"{shown}: files hold no MultiIndex, as there is along {index.dim!r}: save "
                f"maps.unstack({index.dim!r}), or maps.reset_index({index.dim!r})"
            )
    if 0 in maps.sizes.values():
        raise ValueError(f"{shown}: the maps are empty, their sizes are {dict(maps.sizes)}: select at least one pixel")
    made = maps.copy()
    for name, given in maps.variables.items():
        what = f"{shown}: {name!r}"
        require_known_sizes(maps[name], what)
        variable = _plain(given, what)
        if variable is not given:
            made = (made.assign_coords if name in maps.coords else made.assign)({name: variable})
        made[name].attrs = _plain_attrs(given.attrs, _RESERVED | _ENCODED if _is_time(variable) else _RESERVED)
    made.attrs = _plain_attrs(maps.attrs)
    return made


def _plain(variable: xr.Variable, what: str) -> xr.Variable:
    """The variable in a type that files hold; itself where it is."""
    dtype: Any = variable.dtype
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _with_values(variable, pd.DatetimeIndex(variable.data).tz_convert(None).values)
    if not isinstance(dtype, np.dtype):
        return _with_values(variable, _plain_objects(variable.values, what))
    if dtype.kind in "cV":
        raise ValueError(f"{what} holds {dtype} values, which files do not: drop it, or split it into plain numbers")
    if dtype.kind == "f" and dtype.itemsize == 2:
        return variable.astype(np.float32)
    if dtype.kind in "iuf":
        return native(variable)
    if dtype.kind == "S":
        return _with_values(variable, np.char.decode(variable.values, "utf-8", "replace"))
    if dtype.kind == "O" and variable.chunks is None:
        values = variable.values
        plain = _plain_objects(values, what)
        return variable if plain is values else _with_values(variable, plain)
    return variable


def _with_values(variable: xr.Variable, values: np.ndarray) -> xr.Variable:
    return xr.Variable(variable.dims, values, variable.attrs, variable.encoding)


def _plain_objects(values: np.ndarray, what: str) -> np.ndarray:
    """Objects (*shape) as numbers or text where that is what they are; times of other calendars as they are."""
    if values.dtype.kind != "O":
        return values
    there = ~pd.isnull(values)
    kinds = {type(value) for value in values[there]}
    if all(issubclass(kind, pd.Interval | pd.Period) for kind in kinds) and kinds:
        return np.where(there, values.astype(str), "")
    if all(issubclass(kind, numbers.Real | np.bool_) for kind in kinds) and kinds:
        return np.where(there, values, np.nan).astype(np.float64)
    if kinds == {date}:
        return values.astype("datetime64[s]")
    if all(issubclass(kind, str) for kind in kinds) or (len(kinds) == 1 and hasattr(next(iter(kinds)), "calendar")):
        return values
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"{what} holds {names}, which files do not hold together: make it text, as with .astype(str)")


def _is_time(variable: xr.Variable) -> bool:
    return variable.dtype.kind in "mM" or (variable.dtype.kind == "O" and hasattr(_first(variable), "calendar"))


def _first(variable: xr.Variable) -> object:
    return variable.values.ravel()[0] if variable.size else None


def _plain_attrs(attrs: Mapping[Any, Any], without: frozenset[str] = _RESERVED) -> dict[Hashable, Any]:
    """Attributes as files hold them: text, numbers, lists of one kind of them."""
    kept = {str(key).replace("/", "_"): value for key, value in attrs.items() if value is not None}
    return {key: _plain_attr(value) for key, value in kept.items() if key not in without}


def _plain_attr(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, list | tuple | np.ndarray | np.number | int | float):
        return _plain_numbers(value)
    return json.dumps(value, default=str) if isinstance(value, dict) else str(value)


def _plain_numbers(value: Any) -> Any:
    """A number or a list of them as it is, and so lists of texts; others as text."""
    if isinstance(value, list | tuple) and value and all(isinstance(entry, str) for entry in value):
        return list(value)
    try:
        array = np.asarray(value)
    except ValueError:
        return json.dumps(value, default=str)
    if array.dtype.kind in "iuf" and array.ndim < 2:
        return value
    if array.dtype.kind == "b":
        return array.astype(np.int8)
    return json.dumps(array.tolist(), default=str) if array.ndim else str(value)
