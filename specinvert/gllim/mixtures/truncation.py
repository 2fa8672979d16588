"""Gaussian mixtures given that one dimension lies in an interval, row by row.

The truncated dimension is integrated by Gauss-Legendre quadrature from the point of the interval nearest to the mean,
relative to the density there: sums of positive terms that neither cancel nor underflow, however far in the tail. The
other dimensions follow by regression on it. Put at the nodes of the rule, with its weights, a component is a mixture
again, whose moments, of any smooth function such as a transform, are those of the truncated one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ..core import Array, compiled, inlined
from .mixture import Mixture
from .quantiles import (
    EPS,
    PEAK,
    SQRT_HALF,
    STEPS,
    Bracket,
    Components,
    checked_levels,
    components,
    contiguous,
    is_root,
    safe_step,
)

REACH = 38.0
"""Log-density below the greatest in the interval where the integrals stop: 3e-17 of it."""
RULE = np.stack(np.polynomial.legendre.leggauss(56))
"""Nodes and weights (2, Q): enough for the product of two normal densities over all their reach to the last digits."""
STEP_REACH = 8.5
"""Standard deviations on either side of a normal distribution function's middle, beyond which it is 0 or 1."""
LOG_PEAK = math.log(PEAK)
SMALLEST = 1e-13
"""Share of a component below which a node is left out."""
NARROW = 1e-14
"""Variance of the truncated dimension at a node, over that of its component: none, but for divisions."""
NODES = 4096
"""Components times nodes that are written out at once."""


class Truncated(NamedTuple):
    """Mixtures given that one dimension lies in an interval; NaN, weights 0, in rows without weight.

    Attributes
    ----------
    weights : (n, A), given the interval.
    log_probability : (n,), of the interval.
    mean : (n, L). covariance : (n, L, L).
    """

    weights: Array
    log_probability: Array
    mean: Array
    covariance: Array


class Parts(NamedTuple):
    """What an interval leaves of the components (A,) of one mixture.

    Attributes
    ----------
    share : weights given the interval.
    deviation : standard deviations before. origin : the point of the interval nearest to the mean.
    z : that point standardised. start, end : reach of the density below and above it, standardised.
    whole : integral over the reach, relative to the density at z.
    """

    share: Array
    deviation: Array
    origin: Array
    z: Array
    start: Array
    end: Array
    whole: Array


class Sums(NamedTuple):
    """A dimension of the components (A,) as origin + scale t + rest e.

    t is the truncated standard variable less z, e standard normal.
    """

    origin: Array
    scale: Array
    rest: Array


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
    shapes = mixture.weights.shape, (n,), (n, size), (n, size, size)
    given = Truncated(*(np.empty(shape) for shape in shapes))
    _moment_rows(mixture_arrays(mixture, index), index, interval_ends(n, low, high), given)
    return given


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
    quantiles = np.empty((len(mixture), len(levels)))
    indices = index, index if of is None else of
    ends = interval_ends(len(mixture), low, high)
    _quantile_rows(mixture_arrays(mixture, *indices), indices, ends, levels, ndtri(levels), quantiles)
    return quantiles[:, 0] if np.ndim(level) == 0 else quantiles


def written_out(mixture: Mixture, index: int, low: float | Array, high: float | Array) -> Iterator[Mixture]:
    """Mixtures given that ``index`` lies between ``low`` and ``high``, in blocks of consecutive rows.

    Each of the A components has Q nodes: mixtures of A x Q, weights zero where a node counts for nothing and in rows
    that are without weight in :func:`truncated`, which this takes its ends from and raises the errors of.
    """
    low, high = interval_ends(len(mixture), low, high)
    count = RULE.shape[1]
    step = max(1, NODES // (mixture.weights.shape[1] * count))
    for start in range(0, max(len(mixture), 1), step):
        where = slice(start, start + step)
        block = mixture.select(where)
        (n, room), size = block.weights.shape, block.n_dimensions
        shapes = (n, room, count), (n, room, count, size), (n, room, size, size)
        weights, means, within = nodes = Components(*(np.zeros(shape) for shape in shapes))
        _node_rows(mixture_arrays(block, index), index, (low[where], high[where]), nodes)
        covariances = np.repeat(within[:, :, None], count, axis=2)
        yield Mixture(weights.reshape(n, -1), means.reshape(n, -1, size), covariances.reshape(n, -1, size, size))


def mixture_arrays(mixture: Mixture, *indices: int) -> Components:
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
def _support(mean: float, deviation: float, low: float, high: float) -> tuple[float, float, float, float]:
    """Point of the interval nearest to the mean, the same standardised, reach of the density below and above it."""
    z = 0.0
    if low > mean:
        z = (low - mean) / deviation
    elif high < mean:
        z = (high - mean) / deviation
    reach = 2.0 * REACH / (abs(z) + math.sqrt(z * z + 2.0 * REACH))
    if z > 0.0:
        return low, z, 0.0, min(reach, (high - low) / deviation)
    if z < 0.0:
        return high, z, max(-reach, (low - high) / deviation), 0.0
    return mean, z, max(-reach, (low - mean) / deviation), min(reach, (high - mean) / deviation)


@compiled
def _integral(z: float, start: float, end: float) -> float:
    """Integral from ``start`` to ``end`` of the standard normal density at z + t over that at z."""
    half, middle = 0.5 * (end - start), 0.5 * (end + start)
    total = 0.0
    for q in range(RULE.shape[1]):
        t = middle + half * RULE[0, q]
        total += RULE[1, q] * math.exp(-t * (z + 0.5 * t))
    return half * total


@compiled
def _room(n_components: int) -> Parts:
    room = np.empty((7, n_components))
    return Parts(room[0], room[1], room[2], room[3], room[4], room[5], room[6])


@compiled
def _cut(mixtures: Components, n: int, index: int, low: float, high: float, parts: Parts) -> float:
    """Fill the ``parts`` of row n; the log-probability of the interval.

    An interval of no length counts by the density, and NaN is returned where no component has any.
    """
    share = parts.share
    total, top = 0.0, -np.inf
    for a in range(len(share)):
        share[a] = -np.inf
        weight = mixtures.weights[n, a]
        if weight > 0.0:
            total += weight
            deviation = math.sqrt(mixtures.spreads[n, a, index, index])
            origin, z, start, end = _support(mixtures.means[n, a, index], deviation, low, high)
            whole = _integral(z, start, end) if low < high else 1.0 / deviation
            parts.deviation[a], parts.origin[a], parts.z[a] = deviation, origin, z
            parts.start[a], parts.end[a], parts.whole[a] = start, end, whole
            if abs(z) < 1e150:
                share[a] = math.log(weight) - 0.5 * z * z + math.log(whole)
                top = max(top, share[a])
    if top == -np.inf or np.isnan(low) or np.isnan(high):
        share[:] = 0.0
        return math.nan
    inside = 0.0
    for a in range(len(share)):
        share[a] = math.exp(share[a] - top)
        inside += share[a]
    for a in range(len(share)):
        share[a] /= inside
    if low == high:
        return -np.inf
    if low == -np.inf and high == np.inf:
        return 0.0
    return min(top + math.log(inside / total) + LOG_PEAK, 0.0)


@compiled
def _centre(parts: Parts, a: int, low: float, high: float) -> tuple[float, float]:
    """Mean and variance of the truncated component a."""
    deviation = parts.deviation[a]
    if low == high:
        return low, 0.0
    if low == -np.inf and high == np.inf:
        return parts.origin[a], deviation * deviation
    z, start, end, whole = parts.z[a], parts.start[a], parts.end[a], parts.whole[a]
    half, middle = 0.5 * (end - start), 0.5 * (end + start)
    average = 0.0
    for q in range(RULE.shape[1]):
        t = middle + half * RULE[0, q]
        average += t * RULE[1, q] * math.exp(-t * (z + 0.5 * t))
    average *= half / whole
    variance = 0.0
    for q in range(RULE.shape[1]):
        t = middle + half * RULE[0, q]
        variance += (t - average) ** 2 * RULE[1, q] * math.exp(-t * (z + 0.5 * t))
    variance *= half / whole
    return min(max(parts.origin[a] + deviation * average, low), high), variance * deviation * deviation


@inlined
def _slopes(covariance: Array, index: int, slope: Array) -> None:
    """Fill ``slope`` (L,) with the regression of every dimension of a component on the truncated one."""
    for i in range(len(slope)):
        slope[i] = covariance[i, index] / covariance[index, index]
    slope[index] = 1.0


@inlined
def _follow(mean: Array, slope: Array, index: int, value: float, centre: Array) -> None:
    """Fill ``centre`` (L,) with the mean of a component given the ``value`` of the truncated dimension."""
    for i in range(len(centre)):
        centre[i] = mean[i] + slope[i] * (value - mean[index])
    centre[index] = value


@compiled
def _moment_rows(mixtures: Components, index: int, ends: tuple[Array, Array], given: Truncated) -> None:
    n_components, size = mixtures.means.shape[1:]
    parts, centre = _room(n_components), np.empty((n_components, size))
    slope, within = np.empty((n_components, size)), np.empty(n_components)
    for n in range(len(given.mean)):
        low, high, mean = ends[0][n], ends[1][n], given.mean[n]
        given.log_probability[n] = _cut(mixtures, n, index, low, high, parts)
        given.weights[n] = parts.share
        mean[:], given.covariance[n] = 0.0, 0.0
        if np.isnan(given.log_probability[n]):
            mean[:], given.covariance[n] = np.nan, np.nan
            continue
        for a in range(n_components):
            if parts.share[a] > 0.0:
                average, within[a] = _centre(parts, a, low, high)
                _slopes(mixtures.spreads[n, a], index, slope[a])
                _follow(mixtures.means[n, a], slope[a], index, average, centre[a])
                for i in range(size):
                    mean[i] += parts.share[a] * centre[a, i]
        for a in range(n_components):
            if parts.share[a] > 0.0:
                for i in range(size):
                    centre[a, i] -= mean[i]
                _add_spread(
                    parts.share[a], mixtures.spreads[n, a], index, within[a], slope[a], centre[a], given.covariance[n]
                )


@inlined
def _add_spread(
    share: float, before: Array, index: int, within: float, slope: Array, gap: Array, covariance: Array
) -> None:
    """Add to ``covariance`` (L, L) that of a component and of its mean's ``gap`` (L,) to the mixture's.

    ``within`` is the variance of the truncated dimension, ``before`` (L, L) the covariance without the interval.
    """
    for i in range(len(gap)):
        for j in range(i + 1):
            value = slope[i] * slope[j] * within
            if i != index and j != index:
                value += before[i, j] - slope[i] * slope[j] * before[index, index]
            value += gap[i] * gap[j]
            covariance[i, j] += share * value
            covariance[j, i] = covariance[i, j]


@compiled
def _below(t: float, parts: Parts, a: int) -> tuple[float, float]:
    """Probability that the truncated standard variable lies less than t above z, and its density there."""
    z, start, end, whole = parts.z[a], parts.start[a], parts.end[a], parts.whole[a]
    if t <= start:
        return 0.0, 0.0
    if t >= end:
        return 1.0, 0.0
    return _integral(z, start, t) / whole, math.exp(-t * (z + 0.5 * t)) / whole


@compiled
def _other_below(gap: float, slope: float, deviation: float, parts: Parts, a: int) -> tuple[float, float]:
    """Probability that slope t + deviation e lies below ``gap``, and its density there: see :class:`Sums`.

    The distribution function of e falls from 1 to 0 with t, or rises, within a stretch that is integrated by itself.
    """
    z, start, end, whole = parts.z[a], parts.start[a], parts.end[a], parts.whole[a]
    first, last = start, end
    if end <= start:
        e = gap / deviation
        return 0.5 * math.erfc(-e * SQRT_HALF), PEAK / deviation * math.exp(-0.5 * e * e)
    if abs(slope) * (end - start) > deviation:
        middle, stretch = gap / slope, STEP_REACH * deviation / abs(slope)
        first, last = min(max(middle - stretch, start), end), min(max(middle + stretch, start), end)
    below, density = 0.0, 0.0
    if slope > 0.0 and first > start:
        below += _integral(z, start, first)
    if slope < 0.0 and last < end:
        below += _integral(z, last, end)
    if last > first:
        half, centre = 0.5 * (last - first), 0.5 * (last + first)
        for q in range(RULE.shape[1]):
            t = centre + half * RULE[0, q]
            e = (gap - slope * t) / deviation
            weight = half * RULE[1, q] * math.exp(-t * (z + 0.5 * t))
            below += 0.5 * weight * math.erfc(-e * SQRT_HALF)
            density += weight * math.exp(-0.5 * e * e) * PEAK / deviation
    return below / whole, density / whole


@compiled
def _excess(x: float, level: float, direct: bool, parts: Parts, sums: Sums) -> tuple[float, float]:
    """Probability below x less a level, and density, of the truncated dimension itself (``direct``) or another one."""
    total, density = -level, 0.0
    for a in range(len(parts.share)):
        if parts.share[a] > 0.0:
            if direct:
                below, slope = _below((x - sums.origin[a]) / sums.scale[a], parts, a)
                slope /= sums.scale[a]
            else:
                below, slope = _other_below(x - sums.origin[a], sums.scale[a], sums.rest[a], parts, a)
            total += parts.share[a] * below
            density += parts.share[a] * slope
    return total, density


@compiled
def _fill_sums(mixtures: Components, n: int, indices: tuple[int, int], parts: Parts, sums: Sums) -> None:
    """Fill ``sums`` for the second of the dimensions, of row n, the first being truncated."""
    index, other = indices
    for a in range(len(parts.share)):
        deviation = parts.deviation[a]
        if parts.share[a] > 0.0 and index == other:
            sums.origin[a], sums.scale[a], sums.rest[a] = parts.origin[a], deviation, 0.0
        elif parts.share[a] > 0.0:
            spread = mixtures.spreads[n, a]
            slope, own = spread[other, index] / spread[index, index], spread[other, other]
            sums.origin[a] = mixtures.means[n, a, other] + slope * deviation * parts.z[a]
            sums.scale[a] = slope * deviation
            sums.rest[a] = math.sqrt(max(own - slope * spread[other, index], EPS * own))


@compiled
def _quantile(level: float, normal: float, direct: bool, parts: Parts, sums: Sums) -> float:
    """Where the probability below is ``level``, of standard normal quantile ``normal``."""
    below, above, smallest = np.inf, -np.inf, np.inf
    for a in range(len(parts.share)):
        if parts.share[a] > 0.0:
            ends = sums.scale[a] * parts.start[a], sums.scale[a] * parts.end[a]
            shift = sums.origin[a] + normal * sums.rest[a]
            below, above = min(below, shift + min(ends)), max(above, shift + max(ends))
            width = sums.rest[a] if not direct else sums.scale[a] * (parts.end[a] - parts.start[a])
            smallest = min(smallest, width)
    x, bracket = 0.5 * (below + above), Bracket(below, above, above - below, above - below)
    for _ in range(STEPS):
        excess, density = _excess(x, level, direct, parts, sums)
        if excess == 0.0:
            break
        x, bracket = safe_step(x, excess, density, bracket)
        if is_root(x, bracket, 1e-14 * smallest):
            break
    return x


@compiled
def _quantile_rows(
    mixtures: Components,
    indices: tuple[int, int],
    ends: tuple[Array, Array],
    levels: Array,
    normal: Array,
    quantiles: Array,
) -> None:
    """The first of the dimensions is truncated, quantiles are of the second, ``normal`` (m,) those of normal ones."""
    n_components = mixtures.weights.shape[1]
    parts, sums = _room(n_components), Sums(np.empty(n_components), np.empty(n_components), np.empty(n_components))
    direct = indices[0] == indices[1]
    for n in range(len(quantiles)):
        low, high = ends[0][n], ends[1][n]
        if np.isnan(_cut(mixtures, n, indices[0], low, high, parts)):
            quantiles[n] = np.nan
            continue
        if direct and low == high:
            quantiles[n] = low
            continue
        _fill_sums(mixtures, n, indices, parts, sums)
        for i in range(len(levels)):
            x = _quantile(levels[i], normal[i], direct, parts, sums)
            quantiles[n, i] = min(max(x, low), high) if direct else x


@compiled
def _node_rows(mixtures: Components, index: int, ends: tuple[Array, Array], nodes: Components) -> None:
    """Fill ``nodes``: weights (n, A, Q), means (n, A, Q, L) and one covariance (n, A, L, L) a component."""
    n_components, size = mixtures.means.shape[1:]
    parts, slope = _room(n_components), np.empty(size)
    for n in range(len(nodes.weights)):
        low, high = ends[0][n], ends[1][n]
        if np.isnan(_cut(mixtures, n, index, low, high, parts)):
            continue
        for a in range(n_components):
            if parts.share[a] > 0.0:
                z, start, end = parts.z[a], parts.start[a], parts.end[a]
                half, middle = 0.5 * (end - start), 0.5 * (end + start)
                mean, means = mixtures.means[n, a], nodes.means[n, a]
                _slopes(mixtures.spreads[n, a], index, slope)
                for q in range(RULE.shape[1]):
                    t, weight = middle + half * RULE[0, q], 0.5 * RULE[1, q]
                    if end > start:
                        weight = half * RULE[1, q] * math.exp(-t * (z + 0.5 * t)) / parts.whole[a]
                    if weight > SMALLEST:
                        nodes.weights[n, a, q] = parts.share[a] * weight
                    value = min(max(parts.origin[a] + parts.deviation[a] * t, low), high)
                    _follow(mean, slope, index, value, means[q])
            _condition(mixtures.spreads[n, a], index, nodes.spreads[n, a])
        total = nodes.weights[n].sum()
        nodes.weights[n] /= total


@compiled
def _condition(covariance: Array, index: int, within: Array) -> None:
    """Fill ``within`` (L, L), zero before, with the covariance of a component given its truncated dimension."""
    size = len(covariance)
    for i in range(size):
        for j in range(size):
            if i != index and j != index:
                explained = covariance[i, index] * covariance[index, j] / covariance[index, index]
                within[i, j] = covariance[i, j] - explained
        within[i, i] = max(within[i, i], NARROW * covariance[i, i])
