"""Hybrid GLLiM-EM: E-steps and M-steps over something that sums statistics over chunks.

The steps are those of section "The General Hybrid GLLiM-EM Algorithm", or of one of its variants
(:mod:`.variants`). Where there are latents, one marginal M-step (Appendix B) and an E-step come first, unless the
components tell the latents of shared maps apart; else EM starts straight from the responsibilities. Each
iteration is an M-step, then an E-step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..core import Array
from ..model import DIAG, FULL, Constraints, GLLiMParameters, Scaling, bic
from .initialize import Start, marginal_maximization, start_statistics
from .maximization import ComponentMoments, Fixed, Kept, Rules, maximization, regression
from .source import Chunk, ChunkSource
from .statistics import ConditionalTerms, SufficientStatistics, expectation
from .variants import SWEEPS, latent_cycle, marginal_step, regression_cycle

logger = logging.getLogger(__name__)

MARGINAL = ("marginal", "ecm")
"""Algorithms whose E-step integrates the latents out."""
CORRELATION = 0.5
"""Mean absolute correlation down to which groups of bands are merged."""


@dataclass(frozen=True)
class Stopping:
    """When EM stops: after ``max_iter`` iterations, or when one gains less than ``tol`` nats a unit of weight."""

    max_iter: int
    tol: float


@dataclass(frozen=True)
class Fit:
    """A fitted model, in the user's units.

    ``log_likelihoods[i]`` is the observed log-likelihood after iteration i; ``n_removed`` counts the components
    that degenerated, ``removed_at`` the iterations that removed some (-1: the start). ``log_prior`` is that of a shrunk
    Sigma, up to a constant.
    """

    parameters: GLLiMParameters
    log_likelihoods: list[float]
    converged: bool
    total_weight: float
    n_removed: int = 0
    removed_at: list[int] = field(default_factory=list)
    log_prior: float = 0.0

    @property
    def n_iter(self) -> int:
        """Iterations done."""
        return len(self.log_likelihoods)

    @property
    def bic(self) -> float:
        """Bayesian information criterion on the training data."""
        return bic(self.log_likelihoods[-1], self.parameters.n_free, self.total_weight)


@dataclass(frozen=True)
class State:
    """Where a run of EM is after an iteration: all that is needed to go on to the same bits.

    ``theta`` is in the scaled units of the run; ``n_asked`` the number of components at its start.
    """

    theta: GLLiMParameters
    log_likelihoods: list[float]
    removed_at: list[int]
    n_asked: int
    converged: bool = False


@dataclass(frozen=True)
class Problem:
    """The training data with all that stays the same during EM."""

    source: ChunkSource
    scaling: Scaling
    rules: Rules
    stopping: Stopping
    algorithm: str = "general"

    @property
    def constraints(self) -> Constraints:
        """What is held equal, zero or fixed in theta."""
        return self.rules.constraints

    def constrained(self, **changes: Any) -> Problem:
        """The same problem with other constraints."""
        return replace(self, rules=replace(self.rules, constraints=replace(self.constraints, **changes)))

    @property
    def log_volume(self) -> float:
        """What a sample's log-density in scaled units is more than in the user's."""
        return self.scaling.spectral_log_volume if self.constraints.flat else self.scaling.log_volume

    def expectation(self, theta: GLLiMParameters) -> SufficientStatistics:
        """E-step over all chunks; the marginal variants need no latents, but all second moments of the spectra."""
        marginal = self.algorithm in MARGINAL and theta.n_latent > 0
        structure = FULL if marginal else self.constraints.structure
        terms = ConditionalTerms.of(theta)
        return self.source.sum(partial(expectation, terms, structure, self.scaling, latents=not marginal))

    def maximization(
        self, sums: SufficientStatistics, theta: GLLiMParameters | None, fixed: Fixed
    ) -> tuple[GLLiMParameters, Kept]:
        """The M-step, and the components kept; ``theta`` is what ``sums`` came from, if anything."""
        if theta is None or fixed.dimension == 0 or self.algorithm == "general":
            return maximization(sums, fixed, self.rules)
        if self.algorithm in MARGINAL:
            sweeps = SWEEPS if self.algorithm == "marginal" else 1
            return marginal_step(sums, theta, fixed, self.rules, sweeps)
        theta, kept = regression_cycle(sums, theta, fixed, self.rules)
        sums = self.expectation(theta)
        theta, still = latent_cycle(sums, theta, fixed.keep(kept), self.rules)
        kept[np.flatnonzero(kept)[~still]] = False
        return theta, kept

    def start(
        self, start: Start | GLLiMParameters, fixed: Fixed
    ) -> tuple[SufficientStatistics, GLLiMParameters | None, Fixed]:
        """Statistics for the first M-step, the theta of their E-step, and what is fixed of its components.

        ``start`` gives responsibilities, or is a theta in the user's units (a warm start). There is no theta where
        statistics come straight from responsibilities.
        """
        if isinstance(start, GLLiMParameters):
            theta = self.scaling.inverse().to_user(start)
            return self.expectation(theta), theta, fixed
        told_apart = self.constraints.tied_maps and np.ptp(fixed.mean, axis=0).any()
        if fixed.dimension and not told_apart:
            theta, kept = marginal_maximization(self.source, self.scaling, start, fixed, self.rules)
            return self.expectation(theta), theta, fixed.keep(kept)
        row_numbers = len(fixed.mean) * (len(self.rules.parameters) + fixed.dimension + 1)
        step = partial(start_statistics, start, self.constraints.structure, fixed)
        return self.source.sum(step, self.scaling, row_numbers), None, fixed


def run_em(
    problem: Problem,
    start: Start | GLLiMParameters | State,
    fixed: Fixed,
    progress: Callable[[int, float], None] | None = None,
    keep: Callable[[State], None] | None = None,
    level: int = logging.WARNING,
) -> Fit:
    """Fit theta from a start, or go on from a state.

    ``progress(iteration, log_likelihood)`` and ``keep(state)`` are called after each iteration; components that are
    removed are logged at ``level``.

    Raises ValueError when all components degenerate.
    """
    n_asked, converged = len(fixed.mean), False
    log_likelihoods: list[float] = []
    removed_at: list[int] = []
    log_prior = 0.0
    theta: GLLiMParameters | None
    if isinstance(start, State):
        theta, log_likelihoods, removed_at = start.theta, list(start.log_likelihoods), list(start.removed_at)
        n_asked, converged, fixed = start.n_asked, start.converged, Fixed.of(theta)
        sums = problem.expectation(theta)
        log_prior = problem.rules.log_prior(theta, sums.total)
    else:
        sums, theta, fixed = problem.start(start, fixed)
        if len(sums.r) < n_asked:
            removed_at.append(-1)
            logger.log(level, "start: %d of %d components degenerated and were removed", n_asked - len(sums.r), n_asked)
    while not converged and len(log_likelihoods) < problem.stopping.max_iter:
        iteration = len(log_likelihoods)
        theta, kept = problem.maximization(sums, theta, fixed)
        fixed = fixed.keep(kept)
        if not kept.all():
            removed_at.append(iteration)
            lost = np.count_nonzero(~kept)
            message = "iteration %d: %d of %d components degenerated and were removed"
            logger.log(level, message, iteration, lost, len(kept))
        sums = problem.expectation(theta)
        if not np.isfinite(sums.log_likelihood):
            raise ValueError(
                f"the log-likelihood is {sums.log_likelihood} after iteration {iteration}: training spectra or "
                "parameters are too extreme for float64; rescale them or use standardize=True"
            )
        log_likelihoods.append(sums.log_likelihood - sums.total * problem.log_volume)
        before, log_prior = log_prior, problem.rules.log_prior(theta, sums.total)
        if iteration > 0 and kept.all() and problem.stopping.tol > 0:
            gain = log_likelihoods[-1] - log_likelihoods[-2] + log_prior - before
            converged = gain < problem.stopping.tol * sums.total
        if progress is not None:
            progress(iteration, log_likelihoods[-1])
        if keep is not None:
            keep(State(theta, list(log_likelihoods), list(removed_at), n_asked, converged))
    assert theta is not None
    return Fit(
        parameters=problem.scaling.to_user(theta),
        log_likelihoods=log_likelihoods,
        converged=converged,
        total_weight=sums.total,
        n_removed=n_asked - theta.n_components,
        removed_at=removed_at,
        log_prior=log_prior,
    )


def find_blocks(problem: Problem, start: Start | GLLiMParameters, fixed: Fixed) -> tuple[int, ...]:
    """The group (D,) of each band, from pooled residuals of a first fit with a diagonal Sigma: see :func:`groups`.

    One D x D array is formed; the same data and start give the same groups.
    """
    stopping = Stopping(min(problem.stopping.max_iter, 20), problem.stopping.tol)
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
    """The group (D,) of each band, by average linkage on 1 - |correlation| of a covariance (D, D)."""
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
