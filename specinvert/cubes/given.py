"""What a user gives beside the spectra: noise and known parameters, checked and lined up with the cube's pixels."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr

from ..gllim.transforms import Transforms
from .bands import Bands, check_units, describe_bands, match_bands
from .labels import Labels, listed, meant, same_places, unmasked
from .outputs import INTERVAL, TRANSFORMS, MapVariable, check_outputs
from .request import Request, remark_on_unit

logger = logging.getLogger(__name__)

NOISE, VALUE, LOW, HIGH, TRUTH = "noise", "value", "low", "high", "truth"
DISCREPANCY = "discrepancy"
"""The variable of what :func:`specinvert.adapt` found, and the key of its mean amplitude in a record of conditions."""
PER_BAND, COVARIANCE, PER_PIXEL = "of each band", "as a covariance", "of each pixel"
"""What a record of conditions says of noise that is no number, and of parameters that differ from pixel to pixel."""


@dataclass(frozen=True)
class Extra:
    """Something given for every pixel: its ``role``, and for a parameter its ``index``.

    ``array`` has the pixel dimensions, and the model's bands last where ``banded``.
    """

    role: str
    index: int
    array: xr.DataArray
    banded: bool = False


@dataclass(frozen=True, eq=False)
class Conditions:
    """Noise and known parameters of a request.

    Attributes
    ----------
    variance : noise variance beyond training that all pixels share, () or (D,), or a covariance (D, D); None without.
    discrepancy : covariance (D, D) that :func:`specinvert.adapt` found, in the units of the members; None without.
    extras : what differs from pixel to pixel.
    included : noise variances of training (D,), to be taken from those of every pixel; None where there are none.
    given : ``variance`` as it was given, that of training included; None where it was given without.
    values, low, high : known values and bounds (L_t,) that all pixels share, NaN where there is none.
    remarks : what was assumed or left out, for the history.
    """

    variance: np.ndarray | None = None
    extras: tuple[Extra, ...] = ()
    included: np.ndarray | None = None
    given: np.ndarray | None = None
    values: np.ndarray = field(default_factory=lambda: np.empty(0))
    low: np.ndarray = field(default_factory=lambda: np.empty(0))
    high: np.ndarray = field(default_factory=lambda: np.empty(0))
    remarks: tuple[str, ...] = ()
    discrepancy: np.ndarray | None = None

    @property
    def has_interval(self) -> bool:
        """Whether a parameter is known by an interval."""
        shared = not (np.isnan(self.low).all() and np.isnan(self.high).all())
        return bool(shared or {extra.role for extra in self.extras} & {LOW, HIGH})


NOTHING = Conditions()


def read_conditions(
    request: Request,
    labels: Labels,
    noise: Any = None,
    known: Any = None,
    tolerance: float = 1.0,
    truth: xr.Dataset | None = None,
) -> Conditions:
    """Check ``noise`` and ``known``, and a ``truth`` to compare with, against the cube and the labels of a model.

    Raises
    ------
    TypeError, ValueError : noise that is negative, of the wrong shape, bands or units; a known parameter that the model
        has not, of other dimensions, or an interval that is empty.
    """
    names = labels.parameters
    discrepancy = None
    if isinstance(noise, xr.Dataset) and DISCREPANCY in noise:
        noise, discrepancy = None, _read_discrepancy(noise, labels.bands, tolerance)
    variance, extras, remarks = _read_noise(request, labels, noise, tolerance)
    if truth is not None:
        extras += [Extra(TRUTH, i, _on_pixels(truth[n], request, f"true {n!r}")) for i, n in enumerate(names)]
    shared = {role: np.full(len(names), np.nan) for role in (VALUE, LOW, HIGH)}
    items, left_out = _known_items(known, names, request.cube)
    for name, given in items.items():
        for role, part in _roles(name, given):
            value = _known_value(name, role, part, labels, request)
            if isinstance(value, xr.DataArray):
                extras.append(Extra(role, names.index(name), value))
            else:
                shared[role][names.index(name)] = value
    low, high = shared[LOW], shared[HIGH]
    for i in map(int, np.flatnonzero(low >= high)):
        raise ValueError(f"known[{names[i]!r}]=({low[i]:g}, {high[i]:g}) is an empty interval: give low < high")
    bounded = map(int, np.flatnonzero(~np.isnan(low) | ~np.isnan(high)))
    intervals = {extra.index for extra in extras if extra.role in (LOW, HIGH)} | set(bounded)
    if len(intervals) > 1:
        both = listed(names[i] for i in sorted(intervals))
        raise ValueError(f"{both} are known by intervals: only one parameter may be, others by value")
    shares: dict[str, Any] = {"values": shared[VALUE], "low": low, "high": high, "discrepancy": discrepancy}
    return Conditions(variance, tuple(extras), remarks=(*remarks, *left_out), **shares)


def _roles(name: str, given: Any) -> list[tuple[str, Any]]:
    """What is given for a parameter, a value or the ends of an interval; those that are None are left out."""
    if not isinstance(given, tuple | list):
        return [(VALUE, given)]
    if len(given) != 2:
        raise ValueError(f"known[{name!r}]={given!r} must be a value or a pair (low, high)")
    return [(role, end) for role, end in zip((LOW, HIGH), given, strict=True) if end is not None]


def _known_value(name: str, role: str, given: Any, labels: Labels, request: Request) -> float | xr.DataArray:
    """A number that all pixels share, or an array over them."""
    if isinstance(given, xr.DataArray):
        array = meant(given, f"known {name!r}")
        check_units(labels.attrs.get(name, {}).get("units"), array.attrs.get("units"), f"known {name!r}")
        if array.ndim:
            return _on_pixels(array, request, f"known {name!r}")
        given = float(array)
    elif isinstance(given, np.ndarray) and given.ndim == 0:
        given = given.item()
    if not isinstance(given, numbers.Real) or isinstance(given, bool):
        shown = " ".join(repr(given).split())[:60]
        raise TypeError(f"known[{name!r}]={shown} must be a number, a DataArray or a pair of them")
    if np.isinf(float(given)) and role == VALUE:
        raise ValueError(f"known[{name!r}] is infinite: give a number, or NaN where it is unknown")
    return float(given)


def record_conditions(conditions: Conditions, names: Sequence[str]) -> dict[str, Any]:
    """What was given, as JSON holds it.

    ``noise`` is a standard deviation, ``PER_BAND``, ``COVARIANCE`` or ``PER_PIXEL``, and ``noise_includes_training``
    tells whether it did. ``known`` holds a number, ``PER_PIXEL``, or a pair of bounds (None: none) or of ``PER_PIXEL``
    for each parameter known.
    """
    per_pixel = {(extra.role, extra.index) for extra in conditions.extras}
    record: dict[str, Any] = {}
    variance = conditions.variance if conditions.given is None else conditions.given
    if variance is not None:
        record["noise"] = {1: PER_BAND, 2: COVARIANCE}.get(variance.ndim) or float(np.sqrt(variance))
        record["noise_includes_training"] = conditions.given is not None
    elif (NOISE, 0) in per_pixel:
        record["noise"] = PER_PIXEL
        record["noise_includes_training"] = conditions.included is not None
    if conditions.discrepancy is not None:
        record[DISCREPANCY] = float(np.sqrt(np.diagonal(conditions.discrepancy).mean()))
    known: dict[str, Any] = {}
    for i, (name, *ends) in enumerate(zip(names, conditions.low, conditions.high, strict=True)):
        if (VALUE, i) in per_pixel:
            known[name] = PER_PIXEL
        elif not np.isnan(conditions.values[i]):
            known[name] = float(conditions.values[i])
        elif (LOW, i) in per_pixel or (HIGH, i) in per_pixel:
            known[name] = [PER_PIXEL, PER_PIXEL]
        elif np.isfinite(ends).any():
            known[name] = [float(end) if np.isfinite(end) else None for end in ends]
    return record | ({"known": known} if known else {})


def describe_conditions(conditions: Conditions, names: Sequence[str]) -> list[str]:
    """What was given and what was assumed of it, a phrase each, as the history of maps tells it."""
    return [*in_words(record_conditions(conditions, names)), *conditions.remarks]


def in_words(record: Mapping[str, Any]) -> list[str]:
    """What :func:`record_conditions` tells, a phrase each."""
    said = []
    if "noise" in record:
        noise, included = record["noise"], record["noise_includes_training"]
        form = noise if isinstance(noise, str) else f"{noise:g}"
        beyond = "" if noise == PER_PIXEL else " beyond training"
        said.append(f"noise {form}" + (", training's included" if included else beyond))
    if DISCREPANCY in record:
        said.append(f"a discrepancy of {record[DISCREPANCY]:.2g}, learnt from spectra")
    for name, given in record.get("known", {}).items():
        low, high = given if isinstance(given, list) else (None, None)
        if given == PER_PIXEL:
            said.append(f"{name} known in each pixel")
        elif not isinstance(given, list):
            said.append(f"{name} known, {given:g}")
        elif low == PER_PIXEL:
            said.append(f"{name} known within bounds of each pixel")
        elif low is not None and high is not None:
            said.append(f"{name} known within {low:g} and {high:g}")
        else:
            said.append(f"{name} known below {high:g}" if low is None else f"{name} known above {low:g}")
    return said


def without_training(conditions: Conditions, training: np.ndarray | None) -> Conditions:
    """The conditions with noise beyond that of training, standard deviations (D,), where they included it.

    Raises ValueError where training had no white noise alone, or more than is given.
    """
    if training is None:
        raise ValueError(
            "noise_includes_training needs a model trained with fit(noise=...) of white noise and nothing else; "
            "training of this one added none, or more: leave noise_includes_training out, and give noise "
            "beyond training"
        )
    variances = np.asarray(training, dtype=np.float64) ** 2
    per_pixel = any(extra.role == NOISE for extra in conditions.extras)
    if conditions.variance is None and not per_pixel:
        raise ValueError("noise_includes_training needs noise=: give it, or leave noise_includes_training out")
    if conditions.variance is None:
        return replace(conditions, included=variances)
    shared = conditions.variance
    left = less(shared, variances) if shared.ndim < 2 else _covariance(shared - np.diag(variances))
    return replace(conditions, variance=left, given=shared)


def less(given: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Variances beyond those of training; ValueError where they are negative."""
    left = given - training
    below = left < -1e-12 * np.broadcast_to(training, left.shape)
    if below.any():
        raise ValueError(
            f"noise is below that of training in {int(below.sum())} of {left.size} places, though it should include it"
        )
    return np.asarray(np.maximum(left, 0.0))


def check_request(conditions: Conditions, outputs: Sequence[MapVariable], transforms: Transforms) -> None:
    """Raises ValueError for what transforms, or a parameter known by an interval, do not allow."""
    check_outputs(outputs, *(() if transforms.keeps_units else (TRANSFORMS,)))
    for i in map(int, np.flatnonzero(~np.isnan(conditions.values))):
        transforms.known_forward(i, conditions.values[i : i + 1])
    for extra in conditions.extras:
        if extra.role in (VALUE, LOW, HIGH):
            transforms.column(extra.index)  # raises for a part of a composition
    if not conditions.has_interval:
        return
    low, high = conditions.low, conditions.high
    for i in map(int, np.flatnonzero(~np.isnan(low) | ~np.isnan(high))):
        transforms.interval_forward(i, low[i : i + 1], high[i : i + 1])
    check_outputs(outputs, INTERVAL)


def _known_items(known: Any, names: Sequence[str], cube: xr.DataArray) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is given for each parameter, and remarks on what of a Dataset is none."""
    if known is None:
        return {}, ()
    if not isinstance(known, xr.Dataset | Mapping):
        raise TypeError(f"known must be a Dataset or a dict of parameters, not {type(known).__name__}")
    if not isinstance(known, xr.Dataset):
        unknown = [name for name in known if name not in names]
        if unknown:
            raise ValueError(f"known parameters {listed(unknown)} are not of this model; it has {listed(names)}")
        return {str(name): value for name, value in known.items()}, ()
    parameters = {str(name): known[name] for name in known.variables if name in names}
    others = [name for name in known.variables if name not in parameters and name not in {*known.dims, *cube.coords}]
    if not parameters:
        raise ValueError(f"known holds no parameter of this model, which has {listed(names)}, but {listed(others)}")
    if not others:
        return parameters, ()
    remark = f"known: {', '.join(map(str, others))} {'is no parameter' if len(others) == 1 else 'are no parameters'}"
    remark += f" and {'was' if len(others) == 1 else 'were'} left out"
    logger.info("%s", remark)
    return parameters, (remark,)


def _read_noise(
    request: Request, labels: Labels, noise: Any, tolerance: float
) -> tuple[np.ndarray | None, list[Extra], tuple[str, ...]]:
    """The variance that pixels share, what differs among them, and remarks."""
    if noise is None:
        return None, [], ()
    if not isinstance(noise, xr.DataArray):
        return _shared_noise(request, noise), [], ()
    array = meant(noise, "noise")
    check_units(request.cube.attrs.get("units", labels.spectra_units), array.attrs.get("units"), "noise")
    banded = request.band_dim in array.dims
    remarks: tuple[str, ...] = ()
    if banded:
        own = describe_bands(array, request.band_dim)
        remarks = remark_on_unit(own, "noise")
        array = array.isel({request.band_dim: _noise_bands(array, own, request, labels.bands, tolerance)})
    if set(array.dims) <= {request.band_dim}:
        return _variance(array.values), [], remarks
    if array.chunks is None:
        refuse_negative(array.values)
    return None, [Extra(NOISE, 0, _on_pixels(array, request, "noise", banded), banded)], remarks


def _shared_noise(request: Request, noise: Any) -> np.ndarray:
    """The variance or covariance that noise without labels is of."""
    size = request.cube.sizes[request.band_dim]
    forms = (
        f"give a number, ({size},) standard deviations of the cube's bands, a covariance ({size}, {size}), or a "
        "DataArray with the cube's dimensions"
    )
    if isinstance(noise, xr.Dataset):
        raise TypeError(f"noise is a Dataset of {listed(noise.data_vars)}: give one of its variables, a DataArray")
    shown = " ".join(repr(noise).split())[:60]
    try:
        values = unmasked(noise)
    except ValueError:
        raise ValueError(f"noise={shown} is no array, its rows differ in length: {forms}") from None
    if values.dtype.kind not in "iuf":
        raise TypeError(f"noise must be numbers, not {values.dtype} ({shown}): {forms}")
    if values.ndim == 0:
        return _variance(values)
    if values.shape == (size,):
        return _variance(values[request.bands])
    if values.shape == (size, size):
        return _covariance(values[np.ix_(request.bands, request.bands)])
    raise ValueError(f"noise of shape {values.shape} fits no band axis: {forms}")


def _read_discrepancy(found: xr.Dataset, bands: Bands, tolerance: float) -> np.ndarray:
    """The covariance (D, D) of the model's bands that was found; ValueError where it was refused or does not fit."""
    if found.attrs.get("refused", 0):
        raise ValueError(f"noise: what was found is not to be used, {found.attrs.get('verdict', 'it was refused')}")
    array = found[DISCREPANCY]
    dim = str(array.dims[0])
    order = match_bands(bands, describe_bands(found["amplitude"], dim), tolerance, "the noise")
    return _covariance(array.values[np.ix_(order, order)])


def _noise_bands(
    array: xr.DataArray, described: Bands, request: Request, model_bands: Bands, tolerance: float
) -> np.ndarray:
    pairs = ((described.wavelength, model_bands.wavelength), (described.labels, model_bands.labels))
    if any(own is not None and trained is not None for own, trained in pairs):
        return match_bands(model_bands, described, tolerance, "the noise")
    if array.sizes[request.band_dim] != request.cube.sizes[request.band_dim]:
        raise ValueError(
            f"noise has {array.sizes[request.band_dim]} bands, the cube {request.cube.sizes[request.band_dim]}, and no "
            "wavelengths to match them by"
        )
    return request.bands


def _variance(deviation: np.ndarray) -> np.ndarray:
    values = np.asarray(deviation, dtype=np.float64)
    refuse_negative(values)
    if np.isnan(values).any():
        raise ValueError(
            f"{int(np.isnan(values).sum())} of {values.size} values of noise are NaN: give one for each band"
        )
    return values**2


def refuse_negative(values: np.ndarray) -> None:
    """Raise ValueError for noise that is no standard deviations; NaN is none, of what is missing."""
    bad = (values < 0) | np.isinf(values)
    if bad.any():
        raise ValueError(
            f"noise is negative or infinite in {int(bad.sum())} of {values.size} places (least {np.nanmin(values):g}): "
            "give standard deviations in the units of the spectra"
        )


def _covariance(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if not np.isfinite(values).all() or not np.allclose(values, values.T, rtol=1e-8, atol=0.0):
        raise ValueError("noise given as a covariance must be finite and symmetric")
    least = float(np.linalg.eigvalsh(values)[0])
    if least < -1e-10 * np.trace(values):
        raise ValueError(f"noise given as a covariance has a negative eigenvalue ({least:g}): it is none")
    return values


def _on_pixels(array: xr.DataArray, request: Request, what: str, banded: bool = False) -> xr.DataArray:
    """The array along all pixel dimensions of the cube, in their order, the bands last where ``banded``."""
    moved = request.cube.transpose(..., request.band_dim)
    pixel_dims = moved.dims[:-1]
    strange = [d for d in array.dims if d not in moved.dims or (d == request.band_dim and not banded)]
    if strange:
        raise ValueError(f"{what} has dimensions {listed(strange)} that the cube's pixels {pixel_dims} have not")
    for dim in set(array.dims) & set(pixel_dims):
        if array.sizes[dim] != moved.sizes[dim]:
            raise ValueError(f"{what} has {array.sizes[dim]} along {dim!r}, the cube {moved.sizes[dim]}")
        if dim in array.coords and dim in moved.coords and not same_places(array[dim], moved[dim]):
            raise ValueError(f"{what} has other coordinates along {dim!r} than the cube: reindex it to the cube's")
    bare = array.drop_vars(list(array.coords))
    full = bare.expand_dims({d: moved.sizes[d] for d in pixel_dims if d not in array.dims})
    return full.transpose(*pixel_dims, *([request.band_dim] if banded else []))
