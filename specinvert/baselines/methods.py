"""The methods to compare, by name: GLLiM, those of the paper, and what else is in use for retrievals.

Each is a scikit-learn regressor that takes spectra X (n, D) and parameters y (n, L_t), with the scaling it needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..gllim import GLLiM
from .regressors import JGMMRegressor, SIRRegressor
from .rvm import RVMRegressor, rvm_search

N_COMPONENTS = 50
"""K of the GLLiM methods, as in the paper's section on Mars."""
RVM_KERNELS = ("gaussian", "linear_spline", "poly3")
RVM_SCALES = (3.0, 6.0, 12.0, 20.0, 30.0)
"""What ``"rvm"`` tries where it is given neither kernel nor scale; the paper's best are among the kernels."""


def make_method(name: str, random_state: Any = None, **options: Any) -> Any:
    """An unfitted regressor by its name in :data:`METHODS`; ``gllim-3`` and so on have that number of latents.

    Parameters
    ----------
    random_state : seed, where the method has one.
    options : of the estimator that the method is made of, over its defaults here.

    Raises
    ------
    ValueError : an unknown name. TypeError : an option that the estimator has not.

    Examples
    --------
    >>> make_method("sir-2", n_slices=10)
    SIRRegressor(n_axes=2, n_slices=10)
    """
    latent = re.fullmatch(r"gllim-(\d+)", name)
    if latent:
        return _gllim(random_state, **{"n_latent": int(latent[1])} | options)
    if name not in METHODS:
        raise ValueError(f"method {name!r} is not one of {', '.join(METHODS)}")
    return METHODS[name](random_state, **options)


class PLS(PLSRegression):  # type: ignore[misc]
    """scikit-learn's PLSRegression, with no more components than bands and spectra allow."""

    n_components: int

    def fit(self, X: Any, y: Any) -> PLS:
        """Fit to spectra X (n, D) and parameters y (n, L_t) or (n,)."""
        asked = self.n_components
        self.n_components = min(asked, *np.shape(X))
        try:
            super().fit(X, y)
        finally:
            self.n_components = asked
        return self


@dataclass(eq=False, repr=False)
class ThinnedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Fits another regressor to at most ``max_samples`` samples drawn at random, where all would cost too much."""

    estimator: Any
    max_samples: int = 1000
    random_state: Any = None

    def fit(self, X: Any, y: Any) -> ThinnedRegressor:
        """Fit to a draw of spectra X (n, D) and parameters y (n, L_t) or (n,)."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        order = check_random_state(self.random_state).permutation(len(X))[: self.max_samples]
        self.estimator_ = clone(self.estimator).fit(X[order], y[order])
        return self

    def predict(self, X: Any) -> Any:
        """What the fitted regressor says of X."""
        check_is_fitted(self)
        return self.estimator_.predict(validate_data(self, X, dtype=np.float64, reset=False))


def _scaled(estimator: Any) -> Any:
    """With every band and every parameter scaled to mean 0 and variance 1, as the paper does for all its methods."""
    return TransformedTargetRegressor(make_pipeline(StandardScaler(), estimator), transformer=StandardScaler())


def _gllim(random_state: Any, **options: Any) -> GLLiM:
    return GLLiM(**{"n_components": N_COMPONENTS, "random_state": random_state} | options)


def _rvm(random_state: Any, **options: Any) -> Pipeline:
    own = {"random_state": random_state} | options
    if "kernel" in options or "scale" in options:
        return make_pipeline(StandardScaler(), RVMRegressor(**own))
    return make_pipeline(StandardScaler(), rvm_search(**{"kernels": RVM_KERNELS, "scales": RVM_SCALES} | own))


def _forest(random_state: Any, **options: Any) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return _scaled(RandomForestRegressor(**{"n_estimators": 200, "random_state": random_state} | options))


def _gpr(random_state: Any, max_samples: int = 1000, **options: Any) -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(10.0, (1e-1, 1e4)) + WhiteKernel(1e-2, (1e-8, 1e1))
    process = GaussianProcessRegressor(**{"kernel": kernel, "random_state": random_state} | options)
    return ThinnedRegressor(_scaled(process), max_samples, random_state)


def _mlp(random_state: Any, **options: Any) -> Any:
    from sklearn.neural_network import MLPRegressor

    settings = {"hidden_layer_sizes": (100, 100), "early_stopping": True, "max_iter": 1000}
    return _scaled(MLPRegressor(**settings | {"random_state": random_state} | options))


METHODS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "gllim-0": _gllim,
        "gllim-1": lambda random_state, **options: _gllim(random_state, **{"n_latent": 1} | options),
        "gllim-bic": lambda random_state, **options: _gllim(random_state, **{"n_latent": "bic"} | options),
        "mle": _gllim,
        "jgmm": lambda random_state, **options: JGMMRegressor(**{"random_state": random_state} | options),
        "sir-1": lambda random_state, **options: SIRRegressor(**{"n_axes": 1} | options),
        "sir-2": lambda random_state, **options: SIRRegressor(**{"n_axes": 2} | options),
        "rvm": _rvm,
        "rf": _forest,
        "gpr": _gpr,
        "mlp": _mlp,
        "lut": lambda random_state, **options: KNeighborsRegressor(**{"n_neighbors": 10} | options),
        "pls": lambda random_state, **options: PLS(**{"n_components": 10} | options),
        "ridge": lambda random_state, **options: _scaled(RidgeCV(**{"alphas": np.logspace(-6, 3, 10)} | options)),
    }
)
"""Factories by name; each takes a seed and options of its estimator.

``gllim-0``, ``gllim-1``, ``gllim-bic``: GLLiM of 50 components with so many latents, or as many as BIC picks; ``mle``:
the paper's name of ``gllim-0``. ``jgmm``, ``sir-1``, ``sir-2``: as their classes. ``rvm``: the best of three kernels at
five scales on a subset of standardised spectra, or the ``kernel`` and ``scale`` given. ``rf``: 200 trees. ``gpr``: a
Gaussian process with one length for all bands, on at most ``max_samples`` = 1000 spectra, since its cost grows with
their cube. ``mlp``: two hidden layers of 100, stopped early. ``lut``: mean of the parameters of the 10 nearest spectra,
bands unscaled. ``pls``: 10 components, or as many as bands allow. ``ridge``: linear, its strength by cross-validation.
"""
