"""Marginal EM, ECM and AECM: other steps than the general EM's, to the same maxima."""

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

import reference
from specinvert.gllim import Constraints, GLLiM
from specinvert.gllim.em.maximization import Fixed, Rules
from specinvert.gllim.em.statistics import ConditionalTerms, expectation
from specinvert.gllim.em.variants import latent_cycle, regression_cycle
from specinvert.gllim.model.parameters import aic, bic, icl, n_free_parameters
from specinvert.settings import GLLiMSettings, settings_of
from strategies import (
    BARE,
    SEEDS,
    Data,
    assert_near,
    assert_same_theta,
    comparable,
    dense,
    fit_chunks,
    fit_estimator,
    make_data,
)

VARIANTS = ("marginal", "ecm", "aecm")
NOISE: list[dict[str, Any]] = [
    {"sigma": "iso"},
    {"sigma": "iso", "tied_sigma": True},
    {"sigma": "diag"},
    {"sigma": "diag", "tied_sigma": True},
    {"sigma": "block", "sigma_blocks": (0, 0, 1, 1, 0, 2)},
    {"sigma": "block", "sigma_blocks": (0, 0, 1, 1, 0, 2), "tied_sigma": True},
    {"sigma": "full"},
    {"sigma": "diag", "fixed": {"Sigma": np.arange(1.0, 7.0) / 10.0}},
]


def falls(model: GLLiM) -> float:
    """Greatest drop of the log-likelihood, relative to its size."""
    values = model.log_likelihoods_
    return float((-np.diff(values) / np.abs(values[1:])).max())


@pytest.mark.parametrize("algorithm", ["marginal", "ecm"])
@pytest.mark.parametrize("sigma", ["full", "diag"])
@pytest.mark.parametrize("seed", range(3))
def test_fewer_samples_than_bands_are_fitted_without_a_fall(algorithm: str, sigma: str, seed: int) -> None:
    data = make_data(seed, 2, 15, 2, 3, per_component=12)
    own = {"sigma": sigma, "tied_pi": True, "tied_gamma": "volume", "algorithm": algorithm, "reg_covar": 1e-6}
    model = fit_estimator(data, **own, max_iter=12, tol=0.0)
    assert falls(model) < 1e-9


@pytest.mark.parametrize("algorithm", VARIANTS)
@given(seed=SEEDS, noise=st.sampled_from(NOISE), n_parameters=st.integers(0, 2), clip=st.sampled_from([1e-10, 1e-2]))
@settings(max_examples=6)
def test_the_likelihood_never_falls(algorithm: str, seed: int, noise: dict, n_parameters: int, clip: float) -> None:
    data = make_data(seed, 2, 6, n_parameters, 2, "real")
    model = fit_estimator(data, **noise, algorithm=algorithm, reg_covar=clip, max_iter=12, tol=0.0)
    assert falls(model) <= 1e-9
    assert model.log_likelihoods_[-1] > model.log_likelihoods_[0]


@pytest.mark.parametrize("algorithm", VARIANTS)
@pytest.mark.parametrize("noise", NOISE[:4] + NOISE[7:], ids=repr)
def test_all_reach_the_same_maximum_with_one_component(algorithm: str, noise: dict) -> None:
    data = make_data(0, 1, 6, 1, 2, noise=1.0, per_component=150)
    best = fit_estimator(data, **noise, algorithm="general", max_iter=800, tol=1e-9)
    other = fit_estimator(data, **noise, algorithm=algorithm, max_iter=800, tol=1e-9)
    assert other.log_likelihoods_[-1] == pytest.approx(best.log_likelihoods_[-1], rel=1e-6)
    found, wanted = comparable(other.parameters_), comparable(best.parameters_)
    for name in ("A_t", "b + A_w c_w"):
        assert_near(found[name], wanted[name], 1e-5, name)
    total = [value["A_w Gamma_w A_w'"] + value["Sigma"] for value in (found, wanted)]
    assert_near(*total, 1e-3)


@pytest.mark.parametrize("algorithm", VARIANTS)
@pytest.mark.parametrize("noise", [NOISE[1], NOISE[2], NOISE[3]], ids=repr)
def test_all_reach_the_same_maximum_from_near_it(algorithm: str, noise: dict) -> None:
    data = make_data(1, 3, 6, 1, 1, noise=1.0)
    near = fit_estimator(data, **noise, max_iter=60, tol=0.0).parameters_
    own = {**noise, "given": False, "init": near, "tol": 1e-8}
    best = fit_estimator(data, **own, max_iter=1000)
    other = fit_estimator(data, **own, algorithm=algorithm, max_iter=1000)
    assert other.log_likelihoods_[-1] == pytest.approx(best.log_likelihoods_[-1], rel=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["marginal", "ecm"])
def test_marginal_iterations_with_iso_noise_are_the_reference_s_steps(algorithm: str) -> None:
    data = make_data(2, 3, 6, 2, 2, "counts")
    moments = {"latent_mean": [1.0, -1.0], "latent_covariance": [[2.0, 0.5], [0.5, 1.0]]}
    model = fit_estimator(data, algorithm=algorithm, **moments, **{**BARE, "max_iter": 4})
    prior = np.tile([1.0, -1.0], (3, 1)), np.tile([[2.0, 0.5], [0.5, 1.0]], (3, 1, 1))
    to = reference.Constraints("iso", False, "full", False, False, 0.0)
    r, expected = data.responsibilities, []
    for _ in range(5):
        theta = reference.marginal_m_step(data.weights[:, None] * r, data.spectra, data.parameters, *prior, to)
        r = reference.responsibilities(theta, data.spectra, data.parameters)
        expected.append(data.weights @ reference.log_joint(theta, data.spectra, data.parameters))
    assert_near(model.log_likelihoods_, expected[1:], 1e-9)
    assert_same_theta(model.parameters_, theta, 1e-8)


@pytest.mark.parametrize("noise", [NOISE[1], NOISE[2], NOISE[4], NOISE[7]], ids=repr)
def test_a_marginal_iteration_gains_no_less_than_an_ecm_one(noise: dict) -> None:
    data = make_data(3, 2, 6, 1, 2)
    gains = {
        algorithm: fit_estimator(data, **noise, algorithm=algorithm, max_iter=1, tol=0.0).log_likelihoods_[0]
        for algorithm in ("marginal", "ecm")
    }
    assert gains["marginal"] >= gains["ecm"] - 1e-9 * abs(gains["ecm"])


def test_aecm_recovers_the_mean_of_the_spectra_that_the_general_em_does_not() -> None:
    data = make_data(4, 2, 6, 1, 2, noise=1.0)
    off = {}
    for algorithm in ("general", "aecm"):
        before = fit_estimator(data, sigma="diag", algorithm=algorithm, max_iter=2, tol=0.0).parameters_
        theta = fit_estimator(data, sigma="diag", algorithm=algorithm, max_iter=3, tol=0.0).parameters_
        r = reference.responsibilities(dense(before), data.spectra, data.parameters)
        maps, intercepts = theta.A[:, :, :1], theta.b
        residual = data.spectra[:, None] - np.einsum("nt,kdt->nkd", data.parameters, maps) - intercepts
        off[algorithm] = np.abs(np.einsum("nk,nkd->kd", r, residual)).max()
    assert off["aecm"] < 1e-9 < 1e-3 < off["general"]


def test_each_cycle_of_aecm_raises_the_likelihood() -> None:
    data = make_data(5, 2, 6, 1, 2)
    model = fit_estimator(data, **{**BARE, "max_iter": 1})
    theta, constraints = model.parameters_, Constraints()
    rules = Rules(constraints, 0.0, data.spectra.var(axis=0), data.parameters.var(axis=0))
    structure, values = constraints.structure, []
    fixed = Fixed.of(theta)
    for cycle in (regression_cycle, latent_cycle) * 4:
        sums = expectation(ConditionalTerms.of(theta), structure, None, data.chunk)
        values.append(sums.log_likelihood)
        theta, kept = cycle(sums, theta, fixed, rules)
        assert kept.all()
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize("algorithm", VARIANTS)
def test_without_latents_all_are_the_general_em(algorithm: str) -> None:
    data = make_data(6, 2, 5, 2, 0)
    plain = fit_estimator(data, max_iter=5, tol=0.0)
    other = fit_estimator(data, algorithm=algorithm, max_iter=5, tol=0.0)
    np.testing.assert_array_equal(other.log_likelihoods_, plain.log_likelihoods_)


@pytest.mark.parametrize("algorithm", VARIANTS)
@pytest.mark.parametrize("cuts", [(1, 1, 50), (30, 60, 90)])
def test_chunks_change_nothing(algorithm: str, cuts: tuple[int, ...]) -> None:
    data = make_data(7, 2, 6, 1, 1)
    ends = [0, *cuts, len(data.spectra)]
    parts = [data.rows(slice(a, b)).chunk for a, b in pairwise(ends)]
    own = {"algorithm": algorithm, "sigma": "diag", "max_iter": 6, "tol": 0.0}
    whole, split = fit_chunks(data.chunk, 1, **own).fit, fit_chunks(parts, 1, **own).fit
    assert_near(split.log_likelihoods, whole.log_likelihoods, 1e-10)
    assert_same_theta(split.parameters, whole.parameters, 1e-10)


@pytest.mark.parametrize("algorithm", VARIANTS)
def test_degenerate_components_are_removed(algorithm: str) -> None:
    data = make_data(8, 2, 6, 2, 1)
    stray = np.concatenate([data.responsibilities, np.zeros((len(data.spectra), 1))], axis=1)
    stray[:3] = np.eye(3)[-1]
    given_ = Data(data.spectra, data.parameters, stray, None, 1, "with a stray component")
    model = fit_estimator(given_, algorithm=algorithm, max_iter=3, tol=0.0)
    assert (model.n_components_, model.n_removed_) == (2, 1)


def test_aecm_makes_no_array_of_bands_by_bands() -> None:
    n_bands, data = 4000, make_data(9, 2, 6, 1, 2)
    spectra = data.spectra @ np.random.default_rng(0).normal(size=(6, n_bands))
    spectra += np.random.default_rng(1).normal(size=spectra.shape)
    model = GLLiM(2, n_latent=2, sigma="diag", algorithm="aecm", max_iter=2, tol=0.0)
    tracemalloc.start()
    try:
        model.fit(spectra, data.parameters, responsibilities=data.responsibilities)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_bands * n_bands * 8 / 3, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize("own", [{"tied_maps": True, "tied_sigma": True}, {"intercept": False}])
@pytest.mark.parametrize("algorithm", VARIANTS)
def test_variants_refuse_constraints_that_join_latents_and_regression(algorithm: str, own: dict) -> None:
    with pytest.raises(ValueError, match=f"algorithm='{algorithm}' takes the latents out of the regression"):
        fit_estimator(make_data(0), algorithm=algorithm, **own)


def test_an_unknown_algorithm_is_an_error_that_lists_them() -> None:
    with pytest.raises(ValueError, match="algorithm='em' is not one of 'general', 'marginal', 'ecm', 'aecm'"):
        fit_estimator(make_data(0), algorithm="em")
    assert ("general", *VARIANTS) == settings_of(GLLiMSettings)["algorithm"].accepted.names


@pytest.mark.parametrize("n_latent", [0, 1, 2, 4])
def test_rotations_of_the_latents_count_once_a_component(n_latent: int) -> None:
    each = n_latent * (n_latent - 1) // 2
    own = Constraints(sigma="diag")
    assert n_free_parameters(3, 9, 2, n_latent, own) - n_free_parameters(3, 9, 2, n_latent, own, False) == 3 * each
    tied = Constraints(tied_sigma=True, tied_maps=True)
    assert n_free_parameters(3, 9, 2, n_latent, tied) - n_free_parameters(3, 9, 2, n_latent, tied, False) == each


def test_aic_bic_and_icl_differ_by_their_penalties() -> None:
    data = make_data(10, 3, 2, 1, 1, noise=3.0)
    model = fit_estimator(data, max_iter=10, tol=0.0)
    size, log_likelihood = n_free_parameters(3, 2, 1, 1, Constraints()), model.log_likelihoods_[-1]
    r = reference.responsibilities(dense(model.parameters_), data.spectra, data.parameters)
    unsure = entropy(r, axis=1).sum()
    assert unsure > 0.1
    found = (f(data.spectra, data.parameters) for f in (model.aic, model.bic, model.icl))
    plain = -2.0 * log_likelihood
    assert_near(list(found), [plain + 2 * size, model.bic_, model.bic_ + 2 * unsure], 1e-9)
    assert (aic(-3.0, 2), bic(-3.0, 2, np.e), icl(-3.0, 2, np.e, 1.0)) == pytest.approx((10.0, 8.0, 10.0))
