"""Which bands serve: ranges of wavelength, lists of bad bands, and what becomes of negative values."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import xarray as xr

from .bands import describe_bands, find_band_dim, read_good
from .history import with_history
from .labels import find_spectra, no_labelled, require_flags, require_numbers
from .values import fill_value, require_unpacked

WATER_VAPOUR_NM = ((1350.0, 1450.0), (1800.0, 1950.0))
"""Ranges in nm where water vapour leaves no light at the ground."""

Labelled = TypeVar("Labelled", xr.Dataset, xr.DataArray)


def select_bands(
    data: Labelled,
    *,
    exclude: Sequence[tuple[float, float]] = WATER_VAPOUR_NM,
    keep: Sequence[tuple[float, float]] | None = None,
    good_only: bool = True,
    negative: str = "keep",
    drop: bool = True,
    spectra: str | None = None,
    band_dim: str | None = None,
) -> Labelled:
    """Leave out bands of spectra, and decide on negative values.

    Parameters
    ----------
    data : spectra of any dimensions, alone or in a Dataset; in memory or dask, and then nothing is computed.
    exclude : ranges (low, high) of wavelength in nm, whatever the unit of the coordinate, ends included, whose bands
        are left out; by default those of water vapour, ``()`` for none.
    keep : ranges in nm outside which all bands are left out; None for no such limit.
    good_only : whether bands whose coordinate ``good`` is False are left out.
    negative : ``"keep"`` negative values, which near zero are noise like any other, make them missing (``"nan"``), or
        0 (``"clip"``, which biases dark bands). Values that stand for nodata in the attributes become NaN first.
    drop : whether bands left out are removed; False keeps all bands and makes these NaN, which inversion takes as
        missing, so that a model trained with them still fits the cube.
    spectra : name of the spectra in a Dataset; None where only one variable has a band dimension.
    band_dim : their band dimension, where no wavelength coordinate tells.

    Returns
    -------
    The same kind of object with its attributes and coordinates; ``history`` tells what was left out. Integers become
    floats where NaN has to be put.

    Raises
    ------
    TypeError : ``data`` is neither DataArray nor Dataset.
    ValueError : no band is left, a range is none, ranges are given for bands without wavelengths, or values are packed.

    Examples
    --------
    >>> cube = xr.DataArray(np.ones(3), dims="wavelength", coords={"wavelength": [500.0, 1400.0, 1600.0]})
    >>> select_bands(cube).wavelength.values.tolist()
    [500.0, 1600.0]
    """
    if not isinstance(data, xr.Dataset | xr.DataArray):
        raise no_labelled("data", "Dataset or DataArray", data)
    require_flags(good_only=good_only, drop=drop)
    if negative not in ("keep", "nan", "clip"):
        raise ValueError(f"negative={negative!r} must be 'keep', 'nan' or 'clip'")
    found = data if isinstance(data, xr.DataArray) else find_spectra(data, spectra, band_dim)
    array = require_numbers(found, "spectra")
    dim = find_band_dim(array, band_dim)
    left, notes = _chosen(array, dim, exclude, keep, good_only)
    if not left.any():
        raise ValueError(f"none of the {left.size} bands is left ({'; '.join(notes)}): widen keep, or exclude less")
    values = array
    if negative != "keep":
        require_unpacked(array)
        fill = fill_value(array)
        values = values if fill is None else values.where(values != fill)
        values = values.where(~(values < 0)) if negative == "nan" else values.clip(min=0)
        notes.append("negative values made " + ("NaN" if negative == "nan" else "0"))
    if not drop and not left.all():
        values = values.where(xr.DataArray(left, dims=dim))
    done = "; ".join(notes) or "all bands"
    note = f"select_bands: {int(left.sum())} of {left.size} bands {'kept' if drop else 'kept, the others NaN'}, {done}"
    attrs = with_history(data.attrs, note)
    values = values.assign_attrs(array.attrs)
    values.encoding = dict(array.encoding)
    result = data.assign({array.name: values.variable}) if isinstance(data, xr.Dataset) else values
    if drop and not left.all():
        result = result.isel({dim: left})
    return result.assign_attrs(attrs)


def _chosen(
    array: xr.DataArray,
    dim: str,
    exclude: Sequence[tuple[float, float]],
    keep: Sequence[tuple[float, float]] | None,
    good_only: bool,
) -> tuple[np.ndarray, list[str]]:
    """Which bands are left, (D,) bool, and in words why the others are not."""
    bands = describe_bands(array, dim)
    out, into = _ranges("exclude", exclude), None if keep is None else _ranges("keep", keep)
    left = np.ones(bands.size, dtype=bool)
    notes = []
    if (out or into is not None) and bands.wavelength is None:
        raise ValueError(
            f"the bands along {dim!r} have no wavelengths to select by: attach a 'wavelength' coordinate, or pass "
            "exclude=() and no keep"
        )
    for ranges, inside in ((out, True), (into, False)):
        if ranges is None or bands.wavelength is None:
            continue
        within = np.zeros(bands.size, dtype=bool)
        for low, high in ranges:
            within |= (bands.wavelength >= low) & (bands.wavelength <= high)
        left &= within != inside
        if (within == inside).any():
            shown = ", ".join(f"{low:g} to {high:g}" for low, high in ranges)
            notes.append(f"{int((within == inside).sum())} {'in' if inside else 'outside'} {shown} nm left out")
    good = read_good(array, dim) if good_only else None
    if good is not None and not good.all():
        left &= good
        notes.append(f"{int((~good).sum())} marked bad left out")
    return left, notes


def _ranges(name: str, given: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Ranges in nm; ValueError where one is none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name}={given!r} must be a list of pairs (low, high) in nm, such as [(1350, 1450)]")
    found = []
    for pair in given:
        if (
            not isinstance(pair, tuple | list)
            or len(pair) != 2
            or not all(isinstance(end, numbers.Real) for end in pair)
            or not pair[0] < pair[1]
        ):
            raise ValueError(f"{name} holds {pair!r}: give pairs (low, high) in nm, such as [(1350, 1450)]")
        found.append((float(pair[0]), float(pair[1])))
    return found
