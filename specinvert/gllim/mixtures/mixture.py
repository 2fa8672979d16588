"""Gaussian mixtures written out, one a row: what every summary of a posterior is computed from; joined, and reduced.

Whether one dimension has two solutions is asked of its quantiles Q, not of its components: for some share P of the
mass, from a ninth to eight ninths, the central 90 % intervals of what lies below Q(P) and of what lies above it are
apart by more than the length of the longer one. Each holds a tenth of the mass or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ..core import Array, compiled, factor, inlined
from .quantiles import Components, Normals, components, gather_row

LEAST_MASS = 0.1
"""Share of the mass that each of two solutions holds at least."""
TAIL = 0.05
"""Share of either side's mass beyond each end of its interval."""
ONE_ALONE = 1.0 - LEAST_MASS
"""Weight of one component above which the others are no solution."""
SHARES = np.linspace(LEAST_MASS / (1.0 - 2.0 * TAIL), 1.0 - LEAST_MASS / (1.0 - 2.0 * TAIL), 41)
"""Values of P that are tried."""
STRIDE = 5
"""Every so many of them are tried first: between two, a gap that no P has by these is looked for no further."""
CELLS = 48
"""Steps over which the distribution function is interpolated."""
FAR, FAR_MASS = (2.0, 3.0), 0.08
"""Standard deviations of the heaviest component, of less than half the mass and of more, beyond which the means of this
much mass lie where there are two solutions: looked at first."""
NORMAL_STEPS, NORMAL_REACH = 128, 5.0
NORMAL = ndtr(np.linspace(-NORMAL_REACH, NORMAL_REACH, int(2 * NORMAL_REACH * NORMAL_STEPS) + 1))
NORMAL = np.concatenate([[0.0], NORMAL[1:-1], [1.0, 1.0]])
LAST = float(len(NORMAL) - 2)
"""The normal distribution function, right to 2e-6 between its values, and the last from which there is a next."""
PLAIN = np.array([0.0, 1.0, 0.0, 1.0])
"""A scale that leaves all values as they are: first value, step, and what stands at each step from there."""


@dataclass(frozen=True)
class Mixture:
    """n Gaussian mixtures of at most A components over L dimensions.

    Attributes
    ----------
    weights : (n, A), zero or more, each row summing to one; a row may have zeros anywhere, and all zeros where there
        was nothing to estimate from.
    means : (n, A, L). covariances : (n, A, L, L), positive definite; of any finite value where the weight is zero.
    """

    weights: Array
    means: Array
    covariances: Array

    @property
    def n_dimensions(self) -> int:
        """L."""
        return self.means.shape[2]

    def __len__(self) -> int:
        return len(self.weights)

    def marginal(self, index: int) -> tuple[Array, Array, Array]:
        """Weights, means and variances (n, A) of one dimension."""
        return self.weights, self.means[:, :, index], self.covariances[:, :, index, index]

    def select(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Mixture:
        """Some of the rows."""
        return Mixture(self.weights[rows], self.means[rows], self.covariances[rows])

    def moments(self) -> tuple[Array, Array]:
        """Mean (n, L) and covariance (n, L, L), eq. JGMM_inverse_exp; NaN in rows without weight."""
        mean = np.einsum("na,nal->nl", self.weights, self.means)
        gap = self.means - mean[:, None, :]
        within = self.covariances + gap[:, :, :, None] * gap[:, :, None, :]
        covariance = np.einsum("na,nalm->nlm", self.weights, within)
        empty = ~(self.weights.sum(axis=1) > 0.0)
        mean[empty], covariance[empty] = np.nan, np.nan
        return mean, covariance


def joined(parts: Sequence[Mixture], shares: Array) -> Mixture:
    """The mixture of mixtures of the same rows: part m counts ``shares[:, m]``, shares (n, M) summing to one."""
    return Mixture(
        np.concatenate([part.weights * shares[:, m : m + 1] for m, part in enumerate(parts)], axis=1),
        np.concatenate([part.means for part in parts], axis=1),
        np.concatenate([part.covariances for part in parts], axis=1),
    )


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
    before = components(mixture.weights, mixture.means, mixture.covariances)
    _merge_rows(before, Components(weights, means, covariances))
    return Mixture(weights, means, covariances)


def separated(weights: Array, means: Array, variances: Array, scale: Array = PLAIN) -> NDArray[np.bool_]:
    """Whether each row (n,) of one-dimensional mixtures (n, A) has two solutions, see above; False without weight.

    ``scale`` holds a value z, a step, and what counts as length in place of z, z + step, ..., rising.
    """
    found = np.empty(len(weights), dtype=np.bool_)
    _separated_rows(components(weights, means, variances), scale, found)
    return found


@compiled
def _separated_rows(mixtures: Components, scale: Array, found: NDArray[np.bool_]) -> None:
    n_components = mixtures.weights.shape[1]
    room, work = np.empty((3, n_components)), two_solutions_room(n_components)
    for n in range(len(found)):
        found[n] = two_solutions(gather_row(mixtures, n, room), scale, work)


@inlined
def _normal(at: float) -> float:
    """The normal distribution function at a value in steps from the first of the table."""
    at = min(max(at, 0.0), LAST)
    i = np.uintp(int(at))
    return NORMAL[i] + (at - int(at)) * (NORMAL[i + np.uintp(1)] - NORMAL[i])


@inlined
def _below(x: float, row: Normals, steps: Array) -> float:
    """The weight below x; ``steps`` (A,) are those of the table in a unit of x."""
    total = 0.0
    for a in range(len(row.weights)):
        total += row.weights[a] * _normal((x - row.means[a]) * steps[a] + NORMAL_REACH * NORMAL_STEPS)
    return total


@inlined
def _scaled(z: float, scale: Array) -> float:
    at = (z - scale[0]) / scale[1]
    i = min(max(int(at), 0), len(scale) - 4)
    return scale[2 + i] + (at - i) * (scale[3 + i] - scale[2 + i])


@inlined
def _where(level: float, start: int, work: Array) -> tuple[float, int]:
    """Where the share below, ``work[0]``, is ``level``, in ``work[1]``; and its cell, ``start`` or one further up."""
    i = start
    while i < CELLS - 1 and work[0, i + 1] < level:
        i += 1
    rise = work[0, i + 1] - work[0, i]
    part = min(max((level - work[0, i]) / rise, 0.0), 1.0) if rise > 0.0 else 0.5
    return work[1, i] + part * (work[1, i + 1] - work[1, i]), i


@inlined
def _sides(
    p: float, cells: tuple[int, int, int, int], work: Array
) -> tuple[tuple[float, float, float, float], tuple[int, int, int, int]]:
    """Ends of the intervals below and above Q(p), and their cells, those of a lesser p or further up."""
    start, i = _where(TAIL * p, cells[0], work)
    end, j = _where((1.0 - TAIL) * p, cells[1], work)
    restart, k = _where(p + TAIL * (1.0 - p), cells[2], work)
    finish, m = _where(1.0 - TAIL * (1.0 - p), cells[3], work)
    return (start, end, restart, finish), (i, j, k, m)


@inlined
def _apart(sides: tuple[float, float, float, float], beyond: tuple[float, float, float, float]) -> bool:
    """Whether intervals may be apart by more than the longer one, for P between those of two :func:`_sides`."""
    return beyond[2] - sides[1] > max(sides[1] - beyond[0], sides[3] - beyond[2])


@compiled
def two_solutions_room(n_components: int) -> Array:
    """Room for :func:`two_solutions` to work in."""
    return np.empty((3, max(CELLS + 1, n_components)))


@compiled
def two_solutions(row: Normals, scale: Array, work: Array) -> bool:
    """See :func:`separated`; ``work`` is of :func:`two_solutions_room`."""
    count, top = len(row.weights), 0
    if count < 2:
        return False
    low, high = row.means[0], row.means[0]
    for a in range(1, count):
        low, high = min(low, row.means[a]), max(high, row.means[a])
        top = a if row.weights[a] > row.weights[top] else top
    if row.weights[top] > ONE_ALONE * row.total:
        return False
    far, reach = 0.0, FAR[1 if row.weights[top] >= 0.5 * row.total else 0] * row.deviations[top]
    for a in range(count):
        if abs(row.means[a] - row.means[top]) > reach:
            far += row.weights[a]
    if far < FAR_MASS * row.total:
        return False
    widest, steps = 0.0, work[2]
    for a in range(count):
        widest = max(widest, row.deviations[a])
        steps[a] = NORMAL_STEPS / row.deviations[a]
    first, last = low - 3.0 * widest, high + 3.0 * widest
    near, far = last, first
    for _ in range(8):
        left, right = 0.5 * (first + near), 0.5 * (far + last)
        if _below(left, row, steps) < TAIL * SHARES[0] * row.total:
            first = left
        else:
            near = left
        if _below(right, row, steps) < (1.0 - TAIL * SHARES[0]) * row.total:
            far = right
        else:
            last = right
    for i in range(CELLS + 1):
        x = first + (last - first) * i / CELLS
        work[0, i], work[1, i] = 0.0, _scaled(x, scale)
    for a in range(count):
        share, step = row.weights[a] / row.total, (last - first) / CELLS * steps[a]
        start = (first - row.means[a]) * steps[a] + NORMAL_REACH * NORMAL_STEPS
        for i in range(CELLS + 1):
            work[0, i] += share * _normal(start + i * step)
    sides, cells = _sides(SHARES[0], (0, 0, 0, 0), work)
    if _apart(sides, sides):
        return True
    for s in range(STRIDE, len(SHARES), STRIDE):
        beyond, further = _sides(SHARES[s], cells, work)
        if _apart(sides, beyond):
            for p in SHARES[s - STRIDE + 1 : s + 1]:
                sides, cells = _sides(p, cells, work)
                if _apart(sides, sides):
                    return True
        sides, cells = beyond, further
    return False


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


@inlined
def _cheapest(cost: Array, count: int) -> tuple[int, int]:
    """The pair of the first ``count`` components that costs least."""
    first, second = 1, 0
    for i in range(count):
        for j in range(i):
            if cost[i, j] < cost[first, second]:
                first, second = i, j
    return first, second


@inlined
def _gather(mixtures: Components, n: int, share: Array, centre: Array, spread: Array) -> int:
    """Fill the components with weight of row n; their number."""
    count = 0
    for a in range(len(share)):
        if mixtures.weights[n, a] > 0.0:
            share[count], centre[count] = mixtures.weights[n, a], mixtures.means[n, a]
            spread[count] = mixtures.spreads[n, a]
            count += 1
    return count


@compiled
def _merge_rows(before: Components, after: Components) -> None:
    n_components, size = before.means.shape[1:]
    share, centre = np.empty(n_components), np.empty((n_components, size))
    spread, log_det = np.empty((n_components, size, size)), np.empty(n_components)
    cost = np.empty((n_components, n_components))
    mean, covariance, lower = np.empty(size), np.empty((size, size)), np.empty((size, size))
    for n in range(len(before.weights)):
        count = _gather(before, n, share, centre, spread)
        for i in range(count):
            log_det[i] = factor(spread[i], lower)
            for j in range(i):
                joint = _union(share, centre, spread, i, j, mean, covariance, lower)
                cost[i, j] = share[i] * (joint - log_det[i]) + share[j] * (joint - log_det[j])
        while count > after.weights.shape[1]:
            first, second = _cheapest(cost, count)
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
        after.weights[n, :count], after.means[n, :count] = share[:count], centre[:count]
        after.spreads[n, :count] = spread[:count]
