"""The model file: everything needed to invert elsewhere, to the bit, whole or absent, never a pickle."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

from labelled import (
    PARAMETERS,
    QUICK,
    TRUTH_ATTRS,
    assert_close,
    fitted,
    make_cube,
    make_training,
    refuses,
    unsupervised,
    wavelength_coordinate,
)
from specinvert import GLLiMInverter, load_inverter
from specinvert.cli import main
from specinvert.io.model_file import SCHEMA, _checksum, is_model
from specinvert.model import Model
from specinvert.nuisance import Gain, Noise

THETA = ("pi", "c", "Gamma", "A", "b", "Sigma")


def in_microns() -> GLLiMInverter:
    training = make_training().assign_coords(wavelength=wavelength_coordinate(unit="um"))
    return GLLiMInverter(n_latent=0, **QUICK).fit(training)


def with_labels(labels: list[Any] | None) -> GLLiMInverter:
    training = make_training().drop_vars("wavelength")
    if labels is not None:
        training = training.assign_coords(band=labels)
    return GLLiMInverter(n_latent=0, **QUICK).fit(training, band_dim="band")


MODELS = {
    "hybrid": lambda: fitted(1),
    "supervised, diag": lambda: fitted(0, "diag"),
    "full": lambda: fitted(1, "full"),
    "unsupervised": unsupervised,
    "wavelengths in um": in_microns,
    "bands by place": lambda: with_labels(None),
    "bands by name": lambda: with_labels([f"bande {i} µ" for i in range(8)]),
    "bands by number": lambda: with_labels([8.5, 7.25, 6.1, 5.0, 4.0, 3.0, 2.0, 1.0]),
    "every setting": lambda: GLLiMInverter(
        np.int64(3),
        "bic",
        max_latent=(0, np.int32(1)),
        sigma="diag",
        tied_sigma=np.bool_(True),
        gamma="iso",
        tied_gamma=True,
        tied_pi=True,
        standardize=False,
        init="kmeans-joint",
        n_init=2,
        max_iter=np.int16(3),
        tol=np.float32(0.0),
        reg_covar=np.float64(1e-9),
        random_state=np.int64(4),
    ).fit(make_training()),
}


@pytest.fixture(params=MODELS)
def inverter(request: pytest.FixtureRequest) -> GLLiMInverter:
    return MODELS[request.param]()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a hybrid model."""
    fitted(1).to_netcdf(tmp_path / "model.nc")
    return tmp_path / "model.nc"


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_a_model_comes_back_to_the_same_bits(inverter: GLLiMInverter, tmp_path: Path) -> None:
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(str(tmp_path / "model.nc"))
    for name in THETA:
        found, expected = getattr(loaded.parameters_, name), getattr(inverter.parameters_, name)
        assert found.dtype == expected.dtype == np.float64
        assert found.shape == expected.shape
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes(), name
    assert loaded.parameters_.constraints == inverter.parameters_.constraints
    for field in fields(Model):
        if field.name in ("members", "bands"):
            continue
        assert plain(getattr(loaded.model_, field.name)) == plain(getattr(inverter.model_, field.name)), field.name
    for name in ("dim", "size", "unit", "guessed", "wavelength", "labels"):
        assert plain(getattr(loaded.model_.bands, name)) == plain(getattr(inverter.model_.bands, name)), name
    assert loaded.model_id == inverter.model_id
    assert repr(loaded) == repr(inverter)


def test_a_loaded_model_inverts_to_the_same_bits(inverter: GLLiMInverter, tmp_path: Path) -> None:
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    cube, options = make_cube(), {}
    if inverter.model_.bands.wavelength is None:
        cube, options = cube.drop_vars("wavelength"), {"band_dim": "band"}
    outputs = ("mean", "std", "flag") if inverter.model_.names else ("latent", "log_evidence")
    maps = loaded.invert(cube, outputs=outputs, **options)
    expected = inverter.invert(cube, outputs=outputs, **options)
    assert_close(maps, expected, 0.0)
    for name, array in expected.data_vars.items():
        assert {k: plain(v) for k, v in maps[name].attrs.items()} == {k: plain(v) for k, v in array.attrs.items()}


def test_a_loaded_model_keeps_its_settings_and_goes_on_training(tmp_path: Path) -> None:
    inverter = MODELS["every setting"]()
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    for name in ("n_components", "n_latent", "sigma", "tied_sigma", "gamma", "init", "n_init", "max_iter", "tol"):
        assert getattr(loaded, name) == getattr(inverter, name), name
    assert list(loaded.max_latent) == [0, 1]
    loaded.fit(make_training())
    np.testing.assert_array_equal(loaded.log_likelihoods_, inverter.log_likelihoods_)


def test_a_saved_loaded_model_saves_to_the_same_content(path: Path, tmp_path: Path) -> None:
    load_inverter(path).to_netcdf(tmp_path / "again.nc")
    with xr.open_dataset(path) as first, xr.open_dataset(tmp_path / "again.nc") as second:
        xr.testing.assert_identical(first, second)


def test_a_model_keeps_the_history_of_its_training_set_and_tells_it(tmp_path: Path) -> None:
    table = make_training().assign_attrs(history="2020 simulated")
    centres = ([500.0, 650.0, 800.0], [90.0, 90.0, 120.0])
    trained = GLLiMInverter(n_latent=0, **QUICK).fit(table, sensor=centres, noise=Gain(0.02) | Noise(relative=0.01))
    trained.to_netcdf(tmp_path / "model.nc")
    made, averaged, changed_by = load_inverter(tmp_path / "model.nc").model_.training.split("\n")
    assert made == "2020 simulated"
    assert " resample" in averaged
    assert changed_by.endswith("nuisance Gain(std=0.02) | Noise(white=0.0, relative=0.01), seed 0")
    shown = CliRunner().invoke(main, ["info", str(tmp_path / "model.nc")]).output
    assert all(line in shown for line in (made, averaged, changed_by))


def test_a_model_file_without_the_history_of_training_is_read(path: Path) -> None:
    with xr.open_dataset(path) as opened:
        data = opened.load()
    described = json.loads(data.attrs["specinvert_model"])
    del described["training"]
    data.attrs["specinvert_model"] = json.dumps(described)
    data.attrs["specinvert_checksum"] = _checksum(data)
    data.to_netcdf(path)
    assert load_inverter(path).model_.training == ""


def test_the_file_is_plain_netcdf_of_numbers_and_text(path: Path) -> None:
    with netCDF4.Dataset(path) as file:
        assert file.getncattr("specinvert_schema") == SCHEMA
        assert file.getncattr("title") == "GLLiM model"
        assert set(THETA) <= set(file.variables)
        np.testing.assert_array_equal(file["A"][:], fitted(1).parameters_.A)
        assert file["A"].dimensions == ("component", "band", "x")
        assert file["wavelength"].units == "nm"
        described = json.loads(file.getncattr("specinvert_model"))
        for variable in file.variables.values():
            assert variable.dtype in (np.float64, np.float32, np.int64)
    assert described["names"] == PARAMETERS
    assert described["attrs"] == TRUTH_ATTRS
    content = path.read_bytes()
    assert b"numpy" not in content
    assert b"pickle" not in content


def test_a_model_inverts_in_a_process_that_never_saw_its_training(path: Path, tmp_path: Path) -> None:
    make_cube().to_dataset(name="reflectance").to_netcdf(tmp_path / "cube.nc")
    code = (
        "import sys, numpy, specinvert; "
        "maps = specinvert.load_inverter(sys.argv[1]).invert(specinvert.open_cube(sys.argv[2], chunks=None)); "
        "numpy.save(sys.argv[3], maps['water'].values)"
    )
    files = [str(path), str(tmp_path / "cube.nc"), str(tmp_path / "water.npy")]
    subprocess.run([sys.executable, "-c", code, *files], check=True)
    np.testing.assert_array_equal(np.load(files[2]), fitted(1).invert(make_cube())["water"])


def test_saving_replaces_the_earlier_file_only_when_done(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def interrupted(self: xr.Dataset, target: Any, **options: Any) -> None:
        Path(target).write_bytes(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(xr.Dataset, "to_netcdf", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted(0).to_netcdf(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model.nc"]
    fitted(0).to_netcdf(path)
    assert load_inverter(path).n_latent_ == 0
    assert os.listdir(path.parent) == ["model.nc"]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with refuses(ValueError, "not fitted", "fit("):
        GLLiMInverter().to_netcdf(tmp_path / "model.nc")
    with refuses(FileNotFoundError, str(tmp_path / "no"), "create it first"):
        fitted().to_netcdf(tmp_path / "no" / "model.nc")
    with refuses(ValueError, str(tmp_path), "is a directory"):
        fitted().to_netcdf(tmp_path)
    assert not os.listdir(tmp_path)


def changed(path: Path, **attrs: Any) -> Path:
    """The model file with other attributes; None deletes one."""
    with netCDF4.Dataset(path, "a") as file:
        for name, value in attrs.items():
            if value is None:
                file.delncattr(name)
            else:
                file.setncattr(name, value)
    return path


@pytest.mark.parametrize("name", ["A", "Sigma", "low", "wavelength"])
def test_a_value_that_was_changed_after_writing_is_found(path: Path, name: str) -> None:
    with netCDF4.Dataset(path, "a") as file:
        file[name][:] = np.nextafter(file[name][:], 0.0)
    with refuses(ValueError, str(path), "damaged specinvert model", "not what was written"):
        load_inverter(path)


@pytest.mark.parametrize("schema", [SCHEMA + 1, 0, "one"])
def test_another_schema_is_refused_with_both_versions(path: Path, schema: Any) -> None:
    changed(path, specinvert_schema=schema, source="specinvert 99.1")
    with refuses(ValueError, str(path), f"schema {schema}", f"reads {SCHEMA}", "specinvert 99.1", "train again"):
        load_inverter(path)
    assert is_model(path)


@pytest.mark.parametrize("attrs", [{"title": "maps"}, {"title": None}, {"specinvert_schema": None}])
def test_another_netcdf_file_is_refused(path: Path, attrs: dict) -> None:
    changed(path, **attrs)
    with refuses(ValueError, str(path), "not a specinvert model", "`specinvert train`"):
        load_inverter(path)


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_refused(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with refuses(ValueError, str(path), "not a readable netCDF file", "truncated"):
        load_inverter(path)
    assert not is_model(path)


def test_what_is_no_netcdf_file_or_not_there_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "model.nc"
    text.write_text("not a model\n" * 100)
    with refuses(ValueError, str(text), "not a readable netCDF file"):
        load_inverter(text)
    with refuses(FileNotFoundError, str(tmp_path / "none.nc"), "no such model file"):
        load_inverter(tmp_path / "none.nc")
    with refuses(ValueError, str(tmp_path), "not a readable netCDF file"):
        load_inverter(tmp_path)
    assert [is_model(p) for p in (text, tmp_path / "none.nc", tmp_path)] == [False] * 3


def drop_variable(name: str) -> Any:
    def damage(path: Path) -> None:
        with xr.open_dataset(path) as opened:
            data = opened.load()
        data.drop_vars(name).to_netcdf(path)

    return damage


DAMAGE = {
    "no A": drop_variable("A"),
    "no log_likelihoods": drop_variable("log_likelihoods"),
    "no description": lambda path: changed(path, specinvert_model=None),
    "half a description": lambda path: changed(path, specinvert_model='{"bands": '),
    "another description": lambda path: changed(path, specinvert_model="{}"),
    "no object": lambda path: changed(path, specinvert_model="[1, 2]"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_model_is_refused(path: Path, kind: str) -> None:
    DAMAGE[kind](path)
    with refuses(ValueError, str(path), "damaged specinvert model"):
        load_inverter(path)


def rewritten(path: Path, change: Any) -> Path:
    """The model file after ``change(data, described)``, its checksum right again."""
    data = xr.load_dataset(path, decode_cf=False)
    described = json.loads(data.attrs["specinvert_model"])
    change(data, described)
    data.attrs["specinvert_model"] = json.dumps(described)
    data.attrs["specinvert_checksum"] = _checksum(data)
    data.to_netcdf(path.with_name("crafted.nc"))
    return path.with_name("crafted.nc")


def valued(name: str, value: float) -> Any:
    """Set the last value of an array."""
    return lambda data, described: data[name].values.ravel().__setitem__(-1, value)


def told(**entries: Any) -> Any:
    return lambda data, described: described.update(entries)


def shortened(name: str) -> Any:
    def change(data: xr.Dataset, described: Any) -> None:
        values, dims = data[name].values[..., :-1], (*data[name].dims[:-1], "fewer")
        data[name] = (dims, values)

    return change


def dropped(name: str) -> Any:
    return lambda data, described: data.__delitem__(name)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a recalibrated committee of two, calibrated by field values."""
    settings = {"n_ensemble": 2, "ensemble_weights": "stacked", "sigma": "diag"}
    inverter = GLLiMInverter(n_latent=1, **settings, **QUICK).fit(make_training(300))
    inverter.recalibrate(make_training(300, seed=3), minimum=50)
    field = make_training(30, seed=5).assign_coords(site=("sample", np.arange(30) // 3))
    inverter.calibrate(field, groups="site")
    inverter.to_netcdf(tmp_path_factory.mktemp("calibrated") / "model.nc")
    return tmp_path_factory.getbasetemp() / "calibrated0" / "model.nc"


CRAFTED = {
    **{f"{name} is NaN": valued(name, np.nan) for name in ("c", "A", "low", "wavelength", "calibration_shift")},
    **{f"{name} is negative": valued(name, -1.0) for name in ("pi", "Gamma", "Sigma", "wavelength")},
    **{f"{name} is zero": valued(name, 0.0) for name in ("pi", "Sigma", "recalibration_score")},
    **{f"{name} is short": shortened(name) for name in ("b", "member", "low", "held_out", "calibration_raw_score")},
    **{f"no {name}": dropped(name) for name in ("wavelength", "recalibration_level", "recalibration_score")},
    "members without the second": valued("member", 7),
    "weights of three members": told(member_weights=[0.5, 0.25, 0.25]),
    "weights that sum to two": told(member_weights=[1.0, 1.0]),
    "names of three": told(names=["water", "dust", "ice"]),
    "names as a number": told(names=3),
    "no BIC": told(bics={}),
    "an unknown entry": told(colour="red"),
    "an unknown setting": told(settings={"colour": "red"}),
    "blocks of another structure": told(settings={"sigma": "diag", "sigma_blocks": [0]}),
    "attributes of lists": told(attrs={"water": {"long_name": [[None]]}, "dust": {}}),
    "a calibration without a description": told(calibration=None),
    "no description of bands": told(bands={}),
    "more latents than columns": told(n_latent=9, bics={"9": 0.0}),
}


def test_wrong_content_under_a_right_checksum_is_refused(calibrated: Path, subtests: pytest.Subtests) -> None:
    load_inverter(rewritten(calibrated, lambda data, described: None))
    for kind, change in CRAFTED.items():
        with subtests.test(kind):
            crafted = rewritten(calibrated, change)
            with refuses(ValueError, str(crafted), "damaged specinvert model"):
                load_inverter(crafted)


def test_arrays_larger_than_their_file_are_refused_before_they_are_read(path: Path, tmp_path: Path) -> None:
    with netCDF4.Dataset(path) as model, netCDF4.Dataset(tmp_path / "bomb.nc", "w") as bomb:
        bomb.setncatts({name: model.getncattr(name) for name in model.ncattrs()})
        bomb.createDimension("component", 10**10)
        bomb.createVariable("pi", "f8", ("component",), zlib=True, chunksizes=(1000,))
    with refuses(ValueError, "bomb.nc", "damaged specinvert model", "8e+10 bytes"):
        load_inverter(tmp_path / "bomb.nc")


def test_another_file_is_refused_without_reading_its_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cube().to_netcdf(tmp_path / "cube.nc")
    monkeypatch.setattr(xr.Dataset, "load", lambda self: pytest.fail("read"))
    with refuses(ValueError, "cube.nc", "not a specinvert model"):
        load_inverter(tmp_path / "cube.nc")


def test_a_model_that_may_not_be_read_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(xr, "open_dataset", denied)
    with refuses(PermissionError, str(path), "Permission denied"):
        load_inverter(path)
