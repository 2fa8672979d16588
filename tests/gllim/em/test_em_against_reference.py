"""Ten iterations of EM, and everything computed from theta, against the dense reference written from the paper."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import reference
from specinvert.gllim import Constraints, GLLiMParameters
from specinvert.gllim.em.statistics import log_joint_density
from specinvert.gllim.model import residuals
from specinvert.gllim.model.parameters import bic, n_free_parameters
from specinvert.gllim.model.residuals import finish_rows
from specinvert.gllim.posterior.forward import inverse_regression
from strategies import (
    BARE,
    GAMMAS,
    SEEDS,
    SIGMAS,
    Data,
    assert_near,
    assert_same_theta,
    comparable,
    covariances,
    data_sets,
    dense,
    fit_estimator,
    fit_reference,
    make_data,
    posterior_of,
    random_theta,
    structures,
)

pytestmark = pytest.mark.oracle

RTOL = 1e-9
"""Both implementations round differently; the acceptance asks for 2e-6 (theta, predictions) and 2e-5 (covariances)."""


def assert_agrees(data: Data, structure: dict, rtol: float = RTOL, **moments: np.ndarray) -> None:
    model = fit_estimator(data, **structure, **BARE, **moments)
    theta, log_likelihoods = fit_reference(data, structure, **moments)
    assert model.n_removed_ == 0
    assert_near(model.log_likelihoods_, log_likelihoods, rtol, "log-likelihoods")
    assert_same_theta(model.parameters_, theta, rtol)
    n_t = data.parameters.shape[1]
    unseen = data.spectra[:20] + np.random.default_rng(0).normal(size=data.spectra[:20].shape)
    expected = reference.posterior(theta, unseen)
    mean, covariance = model.predict(unseen, return_cov=True)
    assert_near(mean, expected["mean"][:, :n_t], rtol, "predictions")
    assert_near(covariance, expected["cov"][:, :n_t, :n_t], rtol, "posterior covariances")
    _, deviation = model.predict(unseen, return_std=True)
    assert_near(deviation**2, np.diagonal(covariance, axis1=1, axis2=2), rtol, "posterior deviations")
    assert_near(model.score_samples(unseen), expected["log_evidence"], rtol, "log p(y)")


CASES = list(itertools.product(SIGMAS, (False, True), GAMMAS, (False, True), (False, True)))


@pytest.mark.parametrize(("sigma", "tied_sigma", "gamma", "tied_gamma", "tied_pi"), CASES)
def test_ten_iterations_agree_with_the_reference_in_every_structure(
    sigma: str, tied_sigma: bool, gamma: str, tied_gamma: bool, tied_pi: bool
) -> None:
    case = CASES.index((sigma, tied_sigma, gamma, tied_gamma, tied_pi))
    n_parameters, n_latent = 1 + case % 3, (case // 3) % 5
    data = make_data(case, 3, 6, n_parameters, n_latent, ["none", "counts", "real"][case % 3])
    own = {"sigma": sigma, "tied_sigma": tied_sigma, "gamma": gamma, "tied_gamma": tied_gamma, "tied_pi": tied_pi}
    assert_agrees(data, own)


@pytest.mark.parametrize("n_latent", [0, 2])
@pytest.mark.parametrize("own", [{}, {"tied_sigma": True}])
@pytest.mark.parametrize("noise", [0.3, 0.03])
def test_full_sigma_of_many_bands_and_components_agrees_with_the_reference(
    n_latent: int, own: dict, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = []

    def count(spectra: np.ndarray, x: np.ndarray, todo: np.ndarray, *rest: object) -> None:
        finished.append(todo.mean())
        finish_rows(spectra, x, todo, *rest)

    monkeypatch.setattr(residuals, "finish_rows", count)
    data = make_data(0, 6, 40, 2, n_latent, "real", noise=noise, per_component=80)
    model = fit_estimator(data, sigma="full", **own, **BARE)
    theta, log_likelihoods = fit_reference(data, {"sigma": "full", **own})
    assert_near(model.log_likelihoods_, log_likelihoods, RTOL)
    assert_same_theta(model.parameters_, theta, RTOL)
    # two calls a block, one for the likeliest component and one for those within reach
    assert not own or not finished
    assert own or sum(finished[-2:]) < 0.35


@given(data=data_sets(), structure=structures())
def test_ten_iterations_agree_with_the_reference_in_every_shape(data: Data, structure: dict) -> None:
    assert_agrees(data, structure)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("tied_sigma", [False, True])
@pytest.mark.parametrize("n_latent", [1, 2, 4])
def test_unsupervised_iterations_agree_with_the_reference(sigma: str, tied_sigma: bool, n_latent: int) -> None:
    data = make_data(n_latent, 2, 6, 0, n_latent, per_component=80)
    assert_agrees(data, {"sigma": sigma, "tied_sigma": tied_sigma})


@pytest.mark.parametrize("sigma", SIGMAS)
def test_one_band_one_parameter_one_component_agree_with_the_reference(sigma: str) -> None:
    assert_agrees(make_data(3, 1, 1, 1, 0), {"sigma": sigma})


@given(seed=SEEDS, n_latent=st.integers(1, 3), structure=structures())
@settings(max_examples=25)
def test_fixed_latent_moments_agree_with_the_reference(seed: int, n_latent: int, structure: dict) -> None:
    data = make_data(seed, 3, 6, 1, n_latent)
    rng = np.random.default_rng(seed)
    moments = {"latent_mean": rng.normal(size=(3, n_latent)), "latent_covariance": covariances(rng, 3, n_latent)}
    assert_agrees(data, structure, **moments)
    theta = fit_estimator(data, **structure, **BARE, **moments).parameters_
    np.testing.assert_array_equal(theta.c[:, 1:], moments["latent_mean"])
    np.testing.assert_array_equal(theta.Gamma[:, 1:, 1:], moments["latent_covariance"])


def test_latent_moments_broadcast_over_components() -> None:
    data = make_data(0, 3, 6, 1, 2)
    mean, covariance = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    model = fit_estimator(data, **BARE, latent_mean=mean, latent_covariance=covariance)
    np.testing.assert_array_equal(model.parameters_.c[:, 1:], np.tile(mean, (3, 1)))
    np.testing.assert_array_equal(model.parameters_.Gamma[:, 1:, 1:], np.tile(covariance, (3, 1, 1)))


def test_latent_moments_do_not_change_the_density_fitted() -> None:
    data = make_data(1, 2, 6, 1, 2)
    plain = fit_estimator(data, **BARE)
    moved = fit_estimator(data, **BARE, latent_mean=[3.0, -1.0], latent_covariance=[[4.0, 1.0], [1.0, 2.0]])
    assert_near(moved.log_likelihoods_, plain.log_likelihoods_, 1e-10)
    assert_near(moved.predict(data.spectra), plain.predict(data.spectra), 1e-10)
    assert_near(
        comparable(moved.parameters_)["A_w Gamma_w A_w'"], comparable(plain.parameters_)["A_w Gamma_w A_w'"], 1e-10
    )


def test_transform_gives_the_reference_s_latents_up_to_their_signs() -> None:
    data = make_data(5, 3, 6, 2, 2)
    model = fit_estimator(data, **BARE)
    expected = reference.posterior(dense(model.parameters_), data.spectra)["mean"][:, 2:]
    assert_near(model.transform(data.spectra), expected, RTOL)


@st.composite
def thetas(draw: st.DrawFn) -> GLLiMParameters:
    n_parameters, n_latent = draw(st.integers(0, 3), "L_t"), draw(st.integers(0, 3), "L_w")
    if n_parameters + n_latent == 0:
        n_parameters = 1
    sizes = draw(st.integers(1, 4), "K"), draw(st.integers(1, 9), "D"), n_parameters, n_latent
    return random_theta(draw(SEEDS, "seed"), *sizes, draw(st.sampled_from(SIGMAS), "sigma"))


def spectra_of(theta: GLLiMParameters, n: int, seed: int) -> np.ndarray:
    """Spectra near the model's own."""
    star = theta.forward()
    rng = np.random.default_rng(seed)
    label = np.arange(n) % theta.n_components
    spread = np.sqrt(np.diagonal(star.Gamma, axis1=1, axis2=2))
    return star.c[label] + spread[label] * rng.normal(size=(n, theta.n_bands))


@given(theta=thetas(), seed=SEEDS, missing=st.floats(0.0, 0.9))
def test_the_posterior_with_missing_bands_is_the_reference_s(theta: GLLiMParameters, seed: int, missing: float) -> None:
    spectra = spectra_of(theta, 12, seed)
    spectra[np.random.default_rng(seed).random(spectra.shape) < missing] = np.nan
    expected = reference.posterior(dense(theta), spectra)
    found = posterior_of(theta, spectra)
    assert_near(found.weights, expected["weights"], RTOL, "weights")
    assert_near(found.means, expected["component_means"], RTOL, "means")
    assert_near(found.covariances, expected["component_cov"], RTOL, "covariances")
    assert_near(found.log_evidence, expected["log_evidence"], RTOL, "log p(y)")
    assert_near(found.mean, expected["mean"], RTOL, "mixture mean")
    assert_near(found.covariance, expected["cov"], RTOL, "mixture covariance")
    assert_near(found.variance, np.diagonal(expected["cov"], axis1=1, axis2=2), RTOL, "mixture variance")


def test_a_spectrum_without_a_valid_band_has_no_posterior_and_leaves_its_neighbours_alone() -> None:
    theta = random_theta(0, 3, 5, 2, 1, "diag")
    spectra = spectra_of(theta, 4, 1)
    alone = posterior_of(theta, spectra[[0, 2, 3]])
    spectra[1] = [np.nan, np.inf, -np.inf, np.nan, np.nan]
    found = posterior_of(theta, spectra)
    assert np.isnan(found.log_evidence[1])
    np.testing.assert_allclose(found.means[[0, 2, 3]], alone.means, rtol=1e-12)
    np.testing.assert_allclose(found.log_evidence[[0, 2, 3]], alone.log_evidence, rtol=1e-12)


@given(theta=thetas(), seed=SEEDS)
def test_select_bands_is_the_marginal_density_of_those_bands(theta: GLLiMParameters, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bands = rng.permutation(theta.n_bands)[: rng.integers(1, theta.n_bands + 1)]
    spectra = spectra_of(theta, 7, seed)[:, bands]
    chosen = theta.select_bands(bands)
    star = theta.forward()
    density = sum(
        weight * multivariate_normal(mean[bands], cov[np.ix_(bands, bands)]).pdf(spectra)
        for weight, mean, cov in zip(theta.pi, star.c, star.Gamma, strict=True)
    )
    assert_near(posterior_of(chosen, spectra).log_evidence, np.log(np.atleast_1d(density)), RTOL)
    np.testing.assert_array_equal(chosen.sigma_dense(), theta.sigma_dense()[:, bands[:, None], bands])
    assert (chosen.n_bands, chosen.n_parameters) == (len(bands), theta.n_parameters)


@given(theta=thetas(), seed=SEEDS)
def test_the_joint_log_density_is_the_reference_s(theta: GLLiMParameters, seed: int) -> None:
    spectra = spectra_of(theta, 9, seed)
    parameters = np.random.default_rng(seed).normal(size=(9, theta.n_parameters))
    expected = reference.log_joint(dense(theta), spectra, parameters)
    assert_near(log_joint_density(theta, spectra, parameters), expected, RTOL)


@given(theta=thetas(), seed=SEEDS)
def test_the_inverse_regression_is_the_reference_s(theta: GLLiMParameters, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(8, theta.A.shape[2]))
    parameters, latent = x[:, : theta.n_parameters], x[:, theta.n_parameters :]
    assert_near(inverse_regression(theta, parameters), reference.simulate(dense(theta), parameters), RTOL)
    assert_near(inverse_regression(theta, parameters, latent), reference.inverse_regression(dense(theta), x), RTOL)


@given(theta=thetas())
def test_the_forward_parameters_are_the_reference_s(theta: GLLiMParameters) -> None:
    found, expected = theta.forward(), reference.forward_parameters(dense(theta))
    for name in ("pi", "c", "Gamma", "A", "b", "Sigma"):
        assert_near(getattr(found, name), getattr(expected, name), RTOL, name)


@given(theta=thetas())
def test_the_joint_mixture_is_the_reference_s_and_gives_theta_back(theta: GLLiMParameters) -> None:
    for found, expected in zip(theta.to_joint_gmm(), reference.to_joint_gmm(dense(theta)), strict=True):
        assert_near(found, expected, RTOL)
    back = GLLiMParameters.from_joint_gmm(*theta.to_joint_gmm(), theta.A.shape[2])
    assert_same_theta(back, dense(replace(theta, n_latent=0)), 1e-8)


@given(seed=SEEDS, n_components=st.integers(1, 3), n_parameters=st.integers(1, 3), n_bands=st.integers(1, 5))
def test_any_joint_mixture_becomes_the_reference_s_theta_and_comes_back(
    seed: int, n_components: int, n_parameters: int, n_bands: int
) -> None:
    rng = np.random.default_rng(seed)
    size = n_parameters + n_bands
    mixture = (
        rng.dirichlet(np.ones(n_components)),
        rng.normal(size=(n_components, size)),
        covariances(rng, n_components, size),
    )
    theta = GLLiMParameters.from_joint_gmm(*mixture, n_parameters)
    assert_same_theta(theta, reference.from_joint_gmm(*mixture, n_parameters), RTOL)
    for found, expected in zip(theta.to_joint_gmm(), mixture, strict=True):
        assert_near(found, expected, RTOL)


@given(structure=structures(), k=st.integers(1, 9), d=st.integers(1, 99), l_t=st.integers(0, 5), l_w=st.integers(0, 5))
def test_free_parameters_are_counted_as_the_reference_does(structure: dict, k: int, d: int, l_t: int, l_w: int) -> None:
    found = n_free_parameters(k, d, l_t, l_w, Constraints(**structure))
    assert found == reference.n_free_parameters(k, d, l_t, l_w, **structure)


@pytest.mark.parametrize("n_latent", [0, 3])
@pytest.mark.parametrize("n_parameters", [1, 2])
def test_bic_with_equal_iso_noise_is_the_paper_s_formula(n_latent: int, n_parameters: int) -> None:
    data = make_data(2, 3, 6, n_parameters, n_latent)
    n, k, d = len(data.spectra), 3, 6
    model = fit_estimator(data, tied_sigma=True, **BARE)
    size = k * (d * (n_latent + n_parameters + 1) + n_parameters * (n_parameters + 3) / 2 + 1)
    expected = -2 * reference.log_joint(dense(model.parameters_), data.spectra, data.parameters).sum()
    expected += size * np.log(n)
    assert model.bic_ == pytest.approx(expected, rel=1e-10)
    assert model.bic(data.spectra, data.parameters) == pytest.approx(expected, rel=1e-10)
    assert bic(-100.0, 7, np.e) == pytest.approx(207.0)


def test_bic_takes_the_sum_of_weights_for_the_number_of_samples() -> None:
    data = make_data(4, 2, 5, 1, 1, weights="counts")
    model = fit_estimator(data, **BARE)
    size = n_free_parameters(2, 5, 1, 1, model.parameters_.constraints)
    assert model.bic_ == pytest.approx(-2 * model.log_likelihoods_[-1] + size * np.log(data.weights.sum()), rel=1e-12)
