"""Recalibration: what it holds on fresh data, its map and the inverse, too few and damaged values."""

import pickle

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr

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
