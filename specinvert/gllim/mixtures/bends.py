"""What modes of parameters t add to those of their transforms z: log |dz/dt|, convex in z, and its slopes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Array, compiled

BENT = ("identity", "log", "sqrt", "logit", "softplus", "ilr")
"""Transforms, by number."""
AT_ZERO = 700.0
"""Counts as the log-density of a parameter whose square root is zero or less: it is infinite there."""


class Bends(NamedTuple):
    """Transforms of the dimensions, or none.

    Attributes
    ----------
    kinds : (L,) places in ``BENT``; a composition's first dimension has its kind, the others that of the identity.
    units : (L,) of z under a softplus, the number of dimensions of a composition.
    """

    kinds: NDArray[np.int64]
    units: Array


STRAIGHT = Bends(np.empty(0, dtype=np.int64), np.empty(0))


@compiled
def admit(x: Array, bends: Bends) -> None:
    """Move square roots below zero to zero."""
    for i in range(len(bends.kinds)):
        if bends.kinds[i] == 2:
            x[i] = max(x[i], 0.0)


@compiled
def bend(x: Array, bends: Bends, gradient: Array, metric: Array, curvature: Array) -> float:
    """log |dz/dt| at x; add its slopes to ``gradient`` and ``curvature``. Square roots that are zero stay so."""
    total = 0.0
    for i in range(len(bends.kinds)):
        kind, unit = bends.kinds[i], bends.units[i]
        if kind == 1:
            total -= x[i]
            gradient[i] -= 1.0
        elif kind == 2 and x[i] > 0.0:
            total -= math.log(2.0 * x[i])
            gradient[i] -= 1.0 / x[i]
            curvature[i, i] -= 1.0 / x[i] ** 2
        elif kind == 2:
            total += AT_ZERO
            gradient[i], curvature[i, i] = 0.0, metric[i, i]
            for j in range(len(x)):
                if j != i:
                    metric[i, j] = metric[j, i] = curvature[i, j] = curvature[j, i] = 0.0
        elif kind == 3:
            slope = math.tanh(0.5 * x[i])
            total += abs(x[i]) + 2.0 * math.log1p(math.exp(-abs(x[i])))
            gradient[i] += slope
            curvature[i, i] -= 0.5 * (1.0 - slope * slope)
        elif kind == 4:
            small = math.exp(-abs(x[i]) / unit)
            total += math.log1p(small) - min(x[i], 0.0) / unit
            gradient[i] -= (small if x[i] > 0.0 else 1.0) / (1.0 + small) / unit
            curvature[i, i] -= small / ((1.0 + small) * unit) ** 2
        elif kind == 5:
            total += _composition(x, i, int(unit), gradient, curvature)
    return total


@compiled
def _composition(x: Array, start: int, size: int, gradient: Array, curvature: Array) -> float:
    """:func:`bend` of isometric log-ratios, ``size`` of them from ``start``."""
    n_parts = size + 1
    basis, part, mean = np.zeros((n_parts, size)), np.zeros(n_parts), np.zeros(size)
    for j in range(size):
        basis[: j + 1, j] = 1.0 / math.sqrt((j + 1.0) * (j + 2.0))
        basis[j + 1, j] = -math.sqrt((j + 1.0) / (j + 2.0))
        for i in range(n_parts):
            part[i] += basis[i, j] * x[start + j]
    top = part.max()
    whole = np.exp(part - top).sum()
    total = n_parts * (top + math.log(whole))
    for i in range(n_parts):
        part[i] = math.exp(part[i] - top) / whole
        for j in range(size):
            mean[j] += part[i] * basis[i, j]
    for j in range(size):
        gradient[start + j] += n_parts * mean[j]
        for k in range(size):
            spread = -mean[j] * mean[k]
            for i in range(n_parts):
                spread += part[i] * basis[i, j] * basis[i, k]
            curvature[start + j, start + k] -= n_parts * spread
    return total
