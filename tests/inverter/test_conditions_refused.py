"""Noise and known parameters that cannot serve are refused in one line, before any work where the values are there."""

from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

from conditions import DEVIATIONS, PIXELS, along_bands
from labelled import PARAMETERS, WAVELENGTHS, fitted, make_cube, make_truth, refuses


def truth_with(name: str, **changes: Any) -> xr.DataArray:
    return make_truth()[name].assign_coords(**changes)


BAD_NOISE: dict[str, tuple[Any, type[Exception], tuple[str, ...]]] = {
    "negative": (-0.1, ValueError, ("negative", "standard deviations")),
    "negative in one band": ([*DEVIATIONS[:7], -1.0], ValueError, ("1 of 8", "least -1")),
    "infinite": (np.inf, ValueError, ("infinite",)),
    "negative pixels beside NaN": (
        xr.DataArray(np.where(np.arange(30).reshape(PIXELS) < 3, -0.5, np.nan), dims=("y", "x")),
        ValueError,
        ("3 of 30", "negative", "least -0.5"),
    ),
    "NaN for all pixels": (np.nan, ValueError, ("1 of 1", "NaN")),
    "text": ("0.1", TypeError, ("noise must be numbers", "0.1")),
    "labelled text": (xr.DataArray(["a"], dims="x"), ValueError, ("noise must be numbers",)),
    "a Dataset": (xr.Dataset({"sd": 1.0}), TypeError, ("noise is a Dataset of 'sd'", "give one of its variables")),
    "rows of several lengths": ([[1.0, 2.0], [1.0]], ValueError, ("[[1.0, 2.0], [1.0]]", "(8,)", "DataArray")),
    "of a wrong number of bands": (np.ones(7), ValueError, ("(7,)", "(8,)")),
    "an unlabelled image": (np.ones(PIXELS), ValueError, ("(5, 6)", "DataArray")),
    "a covariance that is not symmetric": (np.triu(np.ones((8, 8))), ValueError, ("symmetric",)),
    "a covariance that is not positive": (-np.eye(8), ValueError, ("negative eigenvalue",)),
    "in other units": (xr.DataArray(2.0, attrs={"units": "%"}), ValueError, ("noise is in '%'", "divide by 100")),
    "labelled of too few bands": (
        xr.DataArray(np.ones(7), dims="band"),
        ValueError,
        ("noise has 7 bands", "the cube 8"),
    ),
    "without a band of the model": (
        along_bands(np.ones(7), WAVELENGTHS[:7]),
        ValueError,
        ("in the noise within 1 nm: 1200.00 nm", "; give the noise at these wavelengths, or raise tolerance"),
    ),
    "along a strange dimension": (xr.DataArray(np.ones(3), dims="time"), ValueError, ("noise", "'time'")),
    "of another size": (xr.DataArray(np.ones((4, 6)), dims=("y", "x")), ValueError, ("noise has 4 along 'y'",)),
    "of another place": (
        truth_with("dust", y=np.arange(5.0)),
        ValueError,
        ("noise", "other coordinates along 'y'", "reindex"),
    ),
}
BAD_KNOWN: dict[str, tuple[Any, type[Exception], tuple[str, ...]]] = {
    "of another name": ({"sand": 1.0}, ValueError, ("'sand'", "'water', 'dust'")),
    "in a Dataset of other names": (xr.Dataset({"sand": 1.0}), ValueError, ("'sand'", "'water', 'dust'")),
    "in an empty Dataset": (xr.Dataset(), ValueError, ("known holds no parameter", "'water', 'dust'")),
    "in a Dataset of pixels alone": (make_truth().drop_vars(PARAMETERS), ValueError, ("known holds no parameter",)),
    "nothing": ({"water": None}, TypeError, ("known['water']=None", "number")),
    "a truth value": ({"water": np.array(True)}, TypeError, ("known['water']=True", "number")),
    "a number without a name": (0.5, TypeError, ("known must be a Dataset or a dict",)),
    "text": ({"water": "wet"}, TypeError, ("known['water']='wet'", "number")),
    "labelled text": ({"water": xr.DataArray("wet")}, ValueError, ("known 'water' must be numbers",)),
    "an unlabelled image": ({"water": np.ones(PIXELS)}, TypeError, ("known['water']", "DataArray")),
    "in other units": ({"water": xr.DataArray(1.0, attrs={"units": "kg m-2"})}, ValueError, ("'kg m-2'", "'g m-2'")),
    "along bands": ({"water": xr.DataArray(np.ones(8), dims="band")}, ValueError, ("known 'water'", "'band'")),
    "along a strange dimension": ({"dust": xr.DataArray(np.ones(3), dims="time")}, ValueError, ("'time'",)),
    "of another size": ({"dust": xr.DataArray(np.ones(4), dims="x")}, ValueError, ("known 'dust' has 4 along 'x'",)),
    "of another place": ({"dust": truth_with("dust", x=np.arange(6.0))}, ValueError, ("known 'dust'", "reindex")),
}


def refusing_scheduler(*arguments: Any, **options: Any) -> None:
    raise AssertionError("something was computed")


def test_noise_that_cannot_serve_is_refused_in_one_line_before_any_work(subtests: pytest.Subtests) -> None:
    for chunks in [None, {"y": 2}]:
        for case in BAD_NOISE:
            with subtests.test(chunks=chunks, case=case):
                noise, kind, parts = BAD_NOISE[case]
                cube = make_cube() if chunks is None else make_cube().copy(data=make_cube().chunk(chunks).data)
                with dask.config.set(scheduler=refusing_scheduler), refuses(kind, *parts):
                    fitted().invert(cube, noise)
                with refuses(kind, *parts):
                    fitted().posterior(cube, noise)


def test_known_parameters_that_cannot_serve_are_refused_in_one_line_before_any_work(subtests: pytest.Subtests) -> None:
    for chunks in [None, {"y": 2}]:
        for case in BAD_KNOWN:
            with subtests.test(chunks=chunks, case=case):
                known, kind, parts = BAD_KNOWN[case]
                cube = make_cube() if chunks is None else make_cube().copy(data=make_cube().chunk(chunks).data)
                with dask.config.set(scheduler=refusing_scheduler), refuses(kind, *parts):
                    fitted().invert(cube, known=known)
                with refuses(kind, *parts):
                    fitted().posterior(cube, known=known)


def test_min_valid_bands_out_of_range_is_refused(subtests: pytest.Subtests) -> None:
    for least in [0, -1, 9, 2.5, True, "3"]:
        with subtests.test(least=least), refuses(ValueError, f"min_valid_bands={least!r}", "1 to the 8 bands"):
            fitted().invert(make_cube(), min_valid_bands=least)


def test_infinite_values_known_in_some_pixels_are_refused_with_their_name_and_count() -> None:
    known = truth_with("dust").copy()
    known[:, :2] = np.inf
    with refuses(ValueError, "known 'dust' is infinite in 10 pixels", "NaN"):
        fitted().invert(make_cube(), known={"dust": known})


def test_a_posterior_given_an_interval_is_refused_and_not_that_without_it() -> None:
    with refuses(ValueError, "interval", "no mixture of Gaussians", "invert"):
        fitted().posterior(make_cube(), known={"dust": (0.1, 0.2)})
    with refuses(ValueError, "known 'dust': the interval is empty in 30 pixels"):
        fitted().invert(make_cube(), known={"dust": (truth_with("dust") + 5.0, 0.2)})


def test_lazy_negative_noise_is_refused_at_computation_with_its_count() -> None:
    noise = make_truth()["dust"].drop_attrs()
    noise.values[0, :3] = -0.25
    maps = fitted().invert(make_cube().chunk(), noise.chunk())
    with refuses(ValueError, "3 of 30 places", "least -0.25", "standard deviations"):
        maps.compute(scheduler="sync")
