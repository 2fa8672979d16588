"""Maps of a swath become maps on a grid: the right pixel at the right place, lazily, and no pixel invented."""

import os

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from affine import Affine

from hdf_products import WGS84, lookup_tables, write_emit
from specinvert import Lookup
from specinvert.io.reading.open import open_cube
from specinvert.io.reading.products.emit import orthorectify
from specinvert.io.writing.writers import save_maps

ROWS, COLUMNS = 6, 5
TRANSFORM = (10.0, 0.5, 0.0, 50.0, 0.0, -0.5)


def make_lookup(**changes):
    glt_y, glt_x = lookup_tables(ROWS, COLUMNS)
    return Lookup(**{"glt_x": glt_x, "glt_y": glt_y, "transform": TRANSFORM, "crs": WGS84} | changes)


def make_maps(chunks=None):
    rng = np.random.default_rng(1)
    swath = ("downtrack", "crosstrack")
    maps = xr.Dataset(
        {
            "water": (swath, rng.random((ROWS, COLUMNS)).astype(np.float32), {"units": "g m-2"}),
            "log_evidence": (swath, rng.random((ROWS, COLUMNS))),
            "covariance": ((*swath, "parameter"), rng.random((ROWS, COLUMNS, 2)).astype(np.float32)),
            "n_modes": (swath, np.full((ROWS, COLUMNS), 3, np.uint8)),
            "quality_flag": (swath, np.full((ROWS, COLUMNS), 4, np.uint8)),
            "scene": ((), 7),
        },
        coords={
            "lat": (swath, rng.random((ROWS, COLUMNS))),
            "elev": (swath, rng.random((ROWS, COLUMNS)), {"units": "m"}),
            "downtrack": np.arange(ROWS),
            "parameter": ["a", "b"],
        },
        attrs={"title": "maps"},
    )
    maps.quality_flag.attrs = {"flag_masks": np.array([2, 1, 4], np.uint8), "flag_meanings": "partial nodata odd"}
    return maps if chunks is None else maps.chunk(chunks)


def by_loop(values, lookup, nothing):
    """The definition: every pixel of the map, one after the other."""
    made = np.full((*lookup.shape, *values.shape[2:]), nothing, dtype=values.dtype)
    for row in range(lookup.shape[0]):
        for column in range(lookup.shape[1]):
            if lookup.glt_x[row, column] > 0 and lookup.glt_y[row, column] > 0:
                made[row, column] = values[lookup.glt_y[row, column] - 1, lookup.glt_x[row, column] - 1]
    return made


@pytest.mark.parametrize("chunks", [None, {"downtrack": 2, "crosstrack": 3}, {"downtrack": 1}])
def test_every_pixel_is_that_of_the_lookup_and_others_have_no_data(chunks):
    maps, lookup = make_maps(chunks), make_lookup()
    made = orthorectify(maps, lookup)
    nothing = {"water": np.nan, "log_evidence": np.nan, "covariance": np.nan, "n_modes": 0, "quality_flag": 1}
    for name, fill in nothing.items():
        np.testing.assert_array_equal(made[name].values, by_loop(maps[name].values, lookup, fill))
        assert made[name].dtype == made[name].values.dtype == maps[name].dtype
        np.testing.assert_equal(made[name].attrs, maps[name].attrs)
        assert (made[name].chunks is None) == (chunks is None)
    assert np.isnan(made.water.values).sum() == 6
    np.testing.assert_array_equal(made.elev.values, by_loop(maps.elev.values, lookup, np.nan))
    assert made.elev.attrs["units"] == "m"
    assert made.covariance.dims == ("y", "x", "parameter")
    assert made.scene.item() == 7
    assert made.attrs == {"title": "maps"}
    assert {"lat", "downtrack", "crosstrack"}.isdisjoint({*made.variables, *made.sizes})


def test_other_dimensions_may_stand_anywhere():
    maps = make_maps().transpose("parameter", "crosstrack", ...)
    made = orthorectify(maps, make_lookup())
    assert made.covariance.dims == ("parameter", "x", "y")
    expected = by_loop(make_maps().covariance.values, make_lookup(), np.nan)
    np.testing.assert_array_equal(made.covariance.transpose("y", "x", "parameter").values, expected)


def test_blocks_are_even_and_at_most_as_long_as_those_of_the_swath():
    made = orthorectify(make_maps({"downtrack": 2, "crosstrack": 3}), make_lookup())
    assert made.water.chunks == made.quality_flag.chunks == ((2, 2), (3, 3, 1))
    assert made.covariance.chunks == ((2, 2), (3, 3, 1), (2,))
    made = orthorectify(make_maps({"downtrack": 3, "crosstrack": 5}), make_lookup())
    assert made.water.chunks == ((2, 2), (4, 3))


def test_a_block_reads_only_the_part_of_the_swath_that_it_needs():
    read = set()

    def block(block_info=None):
        place = block_info[None]["chunk-location"]
        read.add(place)
        return np.full((1, 1), 10 * place[0] + place[1], np.float32)

    values = da.map_blocks(block, chunks=((1,) * ROWS, (1,) * COLUMNS), dtype=np.float32, meta=np.empty((0, 0), "f4"))
    maps = xr.Dataset({"water": (("downtrack", "crosstrack"), values)})
    made = orthorectify(maps, make_lookup())
    assert not read, "nothing is computed before it is asked for"
    assert made.water[1, 2].values == 23
    assert read == {(2, 3)}


def test_place_and_projection_are_where_rioxarray_and_files_have_them(tmp_path):
    made = orthorectify(make_maps({"downtrack": 2}), make_lookup())
    assert made.rio.crs.to_epsg() == 4326
    assert made.rio.transform() == Affine(0.5, 0, 10, 0, -0.5, 50)
    assert made.spatial_ref.attrs["GeoTransform"] == "10.0 0.5 0.0 50.0 0.0 -0.5"
    assert (made.x.values[0], made.y.values[0]) == (10.25, 49.75)
    assert made.y.attrs["standard_name"] == "latitude"
    save_maps(made, tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", decode_coords="all") as read:
        np.testing.assert_array_equal(read.quality_flag.values, made.quality_flag.values)
        np.testing.assert_array_equal(read.water.values, made.water.values)
        assert read.rio.crs.to_epsg() == 4326
        assert read.rio.transform() == made.rio.transform()
    save_maps(made[["water", "quality_flag"]], tmp_path / "maps.tif")
    raster = open_cube(tmp_path / "maps.tif")
    assert raster.rio.transform() == made.rio.transform()
    np.testing.assert_array_equal(raster.values[..., 0], made.water.values)


def test_the_file_of_the_cube_is_lookup_enough(tmp_path):
    stored = write_emit(tmp_path / "scene.nc")
    cube = open_cube(tmp_path / "scene.nc", chunks={"downtrack": 2})
    made = orthorectify(cube, os.fspath(tmp_path / "scene.nc"))
    assert isinstance(made, xr.DataArray)
    assert made.dims == ("y", "x", "wavelength")
    assert made.attrs == cube.attrs
    assert made.name == cube.name
    assert made.wavelength.attrs["units"] == "nm"
    assert made.good.values.tolist() == [True, False, True]
    assert made.values[1, 2, 2] == stored[2, 3, 2]
    assert made.rio.crs.to_epsg() == 4326


def test_blocks_outside_the_swath_cost_nothing():
    glt_y, glt_x = lookup_tables(ROWS, COLUMNS)
    lookup = make_lookup(glt_y=np.where(np.arange(7) < 6, 0, glt_y), glt_x=glt_x)
    made = orthorectify(make_maps({"crosstrack": 2, "downtrack": 2}), lookup)
    with dask.config.set(scheduler="sync"):
        assert np.isnan(made.water.values).all()


def test_dates_and_text_have_their_own_way_to_say_nothing():
    maps = make_maps()
    swath = ("downtrack", "crosstrack")
    maps["when"] = (swath, np.full((ROWS, COLUMNS), np.datetime64("2024-01-01", "ns")))
    maps["kind"] = (swath, np.full((ROWS, COLUMNS), "rock"))
    made = orthorectify(maps, make_lookup())
    assert np.isnat(made.when.values[0, 0])
    assert (made.kind.values[0, 0], made.kind.values[1, 0]) == ("", "rock")


@pytest.mark.parametrize(
    ("maps", "lookup", "message"),
    [
        (
            make_maps().isel(downtrack=slice(0, 3)),
            make_lookup(),
            r"points outside the swath: to place 6 of 3 along 'down",
        ),
        (make_maps().isel(crosstrack=slice(1, 5)), make_lookup(), r"to place 5 of 4 along 'crosstrack'"),
        (
            make_maps().isel(downtrack=slice(1, 6)),
            make_lookup(swath=(6, 5)),
            r"swath of 6 downtrack x 5 .* are of 5 down",
        ),
        (make_maps().rename(downtrack="line"), make_lookup(), r"are over \('line', .*the lookup is of a swath"),
        (make_maps().rename(parameter="x"), make_lookup(), r"\['x'\] of the maps would be overwritten"),
        (make_maps().assign(line=("downtrack", np.ones(ROWS))), make_lookup(), r"\['line'\] have one dimension"),
        (make_maps(), make_lookup(crs="nowhere"), "CRS 'nowhere' is not understood"),
    ],
)
def test_a_lookup_that_does_not_fit_is_one_clear_error(maps, lookup, message):
    with pytest.raises(ValueError, match=message):
        orthorectify(maps, lookup)


def test_flags_that_cannot_say_nodata_are_an_error():
    maps = make_maps()
    maps.quality_flag.attrs["flag_meanings"] = "a b c"
    with pytest.raises(ValueError, match="flags 'quality_flag' have no bit 'nodata'"):
        orthorectify(maps, make_lookup())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"glt_x": np.zeros((4, 6), np.int32)}, r"glt_x \(4, 6\) and glt_y \(4, 7\) of the lookup differ"),
        ({"glt_x": np.zeros((4, 7))}, "glt_x of the lookup is 2-dimensional float64, not 2-D integers"),
        ({"glt_y": np.full((4, 7), -1)}, "glt_y of the lookup holds -1"),
        ({"transform": (10.0, 0.5, 0.0)}, "must be six numbers"),
        ({"transform": (10.0, 0.5, 0.1, 50.0, 0.0, -0.5)}, "is rotated"),
        ({"swath": (6, 4)}, "to place 5 of 4 along 'crosstrack'"),
    ],
)
def test_a_lookup_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_lookup(**changes)


def test_what_is_no_map_or_no_lookup_is_refused(tmp_path):
    with pytest.raises(TypeError, match="maps must be a Dataset or DataArray, not ndarray"):
        orthorectify(np.ones((2, 2)), make_lookup())
    with pytest.raises(TypeError, match="lookup must be a Lookup or the path of a file with one, not dict"):
        orthorectify(make_maps(), {})
    with pytest.raises(FileNotFoundError, match=r"nowhere\.nc: no such file"):
        orthorectify(make_maps(), tmp_path / "nowhere.nc")
    (tmp_path / "text.nc").write_text("no netCDF")
    with pytest.raises(ValueError, match=r"text\.nc: not a netCDF file"):
        orthorectify(make_maps(), tmp_path / "text.nc")
