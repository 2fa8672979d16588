"""Transformed parameters: round trips within bounds, and summaries in physical units against integrals and draws."""

import json
import math
import warnings
from dataclasses import fields, replace
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, ndtri
from strategies import SEEDS, covariances

from specinvert.gllim import expectations
from specinvert.gllim.mixture import Mixture
from specinvert.gllim.physical import DRAWS, physical_mean_and_std, physical_moments, physical_quantiles
from specinvert.gllim.transforms import Tally, Transforms

NAMES = ("slope", "grain", "sand", "ice", "clay", "lai", "silt")
SPEC = {"grain": "log", "ice": ("logit", -0.5, 2.0), "lai": "sqrt", ("sand", "silt", "clay"): "ilr"}
ALL = Transforms.of(SPEC, NAMES)
PARTS = [2, 6, 4]
"""The composition's columns, in the order of its tuple."""
SCALARS = {
    "identity": lambda z: z,
    "log": np.exp,
    "sqrt": lambda z: np.maximum(z, 0.0) ** 2,
    "logit": expit,
}
LOWER = np.array([-np.inf, 0.0, 0.0, -0.5, 0.0, 0.0, 0.0])
UPPER = np.array([np.inf, np.inf, 1.0, 2.0, 1.0, np.inf, 1.0])


def physical(rng: np.random.Generator, n: int) -> np.ndarray:
    """Values well within the bounds."""
    values = np.empty((n, len(NAMES)))
    values[:, 0], values[:, 1] = rng.normal(size=n), np.exp(2 * rng.normal(size=n))
    values[:, 3], values[:, 5] = rng.uniform(-0.49, 1.99, n), rng.normal(size=n) ** 2
    values[:, PARTS] = rng.dirichlet(np.ones(3), n)
    return values


def make_mixture(seed: int, n: int, size: int, parts: int = 3, scale: float = 1.0) -> Mixture:
    """Mixtures of ``parts`` Gaussians, some weights zero."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(parts), n) * (rng.uniform(size=(n, parts)) < 0.8)
    weights[:, 0] += weights.sum(axis=1) == 0
    weights /= weights.sum(axis=1, keepdims=True)
    spread = covariances(rng, n * parts, size).reshape(n, parts, size, size)
    return Mixture(weights, rng.normal(size=(n, parts, size)), scale**2 * spread)


def one(kind: Any, mean: float, deviation: float) -> tuple[Transforms, Mixture]:
    """A parameter and a single Gaussian."""
    transforms = Transforms.of({"a": kind}, ["a"])
    return transforms, Mixture(np.ones((1, 1)), np.full((1, 1, 1), mean), np.full((1, 1, 1, 1), deviation**2))


def integral(function: Any, mean: float, deviation: float) -> float:
    """The mean of a function of a Gaussian, by scipy's adaptive quadrature between many ends."""
    low, high = mean - 12 * deviation, mean + 12 * deviation
    inner = {-30, -5, -1, 0, 1, 5, 30, mean, *(mean + step * deviation for step in (-6, -3, -1, 1, 3, 6))}
    ends = [low, *sorted(x for x in inner if low < x < high), high]

    def weighted(z: float) -> float:
        return function(z) * math.exp(-0.5 * ((z - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))

    return sum(quad(weighted, a, b, epsabs=1e-14, epsrel=1e-11, limit=200)[0] for a, b in pairwise(ends))


def draw(mixture: Mixture, row: int, n: int) -> np.ndarray:
    """Random z of one row."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(n, mixture.weights[row])
    return np.concatenate(
        [
            mean + rng.standard_normal((count, len(mean))) @ np.linalg.cholesky(covariance).T
            for count, mean, covariance in zip(counts, mixture.means[row], mixture.covariances[row], strict=True)
        ]
    )


def bisected(weights: np.ndarray, means: np.ndarray, variances: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles of mixtures of one component by the normal's, of others by a fine grid of the distribution function."""
    found = np.empty((len(weights), len(levels)))
    for n, (w, m, s) in enumerate(zip(weights, means, np.sqrt(variances), strict=True)):
        if np.count_nonzero(w) == 1:
            a = np.flatnonzero(w)[0]
            found[n] = m[a] + s[a] * ndtri(levels)
            continue
        low, high = np.full(len(levels), (m - 10 * s).min()), np.full(len(levels), (m + 10 * s).max())
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = 0.5 * np.array(
                [[math.erfc(-(x - a) / b / math.sqrt(2)) for a, b in zip(m, s, strict=True)] for x in middle]
            )
            less = below @ w < levels
            low, high = np.where(less, middle, low), np.where(less, high, middle)
        found[n] = 0.5 * (low + high)
    return found


def absurd(seed: int, n: int, size: int) -> Mixture:
    """Means up to 1e6, variances 1e-12 to 1e12, correlations up to one, one or two components."""
    rng = np.random.default_rng(seed)
    weights = np.stack([np.ones(n), rng.uniform(size=n) * (rng.uniform(size=n) < 0.2)], axis=1)
    means = rng.choice([-1, 1], (n, 2, size)) * 10 ** rng.uniform(-6, 6, (n, 2, size))
    common = rng.uniform(-1, 1, (n, 2, size)) * rng.choice([0, 0.5, 1], (n, 2, 1))
    root = 10 ** rng.uniform(-6, 6, (n, 2, size))
    correlation = common[..., :, None] * common[..., None, :]
    correlation[..., np.arange(size), np.arange(size)] = 1.0
    return Mixture(
        weights / weights.sum(axis=1, keepdims=True), means, correlation * root[..., :, None] * root[..., None, :]
    )


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


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"sna": "log"}, "transforms name the parameter 'sna', the parameters are slope, grain, sand"),
        ({"ice": "exp"}, 'transform \'exp\' of \'ice\' is not known: use "identity", "log", "sqrt"'),
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
    ],
)
def test_a_wrong_dictionary_says_what_is_wrong(spec: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
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


@pytest.mark.parametrize(
    ("column", "bad", "message"),
    [
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
    ],
)
def test_training_values_without_a_transform_are_counted(column: int, bad: list[float], message: str) -> None:
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


# moments


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
