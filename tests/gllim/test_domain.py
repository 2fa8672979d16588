"""The tail probability of a spectrum, which tells whether it is like the training set."""

import logging
from typing import Any
from unittest import mock

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from specinvert import GLLiMInverter
from specinvert.gllim.domain import LEAST_HELD_OUT, held_out_tails
from specinvert.gllim.em.source import ArrayChunks, Chunk
from specinvert.gllim.em.training import Settings, train
from specinvert.gllim.posterior import committee
from specinvert.gllim.posterior.committee import beyond, distance_at, log_chi2_tail, log_tail
from specinvert.gllim.posterior.forward import ForwardTerms
from specinvert.gllim.posterior.posterior import SideInformation, posterior_blocks
from strategies import SEEDS, SIGMAS, random_theta


@given(st.floats(0.0, 600.0), st.integers(1, 300))
def test_log_tails_of_chi_squared_are_scipy_s(distance: float, degrees: int) -> None:
    found = float(log_chi2_tail(np.array([distance]), np.array([degrees]))[0])
    assert found == pytest.approx(float(chi2.logsf(distance, degrees)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 184, 1000])
def test_log_tails_go_on_where_scipy_s_underflow(degrees: int) -> None:
    distance = np.geomspace(degrees + 1.0, 1e7, 200)
    found = log_chi2_tail(distance, np.full(200, degrees))
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0.0).all()
    half = 0.5 * distance[-1]  # d log Q / d x tends to -1 + (a - 1) / x
    slope = (log_chi2_tail(2 * np.array([half + 1.0]), np.array([degrees])) - found[-1])[0]
    assert slope == pytest.approx(-1.0 + (0.5 * degrees - 1.0) / half, rel=1e-6)
    assert log_chi2_tail(np.array([np.inf]), np.array([degrees]))[0] == -np.inf


@given(st.floats(-2000.0, -1e-3), st.integers(1, 300))
def test_the_distance_of_a_level_has_it_as_its_tail(log_level: float, degrees: int) -> None:
    found = distance_at(log_level, degrees)
    assert log_chi2_tail(np.array([found]), np.array([degrees]))[0] == pytest.approx(log_level, rel=1e-7, abs=1e-9)


@given(
    seed=SEEDS,
    sigma=st.sampled_from(SIGMAS),
    level=st.sampled_from([1e-300, 1e-6, 1e-2, 0.3, 0.9]),
    holes=st.sampled_from([0.0, 0.3]),
    known=st.booleans(),
)
def test_what_is_beyond_a_level_has_a_smaller_tail(
    seed: int, sigma: str, level: float, holes: float, known: bool
) -> None:
    theta, rng = random_theta(seed, 4, 6, 2, 1, sigma), np.random.default_rng(seed)
    spectra = theta.centres()[rng.integers(4, size=40)] + rng.choice([1.0, 5.0, 40.0], 40)[:, None] * rng.normal(
        size=(40, 6)
    )
    spectra[rng.random(spectra.shape) < holes] = np.nan
    values = np.stack([rng.normal(size=40), np.full(40, np.nan)], axis=1)
    for block in posterior_blocks(
        ForwardTerms.of(theta), spectra, given=SideInformation(known=values if known else None)
    ):
        posterior = block.posterior
        tails = log_tail(posterior.weights, posterior.distances(), block.n_valid)
        for least in (1, 1000):
            with mock.patch.object(committee, "MANY_ROWS", least):
                found = beyond(posterior, block.n_valid, np.log(level))
            np.testing.assert_array_equal(found, tails < np.log(level))
        weight, distance = posterior.heaviest()
        np.testing.assert_array_equal(weight, posterior.weights.max(axis=1))
        np.testing.assert_array_equal(
            distance, posterior.distances()[np.arange(len(weight)), posterior.weights.argmax(axis=1)]
        )


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Spectra and parameters of one model."""
    theta, rng = random_theta(0, 3, 20, 2, 1, "iso"), np.random.default_rng(seed)
    label = rng.choice(3, n, p=theta.pi)
    x = np.einsum("nij,nj->ni", np.linalg.cholesky(theta.Gamma)[label], rng.normal(size=(n, 3))) + theta.c[label]
    noise = np.sqrt(theta.Sigma[label])[:, None] * rng.normal(size=(n, 20))
    return np.einsum("ndl,nl->nd", theta.A[label], x) + theta.b[label] + noise, x[:, :2]


@pytest.mark.parametrize(("n", "most"), [(200, 0.08), (4000, 0.02)])
def test_a_hundredth_of_fresh_spectra_lies_beyond_the_held_out_level(n: int, most: float) -> None:
    spectra, parameters = draw(n, 1)
    source, settings = (
        ArrayChunks(Chunk(spectra, parameters, np.ones(n))),
        Settings(3, 1, random_state=0, max_iter=40, tol=0.0),
    )
    training = train(source, settings)
    tails = held_out_tails(source, settings, [training.fit.parameters], training.moments)
    assert tails is not None
    fresh, _ = draw(20_000, 2)
    found = np.zeros(20_000, dtype=bool)
    for block in posterior_blocks(ForwardTerms.of(training.fit.parameters), fresh):
        found[block.rows] = beyond(block.posterior, block.n_valid, tails.log_level)
    assert 0.0005 < found.mean() < most


def test_which_are_held_out_depends_on_the_values_alone() -> None:
    spectra, parameters = draw(600, 1)
    order = np.random.default_rng(0).permutation(600)
    settings = Settings(3, 0, random_state=0, max_iter=5, tol=0.0)
    found = []
    for rows in (np.arange(600), order):
        chunks = [Chunk(spectra[part], parameters[part], np.ones(len(part))) for part in np.array_split(rows, 3)]
        source = ArrayChunks(chunks)
        theta = train(ArrayChunks(Chunk(spectra, parameters, np.ones(600))), settings).fit.parameters
        moments = train(source, settings).moments
        tails = held_out_tails(source, settings, [theta], moments)
        assert tails is not None
        found.append(np.sort(tails.tails[:, 0]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-8)


def test_components_that_the_fit_without_them_loses_are_not_told_as_the_fit_s_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spectra, parameters = draw(300, 1)
    source = ArrayChunks(Chunk(spectra, parameters, np.ones(300)))
    settings = Settings(20, 0, random_state=0, max_iter=5, tol=0.0)
    training = train(source, settings)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "specinvert"):
        held_out_tails(source, settings, [training.fit.parameters], training.moments)
    told = [record for record in caplog.records if "degenerated" in record.message]
    assert told
    assert all(record.levelno == logging.DEBUG for record in told)


def test_few_spectra_tell_no_level() -> None:
    n = 2 * LEAST_HELD_OUT - 1
    spectra, parameters = draw(n, 1)
    source, settings = (
        ArrayChunks(Chunk(spectra, parameters, np.ones(n))),
        Settings(2, 0, random_state=0, max_iter=5, tol=0.0),
    )
    training = train(source, settings)
    assert held_out_tails(source, settings, [training.fit.parameters], training.moments) is None


@pytest.mark.parametrize("form", ["shared", "a band", "covariance", "a pixel"])
def test_under_more_noise_a_hundredth_of_fresh_spectra_lies_beyond_and_foreign_ones_do(form: str) -> None:
    spectra, parameters = draw(3000, 1)
    spectra[:, ::2] += 0.5 * np.sin(3.0 * parameters[:, :1])  # what local affine maps miss
    held = xr.Dataset({"y": (("s", "band"), spectra), "a": ("s", parameters[:, 0]), "b": ("s", parameters[:, 1])})
    inverter = GLLiMInverter(3, 1, random_state=0, max_iter=20, tol=0.0).fit(held, spectra="y", band_dim="band")
    fresh, own = draw(8000, 2)
    fresh[:, ::2] += 0.5 * np.sin(3.0 * own[:, :1])
    rng, deviation = np.random.default_rng(3), 3.0
    foreign = fresh + 12.0 * np.sign(rng.normal(size=(1, 20)))
    noise: Any = {
        "shared": deviation,
        "a band": np.full(20, deviation),
        "covariance": deviation**2 * np.eye(20),
        "a pixel": xr.DataArray(np.full(8000, deviation), dims="s"),
    }[form]
    rates = []
    for values in (fresh, foreign):
        noisy = values + deviation * rng.normal(size=values.shape)
        cube = xr.DataArray(noisy, dims=("s", "band"), name="y")
        flag = inverter.invert(cube, noise=noise, outputs=("flag",), band_dim="band")["quality_flag"]
        rates.append(float(((flag & 4) > 0).mean()))
    assert 0.001 < rates[0] < 0.03, rates
    assert rates[1] > 0.95, rates
