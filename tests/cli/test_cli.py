"""The command line: the whole path from files to files, exit codes, and one line on stderr for bad input."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr

from commands import QUICK, listing, run, succeed
from labelled import PARAMETERS, WAVELENGTHS, assert_close, make_cube, make_training, make_truth
from specinvert import GLLiMInverter, load_inverter, open_cube, save_maps
from specinvert._version import __version__
from specinvert.cli import main
from specinvert.cli.options import read_config

COMMANDS = [
    *(
        "adapt",
        "calibrate",
        "check",
        "compare",
        "demo",
        "evaluate",
        "info",
        "invert",
        "orthorectify",
        "plot",
        "rank",
        "recalibrate",
        "report",
    ),
    *("resample", "reweight", "select", "train", "view"),
]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training set, scene with truth and nodata, its cube as GeoTIFF, and a model trained by the command."""
    folder = tmp_path_factory.mktemp("made")
    make_training().to_netcdf(folder / "training.nc")
    cube = make_cube(dtype=np.float32)
    cube[1, 2] = np.nan
    save_maps(make_truth().assign(reflectance=cube), folder / "scene.nc")
    with rasterio.open(
        *(folder / "scene.tif", "w"),
        driver="GTiff",
        count=8,
        height=5,
        width=6,
        dtype="float32",
        nodata=np.nan,
        crs="EPSG:32633",
        transform=make_truth().rio.transform(),
    ) as file:
        file.write(cube.transpose("band", "y", "x").values)
        for i, value in enumerate(cube["wavelength"].values, start=1):
            file.update_tags(i, wavelength=str(value), wavelength_units="Nanometers")
    succeed("train", folder / "training.nc", "-o", folder / "model.nc", *QUICK, "--latent", 1)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A fresh copy of what was made."""
    return Path(shutil.copytree(made, tmp_path / "work"))


def test_train_writes_the_model_that_the_inverter_fits(folder: Path) -> None:
    options = ["--parameters", "dust, water", "--spectra", "reflectance", "--latent", "1", "--sigma", "diag"]
    options += ["--tied-sigma", "--gamma", "iso", "--tied-gamma", "--init", "kmeans-joint", "--n-init", "2"]
    options += ["--reg-covar", "1e-8", "--seed", "3"]
    output = succeed("train", folder / "training.nc", "-o", folder / "other.nc", *QUICK, *options)
    expected = GLLiMInverter(
        *(3, 1),
        sigma="diag",
        tied_sigma=True,
        gamma="iso",
        tied_gamma=True,
        init="kmeans-joint",
        n_init=2,
        max_iter=4,
        tol=0,
        reg_covar=1e-8,
        random_state=3,
    ).fit(make_training(), "reflectance", ["dust", "water"])
    loaded = load_inverter(folder / "other.nc")
    assert loaded.model_id == expected.model_id
    assert loaded.model_.names == ["dust", "water"]
    assert f"GLLiM model {expected.model_id}" in output
    assert output.endswith(f"wrote {folder / 'other.nc'}\n")


def test_train_chooses_latents_by_bic_weighs_samples_and_drops_missing_ones(folder: Path) -> None:
    training = make_training().assign(frequency=("sample", np.linspace(0.5, 2.0, 150)))
    training["water"][7] = np.nan
    training.drop_vars("wavelength").to_netcdf(folder / "holed.nc")
    options = ["--latent", "bic", "--max-latent", "1", "--weights", "frequency", "--drop-missing", "--band-dim", "band"]
    result = run("train", folder / "holed.nc", "-o", folder / "other.nc", *QUICK, *options)
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: 1 training samples hold NaN")
    assert len(result.stderr.splitlines()) == 1
    loaded = load_inverter(folder / "other.nc")
    assert loaded.n_latent_ == 1
    assert sorted(loaded.bics_) == [0, 1]
    assert loaded.model_.n_samples == 149
    assert loaded.model_.total_weight == pytest.approx(float(np.delete(training["frequency"].values, 7).sum()))


def test_train_warns_on_stderr_when_it_has_not_converged(folder: Path) -> None:
    result = run(
        "train", folder / "training.nc", "-o", folder / "other.nc", "--components", 3, "--latent", 0, "--max-iter", 1
    )
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: EM did not converge in max_iter=1")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("source", ["scene.nc", "scene.tif"])
def test_invert_writes_the_maps_of_the_inverter_to_netcdf(folder: Path, source: str) -> None:
    outputs = "mean,std,cov,log_evidence,flag"
    succeed("invert", folder / "model.nc", folder / source, "-o", folder / "maps.nc", "--outputs", outputs)
    cube = open_cube(folder / source, chunks=None)
    expected = load_inverter(folder / "model.nc").invert(cube, outputs=outputs.split(","))
    with xr.open_dataset(folder / "maps.nc", decode_coords="all") as opened:
        maps = opened.load()
    assert_close(maps, expected)
    assert maps.rio.crs.to_epsg() == 32633
    assert maps.rio.transform() == make_truth().rio.transform()
    assert int(maps["quality_flag"][1, 2]) == 1
    assert bool(maps["water"][1, 2].isnull())
    assert maps["water"].attrs["units"] == "g m-2"


def test_invert_writes_geotiff_with_the_flags_beside(folder: Path) -> None:
    succeed("invert", folder / "model.nc", folder / "scene.tif", "-o", folder / "maps.tif")
    expected = load_inverter(folder / "model.nc").invert(open_cube(folder / "scene.tif", chunks=None))
    with rasterio.open(folder / "maps.tif") as file, rasterio.open(folder / "maps_flag.tif") as flags:
        assert file.descriptions == ("water", "dust", "water_std", "dust_std")
        assert file.crs == flags.crs == rasterio.crs.CRS.from_epsg(32633)
        assert file.transform == make_truth().rio.transform()
        for i, name in enumerate(file.descriptions, start=1):
            np.testing.assert_array_equal(file.read(i), expected[name])
        np.testing.assert_array_equal(flags.read(1), expected["quality_flag"])


def test_check_tells_of_spectra_without_their_parameters(folder: Path) -> None:
    cube = make_cube()
    (cube + np.where(WAVELENGTHS == 1200.0, 0.5, 0.0)).to_netcdf(folder / "odd.nc")
    files = folder / "model.nc", folder / "odd.nc", "-o", folder / "windows.csv", "--plot", folder / "check.png"
    output = run("check", *files, "--noise", 0.005, "--n-spectra", 25)
    assert output.exit_code == 0
    assert "995 to 1200 nm" in output.stdout
    assert "windows of bands are not what the others predict" in output.stdout
    assert "specinvert adapt MODEL SCENE" in output.stderr
    assert (folder / "check.png").read_bytes().startswith(PNG)
    table = pd.read_csv(folder / "windows.csv")
    assert table["window_bands"].tolist()[-1] == "995 to 1200 nm"
    assert table["q"].max() > 4.0


def test_reweight_writes_a_model_with_the_prior_of_a_scene_once(folder: Path) -> None:
    files = "reweight", folder / "model.nc", folder / "training.nc"
    said = succeed(*files, "-o", folder / "of_scene.nc", "--noise", 0.001, "--force").splitlines()
    made = load_inverter(folder / "of_scene.nc")
    assert made.model_.scene_prior is not None
    assert said[0] == made.model_.scene_prior.verdict
    assert said[0] in succeed("info", folder / "of_scene.nc")
    again = run("reweight", folder / "of_scene.nc", folder / "scene.nc", "-o", folder / "twice.nc")
    assert again.exit_code == 1
    assert "a second step overshoots" in again.stderr
    assert not (folder / "twice.nc").exists()


def test_evaluate_prints_a_table_and_writes_it(folder: Path) -> None:
    output = run("evaluate", folder / "model.nc", folder / "scene.nc", "-o", folder / "errors.csv").stdout
    table = load_inverter(folder / "model.nc").evaluate(xr.load_dataset(folder / "scene.nc"))
    header, *rows = output.splitlines()[:3]
    assert header.split()[:3] == ["parameter", "units", "nrmse"]
    assert [row.split()[0] for row in rows] == PARAMETERS
    written = pd.read_csv(folder / "errors.csv", index_col="parameter")
    assert list(written["n"]) == [29, 29]
    for name in ("nrmse", "rmse", "bias", "r2"):
        np.testing.assert_allclose(written[name], table[name], rtol=1e-6)
    assert f"{float(table['nrmse'][0]):.4g}" in rows[0]
    assert succeed("-q", "evaluate", folder / "model.nc", folder / "training.nc").count("\n") == 3


def test_info_tells_what_every_kind_of_file_holds(folder: Path) -> None:
    model = succeed("info", folder / "model.nc")
    for part in ("8, 450 to 1200 nm", "components  3", "latent      1", "iso", "150 samples", "4 iterations", "BIC"):
        assert part in model
    assert "water: 0.005477 to 1.99442 g m-2" in model
    training = succeed("info", folder / "training.nc")
    for part in (
        "sample 150, band 8",
        "reflectance (sample, band) float64, 1",
        "8 bands, 450 to 1200 nm, not in order",
    ):
        assert part in training
    assert "CRS" not in training
    succeed("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / "maps.nc")
    maps = succeed("info", folder / "maps.nc")
    for part in ("y 5, x 6", "water (y, x) float32, g m-2", "quality_flag (y, x) uint8", "CRS EPSG:32633"):
        assert part in maps
    identity = load_inverter(folder / "model.nc").model_id
    lines = maps.splitlines()
    assert any(line.startswith("  source specinvert ") and line.endswith(f"GLLiM model {identity}") for line in lines)
    assert any(line.startswith("  training ranges water: 0.005477 to 1.99") for line in lines)
    assert any(line.startswith("  history ") and " invert" in line for line in lines)
    raster = succeed("info", folder / "scene.tif")
    for part in ("y 5, x 6, wavelength 8, float32", "8 bands, 450 to 1200 nm, not in order", "CRS EPSG:32633"):
        assert part in raster


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_plot_draws_maps_with_or_without_truth(folder: Path, suffix: str) -> None:
    succeed("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / "maps.nc")
    figure = folder / f"maps.{suffix}"
    assert succeed("plot", folder / "maps.nc", "-o", figure) == f"wrote {figure}\n"
    alone = figure.read_bytes()
    assert alone.startswith(PNG if suffix == "png" else b"%PDF")
    succeed("plot", folder / "maps.nc", "-o", figure, "--truth", folder / "scene.nc", "--parameters", "dust")
    assert figure.read_bytes() != alone


BAD = {
    "train: no such file": (["train", "none.nc", "-o", "new.nc"], ["none.nc", "no such file"]),
    "train: not netCDF": (["train", "notes.txt", "-o", "new.nc"], ["notes.txt", "no rows"]),
    "train: absent parameter": (["train", "training.nc", "-o", "new.nc", "--parameters", "lai"], ["'lai'", "'water'"]),
    "train: too many components": (
        ["train", "training.nc", "-o", "new.nc", "--components", "151", "--latent", "0"],
        ["150 samples", "n_components=151"],
    ),
    "train: latents": (
        ["train", "training.nc", "-o", "new.nc", "--components", "3", "--latent", "9"],
        ["n_latent=9", "8 bands"],
    ),
    "train: a start that is none": (
        ["train", "training.nc", "-o", "new.nc", "--init", "best"],
        ["init='best'", "'gmm'"],
    ),
    "train: negative tol": (["train", "training.nc", "-o", "new.nc", "--tol", "-1"], ["tol=-1.0", "zero or more"]),
    "train: NaN": (["train", "holed.nc", "-o", "new.nc"], ["1 training samples hold NaN", "--drop-missing"]),
    "train: no such folder": (["train", "training.nc", "-o", "no/new.nc"], ["no", "does not exist", "create it first"]),
    "train: over an earlier model": (
        ["train", "training.nc", "-o", "model.nc", "--components", "149", "--latent", "0", "--max-iter", "2"],
        ["components degenerated", "use fewer components"],
    ),
    "invert: no model": (["invert", "none.nc", "scene.nc", "-o", "new.nc"], ["none.nc", "no such model file"]),
    "invert: maps for a model": (
        ["invert", "scene.nc", "scene.nc", "-o", "new.nc"],
        ["scene.nc", "not a specinvert model"],
    ),
    "invert: truncated model": (["invert", "half.nc", "scene.nc", "-o", "new.nc"], ["half.nc", "truncated"]),
    "invert: no cube": (["invert", "model.nc", "none.tif", "-o", "new.nc"], ["none.tif", "no such file"]),
    "invert: text for a cube": (["invert", "model.nc", "notes.txt", "-o", "new.nc"], ["notes.txt", "not a raster"]),
    "invert: truncated cube": (["invert", "model.nc", "half.nc", "-o", "new.nc"], ["half.nc", "truncated"]),
    "invert: a variable that is none": (
        ["invert", "model.nc", "scene.nc", "-o", "new.nc", "--variable", "radiance"],
        ["'radiance'", "reflectance"],
    ),
    "invert: bands": (
        ["invert", "model.nc", "shifted.nc", "-o", "new.nc"],
        ["8 of 8 bands", "450.00 nm (nearest 455.00)", "tolerance"],
    ),
    "invert: outputs": (
        ["invert", "model.nc", "scene.nc", "-o", "new.nc", "--outputs", "mean,middle"],
        ["'middle'", "'estimate', 'mean', 'median', 'std'"],
    ),
    "invert: suffix": (["invert", "model.nc", "scene.nc", "-o", "new.jpg"], ["new.jpg", ".jpg", ".tif"]),
    "invert: covariances to GeoTIFF": (
        ["invert", "model.nc", "scene.nc", "-o", "new.tif", "--outputs", "cov"],
        ["new.tif", "covariance", ".nc"],
    ),
    "invert: a folder for a file": (["invert", "model.nc", "scene.nc", "-o", "."], ["is a directory"]),
    "evaluate: no truth": (["evaluate", "model.nc", "shifted.nc"], ["'water', 'dust'", "not in the test set"]),
    "evaluate: no such folder": (
        ["evaluate", "model.nc", "scene.nc", "-o", "no/errors.csv"],
        ["does not exist", "create it first"],
    ),
    "info: no file": (["info", "none.nc"], ["none.nc", "no such file"]),
    "info: text": (["info", "notes.txt"], ["notes.txt", "not a raster"]),
    "info: another schema": (["info", "future.nc"], ["future.nc", "schema 99", "train again"]),
    "plot: no maps": (["plot", "none.nc", "-o", "new.png"], ["none.nc", "no such file"]),
    "plot: a parameter that is none": (
        ["plot", "scene.nc", "-o", "new.png", "--parameters", "lai"],
        ["lai", "water"],
    ),
    "plot: suffix": (["plot", "scene.nc", "-o", "new.xyz", "--parameters", "water"], ["xyz", "png"]),
    "demo: a file for a folder": (["demo", "-o", "notes.txt"], ["notes.txt"]),
}


def spoil(folder: Path) -> None:
    """Add files that are wrong in some way."""
    (folder / "notes.txt").write_text("not data\n")
    (folder / "half.nc").write_bytes((folder / "model.nc").read_bytes()[:5000])
    training = make_training()
    training["water"][7] = np.nan
    training.to_netcdf(folder / "holed.nc")
    cube = make_cube().assign_coords(wavelength=make_cube()["wavelength"] + 5.0)
    save_maps(cube.to_dataset(), folder / "shifted.nc")
    with xr.open_dataset(folder / "model.nc") as opened:
        opened.load().assign_attrs(specinvert_schema=99).to_netcdf(folder / "future.nc")


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_code_one_and_no_file(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, parts = BAD[case]
    spoil(folder)
    monkeypatch.chdir(folder)
    before = listing(folder)
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("scene.tif: read failed\nin block 7"), "Error: scene.tif: read failed in block 7\n"),
        (RuntimeError("NetCDF: HDF error"), "Error: a netCDF file is damaged: NetCDF: HDF error\n"),
    ],
)
def test_a_file_that_turns_out_damaged_is_bad_input_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("specinvert.cubes.engine.BlockInverter.__call__", fail)
    (folder / "maps.nc").write_bytes(b"earlier maps")
    result = run("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / "maps.nc")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == line
    assert (folder / "maps.nc").read_bytes() == b"earlier maps"


def test_an_error_of_ours_keeps_its_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("specinvert.cubes.engine.BlockInverter.__call__", fail)
    result = run("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / "maps.nc")
    assert repr(result.exception) == "RuntimeError('a bug')"


def test_wrong_usage_is_exit_code_two(subtests: pytest.Subtests) -> None:
    for arguments in [
        ["nothing"],
        ["train"],
        ["train", "training.nc"],
        ["train", "training.nc", "-o", "new.nc", "--components", "many"],
        ["train", "training.nc", "-o", "new.nc", "--latent", "aic"],
        ["train", "training.nc", "-o", "new.nc", "--sigma", "round"],
        ["invert", "model.nc", "-o", "maps.nc"],
        ["invert", "model.nc", "scene.nc", "-o", "maps.nc", "--tolerance", "wide"],
        ["evaluate", "model.nc"],
        ["plot", "maps.nc"],
        ["info"],
        ["demo", "--fast"],
    ]:
        with subtests.test(arguments=arguments):
            result = run(*arguments)
            assert result.exit_code == 2
            assert result.stdout == ""
            assert "Usage:" in result.stderr
            assert "Error:" in result.stderr


def test_help_shows_an_example_that_can_be_parsed(subtests: pytest.Subtests) -> None:
    for command in COMMANDS:
        with subtests.test(command=command):
            output = succeed(command, "--help")
            examples = [line.split()[1:] for line in output.splitlines() if line.startswith(f"  specinvert {command}")]
            assert examples
            for example in examples:
                parsed = main.commands[command].make_context(command, example[1:], resilient_parsing=False)
                assert isinstance(parsed, click.Context)


def test_help_and_version_of_the_whole() -> None:
    assert sorted(main.commands) == COMMANDS
    output = succeed("--help")
    for command in COMMANDS:
        assert command in output
    assert "specinvert demo" in output
    assert __version__ in succeed("--version")


def test_the_installed_command_works_in_a_process_of_its_own(folder: Path) -> None:
    command = str(Path(sys.executable).parent / "specinvert")

    def process(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True, check=False)

    done = process("invert", "model.nc", "scene.nc", "-o", "maps.nc")
    assert (done.returncode, done.stdout, done.stderr) == (0, "wrote maps.nc\n", "")
    expected = load_inverter(folder / "model.nc").invert(open_cube(folder / "scene.nc", chunks=None))
    with xr.open_dataset(folder / "maps.nc", decode_coords="all") as opened:
        assert_close(opened.load(), expected)
    failed = process("invert", "model.nc", "none.nc", "-o", "maps2.nc")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "Error: none.nc: no such file\n"
    assert process("invert").returncode == 2


@pytest.mark.parametrize("output", ["maps.nc", "maps.tif", "maps.zarr"])
def test_most_pixels_out_of_domain_and_another_scale_are_told_by_invert_and_its_dry_run(
    folder: Path, output: str
) -> None:
    scene = xr.open_dataset(folder / "scene.nc").load()
    scene["reflectance"] = (1e4 * scene["reflectance"]).assign_attrs(units="1")
    scene.to_netcdf(folder / "bright.nc")
    command = ["invert", folder / "model.nc", folder / "bright.nc", "-o", folder / output]
    tried, done = run(*command, "--dry-run"), run(*command)
    assert "domain      29 of 29 pixels with data in the middle are out of the domain" in tried.stdout
    for result in (tried, done):
        assert result.stderr.count("about 10 000 times those of training: divide them by 10 000") == 1
    assert "29 of 29 pixels with data are out of the domain of training" in done.stderr
    assert run("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / output).stderr == ""


def test_settings_that_are_nested_too_deep_are_an_error_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("[invert]\nnoise = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ValueError, match=r"deep\.toml: not a readable TOML file: .* nested too deep"):
        read_config(path, main.commands["invert"])
