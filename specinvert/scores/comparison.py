"""Methods trained and tested on the same spectra, and how far each is from the truth.

As in the paper's experiments: every method sees the same training set and the same test set, which are disjoint.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..baselines import METHODS, make_method
from ..cubes import TrainingChoice, TrainingSet, listed, read_request, read_training
from .metrics import aligned, broadcast_truth, evaluation, format_number, read_truth

DEFAULT_METHODS = ("gllim-0", "gllim-1", "gllim-bic", "jgmm", "sir-1", "sir-2", "rvm", "rf", "mlp", "lut", "pls")
"""What is compared where no methods are named."""

SCORES = ("nrmse", "rmse", "mae", "bias", "r2", "extreme_share")
"""The scores of a comparison, over method and parameter."""

Progress = Callable[[str, int, int], None]

_OWN = {
    "mae": ("mean absolute error", None),
    "extreme_share": ("share of errors above a third of the parameter's range in training", "1"),
}
_SECONDS = {"fit_seconds": "time to fit", "predict_seconds": "time to estimate the test set"}
_TEXTS = {"error": "why the method failed, empty where it did not", "warning": "what the method warned of"}


def compare(
    train: xr.Dataset,
    test: xr.Dataset,
    methods: Sequence[str] | Mapping[str, Any] = DEFAULT_METHODS,
    parameters: Sequence[str] | None = None,
    *,
    spectra: str | None = None,
    band_dim: str | None = None,
    tolerance: float = 1.0,
    random_state: int | None = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """Fit methods to one training set, and compare their estimates on one test set.

    Parameters
    ----------
    train, test : spectra and parameters, as `GLLiMInverter.fit` and `evaluate` take them; the bands of the test set are
        matched to those of training.
    methods : names of `baselines.METHODS`; or a mapping from names of your own to names of methods or to regressors of
        scikit-learn's kind, fitted to spectra (n, D) and parameters (n, L_t).
    parameters : to estimate; by default all of the training set.
    spectra, band_dim, tolerance : as in `GLLiMInverter.fit` and `invert`.
    random_state : seed of the named methods.
    options : of the named methods, by name: ``{"gllim-1": {"n_components": 30}}``.
    progress : called with the name, its number from 0 and the count before each method is fitted.

    Returns
    -------
    Dataset over `method` and `parameter`: `nrmse`, `rmse`, `mae`, `bias`, `r2`, and `extreme_share`, the share of
    absolute errors above a third of the range in training, what a draw from a uniform training set would err on average
    (the paper's Ex). Over `method`: `fit_seconds`, `predict_seconds`, `error` and `warning`, texts. A method that
    fails, or does not estimate all of the test set, has NaN and its error. The attributes `n_train`, `n_test` and
    `n_left_out` count spectra; test spectra with a band or a parameter missing are left out for all. Select as
    ``table.sel({"method": "rvm"})``, for ``method`` is an argument of ``sel`` too.

    Raises
    ------
    TypeError, ValueError : a name is unknown, an option fits no method, or a data set cannot be read; before any fit.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> train, test = simulate_mixtures(300, noise=0.01, seed=0), simulate_mixtures(50, noise=0.01, seed=1)
    >>> table = compare(train, test, ["sir-1", "pls"], ["grain_size"])
    >>> dict(table["nrmse"].sizes), bool((table["nrmse"] < 1.0).all())
    ({'method': 2, 'parameter': 1}, True)
    """
    regressors = _regressors(methods, random_state, options or {})
    data = read_training(train, TrainingChoice(spectra, parameters, band_dim), {})
    if not data.parameters:
        raise ValueError("parameters is empty; name at least one to compare")
    chunk = data.source.sample(sys.maxsize)
    tested, truth = _test_arrays(test, data, band_dim, tolerance)
    whole = np.isfinite(tested).all(axis=1) & np.isfinite(truth).all(axis=1)
    if not whole.any():
        raise ValueError(f"none of the {len(whole)} test spectra has all bands and parameters; nothing can be compared")
    tested, truth = tested[whole], truth[whole]
    rows = []
    for number, (name, regressor) in enumerate(regressors.items()):
        if progress is not None:
            progress(name, number, len(regressors))
        rows.append(_row(regressor, chunk.spectra, chunk.parameters, tested, truth, data))
    table = xr.concat(rows, dim="method", combine_attrs="no_conflicts")
    table = table.assign_coords(method=("method", list(regressors), {"long_name": "method"}))
    return table.assign_attrs(n_train=len(chunk), n_test=int(whole.sum()), n_left_out=int((~whole).sum()))


def format_comparison(table: xr.Dataset, score: str = "nrmse") -> str:
    """Lay out a comparison as aligned plain text: a line a method, one score a parameter, times, errors below.

    Raises
    ------
    ValueError : `score` is not one of `SCORES`.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> train, test = simulate_mixtures(300, noise=0.01, seed=0), simulate_mixtures(50, noise=0.01, seed=1)
    >>> table = compare(train, test, ["sir-1"], ["grain_size"])
    >>> format_comparison(table).splitlines()[0].split()
    ['nrmse', 'grain_size', 'fit', 's', 'predict', 's']
    """
    require_score(score)
    names = [str(name) for name in table["parameter"].values]
    lines = [[score, *names, "fit s", "predict s"]]
    for method in table["method"].values:
        row = table.sel({"method": method})
        numbers = [*row[score].values, float(row["fit_seconds"]), float(row["predict_seconds"])]
        lines.append([str(method), *(format_number(value) for value in numbers)])
    shown = [aligned(lines)]
    for kind in _TEXTS:
        texts = zip(table["method"].values, table[kind].values, strict=True)
        shown += [f"{method}: {kind}: {text}" for method, text in texts if text]
    return "\n".join(shown)


def require_score(score: str) -> None:
    """Raise ValueError unless ``score`` is one of :data:`SCORES`."""
    if score not in SCORES:
        raise ValueError(f"score {score!r} is not one of {', '.join(SCORES)}")


def _regressors(
    methods: Sequence[str] | Mapping[str, Any], random_state: int | None, options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    if isinstance(methods, str):
        raise ValueError(f"methods={methods!r} must be a list of names: use [{methods!r}]")
    asked = dict(methods) if isinstance(methods, Mapping) else {name: name for name in methods}
    if not asked:
        raise ValueError(f"there is no method to compare; choose from {', '.join(METHODS)}")
    if not isinstance(methods, Mapping) and len(asked) < len(methods):
        raise ValueError(f"methods {listed(methods)} name one twice")
    named = {name: method for name, method in asked.items() if isinstance(method, str)}
    strange = set(options) - set(named)
    if strange:
        raise ValueError(
            f"options for {listed(sorted(strange))}, which are not among the named methods {listed(named)}"
        )
    for name, method in asked.items():
        if name in named:
            asked[name] = make_method(method, random_state, **options.get(name, {}))
        elif not (hasattr(method, "fit") and hasattr(method, "predict")):
            raise TypeError(f"method {name!r} is of type {type(method).__name__}; give a name or a regressor")
    return asked


def _test_arrays(
    test: xr.Dataset, data: TrainingSet, band_dim: str | None, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Spectra (n, D) in the bands of training, NaN where nodata, and true parameters (n, L_t)."""
    truth, plain = read_truth(test, data.parameters, data.attrs)
    request = read_request(plain, data, band_dim, tolerance, "auto")
    cube = request.cube.isel({request.band_dim: request.bands})
    pixel_dims = [dim for dim in cube.dims if dim != request.band_dim]
    rows = cube.transpose(*pixel_dims, request.band_dim).values.astype(np.float64)
    if request.fill is not None:
        rows[rows == request.fill] = np.nan
    like = request.cube.isel({request.band_dim: 0}, drop=True)
    columns = [
        broadcast_truth(truth[name], like).transpose(*pixel_dims).values.astype(np.float64).ravel()
        for name in data.parameters
    ]
    return rows.reshape(-1, rows.shape[-1]), np.stack(columns, axis=1)


def _row(
    regressor: Any,
    spectra: np.ndarray,
    parameters: np.ndarray,
    tested: np.ndarray,
    truth: np.ndarray,
    data: TrainingSet,
) -> xr.Dataset:
    """Scores (parameter), times and texts of one method; NaN and the error where it fails."""
    error, started, fitted = "", time.perf_counter(), np.nan
    estimate = np.full_like(truth, np.nan)
    seconds = dict.fromkeys(_SECONDS, np.nan)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            regressor.fit(spectra.copy(), parameters.copy())  # copies, for methods that work in place
            fitted = time.perf_counter()
            seconds["fit_seconds"] = fitted - started
            predicted = regressor.predict(tested.copy())
            seconds["predict_seconds"] = time.perf_counter() - fitted
            estimate = _estimates(predicted, truth.shape)
        except Exception as problem:  # whatever a foreign estimator raises is this method's result
            error = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
    warned = "; ".join(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))
    attrs = {name: {"units": text["units"]} if "units" in text else {} for name, text in data.attrs.items()}
    sides = [
        {name: xr.DataArray(side[:, i], dims="sample", attrs=attrs[name]) for i, name in enumerate(data.parameters)}
        for side in (estimate, truth)
    ]
    row = evaluation(sides[0], sides[1], data.parameters)[["nrmse", "rmse", "bias", "r2"]]
    off = np.abs(estimate - truth)
    extreme = np.where(np.isnan(off), np.nan, off > (data.high - data.low) / 3)
    own = {"mae": off.mean(axis=0), "extreme_share": extreme.mean(axis=0)}
    for name, values in own.items():
        long_name, units = _OWN[name]
        units = row["rmse"].attrs.get("units") if units is None else units
        row[name] = ("parameter", values, {"long_name": long_name} | ({"units": units} if units else {}))
    for name, long_name in _SECONDS.items():
        row[name] = ((), seconds[name], {"long_name": long_name, "units": "s"})
    for name, text in (("error", error), ("warning", warned)):
        row[name] = ((), text, {"long_name": _TEXTS[name]})
    return row


def _estimates(predicted: Any, shape: tuple[int, ...]) -> np.ndarray:
    """What a method estimates as numbers (n, L_t); ValueError where it gives something else."""
    if np.iscomplexobj(predicted):
        raise ValueError("the estimates are complex numbers")
    estimates = np.asarray(predicted, dtype=np.float64)
    if estimates.shape != shape and not (shape[1] == 1 and estimates.shape == shape[:1]):
        raise ValueError(f"the estimates have shape {estimates.shape}, not {shape}")
    lost = int((~np.isfinite(estimates.reshape(shape))).any(axis=1).sum())
    if lost:
        raise ValueError(f"the estimates of {lost} of {shape[0]} spectra are NaN or infinite")
    return estimates.reshape(shape)
