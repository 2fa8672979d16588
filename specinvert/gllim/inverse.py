"""The inverse regression, from parameters and latents to the spectra expected for them (eq. JGMM_forward_exp)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array
from .kernels import normalize_rows, prior_rows
from .parameters import GLLiMParameters

BLOCK_ROWS = 768
"""Spectra a matrix product."""


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
