"""What the other bands say of a window of bands, against Gaussians conditioned component by component."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

import reference
from specinvert.gllim.posterior import (
    ForwardTerms,
    SideInformation,
    SpectralMixture,
    WindowPrediction,
    leave_out,
    windows,
)
from strategies import SEEDS, SIGMAS, assert_near, dense, random_theta

pytestmark = pytest.mark.oracle
NOISES = ("none", "pixel", "pixel and band")


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


def make_rows(theta: Any, seed: int, n: int, missing: float, noise: str) -> tuple[np.ndarray, SideInformation]:
    """Spectra near the model with holes, noise of some form, and half of the parameters known."""
    rng = np.random.default_rng(seed)
    label = rng.integers(theta.n_components, size=n)
    spectra = theta.centres()[label] + 2.0 * rng.normal(size=(n, theta.n_bands))
    spectra[rng.random(spectra.shape) < missing] = np.nan
    width = {"none": 0, "pixel": 1, "pixel and band": theta.n_bands}[noise]
    known = theta.c[label, : theta.n_parameters] + rng.normal(size=(n, theta.n_parameters))
    known[rng.random(known.shape) < 0.5] = np.nan
    return spectra, SideInformation(rng.uniform(0.0, 3.0, (n, width)) if width else None, known)


def assert_is_the_reference(
    found: list[WindowPrediction], theta: Any, spectra: np.ndarray, parts: Any, given: SideInformation
) -> None:
    for window, made in zip(parts, found, strict=True):
        for i, y in enumerate(spectra):
            noise = np.zeros(1) if given.added is None else given.added[i]
            known = np.full(theta.n_parameters, np.nan) if given.known is None else given.known[i]
            seen = np.isfinite(y[window])
            assert np.isnan(made.mean[i, ~seen]).all()
            assert np.isnan(made.log_others[i]) == (not seen.any())
            if not seen.any():
                continue
            own = reference.predicted(dense(theta), y, np.diag(np.broadcast_to(noise, len(y))), known, window[seen])
            for name, value in own.items():
                of = getattr(made, name)[i]
                np.testing.assert_allclose(of[seen] if of.ndim else of, value, rtol=1e-7, atol=1e-7, err_msg=name)


@given(seed=SEEDS, sigma=st.sampled_from(SIGMAS), k=st.integers(1, 3), d=st.integers(1, 7), n_t=st.integers(0, 2),
       n_w=st.integers(0, 2), n=st.integers(0, 4), missing=st.sampled_from([0.0, 0.4]), noise=st.sampled_from(NOISES),
       each=st.booleans())  # fmt: skip
def test_holes_noise_and_known_parameters_of_each_spectrum_are_exact(
    *, seed: int, sigma: str, k: int, d: int, n_t: int, n_w: int, n: int, missing: float, noise: str, each: bool
) -> None:
    theta = random_theta(seed, k, d, n_t, n_w, sigma)
    spectra, given = make_rows(theta, seed, n, missing, noise)
    parts = list(np.arange(d)[:, None]) if each else windows(d)
    assert_is_the_reference(leave_out(ForwardTerms.of(theta), spectra, parts, given), theta, spectra, parts, given)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_both_ways_agree_where_a_window_excludes_the_components_that_the_others_ask_for(sigma: str) -> None:
    theta, parts = random_theta(1, 3, 8, 1, 1, sigma), windows(8)
    spectra = theta.centres() + 0.0
    spectra[:, parts[1]] += 1e4  # densities of all components are far below the least float
    dense_way = SpectralMixture.of([theta]).predict(spectra, parts)
    assert_is_the_reference(dense_way, theta, spectra, parts, SideInformation())
    for one, other in zip(leave_out(ForwardTerms.of(theta), spectra, parts), dense_way, strict=True):
        assert_near(one.mean, other.mean, 1e-8)
        assert_near(one.log_density, other.log_density, 1e-8)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_noise_a_ten_thousandth_of_the_signal_keeps_three_digits_of_a_prediction(sigma: str) -> None:
    theta = random_theta(4, 2, 8, 2, 1, sigma)
    theta = replace(theta, Sigma=theta.Sigma * 1e-8)
    rng = np.random.default_rng(0)
    x = theta.c[0] + 0.1 * rng.normal(size=(5, 3))
    spectra = x @ theta.A[0].T + theta.b[0] + 1e-4 * rng.normal(size=(5, 8))
    for band, made in enumerate(leave_out(ForwardTerms.of(theta), spectra, list(np.arange(8)[:, None]))):
        for i, y in enumerate(spectra):
            right = reference.predicted(dense(theta), y, np.zeros((8, 8)), np.full(2, np.nan), np.array([band]))
            error = (y[band] - made.mean[i, 0]) / np.sqrt(made.variance[i, 0])
            expected = (y[band] - right["mean"][0]) / np.sqrt(right["variance"][0])
            assert error == pytest.approx(expected, rel=1e-3, abs=1e-3)
            assert made.log_density[i] == pytest.approx(right["log_density"], abs=1e-2)


@pytest.mark.parametrize("weights", [None, np.array([0.2, 0.8])])
def test_members_predict_on_average_by_their_shares(weights: Any) -> None:
    members = [random_theta(seed, 2, 6, 1, 0, "diag") for seed in (1, 2)]
    spectra, parts = members[0].centres() + 0.5, [np.array([0, 1]), np.array([4])]
    each = [leave_out(ForwardTerms.of(theta), spectra, parts) for theta in members]
    for own in zip(*each, strict=True):
        found = WindowPrediction.averaged(own, weights)
        others = np.stack([part.log_others for part in own], axis=1)
        for i, of_row in enumerate(others):
            share = softmax(of_row) if weights is None else weights
            means, variances, below = (
                np.array([getattr(part, name)[i] for part in own]) for name in ("mean", "variance", "below")
            )
            np.testing.assert_allclose(found.mean[i], share @ means)
            np.testing.assert_allclose(found.variance[i], share @ (variances + (means - share @ means) ** 2))
            np.testing.assert_allclose(found.below[i], share @ below)
            densities = np.array([part.log_density[i] for part in own])
            np.testing.assert_allclose(found.log_density[i], logsumexp(densities, b=share))
            prior = np.full(2, 0.5) if weights is None else weights
            np.testing.assert_allclose(found.log_others[i], logsumexp(of_row, b=prior))
    if weights is None:  # by evidence, it is the mixture of all components
        whole = SpectralMixture.of(members).predict(spectra, parts[:1])[0]
        by_evidence = WindowPrediction.averaged([own[0] for own in each])
        np.testing.assert_allclose(by_evidence.mean, whole.mean)
        np.testing.assert_allclose(by_evidence.log_density, whole.log_density)


def test_spectra_of_the_model_are_predicted_with_right_odds() -> None:
    theta, rng, n = random_theta(5, 3, 12, 2, 1, "diag"), np.random.default_rng(5), 4000
    label = rng.choice(3, n, p=theta.pi)
    x = theta.c[label] + np.einsum("nij,nj->ni", np.linalg.cholesky(theta.Gamma)[label], rng.normal(size=(n, 3)))
    spectra = np.einsum("ndl,nl->nd", theta.A[label], x) + theta.b[label]
    spectra += np.sqrt(np.diagonal(theta.sigma_dense(), axis1=1, axis2=2))[label] * rng.normal(size=(n, 12))
    for parts in (windows(12), list(np.arange(12)[:, None])):
        for window, made in zip(parts, leave_out(ForwardTerms.of(theta), spectra, parts), strict=True):
            squared = (spectra[:, window] - made.mean) ** 2 / made.variance
            assert squared.mean() == pytest.approx(1.0, abs=0.15)
            assert (np.abs(made.below - 0.5) < 0.45).mean() == pytest.approx(0.9, abs=0.02)
