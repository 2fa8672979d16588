"""The compiled loops between the matrix products, one pass over the rows of a block, and what loops of others share.

Inner loops run over components or bands, the last axis of the arrays they read, so that they vectorise. No NaN comes
in: missing bands are taken out before. All kernels release the GIL and start no threads. Matrices of a row are small:
a call of a library costs more than their Cholesky factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from .arrays import Array

NEGLIGIBLE = 41.5
"""A component whose log-density lies this far below the row's greatest has a responsibility below 1e-18: zero."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _compile(function: Function, fastmath: set[str], **more: bool) -> Function:
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy", **more}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder to keep it in
        return numba.njit(**options)(function)


def compiled(function: Function) -> Function:
    """Compile without the GIL, the machine code kept on disk where some folder is writable."""
    return _compile(function, {"contract"})


def inlined(function: Function) -> Function:
    """Like :func:`compiled`, for a few operations that loops of others share: at the cost of no call."""
    return _compile(function, {"contract"}, forceinline=True)


def summing(function: Function) -> Function:
    """Like :func:`compiled`, with sums along a row in the order that vectorises."""
    return _compile(function, {"contract", "reassoc"})


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


@inlined
def solve_identity(lower: Array, inverse: Array) -> None:
    """Fill ``inverse`` (L, L) with that of L L'."""
    inverse[:] = 0.0
    for i in range(len(lower)):
        inverse[i, i] = 1.0
        solve(lower, inverse[i], inverse[i])


@summing
def centre_rows(spectra: Array, shift: Array, centred: Array, squares: Array) -> None:
    """Fill ``centred`` (n, D) with y - shift and ``squares`` (n,) with its square, for spectra of any float type.

    The square of a row with NaN or infinite values is not finite.
    """
    n_rows, n_bands = spectra.shape
    for n in range(n_rows):
        square = 0.0
        for d in range(n_bands):
            value = spectra[n, d] - shift[d]
            centred[n, d] = value
            square += value * value
        squares[n] = square


@compiled
def scale_rows(values: Array, shift: Array, scale: Array, scaled: Array) -> None:
    """Fill ``scaled`` (n, m) with (values - shift) / scale, for values of any float type."""
    factor = 1.0 / scale
    for n in range(values.shape[0]):
        for d in range(values.shape[1]):
            scaled[n, d] = (values[n, d] - shift[d]) * factor[d]


@compiled
def prior_rows(parameters: Array, centre: Array, whitening: Array, log_constant: Array, log_prior: Array) -> None:
    """Fill ``log_prior`` (n, K) with log_constant_k - |W_k (t - c_k)|^2 / 2.

    ``centre`` c is (L_t, K), lower triangular ``whitening`` W (L_t, L_t, K).
    """
    n_rows, n_t = parameters.shape
    n_components = len(log_constant)
    part = np.empty(n_components)
    for n in range(n_rows):
        for k in range(n_components):
            log_prior[n, k] = log_constant[k]
        for i in range(n_t):
            for k in range(n_components):
                part[k] = 0.0
            for j in range(i + 1):
                tj = parameters[n, j]
                for k in range(n_components):
                    part[k] += whitening[i, j, k] * (tj - centre[j, k])
            for k in range(n_components):
                log_prior[n, k] -= 0.5 * part[k] * part[k]


class Expansion(NamedTuple):
    """What :func:`expand_rows` takes of K components with regressors of size q, p = upper' z and D bands.

    Attributes
    ----------
    precision : (K,) by which the square of y counts where all bands have one variance.
    cross : (q, p, K) products of upper with the whitened regressors.
    quadratic : (q (q + 1) / 2, K) of the whitened regressors with each other, halved on the diagonal.
    """

    precision: Array
    cross: Array
    quadratic: Array


@summing
def expand_rows(
    spectra: Array, x: Array, product: Array, squares: Array, expansion: Expansion, log_joint: Array
) -> None:
    """Take half the distances left, z'z - p'p, from ``log_joint`` (n, K) in place, squares being expanded.

    ``product`` (n, p + q, K) of y with upper and whitened regressors holds p = upper' z when done; its last q entries
    stay. y'y in the metric of Sigma is ``squares`` (n, K) or, where that is (n, 0), the square of y by the precision.
    """
    precision, cross, quadratic = expansion
    n_rows, n_components = log_joint.shape
    q, p = x.shape[1], cross.shape[1]
    half = np.empty(n_components)
    for n in range(n_rows):
        if squares.shape[1] > 0:
            for k in range(n_components):
                half[k] = 0.5 * squares[n, k]
        else:
            square = _add_square(0.0, spectra[n])
            for k in range(n_components):
                half[k] = 0.5 * square * precision[k]
        _subtract_expected(n, x, product, p, quadratic, half)
        for i in range(p):
            for j in range(q):
                factor = x[n, j]
                for k in range(n_components):
                    product[n, i, k] -= factor * cross[j, i, k]
            for k in range(n_components):
                half[k] -= 0.5 * product[n, i, k] * product[n, i, k]
        for k in range(n_components):
            log_joint[n, k] -= half[k]


@inlined
def _subtract_expected(n: int, x: Array, product: Array, p: int, quadratic: Array, half: Array) -> None:
    """Turn ``half`` (K,) squares of row n into those of what is left of it by the regressors, none below zero."""
    q, pair = x.shape[1], 0
    for i in range(q):
        factor = x[n, i]
        for k in range(len(half)):
            half[k] -= factor * product[n, p + i, k]
        for j in range(i, q):
            both = factor * x[n, j]
            for k in range(len(half)):
                half[k] += both * quadratic[pair, k]
            pair += 1
    for k in range(len(half)):
        half[k] = max(half[k], 0.0)


@summing
def _add_square(total: float, values: Array) -> float:
    for d in range(len(values)):
        total += values[d] * values[d]
    return total


class Coarse(NamedTuple):
    """What :func:`form_rows` takes of the F components for which expanded squares cancel.

    Attributes
    ----------
    components : (F,). root : (F, D) of the precision, the greatest of which is ``precision`` (F,).
    regression : (F, q, D). upper : (F, p, D). lower : (F, p, p).
    lengths : (p + q, F); each entry of p and of the shares is off by at most gamma |(y, x)| times that, the square of y
        in the metric of Sigma by gamma |y|^2 times the precision.
    gamma : bound of the rounding of a product of rows and columns, relative to their lengths.
    """

    components: NDArray[np.intp]
    precision: Array
    lengths: Array
    gamma: float
    root: Array
    regression: Array
    upper: Array
    lower: Array


@summing
def form_rows(
    spectra: Array, x: Array, product: Array, coarse: Coarse, log_prior: Array, reach: float, log_joint: Array
) -> None:
    """Put right ``log_joint`` (n, K) of :func:`expand_rows` for the coarse components, of ``log_prior`` (n, F) before.

    Where the log-density may be within ``reach`` of the row's greatest, the residual is formed, else it is -inf.
    """
    n_components, n_coarse = log_joint.shape[1], len(coarse.components)
    fine = np.ones(n_components, dtype=np.bool_)
    for k in coarse.components:
        fine[k] = False
    slack, z = np.empty(n_coarse), np.empty(spectra.shape[1])
    for n in range(len(spectra)):
        top = -np.inf
        for k in range(n_components):
            if fine[k] and log_joint[n, k] > top:
                top = log_joint[n, k]
        _fill_slack(spectra[n], x[n], product[n], coarse, log_prior[n], slack)
        for f in range(n_coarse):
            top = max(top, log_joint[n, coarse.components[f]] - slack[f])
        for f in range(n_coarse):
            k = coarse.components[f]
            if log_joint[n, k] + slack[f] < top - reach:
                log_joint[n, k] = -np.inf
            else:
                log_joint[n, k] = log_prior[n, f] - 0.5 * _formed_distance(spectra[n], x[n], f, coarse, product[n], z)


@summing
def _fill_slack(y: Array, x: Array, product: Array, coarse: Coarse, log_prior: Array, slack: Array) -> None:
    """By how much a row's log-densities of coarse components may be off."""
    q, n_p = len(x), coarse.upper.shape[1]
    square = _add_square(0.0, y)
    off = coarse.gamma * np.sqrt(_add_square(square, x))
    for f in range(len(slack)):
        k = coarse.components[f]
        bound = coarse.gamma * (square * coarse.precision[f] + abs(log_prior[f]))
        for i in range(q):
            bound += 2.0 * abs(x[i]) * off * coarse.lengths[n_p + i, f]
        for i in range(n_p):
            blur = off * coarse.lengths[i, f]
            bound += blur * (2.0 * abs(product[i, k]) + blur)
        slack[f] = bound


@summing
def _formed_distance(y: Array, x: Array, f: int, coarse: Coarse, product: Array, z: Array) -> float:
    """The distance left of a row under the coarse component f, whose p is put right; ``z`` (D,) is overwritten."""
    k, n_bands, n_p = coarse.components[f], len(y), coarse.upper.shape[1]
    for d in range(n_bands):
        z[d] = y[d]
    for i in range(len(x)):
        for d in range(n_bands):
            z[d] -= x[i] * coarse.regression[f, i, d]
    for d in range(n_bands):
        z[d] *= coarse.root[f, d]
    for i in range(n_p):
        value = 0.0
        for d in range(n_bands):
            value += coarse.upper[f, i, d] * z[d]
        product[i, k] = value
    left = 0.0
    for i in range(n_p):
        value = 0.0
        for j in range(n_p):
            value += coarse.lower[f, i, j] * product[j, k]
        left += value * value
        for d in range(n_bands):
            z[d] -= coarse.upper[f, i, d] * product[i, k]
    return _add_square(left, z)


@compiled
def normalize_rows(log_joint: Array, log_density: Array) -> None:
    """Log-sum-exp of each row into ``log_density`` (n,), the normalised weights in place."""
    n_rows, n_components = log_joint.shape
    whole = n_components - n_components % 4
    active = np.empty(n_components, dtype=np.intp)
    share = np.empty(n_components)
    for n in range(n_rows):
        t0, t1, t2, t3 = log_joint[n, 0], -np.inf, -np.inf, -np.inf
        for k in range(0, whole, 4):
            t0, t1 = max(t0, log_joint[n, k]), max(t1, log_joint[n, k + 1])
            t2, t3 = max(t2, log_joint[n, k + 2]), max(t3, log_joint[n, k + 3])
        top = max(max(t0, t1), max(t2, t3))
        for k in range(whole, n_components):
            top = max(top, log_joint[n, k])
        count = 0
        for k in range(n_components):
            active[count] = k
            share[count] = log_joint[n, k] - top
            count += share[count] > -NEGLIGIBLE
            log_joint[n, k] = 0.0
        total = 0.0
        for a in range(count):
            share[a] = np.exp(share[a])
            total += share[a]
        for a in range(count):
            log_joint[n, active[a]] = share[a] / total
        log_density[n] = top + np.log(total)


@inlined
def latent_mean(n: int, k: int, i: int, latent: Array, root: Array, value: float) -> float:
    """Dimension i of a mean that is ``value`` before row n is seen: value + root_k latent[n, :, k], eq. SOLVA_EWstep3.

    ``root`` (K, p, p) is lower triangular, ``latent`` (n, p or more, K).
    """
    for j in range(i + 1):
        value += root[k, i, j] * latent[n, j, k]
    return value


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

    With x = [1; t; w], w the :func:`latent_mean` about ``mean`` (K, p): ``outer`` (K, 1 + L, 1 + L) of r x x' and
    ``sums`` (K, 1 + L, D) of r x y'.
    """
    n_rows, n_components = weights.shape
    size, n_bands, n_t = sums.shape[1], sums.shape[2], parameters.shape[1]
    x = np.ones(size)
    for n in range(n_rows):
        for i in range(n_t):
            x[1 + i] = parameters[n, i]
        for k in range(n_components):
            r = weights[n, k]
            if r != 0.0:
                for i in range(size - 1 - n_t):
                    x[1 + n_t + i] = latent_mean(n, k, i, latent, root, mean[k, i])
                for i in range(size):
                    rx = r * x[i]
                    for j in range(size):
                        outer[k, i, j] += rx * x[j]
                    for d in range(n_bands):
                        sums[k, i, d] += rx * spectra[n, d]


@compiled
def accumulate_squares(weights: Array, spectra: Array, sums: Array) -> None:
    """Add r y^2 to ``sums`` (K, D), for weights (n, K) and spectra (n, D)."""
    n_rows, n_components = weights.shape
    for n in range(n_rows):
        for k in range(n_components):
            r = weights[n, k]
            if r != 0.0:
                for d in range(spectra.shape[1]):
                    sums[k, d] += r * spectra[n, d] * spectra[n, d]
