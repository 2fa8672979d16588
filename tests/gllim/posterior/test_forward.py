"""Missing bands, noise and known parameters at inversion, against plain conditioning of joint Gaussians."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from specinvert.gllim.posterior import posterior as posterior_module
from specinvert.gllim.posterior.committee import Estimate
from specinvert.gllim.posterior.forward import ForwardTerms
from specinvert.gllim.posterior.posterior import SideInformation, posterior_blocks
from strategies import SEEDS, SIGMAS, dense, random_theta

pytestmark = pytest.mark.oracle

SHAPES: dict[str, Any] = {
    "seed": SEEDS,
    "sigma": st.sampled_from(SIGMAS),
    "k": st.integers(1, 4),
    "d": st.integers(1, 9),
    "n_t": st.integers(0, 3),
    "n_w": st.integers(0, 2),
}
NOISES = ("none", "pixel", "pixel and band", "few")


def make_rows(
    theta: Any, seed: int, n: int, missing: float, noise: str, known: float
) -> tuple[np.ndarray, SideInformation]:
    """Spectra near the model with holes, noise of some form and known parameters, each row its own."""
    rng = np.random.default_rng(seed)
    n_bands, n_t = theta.n_bands, theta.n_parameters
    label = rng.integers(theta.n_components, size=n)
    spectra = theta.centres()[label] + 2.0 * rng.normal(size=(n, n_bands))
    spectra[rng.random(spectra.shape) < missing] = np.nan
    added = {
        "none": None,
        "pixel": rng.uniform(0.0, 3.0, (n, 1)),
        "pixel and band": rng.uniform(0.0, 3.0, (n, n_bands)),
        "few": np.array([[0.5], [1.5]])[rng.integers(2, size=n)],
    }[noise]
    values = theta.c[label, :n_t] + rng.normal(size=(n, n_t))
    values[rng.random(values.shape) >= known] = np.nan
    return spectra, SideInformation(added, values if known else None)


def assert_is_the_reference(theta: Any, spectra: np.ndarray, given: SideInformation, rtol: float = 1e-8) -> set[str]:
    """Every row of every block; the kinds of posterior that served."""
    seen, kinds = np.zeros(len(spectra), dtype=bool), set()
    for block in posterior_blocks(ForwardTerms.of(theta), spectra, True, given):
        rows = np.arange(len(spectra))[block.rows]
        kinds.add(type(block.posterior).__name__)
        whole, mean, cov = block.posterior.components(), *block.posterior.moments(covariance=True)
        variance = block.posterior.moments()[1]
        n_valid = np.broadcast_to(block.n_valid, len(rows))
        x = np.full((len(rows), theta.A.shape[2]), np.nan)
        if given.known is not None:
            x[:, : theta.n_parameters] = given.known[rows]
        fitted = Estimate((block,), False).fitted([ForwardTerms.of(theta)], np.nan_to_num(x))
        for i, row in enumerate(rows):
            assert not seen[row]
            seen[row] = True
            added = np.zeros(1) if given.added is None else given.added[row]
            known = np.full(theta.n_parameters, np.nan) if given.known is None else given.known[row]
            expected = reference.conditional(
                dense(theta), spectra[row], np.diag(np.broadcast_to(added, theta.n_bands)), known
            )
            assert block.known == tuple(np.flatnonzero(~np.isnan(known)))
            assert n_valid[i] == np.isfinite(spectra[row]).sum()
            near(whole.weights[i], expected["weights"], rtol)
            near(whole.means[i], expected["means"], rtol)
            near(whole.covariances[i], expected["covariances"], rtol)
            near(block.posterior.log_evidence[i], expected["log_evidence"], rtol)
            some = expected["weights"] > 1e-12
            near(block.posterior.distances()[i][some], expected["distances"][some], rtol)
            gap = expected["means"] - mean[i]
            outer = expected["covariances"] + gap[:, :, None] * gap[:, None, :]
            near(mean[i], expected["weights"] @ expected["means"], rtol)
            near(cov[i], np.einsum("k,kij->ij", expected["weights"], outer), rtol)
            near(variance[i], np.diagonal(cov[i]), rtol)
            own = np.repeat(x[i : i + 1], theta.n_components, axis=0)
            own[:, np.isnan(x[i])] = expected["means"]
            near(fitted[i], expected["weights"] @ (np.einsum("kdl,kl->kd", theta.A, own) + theta.b), rtol)
    np.testing.assert_array_equal(seen, np.isfinite(spectra).sum(axis=1) >= max(1, given.least_bands))
    return kinds


def near(found: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)


@given(**SHAPES, n=st.integers(0, 6), missing=st.sampled_from([0.0, 0.4]), noise=st.sampled_from(NOISES),
       known=st.sampled_from([0.0, 0.5, 1.0]))  # fmt: skip
def test_any_missing_bands_noise_and_known_parameters_are_exact(
    seed: int, sigma: str, k: int, d: int, n_t: int, n_w: int, n: int, missing: float, noise: str, known: float
) -> None:
    theta = random_theta(seed, k, d, n_t, n_w, sigma)
    assert_is_the_reference(theta, *make_rows(theta, seed, n, missing, noise, known))


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("noise", NOISES)
def test_many_rows_alike_take_one_product_to_the_same_result(sigma: str, noise: str, monkeypatch: Any) -> None:
    theta = random_theta(3, 3, 7, 2, 1, sigma)
    spectra, given = make_rows(theta, 5, 60, 0.0, noise, 1.0)
    spectra[::2, 3] = np.nan
    assert given.known is not None
    given.known[::3, 1] = np.nan
    few = assert_is_the_reference(theta, spectra, given)
    monkeypatch.setattr(posterior_module, "LEAST_ROWS", 1)
    many = assert_is_the_reference(theta, spectra, given)
    if sigma != "full":
        assert few == {"RowPosterior"}
    assert many == {"RowPosterior" if sigma == "full" and noise in ("pixel", "few") else "Posterior"}


@given(seed=SEEDS, sigma=st.sampled_from(SIGMAS), missing=st.sampled_from([0.0, 0.3]), noise=st.sampled_from(NOISES))
def test_noise_a_ten_thousandth_of_the_signal_keeps_four_digits(
    seed: int, sigma: str, missing: float, noise: str
) -> None:
    theta = random_theta(seed, 2, 8, 2, 1, sigma)
    theta = replace(theta, Sigma=theta.Sigma * 1e-8)
    rng = np.random.default_rng(seed)
    x = theta.c[0] + rng.normal(size=(5, 3)) * 0.1
    spectra = x @ theta.A[0].T + theta.b[0] + 1e-4 * rng.normal(size=(5, 8))
    spectra[rng.random(spectra.shape) < missing] = np.nan
    _, given = make_rows(theta, seed, 5, 0.0, noise, 0.0)
    if given.added is not None:
        given = SideInformation(given.added * 1e-8)
    assert_is_the_reference(theta, spectra, given, rtol=1e-4)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("shape", [(), (5,), (5, 5)])
def test_shared_noise_adds_to_sigma(sigma: str, shape: tuple[int, ...]) -> None:
    theta = random_theta(1, 3, 5, 2, 1, sigma)
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.5, 1.0, shape)
    if len(shape) == 2:
        noise = noise @ noise.T
    noisy = theta.with_noise(noise)
    added = noise if len(shape) == 2 else noise * np.eye(5)
    np.testing.assert_allclose(noisy.sigma_dense(), theta.sigma_dense() + added, rtol=1e-14, atol=0)
    least = {"iso": ["iso", "diag", "full"], "diag": ["diag", "diag", "full"], "full": ["full"] * 3}[sigma]
    assert noisy.constraints.sigma == least[len(shape)]


def test_rows_with_fewer_bands_than_asked_for_are_left_out() -> None:
    theta = random_theta(1, 2, 4, 1, 0, "iso")
    spectra = np.ones((5, 4))
    for i in range(5):
        spectra[i, :i] = np.nan
    assert_is_the_reference(theta, spectra, SideInformation(least_bands=3))


def test_many_patterns_of_a_full_sigma_warn_with_the_time_they_take(monkeypatch: Any) -> None:
    monkeypatch.setattr(posterior_module, "LONG", 0.0)
    theta = random_theta(1, 2, 9, 1, 0, "full")
    spectra = np.random.default_rng(0).normal(size=(400, 9))
    spectra[np.random.default_rng(1).random(spectra.shape) < 0.4] = np.nan
    with pytest.warns(UserWarning, match=r"^\d+ patterns of missing bands or noise.* about \d+ s a block"):
        list(posterior_blocks(ForwardTerms.of(theta), spectra))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(posterior_blocks(ForwardTerms.of(theta), spectra[:20]))
