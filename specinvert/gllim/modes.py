"""Modes of Gaussian mixtures with unequal covariances, and mixtures reduced to fewer components, row by row.

The mean of every component climbs by x <- (sum_a r_a S_a^-1)^-1 sum_a r_a S_a^-1 m_a, r_a the responsibilities at x,
which never lowers the density (Carreira-Perpinan 2000, IEEE PAMI 22, 1318), and near the top by Newton's steps.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .kernels import NEGLIGIBLE, compiled
from .mixture import Mixture
from .quantiles import components
from .spread import LOG_2PI, factor, solve

NO_START = 1e-10
"""Components with less of the weight do not climb; they count in the density."""
LEAST_MASS = 0.1
"""A mode with less of the weight is not counted."""
ROUNDED_MASS = LEAST_MASS * (1.0 - 1e-12)
"""Less than this stays less than LEAST_MASS in any order of summation."""
NEAR = 0.1
"""Squared step, in the metric of the local precision, below which Newton's steps are tried."""
DONE = 1e-20
"""Squared Newton step, in the metric of the curvature, below which a climb ends."""
SAME = 1e-6
"""Squared distance, in the metric of the local precision, within which two ends of climbs are one mode."""
SEGMENTS = 8
"""Steps from the heaviest component's mean to another at which the density is compared."""
MAX_STEPS = 2000
MAX_NUDGES = 3


def modes(mixture: Mixture) -> tuple[Array, Array, NDArray[np.int64]]:
    """Highest mode (n, L) of the joint density, its log-density (n,), and the number of modes (n,).

    The mass of a mode is the weight of the components whose mean climbs to it. Those of at least 10 % are counted.
    Where climbs stop within 0.001 standard deviations of each other, they found one mode. Rows without weight have NaN
    and 0 modes.
    """
    count, points, _, log_density, _ = _modes(mixture, 1)
    return points[:, 0], log_density[:, 0], count


def count_modes(mixture: Mixture) -> NDArray[np.int64]:
    """Number of modes (n,), as of :func:`modes`, faster: components climb until the rest cannot change it.

    A component does not climb where the density only falls from the heaviest one's mode to its mean: it belongs there.
    Faint modes on curved ridges, a percent of cases with few components, may so be missed.
    """
    return _modes(mixture, 0)[0]


def list_modes(mixture: Mixture) -> tuple[Array, Array, Array]:
    """Every mode: points (n, M, L), mass (n, M) and log-density (n, M), by falling mass, NaN after the last one.

    M is the number of modes of the row with most. Masses sum to the weight of the components that climb, all but
    those of a weight below 1e-10.
    """
    total = np.maximum(mixture.weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    n_starts = (mixture.weights > 0.5 * NO_START * total).sum(axis=1).max(initial=0)
    _, points, mass, log_density, most = _modes(mixture, max(int(n_starts), 2))
    return points[:, :most].copy(), mass[:, :most].copy(), log_density[:, :most].copy()


def merged(mixture: Mixture, n_components: int) -> Mixture:
    """The mixture reduced to at most ``n_components`` components, mean and covariance of each row kept.

    Pairs are merged one after the other, each time those with the least bound on the Kullback-Leibler divergence from
    the mixture before (Runnalls 2007, IEEE TAES 43, 989). Rows with fewer components keep them. Mixtures of no more
    components are returned as they are.

    Raises
    ------
    ValueError : fewer than one component is asked for.
    """
    if n_components < 1:
        raise ValueError(f"n_components must be at least 1, not {n_components}")
    n, n_before, size = mixture.means.shape
    if n_before <= n_components:
        return mixture
    weights, means = np.zeros((n, n_components)), np.zeros((n, n_components, size))
    covariances = np.empty((n, n_components, size, size))
    covariances[:] = np.eye(size)
    _merge_rows(*components(mixture.weights, mixture.means, mixture.covariances), weights, means, covariances)
    return Mixture(weights, means, covariances)


def _modes(mixture: Mixture, room: int) -> tuple[NDArray[np.int64], Array, Array, Array, int]:
    """Numbers, points, mass and log-density of the modes, the highest if there is room for one; the greatest number."""
    arrays = components(mixture.weights, mixture.means, mixture.covariances)
    n, size = len(mixture), mixture.n_dimensions
    count = np.empty(n, dtype=np.int64)
    points, mass, log_density = np.empty((n, room, size)), np.empty((n, room)), np.empty((n, room))
    most = _mode_rows(*arrays, room == 0, count, points, mass, log_density)
    return count, points, mass, log_density, most


@compiled
def _square(metric: Array, step: Array) -> float:
    total = 0.0
    for i in range(len(step)):
        for j in range(len(step)):
            total += step[i] * metric[i, j] * step[j]
    return total


@compiled
def _slopes(
    x: Array, w: Array, means: Array, precisions: Array, gradient: Array, metric: Array, curvature: Array
) -> float:
    """Log-density at x, its ``gradient``, local precision ``metric`` and ``curvature`` (L, L), minus the Hessian.

    ``w`` (A,) are log weights of the components with the constant of their density.
    """
    n_components, size = means.shape
    log_part, pull = np.empty(n_components), np.empty((n_components, size))
    top = -np.inf
    for a in range(n_components):
        distance = 0.0
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += precisions[a, i, j] * (means[a, j] - x[j])
            pull[a, i] = total
            distance += total * (means[a, i] - x[i])
        log_part[a] = w[a] - 0.5 * distance
        top = max(top, log_part[a])
    density = 0.0
    for a in range(n_components):
        log_part[a] -= top
        density += math.exp(log_part[a]) if log_part[a] > -NEGLIGIBLE else 0.0
    gradient[:] = 0.0
    metric[:] = 0.0
    curvature[:] = 0.0
    for a in range(n_components):
        if log_part[a] > -NEGLIGIBLE:
            share = math.exp(log_part[a]) / density
            for i in range(size):
                gradient[i] += share * pull[a, i]
                for j in range(i + 1):
                    metric[i, j] += share * precisions[a, i, j]
                    curvature[i, j] -= share * pull[a, i] * pull[a, j]
    for i in range(size):
        for j in range(i + 1):
            curvature[i, j] += metric[i, j] + gradient[i] * gradient[j]
            metric[j, i], curvature[j, i] = metric[i, j], curvature[i, j]
    return top + math.log(density)


@compiled
def _nudge(curvature: Array, metric: Array, lower: Array, step: Array) -> None:
    """Fill ``step`` with a direction along which the density is convex, a tenth of a local standard deviation long.

    ``lower`` is the factor of the curvature as far as it went.
    """
    size = len(step)
    last = 0
    while last < size - 1 and lower[last, last] > 0.0:
        last += 1
    step[:] = 0.0
    step[last] = 1.0
    for i in range(last - 1, -1, -1):
        total = 0.0
        for k in range(i + 1, last + 1):
            total -= lower[k, i] * step[k]
        step[i] = total / lower[i, i]
    length = 0.1 / math.sqrt(_square(metric, step))
    for i in range(size):
        step[i] *= length


@compiled
def _climb(x: Array, w: Array, means: Array, precisions: Array, metric: Array) -> float:
    """Move x to the mode that it climbs to, fill the local precision ``metric`` there; the log-density."""
    size = len(x)
    gradient, step, before = np.empty(size), np.empty(size), x.copy()
    curvature, lower, safe = np.empty((size, size)), np.empty((size, size)), np.empty(size)
    reached, by_newton, newton_allowed, nudges = -np.inf, False, True, 0
    log_density = -np.inf
    for _ in range(MAX_STEPS):
        log_density = _slopes(x, w, means, precisions, gradient, metric, curvature)
        if by_newton and not log_density >= reached - 1e-13 * (1.0 + abs(reached)):
            for i in range(size):
                x[i] = before[i] + safe[i]
            by_newton, newton_allowed = False, False
            continue
        reached = log_density
        factor(metric, lower)
        solve(lower, gradient, safe)
        length = 0.0
        for i in range(size):
            length += gradient[i] * safe[i]
        by_newton = False
        if length < NEAR:
            concave = not math.isnan(factor(curvature, lower))
            if concave and newton_allowed:
                solve(lower, gradient, step)
                left = 0.0
                for i in range(size):
                    left += gradient[i] * step[i]
                if left < DONE:
                    break
                by_newton = _square(metric, step) < 1.0
            elif not concave and length < 1e-12 and nudges < MAX_NUDGES:
                _nudge(curvature, metric, lower, safe)
                nudges += 1
            elif length < DONE:
                break
        newton_allowed = True
        for i in range(size):
            before[i] = x[i]
            x[i] += step[i] if by_newton else safe[i]
    return log_density


@compiled
def _prepare(weights: Array, means: Array, covariances: Array) -> tuple[Array, Array, Array, Array]:
    """Shares, log constants, means and precisions of the components with weight, by falling share."""
    n_components, size = means.shape
    total, count = 0.0, 0
    order = np.empty(n_components, dtype=np.intp)
    for a in range(n_components):
        if weights[a] > 0.0:
            total += weights[a]
            at = count
            while at > 0 and weights[order[at - 1]] < weights[a]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = a
            count += 1
    share, constant = np.empty(count), np.empty(count)
    centres, precisions = np.empty((count, size)), np.empty((count, size, size))
    lower, unit, column = np.zeros((size, size)), np.zeros(size), np.empty(size)
    for at in range(count):
        a = order[at]
        share[at] = weights[a] / total
        log_det = factor(covariances[a], lower)
        constant[at] = math.log(share[at]) - 0.5 * (log_det + size * LOG_2PI)
        for i in range(size):
            centres[at, i] = means[a, i]
            unit[i] = 1.0
            solve(lower, unit, column)
            unit[i] = 0.0
            for j in range(size):
                precisions[at, i, j] = column[j]
    return share, constant, centres, precisions


@compiled
def _settled(share: Array, climbed: int, mass: Array, found: int) -> bool:
    """Whether the components that have not climbed cannot change the number of modes counted."""
    rest = 0.0
    for a in range(climbed, len(share)):
        rest += share[a]
    safe = rest < ROUNDED_MASS
    for m in range(found):
        safe &= mass[m] >= LEAST_MASS or mass[m] + rest < ROUNDED_MASS
    return safe


@compiled
def _height(x: Array, constant: Array, centres: Array, precisions: Array) -> float:
    """Density at x, over that of the highest component at its mean."""
    top = constant[0]
    for a in range(1, len(constant)):
        top = max(top, constant[a])
    total = 0.0
    for a in range(len(constant)):
        square = 0.0
        for i in range(len(x)):
            part = 0.0
            for j in range(i):
                part += precisions[a, i, j] * (x[j] - centres[a, j])
            gap = x[i] - centres[a, i]
            square += gap * (precisions[a, i, i] * gap + 2.0 * part)
        exponent = constant[a] - top - 0.5 * square
        if exponent > -NEGLIGIBLE:
            total += np.exp(exponent)
    return total


@compiled
def _only_falls(mode: Array, end: Array, x: Array, constant: Array, centres: Array, precisions: Array) -> bool:
    """Whether the density only falls on the way from a mode to another point."""
    before = np.inf
    for step in range(SEGMENTS + 1):
        for i in range(len(x)):
            x[i] = mode[i] + step / SEGMENTS * (end[i] - mode[i])
        height = _height(x, constant, centres, precisions)
        if height > before:
            return False
        before = height
    return True


@compiled
def _find(
    share: Array, constant: Array, centres: Array, precisions: Array, only_count: bool
) -> tuple[int, Array, Array, Array]:
    """Modes of a row in the order of their heaviest components: their number, points, mass and log-density."""
    n_components, size = centres.shape
    points, mass, log_density = np.empty((n_components, size)), np.zeros(n_components), np.empty(n_components)
    x, gap, metric = np.empty(size), np.empty(size), np.empty((size, size))
    found = 0
    for a in range(n_components):
        if share[a] <= NO_START or (only_count and _settled(share, a, mass, found)):
            break
        if only_count and found > 0 and _only_falls(points[0], centres[a], x, constant, centres, precisions):
            mass[0] += share[a]
            continue
        x[:] = centres[a]
        height = _climb(x, constant, centres, precisions, metric)
        at = 0
        while at < found:
            for i in range(size):
                gap[i] = points[at, i] - x[i]
            if _square(metric, gap) < SAME:
                break
            at += 1
        if at == found:
            points[at], log_density[at] = x, height
            found += 1
        mass[at] += share[a]
    return found, points, mass, log_density


@compiled
def _mode_rows(
    weights: Array,
    means: Array,
    covariances: Array,
    only_count: bool,
    count: NDArray[np.int64],
    points: Array,
    mass: Array,
    log_density: Array,
) -> int:
    """Fill ``count`` (n,), and the modes of each row by falling mass, NaN after them; the greatest number of modes.

    ``points`` (n, M, L), ``mass`` and ``log_density`` (n, M) have room for every start, or for one mode: the highest.
    With ``only_count`` they are not touched.
    """
    most = 0
    for n in range(len(weights)):
        top, total = 0.0, 0.0
        for a in range(weights.shape[1]):
            top = max(top, weights[n, a])
            total += weights[n, a]
        count[n] = 1 if total > 0.0 else 0
        if only_count and top > (1.0 - ROUNDED_MASS) * total:
            continue
        share, constant, centres, precisions = _prepare(weights[n], means[n], covariances[n])
        found, own_points, own_mass, own_density = _find(share, constant, centres, precisions, only_count)
        count[n] = (own_mass[:found] >= LEAST_MASS).sum()
        if only_count:
            continue
        most = max(most, found)
        points[n], mass[n], log_density[n] = np.nan, np.nan, np.nan
        order = own_mass if mass.shape[1] > 1 else own_density
        for m in range(found):
            rank = 0
            for other in range(found):
                rank += order[other] > order[m] or (order[other] == order[m] and other < m)
            if rank < mass.shape[1]:
                points[n, rank], mass[n, rank], log_density[n, rank] = own_points[m], own_mass[m], own_density[m]
    return most


@compiled
def _union(
    share: Array, means: Array, covariances: Array, i: int, j: int, mean: Array, covariance: Array, lower: Array
) -> float:
    """Mean and covariance of the components i and j as one; the log determinant of the covariance."""
    both = share[i] + share[j]
    p, q = share[i] / both, share[j] / both
    for k in range(len(mean)):
        mean[k] = p * means[i, k] + q * means[j, k]
        for m in range(len(mean)):
            spread = (means[i, k] - means[j, k]) * (means[i, m] - means[j, m])
            covariance[k, m] = p * covariances[i, k, m] + q * covariances[j, k, m] + p * q * spread
    return factor(covariance, lower)


@compiled
def _merge_rows(
    weights: Array, means: Array, covariances: Array, new_weights: Array, new_means: Array, new_covariances: Array
) -> None:
    n_components, size = means.shape[1:]
    share, centre = np.empty(n_components), np.empty((n_components, size))
    spread, log_det = np.empty((n_components, size, size)), np.empty(n_components)
    cost = np.empty((n_components, n_components))
    mean, covariance, lower = np.empty(size), np.empty((size, size)), np.empty((size, size))
    for n in range(len(weights)):
        count = 0
        for a in range(n_components):
            if weights[n, a] > 0.0:
                share[count], centre[count], spread[count] = weights[n, a], means[n, a], covariances[n, a]
                log_det[count] = factor(spread[count], lower)
                count += 1
        for i in range(count):
            for j in range(i):
                joint = _union(share, centre, spread, i, j, mean, covariance, lower)
                cost[i, j] = share[i] * (joint - log_det[i]) + share[j] * (joint - log_det[j])
        while count > new_weights.shape[1]:
            first, second = 1, 0
            for i in range(count):
                for j in range(i):
                    if cost[i, j] < cost[first, second]:
                        first, second = i, j
            log_det[second] = _union(share, centre, spread, first, second, mean, covariance, lower)
            share[second] += share[first]
            centre[second], spread[second] = mean, covariance
            count -= 1
            share[first], centre[first] = share[count], centre[count]
            spread[first], log_det[first] = spread[count], log_det[count]
            for j in range(count):
                if j != first:
                    cost[max(first, j), min(first, j)] = cost[count, j]
            for j in range(count):
                if j != second:
                    i, k = max(second, j), min(second, j)
                    joint = _union(share, centre, spread, i, k, mean, covariance, lower)
                    cost[i, k] = share[i] * (joint - log_det[i]) + share[k] * (joint - log_det[k])
        for a in range(count):
            new_weights[n, a], new_means[n, a], new_covariances[n, a] = share[a], centre[a], spread[a]
