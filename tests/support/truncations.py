"""Mixtures, intervals of a dimension, and the integrals that truncation must give."""

import numpy as np
from hypothesis import strategies as st
from scipy.stats import norm

from specinvert.gllim.mixtures.mixture import Mixture
from strategies import SEEDS, covariances

INF = np.inf


def make(seed: int, n: int = 3, n_components: int = 3, size: int = 3, spread: float = 1.5) -> Mixture:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components), n)
    spreads = covariances(rng, n * n_components, size).reshape(n, n_components, size, size)
    return Mixture(weights, spread * rng.normal(size=(n, n_components, size)), spreads)


mixtures = st.builds(
    make,
    seed=SEEDS,
    n_components=st.integers(1, 4),
    size=st.integers(1, 4),
    spread=st.sampled_from([0.0, 1.5, 10.0]),
)
intervals = st.sampled_from([(-1.0, 0.5), (0.0, INF), (-INF, 1.0), (2.0, 2.1), (-INF, INF)])


def conditional(mixture: Mixture, row: int, of: int, x: float | np.ndarray) -> tuple[np.ndarray, ...]:
    """Density (..., A) of dimension 0 at x, mean and variance of dimension ``of`` there, in every component."""
    weights, means, spreads = mixture.weights[row], mixture.means[row], mixture.covariances[row]
    slope = spreads[:, of, 0] / spreads[:, 0, 0]
    gap = np.asarray(x)[..., None] - means[:, 0]
    density = weights * norm.pdf(gap, 0.0, np.sqrt(spreads[:, 0, 0]))
    return (
        density,
        means[:, of] + slope * gap,
        np.broadcast_to(spreads[:, of, of] - slope * spreads[:, of, 0], gap.shape),
    )


def integrals(mixture: Mixture, low: float, high: float, of: int) -> tuple[np.ndarray, ...]:
    """Points and weights in many pieces of the interval, and what is conditional on dimension 0 there."""
    reach = 9.0 * np.sqrt(mixture.covariances[:, :, 0, 0].max())
    low, high = max(low, mixture.means[:, :, 0].min() - reach), min(high, mixture.means[:, :, 0].max() + reach)
    edges = np.linspace(low, max(low, high), 101)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    return x, (half * weights).ravel(), *conditional(mixture, 0, of, x)
