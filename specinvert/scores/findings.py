"""What a reader should know before trusting a model or its maps: findings in plain words, each with its number.

Each finding says what was seen, how much of it, and what to do. The limits are constants of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ..cubes import Bands, percent
from ..flags import FLAGS, NODATA
from ..gllim.model import few_samples
from ..gllim.posterior import distance_at
from ..model import Model
from .conformal import promise
from .metrics import MEASURED

LEAST_COVERAGE, MOST_COVERAGE = 0.80, 0.97
"""Shares of truths in 90 % intervals below which these are too narrow, and above which too wide."""

POOR_NRMSE = 0.8
"""NRMSE from which a parameter is as good as not retrieved: at 1 the mean of the truth does as well."""

LARGE_BIAS = 0.5
"""Share of the RMSE that a bias has to be, to be told."""

FEW_PAIRS = 200
"""Fewer pairs of truth and estimate leave coverage uncertain by several percent."""

FAR_OUT = 1.5
"""How much greater the squared distance of held-out spectra may be than the model's noise explains."""

CLEAN = 0.5
"""Share of the noise added in training below which the misfit of test spectra says that they lack it."""

FLAG_LIMITS = {
    "partial_bands": 0.20,
    "out_of_domain": 0.05,
    "below_training_range": 0.05,
    "above_training_range": 0.05,
    "multimodal": 0.25,
    "prior_answers": 0.05,
}
"""Shares of the pixels with data above which a flag is told."""

MUCH_NODATA = 0.5

MISSING_SHARE = 0.05
"""Share of the spectra with data in which a band may lack values."""

_LEVEL = 0.01
_FLAG_ADVICE = {
    "partial_bands": "Look for bad bands in the cube. Estimates from the bands that are left are exact, but less sure; "
    "if the same bands are missing everywhere, train without them.",
    "out_of_domain": "The spectra are unlike those of training. Compare them with the training spectra: units, "
    "calibration, a material or an illumination that was not simulated. Widen the simulations, or mask these pixels.",
    "below_training_range": "Estimates there are extrapolated. Extend the training range, or declare the bound with a "
    "transform such as log or logit.",
    "above_training_range": "Estimates there are extrapolated. Extend the training range, or declare the bound with a "
    "transform such as log or logit.",
    "multimodal": "Several solutions fit these spectra, and the mean may lie between them. Ask for the outputs flags, "
    "which tells the parameter, and modes2, or give what is known of a parameter with known=.",
    "prior_answers": "These spectra tell little of a parameter, and its estimate is that of the training set. Ask for "
    "the outputs flags and information, which tell the parameter, and mask these pixels.",
}


@dataclass(frozen=True)
class Finding:
    """Something to know: a ``title``, ``what`` was seen with its number, and what ``todo``; ``serious`` comes first."""

    title: str
    what: str
    todo: str
    serious: bool = False


def model_findings(model: Model) -> Iterator[Finding]:
    """Findings of the training: convergence, components, latents, samples, and how far out held-out spectra lie."""
    theta, settings = model.theta, model.settings
    yield from _convergence(model)
    if model.n_removed:
        yield Finding(
            "Components were removed",
            f"{model.n_removed} components degenerated in training and are gone; {theta.n_components} are left.",
            "Train with fewer components or more samples, or with another start (init, n_init).",
        )
    tried = list(model.bics)
    if settings.get("n_latent") == "bic" and len(tried) > 1 and theta.n_latent == max(tried) > 0:
        yield Finding(
            "The number of latent dimensions is the largest tried",
            f"BIC chose {theta.n_latent} of {', '.join(map(str, sorted(tried)))}, the end of the search.",
            "Raise max_latent: more latent dimensions may describe the spectra better.",
        )
    yield from _sizes(model)
    yield from _held_out(model)
    if model.bands.guessed:
        yield Finding(
            "The unit of the wavelengths was guessed",
            f"Training gave none, and {model.bands.unit} was taken from their values.",
            "Set the units attribute of the wavelength coordinate and train again.",
        )
    yield from _field_values(model)


def band_findings(spectra: np.ndarray, bands: Bands, of: str) -> Iterator[Finding]:
    """Findings on the bands of spectra (n, D): values that are missing, and bands that never vary."""
    spectra = spectra[np.isfinite(spectra).any(axis=1)]
    finite = np.isfinite(spectra)
    missing = finite.mean(axis=0) < 1.0 - MISSING_SHARE if len(spectra) else np.zeros(bands.size, dtype=bool)
    if missing.any():
        share = 1.0 - finite[:, missing].mean()
        yield Finding(
            f"Bands of the {of} are missing",
            f"{int(missing.sum())} of {bands.size} bands lack values, in {percent(share)} of the spectra with "
            f"data on average: {_names(bands, missing)}.",
            "Check the bad-band list. Leave bands out of training that the sensor does not deliver.",
        )
    still = finite.all(axis=0) & (spectra == spectra[:1]).all(axis=0) & (len(spectra) > 1)
    if still.any():
        yield Finding(
            f"Bands of the {of} never vary",
            f"{int(still.sum())} of {bands.size} bands have one value in all spectra: {_names(bands, still)}.",
            "Leave these bands out: they say nothing, and may be a fill value.",
        )


def evaluation_findings(evaluation: xr.Dataset) -> Iterator[Finding]:
    """Findings of an evaluation, as `GLLiMInverter.evaluate` returns it: errors and coverage of the parameters.

    What helps where the truth was simulated may not where it was measured, which the attribute ``truth`` tells.
    """
    measured = evaluation.attrs.get("truth") == MEASURED
    names = evaluation["parameter"].values.tolist()
    kinds = ("nrmse", "rmse", "bias", "coverage_90", "n")
    scores = {kind: dict(zip(names, evaluation[kind].values.tolist(), strict=True)) for kind in kinds}
    empty = [name for name, count in scores["n"].items() if count == 0]
    if empty:
        todo = "Check that the test set has finite values of them, and spectra with enough valid bands."
        yield Finding(f"Not evaluated: {', '.join(empty)}", "No pair of truth and estimate is left.", todo, True)
    yield from _errors(scores)
    yield from _coverage(scores["coverage_90"], measured)
    if "absent" in evaluation.attrs:
        what = "The test set holds no values of these parameters of the model."
        yield Finding(f"Not evaluated: {evaluation.attrs['absent']}", what, "Nothing, if they were never measured.")
    yield from _sureness(evaluation, measured)


def _sureness(evaluation: xr.Dataset, measured: bool) -> Iterator[Finding]:
    least = int(evaluation["n"].min())
    if "n_groups" in evaluation:
        groups = int(evaluation["n_groups"].min())
        error = float(evaluation["coverage_90_error"].max())
        sure = f"uncertain by {percent(2.0 * error)}" if np.isfinite(error) else "unknown"
        yield Finding(
            f"The test spectra are {groups} groups",
            f"{least} pairs of truth and estimate in {groups} groups leave the share in 90 % intervals {sure}: pairs "
            "of a group err alike.",
            "Count groups, not spectra, when you compare scores.",
        )
    elif 0 < least < FEW_PAIRS:
        yield Finding(
            "The test set is small",
            f"{least} pairs of truth and estimate leave the share in 90 % intervals uncertain by "
            f"{percent(2 * np.sqrt(0.09 / least))}.",
            "Take differences smaller than that for chance." if measured else f"Evaluate on {FEW_PAIRS} or more.",
        )


def noise_findings(misfit: float, added: np.ndarray | None) -> Iterator[Finding]:
    """Whether test spectra, of this median RMSE of the fit, lack the noise (D,) that training added to its own."""
    if added is None or not misfit < CLEAN * (noise := float(np.sqrt(np.mean(added**2)))):
        return
    yield Finding(
        "The test spectra lack the noise of training",
        f"They are fitted to {misfit:.2g} in the median, and training added noise of {noise:.2g}.",
        "Add the same noise to them (--add-noise, or specinvert.nuisance.apply) and evaluate again: what is said "
        "of coverage here does not hold for spectra with noise, and a recalibration on such spectra makes "
        "intervals too narrow.",
        serious=True,
    )


def map_findings(shares: Mapping[str, float]) -> Iterator[Finding]:
    """Findings on maps, of the shares of all pixels that have each flag."""
    nodata = shares.get(FLAGS[NODATA], 0.0)
    if nodata >= 1.0:
        todo = "Check nodata values, band matching and min_valid_bands; no parameter was estimated anywhere."
        yield Finding("The maps are empty", "All pixels are flagged as no data.", todo, True)
        return
    if nodata > MUCH_NODATA:
        todo = "Check that the fill value and the mask are right."
        yield Finding("Much of the scene has no data", f"{percent(nodata)} of the pixels.", todo)
    for name, limit in FLAG_LIMITS.items():
        share = shares.get(name, 0.0) / (1.0 - nodata)
        if share > limit:
            title = f"Many pixels are flagged: {name.replace('_', ' ')}"
            what = f"{percent(share)} of the pixels with data have this flag; more than {percent(limit)} is unusual."
            yield Finding(title, what, _FLAG_ADVICE[name], name == "out_of_domain" and share > 0.5)


def other_model(made_by: str | None, model_id: str) -> Iterator[Finding]:
    """A finding where maps were made by another model, as far as they tell."""
    if made_by not in (None, model_id):
        what = f"They name model {made_by}, and this report is on model {model_id}."
        yield Finding("The maps come from another model", what, "Report on the model that made them.", True)


def _convergence(model: Model) -> Iterator[Finding]:
    if model.converged:
        return
    curve, tol = np.asarray(model.log_likelihoods), model.settings.get("tol", 0.0)
    gain = (curve[-1] - curve[-2]) / model.total_weight if curve.size > 1 else np.nan
    asked = f"tol = {tol:g}" if tol else "tol = 0, which never stops it"
    yield Finding(
        "Training did not converge",
        f"EM stopped after {curve.size} iterations; the last gained {gain:.3g} nats a sample, with {asked}.",
        f"Raise max_iter (now {model.settings.get('max_iter')}), or tol if so small a gain does not matter.",
    )


def _field_values(model: Model) -> Iterator[Finding]:
    found = model.calibration
    if found is None or not found.table:
        return
    hidden = not all(row["signal"] for row in found.table.values())
    fewest = min(row["n_groups"] for row in found.table.values())
    yield Finding(
        "The model is calibrated by field values" + (", which do not follow all estimates" if hidden else ""),
        f"{found.described}. {promise(fewest)[0].upper()}{promise(fewest)[1:]}.",
        "Map groups like those, with the same noise and known parameters.",
        hidden,
    )


def _sizes(model: Model) -> Iterator[Finding]:
    few = few_samples(model.theta, model.total_weight)
    if few is None:
        return
    title, todo = "Few training samples for each component", "Simulate more spectra, or train with fewer components."
    if few.of_noise:
        title = f"Few training samples for {model.theta.structure.text}"
        todo = "Use sigma='diag' or 'iso' with latent dimensions, tied_sigma=True, or more samples."
    yield Finding(title, f"{few.text}.", todo)


def _held_out(model: Model) -> Iterator[Finding]:
    level, n_bands = model.log_tail, model.theta.n_bands
    if np.isnan(level):
        few = f"{model.n_samples} training samples are too few to hold some out"
        what = f"{few}: no pixel is ever flagged as out of domain."
        yield Finding("The domain of the model is not known", what, "Simulate more spectra.")
        return
    expected = np.log(_LEVEL)
    ratio = distance_at(level, n_bands) / distance_at(float(expected), n_bands) if level < expected else 1.0
    if ratio <= FAR_OUT:
        return
    structure = model.theta.structure
    yield Finding(
        "Spectra held out of training fit much worse than the model expects",
        f"One in a hundred lies {ratio:.3g} times as far from the model, in squared distance, as its noise allows "
        f"(log tail probability {level:.4g}, {expected:.3g} if the noise were right).",
        f"The {structure.name} noise covariance fits the training samples too closely: use sigma='diag' or 'iso' "
        "with latent dimensions, tied_sigma=True, or more samples."
        if structure.correlated
        else "The maps are too coarse or the noise too simple: try more components, more latent dimensions, or a "
        "noise a band (sigma='diag').",
        ratio > FAR_OUT**2,
    )


def _errors(scores: Mapping[str, Mapping[str, float]]) -> Iterator[Finding]:
    poor = {name: f"{score:.3g}" for name, score in scores["nrmse"].items() if score > POOR_NRMSE}
    if poor:
        yield Finding(
            f"Not retrievable from these spectra: {', '.join(poor)}",
            f"The NRMSE is {_each(poor)}; 1 is no better than always giving the mean.",
            "Do not map it, or give the model more to see it by: other bands, less noise, parameters that are "
            "known at inversion.",
            True,
        )
    for side, sign in (("high", 1.0), ("low", -1.0)):
        biased = {
            name: f"{bias:.3g} ({percent(abs(bias) / scores['rmse'][name])} of the RMSE)"
            for name, bias in scores["bias"].items()
            if sign * bias > LARGE_BIAS * scores["rmse"][name] > 0
        }
        if biased:
            yield Finding(
                f"Estimated too {side}: {', '.join(biased)}",
                f"The bias is {_each(biased)}.",
                "The test spectra differ from the training spectra in a way that moves these estimates: compare "
                "noise, ranges and nuisances of the two.",
            )


def _coverage(shares: Mapping[str, float], measured: bool) -> Iterator[Finding]:
    narrow = {name: percent(share) for name, share in shares.items() if share < LEAST_COVERAGE}
    wide = {name: percent(share) for name, share in shares.items() if share > MOST_COVERAGE}
    recalibrate = (
        "Recalibrate on simulations held out of training (specinvert recalibrate, or inverter.recalibrate), or train "
        "with more components"
    )
    narrower = f"{recalibrate}, with latent dimensions for what else varies, or with the sensor's noise."
    if measured:
        recalibrate = (
            "Correct intervals by 15 measured values or more (specinvert calibrate --groups site, or "
            "inverter.calibrate(field, 'site')), of other sites than those evaluated"
        )
        narrower = (
            "More components, or a recalibration on simulations, do not help here: measured spectra hold what the "
            "simulations lack. Train with it (specinvert.nuisance: noise, gain, offset, background), or learn it from "
            "spectra of the target (specinvert adapt), and compare such models on these (specinvert rank). Then: "
            f"{recalibrate[0].lower()}{recalibrate[1:]}."
        )
    if narrow:
        yield Finding(
            f"Uncertainties are too small: {', '.join(narrow)}",
            f"90 % intervals hold only this share of the truths: {_each(narrow)}.",
            narrower,
            True,
        )
    if wide:
        yield Finding(
            f"Uncertainties are too large: {', '.join(wide)}",
            f"90 % intervals hold this share of the truths: {_each(wide)}.",
            f"{recalibrate}.",
        )


def _each(values: Mapping[str, str]) -> str:
    return ", ".join(f"{value} for {name}" for name, value in values.items())


def _names(bands: Bands, which: Any) -> str:
    places, wavelength = np.flatnonzero(which), bands.wavelength
    shown = [f"number {i}" if wavelength is None else f"{wavelength[i]:.5g} nm" for i in places[:6]]
    return ", ".join(shown) + (f" and {places.size - 6} more" if places.size > 6 else "")
