"""What is settled before EM: parts of theta that the user gives, and groups of bands whose noise is correlated.

The groups, for a block-diagonal Sigma, are found from the residuals of a first fit with a diagonal Sigma. Bands are
clustered by average linkage on 1 - |correlation|, pooled over components: a group holds bands correlated by
``CORRELATION`` or more on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import Array
from ..model import DIAG, FIXABLE, Constraints, GLLiMParameters, Scaling
from .em import Problem, Stopping, run_em
from .initialize import Start
from .maximization import ComponentMoments, Fixed, regression
from .source import Chunk, as_numbers

EQUAL = 1e-9
"""Greatest difference, relative to the largest entry, of a given Sigma from one that has the structure asked for."""


def check_names(fixed: Any) -> tuple[str, ...]:
    """The names of the parts, in the order of theta; raises where there are others."""
    if fixed is None:
        return ()
    if not isinstance(fixed, Mapping):
        raise ValueError(f"fixed={fixed!r} must be a dictionary of arrays by the names {', '.join(map(repr, FIXABLE))}")
    unknown = [name for name in fixed if name not in FIXABLE]
    if unknown:
        raise ValueError(f"fixed names {unknown[0]!r}, which is not one of {', '.join(map(repr, FIXABLE))}")
    return tuple(name for name in FIXABLE if name in fixed)


def fixed_parts(
    fixed: Mapping[str, Any] | None, constraints: Constraints, scaling: Scaling, n_components: int
) -> dict[str, Array]:
    """The given parts in scaled units, one a component.

    Parameters
    ----------
    fixed : in the user's units: "pi" (K,); "c" () to (K, L_t); "Gamma" (L_t, L_t) or (K, L_t, L_t); "Sigma" a variance
        (), variances (D,), a covariance (D, D) or one a component (K, D, D).
    constraints : whose structure Sigma must have. scaling : the units of the fit. n_components : K.

    Raises
    ------
    ValueError : another shape, weights that do not sum to one, a covariance that is not positive definite or has
        another structure.
    """
    parts: dict[str, Array] = {}
    n_t, n_bands = len(scaling.parameters_scale), len(scaling.spectra_scale)
    for name in check_names(fixed):
        assert fixed is not None
        what, given = f"fixed {name}", fixed[name]
        if name in ("c", "Gamma") and n_t == 0:
            raise ValueError(f"{what} is of parameters, and there are none: latent_mean and latent_covariance")
        if name == "pi":
            weights = as_array(what, given, (n_components,))
            if not (weights > 0).all() or abs(weights.sum() - 1.0) > EQUAL:
                raise ValueError(f"{what} must be positive and sum to one, not to {weights.sum():g}")
            parts[name] = weights
        elif name == "c":
            centred = as_array(what, given, (n_components, n_t)) - scaling.parameters_shift
            parts[name] = centred / scaling.parameters_scale
        elif name == "Gamma":
            covariance = as_covariances(what, given, (n_components, n_t, n_t))
            parts[name] = covariance / np.outer(scaling.parameters_scale, scaling.parameters_scale)
        else:
            parts[name] = _noise(given, constraints, scaling, (n_components, n_bands, n_bands))
    return parts


def as_array(what: str, given: Any, shape: tuple[int, ...]) -> Array:
    """Finite numbers of a shape that they broadcast to; ValueError where they are not."""
    values = as_numbers(what, given)
    if not np.isfinite(values).all():
        raise ValueError(f"{what} holds NaN or infinite values")
    try:
        return np.broadcast_to(values, shape).copy()
    except ValueError:
        raise ValueError(f"{what} has shape {values.shape}, which does not broadcast to {shape}") from None


def as_covariances(what: str, given: Any, shape: tuple[int, ...]) -> Array:
    """Covariances of a shape that they broadcast to; ValueError where they are not symmetric or positive definite."""
    covariances = as_array(what, given, shape)
    off = np.abs(covariances - covariances.transpose(0, 2, 1)).max(initial=0.0)
    if off > EQUAL * np.abs(covariances).max(initial=0.0):
        raise ValueError(f"{what} must be symmetric, it is off by {off:g}")
    least = np.linalg.eigvalsh(covariances).min(initial=np.inf)
    if not least > 0:
        raise ValueError(f"{what} must be positive definite, it has an eigenvalue of {least:g}")
    return covariances


def _noise(given: Any, constraints: Constraints, scaling: Scaling, shape: tuple[int, ...]) -> Array:
    values, n_bands, structure = as_numbers("fixed Sigma", given), shape[-1], constraints.structure
    if values.shape in ((), (n_bands,)):
        values = np.where(np.eye(n_bands, dtype=bool), values, 0.0)
    dense = as_covariances("fixed Sigma", values, shape)
    compact = np.ascontiguousarray(structure.compact(dense))
    if np.abs(structure.dense(compact, n_bands) - dense).max() > EQUAL * np.abs(dense).max():
        raise ValueError(f"fixed Sigma has not the structure of sigma={constraints.sigma!r}: ask for another")
    return structure.rescale(compact, 1.0 / scaling.spectra_scale)[1]


CORRELATION = 0.5
"""Mean absolute correlation down to which groups of bands are merged."""
ITERATIONS = 20
"""Iterations of the first fit at most."""


def find_blocks(problem: Problem, start: Start | GLLiMParameters, fixed: Fixed) -> tuple[int, ...]:
    """The group (D,) of each band. One D x D array is formed; the same data and start give the same groups."""
    stopping = Stopping(min(problem.stopping.max_iter, ITERATIONS), problem.stopping.tol)
    first = replace(problem, stopping=stopping, algorithm="general").constrained(sigma=DIAG.name, sigma_blocks=None)
    theta = run_em(first, start, fixed).parameters
    sums = first.expectation(problem.scaling.inverse().to_user(theta))
    squares = problem.source.sum(_second_moments, problem.scaling, len(problem.rules.spectra))
    moments = ComponentMoments.of(sums, first.constraints.intercept)
    A = regression(moments, first.rules)
    explained = np.einsum("k,kd,ke->de", moments.share, moments.y, moments.y)
    slopes = 2.0 * moments.xy - moments.xx @ A.transpose(0, 2, 1)
    explained += np.einsum("k,kdl,kle->de", moments.share, A, slopes)
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
