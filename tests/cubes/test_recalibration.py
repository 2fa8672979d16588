"""Recalibration: what it holds on fresh data, its map and the inverse, too few and damaged values."""

import json
import pickle

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr, ndtri

from specinvert.cubes.recalibration import GRID, Recalibration
from specinvert.scores import calibration_table, coverage


def samples(**values):
    return xr.Dataset({name: ("sample", np.asarray(v, dtype=float)) for name, v in values.items()})


def even(n):
    """As uniform as n values can be."""
    return (np.arange(n) + 0.5) / n


def gaussian_pit(rng, n, spread=1.0, shift=0.0):
    """PIT of Gaussian posteriors of std 1 whose truths are off by N(shift, spread**2)."""
    return ndtr(shift + spread * rng.standard_normal(n))


@pytest.mark.parametrize(
    ("spread", "shift"),
    [(1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (0.5, 0.0), (0.1, 0.0), (1.0, 1.0), (2.0, -1.5), (0.5, 0.5)],
)
def test_recalibrated_posteriors_hold_what_they_say_on_fresh_simulations(spread, shift):
    rng = np.random.default_rng(7)
    held_out, fresh = (samples(p=gaussian_pit(rng, n, spread, shift)) for n in (2000, 20_000))
    recalibration = Recalibration.of(held_out)
    shares = coverage(recalibration.recalibrated(fresh), [0.5, 0.9]).coverage[0]
    assert 0.46 < shares[0] < 0.54
    assert 0.88 < shares[1] < 0.92
    low, high = recalibration.raw_level(0, [0.05, 0.95])
    inside = (fresh.p >= low) & (fresh.p <= high)
    assert 0.88 < float(inside.mean()) < 0.92


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_recalibration_with_many_values_of_exactly_0_and_1(share):
    rng = np.random.default_rng(8)

    def draw(n):
        u = rng.random(n)
        return samples(p=np.select([u < share, u > 1 - share], [0.0, 1.0], default=rng.beta(0.3, 0.3, n)))

    recalibration = Recalibration.of(draw(2000))
    assert (np.diff(recalibration.raw[0]) > 0).all()
    shares = coverage(recalibration.recalibrated(draw(20_000)), [0.5, 0.9]).coverage[0]
    assert 0.46 < shares[0] < 0.54
    assert 0.88 < shares[1] < 0.92
    assert float(recalibration.reach[0]) == pytest.approx(1 - 2 * share, abs=0.02)


def test_where_the_truth_is_out_of_reach_recalibration_says_so_and_does_not_pretend():
    pit = samples(p=[*[0.0] * 400, *[1.0] * 400, *even(3200)], q=even(4000))
    recalibration = Recalibration.of(pit)
    np.testing.assert_allclose(recalibration.reach, [0.8, 1.0], atol=0.01)
    table = calibration_table(recalibration.recalibrated(pit))
    np.testing.assert_allclose(table.coverage_50, 0.5, atol=0.01)
    np.testing.assert_allclose(table.coverage_90, [0.8, 0.9], atol=0.01)


def test_uniform_values_give_the_identity():
    recalibration = Recalibration.of(samples(p=even(5000)))
    np.testing.assert_allclose(recalibration.raw[0], GRID, atol=2e-4)
    assert recalibration.raw.shape == (1, 201)


@pytest.mark.parametrize(
    "values", [even(2000), np.full(2000, 0.5), np.repeat([0.0, 1.0], 1000), np.zeros(2000), np.ones(2000)]
)
def test_the_map_increases_strictly_and_its_inverse_undoes_it(values):
    recalibration = Recalibration.of(samples(p=values))
    levels = np.linspace(0, 1, 1001).reshape(7, 11, 13)
    raw = recalibration.raw_level(0, levels)
    assert raw.shape == levels.shape
    assert (np.diff(raw.ravel()) > 0).all()
    assert (raw.ravel()[0], raw.ravel()[-1]) == (0.0, 1.0)
    np.testing.assert_allclose(recalibration.level(0, raw), levels, atol=2e-4)


def test_nan_stays_nan_and_levels_outside_0_and_1_are_refused():
    recalibration = Recalibration.of(samples(p=even(2000)))
    assert np.isnan(recalibration.raw_level(0, np.nan))
    np.testing.assert_array_equal(recalibration.level(0, [np.nan, -0.1, 1.1]), [np.nan, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"levels run from 0\.5 to 90; give them between 0 and 1"):
        recalibration.raw_level(0, [0.5, 90])


def test_each_parameter_has_its_own_map_in_the_order_of_the_dataset():
    pit = samples(b=even(2000) ** 2, a=even(2000))
    recalibration = Recalibration.of(pit)
    assert recalibration.raw_level(0, 0.5) == pytest.approx(0.25, abs=1e-3)
    assert recalibration.raw_level(1, 0.5) == pytest.approx(0.5, abs=1e-3)
    assert Recalibration.of(pit[["a", "b"]]).raw_level(0, 0.5) == pytest.approx(0.5, abs=1e-3)


def test_too_few_values_are_refused_with_their_number_and_what_to_do():
    pit = samples(lai=even(2000), water=np.append(even(1990), [np.nan] * 10))
    with pytest.raises(ValueError, match=r"water has 1990 finite pairs .* needs 2000: hold out more simulations"):
        Recalibration.of(pit)
    assert Recalibration.of(pit, minimum=1990).raw.shape == (2, 201)
    with pytest.raises(ValueError, match="has 0 finite pairs"):
        Recalibration.of(samples(p=[np.nan]), minimum=0)


def test_arrays_make_the_same_recalibration_again():
    rng = np.random.default_rng(9)
    recalibration = Recalibration.of(samples(p=gaussian_pit(rng, 2000, 3.0), q=rng.random(2000)))
    arrays = recalibration.to_arrays()
    assert {name: values.shape for name, values in arrays.items()} == {
        "recalibration_level": (201,),
        "recalibration_raw": (2, 201),
    }
    for again in (Recalibration.from_arrays(arrays), pickle.loads(pickle.dumps(recalibration))):
        np.testing.assert_array_equal(again.levels, recalibration.levels)
        np.testing.assert_array_equal(again.raw, recalibration.raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a["recalibration_raw"][:, :-1], "do not fit levels"),
        (lambda a: a["recalibration_raw"][0], "do not fit levels"),
        (lambda a: a["recalibration_raw"][:, ::-1], "increase strictly from 0 to 1"),
        (lambda a: 0.5 * a["recalibration_raw"], "increase strictly from 0 to 1"),
        (lambda a: np.nan * a["recalibration_raw"], "increase strictly from 0 to 1"),
    ],
)
def test_damaged_arrays_are_refused(change, message):
    arrays = Recalibration.of(samples(p=even(2000))).to_arrays()
    with pytest.raises(ValueError, match=message):
        Recalibration.from_arrays(arrays | {"recalibration_raw": change(arrays)})
    with pytest.raises(KeyError):
        Recalibration.from_arrays({})


KINDS = {
    "three times too narrow": lambda rng, n: 3.0 * rng.standard_normal(n),
    "twenty times too narrow": lambda rng, n: 20.0 * rng.standard_normal(n),
    "too wide": lambda rng, n: 0.5 * rng.standard_normal(n),
    "heavy tails": lambda rng, n: 1.5 * rng.standard_t(3, n),
    "biased": lambda rng, n: 1.0 + 1.5 * rng.standard_normal(n),
    "skewed": lambda rng, n: 2.0 * rng.exponential(1.0, n) - 2.0,
}


@pytest.mark.parametrize("n", [60, 125, 2500])
@pytest.mark.parametrize("kind", KINDS)
def test_few_pairs_give_intervals_that_hold_what_they_say_however_far_the_truths_are(kind, n):
    rng = np.random.default_rng(n)
    fresh = samples(p=KINDS[kind](rng, 5000))
    shares, told = [], []
    for _ in range(20):
        recalibration = Recalibration.of_scores(samples(p=KINDS[kind](rng, n)))
        shares.append(coverage(recalibration.pit_of_scores(fresh), [0.5, 0.9])["coverage"].values[0])
        told.append((recalibration.before[0], recalibration.after[0]))
        low, high = recalibration.raw_score(0, [0.05, 0.95])
        assert float(((fresh.p >= low) & (fresh.p <= high)).mean()) == pytest.approx(shares[-1][1], abs=2e-3)
    half, most = np.mean(shares, axis=0)
    assert half == pytest.approx(0.5, abs=0.05)
    assert most == pytest.approx(0.9, abs=0.02)
    assert np.std(shares, axis=0)[1] < 0.4 / np.sqrt(n) + 0.01
    before, after = np.mean(told, axis=0)
    assert after == pytest.approx(most, abs=0.02)
    assert before == pytest.approx(float((abs(fresh.p) <= 1.645).mean()), abs=0.04)


def test_the_factor_of_scores_goes_on_beyond_the_farthest_truth_and_has_an_inverse():
    recalibration = Recalibration.of_scores(samples(p=10.0 * np.random.default_rng(0).standard_normal(300)))
    levels = np.array([0.001, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999])
    raw = recalibration.raw_score(0, levels)
    np.testing.assert_allclose(np.delete(raw / ndtri(levels + 1e-9), 3), 10.0, rtol=0.25)
    np.testing.assert_allclose(raw, -raw[::-1], atol=1e-8)
    np.testing.assert_allclose(ndtr(recalibration.score(0, raw)), levels, atol=1e-12)
    inside = slice(2, -2)
    np.testing.assert_allclose(recalibration.level(0, recalibration.raw_level(0, levels[inside])), levels[inside])
    assert recalibration.reach.tolist() == [1.0]
    assert np.isnan(recalibration.score(0, np.nan))


def test_the_two_sides_are_told_apart_where_they_differ_alone():
    z = np.random.default_rng(1).standard_normal(200)
    even_sided, biased = (Recalibration.of_scores(samples(p=z + shift)).raw_score(0, 0.5) for shift in (0.0, 1.0))
    assert even_sided == pytest.approx(0.0, abs=1e-9)
    assert biased == pytest.approx(1.0, abs=0.2)


def test_what_a_recalibration_was_found_on_is_kept_and_told():
    scores = samples(p=3.0 * np.random.default_rng(2).standard_normal(80), q=np.r_[np.zeros(70), [np.nan] * 10])
    recalibration = Recalibration.of_scores(scores, source="measurements")
    assert (recalibration.source, recalibration.method) == ("measurements", "cross-validation")
    assert recalibration.n.tolist() == [80, 70]
    again = Recalibration.from_arrays(recalibration.to_arrays(), json.loads(json.dumps(recalibration.to_attrs())))
    assert repr(again) == repr(recalibration)
    assert "70-80 cross-validation pairs of measurements, 90 % intervals hold 0.4" in repr(again)
    np.testing.assert_array_equal(again.raw_score(0, [0.1, 0.9]), recalibration.raw_score(0, [0.1, 0.9]))
    old = Recalibration.from_arrays({k: v for k, v in recalibration.to_arrays().items() if "score" not in k})
    assert (old.n, old.source) == (None, "simulations")
    with pytest.raises(ValueError, match=r"q has 70 finite pairs .* needs 75"):
        Recalibration.of_scores(scores, minimum=75)
    with pytest.raises(ValueError, match="'guesses' is not one of 'simulations', 'measurements'"):
        Recalibration.of_scores(scores, source="guesses")
