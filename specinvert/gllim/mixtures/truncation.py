"""Gaussian mixtures given that one dimension lies in an interval, row by row.

The truncated dimension is integrated by Gauss-Legendre quadrature from the point of the interval nearest to the mean,
relative to the density there: sums of positive terms that neither cancel nor underflow, however far in the tail. The
other dimensions follow by regression on it.

Truncated Gaussian mixtures written out as mixtures again, for what transforms make of them.

Given the truncated dimension, every component is Gaussian in the others. Put at the nodes of a rule over its interval,
with the weights of the rule, a component is a mixture whose moments, of any smooth function, are those of the truncated
one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ..core import Array, compiled, inlined
from .mixture import Mixture
from .quantiles import EPS, PEAK, SQRT_HALF, STEPS, checked_levels, components, contiguous

REACH = 38.0
"""Log-density below the greatest in the interval where the integrals stop: 3e-17 of it."""
RULE = np.stack(np.polynomial.legendre.leggauss(56))
"""Nodes and weights (2, Q): enough for the product of two normal densities over all their reach to the last digits."""
STEP_REACH = 8.5
"""Standard deviations on either side of a normal distribution function's middle, beyond which it is 0 or 1."""
LOG_PEAK = math.log(PEAK)


@dataclass(frozen=True)
class Truncated:
    """Mixtures given that one dimension lies in an interval.

    Attributes
    ----------
    weights : (n, A), given the interval. log_probability : (n,), of the interval. mean : (n, L). covariance :
        (n, L, L). NaN, weights 0, in rows without weight.
    """

    weights: Array
    log_probability: Array
    mean: Array
    covariance: Array


def truncated(mixture: Mixture, index: int, low: float | Array, high: float | Array) -> Truncated:
    """Moments and weights given that dimension ``index`` lies between ``low`` and ``high``, numbers or (n,).

    Either may be infinite. Exact to 1e-13 in the tails too: an interval that no component reaches is that of the
    components whose density falls least on the way there. Where the ends are equal, the dimension has that value, and
    the log-probability is -inf. Rows are without weight, too, where an end is NaN or lies beyond 1e150 standard
    deviations of every component.

    Raises
    ------
    ValueError : a lower end lies above its upper end, or an end at the infinity on the wrong side, or a
        dimension is not of the mixture.
    """
    n, size = len(mixture), mixture.n_dimensions
    weights, log_probability = np.empty(mixture.weights.shape), np.empty(n)
    mean, covariance = np.empty((n, size)), np.empty((n, size, size))
    arrays = mixture_arrays(mixture, index)
    _moment_rows(*arrays, index, *interval_ends(n, low, high), RULE, weights, log_probability, mean, covariance)
    return Truncated(weights, log_probability, mean, covariance)


def truncated_quantile(
    mixture: Mixture,
    index: int,
    low: float | Array,
    high: float | Array,
    level: float | Sequence[float] | Array,
    of: int | None = None,
) -> Array:
    """Quantiles (n,), or (n, m) of m levels, of dimension ``of`` given that ``index`` lies in the interval.

    ``of`` is ``index`` itself if not given. The root of the distribution function, which is right to 1e-13: that of
    the truncated dimension is one integral, that of another one the integral of its normal distribution function given
    the truncated one, cut where that rises. Ends and rows without weight are as in :func:`truncated`.

    Raises
    ------
    ValueError : a level is not between 0 and 1, or as in :func:`truncated`.
    """
    levels = checked_levels(level)
    found = np.empty((len(mixture), len(levels)))
    other = index if of is None else of
    arrays = mixture_arrays(mixture, index, other)
    ends = interval_ends(len(mixture), low, high)
    _quantile_rows(*arrays, index, other, *ends, levels, ndtri(levels), RULE, found)
    return found[:, 0] if np.ndim(level) == 0 else found


def mixture_arrays(mixture: Mixture, *indices: int) -> tuple[Array, Array, Array]:
    """Weights, means and covariances for compiled functions; ValueError for dimensions that the mixture has not."""
    for index in indices:
        if not 0 <= index < mixture.n_dimensions:
            raise ValueError(f"the mixture has dimensions 0 to {mixture.n_dimensions - 1}, not {index}")
    return components(mixture.weights, mixture.means, mixture.covariances)


def interval_ends(n: int, low: float | Array, high: float | Array) -> tuple[Array, Array]:
    """Both ends (n,); ValueError where no value lies between them."""
    lower, upper = (np.broadcast_to(np.asarray(end, dtype=np.float64), (n,)) for end in (low, high))
    wrong = (lower > upper) | (lower == np.inf) | (upper == -np.inf)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"no value lies between {lower[row]} and {upper[row]} (row {row})")
    return contiguous(lower), contiguous(upper)


@compiled
def _support(mean: float, deviation: float, low: float, high: float) -> tuple[float, float, float]:
    """Standardised point of the interval nearest to the mean, and the reach of the density below and above it."""
    z = 0.0
    if low > mean:
        z = (low - mean) / deviation
    elif high < mean:
        z = (high - mean) / deviation
    reach = 2.0 * REACH / (abs(z) + math.sqrt(z * z + 2.0 * REACH))
    if z > 0.0:
        return z, 0.0, min(reach, (high - low) / deviation)
    if z < 0.0:
        return z, max(-reach, (low - high) / deviation), 0.0
    return z, max(-reach, (low - mean) / deviation), min(reach, (high - mean) / deviation)


@inlined
def safe_step(
    x: float, excess: float, density: float, low: float, high: float, before: float, step: float
) -> tuple[float, float, float, float, float]:
    """Newton's step towards the root of a rising function, in a bracket that shrinks.

    Halving where the step leaves the bracket or is more than half the one before the last. Takes and returns the point,
    both ends and the last two steps.
    """
    if excess < 0.0:
        low = x
    else:
        high = x
    shift = excess / density if density > 0.0 else np.inf
    if low < x - shift < high and 2.0 * abs(shift) <= abs(before):
        return x - shift, low, high, step, shift
    half = 0.5 * (high - low)
    return low + half, low, high, step, half


@inlined
def nearest(z: float, mean: float, low: float, high: float) -> float:
    """Point of the interval nearest to the mean, which is ``z`` when standardised."""
    if z == 0.0:
        return mean
    return low if z > 0.0 else high


@compiled
def _integral(z: float, start: float, end: float, rule: Array) -> float:
    """Integral from ``start`` to ``end`` of the standard normal density at z + t over that at z."""
    half, middle = 0.5 * (end - start), 0.5 * (end + start)
    total = 0.0
    for q in range(rule.shape[1]):
        t = middle + half * rule[0, q]
        total += rule[1, q] * math.exp(-t * (z + 0.5 * t))
    return half * total


@compiled
def interval_parts(
    weights: Array,
    means: Array,
    covariances: Array,
    index: int,
    low: float,
    high: float,
    rule: Array,
    share: Array,
    part: Array,
) -> float:
    """Weights ``share`` (A,) given the interval, and its ``part`` (A, 4) of each component; its log-probability.

    A part is the nearest point z, the reach below and above it, and the integral over it relative to the density at z.
    An interval of no length counts by the density, and NaN is returned where no component has any.
    """
    total, top = 0.0, -np.inf
    for a in range(len(weights)):
        share[a] = -np.inf
        if weights[a] > 0.0:
            total += weights[a]
            deviation = math.sqrt(covariances[a, index, index])
            z, start, end = _support(means[a, index], deviation, low, high)
            whole = _integral(z, start, end, rule) if low < high else 1.0 / deviation
            part[a, 0], part[a, 1], part[a, 2], part[a, 3] = z, start, end, whole
            if abs(z) < 1e150:
                share[a] = math.log(weights[a]) - 0.5 * z * z + math.log(whole)
                top = max(top, share[a])
    if top == -np.inf or np.isnan(low) or np.isnan(high):
        share[:] = 0.0
        return math.nan
    inside = 0.0
    for a in range(len(weights)):
        share[a] = math.exp(share[a] - top)
        inside += share[a]
    for a in range(len(weights)):
        share[a] /= inside
    if low == high:
        return -np.inf
    if low == -np.inf and high == np.inf:
        return 0.0
    return min(top + math.log(inside / total) + LOG_PEAK, 0.0)


@compiled
def _centre(part: Array, deviation: float, low: float, high: float, mean: float, rule: Array) -> tuple[float, float]:
    """Mean and variance of one truncated component."""
    if low == high:
        return low, 0.0
    if low == -np.inf and high == np.inf:
        return mean, deviation * deviation
    z, start, end, whole = part
    half, middle = 0.5 * (end - start), 0.5 * (end + start)
    average = 0.0
    for q in range(rule.shape[1]):
        t = middle + half * rule[0, q]
        average += t * rule[1, q] * math.exp(-t * (z + 0.5 * t))
    average *= half / whole
    variance = 0.0
    for q in range(rule.shape[1]):
        t = middle + half * rule[0, q]
        variance += (t - average) ** 2 * rule[1, q] * math.exp(-t * (z + 0.5 * t))
    variance *= half / whole
    return min(max(nearest(z, mean, low, high) + deviation * average, low), high), variance * deviation * deviation


@compiled
def _moment_rows(
    weights: Array,
    means: Array,
    covariances: Array,
    index: int,
    low: Array,
    high: Array,
    rule: Array,
    share: Array,
    log_probability: Array,
    mean: Array,
    covariance: Array,
) -> None:
    n_components, size = means.shape[1:]
    part, centre = np.empty((n_components, 4)), np.empty((n_components, size))
    slope, within = np.empty((n_components, size)), np.empty(n_components)
    for n in range(len(weights)):
        spread, lo, hi = covariances[n], low[n], high[n]
        log_probability[n] = interval_parts(weights[n], means[n], spread, index, lo, hi, rule, share[n], part)
        mean[n], covariance[n] = 0.0, 0.0
        if np.isnan(log_probability[n]):
            mean[n], covariance[n] = np.nan, np.nan
            continue
        for a in range(n_components):
            if share[n, a] > 0.0:
                variance = spread[a, index, index]
                average, within[a] = _centre(part[a], math.sqrt(variance), lo, hi, means[n, a, index], rule)
                for i in range(size):
                    slope[a, i] = spread[a, i, index] / variance
                    centre[a, i] = means[n, a, i] + slope[a, i] * (average - means[n, a, index])
                slope[a, index] = 1.0
                centre[a, index] = average
                for i in range(size):
                    mean[n, i] += share[n, a] * centre[a, i]
        for a in range(n_components):
            if share[n, a] > 0.0:
                variance = spread[a, index, index]
                for i in range(size):
                    for j in range(i + 1):
                        value = slope[a, i] * slope[a, j] * within[a]
                        if i != index and j != index:
                            value += spread[a, i, j] - slope[a, i] * slope[a, j] * variance
                        value += (centre[a, i] - mean[n, i]) * (centre[a, j] - mean[n, j])
                        covariance[n, i, j] += share[n, a] * value
        for i in range(size):
            for j in range(i):
                covariance[n, j, i] = covariance[n, i, j]


@compiled
def _below(t: float, part: Array, rule: Array) -> tuple[float, float]:
    """Probability that the truncated standard variable lies less than t above z, and its density there."""
    z, start, end, whole = part
    if t <= start:
        return 0.0, 0.0
    if t >= end:
        return 1.0, 0.0
    return _integral(z, start, t, rule) / whole, math.exp(-t * (z + 0.5 * t)) / whole


@compiled
def _other_below(gap: float, slope: float, deviation: float, part: Array, rule: Array) -> tuple[float, float]:
    """Probability that slope t + deviation e lies below ``gap``, and its density there.

    e is standard normal and t the truncated standard variable less z. The distribution function of e falls from 1 to 0
    with t, or rises, within a stretch that is integrated by itself.
    """
    z, start, end, whole = part
    first, last = start, end
    if end <= start:
        e = gap / deviation
        return 0.5 * math.erfc(-e * SQRT_HALF), PEAK / deviation * math.exp(-0.5 * e * e)
    if abs(slope) * (end - start) > deviation:
        middle, stretch = gap / slope, STEP_REACH * deviation / abs(slope)
        first, last = min(max(middle - stretch, start), end), min(max(middle + stretch, start), end)
    below, density = 0.0, 0.0
    if slope > 0.0 and first > start:
        below += _integral(z, start, first, rule)
    if slope < 0.0 and last < end:
        below += _integral(z, last, end, rule)
    if last > first:
        half, centre = 0.5 * (last - first), 0.5 * (last + first)
        for q in range(rule.shape[1]):
            t = centre + half * rule[0, q]
            e = (gap - slope * t) / deviation
            weight = half * rule[1, q] * math.exp(-t * (z + 0.5 * t))
            below += 0.5 * weight * math.erfc(-e * SQRT_HALF)
            density += weight * math.exp(-0.5 * e * e) * PEAK / deviation
    return below / whole, density / whole


@compiled
def _excess(
    x: float,
    level: float,
    direct: bool,
    share: Array,
    origin: Array,
    scale: Array,
    rest: Array,
    part: Array,
    rule: Array,
) -> tuple[float, float]:
    """Probability below x less ``level``, and density, from components origin + scale t + rest e."""
    total, density = -level, 0.0
    for a in range(len(share)):
        if share[a] > 0.0:
            if direct:
                below, slope = _below((x - origin[a]) / scale[a], part[a], rule)
                slope /= scale[a]
            else:
                below, slope = _other_below(x - origin[a], scale[a], rest[a], part[a], rule)
            total += share[a] * below
            density += share[a] * slope
    return total, density


@compiled
def _quantile_rows(
    weights: Array,
    means: Array,
    covariances: Array,
    index: int,
    other: int,
    low: Array,
    high: Array,
    levels: Array,
    normal: Array,
    rule: Array,
    found: Array,
) -> None:
    n_components = weights.shape[1]
    share, part = np.empty(n_components), np.empty((n_components, 4))
    origin, scale, rest = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    direct = index == other
    for n in range(len(weights)):
        lo, hi = low[n], high[n]
        log_probability = interval_parts(weights[n], means[n], covariances[n], index, lo, hi, rule, share, part)
        if np.isnan(log_probability):
            found[n] = np.nan
            continue
        for a in range(n_components):
            variance = covariances[n, a, index, index]
            deviation, z = math.sqrt(variance), part[a, 0]
            if share[a] > 0.0 and direct:
                origin[a], scale[a], rest[a] = nearest(z, means[n, a, index], lo, hi), deviation, 0.0
            elif share[a] > 0.0:
                slope = covariances[n, a, other, index] / variance
                own = covariances[n, a, other, other]
                origin[a], scale[a] = means[n, a, other] + slope * deviation * z, slope * deviation
                rest[a] = math.sqrt(max(own - slope * covariances[n, a, other, index], EPS * own))
        for i in range(len(levels)):
            below, above, smallest = np.inf, -np.inf, np.inf
            for a in range(n_components):
                if share[a] > 0.0:
                    ends = scale[a] * part[a, 1], scale[a] * part[a, 2]
                    shift = origin[a] + normal[i] * rest[a]
                    below, above = min(below, shift + min(ends)), max(above, shift + max(ends))
                    width = rest[a] if not direct else scale[a] * (part[a, 2] - part[a, 1])
                    smallest = min(smallest, width)
            if direct and lo == hi:
                found[n, i] = lo
                continue
            x, before, step = 0.5 * (below + above), above - below, above - below
            for _ in range(STEPS):
                excess, density = _excess(x, levels[i], direct, share, origin, scale, rest, part, rule)
                if excess == 0.0:
                    break
                x, below, above, before, step = safe_step(x, excess, density, below, above, before, step)
                if min(abs(step), above - below) <= 1e-14 * smallest + 2.0 * EPS * abs(x):
                    break
            found[n, i] = min(max(x, lo), hi) if direct else x


SMALLEST = 1e-13
"""Share of a component below which a node is left out."""
NARROW = 1e-14
"""Variance of the truncated dimension at a node, over that of its component: none, but for divisions."""
NODES = 4096
"""Components times nodes that are written out at once."""


def written_out(mixture: Mixture, index: int, low: float | Array, high: float | Array) -> Iterator[Mixture]:
    """Mixtures given that ``index`` lies between ``low`` and ``high``, in blocks of consecutive rows.

    Each of the A components has Q nodes: mixtures of A x Q, weights zero where a node counts for nothing and in rows
    that are without weight in :func:`truncated`, which this takes its ends from and raises the errors of.
    """
    low, high = interval_ends(len(mixture), low, high)
    step = max(1, NODES // (mixture.weights.shape[1] * RULE.shape[1]))
    for start in range(0, max(len(mixture), 1), step):
        where = slice(start, start + step)
        block = mixture.select(where)
        (n, room), size, count = block.weights.shape, block.n_dimensions, RULE.shape[1]
        weights, means = np.zeros((n, room, count)), np.zeros((n, room, count, size))
        within = np.zeros((n, room, size, size))
        _node_rows(*mixture_arrays(block, index), index, low[where], high[where], RULE, weights, means, within)
        covariances = np.repeat(within[:, :, None], count, axis=2)
        yield Mixture(weights.reshape(n, -1), means.reshape(n, -1, size), covariances.reshape(n, -1, size, size))


@compiled
def _node_rows(
    weights: Array,
    means: Array,
    covariances: Array,
    index: int,
    low: Array,
    high: Array,
    rule: Array,
    shares: Array,
    nodes: Array,
    within: Array,
) -> None:
    n_components, size = means.shape[1:]
    share, part = np.empty(n_components), np.empty((n_components, 4))
    for n in range(len(weights)):
        spread, lo, hi = covariances[n], low[n], high[n]
        if np.isnan(interval_parts(weights[n], means[n], spread, index, lo, hi, rule, share, part)):
            continue
        for a in range(n_components):
            if share[a] > 0.0:
                variance = spread[a, index, index]
                deviation = math.sqrt(variance)
                z, start, end, whole = part[a]
                origin = nearest(z, means[n, a, index], lo, hi)
                half, middle = 0.5 * (end - start), 0.5 * (end + start)
                for q in range(rule.shape[1]):
                    t, weight = middle + half * rule[0, q], 0.5 * rule[1, q]
                    if end > start:
                        weight = half * rule[1, q] * math.exp(-t * (z + 0.5 * t)) / whole
                    if weight > SMALLEST:
                        shares[n, a, q] = share[a] * weight
                    value = min(max(origin + deviation * t, lo), hi)
                    for i in range(size):
                        shift = spread[a, i, index] / variance * (value - means[n, a, index])
                        nodes[n, a, q, i] = means[n, a, i] + shift
                    nodes[n, a, q, index] = value
            for i in range(size):
                for j in range(size):
                    if i != index and j != index:
                        within[n, a, i, j] = (
                            spread[a, i, j] - spread[a, i, index] * spread[a, index, j] / spread[a, index, index]
                        )
                within[n, a, i, i] = max(within[n, a, i, i], NARROW * spread[a, i, i])
        total = shares[n].sum()
        shares[n] /= total
