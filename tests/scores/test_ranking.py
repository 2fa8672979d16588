"""Ranking models without labels: what they say of windows left out, places, noise, missing spectra, figure, command."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner, Result
from matplotlib.figure import Figure

from labelled import QUICK, make_cube, make_training, make_truth, refuses
from specinvert import GLLiMInverter, rank, save_maps
from specinvert.cli import main
from specinvert.figures import save_figure
from specinvert.figures.comparison import plot_ranking
from specinvert.figures.layout import require_figure
from specinvert.inverter.inverter import inversion_of
from specinvert.inverter.predictive import sample_pixels
from specinvert.inverter.ranking import MOST, leave_windows_out
from specinvert.scores.ranking import CAVEAT, LeftOut, format_ranking, ranked

FIGURES = ["window_error", "window_q", "disagreement"]
N_BANDS = 8
WINDOWS = np.array_split(np.arange(N_BANDS), 4)


def left_out(error: float, spread: float, moved: float, evidence: float, n: int = 50) -> LeftOut:
    """Numbers of a model of two parameters that are the same for all spectra, but for a little noise."""
    rng = np.random.default_rng(0)
    noise = 1.0 + 1e-3 * rng.standard_normal(n)
    bands, parameters = np.ones((n, 3)) * noise[:, None], np.ones((n, 2)) * noise[:, None]
    return LeftOut(
        *(("a", "b"), error * bands, error**2 * bands, np.ones((n, 3)), noise, evidence * noise),
        *(spread * parameters, moved * parameters, parameters, np.zeros(n, dtype=bool)),
    )


SPECTRA = np.random.default_rng(1).standard_normal((50, 3))


@pytest.fixture(scope="module")
def models() -> dict[str, GLLiMInverter]:
    """Of training noise too small, right and too large."""
    settings = {**QUICK, "n_components": 6, "max_iter": 15}
    noises = {"small": 0.002, "right": 0.02, "large": 0.3}
    return {
        name: GLLiMInverter(n_latent=1, **settings).fit(make_training(500, noise=noise))
        for name, noise in noises.items()
    }


def test_the_model_of_the_right_noise_wins_on_fresh_spectra(models: dict[str, GLLiMInverter]) -> None:
    table = rank(models, make_training(300, seed=7, noise=0.02)["reflectance"])
    assert str(table["model"].values[0]) == "right"
    assert float(table["first_share"][0]) > 0.5
    assert table.attrs["verdict"].startswith("right comes first")
    by_name = table.to_dataframe()
    assert by_name.loc["small", "disagreement"] > by_name.loc["large", "disagreement"]
    assert by_name.loc["small", "window_inside"] < 0.8 < by_name.loc["large", "window_inside"]


@pytest.mark.parametrize("case", ["plain", "log", "noise a band", "covariance", "noise a pixel", "committee"])
def test_what_is_said_of_a_window_is_what_inversions_without_it_say(case: str) -> None:
    training, spectra = make_training(300), make_training(6, seed=5)["reflectance"] + 1.0
    training = training.assign(reflectance=training["reflectance"] + 1.0)
    spectra[2, 3] = np.nan
    transform = "log" if case in ("log", "covariance") else None
    members: dict[str, Any] = {"n_ensemble": 2, "ensemble_weights": "evidence"} if case == "committee" else {}
    inverter = GLLiMInverter(n_latent=0, **QUICK, spectra_transform=transform, **members)
    inverter.fit(training)
    noise: Any = None
    if case == "noise a band":
        noise = np.linspace(0.01, 0.1, N_BANDS)
    elif case == "covariance":
        noise = 1e-4 * (np.eye(N_BANDS) + 1.0)
    elif case == "noise a pixel":
        noise = xr.DataArray(np.linspace(0.01, 0.1, 6), dims="sample")
    inversion = inversion_of(inverter, noise=noise)
    request = inversion.request(spectra)
    block, extras = sample_pixels(request, inversion.kernel(request, []), 6)
    left, rows = leave_windows_out(inversion, request, block, extras)
    order = np.argsort(spectra["wavelength"].values)
    np.testing.assert_array_equal(rows, spectra.values[:, order])

    outputs = ["mean", "std", "log_evidence"]
    whole = inverter.invert(spectra, noise, outputs=outputs)
    predictive, moved, expected = np.zeros(6), np.zeros((6, 2)), np.zeros((6, 2))
    for window in WINDOWS:
        holed = spectra.copy()
        holed[:, order[window]] = np.nan
        without = inverter.invert(holed, noise, outputs=outputs, min_valid_bands=1)
        predictive += (whole["log_evidence"] - without["log_evidence"]).values
        for i, name in enumerate(left.names):
            moved[:, i] += (without[name] - whole[name]).values ** 2
            expected[:, i] += (without[f"{name}_std"] ** 2 - whole[f"{name}_std"] ** 2).values
    np.testing.assert_allclose(left.evidence, whole["log_evidence"], rtol=1e-9)
    np.testing.assert_allclose(left.predictive, predictive, rtol=1e-7)
    np.testing.assert_allclose(left.moved, moved, rtol=1e-7)
    np.testing.assert_allclose(left.expected, expected, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(np.isnan(left.error), np.isnan(rows))


def test_where_the_model_is_right_moves_are_as_expected_and_intervals_hold() -> None:
    inverter = GLLiMInverter(n_components=1, n_latent=0, sigma="diag", random_state=0, transforms={})
    rng = np.random.default_rng(0)
    t = rng.standard_normal((4000, 2))
    made = t @ rng.standard_normal((2, N_BANDS)) + 0.3 * rng.standard_normal((4000, N_BANDS))
    training = xr.Dataset({"y": (("sample", "band"), made), "a": ("sample", t[:, 0]), "b": ("sample", t[:, 1])})
    table = rank({"one": inverter.fit(training, "y", band_dim="band")}, training["y"], band_dim="band")
    assert int(table["n"][0]) == MOST
    assert abs(float(table["disagreement"][0]) - 1.0) < 0.1
    assert abs(float(table["window_q"][0]) - 1.0) < 0.05
    assert abs(float(table["window_inside"][0]) - 0.9) < 0.02
    assert "too narrow" not in table.attrs["verdict"]


def test_the_calibrated_come_first_by_their_error_and_evidence_does_not_count() -> None:
    given = {
        "sure": left_out(0.3, 1.1, 4.0, 10.0),
        "inflated": left_out(0.9, 1.2, 0.5, 99.0),
        "good": left_out(0.5, 1.0, 0.9, 50.0),
        "surer": replace(left_out(0.3, 1.1, 1.0, 10.0), ratio=5.0 * np.ones((50, 3))),
    }
    table = ranked(given, SPECTRA, 50)
    assert table["model"].values.tolist() == ["good", "inflated", "sure", "surer"]
    assert table["calibrated"].values.tolist() == [True, True, False, False]
    assert table["first_share"].values.tolist() == [1.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(table["window_error"], np.array([0.5, 0.9, 0.3, 0.3]) / SPECTRA.std(), rtol=0.1)
    np.testing.assert_allclose(table["expected_error"], np.sqrt(np.array([1.9, 1.7, 5.1, 2.1]) / 1.7), rtol=1e-2)
    np.testing.assert_allclose(table["disagreement"], [0.9, 0.5, 4.0, 1.0], rtol=1e-3)
    assert "would have chosen inflated:" in table.attrs["verdict"]
    assert "calibrated" not in table.attrs["verdict"]
    assert table.attrs["comment"] == CAVEAT


def test_intervals_that_are_too_narrow_and_priors_that_answer_are_told() -> None:
    one = left_out(1.0, 1.0, 9.0, 1.0)
    told = ranked({"one": replace(one, prior_answers=np.ones(50, dtype=bool))}, SPECTRA, 50).attrs["verdict"]
    assert [part in told for part in ("9 times as far", "100 %", "Evidence")] == [True, True, False]


def test_only_spectra_that_all_models_can_use_count_and_parameters_that_all_have() -> None:
    one, other = left_out(0.5, 1.0, 1.0, 1.0), left_out(0.6, 2.0, 1.0, 2.0)
    one.evidence[:10] = np.nan
    other.moved[40:] = np.inf
    table = ranked({"one": one, "other": replace(other, names=("c", "b"))}, SPECTRA, 50)
    assert table["n"].values.tolist() == [30, 30]
    assert dict(zip(table["model"].values, table["n_usable"].values, strict=True)) == {"one": 40, "other": 40}
    apart = ranked({"one": one, "other": replace(other, names=("c", "d"))}, SPECTRA, 50)
    assert "expected_error" not in apart
    assert apart["model"].values.tolist() == ["one", "other"]
    one.evidence[:] = np.nan
    with refuses(ValueError, "no spectrum of 50", "one 0, other 40"):
        ranked({"one": one, "other": other}, SPECTRA, 50)


def test_moves_that_the_model_does_not_allow_count_as_the_worst() -> None:
    worse = replace(left_out(0.5, 1.0, 1.0, 1.0), expected=-np.ones((50, 2)))
    table = ranked({"worse": worse, "good": left_out(0.5, 1.0, 1.0, 1.0)}, SPECTRA, 50)
    assert table["model"].values.tolist() == ["good", "worse"]
    assert float(table["disagreement"][1]) == np.inf
    assert np.isfinite(plot_ranking(table).axes[2].get_xlim()).all()


def test_of_a_large_lazy_cube_a_choice_is_read_once_with_its_noise(models: dict[str, GLLiMInverter]) -> None:
    some = {name: models[name] for name in ("right", "large")}
    cube = make_cube(dtype=np.float64)
    wide = xr.concat([cube] * 60, dim="y").assign_coords(y=np.arange(60 * cube.sizes["y"]))
    noise = xr.DataArray(0.05 * (np.arange(wide.sizes["y"]) % 3), dims="y")
    calls = []

    def counted(block: np.ndarray) -> np.ndarray:
        calls.append(1)
        return block

    chunked = wide.chunk(y=100).data
    lazy = wide.copy(data=da.map_blocks(counted, chunked, dtype=float, meta=np.empty((0,) * wide.ndim)))
    with dask.config.set(scheduler="synchronous"):
        table = rank(some, lazy, noise)
    assert len(calls) == chunked.npartitions
    assert int(table["n"][0]) == MOST < wide.sizes["y"] * wide.sizes["x"] == 60 * 30
    assert table.attrs["n_spectra"] == 60 * 30
    turned = rank(some, wide.transpose("x", ...), noise)
    assert table["model"].values.tolist() == turned["model"].values.tolist()
    xr.testing.assert_identical(table, rank(some, wide, noise))


def test_models_that_cannot_be_compared_are_refused(models: dict[str, GLLiMInverter]) -> None:
    with refuses(ValueError, "no model"):
        rank({}, make_cube())
    fewer = GLLiMInverter(n_latent=0, **QUICK).fit(make_training(200).isel(band=slice(0, 6)))
    with refuses(ValueError, "'right' and 'fewer'", "same bands"):
        rank({"right": models["right"], "fewer": fewer}, make_cube())


def test_the_figure_has_a_panel_a_figure_and_the_order_of_the_table(tmp_path: Path) -> None:
    table = ranked({"a": left_out(0.5, 1.0, 4.0, 1.0), "b": left_out(0.4, 1.0, 1.0, 2.0)}, SPECTRA, 50)
    figure = plot_ranking(table)
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 4
    for ax, name in zip(figure.axes, [*FIGURES, "mean_log_evidence"], strict=True):
        np.testing.assert_allclose(ax.collections[-1].get_offsets()[:, 0], table[name])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["b", "a"]
    save_figure(figure, tmp_path / "ranking.png", dpi=40)
    require_figure("ranking.PDF")
    with refuses(ValueError, "ranking.nc", "'.nc'", "png"):
        require_figure("ranking.nc")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene with nodata, two models that compare and others that do not."""
    folder = tmp_path_factory.mktemp("made")
    cube = make_cube(dtype=np.float32)
    cube[1, 2] = np.nan
    save_maps(make_truth().assign(reflectance=cube), folder / "scene.nc")
    save_maps((cube * np.nan).to_dataset(), folder / "empty.nc")
    make_training(40, seed=3).drop_vars(["water", "dust", "wavelength"]).to_netcdf(folder / "bare.nc")
    training = make_training()
    percent = training.assign(reflectance=(100 * training["reflectance"]).assign_attrs(units="%"))
    shifted = training.assign_coords(wavelength=training["wavelength"] + 0.5)
    for name, data in {
        "good": training,
        "turned": make_training(noise=0.2).isel(band=slice(None, None, -1)),
        "fewer": training.isel(band=slice(0, 6)),
        "shifted": shifted,
        "percent": percent,
        "bare_model": training.drop_vars("wavelength"),
    }.items():
        GLLiMInverter(n_latent=0, **QUICK).fit(data, "reflectance", band_dim="band").to_netcdf(folder / f"{name}.nc")
    (folder / "other").mkdir()
    shutil.copy(folder / "turned.nc", folder / "other" / "good.nc")
    return folder


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["rank", *map(str, arguments)])


def test_the_command_prints_and_writes_the_ranking(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    files = tmp_path / "ranking.csv", tmp_path / "ranking.png"
    result = run("scene.nc", "turned.nc", "good.nc", "-o", files[0], "--plot", files[1])
    assert (result.exit_code, result.stderr, result.exception) == (0, "", None)
    cube = xr.load_dataset("scene.nc")["reflectance"]
    expected = rank({name: GLLiMInverter.from_netcdf(f"{name}.nc") for name in ("turned", "good")}, cube)
    *lines, told, caveat, first, second = result.stdout.splitlines()
    assert "\n".join(lines) == format_ranking(expected)
    order = expected["model"].values.tolist()
    assert [line.split()[0] for line in lines] == ["model", *order]
    assert told == f"compared on 29 of 30 spectra. {expected.attrs['verdict']}"
    assert caveat == CAVEAT
    assert [first, second] == [f"wrote {file}" for file in files]
    written = pd.read_csv(files[0], index_col="model")
    assert list(written.index) == order
    for name in (*FIGURES, "mean_log_evidence"):
        np.testing.assert_allclose(written[name], expected[name], rtol=1e-6)
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


def test_the_command_adds_noise_and_names_models_of_one_name_by_their_paths(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    plain, noisy = (run("scene.nc", "good.nc", "other/good.nc", *more) for more in ([], ["--noise", "0.3"]))
    assert (plain.exit_code, noisy.exit_code) == (0, 0)
    assert {line.split()[0] for line in plain.stdout.splitlines()[1:3]} == {"good.nc", "other/good.nc"}
    assert plain.stdout != noisy.stdout
    bare = run("bare.nc", "bare_model.nc", "--variable", "reflectance", "--band-dim", "band")
    assert bare.exit_code == 0
    assert bare.stdout.splitlines()[0].split()[:2] == ["model", "calibrated"]


BAD = {
    "no spectra": (["none.nc", "good.nc", "turned.nc"], ["none.nc", "no such file"]),
    "no model": (["scene.nc", "good.nc", "none.nc"], ["none.nc", "no such model file"]),
    "a scene for a model": (["scene.nc", "good.nc", "scene.nc"], ["scene.nc", "not a specinvert model"]),
    "a model twice": (["scene.nc", "good.nc", "./good.nc"], ["good.nc", "twice"]),
    "fewer bands": (["scene.nc", "good.nc", "fewer.nc"], ["'good' and 'fewer'", "8 and 6 bands", "same bands"]),
    "other bands": (["scene.nc", "good.nc", "shifted.nc"], ["'shifted'", "8 of 8 bands", "450 and 450.5 nm"]),
    "no wavelengths": (["scene.nc", "good.nc", "bare_model.nc"], ["'bare_model'", "one has wavelengths"]),
    "other units": (["scene.nc", "good.nc", "percent.nc"], ["'percent'", "'1' and '%'", "same units"]),
    "nodata only": (["empty.nc", "good.nc", "turned.nc"], ["no spectrum of 30", "good 0, turned 0"]),
    "negative noise": (["scene.nc", "good.nc", "turned.nc", "--noise", "-1"], ["noise", "negative"]),
    "tolerance": (["scene.nc", "good.nc", "--tolerance", "-1"], ["tolerance=-1"]),
    "no folder": (["scene.nc", "good.nc", "turned.nc", "-o", "no/new.csv"], ["does not exist", "create it first"]),
    "format": (["scene.nc", "good.nc", "turned.nc", "-o", "new.csv", "--plot", "new.xyz"], ["new.xyz", "png"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_code_one_and_no_file(
    case: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, parts = BAD[case]
    monkeypatch.chdir(made)
    before = sorted(made.iterdir())
    result = run(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for part in parts:
        assert part in line
    assert sorted(made.iterdir()) == before


def test_without_a_model_the_usage_is_wrong() -> None:
    assert run("scene.nc").exit_code == 2
