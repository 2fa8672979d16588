"""Truncated mixtures written out as mixtures."""

import numpy as np
import pytest
from hypothesis import given

from specinvert.gllim.mixtures.mixture import Mixture
from specinvert.gllim.mixtures.truncation import NODES, RULE, truncated, written_out
from specinvert.gllim.transforms.physical import physical_moments
from specinvert.gllim.transforms.transforms import Transforms
from truncations import conditional, integrals, intervals, make, mixtures

pytestmark = pytest.mark.oracle


def whole(mixture: Mixture, *interval: float) -> Mixture:
    """All blocks in one."""
    blocks = list(written_out(mixture, 0, *interval))
    return Mixture(*(np.concatenate([getattr(b, name) for b in blocks]) for name in Mixture.__dataclass_fields__))


@given(mixtures, intervals)
def test_moments_are_those_of_the_truncated_mixture(mixture: Mixture, interval: tuple[float, float]) -> None:
    found, expected = whole(mixture, *interval).moments(), truncated(mixture, 0, *interval)
    scale = np.sqrt(np.einsum("naii->ni", mixture.covariances))[:, None, :]
    np.testing.assert_allclose(found[0], expected.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        found[1] / (scale * scale.transpose(0, 2, 1)),
        expected.covariance / (scale * scale.transpose(0, 2, 1)),
        atol=1e-9,
    )


@pytest.mark.parametrize("interval", [(-1.0, 0.5), (0.0, np.inf), (-np.inf, 1.0), (2.0, 2.1)])
def test_means_of_exponentials_are_the_integrals(interval: tuple[float, float]) -> None:
    mixture = make(5, spread=0.5)
    mean, covariance, overflow = physical_moments(
        Transforms.of({"a": "log", "b": "log"}, ["a", "b", "c"]), whole(mixture, *interval)
    )
    assert not overflow.any()
    for row in range(len(mixture)):
        x, weight = integrals(mixture, *interval, 1)[:2]
        density, centre, variance = conditional(mixture, row, 1, x)
        mass = (weight[..., None] * density).sum()
        first = (weight[..., None] * density * np.exp(centre + 0.5 * variance)).sum() / mass
        both = (weight[..., None] * density * np.exp(x[..., None] + centre + 0.5 * variance)).sum() / mass
        alone = (weight[..., None] * density * np.exp(x)[..., None]).sum() / mass
        np.testing.assert_allclose(mean[row, :2], [alone, first], rtol=1e-9)
        np.testing.assert_allclose(covariance[row, 0, 1], both - alone * first, atol=1e-8 * alone * first)


def test_equal_ends_put_all_weight_on_the_value() -> None:
    found = whole(make(2), 0.3, 0.3)
    np.testing.assert_array_equal(found.means[found.weights > 0][:, 0], 0.3)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
    expected = truncated(make(2), 0, 0.3, 0.3)
    np.testing.assert_allclose(found.moments()[0], expected.mean, rtol=1e-12)


def test_rows_come_in_blocks_and_do_not_depend_on_their_company() -> None:
    mixture = make(3, n=2 * NODES // (3 * RULE.shape[1]) + 3)
    low = np.linspace(-2.0, 1.0, len(mixture))
    blocks = list(written_out(mixture, 0, low, low + 1.0))
    assert len(blocks) == 3
    where = slice(len(blocks[0]) + len(blocks[1]), len(mixture))
    (alone,) = written_out(mixture.select(where), 0, low[where], low[where] + 1.0)
    for name in Mixture.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(alone, name), getattr(blocks[-1], name))


def test_rows_without_weight_and_missing_ends_have_none() -> None:
    mixture = make(4)
    mixture.weights[0] = 0.0
    (found,) = written_out(mixture, 0, np.array([-1.0, np.nan, -1.0]), 1.0)
    np.testing.assert_allclose(found.weights.sum(axis=1), [0.0, 0.0, 1.0])
    assert np.isfinite(found.means).all()
    assert np.isfinite(found.covariances).all()
