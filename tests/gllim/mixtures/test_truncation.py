"""Mixtures given that one dimension lies in an interval."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm, truncnorm

from specinvert.gllim.mixtures.mixture import Mixture
from specinvert.gllim.mixtures.quantiles import quantile
from specinvert.gllim.mixtures.truncation import truncated, truncated_quantile
from truncations import INF, conditional, integrals, intervals, make, mixtures

pytestmark = pytest.mark.oracle


def normal(correlation: float = 0.9) -> Mixture:
    spread = np.array([[1.0, correlation], [correlation, 1.0]])
    return Mixture(np.ones((1, 1)), np.array([[[0.0, 1.0]]]), spread[None, None])


@given(mixtures, intervals)
def test_probability_and_moments_are_the_integrals(mixture: Mixture, interval: tuple[float, float]) -> None:
    mixture, of = mixture.select(slice(1)), mixture.n_dimensions - 1
    found = truncated(mixture, 0, *interval)
    x, step, density, mean, variance = integrals(mixture, *interval, of)
    part = step[:, None] * density
    whole = part.sum()
    assume(whole > 1e-9)
    assert found.log_probability[0] == pytest.approx(np.log(whole), abs=1e-10)
    np.testing.assert_allclose(found.weights[0], part.sum(axis=0) / whole, atol=1e-11)
    part /= whole
    first, expected = part.sum(axis=1) @ x, (part * mean).sum()
    np.testing.assert_allclose(found.mean[0, [0, of]], [first, expected], atol=1e-9)
    assert found.covariance[0, of, of] == pytest.approx((part * (variance + (mean - expected) ** 2)).sum(), abs=1e-8)
    across = (part * (mean - expected) * (x - first)[:, None]).sum()
    assert found.covariance[0, 0, of] == found.covariance[0, of, 0] == pytest.approx(across, abs=1e-8)


@given(mixtures, intervals, st.sampled_from([0.001, 0.3, 0.9]))
def test_quantiles_are_the_roots_of_the_integrals(
    mixture: Mixture, interval: tuple[float, float], level: float
) -> None:
    mixture, of = mixture.select(slice(1)), mixture.n_dimensions - 1
    _, step, density, mean, variance = integrals(mixture, *interval, of)
    whole = step @ density.sum(axis=1)
    assume(whole > 1e-9)
    own = truncated_quantile(mixture, 0, *interval, level)[0]
    assert interval[0] <= own <= interval[1]
    _, part, below, _, _ = integrals(mixture, interval[0], own, of)
    assert part @ below.sum(axis=1) / whole == pytest.approx(level, abs=1e-11)
    if of > 0:
        other = truncated_quantile(mixture, 0, *interval, level, of=of)[0]
        below = density * norm.cdf(other, mean, np.sqrt(variance))
        assert step @ below.sum(axis=1) / whole == pytest.approx(level, abs=1e-11)


@pytest.mark.parametrize("interval", [(-1.0, 2.0), (3.0, 4.0), (6.0, INF), (-INF, -5.0), (0.0, 1e-3), (-5.0, 3.0)])
def test_one_component_is_the_truncated_normal_of_scipy(interval: tuple[float, float]) -> None:
    found, expected = truncated(normal(), 0, *interval), truncnorm(*interval)
    assert found.mean[0, 0] == pytest.approx(expected.mean(), rel=1e-9)
    assert found.covariance[0, 0, 0] == pytest.approx(expected.var(), rel=1e-4)
    assert found.mean[0, 1] == pytest.approx(1.0 + 0.9 * expected.mean(), rel=1e-9)
    assert found.covariance[0, 1, 1] == pytest.approx(0.19 + 0.81 * expected.var(), rel=1e-6)
    levels = [0.01, 0.5, 0.99]
    np.testing.assert_allclose(truncated_quantile(normal(), 0, *interval, levels)[0], expected.ppf(levels), rtol=1e-9)


@pytest.mark.parametrize("far", [10.0, 1e3, 1e6, 1e9])
def test_far_in_the_tail_the_limit_is_exponential(far: float) -> None:
    for sign in (1.0, -1.0):
        ends = (far, INF) if sign > 0.0 else (-INF, -far)
        found = truncated(normal(), 0, *ends)
        beyond = sign * found.mean[0, 0] - far
        assert found.log_probability[0] == pytest.approx(log_ndtr(-far), rel=1e-13)
        assert beyond == pytest.approx(1.0 / far, rel=4.0 / far**2, abs=4e-16 * far)
        assert found.covariance[0, 0, 0] == pytest.approx(far**-2.0, rel=8.0 / far**2 + 1e-12)
        assert found.covariance[0, 1, 1] == pytest.approx(0.19 + 0.81 * found.covariance[0, 0, 0], rel=1e-12)
        median = sign * truncated_quantile(normal(), 0, *ends, 0.5)[0]
        assert median - far == pytest.approx(np.log(2.0) / far, rel=4.0 / far**2, abs=4e-16 * far)


def test_log_probability_in_both_tails_is_that_of_log_ndtr() -> None:
    for low, high in [(5.0, 6.0), (20.0, 20.5), (-31.0, -30.0), (100.0, 100.001)]:
        near, far = -min(abs(low), abs(high)), -max(abs(low), abs(high))
        expected = log_ndtr(near) + np.log1p(-np.exp(log_ndtr(far) - log_ndtr(near)))
        assert truncated(normal(), 0, low, high).log_probability[0] == pytest.approx(expected, abs=1e-9)


def test_an_interval_that_no_component_reaches_belongs_to_the_widest() -> None:
    mixture = Mixture(np.array([[0.999, 0.001]]), np.zeros((1, 2, 1)), np.array([[[[1.0]], [[4.0]]]]))
    found = truncated(mixture, 0, 1000.0, 1001.0)
    np.testing.assert_allclose(found.weights, [[0.0, 1.0]])
    assert found.mean[0, 0] == pytest.approx(1000.0 + 4.0 / 1000.0, abs=1e-6)
    assert found.log_probability[0] == pytest.approx(log_ndtr(-500.0) + np.log(0.001), rel=1e-5)


def test_no_truncation_gives_the_moments_and_quantiles_of_the_mixture() -> None:
    mixture = make(3)
    found = truncated(mixture, 1, -INF, INF)
    for part, expected in zip((found.mean, found.covariance), mixture.moments(), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(found.log_probability, 0.0)
    levels = [0.01, 0.5, 0.9]
    for of in (0, 1):
        whole = quantile(*mixture.marginal(of), levels)
        np.testing.assert_allclose(truncated_quantile(mixture, 1, -INF, INF, levels, of), whole, rtol=1e-12, atol=1e-12)


def test_equal_ends_condition_on_the_value() -> None:
    mixture = make(4)
    found = truncated(mixture, 0, 0.7, 0.7)
    for row in range(3):
        density, mean, variance = conditional(mixture, row, 2, 0.7)
        share = density / density.sum()
        np.testing.assert_allclose(found.weights[row], share, rtol=1e-12)
        assert found.mean[row, 2] == pytest.approx(share @ mean, rel=1e-12)
        expected = share @ (variance + (mean - share @ mean) ** 2)
        assert found.covariance[row, 2, 2] == pytest.approx(expected, rel=1e-12)
        other = truncated_quantile(mixture, 0, 0.7, 0.7, 0.3, of=2)[row]
        assert other == pytest.approx(quantile(share[None], mean[None], variance[None], 0.3)[0], abs=1e-11)
    np.testing.assert_array_equal(found.mean[:, 0], 0.7)
    np.testing.assert_array_equal(found.covariance[:, 0], 0.0)
    np.testing.assert_array_equal(found.log_probability, -INF)
    np.testing.assert_array_equal(truncated_quantile(mixture, 0, 0.7, 0.7, 0.3), 0.7)


@pytest.mark.parametrize("correlation", [0.0, -0.5, 0.999, -0.9999999])
def test_quantiles_of_another_dimension_stand_any_correlation(correlation: float) -> None:
    level = truncated_quantile(normal(correlation), 0, 0.0, 2.0, [0.2, 0.8], of=1)[0]
    for value, expected in zip(level, [0.2, 0.8], strict=True):
        deviation = np.sqrt((1.0 - correlation) * (1.0 + correlation))
        middle = (value - 1.0) / correlation if correlation else 1.0
        edges = np.clip([middle - 9.0 * deviation, middle, middle + 9.0 * deviation], 0.0, 2.0)
        pieces = np.concatenate([[0.0], edges, [2.0]])
        below = sum(
            quad(lambda x, v, d: norm.pdf(x) * norm.cdf(v, 1.0 + correlation * x, d), a, b, (value, deviation))[0]
            for a, b in pairwise(pieces)
        )
        assert below / (norm.cdf(2.0) - 0.5) == pytest.approx(expected, abs=1e-9)


def test_a_million_draws_agree() -> None:
    rng = np.random.default_rng(1)
    mixture = make(9, n=1, size=2)
    label = rng.choice(3, 1_000_000, p=mixture.weights[0])
    roots = np.linalg.cholesky(mixture.covariances[0])
    sample = mixture.means[0, label] + np.einsum("nij,nj->ni", roots[label], rng.normal(size=(len(label), 2)))
    inside = sample[(sample[:, 0] > 0.0) & (sample[:, 0] < 1.0)]
    found = truncated(mixture, 0, 0.0, 1.0)
    assert found.log_probability[0] == pytest.approx(np.log(len(inside) / len(sample)), abs=0.01)
    np.testing.assert_allclose(found.mean[0], inside.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(found.covariance[0], np.cov(inside.T), atol=0.02)
    for of in (0, 1):
        expected = np.quantile(inside[:, of], [0.1, 0.9])
        np.testing.assert_allclose(truncated_quantile(mixture, 0, 0.0, 1.0, [0.1, 0.9], of)[0], expected, atol=0.02)


def test_rows_without_weight_and_missing_ends_have_nan() -> None:
    mixture = make(0, n=4)
    mixture.weights[1] = 0.0
    low = np.array([0.0, 0.0, np.nan, 0.0])
    found = truncated(mixture, 0, low, INF)
    parts = (found.log_probability, found.mean[:, 2], found.covariance[:, 1, 0])
    for part in (*parts, *(truncated_quantile(mixture, 0, low, INF, 0.5, of) for of in (0, 1))):
        np.testing.assert_array_equal(np.isnan(part), [False, True, True, False])
    np.testing.assert_array_equal(found.weights[1:3], 0.0)


def test_components_of_weight_1e_18_and_zero_change_nothing() -> None:
    more = Mixture(
        np.array([[0.0, 1.0, 1e-18]]),
        np.array([[[np.inf, np.nan], [0.0, 1.0], [0.5, 1e3]]]),
        np.stack([np.full((2, 2), np.nan), normal().covariances[0, 0], 1e-12 * np.eye(2)])[None],
    )
    found, expected = truncated(more, 0, 0.0, 1.0), truncated(normal(), 0, 0.0, 1.0)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-10)
    for of in (0, 1):
        values = [truncated_quantile(mixture, 0, 0.0, 1.0, 0.3, of) for mixture in (more, normal())]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-12)


def test_rows_do_not_depend_on_their_company_and_have_ends_of_their_own() -> None:
    whole, low = make(6, n=5), np.array([-1.0, 0.0, 1.0, -INF, 20.0])
    high = np.array([0.0, INF, 1.0, 0.5, 21.0])
    found = truncated(whole, 1, low, high)
    values = [truncated_quantile(whole, 1, low, high, [0.1, 0.7], of) for of in (1, 2)]
    for n in range(5):
        alone, ends = whole.select(slice(n, n + 1)), (low[n], high[n])
        own = truncated(alone, 1, *ends)
        np.testing.assert_array_equal(own.covariance[0], found.covariance[n])
        np.testing.assert_array_equal(own.log_probability[0], found.log_probability[n])
        for of, value in zip((1, 2), values, strict=True):
            np.testing.assert_array_equal(truncated_quantile(alone, 1, *ends, [0.1, 0.7], of)[0], value[n])


def test_intervals_without_values_and_wrong_levels_and_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no value lies between 1\.0 and 0\.0 \(row 1\)"):
        truncated(make(0), 0, np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    for low, high in [(INF, INF), (-INF, -INF)]:
        with pytest.raises(ValueError, match="no value lies between"):
            truncated(make(0), 0, low, high)
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, not 1\.0"):
        truncated_quantile(make(0), 0, 0.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="dimensions 0 to 2, not 3"):
        truncated(make(0), 3, 0.0, 1.0)
