"""Groups of bands whose noise is correlated, for a block-diagonal Sigma, found from the residuals of a first fit.

The first fit has a diagonal Sigma. Bands are clustered by average linkage on 1 - |correlation| of its residuals, pooled
over components: a group holds bands correlated by ``CORRELATION`` or more on average.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .arrays import Array
from .chunks import Chunk
from .em import Problem, Stopping, run_em
from .initialize import Start
from .maximization import Fixed, Moments, regression
from .parameters import GLLiMParameters

CORRELATION = 0.5
"""Mean absolute correlation down to which groups of bands are merged."""
ITERATIONS = 20
"""Iterations of the first fit at most."""


def find_blocks(problem: Problem, start: Start | GLLiMParameters, fixed: Fixed) -> tuple[int, ...]:
    """The group (D,) of each band. One D x D array is formed; the same data and start give the same groups."""
    constraints = replace(problem.constraints, sigma="diag", sigma_blocks=None)
    stopping = Stopping(min(problem.stopping.max_iter, ITERATIONS), problem.stopping.tol)
    first = replace(problem, constraints=constraints, stopping=stopping, algorithm="general")
    theta = run_em(first, start, fixed).parameters
    sums = first.expectation(problem.scaling.inverse().to_user(theta))
    squares = problem.source.sum(_second_moments, problem.scaling, len(problem.floor.spectra))
    moments = Moments.of(sums, constraints.intercept)
    maps = regression(moments, constraints, problem.floor)
    explained = np.einsum("k,kd,ke->de", moments.share, moments.y, moments.y)
    slopes = 2.0 * moments.xy - moments.xx @ maps.transpose(0, 2, 1)
    explained += np.einsum("k,kdl,kle->de", moments.share, maps, slopes)
    return groups(squares / sums.total - 0.5 * (explained + explained.T))


def groups(covariance: Array) -> tuple[int, ...]:
    """The group (D,) of each band, by the correlations in a covariance (D, D)."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(covariance) == 1:
        return (0,)
    deviation = np.sqrt(np.maximum(np.diagonal(covariance), np.finfo(float).tiny))
    distance = 1.0 - np.minimum(np.abs(covariance / np.outer(deviation, deviation)), 1.0)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), "average")
    return tuple(int(label) for label in fcluster(tree, 1.0 - CORRELATION, "distance"))


def _second_moments(chunk: Chunk) -> Array:
    return (chunk.spectra * chunk.weights[:, None]).T @ chunk.spectra
