"""One entry of a dimension beside the pixels, such as time: chosen by label or number, on the command line too."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from commands import QUICK, run, succeed
from labelled import make_cube, make_training
from specinvert import load_inverter, save_maps
from specinvert.figures.results import entries_of, entry_text, pick, pixel_dims, undecided

TIMES = ["2020-05-01", "2020-06-01", "2020-06-15", "2020-07-01T12:30:00.5"]
PNG = b"\x89PNG"


def series(**coords: Any) -> xr.Dataset:
    """Maps (step, y, x) of 4 steps whose values are the number of the step."""
    values = np.broadcast_to(np.arange(4.0)[:, None, None], (4, 3, 5)).copy()
    maps = xr.Dataset({"water": (("step", "y", "x"), values), "water_std": (("step", "y", "x"), 0.1 + values)})
    (name,) = coords or ("step",)
    return maps.rename(step=name).assign_coords({key: (name, value) for key, value in coords.items()})


DATES = np.array(TIMES, dtype="datetime64[ns]")


def test_an_entry_is_found_by_its_label_or_by_its_number_without_one(subtests: pytest.Subtests) -> None:
    for coords, text, index in [
        ({}, "step=0", 0),
        ({}, "step=3", 3),
        ({"time": DATES}, "time=2020-05", 0),
        ({"time": DATES}, "time=2020-06-15", 2),
        ({"time": DATES}, "time=2020-06-01T00:00:00Z", 1),
        ({"time": DATES}, "time=2020-07-01 12:30", 3),
        ({"time": DATES[::-1]}, "time=2020-05-01", 3),
        ({"depth": [0.1, 0.5, 1.0, 2.0]}, "depth=0.6", 1),
        ({"depth": [2.0, 1.0, 0.5, 0.1]}, "depth=0.1", 3),
        ({"depth": np.float32([0.1, 0.5, 1.0, 2.0])}, "depth=2.3", 3),
        ({"year": [2001, 2002, 2003, 2004]}, "year=2003", 2),
        ({"season": ["dry", "wet", "cold", "hot"]}, "season=wet", 1),
    ]:
        with subtests.test(coords=coords, text=text, index=index):
            dim, _, value = text.partition("=")
            picked = pick(series(**coords), {dim: value})
            assert picked.sizes[dim] == 1
            assert float(picked["water"][0, 0, 0]) == index
            assert list(entries_of(picked.isel({dim: 0}))) == [dim]
            assert pick(picked, {dim: entry_text(picked[dim].values[0])}).sizes[dim] == 1


def test_what_names_no_entry_is_refused_with_what_there_is(subtests: pytest.Subtests) -> None:
    for coords, text, message in [
        ({}, "time=0", r"no dimension is called 'time'; there are 'step' \(4 entries, 0 to 3\); 'y' \(3 entries"),
        ({}, "step=4", r"step=4: no number of an entry, as 'step' has no coordinate; 'step' has 4 entries, 0 to 3"),
        ({}, "step=-1", "no number of an entry"),
        ({}, "step=2020-01-01", "no number of an entry"),
        ({"time": DATES}, "time=2020-06", r"several entries, 2020-06-01, 2020-06-15: name one of them"),
        (
            {"time": DATES},
            "time=2021-01-01",
            r"no such entry; 'time' has 4 entries, 2020-05-01, .*2020-07-01T12:30:00\.5",
        ),
        ({"time": DATES}, "time=2020-6-1", r"no date by ISO 8601, such as 2020-06-01"),
        ({"time": DATES}, "time=1", "no date by ISO 8601"),
        ({"depth": [0.1, 0.5, 1.0, 2.0]}, "depth=2.6", r"outside the entries; 'depth' has 4 entries, 0\.1, 0\.5, 1\.0"),
        ({"depth": [0.1, 0.5, 1.0, 2.0]}, "depth=deep", "'deep' is no number"),
        ({"depth": [0.1, 0.5, 1.0, 2.0]}, "depth=nan", "'nan' is no number"),
        (
            {"season": ["dry", "wet", "cold", "hot"]},
            "season=we",
            "no such entry; 'season' has 4 entries, dry, wet, cold",
        ),
    ]:
        with subtests.test(coords=coords, text=text):
            dim, _, value = text.partition("=")
            with pytest.raises(ValueError, match=message):
                pick(series(**coords), {dim: value})


def test_dates_of_other_calendars_are_found_too() -> None:
    cftime = pytest.importorskip("cftime")
    days = [cftime.Datetime360Day(2020, 2, day) for day in (28, 29, 30)]
    data = xr.DataArray(np.arange(3.0), dims="time", coords={"time": days})
    assert float(pick(data, {"time": "2020-02-30"})[0]) == 2.0
    assert entry_text(datetime.date(2020, 2, 1)) == "2020-02-01"


def test_dimensions_that_are_lacking_can_be_left_alone() -> None:
    maps = series(time=DATES)
    xr.testing.assert_identical(pick(maps, {"band": "3"}, all_of_them=False), maps)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        (("time", "y", "x"), ("y", "x")),
        (("x", "time", "y"), ("y", "x")),
        (("time", "downtrack", "crosstrack"), ("downtrack", "crosstrack")),
        (("lon", "lat"), ("lat", "lon")),
        (("sample",), ("sample",)),
    ],
)
def test_the_dimensions_of_pixels_are_known_by_name_or_are_the_last_two(dims: tuple, expected: tuple) -> None:
    assert pixel_dims({"water": xr.DataArray(np.zeros((2,) * len(dims)), dims=dims)}) == expected


def test_what_is_to_be_chosen_is_said_in_python_and_on_the_command_line() -> None:
    maps = series(time=DATES)
    with pytest.raises(ValueError, match=r"water is over \('time', 'y', 'x'\): choose one entry of 'time'") as caught:
        maps.gllim.plot()
    assert str(caught.value).endswith(
        "with .isel(time=0) or .sel(time='2020-05-01'); on the command line, --select time=2020-05-01"
    )
    assert ".sel(depth=0.5)" in undecided(series(depth=[0.5, 1.0, 2.0, 3.0]), ["water"])
    assert "with .isel(step=0); on the command line, --select step=0" in undecided(series(), ["water"])
    two = series(time=DATES).expand_dims(level=3)
    assert "with .isel(level=0, time=0); on the command line, --select level=0 --select time=2020-05-01" in undecided(
        two, ["water"]
    )
    mixed = maps.isel(time=0).assign(dust=("x", np.zeros(5)))
    with pytest.raises(ValueError, match=r"dust is over \('x',\), water over \('y', 'x'\): choose parameters over"):
        mixed.gllim.plot(["water", "dust"])


def test_a_figure_says_of_which_entry_it_is() -> None:
    pytest.importorskip("matplotlib")
    maps = series(depth=[0.1, 0.5, 1.0, 2.0])
    maps["depth"].attrs["units"] = "m"
    maps = maps.assign_coords(spatial_ref=xr.DataArray(0, attrs={"crs_wkt": "..."}))
    assert maps.isel(depth=1).gllim.plot().get_suptitle() == "depth 0.5 m"
    assert pick(maps, {"depth": "1"}).gllim.plot().get_suptitle() == "depth 1.0 m"
    assert maps.isel(depth=1).drop_vars("depth").gllim.plot().get_suptitle() == ""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a series of two cubes, and its maps."""
    folder = tmp_path_factory.mktemp("series")
    make_training().to_netcdf(folder / "training.nc")
    succeed("train", folder / "training.nc", "-o", folder / "model.nc", *QUICK)
    times = np.array(TIMES[:2], dtype="datetime64[ns]")
    cube = make_cube()
    cubes = xr.concat([cube, 0.9 * cube], "time").assign_coords(time=times).transpose("time", ...)
    save_maps(cubes.to_dataset(name="reflectance"), folder / "cubes.nc")
    maps = load_inverter(folder / "model.nc").invert(cubes, noise=0.02)
    save_maps(maps, folder / "maps.nc")
    return folder


def test_plots_and_reports_are_of_the_entry_that_is_selected(made: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = ["plot", made / "maps.nc", "-o", tmp_path / "maps.png"]
    refused = run(*plot)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: ")
    assert refused.stderr.rstrip().endswith("--select time=2020-05-01")
    succeed(*plot, "--select", "time=2020-06-01")
    assert (tmp_path / "maps.png").read_bytes().startswith(PNG)
    report = ["report", made / "model.nc", "-o", tmp_path / "page.html", "--maps", made / "maps.nc"]
    assert "--select time=2020-05-01" in run(*report).stderr
    assert run(*report, "--select", "time=2020-06-01", "--truth", made / "maps.nc").exit_code == 0
    assert "<dt>Time</dt><dd>2020-06-01</dd>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--select", "time"], "--select: 'time' must be DIM=VALUE, as time=2020-06-01"),
        (["--select", "time=2020-05-01", "--select", "time=2020-06-01"], "--select: 'time' is given twice, keep one"),
        (["--select", "time=2031"], "--select: time=2031: no such entry; 'time' has 2 entries, 2020-05-01, 2020-06-01"),
        (["--select", "day=1"], "--select: no dimension is called 'day'; there are 'time' (2 entries, 2020-05-01"),
    ],
)
@pytest.mark.parametrize("command", ["plot", "view"])
def test_a_selection_that_cannot_be_is_one_line(
    made: Path, tmp_path: Path, command: str, options: list, message: str
) -> None:
    pytest.importorskip("matplotlib" if command == "plot" else "bokeh")
    output = ["-o", tmp_path / "maps.png"] if command == "plot" else ["--no-browser"]
    result = run(command, made / "maps.nc", *output, *options)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"Error: {message}")
    assert not list(tmp_path.iterdir())


def test_a_report_without_maps_has_nothing_to_select(made: Path, tmp_path: Path) -> None:
    result = run("report", made / "model.nc", "-o", tmp_path / "page.html", "--select", "time=2020-06-01")
    assert (result.exit_code, result.stderr) == (1, "Error: --select is of the maps: give --maps too\n")


def test_the_viewer_shows_the_entry_with_its_spectra_noise_and_known_parameters(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bokeh")
    from specinvert.view import Given, Viewer
    from specinvert.view.page import Page

    model = load_inverter(made / "model.nc")
    with xr.open_dataset(made / "maps.nc") as maps:
        known = xr.zeros_like(maps["dust"]).assign_attrs({}) + xr.DataArray([0.1, 0.3], dims="time")
        save_maps(known.to_dataset(name="dust"), tmp_path / "known.nc")
    pages = []

    def keep(maps: Any, cube: Any, model: Any, *, noise: Any, known: Any, origin: str, **options: Any) -> None:
        viewer = Viewer(maps, cube, model, Given(noise, known, {}, origin))
        pages.append(Page(viewer.source, viewer.reader))

    monkeypatch.setattr("specinvert.view.serve", keep)
    files = [made / "maps.nc", made / "cubes.nc", "--model", made / "model.nc"]
    given = ["--noise", "0.02", "--known", f"dust={tmp_path / 'known.nc'}"]
    result = run("view", *files, *given, "--select", "time=2020-06-01")
    assert (result.exit_code, result.stderr) == (0, "")
    (page,) = pages
    assert page.source.name == "maps.nc"
    assert [layer.title for layer in page.source.layers][:2] == ["water, time 2020-06-01", "dust, time 2020-06-01"]
    pixel = page.reader.read({"y": 1, "x": 2}, page.layer)
    spectrum = 0.9 * make_cube()[1, 2]
    np.testing.assert_allclose(pixel.observed, spectrum, rtol=1e-6)
    expected = model.invert(spectrum, noise=0.02, known={"dust": 0.3})
    assert float(pixel.explained.outputs["water"]) == pytest.approx(float(expected["water"]), rel=1e-6)
