"""The forward regression: the Gaussian-mixture posterior of parameters and latents given spectra.

Equations GLLiMtoGLLimStar and JGMM_inverse_map. Missing bands (NaN) are marginalised exactly by dropping their rows of
A, b and Sigma, noise beyond training's is added to Sigma, parameters that are known condition every component. Rows
that share all of this share theta, and one product a block; rows that share it with few others are solved one by one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from ..core import NEGLIGIBLE, Array, Workspace, compiled, normalize_rows
from ..mixtures import FAINT, ONE_ALONE, Mixture, Normals, two_solutions, two_solutions_room
from .forward import BLOCK_ROWS, ForwardTerms, Prior, log_sum
from .rowwise import (
    Factored,
    RowPosterior,
    bounded_moments,
    component_mean,
    distance_rows,
    gather_mixtures,
    heaviest_rows,
    mixture_moments,
    row_posterior,
)

LEAST_ROWS = 64
"""Rows that share bands, noise and known parameters for which theta is worth preparing, if Sigma is diagonal."""
Rows = slice | NDArray[np.intp] | NDArray[np.bool_]
MANY_PATTERNS, LONG = 100, 10.0
"""Patterns, each with factors of K covariances of its own, above which a warning says how many seconds they take, if it
is more than these."""


@dataclass(frozen=True)
class Posterior:
    """The mixture p(x_R | y, t_S) of n spectra (eq. JGMM_inverse_map), x_R the r entries of x = [t; w] not known.

    Component k of spectrum n has mean ``prior_mean[k] regressors[n] + root_k latent[n, :, k]`` and covariance Sigma*_k.

    Attributes
    ----------
    weights : (n, K), summing to one; below 1e-18 they are zero.
    latent : (n, r or more, K), the first r of use; less exact where the weight is zero, unless every component was
        asked for.
    regressors : (n, q). prior_mean : (K, r, q). root : (K, r, r) lower triangular.
    covariance : (K, r, r) Sigma*_k, the same for all spectra.
    log_joint : (n,) log p(y, t_S). log_evidence : (n,) log p(y | t_S).
    log_scale : (K,) or (n, K), log-densities where the distance is zero.
    """

    weights: Array
    latent: Array
    regressors: Array
    root: Array
    prior_mean: Array
    covariance: Array
    log_joint: Array
    log_evidence: Array
    log_scale: Array

    def factored(self, rows: Rows = slice(None)) -> Factored:
        """The mixtures of some of the rows, as the kernels take them."""
        own = self.weights[rows], self.latent[rows], self.regressors[rows]
        return Factored(*own, self.root, self.prior_mean, self.covariance)

    def components(self) -> Mixture:
        """The mixture of all K components, in their order."""
        means = np.einsum("krq,nq->nkr", self.prior_mean, self.regressors)
        means += np.einsum("klm,nmk->nkl", self.root, self.latent[:, : self.root.shape[1]])
        covariances = np.broadcast_to(self.covariance, (len(means), *self.covariance.shape))
        return Mixture(self.weights, means, covariances)

    def moments(self, covariance: bool = False, size: int | None = None) -> tuple[Array, Array]:
        """Posterior mean (n, r), eq. JGMM_inverse_exp, with variances (n, r) or the covariance (n, r, r).

        Of the first ``size`` unknown dimensions, where it is given.
        """
        n, size = len(self.weights), self.root.shape[1] if size is None else size
        mean, spread = np.empty((n, size)), np.empty((n, size, size if covariance else 1))
        mixture_moments(self.factored(), mean, spread)
        return mean, spread if covariance else spread[:, :, 0]

    def bounded_moments(self, scales: Array) -> tuple[Array, Array]:
        """Mean and variances (2, n, m) of the first m unknown dimensions under softplus, and those without.

        Of these ``scales`` (m,), zero for none.
        """
        bounded, plain = np.empty((2, 2, len(self.weights), len(scales)))
        bounded_moments(self.factored(), scales, bounded, plain)
        return bounded, plain

    def mixture(self, size: int | None = None, rows: Rows = slice(None)) -> Mixture:
        """The mixture of the first ``size`` unknown dimensions, with room for as many components as a row has."""
        mixtures = self.factored(rows)
        size = self.root.shape[1] if size is None else size
        counts = np.count_nonzero(mixtures.weights, axis=1)
        shape = (len(counts), max(1, int(counts.max(initial=0))))
        weights, means, covariances = np.empty(shape), np.empty((*shape, size)), np.empty((*shape, size, size))
        gather_mixtures(mixtures, weights, means, covariances)
        return Mixture(weights, means, covariances)

    def distances(self, rows: Rows = slice(None)) -> Array:
        """Squared Mahalanobis distances (n, K) of the spectra to the components, infinite where the weight is zero."""
        weights = self.weights[rows]
        squared = np.empty(weights.shape)
        log_scale = self.log_scale[rows] if self.log_scale.ndim == 2 else self.log_scale[None]
        distance_rows(weights, log_scale, self.log_joint[rows], squared)
        return squared

    def heaviest(self) -> tuple[Array, Array]:
        """Greatest weight (n,), and the squared distance of its component."""
        weight, distance = np.empty((2, len(self.weights)))
        heaviest_rows(self.weights, np.atleast_2d(self.log_scale), self.log_joint, weight, distance)
        return weight, distance


@dataclass(frozen=True)
class PosteriorBlock:
    """The posterior of some rows, a slice or indices.

    ``n_valid`` bands are there, one number or (n,); ``known`` are indices of the parameters known in all of the rows.
    The arrays of the posterior hold until the next block is asked for.
    """

    rows: slice | NDArray[np.intp]
    n_valid: int | NDArray[np.intp]
    known: tuple[int, ...]
    posterior: Posterior | RowPosterior


@dataclass(frozen=True)
class SideInformation:
    """What is known of n spectra beside their values.

    Attributes
    ----------
    added : noise variances (n, 1) or (n, D) beyond training's, or None.
    known : (n, L_t) parameters, NaN where unknown, or None.
    least_bands : rows with fewer valid bands are in no block.
    """

    added: Array | None = None
    known: Array | None = None
    least_bands: int = 1


NOTHING = SideInformation()


@dataclass(frozen=True, eq=False)
class Interval:
    """The parameter ``index`` lies between ``low`` and ``high`` (n,), infinite where that is not known."""

    index: int
    low: Array
    high: Array

    def of(self, rows: Rows) -> Interval:
        """Of some rows."""
        return Interval(self.index, self.low[rows], self.high[rows])


@dataclass(frozen=True, eq=False)
class Pixels:
    """The spectra of n pixels, and what is said of each.

    Attributes
    ----------
    spectra : (n, D), NaN where missing. log_tail : log of the tail probability
        below which spectra are unlike those of training, under the noise of all or of each (n,).
    known : (n, L_t) physical parameters, NaN where unknown, or None. interval : of a parameter known by one, or None.
    truth : (n, L_t) to compare with, or None. outside : (n,), whether many bands lie beyond those of training, or None.
    """

    spectra: Array
    log_tail: float | Array = np.nan
    known: Array | None = None
    interval: Interval | None = None
    truth: Array | None = None
    outside: NDArray[np.bool_] | None = None

    def of(self, rows: Rows) -> Pixels:
        """Of some rows."""
        return Pixels(
            self.spectra[rows],
            self.log_tail[rows] if isinstance(self.log_tail, np.ndarray) else self.log_tail,
            None if self.known is None else self.known[rows],
            None if self.interval is None else self.interval.of(rows),
            None if self.truth is None else self.truth[rows],
            None if self.outside is None else self.outside[rows],
        )


def posterior_blocks(
    terms: ForwardTerms, spectra: Array, every_component: bool = False, given: SideInformation = NOTHING
) -> Iterator[PosteriorBlock]:
    """Posteriors of spectra (n, D) in blocks of rows.

    Non-finite bands are missing. ``every_component`` sets the latents of components of weight zero too.
    """
    reach = np.inf if every_component else NEGLIGIBLE
    workspace = Workspace()
    if given.added is not None or given.known is not None:
        yield from _grouped(terms, spectra, np.arange(len(spectra)), reach, given, workspace)
        return
    holed = []
    for start in range(0, len(spectra), BLOCK_ROWS):
        values = spectra[start : start + BLOCK_ROWS]
        centred, squares = terms.centre(values, workspace)
        finite = np.isfinite(squares)
        if finite.all():
            rows: slice | NDArray[np.intp] = slice(start, start + len(values))
        else:
            holed.append(start + np.flatnonzero(~finite))
            rows = start + np.flatnonzero(finite)
            if not len(rows):
                continue
            values = values[finite]
            centred, _ = terms.centre(values, workspace)
        posterior = _posterior(terms, centred, np.empty((len(values), 0)), reach, workspace)
        yield PosteriorBlock(rows, spectra.shape[1], (), posterior)
    if holed:
        yield from _grouped(terms, spectra, np.concatenate(holed), reach, given, workspace)


def _posterior(terms: ForwardTerms, centred: Array, known: Array, reach: float, workspace: Workspace) -> Posterior:
    """Posterior of rows of centred spectra without NaN, which zeros may fill up to whole tiles; ``known`` is (n, s).

    Weights are pi*_k N(y; c*_k, Gamma*_k) of eq. JGMM_inverse_map, normalised.
    """
    n, prior = len(known), terms.prior
    weights = workspace.array("densities", len(centred), len(terms.log_constant))
    x = np.zeros((len(centred), len(prior.known) + 1))
    x[:, -1] = 1.0
    if len(prior.known):
        x[:n] = prior.regressors(known)
        log_prior = prior.log_weights(terms.theta, known)
        log_known, log_scale = log_sum(log_prior), log_prior + terms.log_constant
        weights[:n] = log_scale
    else:
        log_known, log_scale = np.zeros(()), np.log(terms.theta.pi) + terms.log_constant
        weights[:n] = log_scale
    weights[n:] = -np.inf
    latent = terms.residuals(centred, x, weights, reach, workspace)
    weights, log_joint = weights[:n], np.empty(n)
    normalize_rows(weights, log_joint)
    return Posterior(
        weights,
        latent[:n],
        x[:n],
        terms.root,
        prior.mean,
        terms.covariance,
        log_joint,
        log_joint - log_known,
        log_scale,
    )


def _grouped(
    terms: ForwardTerms,
    spectra: Array,
    rows: NDArray[np.intp],
    reach: float,
    given: SideInformation,
    workspace: Workspace,
) -> Iterator[PosteriorBlock]:
    """Blocks of rows by what they share: bands, known parameters, noise."""
    theta = terms.theta
    correlated, n_t = theta.structure.correlated, theta.n_parameters
    valid = np.isfinite(spectra[rows])
    enough = valid.sum(axis=1) >= max(1, given.least_bands)
    rows, valid = rows[enough], valid[enough]
    if not len(rows):
        return
    known = np.full((len(rows), n_t), np.nan) if given.known is None else given.known[rows]
    added = None if given.added is None else given.added[rows]
    of_noise = added is not None and (not correlated or added.shape[1] > 1)
    members = list(alike(sharing_keys(valid, known, added if of_noise else None)))
    single: dict[tuple[int, ...], list[NDArray[np.intp]]] = {}
    clock = _Clock(len(members) if correlated else 0)
    for group in members:
        first = group[0]
        s = tuple(int(i) for i in np.flatnonzero(~np.isnan(known[first])))
        bands = np.flatnonzero(valid[first])
        noise = None if added is None else added[group]
        shared = noise is None or bool((noise == noise[0]).all())
        if not correlated and len(group) < LEAST_ROWS:
            single.setdefault(s, []).append(group)
            continue
        if shared:
            with clock:
                own = terms.derived(bands, s, None if noise is None else noise[0])
        for start in range(0, len(group), BLOCK_ROWS):
            part = group[start : start + BLOCK_ROWS]
            values = spectra[np.ix_(rows[part], bands)]
            values_known = known[part][:, s]
            if shared:
                centred, _ = own.centre(values, workspace)
                posterior: Posterior | RowPosterior = _posterior(own, centred, values_known, reach, workspace)
            else:
                assert added is not None
                picked = theta.select_bands(bands)
                posterior = row_posterior(picked, Prior.of(picked, s), values, added[part], values_known)
            yield PosteriorBlock(rows[part], len(bands), s, posterior)
    for s, groups in single.items():
        prior = Prior.of(theta, s)
        together = np.sort(np.concatenate(groups))
        for start in range(0, len(together), BLOCK_ROWS):
            part = together[start : start + BLOCK_ROWS]
            values = np.where(valid[part], spectra[rows[part]], np.nan)
            noise = np.zeros((len(part), 1)) if added is None else added[part]
            posterior = row_posterior(theta, prior, values, noise, known[part][:, s])
            yield PosteriorBlock(rows[part], valid[part].sum(axis=1), s, posterior)


class _Clock:
    """Warns once, after the first few patterns, how long all of them take."""

    def __init__(self, patterns: int) -> None:
        self.patterns, self.done, self.seconds = patterns, 0, 0.0

    def __enter__(self) -> None:
        self.start = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.done += 1
        self.seconds += perf_counter() - self.start
        total = self.seconds / self.done * self.patterns
        if self.done == 3 and self.patterns > MANY_PATTERNS and total >= LONG:
            warnings.warn(
                f"{self.patterns} patterns of missing bands or noise, each with factors of its own for a full or block "
                f"Sigma: about {total:.0f} s a block; share noise between pixels, drop bands that are often missing, "
                "or use sigma='diag'",
                UserWarning,
                stacklevel=2,
            )


def sharing_keys(valid: NDArray[np.bool_], known: Array, added: Array | None) -> NDArray[np.uint8]:
    """Keys (n, bytes) of what rows may share: valid bands (n, D), which of ``known`` (n, L_t) are, and noise."""
    columns = [np.packbits(valid, axis=1), np.packbits(~np.isnan(known), axis=1)]
    if added is not None:
        columns.append(np.ascontiguousarray(added).view(np.uint8).reshape(len(valid), added.shape[1] * added.itemsize))
    return np.concatenate(columns, axis=1)


def alike(keys: NDArray[np.uint8]) -> Iterator[NDArray[np.intp]]:
    """Indices of the rows of ``keys`` (n, bytes) that are equal, group by group."""
    if not len(keys):
        return
    whole = np.ascontiguousarray(keys).view(np.dtype((np.void, keys.shape[1]))).reshape(-1)
    _, group = np.unique(whole, return_inverse=True)
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    for start, stop in pairwise([0, *ends]):
        yield order[start:stop]


def two_solutions_of(posterior: Posterior, scales: Array) -> NDArray[np.bool_]:
    """:func:`.mixture.separated` (n, m) of the first m unknown dimensions on their ``scales`` (m, values)."""
    found = np.empty((len(posterior.weights), len(scales)), dtype=np.bool_)
    _separated_rows(posterior.factored(), scales, found)
    return found


@compiled
def _separated_rows(mixtures: Factored, scales: Array, found: NDArray[np.bool_]) -> None:
    weights, latent, x, root, prior_mean, within = mixtures
    n_components = within.shape[0]
    active, room = np.empty(n_components, dtype=np.intp), np.empty((3, n_components))
    deviations, work = np.empty((len(scales), n_components)), two_solutions_room(n_components)
    for i in range(len(scales)):
        for k in range(n_components):
            deviations[i, k] = math.sqrt(within[k, i, i])
    for n in range(len(weights)):
        count, total, top = 0, 0.0, 0.0
        for k in range(n_components):
            weight = weights[n, k]
            active[count], room[0, count] = k, weight
            count += weight > FAINT
            total += weight if weight > FAINT else 0.0
            top = max(top, weight)
        for i in range(len(scales)):
            found[n, i] = False
            if top <= ONE_ALONE * total:
                smallest = np.inf
                for a in range(count):
                    room[1, a] = component_mean(n, active[a], i, latent, x, root, prior_mean)
                    room[2, a] = deviations[i, active[a]]
                    smallest = min(smallest, room[2, a])
                row = Normals(room[0, :count], room[1, :count], room[2, :count], total, smallest)
                found[n, i] = two_solutions(row, scales[i], work)
