"""Modes of Gaussian mixtures with unequal covariances, and mixtures reduced to fewer components, row by row.

The mean of every component climbs by x <- (sum_a r_a S_a^-1)^-1 sum_a r_a S_a^-1 m_a, r_a the responsibilities at x,
which never lowers the density (Carreira-Perpinan 2000, IEEE PAMI 22, 1318), and near the top by Newton's steps.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .arrays import Array
from .cholesky import factor, solve
from .kernels import NEGLIGIBLE, compiled
from .mixture import Mixture
from .quantiles import components
from .statistics import LOG_2PI

NO_START = 1e-10
"""Components with less of the weight do not climb; they count in the density."""
LEAST_MASS = 0.1
"""A mode with less of the weight is not counted."""
NEAR = 0.1
"""Squared step, in the metric of the local precision, below which Newton's steps are tried."""
DONE = 1e-20
"""Squared Newton step, in the metric of the curvature, below which a climb ends."""
SAME = 1e-6
"""Squared distance, in the metric of the local precision, within which two ends of climbs are one mode."""
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


def list_modes(mixture: Mixture) -> tuple[Array, Array, Array]:
    """Every mode: points (n, M, L), mass (n, M) and log-density (n, M), by falling mass, NaN after the last one.

    M is the number of modes of the row with most. Masses sum to the weight of the components that climb, all but
    those of a weight below 1e-10.
    """
    total = np.maximum(mixture.weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    n_starts = (mixture.weights > 0.5 * NO_START * total).sum(axis=1).max(initial=0)
    _, points, mass, log_density, most = _modes(mixture, max(int(n_starts), 2))
    return points[:, :most].copy(), mass[:, :most].copy(), log_density[:, :most].copy()


def _modes(mixture: Mixture, room: int) -> tuple[NDArray[np.int64], Array, Array, Array, int]:
    """Numbers, points, mass and log-density of the modes, the highest if there is room for one; the greatest number."""
    arrays = components(mixture.weights, mixture.means, mixture.covariances)
    n, size = len(mixture), mixture.n_dimensions
    count = np.empty(n, dtype=np.int64)
    points, mass, log_density = np.empty((n, room, size)), np.empty((n, room)), np.empty((n, room))
    most = _mode_rows(*arrays, count, points, mass, log_density)
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
def climb(x: Array, w: Array, means: Array, precisions: Array, metric: Array) -> float:
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
def invert_covariance(covariance: Array, lower: Array, precision: Array) -> float:
    """Fill ``precision`` (L, L), ``lower`` with the factor; the logarithm of the normal density at its mean."""
    size = len(covariance)
    log_det = factor(covariance, lower)
    precision[:] = 0.0
    for i in range(size):
        precision[i, i] = 1.0
        solve(lower, precision[i], precision[i])
    return -0.5 * (log_det + size * LOG_2PI)


@compiled
def _prepare(weights: Array, means: Array, covariances: Array) -> tuple[Array, Array, Array, Array]:
    """Shares, log constants, means and precisions of the components with weight, by falling share."""
    n_components, size = means.shape
    order = np.empty(n_components, dtype=np.intp)
    total, count = by_weight(weights, 0.0, order)
    share, constant = np.empty(count), np.empty(count)
    centres, precisions = np.empty((count, size)), np.empty((count, size, size))
    lower = np.zeros((size, size))
    for at in range(count):
        a = order[at]
        share[at] = weights[a] / total
        constant[at] = math.log(share[at]) + invert_covariance(covariances[a], lower, precisions[at])
        centres[at] = means[a]
    return share, constant, centres, precisions


@compiled
def by_weight(weights: Array, least: float, order: NDArray[np.intp]) -> tuple[float, int]:
    """Fill ``order`` with the components of more than ``least`` of the weight, by falling weight; weight and number."""
    total, count = 0.0, 0
    for a in range(len(weights)):
        total += weights[a]
    for a in range(len(weights)):
        if weights[a] > least * total:
            at = count
            while at > 0 and weights[order[at - 1]] < weights[a]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = a
            count += 1
    return total, count


@compiled
def same_mode(x: Array, metric: Array, points: Array, found: int, gap: Array) -> int:
    """Which of the ``found`` modes x is, where their number is the next; ``gap`` (L,) is room to work in."""
    for at in range(found):
        for i in range(len(x)):
            gap[i] = points[at, i] - x[i]
        if _square(metric, gap) < SAME:
            return at
    return found


@compiled
def _find(share: Array, constant: Array, centres: Array, precisions: Array) -> tuple[int, Array, Array, Array]:
    """Modes of a row in the order of their heaviest components: their number, points, mass and log-density."""
    n_components, size = centres.shape
    points, mass, log_density = np.empty((n_components, size)), np.zeros(n_components), np.empty(n_components)
    x, gap, metric = np.empty(size), np.empty(size), np.empty((size, size))
    found = 0
    for a in range(n_components):
        if share[a] <= NO_START:
            break
        x[:] = centres[a]
        height = climb(x, constant, centres, precisions, metric)
        at = same_mode(x, metric, points, found, gap)
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
    count: NDArray[np.int64],
    points: Array,
    mass: Array,
    log_density: Array,
) -> int:
    """Fill ``count`` (n,), and the modes of each row by falling mass, NaN after them; the greatest number of modes.

    ``points`` (n, M, L), ``mass`` and ``log_density`` (n, M) have room for every start, or for one mode: the highest.
    """
    most = 0
    for n in range(len(weights)):
        share, constant, centres, precisions = _prepare(weights[n], means[n], covariances[n])
        found, own_points, own_mass, own_density = _find(share, constant, centres, precisions)
        count[n] = (own_mass[:found] >= LEAST_MASS).sum()
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
