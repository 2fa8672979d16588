"""Observation noise beyond what training had, added to Sigma."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .arrays import Array
from .covariance import Block
from .parameters import GLLiMParameters


def with_noise(theta: GLLiMParameters, noise: Array) -> GLLiMParameters:
    """Theta of spectra with independent noise of covariance ``noise``: a variance (), variances (D,) or (D, D).

    The structure of Sigma is the least that holds the sum: iso stays iso under one variance for all bands, becomes
    diag under a variance a band, blocks stay blocks, and anything becomes full under a covariance.
    """
    noise = np.asarray(noise, dtype=np.float64)
    name = theta.constraints.sigma
    if noise.ndim == 2 or name == "full":
        dense = noise if noise.ndim == 2 else noise * np.eye(theta.n_bands)
        full = theta.with_full_noise()
        return replace(full, Sigma=full.Sigma + dense)
    if name == "iso" and noise.ndim == 0:
        return replace(theta, Sigma=theta.Sigma + noise)
    if isinstance(theta.structure, Block):
        structure = theta.structure
        own = np.where(structure.row == structure.column, np.broadcast_to(noise, theta.n_bands)[structure.row], 0.0)
        return replace(theta, Sigma=theta.Sigma + own)
    compact = theta.Sigma[:, None] if name == "iso" else theta.Sigma
    sigma = np.broadcast_to(compact + noise, (theta.n_components, theta.n_bands)).copy()
    return replace(theta, Sigma=sigma, constraints=replace(theta.constraints, sigma="diag"))
