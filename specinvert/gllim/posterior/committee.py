"""What a model, or a committee of models, says of a block of spectra: one posterior, its evidence and its tail.

A committee's posterior is the average of its members' posteriors, with equal shares or in proportion to the density
p_m(y) that each gives to the spectrum; its evidence is the mean of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from ..core import Array, normalize_rows
from ..mixtures import Mixture, joined
from .forward import ForwardTerms, Prior
from .posterior import NOTHING, PosteriorBlock, Rows, SideInformation, posterior_blocks
from .tail import log_tail


@dataclass(frozen=True)
class Estimate:
    """The members' posteriors of some rows; arrays hold until the next estimate is asked for.

    Attributes
    ----------
    blocks : one a member, of the same rows. by_evidence : whether shares follow p_m(y).
    """

    blocks: tuple[PosteriorBlock, ...]
    by_evidence: bool

    @property
    def rows(self) -> slice | NDArray[np.intp]:
        """The rows of the spectra that this is of."""
        return self.blocks[0].rows

    @property
    def n_valid(self) -> int | NDArray[np.intp]:
        """Bands that are there, one number or (n,)."""
        return self.blocks[0].n_valid

    @property
    def known(self) -> tuple[int, ...]:
        """Indices of the parameters known in all of the rows."""
        return self.blocks[0].known

    @cached_property
    def _evidences(self) -> Array:
        return np.stack([block.posterior.log_evidence for block in self.blocks], axis=1)

    @cached_property
    def shares(self) -> Array:
        """Each member's share (n, M)."""
        evidences = self._evidences
        if self.by_evidence:
            return np.asarray(softmax(evidences, axis=1))
        return np.full(evidences.shape, 1.0 / evidences.shape[1])

    @cached_property
    def log_evidence(self) -> Array:
        """(n,) log p(y), given what is known."""
        if len(self.blocks) == 1:
            return self._evidences[:, 0]
        return np.asarray(logsumexp(self._evidences, axis=1) - np.log(len(self.blocks)))

    def moments(self, covariance: bool, size: int) -> tuple[Array, Array]:
        """Mean (n, size) of the first unknown dimensions, with variances (n, size) or covariance (n, size, size)."""
        parts = [block.posterior.moments(covariance, size) for block in self.blocks]
        if len(parts) == 1:
            return parts[0]
        shares = self.shares.T
        mean = np.einsum("mn,mni->ni", shares, np.stack([m for m, _ in parts]))
        spread = np.zeros_like(parts[0][1])
        for share, (own, within) in zip(shares, parts, strict=True):
            gap = own - mean
            between = gap[:, :, None] * gap[:, None, :] if covariance else gap * gap
            spread += share.reshape(-1, *(1,) * (spread.ndim - 1)) * (within + between)
        return mean, spread

    def mixture(self, size: int, rows: Rows = slice(None)) -> Mixture:
        """The mixture of the first ``size`` unknown dimensions, of some of the rows."""
        parts = [block.posterior.mixture(size, rows) for block in self.blocks]
        return parts[0] if len(parts) == 1 else joined(parts, self.shares[rows])

    def components(self) -> Mixture:
        """The mixture of all components of all members, in their order."""
        parts = [block.posterior.components() for block in self.blocks]
        return parts[0] if len(parts) == 1 else joined(parts, self.shares)

    def prior(self, terms: Sequence[ForwardTerms], known: Array | None, n: int) -> Mixture:
        """What the members say of the unknown dimensions of n rows before their spectra, given ``known`` (n, s)."""
        parts = []
        for own in terms:
            prior = Prior.of(own.theta, self.known)
            values = np.empty((n, 0)) if known is None else known
            weights = prior.log_weights(own.theta, values)
            normalize_rows(weights, np.empty(n))
            means = np.einsum("krq,nq->nkr", prior.mean, prior.regressors(values))
            covariances = np.broadcast_to(prior.covariance, (n, *prior.covariance.shape))
            parts.append(Mixture(weights, means, covariances))
        return parts[0] if len(parts) == 1 else joined(parts, np.full((n, len(parts)), 1.0 / len(parts)))

    def log_tail(self) -> Array:
        """(n,) log of the tail probability of the spectra."""
        tails = [log_tail(b.posterior.weights, b.posterior.distances(), b.n_valid) for b in self.blocks]
        if len(tails) == 1:
            return tails[0]
        with np.errstate(divide="ignore"):
            return np.asarray(logsumexp(np.stack(tails, axis=1), b=self.shares, axis=1))


def estimates(
    terms: Sequence[ForwardTerms],
    spectra: Array,
    given: SideInformation = NOTHING,
    by_evidence: bool = False,
    every_component: bool = False,
) -> Iterator[Estimate]:
    """Estimates of spectra (n, D), NaN where missing, block by block; rows without enough bands are in none."""
    runs = [posterior_blocks(own, spectra, every_component, given) for own in terms]
    for blocks in zip(*runs, strict=True):
        yield Estimate(blocks, by_evidence)
