"""A test set for a report: scores of all of it, and for figures a sample in memory with two spectra to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ..cubes import Request, read_request, subsample
from ..scores import (
    Finding,
    broadcast_truth,
    noise_findings,
    read_truth,
)
from .inverter import GLLiMInverter

MAX_PAIRS = 20_000
"""Samples that figures are of."""


FEW_SPECTRA = 2_000
"""Spectra that are enough for a median."""


@dataclass(frozen=True)
class EvaluatedSample:
    """Scores of a test set, and what figures need of a part of it.

    ``evaluation`` is of the whole set; ``estimates`` (with fit_rmse), ``truth`` and ``pit`` are of the sample, whose
    spectra ``rows`` (n, D) are in the order of the model's bands.  ``examples`` are places of spectra by what they
    are, ``options`` those of the inversion.
    """

    evaluation: xr.Dataset
    estimates: xr.Dataset
    truth: xr.Dataset
    pit: xr.Dataset
    cube: xr.DataArray
    rows: np.ndarray
    examples: dict[str, dict[Any, int]]
    options: dict[str, Any]

    @property
    def n_examined(self) -> int:
        """Spectra among which the examples were chosen."""
        return int(self.estimates["fit_rmse"].notnull().sum())


def evaluate_sample(inverter: GLLiMInverter, test: xr.Dataset, options: dict[str, Any]) -> EvaluatedSample:
    """Evaluate a test set, and read the sample; ``options`` are those of the inversion, shared by all spectra.

    Raises
    ------
    TypeError, ValueError : as `GLLiMInverter.evaluate`.
    """
    model = inverter.model_
    some, request = _sampled(inverter, test, options, MAX_PAIRS)
    evaluation = inverter.evaluate(test, rechunk="auto", **options)
    options = options | {"band_dim": request.band_dim}
    estimates = inverter.invert(request.cube, outputs=["mean", "std", "fit_rmse"], **options)
    rows = request.cube.transpose(..., request.band_dim).values.reshape(-1, request.cube.sizes[request.band_dim])
    rows = rows[:, request.bands].astype(np.float64)
    return EvaluatedSample(
        evaluation,
        estimates,
        xr.Dataset({name: broadcast_truth(some[name], estimates[name]) for name in model.names}),
        inverter.pit(some, **options),
        request.cube,
        rows if request.fill is None else np.where(rows == request.fill, np.nan, rows),
        _examples(estimates["fit_rmse"]),
        options,
    )


def lacking_noise(inverter: GLLiMInverter, test: xr.Dataset, options: dict[str, Any]) -> list[Finding]:
    """What to beware of where a test set lacks the noise that training added: told by `FEW_SPECTRA` of it at most.

    ``options`` are those of the inversion.
    """
    added = inverter.model_.training_noise
    if added is None:
        return []
    options = {"band_dim": None, "tolerance": 1.0, **options}
    _, request = _sampled(inverter, test, options, FEW_SPECTRA)
    fit = inverter.invert(request.cube, outputs=["fit_rmse"], **options | {"band_dim": request.band_dim})["fit_rmse"]
    return noise_findings(float(fit.median()), added)


def _sampled(
    inverter: GLLiMInverter, test: xr.Dataset, options: dict[str, Any], most: int
) -> tuple[xr.Dataset, Request]:
    """At most so many spectra with their truths, in memory, and the request to invert them."""
    model = inverter.model_

    def requested(data: xr.Dataset) -> Request:
        return read_request(data, model.labels, options["band_dim"], options["tolerance"], rechunk="auto")

    truth, spectra = read_truth(test, model.names, model.attrs)
    request = requested(spectra)
    samples = [dim for dim in request.cube.dims if dim != request.band_dim]
    some = subsample(spectra.assign(truth.data_vars), samples, most).compute()
    return some, requested(some.drop_vars(model.names))


def _examples(fit: xr.DataArray) -> dict[str, dict[Any, int]]:
    """Places of the spectrum with the median misfit and of the one with the greatest."""
    order = np.argsort(fit.values, axis=None, kind="stable")[: int(fit.notnull().sum())]
    if not order.size:
        return {}
    chosen = {"median": order[order.size // 2], "greatest": order[-1]}
    shape = fit.shape
    return {
        kind: {dim: int(i) for dim, i in zip(fit.dims, np.unravel_index(place, shape), strict=True)}
        for kind, place in chosen.items()
    }
