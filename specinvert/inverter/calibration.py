"""A model calibrated by a few values that were measured in the field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..cubes import FieldCalibration, listed
from ..gllim.core import Array
from ..gllim.mixtures import normal_score, quantile
from ..model import Model
from ..scores import (
    CORRECTIONS,
    LEAST_GROUPS,
    LEAST_VALUES,
    Corrected,
    FieldValues,
    Finding,
    correct,
    of_samples,
    promise,
)
from .inversion import Inversion

AUTO = "auto"
MOST_SPECTRA = 20_000
"""Spectra whose posteriors are held in memory."""
_PER_DECADE = 1.0 / np.log(10.0)


@dataclass(frozen=True)
class Calibrated:
    """A ``model`` with its calibration, what to beware of, and what so few groups can promise."""

    model: Model
    findings: list[Finding]
    promise: str


def calibrated(
    inversion: Inversion, field: xr.Dataset, groups: str | Sequence[str] | xr.DataArray, correction: str = AUTO
) -> Calibrated:
    """Calibrate a model by values of a field: see :meth:`specinvert.GLLiMInverter.calibrate`.

    Raises
    ------
    TypeError, ValueError : as there.
    """
    if correction not in (AUTO, *CORRECTIONS):
        raise ValueError(f"correction={correction!r} is not one of {listed((AUTO, *CORRECTIONS))}")
    inversion = replace(inversion, model=replace(inversion.model, calibration=None), rechunk="auto")
    model = inversion.model
    posterior, truth, numbers, noise = inversion.pairs(field, _grouped(field, groups), MOST_SPECTRA)
    found: dict[str, Corrected] = {}
    skipped = []
    for name, values in truth.items():
        i = model.names.index(name)
        if len(model.transforms.entry(i).columns) > 1:
            skipped.append(f"{name}, a part of a composition")
            continue
        there = _there(model, i, posterior, values)
        without = int((numbers[there] < 0).sum())
        if without:
            raise ValueError(
                f"{without} of {len(there)} field values of {name!r} have no group: fill it in, or leave them out"
            )
        n_groups = len(np.unique(numbers[there]))
        if len(there) < LEAST_VALUES or n_groups < LEAST_GROUPS:
            skipped.append(f"{name}, {len(there)} values in {n_groups} groups")
            continue
        own = _field_values(model, i, posterior, values, numbers, there)
        found[name] = correct(own, None if correction == AUTO else correction)
    if not found:
        raise ValueError(
            f"a calibration needs {LEAST_VALUES} field values of a parameter in {LEAST_GROUPS} groups, with estimates: "
            f"{'; '.join(skipped)}"
        )
    calibration = FieldCalibration.of(model.names, found, _name_of(groups), noise)
    fewest = min(row.n_groups for row in found.values())
    return Calibrated(replace(model, calibration=calibration), list(_findings(found, skipped)), promise(fewest))


def _there(model: Model, i: int, posterior: dict[str, Array], values: Array) -> NDArray[np.intp]:
    """Rows with a value of parameter i and a posterior; ValueError for values that it cannot have."""
    entry, column, name = model.transforms.entry(i), model.transforms.column(i), model.names[i]
    seen = np.isfinite(posterior["weight"]).all(axis=1) & (posterior["variance"][:, :, column] > 0.0).all(axis=1)
    outside = (values < entry.lower) | (values > entry.upper)
    if outside.any():
        raise ValueError(
            f"{int(outside.sum())} of {int(np.isfinite(values).sum())} field values of {name!r} are outside the bounds "
            f"of its transform {entry.kind!r}, {entry.lower:g} to {entry.upper:g} (from {np.nanmin(values):g} to "
            f"{np.nanmax(values):g}): leave them out, or train with other bounds"
        )
    return np.flatnonzero(np.isfinite(values) & seen)


def _field_values(
    model: Model, i: int, posterior: dict[str, Array], values: Array, numbers: Array, there: NDArray[np.intp]
) -> FieldValues:
    """Values of parameter i at some rows, with what the posterior says of them."""
    column = model.transforms.column(i)
    weights = posterior["weight"][there]
    means, variances = (posterior[name][there][:, :, column] for name in ("mean", "variance"))
    z, earlier = model.transforms.known_forward(i, values[there]), model.recalibration

    def score(at: Array, rows: NDArray[np.intp]) -> Array:
        scores = normal_score(weights[rows], means[rows], variances[rows], at)
        return scores if earlier is None else earlier.score(i, scores)

    in_decades = model.transforms.entry(i).kind == "log"

    def to_truth(at: Array) -> Array:
        return at * _PER_DECADE if in_decades else model.transforms.inverse_of(i, at)

    median = quantile(weights, means, variances, [0.5])[:, 0]
    low, high = to_truth(model.transforms.known_forward(i, np.array([model.low[i], model.high[i]])))
    return FieldValues(to_truth(z), z, median, numbers[there], score, to_truth, float(high - low))


def _grouped(field: xr.Dataset, groups: str | Sequence[str] | xr.DataArray) -> xr.DataArray:
    """Numbers of groups, one for each combination of what several variables hold, -1 where one is missing."""
    if isinstance(groups, xr.DataArray):
        parts = [groups]
    elif groups is None or not len(groups):
        raise ValueError("groups must name what values belong together by, such as 'site': those of a site err alike")
    else:
        names = [groups] if isinstance(groups, str) else list(groups)
        parts = [part for name in names if (part := of_samples(field, name, "groups")) is not None]
    codes = [part.copy(data=pd.factorize(part.values.ravel())[0].reshape(part.shape)) for part in parts]
    whole = codes[0]
    for code in codes[1:]:
        missing = (whole < 0) | (code < 0)
        whole = (whole * (int(code.max()) + 1) + code).where(~missing, -1)
    return whole


def _name_of(groups: str | Sequence[str] | xr.DataArray) -> str:
    if isinstance(groups, xr.DataArray):
        return str(groups.name or "groups")
    return groups if isinstance(groups, str) else ", ".join(groups)


def _findings(found: dict[str, Corrected], skipped: list[str]) -> Iterator[Finding]:
    hidden = [name for name, row in found.items() if not row.signal]
    if hidden:
        yield Finding(
            f"Field values do not follow the estimates: {', '.join(hidden)}",
            "Estimates are no nearer to groups left out than the mean of the other groups' values is. Intervals were "
            "made no narrower, and wider where the values ask for it.",
            "Do not map it on the strength of this calibration: check units, dates and places of the field values, "
            "and the model.",
            True,
        )
    if skipped:
        yield Finding(
            f"Not calibrated: {'; '.join(skipped)}",
            f"A calibration needs {LEAST_VALUES} values in {LEAST_GROUPS} groups.",
            "Their intervals are those of the model.",
        )
