"""Every declared output has all its parts: an entry in ``DECLARED`` that lacks one fails here."""

import copy
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from dask.base import tokenize

from labelled import PARAMETERS, assert_close, fitted, make_cube, make_training, make_truth, refuses
from specinvert import GLLiMInverter, save_maps
from specinvert.cubes.outputs import (
    BAND,
    COMMITTEE,
    DECLARED,
    EXAMPLES,
    INTERVAL,
    LATENT,
    OF_PARAMETER,
    OF_SPECTRA,
    PARAMETER,
    PARAMETER_2,
    TOGETHER,
    TRANSFORMS,
    TRUTH,
    Output,
    declare_outputs,
    declare_scores,
    is_output,
)
from specinvert.scores import shared_parameters

OF_MAPS = [output for output in DECLARED if TRUTH not in output.needs]
SIZES_OF_MODEL = {PARAMETER: 2, PARAMETER_2: 2, LATENT: 1, BAND: 8}
IDS = [output.name for output in DECLARED]


@cache
def maps_of(asked: str) -> xr.Dataset:
    """Of a cube with one pixel without data."""
    cube = make_cube(dtype=np.float32)
    cube.values[0, 0] = np.nan
    return fitted(1).invert(cube, outputs=(asked,))


@cache
def inverters() -> dict[str, GLLiMInverter]:
    """By what an output may not go with."""
    settings: dict[str, Any] = {"n_components": 2, "n_latent": 1, "max_iter": 2, "tol": 0.0, "random_state": 0}
    training = make_training()
    return {
        COMMITTEE: GLLiMInverter(n_ensemble=2, **settings).fit(training),
        TRANSFORMS: GLLiMInverter(transforms={"water": "sqrt"}, **settings).fit(training),
        INTERVAL: fitted(1),
    }


def variables(output: Output) -> list[str]:
    """Names of its variables in the maps of :func:`maps_of`."""
    return [variable.name for variable in output.variables(output.asked, PARAMETERS)]


@pytest.mark.parametrize("output", OF_MAPS, ids=lambda output: output.name)
def test_an_output_is_in_the_maps_with_what_it_declares(output: Output) -> None:
    maps = maps_of(output.asked)
    assert set(variables(output)) <= set(maps.data_vars)
    count = int(output.asked.removeprefix("draws").removeprefix("modes")) if output.number == "count" else 0
    for name in variables(output):
        array = maps[name]
        assert array.dims == ("y", "x", *output.dims)
        assert array.shape[2:] == tuple(SIZES_OF_MODEL.get(dim, count) for dim in output.dims)
        assert array.dtype == (output.dtype or np.float32)
        np.testing.assert_array_equal(array.values[0, 0], np.full(array.shape[2:], output.empty, dtype=array.dtype))
        assert np.isfinite(array.values[1:].astype(float)).any()
        assert array.attrs["long_name"].strip()
        assert "{" not in array.attrs["long_name"]
        assert name not in array.dims, "xarray takes a variable named as its dimension for a coordinate"


@pytest.mark.parametrize("output", OF_MAPS, ids=lambda output: output.name)
def test_units_are_those_that_an_output_declares(output: Output) -> None:
    units = {"water": "g m-2", "dust": "1"}
    for name, parameter in zip(variables(output), PARAMETERS if output.per_parameter else [""], strict=True):
        expected = {OF_PARAMETER: units.get(parameter), OF_SPECTRA: "1"}.get(str(output.units), output.units)
        assert maps_of(output.asked)[name].attrs.get("units") == expected


def test_every_declaration_is_complete_and_alone() -> None:
    assert len({(output.asked, output.name) for output in DECLARED}) == len(DECLARED)
    for output in DECLARED:
        texts = (output.asked, output.name, output.long_name)
        assert all(isinstance(text, str) and text for text in texts), output
        assert callable(output.compute)
        assert output.units is None or output.units, output
        assert output.digits(output.asked) is not None
        assert ("{digits}" in output.name) <= bool(output.number)
        assert set(output.not_with) <= {COMMITTEE, TRANSFORMS, INTERVAL}
        assert output.levels is None or all(0 < level < 1 for level in output.levels(0.5))


@pytest.mark.parametrize("output", DECLARED, ids=IDS)
def test_an_output_travels_by_name_and_keeps_the_names_of_tasks(output: Output) -> None:
    assert pickle.loads(pickle.dumps(output)) is output
    assert copy.deepcopy(output) is output
    assert len(pickle.dumps(output)) < 200
    (variable, *_) = output.variables(output.asked, PARAMETERS)
    assert repr(pickle.loads(pickle.dumps(variable))) == repr(variable)
    assert "0x" not in repr(variable)
    assert tokenize(repr(variable)) == tokenize(repr(variable))


@pytest.mark.parametrize("output", DECLARED, ids=IDS)
def test_what_an_output_makes_is_no_parameter(output: Output) -> None:
    made = output.variables(output.asked, PARAMETERS)
    for variable in made:
        assert is_output(variable.name, output.dims, PARAMETERS) != output.is_estimate
    if output.per_parameter and not output.is_estimate:
        assert not is_output(made[0].name, output.dims, ["snow"])
    if TRUTH not in output.needs:
        estimate = () if output.is_estimate else ("mean",)
        maps = fitted(1).invert(make_cube(), outputs=(*estimate, output.asked))
        assert shared_parameters(maps, maps) == PARAMETERS


@pytest.mark.parametrize("output", OF_MAPS, ids=lambda output: output.name)
def test_an_output_is_had_with_all_that_it_does_not_refuse(output: Output) -> None:
    for condition, inverter in inverters().items():
        known = {"dust": (0.2, 0.8)} if condition == INTERVAL else None
        if condition in output.not_with:
            with pytest.raises(ValueError, match=r"not comparable|hdi outputs need|known by an interval"):
                inverter.invert(make_cube(), known=known, outputs=output.asked)
        else:
            maps = inverter.invert(make_cube(), known=known, outputs=output.asked)
            assert set(variables(output)) <= set(maps.data_vars)


def test_lazy_maps_of_all_outputs_are_those_of_numpy_and_come_back_from_a_file(tmp_path: Path) -> None:
    asked = (*TOGETHER, *EXAMPLES)
    maps = fitted(1).invert(make_cube(), outputs=asked)
    lazy = fitted(1).invert(make_cube().chunk(y=2, x=5), outputs=asked)
    assert_close(lazy.compute(), maps, rtol=1e-7)
    save_maps(maps, tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", decode_coords="all") as again:
        assert set(again.data_vars) == set(maps.data_vars)
        assert shared_parameters(again, again) == PARAMETERS
        simulated = fitted(1).simulate(again, again["latent"])
    assert_close(simulated, fitted(1).simulate(maps, maps["latent"].rename(latent_dim="latent")), rtol=1e-7)


def test_scores_are_declared_but_not_to_be_asked_for() -> None:
    names = [variable.name for variable in declare_scores(("mean", "pit", "crps"), PARAMETERS)]
    assert names == ["water", "dust", "water_pit", "dust_pit", "water_crps", "dust_crps"]
    with refuses(ValueError, "outputs ['pit'] not known", "'log_evidence', 'flag', 'q05'", "(any digits)"):
        declare_outputs(["mean", "pit"], PARAMETERS, 1)


def test_maps_with_modes_and_draws_are_drawn() -> None:
    maps = fitted(1).invert(make_cube(), outputs=("mean", "std", "modes3", "draws5", "flag"))
    assert len(maps.gllim.plot().axes) >= len(PARAMETERS)
    truth = make_truth()
    assert shared_parameters(maps, truth) == PARAMETERS
