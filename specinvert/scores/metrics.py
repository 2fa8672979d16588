"""How far estimated parameters are from the truth: NRMSE and its companions, and a table of them.

Estimates and truth are compared pixel by pixel, by position, after a check that they lie on the same grid; a pair with
a NaN on either side is left out. Everything comes from sums that dask can merge, so lazy input is reduced chunk by
chunk in one computation.

With e = estimate - truth over the n pairs, SSE = sum e**2 and SST = sum (truth - mean truth)**2,
NRMSE = sqrt(SSE / SST), the paper's definition; R2 = 1 - SSE / SST; and the squared correlation follows
from three variances, since 2 cov(a, b) = var a + var b - var (a - b). With weights every sum and mean is weighted.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
import xarray as xr

from ..cubes import check_units, grid_tolerance, is_output, listed, require_numbers

_METRICS = {
    "nrmse": ("root summed squared error over the truth's summed squared deviation from its mean", "1"),
    "rmse": ("root mean squared error", None),
    "bias": ("mean of estimate minus truth", None),
    "r2": ("one minus squared error over the truth's squared deviation", "1"),
    "correlation_squared": ("squared Pearson correlation of estimate and truth", "1"),
    "n": ("number of pairs compared", "1"),
}
MEASURED = "measured"
"""Value of the attribute ``truth`` of an evaluation whose truth was not simulated."""


@overload
def nrmse(maps: xr.Dataset, truth: xr.Dataset) -> xr.Dataset: ...
@overload
def nrmse(maps: xr.DataArray, truth: xr.DataArray) -> xr.DataArray: ...
def nrmse(maps: xr.Dataset | xr.DataArray, truth: xr.Dataset | xr.DataArray) -> xr.Dataset | xr.DataArray:
    """Normalised root mean squared error of estimates: 0 is perfect, 1 no better than the truth's mean.

    Parameters
    ----------
    maps : estimates, any dimensions. Of a Dataset, the parameters it shares with `truth` are compared.
    truth : true values on the same grid, dimensions in any order.

    Returns
    -------
    A scalar without units for each parameter, in memory: a Dataset for Datasets, a DataArray for DataArrays.
    NaN where the truth is constant or no pair is left.

    Raises
    ------
    ValueError : no parameter is shared, or dimensions, sizes, coordinates or units differ.
    TypeError : one argument is a Dataset and the other is not.

    Examples
    --------
    >>> truth = xr.DataArray([1.0, 2.0, 3.0], dims="sample")
    >>> round(float(nrmse(truth + 1.0, truth)), 4)
    1.2247
    """
    if isinstance(maps, xr.Dataset) and isinstance(truth, xr.Dataset):
        names = shared_parameters(maps, truth)
        values = evaluation(maps, truth, names)["nrmse"]
        return xr.Dataset({name: values.sel(parameter=name).reset_coords(drop=True) for name in names})
    if isinstance(maps, xr.DataArray) and isinstance(truth, xr.DataArray):
        name = str(maps.name or truth.name or "estimate")
        values = evaluation({name: maps}, {name: truth}, [name])["nrmse"]
        return values.isel(parameter=0).reset_coords(drop=True).rename(maps.name)
    raise TypeError(f"cannot compare {type(maps).__name__} with {type(truth).__name__}; give two of the same kind")


def evaluation(
    estimates: xr.Dataset | Mapping[str, xr.DataArray],
    truth: xr.Dataset | Mapping[str, xr.DataArray],
    parameters: Sequence[str],
    weights: xr.DataArray | None = None,
) -> xr.Dataset:
    """Compare estimates with the truth, parameter by parameter.

    Parameters
    ----------
    estimates : estimated parameters by name, any dimensions, lazy or not.
    truth : true parameters by name, each on the grid of its estimate, dimensions in any order.
    parameters : the names to compare, at least one.
    weights : of the pairs, zero or more, on the grid of the estimates; None: all the same.

    Returns
    -------
    Dataset over `parameter`, in memory: `nrmse`, `rmse`, `bias` (estimate minus truth), `r2`, `correlation_squared` and
    `n`, the number of pairs without NaN. rmse and bias are in the parameter's units, which the coordinate `units`
    (parameter) holds where any parameter has them. Ratios are NaN where the truth is constant; all but `n` where no
    pair is left.

    Raises
    ------
    ValueError : `parameters` is empty or names one that is missing, or dimensions, sizes, coordinates or units differ.

    Examples
    --------
    >>> truth = xr.Dataset({"lai": ("sample", [1.0, 2.0, 3.0])})
    >>> float(evaluation(truth + 0.5, truth, ["lai"])["bias"][0])
    0.5
    """
    names = list(parameters)
    if not names:
        raise ValueError("parameters is empty; name at least one parameter to compare")
    for label, side in (("estimates", estimates), ("truth", truth)):
        absent = [name for name in names if name not in side]
        if absent:
            present = [str(name) for name in getattr(side, "data_vars", side)]
            raise ValueError(f"{label} lack {absent}; they hold {present}")

    units = [_common_units(estimates[name], truth[name], name) for name in names]
    pairs = [paired(estimates[name], truth[name], name) for name in names]
    with warnings.catch_warnings():
        # no pair left, a single pair and infinite estimates are answered with NaN or infinity
        warnings.simplefilter("ignore", RuntimeWarning)
        bare = None if weights is None else paired(weights, weights, "weights")[0]
        sums = xr.concat([_sums(*pair, bare) for pair in pairs], dim="parameter").compute()
    result = xr.Dataset(
        {name: ("parameter", values, {"long_name": _METRICS[name][0]}) for name, values in _metrics(sums).items()},
        coords={"parameter": ("parameter", names, {"long_name": "estimated parameter"})},
    )
    for name, (_, unit) in _METRICS.items():
        if unit is not None:
            result[name].attrs["units"] = unit
        elif len(set(units)) == 1 and units[0]:
            result[name].attrs["units"] = units[0]
    if any(units):
        result = result.assign_coords(units=("parameter", units, {"long_name": "units of the parameter"}))
    return result


def in_decades(
    estimates: xr.Dataset | Mapping[str, xr.DataArray],
    truth: xr.Dataset | Mapping[str, xr.DataArray],
    parameters: Sequence[str],
    weights: xr.DataArray | None = None,
) -> dict[str, xr.DataArray]:
    """Columns of an evaluation for parameters that span decades: `rmse_decades`, of the log10, and `factor`, 10 to it.

    Arguments are those of :func:`evaluation`; pairs of which one is not above zero are left out.
    """
    logs: list[dict[str, xr.DataArray]] = []
    for side in (estimates, truth):
        above = {name: side[name].where(side[name] > 0.0).drop_attrs() for name in parameters}
        logs.append({name: array.copy(data=np.log10(array.data)) for name, array in above.items()})
    rmse = evaluation(logs[0], logs[1], parameters, weights)["rmse"]
    said = {"long_name": "root mean squared error of the decimal logarithm", "units": "1"}
    factor = {"long_name": "factor of that error: 10 to the error in decades", "units": "1"}
    return {"rmse_decades": rmse.assign_attrs(said), "factor": (10.0**rmse).assign_attrs(factor)}


def format_table(table: xr.Dataset) -> str:
    """Lay out an evaluation as aligned plain text, one line a parameter.

    Parameters
    ----------
    table : Dataset over `parameter`, as `evaluation` makes; every variable over `parameter` is a column, after `units`
        where that coordinate is present.

    Returns
    -------
    A heading and one line a parameter, without a newline at the end.

    Raises
    ------
    ValueError : there is no `parameter` dimension.

    Examples
    --------
    >>> truth = xr.Dataset({"lai": ("sample", [1.0, 2.0, 3.0])})
    >>> print(format_table(evaluation(truth, truth, ["lai"])[["nrmse", "n"]]))
    parameter  nrmse  n
    lai            0  3
    """
    if "parameter" not in table.dims:
        raise ValueError(f"the table has dimensions {list(table.dims)}; give the result of evaluation()")
    labels = ["parameter", *(["units"] if "units" in table.coords else [])]
    numbers = [str(name) for name, values in table.data_vars.items() if values.dims == ("parameter",)]
    columns = [[name, *(str(v) for v in table[name].values)] for name in labels]
    given = is_given(table)
    for name in numbers:
        scores = zip(table[name].values, given, strict=True)
        columns.append([name, *(KNOWN if known and name != "n" else format_number(v) for v, known in scores)])
    return aligned(list(zip(*columns, strict=True)), len(labels))


def aligned(rows: Sequence[Sequence[str]], n_labels: int = 1) -> str:
    """Rows of text with their columns below each other: the first ``n_labels`` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(t.ljust(width) if i < n_labels else t.rjust(width) for i, (t, width) in cells).rstrip())
    return "\n".join(lines)


def shared_parameters(maps: xr.Dataset, truth: xr.Dataset) -> list[str]:
    """Name the parameters that both Datasets hold, in the order of `maps`.

    Left out are what inversion adds to its maps (`quality_flag`, `<parameter>_std`, ...) and anything that is not a
    number or is a grid mapping. Raises ValueError if nothing remains.
    """
    common = [str(name) for name in maps.data_vars if name in truth.data_vars]
    names = [name for name in common if _is_parameter(name, truth[name], common)]
    if not names:
        raise ValueError(f"no parameter in common: maps hold {list(maps.data_vars)}, the truth {list(truth.data_vars)}")
    return names


def paired(estimate: xr.DataArray, truth: xr.DataArray, name: str = "estimate") -> tuple[xr.DataArray, xr.DataArray]:
    """Bring two arrays to the same dimension order, float64 and no coordinates, to pair by position.

    Raises ValueError if dimensions, sizes or coordinates differ; coordinates are compared within
    `grid_tolerance`, so rounding in the last digits neither shrinks arrays nor raises.
    """
    if set(estimate.dims) != set(truth.dims):
        raise ValueError(f"{name} has dimensions {estimate.dims} but its truth {truth.dims}; make them equal")
    truth = truth.transpose(*estimate.dims)
    if estimate.shape != truth.shape:
        raise ValueError(
            f"{name} has sizes {dict(estimate.sizes)} but its truth {dict(truth.sizes)}; crop both to the same grid"
        )
    for dim in estimate.dims:
        if dim in estimate.indexes and dim in truth.indexes:
            _require_same_grid(estimate[dim].values, truth[dim].values, f"{dim} of {name}")
    bare = (array.reset_coords(drop=True) for array in (estimate, truth))
    first, second = (
        array.drop_vars(list(array.coords)).variable.astype(np.float64, keep_attrs=False) for array in bare
    )
    return xr.DataArray(first), xr.DataArray(second)


def _require_same_grid(first: np.ndarray, second: np.ndarray, what: str) -> None:
    if np.array_equal(first, second):
        return
    advice = "select or reproject one onto the other's grid"
    if not (np.issubdtype(first.dtype, np.number) and np.issubdtype(second.dtype, np.number)):
        raise ValueError(f"{what} differs from the truth's; {advice}")
    steps = np.abs(np.diff(second.astype(np.float64)))
    gap = np.abs(first.astype(np.float64) - second.astype(np.float64)).max()
    if not gap <= grid_tolerance(second):
        raise ValueError(
            f"{what} differs from the truth's by up to {gap:g} (step {steps.min(initial=np.inf):g}); {advice}"
        )


def _is_parameter(name: str, values: xr.DataArray, common: list[str]) -> bool:
    number = np.issubdtype(values.dtype, np.number) and "grid_mapping_name" not in values.attrs
    return number and not is_output(name, values.dims, common)


def _common_units(estimate: xr.DataArray, truth: xr.DataArray, name: str) -> str:
    units = [str(array.attrs.get("units", "")).strip() for array in (estimate, truth)]
    plain = [text.replace("µ", "u").replace("μ", "u") for text in units]
    if all(plain) and plain[0] != plain[1]:
        raise ValueError(
            f"{name} is in {units[0]!r} but its truth in {units[1]!r}; convert one, or write the units alike"
        )
    return units[0] or units[1]


def _sums(estimate: xr.DataArray, truth: xr.DataArray, weights: xr.DataArray | None) -> xr.Dataset:
    """Reduce pairs to the moments every metric needs; scalars, lazy if the input is."""
    valid = estimate.notnull() & truth.notnull()
    if weights is not None:
        weights = weights.transpose(*estimate.dims)
        valid = valid & (weights > 0.0)
    estimate, truth = estimate.where(valid), truth.where(valid)
    error = estimate - truth

    def mean(values: xr.DataArray) -> xr.DataArray:
        return values.mean() if weights is None else (values * weights).sum() / weights.where(valid).sum()

    def variance(values: xr.DataArray) -> xr.DataArray:
        return values.var() if weights is None else mean((values - mean(values)) ** 2)

    def unless_constant(values: xr.DataArray) -> xr.DataArray:
        # the computed variance of a constant need not be exactly zero
        return variance(values).where(values.max() > values.min())

    return xr.Dataset(
        {
            "n": valid.sum(),
            "bias": mean(error),
            "mean_square": mean(error**2),
            "var_error": variance(error),
            "var_estimate": unless_constant(estimate),
            "var_truth": unless_constant(truth),
        }
    )


def _metrics(sums: xr.Dataset) -> dict[str, np.ndarray]:
    s = {str(name): values.values for name, values in sums.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = s["mean_square"] / s["var_truth"]
        covariance = 0.5 * (s["var_estimate"] + s["var_truth"] - s["var_error"])
        correlation_squared = covariance**2 / (s["var_estimate"] * s["var_truth"])
    return {
        "nrmse": np.sqrt(ratio),
        "rmse": np.sqrt(s["mean_square"]),
        "bias": s["bias"],
        "r2": 1.0 - ratio,
        "correlation_squared": np.clip(correlation_squared, 0.0, 1.0),
        "n": s["n"],
    }


def format_number(value: float | int) -> str:
    """A number as tables show it: integers whole, others to four digits."""
    return str(value) if isinstance(value, (int, np.integer)) else f"{value:.4g}"


KNOWN = "known"
"""What tables say in place of scores where a parameter was known at inversion."""


def grouped_errors(error: np.ndarray, pit: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> dict[str, float]:
    """Standard errors of the RMSE and of the coverage of 90 % intervals where pairs of a group are not independent.

    Those of sums over groups (Liang and Zeger, 1986): a mean m of values x with weights w errs by
    sqrt(G / (G - 1) sum_g (sum_{i in g} w_i (x_i - m))**2) / sum w.

    Parameters
    ----------
    error : (n,) estimate minus truth, NaN where there is no pair. pit : (n,), NaN where there is none.
    weights : (n,). groups : (n,) number of the group.

    Returns
    -------
    `n_groups`, `rmse_error` and `coverage_90_error`; NaN of a single group.
    """

    def mean_and_error(values: np.ndarray) -> tuple[float, float, int]:
        there = np.isfinite(values) & (weights > 0.0)
        w, x = weights[there], values[there]
        kinds, which = np.unique(groups[there], return_inverse=True)
        if len(kinds) < 2:
            return np.nan, np.nan, len(kinds)
        mean = float(w @ x / w.sum())
        sums = np.bincount(which, w * (x - mean))
        return mean, float(np.sqrt(len(kinds) / (len(kinds) - 1) * (sums @ sums)) / w.sum()), len(kinds)

    square, square_error, n_groups = mean_and_error(error**2)
    _, coverage_error, _ = mean_and_error(np.where(np.isnan(pit), np.nan, np.abs(2.0 * pit - 1.0) <= 0.9))
    with np.errstate(divide="ignore", invalid="ignore"):
        rmse_error = float(np.float64(square_error) / (2.0 * np.sqrt(square)))
    return {"n_groups": n_groups, "rmse_error": rmse_error, "coverage_90_error": coverage_error}


def of_samples(test: xr.Dataset, given: str | xr.DataArray | None, what: str) -> xr.DataArray | None:
    """Weights or groups of the samples of a test set: those of a variable's name, or as given.

    Raises ValueError where there is no such variable, and TypeError for anything else.
    """
    if given is None or isinstance(given, xr.DataArray):
        return given
    if not isinstance(given, str):
        raise TypeError(f"{what} must be the name of a variable of the test set or a DataArray, not {given!r}")
    if given not in test.variables:
        raise ValueError(f"{what} {given!r} not in the test set; it has {listed(test.variables)}")
    return test[given]


def read_truth(
    test: xr.Dataset, names: Sequence[str], attrs: Mapping[str, Mapping[str, str]], partial: bool = False
) -> tuple[xr.Dataset, xr.Dataset]:
    """The true parameters of a test set, and its spectra without them: nothing else has a parameter's name.

    Where ``partial``, it need not have all.

    Raises
    ------
    TypeError, ValueError : no Dataset, a parameter that is absent, no number, or in other units than in training.
    """
    if not isinstance(test, xr.Dataset):
        raise TypeError(f"test must be an xarray Dataset of spectra and parameters, not {type(test).__name__}")
    if not names:
        raise ValueError("an unsupervised model has no parameters to compare with a truth")
    absent = [name for name in names if name not in test.variables]
    names = [name for name in names if name not in absent] if partial else names
    if absent and (not partial or not names):
        raise ValueError(f"true parameters {listed(absent)} not in the test set; it has {listed(test.variables)}")
    for name in names:
        require_numbers(test[name], f"true {name!r}")
        check_units(attrs[name].get("units"), test[name].attrs.get("units"), f"true {name!r}")
    indexed = {dim for name in names if name in test.xindexes for dim in test[name].dims}
    plain = test.reset_index(list(indexed)).reset_coords([name for name in names if name in test.coords])
    plain = plain.rename_dims({dim: f"{dim}_axis" for dim in plain.dims if dim in names})
    return plain[list(names)], plain.drop_vars(list(names))


def broadcast_truth(truth: xr.DataArray, estimate: xr.DataArray) -> xr.DataArray:
    """The truth, repeated along dimensions that only the estimate has."""
    added = {dim: size for dim, size in estimate.sizes.items() if dim not in truth.dims}
    return truth.expand_dims(added)


def is_given(table: xr.Dataset) -> np.ndarray:
    """Which parameters (parameter,) of an evaluation were known at inversion: without error, and without intervals."""
    if not {"rmse", "coverage_90", "n"} <= set(table.data_vars):
        return np.zeros(table.sizes["parameter"], dtype=bool)
    known = (table["n"] > 0) & (table["rmse"] == 0) & table["coverage_90"].isnull()
    return np.asarray(known.values)
