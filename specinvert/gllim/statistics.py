"""The E-step, and the sums that are all an M-step needs of the data.

:class:`ConditionalTerms` prepares theta once an iteration; :func:`expectation` turns a row block into responsibilities
(eq. SOLVA_EZstep) and latent means (eq. SOLVA_EWstep3); :class:`SufficientStatistics` adds over blocks, chunks and
workers. All in the scaled units of :mod:`specinvert.gllim.scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import logsumexp

from .chunks import Chunk, block_rows
from .covariance import STRUCTURES, Array, ResidualProducts, Structure
from .parameters import GLLiMParameters
from .scaling import Scaling

LOG_2PI = float(np.log(2.0 * np.pi))


def whitened_prior(covariance: Array, information: Array) -> tuple[Array, Array]:
    """Posterior covariance ``(Gamma^-1 + H)^-1`` and ``log|I + Gamma H|``, for Gamma, H (K, L, L).

    By the square root of Gamma, ``B = I + L' H L``: stable, and Gamma may be singular.
    """
    root = np.linalg.cholesky(covariance)
    inner = np.linalg.cholesky(np.eye(covariance.shape[1]) + root.transpose(0, 2, 1) @ information @ root)
    half = np.linalg.solve(inner, root.transpose(0, 2, 1))
    log_det = 2.0 * np.log(np.diagonal(inner, axis1=1, axis2=2)).sum(axis=1)
    return half.transpose(0, 2, 1) @ half, log_det


@dataclass(frozen=True)
class ConditionalTerms:
    """Theta, prepared for the density of (y, t) and the posterior of w given y, t and k.

    Attributes
    ----------
    products : u' Sigma^-1 u and A_w' Sigma^-1 u for the residuals u = y - A_t t - b - A_w c_w.
    latent_mean : (K, L_w) c_w. latent_covariance : (K, L_w, L_w) S_w of eq. SOLVA_EWstep3.
    centre : (K, L_t) c_t. whitening : (K, L_t, L_t), inverse Cholesky factor of Gamma_t.
    log_constant : (K,) log pi_k and the normalisation of both densities.
    """

    products: ResidualProducts
    latent_mean: Array
    latent_covariance: Array
    centre: Array
    whitening: Array
    log_constant: Array

    @classmethod
    def of(cls, theta: GLLiMParameters) -> ConditionalTerms:
        """Prepare theta: Woodbury and the determinant lemma, L_w x L_w systems only."""
        n_bands, n_t, structure = theta.n_bands, theta.n_parameters, theta.structure
        maps_t, maps_w = theta.A[:, :, :n_t], theta.A[:, :, n_t:]
        latent_mean = theta.c[:, n_t:]
        intercept = theta.b + np.einsum("kdl,kl->kd", maps_w, latent_mean)
        information = maps_w.transpose(0, 2, 1) @ structure.solve(theta.Sigma, maps_w)
        latent_covariance, log_det_latent = whitened_prior(theta.Gamma[:, n_t:, n_t:], information)
        root = np.linalg.cholesky(theta.Gamma[:, :n_t, :n_t])
        log_det_t = 2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        log_det = structure.log_det(theta.Sigma, n_bands) + log_det_latent + log_det_t
        regression = np.concatenate([maps_t, intercept[:, :, None]], axis=2)
        return cls(
            products=structure.residual_products(theta.Sigma, regression, maps_w),
            latent_mean=latent_mean,
            latent_covariance=latent_covariance,
            centre=theta.c[:, :n_t],
            whitening=np.linalg.inv(root),
            log_constant=np.log(theta.pi) - 0.5 * (log_det + (n_bands + n_t) * LOG_2PI),
        )


def conditional_log_densities(terms: ConditionalTerms, spectra: Array, parameters: Array) -> tuple[Array, Array]:
    """Log of pi_k p(y_n, t_n | k) (n, K), and S_w A_w' Sigma^-1 u (n, K, L_w): the latent means about c_w."""
    ones = np.ones((len(spectra), 1))
    squares, projected = terms.products(spectra, np.concatenate([parameters, ones], axis=1))
    latent = apply_each(projected, terms.latent_covariance)
    explained = np.einsum("nkl,nkl->nk", latent, projected)
    whitened = apply_each(parameters[:, None, :] - terms.centre, terms.whitening.transpose(0, 2, 1))
    distance = squares - explained + np.einsum("nkl,nkl->nk", whitened, whitened)
    return terms.log_constant - 0.5 * distance, latent


def log_joint_density(theta: GLLiMParameters, spectra: Array, parameters: Array) -> Array:
    """Observed log-density log p(y_n, t_n) (n,) of data in the units of theta."""
    origin = theta.pi @ (np.einsum("kdl,kl->kd", theta.A, theta.c) + theta.b)
    n_t = theta.n_parameters
    scaling = Scaling(origin, np.ones_like(origin), theta.pi @ theta.c[:, :n_t], np.ones(n_t))
    terms = ConditionalTerms.of(scaling.inverse().to_user(theta))
    size = block_rows(theta.n_components * (theta.A.shape[2] + 1))
    densities = np.empty(len(spectra))
    for start in range(0, len(spectra), size):
        rows = slice(start, start + size)
        log_joint, _ = conditional_log_densities(terms, *scaling.apply(spectra[rows], parameters[rows]))
        densities[rows] = logsumexp(log_joint, axis=1)
    return densities


def apply_each(vectors: Array, matrices: Array) -> Array:
    """``vectors[n, k] @ matrices[k]`` for vectors (n, K, l) and matrices (K, l, m)."""
    return (vectors.transpose(1, 0, 2) @ matrices).transpose(1, 0, 2)


@dataclass(frozen=True)
class SufficientStatistics:
    """Sums over rows, weighted by the responsibilities, about the origin of the scaled units.

    Attributes
    ----------
    total : sum of the sample weights. log_likelihood : weighted sum of log p(y_n, t_n), scaled units.
    r : (K,). x : (K, L), xx : (K, L, L) with r_k S^x in it, y : (K, D), xy : (K, L, D).
    yy : second moments of the spectra in the compact form of the structure.
    """

    total: float
    log_likelihood: float
    r: Array
    x: Array
    xx: Array
    y: Array
    xy: Array
    yy: Array

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return SufficientStatistics(*sums)

    @classmethod
    def identity(cls, n_components: int, dimension: int, n_bands: int, sigma: str) -> SufficientStatistics:
        """The sum over no rows."""
        return cls(
            0.0,
            0.0,
            np.zeros(n_components),
            np.zeros((n_components, dimension)),
            np.zeros((n_components, dimension, dimension)),
            np.zeros((n_components, n_bands)),
            np.zeros((n_components, dimension, n_bands)),
            np.zeros(STRUCTURES[sigma].moment_shape(n_components, n_bands)),
        )

    @classmethod
    def weighted(
        cls, chunk: Chunk, weights: Array, x: Array, structure: Structure, log_likelihood: float = 0.0
    ) -> SufficientStatistics:
        """Sums of a chunk under weights (n, K) = sample weight times responsibility, with x (n, K, L)."""
        n, n_components, dimension = x.shape
        weighted_x = weights[:, :, None] * x
        stacked = np.concatenate([weights[:, :, None], weighted_x], axis=2)
        products = stacked.reshape(n, n_components * (dimension + 1)).T @ chunk.spectra
        products = products.reshape(n_components, dimension + 1, -1)
        return cls(
            total=float(chunk.weights.sum()),
            log_likelihood=log_likelihood,
            r=weights.sum(axis=0),
            x=weighted_x.sum(axis=0),
            xx=weighted_x.transpose(1, 2, 0) @ x.transpose(1, 0, 2),
            y=products[:, 0],
            xy=products[:, 1:],
            yy=structure.second_moments(chunk.spectra, weights),
        )

    def keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> SufficientStatistics:
        """The statistics of some components."""
        per_component = (getattr(self, f.name)[kept] for f in fields(self)[2:])
        return SufficientStatistics(self.total, self.log_likelihood, *per_component)


def expectation(terms: ConditionalTerms, structure: Structure, chunk: Chunk) -> SufficientStatistics:
    """E-W-step and E-Z-step on a chunk, as sums for the M-step in the given structure of Sigma."""
    log_joint, latent = conditional_log_densities(terms, chunk.spectra, chunk.parameters)
    log_density = np.asarray(logsumexp(log_joint, axis=1)) if len(chunk) else np.zeros(0)
    weights = np.exp(log_joint - log_density[:, None]) * chunk.weights[:, None]
    shape = (len(chunk), terms.centre.shape[0], terms.centre.shape[1])
    parameters = np.broadcast_to(chunk.parameters[:, None, :], shape)
    x = np.concatenate([parameters, terms.latent_mean + latent], axis=2)
    sums = SufficientStatistics.weighted(chunk, weights, x, structure, float(chunk.weights @ log_density))
    n_t = shape[2]
    sums.xx[:, n_t:, n_t:] += sums.r[:, None, None] * terms.latent_covariance
    return sums
