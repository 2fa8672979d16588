"""Presets and variants where the noise is nearly singular, and settings that make no sense."""

import numpy as np
import pytest
from scipy.linalg import inv, sqrtm

from specinvert.gllim.presets import preset
from strategies import fit_estimator, make_data


@pytest.mark.parametrize("algorithm", ["marginal", "ecm"])
@pytest.mark.parametrize("seed", range(3))
def test_the_likelihood_does_not_fall_where_residuals_leave_the_noise_singular(algorithm: str, seed: int) -> None:
    data = make_data(seed, 3, 8, 1, 1, noise=2.0, per_component=8)
    blocks = (2, 0, 0, 2, 0, 1, 2, 2)
    own = {"sigma": "block", "sigma_blocks": blocks, "tied_pi": True, "algorithm": algorithm}
    model = fit_estimator(data, **own, max_iter=15, tol=0.0)
    values = model.log_likelihoods_
    assert (-np.diff(values) / np.abs(values[1:])).max() < 1e-10
    assert values[-1] > values[0]


def views(seed: int, sides: tuple[int, int], shared: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(400, shared))
    return np.concatenate(
        [
            common @ rng.normal(size=(shared, size)) + rng.normal(size=(400, size)) @ rng.normal(size=(size, size))
            for size in sides
        ],
        axis=1,
    )


def canonical_correlations(covariance: np.ndarray, size: int) -> np.ndarray:
    first, second, cross = covariance[:size, :size], covariance[size:, size:], covariance[:size, size:]
    return np.linalg.svd(inv(sqrtm(first)).real @ cross @ inv(sqrtm(second)).real)[1]


@pytest.mark.parametrize("algorithm", ["marginal", "ecm"])
def test_pcca_finds_the_canonical_correlations_where_the_noise_becomes_singular(algorithm: str) -> None:
    spectra = views(4, (4, 4), 3)
    own = {"sigma_blocks": [0] * 4 + [1] * 4, "algorithm": algorithm, "max_iter": 300, "tol": 1e-12}
    theta = preset("pcca", n_latent=3, **own).fit(spectra).parameters_
    noise = theta.sigma_dense()[0]
    assert np.linalg.cond(noise) > 1e6
    total = theta.A[0] @ theta.A[0].T + noise
    wanted = canonical_correlations(np.cov(spectra.T, bias=True), 4)
    np.testing.assert_allclose(canonical_correlations(total, 4)[:3], wanted[:3], atol=1e-7)


def test_gtm_on_a_line_is_the_plain_algorithm_to_rounding() -> None:
    rng = np.random.default_rng(0)
    place = np.linspace(-1.0, 1.0, 120)
    spectra = np.stack([place, place**2, np.sin(3.0 * place)], axis=1) + 0.05 * rng.normal(size=(120, 3)) + [5, -3, 2]
    model = preset("gtm", grid=(15,), functions=(4,), max_iter=8, tol=0.0).fit(spectra)
    theta, phi = model.parameters_, model.latent_mean
    before = preset("gtm", grid=(15,), functions=(4,), max_iter=7, tol=0.0).fit(spectra).parameters_
    squares = ((spectra[:, None] - phi @ before.A[0].T) ** 2).sum(axis=2)
    r = np.exp(-0.5 * (squares - squares.min(axis=1, keepdims=True)) / before.Sigma[0])
    r /= r.sum(axis=1, keepdims=True)
    maps = np.linalg.solve(phi.T @ (r.sum(axis=0)[:, None] * phi), phi.T @ r.T @ spectra)
    np.testing.assert_allclose(phi @ theta.A[0].T, phi @ maps, rtol=1e-8)
    variance = (r * ((spectra[:, None] - phi @ maps) ** 2).sum(axis=2)).sum() / spectra.size
    np.testing.assert_allclose(theta.Sigma, variance, rtol=1e-8)


def test_settings_of_a_preset_that_make_no_sense_are_refused(subtests: pytest.Subtests) -> None:
    for name, own, message in [
        ("gtm", {"grid": (0, 3)}, r"grid=\(0, 3\) must be a list of integers, one or more a side"),
        ("gtm", {"grid": 5}, "grid=5 must be a list of integers"),
        ("gtm", {"grid": (5.5,)}, r"grid=\(5.5,\) must be a list of integers"),
        ("gtm", {"grid": (), "functions": ()}, r"grid=\(\) must be a list of integers"),
        ("gtm", {"functions": (0, 2)}, r"functions=\(0, 2\) must be a list of integers"),
        ("gtm", {"grid": (1, 1)}, r"grid=\(1, 1\) is one node"),
        ("gtm", {"width": 0.0}, "width=0.0 must be above zero"),
        ("gtm", {"width": np.nan}, "width=nan must be above zero"),
        ("rca", {"n_latent": 1, "fixed": 0.1}, "fixed=0.1 must be a dictionary"),
        ("rca", {"n_latent": 1, "fixed": None}, "needs fixed={'Sigma': covariance}"),
        ("ppca", {"n_latent": 2, "latent_mean": np.zeros(2)}, r"preset 'ppca' has latent_mean=None, not array"),
    ]:
        with subtests.test(name=name, own=own), pytest.raises(ValueError, match=message):
            preset(name, **own)


def test_a_grid_of_more_sides_than_bands_is_refused() -> None:
    spectra = np.random.default_rng(0).normal(size=(60, 1))
    with pytest.raises(ValueError, match="a grid of 2 sides needs as many principal components, 60 spectra of 1 bands"):
        preset("gtm", grid=(3, 3), functions=(2, 2)).fit(spectra)


def test_covariances_are_clipped_where_they_are_below_the_floor_once_their_volumes_are_equal() -> None:
    rng = np.random.default_rng(0)
    label = np.arange(200) % 2
    parameters = rng.normal(size=(200, 2)) * np.array([[1.0, 0.05], [1.0, 1.0]])[label]
    spectra = parameters @ rng.normal(size=(2, 4)) + rng.normal(size=(200, 4))
    own = {"n_components": 2, "max_iter": 1, "tol": 0.0}
    r = np.eye(2)[label]
    free = np.stack([np.cov(parameters[label == k].T, bias=True) for k in range(2)])
    side = np.sqrt(np.linalg.det(free))
    equal = free * (side.mean() / side)[:, None, None]
    least = 0.01 * parameters.var(axis=0)
    assert free[0, 1, 1] < least[1] < np.linalg.eigvalsh(equal[0])[0]
    theta = preset("ppam", **own, reg_covar=0.01).fit(spectra, parameters, responsibilities=r).parameters_
    np.testing.assert_allclose(theta.Gamma, equal, rtol=1e-9, atol=1e-12)
    theta = preset("ppam", **own, reg_covar=0.3).fit(spectra, parameters, responsibilities=r).parameters_
    np.testing.assert_allclose(np.linalg.det(theta.Gamma), np.linalg.det(theta.Gamma)[0])
    assert np.linalg.eigvalsh(theta.Gamma)[:, 0].min() > np.linalg.eigvalsh(equal)[:, 0].min()
