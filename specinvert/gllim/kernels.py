"""The compiled loops between the matrix products: one pass over the rows of a block.

Inner loops run over the components, which are the last axis of every array, so that they vectorise. No NaN and no
infinity comes in: missing bands are taken out before. All kernels release the GIL and start no threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from .covariance import Array

NEGLIGIBLE = 41.5
"""A component whose log-density lies this far below the row's greatest has a responsibility below 1e-18: zero."""

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile without the GIL, the machine code kept on disk where some folder is writable."""
    options = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder to keep it in
        return numba.njit(**options)(function)


@compiled
def log_joint_rows(
    inner: Array,
    squares: Array,
    x: Array,
    map_cross: Array,
    fit_cross: Array,
    parameters: Array,
    centre: Array,
    whitening: Array,
    log_constant: Array,
    log_joint: Array,
    latent: Array,
) -> None:
    """Log-densities of each row under each component, and its whitened latents.

    With M_k x_n the regression's value and B_k the whitened maps, ``inner`` (n, p + q, K) holds B' Sigma^-1 y and
    M' Sigma^-1 y, ``squares`` (n, K) y' Sigma^-1 y, ``map_cross`` (p, q, K) B' Sigma^-1 M and ``fit_cross`` (q, q, K)
    M' Sigma^-1 M. ``parameters`` (n, L_t) have density N(centre, (W' W)^-1), ``centre`` (L_t, K) and lower triangular
    ``whitening`` (L_t, L_t, K). Fills ``log_joint`` (n, K) and ``latent`` (n, p, K).
    """
    n_rows, n_components = squares.shape
    p, q = map_cross.shape[0], map_cross.shape[1]
    n_t = centre.shape[0]
    distance = np.empty(n_components)
    part = np.empty(n_components)
    for n in range(n_rows):
        for k in range(n_components):
            distance[k] = squares[n, k]
        for i in range(q):
            xi = x[n, i]
            for k in range(n_components):
                part[k] = xi * fit_cross[i, i, k] - 2.0 * inner[n, p + i, k]
            for j in range(i):
                xj = 2.0 * x[n, j]
                for k in range(n_components):
                    part[k] += xj * fit_cross[i, j, k]
            for k in range(n_components):
                distance[k] += xi * part[k]
        for k in range(n_components):
            distance[k] = max(distance[k], 0.0)
        for i in range(p):
            for k in range(n_components):
                part[k] = inner[n, i, k]
            for j in range(q):
                xj = x[n, j]
                for k in range(n_components):
                    part[k] -= xj * map_cross[i, j, k]
            for k in range(n_components):
                latent[n, i, k] = part[k]
                distance[k] -= part[k] * part[k]
        for i in range(n_t):
            for k in range(n_components):
                part[k] = 0.0
            for j in range(i + 1):
                tj = parameters[n, j]
                for k in range(n_components):
                    part[k] += whitening[i, j, k] * (tj - centre[j, k])
            for k in range(n_components):
                distance[k] += part[k] * part[k]
        for k in range(n_components):
            log_joint[n, k] = log_constant[k] - 0.5 * distance[k]


@compiled
def normalize_rows(log_joint: Array, log_density: Array) -> int:
    """Log-sum-exp of each row into ``log_density`` (n,), the normalised weights in place; how many are not zero."""
    n_rows, n_components = log_joint.shape
    active = 0
    for n in range(n_rows):
        top = log_joint[n, 0]
        for k in range(1, n_components):
            top = max(top, log_joint[n, k])
        total = 0.0
        for k in range(n_components):
            below = log_joint[n, k] - top
            if below > -NEGLIGIBLE:
                weight = np.exp(below)
                active += 1
                total += weight
                log_joint[n, k] = weight
            else:
                log_joint[n, k] = 0.0
        scale = 1.0 / total
        for k in range(n_components):
            log_joint[n, k] *= scale
        log_density[n] = top + np.log(total)
    return active


@compiled
def _regressor(n: int, k: int, latent: Array, root: Array, mean: Array, parameters: Array, x: Array) -> None:
    """``x = [1; t; w]`` of row n under component k, w = mean_k + root_k latent[n, :, k]; root lower triangular."""
    n_t, p = parameters.shape[1], latent.shape[1]
    x[0] = 1.0
    for i in range(n_t):
        x[1 + i] = parameters[n, i]
    for i in range(p):
        value = mean[k, i]
        for j in range(i + 1):
            value += root[k, i, j] * latent[n, j, k]
        x[1 + n_t + i] = value


@compiled
def accumulate_rows(
    weights: Array,
    latent: Array,
    root: Array,
    mean: Array,
    parameters: Array,
    spectra: Array,
    outer: Array,
    sums: Array,
) -> None:
    """Add the rows of a block to the sums of the components that answer for them: cost of the weights not zero.

    With x = [1; t; w]: ``outer`` (K, 1 + L, 1 + L) of r x x' and ``sums`` (K, 1 + L, D) of r x y'.
    """
    n_rows, n_components = weights.shape
    size, n_bands = sums.shape[1], sums.shape[2]
    x = np.empty(size)
    for n in range(n_rows):
        for k in range(n_components):
            r = weights[n, k]
            if r != 0.0:
                _regressor(n, k, latent, root, mean, parameters, x)
                for i in range(size):
                    rx = r * x[i]
                    for j in range(size):
                        outer[k, i, j] += rx * x[j]
                    for d in range(n_bands):
                        sums[k, i, d] += rx * spectra[n, d]


@compiled
def weighted_rows(
    weights: Array, latent: Array, root: Array, mean: Array, parameters: Array, outer: Array, rows: Array
) -> None:
    """Like :func:`accumulate_rows`, but write r x into ``rows`` (n, K, 1 + L), zero at first, for a product with y."""
    n_rows, n_components = weights.shape
    size = outer.shape[1]
    x = np.empty(size)
    for n in range(n_rows):
        for k in range(n_components):
            r = weights[n, k]
            if r != 0.0:
                _regressor(n, k, latent, root, mean, parameters, x)
                for i in range(size):
                    rx = r * x[i]
                    rows[n, k, i] = rx
                    for j in range(size):
                        outer[k, i, j] += rx * x[j]


@compiled
def mixture_moments(
    weights: Array, latent: Array, root: Array, prior_mean: Array, within: Array, mean: Array, spread: Array
) -> None:
    """Mean (n, L) and covariance (n, L, L), or variances (n, L, 1), of the posterior mixture.

    Component k has mean prior_mean[k] + root_k latent[n, :, k] and covariance within[k] (K, L, L).
    """
    n_rows, n_components = weights.shape
    size = prior_mean.shape[1]
    full = spread.shape[2] == size and size > 1
    centres = np.empty((n_components, size))
    for n in range(n_rows):
        for i in range(size):
            mean[n, i] = 0.0
            for j in range(spread.shape[2]):
                spread[n, i, j] = 0.0
        for k in range(n_components):
            w = weights[n, k]
            if w != 0.0:
                for i in range(size):
                    value = prior_mean[k, i]
                    for j in range(i + 1):
                        value += root[k, i, j] * latent[n, j, k]
                    centres[k, i] = value
                    mean[n, i] += w * value
        for k in range(n_components):
            w = weights[n, k]
            if w != 0.0:
                for i in range(size):
                    gap = centres[k, i] - mean[n, i]
                    if full:
                        for j in range(size):
                            spread[n, i, j] += w * (within[k, i, j] + gap * (centres[k, j] - mean[n, j]))
                    else:
                        spread[n, i, 0] += w * (within[k, i, i] + gap * gap)
