"""Cholesky factors of small matrices, for compiled loops over rows: a call of a library costs more than the work."""

from __future__ import annotations

import math

from .arrays import Array
from .kernels import compiled


@compiled
def factor(matrix: Array, lower: Array) -> float:
    """Cholesky factor of ``matrix`` (L, L) in the lower half of ``lower``; its log determinant.

    NaN where it is not positive definite: the columns up to the first pivot below 1e-14 of its diagonal are filled.
    """
    log_det = 0.0
    for j in range(len(matrix)):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= lower[j, k] * lower[j, k]
        if not pivot > 1e-14 * abs(matrix[j, j]):
            lower[j, j] = 0.0
            return math.nan
        log_det += math.log(pivot)
        lower[j, j] = math.sqrt(pivot)
        for i in range(j + 1, len(matrix)):
            total = matrix[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = total / lower[j, j]
    return log_det


@compiled
def solve(lower: Array, right: Array, solution: Array) -> None:
    """Solve L L' x = ``right`` (L,); ``solution`` may be the same array."""
    size = len(lower)
    for i in range(size):
        total = right[i]
        for k in range(i):
            total -= lower[i, k] * solution[k]
        solution[i] = total / lower[i, i]
    for i in range(size - 1, -1, -1):
        total = solution[i]
        for k in range(i + 1, size):
            total -= lower[k, i] * solution[k]
        solution[i] = total / lower[i, i]
