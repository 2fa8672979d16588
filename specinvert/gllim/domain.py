"""What the tail probability of spectra like the training set is, on spectra held out of the fit.

A percentile of the training spectra themselves overfits: the noise of few samples a component has been fitted too. So a
share is held out, theta goes on for a few iterations without it, and its tail probabilities are taken.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import logsumexp

from .core import Array, hold_out, one_blas_thread
from .em import Chunk, ChunkSource, DataMoments, Fixed, Settings, Stopping, problem_of, run_em
from .model import GLLiMParameters
from .posterior import ForwardTerms, log_tail, member_shares, posterior_blocks
from .transforms import UNCHANGED, SpectraTransform

LEVEL = 0.01
"""Share of spectra like the training set that are out of the domain by definition."""
ROWS = 2000
"""Spectra that are held out at most."""
LEAST_HELD_OUT = 50
"""Spectra that are held out at least."""
NEGLIGIBLE_FIT = 0.002
"""Free parameters per training number below which spectra are as far out whether they were fitted or not."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Spectra (m, D) held out, and their log tail probabilities (m, M) under M fits that have not seen them.

    ``weights`` (M,) are those of the fits; None: equal.
    """

    spectra: Array
    tails: Array
    weights: Array | None = None

    @property
    def log_level(self) -> float:
        """Log tail probability of the committee that a hundredth of the spectra fall below."""
        return _level(self.tails, self.weights)


def held_out_tails(
    source: ChunkSource,
    settings: Settings,
    thetas: Sequence[GLLiMParameters],
    moments: DataMoments,
    weights: Array | None = None,
) -> HeldOut | None:
    """Hold out training spectra, and find how far out they are for the models that never saw them.

    None where fewer than twice ``LEAST_HELD_OUT`` rows are there, or too few remain for a fit without them.
    """
    n_rows = moments.spectra.n_rows
    if n_rows < 2 * LEAST_HELD_OUT:
        return None
    share = min(max(LEAST_HELD_OUT, min(ROWS, n_rows // 10)) / n_rows, 0.5)
    theta = thetas[0]
    refit = theta.n_free > NEGLIGIBLE_FIT * n_rows * theta.n_bands
    held = source.where(partial(held_out_rows, share=share)).sample(2 * ROWS)
    if not len(held):
        return None
    columns = []
    for theta in thetas:
        if refit:
            try:
                theta = _without(source, settings, moments, theta, share)
            except ValueError:
                return None
        columns.append(_tails(theta, held.spectra))
    return HeldOut(np.asarray(held.spectra), np.stack(columns, axis=1), weights)


def level_with_noise(
    thetas: Sequence[GLLiMParameters],
    spectra: Array,
    log_level: float,
    noise: Array,
    weights: Array | None = None,
    transform: SpectraTransform = UNCHANGED,
) -> float:
    """The level of spectra with noise beyond training's, of variance (), variances (D,) or covariance (D, D).

    A misfit counts for less under more noise: the level is that of held-out ``spectra`` with a draw of the noise, and
    as much lower, in proportion of logarithms, as theirs without noise is lower for fits that have not seen them. Where
    ``spectra`` and ``thetas`` are under a transform, noise is not, and taken for what it is at the median spectrum.
    """
    if transform.kind is not None:
        slope = transform.slope(np.median(transform.inverse(spectra), axis=0)[None])[0]
        slope = np.where(np.isfinite(slope), slope, 0.0)
        noise = slope[:, None] * noise * slope if noise.ndim == 2 else noise * slope**2
    rng = np.random.default_rng(0)
    z = rng.standard_normal(spectra.shape)
    if noise.ndim == 2:
        values, vectors = np.linalg.eigh(noise)
        noisy = spectra + (z * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    else:
        noisy = spectra + z * np.sqrt(noise)
    plain = _level(np.stack([_tails(theta, spectra) for theta in thetas], axis=1), weights)
    level = _level(np.stack([_tails(theta.with_noise(noise), noisy) for theta in thetas], axis=1), weights)
    return level * max(log_level / plain, 1.0)


def _level(tails: Array, weights: Array | None) -> float:
    together = logsumexp(tails, axis=1, b=member_shares(tails.shape[1], weights))
    return float(np.quantile(together, LEVEL))


def _without(
    source: ChunkSource, settings: Settings, moments: DataMoments, theta: GLLiMParameters, share: float
) -> GLLiMParameters:
    """A few iterations on from theta, on the rows not held out."""
    rest = source.where(partial(held_out_rows, share=share, others=True))
    problem = replace(problem_of(rest, settings, moments), stopping=Stopping(3, 0.0))
    problem = problem.constrained(sigma_blocks=theta.constraints.sigma_blocks)
    with one_blas_thread():
        fixed = Fixed.of(problem.scaling.inverse().to_user(theta))
        return run_em(problem, theta, fixed, level=logging.DEBUG).parameters


def _tails(theta: GLLiMParameters, spectra: Array) -> Array:
    tails = np.empty(len(spectra))
    with one_blas_thread():
        for block in posterior_blocks(ForwardTerms.of(theta), spectra):
            tails[block.rows] = log_tail(block.posterior.weights, block.posterior.distances(), block.n_valid)
    return tails


def held_out_rows(chunk: Chunk, share: float, others: bool = False) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Rows to hold out, by a hash of their values: the same in any order and chunks, copies together."""
    held = hold_out(share, chunk.parameters, chunk.spectra[:, :: max(1, chunk.spectra.shape[1] // 8)])
    return ~held if others else held
