"""Transforms of parameters: the user's dictionary, round trips within bounds, ends of intervals."""

import json
import math
from dataclasses import fields
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specinvert.gllim.transforms.transforms import Tally, Transforms
from strategies import SEEDS
from transformed import ALL, LOWER, NAMES, PARTS, UPPER, physical

# the user's dictionary


def test_names_sizes_and_columns_follow_the_parameters() -> None:
    assert ALL.transformed_names == (
        "slope",
        "grain",
        "ilr(sand,silt,clay)[0]",
        "ilr(sand,silt,clay)[1]",
        "ice",
        "lai",
    )
    assert (ALL.n_physical, ALL.n_transformed, ALL.is_identity) == (7, 6, False)
    assert [ALL.column(i) for i in (0, 1, 3, 5)] == [0, 1, 4, 5]
    assert Transforms.of(None, NAMES).is_identity
    assert Transforms.of({"ice": "identity"}, NAMES).transformed_names == NAMES


def test_a_wrong_dictionary_says_what_is_wrong(subtests: pytest.Subtests) -> None:
    for spec, message in [
        ({"sna": "log"}, "transforms name the parameter 'sna', the parameters are slope, grain, sand"),
        ({"ice": "exp"}, "transform 'exp' of 'ice' is not known: use \"identity\", \"softplus\", "),
        ({"ice": ("log", 2)}, r"transform \('log', 2\) of 'ice' is not known"),
        ({"ice": 3}, "transform 3 of 'ice' is not known"),
        ({"ice": "logit"}, r"the logit of 'ice' is 'logit': write \(\"logit\", lower, upper\)"),
        ({"ice": ("logit", 0, np.inf)}, "with finite bounds"),
        ({"ice": ("logit", "0", 1)}, "with finite bounds"),
        ({"ice": ("logit", 1, 1)}, "has bounds 1 and 1: lower must be less than upper"),
        ({"ice": "log", ("ice", "sand"): "ilr"}, "parameter 'ice' has two entries in transforms: keep one"),
        ({("ice", "ice"): "ilr"}, "parameter 'ice' has two entries"),
        ({("ice",): "ilr"}, r"\"ilr\" is asked of \('ice',\): a composition has at least two parts"),
        ({"ice": "ilr"}, "\"ilr\" is asked of 'ice', which is not a tuple"),
        ({("ice", "sand"): "log"}, "'log' is asked of .* together: write one entry a parameter"),
        (["ice"], r"transforms are \['ice'\]: pass a dictionary"),
    ]:
        with subtests.test(spec=spec), pytest.raises(ValueError, match=message):
            Transforms.of(spec, NAMES)


def test_names_must_not_be_one_string() -> None:
    with pytest.raises(ValueError, match="parameter names are the string 'ice': pass a sequence"):
        Transforms.of({}, "ice")


def test_attributes_survive_json() -> None:
    settled = ALL.settle(ALL.tally(physical(np.random.default_rng(0), 20)))
    for transforms in (ALL, settled, Transforms.of({}, [])):
        text = json.dumps(transforms.to_attrs(), allow_nan=False)
        assert Transforms.from_attrs(json.loads(text)) == transforms
    assert settled != ALL


# there and back


@given(seed=SEEDS, n=st.integers(0, 20))
def test_inverse_undoes_forward(seed: int, n: int) -> None:
    values = physical(np.random.default_rng(seed), n)
    z = ALL.forward(values)
    assert z.shape == (n, 6)
    np.testing.assert_allclose(ALL.inverse(z), values, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(ALL.inverse(z)[:, PARTS].sum(axis=1), 1.0, rtol=1e-14)


@given(st.lists(st.floats(-30, 30), min_size=6, max_size=6))
def test_forward_undoes_inverse(z: list[float]) -> None:
    row = np.array([z])
    row[:, 4] = np.clip(row[:, 4], -15, 15)
    row[:, 5] = abs(row[:, 5])
    row[:, 2:4] /= 3
    values = ALL.inverse(row)
    values[:, PARTS] /= values[:, PARTS].sum(axis=1)
    np.testing.assert_allclose(ALL.forward(values), row, rtol=1e-8, atol=1e-8)


@given(st.lists(st.floats(-1e300, 1e300), min_size=6, max_size=6))
def test_inverse_never_leaves_the_bounds(z: list[float]) -> None:
    row = np.array([z])
    values = ALL.inverse(row)[0]
    representable = np.isfinite(values)
    assert np.all((values >= LOWER) & (values <= UPPER) | ~representable)
    assert not np.isinf(values).any()
    assert representable[[0, 3]].all()
    assert representable[1] == (z[1] < 709.78)


def test_values_as_the_formulas_say() -> None:
    values = np.array([[3.0, math.e, 0.2, 0.75, 0.5, 4.0, 0.3]])
    sand, silt, clay = 0.2, 0.3, 0.5
    expected = [
        3.0,
        1.0,
        math.log(sand / silt) / math.sqrt(2),
        math.log(sand * silt / clay**2) / math.sqrt(6),
        0.0,
        2.0,
    ]
    np.testing.assert_allclose(ALL.forward(values)[0], expected, atol=1e-15)


@given(seed=SEEDS, parts=st.integers(2, 6))
def test_ilr_is_an_isometry_of_log_ratios(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    transforms = Transforms.of({tuple(range(parts)): "ilr"}, list(range(parts)))
    one, other = rng.dirichlet(np.ones(parts), 2)
    z = transforms.forward(np.stack([one, other]))
    ratios = [math.log(one[i] / one[j]) - math.log(other[i] / other[j]) for i in range(parts) for j in range(parts)]
    aitchison = math.sqrt(sum(ratio**2 for ratio in ratios) / (2 * parts))
    assert math.isclose(np.linalg.norm(z[0] - z[1]), aitchison, rel_tol=1e-10)
    # perturbation adds, the neutral composition is the origin
    both = one * other / (one * other).sum()
    np.testing.assert_allclose(transforms.forward(both[None])[0], z.sum(axis=0), atol=1e-10)
    np.testing.assert_allclose(transforms.forward(np.full((1, parts), 1 / parts)), 0.0, atol=1e-14)


@given(seed=SEEDS)
def test_log_jacobian_is_that_of_differences(seed: int) -> None:
    z = ALL.forward(physical(np.random.default_rng(seed), 1))
    z[0, 5] += 0.1
    step, free = 1e-5, [0, 1, 2, 3, 5, 6]
    jacobian = np.stack(
        [(ALL.inverse(z + step * e) - ALL.inverse(z - step * e))[0, free] / (2 * step) for e in np.eye(6)]
    )
    np.testing.assert_allclose(ALL.log_jacobian(z)[0], np.linalg.slogdet(jacobian)[1], rtol=1e-5, atol=1e-5)


def test_log_jacobian_says_where_a_sqrt_has_its_atom() -> None:
    transforms = Transforms.of({"a": "sqrt"}, ["a"])
    assert transforms.log_jacobian(np.array([[-1.0], [0.0], [0.5]])).tolist() == [-np.inf, -np.inf, 0.0]


# bounds of the training set


def training() -> np.ndarray:
    """Values of which some lie on bounds: a grain of 0, ice on both, a clay of 0, a lai of 0 which may be."""
    values = physical(np.random.default_rng(3), 50)
    values[0, 1], values[1:3, 3], values[3, 3], values[4, 5] = 0.0, -0.5, 2.0, 0.0
    values[5, PARTS] = 0.4, 0.6, 0.0
    return values


def test_values_on_a_bound_move_inside_by_half_the_smallest_gap() -> None:
    values = training()
    with pytest.warns(UserWarning, match="training values on the bound") as caught:
        settled = ALL.settle(ALL.tally(values))
    assert len(caught) == 1
    for text in ("1 of 'grain' on 0", "2 of 'ice' on -0.5", "1 of 'ice' on 2", "1 of 'clay' on 0"):
        assert text in str(caught[0].message)
    assert "lai" not in str(caught[0].message)
    back = settled.inverse(settled.forward(values))
    gap = np.unique(values[:, 3])
    np.testing.assert_allclose(back[0, 1], 0.5 * values[1:, 1].min())
    np.testing.assert_allclose(back[1:3, 3], 0.5 * (gap[0] + gap[1]))
    np.testing.assert_allclose(back[3, 3], 0.5 * (gap[-1] + gap[-2]))
    least = 0.5 * np.delete(values[:, 4], 5).min()
    np.testing.assert_allclose(back[5, PARTS], np.array([0.4, 0.6, least]) / (1 + least))
    assert back[4, 5] == 0.0
    moved = np.zeros(values.shape, dtype=bool)
    moved[0, 1] = moved[1:4, 3] = moved[5, PARTS] = True
    np.testing.assert_allclose(back[~moved], values[~moved], rtol=1e-11)


def test_forward_is_monotone_near_a_bound() -> None:
    with pytest.warns(UserWarning, match="ice"):
        settled = ALL.settle(ALL.tally(training()))
    z = settled.known_forward(3, np.concatenate([[-0.5, -0.5 + 1e-300], -0.5 + np.geomspace(1e-12, 2.5, 50), [2.0]]))
    assert np.all(np.diff(z) >= 0)
    assert np.isfinite(z).all()


def test_no_value_on_a_bound_is_no_warning() -> None:
    settled = ALL.settle(ALL.tally(physical(np.random.default_rng(0), 30)))
    assert all(entry.insets[0][0] > 0 for entry in settled.entries if entry.kind in ("log", "logit", "ilr"))


@given(seed=SEEDS, cuts=st.lists(st.integers(0, 40), max_size=5), order=st.randoms(use_true_random=False))
def test_tallies_of_any_chunks_are_the_tally_of_the_whole(seed: int, cuts: list[int], order: Any) -> None:
    rng = np.random.default_rng(seed)
    values = np.round(physical(rng, 40), 1) + rng.choice([0, 0, 0, 1], (40, 7))
    values[rng.uniform(size=(40, 7)) < 0.05] = np.nan
    ends = [0, *sorted(cuts), 40]
    parts = [ALL.tally(values[a:b]) for a, b in pairwise(ends)]
    order.shuffle(parts)
    whole = ALL.tally(values)
    for merged in (reduce(add, parts), parts[0] + reduce(add, parts[1:], ALL.tally(values[:0]))):
        for field in fields(Tally):
            np.testing.assert_array_equal(getattr(merged, field.name), getattr(whole, field.name), err_msg=field.name)


def test_training_values_without_a_transform_are_counted(subtests: pytest.Subtests) -> None:
    for column, bad, message in [
        (
            1,
            [-3.0, -1.0],
            "2 training values of 'grain' lie below the lower bound 0 of its log transform.*smallest is -3",
        ),
        (
            3,
            [2.5],
            "1 training values of 'ice' lie above the upper bound 2 of its logit transform, the greatest is 2.5",
        ),
        (3, [-0.6], "of 'ice' lie below the lower bound -0.5"),
        (5, [-0.1], "of 'lai' lie below the lower bound 0 of its sqrt"),
        (4, [-0.1], "of 'clay' lie below the lower bound 0 of its ilr"),
        (4, [1.5], r"the parts \(sand, silt, clay\) do not sum to one in 1 rows, the sum furthest off is "),
        (1, [np.nan], "1 training values of 'grain' are NaN or infinite"),
        (1, [0.0] * 50, "all 50 training values of 'grain' lie on the bounds of its log transform"),
        (3, [-0.5, 2.0] * 25, "all 50 training values of 'ice' lie on the bounds"),
    ]:
        with subtests.test(column=column, bad=bad):
            values = physical(np.random.default_rng(0), 50)
            values[: len(bad), column] = bad
            with pytest.raises(ValueError, match=message):
                ALL.settle(ALL.tally(values))


def test_forward_refuses_what_is_outside_or_unsettled_and_keeps_nan() -> None:
    values = physical(np.random.default_rng(0), 5)
    values[0, 3] = np.nan
    assert np.argwhere(np.isnan(ALL.forward(values))).tolist() == [[0, 4]]
    values[0, 3] = 2.0
    with pytest.raises(ValueError, match=r"1 values of 'ice' lie on the upper bound 2 .* settle the transforms"):
        ALL.forward(values)
    values[0, 3] = 3.0
    with pytest.raises(ValueError, match="1 values of 'ice' lie above the upper bound 2"):
        ALL.forward(values)
    with pytest.raises(ValueError, match=r"parameters have shape \(5, 6\): 7 need \(n, 7\)"):
        ALL.forward(values[:, :6])


def test_bounds_are_compared_in_single_precision_where_values_are() -> None:
    transforms = Transforms.of({"a": ("logit", 0.1, 0.3)}, ["a"])
    values = np.array([[0.1], [0.2], [0.25], [0.3]], dtype=np.float32)
    with pytest.warns(UserWarning, match=r"1 of 'a' on 0.1.*1 of 'a' on 0.3"):
        settled = transforms.settle(transforms.tally(values))
    np.testing.assert_allclose(settled.inverse(settled.forward(values))[:, 0], [0.15, 0.2, 0.25, 0.275], rtol=1e-6)


def test_whole_numbers_are_values_too() -> None:
    transforms = Transforms.of({"a": ("logit", 0, 10)}, ["a"])
    np.testing.assert_allclose(transforms.forward(np.array([[5], [1]]))[:, 0], [0, math.log(1 / 9)], atol=1e-15)


def test_known_values_are_transformed_alone() -> None:
    with pytest.warns(UserWarning, match="ice"):
        settled = ALL.settle(ALL.tally(training()))
    values = training()
    z = settled.forward(values)
    for index in (0, 1, 3, 5):
        found = settled.known_forward(index, values[:, index].reshape(5, 10))
        np.testing.assert_array_equal(found.ravel(), z[:, settled.column(index)])
        np.testing.assert_allclose(settled.inverse_of(index, found).ravel(), settled.inverse(z)[:, index], rtol=1e-14)
    assert settled.known_forward(3, 0.75) == 0.0
    assert np.isnan(settled.known_forward(3, np.nan))


def test_known_values_outside_or_of_a_composition_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 values of 'ice' lie above the upper bound 2 .* the greatest is 7"):
        ALL.known_forward(3, [0.0, 3.0, 7.0])
    with pytest.raises(ValueError, match=r"'clay' is a part of the composition \(sand, silt, clay\)"):
        ALL.known_forward(4, 0.2)


@pytest.mark.parametrize(
    ("transform", "low", "high", "expected"),
    [
        ("identity", -2.0, 3.0, (-2.0, 3.0)),
        ("log", 1.0, np.e, (0.0, 1.0)),
        ("log", -1.0, 1.0, (-np.inf, 0.0)),
        ("log", 0.0, np.inf, (-np.inf, np.inf)),
        ("sqrt", 4.0, 9.0, (2.0, 3.0)),
        ("sqrt", 0.0, 9.0, (-np.inf, 3.0)),
        (("logit", 2.0, 4.0), 3.0, 5.0, (0.0, np.inf)),
        (("logit", 2.0, 4.0), 2.0, 3.0, (-np.inf, 0.0)),
    ],
)
def test_ends_of_intervals_on_or_beyond_a_bound_are_infinite(transform, low, high, expected):
    transforms = Transforms.of({} if transform == "identity" else {"b": transform}, ["a", "b"])
    ends = transforms.interval_forward(1, np.array([low, np.nan]), np.array([high, np.nan]))
    np.testing.assert_allclose(ends, np.array([expected, (np.nan, np.nan)]).T, atol=1e-15)


def test_intervals_beyond_a_bound_or_of_parts_of_compositions_are_refused():
    transforms = Transforms.of({"a": ("logit", 0, 1), ("b", "c"): "ilr"}, ["a", "b", "c"])
    one = np.ones(1)
    with pytest.raises(ValueError, match=r"'a' cannot lie from 1 to 2: .* bounds 0 and 1"):
        transforms.interval_forward(0, one, 2 * one)
    with pytest.raises(ValueError, match=r"part of the composition \(b, c\)"):
        transforms.interval_forward(1, one, one)
