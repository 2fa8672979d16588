"""The forward regression: the Gaussian-mixture posterior of parameters and latents given spectra.

Equations GLLiMtoGLLimStar and JGMM_inverse_map, with Gamma*_k never formed: L x L systems only. Missing bands (NaN) are
marginalised exactly by dropping their rows of A, b and Sigma. The inverse regression (JGMM_forward_exp) is here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from .covariance import Array, ResidualProducts
from .kernels import mixture_moments, normalize_rows
from .parameters import GLLiMParameters
from .statistics import LOG_2PI, log_joint, update_prior

BLOCK_ROWS = 192
"""Spectra a block: always as many, the last block padded. BLAS rounds by the shape of a product and by the place of a
row in the tiles of its kernels (16, 24 or 48 rows), and expanded squares amplify that: so, with BLAS in one thread, a
spectrum's posterior has the same bits in whatever company it comes."""


@dataclass(frozen=True)
class Posterior:
    """The mixture p(x | y) of n spectra, x = [t; w] (eq. JGMM_inverse_map).

    Component k of spectrum n has mean ``prior_mean[k] + root_k latent[n, :, k]`` and covariance Sigma*_k.

    Attributes
    ----------
    weights : (n, K), summing to one.
    latent : (n, L, K), root : (K, L, L) lower triangular, prior_mean : (K, L).
    covariance : (K, L, L) Sigma*_k, the same for all spectra.
    log_evidence : (n,) log p(y).
    """

    weights: Array
    latent: Array
    root: Array
    prior_mean: Array
    covariance: Array
    log_evidence: Array

    def means(self) -> Array:
        """Means of the components (n, K, L)."""
        return self.prior_mean + np.einsum("klm,nmk->nkl", self.root, self.latent)

    def moments(self, covariance: bool = False) -> tuple[Array, Array]:
        """Posterior mean (n, L), eq. JGMM_inverse_exp, with variances (n, L) or the covariance (n, L, L)."""
        n, size = self.latent.shape[:2]
        mean = np.empty((n, size))
        spread = np.empty((n, size, size if covariance else 1))
        mixture_moments(self.weights, self.latent, self.root, self.prior_mean, self.covariance, mean, spread)
        return mean, spread if covariance else spread[:, :, 0]


@dataclass(frozen=True)
class ForwardTerms:
    """Theta, prepared for log p(y) and the posterior of complete spectra."""

    products: ResidualProducts
    shift: Array
    prior_mean: Array
    covariance: Array
    root: Array
    log_constant: Array

    @classmethod
    def of(cls, theta: GLLiMParameters) -> ForwardTerms:
        """Prepare theta*, the spectra being shifted to their mean under the model."""
        centres = np.einsum("kdl,kl->kd", theta.A, theta.c) + theta.b
        shift = theta.pi @ centres
        structure = theta.structure
        information = theta.A.transpose(0, 2, 1) @ structure.solve(theta.Sigma, theta.A)
        covariance, root, log_det = update_prior(theta.Gamma, information)
        log_det = log_det + structure.log_det(theta.Sigma, theta.n_bands)
        return cls(
            products=structure.residual_products(theta.Sigma, (centres - shift)[:, :, None], theta.A @ root),
            shift=shift,
            prior_mean=theta.c,
            covariance=covariance,
            root=root,
            log_constant=np.log(theta.pi) - 0.5 * (log_det + theta.n_bands * LOG_2PI),
        )

    def posterior(self, spectra: Array) -> Posterior:
        """Posterior of at most :data:`BLOCK_ROWS` spectra (n, D) without NaN."""
        n = len(spectra)
        shifted = np.zeros((BLOCK_ROWS, len(self.shift)))
        np.subtract(spectra, self.shift, out=shifted[:n], dtype=np.float64)
        nothing = np.empty((BLOCK_ROWS, 0))
        no_centre, no_whitening = np.empty((0, len(self.log_constant))), np.empty((0, 0, len(self.log_constant)))
        weights, latent = log_joint(
            self.products, shifted, np.ones((BLOCK_ROWS, 1)), nothing, no_centre, no_whitening, self.log_constant
        )
        weights, latent = weights[:n], latent[:n]
        log_evidence = np.empty(n)
        normalize_rows(weights, log_evidence)
        return Posterior(weights, latent, self.root, self.prior_mean, self.covariance, log_evidence)


def posterior_blocks(
    theta: GLLiMParameters, spectra: Array
) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.intp]], Posterior]]:
    """Posteriors of spectra (n, D) in row blocks: (rows, their posterior).

    Non-finite bands are missing; rows that miss the same bands share theta. Rows without a band are in no block.
    """
    for rows, bands in band_patterns(spectra):
        complete = len(bands) == theta.n_bands
        terms = ForwardTerms.of(theta if complete else theta.select_bands(bands))
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            values = spectra[block] if complete else spectra[np.ix_(block, bands)]
            yield block, terms.posterior(values)


def band_patterns(
    spectra: Array,
) -> Iterator[tuple[np.ndarray[tuple[int], np.dtype[np.intp]], np.ndarray[tuple[int], np.dtype[np.intp]]]]:
    """Rows that share a set of valid bands, and those bands; rows without a valid band are left out."""
    valid = np.isfinite(spectra)
    count = valid.sum(axis=1)
    every = np.arange(spectra.shape[1])
    complete = np.flatnonzero(count == spectra.shape[1])
    if len(complete):
        yield complete, every
    partial = np.flatnonzero((count > 0) & (count < spectra.shape[1]))
    if len(partial) == 0:
        return
    packed = np.packbits(valid[partial], axis=1)
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    for pattern, stop in enumerate(ends):
        start = ends[pattern - 1] if pattern else 0
        yield partial[order[start:stop]], every[valid[partial[first[pattern]]]]


def inverse_regression(theta: GLLiMParameters, parameters: Array, latent: Array | None = None) -> Array:
    """Spectra (n, D) expected for parameters (n, L_t) and latents (n, L_w), eq. JGMM_forward_exp.

    Without ``latent`` each component uses its prior mean c_w, the expectation given the parameters alone.
    """
    n_t = theta.n_parameters
    known = parameters if latent is None else np.concatenate([parameters, latent], axis=1)
    size = known.shape[1]
    root = np.linalg.cholesky(theta.Gamma[:, :size, :size])
    log_det = 2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
    gaps = (known[:, None, :] - theta.c[:, :size]).transpose(1, 0, 2)
    whitened = (gaps @ np.linalg.inv(root).transpose(0, 2, 1)).transpose(1, 0, 2)
    log_weights = np.log(theta.pi) - 0.5 * (log_det + np.einsum("nkl,nkl->nk", whitened, whitened))
    weights = softmax(log_weights, axis=1)
    offset = theta.b
    if latent is None:
        offset = offset + np.einsum("kdl,kl->kd", theta.A[:, :, n_t:], theta.c[:, n_t:])
    spectra = weights @ offset
    for k in range(theta.n_components):
        spectra += weights[:, k : k + 1] * (known @ theta.A[k, :, :size].T)
    return np.asarray(spectra)
