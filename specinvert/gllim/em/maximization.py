"""The M-step: theta from sufficient statistics, M-GMM-step and M-mapping-step (eq. Ak_up to SOLVA_Sigmak).

Constraints, then tying with weights r_k / N, then the clip of ``reg_covar``; components that degenerate are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..core import Array
from ..model import SINGULAR, STRUCTURES, Constraints, GLLiMParameters, Structure
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
    def prior_parts(self) -> Mapping[str, Array]:
        """The parts but Sigma."""
        return {name: array for name, array in self.parts.items() if name != "Sigma"}

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


@dataclass(frozen=True)
class Moments:
    """Of x and y under each component's responsibilities, about their means or, without an intercept, about zero.

    ``share`` (K,) is r_k / N, ``x`` (K, L) and ``y`` (K, D) the points of reference; ``xx`` (K, L, L),
    ``xy`` (K, L, D), and ``yy`` about zero in the compact form of the structure.
    """

    share: Array
    x: Array
    y: Array
    xx: Array
    xy: Array
    yy: Array

    @classmethod
    def of(cls, sums: SufficientStatistics, intercept: bool = True) -> Moments:
        """The moments that the sums hold; those of a component without samples are zero."""
        counts = np.where(sums.r > 0.0, sums.r, 1.0)
        x, y = sums.x / counts[:, None], sums.y / counts[:, None]
        if not intercept:
            x, y = np.zeros_like(x), np.zeros_like(y)
        return cls(
            share=sums.r / sums.r.sum(),
            x=x,
            y=y,
            xx=sums.xx / counts[:, None, None] - x[:, :, None] * x[:, None, :],
            xy=sums.xy / counts[:, None, None] - x[:, :, None] * y[:, None, :],
            yy=sums.yy / counts.reshape(-1, *[1] * (sums.yy.ndim - 1)),
        )


def maximization(
    sums: SufficientStatistics, fixed: Fixed, constraints: Constraints, floor: Floor
) -> tuple[GLLiMParameters, Kept]:
    """Theta that maximises the expected complete log-likelihood, and which components were kept (K,).

    A component is left out when its effective count is below L_t + 2, unless none has parameters of its own, or, with
    ``reg_covar=0``, when its covariance is singular. Raises ValueError when none is left.
    """
    return without_degenerate(
        lambda kept: _maximize(sums.keep(kept), fixed.keep(kept), constraints, floor), sums.r, constraints, floor
    )


def without_degenerate(
    step: Callable[[Kept], GLLiMParameters], r: Array, constraints: Constraints, floor: Floor
) -> tuple[GLLiMParameters, Kept]:
    """Theta of a step on the components that do not degenerate, and which those are: see :func:`maximization`."""
    n_t = len(floor.parameters)
    kept = r >= (0.0 if constraints.nothing_own(n_t) else n_t + 2)
    while kept.any():
        theta = step(kept)
        degenerate = np.zeros(len(theta.pi), dtype=bool) if floor.ratio > 0 else _singular(theta, floor)
        if not degenerate.any():
            return theta, kept
        kept[np.flatnonzero(kept)[degenerate]] = False
    raise ValueError(
        f"all {len(r)} components degenerated (effective counts {_brief(r)}, at least {n_t + 2} needed, or "
        "singular covariances): use fewer components, more samples, sigma='iso' or 'diag', or reg_covar > 0"
    )


def _maximize(sums: SufficientStatistics, fixed: Fixed, constraints: Constraints, floor: Floor) -> GLLiMParameters:
    moments = Moments.of(sums, constraints.intercept)
    maps = regression(moments, constraints, floor)
    noise = fixed.parts.get("Sigma")
    if noise is None:
        structure = constraints.structure
        noise = structure.residual(moments.yy, moments.y, maps, moments.xy, moments.xx)  # eq. SOLVA_Sigmak
        noise = tie_and_clip(noise, moments.share, structure, constraints.tied_sigma, floor.spectra, floor.ratio)
    pi, centre, within = mixture(sums, fixed, constraints, floor)
    return assemble(
        GLLiMParameters(
            pi=pi,
            c=centre,
            Gamma=within,
            A=maps[:, :, : centre.shape[1]],
            b=moments.y - np.einsum("kdl,kl->kd", maps, moments.x),
            Sigma=noise,
            constraints=constraints,
        ),
        fixed,
        maps[:, :, centre.shape[1] :],
    )


def assemble(supervised: GLLiMParameters, fixed: Fixed, maps_w: Array) -> GLLiMParameters:
    """Theta with the blocks of eq. SOLVA_decomp: latents added to a theta without."""
    n_t, n_w = supervised.n_parameters, fixed.dimension
    covariance = np.zeros((supervised.n_components, n_t + n_w, n_t + n_w))
    covariance[:, :n_t, :n_t] = supervised.Gamma
    covariance[:, n_t:, n_t:] = fixed.covariance
    return replace(
        supervised,
        c=np.concatenate([supervised.c, fixed.mean], axis=1),
        Gamma=covariance,
        A=np.concatenate([supervised.A, maps_w], axis=2),
        n_latent=n_w,
    )


def mixture(
    sums: SufficientStatistics, fixed: Fixed, constraints: Constraints, floor: Floor
) -> tuple[Array, Array, Array]:
    """M-GMM-step: pi (K,), c (K, L_t) and Gamma (K, L_t, L_t) of the parameters."""
    n_components, n_t = len(sums.r), len(floor.parameters)
    share = sums.r / sums.r.sum()
    pi = np.full(n_components, 1.0 / n_components) if constraints.tied_pi else fixed.parts.get("pi", share)
    if constraints.gamma == "flat":
        return pi, np.zeros((n_components, n_t)), np.repeat(FLAT * np.diag(floor.parameters)[None], n_components, 0)
    counts = np.where(sums.r > 0.0, sums.r, 1.0)
    mean = sums.x[:, :n_t] / counts[:, None]
    centre = fixed.parts.get("c", mean)
    covariance = fixed.parts.get("Gamma")
    if covariance is None:
        gap = mean - centre
        spread = sums.xx[:, :n_t, :n_t] / counts[:, None, None] - mean[:, :, None] * mean[:, None, :]
        spread = spread + gap[:, :, None] * gap[:, None, :]
        covariance = _prior_covariance(spread, share, constraints, floor)
    return pi, centre, covariance


def _prior_covariance(spread: Array, share: Array, constraints: Constraints, floor: Floor) -> Array:
    """Gamma (K, L_t, L_t) under its constraints, from unconstrained covariances.

    Of equal volumes none is below the floor as a rule; where one is, all are clipped before they are made equal.
    """
    n_t = len(floor.parameters)
    if n_t == 0:
        return np.asarray(spread)
    structure = STRUCTURES[constraints.gamma]
    free = structure.compact(spread)
    if constraints.tied_gamma == "volume":
        compact = _equal_volumes(free, share, structure, floor)
        if (structure.clip(compact, floor.parameters, floor.ratio) != compact).any():
            clipped = structure.clip(free, floor.parameters, floor.ratio)
            compact = _equal_volumes(clipped, share, structure, floor)
    else:
        tied = bool(constraints.tied_gamma)
        compact = tie_and_clip(free, share, structure, tied, floor.parameters, floor.ratio)
    return structure.dense(compact, n_t)


def _equal_volumes(compact: Array, share: Array, structure: Structure, floor: Floor) -> Array:
    """lambda M_k / |M_k|^(1/L) with lambda = sum_k (r_k / N) |M_k|^(1/L); M_k that are singular stay."""
    n_t = len(floor.parameters)
    told, side = ~structure.singular(compact, floor.parameters), np.zeros(len(share))
    side[told] = np.exp(structure.log_det(compact[told], n_t) / n_t)
    factor = np.where(told, share @ side / np.where(told, side, 1.0), 1.0)
    return np.asarray(compact * factor.reshape(-1, *[1] * (compact.ndim - 1)))


def regression(moments: Moments, constraints: Constraints, floor: Floor) -> Array:
    """Maps A (K, D, L), eq. Ak_up."""
    if not constraints.tied_maps:
        return _regression(moments.xx, moments.xy, floor.parameters)
    xx, xy = (np.tensordot(moments.share, part, axes=1)[None] for part in (moments.xx, moments.xy))
    return np.repeat(_regression(xx, xy, floor.parameters), len(moments.share), axis=0)


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


def tie_and_clip(
    compact: Array, share: Array, structure: Structure, tied: bool, variance: Array, ratio: float
) -> Array:
    """Compact covariances made equal where tied, then none below the floor."""
    if tied:
        pooled = np.tensordot(share, compact, axes=1)
        compact = np.repeat(pooled[None], len(share), axis=0)
    return structure.clip(compact, variance, ratio)


def _singular(theta: GLLiMParameters, floor: Floor) -> Kept:
    singular = theta.structure.singular(theta.Sigma, floor.spectra)
    n_t = theta.n_parameters
    if n_t:
        singular = singular | STRUCTURES["full"].singular(theta.Gamma[:, :n_t, :n_t], floor.parameters)
    return np.asarray(singular)


def _brief(counts: Array) -> str:
    return f"{counts.min():.3g} to {counts.max():.3g}"
