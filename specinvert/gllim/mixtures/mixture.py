"""Gaussian mixtures written out, one a row: what every summary of a posterior is computed from; joined, and reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Array, compiled, factor
from .quantiles import Components, components


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


class Pool(NamedTuple):
    """Components (A + 1,) of one mixture that are being merged, in the last place the union of two of them."""

    share: Array
    means: Array
    covariances: Array
    log_det: Array
    lower: Array


@compiled
def _put(pool: Pool, place: int, source: int) -> None:
    """Copy a component to another place."""
    pool.share[place], pool.means[place] = pool.share[source], pool.means[source]
    pool.covariances[place], pool.log_det[place] = pool.covariances[source], pool.log_det[source]


@compiled
def _unite(pool: Pool, i: int, j: int) -> float:
    """Put the components i and j as one in the last place; the bound on the divergence that merging them costs."""
    share, means, covariances = pool.share, pool.means, pool.covariances
    size = means.shape[1]
    both = share[i] + share[j]
    p, q = share[i] / both, share[j] / both
    for k in range(size):
        means[-1, k] = p * means[i, k] + q * means[j, k]
        for m in range(size):
            spread = (means[i, k] - means[j, k]) * (means[i, m] - means[j, m])
            covariances[-1, k, m] = p * covariances[i, k, m] + q * covariances[j, k, m] + p * q * spread
    joint = factor(covariances[-1], pool.lower)
    share[-1], pool.log_det[-1] = both, joint
    return share[i] * (joint - pool.log_det[i]) + share[j] * (joint - pool.log_det[j])


@compiled
def _cheapest(cost: Array, count: int) -> tuple[int, int]:
    """The pair of the first ``count`` components that costs least."""
    first, second = 1, 0
    for i in range(count):
        for j in range(i):
            if cost[i, j] < cost[first, second]:
                first, second = i, j
    return first, second


@compiled
def _merge_rows(before: Components, after: Components) -> None:
    n_components, size = before.means.shape[1:]
    room = n_components + 1
    pool = Pool(
        np.empty(room), np.empty((room, size)), np.empty((room, size, size)), np.empty(room), np.empty((size, size))
    )
    cost = np.empty((n_components, n_components))
    for n in range(len(before.weights)):
        count = 0
        for a in range(n_components):
            if before.weights[n, a] > 0.0:
                pool.share[count], pool.means[count] = before.weights[n, a], before.means[n, a]
                pool.covariances[count] = before.spreads[n, a]
                pool.log_det[count] = factor(pool.covariances[count], pool.lower)
                count += 1
        for i in range(count):
            for j in range(i):
                cost[i, j] = _unite(pool, i, j)
        while count > after.weights.shape[1]:
            first, second = _cheapest(cost, count)
            _unite(pool, first, second)
            _put(pool, second, n_components)
            count -= 1
            _put(pool, first, count)
            for j in range(count):
                if j != first:
                    cost[max(first, j), min(first, j)] = cost[count, j]
            for j in range(count):
                if j != second:
                    i, k = max(second, j), min(second, j)
                    cost[i, k] = _unite(pool, i, k)
        for a in range(count):
            after.weights[n, a], after.means[n, a], after.spreads[n, a] = (
                pool.share[a],
                pool.means[a],
                pool.covariances[a],
            )
