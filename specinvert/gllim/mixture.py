"""Gaussian mixtures written out, one a row: what every summary of a posterior is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arrays import Array


@dataclass(frozen=True)
class Mixture:
    """n Gaussian mixtures of at most A components over L dimensions.

    Attributes
    ----------
    weights : (n, A), zero or more, each row summing to one; a row may have zeros anywhere, and all zeros where there
        was nothing to estimate from.
    means : (n, A, L). covariances : (n, A, L, L), positive definite; of any finite value where the weight is zero.
    """

    weights: Array
    means: Array
    covariances: Array

    @property
    def n_dimensions(self) -> int:
        """L."""
        return self.means.shape[2]

    def __len__(self) -> int:
        return len(self.weights)

    def marginal(self, index: int) -> tuple[Array, Array, Array]:
        """Weights, means and variances (n, A) of one dimension."""
        return self.weights, self.means[:, :, index], self.covariances[:, :, index, index]

    def select(self, rows: NDArray[np.intp] | NDArray[np.bool_] | slice) -> Mixture:
        """Some of the rows."""
        return Mixture(self.weights[rows], self.means[rows], self.covariances[rows])

    def moments(self) -> tuple[Array, Array]:
        """Mean (n, L) and covariance (n, L, L), eq. JGMM_inverse_exp; NaN in rows without weight."""
        mean = np.einsum("na,nal->nl", self.weights, self.means)
        gap = self.means - mean[:, None, :]
        within = self.covariances + gap[:, :, :, None] * gap[:, :, None, :]
        covariance = np.einsum("na,nalm->nlm", self.weights, within)
        empty = ~(self.weights.sum(axis=1) > 0.0)
        mean[empty], covariance[empty] = np.nan, np.nan
        return mean, covariance


def joined(parts: Sequence[Mixture], shares: Array) -> Mixture:
    """The mixture of mixtures of the same rows: part m counts ``shares[:, m]``, shares (n, M) summing to one."""
    return Mixture(
        np.concatenate([part.weights * shares[:, m : m + 1] for m, part in enumerate(parts)], axis=1),
        np.concatenate([part.means for part in parts], axis=1),
        np.concatenate([part.covariances for part in parts], axis=1),
    )
