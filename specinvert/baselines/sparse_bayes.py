"""Sparse Bayesian regression of several outputs on shared basis functions, by fast marginal likelihood maximisation.

The model of Thayananthan et al. (2006, ECCV): output r is t_r = Phi w_r + e_r, with e_r white of variance sigma_r**2
and w_r ~ N(0, A^-1), A = diag(alpha) shared by all outputs. The algorithm of Tipping and Faul (2003, AISTATS): from no
basis function at all, the one whose adding, re-estimation or deletion raises the marginal likelihood most is dealt with
in turn; now and then all alphas together, and the noise.

Only Phi'Phi, Phi't and t't are needed, however many samples there are. With C_r = sigma_r**2 I + Phi A^-1 Phi' and
S_j = phi_j' C^-1 phi_j, Q_j = phi_j' C^-1 t, a change of 1/alpha_j by d is a rank-one change of C, after which
phi_i' C^-1 phi_k falls by kappa c_i c_k with c_i = phi_i' C^-1 phi_j and kappa = d / (1 + d S_j). So C^-1, seen from
the basis functions, is kept as a sum of such terms, and built anew every ``REFRESH`` terms from an orthonormal basis of
the functions in use, so that a fit explains no more of an output than there is, however alike basis functions are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ..gllim.core import one_blas_thread

Array = NDArray[np.float64]

START_NOISE = 0.1
"""Noise variance at the start, as a share of the mean square of each output."""
LEAST_NOISE = 1e-8
"""Least noise variance, as a share of the mean square of each output."""
HELD = 30
"""Changes before the noise is estimated, unless none gains sooner: else it may grow to what single functions cannot
tell from it, where many together would, and take all for noise."""
REFRESH = 25
"""Changes of one basis function between updates of the noise."""
_INDEPENDENT = 1e-12
"""A basis function of which the model explains all but this share is left out."""
_TOLD_APART = 1e-15
"""Directions of the functions in use with less than this share of the greatest square length are rounding."""
VAGUE = 1e-10
"""Precision of the constant at a start from it, in inverse squares of the outputs' sizes."""
SEARCHED = 8
"""Basis functions outside the model whose best alpha is searched for in each turn, where there are several outputs."""
_LEAST_DETERMINED = 1e-6
_NEGLIGIBLE = 1e12
"""An alpha above the precision of the noise by this factor is taken as infinite."""
_GRID = 9
_ZOOMS = 5
_FAR = 1e4
"""How far above its scale an alpha is looked for, where an output would rather have it infinite."""


@dataclass(frozen=True)
class BasisSums:
    """What regression needs of the data: Phi'Phi (M, M), Phi't (M, R), the diagonal of t't (R,), and n samples."""

    gram: Array
    cross: Array
    squares: Array
    n: int


@dataclass(frozen=True)
class SparseFit:
    """The basis functions in use (m,), their alpha (m,), noise variances (R,), and the weights' posterior.

    ``weights`` (m, R) and ``covariances`` (R, m, m); ``log_marginal`` in the end, ``log_marginals`` after each change.
    """

    active: NDArray[np.intp]
    alpha: Array
    noise: Array
    weights: Array
    covariances: Array
    log_marginal: float
    log_marginals: list[float]
    converged: bool


def fit_sparse(sums: BasisSums, tol: float, max_iter: int, constant: bool) -> SparseFit:
    """Maximise the marginal likelihood until no change gains ``tol`` nats, or ``max_iter`` changes are done.

    ``constant`` says that the last basis function is one. Functions that hardly vary gain nothing but beside it: where
    none is found from nothing, the search starts again from the constant, and the better end is kept.
    """
    norms = np.sqrt(np.diag(sums.gram))
    norms[norms == 0] = 1.0
    unit = BasisSums(sums.gram / np.outer(norms, norms), sums.cross / norms[:, None], sums.squares, sums.n)
    with one_blas_thread():
        state, log_marginals, converged = _climb(_State(unit), tol, max_iter)
        if constant and not state.active.size:
            again = _climb(_State(unit, of_constant=VAGUE / unit.n), tol, max_iter)
            if again[0].log_marginal > state.log_marginal:
                state, log_marginals, converged = again
    weights, covariances = state.posterior()
    scale = norms[state.active]
    return SparseFit(
        active=state.active,
        alpha=state.alpha[state.active] * scale**2,
        noise=state.noise,
        weights=weights / scale[:, None],
        covariances=covariances / np.outer(scale, scale),
        log_marginal=state.log_marginal,
        log_marginals=log_marginals,
        converged=converged,
    )


def _climb(state: _State, tol: float, max_iter: int) -> tuple[_State, list[float], bool]:
    """Changes and updates of the noise in turns, each of which raises the marginal likelihood.

    Where basis functions are so alike that what seemed to gain did not once all is built anew, the turn is undone and
    made of fewer changes; a single one that fails ends the fit: what is left to gain is lost in rounding.
    """
    history: list[float] = []
    gain, most = np.inf, REFRESH
    while len(history) < max_iter:
        before, alpha, noise = state.log_marginal, state.alpha.copy(), state.noise.copy()
        made: list[float] = []
        for _ in range(min(most, 1 + len(history), max_iter - len(history))):
            gain = state.improve(tol)
            if gain < tol:
                break
            made.append(state.log_marginal)
        of_noise = gain < tol or len(history) + len(made) >= HELD
        risen = state.update_all(of_noise)
        if state.log_marginal < before:
            state.restore(alpha, noise)
            if most == 1 or len(made) <= 1:
                return state, history, True
            most = max(most // 5, 1)
            continue
        history += [min(value, state.log_marginal) for value in made]
        if history:
            history[-1] = state.log_marginal
        if gain < tol and risen < tol:
            break
    return state, history, gain < tol


class _State:
    """Alpha (M,), infinite where a basis function is out, and C^-1 as the basis functions see it.

    Beside S and Q (R, M) there is ``free`` = 1 - S / alpha, one where a basis function is out: S / free and Q / free
    are what they would be without the function itself. It is kept by itself, for where the data determine a weight far
    better than its prior does the difference has no digits left.
    """

    def __init__(self, sums: BasisSums, of_constant: float = np.inf) -> None:
        self.sums = sums
        self.alpha = np.full(len(sums.gram), np.inf)
        self.alpha[-1] = of_constant
        self.floor = LEAST_NOISE * sums.squares / sums.n
        self.noise = np.maximum(START_NOISE * sums.squares / sums.n, self.floor)
        self._rebuild()

    @property
    def active(self) -> NDArray[np.intp]:
        return np.flatnonzero(np.isfinite(self.alpha))

    def _rebuild(self) -> None:
        """An orthonormal basis of the functions in use, Phi'Phi and Phi't in it: ``seen`` (m, M), ``targets`` (m, R).

        It is the one in which Phi A^-1 Phi' is diagonal, with ``values`` (m,): squared singular values of what A^-1/2
        makes of the functions, which have the digits that eigenvalues of A^-1/2 Phi'Phi A^-1/2 lack.
        """
        self.rows = rows = self.active
        root = 1 / np.sqrt(self.alpha[rows])
        squares, directions = np.linalg.eigh(self.sums.gram[np.ix_(rows, rows)])
        told = squares > _TOLD_APART * squares.max(initial=0.0)
        lengths, directions = np.sqrt(squares[told, None]), directions[:, told].T
        turn, singular, self.axes = np.linalg.svd(lengths * directions * root)
        basis = np.zeros((len(rows), len(rows)))
        basis[: len(singular)] = turn.T @ (directions / lengths)
        self.values = np.zeros(len(rows))
        self.values[: len(singular)] = singular**2
        self.turned = self.axes * root
        self.seen = basis @ self.sums.gram[rows]
        self.targets = basis @ self.sums.cross[rows]
        self.unseen = np.maximum(self.sums.squares - np.sum(self.targets**2, axis=0), 0.0)
        self._derive()

    def _derive(self) -> None:
        """S and Q from the orthonormal basis and the present noise: what is outside, and what the prior holds back."""
        beta = 1 / self.noise[:, None]
        self.left = 1 / (1 + beta * self.values)
        outside = np.maximum(np.diag(self.sums.gram) - np.sum(self.seen**2, axis=0), 0.0)
        missed = self.sums.cross.T - self.targets.T @ self.seen
        outside[self.rows], missed[:, self.rows] = 0.0, 0.0
        self.S = beta * (outside + self.left @ self.seen**2)
        self.Q = beta * (missed + (self.left * self.targets.T) @ self.seen)
        self.free = np.ones(self.S.shape)
        self.free[:, self.rows] = self.left @ self.axes**2
        self.changes: list[tuple[Array, Array]] = []
        self.log_marginal = sum(self._log_marginal(r, self.noise[r]) for r in range(len(self.noise)))

    def _log_marginal(self, output: int, noise: float) -> float:
        log_det = self.sums.n * np.log(noise) + np.sum(np.log1p(self.values / noise))
        misfit = self.unseen[output] / noise + np.sum(self.targets[:, output] ** 2 / (noise + self.values))
        return float(-0.5 * (self.sums.n * np.log(2 * np.pi) + log_det + misfit))

    def restore(self, alpha: Array, noise: Array) -> None:
        """Go back to an earlier state."""
        self.alpha, self.noise = alpha, noise
        self._rebuild()

    def update_all(self, of_noise: bool) -> float:
        """Start anew, and raise the marginal likelihood over all alphas in use and the noise; returns by how much."""
        self._rebuild()
        return self.update_alphas() + (self.update_noise() if of_noise else 0.0)

    def update_noise(self) -> float:
        """Raise the marginal likelihood over each output's noise variance; returns by how much."""
        before = self.log_marginal
        for r, noise in enumerate(self.noise):
            low = np.log(self.floor[r])
            span = (max(low, np.log(noise) - 3), max(np.log(noise), low) + 3)
            least = minimize_scalar(
                lambda x, r=r: -self._log_marginal(r, np.exp(x)), bounds=span, method="bounded", options={"xatol": 1e-6}
            )
            if -least.fun > self._log_marginal(r, noise):
                self.noise[r] = np.exp(least.x)
        self._derive()
        return self.log_marginal - before

    def update_alphas(self) -> float:
        """Re-estimate all alphas in use together, where that gains: MacKay's fixed point. Returns by how much."""
        rows, before, kept = self.active, self.log_marginal, self.alpha.copy()
        if not rows.size:
            return 0.0
        means, covariances = self.posterior()
        determined = len(covariances) - kept[rows] * np.einsum("rii->i", covariances)
        with np.errstate(divide="ignore", over="ignore"):  # a weight of nought takes its basis function out
            proposed = np.maximum(determined, _LEAST_DETERMINED) / np.sum(means**2, axis=1)
        self.alpha[rows] = np.where(proposed < _NEGLIGIBLE / self.noise.min(), proposed, np.inf)
        self._rebuild()
        if self.log_marginal > before:
            return self.log_marginal - before
        self.alpha = kept
        self._rebuild()
        return 0.0

    def improve(self, tol: float) -> float:
        """Make the change of one basis function that gains most; returns its gain, below ``tol`` if none was made."""
        index = np.flatnonzero((self.free > 0).all(axis=0) & (self.S > 0).all(axis=0))
        s, q = self.S[:, index] / self.free[:, index], self.Q[:, index] / self.free[:, index]
        apart = (s * self.noise[:, None] > _INDEPENDENT).all(axis=0)
        if not apart.any():
            return 0.0
        index, s, q = index[apart], s[:, apart], q[:, apart]
        present = self.alpha[index]
        best, height = best_alpha(s, q, np.isfinite(present))
        gain = height - _contribution(present, s, q)
        j = int(np.argmax(gain))
        if gain[j] >= tol:
            self._change(int(index[j]), float(best[j]))
        return float(gain[j])

    def _change(self, j: int, alpha: float) -> None:
        step, self.alpha[j] = 1 / alpha - 1 / self.alpha[j], alpha
        outside = self.sums.gram[j] - self.seen[:, j] @ self.seen
        outside[slice(None) if j in self.rows else self.rows] = 0.0
        c = (outside + (self.left * self.seen[:, j]) @ self.seen) / self.noise[:, None]
        for earlier, kappa in self.changes:
            c -= (kappa * earlier[:, j])[:, None] * earlier
        own_s, own_q, own_free = (part[:, j].copy() for part in (self.S, self.Q, self.free))
        fall = own_free + own_s / alpha  # 1 + step S_j
        kappa = step / fall
        self.log_marginal += float(0.5 * np.sum(kappa * own_q**2 - np.log(fall)))
        less = kappa[:, None] * c**2
        self.S -= less
        self.Q -= (kappa * own_q)[:, None] * c
        self.free += less / self.alpha
        self.S[:, j], self.Q[:, j] = own_s / fall, own_q / fall
        self.free[:, j] = own_free / fall if np.isfinite(alpha) else 1.0
        self.changes.append((c, kappa))

    def posterior(self) -> tuple[Array, Array]:
        """Means (m, R) and covariances (R, m, m) of the weights, after an update of the noise."""
        covariances = np.einsum("ji,rj,jk->rik", self.turned, self.left, self.turned, optimize=True)
        kept = self.left * np.sqrt(self.values) / self.noise[:, None]
        return self.turned.T @ (kept.T * self.targets), covariances


def best_alpha(s: Array, q: Array, wanted: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The alpha of each basis function that the marginal likelihood likes best, infinite for out, and its contribution.

    ``s`` and ``q`` (R, k) are S and Q without the basis function itself. For one output in closed form. For several the
    optimum lies between those of each; it is searched for on ever finer grids for the ``wanted`` ones (k,) and
    for the ``SEARCHED`` that promise most by the optima of each output alone, which the rest is given.
    """
    with np.errstate(divide="ignore", over="ignore"):  # an optimum at infinity, or as good as that
        each = np.where(q**2 > s, s**2 / np.maximum(q**2 - s, 0.0), np.inf)
    heights = _contribution(each, s, q)
    top, columns = heights.argmax(axis=0), np.arange(s.shape[1])
    best, height = each[top, columns], heights[top, columns]
    finite = np.isfinite(each)
    if len(s) > 1 and finite.any():
        promising = np.where(wanted | ~finite.any(axis=0), -np.inf, height)
        chosen = (wanted & finite.any(axis=0)) | (promising >= np.sort(promising)[-min(SEARCHED, len(promising))])
        rows = np.flatnonzero(chosen & finite.any(axis=0))
        peaks, among = each[:, rows], finite[:, rows]
        low = np.where(among, peaks, np.inf).min(axis=0)
        far = _FAR * np.maximum(s[:, rows].max(axis=0), low)
        high = np.where(among, peaks, far).max(axis=0)
        best[rows] = _peak(np.log(low), np.log(high), s[:, rows], q[:, rows])
        height[rows] = _contribution(best[rows], s[:, rows], q[:, rows])
    return np.where(height > 0, best, np.inf), np.maximum(height, 0.0)


def _peak(low: Array, high: Array, s: Array, q: Array) -> Array:
    """Alpha (k,) of the greatest contribution, its logarithm from low to high: grids about each other's best."""
    steps = np.linspace(0, 1, _GRID)[:, None]
    for _ in range(_ZOOMS):
        grid = low + steps * (high - low)
        heights = _contribution(np.exp(grid), s, q)
        best = np.take_along_axis(grid, heights.argmax(axis=0)[None], axis=0)[0]
        reach = (high - low) / (_GRID - 1)
        low, high = np.maximum(best - reach, low), np.minimum(best + reach, high)
    return np.asarray(np.exp(best))


def _contribution(alpha: Array, s: Array, q: Array) -> Array:
    """What basis functions of ``s`` and ``q`` (R, k) add to the log marginal likelihood, 0 where alpha is infinite.

    ``alpha`` is (k,) or (any, k), and so is the result.
    """
    finite = np.where(np.isfinite(alpha), alpha, 1.0)
    added = np.zeros_like(finite)
    for of_s, of_q in zip(s, q, strict=True):
        added += of_q**2 / (finite + of_s) - np.log1p(of_s / finite)
    return np.where(np.isfinite(alpha), 0.5 * added, 0.0)
