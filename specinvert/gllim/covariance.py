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
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array = NDArray[np.floating[Any]]
"""Floating-point arrays; computations are in float64, input may be float32."""
ResidualProducts = Callable[[Array, Array], tuple[Array, Array]]

SINGULAR = 1e-14
"""Smallest share of a band's own variance that float64 sums can tell from zero."""


class Structure(ABC):
    """What the algorithm needs of K covariances that share a structure."""

    name: str

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
    def second_moments(self, spectra: Array, weights: Array) -> Array:
        """Sum over rows of ``weights[n, k] y_n y_n'`` in compact form; iso holds the trace."""

    @abstractmethod
    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        """Shape of :meth:`second_moments`."""

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
    def residual_products(self, compact: Array, regression: Array, maps: Array) -> ResidualProducts:
        """Prepare the products that an E-step or a prediction needs of the residuals.

        With u_nk = y_n - regression_k x_n, regression (K, D, q) and maps (K, D, p), the returned function takes
        spectra (n, D) and x (n, q), and gives u' Sigma_k^-1 u (n, K) and maps_k' Sigma_k^-1 u (n, K, p).
        """


class _Diagonal(Structure):
    """What iso and diag share: one stacked product, then expanded squares about the training mean."""

    @abstractmethod
    def precision(self, compact: Array) -> Array:
        """Inverse variances as (K, 1) or (K, D)."""

    @abstractmethod
    def squares(self, spectra: Array, compact: Array) -> Array:
        """``y_n' Sigma_k^-1 y_n`` (n, K)."""

    def solve(self, compact: Array, columns: Array) -> Array:
        return columns * self.precision(compact)[:, :, None]

    def residual_products(self, compact: Array, regression: Array, maps: Array) -> ResidualProducts:
        n_components, n_bands, q = regression.shape
        p = maps.shape[2]
        solved = self.solve(compact, np.concatenate([maps, regression], axis=2))
        stacked = np.ascontiguousarray(solved.transpose(1, 0, 2)).reshape(n_bands, n_components * (p + q))
        cross = regression.transpose(0, 2, 1) @ solved
        fitted_maps = np.ascontiguousarray(cross[:, :, :p].transpose(1, 0, 2)).reshape(q, n_components * p)
        fitted_squares = np.ascontiguousarray(cross[:, :, p:].transpose(1, 0, 2)).reshape(q, n_components * q)

        def products(spectra: Array, x: Array) -> tuple[Array, Array]:
            n = len(spectra)
            inner = (spectra @ stacked).reshape(n, n_components, p + q)
            projected = inner[:, :, :p] - (x @ fitted_maps).reshape(n, n_components, p)
            expanded = (x @ fitted_squares).reshape(n, n_components, q) - 2.0 * inner[:, :, p:]
            squares = self.squares(spectra, compact) + np.einsum("nkq,nq->nk", expanded, x)
            return np.maximum(squares, 0.0), projected

        return products


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

    def second_moments(self, spectra: Array, weights: Array) -> Array:
        moments: Array = np.einsum("nd,nd->n", spectra, spectra) @ weights
        return moments

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

    def squares(self, spectra: Array, compact: Array) -> Array:
        return np.einsum("nd,nd->n", spectra, spectra)[:, None] / compact


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

    def second_moments(self, spectra: Array, weights: Array) -> Array:
        return weights.T @ spectra**2

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

    def squares(self, spectra: Array, compact: Array) -> Array:
        return spectra**2 @ (1.0 / compact).T


class Full(Structure):
    """``Sigma_k`` unconstrained: the only structure that holds D x D arrays."""

    name = "full"

    def n_free(self, n_bands: int) -> int:
        return n_bands * (n_bands + 1) // 2

    def dense(self, compact: Array, n_bands: int) -> Array:
        return compact

    def select(self, compact: Array, bands: NDArray[np.intp]) -> Array:
        return compact[:, bands[:, None], bands]

    def rescale(self, compact: Array, scale: Array) -> Array:
        return compact * np.outer(scale, scale)

    def second_moments(self, spectra: Array, weights: Array) -> Array:
        return np.stack([(spectra * column[:, None]).T @ spectra for column in weights.T])

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

    def residual_products(self, compact: Array, regression: Array, maps: Array) -> ResidualProducts:
        factors = np.linalg.cholesky(compact)
        whitened = np.stack([solve_triangular(f, m, lower=True) for f, m in zip(factors, maps, strict=True)])

        def products(spectra: Array, x: Array) -> tuple[Array, Array]:
            squares = np.empty((len(spectra), len(factors)))
            projected = np.empty((len(spectra), len(factors), maps.shape[2]))
            for k, factor in enumerate(factors):
                residual = spectra - x @ regression[k].T
                z = solve_triangular(factor, residual.T, lower=True, overwrite_b=True, check_finite=False)
                squares[:, k] = np.einsum("dn,dn->n", z, z)
                projected[:, k] = z.T @ whitened[k]
            return squares, projected

        return products


STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Diag(), Iso())}
