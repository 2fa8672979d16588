"""What the settings of training promise: warm starts, n_init, BIC, removals, stopping, memory, named starts."""

import logging
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.exceptions import ConvergenceWarning

from specinvert.gllim import GLLiM
from specinvert.gllim.model.constraints import KINDS
from specinvert.gllim.model.scaling import Scaling
from specinvert.settings import STARTS
from strategies import (
    BARE,
    SIGMAS,
    Data,
    assert_near,
    assert_same_theta,
    data_sets,
    fit_chunks,
    fit_estimator,
    make_data,
    posterior_of,
    structures,
)


def with_stray_component(data: Data, count: int) -> Data:
    """One more component that answers for ``count`` samples only."""
    given = np.concatenate([data.responsibilities, np.zeros((len(data.spectra), 1))], axis=1)
    given[:count] = np.eye(given.shape[1])[-1]
    return replace(data, responsibilities=given)


@given(data=data_sets(), structure=structures())
@settings(max_examples=25)
def test_a_warm_start_goes_on_where_the_fit_stopped(data: Data, structure: dict) -> None:
    whole = fit_estimator(data, max_iter=9, tol=0.0, **structure)
    first = fit_estimator(data, max_iter=4, tol=0.0, **structure)
    second = fit_estimator(data, given=False, init=first.parameters_, max_iter=5, tol=0.0, **structure)
    assert_near(np.append(first.log_likelihoods_, second.log_likelihoods_), whole.log_likelihoods_, 1e-9)
    assert_same_theta(second.parameters_, whole.parameters_, 1e-7)


def test_a_warm_start_keeps_the_latents_moments() -> None:
    data = make_data(0, 2, 6, 1, 2)
    moments = {"latent_mean": [1.0, 2.0], "latent_covariance": [[2.0, 0.0], [0.0, 3.0]]}
    first = fit_estimator(data, max_iter=3, tol=0.0, **moments)
    second = fit_estimator(data, given=False, init=first.parameters_, max_iter=3, tol=0.0)
    np.testing.assert_array_equal(second.parameters_.c[:, 1:], first.parameters_.c[:, 1:])
    np.testing.assert_array_equal(second.parameters_.Gamma[:, 1:, 1:], first.parameters_.Gamma[:, 1:, 1:])
    assert (np.diff(np.append(first.log_likelihoods_, second.log_likelihoods_)) > 0).all()


@pytest.mark.parametrize("change", ["bands", "parameters", "latent"])
def test_a_warm_start_of_another_size_is_an_error(change: str) -> None:
    model = fit_estimator(make_data(0, 2, 6, 2, 1), max_iter=2, tol=0.0)
    sizes = {"bands": (5, 2, 1), "parameters": (6, 1, 1), "latent": (6, 2, 2)}[change]
    with pytest.raises(ValueError, match=r"the init model has (6 bands and 2 parameters|1 latent dimensions)"):
        fit_estimator(make_data(0, 2, *sizes), given=False, init=model.parameters_)


def test_n_init_keeps_the_best_of_its_starts() -> None:
    data = make_data(1, 4, 6, 2, 1)
    last: dict[str, float] = {}

    def remember(label: str, _iteration: int, log_likelihood: float) -> None:
        last[label] = log_likelihood

    model = GLLiM(7, n_latent=1, n_init=5, max_iter=8, tol=0.0, random_state=2)
    model.fit(data.spectra, data.parameters, progress=remember)
    assert list(last) == [f"L_w = 1, start {i}" for i in range(1, 6)]
    assert len(set(last.values())) > 1
    assert model.log_likelihoods_[-1] == max(last.values())
    alone = GLLiM(7, n_latent=1, max_iter=8, tol=0.0, random_state=2).fit(data.spectra, data.parameters)
    assert alone.log_likelihoods_[-1] == last["L_w = 1, start 1"]


@pytest.mark.parametrize(("max_latent", "tried"), [(3, [0, 1, 2, 3]), (99, [0, 1, 2, 3, 4, 5]), ((4, 2, 2), [2, 4])])
def test_bic_tries_the_latent_dimensions_asked_for_and_keeps_the_least(max_latent: object, tried: list[int]) -> None:
    data = make_data(2, 2, 6, 1, 2, per_component=100)
    own = {"tied_sigma": True, "max_iter": 8, "tol": 0.0, "random_state": 0}
    chosen = GLLiM(2, n_latent="bic", max_latent=max_latent, **own).fit(data.spectra, data.parameters)
    assert list(chosen.bics_) == tried
    alone = {n: GLLiM(2, n_latent=n, **own).fit(data.spectra, data.parameters) for n in tried}
    assert chosen.bics_ == {n: model.bic_ for n, model in alone.items()}
    assert chosen.n_latent_ == chosen.parameters_.n_latent == min(tried, key=lambda n: alone[n].bic_) == 2
    assert chosen.bic_ == min(chosen.bics_.values())
    np.testing.assert_array_equal(chosen.log_likelihoods_, alone[2].log_likelihoods_)


@pytest.mark.parametrize("n_latent", [0, 2])
def test_components_below_the_least_count_are_removed_counted_and_logged(
    n_latent: int, caplog: pytest.LogCaptureFixture
) -> None:
    data = make_data(3, 2, 6, 2, n_latent)
    with caplog.at_level(logging.WARNING, "specinvert"):
        model = fit_estimator(with_stray_component(data, 3), **BARE)
    assert (model.n_components_, model.n_removed_) == (2, 1)
    assert len(model.parameters_.pi) == 2
    assert model.parameters_.pi.sum() == pytest.approx(1.0, rel=1e-12)
    assert "1 of 3 components degenerated and were removed" in caplog.text


def test_a_component_with_the_least_count_stays() -> None:
    data = make_data(3, 2, 3, 1, 0)
    fit = fit_chunks(with_stray_component(data, 3).chunk, 0, max_iter=1, tol=0.0).fit  # L_t + 2 samples
    assert fit.n_removed == 0


@pytest.mark.parametrize("n_latent", [0, 1])
def test_singular_components_are_removed_without_a_clip_and_kept_with_one(n_latent: int) -> None:
    data = make_data(4, 2, 4, 1, n_latent)
    spectra = data.spectra.copy()
    spectra[:6] = 1.0 + np.outer(data.parameters[:6, 0], np.arange(4.0))  # exactly affine: no noise at all
    data = with_stray_component(replace(data, spectra=spectra), 6)
    bare = fit_chunks(data.chunk, n_latent, standardize=False, reg_covar=0.0, max_iter=1, tol=0.0).fit
    clipped = fit_chunks(data.chunk, n_latent, reg_covar=1e-6, max_iter=1, tol=0.0).fit
    assert (bare.n_removed, clipped.n_removed) == (1, 0)
    assert bare.removed_at == [-1 if n_latent else 0]


@pytest.mark.parametrize("n_latent", [0, 1])
def test_all_components_degenerate_is_an_error_that_says_what_to_change(n_latent: int) -> None:
    data = make_data(5, 4, 5, 2, n_latent, per_component=3)
    with pytest.raises(ValueError, match=r"all 4 components degenerated .* use fewer components, more samples"):
        fit_chunks(replace(data, responsibilities=np.eye(4)[np.arange(12) % 4]).chunk, n_latent)


def test_no_variance_falls_below_its_share_of_the_band_s_own() -> None:
    data = make_data(6, 2, 5, 2, 0, noise=0.0)
    data = replace(data, spectra=data.spectra * np.array([1.0, 10.0, 0.1, 1e3, 1e-3]))
    own = data.spectra.var(axis=0)
    for standardize in (True, False):
        settings_ = {"standardize": standardize, "reg_covar": 1e-3, "max_iter": 20, "tol": 0.0}
        diag = fit_chunks(data.chunk, 0, sigma="diag", **settings_).fit.parameters.Sigma
        assert_near(diag.min(axis=0) / own, np.full(5, 1e-3), 1e-9)
        iso = fit_chunks(data.chunk, 0, sigma="iso", **settings_).fit.parameters.Sigma
        assert iso.min() == pytest.approx(1e-3 * own.mean(), rel=1e-9)
        full = fit_chunks(data.chunk, 0, sigma="full", **settings_).fit.parameters.Sigma
        assert np.linalg.eigvalsh(full / np.sqrt(np.outer(own, own))).min() == pytest.approx(1e-3, rel=1e-9)


def test_tol_is_in_nats_a_sample_and_stops_at_the_first_smaller_gain() -> None:
    data = make_data(7, 3, 6, 1, 1, weights="real")
    model = fit_estimator(data, max_iter=200, tol=1e-3)
    gains = np.diff(model.log_likelihoods_) / data.weights.sum()
    assert model.converged_
    assert model.n_iter_ == len(model.log_likelihoods_) < 200
    assert gains[-1] < 1e-3
    assert (gains[:-1] >= 1e-3).all()


def test_a_fit_that_stops_too_soon_warns_with_advice() -> None:
    with pytest.warns(ConvergenceWarning, match=r"max_iter=3 iterations: raise max_iter, or raise tol=1e-09"):
        model = fit_estimator(make_data(8, 3, 6, 1, 1), max_iter=3, tol=1e-9)
    assert not model.converged_


@pytest.mark.parametrize("max_iter", [1, 2, 40])
def test_tol_zero_does_all_iterations_without_a_warning(max_iter: int) -> None:
    model = fit_estimator(make_data(9, 1, 4, 1, 0), max_iter=max_iter, tol=0.0)
    assert model.n_iter_ == max_iter
    assert not model.converged_


def test_progress_is_told_every_iteration() -> None:
    data, told = make_data(9, 2, 4, 1, 1), []
    model = GLLiM(2, n_latent=1, max_iter=4, tol=0.0, random_state=0)
    model.fit(data.spectra, data.parameters, progress=lambda *args: told.append(args))
    assert told == [("L_w = 1", i, value) for i, value in enumerate(model.log_likelihoods_)]


@pytest.mark.parametrize("sigma", ["iso", "diag"])
@pytest.mark.parametrize("tied_sigma", [False, True])
def test_no_array_of_bands_by_bands_is_made(sigma: str, tied_sigma: bool) -> None:
    n_bands, data = 6000, make_data(10, 2, 6, 1, 2, per_component=40)
    spread = np.random.default_rng(0).normal(size=(6, n_bands))
    spectra = data.spectra @ spread + np.random.default_rng(1).normal(size=(80, n_bands))
    data = replace(data, spectra=spectra)
    tracemalloc.start()
    try:
        model = fit_estimator(data, sigma=sigma, tied_sigma=tied_sigma, max_iter=2, tol=0.0)
        model.predict(spectra, return_cov=True)
        spectra[:, ::7] = np.nan
        assert np.isfinite(posterior_of(model.parameters_, spectra).log_evidence).all()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_bands * n_bands * 8 / 3, f"{peak / 1e6:.0f} MB"


@pytest.mark.parametrize("init", STARTS)
@pytest.mark.parametrize(("n_parameters", "n_latent"), [(2, 0), (2, 1), (1, 0), (0, 2)])
def test_every_named_start_trains(init: str, n_parameters: int, n_latent: int) -> None:
    data = make_data(11, 3, 6, n_parameters, n_latent, weights="real", per_component=80)
    for sigma in SIGMAS:
        own = {"init": init, "sigma": sigma, "random_state": 1, "max_iter": 15, "tol": 0.0}
        model = fit_estimator(data, given=False, **own)
        assert model.n_components_ == 3
        gains = np.diff(model.log_likelihoods_)
        assert (gains > -1e-9 * np.abs(model.log_likelihoods_[1:])).all()


def test_more_clusters_than_distinct_parameters_are_removed_not_an_error() -> None:
    data = make_data(12, 3, 6, 1, 0, per_component=60)
    data = replace(data, parameters=np.round(data.parameters).clip(-1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit_estimator(data, given=False, n_components=6, random_state=0, max_iter=3, tol=0.0)
    assert 1 <= model.n_components_ <= 3
    assert model.n_removed_ == 6 - model.n_components_


def test_scaling_is_one_scale_for_iso_and_one_a_band_otherwise() -> None:
    data = make_data(13, 2, 5, 2, 0)
    moments = fit_chunks(data.chunk, 0, max_iter=1, tol=0.0).moments
    iso, diag, full = (
        Scaling.from_moments(moments.spectra, moments.parameters, KINDS[sigma], True) for sigma in SIGMAS[::-1]
    )
    np.testing.assert_allclose(iso.spectra_scale, np.sqrt(data.spectra.var(axis=0).mean()), rtol=1e-12)
    for scaling in (diag, full):
        np.testing.assert_allclose(scaling.spectra_scale, data.spectra.std(axis=0), rtol=1e-12)
        np.testing.assert_allclose(scaling.parameters_scale, data.parameters.std(axis=0), rtol=1e-12)
