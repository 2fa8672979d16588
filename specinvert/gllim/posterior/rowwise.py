"""The compiled loops over a block's posterior mixtures, and the posteriors of spectra that share theta with few others.

Where each spectrum has noise or missing bands of its own, eq. JGMM_inverse_map is solved row by row in small systems.
With P_n the inverse of Sigma_k plus a row's own noise on its valid bands, residual r = y - b_k - A_k c_k and
C C' = Gamma_k: x has posterior mean c_k + C u, u = H^-1 C' A' P r, and covariance C H^-1 C', H = I + C' A' P A C; the
squared distance is (r - A C u)' P (r - A C u) + u'u. No square is expanded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import (
    LOG_2PI,
    Array,
    compiled,
    factor,
    inlined,
    latent_mean,
    normalize_rows,
    solve,
    solve_identity,
    summing,
)
from ..mixtures import Mixture
from ..model import GLLiMParameters
from ..transforms import softplus_free, softplus_moments
from .forward import Prior, log_sum


class Factored(NamedTuple):
    """Posterior mixtures of n spectra as the kernels take them, see :class:`.posterior.Posterior`.

    Attributes
    ----------
    weights : (n, K). latent : (n, r or more, K). regressors : (n, q).
    root : (K, r, r) lower triangular. prior_mean : (K, r, q).
    covariance : (K, r, r).
    """

    weights: Array
    latent: Array
    regressors: Array
    root: Array
    prior_mean: Array
    covariance: Array


@inlined
def component_mean(n: int, k: int, i: int, latent: Array, x: Array, root: Array, prior_mean: Array) -> float:
    """Dimension i of the mean of row n's component k: prior_mean[k] x[n] + root_k latent[n, :, k].

    It is A*_k y_n + b*_k of eq. JGMM_inverse_map, where no parameter is known.
    ``root`` (K, r, r) is lower triangular, ``latent`` (n, r or more, K), ``x`` (n, q), ``prior_mean`` (K, r, q).
    """
    value = 0.0
    for q in range(x.shape[1]):
        value += prior_mean[k, i, q] * x[n, q]
    return latent_mean(n, k, i, latent, root, value)


@inlined
def _gather_active(weights: Array, n: int, active: NDArray[np.intp], share: Array) -> int:
    """Fill the components that row n has a weight of, and these weights; their number."""
    count = 0
    for k in range(weights.shape[1]):
        active[count] = k
        share[count] = weights[n, k]
        count += weights[n, k] != 0.0
    return count


@compiled
def mixture_moments(mixtures: Factored, mean: Array, spread: Array) -> None:
    """Mean (n, m) and covariance (n, m, m), or variances (n, m, 1), of the first m dimensions of the posterior mixture.

    The mean is eq. JGMM_inverse_exp.
    """
    weights, latent, x, root, prior_mean, within = mixtures
    n_rows, n_components = weights.shape
    size = mean.shape[1]
    full = spread.shape[2] == size
    active = np.empty(n_components, dtype=np.intp)
    share = np.empty(n_components)
    gap = np.empty((size, n_components))
    for n in range(n_rows):
        count = _gather_active(weights, n, active, share)
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
def bounded_moments(mixtures: Factored, scales: Array, bounded: Array, plain: Array) -> None:
    """:func:`mixture_moments` without cross terms, ``plain`` (2, n, m), and ``bounded`` (2, n, m) of softplus.

    Of these ``scales`` (m,), zero for none.
    """
    weights, latent, x, root, prior_mean, within = mixtures
    n_rows, n_components = weights.shape
    size = len(scales)
    active, curved = np.empty(n_components, dtype=np.intp), np.empty(n_components, dtype=np.intp)
    share, values, spread = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    free = np.full((size, n_components), -np.inf)
    for i in range(size):
        for k in range(n_components):
            if scales[i] > 0.0:
                free[i, k] = softplus_free(scales[i], math.sqrt(within[k, i, i]))
    for n in range(n_rows):
        count = _gather_active(weights, n, active, share)
        for i in range(size):
            for a in range(count):
                values[a] = component_mean(n, active[a], i, latent, x, root, prior_mean)
                spread[a] = within[active[a], i, i]
            _summed(share[:count], values, spread, plain[:, n, i])
            n_curved, scale = 0, scales[i]
            for a in range(count):
                curved[n_curved] = a
                n_curved += values[a] < free[i, active[a]]
            for c in range(n_curved):
                a = curved[c]
                if share[a] < FAINT:
                    values[a] = max(values[a], 0.0)
                else:
                    mean, variance = softplus_moments(values[a] / scale, spread[a] / (scale * scale))
                    values[a], spread[a] = mean * scale, variance * scale * scale
            if n_curved:
                _summed(share[:count], values, spread, bounded[:, n, i])
            else:
                bounded[0, n, i], bounded[1, n, i] = plain[0, n, i], plain[1, n, i]


@inlined
def _summed(share: Array, values: Array, spread: Array, moments: Array) -> None:
    """Mean and variance (2,) of components of these means and variances."""
    average, total = 0.0, 0.0
    for a in range(len(share)):
        average += share[a] * values[a]
    for a in range(len(share)):
        gap = values[a] - average
        total += share[a] * (spread[a] + gap * gap)
    moments[0], moments[1] = average, total


@compiled
def gather_mixtures(mixtures: Factored, shares: Array, means: Array, covariances: Array) -> None:
    """Write out the components of weight, in their order: shares (n, A), means (n, A, m), covariances (n, A, m, m).

    A row's room that is left has weight zero, mean zero and covariance one.
    """
    weights, latent, x, root, prior_mean, within = mixtures
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


UNSEEN = 1e-12
"""Components of less weight add nothing to a spectrum."""


@summing
def fitted_rows(
    mixtures: Factored, share: Array, x: Array, unknown: NDArray[np.intp], maps: Array, fitted: Array
) -> None:
    """Add to ``fitted`` (n, D) the spectra sum_k w_k (A_k E[x|y,k] + b_k) of the posteriors, times ``share`` (n,).

    ``maps`` (K (1 + L), D) are [b_k, A_k]', ``x`` (n, L) holds what is known, and is overwritten at ``unknown`` (r,).
    """
    weights, latent, regressors, root, prior_mean, _ = mixtures
    n_bands, width = fitted.shape[1], 1 + x.shape[1]
    at, times = np.zeros(len(maps) + 3, dtype=np.intp), np.zeros(len(maps) + 3)
    for n in range(len(weights)):
        total, count = fitted[n], 0
        for k in range(weights.shape[1]):
            if weights[n, k] > UNSEEN:
                for i in range(len(unknown)):
                    x[n, unknown[i]] = component_mean(n, k, i, latent, regressors, root, prior_mean)
                for i in range(width):
                    at[count] = k * width + i
                    times[count] = share[n] * weights[n, k] * (x[n, i - 1] if i else 1.0)
                    count += 1
        times[count : count + 3] = 0.0
        for j in range(0, count, 4):
            a, b, c, e = maps[at[j]], maps[at[j + 1]], maps[at[j + 2]], maps[at[j + 3]]
            p, q, r, s = times[j], times[j + 1], times[j + 2], times[j + 3]
            for d in range(n_bands):
                total[d] += p * a[d] + q * b[d] + r * c[d] + s * e[d]


@compiled
def residual_rows(spectra: Array, fitted: Array) -> None:
    """Turn ``fitted`` (n, D) into what is left of ``spectra``, NaN where they are not finite."""
    for n in range(fitted.shape[0]):
        for d in range(fitted.shape[1]):
            value = spectra[n, d]
            fitted[n, d] = value - fitted[n, d] if np.isfinite(value) else np.nan


@summing
def outside_rows(spectra: Array, low: Array, high: Array, share: float, outside: NDArray[np.bool_]) -> None:
    """Whether (n,) more than a ``share`` of the bands that are there of (n, D) lie beyond ``low`` or ``high``.

    These are (1, D) or (n, D).
    """
    last = len(low) - 1
    for n in range(spectra.shape[0]):
        own, there, beyond = min(n, last), 0, 0
        for d in range(spectra.shape[1]):
            value = spectra[n, d]
            there += value == value
            beyond += (value < low[own, d]) | (value > high[own, d])
        outside[n] = beyond > share * there


@compiled
def rms_rows(residual: Array, rms: Array) -> None:
    """Fill ``rms`` (n,) with the root mean square of the bands (n, D) that are not NaN."""
    for n in range(residual.shape[0]):
        total, count = 0.0, 0
        for d in range(residual.shape[1]):
            if not np.isnan(residual[n, d]):
                total += residual[n, d] * residual[n, d]
                count += 1
        rms[n] = np.sqrt(total / count) if count else np.nan


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


FAINT = 1e-5
"""Weight below which the softplus of a component's parameter is the greater of it and zero."""
PRODUCT = 8
"""Variances, relative to the component's own, that are multiplied before one logarithm is taken."""


@summing
def precision_row(own: Array, added: Array, valid: Array, scale: float, precision: Array) -> float:
    """Fill ``precision`` (D,) with valid / (own + added); the log determinant of the valid variances over ``scale``.

    ``added`` is (D,) or (1,).
    """
    n_bands = len(own)
    logs = 0.0
    for start in range(0, n_bands, PRODUCT):
        factor = 1.0
        for d in range(start, min(start + PRODUCT, n_bands)):
            variance = own[d] + (added[d] if len(added) > 1 else added[0])
            precision[d] = valid[d] / variance
            factor *= variance / scale if valid[d] > 0.0 else 1.0
        logs += np.log(factor)
    return logs


@summing
def normal_row(residual: Array, precision: Array, maps: Array, weighted: Array, normal: Array, right: Array) -> None:
    """Lower ``normal`` (r, r) = I + maps P maps' and ``right`` (r,) = maps P residual, for maps (r, D)."""
    n_bands = len(residual)
    for i in range(len(maps)):
        total = 0.0
        for d in range(n_bands):
            weighted[d] = precision[d] * maps[i, d]
            total += weighted[d] * residual[d]
        right[i] = total
        for j in range(i + 1):
            total = 1.0 if i == j else 0.0
            for d in range(n_bands):
                total += weighted[d] * maps[j, d]
            normal[i, j] = total


@summing
def distance_row(residual: Array, precision: Array, maps: Array, u: Array) -> float:
    """(residual - u maps) P (residual - u maps)' + u'u; ``residual`` is overwritten."""
    total = 0.0
    for i in range(len(maps)):
        total += u[i] * u[i]
        for d in range(len(residual)):
            residual[d] -= u[i] * maps[i, d]
    for d in range(len(residual)):
        total += precision[d] * residual[d] * residual[d]
    return total


class _Spectra(NamedTuple):
    """``values`` (n, D), zero where ``valid`` (n, D) is, else it is one; regressors (n, q); noise (n, D) or (n, 1)."""

    values: Array
    valid: Array
    regressors: Array
    added: Array


class _Component(NamedTuple):
    """What spectra should be, ``regression`` (q, D) of the regressors; variances (D,), their scale, (A C)' (r, D)."""

    regression: Array
    variances: Array
    scale: float
    maps: Array


class _Solved(NamedTuple):
    """``distance`` and ``log_det`` (n,), ``u`` (n, r) and ``inverse`` H^-1 (n, r, r)."""

    distance: Array
    log_det: Array
    u: Array
    inverse: Array


@compiled
def solve_rows(rows: _Spectra, component: _Component, solved: _Solved) -> None:
    """Fill what is ``solved`` of the rows under one component."""
    spectra, valid, x, added = rows
    regression, own, scale, maps = component
    distance, log_det, u, inverse = solved
    n_rows, n_bands = spectra.shape
    size = len(maps)
    residual, precision, weighted = np.empty(n_bands), np.empty(n_bands), np.empty(n_bands)
    lower = np.empty((size, size))
    for n in range(n_rows):
        for d in range(n_bands):
            residual[d] = spectra[n, d]
        for i in range(len(regression)):
            for d in range(n_bands):
                residual[d] -= x[n, i] * regression[i, d]
        logs = precision_row(own, added[n], valid[n], scale, precision)
        normal_row(residual, precision, maps, weighted, lower, u[n])
        factor(lower, lower)
        extra = 0.0
        for i in range(size):
            extra += 2.0 * np.log(lower[i, i])
        log_det[n] = logs + extra
        solve(lower, u[n], u[n])
        solve_identity(lower, inverse[n])
        distance[n] = distance_row(residual, precision, maps, u[n])


@dataclass(frozen=True)
class RowPosterior:
    """Like :class:`.posterior.Posterior`, with means and covariances of every row written out.

    Attributes
    ----------
    explicit : of K components over the r unknown dimensions. log_evidence : (n,) log p(y | t_S).
    squared : (n, K) squared Mahalanobis distances.
    """

    explicit: Mixture
    log_evidence: Array
    squared: Array

    @property
    def weights(self) -> Array:
        """(n, K), summing to one."""
        return self.explicit.weights

    def components(self) -> Mixture:
        """The mixture of all K components, in their order."""
        return self.explicit

    def factored(self) -> Factored:
        """The mixtures as the kernels of shared theta take them, without covariances."""
        n, n_components, size = self.explicit.means.shape
        unit = np.broadcast_to(np.eye(size), (n_components, size, size)).copy()
        latent = np.ascontiguousarray(self.explicit.means.transpose(0, 2, 1))
        return Factored(self.weights, latent, np.empty((n, 0)), unit, np.empty((n_components, size, 0)), unit)

    def moments(self, covariance: bool = False, size: int | None = None) -> tuple[Array, Array]:
        """See :meth:`specinvert.gllim.posterior.posterior.Posterior.moments`."""
        mean, spread = self.mixture(size).moments()
        return mean, spread if covariance else np.diagonal(spread, axis1=1, axis2=2)

    def mixture(self, size: int | None = None, rows: Any = slice(None)) -> Mixture:
        """The mixture of the first ``size`` unknown dimensions."""
        mixture = self.explicit.select(rows)
        return Mixture(mixture.weights, mixture.means[:, :, :size], mixture.covariances[:, :, :size, :size])

    def distances(self, rows: Any = slice(None)) -> Array:
        """Squared Mahalanobis distances (n, K) of the spectra to the components, given what is known."""
        return self.squared[rows]

    def heaviest(self) -> tuple[Array, Array]:
        """See :meth:`specinvert.gllim.posterior.posterior.Posterior.heaviest`."""
        rows, top = np.arange(len(self.weights)), self.weights.argmax(axis=1)
        return self.weights[rows, top], self.squared[rows, top]


def row_posterior(theta: GLLiMParameters, prior: Prior, spectra: Array, added: Array, known: Array) -> RowPosterior:
    """Posteriors of spectra (n, D), NaN where missing, with noise variances ``added`` (n, D) or (n, 1).

    ``known`` (n, s) are the values of the prior's known parameters. With a full or block Sigma spectra are turned to
    the eigenvectors of each Sigma_k: no band may be missing and ``added`` must be (n, 1).
    """
    n, size, n_components = len(spectra), len(prior.unknown), theta.n_components
    finite = np.isfinite(spectra)
    shift = theta.pi @ theta.centres()
    values, valid, x = np.where(finite, spectra - shift, 0.0), finite.astype(np.float64), prior.regressors(known)
    n_valid = finite.sum(axis=1)
    root = np.linalg.cholesky(prior.covariance)
    log_prior = prior.log_weights(theta, known)
    log_joint, squared = log_prior.copy(), np.empty((n, n_components))
    covariances = np.empty((n, n_components, size, size))
    means = np.einsum("krq,nq->nkr", prior.mean, x)
    distance, log_det, u, inverse = np.empty(n), np.empty(n), np.empty((n, size)), np.empty((n, size, size))
    for k, (own, turn) in enumerate(theta.structure.axes(theta.Sigma, theta.n_bands)):
        regression = prior.regression[k].T.copy()
        regression[-1] -= shift
        maps = root[k].T @ prior.maps[k].T
        turned = values
        if turn is not None:
            turned, regression, maps = turn(values), turn(regression), turn(maps)
        scale = float(np.exp(np.log(own).mean()))
        component = _Component(regression, own, scale, maps)
        solve_rows(_Spectra(turned, valid, x, added), component, _Solved(distance, log_det, u, inverse))
        log_joint[:, k] -= 0.5 * (log_det + n_valid * (np.log(scale) + LOG_2PI) + distance)
        squared[:, k] = distance
        means[:, k] += u @ root[k].T
        covariances[:, k] = root[k] @ inverse @ root[k].T
    total = np.empty(n)
    normalize_rows(log_joint, total)
    return RowPosterior(Mixture(log_joint, means, covariances), total - log_sum(log_prior), squared)
