"""Block-diagonal Sigma: its structure, its fits, its predictions, and groups of bands that are found."""

import json
import tracemalloc
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from specinvert.gllim import Constraints, GLLiM, GLLiMParameters
from specinvert.gllim.em.em import CORRELATION, groups
from specinvert.gllim.model.constraints import STRUCTURES, structure_of
from specinvert.gllim.model.covariance import FULL, Block
from specinvert.gllim.model.parameters import n_free_parameters
from specinvert.gllim.posterior.forward import ForwardTerms
from specinvert.gllim.posterior.posterior import SideInformation, posterior_blocks
from strategies import (
    BARE,
    SEEDS,
    assert_near,
    assert_same_theta,
    covariances,
    dense,
    fit_chunks,
    fit_estimator,
    fit_reference,
    make_data,
    posterior_of,
    random_theta,
)

LABELS = (0, 1, 0, 2, 1, 0)


def mask(labels: Any) -> np.ndarray:
    return np.equal.outer(np.asarray(labels), np.asarray(labels))


def block_theta(seed: int, labels: tuple[int, ...], n_parameters: int = 2, n_latent: int = 1) -> GLLiMParameters:
    full = random_theta(seed, 3, len(labels), n_parameters, n_latent, "full")
    structure = Block(labels)
    constraints = Constraints(sigma="block", sigma_blocks=labels)
    return replace(full, Sigma=structure.compact(full.Sigma), constraints=constraints)


LABELLED = st.lists(st.integers(0, 3), min_size=1, max_size=7)


@pytest.mark.oracle
@given(seed=SEEDS, labels=LABELLED, k=st.integers(1, 3), ratio=st.sampled_from([0.0, 1e-3, 0.9]))
@settings(max_examples=20)
def test_every_operation_is_that_of_the_dense_matrices(seed: int, labels: list[int], k: int, ratio: float) -> None:
    rng, structure, d = np.random.default_rng(seed), Block(labels), len(labels)
    unconstrained = covariances(rng, k, d)
    small = structure.compact(unconstrained)
    matrices = structure.dense(small, d)
    np.testing.assert_array_equal(matrices, np.where(mask(labels), unconstrained, 0.0))
    assert small.shape == structure.moment_shape(k, d) == (k, mask(labels).sum())

    columns = rng.normal(size=(k, d, 3))
    assert_near(structure.solve(small, columns), np.linalg.solve(matrices, columns), 1e-11)
    assert_near(structure.log_det(small, d), np.linalg.slogdet(matrices)[1], 1e-11)
    whitened = structure.whiten(small, columns)
    solved = columns.transpose(0, 2, 1) @ np.linalg.solve(matrices, columns)
    assert_near(whitened.transpose(0, 2, 1) @ whitened, solved, 1e-11)

    scale = rng.uniform(0.1, 10.0, d)
    assert_near(structure.dense(structure.rescale(small, scale)[1], d), matrices * np.outer(scale, scale), 1e-14)
    bands = rng.permutation(d)[: rng.integers(1, d + 1)]
    chosen = Block(np.array(labels)[bands]).dense(structure.select(small, bands, d)[1], len(bands))
    np.testing.assert_array_equal(chosen, matrices[:, bands[:, None], bands])

    variance = rng.uniform(0.5, 2.0, d)
    assert_near(structure.dense(structure.clip(small, variance, ratio), d), FULL.clip(matrices, variance, ratio), 1e-11)
    np.testing.assert_array_equal(structure.singular(small, variance), FULL.singular(matrices, variance))

    y, weights = rng.normal(size=(9, d)), rng.uniform(size=(9, k))
    moments = np.zeros(structure.moment_shape(k, d))
    structure.add_second_moments(y, weights, moments)
    whole = np.einsum("nk,nd,ne->kde", weights, y, y)
    assert_near(moments, structure.compact(whole), 1e-12)
    mean, maps, xy, xx = (
        rng.normal(size=(k, d)),
        rng.normal(size=(k, d, 2)),
        rng.normal(size=(k, 2, d)),
        covariances(rng, k, 2),
    )
    found = structure.residual(moments, mean, maps, xy, xx)
    assert_near(found, structure.compact(FULL.residual(whole, mean, maps, xy, xx)), 1e-11)


@pytest.mark.oracle
@pytest.mark.parametrize("sigma", ["iso", "diag", "full"])
def test_every_structure_is_the_least_that_a_dense_covariance_is_constrained_to(sigma: str) -> None:
    unconstrained = covariances(np.random.default_rng(0), 2, 5)
    found = STRUCTURES[sigma].dense(STRUCTURES[sigma].compact(unconstrained), 5)
    assert_near(found, reference.constrain(unconstrained, sigma, False, np.array([0.5, 0.5])), 1e-14)


@pytest.mark.oracle
@pytest.mark.parametrize("tied_sigma", [False, True])
@pytest.mark.parametrize(("n_parameters", "n_latent"), [(2, 0), (1, 2), (0, 2)])
def test_ten_iterations_agree_with_the_reference(tied_sigma: bool, n_parameters: int, n_latent: int) -> None:
    data = make_data(n_latent, 3, 6, n_parameters, n_latent, "real")
    model = fit_estimator(data, sigma="block", sigma_blocks=LABELS, tied_sigma=tied_sigma, **BARE)
    theta, log_likelihoods = fit_reference(data, {"sigma": mask(LABELS), "tied_sigma": tied_sigma})
    assert_near(model.log_likelihoods_, log_likelihoods, 1e-9)
    assert_same_theta(model.parameters_, theta, 1e-9)
    expected = reference.posterior(theta, data.spectra[:20])
    mean, covariance = model.predict(data.spectra[:20], return_cov=True)
    assert_near(mean, expected["mean"][:, :n_parameters], 1e-9)
    assert_near(covariance, expected["cov"][:, :n_parameters, :n_parameters], 1e-9)
    assert_near(model.score_samples(data.spectra[:20]), expected["log_evidence"], 1e-9)


@pytest.mark.parametrize(("labels", "same"), [((0,) * 6, "full"), (range(6), "diag")])
def test_one_group_is_full_and_a_group_a_band_is_diag(labels: Any, same: str) -> None:
    data = make_data(3, 2, 6, 1, 1)
    own = {"max_iter": 8, "tol": 0.0}
    block = fit_estimator(data, sigma="block", sigma_blocks=list(labels), **own)
    other = fit_estimator(data, sigma=same, **own)
    assert_near(block.log_likelihoods_, other.log_likelihoods_, 1e-10)
    assert_near(block.parameters_.sigma_dense(), other.parameters_.sigma_dense(), 1e-8)
    assert block.bic_ == pytest.approx(other.bic_, rel=1e-10)


def test_labels_and_lists_of_bands_are_two_ways_to_say_the_same() -> None:
    by_label = Constraints(sigma="block", sigma_blocks=np.array([7, 3, 7, 9, 3, 7]))
    by_list = Constraints(sigma="block", sigma_blocks=[[0, 2, 5], [4, 1], [3]])
    assert by_label == by_list
    assert by_label.sigma_blocks == LABELS
    assert structure_of("block", LABELS) is by_list.structure
    assert Constraints(**json.loads(json.dumps(asdict(by_list)))) == by_list


@pytest.mark.oracle
@given(seed=SEEDS, labels=LABELLED, missing=st.sampled_from([0.0, 0.4]), noise=st.sampled_from([None, "one", "bands"]))
@settings(max_examples=12)
def test_predictions_with_missing_bands_and_noise_are_the_reference_s(
    seed: int, labels: list[int], missing: float, noise: str | None
) -> None:
    theta = block_theta(seed, Constraints(sigma="block", sigma_blocks=labels).sigma_blocks)
    rng, d = np.random.default_rng(seed), len(labels)
    spectra = theta.centres()[np.arange(12) % 3] + rng.normal(size=(12, d))
    spectra[rng.random(spectra.shape) < missing] = np.nan
    variances = {None: np.zeros(1), "one": np.array([0.3]), "bands": rng.uniform(0.1, 1.0, d)}[noise]
    expected = reference.posterior(dense(theta), spectra, np.diag(variances * np.ones(d)))
    added = None if noise is None else np.tile(variances, (12, 1))
    for block in posterior_blocks(ForwardTerms.of(theta), spectra, given=SideInformation(added=added)):
        mean, covariance = block.posterior.moments(covariance=True)
        assert_near(mean, expected["mean"][block.rows], 1e-8)
        assert_near(covariance, expected["cov"][block.rows], 1e-8)
        assert_near(block.posterior.log_evidence, expected["log_evidence"][block.rows], 1e-8)
    backwards = np.ascontiguousarray(np.nan_to_num(spectra)[:, ::-1])
    marginal = posterior_of(theta.select_bands(np.arange(d)[::-1]), backwards)
    assert_near(marginal.mean, posterior_of(theta, np.nan_to_num(spectra)).mean, 1e-9)


def test_noise_keeps_the_blocks_and_a_covariance_fills_them() -> None:
    theta = block_theta(0, LABELS)
    by_band = theta.with_noise(np.arange(1.0, 7.0))
    assert by_band.constraints == theta.constraints
    assert_near(by_band.sigma_dense(), theta.sigma_dense() + np.diag(np.arange(1.0, 7.0)), 1e-14)
    assert_near(theta.with_noise(np.array(2.0)).sigma_dense(), theta.sigma_dense() + 2.0 * np.eye(6), 1e-14)
    whole = theta.with_noise(np.ones((6, 6)))
    assert whole.constraints.sigma == "full"
    assert_near(whole.Sigma, theta.sigma_dense() + 1.0, 1e-14)


@pytest.mark.parametrize("tied_sigma", [False, True])
@pytest.mark.parametrize("reg_covar", [0.0, 1e-2])
def test_the_likelihood_never_falls(tied_sigma: bool, reg_covar: float) -> None:
    data = make_data(4, 3, 6, 1, 2, "counts")
    model = fit_estimator(
        data, sigma="block", sigma_blocks=LABELS, tied_sigma=tied_sigma, reg_covar=reg_covar, max_iter=40, tol=0.0
    )
    assert np.diff(model.log_likelihoods_).min() > -1e-9 * np.abs(model.log_likelihoods_[-1])


def test_no_eigenvalue_of_a_block_falls_below_its_share_of_the_variance() -> None:
    data = make_data(6, 2, 6, 2, 0, noise=0.0)
    theta = fit_chunks(
        data.chunk, 0, sigma="block", sigma_blocks=LABELS, reg_covar=1e-3, max_iter=20, tol=0.0
    ).fit.parameters
    own = np.sqrt(data.spectra.var(axis=0))
    assert np.linalg.eigvalsh(theta.sigma_dense() / np.outer(own, own)).min() == pytest.approx(1e-3, rel=1e-9)


def test_inversion_holds_no_more_of_sigma_than_its_blocks() -> None:
    labels = tuple(np.repeat(np.arange(50), 4))
    rng = np.random.default_rng(0)
    theta = GLLiMParameters(
        pi=np.full(5, 0.2),
        c=np.zeros((5, 1)),
        Gamma=np.ones((5, 1, 1)),
        A=rng.normal(size=(5, 200, 1)),
        b=rng.normal(size=(5, 200)),
        Sigma=Block(labels).compact(np.broadcast_to(np.eye(200), (5, 200, 200))),
        constraints=Constraints(sigma="block", sigma_blocks=labels),
    )
    ForwardTerms.of(theta)
    tracemalloc.start()
    ForwardTerms.of(theta).derived(np.arange(200), (), np.array([0.1]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 200 * 200 * 8  # K x D x D


def correlated(seed: int, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Spectra whose noise is correlated within bands 0, 2, 5 and within 1, 4, and parameters."""
    rng = np.random.default_rng(seed)
    t = rng.normal(size=(n, 2))
    root = np.where(mask(LABELS), 0.9, 0.0) + 0.3 * np.eye(6)
    return t @ rng.normal(size=(2, 6)) + rng.normal(size=(n, 6)) @ root + 5.0, t


@pytest.mark.parametrize("n_latent", [0, 1])
def test_groups_are_found_from_the_residuals(n_latent: int) -> None:
    spectra, t = correlated(1)
    spectra *= np.array([1.0, 1e3, 1.0, 1.0, 1e-3, 7.0])
    own = {"random_state": 0, "max_iter": 5, "tol": 0.0}
    found = GLLiM(2, sigma="block", sigma_blocks="auto", n_latent=0, **own).fit(spectra, t)
    assert found.parameters_.constraints.sigma_blocks == LABELS
    given_ = GLLiM(2, sigma="block", sigma_blocks=LABELS, n_latent=0, **own).fit(spectra, t)
    np.testing.assert_array_equal(found.log_likelihoods_, given_.log_likelihoods_)
    if n_latent:
        latent = GLLiM(2, sigma="block", sigma_blocks="auto", n_latent=1, **own).fit(spectra, t)
        assert len(set(latent.parameters_.constraints.sigma_blocks)) > len(set(LABELS))


def test_groups_are_merged_down_to_the_correlation_stated() -> None:
    for correlation, expected in ((CORRELATION + 0.01, (0, 0, 1)), (CORRELATION - 0.01, (0, 1, 2))):
        for sign in (1.0, -1.0):
            covariance = np.eye(3)
            covariance[0, 1] = covariance[1, 0] = sign * correlation
            assert structure_of("block", groups(covariance)).groups(3)[0].tolist() == [
                i for i in range(3) if expected[i] == 0
            ]
    assert groups(np.ones((1, 1))) == (0,)


def test_blocks_count_their_own_parameters() -> None:
    own = {"sigma": "block", "sigma_blocks": LABELS}
    assert Block(LABELS).n_free(6) == 6 + 3 + 1
    iso = n_free_parameters(3, 6, 2, 1, Constraints())
    assert n_free_parameters(3, 6, 2, 1, Constraints(**own)) == iso + 3 * 9
    assert n_free_parameters(3, 6, 2, 1, Constraints(**own, tied_sigma=True)) == iso - 3 + 10


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"sigma": "block"}, "sigma='block' with sigma_blocks=None: give the group of each band"),
        ({"sigma": "block", "sigma_blocks": "some"}, "sigma_blocks='some': give the group of each band"),
        ({"sigma": "diag", "sigma_blocks": LABELS}, "sigma_blocks are for sigma='block', not for sigma='diag'"),
        ({"sigma": "block", "sigma_blocks": [[0, 1], [1, 2]]}, "hold 4 bands, 3 of them distinct"),
        ({"sigma": "block", "sigma_blocks": [[0, 1], [3]]}, "each band from 0 to D - 1 must be in one group"),
        ({"sigma": "block", "sigma_blocks": [0.5, 1.5]}, "must be integers, or lists of integers"),
        (
            {"sigma": "block", "sigma_blocks": "auto", "fixed": {"Sigma": 1.0}},
            "sigma_blocks='auto' finds the groups of a Sigma to estimate: name those of a fixed one",
        ),
        ({"sigma": "block", "sigma_blocks": [0, 1, 1]}, "sigma_blocks groups 3 bands, the spectra have 6"),
    ],
)
def test_groups_that_do_not_fit_are_an_error(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_estimator(make_data(0, 2, 6, 1, 0), **own)


def test_a_theta_of_blocks_holds_their_entries_only() -> None:
    theta = block_theta(0, LABELS)
    with pytest.raises(ValueError, match=r"Sigma has shape \(3, 6, 6\)"):
        replace(theta, Sigma=theta.sigma_dense())
    with pytest.raises(ValueError, match="sigma_blocks groups 6 bands, the spectra have 5"):
        replace(theta, A=theta.A[:, :5], b=theta.b[:, :5])
