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
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array = NDArray[np.floating[Any]]
"""Floating-point arrays; computations are in float64, input may be float32."""


SINGULAR = 1e-14
"""Smallest share of a band's own variance that float64 sums can tell from zero."""


TILE_ROWS = 192
"""Rows of one product: BLAS rounds by the shape of a product and by the place of a row in the tiles of its kernels (16,
24 or 48 rows), and expanded squares amplify that. In tiles of always as many rows, a row's result depends on the row
alone."""


def tiled_product(rows: Array, columns: Array) -> Array:
    """``rows @ columns`` in float64 for rows (n, D), tile by tile; only a last, smaller tile may round otherwise."""
    product = np.empty((len(rows), columns.shape[1]))
    for start in range(0, len(rows), TILE_ROWS):
        tile = slice(start, start + TILE_ROWS)
        np.matmul(rows[tile], columns, out=product[tile])
    return product


EXPANDABLE = 1e6
"""Greatest ratio of signal to noise variance at which squares are expanded: as many digits as it has are lost."""


@dataclass(frozen=True)
class Basis:
    """Orthonormal columns [upper (K, D, p); lower (K, p, p)]: latents explain p = upper' z of a whitened residual z.

    The squared distance left, z'z - p'p, is also |z - upper p|^2 + |lower p|^2.
    """

    upper: Array
    lower: Array

    def explain(self, k: int, z: Array) -> tuple[Array, Array]:
        """Distances left (n,) and p (n, p) of whitened residuals z (n, D) of component k; nothing cancels."""
        explained = z @ self.upper[k]
        left = z - explained @ self.upper[k].T
        prior = explained @ self.lower[k].T
        return np.einsum("nd,nd->n", left, left) + np.einsum("np,np->n", prior, prior), explained


class Products(NamedTuple):
    """The matrix products of a block, for whitened residuals z_nk = Sigma_k^-1/2 (y_n - M_k x_n).

    ``inner`` (n, p + q, K) holds upper' z and, for each entry of ``x`` (n, q), the share that makes
    ``squares - 2 x' inner[p:]`` equal to z'z, ``squares`` (n, K), or (n, 0) where they are in the shares. Where squares
    may not be expanded, for the components ``formed`` (F,), ``left`` (n, F) are the squared distances left themselves.
    """

    inner: Array
    squares: Array
    x: Array
    formed: NDArray[np.intp]
    left: Array


ResidualProducts = Callable[[Array, Array], Products]
"""``products(rows, x)`` of rows (n, D + q + 1) that are [y, x, |y|^2], prepared for one theta."""


def form_residuals(
    whiten: Callable[[Array, int], Array], regression: Array, basis: Basis, formed: NDArray[np.intp]
) -> Callable[[Array, Array, Array], Array]:
    """Prepare the distances left of some components from residuals that are formed, not expanded, tile by tile.

    The function takes spectra, x and ``inner`` (n, at least p, K), of which it fills upper' z of those components.
    """
    p = basis.upper.shape[2]

    def distances(spectra: Array, x: Array, inner: Array) -> Array:
        left = np.empty((len(spectra), len(formed)))
        for start in range(0, len(spectra), TILE_ROWS if len(formed) else len(spectra) + 1):
            tile = slice(start, start + TILE_ROWS)
            for f, k in enumerate(formed):
                z = whiten(spectra[tile] - x[tile] @ regression[k].T, k)
                left[tile, f], inner[tile, :p, k] = basis.explain(k, z)
        return left

    return distances


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
    def whiten(self, compact: Array, columns: Array) -> Array:
        """``Sigma_k^-1/2 columns_k`` for columns (K, D, m), by the root that :meth:`residual_products` takes."""

    @abstractmethod
    def residual_products(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> ResidualProducts:
        """Prepare the products of residuals y_n - regression_k x_n, regression (K, D, q), with a basis.

        The last entry of x must be one. ``signal`` (D,) is the mean square of the spectra: where it is far above the
        noise, residuals are formed.
        """


class _Diagonal(Structure):
    """What iso and diag share: one stacked product, then expanded squares about the training mean."""

    @abstractmethod
    def precision(self, compact: Array) -> Array:
        """Inverse variances as (K, 1) or (K, D)."""

    @abstractmethod
    def put_squares(self, factor: Array, compact: Array) -> None:
        """Fill ``factor`` (K,), by which |y|^2 enters the share of x's last entry."""

    @abstractmethod
    def squares(self, spectra: Array, compact: Array) -> Array:
        """``y_n' Sigma_k^-1 y_n`` (n, K), or (n, 0) where :meth:`put_squares` has seen to them."""

    def solve(self, compact: Array, columns: Array) -> Array:
        return columns * self.precision(compact)[:, :, None]

    def whiten(self, compact: Array, columns: Array) -> Array:
        return columns * np.sqrt(self.precision(compact))[:, :, None]

    def residual_products(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> ResidualProducts:
        n_components, n_bands, q = regression.shape
        p = basis.upper.shape[2]
        precision = self.precision(compact)
        root = np.sqrt(precision)
        solved = np.concatenate([basis.upper * root[:, :, None], regression * precision[:, :, None]], axis=2)
        cross = regression.transpose(0, 2, 1) @ solved
        stacked = np.zeros((n_bands + q + 1, p + q, n_components))
        stacked[:n_bands] = solved.transpose(1, 2, 0)
        stacked[n_bands:-1, :p] = -cross[:, :, :p].transpose(1, 2, 0)
        stacked[n_bands:-1, p:] = -0.5 * cross[:, :, p:].transpose(1, 2, 0)
        self.put_squares(stacked[-1, -1], compact)
        columns = stacked.reshape(n_bands + q + 1, (p + q) * n_components)
        formed = np.flatnonzero((signal * precision).mean(axis=1) > EXPANDABLE)
        distances = form_residuals(lambda residual, k: residual * root[k], regression, basis, formed)

        def products(rows: Array, x: Array) -> Products:
            inner = tiled_product(rows, columns).reshape(len(rows), p + q, n_components)
            left = distances(rows[:, :n_bands], x, inner)
            return Products(inner, self.squares(rows[:, :n_bands], compact), x, formed, left)

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
        return np.empty((len(spectra), 0))

    def put_squares(self, factor: Array, compact: Array) -> None:
        factor[:] = -0.5 / compact


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
        return tiled_product(spectra**2, np.ascontiguousarray((1.0 / compact).T))

    def put_squares(self, factor: Array, compact: Array) -> None:
        factor[:] = 0.0


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
        moments = np.empty((weights.shape[1], spectra.shape[1], spectra.shape[1]))
        for k, column in enumerate(weights.T):
            rows = np.flatnonzero(column)
            members = spectra[rows] if len(rows) < len(spectra) else spectra
            moments[k] = (members * column[rows, None]).T @ members
        return moments

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

    def residual_products(self, compact: Array, regression: Array, basis: Basis, signal: Array) -> ResidualProducts:
        factors = np.linalg.cholesky(compact)
        n_components, n_bands, p = basis.upper.shape
        formed = np.arange(n_components)

        def whiten(residual: Array, k: int) -> Array:
            z = solve_triangular(factors[k], residual.T, lower=True, overwrite_b=True, check_finite=False)
            return np.asarray(z.T)

        distances = form_residuals(whiten, regression, basis, formed)

        def products(rows: Array, x: Array) -> Products:
            inner = np.empty((len(rows), p, n_components))
            left = distances(rows[:, :n_bands], x, inner)
            return Products(inner, np.empty((len(rows), 0)), x[:, :0], formed, left)

        return products


STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Diag(), Iso())}
