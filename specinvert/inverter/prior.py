"""``reweight``: one step from the prior of a model to that of a scene, and whether to take it.

Where a model is right, the posteriors of all spectra of a scene average to one step of EM from the prior that the model
has to that of the scene. The step is taken in each parameter by itself, of a smooth histogram, and shortened where it
would leave less than half of the prior's samples. The joint density of a model with weights w(t) on its parameters is
that mixture with w(t) N(t; c_k, Gamma_k) for the prior of each component; here a Gaussian of the same mass, mean and
covariance stands for it. What spectra look like given parameters stays as it was trained.
"""

from __future__ import annotations

import copy
import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.ndimage import convolve1d

from ..cubes import declare_outputs, percent, require_flags
from ..flags import OUT_OF_DOMAIN
from ..gllim.core import Array
from ..gllim.model import GLLiMParameters
from ..model import Model, ScenePrior
from ..scores import LEAST_SPECTRA, LeftOut
from .inverter import GLLiMInverter, inversion_of, model_of
from .predictive import sample_pixels
from .ranking import leave_windows_out

DRAWS, SAMPLES, SIMULATED = 20, 1000, 2000
"""Draws of each posterior, samples of each component of the prior, and spectra that intervals are checked on."""
SAME = "the scene has the prior of the model"
LEAST_EFFECTIVE, LEAST_LIKE = 0.1, 0.5
"""Shares of effective samples of a whole step, and of spectra in the domain, below which there is no step."""
LEAST_COVERED, MOST_Q, MOST_MOVED, WORSE = 0.85, 1.25, 1.5, 1.25
"""Share of simulated values in 90 % intervals below which there is no step; squared errors of bands, and squared moves
of estimates, over those expected, and both over those before, above which there is none. Chosen with errors on measured
sets in sight."""
BINS, PSEUDO_SPECTRA, ALIKE = 20, 40.0, 0.05
"""Bins of equal mass of the prior, how many spectra the prior counts for, and the variance of weights up to which, or
up to that of chance, the scene has the prior of the model."""
LEAST, MOST, EFFECTIVE = 0.05, 20.0, 0.5
"""Bounds of the weights of samples, and the share of effective ones below which a step is shortened."""


def reweight(
    inverter: GLLiMInverter,
    cube: xr.DataArray | xr.Dataset,
    noise: Any = None,
    *,
    band_dim: str | None = None,
    tolerance: float = 1.0,
    n_spectra: int = 1000,
    force: bool = False,
) -> GLLiMInverter:
    """Take one step from the prior of the model to that of a scene, without labels.

    Samples of the prior are weighted by the histograms of posterior draws, a parameter at a time, and estimates and
    intervals follow: both draw near to what is common in the scene. Intervals become narrower. Where spectra tell all,
    nothing changes; where they differ from simulations, posteriors are wrong, and so is a prior made of them, so that
    this is for models that are calibrated for the scene, and refused for others. A second step overshoots and is
    always refused. A recalibration of quantiles stays as it was.

    Parameters
    ----------
    inverter : fitted; it stays as it is.
    cube, noise, band_dim, tolerance : as :meth:`GLLiMInverter.invert` takes them; ``noise`` may be what :func:`adapt`
        found for this model, and inverts with the new one as well. Of a larger cube a random choice, always the same,
        is read.
    n_spectra : how many spectra are used at most.
    force : whether to take a step that is refused nevertheless.

    Returns
    -------
    A new inverter of the same parameters and bands. Its ``model_.scene_prior`` tells the effective share of samples,
    the length of the step, widths after over before, the gain in log density of left-out bands, and the verdict.

    Raises
    ------
    ValueError : not fitted, no parameters, already reweighted, calibrated by field values, or fewer than 20 spectra in
        the domain. Refused without ``force``: half of the spectra out of the domain, a model not calibrated for them,
        a tenth of effective samples or less, left-out bands or simulated values predicted worse after than before.

    Warns
    -----
    UserWarning : where a step is forced that is refused.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training, scene = simulate_mixtures(600, noise=0.1, seed=0), simulate_mixtures(600, noise=0.1, seed=1)
    >>> inverter = GLLiMInverter(4, n_latent=2, tol=0.1, random_state=0)
    >>> inverter = inverter.fit(training, parameters=["ice_fraction", "grain_size"])
    >>> icy = scene.isel(sample=scene["ice_fraction"].values > 0.7)
    >>> nearer = reweight(inverter, icy["reflectance"])
    >>> [round(float(one.evaluate(icy)["rmse"].sel(parameter="ice_fraction")), 3) for one in (inverter, nearer)]
    [0.072, 0.066]
    """
    require_flags(force=force)
    model = _weighable(inverter)
    if not isinstance(n_spectra, numbers.Integral) or isinstance(n_spectra, bool) or n_spectra < LEAST_SPECTRA:
        raise ValueError(f"n_spectra={n_spectra!r} must be an integer, {LEAST_SPECTRA} or more")
    inversion = inversion_of(inverter, noise=noise, band_dim=band_dim, tolerance=tolerance, rechunk="auto")
    request = inversion.request(cube)
    kernel = inversion.kernel(request, declare_outputs([f"draws{DRAWS}", "flag"], model.names, model.theta.n_latent))
    block, extras = sample_pixels(request, kernel, int(n_spectra))
    made = {variable.name: values for variable, values in zip(kernel.outputs, kernel(block, *extras), strict=True)}
    draws = np.stack([made[f"{name}_draws"] for name in model.names], axis=-1).astype(np.float64)
    finite = np.isfinite(draws).all(axis=(1, 2))
    like = finite & ((made["quality_flag"] & OUT_OF_DOMAIN) == 0)
    if like.sum() < LEAST_SPECTRA:
        raise ValueError(
            f"reweight needs {LEAST_SPECTRA} spectra in the domain of the model or more, and {int(like.sum())} of "
            f"{len(like)} are: give more spectra of the scene, or a model trained for them"
        )
    samples = [_Samples.of(theta) for theta in model.members]
    every = np.concatenate([model.transforms.inverse(one.flat) for one in samples])
    share = np.concatenate([part * one.share for part, one in zip(model.shares, samples, strict=True)])
    ratio = _log_ratio(every, share, draws[like])
    weights, step = _weigh(ratio, share)
    told = ScenePrior(model.identity, int(like.sum()), _effective(np.exp(ratio), share), step)
    if 1.0 / told.effective - 1.0 < max(ALIKE, 0.5 * BINS * len(model.names) / told.n_spectra):
        return _with(inverter, replace(model, scene_prior=replace(told, verdict=SAME)))
    parts = np.split(weights, np.cumsum([len(one.share) for one in samples])[:-1])
    members = [one.weighted(theta, w) for one, theta, w in zip(samples, model.members, parts, strict=True)]
    changed = replace(model, members=tuple(members), summary=None, scene_prior=told)
    covered = _covered(_with(inverter, replace(changed, recalibration=None)), model, samples, weights)
    before, _ = leave_windows_out(inversion, request, block, extras)
    after, _ = leave_windows_out(replace(inversion, model=changed), request, block, extras)
    told = _compared(replace(told, covered=tuple(covered.tolist())), like, before, after)
    refusals = _refusals(told, float(like[finite].mean()))
    verdict = "; ".join(refusals) or f"reweighted: {told.described(model.names)}"
    if refusals and not force:
        raise ValueError(f"refused: {verdict}; adapt the model or simulate for the scene, or pass force=True")
    if refusals:
        verdict = f"forced: {verdict}"
        warnings.warn(verdict, UserWarning, stacklevel=2)
    return _with(inverter, replace(changed, scene_prior=replace(told, verdict=verdict)))


@dataclass(frozen=True, eq=False)
class _Samples:
    """Samples (K, m, L_z) of the parameters of each component, of its very mean and covariance; ``share`` (K m,)."""

    points: Array
    share: Array

    @classmethod
    def of(cls, theta: GLLiMParameters) -> _Samples:
        n, count = theta.n_parameters, max(SAMPLES, 20 * theta.n_parameters)
        normal = np.random.default_rng(0).standard_normal((count, n))
        normal -= normal.mean(axis=0)
        normal = np.linalg.solve(np.linalg.cholesky(normal.T @ normal / count), normal.T).T
        factors = np.linalg.cholesky(theta.Gamma[:, :n, :n])
        points = theta.c[:, None, :n] + np.einsum("kij,mj->kmi", factors, normal)
        return cls(points, np.repeat(theta.pi / (count * theta.pi.sum()), count))

    @property
    def flat(self) -> Array:
        """(K m, L_z)."""
        return self.points.reshape(len(self.share), -1)

    def weighted(self, theta: GLLiMParameters, weights: Array) -> GLLiMParameters:
        """Theta with mass, mean and covariance of each component by weights (K m,) of its samples."""
        n, own = theta.n_parameters, weights.reshape(self.points.shape[:2])
        mass = own.mean(axis=1)
        own = own / own.sum(axis=1, keepdims=True)
        c, gamma = theta.c.copy(), theta.Gamma.copy()
        c[:, :n] = np.einsum("km,kmi->ki", own, self.points)
        apart = self.points - c[:, None, :n]
        gamma[:, :n, :n] = np.einsum("km,kmi,kmj->kij", own, apart, apart)
        free = replace(theta.constraints, gamma="full", tied_gamma=False, tied_pi=False)
        pi = theta.pi * mass
        return replace(theta, pi=pi / pi.sum(), c=c, Gamma=gamma, constraints=free)


def _weighable(inverter: GLLiMInverter) -> Model:
    """The model of an inverter; ValueError where there is no step from its prior."""
    model = model_of(inverter)
    if not model.names or model.theta.constraints.flat:
        raise ValueError("reweight needs parameters with a prior, and the model has none")
    if model.scene_prior is not None:
        raise ValueError(
            f"the model has the prior of a scene already, from model {model.scene_prior.of}: a second step overshoots; "
            "reweight that model"
        )
    if model.calibration is not None:
        raise ValueError(
            "the model is calibrated by field values: reweight first, then calibrate (calibrate(None) undoes)"
        )
    return model


def _log_ratio(samples: Array, share: Array, drawn: Array) -> Array:
    """Log (m,) of the density of posterior draws (n, draws, L) over that of samples (m, L), shares (m,) of the prior.

    The product over parameters of smooth ratios, each by the quantiles of the samples.
    """
    total, edges = np.zeros(len(samples)), np.linspace(0.0, 1.0, BINS + 1)
    centres = 0.5 * (edges[:-1] + edges[1:])
    for values, points in zip(samples.T, drawn.reshape(-1, drawn.shape[-1]).T, strict=True):
        order, mass = np.argsort(values, kind="stable"), np.empty(len(values))
        mass[order] = np.cumsum(share[order]) - 0.5 * share[order]
        counts, _ = np.histogram(np.interp(points, values[order], mass[order]), edges)
        found = convolve1d(counts / counts.sum(), [0.25, 0.5, 0.25], mode="nearest") * len(drawn)
        ratio = (found * BINS + PSEUDO_SPECTRA) / (len(drawn) + PSEUDO_SPECTRA)
        total += np.interp(mass, centres, np.log(ratio))
    return total


def _effective(weights: Array, share: Array) -> float:
    """Effective over all samples, (sum w)^2 / sum w^2, of weights (m,) of samples of shares (m,) that sum to one."""
    return float((share @ weights) ** 2 / (share @ weights**2))


def _weigh(log_weights: Array, share: Array) -> tuple[Array, float]:
    """Weights (m,) of mean 1, and the length of the step to them: 1, or less to keep half of the samples effective."""
    weights, step = np.ones(len(share)), 0.0
    for step in np.linspace(1.0, 0.05, 20):
        weights = np.clip(np.exp(step * log_weights), LEAST, MOST)
        if _effective(weights, share) >= EFFECTIVE:
            break
    return weights / (share @ weights), float(step)


def _covered(inverter: GLLiMInverter, model: Model, samples: Sequence[_Samples], weights: Array) -> Array:
    """Share (L_t,) of values in 90 % intervals, of weighted samples and spectra that the former model simulates."""
    rng, (dim, coords) = np.random.default_rng(1), model.band_coordinates()
    spectra, values = [], []
    every = np.split(weights, np.cumsum([len(one.share) for one in samples])[:-1])
    counts = rng.multinomial(SIMULATED, model.shares)
    for theta, one, own, count in zip(model.members, samples, every, counts, strict=True):
        chance, n = one.share * own, theta.n_parameters
        picked = rng.choice(len(chance), count, p=chance / chance.sum())
        component = picked // one.points.shape[1]
        latent = theta.c[component, n:] + _normal(theta.Gamma[:, n:, n:], component, rng)
        x = np.concatenate([one.flat[picked], latent], axis=1)
        mean = np.einsum("ndl,nl->nd", theta.A[component], x) + theta.b[component]
        spectra.append(mean + _normal(theta.sigma_dense(), component, rng))
        values.append(model.transforms.inverse(one.flat[picked]))
    made, truth = model.spectra_transform.inverse(np.concatenate(spectra)), np.concatenate(values)
    cube = xr.DataArray(made, dims=("sample", dim), coords=coords, name=model.spectra_name)
    maps = inverter.invert(cube, outputs=["q05", "q95"], band_dim=dim)
    low, high = (np.stack([maps[f"{name}_{q}"].values for name in model.names], axis=1) for q in ("q05", "q95"))
    return np.asarray(((low <= truth) & (truth <= high)).mean(axis=0))


def _normal(covariances: Array, which: NDArray[np.intp], rng: np.random.Generator) -> Array:
    """A draw (n, D) of N(0, covariances[which])."""
    factors = np.linalg.cholesky(covariances)
    made, normal = np.empty((len(which), covariances.shape[1])), rng.standard_normal((len(which), covariances.shape[1]))
    for k in np.unique(which):
        made[which == k] = normal[which == k] @ factors[k].T
    return made


def _compared(told: ScenePrior, like: NDArray[np.bool_], before: LeftOut, after: LeftOut) -> ScenePrior:
    """What is told, with figures of the same spectra of the scene with windows of bands left out."""
    rows = like & before.usable & after.usable
    pair = [left.of(rows, left.names) for left in (before, after)]
    gain = pair[1].predictive - pair[0].predictive
    allowed = [np.maximum(one.expected.mean(axis=0), np.finfo(float).tiny) for one in pair]
    apart = [np.exp(np.log(one.moved.mean(axis=0) / least).mean()) for one, least in zip(pair, allowed, strict=True)]
    widths = [np.sqrt(one.variance).mean(axis=0) for one in pair]
    return replace(
        told,
        gain=(float(gain.mean()), float(gain.std() / np.sqrt(max(len(gain), 1)))),
        q=(float(np.nanmean(pair[0].ratio)), float(np.nanmean(pair[1].ratio))),
        disagreement=(float(apart[0]), float(apart[1])),
        width_ratio=tuple((widths[1] / widths[0]).tolist()),
    )


def _refusals(told: ScenePrior, like: float) -> list[str]:
    """Why a step should not be taken, in words, by the figures and the share of spectra in the domain."""
    reasons = list[str]()
    if like < LEAST_LIKE:
        reasons.append(f"{percent(1.0 - like)} of the spectra are out of the domain of the model")
    if told.effective < LEAST_EFFECTIVE:
        reasons.append(f"{percent(told.effective)} of the samples would count: the scene is far from the model's prior")
    figures = (
        ("squared errors of left-out bands", told.q, MOST_Q),
        ("squared moves of estimates without a window of bands", told.disagreement, MOST_MOVED),
    )
    for what, (first, then), most in figures:
        if not first < most:
            reasons.append(f"not calibrated for the spectra: {what} are {first:.2g} times those expected")
        elif then > WORSE * max(first, 1.0):
            reasons.append(f"{what} are {then:.2g} times those expected, {first:.2g} before")
    if told.gain[0] < -2.0 * told.gain[1]:
        reasons.append(f"left-out bands are predicted worse, by {-told.gain[0]:.2g} nats a spectrum")
    if min(told.covered) < LEAST_COVERED:
        reasons.append(f"90 % intervals hold {percent(min(told.covered))} of values simulated for the scene")
    return reasons


def _with(inverter: GLLiMInverter, model: Model) -> GLLiMInverter:
    """An inverter of the same settings with another model."""
    made = copy.copy(inverter)
    made._take(model)
    return made
