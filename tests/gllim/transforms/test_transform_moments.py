"""Summaries of transformed parameters in physical units against integrals and draws."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri

from specinvert.gllim.mixtures.mixture import Mixture
from specinvert.gllim.transforms import expectations
from specinvert.gllim.transforms.physical import (
    DRAWS,
    physical_mean_and_std,
    physical_moments,
    physical_quantiles,
)
from specinvert.gllim.transforms.transforms import Transforms
from strategies import SEEDS
from transformed import ALL, NAMES, PARTS, SCALARS, SPEC, absurd, bisected, draw, integral, make_mixture, one

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("deviation", [1e-4, 0.3, 0.5, 0.8, 1.0, 1.001, 2.0, 30.0, 1e3])
@pytest.mark.parametrize("kind", ["sqrt", "logit"])
def test_moments_are_the_integrals(kind: str, deviation: float) -> None:
    for mean in (-15.0, 0.0, 0.7, 9.0):
        g = SCALARS[kind]
        found, variance = expectations.moments(kind, np.array([mean]), np.array([deviation**2]))
        expected = integral(g, mean, deviation)
        spread = math.sqrt(integral(lambda z, g=g, m=expected: (g(z) - m) ** 2, mean, deviation))
        size = 1.0 if kind == "logit" else max(expected, spread, 1e-12)
        assert abs(found[0] - expected) < 2e-7 * size
        assert abs(math.sqrt(variance[0]) - spread) < 1e-6 * size
        assert abs(math.sqrt(variance[0]) - spread) < 3e-5 * spread + 1e-10
        derivative = {"sqrt": lambda z: 2 * max(z, 0.0), "logit": lambda z: expit(z) * expit(-z)}[kind]
        slope = expectations.slope(kind, np.array([mean]), np.array([deviation**2]))[0]
        assert math.isclose(slope, integral(derivative, mean, deviation), rel_tol=1e-5, abs_tol=1e-9)


@pytest.mark.parametrize("deviation", [1e-7, 1e-3, 1.0, 3.0])
def test_lognormal_moments_are_closed(deviation: float) -> None:
    mean, std, _ = physical_mean_and_std(*one("log", 0.3, deviation))
    expected = math.exp(0.3 + deviation**2 / 2)
    assert math.isclose(mean[0, 0], expected, rel_tol=1e-14)
    assert math.isclose(std[0, 0], expected * math.sqrt(math.expm1(deviation**2)), rel_tol=1e-9)


def test_the_many_at_once_logistic_mean_is_the_careful_one() -> None:
    mean, deviation = (x.ravel() for x in np.meshgrid(np.linspace(-30, 30, 61), np.geomspace(1e-3, 1e6, 40)))
    careful = expectations.average("logit", mean, deviation**2)
    np.testing.assert_allclose(expectations.smoothed("logit", mean, deviation**2), careful, rtol=0, atol=9e-8)


CROSS = [(a, b) for i, a in enumerate(SCALARS) for b in list(SCALARS)[i:]]


@pytest.mark.parametrize("kinds", CROSS, ids="-".join)
def test_covariances_are_the_integrals(kinds: tuple[str, str]) -> None:
    nodes = np.linspace(-8, 8, 801)
    shares = np.exp(-0.5 * nodes**2) / np.exp(-0.5 * nodes**2).sum()
    for means in ((0.0, 0.3), (-3.0, 1.0)):
        for deviations in ((0.01, 0.02), (0.3, 0.7), (0.5, 2.0), (0.9, 0.5), (2.0, 1.5)):
            for correlation in (0.05, -0.6, 0.9):
                z = means[0] + deviations[0] * nodes
                given = means[1] + deviations[1] * correlation * nodes
                left = deviations[1] * math.sqrt(1 - correlation**2)
                mean = SCALARS[kinds[1]](given[:, None] + left * nodes[::2]) @ (shares[::2] / shares[::2].sum())
                first, second = SCALARS[kinds[0]](z), mean - shares @ mean
                expected = shares @ ((first - shares @ first) * second)
                scale = math.sqrt(shares @ (first - shares @ first) ** 2)
                scale *= math.sqrt(
                    expectations.moments(kinds[1], np.array([means[1]]), np.array([deviations[1] ** 2]))[1][0]
                )
                pair = (np.array([means[0]]), np.array([means[1]]))
                variances = (np.array([deviations[0] ** 2]), np.array([deviations[1] ** 2]))
                cross = np.array([correlation * deviations[0] * deviations[1]])
                found = expectations.covariance(kinds, pair, variances, cross)[0]
                assert abs(found - expected) <= 1e-4 * scale + 1e-14, (means, deviations, correlation)
                turned = expectations.covariance(kinds[::-1], pair[::-1], variances[::-1], cross)[0]
                assert math.isclose(found, turned, rel_tol=1e-3, abs_tol=1e-5 * scale + 1e-14)


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])
def test_moments_are_those_of_a_million_draws(scale: float) -> None:
    transforms = Transforms.of({**SPEC, "grain": "log" if scale < 1 else "identity"}, NAMES)
    mixture = make_mixture(5, 2, 6, scale=scale)
    mean, covariance, overflow = physical_moments(transforms, mixture)
    _, std, _ = physical_mean_and_std(transforms, mixture)
    assert not overflow.any()
    # a lai seldom above zero varies between draws
    tolerance = 2e-2 + np.diag([0, 0, 0, 0, 0, 0.05, 0])
    for row in range(2):
        values = transforms.inverse(draw(mixture, row, 1_000_000))
        spread = values.std(axis=0) + 1e-9
        assert np.all(abs(mean[row] - values.mean(axis=0)) < 1e-2 * spread)
        assert np.all(abs(std[row] + 1e-9 - spread) < 3e-2 * spread)
        assert np.all(abs(covariance[row] - np.cov(values.T)) < tolerance * np.outer(spread, spread))
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)), std, rtol=1e-12)


def test_without_transforms_moments_are_those_of_the_mixture() -> None:
    mixture = make_mixture(1, 40, 4, parts=6)
    mean, covariance, overflow = physical_moments(Transforms.of({}, list("abcd")), mixture)
    expected = mixture.moments()
    np.testing.assert_allclose(mean, expected[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(covariance, expected[1], rtol=1e-12, atol=1e-14)
    assert not overflow.any()


@given(seed=SEEDS, scale=st.sampled_from([1e-3, 0.5, 2.0, 10.0]))
@settings(max_examples=8)
def test_covariances_are_symmetric_and_positive_and_parts_sum_to_one(seed: int, scale: float) -> None:
    transforms = Transforms.of({**SPEC, "grain": "identity"}, NAMES)
    mixture = make_mixture(seed, 8, 6, scale=scale)
    mean, covariance, _ = physical_moments(transforms, mixture)
    np.testing.assert_array_equal(covariance, covariance.transpose(0, 2, 1))
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)) + 1e-150
    correlation = covariance / deviation[:, :, None] / deviation[:, None, :]
    assert np.linalg.eigvalsh(correlation).min() > -1e-2
    np.testing.assert_allclose(mean[:, PARTS].sum(axis=1), 1.0, rtol=1e-12)
    sums = covariance[:, PARTS][:, :, PARTS].sum(axis=2)
    np.testing.assert_allclose(sums, 0.0, atol=1e-12)


def test_a_row_does_not_depend_on_the_others() -> None:
    mixture = make_mixture(2, 700, 6)
    pick = np.random.default_rng(0).permutation(700)[:9]
    for function in (physical_moments, physical_mean_and_std):
        for whole, alone in zip(function(ALL, mixture), function(ALL, mixture.select(pick)), strict=True):
            np.testing.assert_allclose(whole[pick], alone, rtol=1e-12, atol=1e-15)
    whole = physical_quantiles(ALL, mixture, 4, [0.1, 0.5], bisected)
    np.testing.assert_allclose(
        whole[pick], physical_quantiles(ALL, mixture.select(pick), 4, [0.1, 0.5], bisected), rtol=1e-12
    )


def test_components_without_weight_do_not_count() -> None:
    mixture = make_mixture(2, 5, 6)
    means, spread = mixture.means.copy(), mixture.covariances.copy()
    means[mixture.weights == 0], spread[mixture.weights == 0] = 1e9, -7.0
    for found, expected in zip(
        physical_moments(ALL, Mixture(mixture.weights, means, spread)), physical_moments(ALL, mixture), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_rows_without_weight_are_nan_and_no_overflow() -> None:
    mixture = make_mixture(2, 5, 6)
    weights = mixture.weights.copy()
    weights[[0, 3]] = 0.0
    empty = replace(mixture, weights=weights)
    mean, covariance, overflow = physical_moments(ALL, empty)
    _, std, _ = physical_mean_and_std(ALL, empty)
    for values in (mean, covariance, std, *(physical_quantiles(ALL, empty, i, [0.5], bisected) for i in (1, 4))):
        assert np.isnan(values[[0, 3]]).all()
        assert np.isfinite(values[[1, 2, 4]]).all()
    assert not overflow.any()
    assert physical_moments(ALL, empty.select(slice(0, 0)))[1].shape == (0, 7, 7)
    assert np.isnan(physical_moments(ALL, empty.select(slice(0, 1)))[0]).all()


def test_overflow_is_nan_and_told() -> None:
    transforms, mixture = one("log", 0.0, 30.0)
    mean, std, overflow = physical_mean_and_std(transforms, mixture)
    assert np.isfinite(mean).all()
    assert np.isnan(std).all()
    assert overflow.tolist() == [True]
    mean, _, overflow = physical_moments(transforms, replace(mixture, means=np.full((1, 1, 1), 1e6)))
    assert np.isnan(mean).all()
    assert overflow.tolist() == [True]
    assert not physical_mean_and_std(transforms, replace(mixture, means=np.full((1, 1, 1), -1e6)))[2].any()


# quantiles


def test_quantiles_are_those_of_a_million_draws() -> None:
    mixture, levels = make_mixture(8, 2, 6), np.array([0.025, 0.16, 0.5, 0.84, 0.975])
    for row in range(2):
        values = ALL.inverse(draw(mixture, row, 1_000_000))
        for index in range(7):
            found = physical_quantiles(ALL, mixture, index, levels, bisected)[row]
            reached = np.searchsorted(np.sort(values[:, index]), found, side="right") / 1e6
            above_zero = found > 0
            assert np.all(abs(reached - levels)[above_zero] < (0.01 if index in PARTS else 0.002)), NAMES[index]
            assert np.all(np.diff(found) >= 0)


# everything, of anything


def test_absurd_mixtures_stay_within_bounds_without_infinities_or_warnings() -> None:
    n, seen = 100_000, 0
    levels = np.array([0.025, 0.5, 0.975])

    def quick(weights: np.ndarray, means: np.ndarray, variances: np.ndarray, levels: np.ndarray) -> np.ndarray:
        return means[:, :1] + np.sqrt(variances[:, :1]) * ndtri(levels)

    spec = {"b": "log", "c": ("logit", -0.5, 2.0), "d": "sqrt", ("e", "f"): "ilr"}
    transforms = Transforms.of(spec, list("abcdef"))
    lower, upper = np.array([-np.inf, 0, -0.5, 0, 0, 0]), np.array([np.inf, np.inf, 2, np.inf, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixture = absurd(0, n, 5)
        mean, std, overflow = physical_mean_and_std(transforms, mixture)
        kept = {"mean": mean, "inverse": transforms.inverse(mixture.means[:, 0])}
        some = mixture.select(slice(0, 3_000))
        kept["joint mean"], covariance, _ = physical_moments(transforms, some)
        kept["quantiles"] = np.stack(
            [physical_quantiles(transforms, some, i, levels, quick) for i in range(6)], axis=2
        ).reshape(-1, 6)
    for name, values in kept.items():
        assert np.all((values >= lower) & (values <= upper) | np.isnan(values)), name
        assert not np.isnan(values[:, [0, 2, 3, 4, 5]]).any(), name
        assert not np.isinf(values).any()
        seen += len(values)
    assert np.all((std >= 0) | np.isnan(std))
    assert np.all(std[:, 2] <= 1.25 * (1 + 1e-9))
    assert np.all(std[:, 4:] <= 0.5 * (1 + 1e-9))
    np.testing.assert_array_equal(np.isnan(mean).any(axis=1) | np.isnan(std).any(axis=1), overflow)
    rest = covariance[:, [0, 2, 3, 4, 5]][:, :, [0, 2, 3, 4, 5]]
    assert np.isfinite(rest).all()
    deviation = np.sqrt(np.diagonal(rest, axis1=1, axis2=2))
    assert np.all(abs(rest) <= deviation[:, :, None] * deviation[:, None, :] * (1 + 1e-6) + 1e-150)
    assert seen >= n


def test_the_number_of_draws_is_stated() -> None:
    assert DRAWS == 512
