"""What commands take beside files: noise, known parameters, bands, transforms, settings in TOML, a dry run."""

import signal
import time
import tomllib
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

from commands import QUICK, listing, run, succeed
from forked import MAIN, Command, Starter
from labelled import WAVELENGTHS, make_cube, make_training, make_truth
from specinvert import adapt, load_inverter, save_maps, select_bands
from specinvert.cli.options import toml_value
from specinvert.cli.values import open_sensor, read_noise
from specinvert.model_selection import grid as grid_fits


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training set, scene with truth, and a model."""
    folder = tmp_path_factory.mktemp("options")
    make_training().to_netcdf(folder / "training.nc")
    save_maps(make_truth().assign(reflectance=make_cube()), folder / "scene.nc")
    succeed("train", folder / "training.nc", "-o", folder / "model.nc", *QUICK)
    return folder


def inverted(made: Path, output: Path, *options: Any) -> xr.Dataset:
    succeed("invert", made / "model.nc", made / "scene.nc", "-o", output, *options)
    return xr.open_dataset(output)


def test_noise_and_known_parameters_are_those_of_the_inverter(made: Path, tmp_path: Path) -> None:
    cube = make_cube()
    model = load_inverter(made / "model.nc")
    found = inverted(made, tmp_path / "maps.nc", "--noise", 0.05, "--known", "water=0.3")
    np.testing.assert_allclose(
        found["dust"].values, model.invert(cube, noise=0.05, known={"water": 0.3})["dust"].values, rtol=1e-6
    )
    deviations = np.linspace(0.01, 0.08, len(WAVELENGTHS))
    table = tmp_path / "noise.csv"
    table.write_text(
        "wavelength,noise\n" + "".join(f"{w},{d}\n" for w, d in zip(WAVELENGTHS[::-1], deviations[::-1], strict=True))
    )
    found = inverted(made, tmp_path / "by_band.nc", "--noise", table, "--known", "water=0.1:0.4")
    expected = model.invert(cube, noise=deviations, known={"water": (0.1, 0.4)})
    np.testing.assert_allclose(found["water"].values, expected["water"].values, rtol=1e-6)


def test_excluded_bands_are_missing_and_the_history_has_the_command(made: Path, tmp_path: Path) -> None:
    found = inverted(made, tmp_path / "maps.nc", "--exclude", "600-720")
    masked = select_bands(make_cube(), exclude=[(600, 720)], drop=False)
    np.testing.assert_allclose(
        found["water"].values, load_inverter(made / "model.nc").invert(masked)["water"].values, rtol=1e-6
    )
    assert "specinvert invert" in found.attrs["history"]
    assert "--exclude 600-720" in found.attrs["history"]


def test_training_takes_noise_nuisances_and_transforms(made: Path, tmp_path: Path) -> None:
    options = ["--noise", 0.01, "--nuisance", "gain=0.02", "--transform", "water=logit:-1:2", "--sigma", "block"]
    succeed("train", made / "training.nc", "-o", tmp_path / "other.nc", *QUICK, *options)
    model = load_inverter(tmp_path / "other.nc")
    assert model.model_.transforms.spec["water"] == ("logit", -1.0, 2.0)
    assert model.model_.transforms.spec["dust"][0] == "softplus"
    assert model.parameters_.constraints.sigma == "block"


def test_training_takes_no_bounds_and_a_transform_of_spectra(made: Path, tmp_path: Path) -> None:
    positive = xr.open_dataset(made / "training.nc")
    positive.assign(reflectance=np.exp(positive["reflectance"])).to_netcdf(tmp_path / "positive.nc")
    options = ["--transform", "none", "--spectra-transform", "log"]
    told = succeed("train", tmp_path / "positive.nc", "-o", tmp_path / "other.nc", *QUICK, *options)
    assert "  spectra     log" in told
    model = load_inverter(tmp_path / "other.nc")
    assert model.model_.transforms.is_identity
    assert model.model_.spectra_transform.kind == "log"


@pytest.mark.parametrize("command", ["train", "invert"])
def test_settings_are_kept_beside_the_result_and_give_it_again(made: Path, tmp_path: Path, command: str) -> None:
    if command == "train":
        arguments = ["train", made / "training.nc", "-o", tmp_path / "a.nc", *QUICK, "--parameters", "dust"]
    else:
        arguments = ["invert", made / "model.nc", made / "scene.nc", "-o", tmp_path / "a.nc", "--noise", 0.02]
        arguments += ["--outputs", "mean,q05", "--known", "dust=0.2"]
    succeed(*arguments)
    kept = tmp_path / "a.nc.toml"
    assert tomllib.loads(kept.read_text())["command"] == command
    succeed(command, "--config", kept, "-o", tmp_path / "b.nc")
    if command == "train":
        assert load_inverter(tmp_path / "a.nc").model_id == load_inverter(tmp_path / "b.nc").model_id
    else:
        with xr.open_dataset(tmp_path / "a.nc") as one, xr.open_dataset(tmp_path / "b.nc") as other:
            xr.testing.assert_allclose(one, other, rtol=1e-9)


def test_any_text_survives_the_file_of_settings(subtests: pytest.Subtests) -> None:
    for text in ['"', "\\", "a\nb", "\t\x00\x7f", "é ☃ 🛰", "'''", '"""', "# no comment", "\u2028"]:
        with subtests.test(text=text):
            assert tomllib.loads(f"key = {toml_value([text, 1.5, True])}")["key"] == [text, 1.5, True]


BAD: dict[str, tuple[list[str], list[str]]] = {
    "negative noise": (["--noise", "-0.1"], ["noise", "negative"]),
    "noise of no file": (["--noise", "none.csv"], ["none.csv", "neither a number nor a file"]),
    "a known name that is none": (["--known", "gold=1"], ["gold", "water"]),
    "known without a value": (["--known", "water"], ["--known", "NAME=VALUE"]),
    "a range that is none": (["--exclude", "600to700"], ["600to700", "no range"]),
    "a range upside down": (["--exclude", "700-600"], ["--exclude", "600-700"]),
    "a reader that is none": (["--reader", "nothing"], ["nothing", "netcdf"]),
    "settings that are not there": (["--config", "none.toml"], ["none.toml"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_one_line_and_leave_no_file(made: Path, tmp_path: Path, case: str) -> None:
    options, parts = BAD[case]
    before = listing(made)
    result = run("invert", made / "model.nc", made / "scene.nc", "-o", tmp_path / "maps.nc", *options)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()[-1:]
    for part in parts:
        assert part in line
    assert not list(tmp_path.iterdir())
    assert listing(made) == before


def test_a_nuisance_that_is_no_number_is_named(made: Path, tmp_path: Path) -> None:
    result = run("train", made / "training.nc", "-o", tmp_path / "m.nc", "--nuisance", "gain=abc")
    assert result.exit_code == 1
    assert "scale=abc" in result.stderr or "gain=abc" in result.stderr
    assert "no number" in result.stderr


def test_unknown_keys_of_the_settings_are_named(made: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[invert]\ncolour = "red"\n')
    result = run("invert", "--config", tmp_path / "run.toml", made / "model.nc", made / "scene.nc", "-o", "m.nc")
    assert result.exit_code == 1
    assert "unknown key 'colour'" in result.stderr


@pytest.mark.parametrize("command", ["train", "invert"])
def test_a_dry_run_tells_sizes_and_time_and_writes_nothing(made: Path, tmp_path: Path, command: str) -> None:
    files = [made / "training.nc"] if command == "train" else [made / "model.nc", made / "scene.nc"]
    options = QUICK if command == "train" else []
    before = listing(made)
    told = succeed(command, *files, "-o", tmp_path / "new.nc", *options, "--dry-run")
    for word in ("memory", "output", "time", "measured on", "nothing was written"):
        assert word in told
    assert not list(tmp_path.iterdir())
    assert listing(made) == before


def test_evaluate_says_what_to_beware_of_and_recalibrate_mends_the_intervals(made: Path, tmp_path: Path) -> None:
    many = make_training(1500, seed=3)
    many.to_netcdf(tmp_path / "held_out.nc")
    narrow = load_inverter(made / "model.nc")
    for theta in narrow.model_.members:
        theta.Sigma[:] *= 0.3
    narrow.to_netcdf(tmp_path / "narrow.nc")
    told = run("evaluate", tmp_path / "narrow.nc", tmp_path / "held_out.nc")
    assert told.exit_code == 0
    assert "Beware: Uncertainties are too small" in told.stderr
    assert "specinvert recalibrate" in told.stderr
    assert run("-q", "evaluate", tmp_path / "narrow.nc", tmp_path / "held_out.nc").stderr == ""
    files = tmp_path / "narrow.nc", tmp_path / "held_out.nc"
    few = run("recalibrate", *files, "-o", tmp_path / "calibrated.nc")
    assert (few.exit_code, few.stderr.count("\n")) == (1, 1)
    assert "1500 finite pairs" in few.stderr
    assert not (tmp_path / "calibrated.nc").exists()
    said = succeed("recalibrate", *files, "-o", tmp_path / "calibrated.nc", "--minimum", 1000, "--noise", 0.001)
    assert said.count("90 % intervals hold") == 2
    expected = load_inverter(tmp_path / "narrow.nc").recalibrate(many, 1000, noise=0.001)
    written = load_inverter(tmp_path / "calibrated.nc").model_.recalibration
    np.testing.assert_array_equal(written.raw, expected.model_.recalibration.raw)
    after = load_inverter(tmp_path / "calibrated.nc").evaluate(many, noise=0.001)["coverage_90"]
    np.testing.assert_allclose(after, 0.9, atol=0.01)


def test_measured_values_are_evaluated_and_correct_intervals(made: Path, tmp_path: Path) -> None:
    field = make_training(90, seed=3).drop_vars("dust")
    field["water"] += 0.3
    field = field.assign(site=("sample", np.arange(90) // 3), angle=("sample", np.full(90, 0.4)))
    field.to_netcdf(tmp_path / "field.nc")
    files = made / "model.nc", tmp_path / "field.nc"
    told = run("evaluate", *files, "--measured", "--groups", "site", "--known", "dust=angle", "--weights", "angle")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.splitlines()[0].split()[-2:] == ["rmse_error", "coverage_90_error"]
    assert "30 groups" in told.stderr
    assert "do not help here" in told.stderr
    assert "Not evaluated: dust" in told.stderr
    few = "--measured", "--minimum", 50
    said = succeed("recalibrate", *files, "-o", tmp_path / "right.nc", *few)
    assert "water: 90 % intervals hold" in said
    assert "dust: not corrected" in said
    assert "recalibrated by 90 held-out pairs of measurements" in succeed("info", tmp_path / "right.nc")
    page = succeed(
        "report", *files[:1], "--test", files[1], "-o", tmp_path / "page.html", *few[:1], "--known", "dust=0.4"
    )
    assert "do not help here" in page
    refused = run("report", *files[:1], "--test", files[1], "-o", tmp_path / "no.html", "--known", "dust=angle")
    assert "must be numbers" in refused.stderr


def test_adapt_writes_what_noise_of_other_commands_takes_and_nothing_where_it_is_refused(
    made: Path, tmp_path: Path
) -> None:
    files, found = (made / "model.nc", made / "scene.nc", "--training", made / "training.nc"), tmp_path / "found.nc"
    said = succeed("adapt", *files, "-o", found, "--plot", tmp_path / "found.png")
    assert "squared errors" in said
    assert (tmp_path / "found.png").stat().st_size > 1000
    expected = adapt(load_inverter(made / "model.nc"), make_cube(), make_training())
    written = xr.load_dataset(found)
    np.testing.assert_allclose(written["amplitude"], expected["amplitude"], rtol=1e-6)
    succeed("invert", made / "model.nc", made / "scene.nc", "--noise", found, "-o", tmp_path / "m.nc", "--dry-run")
    maps = inverted(made, tmp_path / "maps.nc", "--noise", found)
    again = load_inverter(made / "model.nc").invert(make_cube(), noise=written)
    np.testing.assert_allclose(maps["water"].values, again["water"].values, rtol=1e-5)
    assert "discrepancy" in maps.attrs["history"]
    save_maps(make_truth().assign(reflectance=make_cube() * np.linspace(0.2, 4.0, len(WAVELENGTHS))), tmp_path / "o.nc")
    refused = run("adapt", files[0], tmp_path / "o.nc", *files[2:], "-o", tmp_path / "none.nc")
    assert refused.exit_code == 1
    assert "refused" in refused.stderr
    assert not (tmp_path / "none.nc").exists()


@pytest.mark.stops
def test_calibrate_corrects_by_a_few_field_values_of_a_table_and_undoes_it(made: Path, tmp_path: Path) -> None:
    field = make_training(30, seed=3)
    bands = [f"{nm:g}" for nm in field["wavelength"].values]
    lines = [",".join(["plot", "angle", "water", *bands])]
    for i, (spectrum, water) in enumerate(zip(field["reflectance"].values, field["water"].values, strict=True)):
        lines.append(",".join(map(str, [f"p{i // 5}", 0.5, "" if i == 7 else water + 0.3, *spectrum])))
    (tmp_path / "field.csv").write_text("\n".join(lines), encoding="utf-8")
    files, output = (made / "model.nc", tmp_path / "field.csv"), tmp_path / "calibrated.nc"
    said = succeed("calibrate", *files, "--groups", "plot", "--known", "dust=angle", "-o", output)
    assert "water by 29 field values of 6 groups (plot)" in said
    assert "6 groups promise" in said
    assert "calibrated  water by 29 field values" in succeed("info", output)
    calibration = load_inverter(output).model_.calibration
    assert calibration is not None
    assert calibration.table["water"]["inside"][1] >= 0.8
    succeed("calibrate", output, "--undo", "-o", tmp_path / "undone.nc")
    assert load_inverter(tmp_path / "undone.nc").model_.calibration is None
    for wrong in ([*files], [files[0], "--groups", "plot"], [*files, "--undo"]):
        assert run("calibrate", *wrong, "-o", tmp_path / "none.nc").exit_code == 2
    few = run("calibrate", *files, "--groups", "angle", "-o", tmp_path / "none.nc")
    assert (few.exit_code, few.stderr.count("\n")) == (1, 1)
    assert "water, 29 values in 1 groups" in few.stderr


def test_a_stopped_select_goes_on_from_its_checkpoint(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = ["--components", "2,3", "--latent", "0,1", "--max-iter", "3", "--tol", "0"]
    command = ["select", made / "training.nc", *grid, "--checkpoint", tmp_path / "fits.json"]
    train, calls = grid_fits.train, []

    def stopping(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(grid_fits, "train", stopping)
    with dask.config.set(scheduler="synchronous"):
        stopped = run(*command)
        assert stopped.exit_code == 130
        assert f"{tmp_path / 'fits.json'} keeps the finished fits" in stopped.stderr
        again = run(*command)
    assert (again.exit_code, len(calls)) == (0, 5)
    assert not (tmp_path / "fits.json").exists()
    plain = run(*command[:-2])
    assert again.stdout.splitlines()[-1] == plain.stdout.splitlines()[-1]


def test_compare_fails_where_no_method_is_named_or_none_could_be_fitted(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = run("compare", made / "training.nc", made / "training.nc", "--methods", "")
    assert nothing.exit_code == 1
    assert "no method to compare; choose from" in nothing.stderr

    def failing(*arguments: Any) -> None:
        raise ValueError("no luck")

    monkeypatch.setattr("sklearn.linear_model.RidgeCV.fit", failing)
    failed = run("compare", made / "training.nc", made / "training.nc", "--methods", "ridge")
    assert failed.exit_code == 1
    assert "all 1 methods failed" in failed.stderr
    assert "no luck" in failed.stdout
    assert run("compare", made / "training.nc", made / "training.nc", "--methods", "ridge,lut").exit_code == 0


def test_report_takes_maps_and_test_by_place_or_by_name_and_not_twice(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    succeed("invert", made / "model.nc", made / "scene.nc", "-o", tmp_path / "maps.nc", "--variable", "reflectance")
    page, title = tmp_path / "page.html", ["--title", "one and the same"]
    given = ["report", made / "model.nc", "-o", page, *title]
    assert run(*given, tmp_path / "maps.nc", made / "scene.nc").exit_code == 0
    by_place = page.read_text()
    assert run(*given, "--maps", tmp_path / "maps.nc", "--test", made / "scene.nc").exit_code == 0
    assert by_place.count("<img") == page.read_text().count("<img") > 3
    twice = run(*given, tmp_path / "maps.nc", "--maps", tmp_path / "maps.nc")
    assert twice.exit_code == 1
    assert "given twice" in twice.stderr


def test_select_compare_report_and_resample_write_what_they_say(made: Path, tmp_path: Path) -> None:
    training = made / "training.nc"
    grid = ["--components", "2,3", "--latent", "0,1", "--max-iter", "3", "--tol", "0", "--held-out", "0.3"]
    told = run("select", training, *grid, "-o", tmp_path / "grid.csv", "--model", tmp_path / "best.nc")
    assert told.exit_code == 0, told.stderr
    best = load_inverter(tmp_path / "best.nc")
    assert f"K = {best.n_components}, L_w = {best.n_latent}" in told.stdout
    told_methods = run("compare", training, training, "--methods", "lut,ridge", "-o", tmp_path / "scores.csv")
    assert told_methods.exit_code == 0, told_methods.stderr
    assert (tmp_path / "scores.csv").read_text().count("ridge") == 2
    pytest.importorskip("matplotlib")
    assert "wrote" in succeed("report", made / "model.nc", "-o", tmp_path / "page.html", "--test", made / "scene.nc")
    assert "<html" in (tmp_path / "page.html").read_text()
    (tmp_path / "bands.csv").write_text("wavelength,fwhm\n520,60\n700,60\n")
    told = run("resample", training, tmp_path / "bands.csv", "-o", tmp_path / "coarse.nc")
    assert told.exit_code == 0, told.stderr
    assert "finer sampling would tell more" in told.stderr
    with xr.open_dataset(tmp_path / "coarse.nc") as coarse:
        assert coarse["reflectance"].shape == (150, 2)
        np.testing.assert_allclose(coarse["wavelength"], [520, 700])


def test_select_prepares_the_training_set_as_train_does(made: Path, tmp_path: Path) -> None:
    options = ["--exclude", "600-720", "--nuisance", "gain=0.02", "--noise", "0.01", "--max-iter", "3", "--tol", "0"]
    options += ["--gamma", "diag", "--tied-sigma", "--seed", "3"]
    training = made / "training.nc"
    succeed("select", training, "--components", "2", "--latent", "1", *options, "--model", tmp_path / "best.nc")
    succeed("train", training, "--components", "2", "--latent", "1", *options, "-o", tmp_path / "model.nc")
    best, model = (load_inverter(tmp_path / name) for name in ("best.nc", "model.nc"))
    assert best.model_id == model.model_id
    assert best.model_.bands.size < len(WAVELENGTHS)


@pytest.mark.stops
def test_ctrl_c_ends_training_with_one_line_and_no_model(starter: Starter, made: Path, tmp_path: Path) -> None:
    arguments = [
        "train",
        made / "training.nc",
        "-o",
        tmp_path / "new.nc",
        "--components",
        3,
        "--latent",
        0,
        "--max-iter",
        10**7,
    ]
    process = Command(starter, MAIN, tmp_path, *arguments, "--tol", "0", "-v")
    while process.poll() is None and b"\n" not in process.said[1]:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "iteration" in said.splitlines()[0]
    assert "Interrupted: no model was written; with --checkpoint" in said.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_table_of_spectra_is_a_sensor_too(tmp_path: Path) -> None:
    table = tmp_path / "field.csv"
    names = ["B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B11", "B12"]
    table.write_text("scene_id," + ",".join(names) + "\nS2A_MSIL2A_20220301," + ",".join(["0.1"] * len(names)) + "\n")
    sensor = open_sensor(table)
    assert sensor["wavelength"].values[:2] == pytest.approx([492.4, 559.8])
    assert sensor["fwhm"].values[0] == pytest.approx(66.0)
    table.write_text("wavelength,fwhm\n500,20\n600,20\n")
    assert list(open_sensor(table)["fwhm"].values) == [20.0, 20.0]
    table.write_text("wavelength,width\n500,20\n")
    with pytest.raises(ValueError, match="needs one column 'fwhm'"):
        open_sensor(table)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("semicolons.csv", "wavelength;fwhm\n500,5;10,25\n600;20\n"),
        ("excel.csv", "sep=;\r\nfwhm;wavelength\r\n10,25;500,5\r\n20;600\r\n"),
        ("tabs.csv", "wavelength\tfwhm\n500,5\t10,25\n600\t20\n"),
        ("tabs.txt", "# a sensor\nWavelength (nm)\tFWHM\n500.5\t10.25\n600\t20\n"),
        ("blanks.txt", "500.5 10.25\n600 20\n"),
        ("bare.csv", "500.5,10.25\n600,20\n"),
        ("bare.tsv", "500,5\t10,25\n600\t20\n"),
        ("preamble.csv", "Instrument: X\n\nband,wavelength,fwhm\nblue,500.5,10.25\nred,600,20\n"),
    ],
)
def test_tables_of_sensors_and_of_noise_are_read_however_they_are_parted(tmp_path: Path, name: str, text: str) -> None:
    table = tmp_path / name
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        table.write_text(text, encoding=encoding)
        sensor = open_sensor(table)
        assert list(sensor["wavelength"].values) == [500.5, 600.0]
        assert list(sensor["fwhm"].values) == [10.25, 20.0]
    if "preamble" not in name:
        noise = tmp_path / f"noise_{name}"
        noise.write_text(text.replace("fwhm", "noise").replace("FWHM", "noise"), encoding="utf-16")
        read = read_noise(str(noise))
        assert list(read.values) == [10.25, 20.0]
        assert list(read.coords[next(iter(read.coords))].values) == [500.5, 600.0]


def test_a_sensor_without_names_of_columns_has_two(tmp_path: Path) -> None:
    table = tmp_path / "sensor.csv"
    table.write_text("500;10;1\n600;20;1\n")
    with pytest.raises(ValueError, match="is two, wavelengths and then widths"):
        open_sensor(table)
    table.write_text("wavelength;fwhm\n500;wide\n")
    with pytest.raises(ValueError, match="column 'fwhm' of the sensor must be numbers"):
        open_sensor(table)
    table.write_text("0.05\n0.06\n")
    assert list(read_noise(str(table))) == [0.05, 0.06]
