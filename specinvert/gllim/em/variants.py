"""Variants of hybrid GLLiM-EM that treat less of the latents as missing: marginal EM, its ECM form, and AECM.

Marginal EM (Appendix B) integrates w out: affine regression of spectra on parameters, then A_w and Sigma from the
residual covariances C_k alone, maximising Q_k = -(log|B_k| + tr(B_k^-1 C_k)) / 2 with B_k = Sigma_k + A_w A_w'. An iso
Sigma has a closed form. Others alternate conditional maximisations: A_w given Sigma, which is PPCA of the whitened
residuals with unit noise, and Sigma given A_w, band by band or block by block (Zhao and Yu, 2008, *Fast ML estimation
for the mixture of factor analyzers via an ECM algorithm*, have the former); for a tied Sigma, an EM step of factor
analysis on C_k. "marginal" repeats them until Q stops growing, "ecm" does each once. K arrays of D x D are held.

AECM (Meng and van Dyk, 1997; McLachlan, Peel and Bean, 2003) has two cycles, each with an E-step of its own: pi, c_t,
Gamma_t, A_t and b with w integrated out, then A_w and Sigma with w missing. It forms no D x D array.

None lets the likelihood fall: each step raises the expected complete log-likelihood, eq. expected-completedata, of the
data that it treats as missing, or leaves it, with all else as it was (Dempster, Laird and Rubin, 1977).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core import Array
from ..model import FULL, SINGULAR, GLLiMParameters
from .maximization import ComponentMoments, Fixed, Kept, Rules, mixture, regression, with_latents, without_degenerate
from .statistics import SufficientStatistics

SWEEPS = 100
"""Conditional maximisations of an M-step of the marginal EM at most."""
LEAST_GAIN = 1e-10
"""Gain of Q, in nats a sample, below which an M-step of the marginal EM is done."""
KEPT = 1e-12
"""Share of the greatest entry by which a Sigma may be off its constraints."""


def marginal_step(
    sums: SufficientStatistics, theta: GLLiMParameters, fixed: Fixed, rules: Rules, sweeps: int
) -> tuple[GLLiMParameters, Kept]:
    """M-GMM-, M-regression- and M-residual-step from sums over parameters alone, the spectra's moments in full.

    ``theta`` holds the A_w and Sigma from which at most ``sweeps`` conditional maximisations go on; a component keeps
    them where Q_k would gain less than rounding. Raises ValueError where rounding leaves singular covariances.
    """

    def step(kept: Kept) -> GLLiMParameters:
        own, given = sums.keep(kept), fixed.keep(kept)
        moments = ComponentMoments.of(own)
        # M-regression-step: all samples have covariance B_k, so the least squares of A_t and b do not depend on it
        A_t = regression(moments, rules)
        C = moments.residual(A_t, FULL)
        try:
            # M-residual-step: Q_k alone depends on A_w and Sigma, and none of its parts lowers it
            Sigma, spread = _residual_step(C, moments.share, theta.keep(kept), given, rules, sweeps)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"noise too small against the signal for covariances of bands by bands ({error}): use "
                "algorithm='general' or 'aecm', or raise reg_covar"
            ) from error
        pi, c_t, Gamma_t = mixture(own, given, rules)
        b = moments.intercept(A_t)
        supervised = GLLiMParameters(pi, c_t, Gamma_t, A_t, b, Sigma, constraints=rules.constraints)
        return with_latents(supervised, given, spread)

    return without_degenerate(step, sums.r, rules)


def regression_cycle(
    sums: SufficientStatistics, theta: GLLiMParameters, fixed: Fixed, rules: Rules
) -> tuple[GLLiMParameters, Kept]:
    """First cycle of AECM: what the parameters tell, w integrated out, A_w and Sigma as they are.

    M-GMM-step, and the M-regression-step: the maximum over A_t and b is the same for every B_k.
    """
    n_t = len(rules.parameters)
    supervised = replace(sums, x=sums.x[:, :n_t], xx=sums.xx[:, :n_t, :n_t], xy=sums.xy[:, :n_t])

    def step(kept: Kept) -> GLLiMParameters:
        own, old = supervised.keep(kept), theta.keep(kept)
        moments = ComponentMoments.of(own)
        A_t = regression(moments, rules)
        A_w, c_w, Gamma = old.A[:, :, n_t:], old.c[:, n_t:], old.Gamma.copy()
        pi, c_t, Gamma[:, :n_t, :n_t] = mixture(own, fixed.keep(kept), rules)
        c, A = np.concatenate([c_t, c_w], axis=1), np.concatenate([A_t, A_w], axis=2)
        b = moments.intercept(A_t) - np.einsum("kdl,kl->kd", A_w, c_w)  # y has mean A_t t + A_w c_w + b
        return replace(old, pi=pi, c=c, Gamma=Gamma, A=A, b=b)

    return without_degenerate(step, sums.r, rules)


def latent_cycle(
    sums: SufficientStatistics, theta: GLLiMParameters, fixed: Fixed, rules: Rules
) -> tuple[GLLiMParameters, Kept]:
    """Second cycle of AECM: A_w and Sigma from sums over parameters and latents, A_t and b as they are."""
    n_t = len(rules.parameters)

    def step(kept: Kept) -> GLLiMParameters:
        own, old = sums.keep(kept), theta.keep(kept)
        x, y = own.x / own.r[:, None], own.y / own.r[:, None]
        about_zero = ComponentMoments.of(own, intercept=False)
        # eq. Ak_up for the columns of A_w, the regressors [t; 1] of A_t and b being explained already
        known = np.concatenate([old.A[:, :, :n_t], old.b[:, :, None]], axis=2)
        with_known = np.concatenate([about_zero.xx[:, n_t:, :n_t], x[:, n_t:, None]], axis=2)
        left = about_zero.xy[:, n_t:] - with_known @ known.transpose(0, 2, 1)
        A_w = np.linalg.solve(about_zero.xx[:, n_t:, n_t:], left).transpose(0, 2, 1)
        A = np.concatenate([old.A[:, :, :n_t], A_w], axis=2)
        Sigma = fixed.keep(kept).parts.get("Sigma")
        if Sigma is None:
            # eq. SOLVA_Sigmak of the regressors [x; 1], about zero
            moments = replace(
                about_zero,
                xy=np.concatenate([about_zero.xy, y[:, None]], axis=1),
                xx=np.block([[about_zero.xx, x[:, :, None]], [x[:, None], np.ones((len(x), 1, 1))]]),
            )
            maps = np.concatenate([A, old.b[:, :, None]], axis=2)
            Sigma = rules.noise(moments.residual(maps, rules.constraints.structure), moments.share)
        return replace(old, A=A, Sigma=Sigma, constraints=rules.constraints)

    return without_degenerate(step, sums.r, rules)


def _residual_step(
    C: Array, share: Array, theta: GLLiMParameters, fixed: Fixed, rules: Rules, sweeps: int
) -> tuple[Array, Array]:
    """Sigma in compact form and a root (K, D, L_w) of A_w Gamma_w A_w', from residual covariances C (K, D, D)."""
    structure, n_latent, n_bands = rules.constraints.structure, fixed.dimension, C.shape[1]
    given, tied = fixed.parts.get("Sigma"), rules.constraints.tied_sigma
    if given is not None:
        return given, _loadings(C, structure.dense(given, n_bands), n_latent)
    if structure.isotropic:
        return _principal_components(C, share, n_latent, rules)
    groups = None if tied else structure.groups(n_bands)
    noise, dense = _allowed(theta, share, rules)
    spread = theta.A[:, :, -n_latent:] @ np.linalg.cholesky(fixed.covariance)
    value = _criterion(C, dense, spread)
    for _ in range(sweeps):
        turned = _loadings(C, dense, n_latent)  # the maximum over A_w, given Sigma
        if groups is None:
            free = _factor_analysis(C, dense, turned)  # an EM step of Q: its M-step is that of eq. SOLVA_Sigmak
        else:
            free = _group_by_group(C, dense, turned, groups, rules)  # the maximum over each group in turn, given A_w
        compact = rules.noise(structure.compact(free), share)
        changed = structure.dense(compact, n_bands)
        gain = _criterion(C, changed, turned) - value
        least = _resolution(dense, spread)
        least = np.where(least > LEAST_GAIN, least, -LEAST_GAIN)  # rounding that matters to nobody decides nothing
        better = np.full(len(share), share @ gain > share @ least) if tied else gain > least
        noise[better], dense[better], spread[better] = compact[better], changed[better], turned[better]
        value[better] += gain[better]
        if share @ np.where(better, gain, 0.0) < LEAST_GAIN:
            break
    return noise, spread


def _allowed(theta: GLLiMParameters, share: Array, rules: Rules) -> tuple[Array, Array]:
    """Sigma of theta, compact and dense, brought to the constraints where it does not keep them."""
    structure, dense = rules.constraints.structure, theta.sigma_dense()
    own = structure.compact(dense)
    kept = rules.noise(own, share)
    allowed = structure.dense(kept, len(dense[0]))
    same = np.abs(allowed - dense).max() <= KEPT * np.abs(dense).max()
    return (np.array(own), np.array(dense)) if same else (np.array(kept), np.array(allowed))


def _resolution(noise: Array, spread: Array) -> Array:
    """The least change of Q_k (K,) that is more than rounding: by the better conditioned of Sigma and B."""
    conditions = []
    for covariance in (noise, noise + spread @ spread.transpose(0, 2, 1)):
        deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        conditions.append(np.linalg.cond(covariance / (deviation[:, :, None] * deviation[:, None])))
    return np.asarray(noise.shape[1] * np.finfo(float).eps * np.minimum(*conditions))


def _principal_components(C: Array, share: Array, n_latent: int, rules: Rules) -> tuple[Array, Array]:
    """PPCA of each C_k, the maximum of Q_k; of a tied variance, eigenvalues below it belong to the noise as well."""
    n_bands, tied = C.shape[1], rules.constraints.tied_sigma
    values, vectors = np.linalg.eigh(C)
    leading, vectors = values[:, : -n_latent - 1 : -1], vectors[:, :, : -n_latent - 1 : -1]
    total = values.sum(axis=1)
    above = np.ones(leading.shape, dtype=bool)
    while True:
        left, count = total - (leading * above).sum(axis=1), n_bands - above.sum(axis=1)
        noise = np.full(len(share), (share @ left) / (share @ count)) if tied else left / count
        still = above & (leading > noise[:, None])
        if (still == above).all() or not tied:
            break
        above = still
    noise = rules.constraints.structure.clip(noise, rules.spectra, rules.ratio)
    return noise, vectors * np.sqrt(np.maximum(leading - noise[:, None], 0.0))[:, None]


def _loadings(C: Array, noise: Array, n_latent: int) -> Array:
    """The maximiser (K, D, L_w) of Q_k over A_w given Sigma (K, D, D): PPCA of whitened residuals with unit noise."""
    root = np.linalg.cholesky(noise)
    half = np.linalg.solve(root, C)
    whitened = np.linalg.solve(root, half.transpose(0, 2, 1))
    values, vectors = np.linalg.eigh(0.5 * (whitened + whitened.transpose(0, 2, 1)))
    leading, vectors = values[:, : -n_latent - 1 : -1], vectors[:, :, : -n_latent - 1 : -1]
    return root @ (vectors * np.sqrt(np.maximum(leading - 1.0, 0.0))[:, None])


def _group_by_group(C: Array, noise: Array, spread: Array, groups: Sequence[NDArray[np.intp]], rules: Rules) -> Array:
    """Maximise Q_k over the covariance of one group of bands after the other: each has a closed form.

    With b and g the group's blocks of B^-1 and B^-1 C B^-1, the inverse of b becomes b^-1 g b^-1 (Zhao and Yu, 2008,
    for groups of one band); where the noise would fall below the floor, the nearest above in the metric of that.
    """
    noise, n_bands = noise.copy(), noise.shape[1]
    total = noise + spread @ spread.transpose(0, 2, 1)
    inverse = np.linalg.inv(total)
    least = max(rules.ratio, SINGULAR) * rules.spectra
    for bands in groups:
        columns = inverse[:, :, bands]
        if len(bands) == n_bands:
            inner, wanted = total, C
        else:
            inner = np.linalg.inv(columns[:, bands])
            wanted = inner @ (columns.transpose(0, 2, 1) @ C @ columns) @ inner
            wanted = 0.5 * (wanted + wanted.transpose(0, 2, 1))
        sizes, directions = np.linalg.eigh(wanted)
        sizes = np.maximum(sizes, SINGULAR * np.maximum(sizes[:, -1:], least[bands].max()))
        back = directions.transpose(0, 2, 1) / np.sqrt(sizes)[:, :, None]
        own = noise[:, bands[:, None], bands]
        values, vectors = np.linalg.eigh(back @ (inner - own + np.diag(least[bands])) @ back.transpose(0, 2, 1))
        turned = (directions * np.sqrt(sizes)[:, None]) @ vectors
        above = np.maximum(values, 1.0) - values
        best = (turned * above[:, None]) @ turned.transpose(0, 2, 1) + np.diag(least[bands])
        noise[:, bands[:, None], bands] = best
        change = best - own
        gain = change @ np.linalg.inv(np.eye(len(bands)) + columns[:, bands] @ change)
        inverse = inverse - columns @ gain @ columns.transpose(0, 2, 1)
    return noise


def _factor_analysis(C: Array, noise: Array, spread: Array) -> Array:
    """Unconstrained Sigma (K, D, D) of an EM step of factor analysis on C_k, A_w staying as it is."""
    solved = np.linalg.solve(noise, spread)
    covariance = np.linalg.inv(np.eye(spread.shape[2]) + spread.transpose(0, 2, 1) @ solved)
    left = np.eye(len(noise[0])) - spread @ covariance @ solved.transpose(0, 2, 1)
    expected = left @ C @ left.transpose(0, 2, 1) + spread @ covariance @ spread.transpose(0, 2, 1)
    return 0.5 * (expected + expected.transpose(0, 2, 1))


def _criterion(C: Array, noise: Array, spread: Array) -> Array:
    """Q_k (K,)."""
    total = noise + spread @ spread.transpose(0, 2, 1)
    trace = np.trace(np.linalg.solve(total, C), axis1=1, axis2=2)
    return -0.5 * (np.linalg.slogdet(total)[1] + trace)
