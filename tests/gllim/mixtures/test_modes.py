"""Modes of mixtures, their number, and mixtures merged into fewer components."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal

from specinvert.gllim.mixtures.mixture import NORMAL, NORMAL_REACH, NORMAL_STEPS, PLAIN, Mixture, merged, separated
from specinvert.gllim.mixtures.modes import count_modes, highest_mode, list_modes
from specinvert.gllim.mixtures.quantiles import quantile
from specinvert.gllim.posterior.forward import ForwardTerms
from specinvert.gllim.posterior.posterior import Posterior, SideInformation, posterior_blocks, two_solutions_of
from strategies import SEEDS, covariances, random_theta

pytestmark = pytest.mark.oracle


def make(seed: int, n: int = 4, n_components: int = 4, size: int = 2, spread: float = 1.5) -> Mixture:
    """Unequal covariances, scales of the dimensions far apart."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components), n)
    scale = 10.0 ** rng.uniform(-3.0, 3.0, size)
    spreads = covariances(rng, n * n_components, size).reshape(n, n_components, size, size)
    spreads *= rng.choice([0.1, 1.0], (n, n_components, 1, 1))
    means = spread * rng.normal(size=(n, n_components, size)) * scale
    return Mixture(weights, means, spreads * scale[:, None] * scale)


def log_densities(x: np.ndarray, mixture: Mixture, row: int = 0) -> np.ndarray:
    """At x (m, L)."""
    parts = []
    for weight, mean, spread in zip(mixture.weights[row], mixture.means[row], mixture.covariances[row], strict=True):
        deviation = np.sqrt(np.diagonal(spread))
        z = (x - mean) / deviation
        correlation = spread / np.outer(deviation, deviation)
        normal = multivariate_normal(np.zeros(len(mean)), correlation).logpdf(z)
        parts.append(np.log(weight / deviation.prod()) + np.atleast_1d(normal))
    return np.asarray(logsumexp(parts, axis=0))


mixtures = st.builds(
    make,
    seed=SEEDS,
    n_components=st.integers(1, 6),
    size=st.integers(1, 4),
    spread=st.sampled_from([0.0, 0.5, 1.5, 5.0]),
)


@settings(max_examples=25)
@given(mixtures)
def test_modes_are_local_maxima_and_the_highest_is_given(mixture: Mixture) -> None:
    point, height, _ = highest_mode(mixture)
    points, mass, heights = list_modes(mixture)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(np.nanmax(heights, axis=1), height)
    np.testing.assert_allclose(np.nansum(mass, axis=1), 1.0, rtol=1e-9)
    deviations = np.sqrt(np.einsum("nakk->nak", mixture.covariances).min(axis=1))
    for row in range(len(mixture)):
        assert log_densities(point[row][None], mixture, row)[0] == pytest.approx(height[row], abs=1e-9)
        found = np.isfinite(heights[row])
        for mode, top in zip(points[row, found], heights[row, found], strict=True):
            steps = 1e-3 * deviations[row] * rng.normal(size=(8, mixture.n_dimensions))
            assert log_densities(mode + steps, mixture, row).max() <= top + 1e-12


@given(SEEDS, st.integers(1, 5))
def test_no_point_on_a_fine_line_is_higher_than_the_highest_mode(seed: int, n_components: int) -> None:
    mixture = make(seed, 1, n_components, size=1)
    _, height, _ = highest_mode(mixture)
    line = np.linspace(mixture.means.min(), mixture.means.max(), 3001)[:, None]
    densities = log_densities(line, mixture)
    assert densities.max() <= height[0] + 1e-12
    step = (line[1] - line[0]) ** 2 / mixture.covariances.min()
    assert densities.max() >= height[0] - step - 1e-12


@pytest.mark.parametrize(("spread", "least"), [(0.5, 0.93), (1.5, 0.98), (4.0, 0.995)])
def test_counting_alone_finds_as_many_modes_unless_they_are_faint(spread: float, least: float) -> None:
    pairs = [
        (highest_mode(mixture)[2], count_modes(mixture)) for mixture in (make(s, 50, 4, 3, spread) for s in range(20))
    ]
    climbed, counted = (np.concatenate(part) for part in zip(*pairs, strict=True))
    assert (climbed > 1).mean() > 0.1
    assert (climbed == counted).mean() >= least


@given(SEEDS, st.integers(1, 3), st.booleans())
def test_solutions_of_posteriors_are_told_apart_without_writing_them_out(seed: int, size: int, known: bool) -> None:
    theta = random_theta(seed, 5, 4, 3, 1, "diag")
    spectra = theta.centres()[np.arange(40) % 5] + np.random.default_rng(seed).normal(size=(40, 4))
    given = SideInformation(known=np.tile([0.1, np.nan, np.nan], (40, 1)) if known else None)
    for block in posterior_blocks(ForwardTerms.of(theta), spectra, given=given):
        if isinstance(block.posterior, Posterior):
            size = min(size, 3 - known)
            mixture, scales = block.posterior.mixture(size), np.tile(PLAIN, (size, 1))
            found = two_solutions_of(block.posterior, scales)
            for i in range(size):
                np.testing.assert_array_equal(found[:, i], separated(*mixture.marginal(i)))


def intervals_apart(weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Greatest gap (n,) between central 90 % intervals of what lies on either side of a value, over the longer one."""
    p = np.linspace(1 / 9, 8 / 9, 120)
    levels = np.concatenate([0.05 * p, 0.95 * p, p + 0.05 * (1 - p), 1 - 0.05 * (1 - p)])
    a, b, c, d = quantile(weights, means, variances, levels).reshape(len(weights), 4, -1).transpose(1, 0, 2)
    return np.asarray(((c - b) / np.maximum(b - a, d - c)).max(axis=1))


@settings(max_examples=10)
@given(SEEDS, st.integers(2, 7), st.sampled_from([0.5, 1.5, 5.0]))
def test_two_solutions_are_apart_by_more_than_the_wider_one(seed: int, n_components: int, spread: float) -> None:
    weights, means, variances = make(seed, 25, n_components, 1, spread).marginal(0)
    ratio, found = intervals_apart(weights, means, variances), separated(weights, means, variances)
    assert not found[ratio < 0.9].any()
    assert found[ratio > 1.6].all()
    shift, times = 3.0, 1e3
    np.testing.assert_array_equal(separated(weights, shift + times * means, times**2 * variances), found)
    halves = np.repeat(means, 2, axis=1), np.repeat(variances, 2, axis=1)
    np.testing.assert_array_equal(separated(np.repeat(weights / 2, 2, axis=1), *halves), found)


def test_the_table_of_the_normal_distribution_is_at_its_steps() -> None:
    z = np.arange(len(NORMAL) - 1) / NORMAL_STEPS - NORMAL_REACH
    np.testing.assert_allclose(NORMAL[:-1], ndtr(z), atol=3e-7)


def test_lengths_count_on_the_scale_that_is_given() -> None:
    weights, means, variances = np.array([[0.5, 0.5]]), np.array([[-9.0, -4.0]]), np.array([[0.25, 0.25]])
    assert separated(weights, means, variances)
    z = np.linspace(-12.0, 12.0, 257)
    assert not separated(weights, means, variances, np.array([z[0], z[1] - z[0], *np.exp(z)]))


@given(mixtures)
def test_modes_with_a_tenth_of_the_mass_are_counted(mixture: Mixture) -> None:
    _, mass, _ = list_modes(mixture)
    expected = (np.nan_to_num(mass) >= 0.1).sum(axis=1)
    np.testing.assert_array_equal(highest_mode(mixture)[2], expected)
    assert (np.diff(np.nan_to_num(mass), axis=1) <= 0.0).all()


def pair(gap: float, weight: float = 0.5, size: int = 1) -> Mixture:
    means = np.zeros((1, 2, size))
    means[0, 1] = gap / np.sqrt(size)
    return Mixture(np.array([[weight, 1.0 - weight]]), means, np.broadcast_to(np.eye(size), (1, 2, size, size)))


@pytest.mark.parametrize("size", [1, 3, 6])
def test_equal_normals_have_two_modes_from_two_deviations_on(size: int) -> None:
    assert count_modes(pair(1.9, size=size))[0] == 1
    assert count_modes(pair(2.1, size=size))[0] == 2
    point, _, count = highest_mode(pair(1.9, size=size))
    assert count[0] == 1
    np.testing.assert_allclose(point[0], 0.95 / np.sqrt(size), atol=1e-6)


def test_far_modes_are_at_the_means_with_their_weights_as_mass() -> None:
    points, mass, height = list_modes(pair(1e6, 0.3))
    np.testing.assert_allclose(points[0, :, 0], [1e6, 0.0], atol=1e-9)
    np.testing.assert_allclose(mass[0], [0.7, 0.3], rtol=1e-14)
    np.testing.assert_allclose(height[0], np.log([0.7, 0.3]) - 0.5 * np.log(2 * np.pi), rtol=1e-14)


def test_a_light_far_component_is_a_mode_that_is_not_counted() -> None:
    light = pair(50.0, 0.05)
    assert np.isfinite(list_modes(light)[1]).sum() == 2
    assert highest_mode(light)[2][0] == count_modes(light)[0] == 1
    assert highest_mode(light)[0][0, 0] == pytest.approx(50.0, abs=1e-9)


def test_the_highest_mode_may_have_little_mass() -> None:
    narrow = Mixture(np.array([[0.95, 0.05]]), np.array([[[0.0], [4.0]]]), np.array([[[[1.0]], [[1e-6]]]]))
    point, _, count = highest_mode(narrow)
    assert point[0, 0] == pytest.approx(4.0, abs=1e-3)
    assert count[0] == 1


def test_components_of_weight_1e_18_and_zero_change_nothing() -> None:
    own = pair(3.0, 0.4)
    more = Mixture(
        np.array([[0.0, 0.4, 1e-18, 0.6]]),
        np.array([[[np.inf], [0.0], [7.0], [3.0]]]),
        np.array([[[[np.nan]], [[1.0]], [[1e-12]], [[1.0]]]]),
    )
    for found, expected in zip(
        (*highest_mode(more), *list_modes(more)), (*highest_mode(own), *list_modes(own)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mean_on_a_saddle_does_not_stop_there() -> None:
    means = np.array([[[-3.0, 0.0], [3.0, 0.0], [0.0, 0.0]]])
    spreads = np.array([[np.eye(2), np.eye(2), 400.0 * np.eye(2)]])
    saddle = Mixture(np.array([[0.45, 0.45, 0.1]]), means, spreads)
    points, mass, _ = list_modes(saddle)
    assert mass.shape == (1, 2)
    np.testing.assert_allclose(np.sort(points[0, :, 0]), [-3.0, 3.0], atol=0.05)
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-14)


def test_no_cell_of_a_million_draws_is_denser_than_the_highest_mode() -> None:
    rng = np.random.default_rng(2)
    mixture = make(11, n=1, n_components=3, size=1)
    label = rng.choice(3, 1_000_000, p=mixture.weights[0])
    deviation = np.sqrt(mixture.covariances[0, label, 0, 0])
    sample = mixture.means[0, label, 0] + deviation * rng.normal(size=len(label))
    counts, edges = np.histogram(sample, bins=60)
    point, height, _ = highest_mode(mixture)
    width = edges[1] - edges[0]
    best = int(np.argmax(counts))
    assert abs(point[0, 0] - 0.5 * (edges[best] + edges[best + 1])) <= 1.5 * width
    assert counts[best] / (1e6 * width) == pytest.approx(np.exp(height[0]), rel=0.05)


def test_rows_without_weight_have_nan_and_no_modes() -> None:
    mixture = make(0)
    mixture.weights[1] = 0.0
    point, height, count = highest_mode(mixture)
    assert np.isnan(point[1]).all()
    assert np.isnan(height[1])
    assert count[1] == count_modes(mixture)[1] == 0
    assert all(np.isnan(part[1]).all() for part in list_modes(mixture))
    assert np.isfinite(point[[0, 2, 3]]).all()
    np.testing.assert_array_equal(merged(mixture, 2).weights[1], 0.0)
    mixture.weights[:] = 0.0
    assert list_modes(mixture)[0].shape == (4, 0, 2)


def test_rows_do_not_depend_on_their_company() -> None:
    whole = make(5, n=6, n_components=5, size=3)
    for n in range(6):
        alone = whole.select(slice(n, n + 1))
        for found, expected in zip(
            (*highest_mode(alone), count_modes(alone)), (*highest_mode(whole), count_modes(whole)), strict=True
        ):
            np.testing.assert_array_equal(found[0], expected[n])
        for found, expected in zip(list_modes(alone), list_modes(whole), strict=True):
            np.testing.assert_array_equal(found[0], expected[n, : found.shape[1]])
        np.testing.assert_array_equal(merged(alone, 2).covariances[0], merged(whole, 2).covariances[n])


@given(mixtures, st.integers(1, 5))
def test_merging_keeps_mean_covariance_and_weight(mixture: Mixture, n_components: int) -> None:
    fewer = merged(mixture, n_components)
    assert fewer.weights.shape[1] == min(n_components, mixture.weights.shape[1])
    np.testing.assert_allclose(fewer.weights.sum(axis=1), 1.0, rtol=1e-13)
    for found, expected in zip(fewer.moments(), mixture.moments(), strict=True):
        scale = np.sqrt(np.einsum("nakk->nak", mixture.covariances) + mixture.means**2).max(axis=(0, 1))
        scale = scale if expected.ndim == 2 else np.outer(scale, scale)
        np.testing.assert_array_less(np.abs(found - expected) / scale, 1e-12)


def test_the_pair_that_costs_least_is_merged() -> None:
    means = np.array([[[0.0], [10.0], [0.2], [0.0]]])
    mixture = Mixture(np.array([[0.4, 0.3, 0.3, 0.0]]), means, np.ones((1, 4, 1, 1)))
    fewer = merged(mixture, 2)
    order = np.argsort(fewer.means[0, :, 0])
    np.testing.assert_allclose(fewer.means[0, order, 0], [0.6 / 7.0, 10.0], rtol=1e-12)
    np.testing.assert_allclose(fewer.covariances[0, order, 0, 0], [1.0 + 0.04 * 12.0 / 49.0, 1.0], rtol=1e-12)


def test_greedy_merging_follows_the_bound_of_runnalls() -> None:
    mixture = make(8, n=1, n_components=5, size=2)
    parts = list(zip(mixture.weights[0], mixture.means[0], mixture.covariances[0], strict=True))
    while len(parts) > 2:
        options = []
        for i in range(len(parts)):
            for j in range(i):
                (v, m, s), (w, q, r) = parts[i], parts[j]
                both, gap = v + w, m - q
                joint = (v * s + w * r) / both + v * w / both**2 * np.outer(gap, gap)
                logs = [np.linalg.slogdet(matrix)[1] for matrix in (joint, s, r)]
                options.append(
                    (both * logs[0] - v * logs[1] - w * logs[2], i, j, (both, (v * m + w * q) / both, joint))
                )
        _, i, j, new = min(options, key=lambda option: option[0])
        parts = [part for at, part in enumerate(parts) if at not in (i, j)] + [new]
    parts.sort(key=lambda part: part[0])
    fewer = merged(mixture, 2)
    order = np.argsort(fewer.weights[0])
    np.testing.assert_allclose(fewer.weights[0, order], [part[0] for part in parts], rtol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(fewer.covariances[0, order[k]], parts[k][2], rtol=1e-9)


def test_merging_into_none_is_refused_and_into_enough_changes_nothing() -> None:
    mixture = make(0)
    assert merged(mixture, 4) is mixture
    with pytest.raises(ValueError, match="at least 1, not 0"):
        merged(mixture, 0)
