"""Sufficient statistics add up: no rows add nothing, and the sums are the same in whatever grouping."""

from dataclasses import fields

import numpy as np
import pytest

from specinvert.gllim.em.source import Chunk
from specinvert.gllim.em.statistics import Accumulator, LatentPosterior, SufficientStatistics
from specinvert.gllim.model.constraints import STRUCTURES

N_COMPONENTS, N_BANDS, N_PARAMETERS, N_LATENT = 3, 5, 2, 1


def statistics_of(n: int, sigma: str, seed: int) -> SufficientStatistics:
    rng = np.random.default_rng(seed)
    chunk = Chunk(rng.normal(size=(n, N_BANDS)), rng.normal(size=(n, N_PARAMETERS)), np.ones(n))
    weights = rng.dirichlet(np.ones(N_COMPONENTS), n)
    latent = rng.normal(size=(n, N_LATENT, N_COMPONENTS))
    root = np.ones((N_COMPONENTS, N_LATENT, N_LATENT))
    r_wz = LatentPosterior(np.zeros((N_COMPONENTS, N_LATENT)), root, root @ root.transpose(0, 2, 1))
    accumulator = Accumulator(STRUCTURES[sigma], r_wz, N_PARAMETERS, N_BANDS)
    accumulator.add(chunk, weights, latent, float(n))
    return accumulator.statistics()


def assert_equal(first: SufficientStatistics, second: SufficientStatistics, rtol: float = 0.0) -> None:
    for field in fields(SufficientStatistics):
        np.testing.assert_allclose(getattr(first, field.name), getattr(second, field.name), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("sigma", sorted(STRUCTURES))
def test_no_rows_add_nothing(sigma: str) -> None:
    nothing, sums = statistics_of(0, sigma, seed=1), statistics_of(20, sigma, seed=0)
    assert_equal(nothing + sums, sums)
    assert_equal(sums + nothing, sums)


@pytest.mark.parametrize("sigma", sorted(STRUCTURES))
def test_sums_do_not_depend_on_the_grouping(sigma: str) -> None:
    a, b, c = (statistics_of(n, sigma, seed=n) for n in (7, 20, 33))
    assert_equal((a + b) + c, a + (b + c), rtol=1e-13)
