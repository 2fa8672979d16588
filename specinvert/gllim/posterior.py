"""The forward regression: the Gaussian-mixture posterior of parameters and latents given spectra.

Equations GLLiMtoGLLimStar and JGMM_inverse_map, with Gamma*_k never formed: L x L systems only. Missing bands (NaN) are
marginalised exactly by dropping their rows of A, b and Sigma. The inverse regression (JGMM_forward_exp) is here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .arrays import Array
from .kernels import NEGLIGIBLE, centre_rows, mixture_moments, normalize_rows
from .parameters import GLLiMParameters
from .residuals import TILE_ROWS, LogJoint
from .statistics import LOG_2PI, mean_square, update_prior
from .workspace import Workspace

BLOCK_ROWS = 4 * TILE_ROWS
"""Spectra a block: with BLAS in one thread, a spectrum's posterior has the same bits in whatever company it comes."""


@dataclass(frozen=True)
class Posterior:
    """The mixture p(x | y) of n spectra, x = [t; w] (eq. JGMM_inverse_map).

    Component k of spectrum n has mean ``prior_mean[k] + root_k latent[n, :, k]`` and covariance Sigma*_k.

    Attributes
    ----------
    weights : (n, K), summing to one; below 1e-18 they are zero.
    latent : (n, L or more, K), the first L of use; less exact where the weight is zero, unless every component was
        asked for.
    root : (K, L, L) lower triangular, prior_mean : (K, L).
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
        return self.prior_mean + np.einsum("klm,nmk->nkl", self.root, self.latent[:, : self.root.shape[1]])

    def moments(self, covariance: bool = False, size: int | None = None) -> tuple[Array, Array]:
        """Posterior mean (n, L), eq. JGMM_inverse_exp, with variances (n, L) or the covariance (n, L, L).

        Of the first ``size`` parameters and latents, where it is given.
        """
        n, size = len(self.weights), self.root.shape[1] if size is None else size
        mean = np.empty((n, size))
        spread = np.empty((n, size, size if covariance else 1))
        mixture_moments(self.weights, self.latent, self.root, self.prior_mean, self.covariance, mean, spread)
        return mean, spread if covariance else spread[:, :, 0]


@dataclass(frozen=True)
class ForwardTerms:
    """Theta, prepared for log p(y) and the posterior of complete spectra."""

    theta: GLLiMParameters
    residuals: LogJoint
    shift: Array
    prior_mean: Array
    covariance: Array
    root: Array
    log_constant: Array

    @classmethod
    def of(cls, theta: GLLiMParameters) -> ForwardTerms:
        """Prepare theta*, the spectra being shifted to their mean under the model."""
        centres = theta.centres()
        shift = theta.pi @ centres
        structure = theta.structure
        basis, root, log_det = update_prior(structure, theta.Sigma, theta.A, theta.Gamma)
        signal = mean_square(replace(theta, b=theta.b - shift))
        log_det = log_det + structure.log_det(theta.Sigma, theta.n_bands)
        return cls(
            theta=theta,
            residuals=structure.log_joint(theta.Sigma, (centres - shift)[:, :, None], basis, signal),
            shift=shift,
            prior_mean=theta.c,
            covariance=root @ root.transpose(0, 2, 1),
            root=root,
            log_constant=np.log(theta.pi) - 0.5 * (log_det + theta.n_bands * LOG_2PI),
        )

    def centre(self, spectra: Array, workspace: Workspace) -> tuple[Array, Array]:
        """Spectra about the model's mean in float64, and their squares (n,), not finite where bands are missing.

        Rows of zeros fill the last tile.
        """
        n, n_bands = spectra.shape
        centred, squares = workspace.array("centred", -(-n // TILE_ROWS) * TILE_ROWS, n_bands), np.empty(n)
        centred[n:] = 0.0
        centre_rows(spectra, self.shift, centred, squares)
        return centred, squares

    def posterior(self, spectra: Array, n: int, reach: float, workspace: Workspace) -> Posterior:
        """Posterior of the first n of whole tiles of centred spectra without NaN."""
        weights = workspace.array("densities", len(spectra), len(self.log_constant))
        weights[:] = self.log_constant
        latent = self.residuals(spectra, np.ones((len(spectra), 1)), weights, reach, workspace)
        weights, latent = weights[:n], latent[:n]
        log_evidence = np.empty(n)
        normalize_rows(weights, log_evidence)
        return Posterior(weights, latent, self.root, self.prior_mean, self.covariance, log_evidence)


@dataclass(frozen=True)
class Block:
    """The posterior of some rows, a slice or indices, that have all bands (``complete``) or miss the same ones.

    Its arrays hold until the next block is asked for.
    """

    rows: slice | NDArray[np.intp]
    complete: bool
    posterior: Posterior


def posterior_blocks(terms: ForwardTerms, spectra: Array, every_component: bool = False) -> Iterator[Block]:
    """Posteriors of spectra (n, D) in blocks of rows.

    Non-finite bands are missing; rows that miss the same bands share theta. Rows without a band are in no block.
    ``every_component`` sets the latents of components of weight zero too.
    """
    reach = np.inf if every_component else NEGLIGIBLE
    holed, workspace = [], Workspace()
    for start in range(0, len(spectra), BLOCK_ROWS):
        values = spectra[start : start + BLOCK_ROWS]
        centred, squares = terms.centre(values, workspace)
        finite = np.isfinite(squares)
        if finite.all():
            yield Block(
                slice(start, start + len(values)), True, terms.posterior(centred, len(values), reach, workspace)
            )
            continue
        holed.append(start + np.flatnonzero(~finite))
        whole = np.flatnonzero(finite)
        if len(whole):
            centred, _ = terms.centre(values[whole], workspace)
            yield Block(start + whole, True, terms.posterior(centred, len(whole), reach, workspace))
    if holed:
        yield from _holed_blocks(terms.theta, spectra, np.concatenate(holed), reach, workspace)


def _holed_blocks(
    theta: GLLiMParameters, spectra: Array, holed: NDArray[np.intp], reach: float, workspace: Workspace
) -> Iterator[Block]:
    every = np.arange(theta.n_bands)
    for members, valid in band_patterns(np.isfinite(spectra[holed])):
        rows, bands = holed[members], every[valid]
        terms = ForwardTerms.of(theta.select_bands(bands))
        for start in range(0, len(rows), BLOCK_ROWS):
            block = rows[start : start + BLOCK_ROWS]
            centred, _ = terms.centre(spectra[np.ix_(block, bands)], workspace)
            yield Block(block, len(bands) == theta.n_bands, terms.posterior(centred, len(block), reach, workspace))


def band_patterns(valid: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.bool_]]]:
    """Rows of ``valid`` (n, D) that are alike, and their pattern (D,); rows without a valid band are left out."""
    packed = np.packbits(valid, axis=1)
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    for start, stop, example in zip([0, *ends[:-1]], ends, first, strict=True):
        if valid[example].any():
            yield order[start:stop], valid[example]


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
