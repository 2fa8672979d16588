"""How far out in the model a spectrum lies: the tail probability of its distance to every component.

sum_k r_k P(chi2_D' > d_k^2), with the responsibilities r_k and squared distances d_k^2 of the D' valid bands, stays
comparable where bands are missing or noise is declared, unlike the density. In logarithms, because the spectra of
another material lie far beyond the least float.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincc, gammaln

from ..core import Array
from .posterior import Posterior
from .rowwise import RowPosterior

ENOUGH = 0.25
"""Weight of one component that is looked at alone."""
_SMALL = 1e-280
_TERMS = 500


def log_chi2_tail(distance: Array, degrees: Array) -> Array:
    """log P(chi2 > distance) for ``degrees`` of freedom, broadcast; -inf for an infinite distance."""
    half, x = np.broadcast_arrays(0.5 * np.asarray(degrees, dtype=np.float64), 0.5 * np.asarray(distance))
    with np.errstate(divide="ignore"):
        log_share = np.log(gammaincc(half, x))
    far = np.isfinite(x) & ~(log_share > np.log(_SMALL)) & (x > half)
    if far.any():
        log_share[far] = _far_tail(half[far], x[far])
    return np.asarray(log_share)


def _far_tail(half: Array, x: Array) -> Array:
    """log Q(a, x) for x above a by Legendre's continued fraction, modified Lentz (Numerical Recipes, sec. 6.2)."""
    b = x + 1.0 - half
    c = np.full_like(b, 1e300)
    d = 1.0 / b
    h = d.copy()
    for i in range(1, _TERMS):
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
    level's distance; in between tails are summed.
    """
    weight, distance = posterior.heaviest()
    if np.ndim(n_valid) == 0 and np.ndim(log_level) == 0:
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
