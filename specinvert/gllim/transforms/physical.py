"""Summaries of posteriors in the user's units: a mixture is over transformed parameters z, its summaries are of t.

Means and deviations of parameters with transforms of their own are exact to 1e-6 of the deviation or of the distance of
the bounds, under a softplus to 1.3e-4 of its scale, their correlations to 2e-4. Compositions of two or three parts that
vary little are summed over products of Gauss-Hermite rules. Other compositions, their quantiles, and covariances of two
compositions are averages over ``DRAWS`` quasi-random draws from each component, the same for all: a row depends on the
others by rounding alone. Up to four parts, draws leave means off by some 0.005 of the deviation and variances by 0.01
to 0.05 of themselves, the more the rarer a part is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import pairwise

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from ..core import Array
from ..mixtures import PLAIN, Mixture, crps, marginal_entropy, quantile
from . import expectations
from .specification import Entry, helmert
from .transforms import Transforms

DRAWS = 512
"""Draws from each component of a mixture for compositions, in mirrored pairs of mean zero and unit covariance."""
PRODUCTS = ((0.75, 8), (1.5, 16))
"""Widths up to which so many Gauss-Hermite nodes a dimension serve compositions, where fewer than the draws."""
NEGLIGIBLE = 1e-3
"""Share of the smaller of a level and what is above it that components left out of a composition's quantiles hold."""
BLOCK = 1024
"""Components of several rows that are worked on at once."""
SCALE_REACH, SCALE_STEPS = 8.0, 257
"""Standard deviations of the prior over which a transform is tabled, and in how many steps."""

Quantiles = Callable[[Array, Array, Array, Array], Array]
"""Quantiles (n, m) of one-dimensional mixtures: of weights, means and variances (n, A) at levels (m,)."""

LEVELS = tuple(0.5 * part for part in np.polynomial.legendre.leggauss(20) + np.array([[1.0], [0.0]]))
"""Nodes and weights of Gauss's rule for levels of quantiles."""
LEAST_SCORED = 1e-5
"""Weights below this do not count in scores."""
FAR_SCALES, FAR_DEVIATIONS = 6.0, 4.0
"""Scales of a softplus, and standard deviations more, above zero from where z is scored as the parameter itself."""


@dataclass(frozen=True)
class _Components:
    """Components of weight above zero of consecutive rows: ``rows`` (P,) from zero, means (P, L), and so on."""

    where: slice
    rows: NDArray[np.intp]
    weights: Array
    means: Array
    covariances: Array

    def total(self, values: Array) -> Array:
        """Weighted sums (n, ...) over the components of each row, of values (P, ...)."""
        n = self.where.stop - self.where.start
        sums = np.zeros((n, *values.shape[1:]))
        for at in np.ndindex(values.shape[1:]):
            sums[:, *at] = np.bincount(self.rows, self.weights * values[:, *at], minlength=n)
        return sums


def _components(mixture: Mixture) -> Iterator[_Components]:
    """All rows in blocks."""
    active = mixture.weights > 0.0
    before = np.concatenate([[0], np.cumsum(active.sum(axis=1))])
    start = 0
    while start < len(mixture):
        stop = max(int(np.searchsorted(before, before[start] + BLOCK, side="right")) - 1, start + 1)
        rows, parts = np.nonzero(active[start:stop])
        at = rows + start, parts
        yield _Components(slice(start, stop), rows, mixture.weights[at], mixture.means[at], mixture.covariances[at])
        start = stop


@dataclass(frozen=True, eq=False)
class Before:
    """What is known of parameters before a spectrum is seen: a ``mixture`` (1, A) over z."""

    transforms: Transforms
    mixture: Mixture

    @cached_property
    def entropy(self) -> Array:
        """(L_z,) of each z, in nats."""
        return np.array([marginal_entropy(self.mixture, i)[0] for i in range(self.mixture.n_dimensions)])

    @cached_property
    def std(self) -> Array:
        """(L_t,) of t."""
        return np.asarray(physical_mean_and_std(self.transforms, self.mixture)[1][0])

    @cached_property
    def scales(self) -> Array:
        """Lengths (L_z, values) as :func:`separated` takes them: of logs ratios, of other parameters physical."""
        t, scales = self.transforms, np.tile(PLAIN, (self.mixture.n_dimensions, 1))
        bent = [i for i in range(t.n_physical) if t.entry(i).kind not in ("identity", "log", "ilr")]
        if bent:
            mean, spread = self.mixture.moments()
            reach = SCALE_REACH * np.sqrt(np.diagonal(spread[0]))
            steps = 2.0 * reach / (SCALE_STEPS - 1)
            z = (mean[0] - reach)[:, None] + steps[:, None] * np.arange(SCALE_STEPS)
            scales = np.concatenate([z[:, :1], steps[:, None], z], axis=1)
        for i in bent:
            scales[t.column(i), 2:] = t.inverse_of(i, z[t.column(i)])
        return scales


def physical_moments(transforms: Transforms, mixture: Mixture) -> tuple[Array, Array, Array]:
    """Mean (n, L_t) and covariance (n, L_t, L_t) of t, and the rows (n,) where some overflow float64.

    What overflows is NaN, and so is all of a row without weight, which does not count as overflow.
    """
    return _summaries(transforms, mixture, crossed=True)


def physical_mean_and_std(transforms: Transforms, mixture: Mixture) -> tuple[Array, Array, Array]:
    """Mean and standard deviation (n, L_t) of t, and the rows (n,) where some overflow: cheaper, no cross terms."""
    mean, variance, overflow = _summaries(transforms, mixture, crossed=False)
    return mean, np.sqrt(variance), overflow


def physical_quantiles(
    transforms: Transforms, mixture: Mixture, index: int, levels: Sequence[float] | Array, z_quantile: Quantiles
) -> Array:
    """Quantiles (n, m) of physical parameter ``index`` at levels (m,) in (0, 1), NaN in rows without weight.

    Transforms of one parameter are monotone: the quantiles of z that ``z_quantile`` finds are transformed back. Parts
    of a composition have quantiles of draws, interpolated, from all but the faintest components.
    """
    levels = np.asarray(levels, dtype=np.float64)
    entry = transforms.entry(index)
    quantiles = np.full((len(mixture), len(levels)), np.nan)
    some = mixture.weights.sum(axis=1) > 0.0
    if entry.kind != "ilr":
        marginal = mixture.select(some).marginal(entry.start)
        quantiles[some] = transforms.inverse_of(index, z_quantile(*marginal, levels))
        return quantiles
    least = NEGLIGIBLE * np.minimum(levels, 1.0 - levels).min() / mixture.weights.shape[1]
    counted = np.where(mixture.weights > least, mixture.weights, 0.0)
    for block in _components(Mixture(counted, mixture.means, mixture.covariances)):
        part = entry.standard_inverse(_draws(block, _columns(entry)))[entry.columns.index(index)]
        cuts = np.searchsorted(block.rows, np.arange(block.where.stop - block.where.start + 1))
        for row, (a, b) in enumerate(pairwise(cuts)):
            if b > a:
                order = np.argsort(part[a:b], axis=None)
                weights = np.repeat(block.weights[a:b], DRAWS)[order]
                ends = np.cumsum(weights)
                quantiles[block.where.start + row] = np.interp(
                    levels, (ends - 0.5 * weights) / ends[-1], part[a:b].ravel()[order]
                )
    return quantiles


def physical_components(transforms: Transforms, mixture: Mixture, index: int) -> tuple[Array, Array, Array]:
    """Weights, means and variances (n, A) of a part of a composition, to first order within each component."""
    entry = transforms.entry(index)
    at, basis = entry.columns.index(index), helmert(len(entry.columns))
    parts = entry.standard_inverse(np.moveaxis(mixture.means[:, :, entry.z], 2, 0))
    slope = parts[at, :, :, None] * (basis[at] - np.einsum("pna,pz->naz", parts, basis))
    spread = np.einsum("nay,nayz,naz->na", slope, mixture.covariances[:, :, entry.z, entry.z], slope)
    return mixture.weights, parts[at], np.maximum(spread, np.finfo(float).tiny)


def physical_crps(entry: Entry, marginal: tuple[Array, Array, Array], truth: Array) -> Array:
    """Continuous ranked probability score (n,) of a parameter's ``truth`` (n,), of the mixture (n, A) of its z.

    Under a transform that bends where the posterior is, the pinball loss averaged over ``LEVELS``.
    """
    weights, means, variances = marginal
    weights = np.where(weights > LEAST_SCORED, weights, 0.0)
    scored, plain = np.empty(len(weights)), np.full(len(weights), entry.kind == "identity")
    if entry.kind == "softplus":
        lowest = np.where(weights > 0.0, means - FAR_DEVIATIONS * np.sqrt(variances), np.inf).min(axis=1)
        plain = lowest > FAR_SCALES * entry.unit
    scored[plain] = crps(weights[plain], means[plain], variances[plain], truth[plain])
    bent, (levels, shares) = ~plain, LEVELS
    quantiles = np.asarray(quantile(weights[bent], means[bent], variances[bent], levels.tolist()))
    gap = entry.inverse(quantiles.reshape(-1, 1)).reshape(quantiles.shape) - truth[bent, None]
    scored[bent] = 2.0 * (gap * ((gap > 0.0) - levels)) @ shares
    return scored


def _summaries(transforms: Transforms, mixture: Mixture, crossed: bool) -> tuple[Array, Array, Array]:
    """Mean, variance (n, L_t) or covariance (n, L_t, L_t), and overflow (n,)."""
    n, n_t = len(mixture), transforms.n_physical
    units = np.where(transforms.softness > 0.0, transforms.softness, 1.0)
    if (units != 1.0).any():
        within = mixture.covariances / np.outer(units, units)
        mixture = Mixture(mixture.weights, mixture.means / units, within)
    mean, spread = np.zeros((n, n_t)), np.zeros((n, n_t, n_t) if crossed else (n, n_t))
    with np.errstate(all="ignore"):
        for block in _components(mixture):
            if len(block.rows) == 0:
                continue
            centres, within = _of_components(transforms, block, crossed)
            average = block.total(centres)
            gap = centres - average[block.rows]
            mean[block.where] = average
            spread[block.where] = block.total(within + (gap[:, :, None] * gap[:, None, :] if crossed else gap * gap))
        scale, offset, lower, upper = (
            np.array([getattr(transforms.entry(i), name) for i in range(n_t)], dtype=np.float64)
            for name in ("scale", "offset", "lower", "ceiling")
        )
        mean = np.clip(scale * mean + offset, lower, upper)
        spread *= scale[:, None] * scale if crossed else scale**2
    empty = ~(mixture.weights.sum(axis=1) > 0.0)
    mean[~np.isfinite(mean)], spread[~np.isfinite(spread)] = np.nan, np.nan
    overflow = ~empty & (np.isnan(mean).any(axis=1) | np.isnan(spread).any(axis=tuple(range(1, spread.ndim))))
    mean[empty], spread[empty] = np.nan, np.nan
    return mean, spread, overflow


def _of_components(transforms: Transforms, block: _Components, crossed: bool) -> tuple[Array, Array]:
    """Means (P, L_t) and variances (P, L_t) or covariances (P, L_t, L_t) within components, for standard transforms."""
    n_t = transforms.n_physical
    centres, variances = np.empty((len(block.rows), n_t)), np.empty((len(block.rows), n_t))
    spreads: dict[int, Array] = {}
    for entry in transforms.entries:
        if entry.kind == "ilr":
            at = np.array(entry.columns)
            centres[:, at], spreads[entry.start] = _composition_moments(block, entry, crossed)
            variances[:, at] = np.einsum("pii->pi", spreads[entry.start]) if crossed else spreads[entry.start]
        else:
            z = entry.start
            moments = expectations.moments(entry.kind, block.means[:, z], block.covariances[:, z, z])
            centres[:, entry.columns[0]], variances[:, entry.columns[0]] = moments
    if not crossed:
        return centres, variances
    within = np.empty((len(block.rows), n_t, n_t))
    for i, first in enumerate(transforms.entries):
        for second in transforms.entries[i:]:
            both = first is second and first.kind == "ilr"
            values = spreads[first.start] if both else _crossed(block, first, second, centres)
            a, b = np.array(first.columns), np.array(second.columns)
            within[:, a[:, None], b] = values
            within[:, b[:, None], a] = values.transpose(0, 2, 1)
    limit = np.sqrt(variances)
    limits = limit[:, :, None] * limit[:, None, :]
    within = np.clip(within, -limits, limits)
    within[:, np.arange(n_t), np.arange(n_t)] = variances
    return centres, within


def _crossed(block: _Components, first: Entry, second: Entry, centres: Array) -> Array:
    """Covariances (P, parameters of first, parameters of second) within components; diagonals may be anything."""
    if second.kind == "ilr" and first.kind != "ilr":
        return _crossed(block, second, first, centres).transpose(0, 2, 1)
    if first.kind != "ilr":
        if first is second:
            return np.zeros((len(block.rows), 1, 1))
        i, j = first.start, second.start
        cross = expectations.covariance(
            (first.kind, second.kind),
            (block.means[:, i], block.means[:, j]),
            (block.covariances[:, i, i], block.covariances[:, j, j]),
            block.covariances[:, i, j],
        )
        return cross[:, None, None]
    if second.kind != "ilr":
        return _composition_with(block, first, second, centres[:, second.columns[0]])
    draws = _draws(block, (*_columns(first), *_columns(second)))
    values, others = first.standard_inverse(draws[: first.size]), second.standard_inverse(draws[first.size :])
    values -= values.mean(axis=2, keepdims=True)
    return np.einsum("ipr,jpr->pij", values, others) / DRAWS


def _composition_with(block: _Components, entry: Entry, other: Entry, centre: Array) -> Array:
    """Covariances (P, m, 1) of a composition's parts with another parameter of mean ``centre`` (P,)."""
    at = np.array((*_columns(entry), other.start))
    cross = np.empty((len(centre), len(entry.columns), 1))
    for where, nodes, shares in _by_width(block, entry):
        covariances = block.covariances[where][:, at[:, None], at]
        root = _root(covariances)
        z = _placed(block.means[where][:, at], root, nodes)
        values = entry.standard_inverse(z[:-1])
        if other.kind == "log":
            # E[e^z f] = E[e^z] E[f of a mean shifted by the covariance with z]
            values = entry.standard_inverse(z[:-1] + covariances[:, :-1, -1].T[:, :, None]) - values
            cross[where, :, 0] = (values @ shares).T * centre[where, None]
        else:
            left = np.maximum(root[:, -1, -1] ** 2, 1e-16 * covariances[:, -1, -1])
            given = expectations.smoothed(other.kind, z[-1], left[:, None])
            values -= (values @ shares)[:, :, None]
            cross[where, :, 0] = ((values * given) @ shares).T
    return cross


def _composition_moments(block: _Components, entry: Entry, crossed: bool) -> tuple[Array, Array]:
    """Means (P, m) and variances (P, m) or covariances (P, m, m) of a composition's parts within components."""
    at, parts, n = np.array(_columns(entry)), len(entry.columns), len(block.rows)
    mean, spread = np.empty((n, parts)), np.empty((n, parts, parts) if crossed else (n, parts))
    for where, nodes, shares in _by_width(block, entry):
        root = _root(block.covariances[where][:, at[:, None], at])
        values = entry.standard_inverse(_placed(block.means[where][:, at], root, nodes))
        centre = values @ shares
        values -= centre[:, :, None]
        mean[where] = centre.T
        spread[where] = (
            np.einsum("ipr,jpr->pij", values * shares, values) if crossed else ((values * values) @ shares).T
        )
    if crossed:
        spread = 0.5 * (spread + spread.transpose(0, 2, 1))
    return mean, spread


def _by_width(block: _Components, entry: Entry) -> Iterator[tuple[NDArray[np.bool_], Array, Array]]:
    """Masks (P,) that divide the components, with nodes (R, size) and weights (R,) that serve a composition there."""
    z = np.arange(entry.start, entry.start + entry.size)
    # no logarithm of a ratio of two parts varies by more
    width = np.sqrt(2.0 * block.covariances[:, z, z].sum(axis=1))
    left = np.ones(len(width), dtype=np.bool_)
    for limit, nodes, shares in _rules(entry.size):
        where = left & (width <= limit)
        left &= ~where
        if where.any():
            yield where, nodes, shares


def _columns(entry: Entry) -> tuple[int, ...]:
    return tuple(range(entry.start, entry.start + entry.size))


def _draws(block: _Components, columns: tuple[int, ...]) -> Array:
    """Draws (columns, P, DRAWS) of these z from every component."""
    at = np.array(columns)
    return _placed(block.means[:, at], _root(block.covariances[:, at[:, None], at]), _normals(len(at)))


def _placed(means: Array, root: Array, nodes: Array) -> Array:
    """Nodes (R, d) put on Gaussians of means (P, k) and roots (P, k, k): (k, P, R), means given the first d beyond."""
    placed = np.repeat(means.T[:, :, None], len(nodes), axis=2)
    for j, node in enumerate(nodes.T):
        for i in range(j, len(placed)):
            placed[i] += root[:, i, j, None] * node
    return placed


def _root(covariances: Array) -> Array:
    """Lower triangular roots (P, d, d); directions that rounding leaves without variance have none."""
    size = covariances.shape[1]
    root = np.zeros(covariances.shape)
    for j in range(size):
        left = covariances[:, j:, j] - np.einsum("pik,pk->pi", root[:, j:, :j], root[:, j, :j])
        pivot = np.sqrt(np.maximum(left[:, 0], 0.0))
        some = pivot > 0.0
        root[some, j:, j] = left[some] / pivot[some, None]
        root[:, j, j] = pivot
    return root


@lru_cache
def _rules(size: int) -> list[tuple[float, Array, Array]]:
    """Nodes (R, size) and weights (R,) for widths up to a limit: products of Gauss-Hermite rules, last the draws."""
    rules = []
    for limit, count in PRODUCTS:
        if count**size < DRAWS:
            nodes, shares = hermegauss(count)
            grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
            weights = reduce(np.multiply.outer, [shares / shares.sum()] * size).ravel()
            rules.append((limit, grid, weights))
    return [*rules, (np.inf, _normals(size), np.full(DRAWS, 1.0 / DRAWS))]


@lru_cache
def _normals(size: int) -> Array:
    """Quasi-random normal draws (DRAWS, size), mirrored, of unit covariance: a scrambled Sobol' sequence."""
    half = ndtri(qmc.Sobol(size, seed=np.random.default_rng(3)).random(DRAWS // 2))
    draws = np.concatenate([half, -half])
    draws = np.linalg.solve(np.linalg.cholesky(draws.T @ draws / DRAWS), draws.T).T
    draws.flags.writeable = False
    return draws
