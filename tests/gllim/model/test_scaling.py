"""Moments that merge exactly, and units that undo each other."""

from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinvert.gllim.em.statistics import log_joint_density
from specinvert.gllim.model.scaling import Moments, Scaling
from strategies import SEEDS, SIGMAS, assert_near, assert_same_theta, dense, random_theta


@given(
    seed=SEEDS, n=st.integers(1, 60), cuts=st.lists(st.integers(0, 60), max_size=6), offset=st.sampled_from([0, 1e8])
)
def test_moments_merge_to_those_of_the_whole(seed: int, n: int, cuts: list[int], offset: float) -> None:
    rng = np.random.default_rng(seed)
    values, weights = offset + rng.normal(size=(n, 3)), rng.integers(0, 3, n).astype(float)
    ends = [0, *sorted(min(cut, n) for cut in cuts), n]
    parts = [Moments.of(values[a:b], weights[a:b]) for a, b in pairwise(ends)]
    merged = reduce(add, parts)
    assert merged.n_rows == n
    assert merged.weight == weights.sum()
    if merged.weight > 0:
        mean = np.average(values, axis=0, weights=weights)
        np.testing.assert_allclose(merged.mean, mean, rtol=1e-14)
        deviations = weights @ (values - mean) ** 2
        np.testing.assert_allclose(merged.squared, deviations, rtol=1e-12, atol=1e-6 if offset else 1e-13)
        np.testing.assert_allclose(
            merged.variance, deviations / weights.sum(), rtol=1e-12, atol=1e-6 if offset else 1e-13
        )
        counted = values[weights > 0]
        np.testing.assert_array_equal(merged.low, counted.min(axis=0))
        np.testing.assert_array_equal(merged.high, counted.max(axis=0))


def test_merging_keeps_the_digits_that_raw_second_moments_lose() -> None:
    values = 1e8 + np.random.default_rng(0).normal(size=(100_000, 1))
    ones = np.ones(len(values))
    merged = reduce(add, (Moments.of(part, np.ones(len(part))) for part in np.array_split(values, 50)))
    np.testing.assert_allclose(merged.variance, Moments.of(values, ones).variance, rtol=1e-9)
    np.testing.assert_allclose(merged.variance, (values - 1e8).var(axis=0), rtol=1e-7)


@given(seed=SEEDS, weights=st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_weights_count_like_repeated_rows(seed: int, weights: list[int]) -> None:
    counts = np.array(weights)
    values = np.random.default_rng(seed).normal(size=(len(counts), 2))
    first = Moments.of(values, counts.astype(float))
    second = Moments.of(np.repeat(values, counts, axis=0), np.ones(counts.sum()))
    assert first.weight == second.weight
    for name in ("mean", "squared", "low", "high"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-13, atol=1e-13)


def test_no_rows_are_the_identity_of_merging() -> None:
    values = np.random.default_rng(0).normal(size=(5, 2))
    some, nothing = Moments.of(values, np.ones(5)), Moments.of(values[:0], np.ones(0))
    for merged in (some + nothing, nothing + some):
        for name in ("n_rows", "weight", "mean", "squared", "low", "high"):
            np.testing.assert_array_equal(getattr(merged, name), getattr(some, name))
    assert (nothing + nothing).weight == 0


def make_scaling(seed: int, n_bands: int, n_parameters: int, common: bool) -> Scaling:
    rng = np.random.default_rng(seed)
    bands = np.exp(rng.uniform(-3, 3, 1 if common else n_bands)) * np.ones(n_bands)
    return Scaling(
        rng.normal(size=n_bands), bands, rng.normal(size=n_parameters), np.exp(rng.uniform(-3, 3, n_parameters))
    )


CASES = {
    "seed": SEEDS,
    "sizes": st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(0, 3), st.integers(1, 2)),
    "sigma": st.sampled_from(SIGMAS),
}


@given(**CASES)
def test_units_there_and_back_give_theta_back(seed: int, sizes: tuple[int, ...], sigma: str) -> None:
    theta = random_theta(seed, *sizes, sigma)
    scaling = make_scaling(seed, sizes[1], sizes[2], common=sigma == "iso")
    back = scaling.inverse().to_user(scaling.to_user(theta))
    assert back.constraints == theta.constraints
    assert_same_theta(back, dense(theta), 1e-12)


@given(**CASES)
def test_theta_in_other_units_is_the_same_density_up_to_the_volume(
    seed: int, sizes: tuple[int, ...], sigma: str
) -> None:
    theta = random_theta(seed, *sizes, sigma)
    scaling = make_scaling(seed, sizes[1], sizes[2], common=sigma == "iso")
    rng = np.random.default_rng(seed)
    spectra, parameters = rng.normal(size=(8, sizes[1])), rng.normal(size=(8, sizes[2]))
    scaled = scaling.apply(spectra, parameters)
    expected = log_joint_density(theta, *scaled) - scaling.log_volume
    assert_near(log_joint_density(scaling.to_user(theta), spectra, parameters), expected, 1e-9)


def test_apply_and_inverse_undo_each_other() -> None:
    scaling = make_scaling(1, 4, 2, common=False)
    rng = np.random.default_rng(1)
    spectra, parameters = rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    back = scaling.inverse().apply(*scaling.apply(spectra, parameters))
    np.testing.assert_allclose(back[0], spectra, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(back[1], parameters, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        scaling.apply(spectra, parameters)[0] * scaling.spectra_scale + scaling.spectra_shift, spectra
    )
    assert scaling.inverse().log_volume == pytest.approx(-scaling.log_volume, rel=1e-12)


def test_applying_a_scaling_leaves_the_data_alone_and_gives_float64() -> None:
    scaling = make_scaling(2, 3, 1, common=True)
    spectra, parameters = np.ones((2, 3), dtype=np.float32), np.ones((2, 1))
    scaled = scaling.apply(spectra, parameters)
    assert scaled[0].dtype == scaled[1].dtype == np.float64
    assert (spectra == 1).all()
    assert (parameters == 1).all()


def test_an_iso_noise_under_unequal_scales_becomes_diag() -> None:
    theta = random_theta(3, 2, 4, 1, 1, "iso")
    scaling = make_scaling(3, 4, 1, common=False)
    moved = scaling.to_user(theta)
    assert moved.constraints == replace(theta.constraints, sigma="diag")
    expected = theta.Sigma[:, None, None] * np.diag(scaling.spectra_scale**2)
    np.testing.assert_allclose(moved.sigma_dense(), expected, rtol=1e-12)
