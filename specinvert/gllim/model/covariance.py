"""Covariance structures of Sigma, looked up by name.

A structure turns a compact array into what the algorithm asks of K covariances of size D x D, without
forming them unless the structure is "full":

==========  ===========  ==========================
name        compact      covariance
==========  ===========  ==========================
``iso``     (K,)         one variance for all bands
``diag``    (K, D)       one variance a band
``full``    (K, D, D)    unconstrained
``block``   (K, P)       zero between groups of bands
==========  ===========  ==========================

P is the number of pairs of bands of one group. The groups are part of a block structure, hence :func:`structure_of`.

The constraints are those that close section "General Hybrid GLLiM-EM Algorithm" of the paper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ..core import Array, accumulate_squares
from .residuals import TILE_ROWS, Basis, Expanded, Formed, LogJoint

SINGULAR = 1e-14
"""Smallest share of a band's own variance that float64 sums can tell from zero."""


Bands = NDArray[np.intp] | slice


class Structure(ABC):
    """What the algorithm needs of K covariances that share a structure."""

    name: str
    rows: int
    """Rows to take at a time in training: what they need stays in the cache, or is worth a product."""

    @abstractmethod
    def n_free(self, n_bands: int) -> int:
        """Free parameters of one covariance of ``n_bands`` bands."""

    @abstractmethod
    def dense(self, compact: Array, n_bands: int) -> Array:
        """The covariances as (K, D, D)."""

    @abstractmethod
    def compact(self, dense: Array) -> Array:
        """The compact covariances of this structure nearest to (K, D, D), as section "Generalization" constrains."""

    @abstractmethod
    def select(self, compact: Array, bands: NDArray[np.intp]) -> Array:
        """The compact covariances of a subset of the bands: the marginal's."""

    @abstractmethod
    def rescale(self, compact: Array, scale: Array) -> Array:
        """The compact covariances of ``scale * y``, scale (D,)."""

    @abstractmethod
    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        """Add the sum over rows of ``weights[n, k] y_n y_n'`` in compact form; iso holds the trace."""

    @abstractmethod
    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        """Shape of the second moments."""

    @abstractmethod
    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        """Compact residual covariance of y given x, eq. SOLVA_Sigmak.

        ``yy`` are second moments divided by r_k, ``mean`` (K, D) the weighted mean, ``maps`` A (K, D, L),
        ``xy`` (K, L, D) and ``xx`` (K, L, L) the centred moments, S^x included in ``xx``.
        """

    @abstractmethod
    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        """No variance below ``ratio`` times the band's own ``variance`` (D,): the constrained maximiser."""

    @abstractmethod
    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        """(K,): covariances that cannot be told from singular ones."""

    @abstractmethod
    def log_det(self, compact: Array, n_bands: int) -> Array:
        """(K,) log determinants."""

    @abstractmethod
    def solve(self, compact: Array, columns: Array) -> Array:
        """``Sigma_k^-1 columns_k`` for columns (K, D, m)."""

    @abstractmethod
    def whiten(self, compact: Array, columns: Array) -> Array:
        """``Sigma_k^-1/2 columns_k`` for columns (K, D, m), by the root that :meth:`residual_products` takes."""

    @abstractmethod
    def log_joint(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> LogJoint:
        """Prepare the distances of residuals y_n - regression_k x_n, regression (K, D, q), less what a basis explains.

        ``signal`` (D,) is the mean square of the spectra.
        """


class _Diagonal(Structure):
    """What iso and diag share."""

    rows = 6 * TILE_ROWS

    @abstractmethod
    def precision(self, compact: Array) -> Array:
        """Inverse variances as (K, 1) or (K, D)."""

    def solve(self, compact: Array, columns: Array) -> Array:
        return columns * self.precision(compact)[:, :, None]

    def whiten(self, compact: Array, columns: Array) -> Array:
        return columns * np.sqrt(self.precision(compact))[:, :, None]

    def log_joint(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> LogJoint:
        precision = self.precision(compact)
        same = precision.shape[1] == 1
        return Expanded(np.broadcast_to(precision, regression.shape[:2]), regression, basis, signal, same)


class Iso(_Diagonal):
    """``Sigma_k = sigma_k^2 I_D``."""

    name = "iso"

    def n_free(self, n_bands: int) -> int:
        return 1

    def dense(self, compact: Array, n_bands: int) -> Array:
        return compact[:, None, None] * np.eye(n_bands)

    def compact(self, dense: Array) -> Array:
        return np.asarray(np.diagonal(dense, axis1=1, axis2=2).mean(axis=1))

    def select(self, compact: Array, bands: NDArray[np.intp]) -> Array:
        return compact

    def rescale(self, compact: Array, scale: Array) -> Array:
        if np.ptp(scale) != 0.0:
            raise ValueError("an iso covariance stays iso only where all bands share one scale")
        return compact * scale[0] ** 2

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        moments += np.einsum("nd,nd->n", spectra, spectra) @ weights

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components,)

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        n_bands = mean.shape[1]
        explained = np.einsum("kdl,kld->k", maps, 2.0 * xy - xx @ maps.transpose(0, 2, 1))
        variance: Array = (yy - np.einsum("kd,kd->k", mean, mean) - explained) / n_bands
        return variance

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        return np.maximum(compact, ratio * variance.mean())

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        return ~(compact > SINGULAR * variance.mean())

    def log_det(self, compact: Array, n_bands: int) -> Array:
        return n_bands * np.log(compact)

    def precision(self, compact: Array) -> Array:
        return 1.0 / compact[:, None]


class Diag(_Diagonal):
    """``Sigma_k`` diagonal."""

    name = "diag"

    def n_free(self, n_bands: int) -> int:
        return n_bands

    def dense(self, compact: Array, n_bands: int) -> Array:
        return compact[:, :, None] * np.eye(n_bands)

    def compact(self, dense: Array) -> Array:
        return np.diagonal(dense, axis1=1, axis2=2)

    def select(self, compact: Array, bands: NDArray[np.intp]) -> Array:
        return compact[:, bands]

    def rescale(self, compact: Array, scale: Array) -> Array:
        return compact * scale**2

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        accumulate_squares(weights, spectra, moments)

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components, n_bands)

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        explained = np.einsum("kdl,kld->kd", maps, 2.0 * xy - xx @ maps.transpose(0, 2, 1))
        variance: Array = yy - mean**2 - explained
        return variance

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        return np.maximum(compact, ratio * variance)

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        return ~np.all(compact > SINGULAR * variance, axis=1)

    def log_det(self, compact: Array, n_bands: int) -> Array:
        return np.asarray(np.log(compact).sum(axis=1))

    def precision(self, compact: Array) -> Array:
        return 1.0 / compact


class Correlated(Structure):
    """What full and block share."""

    rows = 16 * TILE_ROWS

    @abstractmethod
    def split(self, compact: Array) -> Iterator[tuple[Bands, Array]]:
        """Each group's bands (m,) and covariances (K, m, m)."""


class Full(Correlated):
    """``Sigma_k`` unconstrained: the only structure that holds D x D arrays."""

    name = "full"

    def split(self, compact: Array) -> Iterator[tuple[Bands, Array]]:
        yield slice(None), compact

    def n_free(self, n_bands: int) -> int:
        return n_bands * (n_bands + 1) // 2

    def dense(self, compact: Array, n_bands: int) -> Array:
        return compact

    def compact(self, dense: Array) -> Array:
        return dense

    def select(self, compact: Array, bands: NDArray[np.intp]) -> Array:
        return compact[:, bands[:, None], bands]

    def rescale(self, compact: Array, scale: Array) -> Array:
        return compact * np.outer(scale, scale)

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        for k, column in enumerate(weights.T):
            rows = np.flatnonzero(column)
            members = spectra[rows] if len(rows) < len(spectra) else spectra
            moments[k] += (members * column[rows, None]).T @ members

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components, n_bands, n_bands)

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        explained = maps @ (2.0 * xy - xx @ maps.transpose(0, 2, 1))
        covariance = yy - mean[:, :, None] * mean[:, None, :] - explained
        return 0.5 * (covariance + covariance.transpose(0, 2, 1))

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        if ratio == 0.0:
            return compact
        deviation = np.sqrt(variance)
        values, vectors = np.linalg.eigh(self.rescale(compact, 1.0 / deviation))
        low = values[:, 0] < ratio
        clipped = compact.copy()
        for k in np.flatnonzero(low):
            kept = (vectors[k] * np.maximum(values[k], ratio)) @ vectors[k].T
            clipped[k] = kept * np.outer(deviation, deviation)
        return clipped

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        values = np.linalg.eigvalsh(self.rescale(compact, 1.0 / np.sqrt(variance)))
        return ~(values[:, 0] > SINGULAR * len(variance))

    def log_det(self, compact: Array, n_bands: int) -> Array:
        diagonals = np.diagonal(np.linalg.cholesky(compact), axis1=1, axis2=2)
        return np.asarray(2.0 * np.log(diagonals).sum(axis=1))

    def solve(self, compact: Array, columns: Array) -> Array:
        return np.linalg.solve(compact, columns)

    def whiten(self, compact: Array, columns: Array) -> Array:
        factors = np.linalg.cholesky(compact)
        return np.stack([solve_triangular(f, c, lower=True) for f, c in zip(factors, columns, strict=True)])

    def log_joint(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> LogJoint:
        factors = np.linalg.cholesky(compact)

        def whiten(residual: Array, k: int) -> Array:
            z = solve_triangular(factors[k], residual.T, lower=True, overwrite_b=True, check_finite=False)
            return np.asarray(z.T)

        return Formed(whiten, regression, basis)


FULL = Full()
STRUCTURES: dict[str, Structure] = {s.name: s for s in (FULL, Diag(), Iso())}
"""The structures that a name alone tells."""


class Block(Correlated):
    """``Sigma_k`` zero between groups of bands, unconstrained within them.

    ``labels`` (D,) say which group a band is in. The compact form holds the groups' covariances one after the other, in
    the order in which the groups first occur, each row by row.
    """

    name = "block"

    def __init__(self, labels: Sequence[int] | NDArray[np.intp]) -> None:
        names = np.asarray(labels)
        _, first, group = np.unique(names, return_index=True, return_inverse=True)
        self.groups = [np.flatnonzero(group == g) for g in np.argsort(first)]
        self.labels = names
        sizes = np.array([len(bands) for bands in self.groups], dtype=np.intp)
        ends = np.cumsum(np.concatenate([[0], sizes**2]))
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.row = np.concatenate([np.repeat(bands, len(bands)) for bands in self.groups])
        self.column = np.concatenate([np.tile(bands, len(bands)) for bands in self.groups])
        self.start, self.rank, self.size = (np.empty(len(names), dtype=np.intp) for _ in range(3))
        for bands, start in zip(self.groups, ends[:-1], strict=True):
            self.start[bands], self.rank[bands], self.size[bands] = start, np.arange(len(bands)), len(bands)

    def split(self, compact: Array) -> Iterator[tuple[NDArray[np.intp], Array]]:
        for bands, part in zip(self.groups, self.parts, strict=True):
            yield bands, compact[:, part].reshape(len(compact), len(bands), len(bands))

    def _join(self, covariances: Iterable[Array]) -> Array:
        return np.concatenate([c.reshape(len(c), -1) for c in covariances], axis=1)

    def n_free(self, n_bands: int) -> int:
        return sum(FULL.n_free(len(bands)) for bands in self.groups)

    def dense(self, compact: Array, n_bands: int) -> Array:
        covariances = np.zeros((len(compact), n_bands, n_bands))
        covariances[:, self.row, self.column] = compact
        return covariances

    def compact(self, dense: Array) -> Array:
        return dense[:, self.row, self.column]

    def select(self, compact: Array, bands: NDArray[np.intp]) -> Array:
        kept = Block(self.labels[bands])
        row, column = bands[kept.row], bands[kept.column]
        return compact[:, self.start[row] + self.rank[row] * self.size[row] + self.rank[column]]

    def rescale(self, compact: Array, scale: Array) -> Array:
        return compact * (scale[self.row] * scale[self.column])

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        for bands, own in self.split(moments):
            FULL.add_second_moments(np.ascontiguousarray(spectra[:, bands]), weights, own)

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components, len(self.row))

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        return self._join(FULL.residual(own, mean[:, g], maps[:, g], xy[:, :, g], xx) for g, own in self.split(yy))

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        return self._join(FULL.clip(own, variance[g], ratio) for g, own in self.split(compact))

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        return np.any([FULL.singular(own, variance[g]) for g, own in self.split(compact)], axis=0)

    def log_det(self, compact: Array, n_bands: int) -> Array:
        return np.sum([FULL.log_det(own, len(g)) for g, own in self.split(compact)], axis=0)

    def solve(self, compact: Array, columns: Array) -> Array:
        solved = np.empty(columns.shape)
        for bands, own in self.split(compact):
            solved[:, bands] = FULL.solve(own, columns[:, bands])
        return solved

    def whiten(self, compact: Array, columns: Array) -> Array:
        whitened = np.empty(columns.shape)
        for bands, own in self.split(compact):
            whitened[:, bands] = FULL.whiten(own, columns[:, bands])
        return whitened

    def log_joint(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> LogJoint:
        factors = [(bands, np.linalg.cholesky(own)) for bands, own in self.split(compact)]

        def whiten(residual: Array, k: int) -> Array:
            for bands, lower in factors:
                own = residual[:, bands].T
                residual[:, bands] = solve_triangular(lower[k], own, lower=True, check_finite=False).T
            return residual

        return Formed(whiten, regression, basis)


@lru_cache(maxsize=64)
def structure_of(name: str, blocks: tuple[int, ...] | None = None) -> Structure:
    """The structure of a name; "block" needs the group (D,) of each band."""
    return STRUCTURES[name] if blocks is None else Block(blocks)
