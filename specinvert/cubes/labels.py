"""Checked access to labelled data, whose values may not be plain numbers, and text as messages and figures show it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise, product
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from .bands import Bands, find_band_dim, is_wavelength_name

Numbers = TypeVar("Numbers", xr.DataArray, xr.Variable)
Spectra = TypeVar("Spectra", xr.DataArray, xr.Dataset)

_FILLS = ("_FillValue", "missing_value", "nodata")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, eq=False)
class Labels:
    """What a training set tells of spectra and parameters, and the model of it keeps; ``attrs`` are the parameters'."""

    bands: Bands
    spectra_name: Hashable
    spectra_units: str | None
    parameters: list[str]
    attrs: dict[str, dict[str, str]]

    def long_name(self, parameter: str) -> str:
        """That of the attributes, else the name in words."""
        return self.attrs.get(parameter, {}).get("long_name", parameter.replace("_", " "))


def listed(names: Iterable[Hashable], limit: int = 12) -> str:
    """Names for an error message, shortened."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "") or "none"


def require_flags(**flags: object) -> None:
    """Raise ValueError where a setting of these names is neither True nor False."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name}={value!r} must be True or False")


def find_spectra(data: xr.Dataset, name: str | None, band_dim: str | None) -> xr.DataArray:
    """The variable of ``data`` that holds spectra: ``name``, or the only one with a band dimension.

    Raises ValueError where there is none, or more than one, and lists what there is.
    """
    if name is not None:
        if not isinstance(name, Hashable) or name not in data.variables:
            raise ValueError(f"spectra {name!r} not in the Dataset; its variables are {listed(data.variables)}")
        return data[name]
    candidates = [key for key, array in data.data_vars.items() if _has_band_dim(array, band_dim)]
    if len(candidates) == 1:
        return data[candidates[0]]
    if not candidates:
        for array in data.data_vars.values():
            if any(is_wavelength_name(name) for name in array.coords):
                find_band_dim(array)  # says what is wrong with these wavelengths
        raise ValueError(
            "no variable has a recognisable band dimension; pass spectra= and band_dim=, or attach a 'wavelength' "
            f"coordinate (variables: {listed(data.data_vars)}; dimensions: {listed(data.sizes)})"
        )
    raise ValueError(f"several variables have a band dimension ({listed(candidates)}): pass spectra=")


def training_spectra(training: xr.Dataset | xr.DataArray, spectra: str | None, band_dim: str | None) -> xr.DataArray:
    """The spectra of a training set, a Dataset or themselves; raises as :func:`find_spectra` and :func:`meant`."""
    if isinstance(training, xr.Dataset):
        return meant(find_spectra(training, spectra, band_dim), "spectra")
    if not isinstance(training, xr.DataArray):
        raise no_labelled("training", "Dataset or DataArray", training)
    if spectra is not None:
        raise ValueError(f"spectra={spectra!r} names a variable of a Dataset; a DataArray is the spectra: leave it out")
    return meant(training, "spectra")


def _has_band_dim(array: xr.DataArray, band_dim: str | None) -> bool:
    if band_dim is not None:
        return band_dim in array.dims
    try:
        find_band_dim(array)
    except ValueError:
        return False
    return True


def require_numbers(array: xr.DataArray, what: str) -> xr.DataArray:
    """The array, where it holds integers or floats; ValueError where it holds strings, booleans, dates..."""
    if array.dtype.kind not in "iuf":
        example: Any = [] if array.chunks is not None else array.values.ravel()[:1]
        shown = f" such as {example[0]!r}" if len(example) else ""
        raise ValueError(f"{what} must be numbers, but has dtype {array.dtype}{shown}: convert it first")
    return array


def meant(array: xr.DataArray, what: str) -> xr.DataArray:
    """The array with NaN in place of the value that its attributes name for nodata; lazy where it is.

    Raises
    ------
    ValueError : it holds no numbers, numbers whose scale is not applied, or has chunks of unknown size.
    """
    require_known_sizes(require_numbers(array, what), what)
    require_unpacked(array, what)
    fill = fill_value(array, what)
    if fill is None:
        return array
    masked = array.where(array != fill).assign_attrs(array.attrs)
    masked.encoding = dict(array.encoding)
    return masked


def unmasked(values: Any) -> np.ndarray:
    """Values as an array, numbers that NumPy's mask leaves out as NaN."""
    if np.ma.isMA(values) and values.dtype.kind in "iuf":
        return np.ma.filled(values.astype(np.float64), np.nan)
    return np.asarray(values)


def no_labelled(what: str, wanted: str, given: object) -> TypeError:
    """The error for what is not ``wanted``, a kind of xarray's."""
    hint = ": give one of its nodes, tree[...].to_dataset()" if isinstance(given, xr.DataTree) else ""
    return TypeError(f"{what} must be an xarray {wanted}, not {type(given).__name__}{hint}")


def require_free_names(array: xr.DataArray, band_dim: str, taken: Iterable[Hashable]) -> None:
    """Raise ValueError where a dimension or index of the pixels has a name that the result needs for itself."""
    own = {*array.dims, *array.xindexes} - {band_dim}
    clashing = [name for name in taken if name in own]
    if clashing:
        name = clashing[0]
        raise ValueError(
            f"dimension {name!r} of the spectra has the name of an output: rename it, "
            f"as with .rename({{{name!r}: {f'{name}_axis'!r}}})"
        )


def pixel_coordinates(array: xr.DataArray, band_dim: str, taken: Iterable[Hashable]) -> xr.Coordinates:
    """The coordinates of the pixels with their indexes: none along the band dimension, none of a name in ``taken``."""
    taken = {band_dim, *taken}
    dropped = [name for name, c in array.coords.items() if band_dim in c.dims or name in taken]
    return array.drop_vars(dropped).coords


def places_of_blocks(chunks: Sequence[Sequence[int]]) -> list[tuple[slice, ...]]:
    """Where the blocks of an array lie, the last dimension running fastest."""
    ends = [np.cumsum((0, *sizes)).tolist() for sizes in chunks]
    return list(product(*[[slice(*pair) for pair in pairwise(along)] for along in ends]))


def require_one_band_chunk(array: xr.DataArray, band_dim: str, rechunk: str | None) -> xr.DataArray:
    """The array with its bands in one chunk.

    ``rechunk="auto"`` makes it so with chunks of bounded size; None raises ValueError with the call to make.
    """
    if rechunk not in (None, "auto"):
        raise ValueError(f"rechunk={rechunk!r} must be None or 'auto'")
    chunks = array.variable.chunksizes  # those of lazy coordinates may differ
    if len(chunks.get(band_dim, ())) <= 1:
        return array
    wanted: dict[Any, Any] = dict.fromkeys(array.dims, "auto") | {band_dim: -1}
    if rechunk == "auto":
        return array.chunk(wanted)
    other = np.prod([max(sizes) for dim, sizes in chunks.items() if dim != band_dim], dtype=float)
    gigabytes = other * array.sizes[band_dim] * array.dtype.itemsize / 1e9
    raise ValueError(
        f"band dimension {band_dim!r} is split into {len(chunks[band_dim])} chunks; use "
        f".chunk({{{band_dim!r}: -1}}) ({gigabytes:.2g} GB a chunk) or rechunk='auto'"
    )


def grid_tolerance(places: np.ndarray) -> float:
    """By how much coordinates may differ from these (n,), numbers, and be the same: a twentieth of the least step."""
    places = places.astype(np.float64)
    steps = np.abs(np.diff(places))
    return float(0.05 * steps.min() if steps.size else 1e-6 * np.abs(places).max())


def same_places(given: xr.DataArray, wanted: xr.DataArray) -> bool:
    """Whether coordinates (n,) are equal, numbers but for rounding, and missing at the same places."""
    there = wanted.notnull().values
    if not np.array_equal(given.notnull().values, there):
        return False
    own, places = given.values[there], wanted.values[there]
    if not {own.dtype.kind, places.dtype.kind} <= set("iuf") or not places.size:
        return np.array_equal(own, places)
    places = places.astype(np.float64)
    return bool((np.abs(own - places) <= grid_tolerance(places)).all())


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


def legible(text: object) -> str:
    """Text from a file as it is, less control characters and those that are not seen or turn its direction."""
    return _UNSEEN.sub("", _CONTROL.sub(" ", str(text)))


def wrapped(text: str, width: int, lines: int) -> str:
    """Text in at most so many lines of at most ``width`` characters; what is longer ends in three dots."""
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …")) or text


def percent(share: float) -> str:
    """A share as a percentage, to read: two digits, more where it is nearly all."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.4g} %"


def subsample(data: Spectra, dims: Sequence[Hashable], most: int) -> Spectra:
    """At most so many samples, a random choice that is always the same, in their order; nothing is computed.

    ``dims`` are those of the samples; of several dimensions the choice lies along a new one.
    """
    total = int(np.prod([data.sizes[dim] for dim in dims], dtype=np.int64))
    if total <= most:
        return data
    flat = np.sort(np.random.default_rng(0).choice(total, most, replace=False))
    if len(dims) == 1:
        return data.isel({dims[0]: flat})
    places = np.unravel_index(flat, [data.sizes[dim] for dim in dims])
    return data.isel({dim: xr.DataArray(index, dims="chosen_sample") for dim, index in zip(dims, places, strict=True)})


def with_history(attrs: Mapping[Any, Any], done: str) -> dict[Any, Any]:
    """The attributes with one line more in their ``history``: when, by which version, and what was ``done``."""
    from .._version import __version__

    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = f"{stamp} specinvert {__version__} {done}"
    return {**attrs, "history": "\n".join(filter(None, (earlier_history(attrs), line)))}


def earlier_history(*holders: Mapping[Any, Any]) -> str:
    """The ``history`` of all these attributes as one text, what several of them say told once."""
    histories = [attrs.get("history") for attrs in holders]
    texts = ["\n".join(map(str, np.ravel(history))) for history in histories if history is not None]
    return "\n".join(dict.fromkeys(filter(None, texts)))
