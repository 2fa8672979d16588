"""The M-step: theta from sufficient statistics, M-GMM-step and M-mapping-step (eq. Ak_up to SOLVA_Sigmak).

Constraints, then tying with weights r_k / N, then the clip of ``reg_covar``; components that degenerate are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import Array
from .covariance import SINGULAR, STRUCTURES, Structure
from .parameters import Constraints, GLLiMParameters
from .statistics import SufficientStatistics


@dataclass(frozen=True)
class LatentPrior:
    """The fixed means (K, L_w) and covariances (K, L_w, L_w) of the latents."""

    mean: Array
    covariance: Array

    @classmethod
    def standard(cls, n_components: int, n_latent: int) -> LatentPrior:
        """Zero means and identity covariances."""
        identity = np.broadcast_to(np.eye(n_latent), (n_components, n_latent, n_latent))
        return cls(np.zeros((n_components, n_latent)), identity.copy())

    def keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> LatentPrior:
        """The prior of some components."""
        return LatentPrior(self.mean[kept], self.covariance[kept])

    @property
    def dimension(self) -> int:
        """L_w."""
        return self.mean.shape[1]


@dataclass(frozen=True)
class Floor:
    """No variance below ``ratio`` (reg_covar) times the band's (D,) or parameter's (L_t,) own variance."""

    ratio: float
    spectra: Array
    parameters: Array


def maximization(
    sums: SufficientStatistics, prior: LatentPrior, constraints: Constraints, floor: Floor
) -> tuple[GLLiMParameters, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Theta that maximises the expected complete log-likelihood, and which components were kept (K,).

    A component is left out when its effective count is below L_t + 2 or, with ``reg_covar=0``, when its
    covariance is singular. Raises ValueError when none is left.
    """
    n_t = len(floor.parameters)
    kept = sums.r >= n_t + 2
    while kept.any():
        theta = _maximize(sums.keep(kept), prior.keep(kept), constraints, floor)
        degenerate = np.zeros(len(theta.pi), dtype=bool) if floor.ratio > 0 else _singular(theta, constraints, floor)
        if not degenerate.any():
            return theta, kept
        kept[np.flatnonzero(kept)[degenerate]] = False
    raise ValueError(
        f"all {len(sums.r)} components degenerated (effective counts {_brief(sums.r)}, at least {n_t + 2} needed, or "
        "singular covariances): use fewer components, more samples, sigma='iso' or 'diag', or reg_covar > 0"
    )


def _maximize(
    sums: SufficientStatistics, prior: LatentPrior, constraints: Constraints, floor: Floor
) -> GLLiMParameters:
    n_t, n_w = len(floor.parameters), prior.dimension
    n_components = len(sums.r)
    share = sums.r / sums.r.sum()
    x_mean = sums.x / sums.r[:, None]
    y_mean = sums.y / sums.r[:, None]
    xx = sums.xx / sums.r[:, None, None] - x_mean[:, :, None] * x_mean[:, None, :]
    xy = sums.xy / sums.r[:, None, None] - x_mean[:, :, None] * y_mean[:, None, :]

    maps = _regression(xx, xy, floor.parameters)  # eq. Ak_up
    sigma = STRUCTURES[constraints.sigma]
    scale = sums.r.reshape(-1, *[1] * (sums.yy.ndim - 1))
    noise = sigma.residual(sums.yy / scale, y_mean, maps, xy, xx)  # eq. SOLVA_Sigmak
    noise = _tie_and_clip(noise, share, sigma, constraints.tied_sigma, floor.spectra, floor.ratio)

    covariance = np.zeros((n_components, n_t + n_w, n_t + n_w))
    covariance[:, n_t:, n_t:] = prior.covariance
    if n_t:
        gamma = STRUCTURES[constraints.gamma]
        within = _compact(xx[:, :n_t, :n_t], constraints.gamma)
        within = _tie_and_clip(within, share, gamma, constraints.tied_gamma, floor.parameters, floor.ratio)
        covariance[:, :n_t, :n_t] = gamma.dense(within, n_t)
    return GLLiMParameters(
        pi=np.full(n_components, 1.0 / n_components) if constraints.tied_pi else share,
        c=np.concatenate([x_mean[:, :n_t], prior.mean], axis=1),
        Gamma=covariance,
        A=maps,
        b=y_mean - np.einsum("kdl,kl->kd", maps, x_mean),
        Sigma=noise,
        n_latent=n_w,
        constraints=constraints,
    )


def _regression(xx: Array, xy: Array, variance: Array) -> Array:
    """Maps (K, D, L) with A xx = xy', the shortest ones where xx (K, L, L) is singular.

    Directions in which x varies by less than the sums can tell, relative to its own variance, carry no slope.
    """
    latent = np.diagonal(xx, axis1=1, axis2=2)[:, len(variance) :]
    own = np.concatenate([np.broadcast_to(variance, (len(xx), len(variance))), latent], axis=1)
    unit = 1.0 / np.sqrt(np.where(own > 0.0, own, 1.0))
    values, vectors = np.linalg.eigh(xx * unit[:, :, None] * unit[:, None, :])
    informative = values > SINGULAR * xx.shape[1]
    inverse = np.where(informative, 1.0 / np.where(informative, values, 1.0), 0.0)
    half = unit[:, :, None] * vectors
    slopes = half @ (inverse[:, :, None] * (half.transpose(0, 2, 1) @ xy))
    return slopes.transpose(0, 2, 1)


def _compact(covariances: Array, structure: str) -> Array:
    if structure == "full":
        return covariances
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    return variances if structure == "diag" else variances.mean(axis=1)


def _tie_and_clip(
    compact: Array, share: Array, structure: Structure, tied: bool, variance: Array, ratio: float
) -> Array:
    if tied:
        pooled = np.tensordot(share, compact, axes=1)
        compact = np.repeat(pooled[None], len(share), axis=0)
    return structure.clip(compact, variance, ratio)


def _singular(
    theta: GLLiMParameters, constraints: Constraints, floor: Floor
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    singular = theta.structure.singular(theta.Sigma, floor.spectra)
    n_t = theta.n_parameters
    if n_t:
        singular = singular | STRUCTURES["full"].singular(theta.Gamma[:, :n_t, :n_t], floor.parameters)
    return np.asarray(singular)


def _brief(counts: Array) -> str:
    return f"{counts.min():.3g} to {counts.max():.3g}"
