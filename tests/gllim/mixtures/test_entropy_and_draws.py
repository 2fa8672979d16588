"""Entropy, continuous ranked probability score and draws of mixtures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import kstest, multivariate_normal, norm

from specinvert.gllim.mixtures.entropy_and_draws import crps, draws, entropy, philox
from specinvert.gllim.mixtures.mixture import Mixture
from strategies import SEEDS, covariances

pytestmark = pytest.mark.oracle


def make(seed: int, n: int = 4, n_components: int = 3, size: int = 2, spread: float = 1.5) -> Mixture:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_components), n)
    spreads = covariances(rng, n * n_components, size).reshape(n, n_components, size, size)
    spreads *= rng.choice([0.1, 1.0], (n, n_components, 1, 1))
    return Mixture(weights, spread * rng.normal(size=(n, n_components, size)), spreads)


def components(mixture: Mixture, row: int) -> list[tuple[np.ndarray, ...]]:
    return list(zip(mixture.weights[row], mixture.means[row], mixture.covariances[row], strict=True))


@given(SEEDS, st.integers(1, 5))
def test_entropy_of_one_component_is_exact(seed: int, size: int) -> None:
    mixture = make(seed, n_components=1, size=size)
    expected = [multivariate_normal(m, s).entropy() for row in range(4) for _, m, s in components(mixture, row)]
    np.testing.assert_allclose(entropy(mixture), expected, rtol=1e-12, atol=1e-12)


@given(SEEDS, st.integers(1, 5), st.integers(2, 6))
def test_entropy_lies_between_that_without_and_with_the_component(seed: int, size: int, n_components: int) -> None:
    mixture = make(seed, n_components=n_components, size=size)
    own = 0.5 * np.linalg.slogdet(2.0 * np.pi * np.e * mixture.covariances)[1]
    most = (mixture.weights * (own - np.log(mixture.weights))).sum(axis=1)
    found = entropy(mixture)
    assert (found <= most + 1e-12).all()
    assert (found >= (mixture.weights * own).sum(axis=1) - 0.02).all()


def test_entropy_is_exact_for_far_and_for_equal_components() -> None:
    far = make(1, n=3, size=3, spread=1e6)
    own = 0.5 * np.linalg.slogdet(2.0 * np.pi * np.e * far.covariances)[1]
    np.testing.assert_allclose(entropy(far), (far.weights * (own - np.log(far.weights))).sum(axis=1), rtol=1e-12)
    one = make(2, n=1, n_components=1)
    twice = Mixture(np.array([[0.3, 0.7, 0.0]]), np.repeat(one.means, 3, axis=1), np.repeat(one.covariances, 3, axis=1))
    np.testing.assert_allclose(entropy(twice), entropy(one), rtol=1e-12)


@given(SEEDS, st.integers(2, 6))
def test_entropy_in_one_dimension_is_the_integral_to_three_hundredths(seed: int, n_components: int) -> None:
    mixture = make(seed, n=1, n_components=n_components, size=1)
    weights, means, deviations = mixture.weights[0], mixture.means[0, :, 0], np.sqrt(mixture.covariances[0, :, 0, 0])
    x = np.linspace(means.min() - 10.0, means.max() + 10.0, 20001)
    density = (weights * norm.pdf(x[:, None], means, deviations)).sum(axis=1)
    expected = -(density * np.log(np.maximum(density, 1e-300))).sum() * (x[1] - x[0])
    assert entropy(mixture)[0] == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("size", [2, 4])
def test_entropy_agrees_with_a_million_draws(size: int) -> None:
    mixture = make(3, n=1, size=size)
    sample = draws(mixture, 1_000_000, 0, np.zeros(1, dtype=int))[0]
    density = np.zeros(len(sample))
    for weight, mean, spread in components(mixture, 0):
        white = np.linalg.solve(np.linalg.cholesky(spread), (sample - mean).T)
        density += weight / np.sqrt(np.linalg.det(2.0 * np.pi * spread)) * np.exp(-0.5 * (white**2).sum(axis=0))
    assert entropy(mixture)[0] == pytest.approx(-np.log(density).mean(), abs=0.03)


def marginals(seed: int, n_components: int) -> tuple[np.ndarray, ...]:
    return make(seed, n=1, n_components=n_components, size=1).marginal(0)


@given(SEEDS, st.integers(1, 5), st.floats(-6.0, 6.0))
def test_crps_is_the_integral_of_the_squared_error_of_the_distribution(seed: int, size: int, truth: float) -> None:
    row = marginals(seed, size)

    def squared(x: float) -> float:
        below = float((row[0] * norm.cdf(x, row[1], np.sqrt(row[2]))).sum())
        return (below - (x >= truth)) ** 2

    ends = min(truth, row[1].min()) - 12.0, max(truth, row[1].max()) + 12.0
    x = np.linspace(*ends, 10001)
    below = (row[0] * norm.cdf(x[:, None], row[1], np.sqrt(row[2]))).sum(axis=1)
    step = x[1] - x[0]
    rough = step * ((below - (x >= truth)) ** 2).sum()
    assert crps(*row, [truth])[0] == pytest.approx(rough, abs=2.0 * step)
    if seed % 8 == 0:
        exact = quad(squared, ends[0], truth, epsabs=1e-11)[0] + quad(squared, truth, ends[1], epsabs=1e-11)[0]
        assert crps(*row, [truth])[0] == pytest.approx(exact, abs=1e-7)


def test_crps_of_one_normal_is_its_closed_form_and_that_of_quad() -> None:
    z = 0.7
    expected = 2.0 * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))
    assert crps([[1.0, 0.0]], [[1.0, np.nan]], [[4.0, np.nan]], [1.0 + 2.0 * z])[0] == pytest.approx(
        expected, rel=1e-14
    )
    row = np.array([[0.3, 0.7]]), np.array([[0.0, 2.0]]), np.array([[1.0, 0.25]])
    below = lambda x: 0.3 * norm.cdf(x) + 0.7 * norm.cdf(x, 2.0, 0.5)  # noqa: E731
    lower, upper = quad(lambda x: below(x) ** 2, -10, 1.2)[0], quad(lambda x: (1 - below(x)) ** 2, 1.2, 12)[0]
    assert crps(*row, [1.2])[0] == pytest.approx(lower + upper, abs=1e-8)


def test_crps_agrees_with_a_million_draws() -> None:
    mixture = make(6, n=1, size=1)
    sample = draws(mixture, 1_000_000, 1, np.zeros(1, dtype=int))[0, :, 0]
    expected = np.abs(sample - 0.4).mean() - 0.5 * np.abs(sample[::2] - sample[1::2]).mean()
    assert crps(*mixture.marginal(0), [0.4])[0] == pytest.approx(expected, abs=0.005)


def test_philox_gives_the_known_answers() -> None:
    """The vectors kat_vectors of Random123 for philox4x32, ten rounds."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    for counter, key, expected in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (*pi, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):
        word = np.empty(4, dtype=np.uint64)
        philox(np.array(counter, dtype=np.uint64), np.array(key, dtype=np.uint64), word)
        assert tuple(int(value) for value in word) == expected


def test_draws_have_the_distribution_of_the_mixture() -> None:
    mixture = make(4, n=1, size=3)
    sample = draws(mixture, 200_000, 7, np.array([3]))[0]
    mean, covariance = mixture.moments()
    np.testing.assert_allclose(sample.mean(axis=0), mean[0], atol=0.02)
    np.testing.assert_allclose(np.cov(sample.T), covariance[0], atol=0.05)
    for index in range(3):
        weights, means, variances = (part[0] for part in mixture.marginal(index))
        found = kstest(
            sample[::20, index],
            lambda x, *p: norm.cdf(x[:, None], p[1], p[2]) @ p[0],
            (weights, means, np.sqrt(variances)),
        )
        assert found.pvalue > 1e-3


def test_draws_of_different_rows_and_seeds_are_independent() -> None:
    same = make(5, n=1, n_components=1, size=2)
    many = Mixture(*(np.repeat(part, 2000, axis=0) for part in (same.weights, same.means, same.covariances)))
    first, other = (draws(many, 4, seed, np.arange(2000)) for seed in (1, 2))
    columns = np.concatenate(
        [first.reshape(2000, 8), other.reshape(2000, 8), first[np.arange(2000) - 1].reshape(2000, 8)], axis=1
    )
    correlation = np.corrcoef(columns.T)
    blocks = np.kron(np.eye(12), np.ones((2, 2)))
    assert np.abs(correlation[blocks == 0.0]).max() < 0.1
    assert len(np.unique(first)) == first.size


def test_a_row_of_draws_depends_on_seed_and_number_alone() -> None:
    whole, rows = make(8, n=7, size=3), np.arange(7) + 2**33
    found = draws(whole, 5, 11, rows)
    for n in range(7):
        alone = whole.select(slice(n, n + 1))
        np.testing.assert_array_equal(draws(alone, 5, 11, rows[n : n + 1])[0], found[n])
        np.testing.assert_array_equal(draws(alone, 2, 11, rows[n : n + 1])[0], found[n, :2])
        assert (draws(alone, 5, 12, rows[n : n + 1])[0] != found[n]).all()
        assert (draws(alone, 5, 11, rows[n : n + 1] - 2**33)[0] != found[n]).all()


def test_entropy_and_crps_of_a_row_do_not_depend_on_its_company() -> None:
    whole = make(9, n=6)
    for n in range(6):
        alone = whole.select(slice(n, n + 1))
        assert entropy(alone)[0] == entropy(whole)[n]
        assert crps(*alone.marginal(1), [0.3])[0] == crps(*whole.marginal(1), np.full(6, 0.3))[n]


def test_rows_without_weight_and_missing_truths_have_nan() -> None:
    mixture = make(0)
    mixture.weights[1] = 0.0
    np.testing.assert_array_equal(np.isnan(entropy(mixture)), [False, True, False, False])
    score = crps(*mixture.marginal(0), [0.0, 0.0, np.nan, 0.0])
    np.testing.assert_array_equal(np.isnan(score), [False, True, True, False])
    sample = draws(mixture, 3, 0, np.arange(4))
    np.testing.assert_array_equal(np.isnan(sample).all(axis=(1, 2)), [False, True, False, False])
    assert np.isfinite(sample[[0, 2, 3]]).all()


def test_components_of_weight_1e_18_and_zero_change_nothing() -> None:
    one = make(1, n=1, n_components=1, size=2)
    more = Mixture(
        np.array([[0.0, 1.0, 1e-18]]),
        np.concatenate([np.full((1, 1, 2), np.nan), one.means, np.full((1, 1, 2), 1e3)], axis=1),
        np.concatenate([np.full((1, 1, 2, 2), np.nan), one.covariances, 1e-12 * np.eye(2)[None, None]], axis=1),
    )
    rows = np.zeros(1, dtype=int)
    np.testing.assert_allclose(entropy(more), entropy(one), rtol=1e-13)
    np.testing.assert_allclose(crps(*more.marginal(0), [1.0]), crps(*one.marginal(0), [1.0]), rtol=1e-13)
    np.testing.assert_array_equal(draws(more, 100, 3, rows), draws(one, 100, 3, rows))


def test_negative_seeds_and_rows_and_rows_of_another_length_are_refused() -> None:
    mixture = make(0)
    with pytest.raises(ValueError, match="seed must not be negative: -1"):
        draws(mixture, 1, -1, np.arange(4))
    with pytest.raises(ValueError, match="rows must not be negative: -2"):
        draws(mixture, 1, 0, np.arange(4) - 2)
    with pytest.raises(ValueError, match=r"rows must be of shape \(4,\), not \(3,\)"):
        draws(mixture, 1, 0, np.arange(3))
