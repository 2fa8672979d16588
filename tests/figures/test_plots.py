"""Figures: which panels appear, colour limits, flags, lazy and odd input, atomic saving, no global state."""

import subprocess
import sys

import dask
import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.figure import Figure

import specinvert  # noqa: F401  (registers .gllim)
from specinvert.cubes.labels import legible, percent
from specinvert.figures import plot_evaluation, plot_maps, plot_results, plot_table, save_figure
from specinvert.figures.evaluation import MAX_POINTS
from specinvert.figures.layout import fitting_dpi, new_figure, title_of, with_units
from specinvert.figures.maps import BLANK, MAX_SIDE
from specinvert.figures.table import MANY_ROWS, MAX_ROWS
from specinvert.flags import flag_attrs
from specinvert.scores.metrics import evaluation

MASKS = np.array([1, 2, 4], dtype=np.uint8)
MEANINGS = "nodata partial_bands out_of_domain"


@pytest.fixture
def truth():
    rng = np.random.default_rng(0)
    coords = {
        "y": ("y", 8.7e6 - 30.0 * np.arange(12), {"units": "metre"}),
        "x": ("x", 5e5 + 30.0 * np.arange(20), {"units": "metre"}),
    }
    return xr.Dataset(
        {
            "ice": (("y", "x"), rng.random((12, 20)), {"units": "1"}),
            "grain_size": (("y", "x"), 300 * rng.random((12, 20)), {"units": "um"}),
            "haze": (("y", "x"), rng.random((12, 20)), {"units": "1"}),
        },
        coords=coords,
    )


@pytest.fixture
def maps(truth):
    maps = truth[["ice", "grain_size"]] * 1.1
    maps["ice_std"] = 0.1 + 0.0 * maps.ice
    flags = np.zeros((12, 20), np.uint8)
    flags[:3] = 1
    flags[5] = 2 | 4
    maps["quality_flag"] = (("y", "x"), flags, {"flag_masks": MASKS, "flag_meanings": MEANINGS})
    for name in ("ice", "grain_size"):
        maps[name] = maps[name].where(maps.quality_flag != 1).assign_attrs(truth[name].attrs)
    return maps


def images(figure):
    """Axes that show an image, row by row."""
    return [ax for ax in figure.axes if ax.images]


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_row_a_parameter_and_a_column_a_layer(maps, truth):
    figure = plot_maps(maps, truth)
    assert isinstance(figure, Figure)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == ["true", "estimated", "uncertainty (std)", "quality flag"]
    # two parameters with true and estimated, one of them with a std, and one flag map
    assert len(images(figure)) == 2 * 2 + 1 + 1
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert "ice\ny (metre)" in labels
    assert "grain size\ny (metre)" in labels
    assert labels.count("um") == 2


def test_without_truth_std_and_flags_only_estimates_are_drawn(maps):
    figure = plot_maps(maps[["grain_size"]])
    assert len(images(figure)) == 1
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == ["estimated"]
    assert legend_texts(figure) == []


def test_parameters_can_be_chosen_and_ordered(maps, truth):
    figure = plot_maps(maps, truth, parameters=["grain_size", "ice"])
    rows = [ax.get_ylabel().split("\n")[0] for ax in figure.axes if "\n" in ax.get_ylabel()]
    assert rows == ["grain size", "ice"]


def test_true_and_estimated_maps_share_robust_colour_limits(maps, truth):
    maps["ice"][6, 7] = 1e6
    true, estimated = (ax.images[0] for ax in images(plot_maps(maps, truth, ["ice"]))[:2])
    assert true.get_clim() == estimated.get_clim()
    assert true.get_clim()[1] < 2.0


def test_nan_is_grey_and_pixels_sit_on_their_coordinates(maps):
    ax = images(plot_maps(maps, parameters=["ice"]))[0]
    image = ax.images[0]
    np.testing.assert_allclose(image.get_cmap().get_bad(), to_rgba(BLANK))
    assert image.get_extent() == [499985.0, 500585.0, 8699655.0, 8700015.0]
    assert image.origin == "upper"
    assert ax.get_aspect() == 1.0


def test_an_upward_y_axis_is_drawn_north_up_too(maps):
    image = images(plot_maps(maps.isel(y=slice(None, None, -1)), parameters=["ice"]))[0].images[0]
    assert image.get_extent() == [499985.0, 500585.0, 8699655.0, 8700015.0]
    assert image.origin == "lower"


def test_without_coordinates_the_first_row_is_on_top(maps):
    image = images(plot_maps(maps.drop_vars(["x", "y"]), parameters=["ice"]))[0].images[0]
    assert image.get_extent() == [-0.5, 19.5, 11.5, -0.5]
    assert image.origin == "upper"


def test_dimension_order_does_not_change_the_picture(maps, truth):
    straight = images(plot_maps(maps, truth))
    turned = images(plot_maps(maps.transpose("x", "y"), truth.transpose("x", "y")))
    for a, b in zip(straight, turned, strict=True):
        np.testing.assert_array_equal(a.images[0].get_array(), b.images[0].get_array())


def test_flags_are_named_with_the_share_of_pixels_and_the_first_bit_gives_the_colour(maps):
    figure = plot_maps(maps, parameters=["ice"])
    flag_values = images(figure)[-1].images[0].get_array()
    assert (flag_values[:3] == 1).all()
    assert (flag_values[5] == 2).all()
    assert (flag_values[6:] == 0).all()
    assert legend_texts(figure) == ["none (67 %)", "nodata (25 %)", "partial bands (8.3 %)", "out of domain (8.3 %)"]


def test_flags_without_attributes_are_named_by_their_bits(maps):
    maps["quality_flag"].attrs = {}
    assert legend_texts(plot_maps(maps, parameters=["ice"]))[1:] == ["bit 1 (25 %)", "bit 2 (8.3 %)", "bit 4 (8.3 %)"]


def test_an_all_nan_and_a_constant_map_are_drawn_without_warning(maps, tmp_path):
    maps["ice"] = maps.ice * np.nan
    maps["grain_size"] = 0.0 * maps.grain_size.fillna(0.0)
    save_figure(plot_maps(maps), tmp_path / "maps.png", dpi=30)


def test_large_maps_are_thinned(maps):
    big = xr.Dataset({"ice": (("y", "x"), np.zeros((2, 2 * MAX_SIDE + 1), np.float32))})
    assert images(plot_maps(big))[0].images[0].get_array().shape[1] <= MAX_SIDE


def test_shares_of_flags_are_of_every_pixel_of_a_thinned_map():
    flags = np.zeros((2, 2 * MAX_SIDE + 2), np.uint8)
    flags[:, 1::6] = 4  # between the pixels that are drawn
    flagged = {"flag_masks": MASKS, "flag_meanings": MEANINGS}
    big = xr.Dataset({"ice": (("y", "x"), 0.0 * flags), "quality_flag": (("y", "x"), flags, flagged)})
    assert legend_texts(plot_maps(big)) == ["none (83 %)", "out of domain (17 %)"]


def test_pixels_have_the_shape_that_their_coordinates_give_them(maps):
    bare = maps[["ice"]].drop_vars(["x", "y"])
    degrees = {"lat": 60.0 - 0.1 * np.arange(12), "lon": 0.1 * np.arange(20)}
    on_globe = bare.rename(y="lat", x="lon").assign_coords(degrees)
    assert images(plot_maps(on_globe))[0].get_aspect() == pytest.approx(1 / np.cos(np.radians(59.45)))
    oblong = bare.assign_coords(y=3.0 * np.arange(12), x=1.0 * np.arange(20))
    assert images(plot_maps(oblong))[0].get_aspect() == 1.0
    other = oblong.assign_coords(y=("y", oblong.y.values, {"units": "s"}), x=("x", oblong.x.values, {"units": "m"}))
    assert images(plot_maps(other))[0].get_aspect() == pytest.approx(1 / 3)
    uneven = oblong.assign_coords(y=np.arange(12.0) ** 2)
    assert images(plot_maps(uneven))[0].images[0].get_extent() == [-0.5, 19.5, 11.5, -0.5]


def test_names_and_units_with_dollar_signs_are_drawn_as_they_are(maps, tmp_path):
    odd = maps[["ice"]].rename(ice=r"$\frac{ice")
    odd[r"$\frac{ice"].attrs["units"] = "$m^$"
    save_figure(plot_maps(odd), tmp_path / "odd.png", dpi=30)
    save_figure(plot_table(odd.isel(y=0)), tmp_path / "table.png", dpi=30)


def overlaps(figure):
    """Texts of a figure that are cut off at its edges, after it was drawn."""
    figure.canvas.draw()
    page = figure.bbox
    drawn = [text for ax in figure.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    drawn += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = {text.get_text(): text.get_window_extent() for text in drawn if text.get_text() and text.get_visible()}
    return [text for text, box in boxes.items() if box.x0 < -1 or box.y0 < -1 or box.x1 > page.x1 or box.y1 > page.y1]


def flagged_maps(shape, names=("ice",), **attrs):
    """Maps of any shape with deviations and every flag, without coordinates."""
    rng = np.random.default_rng(1)
    maps = xr.Dataset({name: (("y", "x"), rng.random(shape), attrs) for name in names})
    maps = maps.assign({f"{name}_std": 0.1 + 0.0 * maps[name] for name in names})
    maps["quality_flag"] = (("y", "x"), rng.choice([0, 1, 2, 4, 8, 16, 32], shape).astype(np.uint8), flag_attrs())
    return maps


LONG = "equivalent_water_thickness_of_the_upper_canopy_layer_including_stems_and_understorey"


@pytest.mark.parametrize(
    ("shape", "names", "units"),
    [
        ((20, 20), tuple(f"p{i}" for i in range(3)), "um"),
        ((20, 24), (LONG,), "kilograms of water per square metre of horizontal ground"),
        ((10, 400), ("ice", "dust"), "um"),
        ((400, 10), ("ice", "dust"), "um"),
    ],
    ids=["many", "long", "wide", "tall"],
)
def test_no_text_is_cut_off(shape, names, units):
    assert overlaps(plot_maps(flagged_maps(shape, names, units=units))) == []


def test_very_long_scenes_are_compressed_and_say_so_and_wide_ones_stand_in_rows():
    wide, tall = plot_maps(flagged_maps((10, 400))), plot_maps(flagged_maps((400, 10)))
    assert [ax.get_title() for ax in images(wide)] == ["ice, estimated", "ice, uncertainty (std)", "quality flag"]
    labels = [ax.get_xlabel() for ax in wide.axes] + [ax.get_ylabel() for ax in tall.axes]
    assert "x (number), compressed 6.7 times" in labels
    assert "ice\ny (number), compressed 6.7 times" in labels


def test_one_row_or_column_of_pixels_is_drawn_as_rows_and_single_entries_do_not_count():
    maps = flagged_maps((1, 30))
    for line in (maps, maps.transpose("x", "y"), maps.expand_dims(time=1)):
        (ax,) = plot_results(line).axes
        assert len(ax.lines[0].get_data()[0]) == 30
    assert len(images(plot_results(flagged_maps((4, 5)).expand_dims(time=1)))) == 3


def test_parameters_known_in_advance_are_named_and_not_drawn():
    maps = flagged_maps((6, 7), ("ice", "angle"))
    maps["angle"], maps["angle_std"] = 0.0 * maps.angle + 30.0, 0.0 * maps.angle
    for figure, axes in ((plot_maps(maps), 3), (plot_table(maps.isel(y=0)), 1)):
        assert figure.get_suptitle() == "Known in advance, not drawn: angle = 30"
        assert len(images(figure) or figure.axes) == axes
    assert len(images(plot_maps(maps, parameters=["angle"]))) == 3


def test_true_parameters_may_be_coordinates(maps, truth):
    given = truth.set_coords(["ice", "grain_size"]).assign_coords(scene="a", cloud=(("y", "x"), np.zeros((12, 20))))
    assert len(images(maps.gllim.plot(truth=given))) == 6
    rows = given.isel(y=0, drop=True)
    assert len(maps.isel(y=0).gllim.plot(truth=rows).axes) == 2


def test_positive_values_over_decades_have_logarithmic_colours():
    maps = flagged_maps((20, 20))
    maps["ice"] = 10 ** (4 * maps.ice)
    value, std = (ax.images[0].norm for ax in images(plot_maps(maps))[:2])
    assert isinstance(value, LogNorm)
    assert not isinstance(std, LogNorm)
    maps["ice"][0, 0] = 0.0
    assert not isinstance(images(plot_maps(maps))[0].images[0].norm, LogNorm)


def test_unseen_characters_go_and_long_text_is_broken_into_lines():
    assert legible("a\x00b\u202ec\u200f") == "a bc"
    assert title_of("a" * 200).count("\n") == 2
    assert max(map(len, title_of(LONG).split("\n"))) <= 28
    assert with_units("lai", "m2 m-2") == "lai (m2 m-2)"
    assert [percent(share) for share in (1.0, 0.9999, 0.123, 0.0004)] == ["100 %", "99.99 %", "12 %", "0.04 %"]


def test_a_figure_of_very_many_panels_has_as_many_pixels_as_can_be_drawn():
    figure = new_figure(2.0, 900.0)
    assert fitting_dpi(figure, 150.0) * 900.0 <= 2**16


def test_lazy_maps_are_computed_once(maps, truth):
    calls = []

    def counted(block):
        calls.append(1)
        return block

    data = dask.array.map_blocks(counted, maps.ice.chunk(y=6).data, dtype=float, meta=np.empty((0, 0)))
    lazy = maps.assign(ice=maps.ice.copy(data=data))
    lazy["ice_std"] = 0.1 * lazy.ice
    with dask.config.set(scheduler="synchronous"):
        plot_maps(lazy, truth)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, t: (m, t, ["snow"]), r"estimates lack \['snow'\]"),
        (lambda m, t: (m, t.drop_vars("ice"), ["ice"]), r"truth lack \['ice'\]"),
        (lambda m, t: (m, t, []), "parameters is empty"),
        (lambda m, t: (m.expand_dims(time=2), None, None), r"\.isel\(time=0\)"),
        (lambda m, t: (m, t.isel(x=slice(3, None)), None), "crop both"),
        (lambda m, t: (m, t.assign_coords(x=t.x + 15), None), "x of ice differs"),
    ],
)
def test_maps_that_cannot_be_drawn_are_refused(maps, truth, change, message):
    with pytest.raises(ValueError, match=message):
        plot_maps(*change(maps, truth))


def test_estimates_are_drawn_against_the_truth_with_the_line_and_the_nrmse(maps, truth):
    table = evaluation(maps, truth, ["ice", "grain_size"])
    figure = plot_evaluation(maps, truth, table)
    first, second = [ax for ax in figure.axes if ax.get_title()]
    assert first.get_title() == f"ice\nNRMSE {float(table.nrmse[0]):.3f}"
    assert second.get_xlabel() == "true (um)"
    x, y = first.lines[0].get_data()
    assert len(x) == int(table.n[0])
    np.testing.assert_allclose(y, 1.1 * x)
    ends = first.lines[-1].get_data()
    np.testing.assert_array_equal(ends[0], ends[1])
    assert len(first.collections) == 1
    assert len(second.collections) == 0


def test_an_evaluation_pairs_by_position_in_any_dimension_order(maps, truth):
    table = evaluation(maps, truth, ["grain_size"])
    figure = plot_evaluation(maps, truth.transpose("x", "y"), table)
    x, y = figure.axes[0].lines[0].get_data()
    np.testing.assert_allclose(y, 1.1 * x)


def test_many_pairs_are_drawn_as_a_density_of_all_of_them():
    rng = np.random.default_rng(0)
    truth = xr.Dataset({"p": ("sample", rng.random(MAX_POINTS + 2))})
    estimates = truth + 0.01
    estimates["p"][0], estimates["p"][1] = np.nan, 1e6
    figure = plot_evaluation(estimates, truth, evaluation(estimates, truth, ["p"]))
    (cells,) = figure.axes[0].collections
    counts = cells.get_array()
    assert MAX_POINTS - 10 <= counts.sum() <= MAX_POINTS
    assert figure.axes[0].get_ylim()[1] < 2.0


def test_samples_without_any_pair_still_give_a_panel(tmp_path):
    empty = xr.Dataset({"p": ("sample", [np.nan, 1.0])})
    truth = xr.Dataset({"p": ("sample", [1.0, np.nan])})
    save_figure(plot_evaluation(empty, truth, evaluation(empty, truth, ["p"])), tmp_path / "e.png")


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_saved_figure_has_the_format_of_its_suffix_and_leaves_nothing_else(maps, tmp_path, suffix):
    magic = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    path = tmp_path / f"maps{suffix}"
    save_figure(plot_maps(maps[["ice"]]), path)
    assert path.read_bytes().startswith(magic[suffix])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_failed_save_keeps_the_old_file_and_leaves_no_other(maps, tmp_path):
    path = tmp_path / "maps.nonsense"
    path.write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        save_figure(plot_maps(maps), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_drawing_leaves_settings_and_pyplot_untouched(maps, truth):
    before = dict(matplotlib.rcParams)
    script = (
        "import sys, numpy as np, xarray as xr\n"
        "from specinvert.figures import plot_maps\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plot_maps(xr.Dataset({'p': (('y', 'x'), np.eye(4))}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    plot_maps(maps, truth)
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_error_says_what_to_install(maps, monkeypatch):
    for name in [module for module in sys.modules if module.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'specinvert\[plot\]'"):
        plot_maps(maps)


@pytest.fixture
def table():
    n = 30
    values = np.linspace(0.0, 1.0, n)
    flags = np.where(np.arange(n) < 3, 4, 0).astype(np.uint8)
    return xr.Dataset(
        {
            "lai": ("plot", values, {"units": "m2 m-2"}),
            "lai_std": ("plot", np.full(n, 0.1)),
            "water": ("plot", 10 * values),
            "quality_flag": ("plot", flags, {"flag_masks": MASKS, "flag_meanings": MEANINGS}),
        },
        coords={"plot": ("plot", 100 + np.arange(n))},
    )


def test_a_table_has_a_panel_a_parameter_with_its_intervals_flags_and_truth(table):
    figure = plot_table(table, truth=table[["lai", "water"]] + 0.05)
    lai, water = figure.axes
    assert (lai.get_ylabel(), water.get_ylabel(), water.get_xlabel()) == ("lai (m2 m-2)", "water", "plot")
    labels = [text.get_text() for text in lai.get_legend().get_texts()]
    assert labels == ["± 1 std", "estimated", "true", "flagged (10 %)"]
    ends = np.array([segment[:, 1] for segment in lai.collections[0].get_segments()])
    np.testing.assert_allclose(ends, table.lai.values[:, None] + [-0.1, 0.1])
    places, rings = lai.lines[-1].get_data()
    np.testing.assert_array_equal(places, [100, 101, 102])
    np.testing.assert_array_equal(rings, table.lai[:3])
    assert not water.collections


@pytest.mark.parametrize(
    ("suffixes", "label"),
    [
        (("ci80_lower", "ci80_upper"), "central 80 %"),
        (("hdi95_lower", "hdi95_upper"), "shortest 95 %"),
        (("q05", "q95"), "central 90 %"),
    ],
)
def test_intervals_that_were_asked_for_go_before_deviations(table, suffixes, label):
    for suffix, shift in zip(suffixes, (-0.3, 0.4), strict=True):
        table[f"lai_{suffix}"] = table.lai + shift
    lai = plot_table(table, parameters=["lai"]).axes[0]
    assert lai.get_legend().get_texts()[0].get_text() == label
    np.testing.assert_allclose(lai.collections[0].get_segments()[0][:, 1], [-0.3, 0.4], atol=1e-12)


def test_long_tables_are_thinned_and_so_are_their_bars(table):
    n = 2 * MAX_ROWS
    long = xr.Dataset({"p": ("row", np.arange(n)), "p_std": ("row", np.ones(n))}).chunk(row=1000)
    ax = plot_table(long).axes[0]
    places, values = ax.lines[0].get_data()
    assert MANY_ROWS < len(places) <= MAX_ROWS
    np.testing.assert_array_equal(places, values)
    assert len(ax.collections[0].get_segments()) == len(places)
    assert ax.collections[0].get_linewidth() < plot_table(table).axes[0].collections[0].get_linewidth()


@pytest.mark.parametrize("n", [60, 2 * MAX_POINTS])
def test_values_over_decades_have_logarithmic_axes_and_others_linear_ones(n):
    spread = np.geomspace(1e-9, 1e-5, n)
    truth = xr.Dataset({"soot": ("row", spread), "ssa": ("row", np.linspace(3, 80, n))})
    estimates = (truth * 1.1).assign(soot_std=("row", 2 * spread))
    scatter = plot_evaluation(estimates, truth, evaluation(estimates, truth, ["soot", "ssa"]))
    assert [ax.get_xscale() for ax in scatter.axes[:2]] == ["log", "linear"]
    assert [ax.get_yscale() for ax in scatter.axes[:2]] == ["log", "linear"]
    soot, ssa = plot_table(estimates).axes
    assert (soot.get_yscale(), ssa.get_yscale()) == ("log", "linear")
    low, high = soot.get_ylim()
    assert 0 < low < 1.1e-9
    assert 1.1e-5 < high < 1e-4
    one_at_zero = xr.Dataset({"soot": ("row", np.append(spread, 0.0))})
    assert plot_table(one_at_zero).axes[0].get_yscale() == "linear"


def test_results_are_drawn_as_their_dimensions_ask_through_the_accessor_too(maps, table, truth):
    assert len(images(maps.gllim.plot(["ice"], truth))) == 4
    assert [ax.get_ylabel() for ax in table.gllim.plot(parameters=["water"]).axes] == ["water"]
    with pytest.raises(ValueError, match="results along one dimension"):
        plot_table(maps)
    with pytest.raises(ValueError, match=r"isel\(time=0\)"):
        plot_results(maps.expand_dims(time=2))
    with pytest.raises(ValueError, match="crop both"):
        table.gllim.plot(truth=table.isel(plot=slice(3, None)))
