"""The viewer's page, built without a browser: what is read, what a click shows, and what text from files becomes."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from labelled import fitted, make_cube, make_training, refuses

pytest.importorskip("bokeh")

from bokeh.document import Document
from bokeh.events import RangesUpdate, Tap
from bokeh.models import Div, PlainText
from scipy.integrate import trapezoid

from specinvert.figures.layout import robust_limits
from specinvert.flags import FLAGS, flag_attrs
from specinvert.io.writing.writers import save_maps
from specinvert.view import Page, Viewer
from specinvert.view.maps import MOST, MOST_SLICES, Window, open_maps
from specinvert.view.panels import first_flag

EVIL = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(2)>"


def page_of(*given) -> Page:
    viewer = Viewer(*given)
    page = Page(viewer.source, viewer.reader)
    page.attach(Document())
    return page


def tap(page: Page, x: float, y: float) -> None:
    page.tapped(Tap(page.panels.value, x=x, y=y))


def move(page: Page, x: tuple[float, float], y: tuple[float, float]) -> None:
    page.refine(RangesUpdate(page.panels.value, x0=x[0], x1=x[1], y0=y[0], y1=y[1]))


def big_maps(size: int = 2500) -> xr.Dataset:
    """Maps whose values tell the pixel, over (y, x) with coordinates from the upper left."""
    rows, columns = np.ogrid[:size, :size]
    values = (rows * size + columns).astype(np.float32)
    return xr.Dataset(
        {
            "water": (("y", "x"), values, {"units": "um"}),
            "water_std": (("y", "x"), values / 2),
            "quality_flag": (("y", "x"), (rows % 2 * 4 + columns % 2 * 8).astype(np.uint8), flag_attrs()),
        },
        coords={"y": 9000.0 - 2.0 * np.arange(size), "x": 100.0 + 2.0 * np.arange(size)},
    )


def test_a_click_shows_the_numbers_of_the_inversion_and_of_the_posterior():
    cube, inverter = make_cube(), fitted()
    maps = inverter.invert(cube)
    page = page_of(maps, cube, inverter)
    x, y = float(cube["x"][3]), float(cube["y"][2])
    tap(page, x, y)
    assert page.pixel.place == {"y": 2, "x": 3}
    spectrum = cube.isel(y=2, x=3)
    found = inverter.invert(spectrum, outputs=["std", "mean", "ci90", "residual", "fit_rmse"])
    for name in found.data_vars:
        np.testing.assert_allclose(page.pixel.explained.outputs[name], found[name], rtol=1e-12)
    order = np.argsort(inverter.model_.bands.wavelength)
    np.testing.assert_allclose(page.panel.lines.data["observed"], spectrum.values[order], rtol=1e-12)
    np.testing.assert_allclose(page.panel.residuals.data["residual"], found["residual"].values[order], atol=1e-12)
    assert (page.panel.lines.data["low"] < page.panel.lines.data["high"]).all()
    assert "not what other windows predict" in page.panel.head.text
    assert "no window" in page.panel.head.text
    for density, name in zip(page.panel.densities, inverter.model_.names, strict=True):
        assert density.mean.location == float(found[name])
        assert f"{float(found[f'{name}_std']):.3g}" in page.panel.numbers.text
        assert trapezoid(density.curve.data["density"], density.curve.data["x"]) == pytest.approx(1.0, abs=0.02)
        inside = density.held.data["x"]
        assert inside.min() >= float(found[f"{name}_ci90_lower"])
        assert inside.max() <= float(found[f"{name}_ci90_upper"])
        stored = next(entry for entry in page.pixel.stored if entry.layer.name == name)
        assert stored.value == pytest.approx(float(found[name]), rel=1e-6)
        assert stored.std == pytest.approx(float(found[f"{name}_std"]), rel=1e-6)


def test_a_large_map_is_read_with_a_stride_and_refined_where_the_view_goes(tmp_path):
    maps = big_maps()
    save_maps(maps, tmp_path / "maps.nc")
    page = page_of(tmp_path / "maps.nc")
    (image,) = page.panels.data.data["value"]
    assert max(image.shape) <= MOST
    assert "one in 3" in page.status.text
    np.testing.assert_array_equal(image[-1, :3], maps["water"].values[1, [1, 4, 7]])  # row 0 is on top
    whole = page.low.value, page.high.value
    assert whole == pytest.approx(robust_limits(maps["water"].values), rel=0.01)

    move(page, (1100.0, 1300.0), (8000.0, 8200.0))
    (image,) = page.panels.data.data["value"]
    assert 100 <= min(image.shape) <= max(image.shape) <= 200
    (left,), (bottom,) = page.panels.data.data["x"], page.panels.data.data["y"]
    row, column = round((9001.0 - bottom) / 2) - 1, round((left - 99.0) / 2)
    assert image[0, 0] == maps["water"].values[row, column]
    assert "all in sight" in page.status.text
    assert (page.low.value, page.high.value) == whole

    tap(page, 1200.6, 8101.5)
    assert page.pixel.stored[0].value == float(maps["water"].sel(x=1200.0, y=8102.0))


def test_reading_a_view_never_holds_much_more_than_a_tile(tmp_path, monkeypatch):
    save_maps(big_maps(1500), tmp_path / "maps.zarr")
    monkeypatch.setattr("specinvert.view.maps.TILE_BYTES", 400_000)
    source = open_maps(tmp_path / "maps.zarr")
    sizes = []
    original = xr.Variable.values.fget
    monkeypatch.setattr(xr.Variable, "values", property(lambda self: (sizes.append(self.nbytes), original(self))[1]))
    found = source.read(source.layers[0], [axis.whole for axis in source.axes])
    chunk = np.prod(source.dataset["water"].encoding["chunks"]) * 4
    assert max(sizes) <= max(400_000, chunk)
    assert found["value"].shape == (750, 750)


@pytest.mark.parametrize(("start", "stop", "size"), [(0, 10, 10), (3, 17, 20), (0, 5000, 5000), (4321, 9999, 10000)])
def test_a_window_covers_what_is_in_sight_with_at_most_so_many_pixels(start, stop, size):
    window = Window.of(start, stop, size)
    assert window.start <= start
    assert window.stop >= stop
    assert len(window.indices) <= MOST + 1
    assert window.start % window.stride == 0
    assert window.indices.max() < size
    assert (np.diff(window.indices) > 0).all()


def test_flags_are_shown_first_come_and_those_chosen():
    flags = open_maps(big_maps(4)).flags
    assert [flag.name for flag in flags] == list(FLAGS.values())
    values = np.array([0, 4, 12, 8])
    assert first_flag(values, flags, range(6)).tolist() == [0, 3, 3, 4]
    assert first_flag(values, flags, [3]).tolist() == [0, 0, 4, 4]
    assert first_flag(values, flags, []).tolist() == [0, 0, 0, 0]
    page = page_of(big_maps(4))
    assert page.flags.labels[2] == "out of domain (50 %)"
    page.flags.active = [3]
    assert set(np.unique(page.panels.data.data["shown"][0])) == {0, 4}
    page.beside.active = 1
    assert page.panels.flags.visible
    assert not page.panels.std.visible
    tap(page, 102.0, 8998.0)
    assert page.pixel.flags == ["out of domain", "below training range"]
    assert "out of domain, below training range" in page.panel.head.text


def test_the_range_of_colours_follows_the_inputs_and_goes_back():
    page = page_of(big_maps(40))
    page.low.value, page.high.value = 5.0, 7.0
    assert (page.panels.value_colours.low, page.panels.value_colours.high) == (5.0, 7.0)
    page.high.value = 1.0  # no range: the last one stays
    assert (page.panels.value_colours.low, page.panels.value_colours.high) == (5.0, 7.0)
    page.choice.value = "1"
    assert page.panels.value_colours.high == pytest.approx(robust_limits(big_maps(40)["water_std"].values)[1], rel=1e-3)


def test_without_cube_or_model_the_page_says_what_is_missing():
    cube, inverter = make_cube(), fitted()
    maps = inverter.invert(cube)
    page = page_of(maps)
    page.select({"y": 0, "x": 0})
    assert page.pixel.observed is None
    assert "No cube" in page.panel.head.text
    assert "No model" in page.panel.head.text
    page = page_of(maps, cube)
    page.select({"y": 1, "x": 2})
    np.testing.assert_array_equal(np.sort(page.panel.lines.data["observed"]), np.sort(cube.isel(y=1, x=2).values))
    assert "No model" in page.panel.head.text
    assert "No cube" not in page.panel.head.text
    page = page_of(maps.assign_attrs(model_id="0123456789ab"), cube, inverter)
    page.select({"y": 1, "x": 2})
    assert "another model" in page.panel.head.text


def test_a_spectrum_without_data_is_said_to_have_none():
    cube, inverter = make_cube().copy(), fitted()
    cube[{"y": 0, "x": 0}] = np.nan
    page = page_of(inverter.invert(cube), cube, inverter)
    page.select({"y": 0, "x": 0})
    assert "Too few bands" in page.panel.head.text
    assert page.pixel.flags == ["nodata"]
    assert not page.panel.posteriors.visible


def test_a_table_is_shown_by_sample_and_the_nearest_dot_is_clicked():
    spectra, inverter = make_training(30), fitted()
    maps = inverter.invert(spectra)
    page = page_of(maps, spectra, inverter)
    assert page.panels.data.data["x"].tolist() == list(range(30))
    for made in (page.panels.value, page.panels.std):
        made.x_range.start, made.x_range.end, made.y_range.start, made.y_range.end = 0, 30, 0, 2
    tap(page, 7.1, float(maps["water"][7]))
    assert page.pixel.place == {"sample": 7}
    expected = inverter.invert(spectra["reflectance"].isel(sample=7), outputs=["mean"])
    assert float(page.pixel.explained.outputs["water"]) == pytest.approx(float(expected["water"]), rel=1e-12)
    page.choice.value = "1"
    assert page.panels.marked.data["value"] == [float(maps["dust"][7])]


def test_dimensions_beside_the_pixels_are_listed_entry_by_entry_unless_there_are_many():
    values = np.arange(5.0 * 5 * 2).reshape(5, 5, 2)
    maps = big_maps(5).assign(
        depth=(("y", "x", "time"), values), tall=(("y", "x", "entry"), np.zeros((5, 5, MOST_SLICES + 1)))
    )
    page = page_of(maps.assign_coords(time=[2001, 2002]))
    titles = [layer.title for layer in page.source.layers]
    assert titles == ["water", "depth, time 2001", "depth, time 2002", "water std"]
    assert f"tall over {MOST_SLICES + 1} entry" in page.status.text
    page.choice.value = "2"
    np.testing.assert_array_equal(page.panels.data.data["value"][0], values[::-1, :, 1])
    latent = open_maps(fitted(1).invert(make_cube(), outputs=["mean", "latent"]))
    assert "latent, latent_dim 0" in [layer.title for layer in latent.layers]


def test_a_long_series_asks_for_one_entry_and_shows_it():
    values = np.zeros((MOST_SLICES + 1, 5, 5))
    maps = xr.Dataset(
        {"water": (("time", "y", "x"), values), "quality_flag": (("time", "y", "x"), values.astype("u1"))}
    )
    with pytest.raises(
        ValueError, match=r"more than 40 entries to list, water over 41 time: choose one, with --select"
    ):
        open_maps(maps)
    assert [layer.title for layer in open_maps(maps.isel(time=[7])).layers] == ["water, time 0"]


def test_swaths_are_shown_by_number_with_the_first_row_on_top():
    shape = (3, 4)
    lat = np.linspace(60.0, 61.0, 12).reshape(shape)
    maps = xr.Dataset(
        {"water": (("line", "sample"), np.arange(12.0).reshape(shape))},
        coords={"lat": (("line", "sample"), lat), "lon": (("line", "sample"), lat - 50.0)},
    )
    page = page_of(maps)
    assert page.panels.value.y_range.flipped
    tap(page, 2.2, 1.3)
    assert page.pixel.place == {"line": 1, "sample": 2}
    assert ("lat", f"{lat[1, 2]:.8g}") in page.pixel.coordinates
    assert page.panels.data.data["lat"][0][1, 2] == np.float32(lat[1, 2])
    before = page.pixel
    tap(page, 9.0, 1.0)
    assert page.pixel is before


def test_text_from_files_is_escaped_everywhere_that_html_is_made():
    names = {"water": EVIL, "water_std": f"{EVIL}_std", "x": IMAGE}
    maps = big_maps(6).rename(names).assign_attrs(title=IMAGE)
    maps[EVIL].attrs = {"units": IMAGE, "long_name": "$$\\href{javascript:alert(3)}{x}$$" + EVIL}
    maps["quality_flag"].attrs["flag_meanings"] = " ".join(f"<b>{i}</b>" for i in range(6))
    page = page_of(maps)
    page.select({"y": 1, IMAGE: 1})
    divs = list(page.root.select({"type": Div}))
    assert len(divs) >= 4
    for div in divs:
        assert div.disable_math
        assert "<script" not in div.text
        assert "<img" not in div.text
        assert "<b>" not in div.text
    assert "&lt;script&gt;" in page.panel.numbers.text
    for made in page.panels.figures:
        for shown in (made.xaxis[0].axis_label, made.yaxis[0].axis_label):
            assert isinstance(shown, PlainText)
    assert isinstance(page.panels.value.title.text, PlainText)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cube: cube.isel(x=slice(1, None)), "not of this cube.*sizes"),
        (lambda cube: cube.assign_coords(x=cube["x"] + 1000.0), "not of this cube"),
        (lambda cube: cube.rename(x="column"), "the maps are over"),
        (lambda cube: cube.isel(band=slice(3)), "band"),
    ],
)
def test_a_cube_of_other_pixels_or_bands_is_refused(change, message):
    cube, inverter = make_cube(), fitted()
    with pytest.raises(ValueError, match=message):
        Viewer(inverter.invert(cube), change(cube), inverter)


def test_what_holds_no_maps_is_refused(tmp_path):
    with refuses(ValueError, "maps: no maps in it"):
        Viewer(xr.Dataset({"name": "x"}))
    with pytest.raises(FileNotFoundError, match="no such file"):
        Viewer(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("no netCDF")
    with pytest.raises(ValueError, match="not a netCDF file"):
        Viewer(tmp_path / "text.nc")
    with pytest.raises(ValueError, match="empty"):
        Viewer(big_maps(4).isel(x=slice(0)))


def test_without_bokeh_the_message_names_what_to_install():
    code = "import sys; sys.modules['bokeh'] = None\nimport specinvert.view"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ImportError: the viewer needs bokeh; install it with: pip install 'specinvert[view]'" in done.stderr


def test_a_pixel_of_a_series_is_compared_with_its_own_entry_and_follows_the_chosen_map():
    inverter, cube = fitted(), make_cube()
    times = np.array(["2020-05-01", "2020-06-01T10:30"], dtype="datetime64[ns]")
    cubes = xr.concat([cube, 0.9 * cube], "time").assign_coords(time=times).assign_attrs(cube.attrs)
    maps = inverter.invert(cubes.transpose("time", ...))
    page = page_of(maps, cubes, inverter)
    assert [layer.title for layer in page.source.layers][:2] == [
        "water, time 2020-05-01",
        "water, time 2020-06-01T10:30",
    ]
    page.select({"y": 2, "x": 3})
    for number, date in ((0, "2020-05-01"), (1, "2020-06-01T10:30")):
        page.show(page.source.layers[number])
        assert page.panels.value.title.text.text.splitlines() == ["water (g m-2)", f"time {date}"]
        assert page.panels.flags.title.text.text.splitlines()[-1] == f"time {date}"
        assert ("time", date) in page.pixel.coordinates
        value = float(maps["water"].isel(time=number, y=2, x=3))
        assert [entry.value for entry in page.pixel.stored if entry.current and entry.layer.name == "water"] == [value]
        expected = inverter.invert(cubes.isel(time=number, y=2, x=3))
        assert float(page.pixel.explained.outputs["water"]) == pytest.approx(float(expected["water"]))
        assert f"<td>{value:.5g}</td>" in page.panel.numbers.text
        assert "The maps hold other values" not in page.panel.head.text
    changed = maps.assign(water=maps["water"] + xr.DataArray([0.0, 1.0], dims="time").astype("f4"))
    page = page_of(changed, cubes, inverter)
    for number, told in ((0, False), (1, True)):
        page.show(page.source.layers[number])
        page.select({"y": 2, "x": 3})
        assert ("The maps hold other values" in page.panel.head.text) == told
