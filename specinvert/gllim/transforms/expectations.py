"""Moments of transformed Gaussians: t = g(z) for the standard transforms g of one parameter, z normal.

All functions are over arrays of Gaussians and free of loops over them. log and sqrt have closed forms. A logit, with p
the logistic function, has Gauss-Hermite quadrature where z varies by less than ``WIDE``; where it varies more, its
moments are sums over the logistic law itself, whose width is fixed: by parts, E[p(z)] = E[Phi((m - u) / s)] over u of
density p'(u) and E[p(z)^2] the same over u of density 2 p(u) p'(u). The trapezoidal rule is exact there to rounding.

A softplus, log(1 + e^z), is the mean of max(z - x, 0) over the logistic law of x: where z varies by more than ``SOFT``,
its moments are Gauss's rules for that law, before that the trapezoidal rule, and far above zero those of z.

Covariances of two: Stein's lemma where one is the identity, a tilt of the other's mean where one is a log, else
quadrature, or, of two wide logits, Plackett's identity, p being a scale mixture of normal distribution functions
(Monahan and Stefanski, 1992, *Normal scale mixture approximations to F*(z) and computation of the logistic-normal
integral*).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from scipy.special import expit, ndtr

from ..core import Array, compiled, inlined

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
SOFT = 3.0
"""Standard deviation of z from which a softplus is summed over the logistic law."""
FREE, FREE_DEVIATIONS = 9.0, 4.5
"""z whose mean lies so far above zero, and so many deviations more, is its own softplus, to 1.3e-4."""
CUBICS, CUBIC_REACH = 32, 24.0
"""Cubics in a unit of z, and where they end, that make up the softplus of -|z|, right to 4e-10."""


def _gauss(weight: Callable[[Array], Array], count: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss's rule for a density on the line, by Stieltjes' recurrence on a fine grid."""
    x = np.linspace(-45.0, 45.0, 4501)
    mass = weight(x) * (x[1] - x[0])
    total = mass.sum()
    before, now = np.zeros_like(x), np.full_like(x, total**-0.5)
    centres, links = np.empty(count), np.zeros(count)
    for k in range(count):
        centres[k] = mass @ (x * now * now)
        after = (x - centres[k]) * now - links[k - 1] * before
        links[k] = np.sqrt(mass @ (after * after))
        before, now = now, after / links[k]
    nodes, vectors = np.linalg.eigh(np.diag(centres) + np.diag(links[:-1], 1) + np.diag(links[:-1], -1))
    return nodes, total * vectors[0] ** 2


def _cubics() -> Array:
    """Coefficients (n, 4) of those that meet log(1 + e^-u) and its slope at both ends, and zero from the last on."""
    u = np.linspace(0.0, CUBIC_REACH, int(CUBICS * CUBIC_REACH) + 1)
    value, slope = np.logaddexp(0.0, -u), -expit(-u) / CUBICS
    rise, first, last = np.diff(value), slope[:-1], slope[1:]
    found = np.zeros((len(u), 4))
    found[:-1] = np.stack([value[:-1], first, 3.0 * rise - 2.0 * first - last, first + last - 2.0 * rise], axis=1)
    return found


def _trapezoid(step: float, count: int) -> tuple[Array, Array]:
    """Evenly spaced nodes and weights of a standard normal."""
    nodes = step * np.arange(-count, count + 1)
    shares = np.exp(-0.5 * nodes**2)
    return nodes, shares / shares.sum()


_LAW, _LAW_WIDE = (_gauss(lambda x: expit(x) * expit(-x), count) for count in (12, 8))
_SOFT_LAW, _SOFT_LAW_WIDE = (_gauss(lambda x: expit(x) * expit(-x) * np.logaddexp(0.0, x), count) for count in (12, 8))
_FEWEST = hermegauss(5)[0], hermegauss(5)[1] / hermegauss(5)[1].sum()
_CUBICS = _cubics()
_FEW, _MANY = _trapezoid(0.75, 7), _trapezoid(0.5, 11)


@compiled
def _ramp(gap: float, deviation: float) -> tuple[float, float]:
    """Means of max(x, 0) and of its square, x normal of mean ``gap``."""
    ratio = gap / deviation
    below = 0.5 * math.erfc(-ratio / math.sqrt(2.0))
    density = math.exp(-0.5 * ratio * ratio) / math.sqrt(2.0 * math.pi)
    first = deviation * (ratio * below + density)
    return first, deviation * (deviation * below + ratio * first)


@inlined
def softplus_free(scale: float, deviation: float) -> float:
    """The mean above which softplus of a ``scale`` leaves a normal of this ``deviation`` as it is."""
    return FREE * scale + FREE_DEVIATIONS * deviation


@inlined
def _soft(z: float) -> float:
    """log(1 + e^z)."""
    at = min(abs(z), CUBIC_REACH) * CUBICS
    i, part = np.uintp(int(at)), at - int(at)
    own = _CUBICS[i, 2] + part * _CUBICS[i, 3]
    return max(z, 0.0) + (_CUBICS[i, 0] + part * (_CUBICS[i, 1] + part * own))


@compiled
def softplus_moments(mean: float, variance: float) -> tuple[float, float]:
    """Mean and variance of log(1 + e^z)."""
    deviation = math.sqrt(variance)
    if mean >= FREE + FREE_DEVIATIONS * deviation:
        return mean, variance
    first, second = 0.0, 0.0
    if deviation <= SOFT:
        nodes, shares = _FEWEST if deviation <= 0.3 else _FEW if deviation <= 1.0 else _MANY
        centre = _soft(mean)
        for i in range(len(nodes)):
            gap = _soft(mean + deviation * nodes[i]) - centre
            first += shares[i] * gap
            second += shares[i] * gap * gap
        return max(centre + first, 0.0), max(second - first * first, 0.0)
    nodes, shares = _LAW if deviation <= 5.0 else _LAW_WIDE
    for i in range(len(nodes)):
        one, square = _ramp(mean - nodes[i], deviation)
        first += shares[i] * one
        second += shares[i] * (square - 2.0 * one)
    nodes, shares = _SOFT_LAW if deviation <= 5.0 else _SOFT_LAW_WIDE
    for i in range(len(nodes)):
        second += 2.0 * shares[i] * _ramp(mean - nodes[i], deviation)[0]
    return first, max(second - first * first, 0.0)


@compiled
def _each_softplus(means: Array, variances: Array, first: Array, second: Array) -> None:
    for i in range(len(means)):
        first[i], second[i] = softplus_moments(means[i], variances[i])


def _softplus(mean: Array, variance: Array) -> tuple[Array, Array]:
    """:func:`softplus_moments` of arrays of any shape."""
    means, variances = (np.ascontiguousarray(np.broadcast_to(v, mean.shape), np.float64) for v in (mean, variance))
    first, second = np.empty(mean.shape), np.empty(mean.shape)
    _each_softplus(means.ravel(), variances.ravel(), first.ravel(), second.ravel())
    return first, second


def moments(kind: str, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Mean and variance (n,) of t, for z of these means and variances (n,); infinite or NaN beyond float64."""
    if kind == "log":
        return np.exp(mean + 0.5 * variance), np.exp(2.0 * (mean + variance)) * -np.expm1(-variance)
    if kind == "sqrt":
        return _sqrt_moments(mean, variance)
    if kind == "softplus":
        return _softplus(mean, variance)
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
    if kind in ("logit", "softplus"):
        return _logistic(mean, variance, "slope" if kind == "logit" else "mean")[0]
    return np.ones_like(mean)


def covariance(
    kinds: tuple[str, str], means: tuple[Array, Array], variances: tuple[Array, Array], cross: Array
) -> Array:
    """Covariance (n,) of two t whose z have means, variances and covariances ``cross`` (n,)."""
    order = ("identity", "log", "sqrt", "softplus", "logit")
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
    if first in ("sqrt", "softplus"):
        return _bent_covariance(kinds, means, variances, cross)
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


def _bent_covariance(
    kinds: tuple[str, str], means: tuple[Array, Array], variances: tuple[Array, Array], cross: Array
) -> Array:
    """Of max(z, 0)^2 or a softplus and another t, whose mean given z is known: panels end where either bends."""
    bound = kinds[0] == "sqrt"
    deviation = np.sqrt(variances[0])
    gain = cross / variances[0]
    left = np.maximum(variances[1] - gain * cross, 1e-16 * variances[1])
    low = means[0] - REACH * deviation
    low = np.maximum(low, 0.0) if bound else low
    high = np.maximum(means[0] + REACH * deviation, low)
    bend = means[0] - np.divide(means[1], gain, out=np.zeros_like(gain), where=gain != 0.0)
    bends = [means[0], bend, *([] if bound else [np.full_like(low, end) for end in (-8.0, 0.0, 8.0)])]
    ends = np.sort(np.stack([low, *(np.clip(end, low, high) for end in bends), high], axis=1), axis=1)
    half = 0.5 * np.diff(ends, axis=1)[:, :, None]
    z = (ends[:, :-1, None] + half * (1.0 + LEGENDRE[0])).reshape(len(cross), -1)
    shares = (half * LEGENDRE[1]).reshape(len(cross), -1) / deviation[:, None]
    gap = z - means[0][:, None]
    given = average(kinds[1], means[1][:, None] + gain[:, None] * gap, np.broadcast_to(left[:, None], z.shape))
    # far above the bound both are centred, which keeps the digits
    free = means[0] >= 8.0 * deviation
    centre = np.where(free, means[0] ** 2 + variances[0], 0.0) if bound else average(kinds[0], means[0], variances[0])
    own = z * z if bound else np.logaddexp(0.0, z)
    other = given - average(kinds[1], means[1], variances[1])[:, None]
    return ((own - centre[:, None]) * other * _density(gap / deviation[:, None]) * shares).sum(axis=1)


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
