"""The methods of the paper's table "tab:unif", each against an implementation of its own."""

from typing import Any

import numpy as np
import pytest
from scipy.linalg import eigh, sqrtm
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.mixture import GaussianMixture

from specinvert.gllim import PRESETS, Constraints, GLLiM, preset
from specinvert.gllim.em.initialize import PrincipalGrid, regular_grid
from specinvert.gllim.model.parameters import n_free_parameters
from strategies import BARE, assert_near, assert_same_theta, fit_estimator, make_data

TIGHT = {"tol": 0.0, "standardize": False, "reg_covar": 0.0}
CLOSE = 1e-6


def factors(seed: int, n: int = 250, n_bands: int = 8, n_latent: int = 2) -> np.ndarray:
    """Spectra of a factor model with noise of unequal variances."""
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.3, 1.5, n_bands) * rng.normal(size=(n, n_bands))
    return rng.normal(size=(n, n_latent)) @ rng.normal(size=(n_latent, n_bands)) + noise + 4.0


def spectral_covariance(model: GLLiM) -> np.ndarray:
    """Covariance (D, D) of spectra under the model's only component."""
    return model.parameters_.forward().Gamma[0]


def test_every_row_of_the_table_has_a_preset() -> None:
    assert list(PRESETS) == ["mle", "mlr", "jgmm", "ppam", "gtm", "ppca", "mppca", "mfa", "pcca", "rca"]
    required = {"pcca": {"sigma_blocks": [0, 0, 1]}, "rca": {"fixed": {"Sigma": 1.0}}}
    for name, found in PRESETS.items():
        own = {"n_latent": 1} if "n_latent" in found.needs else {}
        model = preset(name, **own, **required.get(name, {}), max_iter=7)
        settings = model.get_params()
        assert {key: settings[key] for key in found.settings} == dict(found.settings)
        assert settings["max_iter"] == 7
        assert clone(model).settings().constraints == model.settings().constraints


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["general", "marginal"])
def test_ppca_is_principal_component_analysis(algorithm: str) -> None:
    spectra = factors(0)
    model = preset("ppca", n_latent=2, algorithm=algorithm, max_iter=2, **TIGHT).fit(spectra)
    pca = PCA(2).fit(spectra)
    share = (len(spectra) - 1) / len(spectra)  # scikit-learn divides by n - 1
    assert_near(spectral_covariance(model), share * pca.get_covariance(), CLOSE)
    assert model.parameters_.Sigma[0] == pytest.approx(share * pca.noise_variance_, rel=CLOSE)
    assert_near(model.parameters_.centres()[0], pca.mean_, CLOSE)


@pytest.mark.oracle
def test_mppca_is_ppca_of_each_component_under_its_responsibilities() -> None:
    data = make_data(1, 2, 6, 0, 2, per_component=80)
    model = preset("mppca", n_latent=2, n_components=2, algorithm="marginal", max_iter=1, **TIGHT)
    theta = model.fit(data.spectra, responsibilities=data.responsibilities).parameters_
    r = data.responsibilities
    for _ in range(2):  # the start is one such step, the iteration another
        mean = (r.T @ data.spectra) / r.sum(axis=0)[:, None]
        covariances, joint = [], []
        for k in range(2):
            gap = data.spectra - mean[k]
            scatter = (r[:, k, None] * gap).T @ gap / r[:, k].sum()
            values, vectors = np.linalg.eigh(scatter)
            noise = values[:-2].mean()
            covariances.append((vectors * np.append(np.full(4, noise), values[-2:])) @ vectors.T)
            normal = multivariate_normal(mean[k], covariances[-1])
            joint.append(np.log(r[:, k].mean()) + normal.logpdf(data.spectra))
        weights = r.mean(axis=0)
        r = softmax(np.stack(joint, axis=1), axis=1)
    assert_near(theta.forward().Gamma, covariances, CLOSE)
    assert_near(theta.pi, weights, CLOSE)
    assert model.log_likelihoods_[-1] == pytest.approx(logsumexp(np.stack(joint, axis=1), axis=1).sum(), rel=CLOSE)


@pytest.mark.oracle
@pytest.mark.parametrize(("algorithm", "max_iter"), [("general", 150), ("ecm", 25)])
def test_mfa_with_one_component_is_factor_analysis(algorithm: str, max_iter: int) -> None:
    spectra = factors(2)
    model = preset("mfa", n_components=1, n_latent=2, algorithm=algorithm, max_iter=max_iter, **TIGHT).fit(spectra)
    other = FactorAnalysis(2, tol=1e-13, max_iter=20_000, svd_method="lapack").fit(spectra)
    assert model.log_likelihoods_[-1] == pytest.approx(other.score(spectra) * len(spectra), rel=1e-9)
    assert_near(spectral_covariance(model), other.get_covariance(), CLOSE)
    assert_near(model.parameters_.Sigma[0], other.noise_variance_, 1e-5)


@pytest.mark.oracle
def test_jgmm_is_a_gaussian_mixture_on_the_joint_vector() -> None:
    data = make_data(3, 2, 4, 2, 0, per_component=100)
    model = preset("jgmm", n_components=2, max_iter=15, **TIGHT)
    model.fit(data.spectra, data.parameters, responsibilities=data.responsibilities)
    joint = np.concatenate([data.parameters, data.spectra], axis=1)
    start = data.responsibilities
    means = (start.T @ joint) / start.sum(axis=0)[:, None]
    gaps = joint[:, None] - means
    scatter = np.einsum("nk,nki,nkj->kij", start, gaps, gaps) / start.sum(axis=0)[:, None, None]
    other = GaussianMixture(
        2,
        weights_init=start.mean(axis=0),
        means_init=means,
        precisions_init=np.linalg.inv(scatter),
        reg_covar=0.0,
        tol=0.0,
        max_iter=14,
    )
    with pytest.warns(UserWarning, match="did not converge"):
        other.fit(joint)
    weights, found_means, covariances = model.parameters_.to_joint_gmm()
    assert_near(weights, other.weights_, CLOSE)
    assert_near(found_means, other.means_, CLOSE)
    assert_near(covariances, other.covariances_, CLOSE)
    assert model.log_likelihoods_[-1] == pytest.approx(other.score(joint) * len(joint), rel=CLOSE)


@pytest.mark.oracle
def test_pcca_is_canonical_correlation_analysis() -> None:
    spectra, first, second = factors(4, n=400, n_latent=3), np.arange(3), np.arange(3, 8)
    groups = [first.tolist(), second.tolist()]
    model = preset("pcca", n_latent=2, sigma_blocks=groups, algorithm="ecm", max_iter=30, **TIGHT).fit(spectra)
    sample = np.cov(spectra.T, bias=True)
    roots = [np.real(sqrtm(sample[np.ix_(g, g)])) for g in (first, second)]
    left, correlations, right = np.linalg.svd(
        np.linalg.solve(roots[0], sample[np.ix_(first, second)]) @ np.linalg.inv(roots[1])
    )
    shared = [root @ u[:, :2] * np.sqrt(correlations[:2]) for root, u in zip(roots, (left, right.T), strict=True)]
    expected = sample.copy()
    expected[np.ix_(first, second)] = shared[0] @ shared[1].T
    expected[np.ix_(second, first)] = shared[1] @ shared[0].T
    assert_near(spectral_covariance(model), expected, CLOSE)
    best = multivariate_normal(spectra.mean(axis=0), expected).logpdf(spectra).sum()
    assert model.log_likelihoods_[-1] == pytest.approx(best, rel=1e-9)


@pytest.mark.oracle
def test_rca_is_its_generalised_eigenproblem() -> None:
    spectra = factors(5)
    known = np.cov(factors(6).T) * 0.1 + 0.2 * np.eye(8)
    model = preset("rca", n_latent=2, fixed={"Sigma": known}, max_iter=1, **TIGHT).fit(spectra)
    values, vectors = eigh(np.cov(spectra.T, bias=True), known)
    loadings = known @ vectors[:, -2:] * np.sqrt(values[-2:] - 1.0)
    assert_near(spectral_covariance(model), loadings @ loadings.T + known, CLOSE)
    assert_near(model.parameters_.Sigma[0], known, 1e-12)
    general = preset("rca", n_latent=2, fixed={"Sigma": known}, algorithm="general", max_iter=250, tol=0.0).fit(spectra)
    assert general.log_likelihoods_[-1] == pytest.approx(model.log_likelihoods_[-1], rel=CLOSE)


def mixture_of_regressions(y: np.ndarray, t: np.ndarray, r: np.ndarray, n_iter: int) -> tuple[Any, ...]:
    """Weights, coefficients (K, L + 1, D), the common variance, log-likelihoods of y given t."""
    x, log_likelihoods = np.column_stack([t, np.ones(len(t))]), []
    for _ in range(n_iter):
        weights = r.mean(axis=0)
        beta = [np.linalg.solve(x.T @ (r[:, [k]] * x), x.T @ (r[:, [k]] * y)) for k in range(r.shape[1])]
        squares = np.stack([((y - x @ b) ** 2).sum(axis=1) for b in beta], axis=1)
        variance = (r * squares).sum() / y.size
        joint = np.log(weights) - 0.5 * (squares / variance + y.shape[1] * np.log(2 * np.pi * variance))
        log_likelihoods.append(logsumexp(joint, axis=1).sum())
        r = softmax(joint, axis=1)
    return weights, np.stack(beta), variance, log_likelihoods


def crossing(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two regressions over the same parameters, which do not tell them apart; soft responsibilities."""
    rng = np.random.default_rng(seed)
    label, t = rng.integers(2, size=n), rng.normal(2.0, 3.0, (n, 2))
    maps = rng.normal(size=(2, 2, 5))[label]
    y = np.einsum("nl,nld->nd", t, maps) + rng.normal(size=(n, 5)) + 10.0
    return y, t, 0.7 * np.eye(2)[label] + 0.15


@pytest.mark.parametrize("standardize", [False, True])
def test_mlr_is_a_mixture_of_regressions(standardize: bool) -> None:
    y, t, r = crossing(0)
    own = {**TIGHT, "standardize": standardize, "max_iter": 20}
    model = preset("mlr", n_components=2, **own).fit(y, t, responsibilities=r)
    weights, beta, variance, log_likelihoods = mixture_of_regressions(y, t, r, 20)
    theta = model.parameters_
    assert_near(model.log_likelihoods_, log_likelihoods, CLOSE)
    assert_near(theta.pi, weights, CLOSE)
    assert_near(theta.A, beta[:, :2].transpose(0, 2, 1), CLOSE)
    assert_near(theta.b, beta[:, 2], CLOSE)
    assert_near(theta.Sigma, [variance, variance], CLOSE)
    assert model.bic(y, t) == pytest.approx(model.bic_, rel=1e-10)
    n_free = 2 * (2 * 5 + 5) + 1 + 1  # maps, intercepts, a weight, a variance: nothing of the parameters
    assert model.bic_ == pytest.approx(-2 * log_likelihoods[-1] + n_free * np.log(300), rel=CLOSE)


def test_mlr_predicts_without_a_prior_on_the_parameters() -> None:
    y, t, r = crossing(1)
    theta = preset("mlr", n_components=2, max_iter=20, tol=0.0).fit(y, t, responsibilities=r)
    found = theta.predict(y[:5])
    theta = theta.parameters_
    weights, means = [], []
    for k in range(2):
        normal = theta.A[k].T @ theta.A[k]
        means.append(np.linalg.solve(normal, theta.A[k].T @ (y[:5] - theta.b[k]).T).T)
        squares = ((y[:5] - theta.b[k] - means[k] @ theta.A[k].T) ** 2).sum(axis=1)
        log_scale = np.log(theta.pi[k]) - 0.5 * np.linalg.slogdet(normal)[1] - 0.5 * squares / theta.Sigma[k]
        weights.append(log_scale + 0.5 * 2 * np.log(theta.Sigma[k]) - 2.5 * np.log(theta.Sigma[k]))
    share = softmax(np.stack(weights, axis=1), axis=1)
    assert_near(found, sum(share[:, [k]] * means[k] for k in range(2)), 1e-3)


def test_ppam_has_equal_volumes_weights_and_noise() -> None:
    data = make_data(6, 3, 6, 2, 0, per_component=60)
    model = preset("ppam", n_components=3, max_iter=1, **TIGHT)
    theta = model.fit(data.spectra, data.parameters, responsibilities=data.responsibilities).parameters_
    r = data.responsibilities
    gaps = data.parameters[:, None] - theta.c
    free = np.einsum("nk,nki,nkj->kij", r, gaps, gaps) / r.sum(axis=0)[:, None, None]
    side = np.sqrt(np.linalg.det(free))
    expected = (r.mean(axis=0) @ side) * free / side[:, None, None]
    assert_near(theta.Gamma, expected, CLOSE)
    np.testing.assert_allclose(np.linalg.det(theta.Gamma), np.linalg.det(theta.Gamma)[0], rtol=1e-10)
    np.testing.assert_array_equal(theta.pi, np.full(3, 1 / 3))
    assert theta.Sigma.shape == (3, 6)
    np.testing.assert_array_equal(theta.Sigma, theta.Sigma[:1].repeat(3, axis=0))


def test_a_component_without_volume_is_left_out_of_equal_volumes() -> None:
    data = make_data(6, 3, 6, 2, 0, per_component=30)
    spectra, parameters = data.spectra.copy(), data.parameters.copy()
    r = np.repeat(np.eye(3), 30, axis=0)
    parameters[:30] = np.linspace(0.0, 1.0, 30)[:, None]
    model = preset("ppam", n_components=3, max_iter=3, **TIGHT).fit(spectra, parameters, responsibilities=r)
    assert model.n_removed_ == 1
    np.testing.assert_allclose(np.linalg.det(model.parameters_.Gamma), np.linalg.det(model.parameters_.Gamma)[0])


@pytest.mark.parametrize("gamma", ["full", "diag"])
def test_equal_volumes_are_the_greatest_expected_likelihood(gamma: str) -> None:
    data = make_data(7, 3, 4, 3, 0)
    own = {"gamma": gamma, "tied_gamma": "volume", "tied_pi": True, "max_iter": 1, **TIGHT}
    best = fit_estimator(data, **own).parameters_
    r, rng = data.responsibilities, np.random.default_rng(0)

    def expected(gammas: np.ndarray) -> float:
        each = [multivariate_normal(best.c[k], gammas[k]).logpdf(data.parameters) for k in range(3)]
        return float((r.T * each).sum())

    for _ in range(10):
        step = rng.normal(size=(3, 3, 3)) * (np.eye(3) if gamma == "diag" else 1.0)
        other = best.Gamma + 0.03 * (step + step.transpose(0, 2, 1))
        volume = np.exp(rng.normal(0, 0.02)) * np.linalg.det(best.Gamma)[0]
        other *= (volume / np.linalg.det(other))[:, None, None] ** (1 / 3)
        assert expected(other) < expected(best.Gamma)
    whole = fit_estimator(data, **{**own, "max_iter": 40})
    assert np.diff(whole.log_likelihoods_).min() > -1e-9 * abs(whole.log_likelihoods_[-1])


def plain_gtm(y: np.ndarray, phi: np.ndarray, r: np.ndarray, n_iter: int) -> tuple[np.ndarray, float, list[float]]:
    """Weights W (M, D), the noise variance and log-likelihoods of the generative topographic mapping."""
    log_likelihoods = []
    for _ in range(n_iter):
        maps = np.linalg.solve(phi.T @ (r.sum(axis=0)[:, None] * phi), phi.T @ r.T @ y)
        squares = ((y[:, None] - phi @ maps) ** 2).sum(axis=2)
        variance = (r * squares).sum() / y.size
        joint = -0.5 * squares / variance - 0.5 * y.shape[1] * np.log(2 * np.pi * variance) - np.log(len(phi))
        log_likelihoods.append(logsumexp(joint, axis=1).sum())
        r = softmax(joint, axis=1)
    return maps, variance, log_likelihoods


def sheet(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Spectra of a curved sheet away from the origin, and the places on it."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(-1.0, 1.0, (n, 2))
    shape = [place[:, 0], place[:, 1], place[:, 0] ** 2, np.sin(2.0 * place[:, 1]), place.prod(axis=1)]
    return np.stack(shape, axis=1) + 0.05 * rng.normal(size=(n, 5)) + 0.5, place


@pytest.mark.oracle
def test_gtm_is_the_generative_topographic_mapping() -> None:
    spectra, place = sheet(0)
    model = preset("gtm", grid=(6, 5), functions=(2, 2), max_iter=15, tol=0.0).fit(spectra)
    phi = model.latent_mean
    start = model.init.nodes
    centred = spectra - spectra.mean(axis=0)
    _, deviations, axes = np.linalg.svd(centred / np.sqrt(len(spectra)), full_matrices=False)
    axes = axes * np.sign(axes[np.arange(5), np.abs(axes).argmax(axis=1)])[:, None]
    nodes = 2.0 * start @ (deviations[:2, None] * axes[:2])
    r = np.eye(30)[((centred[:, None] - nodes) ** 2).sum(axis=2).argmin(axis=1)]
    maps, variance, log_likelihoods = plain_gtm(spectra, phi, r, 15)
    theta = model.parameters_
    assert model.n_components_ == 30  # nodes without samples stay
    assert_near(model.log_likelihoods_, log_likelihoods, CLOSE)
    assert_near(theta.A, np.repeat(maps.T[None], 30, axis=0), CLOSE)
    assert_near(theta.Sigma, np.full(30, variance), CLOSE)
    assert not theta.b.any()
    assert np.abs(theta.A - theta.A[0]).max() == 0.0
    on_map = model.transform(spectra)[:, :2]
    related = np.abs(np.corrcoef(on_map.T, place.T)[:2, 2:])
    assert related.max(axis=1).min() > 0.95
    weights = softmax(-0.5 * ((spectra[:, None] - theta.centres()) ** 2).sum(axis=2) / variance, axis=1)
    assert_near(on_map, weights @ start, 1e-5)


def test_an_unsupervised_preset_takes_no_y_or_one_without_columns() -> None:
    spectra = factors(7)
    first = preset("ppca", n_latent=1, max_iter=2, tol=0.0).fit(spectra)
    second = preset("ppca", n_latent=1, max_iter=2, tol=0.0).fit(spectra, np.empty((len(spectra), 0)))
    np.testing.assert_array_equal(first.log_likelihoods_, second.log_likelihoods_)
    assert first.predict(spectra).shape == second.predict(spectra).shape == (len(spectra), 0)


@pytest.mark.parametrize(
    ("name", "own", "message"),
    [
        ("pca", {}, "preset 'pca' is not one of 'mle', 'mlr', 'jgmm'"),
        ("ppca", {}, "preset 'ppca' needs n_latent="),
        ("pcca", {"n_latent": 1}, "preset 'pcca' needs sigma_blocks="),
        ("ppca", {"n_latent": 1, "sigma": "diag"}, "preset 'ppca' has sigma='iso', not 'diag'"),
        ("rca", {"n_latent": 1, "fixed": {"pi": [1.0]}}, "needs fixed={'Sigma': covariance}"),
        ("gtm", {"n_latent": 3}, "preset 'gtm' makes n_latent itself"),
        ("gtm", {"grid": (3, 3), "functions": (2,)}, "must have as many sides"),
    ],
)
def test_a_preset_refuses_what_would_make_another_method(name: str, own: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preset(name, **own)


FIXED = {
    "pi": np.array([0.2, 0.5, 0.3]),
    "c": np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 3.0]]),
    "Gamma": np.array([[2.0, 0.5], [0.5, 1.0]]),
    "Sigma": np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
}


@pytest.mark.parametrize("n_latent", [0, 1])
@pytest.mark.parametrize("names", [("pi",), ("c",), ("Gamma",), ("Sigma",), tuple(FIXED)])
def test_fixed_parts_stay_and_the_likelihood_never_falls(names: tuple[str, ...], n_latent: int) -> None:
    data = make_data(8, 3, 6, 2, n_latent)
    fixed = {name: FIXED[name] for name in names}
    model = fit_estimator(data, sigma="diag", fixed=fixed, max_iter=12, tol=0.0)
    theta = model.parameters_
    found = {"pi": theta.pi, "c": theta.c[:, :2], "Gamma": theta.Gamma[:, :2, :2], "Sigma": theta.Sigma}
    for name in FIXED:
        same = np.allclose(found[name], FIXED[name], rtol=1e-12)
        assert same == (name in names), name
    assert np.diff(model.log_likelihoods_).min() > -1e-9 * abs(model.log_likelihoods_[-1])
    assert theta.constraints.fixed == names
    again = fit_estimator(data, given=False, init=theta, sigma="diag", fixed=fixed, max_iter=3, tol=0.0)
    longer = fit_estimator(data, sigma="diag", fixed=fixed, max_iter=15, tol=0.0)
    assert_same_theta(again.parameters_, longer.parameters_, 1e-7)


def test_fixed_centres_are_what_covariances_count_from() -> None:
    data = make_data(9, 2, 4, 2, 0)
    centre = np.array([5.0, -5.0])
    theta = fit_estimator(data, fixed={"c": centre}, max_iter=1, **TIGHT).parameters_
    r, gap = data.responsibilities, data.parameters - centre
    assert_near(theta.Gamma, np.einsum("nk,ni,nj->kij", r, gap, gap) / r.sum(axis=0)[:, None, None], 1e-9)


def test_what_is_fixed_does_not_count_as_free() -> None:
    def count(**own: Any) -> int:
        return n_free_parameters(3, 6, 2, 1, Constraints(**own))

    free = count()
    differences = {"pi": 2, "c": 6, "Gamma": 9, "Sigma": 3}
    assert {name: free - count(fixed=(name,)) for name in FIXED} == differences
    assert free - count(gamma="flat") == 6 + 9
    assert free - count(tied_gamma="volume") == 2
    assert free - count(intercept=False) == 18
    tied = {"tied_sigma": True}
    assert count(**tied) - count(**tied, tied_maps=True) == 2 * 6 * 3


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ([1.0], "must be a dictionary of arrays"),
        ({"A": 1.0}, "fixed names 'A', which is not one of 'pi', 'c', 'Gamma', 'Sigma'"),
        ({"pi": [0.5, 0.2, 0.2]}, "must be positive and sum to one, not to 0.9"),
        ({"c": np.zeros((2, 2))}, r"fixed c has shape \(2, 2\), which does not broadcast to \(3, 2\)"),
        ({"Gamma": [[1.0, 2.0], [2.0, 1.0]]}, "fixed Gamma must be positive definite"),
        ({"Gamma": [[1.0, 0.5], [0.2, 1.0]]}, "fixed Gamma must be symmetric"),
        ({"Sigma": np.arange(1.0, 7.0)}, "fixed Sigma has not the structure of sigma='iso'"),
        ({"Sigma": np.nan}, "fixed Sigma holds NaN"),
    ],
)
def test_fixed_parts_that_cannot_be_are_an_error(fixed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_estimator(make_data(0, 3, 6, 2, 0), fixed=fixed)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"gamma": "flat", "fixed": {"c": 0.0}}, "gamma='flat' leaves no prior"),
        ({"tied_pi": True, "fixed": {"pi": np.full(3, 1 / 3)}}, "exclude each other"),
        ({"tied_maps": True}, "tied_maps=True needs tied_sigma=True"),
        ({"tied_gamma": "shape"}, "tied_gamma='shape' must be True, False or 'volume'"),
        ({"intercept": 0}, "intercept=0 must be True or False"),
    ],
)
def test_constraints_that_exclude_each_other_are_an_error(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_estimator(make_data(0, 3, 6, 2, 0), **own)


@pytest.mark.parametrize("n_latent", [0, 2])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("tied_maps", [False, True])
def test_shared_maps_and_no_intercept_hold_and_the_likelihood_never_falls(
    n_latent: int, intercept: bool, tied_maps: bool
) -> None:
    data = make_data(10, 3, 6, 1, n_latent)
    own = {"tied_sigma": True, "tied_maps": tied_maps, "intercept": intercept, "sigma": "diag"}
    model = fit_estimator(data, **own, max_iter=30, tol=0.0)
    theta = model.parameters_
    assert bool((theta.A[0] == theta.A).all()) == tied_maps
    assert theta.b.any() == intercept
    assert np.diff(model.log_likelihoods_).min() > -1e-9 * abs(model.log_likelihoods_[-1])


def test_shared_maps_are_one_weighted_regression() -> None:
    data = make_data(11, 3, 5, 2, 0)
    theta = fit_estimator(data, tied_sigma=True, tied_maps=True, **{**BARE, "max_iter": 1}).parameters_
    r, share = data.responsibilities, data.responsibilities / data.responsibilities.sum(axis=0)
    t, y = (values[:, None] - share.T @ values for values in (data.parameters, data.spectra))
    xx, xy = np.einsum("nk,nki,nkj->ij", r, t, t), np.einsum("nk,nki,nkd->id", r, t, y)
    assert_near(theta.A[0], np.linalg.solve(xx, xy).T, 1e-9)
    residual = y - t @ np.linalg.solve(xx, xy)
    assert_near(theta.Sigma, np.full(3, np.einsum("nk,nkd->", r, residual**2) / data.spectra.size), 1e-9)


def test_a_grid_of_another_size_is_an_error() -> None:
    grid = PrincipalGrid(regular_grid((2, 2)))
    with pytest.raises(ValueError, match="the grid of init has 4 nodes, n_components=3"):
        GLLiM(3, n_latent=1, init=grid).fit(factors(0))
