"""Distribution functions, quantiles and shortest intervals of one-dimensional mixtures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtri, ndtri_exp
from scipy.stats import norm

from specinvert.gllim.mixtures.quantiles import cdf, highest_density, normal_score, quantile, score_quantile

pytestmark = pytest.mark.oracle

LEVELS = (1e-6, 0.025, 0.5, 0.84, 0.975, 1.0 - 1e-6)


def make(seed: int, n: int = 5, n_components: int = 4, spread: float = 3.0) -> tuple[np.ndarray, ...]:
    """Weights, means, variances (n, A): variances over six decades, some weights zero or 1e-18."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components), n)
    weights[:, 1:] *= rng.choice([0.0, 1e-18, 1.0, 1.0], (n, n_components - 1))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights, spread * rng.normal(size=(n, n_components)), 10.0 ** rng.uniform(-4.0, 2.0, (n, n_components))


def below(x: float, weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> float:
    return float(weights @ norm.cdf((x - means) / np.sqrt(variances)))


def density(x: np.ndarray, mixture: tuple[np.ndarray, ...]) -> np.ndarray:
    weights, means, variances = mixture
    return (weights * norm.pdf(x[:, None], means, np.sqrt(variances))).sum(axis=1)


mixtures = st.builds(
    make,
    seed=st.integers(0, 2**32 - 1),
    n_components=st.integers(1, 6),
    spread=st.sampled_from([0.0, 0.3, 3.0, 1e4]),
)


@given(mixtures, st.floats(-10.0, 10.0))
def test_cdf_is_that_of_scipy(mixture: tuple[np.ndarray, ...], value: float) -> None:
    found = cdf(*mixture, np.full(5, value))
    np.testing.assert_allclose(found, [below(value, *row) for row in zip(*mixture, strict=True)], rtol=1e-12)


@settings(max_examples=20)
@given(mixtures)
def test_quantiles_are_the_roots_that_brentq_finds(mixture: tuple[np.ndarray, ...]) -> None:
    found = quantile(*mixture, LEVELS)
    for row, values in zip(zip(*mixture, strict=True), found, strict=True):
        deviations = np.sqrt(row[2][row[0] > 1e-12])
        ends = row[1].min() - 10.0 * deviations.max() - 1.0, row[1].max() + 10.0 * deviations.max() + 1.0
        for level, value in zip(LEVELS[1:5], values[1:5], strict=True):
            expected = brentq(lambda x, p, r: below(x, *r) - p, *ends, args=(level, row), xtol=1e-15, rtol=1e-15)
            slope = (row[0] * norm.pdf(expected, row[1], np.sqrt(row[2]))).sum()
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-12 + 1e-14 / slope)


@given(mixtures)
def test_levels_come_back_from_their_quantiles_in_the_tails_too(mixture: tuple[np.ndarray, ...]) -> None:
    for level in (1e-15, 1e-9, 0.2):
        values = quantile(*mixture, level)
        blur = 2e-15 * np.abs(values) * density(values, mixture)
        assert (np.abs(cdf(*mixture, values) - level) <= 1e-11 * level + blur).all()


@given(mixtures)
def test_quantiles_of_the_mirrored_mixture_are_mirrored(mixture: tuple[np.ndarray, ...]) -> None:
    weights, means, variances = mixture
    np.testing.assert_array_equal(quantile(weights, -means, variances, 0.75), -quantile(*mixture, 0.25))


def test_median_between_far_modes_of_equal_weight_is_their_middle() -> None:
    for far in (10.0, 60.0):
        assert quantile([[0.5, 0.5]], [[0.0, far]], [[1.0, 1.0]], 0.5)[0] == pytest.approx(far / 2, abs=1e-10)


def test_levels_on_either_side_of_a_flat_stretch_lie_on_its_sides() -> None:
    far = np.array([[0.5, 0.5]]), np.array([[0.0, 1e9]]), np.array([[1.0, 1e-12]])
    low, high = quantile(*far, [0.5 - 1e-9, 0.5 + 1e-9])[0]
    assert low == pytest.approx(norm.ppf(1.0 - 2e-9), rel=1e-7)
    assert high == pytest.approx(1e9, abs=1e-4)


def test_a_component_of_weight_1e_18_or_of_tiny_variance_does_no_harm() -> None:
    own = np.array([[1.0, 1e-18, 0.0]]), np.array([[2.0, 1e15, np.inf]]), np.array([[9.0, 1e-12, np.nan]])
    np.testing.assert_allclose(quantile(*own, [0.1, 0.9])[0], norm.ppf([0.1, 0.9], 2.0, 3.0), rtol=1e-13)
    np.testing.assert_allclose(np.ravel(highest_density(*own, 0.9)), norm.ppf([0.05, 0.95], 2.0, 3.0), rtol=1e-8)
    narrow = np.array([[0.5, 0.5]]), np.array([[0.0, 0.0]]), np.array([[1e6, 1e-6]])
    expected = brentq(lambda x: below(x, narrow[0][0], narrow[1][0], narrow[2][0]) - 0.6, 0.0, 1e3, xtol=1e-14)
    assert quantile(*narrow, 0.6)[0] == pytest.approx(expected, rel=1e-12)


def test_one_component_has_the_normal_quantiles_and_interval() -> None:
    one = np.ones((1, 1)), np.full((1, 1), 3.0), np.full((1, 1), 4.0)
    np.testing.assert_allclose(quantile(*one, LEVELS)[0], norm.ppf(LEVELS, 3.0, 2.0), rtol=1e-14)
    np.testing.assert_allclose(np.ravel(highest_density(*one, 0.9)), norm.ppf([0.05, 0.95], 3.0, 2.0), rtol=1e-14)


def test_equal_components_are_one() -> None:
    twice = np.array([[0.3, 0.7]]), np.full((1, 2), 3.0), np.full((1, 2), 4.0)
    assert quantile(*twice, 0.2)[0] == pytest.approx(norm.ppf(0.2, 3.0, 2.0), rel=1e-14)
    np.testing.assert_allclose(np.ravel(highest_density(*twice, 0.9)), norm.ppf([0.05, 0.95], 3.0, 2.0), rtol=1e-9)


@given(mixtures, st.sampled_from([0.05, 0.5, 0.9, 0.999]))
def test_shortest_interval_holds_its_mass_and_none_on_a_fine_grid_is_shorter(
    mixture: tuple[np.ndarray, ...], mass: float
) -> None:
    lower, upper = highest_density(*mixture, mass)
    blur = 4e-16 * (np.abs(lower) * density(lower, mixture) + np.abs(upper) * density(upper, mixture))
    assert (np.abs(cdf(*mixture, upper) - cdf(*mixture, lower) - mass) <= 1e-12 + 4.0 * blur).all()
    levels = (1.0 - mass) * np.linspace(0.0, 1.0, 402)[1:-1]
    shortest = (quantile(*mixture, levels + mass) - quantile(*mixture, levels)).min(axis=1)
    scale = np.abs(mixture[1]).max(axis=1)
    assert (upper - lower <= shortest + 1e-10 * shortest + 1e-14 * scale).all()


def test_ends_of_the_shortest_interval_have_equal_density() -> None:
    mixture = make(3, n=200, n_components=5, spread=1.0)
    mixture[2][:] = np.maximum(mixture[2], 0.01)
    lower, upper = highest_density(*mixture, 0.8)
    np.testing.assert_allclose(density(lower, mixture), density(upper, mixture), rtol=1e-8)


def test_shortest_interval_chooses_the_narrower_of_two_far_modes() -> None:
    lower, upper = highest_density([[0.5, 0.5]], [[0.0, 100.0]], [[1.0, 0.01]], 0.4)
    np.testing.assert_allclose([lower[0], upper[0]], norm.ppf([0.1, 0.9], 100.0, 0.1), rtol=1e-10)


def test_a_million_draws_agree() -> None:
    rng = np.random.default_rng(5)
    weights, means, deviations = np.array([0.2, 0.5, 0.3]), np.array([-2.0, 0.0, 3.0]), np.array([0.5, 1.0, 2.0])
    label = rng.choice(3, 1_000_000, p=weights)
    sample = np.sort(means[label] + deviations[label] * rng.normal(size=len(label)))
    row = weights[None], means[None], deviations[None] ** 2
    np.testing.assert_allclose(quantile(*row, [0.05, 0.5, 0.95])[0], np.quantile(sample, [0.05, 0.5, 0.95]), atol=0.02)
    lengths = sample[800_000:] - sample[: len(sample) - 800_000]
    lower, upper = highest_density(*row, 0.8)
    assert upper[0] - lower[0] == pytest.approx(lengths.min(), abs=0.02)
    transform = cdf(*(np.repeat(part, 5000, axis=0) for part in row), sample[::200])
    np.testing.assert_allclose(transform, np.arange(0, 1_000_000, 200) / 1e6, atol=0.003)


def test_rows_without_weight_and_missing_truths_have_nan() -> None:
    weights, means, variances = make(0)
    weights[2] = 0.0
    values = np.array([0.0, np.nan, 0.0, np.inf, -np.inf])
    np.testing.assert_array_equal(np.isnan(cdf(weights, means, variances, values)), [False, True, True, False, False])
    assert cdf(weights, means, variances, values)[3:].tolist() == [1.0, 0.0]
    for found in (quantile(weights, means, variances, 0.3), *highest_density(weights, means, variances, 0.9)):
        np.testing.assert_array_equal(np.isnan(found), [False, False, True, False, False])


def test_rows_do_not_depend_on_their_company() -> None:
    whole = make(7, n=9)
    for n in range(9):
        alone = tuple(part[n : n + 1] for part in whole)
        np.testing.assert_array_equal(quantile(*alone, LEVELS)[0], quantile(*whole, LEVELS)[n])
        np.testing.assert_array_equal(
            np.ravel(highest_density(*alone, 0.9)), np.stack(highest_density(*whole, 0.9))[:, n]
        )
        np.testing.assert_array_equal(cdf(*alone, [0.5]), cdf(*whole, np.full(9, 0.5))[n : n + 1])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_levels_outside_are_refused_by_value(level: float) -> None:
    with pytest.raises(ValueError, match=f"level must be between 0 and 1, not {level}"):
        quantile(*make(0), [0.5, level])
    with pytest.raises(ValueError, match=f"mass must be between 0 and 1, not {level}"):
        highest_density(*make(0), level)


def test_one_level_gives_a_vector_and_several_a_column_each() -> None:
    assert quantile(*make(0), 0.5).shape == (5,)
    assert quantile(*make(0), [0.5]).shape == (5, 1)
    assert [len(part) for part in highest_density(*make(0, n=0), 0.5)] == [0, 0]


@given(mixtures)
def test_scores_are_those_of_the_distribution_function_and_quantiles_of_scores_undo_them(
    mixture: tuple[np.ndarray, ...],
) -> None:
    scores = np.array([-37.0, -29.0, -3.0, 0.0, 0.5, 6.0, 29.0, 45.0])
    found = score_quantile(*mixture, scores)
    assert (np.diff(found, axis=1) > 0.0).all()
    np.testing.assert_allclose(found[:, 2:5], quantile(*mixture, norm.cdf(scores[2:5])), rtol=1e-9, atol=1e-11)
    for i in range(1, 7):
        spacing = np.abs(np.spacing(found[:, i])) / np.sqrt(mixture[2].min(axis=1))
        error = np.abs(normal_score(*mixture, found[:, i]) - scores[i])
        assert (error <= 1e-6 + 100.0 * spacing * np.maximum(np.abs(scores[i]), 1.0)).all()


def test_scores_are_finite_where_the_distribution_function_is_0_or_1() -> None:
    one = np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), 4.0)
    np.testing.assert_allclose(
        [normal_score(*one, np.array([x]))[0] for x in (-200.0, 40.0, 1e3)], [-100.0, 20.0, 500.0]
    )
    np.testing.assert_allclose(score_quantile(*one, np.array([-50.0, 20.0, 60.0])), [[-100.0, 40.0, 120.0]])
    two = np.array([[0.3, 0.7]]), np.array([[0.0, 1.0]]), np.ones((1, 2))
    log_tail = norm.logsf(39.0) + np.log(0.7) + np.log1p(0.3 / 0.7 * np.exp(norm.logsf(40.0) - norm.logsf(39.0)))
    assert normal_score(*two, np.array([40.0]))[0] == pytest.approx(-ndtri_exp(log_tail), rel=1e-12)
    assert normal_score(*two, np.array([0.2]))[0] == pytest.approx(ndtri(cdf(*two, np.array([0.2]))[0]), rel=1e-12)
    nothing = np.zeros((1, 1)), np.zeros((1, 1)), np.ones((1, 1))
    assert np.isnan(normal_score(*nothing, np.array([0.0]))[0])
    assert np.isnan(normal_score(*one, np.array([np.nan]))[0])
