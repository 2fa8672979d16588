"""Moments of transformed Gaussians: t = g(z) for the standard transforms g of one parameter, z normal.

All functions are over arrays of Gaussians and free of loops over them. log and sqrt have closed forms. A logit, with p
the logistic function, has Gauss-Hermite quadrature where z varies by less than ``WIDE``; where it varies more, its
moments are sums over the logistic law itself, whose width is fixed: by parts, E[p(z)] = E[Phi((m - u) / s)] over u of
density p'(u) and E[p(z)^2] the same over u of density 2 p(u) p'(u). The trapezoidal rule is exact there to rounding.

Covariances of two: Stein's lemma where one is the identity, a tilt of the other's mean where one is a log, else
quadrature, or, of two wide logits, Plackett's identity, p being a scale mixture of normal distribution functions
(Monahan and Stefanski, 1992, *Normal scale mixture approximations to F*(z) and computation of the logistic-normal
integral*).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from scipy.special import expit, ndtr

from ..core import Array

WIDE = 1.0
"""Standard deviation of z from which logistic functions are summed over the logistic law."""
HERMITE = {
    limit: (nodes, shares / shares.sum()) for limit, (nodes, shares) in ((0.5, hermegauss(8)), (1.0, hermegauss(16)))
}
"""Nodes and weights of a Gaussian for standard deviations of a logit up to so much; relative errors of 2e-7."""
LEGENDRE = leggauss(20)
LOGISTIC = 0.75 * np.arange(-32, 28)
"""Nodes of the trapezoidal rule over the logistic law, further to the left: only means of z below zero come."""
STEP = 0.75
PROBIT_SHARES = np.array(
    [0.009072601844, 0.108883673742, 0.316956721871, 0.373942525987, 0.172696347087, 0.018448129469]
)
PROBIT_SLOPES = np.array(
    [0.269457676004, 0.366681343106, 0.495525307298, 0.668320792447, 0.897336409159, 1.211252222183]
)
"""p(u) = sum of shares Phi(slope u) to 8.4e-8, fitted to the least greatest error."""
REACH = 8.5
"""Standard deviations within which quadrature takes a Gaussian to lie."""


def moments(kind: str, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance (n,) of t, for z of these means and variances (n,); infinite or NaN beyond float64."""
    if kind == "log":
        return np.exp(mean + 0.5 * variance), np.exp(2.0 * (mean + variance)) * -np.expm1(-variance)
    if kind == "sqrt":
        return _sqrt_moments(mean, variance)
    if kind == "logit":
        first, second = _logistic(mean, variance, "moments")
        return first, second
    return mean, variance


def average(kind: str, mean: Array, variance: Array) -> Array:
    """Mean of t alone."""
    if kind == "logit":
        return _logistic(mean, variance, "mean")[0]
    return moments(kind, mean, variance)[0]


def smoothed(kind: str, mean: Array, variance: Array) -> Array:
    """Mean of t alone for many Gaussians; of a logit to 8.4e-8."""
    if kind != "logit":
        return average(kind, mean, variance)
    total = np.zeros(mean.shape)
    for share, steepness in zip(PROBIT_SHARES, PROBIT_SLOPES, strict=True):
        total += share * ndtr(steepness / np.sqrt(1.0 + steepness**2 * variance) * mean)
    return total


def slope(kind: str, mean: Array, variance: Array) -> Array:
    """Mean of dt/dz."""
    if kind == "log":
        return average(kind, mean, variance)
    if kind == "sqrt":
        deviation = np.sqrt(variance)
        ratio = mean / deviation
        return 2.0 * deviation * np.maximum(ratio * ndtr(ratio) + _density(ratio), 0.0)
    if kind == "logit":
        return _logistic(mean, variance, "slope")[0]
    return np.ones_like(mean)


def covariance(
    kinds: tuple[str, str], means: tuple[Array, Array], variances: tuple[Array, Array], cross: Array
) -> Array:
    """Covariance (n,) of two t whose z have means, variances and covariances ``cross`` (n,)."""
    order = ("identity", "log", "sqrt", "logit")
    if order.index(kinds[1]) < order.index(kinds[0]):
        kinds, means, variances = kinds[::-1], means[::-1], variances[::-1]
    first, second = kinds
    if first == "identity":
        return cross * slope(second, means[1], variances[1])
    if kinds == ("log", "log"):
        total = means[0] + means[1] + 0.5 * (variances[0] + variances[1])
        above = np.maximum(cross, 0.0)
        return np.exp(total + above) * np.where(cross > 0.0, -np.expm1(-above), np.expm1(np.minimum(cross, 0.0)))
    if first == "log":
        shift = average(second, means[1] + cross, variances[1]) - average(second, means[1], variances[1])
        return average(first, means[0], variances[0]) * shift
    if first == "sqrt":
        return _sqrt_covariance(second, means, variances, cross)
    narrow = (variances[0] <= WIDE**2) & (variances[1] <= WIDE**2)
    covariances = np.empty(len(cross))
    for where, function in ((narrow, _narrow_covariance), (~narrow, _wide_covariance)):
        if where.any():
            (m, n), (v, w) = ((pair[0][where], pair[1][where]) for pair in (means, variances))
            covariances[where] = function(m, n, v, w, cross[where])
    return covariances


def _density(x: Any) -> Any:
    return np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)


def _sqrt_moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Of max(z, 0)^2; eight deviations above zero the bound does not count, and the moments are those of z^2."""
    deviation = np.sqrt(variance)
    ratio = np.clip(mean / deviation, -40.0, 8.0)
    below, density, square = ndtr(ratio), _density(ratio), ratio * ratio
    first = np.maximum((square + 1.0) * below + ratio * density, 0.0)
    second = (square * square + 6.0 * square + 3.0) * below + (square + 5.0) * ratio * density
    free = mean >= 8.0 * deviation
    return (
        np.where(free, mean * mean + variance, variance * first),
        np.where(
            free, 2.0 * variance * (2.0 * mean * mean + variance), variance**2 * np.maximum(second - first * first, 0.0)
        ),
    )


def _logistic(mean: Array, variance: Array, what: str) -> tuple[Array, ...]:
    """Mean, mean and variance ("moments"), or mean ("slope") of p', of the logistic function p."""
    deviation = np.sqrt(variance)
    turned = -np.abs(mean)
    sums: list[Array] = [np.empty(mean.shape) for _ in range(2 if what == "moments" else 1)]
    done = np.zeros(mean.shape, dtype=bool)
    for limit, (nodes, shares) in HERMITE.items():
        where = ~done & (deviation <= limit)
        done |= where
        if where.any():
            p = expit(turned[where, None] + deviation[where, None] * nodes)
            if what == "slope":
                sums[0][where] = (p * (1.0 - p)) @ shares
                continue
            sums[0][where] = p @ shares
            if what == "moments":
                sums[1][where] = (p - sums[0][where][:, None]) ** 2 @ shares
    if not done.all():
        _wide_logistic(turned, deviation, what, ~done, sums)
    if what != "slope":
        sums[0] = np.where(mean > 0.0, 1.0 - sums[0], sums[0])
    return tuple(sums)


def _wide_logistic(mean: Array, deviation: Array, what: str, where: Any, sums: list[Array]) -> None:
    """Fill ``sums`` at ``where`` by sums over the logistic law."""
    p = expit(LOGISTIC)
    law = STEP * p * expit(-LOGISTIC)
    ratio = (mean[where, None] - LOGISTIC) / deviation[where, None]
    if what == "slope":
        sums[0][where] = _density(ratio) @ law / deviation[where]
        return
    below = ndtr(ratio)
    sums[0][where] = below @ law
    if what == "moments":
        sums[1][where] = np.maximum(below @ (2.0 * p * law) - sums[0][where] ** 2, 0.0)


def _sqrt_covariance(kind: str, means: tuple[Array, Array], variances: tuple[Array, Array], cross: Array) -> Array:
    """Of max(z, 0)^2 and t of ``kind``: over z, the mean of t given z is known; panels end where either bends."""
    deviation = np.sqrt(variances[0])
    gain = cross / variances[0]
    left = np.maximum(variances[1] - gain * cross, 1e-16 * variances[1])
    low = np.maximum(means[0] - REACH * deviation, 0.0)
    high = np.maximum(means[0] + REACH * deviation, low)
    bend = means[0] - np.divide(means[1], gain, out=np.zeros_like(gain), where=gain != 0.0)
    ends = np.sort(np.stack([low, np.clip(means[0], low, high), np.clip(bend, low, high), high], axis=1), axis=1)
    half = 0.5 * np.diff(ends, axis=1)[:, :, None]
    z = (ends[:, :-1, None] + half * (1.0 + LEGENDRE[0])).reshape(len(cross), -1)
    shares = (half * LEGENDRE[1]).reshape(len(cross), -1) / deviation[:, None]
    gap = z - means[0][:, None]
    given = average(kind, means[1][:, None] + gain[:, None] * gap, np.broadcast_to(left[:, None], z.shape))
    # far above the bound both are centred, which keeps the digits
    centre = np.where(means[0] >= 8.0 * deviation, means[0] ** 2 + variances[0], 0.0)
    other = given - average(kind, means[1], variances[1])[:, None]
    return ((z * z - centre[:, None]) * other * _density(gap / deviation[:, None]) * shares).sum(axis=1)


def _narrow_covariance(m: Array, n: Array, v: Array, w: Array, cross: Array) -> Array:
    """Of two logistic functions by a product of Gauss-Hermite rules."""
    covariances = np.empty(len(cross))
    done = np.zeros(len(cross), dtype=bool)
    for limit, (nodes, shares) in HERMITE.items():
        at = ~done & (np.maximum(v, w) <= limit**2)
        done |= at
        gain = cross[at] / np.sqrt(v[at])
        left = np.sqrt(np.maximum(w[at] - gain**2, 0.0))
        p = expit(m[at, None] + np.sqrt(v[at, None]) * nodes)
        given = expit(n[at, None, None] + gain[:, None, None] * nodes[:, None] + left[:, None, None] * nodes) @ shares
        given -= (given @ shares)[:, None]
        covariances[at] = ((p - (p @ shares)[:, None]) * given) @ shares
    return covariances


def _wide_covariance(m: Array, n: Array, v: Array, w: Array, cross: Array) -> Array:
    """Of two logistic functions by Plackett's identity over the angle asin of the correlation."""
    wide = [np.sqrt(1.0 + variance[:, None] * PROBIT_SLOPES**2) / PROBIT_SLOPES for variance in (v, w)]
    sign = np.where(cross < 0.0, -1.0, 1.0)[:, None, None]
    h = (m[:, None] / wide[0])[:, :, None]
    k = sign * (n[:, None] / wide[1])[:, None, :]
    angle = np.arcsin(np.minimum(abs(cross[:, None, None]) / (wide[0][:, :, None] * wide[1][:, None, :]), 1.0))
    total = np.zeros(angle.shape)
    for node, share in zip(0.5 * (1.0 + LEGENDRE[0]), 0.5 * LEGENDRE[1], strict=True):
        # nodes crowd at the far end, where the integrand drops for a correlation near one
        theta = angle * (1.0 - (1.0 - node) ** 2)
        exponent = 0.5 * ((h - k) / np.cos(theta)) ** 2 + h * k / (1.0 + np.sin(theta))
        total += 2.0 * (1.0 - node) * share * np.exp(-exponent)
    total *= sign * angle / (2.0 * np.pi)
    return np.einsum("k,l,nkl->n", PROBIT_SHARES, PROBIT_SHARES, total)
