"""The compiled loops over the posterior mixtures of a block's rows, of the components that have weight."""

from __future__ import annotations

import numpy as np

from .arrays import Array
from .kernels import compiled, inlined


@inlined
def component_mean(n: int, k: int, i: int, latent: Array, x: Array, root: Array, prior_mean: Array) -> float:
    """Dimension i of the mean of row n's component k: prior_mean[k] x[n] + root_k latent[n, :, k].

    It is A*_k y_n + b*_k of eq. JGMM_inverse_map, where no parameter is known.
    ``root`` (K, r, r) is lower triangular, ``latent`` (n, r or more, K), ``x`` (n, q), ``prior_mean`` (K, r, q).
    """
    value = 0.0
    for q in range(x.shape[1]):
        value += prior_mean[k, i, q] * x[n, q]
    for j in range(i + 1):
        value += root[k, i, j] * latent[n, j, k]
    return value


@compiled
def mixture_moments(
    weights: Array,
    latent: Array,
    x: Array,
    root: Array,
    prior_mean: Array,
    within: Array,
    mean: Array,
    spread: Array,
) -> None:
    """Mean (n, m) and covariance (n, m, m), or variances (n, m, 1), of the first m dimensions of the posterior mixture.

    The mean is eq. JGMM_inverse_exp. Component k has the mean of :func:`component_mean` and covariance within[k].
    """
    n_rows, n_components = weights.shape
    size = mean.shape[1]
    full = spread.shape[2] == size
    active = np.empty(n_components, dtype=np.intp)
    share = np.empty(n_components)
    gap = np.empty((size, n_components))
    for n in range(n_rows):
        count = 0
        for k in range(n_components):
            active[count] = k
            share[count] = weights[n, k]
            count += weights[n, k] != 0.0
        for i in range(size):
            average = 0.0
            for a in range(count):
                value = component_mean(n, active[a], i, latent, x, root, prior_mean)
                gap[i, a] = value
                average += share[a] * value
            mean[n, i] = average
            for a in range(count):
                gap[i, a] -= average
        for i in range(size):
            for j in range(0 if full else i, i + 1):
                total = 0.0
                for a in range(count):
                    total += share[a] * (within[active[a], i, j] + gap[i, a] * gap[j, a])
                spread[n, i, j if full else 0] = total
                if full:
                    spread[n, j, i] = total


@compiled
def gather_mixtures(
    weights: Array,
    latent: Array,
    x: Array,
    root: Array,
    prior_mean: Array,
    within: Array,
    shares: Array,
    means: Array,
    covariances: Array,
) -> None:
    """Write out the components of weight, in their order: shares (n, A), means (n, A, m), covariances (n, A, m, m).

    The arguments are those of :func:`mixture_moments`; a row's room that is left has weight zero, mean zero and
    covariance one.
    """
    n_rows, room, size = means.shape
    for n in range(n_rows):
        a = 0
        for k in range(weights.shape[1]):
            if weights[n, k] != 0.0:
                shares[n, a] = weights[n, k]
                for i in range(size):
                    means[n, a, i] = component_mean(n, k, i, latent, x, root, prior_mean)
                    for j in range(size):
                        covariances[n, a, i, j] = within[k, i, j]
                a += 1
        for b in range(a, room):
            shares[n, b] = 0.0
            for i in range(size):
                means[n, b, i] = 0.0
                for j in range(size):
                    covariances[n, b, i, j] = 1.0 if i == j else 0.0


@compiled
def distance_rows(weights: Array, log_scale: Array, log_joint: Array, distances: Array) -> None:
    """Fill ``distances`` (n, K) with 2 (log_scale - log(weight) - log_joint), infinite where the weight is zero.

    ``log_scale`` is (1, K) or (n, K).
    """
    last = len(log_scale) - 1
    for n in range(weights.shape[0]):
        for k in range(weights.shape[1]):
            if weights[n, k] != 0.0:
                left = log_scale[min(n, last), k] - np.log(weights[n, k]) - log_joint[n]
                distances[n, k] = max(2.0 * left, 0.0)
            else:
                distances[n, k] = np.inf


@compiled
def residual_rows(spectra: Array, fitted: Array) -> None:
    """Turn ``fitted`` (n, D) into what is left of ``spectra``, NaN where they are not finite."""
    for n in range(fitted.shape[0]):
        for d in range(fitted.shape[1]):
            value = spectra[n, d]
            fitted[n, d] = value - fitted[n, d] if np.isfinite(value) else np.nan


@compiled
def rms_rows(residual: Array, found: Array) -> None:
    """Fill ``found`` (n,) with the root mean square of the bands (n, D) that are not NaN."""
    for n in range(residual.shape[0]):
        total, count = 0.0, 0
        for d in range(residual.shape[1]):
            if not np.isnan(residual[n, d]):
                total += residual[n, d] * residual[n, d]
                count += 1
        found[n] = np.sqrt(total / count) if count else np.nan


@compiled
def heaviest_rows(weights: Array, log_scale: Array, log_joint: Array, weight: Array, distance: Array) -> None:
    """Fill (n,) arrays with the greatest weight and its component's distance.

    ``log_scale`` is (1, K) or (n, K), as for :func:`distance_rows`.
    """
    last = len(log_scale) - 1
    for n in range(weights.shape[0]):
        top = 0
        for k in range(1, weights.shape[1]):
            top = k if weights[n, k] > weights[n, top] else top
        weight[n], distance[n] = weights[n, top], np.inf
        if weight[n] > 0.0:
            distance[n] = max(2.0 * (log_scale[min(n, last), top] - np.log(weight[n]) - log_joint[n]), 0.0)
