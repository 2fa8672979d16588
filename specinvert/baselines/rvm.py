"""The multivariate relevance vector machine (Thayananthan et al., 2006), its kernels, and the search for the best.

Words are scikit-learn's: ``X`` is spectra (n, D), ``y`` parameters (n, L_t) or (n,). Kernels are looked up by name.
With r = |x - z| / scale, the distance of two spectra over the scale, and x.z their inner product. The names that
Tipping's SparseBayes gives to some of them (Tipping, 2001, J. Mach. Learn. Res. 1, 211-244) are accepted too. A
relevance vector machine needs no positive definite kernel: it takes its values as basis functions.

=================== ============= ======================================================================
name                SparseBayes   k(x, z)
=================== ============= ======================================================================
``gaussian``        gauss         exp(-r**2)
``laplace``                       exp(-r)
``cauchy``                        1 / (1 + r**2)
``cubic``                         r**3
``distance``        r             r
``thin_plate``      tps           r**2 log(r), 0 at r = 0
``bubble``                        1 where r < 1, else 0
``linear``                        x.z / scale**2
``linear_spline``   spline,       product over bands of 1 + m M + m**2 (M / 2 - m / 6), m and M the smaller and the
                    lspline       larger of x_d / scale and z_d / scale (Vapnik, Golowich and Smola, 1997)
``additive_spline``               mean over bands of the same factors
``poly2``, ``poly3``              (x.z / scale**2 + 1)**2 and **3
``hpoly2``,                       (x.z / scale**2)**2 and **3, homogeneous
``hpoly3``
=================== ============= ======================================================================
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV
from sklearn.utils import check_random_state

from ..gllim.core import compiled
from .regressors import SpectraRegressor
from .sparse_bayes import BasisSums, fit_sparse

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]
LARGEST = 1e150
"""Greatest value of a kernel whose squares can still be summed."""


def kernel_matrix(name: str, x: Array, z: Array, scale: float = 1.0) -> Array:
    """Values of a kernel between spectra x (n, D) and z (m, D): (n, m).

    Raises
    ------
    ValueError : an unknown kernel, a scale that is not positive, or values that overflow.
    """
    kernel = find_kernel(name)
    check_scale(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        values = kernel(x / scale, z / scale)
    if not (np.abs(values) <= LARGEST).all():
        raise ValueError(
            f"kernel {name!r} overflows at scale {scale:g}: standardise the spectra or take a larger scale"
        )
    return values


def find_kernel(name: str) -> Kernel:
    """The kernel of a name, as a function of spectra over the scale; ValueError lists the names."""
    if name not in _KERNELS and name not in _ALIASES:
        raise ValueError(f"kernel={name!r} is not one of {', '.join(map(repr, KERNELS))}")
    return _KERNELS[_ALIASES.get(name, name)]


def check_scale(scale: Any) -> None:
    """Raise ValueError unless the scale is a positive number."""
    if not isinstance(scale, numbers.Real) or isinstance(scale, bool) or not 0 < float(scale) < np.inf:
        raise ValueError(f"scale={scale!r} must be a positive number")


def _squared_distances(x: Array, z: Array) -> Array:
    """(n, m), about the mean of z: far from the origin the expanded square would cancel."""
    centre = z.mean(axis=0)
    return np.asarray(euclidean_distances(x - centre, z - centre, squared=True))


def _of_distance(function: Callable[[Array], Array], x: Array, z: Array) -> Array:
    return function(_squared_distances(x, z))


def _polynomial(degree: int, offset: float, x: Array, z: Array) -> Array:
    return np.asarray((x @ z.T + offset) ** degree)


@compiled
def _fill_spline(x: Array, z: Array, product: bool, values: Array) -> None:
    """Vapnik's spline of order one with infinitely many nodes: its product, or else its mean, over bands."""
    for i in range(x.shape[0]):
        for j in range(z.shape[0]):
            value = 1.0 if product else 0.0
            for d in range(x.shape[1]):
                low, high = min(x[i, d], z[j, d]), max(x[i, d], z[j, d])
                factor = 1.0 + low * (high + low * (high / 2.0 - low / 6.0))
                value = value * factor if product else value + factor
            values[i, j] = value if product else value / x.shape[1]


def _spline(product: bool, x: Array, z: Array) -> Array:
    values = np.empty((len(x), len(z)))
    _fill_spline(x, z, product, values)
    return values


_KERNELS: dict[str, Kernel] = {
    "gaussian": partial(_of_distance, lambda r2: np.exp(-r2)),
    "laplace": partial(_of_distance, lambda r2: np.exp(-np.sqrt(r2))),
    "cauchy": partial(_of_distance, lambda r2: 1 / (1 + r2)),
    "cubic": partial(_of_distance, lambda r2: r2**1.5),
    "distance": partial(_of_distance, np.sqrt),
    "thin_plate": partial(_of_distance, lambda r2: 0.5 * xlogy(r2, r2)),
    "bubble": partial(_of_distance, lambda r2: (r2 < 1).astype(np.float64)),
    "linear": partial(_polynomial, 1, 0.0),
    "linear_spline": partial(_spline, True),
    "additive_spline": partial(_spline, False),
    "poly2": partial(_polynomial, 2, 1.0),
    "poly3": partial(_polynomial, 3, 1.0),
    "hpoly2": partial(_polynomial, 2, 0.0),
    "hpoly3": partial(_polynomial, 3, 0.0),
}
KERNELS = tuple(_KERNELS)
"""The names of all kernels."""
_ALIASES = {
    "gauss": "gaussian",
    "r": "distance",
    "tps": "thin_plate",
    "spline": "linear_spline",
    "lspline": "linear_spline",
}


SCALES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 30.0)
"""Ten scales from 1 to 30, the range of the paper's search."""
FAILED_SCORE = 1e300
"""What a search takes as the loss of a kernel that cannot be fitted: finite, or scikit-learn would warn once more."""
BLOCK_ROWS = 1024
"""Spectra whose kernel values are held at a time."""


@dataclass(eq=False, repr=False)
class RVMRegressor(SpectraRegressor):
    """Relevance vector machine of several outputs: a sparse sum of kernels, the same ones for all outputs.

    Of all training spectra it keeps as few as the marginal likelihood asks for; each output has a noise variance of its
    own, and all share the prior precisions alpha (Thayananthan et al., 2006, by the fast algorithm of Tipping and Faul,
    2003). Outputs are scaled to unit variance for the fit; spectra are taken as they are, so put a StandardScaler
    before it where bands differ in scale.

    Training takes M**2 numbers of memory and n M**2 operations for n spectra and M candidates, then R m**3 for every
    noise update with m kept ones; no n x n matrix is made. The default of 2000 candidates takes 32 MB.

    Parameters
    ----------
    kernel : a name of :mod:`specinvert.baselines.rvm`.
    scale : the length by which spectra are divided in the kernel.
    bias : whether a constant is among the basis functions; without it outputs are not centred either.
    max_candidates : spectra that may become relevance vectors, drawn at random where there are more; the fit is to all.
    tol : stop when no change of one basis function gains so many nats of marginal likelihood.
    max_iter : most changes, after which a ConvergenceWarning is given.
    random_state : seed of the draw of candidates.

    Attributes
    ----------
    relevance_vectors_ : (m, D) spectra, rows ``relevance_indices_`` of the training set.
    weights_ : (m, L_t) means of their weights; ``bias_`` (L_t,), of the constant.
    alpha_ : (m,) prior precisions of the weights on outputs of unit variance; then the constant's, where it is kept.
    covariances_ : (L_t, m, m) posterior covariances of the weights on outputs of unit variance, in alpha_'s order.
    noise_ : (L_t,) standard deviations of the noise.
    log_marginals_ : log marginal likelihood of the scaled outputs after each change; it never falls.
    log_marginal_likelihood_ : of the fit; the last of them, where there was any change.
    n_iter_, converged_ : changes, and whether ``tol`` stopped them.

    Examples
    --------
    >>> t = np.random.default_rng(0).uniform(size=200)
    >>> spectra = np.stack([t, t**2, np.sqrt(t)], axis=1) + 0.01 * np.random.default_rng(1).normal(size=(200, 3))
    >>> model = RVMRegressor("gaussian").fit(spectra, t)
    >>> bool(np.abs(model.predict(spectra) - t).mean() < 0.02), len(model.relevance_vectors_) < 20
    (True, True)
    """

    kernel: str = "gaussian"
    _: KW_ONLY
    scale: float = 1.0
    bias: bool = True
    max_candidates: int = 2000
    tol: float = 0.1
    max_iter: int = 5000
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> RVMRegressor:
        """Fit to spectra X (n, D) and parameters y (n, L_t) or (n,).

        Raises
        ------
        ValueError : NaN, settings out of range, a kernel that overflows, an output that is zero everywhere.
        """
        self._check_settings()
        X, targets = self._training(X, y)
        self._shift = targets.mean(axis=0) if self.bias else np.zeros(targets.shape[1])
        self._spread = np.sqrt(np.mean((targets - self._shift) ** 2, axis=0))
        if not self._spread.all():
            constant = np.flatnonzero(self._spread == 0).tolist()
            raise ValueError(f"outputs {constant} of y are constant: there is nothing to regress, leave them out")
        candidates = self._candidates(len(X))
        sums = self._sums(X, (targets - self._shift) / self._spread, X[candidates])
        fit = fit_sparse(sums, float(self.tol), int(self.max_iter), bool(self.bias))
        if not fit.converged:
            warnings.warn(
                f"the relevance vector machine did not converge in {self.max_iter} changes: raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        of_kernels = fit.active < len(candidates)
        self.relevance_indices_ = candidates[fit.active[of_kernels]]
        self.relevance_vectors_ = X[self.relevance_indices_]
        self.weights_ = fit.weights[of_kernels] * self._spread
        self.bias_ = self._shift + fit.weights[~of_kernels].sum(axis=0) * self._spread
        self.alpha_ = fit.alpha
        self.covariances_ = fit.covariances
        self.noise_ = np.sqrt(fit.noise) * self._spread
        self.log_marginals_ = np.array(fit.log_marginals)
        self.log_marginal_likelihood_ = fit.log_marginal
        self.n_iter_, self.converged_ = len(fit.log_marginals), fit.converged
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Means (n, L_t), (n,) where y was 1-D; with ``return_std`` also standard deviations, noise included."""
        X = self._spectra(X)
        mean = np.empty((len(X), len(self._spread)))
        std = np.empty_like(mean)
        for rows, basis in self._bases(X, self.relevance_vectors_, len(self.alpha_) > len(self.weights_)):
            mean[rows] = basis[:, : len(self.weights_)] @ self.weights_ + self.bias_
            if return_std:
                spread = np.einsum("ni,rij,nj->nr", basis, self.covariances_, basis, optimize=True)
                std[rows] = np.sqrt(self.noise_**2 + np.maximum(spread, 0.0) * self._spread**2)
        return (self._as_given(mean), self._as_given(std)) if return_std else self._as_given(mean)

    def _check_settings(self) -> None:
        find_kernel(self.kernel)
        check_scale(self.scale)
        self._require_integers(max_candidates=1, max_iter=1)
        if not isinstance(self.tol, numbers.Real) or not self.tol > 0:
            raise ValueError(f"tol={self.tol!r} must be a positive number of nats")

    def _candidates(self, n: int) -> NDArray[np.intp]:
        if n <= self.max_candidates:
            return np.arange(n)
        return np.sort(check_random_state(self.random_state).choice(n, self.max_candidates, replace=False))

    def _sums(self, X: Array, targets: Array, vectors: Array) -> BasisSums:
        size = len(vectors) + bool(self.bias)
        gram, cross = np.zeros((size, size)), np.zeros((size, targets.shape[1]))
        for rows, basis in self._bases(X, vectors, bool(self.bias)):
            gram += basis.T @ basis
            cross += basis.T @ targets[rows]
        return BasisSums(gram, cross, np.sum(targets**2, axis=0), len(X))

    def _bases(self, X: Array, vectors: Array, constant: bool) -> Iterator[tuple[slice, Array]]:
        """Values of the basis functions (rows, m) block by block, the constant last."""
        for start in range(0, len(X), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            block = X[rows]
            values = np.ones((len(block), len(vectors) + constant))
            if len(vectors):
                values[:, : len(vectors)] = kernel_matrix(self.kernel, block, vectors, float(self.scale))
            yield rows, values


@dataclass(frozen=True)
class SubsetSplit:
    """A scikit-learn splitter: one split of at most ``n_train`` and ``n_test`` samples, drawn at random.

    Where there are fewer samples, a quarter of them is for the test.
    """

    n_train: int = 750
    n_test: int = 250
    random_state: Any = None

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """One."""
        return 1

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Indices for training and for the test."""
        n = len(X)
        n_test = min(self.n_test, max(1, n // 4))
        order = check_random_state(self.random_state).permutation(n)
        yield order[n_test : n_test + self.n_train], order[:n_test]


def rvm_search(
    kernels: Sequence[str] = KERNELS,
    scales: Sequence[float] = SCALES,
    criterion: str = "held_out",
    n_train: int = 750,
    n_test: int = 250,
    random_state: Any = None,
    **options: Any,
) -> GridSearchCV:
    """Relevance vector machines of all kernels and scales on a subset; the best is then fitted to everything.

    The paper tries 14 kernels at ten scales from 1 to 30 on a subset of the training set. Spectra should be
    standardised, for the scales are lengths in their units. A kernel that overflows at a scale counts as the
    worst, and scikit-learn warns of it.

    Parameters
    ----------
    criterion : ``"held_out"``, the least squared error over the parameters' variance on ``n_test`` spectra held out;
        or ``"evidence"``, the greatest marginal likelihood of the ``n_train`` ones.
    options : of :class:`RVMRegressor`.

    Returns
    -------
    A scikit-learn GridSearchCV: ``best_params_``, ``best_estimator_``, ``cv_results_``.

    Raises
    ------
    ValueError : an unknown criterion, kernel or scale.

    Examples
    --------
    >>> t = np.random.default_rng(0).uniform(size=200)
    >>> spectra = np.stack([t, t**2, np.sqrt(t)], axis=1)
    >>> search = rvm_search(["gaussian", "linear"], [1.0, 3.0], n_train=100, n_test=50, random_state=0).fit(spectra, t)
    >>> search.best_params_
    {'kernel': 'gaussian', 'scale': 1.0}
    """
    scorers: dict[str, Any] = {"held_out": "r2", "evidence": _evidence}
    if criterion not in scorers:
        raise ValueError(f"criterion={criterion!r} is not one of {', '.join(map(repr, scorers))}")
    for kernel in kernels:
        find_kernel(kernel)
    for scale in scales:
        check_scale(scale)
    return GridSearchCV(
        RVMRegressor(random_state=random_state, **options),
        {"kernel": list(kernels), "scale": list(scales)},
        scoring=scorers[criterion],
        cv=SubsetSplit(n_train, n_test, random_state),
        error_score=-FAILED_SCORE,
    )


def _evidence(estimator: RVMRegressor, X: Any, y: Any) -> float:
    return float(estimator.log_marginal_likelihood_)
