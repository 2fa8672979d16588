"""The M-step: theta from sufficient statistics, M-GMM-step and M-mapping-step (eq. Ak_up to SOLVA_Sigmak).

Constraints, then tying with weights r_k / N, then the clip of ``reg_covar``; components that degenerate are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..core import Array
from ..model import FULL, SINGULAR, Constraints, GLLiMParameters, Structure
from .statistics import SufficientStatistics

FLAT = 1e6
"""Variance of the parameters, in scaled units, that stands for no prior on them in the forward regression."""

Kept = NDArray[np.bool_]


@dataclass(frozen=True)
class Fixed:
    """What EM does not estimate, in scaled units.

    Attributes
    ----------
    mean, covariance : (K, L_w) and (K, L_w, L_w) of the latents.
    parts : "pi" (K,), "c" (K, L_t), "Gamma" (K, L_t, L_t) and "Sigma" in compact form, those that are given.
    """

    mean: Array
    covariance: Array
    parts: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def standard(cls, n_components: int, n_latent: int) -> Fixed:
        """Zero means and identity covariances of the latents, nothing else."""
        identity = np.broadcast_to(np.eye(n_latent), (n_components, n_latent, n_latent))
        return cls(np.zeros((n_components, n_latent)), identity.copy())

    @classmethod
    def of(cls, theta: GLLiMParameters) -> Fixed:
        """What theta in scaled units says of itself that it is fixed."""
        n_t = theta.n_parameters
        values = {"pi": theta.pi, "c": theta.c[:, :n_t], "Gamma": theta.Gamma[:, :n_t, :n_t], "Sigma": theta.Sigma}
        parts = {name: values[name] for name in theta.constraints.fixed}
        return cls(theta.c[:, n_t:], theta.Gamma[:, n_t:, n_t:], parts)

    def keep(self, kept: Kept) -> Fixed:
        """What is fixed of some components, weights made to sum to one."""
        parts = {name: array[kept] for name, array in self.parts.items()}
        if "pi" in parts:
            parts["pi"] = parts["pi"] / parts["pi"].sum()
        return Fixed(self.mean[kept], self.covariance[kept], parts)

    @property
    def dimension(self) -> int:
        """L_w."""
        return self.mean.shape[1]


@dataclass(frozen=True)
class Rules:
    """What every M-step keeps to.

    Attributes
    ----------
    constraints : what is held equal, zero or fixed.
    ratio : reg_covar; no variance falls below that times the band's or parameter's own.
    spectra, parameters : those variances, (D,) and (L_t,).
    target : diagonal (D,) of the T that Sigma is shrunk towards, None where it is not.
    """

    constraints: Constraints
    ratio: float
    spectra: Array
    parameters: Array
    target: Array | None = None

    def noise(self, Sigma: Array, share: Array) -> Array:
        """Compact Sigma that is tied by r_k / N where it has to be, shrunk, then clipped."""
        constraints, structure = self.constraints, self.constraints.structure
        n_components = len(share)
        if constraints.tied_sigma:
            Sigma, share = np.tensordot(share, Sigma, axes=1)[None], np.ones(1)
        if self.target is not None and constraints.shrinkage:
            prior = constraints.shrinkage / len(share)
            of_target = prior / ((1.0 - constraints.shrinkage) * share + prior)
            of_target = of_target.reshape(-1, *[1] * (Sigma.ndim - 1))
            target = structure.add_noise(np.zeros_like(Sigma[:1]), self.target, len(self.target))[1]
            Sigma = (1.0 - of_target) * Sigma + of_target * target
        clipped = structure.clip(Sigma, self.spectra, self.ratio)
        return np.repeat(clipped, n_components, axis=0) if constraints.tied_sigma else clipped

    def log_prior(self, theta: GLLiMParameters, total: float) -> float:
        """Log-density of Sigma under the prior of its shrinkage, up to a constant; ``total`` is N."""
        s = self.constraints.shrinkage
        if self.target is None or not s or s == 1.0:
            return 0.0
        structure, n_bands = theta.structure, theta.n_bands
        Sigma = theta.Sigma[:1] if self.constraints.tied_sigma else theta.Sigma
        criterion = structure.log_det(Sigma, n_bands) + structure.trace(Sigma, self.target)
        return -0.5 * s / (1.0 - s) * total * float(criterion.mean())


@dataclass(frozen=True)
class ComponentMoments:
    """Of x and y under each component's responsibilities, about their means or, without an intercept, about zero.

    ``share`` (K,) is r_k / N, ``x`` (K, L) and ``y`` (K, D) the points of reference; ``xx`` (K, L, L), S^x + X X' of
    eq. Ak_up, ``xy`` (K, L, D), X Y', and ``yy`` about zero in the compact form of the structure.
    """

    share: Array
    x: Array
    y: Array
    xx: Array
    xy: Array
    yy: Array

    @classmethod
    def of(cls, sums: SufficientStatistics, intercept: bool = True) -> ComponentMoments:
        """The moments that the sums hold; those of a component without samples are zero."""
        r = np.where(sums.r > 0.0, sums.r, 1.0)
        x, y = sums.x / r[:, None], sums.y / r[:, None]
        if not intercept:
            x, y = np.zeros_like(x), np.zeros_like(y)
        return cls(
            share=sums.r / sums.r.sum(),
            x=x,
            y=y,
            xx=sums.xx / r[:, None, None] - x[:, :, None] * x[:, None, :],
            xy=sums.xy / r[:, None, None] - x[:, :, None] * y[:, None, :],
            yy=sums.yy / r.reshape(-1, *[1] * (sums.yy.ndim - 1)),
        )

    def intercept(self, A: Array) -> Array:
        """b (K, D) of maps A."""
        return self.y - np.einsum("kdl,kl->kd", A, self.x)

    def residual(self, A: Array, structure: Structure) -> Array:
        """Sigma under maps A in compact form, eq. SOLVA_Sigmak."""
        return structure.residual(self.yy, self.y, A, self.xy, self.xx)


def maximization(sums: SufficientStatistics, fixed: Fixed, rules: Rules) -> tuple[GLLiMParameters, Kept]:
    """Theta that maximises the expected complete log-likelihood, and which components were kept (K,).

    A component is left out when its effective count is below L_t + 2, unless none has parameters of its own, or, with
    ``reg_covar=0``, when its covariance is singular. Raises ValueError when none is left.
    """
    return without_degenerate(lambda kept: _maximize(sums.keep(kept), fixed.keep(kept), rules), sums.r, rules)


def without_degenerate(step: Callable[[Kept], GLLiMParameters], r: Array, rules: Rules) -> tuple[GLLiMParameters, Kept]:
    """Theta of a step on the components that do not degenerate, and which those are: see :func:`maximization`."""
    n_t = len(rules.parameters)
    kept = r >= (0.0 if rules.constraints.nothing_own(n_t) else n_t + 2)
    while kept.any():
        theta = step(kept)
        degenerate = np.zeros(len(theta.pi), dtype=bool)
        if rules.ratio == 0:
            degenerate = theta.structure.singular(theta.Sigma, rules.spectra)
            if n_t:
                degenerate = degenerate | FULL.singular(theta.Gamma[:, :n_t, :n_t], rules.parameters)
        if not degenerate.any():
            return theta, kept
        kept[np.flatnonzero(kept)[degenerate]] = False
    raise ValueError(
        f"all {len(r)} components degenerated (effective counts {r.min():.3g} to {r.max():.3g}, at least {n_t + 2} "
        "needed, or singular covariances): use fewer components, more samples, sigma='iso' or 'diag', or reg_covar > 0"
    )


def _maximize(sums: SufficientStatistics, fixed: Fixed, rules: Rules) -> GLLiMParameters:
    moments = ComponentMoments.of(sums, rules.constraints.intercept)
    A = regression(moments, rules)
    b = moments.intercept(A)
    Sigma = fixed.parts.get("Sigma")
    if Sigma is None:
        Sigma = rules.noise(moments.residual(A, rules.constraints.structure), moments.share)
    pi, c_t, Gamma_t = mixture(sums, fixed, rules)
    n_t = c_t.shape[1]
    supervised = GLLiMParameters(pi, c_t, Gamma_t, A[:, :, :n_t], b, Sigma, constraints=rules.constraints)
    return assemble(supervised, fixed, A[:, :, n_t:])


def assemble(supervised: GLLiMParameters, fixed: Fixed, A_w: Array) -> GLLiMParameters:
    """Theta with the blocks of eq. SOLVA_decomp: latents added to a theta without."""
    n_t, n_w = supervised.n_parameters, fixed.dimension
    Gamma = np.zeros((supervised.n_components, n_t + n_w, n_t + n_w))
    Gamma[:, :n_t, :n_t] = supervised.Gamma
    Gamma[:, n_t:, n_t:] = fixed.covariance
    return replace(
        supervised,
        c=np.concatenate([supervised.c, fixed.mean], axis=1),
        Gamma=Gamma,
        A=np.concatenate([supervised.A, A_w], axis=2),
        n_latent=n_w,
    )


def with_latents(supervised: GLLiMParameters, fixed: Fixed, spread: Array) -> GLLiMParameters:
    """Theta of a regression and what latents add to its residuals: A_w Gamma_w A_w' = spread spread'."""
    A_w = spread @ np.linalg.inv(np.linalg.cholesky(fixed.covariance))
    b = supervised.b - np.einsum("kdl,kl->kd", A_w, fixed.mean)
    return assemble(replace(supervised, b=b), fixed, A_w)


def mixture(sums: SufficientStatistics, fixed: Fixed, rules: Rules) -> tuple[Array, Array, Array]:
    """M-GMM-step: pi (K,), c_t (K, L_t) and Gamma_t (K, L_t, L_t) of the parameters."""
    n_components, n_t, constraints = len(sums.r), len(rules.parameters), rules.constraints
    share = sums.r / sums.r.sum()
    pi = np.full(n_components, 1.0 / n_components) if constraints.tied_pi else fixed.parts.get("pi", share)
    if constraints.flat:
        return pi, np.zeros((n_components, n_t)), np.repeat(FLAT * np.diag(rules.parameters)[None], n_components, 0)
    r = np.where(sums.r > 0.0, sums.r, 1.0)
    mean = sums.x[:, :n_t] / r[:, None]
    c_t, Gamma_t = fixed.parts.get("c", mean), fixed.parts.get("Gamma")
    if Gamma_t is None:
        gap = mean - c_t
        within = sums.xx[:, :n_t, :n_t] / r[:, None, None] - mean[:, :, None] * mean[:, None, :]
        Gamma_t = _prior_covariance(within + gap[:, :, None] * gap[:, None, :], share, rules)
    return pi, c_t, Gamma_t


def _prior_covariance(Gamma: Array, share: Array, rules: Rules) -> Array:
    """Gamma (K, L_t, L_t) under its constraints, from unconstrained covariances.

    Of equal volumes none is below the floor as a rule; where one is, all are clipped before they are made equal.
    """
    n_t, variance, tied = len(rules.parameters), rules.parameters, rules.constraints.tied_gamma
    if n_t == 0:
        return np.asarray(Gamma)
    structure = rules.constraints.prior_structure
    free = structure.compact(Gamma)
    if tied == "volume":
        compact = _equal_volumes(free, share, structure, variance)
        if (structure.clip(compact, variance, rules.ratio) != compact).any():
            compact = _equal_volumes(structure.clip(free, variance, rules.ratio), share, structure, variance)
    else:
        compact = structure.clip(_tied(free, share) if tied else free, variance, rules.ratio)
    return structure.dense(compact, n_t)


def _equal_volumes(compact: Array, share: Array, structure: Structure, variance: Array) -> Array:
    """lambda M_k / |M_k|^(1/L) with lambda = sum_k (r_k / N) |M_k|^(1/L); M_k that are singular stay."""
    n_t = len(variance)
    told, side = ~structure.singular(compact, variance), np.zeros(len(share))
    side[told] = np.exp(structure.log_det(compact[told], n_t) / n_t)
    factor = np.where(told, share @ side / np.where(told, side, 1.0), 1.0)
    return np.asarray(compact * factor.reshape(-1, *[1] * (compact.ndim - 1)))


def regression(moments: ComponentMoments, rules: Rules) -> Array:
    """Maps A (K, D, L), eq. Ak_up, the shortest ones where xx is singular.

    Directions in which x varies by less than the sums can tell, relative to its own variance, carry no slope.
    """
    xx, xy, variance, tied = moments.xx, moments.xy, rules.parameters, rules.constraints.tied_maps
    if tied:
        xx, xy = (np.tensordot(moments.share, part, axes=1)[None] for part in (xx, xy))
    latent = np.diagonal(xx, axis1=1, axis2=2)[:, len(variance) :]
    own = np.concatenate([np.broadcast_to(variance, (len(xx), len(variance))), latent], axis=1)
    unit = 1.0 / np.sqrt(np.where(own > 0.0, own, 1.0))
    values, vectors = np.linalg.eigh(xx * unit[:, :, None] * unit[:, None, :])
    informative = values > SINGULAR * xx.shape[1]
    inverse = np.where(informative, 1.0 / np.where(informative, values, 1.0), 0.0)
    half = unit[:, :, None] * vectors
    A = (half @ (inverse[:, :, None] * (half.transpose(0, 2, 1) @ xy))).transpose(0, 2, 1)
    return np.repeat(A, len(moments.share), axis=0) if tied else A


def _tied(compact: Array, share: Array) -> Array:
    """Compact covariances made equal by their ``share``."""
    return np.repeat(np.tensordot(share, compact, axes=1)[None], len(share), axis=0)
