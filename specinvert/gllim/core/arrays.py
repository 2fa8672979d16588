"""The array type of the numerical core.

A number for a row of numbers that depends on their values alone: choices that no order and no chunks change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
"""Floating-point arrays; computations are in float64, input may be float32."""


Hashes = np.ndarray[Any, np.dtype[np.uint64]]


def row_hash(values: Array) -> Hashes:
    """(n,) of float64 ``values`` (n, m); equal rows have equal numbers."""
    state = np.zeros(len(values), dtype=np.uint64)
    for column in np.ascontiguousarray(values, dtype=np.float64).view(np.uint64).T:
        state = _mixed(state ^ column)
    return state


def _mixed(state: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


LOG_2PI = float(np.log(2.0 * np.pi))
