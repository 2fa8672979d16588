"""What there is to see of an inversion: a test set with its scores and a sample in memory, one spectrum in full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import ndtr

from ..cubes import Recalibration, Request, subsample
from ..gllim.core import Array
from ..gllim.mixtures import cdf, quantile
from ..model import Model
from ..scores import Finding, broadcast_truth, noise_findings, read_truth
from .inversion import Inversion
from .predictive import ExpectedSpectrum

MAX_PAIRS = 20_000
"""Samples that figures are of."""

FEW_SPECTRA = 2_000
"""Spectra that are enough for a median."""

STEP_LEVELS = tuple(np.round(np.arange(0.02, 0.99, 0.02), 2).tolist())
"""Quantiles between which the density of a part of a composition is constant."""

_EVEN = 1.0
"""Scales of a softplus above zero in which its density, steep in the last of them, is shown as their mean."""
_FINE, _EACH = 241, 41
_SEEN_WEIGHT, _LABELLED_WEIGHT = 1e-4, 1e-3


@dataclass(frozen=True)
class EvaluatedSample:
    """Scores of a test set, and what figures need of a part of it.

    ``evaluation`` is of the whole set; ``estimates`` (with fit_rmse), ``truth`` and ``pit`` are of the sample, whose
    spectra ``rows`` (n, D) are in the order of the model's bands. ``examples`` are places of spectra by what they are,
    ``inversion`` is how those of ``cube`` were inverted. ``check`` says how well spectra of the sample fit; None where
    a parameter is known by an interval.
    """

    evaluation: xr.Dataset
    estimates: xr.Dataset
    truth: xr.Dataset
    pit: xr.Dataset
    cube: xr.DataArray
    rows: Array
    examples: dict[str, dict[Any, int]]
    inversion: Inversion
    check: xr.Dataset | None

    @property
    def n_examined(self) -> int:
        """Spectra among which the examples were chosen."""
        return int(self.estimates["fit_rmse"].notnull().sum())


def evaluate_sample(inversion: Inversion, test: xr.Dataset, measured: bool = False) -> EvaluatedSample:
    """Evaluate a test set, and read the sample.

    Raises
    ------
    TypeError, ValueError : as `GLLiMInverter.evaluate`.
    """
    inversion = replace(inversion, rechunk="auto")
    some, request = _sampled(inversion, test, MAX_PAIRS)
    scores = inversion.evaluate(test, measured)
    inversion = replace(inversion, band_dim=request.band_dim)
    estimates = inversion.maps(request.cube, ["estimate", "std", "fit_rmse"])
    return EvaluatedSample(
        scores,
        estimates,
        xr.Dataset(
            {name: broadcast_truth(some[name], estimates[name]) for name in scores["parameter"].values.tolist()}
        ),
        inversion.pit(some),
        request.cube,
        _rows(request),
        _examples(estimates["fit_rmse"]),
        inversion,
        inversion.check_of(some),
    )


def lacking_noise(inversion: Inversion, test: xr.Dataset) -> list[Finding]:
    """What to beware of where a test set lacks the noise that training added: told by `FEW_SPECTRA` of it at most."""
    added = inversion.model.training_noise
    if added is None:
        return []
    inversion = replace(inversion, known=None)  # may be of each spectrum, and matters little to a median misfit
    _, request = _sampled(inversion, test, FEW_SPECTRA)
    misfit = replace(inversion, band_dim=request.band_dim).maps(request.cube, ["fit_rmse"])["fit_rmse"]
    return list(noise_findings(float(misfit.median()), added))


@dataclass(frozen=True)
class Recalibrated:
    """A ``model`` with corrected intervals, PIT values of held-out truths ``before`` and ``after``, and findings."""

    model: Model
    before: xr.Dataset
    after: xr.Dataset
    findings: list[Finding]


def recalibrated(inversion: Inversion, held_out: xr.Dataset, minimum: int, source: str = "simulations") -> Recalibrated:
    """Correct intervals on truths held out of training: see :meth:`specinvert.GLLiMInverter.recalibrate`.

    Raises
    ------
    ValueError : too few pairs, or a model with compositions.
    """
    earlier, every = inversion.model.recalibration, inversion.model.names
    uncorrected = replace(inversion.model, recalibration=None, calibration=None)
    scores = replace(inversion, model=uncorrected).scores(held_out)
    names = [str(name) for name in scores.data_vars]
    correction = Recalibration.of_scores(scores, minimum, source, "held-out")
    before = None if earlier is None else earlier.placed([every.index(name) for name in names])
    rows = [names.index(name) if name in names else None for name in every]
    return Recalibrated(
        replace(uncorrected, recalibration=correction.placed(rows)),
        xr.apply_ufunc(ndtr, scores) if before is None else before.pit_of_scores(scores),
        correction.pit_of_scores(scores),
        [
            *_undone(inversion.model),
            *([] if source == "measurements" else lacking_noise(inversion, held_out)),
        ],
    )


def _undone(model: Model) -> Iterator[Finding]:
    """That a calibration by field values goes with the recalibration that it was on top of."""
    if model.calibration is not None:
        yield Finding(
            "The calibration by field values is undone",
            "It was on top of the former recalibration.",
            "Calibrate again by the field values (specinvert calibrate, or inverter.calibrate).",
        )


def _sampled(inversion: Inversion, test: xr.Dataset, most: int) -> tuple[xr.Dataset, Request]:
    """At most so many spectra with their truths, in memory, and the request to invert them."""
    model, inversion = inversion.model, replace(inversion, rechunk="auto")
    truth, spectra = read_truth(test, model.names, model.attrs, partial=True)
    request = inversion.request(spectra)
    samples = [dim for dim in request.cube.dims if dim != request.band_dim]
    some = subsample(spectra.assign(truth.data_vars), samples, most).compute()
    return some, inversion.request(some.drop_vars(list(truth.data_vars)))


def _rows(request: Request) -> Array:
    """Spectra in memory (n, D) in the order of the model's bands, NaN where there is no data."""
    rows = request.cube.transpose(..., request.band_dim).values.reshape(-1, request.cube.sizes[request.band_dim])
    rows = rows[:, request.bands].astype(np.float64)
    return rows if request.fill is None else np.where(rows == request.fill, np.nan, rows)


def _examples(fit: xr.DataArray) -> dict[str, dict[Any, int]]:
    """Places of the spectrum with the median misfit and of the one with the greatest."""
    order = np.argsort(fit.values, axis=None, kind="stable")[: int(fit.notnull().sum())]
    if not order.size:
        return {}
    chosen = {"median": order[order.size // 2], "greatest": order[-1]}
    return {
        kind: {dim: int(i) for dim, i in zip(fit.dims, np.unravel_index(place, fit.shape), strict=True)}
        for kind, place in chosen.items()
    }


@dataclass(frozen=True)
class Marginal:
    """A density (m,) at values (m,), empty where there is none, with estimate and 90 % interval of the parameter."""

    values: Array
    density: Array
    estimate: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Explanation:
    """What a model says of one spectrum.

    ``observed`` (D,) is NaN where a band is missing, ``outputs`` are those of its inversion, all NaN where too few
    bands are valid. ``residual`` (D,) is observed less fitted, the output of that name, and ``deviation`` (D,) that of
    the noise, of the model and what is given; ``expected`` is what bands of other windows say of each. These are None,
    and ``marginals`` without densities, where a parameter is known by an interval.
    """

    observed: Array
    outputs: xr.Dataset
    residual: Array | None = None
    deviation: Array | None = None
    marginals: list[Marginal] = field(default_factory=list)
    expected: ExpectedSpectrum | None = None

    @property
    def is_inverted(self) -> bool:
        """Whether enough bands are valid."""
        return bool(self.marginals) or (self.residual is not None and bool(np.isfinite(self.residual).any()))


def explain(inversion: Inversion, spectrum: xr.DataArray | xr.Dataset) -> Explanation:
    """Invert one spectrum, whose dimensions beside the bands have size 1, and say what the model makes of it.

    Raises
    ------
    ValueError : several spectra, or as :meth:`specinvert.GLLiMInverter.invert`.
    """
    model, request = inversion.model, replace(inversion, rechunk="auto").request(spectrum)
    others = {str(dim): size for dim, size in request.cube.sizes.items() if dim != request.band_dim}
    if any(size > 1 for size in others.values()):
        one = ", ".join(f"{dim}=0" for dim in others)
        raise ValueError(f"these are spectra over {others}: select one, as with .isel({one})")
    request = replace(request, cube=request.cube.squeeze(list(others), drop=True).compute())
    inversion = replace(inversion, band_dim=request.band_dim)
    conditions, observed = inversion.conditions(request), _rows(request)[0]
    if conditions.has_interval:
        outputs = inversion.maps(request.cube, needed_outputs(model))
        valid = bool(np.isfinite(outputs[model.names[0]]))
        return Explanation(observed, outputs, marginals=marginals(model, None, outputs) if valid else [])
    outputs = inversion.maps(request.cube, ["residual", "fit_rmse", *needed_outputs(model)])
    residual = outputs["residual"].values.astype(np.float64)
    seen = np.isfinite(residual)
    if not seen.any():
        return Explanation(observed, outputs)
    posterior = inversion.posterior(request.cube)
    deviation = np.sqrt(noise_variance(model, posterior["weight"].values, conditions.variance, observed))
    densities = marginals(model, posterior, outputs)
    expected = inversion.expected(request)
    return Explanation(np.where(seen, observed, np.nan), outputs, residual, deviation, densities, expected)


def needed_outputs(model: Model) -> list[str]:
    """The outputs of an inversion that :func:`marginals` reads."""
    if not model.names:
        return []
    composed = any(entry.kind == "ilr" for entry in model.transforms.entries)
    return ["estimate", "std", "ci90", *([f"q{round(100 * level):02d}" for level in STEP_LEVELS] if composed else [])]


def marginals(model: Model, posterior: xr.Dataset | None, outputs: xr.Dataset) -> list[Marginal]:
    """Densities of all parameters, of the ``posterior`` and the ``outputs`` of one spectrum; none without a posterior.

    A transformed parameter t of z has the density of z at z(t), divided by dt/dz. Of a part of a composition there is
    none in closed form: it is constant between the quantiles of ``STEP_LEVELS``.
    """
    made = []
    for i, name in enumerate(model.names):
        curve: tuple[Array, Array] = np.empty(0), np.empty(0)
        if posterior is not None and float(outputs[f"{name}_std"]) != 0.0:
            if model.transforms.entry(i).kind == "ilr":
                curve = _steps(np.array([float(outputs[f"{name}_q{100 * p:02.0f}"]) for p in STEP_LEVELS]))
            else:
                curve = _density(model, posterior, i)
        made.append(Marginal(*curve, *(float(outputs[f"{name}{end}"]) for end in ("", "_ci90_lower", "_ci90_upper"))))
    return made


def noise_variance(model: Model, weights: Array, added: Array | None = None, spectrum: Array | None = None) -> Array:
    """Variances (D,) of the noise: Sigma of the components by their weights, and what the user adds.

    Under a transform of spectra they are those of the transform, and to first order of a ``spectrum`` (D,) where it is
    given.
    """
    each = iter(weights)
    total: Array = np.zeros(model.theta.n_bands)
    for theta in model.members:
        for k in range(theta.n_components):
            weight = next(each)
            if weight > _LABELLED_WEIGHT:
                dense = theta.structure.dense(theta.Sigma[k : k + 1], theta.n_bands)[0]
                total += weight * np.diagonal(dense)
    if spectrum is not None:
        total = total / model.spectra_transform.slope(spectrum) ** 2
    if added is not None:
        total += np.diagonal(added) if added.ndim == 2 else added
    return total


def _density(model: Model, posterior: xr.Dataset, index: int) -> tuple[Array, Array]:
    """Values of a parameter and its density there, finer near the means of the components."""
    transforms = model.transforms
    column = transforms.column(index)
    weights = np.asarray(posterior["weight"].values, dtype=np.float64)
    seen = weights > _SEEN_WEIGHT * weights.max()
    weights = weights[seen] / weights[seen].sum()
    means = posterior["mean"].values[seen, column]
    deviations = np.sqrt(posterior["covariance"].values[seen, column, column])
    low, high = quantile(weights[None], means[None], deviations[None] ** 2, [0.002, 0.998])[0]
    near = (means[:, None] + deviations[:, None] * np.linspace(-4.0, 4.0, _EACH)).ravel()
    z = np.unique(np.concatenate([np.linspace(low, high, _FINE), near[(near > low) & (near < high)]]))
    scaled = (z[:, None] - means) / deviations
    density = (np.exp(-0.5 * scaled**2) / (np.sqrt(2.0 * np.pi) * deviations)) @ weights
    slope = np.exp(transforms.entry(index).log_jacobian(z[:, None]))
    there = slope > 0.0  # a sqrt has an atom where z is negative
    values, density = transforms.inverse_of(index, z)[there], density[there] / slope[there]
    edge = _EVEN * float(transforms.softness[column])
    even = values < edge
    if edge > 0.0 and even.any():
        below = cdf(
            weights[None], means[None], deviations[None] ** 2, transforms.known_forward(index, np.array([edge]))
        )
        values[even], density[even] = np.linspace(0.0, edge, int(even.sum())), float(below[0]) / edge
    return values, density


def _steps(quantiles: Array) -> tuple[Array, Array]:
    widths, mass = np.diff(quantiles), np.diff(np.array(STEP_LEVELS))
    wide = widths > 0.0
    edges = np.stack([quantiles[:-1][wide], quantiles[1:][wide]], axis=1)
    return edges.ravel(), np.repeat(mass[wide] / widths[wide], 2)
