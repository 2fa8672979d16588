"""What the other bands say of a window of bands, against Gaussians conditioned component by component."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

import reference
from specinvert.gllim.posterior import SpectralMixture, windows
from strategies import SEEDS, assert_near, dense, random_theta


def naive(theta: reference.Theta, y: np.ndarray, window: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mean and variance of a window's bands, and its log-density, of one spectrum, a component at a time."""
    rest = np.setdiff1d(np.arange(len(y)), window)
    logs, means, covariances, densities = [], [], [], []
    for k in range(len(theta.pi)):
        centre = theta.A[k] @ theta.c[k] + theta.b[k]
        spread = theta.A[k] @ theta.Gamma[k] @ theta.A[k].T + theta.Sigma[k] + added
        slope = spread[np.ix_(window, rest)] @ np.linalg.inv(spread[np.ix_(rest, rest)])
        means.append(centre[window] + slope @ (y[rest] - centre[rest]))
        covariances.append(spread[np.ix_(window, window)] - slope @ spread[np.ix_(rest, window)])
        other = reference.log_normal(y[None, rest], centre[rest], spread[np.ix_(rest, rest)])[0] if len(rest) else 0.0
        logs.append(np.log(theta.pi[k]) + other)
        densities.append(reference.log_normal(y[None, window], means[-1], covariances[-1])[0])
    weights = np.exp(np.array(logs) - logsumexp(logs))
    mean = weights @ np.array(means)
    variances = np.array([np.diag(c) for c in covariances]) + (np.array(means) - mean) ** 2
    return mean, weights @ variances, logsumexp(np.array(densities), b=weights)


@given(seed=SEEDS, n_bands=st.integers(1, 23), sigma=st.sampled_from(("iso", "diag", "full")), added=st.booleans())
def test_a_window_is_predicted_as_gaussians_conditioned_one_by_one_predict_it(
    seed: int, n_bands: int, sigma: str, added: bool
) -> None:
    rng = np.random.default_rng(seed)
    theta = random_theta(seed, int(rng.integers(1, 4)), n_bands, 2, int(rng.integers(0, 2)), sigma)
    spectra = rng.standard_normal((3, n_bands))
    root = rng.standard_normal((n_bands, n_bands))
    more = root @ root.T if added else np.zeros((n_bands, n_bands))
    parts = windows(n_bands)
    assert np.array_equal(np.concatenate(parts), np.arange(n_bands))
    assert len(parts) == min(n_bands, 4 if n_bands < 20 else 6)
    for window, made in zip(parts, SpectralMixture.of([theta]).predict(spectra, parts, more), strict=True):
        for i, y in enumerate(spectra):
            mean, variance, density = naive(dense(theta), y, window, more)
            assert_near(made.mean[i], mean, 1e-7)
            assert_near(made.variance[i], variance, 1e-7)
            assert made.log_density[i] == pytest.approx(density, rel=1e-7, abs=1e-7)


def test_a_committee_is_the_mixture_of_its_members_components() -> None:
    rng = np.random.default_rng(0)
    thetas = [random_theta(seed, 2, 5, 1, 0, "diag") for seed in range(2)]
    spectra, parts = rng.standard_normal((4, 5)), [np.array([1, 2])]
    both = SpectralMixture.of(thetas, np.array([0.3, 0.7]))
    assert np.exp(both.log_weights).sum() == pytest.approx(1.0)
    twice = SpectralMixture.of([thetas[0], thetas[0]]).predict(spectra, parts)[0]
    once = SpectralMixture.of(thetas[:1]).predict(spectra, parts)[0]
    assert_near(twice.mean, once.mean, 1e-12)
    assert_near(twice.log_density, once.log_density, 1e-12)
