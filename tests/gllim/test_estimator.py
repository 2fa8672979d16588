"""GLLiM as scikit-learn knows estimators: its checks, its flags, and errors that say what is accepted."""

import pickle
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from specinvert.gllim import GLLiM, estimator, preset
from specinvert.gllim.core import threads
from specinvert.gllim.estimator import PIECE_ROWS
from specinvert.gllim.posterior import posterior_blocks
from strategies import Data, make_data

NOT_ENOUGH = "10 samples of 5 outputs: no component of the default 5 holds the L_t + 2 = 7 that it needs"
NOT_BELOW = {"check_fit2d_1feature": "L_w must be below D; our error names the bands, not '1 feature'"}
ONE_NODE = dict.fromkeys(
    (
        "check_dont_overwrite_parameters",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
    ),
    "the check sets n_components=1, and a grid has a component a node",
)
ESTIMATORS = [
    (GLLiM(), {"check_regressor_multioutput": NOT_ENOUGH}),
    # a check fits five parameters to 11 samples: a rare start leaves no component with enough of them
    (GLLiM(n_components=2, max_iter=5, random_state=0), {}),
    (
        GLLiM(
            n_components=2,
            sigma="diag",
            tied_sigma=True,
            gamma="diag",
            tied_gamma=True,
            tied_pi=True,
            max_iter=5,
            random_state=0,
        ),
        {},
    ),
    # 15 samples do not determine a covariance of 10 bands: the clip does
    (GLLiM(n_components=2, sigma="full", reg_covar=1e-3, max_iter=5, random_state=0), {}),
    (GLLiM(n_components=2, n_latent=1, max_iter=5, random_state=0), NOT_BELOW),
    (GLLiM(n_components=2, n_latent="bic", max_latent=2, max_iter=5, random_state=0), {}),
    # the other presets have the settings of those above
    (preset("mlr", n_components=2, max_iter=5, random_state=0), {}),
    (preset("ppam", n_components=2, max_iter=5, random_state=0), {}),
    (preset("gtm", grid=(3,), functions=(2,), max_iter=5), {"check_regressor_multioutput": NOT_ENOUGH} | ONE_NODE),
    # 15 samples do not determine covariances of blocks either
    (preset("pcca", n_latent=1, sigma_blocks="auto", reg_covar=1e-3, max_iter=2), NOT_BELOW),
    (preset("rca", n_latent=1, fixed={"Sigma": 0.5}, max_iter=5), NOT_BELOW),
]
UNAVAILABLE = {"check_array_api_input"}
"""Checks that scikit-learn itself skips where SCIPY_ARRAY_API is not set."""


@pytest.mark.oracle
@pytest.mark.parametrize(("estimator", "excepted"), ESTIMATORS, ids=lambda value: str(value)[:70])
def test_scikit_learn_s_checks_pass_but_for_those_listed(estimator: GLLiM, excepted: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks fit a few samples in a few iterations: not converged
        results = check_estimator(estimator, expected_failed_checks=excepted, on_skip=None, on_fail=None)
    status: dict[str, set[str]] = {}
    for result in results:
        status.setdefault(result["status"], set()).add(result["check_name"])
    failed = [(r["check_name"], r["exception"]) for r in results if r["status"] == "failed"]
    assert failed == []
    assert status.get("xfail", set()) == set(excepted)
    assert status.get("skipped", set()) <= UNAVAILABLE
    assert len(status["passed"]) > 40


@pytest.fixture(scope="module")
def data() -> Data:
    return make_data(0, 2, 6, 2, 1, per_component=60)


def fitted(data: Data, columns: Any = slice(None), **settings: Any) -> GLLiM:
    settings = {"n_components": 2, "n_latent": 1, "max_iter": 5, "tol": 0.0, "random_state": 0, **settings}
    return GLLiM(**settings).fit(data.spectra, data.parameters[:, columns])


def test_predict_gives_mean_with_deviations_or_covariances(data: Data) -> None:
    model, n = fitted(data), len(data.spectra)
    mean = model.predict(data.spectra)
    assert mean.shape == (n, 2)
    same, deviation = model.predict(data.spectra, return_std=True)
    np.testing.assert_array_equal(same, mean)
    assert deviation.shape == (n, 2)
    same, covariance = model.predict(data.spectra, return_cov=True)
    np.testing.assert_array_equal(same, mean)
    assert covariance.shape == (n, 2, 2)
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), deviation**2, rtol=1e-10)
    assert (deviation > 0).all()
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_predict_with_both_flags_is_an_error(data: Data) -> None:
    with pytest.raises(ValueError, match="return_std and return_cov are both true: ask for one"):
        fitted(data).predict(data.spectra, return_std=True, return_cov=True)


def test_predictions_of_one_dimensional_y_are_one_dimensional(data: Data) -> None:
    flat, column, n = fitted(data, 0), fitted(data, [0]), len(data.spectra)
    np.testing.assert_allclose(flat.predict(data.spectra), column.predict(data.spectra)[:, 0], rtol=1e-9, atol=1e-12)
    for flag in ("return_std", "return_cov"):
        mean, spread = flat.predict(data.spectra, **{flag: True})
        assert mean.shape == spread.shape == (n,)
        _, expected = column.predict(data.spectra, **{flag: True})
        np.testing.assert_allclose(spread, expected.reshape(n), rtol=1e-9)
    assert column.predict(data.spectra).shape == (n, 1)
    assert column.predict(data.spectra, return_cov=True)[1].shape == (n, 1, 1)


def test_a_spectrum_is_predicted_alike_alone_and_in_company(data: Data) -> None:
    model = fitted(data)
    alone = np.concatenate([model.predict(row[None]) for row in data.spectra[:9]])
    np.testing.assert_array_equal(alone, model.predict(data.spectra)[:9])


@pytest.mark.parametrize("tied_sigma", [False, True])
def test_with_a_full_sigma_of_many_bands_too(tied_sigma: bool) -> None:
    data = make_data(0, 5, 40, 2, 0, noise=0.5, per_component=80)
    model = GLLiM(5, sigma="full", tied_sigma=tied_sigma, max_iter=3, tol=0.0, random_state=0)
    model.fit(data.spectra, data.parameters)
    alone = np.concatenate([model.predict(row[None]) for row in data.spectra[:9]])
    np.testing.assert_array_equal(alone, model.predict(data.spectra)[:9])
    np.testing.assert_array_equal(alone[4:], model.predict(data.spectra[4:])[:5])


def test_predictions_are_the_same_bits_in_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(2, 3, 40, 2, 1, noise=0.5, per_component=300)
    model = GLLiM(3, n_latent=1, sigma="full", max_iter=3, tol=0.0, random_state=0).fit(data.spectra, data.parameters)
    rows = np.tile(data.spectra, (11, 1))
    assert len(rows) > 3 * PIECE_ROWS
    seen = set()

    def noted(*args: Any) -> Any:
        seen.add(threading.get_ident())
        time.sleep(0.05)  # busy, so that further pieces get threads of their own
        return posterior_blocks(*args)

    monkeypatch.setattr(estimator, "posterior_blocks", noted)
    found = []
    for cpus in (1, 4):
        monkeypatch.setattr(threads, "available_cpus", lambda cpus=cpus: cpus)
        found.append((*model.predict(rows, return_cov=True), model.transform(rows), model.score_samples(rows)))
    assert len(seen) > 2
    for one, several in zip(*found, strict=True):
        np.testing.assert_array_equal(one, several)


def test_predictions_are_accurate_and_their_deviations_honest() -> None:
    train, test = (make_data(1, 3, 12, 2, 0, noise=0.1, per_component=600).rows(slice(a, None, 2)) for a in (0, 1))
    model = GLLiM(3, max_iter=50, random_state=0, tol=1e-3).fit(train.spectra, train.parameters)
    mean, deviation = model.predict(test.spectra, return_std=True)
    within = (np.abs(mean - test.parameters) < 1.6449 * deviation).mean()
    assert 0.87 < within < 0.93
    assert model.score(test.spectra, test.parameters) > 0.99


def test_transform_gives_the_latents(data: Data) -> None:
    model = fitted(data)
    latent = model.transform(data.spectra)
    assert latent.shape == (len(data.spectra), 1)
    assert 0.5 < latent.std() < 1.5
    again = GLLiM(2, n_latent=1, max_iter=5, tol=0.0, random_state=0).fit_transform(data.spectra, data.parameters)
    np.testing.assert_array_equal(again, latent)
    assert not hasattr(GLLiM(2), "transform")
    assert not hasattr(GLLiM(2), "fit_transform")


def test_unsupervised_training_has_latents_and_no_parameters(data: Data) -> None:
    model = GLLiM(2, n_latent=2, max_iter=5, tol=0.0, random_state=0).fit(data.spectra)
    assert model.transform(data.spectra).shape == (len(data.spectra), 2)
    assert model.predict(data.spectra).shape == (len(data.spectra), 0)
    assert model.score_samples(data.spectra).sum() == pytest.approx(model.log_likelihoods_[-1], rel=1e-10)
    assert model.bic(data.spectra) == pytest.approx(model.bic_, rel=1e-10)


def test_unsupervised_training_without_latents_is_an_error(data: Data) -> None:
    with pytest.raises(ValueError, match="only n_latent >= 1 can be fitted unsupervised"):
        GLLiM(2).fit(data.spectra)


def test_bic_of_the_training_set_is_the_fitted_one(data: Data) -> None:
    model = fitted(data)
    assert model.bic(data.spectra, data.parameters) == pytest.approx(model.bic_, rel=1e-10)
    assert model.bics_ == {1: model.bic_}


def test_transform_has_no_columns_where_bic_chose_no_latents() -> None:
    data = make_data(3, 2, 6, 2, 0, per_component=60)
    own = {"n_latent": "bic", "max_latent": 1, "max_iter": 10, "tol": 0.0, "random_state": 0, "tied_sigma": True}
    model = GLLiM(2, **own).fit(data.spectra, data.parameters)
    assert model.n_latent_ == 0
    assert model.transform(data.spectra).shape == (len(data.spectra), 0)


BAD_SETTINGS = [
    ({"sigma": "spherical"}, r"sigma='spherical' is not one of 'full', 'diag', 'iso'"),
    ({"gamma": "block"}, r"gamma='block' is not one of 'full', 'diag', 'iso'"),
    (
        {"init": "random"},
        r"init='random' is not one of 'kmeans', 'kmeans-joint', 'kmeans-spectra', 'gmm' or a GLLiMParameters",
    ),
    ({"n_components": 0}, "n_components=0 must be an integer, 1 or more"),
    ({"n_components": 2.0}, "n_components=2.0 must be an integer, 1 or more"),
    ({"n_components": True}, "n_components=True must be an integer, 1 or more"),
    ({"n_components": "two"}, "n_components='two' must be an integer, 1 or more"),
    ({"n_components": 999}, "120 samples cannot train n_components=999 components"),
    ({"n_latent": -1}, "n_latent=-1 must be an integer, 0 or more"),
    ({"n_latent": "aic"}, "n_latent='aic' must be an integer, 0 or more, or 'bic'"),
    ({"n_latent": 6}, r"n_latent=6 is not below the 6 bands.*use sigma='full' with n_latent=0"),
    ({"n_latent": "bic", "max_latent": "all"}, "max_latent='all' must be an integer, 0 or more, or a sequence of them"),
    ({"n_latent": "bic", "max_latent": -1}, "max_latent=-1 must be an integer, 0 or more"),
    ({"n_latent": "bic", "max_latent": [1, 0.5]}, r"max_latent=\[1, 0.5\] must be an integer, 0 or more"),
    ({"n_latent": "bic", "max_latent": []}, r"max_latent=\[\] must be an integer, 0 or more, or a sequence of them"),
    ({"n_latent": "bic", "max_latent": [6]}, r"max_latent=\[6\] must hold integers from 0 to 5"),
    ({"n_init": 0}, "n_init=0 must be an integer, 1 or more"),
    ({"max_iter": 0}, "max_iter=0 must be an integer, 1 or more"),
    ({"tol": -1.0}, "tol=-1.0 must be a number, zero or more"),
    ({"tol": float("nan")}, "tol=nan must be a number, zero or more"),
    ({"tol": "0"}, "tol='0' must be a number, zero or more"),
    ({"reg_covar": float("inf")}, "reg_covar=inf must be a number, zero or more"),
    ({"latent_mean": [0.0, 1.0, 2.0]}, r"latent_mean=\[0.0, 1.0, 2.0\] has shape .* broadcast to \(2, 1\)"),
    ({"random_state": "seed"}, "random_state='seed' must be an integer from 0"),
]


def test_bad_settings_are_errors_that_say_what_is_accepted(subtests: pytest.Subtests, data: Data) -> None:
    for settings, message in BAD_SETTINGS:
        with subtests.test(settings=settings), pytest.raises(ValueError, match=message):
            fitted(data, **settings)


def with_entry(array: np.ndarray, value: float) -> np.ndarray:
    changed = np.array(array)
    changed[3] = value
    return changed


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_negative_and_non_finite_weights_are_errors(value: float, data: Data) -> None:
    weights = with_entry(np.ones(len(data.spectra)), value)
    with pytest.raises(ValueError, match="1 sample weights are negative or not finite: weights are frequencies"):
        GLLiM(2).fit(data.spectra, data.parameters, sample_weight=weights)


@pytest.mark.parametrize("weights", [np.ones(3), np.ones((120, 1)), 1.0])
def test_weights_of_another_shape_are_errors(weights: Any, data: Data) -> None:
    with pytest.raises(ValueError, match=r"the 120 samples need \(120,\)"):
        GLLiM(2).fit(data.spectra, data.parameters, sample_weight=weights)


def test_weights_that_are_all_zero_are_an_error(data: Data) -> None:
    with pytest.raises(ValueError, match="weights sum to zero"):
        GLLiM(2).fit(data.spectra, data.parameters, sample_weight=np.zeros(120))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full((3, 2), 0.5), r"responsibilities have shape \(3, 2\), the 120 samples need \(120, K\)"),
        (np.ones(120), r"responsibilities have shape \(120,\)"),
        (np.ones((120, 2)), "sum to one"),
        (np.tile([1.5, -0.5], (120, 1)), "must be zero or more"),
        (np.full((120, 2), np.nan), "must be zero or more"),
    ],
)
def test_responsibilities_that_are_none_are_errors(given: np.ndarray, message: str, data: Data) -> None:
    with pytest.raises(ValueError, match=message):
        GLLiM(2).fit(data.spectra, data.parameters, responsibilities=given)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_training_data_and_spectra_are_errors(value: float, data: Data) -> None:
    for spectra, parameters in (
        (with_entry(data.spectra, value), data.parameters),
        (data.spectra, with_entry(data.parameters, value)),
    ):
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            GLLiM(2).fit(spectra, parameters)
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        fitted(data).predict(with_entry(data.spectra, value))


def test_constant_bands_and_parameters_are_named(data: Data) -> None:
    spectra, parameters = data.spectra.copy(), data.parameters.copy()
    spectra[:, [1, 4]] = [0.25, -3.0]
    with pytest.raises(ValueError, match=r"constant band in training: band 1 \(always 0.25\), band 4 \(always -3\)"):
        GLLiM(2).fit(spectra, parameters)
    parameters[:, 0] = 7.0
    with pytest.raises(ValueError, match=r"constant parameter in training: parameter 0 \(always 7\)"):
        GLLiM(2).fit(data.spectra, parameters)


def test_a_band_that_varies_only_where_weights_are_zero_is_constant(data: Data) -> None:
    spectra, weights = data.spectra.copy(), np.ones(120)
    spectra[1:, 2], weights[0] = 5.0, 0.0
    with pytest.raises(ValueError, match=r"constant band in training: band 2 \(always 5\)"):
        GLLiM(2).fit(spectra, data.parameters, sample_weight=weights)


def test_an_unfitted_model_says_so(data: Data) -> None:
    for method in ("predict", "transform", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(GLLiM(2, n_latent=1), method)(data.spectra)


def test_spectra_of_other_bands_are_an_error(data: Data) -> None:
    with pytest.raises(ValueError, match="5 features, but GLLiM is expecting 6"):
        fitted(data).predict(data.spectra[:, :5])


def test_a_model_pickles_and_clones(data: Data) -> None:
    model = fitted(data)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict(data.spectra), model.predict(data.spectra))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    assert not hasattr(fresh, "parameters_")


def test_it_serves_in_pipelines_searches_and_cross_validation(data: Data) -> None:
    pipeline = make_pipeline(FunctionTransformer(), GLLiM(2, max_iter=5, tol=0.0, random_state=0))
    assert (cross_val_score(pipeline, data.spectra, data.parameters, cv=3) > 0.5).all()
    search = GridSearchCV(GLLiM(2, max_iter=5, tol=0.0, random_state=0), {"n_latent": [0, 1]}, cv=3)
    search.fit(data.spectra, data.parameters)
    assert search.best_score_ > 0.5
    assert search.predict(data.spectra).shape == data.parameters.shape


@pytest.mark.parametrize(
    ("settings", "n", "told"),
    [
        ({"sigma": "full"}, 60, ["9 that a full covariance of 6 bands", "tied_sigma=True"]),
        ({"sigma": "full", "tied_sigma": True}, 120, []),
        ({"sigma": "full"}, 400, []),
        ({}, 60, ["9 that an affine map of 3 columns"]),
        ({}, 400, []),
    ],
)
def test_too_few_samples_a_component_are_told(settings, n, told, caplog):
    rng = np.random.default_rng(0)
    t = rng.random((n, 2))
    spectra = np.sin(3.0 * t @ rng.normal(size=(2, 6))) + 0.01 * rng.normal(size=(n, 6))
    with caplog.at_level("WARNING", logger="specinvert.gllim.em.training"):
        GLLiM(8, random_state=0, tol=0.0, max_iter=3, **settings).fit(spectra, t)
    text = " ".join(record.getMessage() for record in caplog.records if "fewer samples" in record.getMessage())
    assert bool(text) == bool(told)
    assert all(part in text for part in told)
