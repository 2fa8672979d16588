"""Ranking models without labels: the right noise wins, paired errors, missing spectra, lazy input, figure, command."""

import shutil
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
from specinvert import GLLiMInverter, save_maps
from specinvert.cli import main
from specinvert.figures import save_figure
from specinvert.figures.comparison import plot_ranking
from specinvert.figures.layout import require_figure
from specinvert.scores.ranking import CAVEAT, format_ranking, rank

SCALAR = ["mean_log_evidence", "difference", "standard_error", "best_share"]


def evidence(values: Any, *dims: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values), dims=dims or ("pixel",))


def random_evidences(n_models: int = 3, seed: int = 0) -> dict[str, xr.DataArray]:
    """Evidences (y, x) of a common spread far above that of their differences, with holes."""
    rng = np.random.default_rng(seed)
    common = 1e4 * rng.normal(size=(20, 30))
    made = {}
    for i in range(n_models):
        values = common - i + rng.normal(size=common.shape)
        values[rng.random(common.shape) < 0.05] = np.nan
        made[f"m{i}"] = evidence(values, "y", "x")
    return made


@pytest.mark.parametrize("true", [0.01, 0.04])
def test_the_model_of_the_right_noise_wins_on_fresh_spectra(true: float) -> None:
    settings = {**QUICK, "n_components": 8, "max_iter": 15}
    fresh = make_training(300, seed=7, noise=true)["reflectance"]
    evidences = {}
    for noise in (true / 4, true, 4 * true):
        model = GLLiMInverter(n_latent=1, **settings).fit(make_training(600, noise=noise))
        evidences[f"{noise:g}"] = model.invert(fresh, outputs=["log_evidence"])["log_evidence"]
    table = rank(evidences)
    assert str(table["model"].values[0]) == f"{true:g}"
    assert (table["difference"][1:] < -3 * table["standard_error"][1:]).all()


def test_means_paired_errors_and_shares_are_those_done_by_hand() -> None:
    first = np.array([10.0, 2000.0, -500.0, 40.0])
    gaps = np.array([1.0, 3.0, -2.0, 6.0])
    table = rank({"low": evidence(first), "high": evidence(first + gaps)})
    assert table["model"].values.tolist() == ["high", "low"]
    np.testing.assert_allclose(table["mean_log_evidence"], [first.mean() + 2.0, first.mean()])
    np.testing.assert_allclose(table["difference"], [0.0, -2.0])
    # deviations from 2: -1, 1, -4, 4; variance 34 / 3
    np.testing.assert_allclose(table["standard_error"], [0.0, np.sqrt(34.0 / 3.0 / 4.0)])
    np.testing.assert_allclose(table["best_share"], [0.75, 0.25])
    assert table["n"].values.tolist() == [4, 4]
    assert table.attrs == {"n_spectra": 4, "comment": CAVEAT}


def test_many_models_agree_with_numpy_pair_by_pair() -> None:
    evidences = random_evidences(4)
    table = rank(evidences)
    stacked = np.stack([evidences[str(name)].values.ravel() for name in table["model"].values])
    stacked = stacked[:, np.isfinite(stacked).all(axis=0)]
    gaps = stacked - stacked[0]
    np.testing.assert_allclose(table["mean_log_evidence"], stacked.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(table["difference"], gaps.mean(axis=1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(table["standard_error"], gaps.std(axis=1, ddof=1) / np.sqrt(stacked.shape[1]), rtol=1e-9)
    np.testing.assert_allclose(table["best_share"], (stacked == stacked.max(axis=0)).mean(axis=1))
    assert (np.diff(table["mean_log_evidence"]) < 0).all()


def test_only_spectra_that_all_models_can_use_count() -> None:
    table = rank({"a": evidence([1.0, np.nan, 5.0, 3.0, 1.0]), "b": evidence([2.0, 1e9, -np.inf, 5.0, np.inf])})
    assert table["model"].values.tolist() == ["b", "a"]
    np.testing.assert_allclose(table["mean_log_evidence"], [3.5, 2.0])
    np.testing.assert_allclose(table["standard_error"], [0.0, 0.5])
    np.testing.assert_allclose(table["best_share"], [1.0, 0.0])
    assert table["n"].values.tolist() == [2, 2]
    assert table["n_usable"].values.tolist() == [3, 4]
    assert table.attrs["n_spectra"] == 5


def test_ties_are_divided_and_equal_models_keep_their_order() -> None:
    table = rank({"b": evidence([1.0, 2.0]), "a": evidence([1.0, 2.0]), "c": evidence([1.0, 1.0])})
    assert table["model"].values.tolist() == ["b", "a", "c"]
    np.testing.assert_allclose(table["best_share"], [5 / 12, 5 / 12, 1 / 6])
    np.testing.assert_array_equal(table["difference"], [0.0, 0.0, -0.5])


def test_a_single_spectrum_has_no_standard_error() -> None:
    table = rank({"a": evidence([1.0]), "b": evidence([3.0])})
    np.testing.assert_array_equal(table["standard_error"], [0.0, np.nan])
    assert rank({"a": xr.DataArray(1.0), "b": xr.DataArray(3.0)}).identical(table)


def test_one_model_has_a_mean_only() -> None:
    table = rank({"a": evidence([1.0, 2.0, np.nan])})
    assert list(table.data_vars) == ["mean_log_evidence", "n"]
    assert float(table["mean_log_evidence"][0]) == 1.5
    with refuses(ValueError, "two models"):
        plot_ranking(table)


def test_dimension_order_does_not_matter() -> None:
    evidences = random_evidences()
    turned = {name: array.transpose("x", "y") if name == "m1" else array for name, array in evidences.items()}
    assert rank(turned).identical(rank(evidences))


def test_lazy_equals_eager_and_every_block_is_computed_once() -> None:
    evidences = random_evidences()
    calls = []

    def counted(block: np.ndarray) -> np.ndarray:
        calls.append(1)
        return block

    lazy = {}
    for name, array in evidences.items():
        data = da.map_blocks(counted, array.chunk(y=7).data, dtype=float, meta=np.empty((0, 0)))
        lazy[name] = array.copy(data=data)
    with dask.config.set(scheduler="synchronous"):
        table = rank(lazy)
    assert len(calls) == 3 * 3
    expected = rank(evidences)
    assert table["model"].values.tolist() == expected["model"].values.tolist()
    for name in SCALAR:
        np.testing.assert_allclose(table[name], expected[name], rtol=1e-9, err_msg=name)
    assert table["n"].identical(expected["n"])
    assert table["n_usable"].identical(expected["n_usable"])


def test_evidences_that_cannot_be_compared_are_refused() -> None:
    a = evidence([1.0, 2.0]).assign_coords(pixel=[0, 1])
    with refuses(ValueError, "no model"):
        rank({})
    with refuses(ValueError, "'b'", "{'pixel': 1}", "{'pixel': 2}", "same spectra"):
        rank({"a": a, "b": a[:1]})
    with refuses(ValueError, "'b'", "{'x': 2}"):
        rank({"a": a, "b": a.rename(pixel="x")})
    with refuses(ValueError, "pixel", "'b' differs", "'a'"):
        rank({"a": a, "b": a.assign_coords(pixel=[1, 2])})
    with refuses(ValueError, "no spectrum of 2", "a 1, b 1"):
        rank({"a": evidence([1.0, np.nan]), "b": evidence([np.nan, 1.0])})
    with refuses(ValueError, "no spectrum of 2", "a 0"):
        rank({"a": evidence([np.nan, np.nan])})
    with refuses(TypeError, "'a'", "Dataset", "maps['log_evidence']"):
        rank({"a": a.to_dataset(name="log_evidence")})  # type: ignore[dict-item]


def test_the_figure_shows_differences_and_shares_in_the_order_of_the_table(tmp_path: Path) -> None:
    table = rank(random_evidences())
    figure = plot_ranking(table)
    assert isinstance(figure, Figure)
    left, right = figure.axes
    np.testing.assert_array_equal(left.lines[1].get_xdata(), table["difference"])
    assert [text.get_text() for text in left.get_yticklabels()] == table["model"].values.tolist()
    assert left.get_ylim()[0] > left.get_ylim()[1]
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], 100 * table["best_share"])
    assert left.get_xscale() == "linear"
    save_figure(figure, tmp_path / "ranking.png", dpi=40)
    wide = rank({"a": evidence([1.0, 2.0]), "b": evidence([0.9, 2.0]), "c": evidence([-80.0, -90.0])})
    assert plot_ranking(wide).axes[0].get_xscale() == "symlog"
    save_figure(plot_ranking(rank({"a": evidence([1.0]), "b": evidence([1.0])})), tmp_path / "same.png", dpi=40)
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
    expected = rank(
        {
            name: GLLiMInverter.from_netcdf(f"{name}.nc").invert(cube, outputs=["log_evidence"])["log_evidence"]
            for name in ("good", "turned")
        }
    )
    *lines, counted, first, second = result.stdout.splitlines()
    assert "\n".join(lines) == format_ranking(expected)
    assert [line.split()[0] for line in lines] == ["model", "good", "turned"]
    assert counted == f"compared on 29 of 30 spectra. {CAVEAT}"
    assert [first, second] == [f"wrote {file}" for file in files]
    written = pd.read_csv(files[0], index_col="model")
    assert list(written.index) == ["good", "turned"]
    for name in SCALAR:
        np.testing.assert_allclose(written[name], expected[name], rtol=1e-6)
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2


def test_the_command_adds_noise_and_names_models_of_one_name_by_their_paths(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made)
    plain, noisy = (run("scene.nc", "good.nc", "other/good.nc", *more) for more in ([], ["--noise", "0.3"]))
    assert (plain.exit_code, noisy.exit_code) == (0, 0)
    assert [line.split()[0] for line in plain.stdout.splitlines()[1:3]] == ["good.nc", "other/good.nc"]
    assert plain.stdout != noisy.stdout
    bare = run("bare.nc", "bare_model.nc", "--variable", "reflectance", "--band-dim", "band")
    assert bare.exit_code == 0
    assert bare.stdout.splitlines()[0].split() == ["model", "mean_log_evidence", "n"]


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
    "one model to draw": (["scene.nc", "good.nc", "-o", "new.csv", "--plot", "new.png"], ["two models"]),
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
