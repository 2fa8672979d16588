"""Distribution functions, quantiles and shortest intervals of Gaussian mixtures in one dimension, row by row.

Tails are summed as tails and subtracted last, so levels near zero and one and the flat stretches between far modes keep
their digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..core import Array, compiled, inlined

SQRT_HALF = math.sqrt(0.5)
PEAK = 1.0 / math.sqrt(2.0 * math.pi)
"""Density of the standard normal at zero."""
EPS = float(np.finfo(float).eps)
STEPS = 400
"""Most steps to a root; halving alone takes fewer from the whole range of floats."""
SPACING = 0.5
"""Standard deviations between the points where the search for the shortest interval starts."""
RIVAL = 1.02
"""Local minima at most this much longer than the shortest start are refined too."""


def cdf(weights: Array, means: Array, variances: Array, values: Array) -> Array:
    """Probability (n,) below ``values`` (n,); for true values, the probability integral transform.

    ``weights``, ``means`` and ``variances`` are (n, A), as of :meth:`Mixture.marginal`. NaN in rows without weight and
    where the value is NaN.
    """
    found = np.empty(len(weights))
    _cdf_rows(*components(weights, means, variances), contiguous(values), found)
    return found


def quantile(weights: Array, means: Array, variances: Array, level: float | Sequence[float] | Array) -> Array:
    """Quantiles (n,) of one ``level``, or (n, m) of m levels.

    Exact: the root of the distribution function, to 1e-13 of the smallest standard deviation of the row or to the last
    digits of the value. NaN in rows without weight.

    Raises
    ------
    ValueError : a level is not between 0 and 1.
    """
    levels = checked_levels(level)
    found = np.empty((len(weights), len(levels)))
    _quantile_rows(*components(weights, means, variances), levels, ndtri(np.minimum(levels, 1.0 - levels)), found)
    return found[:, 0] if np.ndim(level) == 0 else found


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
    _shortest_rows(*components(weights, means, variances), level, half, offsets, lower, upper)
    return lower, upper


def contiguous(array: Array) -> Array:
    """The array as the kernels are compiled for: float64, in C order, writeable."""
    return np.require(array, np.float64, ("C", "W"))


def components(weights: Array, means: Array, spreads: Array) -> tuple[Array, Array, Array]:
    """Weights, means, and variances or covariances as the kernels take them."""
    return contiguous(weights), contiguous(means), contiguous(spreads)


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
def _gather(weights: Array, means: Array, variances: Array, w: Array, m: Array, s: Array) -> tuple[int, float]:
    """Weights, means and standard deviations of a row's components with weight; their number and total weight."""
    count, total = 0, 0.0
    for a in range(len(weights)):
        if weights[a] > 0.0:
            w[count], m[count], s[count] = weights[a], means[a], np.sqrt(variances[a])
            total += weights[a]
            count += 1
    return count, total


@compiled
def _excess(x: float, target: float, w: Array, m: Array, s: Array) -> tuple[float, float]:
    """Weight below x less ``target``, and density at x."""
    whole, tails, density = -target, 0.0, 0.0
    for a in range(len(w)):
        z = (x - m[a]) / s[a]
        tail = 0.5 * w[a] * math.erfc(abs(z) * SQRT_HALF)
        if z > 0.0:
            whole += w[a]
            tails -= tail
        else:
            tails += tail
        density += w[a] / s[a] * math.exp(-0.5 * z * z)
    return whole + tails, PEAK * density


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


@compiled
def _root(
    target: float, w: Array, m: Array, s: Array, low: float, high: float, start: float, smallest: float
) -> tuple[float, float]:
    """Where the weight below is ``target``, between ``low`` and ``high``, and the density there or one step off."""
    x, density = start, 0.0
    before = step = high - low
    for _ in range(STEPS):
        excess, density = _excess(x, target, w, m, s)
        if excess == 0.0:
            break
        x, low, high, before, step = safe_step(x, excess, density, low, high, before, step)
        if min(abs(step), high - low) <= 1e-13 * smallest + 2.0 * EPS * abs(x):
            break
    return x, density


@compiled
def _cdf_rows(weights: Array, means: Array, variances: Array, values: Array, found: Array) -> None:
    size = weights.shape[1]
    w, m, s = np.empty(size), np.empty(size), np.empty(size)
    for n in range(len(weights)):
        count, total = _gather(weights[n], means[n], variances[n], w, m, s)
        if count == 0 or np.isnan(values[n]):
            found[n] = np.nan
            continue
        below, _ = _excess(values[n], 0.0, w[:count], m[:count], s[:count])
        found[n] = min(max(below / total, 0.0), 1.0)


@compiled
def _quantile_rows(weights: Array, means: Array, variances: Array, levels: Array, normal: Array, found: Array) -> None:
    """``normal`` (m,) are the standard normal quantiles of the levels, or of their complements above one half."""
    size = weights.shape[1]
    w, m, s, mirrored = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for n in range(len(weights)):
        count, total = _gather(weights[n], means[n], variances[n], w, m, s)
        if count == 0:
            found[n] = np.nan
            continue
        smallest = s[0]
        for a in range(count):
            mirrored[a] = -m[a]
            smallest = min(smallest, s[a])
        for i in range(len(levels)):
            upper = levels[i] > 0.5
            centre = mirrored if upper else m
            low, high, start = np.inf, -np.inf, 0.0
            for a in range(count):
                own = centre[a] + normal[i] * s[a]
                low, high = min(low, own), max(high, own)
                start += w[a] / total * own
            x = low
            if low < high:
                target = total * (1.0 - levels[i] if upper else levels[i])
                start = min(max(start, low), high)
                x, _ = _root(target, w[:count], centre[:count], s[:count], low, high, start, smallest)
            found[n, i] = -x if upper else x


@compiled
def _starts(
    points: Array,
    below: Array,
    mass: float,
    level: Array,
    lower: Array,
    lower_end: Array,
    upper: Array,
    upper_end: Array,
) -> tuple[int, int]:
    """Intervals of the ``mass`` with one end on the sorted ``points``, where the weight ``below`` is known.

    The lower end of interval j is between ``lower[j]`` and ``lower_end[j]``, the upper end likewise, and ``level[j]``
    of the weight lies below it. Returns how many have their lower, and how many their upper end on a point; either are
    sorted.
    """
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
    level: float,
    mass: float,
    ends: tuple[float, float, float, float],
    w: Array,
    m: Array,
    s: Array,
    smallest: float,
) -> tuple[float, float, float]:
    """The interval of the ``mass`` above ``level``; the log of the density at its upper over that at its lower end.

    ``ends`` bracket its lower and its upper end.
    """
    lower, upper, slope = 0.0, 0.0, 0.0
    for side in range(2):
        low, high = (ends[2], ends[3]) if side == 1 else (ends[0], ends[1])
        target = level + mass if side == 1 else level
        upper, density = _root(target, w, m, s, low, high, 0.5 * (low + high), smallest)
        if side == 0:
            lower = upper
        slope = math.log(max(density, 1e-300)) - slope
    return lower, upper, slope


@compiled
def _refine(
    left: float,
    right: float,
    ends: tuple[float, float, float, float],
    start: float,
    mass: float,
    w: Array,
    m: Array,
    s: Array,
    smallest: float,
) -> tuple[float, float]:
    """The locally shortest interval, between the levels ``left`` and ``right``, down from the one at ``start``.

    ``ends`` bracket its lower and its upper end. The length falls with the level while the upper end is the denser one.
    """
    low, low_end, high, high_end = ends
    best_low, best_high, best_level = low, high_end, start
    slope_left = slope_right = np.nan
    level = start
    side = 0
    for iteration in range(100):
        a, b, slope = _interval(level, mass, (low, low_end, high, high_end), w, m, s, smallest)
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
def _shortest(
    mass: float, offsets: Array, least: float, w: Array, m: Array, s: Array, total: float
) -> tuple[float, float]:
    """The shortest interval that holds ``mass`` of the weight of a row."""
    smallest, size = s[0], 0
    points = np.empty(len(w) * len(offsets))
    for a in range(len(w)):
        smallest = min(smallest, s[a])
        if w[a] > least * total:
            for i in range(len(offsets)):
                points[size] = m[a] + offsets[i] * s[a]
                size += 1
    points = np.sort(points[:size])
    below = np.empty(size)
    for i in range(size):
        below[i], _ = _excess(points[i], 0.0, w, m, s)
        if i > 0:
            below[i] = max(below[i], below[i - 1])
    level, lower, lower_end = np.empty(2 * size), np.empty(2 * size), np.empty(2 * size)
    upper, upper_end = np.empty(2 * size), np.empty(2 * size)
    first, second = _starts(points, below, mass, level, lower, lower_end, upper, upper_end)
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
            ends = (lower[j], lower_end[j], upper[j], upper_end[j])
            low, high, _ = _interval(level[j], mass, ends, w, m, s, smallest)
            length[i] = high - low
            least_length = min(least_length, length[i])
    found_low, found_high = np.nan, np.inf
    for i in range(count):
        before, after = max(i - 1, 0), min(i + 1, count - 1)
        if length[i] <= RIVAL * least_length and length[before] >= length[i] and length[after] >= length[i]:
            p, q = order[before], order[after]
            ends = (lower[p], lower_end[q], upper[p], upper_end[q])
            low, high = _refine(level[p], level[q], ends, level[order[i]], mass, w, m, s, smallest)
            if np.isnan(found_low) or high - low < found_high - found_low:
                found_low, found_high = low, high
    return found_low, found_high


@compiled
def _shortest_rows(
    weights: Array, means: Array, variances: Array, mass: float, half: float, offsets: Array, lower: Array, upper: Array
) -> None:
    """``half`` is the half length for the standard normal."""
    size = weights.shape[1]
    w, m, s = np.empty(size), np.empty(size), np.empty(size)
    least = min(1e-10, 1e-3 * (1.0 - mass) / size)
    for n in range(len(weights)):
        count, total = _gather(weights[n], means[n], variances[n], w, m, s)
        if count == 0:
            lower[n] = upper[n] = np.nan
        elif count == 1:
            lower[n], upper[n] = m[0] - half * s[0], m[0] + half * s[0]
        else:
            lower[n], upper[n] = _shortest(mass * total, offsets, least, w[:count], m[:count], s[:count], total)
