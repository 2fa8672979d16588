"""Parts of the log-likelihood that several wings share."""

from __future__ import annotations

import numpy as np

from ..core import Array
from .covariance import Structure
from .parameters import GLLiMParameters
from .residuals import Basis


def update_prior(structure: Structure, noise: Array, maps: Array, covariance: Array) -> tuple[Basis, Array, Array]:
    """What observing ``A (x - c) + noise`` tells of x ~ N(c, Gamma): a basis, ``root`` (K, L, L), ``log|I + Gamma H|``.

    With L L' = Gamma and [Sigma^-1/2 A L; I] = Q R, R lower triangular, the basis is Q and root = L R^-1: x has
    posterior covariance root root' and mean c + root Q_upper' z, z the whitened residual. Woodbury's H = A' Sigma^-1 A
    is not formed: it squares the condition, and distances lose all digits where noise is 1e-5 of what x explains.
    """
    size = maps.shape[2]
    prior = np.linalg.cholesky(covariance)
    identity = np.broadcast_to(np.eye(size), covariance.shape)
    stacked = np.concatenate([structure.whiten(noise, maps @ prior), identity], axis=1)
    q, r = np.linalg.qr(stacked[:, :, ::-1])
    q, r = q[:, :, ::-1], r[:, ::-1, ::-1]
    log_det = 2.0 * np.log(np.abs(np.diagonal(r, axis1=1, axis2=2))).sum(axis=1)
    root = np.tril(prior @ np.linalg.inv(r))
    return Basis(np.ascontiguousarray(q[:, : maps.shape[1]]), q[:, maps.shape[1] :]), root, log_det


def mean_square(theta: GLLiMParameters) -> Array:
    """Mean square (D,) about the origin of the spectra that theta explains, noise left out."""
    return np.asarray(theta.pi @ (theta.centres() ** 2 + np.einsum("kdl,kdl->kd", theta.A @ theta.Gamma, theta.A)))
