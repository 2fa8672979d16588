"""What posteriors say of parameters that are known: densities and tails, and how sharp they are once calibrated.

The score by which settings are chosen is the density of held-out parameters under posteriors that are made as wide, by
one factor a parameter, as the errors ask for: a posterior that is too narrow is a lesser fault than one that is wrong,
because recalibration mends the one and nothing the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from ..core import LOG_2PI, Array, one_blas_thread
from ..model import GLLiMParameters
from .committee import stacking_weights
from .forward import ForwardTerms
from .posterior import posterior_blocks

OUTLIERS = 0.02
"""Share of the prior in the scored density: what one parameter that a posterior excludes can cost at most."""
WIDTHS: Array = np.geomspace(0.25, 64.0, 97)
"""Factors tried on the width of posteriors."""


@dataclass(frozen=True)
class Marginals:
    """Of n spectra with parameters t (n, L_t), in the parameters of the model.

    Attributes
    ----------
    truth : (n, L_t) t. mean : (n, L_t) of the posterior.
    log_density : (n, L_t) log p(t_l | y). below, above : (n, L_t) log P(t_l' < t_l | y), and of the contrary.
    """

    truth: Array
    log_density: Array
    below: Array
    above: Array
    mean: Array

    @classmethod
    def of(cls, theta: GLLiMParameters, spectra: Array, parameters: Array) -> Marginals:
        """Those of the forward density of a model, eq. JGMM_inverse_map."""
        n, n_t = parameters.shape
        found = cls(parameters, *(np.empty((n, n_t)) for _ in fields(cls)[1:]))
        with one_blas_thread():
            for block in posterior_blocks(ForwardTerms.of(theta), spectra):
                mixture, truth = block.posterior.mixture(n_t), parameters[block.rows]
                found.mean[block.rows] = block.posterior.moments(False, n_t)[0]
                for i in range(n_t):
                    weights, means, variances = mixture.marginal(i)
                    with np.errstate(divide="ignore"):
                        log_weights = np.log(weights)
                    z = (truth[:, i, None] - means) / np.sqrt(variances)
                    density = log_weights - 0.5 * (z * z + np.log(variances) + LOG_2PI)
                    for column, terms in zip(
                        (found.log_density, found.below, found.above),
                        (density, log_weights + log_ndtr(z), log_weights + log_ndtr(-z)),
                        strict=True,
                    ):
                        column[block.rows, i] = logsumexp(terms, axis=1)
        return found

    @classmethod
    def joined(cls, parts: Sequence[Marginals], weights: Array) -> Marginals:
        """Those of a committee of members with ``weights`` (M,)."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(weights)[:, None, None]
        truth, *logs, mean = ([getattr(part, own.name) for part in parts] for own in fields(cls))
        averages = (logsumexp(np.stack(values) + log_weights, axis=0) for values in logs)
        density, below, above = averages
        return cls(truth[0], density, below, above, np.tensordot(weights, np.stack(mean), axes=1))

    @staticmethod
    def weights_of(parts: Sequence[Marginals], frequencies: Array) -> Array:
        """Weights (M,) of members, by the densities that they give to the parameters of the same spectra."""
        return stacking_weights(np.stack([part.log_density.sum(axis=1) for part in parts], axis=1), frequencies)

    @classmethod
    def stacked(cls, parts: Sequence[Marginals]) -> Marginals:
        """Those of several sets of spectra, one after the other."""
        return cls(*(np.concatenate([getattr(part, own.name) for part in parts]) for own in fields(cls)))

    @property
    def z(self) -> Array:
        """(n, L_t) normal scores of the truth, exact in both tails."""
        lower = self.below < self.above
        tail = ndtri_exp(np.minimum(np.where(lower, self.below, self.above), np.log(0.5)))
        return np.asarray(np.where(lower, tail, -tail))

    def score(self, weights: Array, centre: Array, scale: Array) -> tuple[Array, Array]:
        """(L_t,) mean log densities of the truth over those of the prior, and the widths (L_t,) at which they are.

        ``weights`` (n,) count the spectra; the prior of each parameter is normal, of ``centre`` and ``scale`` (L_t,).
        """
        share = weights / weights.sum()
        prior = -0.5 * (((self.truth - centre) / scale) ** 2 + LOG_2PI) - np.log(scale)
        z = self.z[:, :, None]
        calibrated = self.log_density[:, :, None] + 0.5 * z * z * (1.0 - WIDTHS**-2.0) - np.log(WIDTHS)
        both = np.logaddexp(np.log1p(-OUTLIERS) + calibrated, np.log(OUTLIERS) + prior[:, :, None])
        means = np.einsum("n,nlw->lw", share, both) - (share @ prior)[:, None]
        return means.max(axis=1), WIDTHS[means.argmax(axis=1)]
