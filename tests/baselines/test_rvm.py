"""The relevance vector machine: sparse, accurate, of exact marginal likelihood, the same vectors for all outputs."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from specinvert.baselines import KERNELS, RVMRegressor, rvm_search
from specinvert.baselines.rvm import SubsetSplit, kernel_matrix
from specinvert.baselines.sparse_bayes import BasisSums, best_alpha, fit_sparse

NOISE = 0.1


def sinc(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points (n, 1), the function sin(x) / x at them, and noisy values."""
    x = np.linspace(-10, 10, n)[:, None]
    f = np.sinc(x[:, 0] / np.pi)
    return x, f, f + NOISE * np.random.default_rng(seed).normal(size=n)


def two_outputs(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Spectra (n, 3) and two parameters of other sizes and noises."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    y = np.stack([np.sin(X[:, 0]) + 0.05 * rng.normal(size=n), 40 * X[:, 1] ** 2 + 4 * rng.normal(size=n)], axis=1)
    return X, y


def test_a_noisy_sinc_is_learnt_from_few_vectors() -> None:
    x, f, y = sinc()
    model = RVMRegressor("gaussian", scale=3.0).fit(x, y)
    assert model.converged_
    assert len(model.relevance_vectors_) <= 12
    np.testing.assert_array_equal(model.relevance_vectors_, x[model.relevance_indices_])
    mean, std = model.predict(x, return_std=True)
    assert np.sqrt(np.mean((mean - f) ** 2)) < 0.3 * NOISE
    assert model.noise_[0] == pytest.approx(NOISE, rel=0.15)
    assert np.mean(np.abs(y - mean) < 1.645 * std) == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "poly3", "thin_plate", "linear_spline"])
def test_the_marginal_likelihood_never_falls(kernel: str) -> None:
    X, y = two_outputs()
    model = RVMRegressor(kernel, scale=2.0, tol=0.01).fit(X, y)
    assert len(model.log_marginals_) > 5
    assert all(after >= before - 1e-8 * abs(before) for before, after in pairwise(model.log_marginals_))


@pytest.mark.oracle
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_posterior_is_that_of_the_dense_gaussian_formula(outputs: int) -> None:
    X, y = two_outputs()
    y = y[:, :outputs]
    model = RVMRegressor("gaussian", scale=2.0).fit(X, y)
    centre, spread = y.mean(axis=0), y.std(axis=0)
    vectors, new = model.relevance_vectors_, X[:7] + 0.1
    with_constant = len(model.alpha_) > len(vectors)

    def basis(points: np.ndarray) -> np.ndarray:
        values = kernel_matrix("gaussian", points, vectors, 2.0)
        return np.column_stack([values, np.ones(len(points))]) if with_constant else values

    mean, std = model.predict(new, return_std=True)
    evidence = 0.0
    prior = np.diag(1 / model.alpha_)
    for r in range(outputs):
        variance = (model.noise_[r] / spread[r]) ** 2
        target = (y[:, r] - centre[r]) / spread[r]
        covariance = basis(X) @ prior @ basis(X).T + variance * np.eye(len(X))
        cross = basis(new) @ prior @ basis(X).T
        expected = centre[r] + spread[r] * cross @ np.linalg.solve(covariance, target)
        left = basis(new) @ prior @ basis(new).T - cross @ np.linalg.solve(covariance, cross.T)
        np.testing.assert_allclose(mean[:, r], expected, rtol=1e-6)
        np.testing.assert_allclose(std[:, r], spread[r] * np.sqrt(np.diag(left) + variance), rtol=1e-6)
        evidence += multivariate_normal(cov=covariance).logpdf(target)
    assert model.log_marginal_likelihood_ == pytest.approx(evidence, rel=1e-9)


@pytest.mark.parametrize("scale", [5.0, 30.0, 300.0])
def test_a_kernel_that_hardly_varies_is_used_beside_the_constant(scale: float) -> None:
    rng = np.random.default_rng(0)
    t = rng.uniform(-1, 1, (200, 2))
    X = t @ rng.normal(size=(2, 40)) + 0.05 * rng.normal(size=(200, 40))
    model = RVMRegressor("additive_spline", scale=scale).fit(X, t)
    assert np.abs(model.predict(X) - t).max() < 0.1
    assert all(after >= before - 1e-8 * abs(before) for before, after in pairwise(model.log_marginals_))


def test_outputs_that_no_function_explains_are_left_to_the_mean() -> None:
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(60, 3)), rng.normal(size=60)
    model = RVMRegressor("additive_spline", scale=100.0).fit(X, noise)
    assert len(model.relevance_vectors_) == 0
    np.testing.assert_allclose(model.predict(X), noise.mean(), rtol=1e-12)


def test_no_single_change_of_alpha_gains_at_the_end() -> None:
    X, y = two_outputs(60)
    scaled = (y - y.mean(axis=0)) / y.std(axis=0)
    gram = kernel_matrix("gaussian", X, X, 2.0)
    sums = BasisSums(gram.T @ gram, gram.T @ scaled, np.sum(scaled**2, axis=0), len(X))
    fit = fit_sparse(sums, tol=1e-6, max_iter=5000, constant=False)
    variances = np.zeros(len(X))
    variances[fit.active] = 1 / fit.alpha

    def evidence(prior: np.ndarray, noise: np.ndarray) -> float:
        covariances = [gram * prior @ gram.T + v * np.eye(len(X)) for v in noise]
        pairs = zip(covariances, scaled.T, strict=True)
        return float(sum(multivariate_normal(cov=c).logpdf(t) for c, t in pairs))

    best = evidence(variances, fit.noise)
    assert fit.converged
    assert best == pytest.approx(fit.log_marginals[-1], rel=1e-9)
    for j in fit.active:
        for factor in (0.0, 0.8, 1.25):
            changed = variances.copy()
            changed[j] *= factor
            assert evidence(changed, fit.noise) < best + 1e-5
    for j in np.setdiff1d(np.arange(len(X)), fit.active)[::7]:
        for variance in (1e-4, 1e-2, 1.0):
            changed = variances.copy()
            changed[j] = variance
            assert evidence(changed, fit.noise) < best + 1e-5
    for r in range(2):
        for factor in (0.8, 1.25):
            noise = fit.noise.copy()
            noise[r] *= factor
            assert evidence(variances, noise) < best


def test_the_best_alpha_of_several_outputs_is_the_best_on_a_fine_grid() -> None:
    rng = np.random.default_rng(0)
    s, q = rng.uniform(0.1, 10, size=(3, 40)), 3 * rng.normal(size=(3, 40))
    best, height = best_alpha(s, q, np.ones(40, dtype=bool))
    grid = np.logspace(-6, 8, 8000)[:, None, None]
    dense = 0.5 * np.sum(q**2 / (grid + s) - np.log1p(s / grid), axis=1)
    np.testing.assert_allclose(height, np.maximum(dense.max(axis=0), 0.0), atol=1e-3)
    assert np.array_equal(np.isinf(best), height == 0)
    assert 0 < np.isinf(best).sum() < 40


def test_all_outputs_share_the_vectors_and_have_noises_of_their_own() -> None:
    X, y = two_outputs(300)
    model = RVMRegressor("gaussian", scale=2.0).fit(X, y)
    m = len(model.relevance_vectors_)
    assert m < 100
    assert model.weights_.shape == (m, 2)
    assert model.noise_[0] == pytest.approx(0.05, rel=0.4)
    assert model.noise_[1] == pytest.approx(4.0, rel=0.3)


def test_estimates_follow_the_units_of_each_output() -> None:
    X, y = two_outputs()
    plain = RVMRegressor("gaussian", scale=2.0).fit(X, y).predict(X)
    changed = RVMRegressor("gaussian", scale=2.0).fit(X, y * [1e3, 0.1] + [5.0, -2.0]).predict(X)
    np.testing.assert_allclose(changed, plain * [1e3, 0.1] + [5.0, -2.0], rtol=1e-5)


def test_a_bias_is_learnt_only_where_asked_for() -> None:
    x, f, y = sinc()
    model = RVMRegressor("gaussian", scale=3.0).fit(x, y + 50.0)
    assert np.sqrt(np.mean((model.predict(x) - 50.0 - f) ** 2)) < 0.4 * NOISE
    assert model.predict([[1e3]]) == pytest.approx(model.bias_, rel=1e-9)
    without = RVMRegressor("gaussian", scale=3.0, bias=False).fit(x, y)
    assert without.predict([[1e3]]) == pytest.approx([0.0], abs=1e-12)


def test_few_candidates_serve_all_samples() -> None:
    x, f, y = sinc(1500)
    model = RVMRegressor("gaussian", scale=3.0, max_candidates=60, random_state=0).fit(x, y)
    assert np.sqrt(np.mean((model.predict(x) - f) ** 2)) < 0.15 * NOISE
    again = RVMRegressor("gaussian", scale=3.0, max_candidates=60, random_state=0).fit(x, y)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_repeated_spectra_and_no_noise_do_no_harm() -> None:
    x, f, _ = sinc(80)
    model = RVMRegressor("gaussian", scale=2.0).fit(np.concatenate([x, x]), np.concatenate([f, f]))
    assert np.abs(model.predict(x) - f).max() < 1e-2
    assert np.diff(model.log_marginals_).min() > -1e-6 * abs(model.log_marginal_likelihood_)


def smooth_spectra(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise-free spectra (n, 60) that two parameters move along smooth curves, and the parameters (n, 2)."""
    t = np.random.default_rng(2).uniform(size=(n, 2))
    band = np.linspace(0.0, 1.0, 60)
    depth = np.exp(-0.5 * ((band - 0.3) / 0.1) ** 2), np.exp(-0.5 * ((band - 0.6) / 0.2) ** 2)
    return np.exp(-t[:, :1] * depth[0] - 3.0 * t[:, 1:] ** 2 * depth[1]), t


@pytest.mark.parametrize(("kernel", "scale"), [("gaussian", 30.0), ("linear_spline", 12.0), ("poly3", 3.0)])
def test_basis_functions_that_are_almost_alike_are_fitted_as_far_as_rounding_lets(kernel: str, scale: float) -> None:
    X, t = smooth_spectra(450)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = RVMRegressor(kernel, scale=scale).fit(X[:250], t[:250])
    off = np.sqrt(np.mean((model.predict(X[250:]) - t[250:]) ** 2, axis=0)) / t.std(axis=0)
    assert off.max() < 0.1
    assert np.isfinite(model.log_marginal_likelihood_)
    assert np.diff(model.log_marginals_).min() >= 0.0


def test_the_noise_is_not_taken_for_all_there_is_where_single_functions_explain_little() -> None:
    x, f, y = sinc(100)
    for values, least, most in ((f, 1e-6, 1e-2), (y, 0.5 * NOISE, 1.5 * NOISE)):
        model = RVMRegressor("linear_spline").fit(x, values)
        assert least < np.sqrt(np.mean((model.predict(x) - values) ** 2)) < most
        assert len(model.weights_) < 60


def test_a_machine_cut_short_warns() -> None:
    x, _, y = sinc()
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 changes"):
        model = RVMRegressor("gaussian", scale=3.0, max_iter=2).fit(x, y)
    assert model.n_iter_ == 2
    assert not model.converged_


FORMULAS: dict[str, Any] = {
    "gaussian": lambda x, z: np.exp(-np.sum((x - z) ** 2) / 4),
    "laplace": lambda x, z: np.exp(-np.linalg.norm(x - z) / 2),
    "cauchy": lambda x, z: 1 / (1 + np.sum((x - z) ** 2) / 4),
    "cubic": lambda x, z: (np.linalg.norm(x - z) / 2) ** 3,
    "distance": lambda x, z: np.linalg.norm(x - z) / 2,
    "thin_plate": lambda x, z: (np.linalg.norm(x - z) / 2) ** 2 * np.log(np.linalg.norm(x - z) / 2),
    "bubble": lambda x, z: float(np.linalg.norm(x - z) < 2),
    "linear": lambda x, z: x @ z / 4,
    "linear_spline": lambda x, z: np.prod(spline(x / 2, z / 2)),
    "additive_spline": lambda x, z: np.mean(spline(x / 2, z / 2)),
    "poly2": lambda x, z: (x @ z / 4 + 1) ** 2,
    "poly3": lambda x, z: (x @ z / 4 + 1) ** 3,
    "hpoly2": lambda x, z: (x @ z / 4) ** 2,
    "hpoly3": lambda x, z: (x @ z / 4) ** 3,
}


def spline(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Vapnik's formula of the linear spline, band by band."""
    m = np.minimum(x, z)
    return 1 + x * z + x * z * m - (x + z) / 2 * m**2 + m**3 / 3


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_its_formula(name: str) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(9, 4)), rng.normal(size=(6, 4))
    expected = [[FORMULAS[name](a, b) for b in z] for a in x]
    found = kernel_matrix(name, x, z, 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert len(np.unique(found)) > 1
    assert np.isfinite(kernel_matrix(name, x, x, 2.0)).all()


@pytest.mark.parametrize("name", ["gaussian", "laplace", "cauchy", "thin_plate", "distance", "cubic", "bubble"])
def test_a_kernel_of_distance_is_exact_far_from_the_origin(name: str) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(9, 4)), rng.normal(size=(6, 4))
    np.testing.assert_allclose(kernel_matrix(name, x + 1e6, z + 1e6), kernel_matrix(name, x, z), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "cauchy", "linear", "poly2", "poly3", "hpoly2", "hpoly3"])
def test_a_kernel_of_a_space_is_positive(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    assert np.linalg.eigvalsh(kernel_matrix(name, x, x, 2.0)).min() > -1e-9


def test_splines_are_positive_for_positive_spectra() -> None:
    x = np.random.default_rng(0).uniform(size=(20, 3))
    for name in ("linear_spline", "additive_spline"):
        assert np.linalg.eigvalsh(kernel_matrix(name, x, x)).min() > -1e-9


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("gauss", "gaussian"),
        ("r", "distance"),
        ("tps", "thin_plate"),
        ("spline", "linear_spline"),
        ("lspline", "linear_spline"),
    ],
)
def test_names_of_sparse_bayes_are_known(alias: str, name: str) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(kernel_matrix(alias, x, x), kernel_matrix(name, x, x))


def test_the_search_finds_the_kernel_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(160, 2))
    y = np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=160)
    for criterion in ("held_out", "evidence"):
        search = rvm_search(("linear", "gaussian"), (1.0, 30.0), criterion, 100, 40, random_state=0).fit(X, y)
        assert search.best_params_ == {"kernel": "gaussian", "scale": 1.0}
        assert np.sqrt(np.mean((search.predict(X) - y) ** 2)) < 0.1


def test_the_search_splits_a_subset_without_overlap() -> None:
    (train, test), *others = SubsetSplit(50, 20, random_state=0).split(np.zeros((100, 1)))
    assert not others
    assert (len(train), len(test), len(np.intersect1d(train, test))) == (50, 20, 0)
    ((train, test),) = SubsetSplit(50, 20, random_state=0).split(np.zeros((12, 1)))
    assert (len(train), len(test)) == (9, 3)


def test_settings_are_cloned() -> None:
    model = RVMRegressor("cauchy", scale=4.0, bias=False, max_candidates=7, random_state=3)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "sigmoid"}, "kernel='sigmoid' is not one of 'gaussian', 'laplace'"),
        ({"scale": 0.0}, "scale=0.0 must be a positive number"),
        ({"scale": True}, "scale=True must be a positive number"),
        ({"max_candidates": 0}, "max_candidates=0 must be an integer, 1 or more"),
        ({"max_iter": 1.5}, "max_iter=1.5 must be an integer"),
        ({"tol": 0}, "tol=0 must be a positive number"),
        ({"kernel": "poly3", "scale": 1e-110}, "kernel 'poly3' overflows at scale 1e-110"),
        ({"kernel": "poly3", "scale": 1e-40}, "kernel 'poly3' overflows at scale 1e-40"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    X, y = two_outputs(20)
    with pytest.raises(ValueError, match=message):
        RVMRegressor(**settings).fit(X, y)


def test_bad_data_are_refused() -> None:
    X, y = two_outputs(20)
    with pytest.raises(ValueError, match=r"outputs \[1\] of y are constant"):
        RVMRegressor().fit(X, np.column_stack([y[:, 0], np.full(20, 3.0)]))
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        RVMRegressor().fit(X, y)
    for arguments, message in (
        ({"criterion": "bic"}, "criterion='bic' is not one of 'held_out', 'evidence'"),
        ({"kernels": ("nope",)}, "kernel='nope' is not one of"),
        ({"scales": (-1.0,)}, "scale=-1.0 must be a positive number"),
    ):
        with pytest.raises(ValueError, match=message):
            rvm_search(**arguments)
