"""Intervals and corrections from a few values that come in groups, such as the plots of a few fields.

Values of a group err alike, so that groups count and not rows: values of correlation rho in a group of m are worth
m / (1 + (m - 1) rho) independent ones. Whatever is fitted is judged on groups that were left out. Intervals are those
of split conformal prediction with weights (Vovk, Gammerman and Shafer, 2005; Dunn, Wasserman and Ramdas, 2023,
Distribution-free prediction sets for two-layer hierarchical models, JASA 118) on scores of left-out groups, as far as
values reach, and go on as Student's t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ..cubes import CALIBRATION_KNOTS
from ..gllim.core import Array

Rows = NDArray[np.intp]
LEAST_VALUES, LEAST_GROUPS = 15, 4
"""Fewest values of a parameter, and fewest groups that they are of, for a calibration."""
CORRECTIONS = ("none", "bias", "slope")
"""What may be corrected, each with what is before it."""
PRIOR_CORRELATION, PRIOR_GROUPS = 0.5, 5.0
"""Correlation within groups before it is seen, and the groups that it is worth."""
SURE, GAIN = 1.5, 0.1
"""Standard errors, and share of the squared error, by which a correction must help groups left out."""
STEEPEST, LEAST_SPAN = 3.0, 1.0 / 3.0
"""A slope is between this and its inverse, and needs estimates over so much of the range of training."""
PARTS = 50
"""Parts in which groups are left out, where there are more."""
NARROWING = 10.0
"""Values that the width of the posterior is worth where those of the field say that it is too wide."""


@dataclass(frozen=True, eq=False)
class FieldValues:
    """Values of one parameter and what the posterior says of them.

    Attributes
    ----------
    truth : (n,) values in the units where errors count. transformed : (n,) the same in those of the posterior, z.
    median : (n,) of the posterior, z. groups : (n,) numbers of groups.
    score : standard normal scores, Phi^-1 of the posterior's distribution function, at z (m,) of rows (m,).
    to_truth : from z to the units of the truth. span : range of the training set in these.
    """

    truth: Array
    transformed: Array
    median: Array
    groups: Array
    score: Callable[[Array, Rows], Array]
    to_truth: Callable[[Array], Array]
    span: float


@dataclass(frozen=True, eq=False)
class Corrected:
    """What values of a field say of one parameter.

    Attributes
    ----------
    shift, slope : the corrected z is shift + slope z. kind : of ``CORRECTIONS``.
    raw_scores : (J,) scores to ask the posterior for, at the nominal ones of ``CALIBRATION_KNOTS``.
    n, n_groups : values and groups. worth : independent values that they are worth.
    signal : whether estimates are nearer to left-out groups than the mean of the other groups' values is.
    rmse : of groups left out, without and with the correction. inside : shares in 90 % intervals, the same way.
    """

    shift: float
    slope: float
    kind: str
    raw_scores: Array
    n: int
    n_groups: int
    worth: float
    signal: bool
    rmse: tuple[float, float]
    inside: tuple[float, float]


def correlation_within(values: Array, groups: Array) -> float:
    """Correlation of values (n,) of one group, by the analysis of variance (Donner, 1986), drawn to the prior one.

    Examples
    --------
    >>> groups = np.repeat(np.arange(1000), 2)
    >>> round(correlation_within(groups % 7.0, groups), 2)
    1.0
    """
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    n, n_groups, found = len(values), len(counts), PRIOR_CORRELATION
    if 1 < n_groups < n:
        means = np.bincount(which, values) / counts
        between = counts @ (means - values.mean()) ** 2 / (n_groups - 1)
        within = ((values - means[which]) ** 2).sum() / (n - n_groups)
        typical = (n - counts @ counts / n) / (n_groups - 1)
        total = between + (typical - 1.0) * within
        found = float(np.clip((between - within) / total, 0.0, 1.0)) if total > 0.0 else 0.0
    return (found * (n_groups - 1) + PRIOR_CORRELATION * PRIOR_GROUPS) / (n_groups - 1 + PRIOR_GROUPS)


def effective_weights(values: Array, groups: Array) -> Array:
    """Weights (n,) whose sum is the number of independent values that these are worth."""
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray((1.0 / (1.0 + (counts - 1) * correlation_within(values, groups)))[which])


def conformal_scores(scores: Array, groups: Array) -> Array:
    """Raw scores (J,) at ``CALIBRATION_KNOTS`` whose central intervals hold what they say, from scores (n,) of truths.

    The quantile of |z| for a level q is that of weights that sum to N / (N + 1), up to q = (N - 1) / (N + 1), and
    beyond it that of Student's t with N degrees of freedom, scaled to go on from there. N is halfway between the groups
    and the independent values that these are worth. Intervals are narrowed only as far as ``NARROWING`` values of the
    posterior's own width allow.

    Examples
    --------
    >>> scores = 2.0 * np.random.default_rng(0).standard_normal(2000)
    >>> float((conformal_scores(scores, np.arange(2000))[-1] / CALIBRATION_KNOTS[-1]).round(1))
    2.0
    """
    from scipy.stats import t as student

    weights, size = effective_weights(scores, groups), np.abs(scores)
    order, worth = np.argsort(size), 0.5 * (float(weights.sum()) + len(np.unique(groups)))
    held = np.concatenate([[0.0], np.cumsum(weights[order]) / weights.sum() * worth / (worth + 1.0)])
    ends = np.concatenate([[0.0], size[order]])
    most = (worth - 1.0) / (worth + 1.0)
    positive = CALIBRATION_KNOTS[len(CALIBRATION_KNOTS) // 2 + 1 :]
    levels = 2.0 * ndtr(positive) - 1.0
    beyond = student.ppf(0.5 + 0.5 * levels, worth) / student.ppf(0.5 + 0.5 * most, worth)
    raw = np.where(levels <= most, np.interp(levels, held, ends), np.interp(most, held, ends) * beyond)
    drawn = np.sqrt((worth * raw**2 + NARROWING * positive**2) / (worth + NARROWING))
    raw = np.where(raw < positive, drawn, raw)
    return np.concatenate([-raw[::-1], [0.0], raw])


def fit_correction(values: FieldValues, rows: Rows, kind: str) -> tuple[float, float]:
    """Shift and slope by which z of these rows (m,) is corrected: least squares, drawn to none by their own error.

    A bias b of standard error s, of groups, is shrunk by max(0, 1 - s^2 / b^2) (James and Stein, 1961), and a slope's
    distance to one alike.
    """
    if kind == "none":
        return 0.0, 1.0
    z, median = values.transformed[rows], values.median[rows]
    weights = effective_weights(z - median, values.groups[rows])
    weights = weights / weights.sum()
    _, which = np.unique(values.groups[rows], return_inverse=True)

    def shrunk(found: float, influence: Array) -> float:
        sums = np.bincount(which, weights * influence)
        variance = len(sums) / max(len(sums) - 1, 1) * float(sums @ sums)
        return found * max(0.0, 1.0 - variance / found**2) if found else 0.0

    centre, middle = float(weights @ z), float(weights @ median)
    if kind == "bias":
        bias = centre - middle
        return shrunk(bias, z - median - bias), 1.0
    away = median - middle
    spread = float(weights @ away**2)
    if not spread > 0.0:
        return centre - middle, 1.0
    found = float(weights @ (away * (z - centre))) / spread
    slope = 1.0 + shrunk(found - 1.0, (z - centre - found * away) * away / spread)
    slope = float(np.clip(slope, 1.0 / STEEPEST, STEEPEST))
    return centre - slope * middle, slope


def correct(values: FieldValues, correction: str | None = None) -> Corrected:
    """Calibrate one parameter by values of a field; ``correction`` is one of ``CORRECTIONS``, None: what pays.

    A bias, and then a slope, pay where groups left out have a squared error that is lower by ``GAIN`` and by ``SURE``
    standard errors, of groups, and intervals become no wider. A slope needs estimates over a third of the range of
    training, and such that tell more than the mean of the other groups' values: elsewhere it would be extrapolated.
    """
    groups, truth = values.groups, values.truth
    wide = float(np.ptp(values.to_truth(values.median))) >= LEAST_SPAN * values.span
    kinds = (CORRECTIONS if wide else CORRECTIONS[:2]) if correction is None else (correction,)
    left = {kind: _left_out(values, kind) for kind in dict.fromkeys(("none", *kinds))}
    errors = {kind: (estimate - truth) ** 2 for kind, (_, estimate) in left.items()}
    chosen, without_slope = kinds[0], kinds[0]
    for kind in kinds[1:]:
        narrower = _width(values, left[kind][0], kind) <= _width(values, left[chosen][0], chosen)
        chosen = kind if narrower and _pays(errors[chosen], errors[kind], groups) else chosen
        without_slope = chosen if kind == "bias" else without_slope
    means = np.empty(len(truth))
    for part in _parts(groups):
        means[part] = truth[~part].mean()
    shares = effective_weights(truth, groups)
    signal = bool(shares @ errors[chosen] < shares @ (means - truth) ** 2)
    if not signal and correction is None:
        chosen = without_slope
    scores = left[chosen][0]
    shift, slope = fit_correction(values, np.arange(len(truth)), chosen)

    def knots(of: NDArray[np.bool_]) -> Array:
        found = conformal_scores(scores[of], groups[of])
        return found if signal else np.sign(found) * np.maximum(np.abs(found), np.abs(CALIBRATION_KNOTS))

    raw, edge = knots(np.ones(len(truth), dtype=bool)), list(CALIBRATION_KNOTS).index(CALIBRATION_KNOTS[-2])
    ends = np.empty(len(truth))
    for part in _parts(groups):
        ends[part] = knots(~part)[edge]
    return Corrected(
        *(shift, slope, chosen, raw, len(truth), len(np.unique(groups))),
        *(float(effective_weights(scores, groups).sum()), signal),
        (float(np.sqrt(errors["none"].mean())), float(np.sqrt(errors[chosen].mean()))),
        (
            float((np.abs(left["none"][0]) <= CALIBRATION_KNOTS[edge]).mean()),
            float((np.abs(scores) <= ends).mean()),
        ),
    )


def promise(n_groups: int, level: float = 0.9) -> str:
    """What so many groups can promise of intervals of a level, in words."""
    most = n_groups / (n_groups + 1)
    said = (
        f"{n_groups} groups promise, whatever the errors look like, no more than {100.0 * most:.0f} % for values of a "
        "group not seen"
    )
    if level <= most:
        return said
    return f"{said}; {100.0 * level:.0f} % intervals go on as Student's t, which is an assumption"


def _left_out(values: FieldValues, kind: str) -> tuple[Array, Array]:
    """Scores and estimates (n,) of each group, corrected as the other groups say."""
    scores, estimates = np.empty((2, len(values.truth)))
    for part in _parts(values.groups):
        own = np.flatnonzero(part)
        shift, slope = fit_correction(values, np.flatnonzero(~part), kind)
        scores[own] = values.score((values.transformed[own] - shift) / slope, own)
        estimates[own] = values.to_truth(shift + slope * values.median[own])
    return scores, estimates


def _parts(groups: Array) -> Iterator[NDArray[np.bool_]]:
    """Rows (n,) of each group, of several where groups are many."""
    _, which = np.unique(groups, return_inverse=True)
    for part in range(min(PARTS, int(which.max()) + 1)):
        yield which % PARTS == part


def _width(values: FieldValues, scores: Array, kind: str) -> float:
    """Of 90 % intervals, in those of the posterior."""
    slope = fit_correction(values, np.arange(len(scores)), kind)[1]
    return slope * float(conformal_scores(scores, values.groups)[-2])


def _pays(before: Array, after: Array, groups: Array) -> bool:
    """Whether squared errors (n,) are less, by enough and in enough groups."""
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights = (1.0 / (1.0 + (counts - 1) * PRIOR_CORRELATION))[which]
    gain = before - after
    mean = float(weights @ gain / weights.sum())
    sums = np.bincount(which, weights * (gain - mean))
    error = np.sqrt(len(sums) / (len(sums) - 1) * (sums @ sums)) / weights.sum()
    return bool(mean > SURE * error and mean > GAIN * (weights @ before) / weights.sum())
