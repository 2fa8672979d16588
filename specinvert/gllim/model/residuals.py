"""Log-densities of affine components: squared distances of whitened residuals, with latents integrated out.

For z_nk = Sigma_k^-1/2 (y_n - M_k x_n) and the basis of what latents explain of it, the distance left is
z'z - p'p with p = upper' z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core import Array, Coarse, Expansion, Workspace, expand_rows, form_rows

TILE_ROWS = 192
"""Rows of one product: BLAS rounds by the shape of a product and by the place of a row in the tiles of its kernels (16,
24 or 48 rows), and expanded squares amplify that. In tiles of always as many rows, a row's result depends on the row
alone."""
EXPANDABLE = 1e6
"""Greatest ratio of signal to noise variance at which squares are expanded: as many digits as it has are lost."""


@dataclass(frozen=True)
class Basis:
    """Orthonormal columns [upper (K, D, p); lower (K, p, p)]: latents explain p = upper' z of a whitened residual z.

    The squared distance left, z'z - p'p, is also |z - upper p|^2 + |lower p|^2.
    """

    upper: Array
    lower: Array


class Expanded:
    """Diagonal Sigma: squares about the origin are expanded, so that one product with the stacked columns of all
    components gives every distance.

    Where the noise of a component is so small that this cancels, the expanded distance is a bound only: a product of
    rows and columns with m terms is off by at most gamma |row| |column|, gamma = m u / (1 - m u), u the unit roundoff
    (Higham, Accuracy and Stability of Numerical Algorithms, sec. 3.1). Residuals are formed where that leaves a
    component within reach of the row's greatest.

    Parameters
    ----------
    precision : (K, D) inverse variances.
    regression : M (K, D, q).
    signal : (D,) mean square of the spectra about the origin.
    same : whether the variances of a component are equal.
    """

    def __init__(self, precision: Array, regression: Array, basis: Basis, signal: Array, same: bool) -> None:
        n_components, n_bands, q = regression.shape
        p = basis.upper.shape[2]
        root = np.sqrt(precision)
        solved = np.concatenate([basis.upper * root[:, :, None], regression * precision[:, :, None]], axis=2)
        cross = regression.transpose(0, 2, 1) @ solved
        first, second = np.triu_indices(q)
        self.columns = solved.transpose(1, 2, 0).reshape(n_bands, (p + q) * n_components)
        self.expansion = Expansion(
            precision=np.ascontiguousarray(precision[:, 0]),
            cross=np.ascontiguousarray(cross[:, :, :p].transpose(1, 2, 0)),
            quadratic=cross[:, first, p + second].T * np.where(first == second, 0.5, 1.0)[:, None],
        )
        self.squaring = np.ascontiguousarray(precision.T[:, :0] if same else precision.T)
        own = np.flatnonzero((signal * precision).mean(axis=1) > EXPANDABLE)
        size = np.sqrt(1.0 + (regression[own] ** 2).sum(axis=(1, 2)))
        self.coarse = Coarse(
            components=own,
            precision=precision[own].max(axis=1),
            lengths=2.0 * np.sqrt((solved[own] ** 2).sum(axis=1)).T * size,
            gamma=1.05 * (n_bands + p + 3 * q + 16) * np.finfo(np.float64).eps / 2.0,
            root=root[own],
            regression=np.ascontiguousarray(regression[own].transpose(0, 2, 1)),
            upper=np.ascontiguousarray(basis.upper[own].transpose(0, 2, 1)),
            lower=basis.lower[own],
        )

    def __call__(self, spectra: Array, x: Array, log_joint: Array, reach: float, workspace: Workspace) -> Array:
        """Take half the distances left from ``log_joint`` (n, K), which holds the log-priors, in place.

        Rows are ``spectra`` (n, D) and ``x`` (n, q), without NaN. Returns p (n, p or more, K), maybe with
        more behind it. A component further than ``reach`` below the row's greatest may get -inf, with p less exact.
        """
        n, (q, p, n_components) = len(spectra), self.expansion.cross.shape
        product = workspace.array("product", n, p + q, n_components)
        flat = product.reshape(n, self.columns.shape[1])
        log_prior = log_joint[:, self.coarse.components]
        for start in range(0, n, TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            rows = spectra[tile]
            np.matmul(rows, self.columns, out=flat[tile])
            squares = workspace.array("squares", len(rows), self.squaring.shape[1])
            if self.squaring.size:
                square = np.multiply(rows, rows, out=workspace.array("square", *rows.shape))
                np.matmul(square, self.squaring, out=squares)
            expand_rows(rows, x[tile], product[tile], squares, self.expansion, log_joint[tile])
        if len(self.coarse.components):
            form_rows(spectra, x, product, self.coarse, log_prior, reach, log_joint)
        return product


class Formed:
    """Full Sigma: residuals of all components, whitened by Cholesky factors, tile by tile.

    Parameters
    ----------
    whiten : ``whiten(residual (n, D), k)`` is z (n, D).
    regression : M (K, D, q).
    """

    def __init__(self, whiten: Callable[[Array, int], Array], regression: Array, basis: Basis) -> None:
        self.whiten = whiten
        self.regression = regression
        self.basis = basis

    def __call__(self, spectra: Array, x: Array, log_joint: Array, reach: float, workspace: Workspace) -> Array:
        """As :class:`Expanded`; ``reach`` is of no use here."""
        explained = workspace.array("product", len(spectra), self.basis.upper.shape[2], len(self.regression))
        for start in range(0, len(spectra), TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            for k, regression in enumerate(self.regression):
                z = self.whiten(spectra[tile] - x[tile] @ regression.T, k)
                p = z @ self.basis.upper[k]
                left = z - p @ self.basis.upper[k].T
                prior = p @ self.basis.lower[k].T
                distance = np.einsum("nd,nd->n", left, left) + np.einsum("np,np->n", prior, prior)
                log_joint[tile, k] -= 0.5 * distance
                explained[tile, :, k] = p
        return explained


LogJoint = Expanded | Formed
"""Prepared for one theta."""
