"""The paper's other regressors: joint Gaussian mixtures (JGMM) and sliced inverse regression (SIR); what all share.

Words are scikit-learn's: ``X`` is spectra (n, D), ``y`` parameters (n, L_t) or (n,).
"""

from __future__ import annotations

import numbers
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.linear_model import LinearRegression
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from ..gllim.core import one_blas_thread
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import ForwardTerms, posterior_blocks

Array = NDArray[np.float64]

RANK_TOLERANCE = 1e-12
"""Directions with less than this share of the greatest variance are left out."""


class SpectraRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor of one parameter or several: its data checked, its estimates in the shape that y had."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _training(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Spectra (n, D) and parameters (n, L_t) as float64; ValueError where they are not finite or do not fit."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        self._single_output = np.ndim(y) == 1
        return X, np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _spectra(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _as_given(self, parameters: Array) -> Array:
        return parameters[:, 0] if self._single_output else parameters

    def _require_integers(self, **least: int) -> None:
        """Raise ValueError unless these settings are integers, and as much at least."""
        for name, low in least.items():
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < low:
                raise ValueError(f"{name}={value!r} must be an integer, {low} or more")


@dataclass(eq=False, repr=False)
class JGMMRegressor(SpectraRegressor):
    """A Gaussian mixture with full covariances on parameters and spectra together, and its conditional mean.

    The paper's JGMM (Qiao and Minematsu, 2009): no structure, no latents.

    scikit-learn's GaussianMixture on standardised data; the estimate is the posterior mean (eq. JGMM_inverse_exp) of
    the equivalent GLLiM parameters (eq. GLMtoJGMM). Every component has (D + L_t)**2 / 2 parameters: of few spectra or
    many bands it learns the noise, and only ``reg_covar`` keeps its covariances invertible.

    Parameters
    ----------
    n_components : K.
    covariance_type : ``"full"``, or ``"tied"``, one covariance for all components.
    reg_covar : added to each variance of the standardised data, as GaussianMixture does.
    max_iter, tol, random_state : of GaussianMixture.

    Attributes
    ----------
    parameters_ : GLLiMParameters of the standardised data.
    n_iter_, converged_ : of GaussianMixture.

    Examples
    --------
    >>> t = np.random.default_rng(0).uniform(size=200)
    >>> spectra = np.stack([t, t**2, np.sqrt(t)], axis=1) + 0.01 * np.random.default_rng(1).normal(size=(200, 3))
    >>> model = JGMMRegressor(n_components=4, random_state=0).fit(spectra, t)
    >>> bool(np.abs(model.predict(spectra) - t).mean() < 0.02)
    True
    """

    n_components: int = 5
    _: KW_ONLY
    covariance_type: str = "full"
    reg_covar: float = 1e-6
    max_iter: int = 100
    tol: float = 1e-3
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> JGMMRegressor:
        """Fit to spectra X (n, D) and parameters y (n, L_t) or (n,).

        Raises
        ------
        ValueError : NaN, settings out of range, fewer spectra than components, covariances that are singular.
        """
        if self.covariance_type not in ("full", "tied"):
            raise ValueError(f"covariance_type={self.covariance_type!r} is not one of 'full', 'tied'")
        self._require_integers(n_components=1)
        count = self.n_components
        X, targets = self._training(X, y)
        if count > len(X):
            raise ValueError(f"n_components={count} components need as many spectra, there are {len(X)}")
        self._of_spectra: Any = StandardScaler().fit(X)
        self._of_parameters: Any = StandardScaler().fit(targets)
        mixture = GaussianMixture(
            count,
            covariance_type=self.covariance_type,
            reg_covar=self.reg_covar,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
        )
        joint = np.concatenate([self._of_parameters.transform(targets), self._of_spectra.transform(X)], axis=1)
        mixture.fit(joint)
        covariances = np.broadcast_to(mixture.covariances_, (count, joint.shape[1], joint.shape[1]))
        self.parameters_: GLLiMParameters = GLLiMParameters.from_joint_gmm(
            mixture.weights_, mixture.means_, covariances, targets.shape[1]
        )
        self.n_iter_, self.converged_ = mixture.n_iter_, mixture.converged_
        return self

    def predict(self, X: Any) -> Array:
        """Posterior mean of the parameters (n, L_t), (n,) where y was 1-D."""
        spectra = self._of_spectra.transform(self._spectra(X))
        mean = np.empty((len(spectra), self.parameters_.n_parameters))
        with one_blas_thread():
            for block in posterior_blocks(ForwardTerms.of(self.parameters_), spectra):
                mean[block.rows] = block.posterior.moments()[0]
        return self._as_given(np.asarray(self._of_parameters.inverse_transform(mean)))


@dataclass(eq=False, repr=False)
class SIRRegressor(SpectraRegressor):
    """Sliced inverse regression: for each parameter the axes on which the mean spectrum of its slices varies most.

    Li (1991, J. Am. Stat. Assoc. 86, 316-327), with a polynomial on the axes: SIR-1 and SIR-2.

    The axes b of a parameter maximise b' M b over b' S b, with S the covariance of the spectra and M that of the
    slices' mean spectra, weighted by their counts. A polynomial of the projections is then fitted by least squares. The
    paper uses 20 slices and order three.

    Where there are more spectra than bands S is the sample covariance, restricted to directions with more than 1e-12 of
    the greatest variance (its pseudo-inverse); else it is singular, and shrunk towards the same variance in all bands
    as Ledoit and Wolf (2004) say. ``ridge`` replaces both.

    Parameters
    ----------
    n_axes : axes for each parameter: 1 is SIR-1, 2 is SIR-2.
    n_slices : slices of equal counts, along each parameter by itself. Equal values are never parted, so a parameter of
        few values has fewer; and there are no more than half the spectra, for slices of one have means that vary
        as the spectra do, on any axis.
    degree : order of the polynomial, with all products of axes.
    ridge : share of the mean variance of the bands that is added to the diagonal of S; None: as said above.

    Attributes
    ----------
    directions_ : (L_t, n_axes, D), the projections on which have unit variance in training (S being what it is).
    eigenvalues_ : (L_t, n_axes), the share of each projection's variance that lies between slices.

    Examples
    --------
    >>> t = np.random.default_rng(0).uniform(size=200)
    >>> spectra = np.stack([t, t**2, np.sqrt(t)], axis=1) + 0.01 * np.random.default_rng(1).normal(size=(200, 3))
    >>> model = SIRRegressor(n_axes=2).fit(spectra, t)
    >>> bool(np.abs(model.predict(spectra) - t).mean() < 0.02), model.directions_.shape
    (True, (1, 2, 3))
    """

    n_axes: int = 1
    _: KW_ONLY
    n_slices: int = 20
    degree: int = 3
    ridge: float | None = None

    def fit(self, X: Any, y: Any) -> SIRRegressor:
        """Fit to spectra X (n, D) and parameters y (n, L_t) or (n,).

        Raises
        ------
        ValueError : NaN, settings out of range, more axes than slices or spectra tell apart.
        """
        self._require_integers(n_axes=1, n_slices=2, degree=1)
        if self.ridge is not None and (not isinstance(self.ridge, numbers.Real) or not 0 <= self.ridge < np.inf):
            raise ValueError(f"ridge={self.ridge!r} must be a share of the mean variance, zero or more, or None")
        X, targets = self._training(X, y)
        self._centre = X.mean(axis=0)
        centred = X - self._centre
        whitening = self._whitening(centred)
        if whitening.shape[1] < self.n_axes:
            raise ValueError(f"the spectra vary in {whitening.shape[1]} directions: n_axes={self.n_axes} is too many")
        axes_of_each = [self._axes(centred @ whitening, column, i) for i, column in enumerate(targets.T)]
        self.directions_ = np.stack([_signed(vectors.T @ whitening.T) for vectors, _ in axes_of_each])
        self.eigenvalues_ = np.stack([values for _, values in axes_of_each])
        self._polynomials: list[Pipeline] = [
            make_pipeline(
                StandardScaler(), PolynomialFeatures(self.degree, include_bias=False), LinearRegression()
            ).fit(centred @ axes.T, column)
            for axes, column in zip(self.directions_, targets.T, strict=True)
        ]
        return self

    def predict(self, X: Any) -> Array:
        """Parameters (n, L_t), (n,) where y was 1-D."""
        centred = self._spectra(X) - self._centre
        columns = [
            polynomial.predict(centred @ axes.T)
            for axes, polynomial in zip(self.directions_, self._polynomials, strict=True)
        ]
        return self._as_given(np.stack(columns, axis=1))

    def _whitening(self, centred: Array) -> Array:
        """A matrix (D, rank) with which S becomes the identity."""
        n, n_bands = centred.shape
        total = centred.T @ centred / n
        level, identity = np.trace(total) / n_bands, np.eye(n_bands)
        if self.ridge is not None:
            total = total + self.ridge * level * identity
        elif n_bands >= n:
            share = float(ledoit_wolf_shrinkage(centred, assume_centered=True))
            total = (1 - share) * total + share * level * identity
        values, vectors = scipy.linalg.eigh(total)
        kept = values > RANK_TOLERANCE * max(values[-1], 0.0)
        return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))

    def _axes(self, whitened: Array, parameter: Array, number: int) -> tuple[Array, Array]:
        """The leading eigenvectors (rank, n_axes) of the covariance of slice means of whitened spectra, and values."""
        n_slices = max(min(self.n_slices, len(parameter) // 2), 2)
        edges = np.unique(np.quantile(parameter, np.linspace(0, 1, n_slices + 1)[1:-1], method="lower"))
        slices = np.searchsorted(edges, parameter, side="left")
        counts = np.bincount(slices)
        filled = np.flatnonzero(counts)
        if len(filled) <= self.n_axes:
            raise ValueError(
                f"output {number} of y has values for {len(filled)} slices, and n_axes={self.n_axes} needs "
                f"{self.n_axes + 1}: take fewer axes, more slices or more distinct values"
            )
        means = np.stack([whitened[slices == i].mean(axis=0) * np.sqrt(counts[i] / len(parameter)) for i in filled])
        _, singular, vectors = scipy.linalg.svd(means, full_matrices=False)
        return vectors[: self.n_axes].T, singular[: self.n_axes] ** 2


def _signed(axes: Array) -> Array:
    """Axes (n_axes, D), each with its largest entry positive."""
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0))
