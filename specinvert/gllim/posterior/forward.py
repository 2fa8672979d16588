"""Theta prepared for both regressions: spectra from parameters and latents, and the posterior of these from spectra.

The inverse regression is eq. JGMM_forward_exp, the forward one eqs. GLLiMtoGLLimStar and JGMM_inverse_map, where
Gamma*_k is never formed: L x L systems only. Parameters that are known at inversion condition each component:
x = [t_S; x_R] with t_S known has x_R ~ N(c_R + B (t_S - c_S), Gamma_R|S), B = Gamma_RS Gamma_SS^-1, and weights that
count the density of t_S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import LOG_2PI, Array, Workspace, centre_rows, normalize_rows, prior_rows
from ..model import TILE_ROWS, GLLiMParameters, LogJoint, update_prior

BLOCK_ROWS = 4 * TILE_ROWS
"""Spectra a block: with BLAS in one thread, a spectrum's posterior has the same bits in whatever company it comes."""


@dataclass(frozen=True)
class InverseTerms:
    """Theta, prepared for the inverse regression from the first m entries of x = [t; w].

    Attributes
    ----------
    centre (m, K), whitening (m, m, K), log_constant (K,) : weights and densities of x in each component.
    maps : (K (1 + m), D), offset and maps to spectra.
    """

    centre: Array
    whitening: Array
    log_constant: Array
    maps: Array

    @classmethod
    def of(cls, theta: GLLiMParameters, size: int) -> InverseTerms:
        """From the first ``size`` entries; the others have their prior mean."""
        root = np.linalg.cholesky(theta.Gamma[:, :size, :size])
        log_det = 2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        offset = theta.b + np.einsum("kdl,kl->kd", theta.A[:, :, size:], theta.c[:, size:])
        return cls(
            centre=theta.c[:, :size].T.copy(),
            whitening=np.linalg.inv(root).transpose(1, 2, 0).copy(),
            log_constant=np.log(theta.pi) - 0.5 * log_det,
            maps=np.concatenate([offset[:, None], theta.A[:, :, :size].transpose(0, 2, 1)], axis=1).reshape(
                -1, theta.n_bands
            ),
        )

    def spectra(self, x: Array) -> Array:
        """(n, D) expected for ``x`` (n, m), eq. JGMM_forward_exp."""
        spectra = np.empty((len(x), self.maps.shape[1]))
        for start in range(0, len(x), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            known = np.ascontiguousarray(x[rows], dtype=np.float64)
            weights = np.empty((len(known), len(self.log_constant)))
            prior_rows(known, self.centre, self.whitening, self.log_constant, weights)
            normalize_rows(weights, np.empty(len(known)))
            regressors = np.concatenate([np.ones((len(known), 1)), known], axis=1)
            weighted = weights[:, :, None] * regressors[:, None]
            np.matmul(weighted.reshape(len(known), -1), self.maps, out=spectra[rows])
        return spectra


def inverse_regression(theta: GLLiMParameters, parameters: Array, latent: Array | None = None) -> Array:
    """Spectra (n, D) expected for parameters (n, L_t) and latents (n, L_w).

    Without ``latent`` each component uses its prior mean c_w, the expectation given the parameters alone.
    """
    x = parameters if latent is None else np.concatenate([parameters, latent], axis=1)
    return InverseTerms.of(theta, x.shape[1]).spectra(x)


KEPT = 32
"""Prepared patterns of bands, noise and known parameters that are kept for the next block."""


@dataclass(frozen=True)
class Prior:
    """What theta says of the unknown x_R, (K, r), before a spectrum: affine in the known t_S, S of size s.

    Attributes
    ----------
    known, unknown : indices of S and R in x.
    origin : (s,) about which t_S counts, its prior mean.
    mean : (K, r, s + 1) of x_R given the regressors [t_S - origin; 1], ``covariance`` (K, r, r) its Gamma_R|S.
    maps : (K, D, r) from x_R to spectra. regression : (K, D, s + 1) spectra expected given the regressors.
    centre (s, K), whitening (s, s, K), log_det (K,) : density of t_S in each component.
    """

    known: NDArray[np.intp]
    unknown: NDArray[np.intp]
    origin: Array
    mean: Array
    covariance: Array
    maps: Array
    regression: Array
    centre: Array
    whitening: Array
    log_det: Array

    @classmethod
    def of(cls, theta: GLLiMParameters, known: Sequence[int] = ()) -> Prior:
        """Condition theta on the parameters ``known``, indices below L_t."""
        s = np.array(sorted(known), dtype=np.intp)
        r = np.setdiff1d(np.arange(theta.A.shape[2]), s)
        root = np.linalg.cholesky(theta.Gamma[:, s[:, None], s])
        inverse = np.linalg.inv(root)
        whitened = inverse @ theta.Gamma[:, s[:, None], r]
        slope = whitened.transpose(0, 2, 1) @ inverse
        origin = theta.pi @ theta.c[:, s]
        intercept = theta.c[:, r] + np.einsum("krs,ks->kr", slope, origin - theta.c[:, s])
        mean = np.concatenate([slope, intercept[:, :, None]], axis=2)
        regression = theta.A[:, :, r] @ mean
        regression[:, :, :-1] += theta.A[:, :, s]
        regression[:, :, -1] += theta.b + theta.A[:, :, s] @ origin
        return cls(
            known=s,
            unknown=r,
            origin=origin,
            mean=mean,
            covariance=theta.Gamma[:, r[:, None], r] - whitened.transpose(0, 2, 1) @ whitened,
            maps=theta.A[:, :, r],
            regression=regression,
            centre=np.ascontiguousarray(theta.c[:, s].T),
            whitening=np.ascontiguousarray(inverse.transpose(1, 2, 0)),
            log_det=2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1),
        )

    def regressors(self, known: Array) -> Array:
        """[t_S - origin; 1] of rows of ``known`` (n, s)."""
        return np.concatenate([known - self.origin, np.ones((len(known), 1))], axis=1)

    def log_weights(self, theta: GLLiMParameters, known: Array) -> Array:
        """log pi_k p(t_S | k) (n, K)."""
        constant = np.log(theta.pi) - 0.5 * (self.log_det + len(self.known) * LOG_2PI)
        weights = np.empty((len(known), theta.n_components))
        prior_rows(known, self.centre, self.whitening, constant, weights)
        return weights


def log_sum(log_weights: Array) -> Array:
    """Log-sum-exp of rows."""
    total = np.empty(len(log_weights))
    normalize_rows(log_weights.copy(), total)
    return total


@dataclass(frozen=True)
class ForwardTerms:
    """Theta, prepared for log p(y, t_S) and the posterior of x_R given complete spectra and t_S.

    Attributes
    ----------
    theta : as given.
    residuals : log-densities of y less what the known and the prior mean explain, x_R integrated out.
    shift : (D,) mean spectrum under the model, subtracted from all spectra.
    covariance : (K, r, r) Sigma*_k of eq. GLLiMtoGLLimStar. root : (K, r, r) triangular root of it.
    log_constant : (K,) log normalisation of N(y; c*_k, Gamma*_k), eq. JGMM_inverse_map.
    """

    theta: GLLiMParameters
    prior: Prior
    residuals: LogJoint
    shift: Array
    covariance: Array
    root: Array
    log_constant: Array
    _kept: dict[Any, ForwardTerms] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, theta: GLLiMParameters, known: Sequence[int] = ()) -> ForwardTerms:
        """Prepare theta*, given the parameters ``known``."""
        prior = Prior.of(theta, known)
        shift = theta.pi @ theta.centres()  # mean of the c*_k of eq. GLLiMtoGLLimStar
        structure = theta.structure
        basis, root, log_det = update_prior(structure, theta.Sigma, prior.maps, prior.covariance)
        expected = replace(theta, b=theta.b - shift).expected(prior.known, prior.origin)
        log_det = log_det + structure.log_det(theta.Sigma, theta.n_bands)  # of Gamma*_k = Sigma_k + A_k Gamma_k A_k'
        regression = prior.regression.copy()
        regression[:, :, -1] -= shift
        return cls(
            theta=theta,
            prior=prior,
            residuals=structure.log_joint(theta.Sigma, regression, basis, expected),
            shift=shift,
            # Sigma*_k = (Gamma_k^-1 + A_k' Sigma_k^-1 A_k)^-1, eq. GLLiMtoGLLimStar
            covariance=root @ root.transpose(0, 2, 1),
            root=root,
            log_constant=-0.5 * (log_det + theta.n_bands * LOG_2PI),
        )

    @cached_property
    def inverse(self) -> InverseTerms:
        """Theta prepared for the inverse regression from all of x."""
        return InverseTerms.of(self.theta, self.theta.A.shape[2])

    def derived(self, bands: NDArray[np.intp], known: tuple[int, ...], noise: Array | None) -> ForwardTerms:
        """The terms of some bands, given the parameters ``known``, with noise variances added; kept a while.

        ``noise`` is (1,), or (D,) for all bands.
        """
        key = (bands.tobytes(), known, None if noise is None else noise.tobytes())
        terms = self._kept.get(key)
        if terms is None:
            theta = self.theta
            if noise is not None:
                theta = theta.with_noise(noise[0] if len(noise) == 1 else noise)
            terms = ForwardTerms.of(theta.select_bands(bands), known)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[key] = terms
        return terms

    def centre(self, spectra: Array, workspace: Workspace) -> tuple[Array, Array]:
        """Spectra about the model's mean in float64, and their squares (n,), not finite where bands are missing.

        Rows of zeros fill the last tile.
        """
        n, n_bands = spectra.shape
        centred, squares = workspace.array("centred", -(-n // TILE_ROWS) * TILE_ROWS, n_bands), np.empty(n)
        centred[n:] = 0.0
        centre_rows(spectra, self.shift, centred, squares)
        return centred, squares
