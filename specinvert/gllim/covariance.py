"""Covariance structures of Sigma, looked up by name.

A structure turns a compact array into what the algorithm asks of K covariances of size D x D, without
forming them unless the structure is "full":

==========  ===========  ==========================
name        compact      covariance
==========  ===========  ==========================
``iso``     (K,)         one variance for all bands
``diag``    (K, D)       one variance a band
``full``    (K, D, D)    unconstrained
==========  ===========  ==========================

The constraints are those that close section "General Hybrid GLLiM-EM Algorithm" of the paper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .arrays import Array
from .kernels import accumulate_squares
from .residuals import TILE_ROWS, Basis, Expanded, Formed, LogJoint

SINGULAR = 1e-14
"""Smallest share of a band's own variance that float64 sums can tell from zero."""


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


class Full(Structure):
    """``Sigma_k`` unconstrained: the only structure that holds D x D arrays."""

    name = "full"
    rows = 16 * TILE_ROWS

    def n_free(self, n_bands: int) -> int:
        return n_bands * (n_bands + 1) // 2

    def dense(self, compact: Array, n_bands: int) -> Array:
        return compact

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


STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Diag(), Iso())}
