"""From a user's cube to a checked request: the spectra, their band axis, which bands serve, and what is nodata."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import xarray as xr

from .bands import Bands, check_units, describe_bands, find_band_dim, match_bands, read_good
from .labels import (
    Labels,
    fill_value,
    find_spectra,
    no_labelled,
    require_flags,
    require_known_sizes,
    require_numbers,
    require_one_band_chunk,
    require_unpacked,
    with_history,
)

WATER_VAPOUR_NM = ((1350.0, 1450.0), (1800.0, 1950.0))
"""Ranges in nm where water vapour leaves no light at the ground."""

logger = logging.getLogger(__name__)

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
    of = data if isinstance(data, xr.DataArray) else find_spectra(data, spectra, band_dim)
    array = require_numbers(of, "spectra")
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
    ranges = []
    for pair in given:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(isinstance(end, numbers.Real) for end in pair) or not pair[0] < pair[1]:
            raise ValueError(f"{name} holds {pair!r}: give pairs (low, high) in nm, such as [(1350, 1450)]")
        ranges.append((float(pair[0]), float(pair[1])))
    return ranges


@dataclass(frozen=True)
class Request:
    """A cube ready for the engine.

    ``bands`` index its bands in the model's order, ``fill`` stands for nodata. ``remarks`` say what was assumed of
    wavelengths, and which bands count as missing.
    """

    cube: xr.DataArray
    band_dim: str
    bands: np.ndarray
    fill: float | None
    remarks: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype:
        """Float type of the maps: that of the cube, float64 for integers."""
        single = self.cube.dtype.kind == "f" and self.cube.dtype.itemsize == 4  # in any byte order
        return np.dtype(np.float32 if single else np.float64)


def read_request(
    data: xr.DataArray | xr.Dataset,
    labels: Labels,
    band_dim: str | None = None,
    tolerance: float = 1.0,
    rechunk: str | None = None,
) -> Request:
    """Find the spectra in ``data`` and match their bands to those of training, which ``labels`` tell.

    ``tolerance`` in nm. Bands whose coordinate ``good`` is False become NaN, and count as missing. Raises ValueError
    where the cube is empty, holds no numbers, is packed integers, has its bands in several chunks, units that
    contradict training, or bands that do not match or are all bad.
    """
    if isinstance(data, xr.Dataset):
        named = labels.spectra_name if labels.spectra_name in data.data_vars else None
        data = find_spectra(data, None if named is None else str(named), band_dim)
    elif not isinstance(data, xr.DataArray):
        raise no_labelled("spectra", "DataArray or Dataset", data)
    cube = require_numbers(data, "the cube")
    require_known_sizes(cube, "the cube")
    as_trained = band_dim is None and labels.bands.wavelength is None and labels.bands.dim in cube.dims
    dim = labels.bands.dim if as_trained else find_band_dim(cube, band_dim)
    if 0 in cube.shape:
        raise ValueError(f"the cube is empty, its sizes are {dict(cube.sizes)}: select at least one pixel and band")
    if not isinstance(tolerance, numbers.Real) or isinstance(tolerance, bool) or not 0 <= float(tolerance) < np.inf:
        raise ValueError(f"tolerance={tolerance!r} must be a finite number of nanometres, 0 or more")
    require_unpacked(cube)
    check_units(labels.spectra_units, cube.attrs.get("units"), "the cube")
    offered = describe_bands(cube, dim)
    index = match_bands(labels.bands, offered, tolerance)
    cube, remarks = _without_bad(require_one_band_chunk(cube, dim, rechunk), dim, index)
    return Request(cube, dim, index, fill_value(cube), (*remark_on_unit(offered), *remarks))


def remark_on_unit(bands: Bands, of: str = "") -> tuple[str, ...]:
    """What was assumed of wavelengths ``of`` something that came without units; empty where nothing was."""
    return (f"wavelengths{of and f' of {of}'} without units taken as {bands.unit}",) if bands.guessed else ()


def _without_bad(cube: xr.DataArray, dim: str, index: np.ndarray) -> tuple[xr.DataArray, tuple[str, ...]]:
    """The cube with NaN in bands marked bad, where the model uses any, and a remark on them."""
    good = read_good(cube, dim)
    if good is None or good[index].all():
        return cube, ()
    count = int((~good[index]).sum())
    if count == index.size:
        raise ValueError(
            f"all {count} bands of the model are marked bad in the cube: correct its coordinate 'good', or drop it "
            "with .drop_vars('good')"
        )
    number = cube if cube.dtype.kind == "f" else cube.astype(np.float64)
    masked = number.where(xr.DataArray(good, dims=dim)).assign_attrs(cube.attrs)
    masked.encoding = dict(cube.encoding)
    remark = f"{count} of {index.size} bands are marked bad in the cube (good is False) and count as missing"
    logger.info("%s", remark)
    return masked, (remark,)
