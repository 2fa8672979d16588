"""Sliced inverse regression (Li, 1991, J. Am. Stat. Assoc. 86, 316-327) with a polynomial on its axes: SIR-1 and SIR-2.

Words are scikit-learn's: ``X`` is spectra (n, D), ``y`` parameters (n, L_t) or (n,).
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

Array = NDArray[np.float64]

RANK_TOLERANCE = 1e-12
"""Directions with less than this share of the greatest variance are left out."""


class SIRRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Sliced inverse regression: for each parameter the axes on which the mean spectrum of its slices varies most.

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

    def __init__(self, n_axes: int = 1, *, n_slices: int = 20, degree: int = 3, ridge: float | None = None) -> None:
        self.n_axes = n_axes
        self.n_slices = n_slices
        self.degree = degree
        self.ridge = ridge

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> SIRRegressor:
        """Fit to spectra X (n, D) and parameters y (n, L_t) or (n,).

        Raises
        ------
        ValueError : NaN, settings out of range, more axes than slices or spectra tell apart.
        """
        self._check_settings()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        self._single_output = np.ndim(y) == 1
        self._centre = X.mean(axis=0)
        centred = X - self._centre
        whitening = self._whitening(centred)
        if whitening.shape[1] < self.n_axes:
            raise ValueError(f"the spectra vary in {whitening.shape[1]} directions: n_axes={self.n_axes} is too many")
        found = [self._axes(centred @ whitening, column, i) for i, column in enumerate(targets.T)]
        self.directions_ = np.stack([_signed(vectors.T @ whitening.T) for vectors, _ in found])
        self.eigenvalues_ = np.stack([values for _, values in found])
        self._polynomials: list[Pipeline] = [
            make_pipeline(
                StandardScaler(), PolynomialFeatures(self.degree, include_bias=False), LinearRegression()
            ).fit(centred @ axes.T, column)
            for axes, column in zip(self.directions_, targets.T, strict=True)
        ]
        return self

    def predict(self, X: Any) -> Array:
        """Parameters (n, L_t), (n,) where y was 1-D."""
        check_is_fitted(self)
        centred = validate_data(self, X, dtype=np.float64, reset=False) - self._centre
        columns = [
            polynomial.predict(centred @ axes.T)
            for axes, polynomial in zip(self.directions_, self._polynomials, strict=True)
        ]
        return columns[0] if self._single_output else np.stack(columns, axis=1)

    def _check_settings(self) -> None:
        for name, least in (("n_axes", 1), ("n_slices", 2), ("degree", 1)):
            value = getattr(self, name)
            if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be an integer, {least} or more")
        if self.ridge is not None and (not isinstance(self.ridge, numbers.Real) or not 0 <= self.ridge < np.inf):
            raise ValueError(f"ridge={self.ridge!r} must be a share of the mean variance, zero or more, or None")

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
