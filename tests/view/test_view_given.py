"""The viewer's clicks, computed as the maps were made: noise, known parameters, settings; and the cube's image."""

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

from labelled import fitted, make_cube, make_training, refuses

pytest.importorskip("bokeh")

from bokeh.document import Document
from bokeh.models import GlyphRenderer

import specinvert.view
from specinvert.cli import main
from specinvert.figures.results import open_geotiff_maps, open_results
from specinvert.inverter.inverter import GLLiMInverter
from specinvert.io.writing.writers import save_maps
from specinvert.view import Given, Page, Viewer
from specinvert.view.maps import SceneImage, Window, open_maps
from specinvert.view.pixel import INTERVAL, OTHER_VALUES

PLACE = {"y": 2, "x": 3}


def page_of(maps, cube, inverter, **given) -> Page:
    viewer = Viewer(maps, cube, inverter, Given(**given))
    page = Page(viewer.source, viewer.reader)
    page.attach(Document())
    return page


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a cube and a model."""
    folder = tmp_path_factory.mktemp("saved")
    save_maps(make_cube().to_dataset(name="reflectance"), folder / "cube.nc")
    fitted().to_netcdf(folder / "model.nc")
    return folder


def test_geotiff_maps_come_back_with_names_units_flags_and_place(tmp_path):
    maps = fitted().invert(make_cube())
    save_maps(maps, tmp_path / "maps.tif")
    found = open_geotiff_maps(tmp_path / "maps.tif")
    assert set(found.data_vars) == set(maps.data_vars)
    for name in maps.data_vars:
        np.testing.assert_array_equal(found[name], maps[name])
    assert found["water"].attrs["units"] == "g m-2"
    np.testing.assert_array_equal(found["quality_flag"].attrs["flag_masks"], [1, 2, 4, 8, 16, 32, 64])
    assert found.rio.crs.to_epsg() == 32633
    np.testing.assert_allclose(found["y"], maps["y"])
    page = page_of(tmp_path / "maps.tif", make_cube(), fitted())
    page.select(PLACE)
    assert page.pixel.stored[0].value == float(maps["water"].isel(PLACE))
    assert OTHER_VALUES not in page.pixel.remarks
    done = CliRunner().invoke(main, ["plot", str(tmp_path / "maps.tif"), "-o", str(tmp_path / "maps.png")])
    assert done.exit_code == 0, done.output
    with refuses(ValueError, "flags alone", "maps.tif"):
        open_results(tmp_path / "maps_flag.tif")
    save_maps(maps.isel(y=slice(2)), tmp_path / "other.tif")
    (tmp_path / "other_flag.tif").replace(tmp_path / "maps_flag.tif")
    with refuses(ValueError, "maps_flag.tif", "move the file of the flags away"):
        open_results(tmp_path / "maps.tif")


def test_a_zarr_store_lists_parameters_first_and_in_a_fixed_order(tmp_path):
    maps = fitted().invert(make_cube())[["water_std", "quality_flag", "water", "dust_std", "dust"]]
    save_maps(maps, tmp_path / "maps.zarr")
    found = open_maps(tmp_path / "maps.zarr")
    assert [layer.name for layer in found.layers] == ["dust", "water", "dust_std", "water_std"]


def test_a_foreign_geotiff_is_shown_too_with_its_nodata_and_scale(tmp_path):
    import rasterio

    profile = {
        "driver": "GTiff",
        "height": 3,
        "width": 4,
        "count": 2,
        "dtype": "int16",
        "nodata": -9,
        "crs": "EPSG:4326",
    }
    profile["transform"] = rasterio.transform.from_origin(10.0, 50.0, 0.1, 0.1)
    with rasterio.open(tmp_path / "lai.tif", "w", **profile) as file:
        file.write(np.arange(24, dtype=np.int16).reshape(2, 3, 4) - 9)
        file.scales = (0.5, 0.5)
    found = open_results(tmp_path / "lai.tif")
    assert list(found.data_vars) == ["band_1", "band_2"]
    assert np.isnan(found["band_1"][0, 0])
    assert float(found["band_2"][2, 3]) == 0.5 * 14
    (tmp_path / "text.tif").write_text("no image")
    with refuses(ValueError, "text.tif", "not a raster file"):
        open_results(tmp_path / "text.tif")


def test_a_click_has_the_noise_and_the_known_parameters_that_are_given():
    cube, inverter = make_cube(), fitted()
    grid = xr.DataArray(np.linspace(0.1, 0.9, 30).reshape(5, 6), dims=("y", "x"), coords={"y": cube.y, "x": cube.x})
    noise = xr.full_like(cube, 0.01)
    coordinate = xr.Dataset(coords={"y": cube.y, "x": cube.x, "dust": grid})
    for given in (
        {"noise": 0.02, "known": {"dust": grid}},
        {"noise": noise, "known": {"dust": 0.5}},
        {"noise": 0.02, "known": coordinate},
    ):
        maps = inverter.invert(cube, **given)
        page = page_of(maps, cube, inverter, **given)
        page.select(PLACE)
        found = page.pixel.explained.outputs
        for name in ("water", "dust", "water_std"):
            assert float(found[name]) == pytest.approx(float(maps[name].isel(PLACE)), rel=1e-9)
        assert page.pixel.remarks == []
        assert page.reader.conditions[0].startswith("A click is computed with noise")
        assert "dust" in page.reader.conditions[0]
        page = page_of(maps, cube, inverter)
        page.select(PLACE)
        assert page.pixel.remarks == [OTHER_VALUES]
    deviation = page_of(maps, cube, inverter, noise=0.5)
    deviation.select(PLACE)
    assert np.min(deviation.pixel.explained.deviation) >= 0.5
    with refuses(ValueError, "known parameters 'snow'"):
        page_of(maps, cube, inverter, known={"snow": 1.0})


def test_noise_that_includes_training_and_intervals_are_those_of_the_inversion():
    cube = make_cube()
    inverter = GLLiMInverter(n_components=2, n_latent=0, tol=0.0, max_iter=2, random_state=0).fit(
        make_training(), noise=0.01
    )
    maps = inverter.invert(cube, 0.03, noise_includes_training=True)
    page = page_of(maps, cube, inverter, noise=0.03, options={"noise_includes_training": True})
    page.select(PLACE)
    assert OTHER_VALUES not in page.pixel.remarks
    assert "training included" in page.reader.conditions[0]
    known = {"dust": (0.2, 0.6)}
    page = page_of(fitted().invert(cube, known=known), cube, fitted(), known=known)
    page.select(PLACE)
    assert INTERVAL in page.pixel.remarks
    assert OTHER_VALUES not in page.pixel.remarks
    assert page.pixel.explained.residual is None
    assert "dust = 0.2 to 0.6 known" in page.reader.conditions[0]
    known = {"dust": (0.2, None)}
    page = page_of(fitted().invert(cube, known=known), cube, fitted(), known=known)
    page.select(PLACE)
    assert OTHER_VALUES not in page.pixel.remarks
    assert "dust = 0.2 to any known" in page.reader.conditions[0]


def test_what_the_maps_were_made_with_is_told_where_a_click_has_less():
    cube = make_cube()
    maps = fitted().invert(cube, noise=0.1, known={"dust": 0.5})
    (told,) = page_of(maps, cube, fitted()).reader.conditions
    assert "noise 0.1 beyond training; dust known, 0.5; a click is computed without" in told
    (told,) = page_of(fitted().invert(cube), cube, fitted()).reader.conditions
    assert told == "A click is computed without noise beyond the model's and without known parameters."


def test_the_settings_beside_the_maps_are_used_unless_others_are_given(saved, monkeypatch):
    shown = {}
    monkeypatch.setattr(specinvert.view, "serve", lambda maps, cube, model, **given: shown.update(given, cube=cube))
    files = [str(saved / name) for name in ("model.nc", "cube.nc")]
    maps = str(saved / "maps.nc")
    run = CliRunner().invoke
    options = ["--noise", "0.02", "--known", "dust=0.4", "--exclude", "600-620", "--min-valid-bands", "4"]
    assert run(main, ["invert", *files, "-o", maps, *options]).exit_code == 0
    viewed = ["view", maps, files[1], "--model", files[0], "--no-browser"]
    done = run(main, viewed)
    assert done.exit_code == 0, done.output
    assert (shown["noise"], shown["known"], shown["min_valid_bands"]) == (0.02, {"dust": 0.4}, 4)
    assert shown["origin"] == "as maps.nc.toml says"
    assert np.isnan(shown["cube"].where(abs(shown["cube"].wavelength - 610) < 5, drop=True)).all()
    given = {"noise": shown["noise"], "known": shown["known"], "options": {"min_valid_bands": 4}}
    page = page_of(maps, shown["cube"], fitted(), **given)
    page.select(PLACE)
    assert OTHER_VALUES not in page.pixel.remarks
    assert run(main, [*viewed, "--noise", "0.1"]).exit_code == 0
    assert (shown["noise"], shown["known"], shown["origin"]) == (0.1, None, "as given")
    (saved / "maps.nc.toml").write_text("no settings")
    done = run(main, viewed)
    assert done.exit_code == 0
    assert "computed without these settings" in done.output
    assert shown["noise"] is None
    done = run(main, ["view", maps, "--noise", "0.1"])
    assert "give CUBE and --model" in done.output
    page = page_of(maps, shown["cube"], fitted())
    assert any("noise 0.02 beyond training; dust known, 0.4" in remark for remark in page.reader.conditions)


def picture_cube(wavelengths, **coords):
    values = np.random.default_rng(0).random((30, 40, len(wavelengths)))
    values[3, 4] = np.nan
    given = {"wavelength": ("wavelength", np.asarray(wavelengths, dtype=float), {"units": "nm"}), **coords}
    return xr.DataArray(values, dims=("y", "x", "wavelength"), coords=given)


def test_the_image_is_of_the_bands_nearest_to_red_green_and_blue_else_of_one_in_grey():
    cube = picture_cube([470.0, 1000.0, 645.0, 555.0])
    picture = SceneImage(cube, "wavelength", ("y", "x"))
    assert picture.chosen == [2, 3, 0]
    assert "645, 555, 470 nm" in picture.title
    windows = [Window(0, 30, 1), Window(0, 40, 1)]
    shown = picture.read(windows, {}).view(np.uint8).reshape(30, 40, 4)
    assert shown[3, 4].tolist() == [209, 209, 209, 255]
    red, low, high = cube[5, 6, 2].item(), *np.nanpercentile(cube[..., 2], [2, 98])
    assert shown[5, 6, 0] == round(255 * min(max((red - low) / (high - low), 0), 1))
    lazy = SceneImage(cube.chunk(y=7, x=40).transpose("wavelength", "x", "y"), "wavelength", ("y", "x"))
    np.testing.assert_array_equal(lazy.read(windows, {}), picture.read(windows, {}))
    strided = [Window(0, 30, 3), Window(0, 40, 2)]
    np.testing.assert_array_equal(picture.read(strided, {}), picture.read(windows, {})[1::3, 1::2])
    bad = picture_cube([470.0, 550.0, 640.0, 641.0], good=("wavelength", [True, True, False, True]))
    assert SceneImage(bad, "wavelength", ("y", "x")).chosen == [3, 1, 0]
    infrared = SceneImage(picture_cube([1000.0, 1200.0, 1100.0]), "wavelength", ("y", "x"))
    assert infrared.chosen == [2]
    assert "1100 nm" in infrared.title


@pytest.mark.parametrize("dims", [("y", "x"), ("sample",)])
def test_every_column_that_is_drawn_is_there_without_flags_and_deviations_too(dims):
    maps = xr.Dataset({"lai": (dims, np.zeros((3, 4)[: len(dims)]))})
    page = page_of(maps, picture_cube([550.0]).isel(y=slice(3), x=slice(4)) if len(dims) == 2 else None, None)
    renderers = list(page.root.select({"type": GlyphRenderer}))
    drawn = [(r, name) for r in renderers for name in ("image", "x", "y", "dw", "dh") if hasattr(r.glyph, name)]
    assert len(drawn) > 6
    for renderer, name in drawn:
        column = getattr(renderer.glyph, name)
        assert not isinstance(column, str) or column in renderer.data_source.data
    assert "shown" in page.panels.data.data


def test_a_long_strip_is_compressed_and_says_so_and_pixels_without_data_are_called_so():
    maps = xr.Dataset({"lai": (("y", "x"), np.full((2, 240), np.nan))})
    page = page_of(maps, None, None)
    assert "Drawn compressed 20 times along x." in page.status.text
    assert page.panels.value.aspect_scale == pytest.approx(1 / 20)
    page.select({"y": 0, "x": 5})
    assert "no data" in page.panel.numbers.text
    assert "nan" not in page.panel.numbers.text
    assert page_of(maps.isel(x=slice(8)), None, None).panels.remark == ""


def test_the_page_reads_the_image_only_when_it_is_chosen():
    cube, inverter = make_cube(), fitted()
    page = page_of(inverter.invert(cube), cube, inverter)
    assert page.beside.labels == ["Uncertainty", "Quality flags", "Image"]
    assert page.painted is None
    page.beside.active = 2
    assert page.panels.image.visible
    assert not page.panels.std.visible
    assert page.panels.painted.data["rgba"][0].shape == (5, 6)
    without = page_of(inverter.invert(cube), None, None)
    assert without.beside.labels == ["Uncertainty", "Quality flags"]
