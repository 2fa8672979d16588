"""Densities of parameters given spectra, and the weights of a committee that make those of held-out rows greatest."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp

import reference
from specinvert.gllim.posterior import log_parameter_density, stacking_weights
from strategies import SEEDS, SIGMAS, dense, random_theta


@pytest.mark.oracle
@given(seed=SEEDS, sigma=st.sampled_from(SIGMAS), k=st.integers(1, 4), d=st.integers(1, 9), n_t=st.integers(1, 3))
@pytest.mark.parametrize("n_w", [0, 2])
def test_densities_of_parameters_are_those_of_the_reference(
    n_w: int, seed: int, sigma: str, k: int, d: int, n_t: int
) -> None:
    theta = random_theta(seed, k, d, n_t, n_w, sigma)
    rng = np.random.default_rng(seed)
    spectra = theta.centres()[rng.integers(k, size=5)] + 2.0 * rng.normal(size=(5, d))
    values = theta.c[rng.integers(k, size=5), :n_t] + 5.0 * rng.normal(size=(5, n_t))
    spectra[4, 0] = np.nan
    found = reference.posterior(dense(theta), spectra[:4])
    joint, marginal = (log_parameter_density(theta, spectra, values, one) for one in (False, True))
    expected = reference.log_joint(dense(theta), spectra[:4], values[:4]) - found["log_evidence"]
    np.testing.assert_allclose(joint[:4], expected, rtol=1e-7, atol=1e-7)
    for i in range(n_t):
        variance = found["component_cov"][:, :, i, i]
        squares = (values[:4, i, None] - found["component_means"][:, :, i]) ** 2 / variance
        kernels = -0.5 * (squares + np.log(2.0 * np.pi * variance))
        expected = logsumexp(kernels, axis=1, b=found["weights"])
        np.testing.assert_allclose(marginal[:4, i], expected, rtol=1e-7, atol=1e-7)
    assert np.isnan(joint[4])
    assert np.isnan(marginal[4]).all()


def test_densities_keep_their_digits_where_noise_is_small_and_truths_are_far() -> None:
    theta = random_theta(3, 2, 6, 2, 0, "iso")
    theta = replace(theta, Sigma=1e-6 * theta.Sigma)
    spectra, values = theta.centres()[:1], theta.c[:1] + 0.1
    found = log_parameter_density(theta, spectra, values)
    expected = reference.log_joint(dense(theta), spectra, values)
    expected = expected - reference.posterior(dense(theta), spectra)["log_evidence"]
    assert found[0] < -1e4
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@settings(max_examples=12)
@given(seed=SEEDS, n_members=st.integers(1, 5))
def test_stacking_weights_are_the_best_of_all(seed: int, n_members: int) -> None:
    rng = np.random.default_rng(seed)
    log_densities = rng.normal(size=(60, n_members)) * rng.uniform(0.1, 3.0) + rng.normal(size=n_members)
    log_densities[0] -= 2000.0
    frequencies = rng.integers(0, 3, 60).astype(float)
    weights = stacking_weights(log_densities, frequencies)
    assert weights.sum() == pytest.approx(1.0)
    kept = np.flatnonzero(weights)

    def loss(free: np.ndarray) -> float:
        own = np.exp(free - logsumexp(free))
        fit = frequencies @ logsumexp(log_densities[:, kept], axis=1, b=own) + np.log(own).sum()
        return float(-fit / frequencies.sum())

    bounds = [(-30.0, 30.0)] * len(kept)
    best = minimize(loss, np.zeros(len(kept)), method="L-BFGS-B", bounds=bounds, tol=1e-12).fun
    assert loss(np.log(weights[kept])) <= best + 1e-6
    repeated = np.repeat(log_densities, frequencies.astype(int), axis=0)
    np.testing.assert_allclose(stacking_weights(repeated), weights, atol=1e-3)


def test_rows_that_no_member_tells_do_not_count_and_without_rows_weights_are_equal() -> None:
    log_densities = np.array([[0.0, -np.inf], [-np.inf, 0.0], [-np.inf, 0.0], [-np.inf, 0.0]])
    np.testing.assert_allclose(stacking_weights(log_densities), [1.0 / 3.0, 2.0 / 3.0], atol=1e-6)
    nothing = np.full((3, 2), -np.inf)
    found = stacking_weights(np.concatenate([log_densities, nothing, nothing * np.nan]))
    np.testing.assert_allclose(found, [1.0 / 3.0, 2.0 / 3.0], atol=1e-6)
    np.testing.assert_array_equal(stacking_weights(nothing), [0.5, 0.5])


def test_weights_of_many_rows_are_those_of_the_greatest_density_and_of_few_nearer_to_equal() -> None:
    log_densities = np.random.default_rng(0).normal(size=(20, 3)) + np.array([0.0, 0.5, -6.0])
    few, many = stacking_weights(log_densities), stacking_weights(np.tile(log_densities, (2000, 1)))
    assert few[2] == many[2] == 0.0
    assert np.ptp(few[:2]) < np.ptp(many[:2])
    density = np.exp(log_densities)
    gradient = (density / (density @ many)[:, None]).mean(axis=0)
    np.testing.assert_allclose(gradient[:2], 1.0, atol=1e-3)
    assert gradient[2] < 1.0
