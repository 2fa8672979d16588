"""What a model, or a committee of models, says of a block of spectra: one posterior, its evidence and its tail.

A committee's posterior is the average of its members' posteriors, with equal or other fixed weights, or in proportion
to the density p_m(y) that each gives to the spectrum; its evidence is the mean of theirs, by weights that are fixed.
Stacking finds the weights of greatest density of held-out parameters given their spectra (Yao, Vehtari, Simpson
and Gelman, 2018, *Using stacking to average Bayesian predictive distributions*, Bayesian Analysis 13, 917).

How far out a spectrum lies is the tail probability of its distance to every component: sum_k r_k P(chi2_D' > d_k^2),
with the responsibilities r_k and squared distances d_k^2 of the D' valid bands, stays comparable where bands are
missing or noise is declared, unlike the density. In logarithms, because the spectra of another material lie far beyond
the least float.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.special import gammaincc, gammaln, logsumexp, softmax

from ..core import LOG_2PI, Array, Workspace, compiled, normalize_rows, one_blas_thread
from ..mixtures import Mixture, joined, separated
from ..model import GLLiMParameters
from .forward import BLOCK_ROWS, ForwardTerms, Prior
from .posterior import NOTHING, Posterior, PosteriorBlock, Rows, SideInformation, posterior_blocks, two_solutions_of
from .rowwise import RowPosterior, fitted_rows

ENOUGH = 0.25
"""Weight of one component that is looked at alone."""
MANY_ROWS, TAILS = 256, 4096
"""Rows with one level for which tails are tabulated, and at how many distances."""
SURELY = 1.0 + 1e-9
"""A ratio to the level, greater by more than its rounding."""
PRIOR_ROWS = 1.0
"""Held-out rows that each member counts as its own before any is seen: without, the weights of 40 rows were worse than
equal ones on the paper's functions, with it better."""
LEAST_ROWS, LEAST_SHARE = 0.5, 1e-3
"""Held-out rows, and their share, that a member has to answer for, to be of a committee."""
NOTHING_LEFT = 1e-300
"""Least density, relative to the greatest of a row, and least weight of a member, whose logarithms are finite."""


@dataclass(frozen=True)
class Estimate:
    """The members' posteriors of some rows; arrays hold until the next estimate is asked for.

    Attributes
    ----------
    blocks : one a member, of the same rows. by_evidence : whether shares follow p_m(y).
    weights : (M,) of the members, summing to one; None: all the same.
    """

    blocks: tuple[PosteriorBlock, ...]
    by_evidence: bool = False
    weights: Array | None = None

    @property
    def rows(self) -> slice | NDArray[np.intp]:
        """The rows of the spectra that this is of."""
        return self.blocks[0].rows

    @property
    def n_valid(self) -> int | NDArray[np.intp]:
        """Bands that are there, one number or (n,)."""
        return self.blocks[0].n_valid

    @property
    def known(self) -> tuple[int, ...]:
        """Indices of the parameters known in all of the rows."""
        return self.blocks[0].known

    @cached_property
    def _evidences(self) -> Array:
        return np.stack([block.posterior.log_evidence for block in self.blocks], axis=1)

    @property
    def _weights(self) -> Array:
        return member_shares(len(self.blocks), self.weights)

    @cached_property
    def shares(self) -> Array:
        """Each member's share (n, M)."""
        if self.by_evidence:
            return np.asarray(softmax(self._evidences, axis=1))
        return np.tile(self._weights, (len(self._evidences), 1))

    @cached_property
    def log_evidence(self) -> Array:
        """(n,) log p(y), given what is known."""
        if len(self.blocks) == 1:
            return self._evidences[:, 0]
        return np.asarray(logsumexp(self._evidences, axis=1, b=self._weights))

    def moments(self, covariance: bool, size: int) -> tuple[Array, Array]:
        """Mean (n, size) of the first unknown dimensions, with variances (n, size) or covariance (n, size, size)."""
        return self._merged([block.posterior.moments(covariance, size) for block in self.blocks], covariance)

    def bounded_moments(self, scales: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]] | None:
        """Mean and variances (n, m) of the first unknown dimensions under softplus, and those without.

        Of these ``scales`` (m,), zero for none. None where a row has a theta of its own.
        """
        posteriors = [block.posterior for block in self.blocks]
        shared = [posterior for posterior in posteriors if isinstance(posterior, Posterior)]
        if len(shared) < len(posteriors):
            return None
        both = zip(*(posterior.bounded_moments(scales) for posterior in shared), strict=True)
        bounded, plain = (self._merged([(mean, variance) for mean, variance in parts], False) for parts in both)
        return bounded, plain

    def _merged(self, parts: Sequence[tuple[Array, Array]], covariance: bool) -> tuple[Array, Array]:
        """Moments of the average of posteriors that have these."""
        if len(parts) == 1:
            return parts[0]
        shares = self.shares.T
        mean = np.einsum("mn,mni->ni", shares, np.stack([m for m, _ in parts]))
        spread = np.zeros_like(parts[0][1])
        for share, (own, within) in zip(shares, parts, strict=True):
            gap = own - mean
            between = gap[:, :, None] * gap[:, None, :] if covariance else gap * gap
            spread += share.reshape(-1, *(1,) * (spread.ndim - 1)) * (within + between)
        return mean, spread

    def mixture(self, size: int, rows: Rows = slice(None)) -> Mixture:
        """The mixture of the first ``size`` unknown dimensions, of some of the rows."""
        parts = [block.posterior.mixture(size, rows) for block in self.blocks]
        return parts[0] if len(parts) == 1 else joined(parts, self.shares[rows])

    def components(self) -> Mixture:
        """The mixture of all components of all members, in their order."""
        parts = [block.posterior.components() for block in self.blocks]
        return parts[0] if len(parts) == 1 else joined(parts, self.shares)

    def separated(self, scales: Array) -> NDArray[np.bool_]:
        """Whether each of the first unknown dimensions has two solutions (n, m), on ``scales`` (m, values)."""
        posterior = self.blocks[0].posterior
        if len(self.blocks) == 1 and isinstance(posterior, Posterior):
            return two_solutions_of(posterior, scales)
        mixture = self.mixture(len(scales))
        return np.stack([separated(*mixture.marginal(i), scale) for i, scale in enumerate(scales)], axis=1)

    def fitted(self, terms: Sequence[ForwardTerms], x: Array) -> Array:
        """Spectra (n, D) of each component, A_k E[x|y,k] + b_k, averaged by the posterior weights and shares.

        ``x`` (n, L) holds what is known; the rest of it is overwritten.
        """
        unknown = np.setdiff1d(np.arange(x.shape[1]), self.known)
        fitted = np.zeros((len(x), terms[0].theta.n_bands))
        for own, block, share in zip(terms, self.blocks, self.shares.T, strict=True):
            mixtures = block.posterior.factored()
            fitted_rows(mixtures, np.ascontiguousarray(share), x, unknown, own.inverse.maps, fitted)
        return fitted

    def prior(self, terms: Sequence[ForwardTerms], known: Array | None, n: int) -> Mixture:
        """What the members say of the unknown dimensions of n rows before their spectra, given ``known`` (n, s)."""
        parts = []
        for own in terms:
            prior = Prior.of(own.theta, self.known)
            values = np.empty((n, 0)) if known is None else known
            weights = prior.log_weights(own.theta, values)
            normalize_rows(weights, np.empty(n))
            means = np.einsum("krq,nq->nkr", prior.mean, prior.regressors(values))
            covariances = np.broadcast_to(prior.covariance, (n, *prior.covariance.shape))
            parts.append(Mixture(weights, means, covariances))
        return parts[0] if len(parts) == 1 else joined(parts, np.tile(self._weights, (n, 1)))

    def log_tail(self) -> Array:
        """(n,) log of the tail probability of the spectra."""
        tails = [log_tail(b.posterior.weights, b.posterior.distances(), b.n_valid) for b in self.blocks]
        if len(tails) == 1:
            return tails[0]
        with np.errstate(divide="ignore"):
            return np.asarray(logsumexp(np.stack(tails, axis=1), b=self.shares, axis=1))


def estimates(
    terms: Sequence[ForwardTerms],
    spectra: Array,
    given: SideInformation = NOTHING,
    by_evidence: bool = False,
    every_component: bool = False,
    weights: Array | None = None,
) -> Iterator[Estimate]:
    """Estimates of spectra (n, D), NaN where missing, block by block; rows without enough bands are in none."""
    runs = [posterior_blocks(own, spectra, every_component, given) for own in terms]
    for blocks in zip(*runs, strict=True):
        yield Estimate(blocks, by_evidence, weights)


def member_shares(n_members: int, weights: Array | None) -> Array:
    """The weights (M,) of a committee's members, equal where they have none of their own."""
    return np.full(n_members, 1.0 / n_members) if weights is None else weights


def log_parameter_density(theta: GLLiMParameters, spectra: Array, parameters: Array, marginal: bool = False) -> Array:
    """log p(t | y) (n,) of parameters (n, L_t) given spectra (n, D), latents integrated out (eq. JGMM_inverse_map).

    With ``marginal`` log p(t_l | y) (n, L_t) of each parameter by itself. All components count, however small their
    weight: for a truth far from the likely ones others may matter. NaN where a spectrum or a parameter is.
    """
    terms, workspace, n_t = ForwardTerms.of(theta), Workspace(), theta.n_parameters
    root = np.ascontiguousarray(terms.root[:, :n_t, :n_t].transpose(1, 2, 0))
    centre, log_prior = theta.c[:, :n_t].T, np.log(theta.pi) + terms.log_constant
    deviation = np.sqrt(np.einsum("ijk,ijk->ik", root, root))
    densities = np.full((len(spectra), n_t) if marginal else len(spectra), np.nan)
    there = np.flatnonzero(np.isfinite(spectra).all(axis=1) & np.isfinite(parameters).all(axis=1))
    with one_blas_thread():
        for start in range(0, len(there), BLOCK_ROWS):
            rows = there[start : start + BLOCK_ROWS]
            centred, _ = terms.centre(spectra[rows], workspace)
            log_weights = np.tile(log_prior, (len(centred), 1))
            latent = terms.residuals(centred, np.ones((len(centred), 1)), log_weights, np.inf, workspace)
            log_weights, latent = log_weights[: len(rows)], latent[: len(rows), :n_t]
            log_weights -= logsumexp(log_weights, axis=1, keepdims=True)
            gap = np.asarray(parameters[rows], dtype=np.float64)[:, :, None] - centre
            if marginal:
                for i in range(n_t):
                    mean = np.einsum("njk,jk->nk", latent[:, : i + 1], root[i, : i + 1])
                    log_kernel = -0.5 * ((gap[:, i] - mean) / deviation[i]) ** 2 - np.log(deviation[i])
                    densities[rows, i] = logsumexp(log_weights + log_kernel, axis=1) - 0.5 * LOG_2PI
                continue
            for i in range(n_t):  # root^-1 gap, less the mean of the whitened t
                gap[:, i] = (gap[:, i] - np.einsum("njk,jk->nk", gap[:, :i], root[i, :i])) / root[i, i]
                log_weights -= np.log(np.abs(root[i, i]))
            log_weights -= 0.5 * ((gap - latent) ** 2).sum(axis=1)
            densities[rows] = logsumexp(log_weights, axis=1) - 0.5 * n_t * LOG_2PI
    return densities


def stacking_weights(log_densities: Array, frequencies: Array | None = None) -> Array:
    """Weights (M,) of the members whose mixture gives held-out rows the greatest mean log-density.

    They maximise sum_n log sum_m w_m p_m(t_n | y_n) + a sum_m log w_m, with a Dirichlet prior of a = ``PRIOR_ROWS``, a
    concave function. Members that answer for hardly any row get none.

    Parameters
    ----------
    log_densities : (n, M), log p_m(t_n | y_n); rows that are not finite for any member do not count.
    frequencies : (n,) of the rows, or None.
    """
    n_members = log_densities.shape[1]
    held = np.ones(len(log_densities)) if frequencies is None else np.asarray(frequencies, dtype=np.float64)
    rows = np.isfinite(log_densities).any(axis=1) & (held > 0.0)
    weights = member_shares(n_members, None)
    if not rows.any():
        return weights
    values, prior = np.nan_to_num(log_densities[rows], nan=-np.inf, neginf=-np.inf), PRIOR_ROWS / held[rows].sum()
    share = held[rows] / held[rows].sum()
    density = np.maximum(np.exp(values - values.max(axis=1, keepdims=True)), NOTHING_LEFT)

    def loss(some: Array, kept: NDArray[np.intp]) -> tuple[float, Array]:
        # with this multiplier of their sum, the weights sum to one at the maximum
        total, multiplier = density[:, kept] @ some, 1.0 + len(kept) * prior
        value = multiplier * some.sum() - share @ np.log(total) - prior * np.log(some).sum()
        return float(value), multiplier - share @ (density[:, kept] / total[:, None]) - prior / some

    while True:
        kept = np.flatnonzero(weights)
        settled = minimize(
            *(loss, weights[kept], (kept,), "L-BFGS-B", True),
            bounds=[(NOTHING_LEFT, None)] * len(kept),
            options={"ftol": 1e-13, "gtol": 1e-8, "maxls": 50},
        )
        weights[kept] = settled.x / settled.x.sum()
        answered = (1.0 + len(kept) * prior) * weights[kept] - prior  # share of the rows, without the prior's
        small = answered < max(LEAST_SHARE, LEAST_ROWS / held[rows].sum())
        if small.all() or not small.any():
            return weights
        weights[kept[small]] = 0.0


def log_chi2_tail(distance: Array, degrees: Array) -> Array:
    """log P(chi2 > distance) for ``degrees`` of freedom, broadcast; -inf for an infinite distance."""
    half, x = np.broadcast_arrays(0.5 * np.asarray(degrees, dtype=np.float64), 0.5 * np.asarray(distance))
    with np.errstate(divide="ignore"):
        log_share = np.log(gammaincc(half, x))
    far = np.isfinite(x) & ~(log_share > np.log(1e-280)) & (x > half)
    if far.any():
        log_share[far] = _far_tail(half[far], x[far])
    return np.asarray(log_share)


def _far_tail(half: Array, x: Array) -> Array:
    """log Q(a, x) for x above a by Legendre's continued fraction, modified Lentz (Numerical Recipes, sec. 6.2)."""
    b = x + 1.0 - half
    c = np.full_like(b, 1e300)
    d = 1.0 / b
    h = d.copy()
    for i in range(1, 500):
        term = -i * (i - half)
        b = b + 2.0
        d = 1.0 / (term * d + b)
        c = b + term / c
        step = c * d
        h *= step
        if np.all(np.abs(step - 1.0) < 1e-14):
            break
    return np.asarray(half * np.log(x) - x - gammaln(half) + np.log(h))


@lru_cache(maxsize=4096)
def distance_at(log_level: float, degrees: int) -> float:
    """The squared distance beyond which a share exp(log_level) of chi-squared values of so many degrees lies."""
    upper = float(degrees) + 1.0
    while log_chi2_tail(np.array([upper]), np.array([degrees]))[0] > log_level:
        upper *= 2.0

    def excess(distance: float) -> float:
        return float(log_chi2_tail(np.array([distance]), np.array([degrees]))[0]) - log_level

    return float(brentq(excess, 0.0, upper, xtol=1e-9, rtol=1e-12))


def beyond(
    posterior: Posterior | RowPosterior, n_valid: int | NDArray[np.intp], log_level: float | Array
) -> NDArray[np.bool_]:
    """Whether :func:`log_tail` is below a level, one or one a row (n,).

    It is not where the heaviest component makes up for the level alone, and is where every component is beyond the
    level's distance; in between tails are summed. Of many rows with one level, few are left between bounds on the sum.
    """
    one = np.ndim(n_valid) == 0 and np.ndim(log_level) == 0
    if one and len(posterior.weights) >= MANY_ROWS and isinstance(posterior, Posterior):
        table = _tails(float(log_level), int(n_valid))
        sure = np.empty((2, len(posterior.weights)), dtype=bool)
        tail_rows(posterior.weights, np.atleast_2d(posterior.log_scale), posterior.log_joint, table, sure)
        out, rows = sure[0], np.flatnonzero(~sure[1])
        if len(rows):
            out[rows] = log_tail(posterior.weights[rows], posterior.distances(rows), n_valid) < log_level
        return out
    weight, distance = posterior.heaviest()
    if one:
        limit, safe = _limits(float(log_level), int(n_valid))
    else:
        keys = np.broadcast_to(np.stack(np.broadcast_arrays(log_level, n_valid), axis=-1), (len(weight), 2))
        kinds, which = np.unique(keys, axis=0, return_inverse=True)
        limit, safe = np.array([_limits(float(level), int(count)) for level, count in kinds])[which.reshape(-1)].T
    out = np.zeros(len(weight), dtype=bool)
    rows = np.flatnonzero(~((weight >= ENOUGH) & (distance <= safe)))
    if len(rows):
        shares, distances = posterior.weights[rows], posterior.distances(rows)
        near = distances.min(axis=1, where=shares > 0.0, initial=np.inf) <= np.broadcast_to(limit, len(weight))[rows]
        out[rows[~near]] = True
        rows = rows[near]
        degrees, levels = np.broadcast_to(n_valid, len(weight))[rows], np.broadcast_to(log_level, len(weight))[rows]
        out[rows] = log_tail(shares[near], distances[near], degrees) < levels
    return out


@lru_cache(maxsize=512)
def _tails(log_level: float, n_valid: int) -> Array:
    """P(chi2 > distance) over a level, at even steps of the distance from zero; the first is that step."""
    reach = np.linspace(0.0, 1.25 * max(distance_at(log_level, n_valid), 1.0), TAILS)
    with np.errstate(over="ignore"):
        return np.concatenate([reach[1:2], np.exp(log_chi2_tail(reach, np.asarray(n_valid)) - log_level)])


@compiled
def tail_rows(weights: Array, log_scale: Array, log_joint: Array, table: Array, sure: NDArray[np.bool_]) -> None:
    """Whether a spectrum's tail probability is below a level, and whether bounds on it tell (2, n).

    ``table`` holds a step, and the tails over the level at so many steps of the squared distance. ``log_scale`` is
    (1, K) or (n, K).
    """
    last, end = len(log_scale) - 1, len(table) - 2
    for n in range(weights.shape[0]):
        top = 0
        for k in range(1, weights.shape[1]):
            top = k if weights[n, k] > weights[n, top] else top
        least, most = 0.0, 0.0
        for i in range(-1, weights.shape[1]):
            k = top if i < 0 else i
            if weights[n, k] > 0.0 and i != top:
                left = log_scale[min(n, last), k] - np.log(weights[n, k]) - log_joint[n]
                at = int(min(max(2.0 * left, 0.0) / table[0], float(end)))
                most += weights[n, k] * table[1 + at]
                least += weights[n, k] * table[2 + at] if at < end else 0.0
                if least >= SURELY:
                    break
        sure[0, n] = least < SURELY
        sure[1, n] = least >= SURELY or most * SURELY < 1.0


def _limits(log_level: float, n_valid: int) -> tuple[Any, Any]:
    """The distance of a level, and that at which a component of weight ENOUGH still makes up for it alone."""
    safe = log_level - np.log(ENOUGH)
    return distance_at(log_level, n_valid), distance_at(float(safe), n_valid) if safe < 0.0 else -1.0


def log_tail(weights: Array, distances: Array, n_valid: int | NDArray[np.intp]) -> Array:
    """Log of the mixture's tail probability (n,), for weights and squared distances (n, K) and n_valid bands."""
    degrees = np.broadcast_to(n_valid, len(weights))
    parts = np.full(weights.shape, -np.inf)
    row, component = np.nonzero(weights > 0.0)
    if len(row):
        tails = log_chi2_tail(distances[row, component], degrees[row])
        parts[row, component] = np.log(weights[row, component]) + tails
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.logaddexp.reduce(parts, axis=1))
