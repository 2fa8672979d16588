"""Log-densities of affine components: squared distances of whitened residuals, with latents integrated out.

For z_nk = Sigma_k^-1/2 (y_n - M_k x_n) and the basis of what latents explain of it, the distance left is
z'z - p'p with p = upper' z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import Array, Coarse, Expansion, Workspace, compiled, expand_rows, form_rows, summing

Bands = NDArray[np.intp] | slice
Roots = Sequence[tuple[Bands, Array]]

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


@dataclass(frozen=True)
class Expected:
    """What theta expects of the rows: it decides how distances are found, not what they are.

    Attributes
    ----------
    signal : (D,) mean square of the spectra about the origin.
    weights : (K,). regressors : (K, q, q) second moments of the regressors x in each component.
    second_moments : gives those of the spectra about the origin, (D, D).
    """

    signal: Array
    weights: Array
    regressors: Array
    second_moments: Callable[[], Array]


def rounding(terms: int) -> float:
    """By how much a sum of products of that many terms may be off, relative to the product of the lengths."""
    return float(1.05 * terms * np.finfo(np.float64).eps / 2.0)


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
            gamma=rounding(n_bands + p + 3 * q + 16),
            root=root[own],
            regression=np.ascontiguousarray(regression[own].transpose(0, 2, 1)),
            upper=np.ascontiguousarray(basis.upper[own].transpose(0, 2, 1)),
            lower=basis.lower[own],
        )

    def __call__(self, spectra: Array, x: Array, log_joint: Array, reach: float, workspace: Workspace) -> Array:
        """Take half the distances left from ``log_joint`` (n, K), which holds the log-priors, in place.

        Rows are ``spectra`` (n, D) and ``x`` (n, q), without NaN; a log-prior of -inf asks for nothing. Returns p
        (n, p or more, K), maybe with more behind it. A component further than ``reach`` below the row's greatest may
        get -inf, with p less exact.
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


class Turned:
    """One full or block Sigma for all components: spectra are whitened once, then squares are expanded.

    Parameters
    ----------
    roots : for each group, its bands and the inverse Cholesky factor (m, m).
    whitened : the regression (K, D, q) in whitened bands.
    """

    def __init__(self, roots: Roots, whitened: Array, basis: Basis, expected: Expected) -> None:
        self.roots = roots
        signal, second = np.empty(whitened.shape[1]), expected.second_moments()
        for bands, root in roots:
            signal[bands] = np.einsum("de,de->d", root @ second[bands][:, bands], root)
        ones = np.ones((len(whitened), 1))
        self.expanded = Expanded(np.broadcast_to(ones, whitened.shape[:2]), whitened, basis, signal, True)

    def __call__(self, spectra: Array, x: Array, log_joint: Array, reach: float, workspace: Workspace) -> Array:
        """As :class:`Expanded`."""
        rows = workspace.array("whitened", *spectra.shape)
        for start in range(0, len(spectra), TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            for bands, root in self.roots:
                rows[tile, bands] = spectra[tile, bands] @ root.T
        return self.expanded(rows, x, log_joint, reach, workspace)


class Bound(NamedTuple):
    """What :func:`bound_rows` takes of m directions of K components with regressors of size q.

    Attributes
    ----------
    cross : (q, m, K) products of the regressors with the directions.
    lengths : (m, K); the product of a residual with a direction is off by at most gamma |(y, x)| times that.
    gamma : bound of the rounding of a product of rows and columns, relative to their lengths.
    """

    cross: Array
    lengths: Array
    gamma: float


@summing
def bound_rows(
    spectra: Array,
    x: Array,
    leading: Array,
    bound: Bound,
    log_prior: Array,
    bounds: Array,
    best: NDArray[np.intp],
    todo: NDArray[np.bool_],
) -> None:
    """Fill ``bounds`` (n, K) with what log-densities cannot exceed, ``best`` (n,) with the component of the greatest.

    ``leading`` (n, m, K) are products of the spectra with the directions; ``todo`` (n, K) is True at the best.
    """
    (n_rows, n_components), n_bands = log_prior.shape, spectra.shape[1]
    q, m = x.shape[1], leading.shape[1]
    part, lower = np.empty(n_components), np.empty(n_components)
    for n in range(n_rows):
        square = 0.0
        for d in range(n_bands):
            square += spectra[n, d] * spectra[n, d]
        for j in range(q):
            square += x[n, j] * x[n, j]
        off = bound.gamma * np.sqrt(square)
        for k in range(n_components):
            lower[k] = 0.0
        for i in range(m):
            for k in range(n_components):
                part[k] = leading[n, i, k]
            for j in range(q):
                factor = x[n, j]
                for k in range(n_components):
                    part[k] -= factor * bound.cross[j, i, k]
            for k in range(n_components):
                sure = max(abs(part[k]) - off * bound.lengths[i, k], 0.0)
                lower[k] += sure * sure
        top = 0
        for k in range(n_components):
            bounds[n, k] = log_prior[n, k] - 0.5 * lower[k]
            todo[n, k] = False
            if bounds[n, k] > bounds[n, top]:
                top = k
        best[n] = top
        todo[n, top] = bounds[n, top] > -np.inf


SLACK = 1e-6, 1e-12
"""By how much more than ``reach`` a bound may fall short, sums of squares being rounded: at least, and relative."""


@compiled
def within_reach(
    bounds: Array, best: NDArray[np.intp], reach: float, log_joint: Array, todo: NDArray[np.bool_]
) -> None:
    """Set ``todo`` (n, K) where the bound is within ``reach`` of the best's ``log_joint`` (n, K), -inf elsewhere."""
    for n in range(len(best)):
        greatest = log_joint[n, best[n]]
        least = greatest - reach - SLACK[0] - SLACK[1] * abs(greatest)
        for k in range(bounds.shape[1]):
            todo[n, k] = k != best[n] and bounds[n, k] >= least and bounds[n, k] > -np.inf
            if bounds[n, k] < least and k != best[n]:
                log_joint[n, k] = -np.inf


class Whitening(NamedTuple):
    """What :func:`finish_rows` takes of K components, bands in the order of their groups.

    Attributes
    ----------
    panels : (P, 3) rows from, to of the inverse Cholesky factors, and their first band that is not zero.
    roots : (K, ...) of each panel the rows, from that band to the last row.
    regression : (K, q, D). upper : (K, p, D). lower : (K, p, p).
    """

    panels: NDArray[np.intp]
    roots: Array
    regression: Array
    upper: Array
    lower: Array


FINISHED = 16
"""Rows of a product of :func:`finish_rows`, whole tiles of BLAS's kernels: a row's result depends on the row alone."""


@summing
def finish_rows(
    spectra: Array, x: Array, todo: NDArray[np.bool_], whitening: Whitening, log_joint: Array, product: Array
) -> None:
    """Take half the distances left from ``log_joint`` (n, K) where ``todo`` (n, K), p into ``product`` (n, p, K)."""
    panels, roots, regression, upper, lower = whitening
    (n_rows, n_bands), q, n_p = spectra.shape, x.shape[1], upper.shape[1]
    rows, y, square = np.empty(n_rows, dtype=np.intp), np.empty(n_bands), np.empty(FINISHED)
    residual, z, p = np.zeros((n_bands, FINISHED)), np.empty((n_bands, FINISHED)), np.empty((n_p, FINISHED))
    for k in range(todo.shape[1]):
        count = 0
        for n in range(n_rows):
            rows[count] = n
            count += todo[n, k]
        for start in range(0, count, FINISHED):
            stop = min(start + FINISHED, count)
            for at in range(start, stop):
                n = rows[at]
                for d in range(n_bands):
                    y[d] = spectra[n, d]
                for j in range(q):
                    for d in range(n_bands):
                        y[d] -= x[n, j] * regression[k, j, d]
                for d in range(n_bands):
                    residual[d, at - start] = y[d]
            entry = 0
            for panel in panels:
                first, last, band = panel[0], panel[1], panel[2]
                size = (last - first) * (last - band)
                root = roots[k][entry : entry + size].reshape(last - first, last - band)
                np.dot(root, residual[band:last], z[first:last])
                entry += size
            _squares_left(z, upper[k], lower[k], p, square)
            for at in range(start, stop):
                n = rows[at]
                log_joint[n, k] -= 0.5 * square[at - start]
                for i in range(n_p):
                    product[n, i, k] = p[i, at - start]


@compiled
def _squares_left(z: Array, upper: Array, lower: Array, p: Array, square: Array) -> None:
    """Fill ``square`` (m,) with the distances left of z (D, m) by a basis (p, D) and (p, p), and ``p`` (p, m)."""
    n_p, m = p.shape
    left = np.empty(m)
    for i in range(n_p):
        for a in range(m):
            p[i, a] = 0.0
        for d in range(len(z)):
            for a in range(m):
                p[i, a] += upper[i, d] * z[d, a]
    for a in range(m):
        square[a] = 0.0
    for i in range(n_p):
        for a in range(m):
            left[a] = 0.0
        for j in range(n_p):
            for a in range(m):
                left[a] += lower[i, j] * p[j, a]
        for a in range(m):
            square[a] += left[a] * left[a]
    for d in range(len(z)):
        for a in range(m):
            left[a] = z[d, a]
        for i in range(n_p):
            for a in range(m):
                left[a] -= upper[i, d] * p[i, a]
        for a in range(m):
            square[a] += left[a] * left[a]


LEADING = 8
"""Whitened directions that bound a distance from below."""
LEAST_ROWS, LEAST_BANDS = 2 * TILE_ROWS, 4 * LEADING
"""Rows and bands for which finding these directions is worth it."""
POWER_STEPS = 3
"""Products with the expected residuals that turn these towards where a component's residuals are large."""


PANEL = 16
"""Rows of triangular factors in a product: beyond them all is zero."""


class Formed:
    """Full or block Sigma, one a component: residuals are formed, then whitened.

    A few directions e of each component's whitened residuals bound its distance from below by the sum of squares
    (e'z)^2, all from one product with stacked columns. Where that leaves a component within reach of the row's
    greatest, the distance is finished.

    Parameters
    ----------
    roots : for each group, its bands and the inverse Cholesky factors (K, m, m).
    regression : M (K, D, q).
    """

    def __init__(self, roots: Roots, regression: Array, basis: Basis, expected: Expected) -> None:
        n_components, n_bands, _ = regression.shape
        self.roots, self.regression = roots, regression
        every = np.arange(n_bands)
        order = np.concatenate([every[bands] for bands, _ in roots])
        self.order = None if np.array_equal(order, every) else order
        starts = np.cumsum([0, *(root.shape[1] for _, root in roots)])
        panels = [
            (start, a, min(a + PANEL, root.shape[1]), root[:, a : a + PANEL, : a + PANEL])
            for start, (_, root) in zip(starts, roots, strict=False)
            for a in range(0, root.shape[1], PANEL)
        ]
        self.whitening = Whitening(
            panels=np.array([(start + a, start + b, start) for start, a, b, _ in panels], dtype=np.intp),
            roots=np.concatenate([rows.reshape(n_components, -1) for *_, rows in panels], axis=1),
            regression=np.ascontiguousarray(regression[:, order].transpose(0, 2, 1)),
            upper=np.ascontiguousarray(basis.upper[:, order].transpose(0, 2, 1)),
            lower=np.ascontiguousarray(basis.lower),
        )
        self.basis, self.expected = basis, expected

    @cached_property
    def bound(self) -> tuple[Array, Bound]:
        """The stacked columns (D, m K) that give products with the leading directions, and how far off these may be."""
        columns, regression = self._leading(self.basis, self.expected), self.regression
        size = np.sqrt(1.0 + (regression**2).sum(axis=(1, 2)))
        bound = Bound(
            cross=np.ascontiguousarray((regression.transpose(0, 2, 1) @ columns).transpose(1, 2, 0)),
            lengths=2.0 * np.sqrt((columns**2).sum(axis=1)).T * size,
            gamma=rounding(regression.shape[1] + 3 * regression.shape[2] + 16),
        )
        return columns.transpose(1, 2, 0).reshape(regression.shape[1], -1), bound

    def _leading(self, basis: Basis, expected: Expected) -> Array:
        """Columns (K, D, LEADING) whose products with a residual are those of its whitened form with directions."""
        second, M = expected.second_moments(), self.regression
        both = np.einsum("k,kdq,kqr->dr", expected.weights, M, expected.regressors)  # E y x'
        square = np.tensordot(expected.weights, expected.regressors, axes=1)
        start = np.random.default_rng(0).standard_normal((M.shape[1] + basis.lower.shape[1], LEADING))
        directions = np.repeat(np.linalg.qr(start)[0][None], len(M), axis=0)
        for _ in range(POWER_STEPS):
            columns = self._back(basis, directions)
            # (yy - M xy - yx M' + M xx M') columns: second moments of the residuals of all rows
            shares = M.transpose(0, 2, 1) @ columns
            residual = second @ columns - both @ shares - M @ (both.T @ columns - square @ shares)
            whitened = np.empty_like(residual)
            for bands, root in self.roots:
                whitened[:, bands] = root @ residual[:, bands]
            p = basis.upper.transpose(0, 2, 1) @ whitened
            left = np.concatenate([whitened - basis.upper @ p, -basis.lower @ p], axis=1)
            directions = np.linalg.qr(left)[0]
        return self._back(basis, directions)

    def _back(self, basis: Basis, directions: Array) -> Array:
        """Columns (K, D, m) of directions (K, D + p, m) of what latents leave of z, [z - upper p; -lower p]."""
        upper, lower = basis.upper, basis.lower
        n_bands = upper.shape[1]
        shares = upper.transpose(0, 2, 1) @ directions[:, :n_bands] + lower.transpose(0, 2, 1) @ directions[:, n_bands:]
        turned = directions[:, :n_bands] - upper @ shares
        columns = np.empty_like(turned)
        for bands, root in self.roots:
            columns[:, bands] = root.transpose(0, 2, 1) @ turned[:, bands]
        return columns

    def __call__(self, spectra: Array, x: Array, log_joint: Array, reach: float, workspace: Workspace) -> Array:
        """As :class:`Expanded`."""
        n, n_components = log_joint.shape
        product = workspace.array("product", n, self.whitening.upper.shape[1], n_components)
        product[...] = 0.0
        rows = spectra if self.order is None else spectra[:, self.order]
        todo = log_joint > -np.inf
        many = n >= LEAST_ROWS and spectra.shape[1] >= LEAST_BANDS and n_components > 1
        if many and reach < np.inf:
            columns, bound = self.bound
            lead = workspace.array("leading", n, LEADING, n_components)
            flat = lead.reshape(n, -1)
            for start in range(0, n, TILE_ROWS):
                tile = slice(start, start + TILE_ROWS)
                np.matmul(spectra[tile], columns, out=flat[tile])
            bounds, best = workspace.array("bounds", n, n_components), np.empty(n, dtype=np.intp)
            bound_rows(rows, x, lead, bound, log_joint, bounds, best, todo)
            finish_rows(rows, x, todo, self.whitening, log_joint, product)
            within_reach(bounds, best, reach, log_joint, todo)
        finish_rows(rows, x, todo, self.whitening, log_joint, product)
        return product


LogJoint = Expanded | Turned | Formed
"""Prepared for one theta."""
