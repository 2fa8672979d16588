"""Calibration by a few grouped values: its quantiles against a plain reference, its coverage, and what it corrects."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import t as student

from specinvert.cubes import CALIBRATION_KNOTS
from specinvert.scores import FieldValues, correct, promise
from specinvert.scores.conformal import conformal_scores, correlation_within, effective_weights


def field(rng, groups, truth, estimate, deviation=1.0):
    """Values of Gaussian posteriors of one deviation."""
    return FieldValues(
        truth, truth, estimate, groups, lambda z, rows: (z - estimate[rows]) / deviation, lambda z: np.asarray(z), 8.0
    )


def plain_quantile(sizes, weights, level):
    """Where the weights of the sizes below, with one more value at infinity, reach the level; along lines."""
    worth = sum(weights)
    pairs, below, last = sorted(zip(sizes, weights, strict=True)), 0.0, 0.0
    for size, weight in pairs:
        above = below + weight / (worth + 1.0)
        if above >= level:
            return last + (size - last) * (level - below) / (above - below)
        below, last = above, size
    raise AssertionError(level)


def test_widths_are_the_weighted_conformal_quantiles_and_go_on_as_students_t():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(5), 4)
    scores = 3.0 * (rng.standard_normal(5)[groups] + rng.standard_normal(20))
    weights = effective_weights(scores, groups)
    assert 5.0 < weights.sum() < 20.0
    worth = 0.5 * (weights.sum() + 5.0)
    weights *= worth / weights.sum()
    found = conformal_scores(scores, groups)
    np.testing.assert_array_equal(found, -found[::-1])
    assert found[4] == pytest.approx(plain_quantile(np.abs(scores), weights, 0.5))
    most = (worth - 1.0) / (worth + 1.0)
    far = plain_quantile(np.abs(scores), weights, most) / student.ppf(0.5 + 0.5 * most, worth)
    np.testing.assert_allclose(found[5:], far * student.ppf([0.95, 0.975], worth))


def test_values_of_a_group_that_err_alike_are_worth_one_in_the_end():
    groups = np.repeat(np.arange(400), 5)
    rng = np.random.default_rng(1)
    alike, alone = rng.standard_normal(400)[groups], rng.standard_normal(2000)
    assert correlation_within(alike, groups) > 0.99
    assert correlation_within(alone, groups) < 0.05
    assert effective_weights(alike, groups).sum() == pytest.approx(400, rel=0.01)


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.9])
def test_intervals_by_20_values_in_5_groups_hold_what_they_say_on_average(shared):
    rng, inside = np.random.default_rng(2), []
    groups = np.repeat(np.arange(5), 4)
    for _ in range(200):
        scores = 2.0 * (
            np.sqrt(shared) * rng.standard_normal(5)[groups] + np.sqrt(1 - shared) * rng.standard_normal(20)
        )
        inside.append(np.mean(np.abs(2.0 * rng.standard_normal(200)) < conformal_scores(scores, groups)[5]))
    assert 0.86 < np.mean(inside) < 0.97


def test_a_calibrated_posterior_is_widened_little_and_narrowed_less():
    rng, groups = np.random.default_rng(3), np.repeat(np.arange(10), 5)
    factors = [conformal_scores(rng.standard_normal(50), groups)[5] / ndtri(0.95) for _ in range(100)]
    assert 1.0 < np.mean(factors) < 1.2
    assert conformal_scores(0.01 * rng.standard_normal(50), groups)[5] > 0.4 * ndtri(0.95)


@pytest.mark.parametrize(("kind", "shift", "slope"), [("none", 0.0, 1.0), ("bias", 2.0, 1.0), ("slope", -1.0, 1.6)])
def test_what_pays_in_groups_left_out_is_corrected_and_nothing_else(kind, shift, slope):
    rng, groups = np.random.default_rng(4), np.repeat(np.arange(8), 4)
    estimate = rng.uniform(0.0, 6.0, 32)
    truth = shift + slope * estimate + 0.3 * rng.standard_normal(32)
    found = correct(field(rng, groups, truth, estimate, 0.3))
    assert (found.kind, found.signal, found.n, found.n_groups) == (kind, True, 32, 8)
    np.testing.assert_allclose([found.shift, found.slope], [shift, slope], atol=0.25)
    assert found.rmse[1] < 0.4
    assert 0.8 < found.inside[1] <= 1.0
    assert correct(field(rng, groups, truth, estimate, 0.3), "none").slope == 1.0


def test_values_without_a_signal_widen_and_are_told():
    rng, groups = np.random.default_rng(5), np.repeat(np.arange(5), 4)
    truth, estimate = rng.uniform(0.0, 6.0, 20), rng.uniform(0.0, 6.0, 20)
    found = correct(field(rng, groups, truth, estimate, 0.5))
    assert not found.signal
    assert found.slope == 1.0
    assert (found.raw_scores[4:] > 2.0 * CALIBRATION_KNOTS[4:]).all()
    wide = correct(field(rng, groups, truth, estimate, 50.0))
    np.testing.assert_allclose(wide.raw_scores, CALIBRATION_KNOTS)


def test_the_promise_is_of_groups():
    assert "no more than 83 % for values of a group not seen; 90 % intervals go on as Student's t" in promise(5)
    assert "Student" not in promise(12)
