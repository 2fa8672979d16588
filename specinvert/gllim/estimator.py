"""GLLiM as a scikit-learn estimator.

Only this file speaks scikit-learn's words: its ``X`` is our spectra (the high-dimensional y of the paper), its ``y``
our parameters (the t of the paper).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import TransformerTags, check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ..settings import GLLiMSettings, documented
from .core import Array, one_blas_thread, over_rows
from .em import (
    ArrayChunks,
    Chunk,
    FitProgress,
    Settings,
    check_progress,
    check_responsibilities,
    check_weights,
    density_and_entropy,
    log_joint_density,
    train,
    warn_unconverged,
)
from .model import GLLiMParameters, aic, bic, icl
from .posterior import BLOCK_ROWS, ForwardTerms, Posterior, RowPosterior, posterior_blocks

PIECE_ROWS = 4 * BLOCK_ROWS
"""Spectra that a thread takes at a time."""


def _has_latents(estimator: GLLiM) -> bool:
    return bool(estimator.n_latent)


@documented
class GLLiM(RegressorMixin, BaseEstimator, GLLiMSettings):  # type: ignore[misc]
    """Gaussian locally-linear mapping: regression from spectra to parameters, some responses left latent.

    Parameters
    ----------
    {settings}

    Attributes
    ----------
    parameters_ : GLLiMParameters, in the units of X and y.
    log_likelihoods_ : observed log-likelihood after each iteration.
    n_iter_, converged_ : iterations done, and whether ``tol`` stopped them.
    n_components_, n_latent_ : K after removals, and the L_w chosen. n_removed_ : components that degenerated.
    bic_ : BIC of the fit; ``bics_`` of each L_w tried.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> t, w = rng.uniform(-1.0, 1.0, (2, 500))
    >>> spectra = np.sin(np.outer(t, [1.0, 2.0, 3.0])) + np.outer(w, [0.3, 0.1, 0.2]) + 0.01 * rng.normal(size=(500, 3))
    >>> model = GLLiM(n_components=8, n_latent=1, tol=0.01, random_state=0).fit(spectra[:400], t[:400])
    >>> mean, std = model.predict(spectra[400:], return_std=True)
    >>> bool(np.abs(mean - t[400:]).mean() < 0.05), std.shape, model.transform(spectra[400:]).shape
    (True, (100,), (100, 1))
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = not self.n_latent
        tags.target_tags.multi_output = True
        if _has_latents(self):
            tags.transformer_tags = TransformerTags(preserves_dtype=[])  # latents are float64
        return tags

    def settings(self) -> Settings:
        """The settings, checked."""
        return Settings(**self.get_params(deep=False))

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        responsibilities: Any = None,
        progress: FitProgress | None = None,
    ) -> GLLiM:
        """Fit the inverse regression from parameters to spectra.

        Parameters
        ----------
        X : spectra (n, D).
        y : parameters (n, L_t) or (n,); None, or no columns, is unsupervised and needs ``n_latent``.
        sample_weight : frequencies (n,), zero or more.
        responsibilities : (n, K), rows summing to one, to start from instead of ``init``; K overrides n_components.
        progress : called after each iteration with the run's label, the iteration and the log-likelihood.

        Raises
        ------
        ValueError : NaN, constant columns, too few samples, negative weights, settings out of range.
        """
        settings = self.settings()
        check_progress(progress)
        unsupervised = y is None or getattr(y, "shape", ())[1:] == (0,)
        if unsupervised:
            if not self.n_latent:
                raise ValueError(
                    "GLLiM requires y to be passed, but the target y is None: "
                    "only n_latent >= 1 can be fitted unsupervised"
                )
            X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
            targets = np.empty((len(X), 0))
        else:
            X, y = validate_data(
                self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True, ensure_min_samples=2
            )
            targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        chunk = Chunk(
            X, targets, check_weights(sample_weight, len(X)), check_responsibilities(responsibilities, len(X))
        )
        n_given = None if chunk.responsibilities is None else chunk.responsibilities.shape[1]
        result = train(ArrayChunks(chunk), settings, n_given, progress=progress)
        warn_unconverged(settings, [result.fit])
        self.parameters_: GLLiMParameters = result.fit.parameters
        self.log_likelihoods_ = np.array(result.fit.log_likelihoods)
        self.n_iter_ = result.fit.n_iter
        self.converged_ = result.fit.converged
        self.n_components_ = self.parameters_.n_components
        self.n_latent_ = self.parameters_.n_latent
        self.n_removed_ = result.fit.n_removed
        self.bic_ = result.fit.bic
        self.bics_ = result.bics
        self._single_target = not unsupervised and np.ndim(y) == 1
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False, return_cov: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any: ...
    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior mean of the parameters (n, L_t), (n,) where y was 1-D: eq. JGMM_inverse_exp.

        With ``return_std`` also the standard deviations (n, L_t); with ``return_cov`` the covariances (n, L_t, L_t),
        standard deviations and variances of shape (n,) where y was 1-D. Asking for both is an error.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov are both true: ask for one, the covariance holds the variances")
        X = self._check_spectra(X)
        n_t = self.parameters_.n_parameters
        mean = np.empty((len(X), n_t))
        spread = np.empty((len(X), n_t, n_t) if return_cov else (len(X), n_t))

        def fill(rows: slice, posterior: Posterior | RowPosterior) -> None:
            centre, around = posterior.moments(return_cov)
            mean[rows] = centre[:, :n_t]
            spread[rows] = around[:, :n_t, :n_t] if return_cov else np.sqrt(around[:, :n_t])

        self._over_posteriors(X, fill)
        if self._single_target:
            mean, spread = mean[:, 0], spread.reshape(len(X)) if n_t == 1 else spread
        return (mean, spread) if return_std or return_cov else mean

    @available_if(_has_latents)  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> Array:
        """Posterior mean of the latents (n, L_w); no columns where ``n_latent="bic"`` chose none."""
        X = self._check_spectra(X)
        latent = np.empty((len(X), self.parameters_.n_latent))

        def fill(rows: slice, posterior: Posterior | RowPosterior) -> None:
            latent[rows] = posterior.moments()[0][:, self.parameters_.n_parameters :]

        self._over_posteriors(X, fill)
        return latent

    @available_if(_has_latents)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """Fit, then the posterior mean of the latents (n, L_w)."""
        return np.asarray(self.fit(X, y, **fit_params).transform(X))

    def score_samples(self, X: Any) -> Array:
        """Log-density log p(y) of each spectrum (n,)."""
        X = self._check_spectra(X)
        density = np.empty(len(X))

        def fill(rows: slice, posterior: Posterior | RowPosterior) -> None:
            density[rows] = posterior.log_evidence

        self._over_posteriors(X, fill)
        return density

    def bic(self, X: Any, y: Any = None) -> float:
        """BIC of the fitted model on spectra X (n, D) and parameters y (n, L_t): smaller is better."""
        X, targets = self._check_pairs(X, y)
        return bic(float(log_joint_density(self.parameters_, X, targets).sum()), self.parameters_.n_free, len(X))

    def aic(self, X: Any, y: Any = None) -> float:
        """AIC of the fitted model on spectra X (n, D) and parameters y (n, L_t): smaller is better."""
        X, targets = self._check_pairs(X, y)
        return aic(float(log_joint_density(self.parameters_, X, targets).sum()), self.parameters_.n_free)

    def icl(self, X: Any, y: Any = None) -> float:
        """ICL of the fitted model on spectra X (n, D) and parameters y (n, L_t): BIC plus twice the entropy."""
        X, targets = self._check_pairs(X, y)
        density, entropy = density_and_entropy(self.parameters_, X, targets)
        return icl(float(density.sum()), self.parameters_.n_free, len(X), float(entropy.sum()))

    def _check_pairs(self, X: Any, y: Any) -> tuple[Array, Array]:
        X = self._check_spectra(X)
        if not self.parameters_.n_parameters:
            return X, np.empty((len(X), 0))
        return X, check_array(y, ensure_2d=False, dtype=np.float64).reshape(len(X), -1)

    def _over_posteriors(self, X: Array, fill: Callable[[slice, Posterior | RowPosterior], None]) -> None:
        """Give ``fill`` the rows and the posterior of each block of finite spectra, in threads."""
        with one_blas_thread():
            terms = ForwardTerms.of(self.parameters_)

        def piece(rows: slice) -> None:
            start = rows.start
            for block in posterior_blocks(terms, X[rows]):
                fill(slice(start, start + len(block.posterior.log_evidence)), block.posterior)
                start += len(block.posterior.log_evidence)

        over_rows(piece, len(X), PIECE_ROWS)

    def _check_spectra(self, X: Any) -> Array:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=[np.float64, np.float32]))
