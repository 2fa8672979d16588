"""Transforms of every kind, mixtures in their space, and what integrals and draws say of them."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.special import expit, ndtri

from specinvert.gllim.mixtures.mixture import Mixture
from specinvert.gllim.transforms.transforms import Transforms
from strategies import covariances

NAMES = ("slope", "grain", "sand", "ice", "clay", "lai", "silt")
SPEC = {"grain": "log", "ice": ("logit", -0.5, 2.0), "lai": "sqrt", ("sand", "silt", "clay"): "ilr"}
ALL = Transforms.of(SPEC, NAMES)
PARTS = [2, 6, 4]
"""The composition's columns, in the order of its tuple."""
SCALARS = {
    "identity": lambda z: z,
    "log": np.exp,
    "sqrt": lambda z: np.maximum(z, 0.0) ** 2,
    "logit": expit,
}
LOWER = np.array([-np.inf, 0.0, 0.0, -0.5, 0.0, 0.0, 0.0])
UPPER = np.array([np.inf, np.inf, 1.0, 2.0, 1.0, np.inf, 1.0])


def physical(rng: np.random.Generator, n: int) -> np.ndarray:
    """Values well within the bounds."""
    values = np.empty((n, len(NAMES)))
    values[:, 0], values[:, 1] = rng.normal(size=n), np.exp(2 * rng.normal(size=n))
    values[:, 3], values[:, 5] = rng.uniform(-0.49, 1.99, n), rng.normal(size=n) ** 2
    values[:, PARTS] = rng.dirichlet(np.ones(3), n)
    return values


def make_mixture(seed: int, n: int, size: int, parts: int = 3, scale: float = 1.0) -> Mixture:
    """Mixtures of ``parts`` Gaussians, some weights zero."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(parts), n) * (rng.uniform(size=(n, parts)) < 0.8)
    weights[:, 0] += weights.sum(axis=1) == 0
    weights /= weights.sum(axis=1, keepdims=True)
    spread = covariances(rng, n * parts, size).reshape(n, parts, size, size)
    return Mixture(weights, rng.normal(size=(n, parts, size)), scale**2 * spread)


def one(kind: Any, mean: float, deviation: float) -> tuple[Transforms, Mixture]:
    """A parameter and a single Gaussian."""
    transforms = Transforms.of({"a": kind}, ["a"])
    return transforms, Mixture(np.ones((1, 1)), np.full((1, 1, 1), mean), np.full((1, 1, 1, 1), deviation**2))


def integral(function: Any, mean: float, deviation: float) -> float:
    """The mean of a function of a Gaussian, by scipy's adaptive quadrature between many ends."""
    low, high = mean - 12 * deviation, mean + 12 * deviation
    inner = {-30, -5, -1, 0, 1, 5, 30, mean, *(mean + step * deviation for step in (-6, -3, -1, 1, 3, 6))}
    ends = [low, *sorted(x for x in inner if low < x < high), high]

    def weighted(z: float) -> float:
        return function(z) * math.exp(-0.5 * ((z - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))

    return sum(quad(weighted, a, b, epsabs=1e-14, epsrel=1e-11, limit=200)[0] for a, b in pairwise(ends))


def draw(mixture: Mixture, row: int, n: int) -> np.ndarray:
    """Random z of one row."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(n, mixture.weights[row])
    return np.concatenate(
        [
            mean + rng.standard_normal((count, len(mean))) @ np.linalg.cholesky(covariance).T
            for count, mean, covariance in zip(counts, mixture.means[row], mixture.covariances[row], strict=True)
        ]
    )


def bisected(weights: np.ndarray, means: np.ndarray, variances: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of mixtures of one component by the normal's, of others by a fine grid of the distribution function."""
    found = np.empty((len(weights), len(levels)))
    for n, (w, m, s) in enumerate(zip(weights, means, np.sqrt(variances), strict=True)):
        if np.count_nonzero(w) == 1:
            a = np.flatnonzero(w)[0]
            found[n] = m[a] + s[a] * ndtri(levels)
            continue
        low, high = np.full(len(levels), (m - 10 * s).min()), np.full(len(levels), (m + 10 * s).max())
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = 0.5 * np.array(
                [[math.erfc(-(x - a) / b / math.sqrt(2)) for a, b in zip(m, s, strict=True)] for x in middle]
            )
            less = below @ w < levels
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        found[n] = 0.5 * (low + high)
    return found


def absurd(seed: int, n: int, size: int) -> Mixture:
    """Means up to 1e6, variances 1e-12 to 1e12, correlations up to one, one or two components."""
    rng = np.random.default_rng(seed)
    weights = np.stack([np.ones(n), rng.uniform(size=n) * (rng.uniform(size=n) < 0.2)], axis=1)
    means = rng.choice([-1, 1], (n, 2, size)) * 10 ** rng.uniform(-6, 6, (n, 2, size))
    common = rng.uniform(-1, 1, (n, 2, size)) * rng.choice([0, 0.5, 1], (n, 2, 1))
    root = 10 ** rng.uniform(-6, 6, (n, 2, size))
    correlation = common[..., :, None] * common[..., None, :]
    correlation[..., np.arange(size), np.arange(size)] = 1.0
    return Mixture(
        weights / weights.sum(axis=1, keepdims=True), means, correlation * root[..., :, None] * root[..., None, :]
    )
