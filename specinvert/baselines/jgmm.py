"""Joint Gaussian mixture regression (the paper's JGMM; Qiao and Minematsu, 2009): no structure, no latents.

Words are scikit-learn's: ``X`` is spectra (n, D), ``y`` parameters (n, L_t) or (n,).
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from ..gllim.core import one_blas_thread
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import ForwardTerms, posterior_blocks

Array = NDArray[np.float64]


class JGMMRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A Gaussian mixture with full covariances on parameters and spectra together, and its conditional mean.

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

    def __init__(
        self,
        n_components: int = 5,
        *,
        covariance_type: str = "full",
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> JGMMRegressor:
        """Fit to spectra X (n, D) and parameters y (n, L_t) or (n,).

        Raises
        ------
        ValueError : NaN, settings out of range, fewer spectra than components, covariances that are singular.
        """
        if self.covariance_type not in ("full", "tied"):
            raise ValueError(f"covariance_type={self.covariance_type!r} is not one of 'full', 'tied'")
        count = self.n_components
        if not isinstance(count, numbers.Integral) or isinstance(count, bool) or count < 1:
            raise ValueError(f"n_components={count!r} must be an integer, 1 or more")
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2)
        targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        self._single_output: bool = np.ndim(y) == 1
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
        check_is_fitted(self)
        spectra = self._of_spectra.transform(validate_data(self, X, dtype=np.float64, reset=False))
        mean = np.empty((len(spectra), self.parameters_.n_parameters))
        with one_blas_thread():
            for block in posterior_blocks(ForwardTerms.of(self.parameters_), spectra):
                mean[block.rows] = block.posterior.moments()[0]
        mean = np.asarray(self._of_parameters.inverse_transform(mean))
        return mean[:, 0] if self._single_output else mean
