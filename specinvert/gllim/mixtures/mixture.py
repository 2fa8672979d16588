"""Gaussian mixtures written out, one a row: what every summary of a posterior is computed from; joined, and reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core import Array, compiled, factor, inlined
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
