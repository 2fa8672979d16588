"""What keeps stored values from being plain numbers: byte order, unapplied scales, fill values, unknown sizes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import numpy as np
import xarray as xr

Numbers = TypeVar("Numbers", xr.DataArray, xr.Variable)
_FILLS = ("_FillValue", "missing_value", "nodata")


def native(array: Numbers) -> Numbers:
    """The array in this machine's byte order, floats that are neither single nor double in double precision."""
    wanted = array.dtype.newbyteorder("=")
    if wanted.kind == "f" and wanted not in (np.float32, np.float64):
        wanted = np.dtype(np.float64)
    made: Numbers = array if array.dtype == wanted else array.astype(wanted)
    return made


def require_known_sizes(array: xr.DataArray, what: str) -> None:
    """Raise ValueError where dask does not know how long the array is."""
    unknown = [dim for dim, size in array.sizes.items() if np.isnan(size)]
    if unknown:
        raise ValueError(
            f"{what}: chunks of unknown size along {', '.join(map(repr, unknown))}: call .compute_chunk_sizes() of the "
            "dask array before it is labelled, or .compute() the labelled one"
        )


def require_unpacked(array: xr.DataArray, what: str = "the cube") -> None:
    """Raise ValueError where the attributes hold a scale or an offset that is not applied."""
    for key, nothing in (("scale_factor", 1.0), ("add_offset", 0.0)):
        if any(value != nothing for value in _numbers(array.attrs, key, what)):
            raise ValueError(
                f"{what}: packed numbers ({key}={array.attrs[key]} in the attributes, not applied): open the file with "
                "specinvert.open_cube or with mask_and_scale=True"
            )


def fill_value(array: xr.DataArray, what: str = "the cube") -> float | None:
    """The value that stands for nodata, where the array still has it in its attributes."""
    for key in _FILLS:
        values = _numbers(array.attrs, key, what)
        if values:
            return None if np.isnan(values[0]) else values[0]
    return None


def _numbers(attrs: Mapping[Hashable, Any], key: str, what: str) -> list[float]:
    """An attribute that should hold numbers; none where it is absent or None."""
    if attrs.get(key) is None:
        return []
    try:
        return [float(value) for value in np.ravel(attrs[key])]
    except (TypeError, ValueError):
        raise ValueError(
            f"attribute {key}={attrs[key]!r} of {what} is not a number: correct it, or delete it from its attrs"
        ) from None
