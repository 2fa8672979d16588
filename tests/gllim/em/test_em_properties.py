"""What EM promises whatever the data: the likelihood never falls, and nothing depends on how the data are given."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specinvert.gllim.em import source as source_module
from specinvert.gllim.em.source import Chunk
from specinvert.gllim.model.parameters import GLLiMParameters
from strategies import (
    BARE,
    SEEDS,
    SIGMAS,
    Data,
    assert_near,
    assert_same_theta,
    data_sets,
    fit_chunks,
    fit_estimator,
    fit_reference,
    make_data,
    structures,
)

TEN = {"max_iter": 10, "tol": 0.0}
SAME = 1e-10
FIXTURES_STAY = [HealthCheck.function_scoped_fixture]


def assert_never_falls(
    log_likelihoods: list[float], removed_at: list[int], total_weight: float, allowed: float = 1e-9
) -> None:
    """No drop above 1e-9 of the size, iterations that remove a component excepted."""
    values = np.array(log_likelihoods)
    drops = -np.diff(values) / np.maximum(np.abs(values[:-1]), total_weight)
    drops[[i - 1 for i in removed_at if i > 0]] = 0.0
    assert drops.max(initial=0.0) <= allowed, f"the log-likelihood falls at {drops.argmax() + 1}: {values}"


@st.composite
def awkward_data(draw: st.DrawFn, noise: Any) -> Data:
    """Few samples, quantised, repeated or collinear spectra, in any units and about any origin."""
    data = draw(data_sets(per_component=draw(st.sampled_from([8, 15, 40])), noise=draw(noise)))
    spectra = data.spectra.copy()
    kind = draw(st.sampled_from(["plain", "quantised", "collinear", "repeated"]))
    if kind == "quantised":
        spectra = np.round(spectra)
    elif kind == "collinear":
        spectra[:, -1] = spectra[:, 0]
    elif kind == "repeated":
        spectra[1::2] = spectra[: 2 * (len(spectra) // 2) : 2]
    spectra = draw(st.sampled_from([1.0, 1e-3, 1e3])) * spectra + draw(st.sampled_from([0.0, 100.0, 1e4]))
    assume(bool((np.ptp(spectra, axis=0) > 0).all()))
    return replace(data, spectra=spectra)


def check_monotone(data: Data, structure: dict, reg_covar: float, standardize: bool, allowed: float = 1e-9) -> None:
    try:
        fit = fit_chunks(
            data.chunk, data.n_latent, reg_covar=reg_covar, standardize=standardize, tol=0.0, max_iter=25, **structure
        ).fit
    except ValueError as error:
        assert "degenerated" in str(error) or "no noise beyond" in str(error)  # noqa: PT017
        return
    assert fit.n_iter == 25
    assert_never_falls(fit.log_likelihoods, fit.removed_at, data.chunk.weights.sum(), allowed)


CLIPS = st.sampled_from([0.0, 1e-10, 1e-6, 1e-2])


@given(data=data_sets(), structure=structures(), reg_covar=CLIPS, standardize=st.booleans())
@settings(max_examples=100)
def test_the_likelihood_never_falls(data: Data, structure: dict, reg_covar: float, standardize: bool) -> None:
    check_monotone(data, structure, reg_covar, standardize)


@given(
    data=awkward_data(noise=st.sampled_from([1.0, 0.3, 1e-2, 1e-4, 0.0])),
    structure=structures(),
    reg_covar=CLIPS,
    standardize=st.booleans(),
)
@settings(max_examples=100)
def test_the_likelihood_never_falls_on_awkward_and_noise_free_data(
    data: Data, structure: dict, reg_covar: float, standardize: bool
) -> None:
    allowed = 1e-9
    if structure["sigma"] == "full" and reg_covar < 1e-6:
        # a dense matrix does not hold an eigenvalue of 1e-10 of its greatest to more than six digits
        reg_covar, allowed = 1e-10, 1e-6
    check_monotone(data, structure, reg_covar, standardize, allowed)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("tied_sigma", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_does_not_jump_once_latents_explain_everything(sigma: str, tied_sigma: bool, seed: int) -> None:
    # as many unknowns a band as samples a component: the noise shrinks until reg_covar stops it
    data = make_data(seed, 3, 8, 1, 4, noise=0.01, per_component=8)
    structure = {"sigma": sigma, "tied_sigma": tied_sigma}
    fit = fit_chunks(data.chunk, 4, tol=0.0, max_iter=60, **structure).fit
    assert_never_falls(fit.log_likelihoods, fit.removed_at, len(data.spectra))


@given(data=data_sets(), structure=structures(), seed=SEEDS)
@settings(max_examples=30)
def test_sample_order_changes_nothing(data: Data, structure: dict, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(data.spectra))
    first = fit_chunks(data.chunk, data.n_latent, **TEN, **structure).fit
    second = fit_chunks(data.rows(order).chunk, data.n_latent, **TEN, **structure).fit
    assert_near(second.log_likelihoods, first.log_likelihoods, SAME)
    assert_same_theta(second.parameters, first.parameters, SAME)


@given(data=data_sets(), structure=structures(), cuts=st.lists(st.integers(0, 400), max_size=8))
@settings(max_examples=30)
def test_chunks_of_any_sizes_empty_ones_too_change_nothing(data: Data, structure: dict, cuts: list[int]) -> None:
    n = len(data.spectra)
    ends = [0, *sorted(min(cut, n) for cut in cuts), n, n]
    parts = [data.rows(slice(a, b)).chunk for a, b in pairwise(ends)]
    assert len(parts[-1]) == 0
    whole = fit_chunks(data.chunk, data.n_latent, **TEN, **structure)
    split = fit_chunks(parts, data.n_latent, **TEN, **structure)
    assert split.moments.spectra.n_rows == n
    assert_near(split.fit.log_likelihoods, whole.fit.log_likelihoods, SAME)
    assert_same_theta(split.fit.parameters, whole.fit.parameters, SAME)


@pytest.mark.parametrize("block_numbers", [1, 3000])
def test_the_size_of_row_blocks_changes_nothing(block_numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(0, 3, 6, 2, 2, per_component=400)
    whole = fit_chunks(data.chunk, 2, **TEN).fit
    monkeypatch.setattr(source_module, "BLOCK_NUMBERS", block_numbers)
    split = fit_chunks(data.chunk, 2, **TEN).fit
    assert_near(split.log_likelihoods, whole.log_likelihoods, SAME)
    assert_same_theta(split.parameters, whole.parameters, SAME)


@given(data=data_sets(), structure=structures(), standardize=st.booleans())
@settings(max_examples=30)
def test_integer_weights_are_repeated_samples(data: Data, structure: dict, standardize: bool) -> None:
    counts = np.random.default_rng(0).integers(0, 4, len(data.spectra))
    repeated = replace(data, weights=None).rows(np.repeat(np.arange(len(counts)), counts))
    weighted = replace(data, weights=counts.astype(float))
    first = fit_chunks(weighted.chunk, data.n_latent, standardize=standardize, **TEN, **structure).fit
    second = fit_chunks(repeated.chunk, data.n_latent, standardize=standardize, **TEN, **structure).fit
    assert first.total_weight == second.total_weight == counts.sum()
    assert_near(second.log_likelihoods, first.log_likelihoods, SAME)
    assert_same_theta(second.parameters, first.parameters, SAME)
    assert second.bic == pytest.approx(first.bic, rel=SAME)


@pytest.mark.parametrize("init", ["kmeans", "kmeans-joint", "kmeans-spectra"])
@pytest.mark.parametrize("given_start", [True, False])
@given(data=data_sets(), structure=structures(), seed=SEEDS)
@settings(max_examples=8, suppress_health_check=FIXTURES_STAY)
def test_units_change_nothing_but_the_volume(
    given_start: bool, init: str, data: Data, structure: dict, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n_bands, n_parameters = data.spectra.shape[1], data.parameters.shape[1]
    band_scale = np.exp(rng.uniform(-6, 6, 1 if structure["sigma"] == "iso" else n_bands)) * np.ones(n_bands)
    scale = np.exp(rng.uniform(-6, 6, n_parameters)) * rng.choice([-1.0, 1.0], n_parameters)
    band_shift, shift = band_scale * rng.normal(size=n_bands), scale * rng.normal(size=n_parameters)
    moved = replace(data, spectra=band_scale * data.spectra + band_shift, parameters=scale * data.parameters + shift)
    own = {"init": init, "random_state": 0, **TEN, **structure}
    first, second = fit_estimator(data, given_start, **own), fit_estimator(moved, given_start, **own)
    weight = data.chunk.weights.sum()
    volume = weight * (np.log(band_scale).sum() + np.log(np.abs(scale)).sum())
    assert_near(second.log_likelihoods_ + volume, first.log_likelihoods_, 1e-9 * (1 + abs(volume)))
    mean, deviation = first.predict(data.spectra, return_std=True)
    moved_mean, moved_deviation = second.predict(moved.spectra, return_std=True)
    assert_near((moved_mean - shift) / scale, mean, 1e-8)
    assert_near(moved_deviation / np.abs(scale), deviation, 1e-8)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_float32_is_the_float64_of_the_same_values(sigma: str, offset: float) -> None:
    data = make_data(7, 3, 6, 2, 1)
    single = replace(data, spectra=np.float32(data.spectra + offset), parameters=np.float32(data.parameters))
    double = replace(single, spectra=np.float64(single.spectra), parameters=np.float64(single.parameters))
    for given_start in (True, False):
        own = {"sigma": sigma, "random_state": 0, **TEN}
        first, second = fit_estimator(single, given_start, **own), fit_estimator(double, given_start, **own)
        assert first.parameters_.A.dtype == np.float64
        np.testing.assert_array_equal(first.log_likelihoods_, second.log_likelihoods_)
        found, expected = first.predict(single.spectra), second.predict(double.spectra)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_an_offset_of_1e4_costs_no_more_digits_than_it_must(sigma: str) -> None:
    data = make_data(8, 3, 6, 2, 2)
    offset = 2.0**13
    near = replace(data, spectra=np.round(data.spectra * 2**30) / 2**30)  # exact in float64 after the offset too
    far = replace(near, spectra=near.spectra + offset)
    first, second = (fit_estimator(one, sigma=sigma, **BARE) for one in (near, far))
    assert_near(second.log_likelihoods_, first.log_likelihoods_, SAME)
    assert_near(second.predict(far.spectra), first.predict(near.spectra), 1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("n_latent", [0, 2])
def test_noise_at_1e_4_of_the_signal_leaves_the_reference_s_digits(sigma: str, n_latent: int) -> None:
    data = make_data(9, 3, 8, 2, n_latent, noise=1e-4 * 2)
    model = fit_estimator(data, sigma=sigma, **BARE)
    theta, log_likelihoods = fit_reference(data, {"sigma": sigma})
    assert_near(model.log_likelihoods_, log_likelihoods, 1e-8)
    found = model.parameters_
    # the noise itself keeps half its digits: it is a difference of sums 1e8 greater
    assert_near(found.sigma_dense(), theta.Sigma, 1e-6)
    assert_same_theta(replace_noise(found), replace(theta, Sigma=0.0 * theta.Sigma), 1e-8)


def replace_noise(theta: GLLiMParameters) -> GLLiMParameters:
    return replace(theta, Sigma=0.0 * theta.Sigma)


@pytest.mark.parametrize("sigma", ["iso", "full"])
@pytest.mark.parametrize(("init", "n_latent", "n_bands"), [("kmeans", 0, 6), ("kmeans", 2, 40), ("gmm", 2, 6)])
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(
    sigma: str, init: str, n_latent: int, n_bands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(10, 3, n_bands, 2, n_latent, per_component=500)
    monkeypatch.setattr(source_module, "BLOCK_NUMBERS", 1)
    fits = []
    for cpus in (1, 2, 7, 2):
        monkeypatch.setattr(source_module, "available_cpus", lambda cpus=cpus: cpus)
        fits.append(fit_estimator(data, given=False, init=init, sigma=sigma, random_state=3, **TEN))
    for other in fits[1:]:
        np.testing.assert_array_equal(other.log_likelihoods_, fits[0].log_likelihoods_)
        for name in ("pi", "c", "Gamma", "A", "b", "Sigma"):
            np.testing.assert_array_equal(getattr(other.parameters_, name), getattr(fits[0].parameters_, name))


def test_another_seed_gives_another_start() -> None:
    data = make_data(11, 4, 6, 2, 0)
    first, second = (fit_estimator(data, given=False, n_components=6, random_state=seed, **TEN) for seed in (0, 1))
    assert first.log_likelihoods_[0] != second.log_likelihoods_[0]


def test_chunks_start_from_the_same_named_start_as_the_whole() -> None:
    data = make_data(12, 3, 6, 2, 1)
    parts: list[Chunk] = [replace(data.rows(s).chunk, responsibilities=None) for s in (slice(0, 50), slice(50, None))]
    own = {"n_components": 3, "random_state": 0, **TEN}
    split = fit_chunks(parts, 1, given=False, **own).fit
    whole = fit_chunks(replace(data.chunk, responsibilities=None), 1, given=False, **own).fit
    assert_near(split.log_likelihoods, whole.log_likelihoods, SAME)
