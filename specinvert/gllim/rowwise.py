"""The posterior of spectra that each have noise or missing bands of their own: small systems for every row.

Equation JGMM_inverse_map row by row. With P_n the inverse of Sigma_k plus a row's own noise on its valid bands,
residual r = y - b_k - A_k c_k and C C' = Gamma_k: x has posterior mean c_k + C u, u = H^-1 C' A' P r, and covariance
C H^-1 C', H = I + C' A' P A C; the squared distance is (r - A C u)' P (r - A C u) + u'u. No square is expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import Array
from .cholesky import solve
from .covariance import Bands, Correlated
from .forward import Prior, log_sum
from .kernels import compiled, normalize_rows, summing
from .mixture import Mixture
from .parameters import GLLiMParameters
from .statistics import LOG_2PI

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


@compiled
def factor_row(lower: Array) -> float:
    """Cholesky factor of a symmetric matrix (r, r) in its own lower half; the log determinant of the matrix."""
    logs = 0.0
    for i in range(len(lower)):
        for j in range(i + 1):
            total = lower[i, j]
            for m in range(j):
                total -= lower[i, m] * lower[j, m]
            lower[i, j] = np.sqrt(total) if i == j else total / lower[j, j]
        logs += 2.0 * np.log(lower[i, i])
    return logs


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


@compiled
def solve_rows(
    spectra: Array,
    valid: Array,
    x: Array,
    regression: Array,
    own: Array,
    added: Array,
    scale: float,
    maps: Array,
    distance: Array,
    log_det: Array,
    u: Array,
    inverse: Array,
) -> None:
    """Fill ``distance`` and ``log_det`` (n,), ``u`` (n, r) and ``inverse`` H^-1 (n, r, r) for one component.

    ``spectra`` (n, D) are zero where ``valid`` (n, D) is, else it is one; the ``regression`` (q, D) of ``x`` (n, q) is
    what they should be. Variances are ``own`` (D,) plus ``added`` (n, D) or (n, 1), ``maps`` (A C)' (r, D).
    """
    n_rows, n_bands = spectra.shape
    size = len(maps)
    residual, precision, weighted = np.empty(n_bands), np.empty(n_bands), np.empty(n_bands)
    lower = np.empty((size, size))
    for n in range(n_rows):
        for d in range(n_bands):
            residual[d] = spectra[n, d]
        for i in range(len(regression)):
            factor = x[n, i]
            for d in range(n_bands):
                residual[d] -= factor * regression[i, d]
        logs = precision_row(own, added[n], valid[n], scale, precision)
        normal_row(residual, precision, maps, weighted, lower, u[n])
        log_det[n] = logs + factor_row(lower)
        solve(lower, u[n], u[n])
        for i in range(size):
            for j in range(size):
                inverse[n, i, j] = 1.0 if i == j else 0.0
            solve(lower, inverse[n, i], inverse[n, i])
        distance[n] = distance_row(residual, precision, maps, u[n])


@dataclass(frozen=True)
class RowPosterior:
    """Like :class:`specinvert.gllim.posterior.Posterior`, with means and covariances of every row written out.

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

    def moments(self, covariance: bool = False, size: int | None = None) -> tuple[Array, Array]:
        """See :meth:`specinvert.gllim.posterior.Posterior.moments`."""
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
        """See :meth:`specinvert.gllim.posterior.Posterior.heaviest`."""
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
    for k, (own, turn) in enumerate(_variances(theta)):
        regression = prior.regression[k].T.copy()
        regression[-1] -= shift
        maps = root[k].T @ prior.maps[k].T
        turned = values
        if turn is not None:
            turned, regression, maps = turn(values), turn(regression), turn(maps)
        scale = float(np.exp(np.log(own).mean()))
        solve_rows(turned, valid, x, regression, own, added, scale, maps, distance, log_det, u, inverse)
        log_joint[:, k] -= 0.5 * (log_det + n_valid * (np.log(scale) + LOG_2PI) + distance)
        squared[:, k] = distance
        means[:, k] += u @ root[k].T
        covariances[:, k] = root[k] @ inverse @ root[k].T
    total = np.empty(n)
    normalize_rows(log_joint, total)
    return RowPosterior(Mixture(log_joint, means, covariances), total - log_sum(log_prior), squared)


Turn = Callable[[Array], Array]


def _variances(theta: GLLiMParameters) -> Iterator[tuple[Array, Turn | None]]:
    """Variances (D,) of each component, and what turns rows (n, D) to the axes on which they are those of Sigma."""
    structure = theta.structure
    for sigma in theta.Sigma:
        if isinstance(structure, Correlated):
            yield _turned([(bands, own[0]) for bands, own in structure.split(sigma[None])], theta.n_bands)
        else:
            yield np.broadcast_to(sigma, (theta.n_bands,)).copy(), None


def _turned(parts: Sequence[tuple[Bands, Array]], n_bands: int) -> tuple[Array, Turn]:
    """Eigenvalues (D,) of a covariance given in its blocks, and what turns rows to their eigenvectors."""
    found = [(bands, *np.linalg.eigh(own)) for bands, own in parts]
    variances = np.empty(n_bands)
    for bands, values, _ in found:
        variances[bands] = values

    def turn(rows: Array) -> Array:
        turned = np.empty(rows.shape)
        for bands, _, vectors in found:
            turned[:, bands] = rows[:, bands] @ vectors
        return turned

    return variances, turn
