"""Truncated Gaussian mixtures written out as mixtures again, for what transforms make of them.

Given the truncated dimension, every component is Gaussian in the others. Put at the nodes of a rule over its interval,
with the weights of the rule, a component is a mixture whose moments, of any smooth function, are those of the truncated
one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .arrays import Array
from .kernels import compiled
from .mixture import Mixture
from .truncation import RULE, interval_ends, interval_parts, mixture_arrays, nearest

SMALLEST = 1e-13
"""Share of a component below which a node is left out."""
NARROW = 1e-14
"""Variance of the truncated dimension at a node, over that of its component: none, but for divisions."""
NODES = 4096
"""Components times nodes that are written out at once."""


def written_out(mixture: Mixture, index: int, low: float | Array, high: float | Array) -> Iterator[Mixture]:
    """Mixtures given that ``index`` lies between ``low`` and ``high``, in blocks of consecutive rows.

    Each of the A components has Q nodes: mixtures of A x Q, weights zero where a node counts for nothing and in rows
    that are without weight in :func:`truncated`, which this takes its ends from and raises the errors of.
    """
    low, high = interval_ends(len(mixture), low, high)
    step = max(1, NODES // (mixture.weights.shape[1] * RULE.shape[1]))
    for start in range(0, max(len(mixture), 1), step):
        where = slice(start, start + step)
        block = mixture.select(where)
        (n, room), size, count = block.weights.shape, block.n_dimensions, RULE.shape[1]
        weights, means = np.zeros((n, room, count)), np.zeros((n, room, count, size))
        within = np.zeros((n, room, size, size))
        _node_rows(*mixture_arrays(block, index), index, low[where], high[where], RULE, weights, means, within)
        covariances = np.repeat(within[:, :, None], count, axis=2)
        yield Mixture(weights.reshape(n, -1), means.reshape(n, -1, size), covariances.reshape(n, -1, size, size))


@compiled
def _node_rows(
    weights: Array,
    means: Array,
    covariances: Array,
    index: int,
    low: Array,
    high: Array,
    rule: Array,
    shares: Array,
    nodes: Array,
    within: Array,
) -> None:
    n_components, size = means.shape[1:]
    share, part = np.empty(n_components), np.empty((n_components, 4))
    for n in range(len(weights)):
        spread, lo, hi = covariances[n], low[n], high[n]
        if np.isnan(interval_parts(weights[n], means[n], spread, index, lo, hi, rule, share, part)):
            continue
        for a in range(n_components):
            if share[a] > 0.0:
                variance = spread[a, index, index]
                deviation = math.sqrt(variance)
                z, start, end, whole = part[a]
                origin = nearest(z, means[n, a, index], lo, hi)
                half, middle = 0.5 * (end - start), 0.5 * (end + start)
                for q in range(rule.shape[1]):
                    t, weight = middle + half * rule[0, q], 0.5 * rule[1, q]
                    if end > start:
                        weight = half * rule[1, q] * math.exp(-t * (z + 0.5 * t)) / whole
                    if weight > SMALLEST:
                        shares[n, a, q] = share[a] * weight
                    value = min(max(origin + deviation * t, lo), hi)
                    for i in range(size):
                        shift = spread[a, i, index] / variance * (value - means[n, a, index])
                        nodes[n, a, q, i] = means[n, a, i] + shift
                    nodes[n, a, q, index] = value
            for i in range(size):
                for j in range(size):
                    if i != index and j != index:
                        within[n, a, i, j] = (
                            spread[a, i, j] - spread[a, i, index] * spread[a, index, j] / spread[a, index, index]
                        )
                within[n, a, i, i] = max(within[n, a, i, i], NARROW * spread[a, i, i])
        total = shares[n].sum()
        shares[n] /= total
