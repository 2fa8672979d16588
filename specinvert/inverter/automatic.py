"""Settings that a fit finds by itself, and what it then says of itself: errors and coverage on samples held out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ..baselines import make_method
from ..cubes import (
    DEFAULT_OUTPUTS,
    BlockInverter,
    Domain,
    Predictor,
    Recalibration,
    TrainingSet,
    declare_outputs,
    units_of,
)
from ..gllim import SEARCHED_ROWS, SMALL, Candidate, Found, Search, Trial, candidate_settings, splits
from ..gllim.core import Array, one_blas_thread
from ..gllim.em import (
    ArrayChunks,
    Chunk,
    FitProgress,
    Settings,
    check_data,
    evenly_spaced,
    member_settings,
    moments_of,
)
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import Marginals
from ..io import CheckpointFile
from ..model import Model, Summary
from ..progress import SEARCH
from ..settings import AUTO, InverterSettings
from .fit import FOUND, column_names, fit_members, fit_model, is_automatic, stacked, stored_settings, worthy

ASSESSED_ROWS = 50_000
"""Samples that errors and coverage are of, and that the fits behind them see, at most."""
BASELINES, BASELINE_ROWS = ("ridge", "pls"), 5000
LEAST_PAIRS = 50
"""Fewer do not recalibrate."""
POOR, LOSING, NARROW, FEW = 0.9, 1.1, 0.8, 200
"""NRMSE from which a parameter is hardly told; RMSE over that of the better baseline, coverage and number of pairs to
beware of."""


def committee_settings(asked: InverterSettings, settings: Settings, responsibilities: Any) -> list[Settings]:
    """Settings of the members that are asked for; ValueError where responsibilities start them."""
    members = member_settings(settings, 1 if asked.n_ensemble == AUTO else int(asked.n_ensemble))
    if len(members) > 1 and responsibilities is not None:
        raise ValueError("responsibilities start one fit: a committee (n_ensemble > 1) takes starts of its own")
    return members


def fit_automatic(
    asked: InverterSettings,
    settings: Settings,
    members: list[Settings],
    data: TrainingSet,
    assess: bool | None,
    progress: FitProgress | None,
    keeper: CheckpointFile | None,
) -> Model:
    """Look for the settings that are to be found, assess them, and fit; each where it is asked for.

    ``members`` are emptied, and filled with the settings of those that were fitted.

    Raises
    ------
    ValueError : samples without parameters and nothing latent, or no setting that gives a model.
    """
    found = find_settings(asked, settings, data, progress) if is_automatic(asked) else None
    if found is not None:
        data, members[:] = found_settings(found, settings, asked.n_ensemble, data)
    if not data.parameters and members[0].n_latent == 0:
        raise ValueError("parameters=[] is unsupervised and needs n_latent >= 1 or 'bic'")
    assessed = assess_fit(data, members, found, progress) if assess or (found is not None and assess is None) else None
    weights: Array | None = None
    if len(members) > 1 and (asked.ensemble_weights == "stacked" or asked.n_ensemble == AUTO):
        if assessed is None or assessed.weights is None:
            members[:], weights = stacked(data, members, progress)
        else:
            members[:], weights = worthy(members, assessed.weights)
    model = fit_model(data, members, stored_settings(asked), progress, keeper, weights, assessed is not None)
    if assessed is None:
        return model
    summary = assessed.summary
    if not model.converged and settings.tol > 0:
        levelling = f"EM did not converge in max_iter={settings.max_iter} iterations at tol={settings.tol:g}"
        summary = replace(summary, beware=(*summary.beware, levelling))
    return replace(model, recalibration=assessed.recalibration, summary=summary)


def find_settings(
    asked: InverterSettings, settings: Settings, data: TrainingSet, progress: FitProgress | None = None
) -> Found:
    """The best of the settings that are ``"auto"``, by samples held out.

    ``settings`` are those of one fit, with what stands for those that are looked for.

    Raises
    ------
    ValueError : no parameters, responsibilities to start from, or no setting that gives a model.
    """
    if not data.parameters or data.n_responsibilities is not None:
        lacking = "there are no parameters" if not data.parameters else "responsibilities start one fit"
        raise ValueError(f"settings are found by held-out parameters and {lacking}: give n_components and n_latent")
    check_data(data.source.sum(moments_of), replace(settings, n_components=1), None, column_names(data))
    free = {name for name in FOUND if getattr(asked, name) == AUTO}
    if asked.sigma == AUTO and asked.shrinkage is None:
        free.add("shrinkage")
    if asked.sigma == AUTO and not asked.tied_sigma:
        free.add("tied_sigma")
    if asked.n_ensemble == AUTO and settings.init == InverterSettings.init:
        free.add("starts")
    if asked.spectra_transform == AUTO:
        free.add("spectra_transform")
    start = candidate_of([settings], None)
    tell = None if progress is None else partial(progress, SEARCH)
    rows = data.source.sample(SEARCHED_ROWS)
    return Search(rows, settings, free, start, len(data.values), asked.search_seconds, tell).run()


@dataclass(frozen=True, eq=False)
class Assessment:
    """What fits say of samples that they have not seen.

    Attributes
    ----------
    weights : (M,) of the members of a committee, by the density of held-out parameters; None of one.
    recalibration : of quantiles, by the same samples; None of compositions and of few. summary : all in words.
    """

    weights: Array | None
    recalibration: Recalibration | None
    summary: Summary


def found_settings(
    found: Found, settings: Settings, n_members: int | str, data: TrainingSet
) -> tuple[TrainingSet, list[Settings]]:
    """The samples under the transform of spectra that was found, and the settings of each member."""
    best = found.best.candidate
    members = candidate_settings(best, settings)
    if n_members != AUTO:
        members = member_settings(members[0], int(n_members))
    if best.spectra_transform is not None:
        data = data.under(data.transforms.spec or {}, best.spectra_transform)
    return data, members


def assess_fit(
    data: TrainingSet,
    members: Sequence[Settings],
    found: Found | None,
    progress: FitProgress | None = None,
) -> Assessment:
    """Fit without a part of the samples, or in turn without each of five where they are few, and compare.

    The estimates are those that users get; ridge regression and partial least squares see the same samples.
    """
    rows = data.plain.sample(ASSESSED_ROWS)
    parts = splits(rows, len(rows) <= SMALL)
    folds = [_Fold.of(data, members, rows.rows(fitted), rows.rows(held), progress) for fitted, held in parts]
    each = [Marginals.stacked([fold.marginals[m] for fold in folds]) for m in range(len(members))]
    frequencies = np.concatenate([fold.held.weights for fold in folds])
    weights = Marginals.weights_of(each, frequencies) if len(each) > 1 else None
    together = each[0] if weights is None else Marginals.joined(each, weights)
    truth = np.concatenate([fold.held.parameters for fold in folds])
    estimates = np.concatenate([fold.estimates(data, weights) for fold in folds])
    n_scores = np.count_nonzero(np.isfinite(together.z).all(axis=1))
    recalibration = None
    if together.z.shape[1] == len(data.parameters) and n_scores >= LEAST_PAIRS:
        scores = xr.Dataset({name: ("sample", together.z[:, i]) for i, name in enumerate(data.parameters)})
        method = "held-out" if len(parts) == 1 else "cross-validation"
        recalibration = Recalibration.of_scores(scores, LEAST_PAIRS, "training", method)
    baselines = {name: np.concatenate([fold.baseline(name) for fold in folds]) for name in BASELINES}
    return Assessment(
        weights,
        recalibration,
        _summary(data, members, found, len(parts), truth, estimates, baselines, frequencies, recalibration),
    )


@dataclass(frozen=True, eq=False)
class _Fold:
    """Fits of all members to some samples, and others, both in the user's units."""

    thetas: tuple[GLLiMParameters, ...]
    marginals: list[Marginals]
    fitted: Chunk
    held: Chunk

    @classmethod
    def of(
        cls,
        data: TrainingSet,
        members: Sequence[Settings],
        fitted: Chunk,
        held: Chunk,
        progress: FitProgress | None,
    ) -> _Fold:
        tell = None
        if progress is not None:
            tell = lambda number: lambda label, *state: progress("held-out errors", *state)  # noqa: E731
        trained = fit_members(replace(data, plain=ArrayChunks(fitted)), members, tell, quiet=True)
        seen = replace(data, plain=ArrayChunks(held)).source.sample(len(held))
        thetas = tuple(one.fit.parameters for one in trained)
        spectra = np.asarray(seen.spectra, dtype=np.float64)
        return cls(thetas, [Marginals.of(theta, spectra, seen.parameters) for theta in thetas], fitted, held)

    def estimates(self, data: TrainingSet, weights: Array | None) -> Array:
        """(n, L_t) as an inversion gives them."""
        predictor = Predictor(
            *(self.thetas, data.transforms, Domain(data.low, data.high)),
            member_weights=weights,
            spectra_transform=data.spectra_transform,
        )
        declared = declare_outputs(DEFAULT_OUTPUTS[:1], data.parameters, self.thetas[0].n_latent)
        spectra = np.asarray(self.held.spectra, dtype=np.float64)
        kernel = BlockInverter(predictor, np.arange(spectra.shape[1]), tuple(declared), spectra.dtype)
        with one_blas_thread():
            return np.stack(kernel(spectra), axis=1)

    def baseline(self, name: str) -> Array:
        """(n, L_t) of a method that is not GLLiM."""
        few = self.fitted.rows(evenly_spaced(len(self.fitted), BASELINE_ROWS))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method = make_method(name, random_state=0).fit(few.spectra, few.parameters)
            return np.asarray(method.predict(self.held.spectra)).reshape(len(self.held), -1)


def _summary(
    data: TrainingSet,
    members: Sequence[Settings],
    found: Found | None,
    n_parts: int,
    truth: Array,
    estimates: Array,
    baselines: Mapping[str, Array],
    frequencies: Array,
    recalibration: Recalibration | None,
) -> Summary:
    share = frequencies / frequencies.sum()
    spread = np.sqrt(share @ (truth - share @ truth) ** 2)
    rmse = np.sqrt(share @ (estimates - truth) ** 2)
    others = {name: np.sqrt(share @ (values - truth) ** 2) for name, values in baselines.items()}
    best = min(others, key=lambda name: float((others[name] / spread).mean()))
    nothing = np.full(len(rmse), np.nan)
    covered = (nothing, nothing)
    if recalibration is not None and recalibration.before is not None and recalibration.after is not None:
        covered = recalibration.before, recalibration.after
    made = Summary(
        names=tuple(data.parameters),
        units=tuple(units_of(data.attrs[name]) or "" for name in data.parameters),
        n_samples=len(data.values),
        n_held_out=len(truth),
        n_parts=n_parts,
        rmse=rmse,
        nrmse=rmse / spread,
        coverage=covered[0],
        recalibrated=covered[1],
        baseline=best,
        baseline_rmse=others[best],
        chosen=str(candidate_of(members, data.spectra_transform.kind)),
        bounds={
            name: data.transforms.entry(i).kind
            for i, name in enumerate(data.parameters)
            if data.transforms.entry(i).kind != "identity"
        },
        tried=() if found is None else tuple(_row(trial) for trial in found.trials),
        ended="" if found is None else found.ended,
        seconds=0.0 if found is None else found.seconds,
    )
    return replace(made, beware=tuple(_findings(made)))


def candidate_of(members: Sequence[Settings], of_spectra: str | None) -> Candidate:
    """The settings of a fit, or of a committee's, as a search has them."""
    given: dict[str, Any] = {name: getattr(members[0], name) for name in FOUND}
    given |= {"starts": tuple(str(own.init) for own in members), "tied_sigma": members[0].tied_sigma}
    return Candidate(**given, spectra_transform=of_spectra)


def _row(trial: Trial) -> dict[str, Any]:
    """What is kept of a trial."""
    row = {"settings": str(trial.candidate), "rows": trial.rows, "score": trial.score, "seconds": trial.seconds}
    row |= {name: getattr(trial, name).tolist() for name in ("nrmse", "coverage_90", "width")}
    return row | {"failure": trial.failure}


def _findings(summary: Summary) -> Iterator[str]:
    """What to beware of, in a sentence each."""
    poor = [name for name, nrmse in zip(summary.names, summary.nrmse, strict=True) if nrmse > POOR]
    if poor:
        yield f"the spectra hardly tell {', '.join(poor)}: the mean of the training set does as well"
    ratio = summary.rmse / summary.baseline_rmse
    losing = [f"{name} ({r:.2f} times its error)" for name, r in zip(summary.names, ratio, strict=True) if r > LOSING]
    if losing:
        yield f"{summary.baseline} does better for {', '.join(losing)}"
    narrow = [name for name, c in zip(summary.names, summary.coverage, strict=True) if c < NARROW]
    if narrow:
        yield (
            f"without recalibration the intervals of {', '.join(narrow)} are too narrow; standard deviations are not "
            "recalibrated: use q05 and q95 or ci90"
        )
    if summary.n_held_out < FEW:
        error = 100.0 * np.sqrt(0.09 / summary.n_held_out)
        yield f"coverage of {summary.n_held_out} samples is uncertain by {error:.0f} %"
    if summary.ended.startswith("its time"):
        yield "the search for settings ended when its time was over: search_seconds gives it more"
