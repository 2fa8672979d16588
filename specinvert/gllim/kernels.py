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


def _compile(function: Function, fastmath: set[str]) -> Function:
    options = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder to keep it in
        return numba.njit(**options)(function)


def compiled(function: Function) -> Function:
    """Compile without the GIL, the machine code kept on disk where some folder is writable."""
    return _compile(function, {"contract"})


def summing(function: Function) -> Function:
    """Like :func:`compiled`, with sums along a row in the order that vectorises."""
    return _compile(function, {"contract", "reassoc"})


@summing
def extend_rows(spectra: Array, shift: Array, x: Array, rows: Array) -> None:
    """Fill ``rows`` (n, D + q + 1) with y - shift, x (n, q) and |y - shift|^2, for spectra (n, D) of any float type.

    A row with NaN or infinite values has a last entry that is not finite.
    """
    n_rows, n_bands = spectra.shape
    q = x.shape[1]
    for n in range(n_rows):
        square = 0.0
        for d in range(n_bands):
            value = spectra[n, d] - shift[d]
            rows[n, d] = value
            square += value * value
        for i in range(q):
            rows[n, n_bands + i] = x[n, i]
        rows[n, n_bands + q] = square


@compiled
def log_joint_rows(
    inner: Array,
    squares: Array,
    x: Array,
    formed: np.ndarray[Any, np.dtype[np.intp]],
    left: Array,
    parameters: Array,
    centre: Array,
    whitening: Array,
    log_constant: Array,
    log_joint: Array,
) -> None:
    """Log-density of each row under each component, into ``log_joint`` (n, K).

    ``inner`` (n, p + q, K) holds the whitened latents and, for each entry of ``x`` (n, q), the share that makes
    ``squares - 2 x' inner[p:]`` the squared distance of the residual; ``squares`` (n, K), or (n, 0) where they are in
    the shares. ``left`` (n, F) are the distances left of the components ``formed`` (F,), whatever the others say.
    ``parameters`` (n, L_t) have density N(centre, (W' W)^-1), ``centre`` (L_t, K), lower triangular ``whitening`` W
    (L_t, L_t, K).
    """
    n_rows, n_components = log_joint.shape
    q, n_t = x.shape[1], centre.shape[0]
    p = inner.shape[1] - q
    distance = np.empty(n_components)
    part = np.empty(n_components)
    for n in range(n_rows):
        if squares.shape[1] > 0:
            for k in range(n_components):
                distance[k] = squares[n, k]
        else:
            for k in range(n_components):
                distance[k] = 0.0
        for i in range(q):
            twice = 2.0 * x[n, i]
            for k in range(n_components):
                distance[k] -= twice * inner[n, p + i, k]
        for k in range(n_components):
            distance[k] = max(distance[k], 0.0)
        for i in range(p):
            for k in range(n_components):
                distance[k] -= inner[n, i, k] * inner[n, i, k]
        for f in range(len(formed)):
            distance[formed[f]] = left[n, f]
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
    full = spread.shape[2] == size
    active = np.empty(n_components, dtype=np.intp)
    centres = np.empty((n_components, size))
    for n in range(n_rows):
        count = 0
        for k in range(n_components):
            active[count] = k
            count += weights[n, k] != 0.0
        mean[n] = 0.0
        spread[n] = 0.0
        for a in range(count):
            k = active[a]
            w = weights[n, k]
            for i in range(size):
                value = prior_mean[k, i]
                for j in range(i + 1):
                    value += root[k, i, j] * latent[n, j, k]
                centres[a, i] = value
                mean[n, i] += w * value
        for a in range(count):
            k = active[a]
            w = weights[n, k]
            for i in range(size):
                gap = centres[a, i] - mean[n, i]
                if full:
                    for j in range(size):
                        spread[n, i, j] += w * (within[k, i, j] + gap * (centres[a, j] - mean[n, j]))
                else:
                    spread[n, i, 0] += w * (within[k, i, i] + gap * gap)
