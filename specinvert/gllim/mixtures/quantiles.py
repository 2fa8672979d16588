"""Distribution functions, quantiles and shortest intervals of Gaussian mixtures in one dimension, row by row.

Tails are summed as tails and subtracted last, so levels near zero and one and the flat stretches between far modes keep
their digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri, ndtri_exp

from ..core import Array, compiled, inlined

SQRT_HALF = math.sqrt(0.5)
PEAK = 1.0 / math.sqrt(2.0 * math.pi)
"""Density of the standard normal at zero."""
SCORE_REACH = 30.0
"""Greatest standard normal score whose quantile is looked for."""
EPS = float(np.finfo(float).eps)
STEPS = 400
"""Most steps to a root; halving alone takes fewer from the whole range of floats."""
SPACING = 0.5
"""Standard deviations between the points where the search for the shortest interval starts."""
RIVAL = 1.02
"""Local minima at most this much longer than the shortest start are refined too."""


class Components(NamedTuple):
    """Mixtures as the kernels take them: weights (n, A), means and variances (n, A), or (n, A, L) and covariances."""

    weights: Array
    means: Array
    spreads: Array


class Normals(NamedTuple):
    """One mixture in one dimension: the components (A,) with weight, all weight and the smallest deviation."""

    weights: Array
    means: Array
    deviations: Array
    total: float
    smallest: float


class Bracket(NamedTuple):
    """Ends about a root, and the last two steps towards it."""

    low: float
    high: float
    before: float
    step: float


class Brackets(NamedTuple):
    """Intervals (m,) between brackets of their two ends; ``level`` of the weight lies below each."""

    level: Array
    lower: Array
    lower_end: Array
    upper: Array
    upper_end: Array


def cdf(weights: Array, means: Array, variances: Array, values: Array) -> Array:
    """Probability (n,) below ``values`` (n,); for true values, the probability integral transform.

    ``weights``, ``means`` and ``variances`` are (n, A), as of :meth:`Mixture.marginal`. NaN in rows without weight and
    where the value is NaN.
    """
    probability = np.empty(len(weights))
    _cdf_rows(components(weights, means, variances), contiguous(values), probability)
    return probability


def quantile(weights: Array, means: Array, variances: Array, level: float | Sequence[float] | Array) -> Array:
    """Quantiles (n,) of one ``level``, or (n, m) of m levels.

    Exact: the root of the distribution function, to 1e-13 of the smallest standard deviation of the row or to the last
    digits of the value. NaN in rows without weight.

    Raises
    ------
    ValueError : a level is not between 0 and 1.
    """
    levels = checked_levels(level)
    quantiles = np.empty((len(weights), len(levels)))
    _quantile_rows(components(weights, means, variances), levels, ndtri(np.minimum(levels, 1.0 - levels)), quantiles)
    return quantiles[:, 0] if np.ndim(level) == 0 else quantiles


def score_quantile(weights: Array, means: Array, variances: Array, scores: Array) -> Array:
    """Quantiles (n, m) of the levels Phi(score) of m standard normal scores, of which 1e-16 is not the least tail.

    Beyond ``SCORE_REACH`` they go on along a line, as tails of Gaussian mixtures do.
    """
    near = np.clip(scores, -SCORE_REACH, SCORE_REACH)
    quantiles = np.empty((len(weights), len(scores)))
    for side, chosen in ((1.0, near <= 0.0), (-1.0, near > 0.0)):
        if chosen.any():
            quantiles[:, chosen] = side * quantile(weights, side * means, variances, ndtr(-np.abs(near[chosen])))
    for i in np.flatnonzero(near != scores):
        ends = score_quantile(weights, means, variances, np.sign(near[i]) * np.array([SCORE_REACH - 1.0, SCORE_REACH]))
        quantiles[:, i] += (ends[:, 1] - ends[:, 0]) * abs(scores[i] - near[i])
    return quantiles


def normal_score(weights: Array, means: Array, variances: Array, values: Array) -> Array:
    """Phi^-1 (n,) of the probability below ``values`` (n,), by the logarithm of the lesser tail: never infinite.

    Arguments and NaN are as of :func:`cdf`.
    """
    scores = np.full(len(weights), np.nan)
    rows = np.flatnonzero((weights.sum(axis=1) > 0.0) & np.isfinite(values))
    z = (values[rows, None] - means[rows]) / np.sqrt(variances[rows])
    share = weights[rows] / weights[rows].sum(axis=1, keepdims=True)
    below, above = (logsumexp(log_ndtr(side * z), axis=1, b=share) for side in (1.0, -1.0))
    scores[rows] = np.where(below < above, ndtri_exp(np.minimum(below, above)), -ndtri_exp(np.minimum(below, above)))
    return scores


def highest_density(weights: Array, means: Array, variances: Array, mass: float) -> tuple[Array, Array]:
    """Lower and upper end (n,) of the shortest interval that holds ``mass``.

    With one mode this is the highest-density interval. With several, the region of highest density may be a union of
    intervals; the shortest single one is reported. Its ends have equal density, and where intervals about several modes
    are nearly as short, each is refined before they are compared. NaN in rows without weight.

    Raises
    ------
    ValueError : the mass is not between 0 and 1.
    """
    if np.ndim(mass) != 0:
        raise ValueError(f"mass must be one number, not {mass}")
    level = float(checked_levels(mass, "mass")[0])
    reach = max(6.0, -float(ndtri(1e-3 * (1.0 - level))))
    n_offsets = 2 * math.ceil(reach / SPACING) + 1
    offsets = SPACING * (np.arange(n_offsets) - n_offsets // 2)
    half = -float(ndtri(0.5 * (1.0 - level)))
    lower, upper = np.empty(len(weights)), np.empty(len(weights))
    _shortest_rows(components(weights, means, variances), level, half, offsets, lower, upper)
    return lower, upper


def contiguous(array: Array) -> Array:
    """The array as the kernels are compiled for: float64, in C order, writeable."""
    return np.require(array, np.float64, ("C", "W"))


def components(weights: Array, means: Array, spreads: Array) -> Components:
    """Weights, means, and variances or covariances as the kernels take them."""
    return Components(contiguous(weights), contiguous(means), contiguous(spreads))


def checked_levels(level: float | Sequence[float] | Array, name: str = "level") -> Array:
    """The levels (m,), all between 0 and 1."""
    levels = np.atleast_1d(np.asarray(level, dtype=np.float64))
    if levels.ndim != 1:
        raise ValueError(f"{name} must be a number or a sequence of numbers, not of shape {levels.shape}")
    for value in levels:
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} must be between 0 and 1, not {value}")
    return levels


@compiled
def gather_row(mixtures: Components, n: int, room: Array) -> Normals:
    """The components with weight of row n, in ``room`` (3, A)."""
    count, total, smallest = 0, 0.0, np.inf
    for a in range(mixtures.weights.shape[1]):
        if mixtures.weights[n, a] > 0.0:
            room[0, count], room[1, count] = mixtures.weights[n, a], mixtures.means[n, a]
            room[2, count] = np.sqrt(mixtures.spreads[n, a])
            total += room[0, count]
            smallest = min(smallest, room[2, count])
            count += 1
    return Normals(room[0, :count], room[1, :count], room[2, :count], total, smallest)


@compiled
def _excess(x: float, target: float, row: Normals) -> tuple[float, float]:
    """Weight below x less ``target``, and density at x."""
    whole, tails, density = -target, 0.0, 0.0
    for a in range(len(row.weights)):
        weight, deviation = row.weights[a], row.deviations[a]
        z = (x - row.means[a]) / deviation
        tail = 0.5 * weight * math.erfc(abs(z) * SQRT_HALF)
        if z > 0.0:
            whole += weight
            tails -= tail
        else:
            tails += tail
        density += weight / deviation * math.exp(-0.5 * z * z)
    return whole + tails, PEAK * density


@inlined
def safe_step(x: float, value: float, slope: float, bracket: Bracket) -> tuple[float, Bracket]:
    """Newton's step towards the root of a rising function, in a bracket that shrinks.

    Halving where the step leaves the bracket or is more than half the one before the last.
    """
    low, high, before, step = bracket
    if value < 0.0:
        low = x
    else:
        high = x
    shift = value / slope if slope > 0.0 else np.inf
    if low < x - shift < high and 2.0 * abs(shift) <= abs(before):
        return x - shift, Bracket(low, high, step, shift)
    half = 0.5 * (high - low)
    return low + half, Bracket(low, high, step, half)


@inlined
def is_root(x: float, bracket: Bracket, tolerance: float) -> bool:
    """Whether x is right to the tolerance or to its last digits."""
    return min(abs(bracket.step), bracket.high - bracket.low) <= tolerance + 2.0 * EPS * abs(x)


@compiled
def _root(target: float, row: Normals, low: float, high: float, start: float) -> tuple[float, float]:
    """Where the weight below is ``target``, between ``low`` and ``high``, and the density there or one step off."""
    x, density = start, 0.0
    bracket = Bracket(low, high, high - low, high - low)
    for _ in range(STEPS):
        excess, density = _excess(x, target, row)
        if excess == 0.0:
            break
        x, bracket = safe_step(x, excess, density, bracket)
        if is_root(x, bracket, 1e-13 * row.smallest):
            break
    return x, density


@compiled
def _cdf_rows(mixtures: Components, values: Array, probability: Array) -> None:
    room = np.empty((3, mixtures.weights.shape[1]))
    for n in range(len(values)):
        row = gather_row(mixtures, n, room)
        if len(row.weights) == 0 or np.isnan(values[n]):
            probability[n] = np.nan
            continue
        below, _ = _excess(values[n], 0.0, row)
        probability[n] = min(max(below / row.total, 0.0), 1.0)


@compiled
def _quantile_rows(mixtures: Components, levels: Array, normal: Array, quantiles: Array) -> None:
    """``normal`` (m,) are the standard normal quantiles of the levels, or of their complements above one half."""
    room, mirrored = np.empty((3, mixtures.weights.shape[1])), np.empty(mixtures.weights.shape[1])
    for n in range(len(quantiles)):
        row = gather_row(mixtures, n, room)
        count = len(row.weights)
        if count == 0:
            quantiles[n] = np.nan
            continue
        for a in range(count):
            mirrored[a] = -row.means[a]
        for i in range(len(levels)):
            upper = levels[i] > 0.5
            means = mirrored[:count] if upper else row.means
            low, high, start = np.inf, -np.inf, 0.0
            for a in range(count):
                own = means[a] + normal[i] * row.deviations[a]
                low, high = min(low, own), max(high, own)
                start += row.weights[a] / row.total * own
            x = low
            if low < high:
                target = row.total * (1.0 - levels[i] if upper else levels[i])
                turned = Normals(row.weights, means, row.deviations, row.total, row.smallest)
                x, _ = _root(target, turned, low, high, min(max(start, low), high))
            quantiles[n, i] = -x if upper else x


@compiled
def _starts(points: Array, below: Array, mass: float, starts: Brackets) -> tuple[int, int]:
    """Intervals of the ``mass`` with one end on the sorted ``points``, where the weight ``below`` is known.

    Returns how many have their lower, and how many their upper end on a point; either are sorted.
    """
    level, lower, lower_end, upper, upper_end = starts
    count, size = 0, len(points)
    k = 0
    for i in range(size):
        while k < size and below[k] <= below[i] + mass:
            k += 1
        if k == size:
            break
        level[count], lower[count], lower_end[count] = below[i], points[i], points[i]
        upper[count], upper_end[count] = points[k - 1], points[k]
        count += 1
    first = count
    i = 0
    for k in range(size):
        if below[k] - mass <= below[0]:
            continue
        while below[i] < below[k] - mass:
            i += 1
        level[count], upper[count], upper_end[count] = below[k] - mass, points[k], points[k]
        lower[count], lower_end[count] = points[i - 1], points[i]
        count += 1
    return first, count - first


@compiled
def _merge(level: Array, first: int, second: int, order: np.ndarray[Any, Any]) -> None:
    """Fill ``order`` with the order of the levels, of which ``first`` and then ``second`` are sorted."""
    i, j = 0, first
    for at in range(first + second):
        if j == first + second or (i < first and level[i] <= level[j]):
            order[at] = i
            i += 1
        else:
            order[at] = j
            j += 1


@compiled
def _interval(
    level: float, mass: float, ends: tuple[float, float, float, float], row: Normals
) -> tuple[float, float, float]:
    """The interval of the ``mass`` above ``level``; the log of the density at its upper over that at its lower end.

    ``ends`` bracket its lower and its upper end.
    """
    lower, upper, slope = 0.0, 0.0, 0.0
    for side in range(2):
        low, high = (ends[2], ends[3]) if side == 1 else (ends[0], ends[1])
        target = level + mass if side == 1 else level
        upper, density = _root(target, row, low, high, 0.5 * (low + high))
        if side == 0:
            lower = upper
        slope = math.log(max(density, 1e-300)) - slope
    return lower, upper, slope


@compiled
def _refine(
    levels: tuple[float, float], start: float, ends: tuple[float, float, float, float], mass: float, row: Normals
) -> tuple[float, float]:
    """The locally shortest interval, between two levels, down from the one at ``start``.

    ``ends`` bracket its lower and its upper end. The length falls with the level while the upper end is the denser one.
    """
    left, right = levels
    low, low_end, high, high_end = ends
    best_low, best_high, best_level = low, high_end, start
    slope_left = slope_right = np.nan
    level = start
    side = 0
    for iteration in range(100):
        a, b, slope = _interval(level, mass, (low, low_end, high, high_end), row)
        worse = iteration > 0 and b - a > (1.0 + 1e-9) * (best_high - best_low)
        rises = level < best_level if worse else slope > 0.0
        if not worse:
            best_low, best_high, best_level = a, b, level
        if rises:
            left, low, high = level, a, b
            slope_left = np.nan if worse else slope
            if side == 1:
                slope_right *= 0.5
            side = 1
        else:
            right, low_end, high_end = level, a, b
            slope_right = np.nan if worse else slope
            if side == -1:
                slope_left *= 0.5
            side = -1
        if abs(slope) < 1e-12 and not worse:
            break
        if right - left <= 2.0 * EPS * right:
            break
        level = 0.5 * (left + right)
        if slope_left > 0.0 and slope_right < 0.0 and iteration % 4 != 3:
            level = (left * slope_right - right * slope_left) / (slope_right - slope_left)
            level = min(max(level, left), right)
    return best_low, best_high


@compiled
def _points(offsets: Array, least: float, row: Normals) -> tuple[Array, Array]:
    """Sorted points about the components of more weight than ``least``, and the weight below each."""
    size = 0
    points = np.empty(len(row.weights) * len(offsets))
    for a in range(len(row.weights)):
        if row.weights[a] > least:
            for i in range(len(offsets)):
                points[size] = row.means[a] + offsets[i] * row.deviations[a]
                size += 1
    points = np.sort(points[:size])
    below = np.empty(size)
    for i in range(size):
        below[i], _ = _excess(points[i], 0.0, row)
        if i > 0:
            below[i] = max(below[i], below[i - 1])
    return points, below


@compiled
def _shortest(mass: float, offsets: Array, least: float, row: Normals) -> tuple[float, float]:
    """The shortest interval that holds ``mass`` of the weight of a row."""
    points, below = _points(offsets, least, row)
    room = 2 * len(points)
    starts = Brackets(np.empty(room), np.empty(room), np.empty(room), np.empty(room), np.empty(room))
    first, second = _starts(points, below, mass, starts)
    level, lower, lower_end, upper, upper_end = starts
    count = first + second
    order = np.empty(count, dtype=np.intp)
    _merge(level, first, second, order)
    shortest = np.inf
    for j in range(count):
        shortest = min(shortest, upper_end[j] - lower[j])
    length = np.full(count, np.inf)
    least_length = np.inf
    for i in range(count):
        j = order[i]
        if upper[j] - lower_end[j] <= shortest:
            low, high, _ = _interval(level[j], mass, (lower[j], lower_end[j], upper[j], upper_end[j]), row)
            length[i] = high - low
            least_length = min(least_length, length[i])
    best_low, best_high = np.nan, np.inf
    for i in range(count):
        before, after = max(i - 1, 0), min(i + 1, count - 1)
        if length[i] <= RIVAL * least_length and length[before] >= length[i] and length[after] >= length[i]:
            p, q = order[before], order[after]
            ends = (lower[p], lower_end[q], upper[p], upper_end[q])
            low, high = _refine((level[p], level[q]), level[order[i]], ends, mass, row)
            if np.isnan(best_low) or high - low < best_high - best_low:
                best_low, best_high = low, high
    return best_low, best_high


@compiled
def _shortest_rows(mixtures: Components, mass: float, half: float, offsets: Array, lower: Array, upper: Array) -> None:
    """``half`` is the half length for the standard normal."""
    room = np.empty((3, mixtures.weights.shape[1]))
    least = min(1e-10, 1e-3 * (1.0 - mass) / mixtures.weights.shape[1])
    for n in range(len(lower)):
        row = gather_row(mixtures, n, room)
        if len(row.weights) == 0:
            lower[n] = upper[n] = np.nan
        elif len(row.weights) == 1:
            mean, deviation = row.means[0], row.deviations[0]
            lower[n], upper[n] = mean - half * deviation, mean + half * deviation
        else:
            lower[n], upper[n] = _shortest(mass * row.total, offsets, least * row.total, row)
