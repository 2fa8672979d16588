"""Test sets: spectra and the true parameters that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from ..cubes.labels import listed, require_numbers
from ..cubes.units import check_units

KNOWN = "known"
"""What tables say in place of scores where a parameter was known at inversion."""


def read_truth(
    test: xr.Dataset, names: Sequence[str], attrs: Mapping[str, Mapping[str, str]]
) -> tuple[xr.Dataset, xr.Dataset]:
    """The true parameters of a test set, and its spectra without them: nothing else has a parameter's name.

    Raises
    ------
    TypeError, ValueError : no Dataset, a parameter that is absent, no number, or in other units than in training.
    """
    if not isinstance(test, xr.Dataset):
        raise TypeError(f"test must be an xarray Dataset of spectra and parameters, not {type(test).__name__}")
    if not names:
        raise ValueError("an unsupervised model has no parameters to compare with a truth")
    absent = [name for name in names if name not in test.variables]
    if absent:
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
