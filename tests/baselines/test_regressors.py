"""Sliced inverse regression finds the directions that matter; the joint mixture and the other methods regress."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from specinvert.baselines import METHODS, JGMMRegressor, SIRRegressor, make_method
from specinvert.baselines.methods import ThinnedRegressor

N_BANDS = 8


def correlated(n: int, n_bands: int = N_BANDS, seed: int = 0) -> np.ndarray:
    """Gaussian spectra (n, D) of neighbouring bands that correlate, far from the origin."""
    rng = np.random.default_rng(seed)
    return 50.0 + rng.normal(size=(n, n_bands)) @ (np.eye(n_bands) + 0.6 * np.eye(n_bands, k=1))


def angle(first: np.ndarray, second: np.ndarray) -> float:
    """Degrees between the lines along two vectors."""
    cosine = abs(first @ second) / (np.linalg.norm(first) * np.linalg.norm(second))
    return float(np.degrees(np.arccos(min(cosine, 1.0))))


def error(estimate: np.ndarray, truth: np.ndarray) -> float:
    """NRMSE."""
    return float(np.sqrt(np.sum((estimate - truth) ** 2) / np.sum((truth - truth.mean()) ** 2)))


def test_the_axis_of_a_single_index_is_found() -> None:
    X, direction = correlated(1500), np.arange(1.0, N_BANDS + 1)
    z = (X - 50.0) @ direction / 10.0
    y = np.sinh(z / 3) + 0.05 * np.random.default_rng(1).normal(size=len(z))
    model = SIRRegressor(1).fit(X[:1000], y[:1000])
    assert model.directions_.shape == (1, 1, N_BANDS)
    assert angle(model.directions_[0, 0], direction) < 3.0
    assert np.var(X[:1000] @ model.directions_[0, 0]) == pytest.approx(1.0)
    projected = (X[:1000] @ model.directions_[0, 0])[np.argsort(y[:1000])].reshape(20, 50)
    assert model.eigenvalues_[0, 0] == pytest.approx(projected.mean(axis=1).var() / projected.var())
    assert model.predict(X[1000:]).shape == (500,)
    assert error(model.predict(X[1000:]), y[1000:]) < 0.3


def test_two_axes_follow_a_quadratic_that_one_cannot() -> None:
    X = correlated(3000)
    a, b = (X - 50.0)[:, 0], (X - 50.0)[:, 5]
    y = a + 0.5 * a * b + 0.3 * b**2 + 0.5 * b
    one, two = (SIRRegressor(n).fit(X[:2000], y[:2000]) for n in (1, 2))
    assert error(two.predict(X[2000:]), y[2000:]) < 0.1 < 0.3 < error(one.predict(X[2000:]), y[2000:])
    space = np.linalg.qr(two.directions_[0].T)[0]
    for band in (0, 5):
        unit = np.eye(N_BANDS)[band]
        assert angle(space @ space.T @ unit, unit) < 10.0


@pytest.mark.parametrize("n_slices", [400, 10_000])
def test_slices_of_one_spectrum_are_not_made(n_slices: int) -> None:
    rng = np.random.default_rng(5)
    spectra, direction = rng.normal(size=(400, 6)), np.array([2.0, -1.0, 0.0, 1.0, 0.0, 0.0]) / np.sqrt(6.0)
    model = SIRRegressor(n_slices=n_slices).fit(spectra, np.tanh(spectra @ direction) + 0.02 * rng.normal(size=400))
    found = model.directions_[0, 0]
    assert abs(found @ direction) > 0.99 * np.linalg.norm(found)


def test_every_parameter_has_axes_of_its_own() -> None:
    X = correlated(800)
    y = np.stack([X[:, 1], -3.0 * X[:, 6]], axis=1)
    model = SIRRegressor(1).fit(X, y)
    assert model.directions_.shape == (2, 1, N_BANDS)
    assert [int(np.abs(d[0]).argmax()) for d in model.directions_] == [1, 6]
    np.testing.assert_allclose(model.predict(X[:, :]), y, atol=0.3)
    alone = SIRRegressor(1).fit(X, y[:, 1])
    np.testing.assert_allclose(alone.predict(X), model.predict(X)[:, 1], rtol=1e-9)


def test_estimates_follow_units_of_spectra_and_parameters() -> None:
    X = correlated(400)
    y = np.exp(0.3 * (X - 50.0)[:, 2])
    plain = SIRRegressor(2).fit(X, y).predict(X)
    scaled = SIRRegressor(2).fit(1e-3 * X - 7.0, 5.0 * y + 2.0).predict(1e-3 * X - 7.0)
    np.testing.assert_allclose(scaled, 5.0 * plain + 2.0, rtol=1e-6)


def test_more_bands_than_spectra_are_regularised() -> None:
    rng = np.random.default_rng(3)
    t = rng.uniform(-1, 1, size=100)
    X = np.outer(t, np.sin(np.arange(90) / 9.0)) + 0.05 * rng.normal(size=(100, 90))
    for ridge in (None, 1e-2):
        model = SIRRegressor(1, ridge=ridge).fit(X[:50], t[:50])
        assert error(model.predict(X[50:]), t[50:]) < 0.1, ridge


def test_constant_and_repeated_bands_are_left_out() -> None:
    X = correlated(300)
    y = X[:, 0]
    wide = np.concatenate([X, X[:, :1], np.full((300, 1), 0.3)], axis=1)
    np.testing.assert_allclose(
        SIRRegressor(1).fit(wide, y).predict(wide), SIRRegressor(1).fit(X, y).predict(X), atol=1e-6
    )


def test_equal_values_share_a_slice_whatever_their_order() -> None:
    X = correlated(300)
    y = np.repeat([1.0, 2.0, 5.0], 100) + 0.0
    X[:, 0] += y
    order = np.random.default_rng(0).permutation(300)
    first, second = SIRRegressor(2).fit(X, y), SIRRegressor(2).fit(X[order], y[order])
    np.testing.assert_allclose(first.directions_, second.directions_, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "y", "message"),
    [
        ({"n_axes": 0}, None, "n_axes=0 must be an integer, 1 or more"),
        ({"n_slices": 1}, None, "n_slices=1 must be an integer, 2 or more"),
        ({"degree": 2.5}, None, "degree=2.5 must be an integer"),
        ({"ridge": -1.0}, None, "ridge=-1.0 must be a share"),
        ({"n_axes": 9}, None, "the spectra vary in 8 directions: n_axes=9"),
        ({"n_axes": 2}, np.arange(40) % 2.0, "output 0 of y has values for 2 slices, and n_axes=2 needs 3"),
        ({}, np.ones(40), "output 0 of y has values for 1 slices"),
        ({}, np.full(40, np.nan), "NaN"),
    ],
)
def test_bad_input_of_sir_is_refused(settings: dict[str, Any], y: Any, message: str) -> None:
    X = correlated(40)
    with pytest.raises(ValueError, match=message):
        SIRRegressor(**settings).fit(X, X[:, 0] if y is None else y)


def test_a_joint_mixture_of_one_component_is_least_squares() -> None:
    X = correlated(500)
    y = np.stack([X @ np.arange(N_BANDS), X[:, 0] - X[:, 3]], axis=1) + np.random.default_rng(2).normal(size=(500, 2))
    design = np.column_stack([np.ones(500), X])
    expected = design @ np.linalg.lstsq(design, y, rcond=None)[0]
    for kind in ("full", "tied"):
        found = JGMMRegressor(1, covariance_type=kind, reg_covar=0.0).fit(X, y).predict(X)
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_a_joint_mixture_follows_a_bend() -> None:
    rng = np.random.default_rng(0)
    t = rng.uniform(-2, 2, size=600)
    X = np.stack([t, np.abs(t), np.cos(t)], axis=1) + 0.05 * rng.normal(size=(600, 3))
    one, four = (JGMMRegressor(k, random_state=0).fit(X, np.abs(t)).predict(X) for k in (1, 4))
    assert error(four, np.abs(t)) < 0.8 * error(one, np.abs(t))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance_type": "diag"}, "covariance_type='diag' is not one of 'full', 'tied'"),
        ({"n_components": 0}, "n_components=0 must be an integer"),
        ({"n_components": 41}, "n_components=41 components need as many spectra, there are 40"),
    ],
)
def test_bad_settings_of_a_joint_mixture_are_refused(settings: dict[str, Any], message: str) -> None:
    X = correlated(40)
    with pytest.raises(ValueError, match=message):
        JGMMRegressor(**settings).fit(X, X[:, 0])


QUICK: dict[str, dict[str, Any]] = {
    **{name: {"n_components": 3} for name in ("gllim-0", "gllim-1", "gllim-2", "mle")},
    "gllim-bic": {"n_components": 3, "max_latent": 1},
    "jgmm": {"n_components": 2},
    "rvm": {"kernels": ("gaussian",), "scales": (3.0, 8.0)},
    "rf": {"n_estimators": 20},
    "gpr": {"max_samples": 60, "optimizer": None},
}


@pytest.mark.parametrize("name", [*METHODS, "gllim-2"])
def test_every_method_estimates_better_than_the_mean(name: str) -> None:
    rng = np.random.default_rng(5)
    t = rng.uniform(size=(260, 2)) * [1.0, 100.0]
    X = np.stack([t[:, 0], t[:, 1] / 100, t[:, 0] ** 2, t[:, 1] / 50, t[:, 0] + t[:, 1] / 100], axis=1)
    X += 0.02 * rng.normal(size=X.shape)
    model = make_method(name, 0, **QUICK.get(name, {}))
    assert clone(model).get_params().keys() == model.get_params().keys()
    estimate = model.fit(X[:200], t[:200]).predict(X[200:])
    assert estimate.shape == (60, 2)
    assert max(error(estimate[:, i], t[200:, i]) for i in range(2)) < 0.35


def test_a_number_of_latents_is_read_from_the_name() -> None:
    assert make_method("gllim-7", 3, n_components=4).get_params()["n_latent"] == 7
    assert make_method("mle").get_params()["n_latent"] == 0


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method 'svm' is not one of gllim-0, gllim-1, gllim-bic, mle, jgmm"):
        make_method("svm")


def test_a_thinned_regressor_sees_so_many_samples_and_no_more() -> None:
    X = correlated(90)
    seen = ThinnedRegressor(make_method("lut", n_neighbors=1), 30, random_state=0).fit(X, X[:, 0])
    assert seen.estimator_.n_samples_fit_ == 30
    assert np.isin(seen.predict(X), X[:, 0]).all()
