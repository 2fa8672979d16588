"""What the algorithm asks of a covariance structure, and the unconstrained one: all others are special cases of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri

from ..core import Array
from .residuals import TILE_ROWS, Bands, Basis, Expected, Formed, LogJoint, Turned

SINGULAR = 1e-14
"""Smallest share of a band's own variance that float64 sums can tell from zero."""

Turn = Callable[[Array], Array]
Axes = Iterator[tuple[Array, Turn | None]]


class Structure(ABC):
    """What the algorithm needs of K covariances of size D x D that share a structure, in a compact form of its own.

    A structure is a class of this kind, in this file or in `covariance`, and its name in
    :data:`specinvert.settings.STRUCTURES`. Operations that may leave the structure return the one that they lead to,
    with the covariances in its compact form.
    """

    name: ClassVar[str]
    """As ``sigma`` and model files call it."""
    text: ClassVar[str]
    """In words."""
    dims: ClassVar[tuple[str, ...]]
    """Dimensions of the compact form, as model files call them."""
    rows: ClassVar[int]
    """Rows to take at a time in training: what they need stays in the cache, or is worth a product."""
    isotropic: ClassVar[bool] = False
    """Whether the compact form is (K,), one variance for all bands: PPCA has a closed form."""
    correlated: ClassVar[bool] = False
    """Whether bands are correlated: solving takes factors of each covariance."""
    needs_blocks: ClassVar[bool] = False
    """Whether a name alone does not tell the structure."""
    blocks: tuple[int, ...] | None = None
    """The group (D,) of each band, where the structure needs it."""

    @classmethod
    def of(cls, blocks: Any) -> Structure:
        """The structure, with its blocks as :meth:`read_blocks` gives them."""
        return cls()

    @classmethod
    def read_blocks(cls, given: Any) -> Any:
        """The ``sigma_blocks`` of :class:`.Constraints` as they are kept; ValueError where they do not fit."""
        if given is not None:
            raise ValueError(f"sigma_blocks are for sigma='block', not for sigma={cls.name!r}")

    @classmethod
    def common_scale(cls, variance: Array) -> Array:
        """Variances (D,) to divide bands of ``variance`` (D,) by, so that the structure stays."""
        return variance

    @abstractmethod
    def n_free(self, n_bands: int) -> int:
        """Free parameters of one covariance of ``n_bands`` bands."""

    def groups(self, n_bands: int) -> Sequence[NDArray[np.intp]] | None:
        """The bands of groups that each have an unconstrained covariance, independent of others; None where none do."""
        return None

    @abstractmethod
    def dense(self, compact: Array, n_bands: int) -> Array:
        """The covariances as (K, D, D)."""

    @abstractmethod
    def compact(self, dense: Array) -> Array:
        """The compact covariances of this structure nearest to (K, D, D), as section "Generalization" constrains."""

    @abstractmethod
    def axes(self, compact: Array, n_bands: int) -> Axes:
        """Variances (D,) of each covariance, and what turns rows (n, D) to the axes they are on; None for the bands."""

    def select(self, compact: Array, bands: NDArray[np.intp], n_bands: int) -> tuple[Structure, Array]:
        """The covariances of a subset of the ``n_bands`` bands: the marginal's."""
        return FULL, self.dense(compact, n_bands)[:, bands[:, None], bands]

    def rescale(self, compact: Array, scale: Array) -> tuple[Structure, Array]:
        """The covariances of ``scale * y``, scale (D,)."""
        return FULL, self.dense(compact, len(scale)) * np.outer(scale, scale)

    def add_noise(self, compact: Array, noise: Array, n_bands: int) -> tuple[Structure, Array]:
        """The covariances with independent noise: of a variance (), variances (D,) or a covariance (D, D)."""
        return FULL, self.dense(compact, n_bands) + (noise if noise.ndim == 2 else noise * np.eye(n_bands))

    @abstractmethod
    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        """Add the sum over rows of ``weights[n, k] y_n y_n'`` in compact form; iso holds the trace."""

    @abstractmethod
    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        """Shape of the second moments and of the compact form."""

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
    def trace(self, compact: Array, variances: Array) -> Array:
        """(K,) traces of ``Sigma_k^-1 diag(variances)``."""

    @abstractmethod
    def solve(self, compact: Array, columns: Array) -> Array:
        """``Sigma_k^-1 columns_k`` for columns (K, D, m)."""

    @abstractmethod
    def whiten(self, compact: Array, columns: Array) -> Array:
        """``Sigma_k^-1/2 columns_k`` for columns (K, D, m), by the root that :meth:`log_joint` takes."""

    @abstractmethod
    def log_joint(self, compact: Array, regression: Array, basis: Basis, expected: Expected) -> LogJoint:
        """Prepare distances of residuals y_n - regression_k x_n, regression (K, D, q), less what a basis explains."""


class Correlated(Structure):
    """What full and block share."""

    rows = 16 * TILE_ROWS
    correlated = True

    @abstractmethod
    def split(self, compact: Array) -> Iterator[tuple[Bands, Array]]:
        """Each group's bands (m,) and covariances (K, m, m)."""

    def axes(self, compact: Array, n_bands: int) -> Axes:
        for k in range(len(compact)):
            parts = [(bands, *np.linalg.eigh(own[0])) for bands, own in self.split(compact[k : k + 1])]
            variances = np.empty(n_bands)
            for bands, values, _ in parts:
                variances[bands] = values

            def turn(rows: Array, parts: Sequence[tuple[Bands, Array, Array]] = parts) -> Array:
                turned = np.empty(rows.shape)
                for bands, _, vectors in parts:
                    turned[:, bands] = rows[:, bands] @ vectors
                return turned

            yield variances, turn

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        regular = np.ones(len(compact), dtype=bool)
        for bands, own in self.split(compact):
            inverse = 1.0 / np.sqrt(variance[bands])
            regular &= np.linalg.eigvalsh(own * np.outer(inverse, inverse))[:, 0] > SINGULAR * len(inverse)
        return ~regular

    def log_det(self, compact: Array, n_bands: int) -> Array:
        diagonals = [np.diagonal(_factors(own), axis1=1, axis2=2) for _, own in self.split(compact)]
        return np.sum([2.0 * np.log(diagonal).sum(axis=1) for diagonal in diagonals], axis=0)

    def trace(self, compact: Array, variances: Array) -> Array:
        total = np.zeros(len(compact))
        for bands, own in self.split(compact):
            total += np.diagonal(np.linalg.inv(own), axis1=1, axis2=2) @ variances[bands]
        return total

    def solve(self, compact: Array, columns: Array) -> Array:
        solved = np.empty(columns.shape)
        for bands, own in self.split(compact):
            solved[:, bands] = np.linalg.solve(own, columns[:, bands])
        return solved

    def whiten(self, compact: Array, columns: Array) -> Array:
        whitened = np.empty(columns.shape)
        for bands, own in self.split(compact):
            factors, parts = _factors(own), columns[:, bands]
            whitened[:, bands] = [solve_triangular(f, c, lower=True) for f, c in zip(factors, parts, strict=True)]
        return whitened

    def log_joint(self, compact: Array, regression: Array, basis: Basis, expected: Expected) -> LogJoint:
        tied = _all_equal(compact)
        roots = []
        for bands, own in self.split(compact[:1] if tied else compact):
            roots.append((bands, np.stack([dtrtri(factor, lower=1)[0] for factor in np.linalg.cholesky(own)])))
        if tied:
            shared = [(bands, root[0]) for bands, root in roots]
            return Turned(shared, self.whiten(compact, regression), basis, expected)
        return Formed(roots, regression, basis, expected)


def _factors(covariances: Array) -> Array:
    """Cholesky factors (K, m, m), found once where all covariances are equal."""
    if _all_equal(covariances):
        return np.broadcast_to(np.linalg.cholesky(covariances[:1]), covariances.shape)
    return np.linalg.cholesky(covariances)


def _all_equal(covariances: Array) -> bool:
    return bool((covariances == covariances[:1]).all())


class Full(Correlated):
    """``Sigma_k`` unconstrained: the only structure that holds D x D arrays."""

    name = "full"
    text = "a full covariance"
    dims = ("component", "band", "band_2")

    def split(self, compact: Array) -> Iterator[tuple[Bands, Array]]:
        yield slice(None), compact

    def groups(self, n_bands: int) -> Sequence[NDArray[np.intp]]:
        return [np.arange(n_bands)]

    def n_free(self, n_bands: int) -> int:
        return n_bands * (n_bands + 1) // 2

    def dense(self, compact: Array, n_bands: int) -> Array:
        return compact

    def compact(self, dense: Array) -> Array:
        return dense

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        for k, column in enumerate(weights.T):
            rows = np.flatnonzero(column)
            members = spectra[rows] * np.sqrt(column[rows, None])
            moments[k] += members.T @ members

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components, n_bands, n_bands)

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        explained = maps @ (2.0 * xy - xx @ maps.transpose(0, 2, 1))
        covariance = yy - mean[:, :, None] * mean[:, None, :] - explained
        return 0.5 * (covariance + covariance.transpose(0, 2, 1))

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        if ratio == 0.0:
            return compact
        clipped, floor = compact.copy(), np.diag(ratio * variance)
        deviation = np.sqrt(variance)
        outer = np.outer(deviation, deviation)
        for k, own in enumerate(compact):
            if dpotrf(own - floor, lower=1)[1]:  # not positive definite: an eigenvalue is below the floor
                values, vectors = np.linalg.eigh(own / outer)
                clipped[k] = (vectors * np.maximum(values, ratio)) @ vectors.T * outer
        return clipped


FULL = Full()


def update_prior(structure: Structure, noise: Array, maps: Array, covariance: Array) -> tuple[Basis, Array, Array]:
    """What observing ``A (x - c) + noise`` tells of x ~ N(c, Gamma): a basis, ``root`` (K, L, L), ``log|I + Gamma H|``.

    With L L' = Gamma and [Sigma^-1/2 A L; I] = Q R, R lower triangular, the basis is Q and root = L R^-1: x has
    posterior covariance root root' and mean c + root Q_upper' z, z the whitened residual. Woodbury's H = A' Sigma^-1 A
    is not formed: it squares the condition, and distances lose all digits where noise is 1e-5 of what x explains.
    """
    size = maps.shape[2]
    prior = np.linalg.cholesky(covariance)
    identity = np.broadcast_to(np.eye(size), covariance.shape)
    stacked = np.concatenate([structure.whiten(noise, maps @ prior), identity], axis=1)
    q, r = np.linalg.qr(stacked[:, :, ::-1])
    q, r = q[:, :, ::-1], r[:, ::-1, ::-1]
    log_det = 2.0 * np.log(np.abs(np.diagonal(r, axis1=1, axis2=2))).sum(axis=1)
    root = np.tril(prior @ np.linalg.inv(r))
    return Basis(np.ascontiguousarray(q[:, : maps.shape[1]]), q[:, maps.shape[1] :]), root, log_det
