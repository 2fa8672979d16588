"""The accessor gives what the functions give; the public names of the package are there."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import specinvert
from labelled import (
    QUICK,
    assert_close,
    assert_same_fit,
    fitted,
    make_cube,
    make_responsibilities,
    make_training,
    make_truth,
    refuses,
)
from specinvert import GLLiMInverter
from specinvert.accessor import GLLiMDataArrayAccessor, GLLiMDatasetAccessor

PUBLIC = {
    *("GLLiMInverter", "adapt", "gllim", "load_inverter", "nrmse", "nuisance", "rank", "save_maps"),
    *("open_cube", "orthorectify", "read_lookup", "register_reader", "Lookup", "ProgressBars"),
    *("resample", "resample_noise", "select_bands", "select_model", "Selection"),
    *("adapt", "rank", "reweight"),
}


@pytest.fixture(params=["inverter", "path", "string"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The same model as an inverter, a path and a string."""
    fitted(1).to_netcdf(tmp_path / "model.nc")
    return {"inverter": fitted(1), "path": tmp_path / "model.nc", "string": str(tmp_path / "model.nc")}[request.param]


@pytest.mark.parametrize("chunks", [None, {"y": 2}])
def test_inverting_through_the_accessor_is_inverting(model: Any, chunks: Any) -> None:
    cube = make_cube() if chunks is None else make_cube().chunk(chunks)
    options: dict[str, Any] = {"outputs": ("mean", "latent", "flag"), "tolerance": 2.0}
    expected = fitted(1).invert(cube, **options)
    assert_close(cube.gllim.invert(model, **options), expected, 0.0)
    assert_close(cube.to_dataset(name="reflectance").gllim.invert(model, **options), expected, 0.0)
    assert (cube.gllim.invert(model)["water"].chunks is None) == (chunks is None)


def test_the_posterior_and_the_evaluation_through_the_accessor_are_the_inverter_s(model: Any) -> None:
    cube = make_cube()
    scene = make_truth().assign(reflectance=cube)
    assert_close(cube.gllim.posterior(model, band_dim="band"), fitted(1).posterior(cube), 0.0)
    assert_close(scene.gllim.posterior(model), fitted(1).posterior(cube), 0.0)
    assert_close(scene.gllim.evaluate(model, tolerance=2.0), fitted(1).evaluate(scene), 0.0)


def test_training_through_the_accessor_is_training() -> None:
    training = make_training().assign(frequency=("sample", np.linspace(0.5, 2.0, 150)))
    given = make_responsibilities(training)
    inverter = training.gllim.fit(
        "reflectance", ["dust"], "band", "frequency", responsibilities=given, n_latent=1, sigma="diag", **QUICK
    )
    expected = GLLiMInverter(n_latent=1, sigma="diag", **QUICK)
    expected.fit(training, "reflectance", ["dust"], "band", "frequency", responsibilities=given)
    assert isinstance(inverter, GLLiMInverter)
    assert_same_fit(inverter, expected)
    by_name = training.gllim.fit(
        parameters=["dust"], weights="frequency", responsibilities=given, n_latent=1, sigma="diag", **QUICK
    )
    assert_same_fit(by_name, expected)


def test_the_accessor_takes_every_argument_of_training_and_every_setting() -> None:
    training = make_training()
    names = [*inspect.signature(GLLiMInverter).parameters, *inspect.signature(GLLiMInverter.fit).parameters]
    assert len(names) == len(set(names))
    with refuses(ValueError, "missing='no'"):
        training.gllim.fit(missing="no")
    with refuses(ValueError, "sigma='no'"):
        training.gllim.fit(sigma="no")
    with pytest.raises(TypeError, match="n_component"):
        training.gllim.fit(n_component=3)


def test_anything_but_a_model_is_refused() -> None:
    for given in (3, None, make_cube(), {"n_components": 3}):
        with refuses(TypeError, "GLLiMInverter or the path of a model file", type(given).__name__):
            make_cube().gllim.invert(given)
    with refuses(FileNotFoundError, "none.nc"):
        make_cube().gllim.invert("none.nc")


def test_only_a_dataset_trains_and_evaluates() -> None:
    assert isinstance(make_cube().gllim, GLLiMDataArrayAccessor)
    assert isinstance(make_training().gllim, GLLiMDatasetAccessor)
    for name in ("fit", "evaluate"):
        assert hasattr(make_training().gllim, name)
        assert not hasattr(make_cube().gllim, name)


@pytest.mark.parametrize(
    "data", [xr.DataArray("text"), xr.DataArray(np.zeros((0, 3))), xr.Dataset(), xr.Dataset({"a": ("x", [None])})]
)
def test_every_object_has_the_accessor_whatever_it_holds(data: Any) -> None:
    assert hasattr(data, "gllim")
    before = data.copy(deep=True)
    repr(data.gllim)
    dir(data.gllim)
    xr.testing.assert_identical(data, before)


def test_the_accessor_keeps_no_state_but_the_object() -> None:
    training = make_training()
    first, second = training["reflectance"].gllim, training["reflectance"].gllim
    assert first is not second
    fitted().invert(training)
    accessor = training.gllim
    accessor.fit(**QUICK)
    accessor.invert(fitted())
    assert vars(accessor) == {"_data": training}
    assert vars(accessor)["_data"] is training


def test_an_attribute_error_inside_stays_what_it_is() -> None:
    with refuses(ValueError, "not fitted", "fit(training)"):
        make_cube().gllim.invert(GLLiMInverter())
    assert not hasattr(make_cube().gllim, "nothing")


def test_the_public_names_are_there_and_listed() -> None:
    assert set(specinvert.__all__) == PUBLIC
    assert set(dir(specinvert)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(specinvert, name) is not None
        assert name in dir(specinvert)
    assert callable(specinvert.gllim.GLLiM)
    with pytest.raises(AttributeError, match="attribute nothing"):
        specinvert.nothing  # noqa: B018


def test_every_public_function_and_method_is_documented() -> None:
    objects = [getattr(specinvert, name) for name in PUBLIC]
    objects += [value for name, value in vars(GLLiMInverter).items() if callable(value) and not name.startswith("_")]
    accessors = (GLLiMDataArrayAccessor, GLLiMDatasetAccessor)
    objects += [getattr(a, name) for a in accessors for name in dir(a) if not name.startswith("_")]
    assert len(objects) > 15
    for thing in objects:
        assert inspect.getdoc(thing), thing
