"""What a model says of a window of bands, given all others: the label-free twin of predicting parameters.

p(y) is the mixture of pi_k N(c*_k, Gamma*_k), eq. GLLiMtoGLLimStar; its conditional p(y_w | y_-w) is a mixture again,
of weights pi_k p(y_-w | k) and Gaussian conditionals. With precisions P_k = (Gamma*_k)^-1 and u = P_k (y - c*_k), the
conditional of component k has the covariance (P_ww)^-1 and the mean y_w - (P_ww)^-1 u_w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from ..core import LOG_2PI, Array, one_blas_thread
from ..model import GLLiMParameters
from .committee import member_shares

FEW_BANDS, FEW, MANY = 20, 4, 6
"""Bands below which there are four windows, not six."""
ROWS = 256
"""Spectra that are taken at a time."""


def windows(n_bands: int) -> list[NDArray[np.intp]]:
    """Bands in windows of equal size, in their order: four where there are fewer than twenty bands, else six."""
    count = min(FEW if n_bands < FEW_BANDS else MANY, n_bands)
    return [part.astype(np.intp) for part in np.array_split(np.arange(n_bands), count)]


@dataclass(frozen=True, eq=False)
class WindowPrediction:
    """What the other bands say of the m bands of a window of n spectra.

    Attributes
    ----------
    mean, variance : (n, m) moments of p(y_w | y_-w). log_density : (n,) of y_w under it.
    """

    mean: Array
    variance: Array
    log_density: Array


@dataclass(frozen=True, eq=False)
class SpectralMixture:
    """p(y) of one theta or of a committee: the mixture of all components, with dense covariances.

    Attributes
    ----------
    log_weights : (K,), means : (K, D), covariances : (K, D, D), of all components of all members.
    """

    log_weights: Array
    means: Array
    covariances: Array

    @classmethod
    def of(cls, thetas: Sequence[GLLiMParameters], shares: Array | None = None) -> SpectralMixture:
        """Of members with weights ``shares`` (M,), None where all are the same."""
        weights = member_shares(len(thetas), shares)
        return cls(
            np.concatenate([np.log(t.pi) + np.log(share) for t, share in zip(thetas, weights, strict=True)]),
            np.concatenate([theta.centres() for theta in thetas]),
            np.concatenate([t.sigma_dense() + t.A @ t.Gamma @ t.A.transpose(0, 2, 1) for t in thetas]),
        )

    def predict(
        self, spectra: Array, bands: Sequence[NDArray[np.intp]], added: Array | None = None
    ) -> list[WindowPrediction]:
        """Each window of ``bands`` of complete spectra (n, D) from the other bands, ``added`` (D, D) to Gamma*_k."""
        n, (n_components, n_bands) = len(spectra), self.means.shape
        precisions = np.empty_like(self.covariances)
        log_dets = np.empty(n_components)
        inner: list[list[Array]] = [[] for _ in bands]
        for k, covariance in enumerate(self.covariances if added is None else self.covariances + added):
            root = np.linalg.inv(np.linalg.cholesky(covariance))
            precisions[k], log_dets[k] = root.T @ root, 2.0 * np.log(np.diagonal(root)).sum()
            for of_window, window in zip(inner, bands, strict=True):
                of_window.append(np.linalg.inv(precisions[k][np.ix_(window, window)]))
        made = [WindowPrediction(np.empty((n, len(w))), np.empty((n, len(w))), np.empty(n)) for w in bands]
        spreads = [np.stack(of_window) for of_window in inner]
        with one_blas_thread():
            for start in range(0, n, ROWS):
                rows = slice(start, start + ROWS)
                gaps = spectra[rows] - self.means[:, None]
                solved = gaps @ precisions
                whole = 0.5 * (log_dets[:, None] - (gaps * solved).sum(axis=2) - n_bands * LOG_2PI)
                for one, window, spread in zip(made, bands, spreads, strict=True):
                    own = solved[:, :, window]
                    left = own @ spread
                    log_det = np.linalg.slogdet(spread)[1]
                    density = -0.5 * (log_det[:, None] + (left * own).sum(axis=2) + len(window) * LOG_2PI)
                    others = self.log_weights[:, None] + whole - density
                    shares = softmax(others, axis=0)
                    gap = np.einsum("kn,knm->nm", shares, left)
                    one.mean[rows] = spectra[rows][:, window] - gap
                    within = shares.T @ np.diagonal(spread, axis1=1, axis2=2)
                    one.variance[rows] = within + np.einsum("kn,knm->nm", shares, left**2) - gap**2
                    one.log_density[rows] = logsumexp(self.log_weights[:, None] + whole, axis=0) - logsumexp(
                        others, axis=0
                    )
        return made
