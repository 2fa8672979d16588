"""A soft bound: its moments against integrals, what it is near and far from zero, and where it is found by itself."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from specinvert.gllim.mixtures.mixture import Mixture
from specinvert.gllim.posterior.forward import ForwardTerms
from specinvert.gllim.posterior.posterior import Posterior, posterior_blocks
from specinvert.gllim.transforms import expectations
from specinvert.gllim.transforms.physical import physical_mean_and_std, physical_quantiles
from specinvert.gllim.transforms.transforms import INSET, Transforms
from strategies import SEEDS, random_theta
from transformed import bisected, integral

SOFT = Transforms.of({"a": ("softplus", 0.5)}, ["a", "b"])


@pytest.mark.oracle
@pytest.mark.parametrize("deviation", [1e-4, 0.29, 0.31, 0.9, 1.1, 2.9, 3.1, 4.9, 5.1, 40.0])
def test_moments_are_the_integrals(deviation: float) -> None:
    for mean in (-15.0, -2.0, 0.0, 0.7, 6.0, 9.0, 25.0, 200.0):
        found, variance = expectations.moments("softplus", np.array([mean]), np.array([deviation**2]))
        expected = integral(lambda z: float(np.logaddexp(0, z)), mean, deviation)
        spread = math.sqrt(integral(lambda z, m=expected: (float(np.logaddexp(0, z)) - m) ** 2, mean, deviation))
        near = 1e-5 * deviation if mean < 9.0 + 4.5 * deviation else 1.3e-4
        assert abs(found[0] - expected) < near
        assert abs(math.sqrt(variance[0]) - spread) < near
        slope = expectations.slope("softplus", np.array([mean]), np.array([deviation**2]))[0]
        assert math.isclose(slope, integral(lambda z: float(expit(z)), mean, deviation), rel_tol=1e-5, abs_tol=1e-9)


def test_it_is_the_parameter_itself_far_from_zero_and_near_its_logarithm_close_to_it() -> None:
    far = np.array([[20.0, -3.0], [4e5, 0.0]])
    settled = SOFT.settle(SOFT.tally(far))
    np.testing.assert_array_equal(settled.forward(far), far)
    np.testing.assert_array_equal(settled.inverse(far), far)
    close = np.array([[0.01, 0.0], [0.02, 0.0]])
    np.testing.assert_allclose(np.diff(settled.forward(close)[:, 0]), 0.5 * np.log(2.0), rtol=0.02)
    zero = settled.forward(np.zeros((1, 2)))
    np.testing.assert_allclose(settled.inverse(zero)[0, 0], INSET * 0.5, rtol=1e-9)
    assert settled.inverse(np.array([[-1e4, 0.0]]))[0, 0] == 0.0


@pytest.mark.property
@given(st.floats(1e-2, 1e3), st.floats(1e-3, 1e3))
def test_values_come_back_and_the_jacobian_is_the_derivative(value: float, scale: float) -> None:
    transforms = Transforms.of({"a": ("softplus", scale)}, ["a"])
    transforms = transforms.settle(transforms.tally(np.array([[value]])))
    value = max(value, INSET * scale)
    z = transforms.forward(np.array([[value]]))
    np.testing.assert_allclose(transforms.inverse(z), value, rtol=1e-9)
    step = 1e-5 * scale
    slope = (transforms.inverse(z + step) - transforms.inverse(z - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(transforms.log_jacobian(z)), slope[:, 0], rtol=1e-5)
    back = Transforms.from_attrs(transforms.to_attrs())
    assert back == transforms
    assert Transforms.of(transforms.spec, ["a"]).entries[0].unit == scale


def test_intervals_known_values_and_quantiles_follow_it() -> None:
    settled = SOFT.settle(SOFT.tally(np.ones((1, 2))))
    low, high = settled.interval_forward(0, np.array([0.0, 0.1]), np.array([1.0, np.inf]))
    assert low[0] == -np.inf
    assert high[1] == np.inf
    np.testing.assert_allclose(settled.inverse_of(0, np.array([low[1], high[0]])), [0.1, 1.0], rtol=1e-12)
    np.testing.assert_allclose(settled.inverse_of(0, settled.known_forward(0, np.array([0.0, 2.0]))), [0.00125, 2.0])
    rng = np.random.default_rng(0)
    mixture = Mixture(np.full((3, 2), 0.5), rng.normal(size=(3, 2, 2)), np.tile(np.eye(2), (3, 2, 1, 1)))
    levels = np.linspace(0.001, 0.999, 50)
    quantiles = physical_quantiles(settled, mixture, 0, levels, bisected)
    assert (np.diff(quantiles, axis=1) > 0).all()
    assert (quantiles > 0).all()
    np.testing.assert_allclose(quantiles, settled.inverse_of(0, bisected(*mixture.marginal(0), levels)), rtol=1e-12)


@pytest.mark.oracle
@pytest.mark.property
@given(SEEDS)
def test_moments_of_posteriors_are_those_of_their_mixtures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    theta = random_theta(rng, n_components=4, n_bands=6, n_parameters=2, n_latent=1)
    spectra = theta.b[rng.integers(4, size=20)] + rng.normal(size=(20, 6))
    for scale in (0.05, 2.0):
        transforms = Transforms.of({"a": ("softplus", scale)}, ["a", "b"])
        for block in posterior_blocks(ForwardTerms.of(theta), spectra):
            assert isinstance(block.posterior, Posterior)
            (mean, variance), plain = block.posterior.bounded_moments(transforms.softness)
            np.testing.assert_allclose(plain, block.posterior.moments(False, 2), rtol=1e-9, atol=1e-12)
            expected, deviation, _ = physical_mean_and_std(transforms, block.posterior.mixture(2))
            near = 3e-5 * (scale + deviation.max())
            np.testing.assert_allclose(mean, expected, atol=near)
            np.testing.assert_allclose(np.sqrt(variance), deviation, atol=30 * near)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.linspace(0, 60, 101), "softplus"),
        (np.linspace(1, 2, 101), "softplus"),
        (np.linspace(-0.01, 1, 101), "identity"),
        (np.full(9, 3.0), "identity"),
        (np.zeros(9), "identity"),
        (np.geomspace(0.1, 100, 101), "log"),
        (np.append(0.0, np.geomspace(0.1, 100, 101)), "softplus"),
        (np.linspace(0.1, 100, 101), "softplus"),
        (np.geomspace(1, 20, 101), "softplus"),
    ],
)
def test_bounds_are_found_where_training_values_are_never_below_zero(values: np.ndarray, expected: str) -> None:
    table = values[:, None]
    (entry,) = Transforms.found(None, ["a"], table).entries
    assert entry.kind == expected
    if expected == "softplus":
        assert entry.unit == pytest.approx(0.1 * values.std())
    assert Transforms.found({}, ["a"], table).is_identity
    assert Transforms.found({"a": "identity"}, ["a"], table).is_identity


def test_what_the_user_names_is_left_and_the_others_are_bounded() -> None:
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.uniform(size=(50, 2)), rng.dirichlet(np.ones(3), 50), rng.normal(size=50)])
    names = ["a", "b", "x", "y", "z", "free"]
    kinds: list[tuple[Any, list[str]]] = [
        (None, ["softplus"] * 5 + ["identity"]),
        ({"a": "identity"}, ["identity", *["softplus"] * 4, "identity"]),
        ({("x", "y", "z"): "ilr", "b": "softplus"}, ["softplus", "softplus", "ilr", "identity"]),
        ({}, ["identity"] * 6),
    ]
    for spec, expected in kinds:
        made = Transforms.found(spec, names, table)
        assert [entry.kind for entry in made.entries] == expected
        assert made.keeps_units == ("ilr" not in expected)


@pytest.mark.parametrize("value", [("softplus", 0), ("softplus", -1.0), ("softplus", np.inf), ("softplus", "x")])
def test_scales_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a scale above zero"):
        Transforms.of({"a": value}, ["a"])


def test_a_softplus_without_a_scale_is_refused_where_no_values_give_one() -> None:
    bare = Transforms.of({"a": "softplus"}, ["a"])
    with pytest.raises(ValueError, match="has no scale"):
        bare.settle(bare.tally(np.ones((2, 1))))
    with pytest.raises(ValueError, match="has no scale"):
        bare.forward(np.ones((2, 1)))
