"""Maps come back from netCDF and GeoTIFF as they were, with their place and nothing stale."""

import itertools
import os

import dask.array as da
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr

from files import TRANSFORM, UTM, maps_of
from specinvert.io.reading.open import open_cube
from specinvert.io.writing.blocks import side_folder
from specinvert.io.writing.writers import save_maps

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)


def assert_same_maps(read, maps):
    for name in maps.data_vars:
        np.testing.assert_array_equal(read[name].values, maps[name].values)
        assert read[name].dtype == maps[name].dtype


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("name", ["maps.nc", "maps.NC4"])
def test_netcdf_maps_come_back_with_nan_flags_crs_and_transform(tmp_path, lazy, name):
    maps = maps_of(lazy=lazy)
    save_maps(maps, tmp_path / name)
    with xr.open_dataset(tmp_path / name, decode_coords="all") as read:
        assert_same_maps(read, maps)
        assert read.rio.crs == UTM
        assert read.rio.transform() == TRANSFORM
        assert read.water.attrs["long_name"] == "leaf water"
        assert read.quality_flag.attrs["flag_meanings"] == "nodata"
        assert read.quality_flag.attrs["flag_masks"].dtype == np.uint8
        assert read.attrs == {"Conventions": "CF-1.11"}
        np.testing.assert_array_equal(read.x, maps.x)
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("level", [0, 1, 9])
def test_floats_are_compressed_on_request_and_flags_always(tmp_path, level):
    save_maps(maps_of(), tmp_path / "maps.nc", compression=level)
    with xr.open_dataset(tmp_path / "maps.nc") as read:
        assert read.water.encoding["complevel"] == level
        assert read.quality_flag.encoding["complevel"] == max(level, 1)


@pytest.mark.parametrize("level", [-1, 10, None, "high"])
def test_a_compression_that_is_no_level_is_refused(tmp_path, level):
    with pytest.raises(ValueError, match=f"compression={level!r} is no level"):
        save_maps(maps_of(), tmp_path / "maps.nc", compression=level)
    assert not list(tmp_path.iterdir())


def test_netcdf_encoding_is_explicit_and_nothing_stale_leaks(tmp_path):
    maps = maps_of()
    maps.water.encoding = {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -9999, "chunksizes": (1, 1)}
    maps.water.attrs |= {"_FillValue": -9999.0, "scale_factor": 1e-4}
    maps.quality_flag.encoding = {"_FillValue": 255}
    maps.encoding = {"unlimited_dims": {"y"}}
    save_maps(maps, tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", mask_and_scale=False, decode_coords=False) as raw:
        assert raw.water.dtype == np.float32
        assert np.isnan(raw.water.attrs["_FillValue"])
        assert "scale_factor" not in raw.water.attrs
        assert "coordinates" not in raw.water.attrs
        assert not raw.water.encoding["zlib"]
        assert raw.encoding["unlimited_dims"] == set()
        assert raw.quality_flag.dtype == np.uint8
        for name in ("water", "water_std", "quality_flag"):
            assert raw[name].attrs["grid_mapping"] == "spatial_ref"
        for name in ("quality_flag", "x", "y", "spatial_ref"):
            assert "_FillValue" not in raw[name].attrs
    assert maps.water.encoding["scale_factor"] == 0.5
    assert maps.water.attrs["_FillValue"] == -9999.0


def test_netcdf_holds_maps_of_any_dimensions_text_times_and_other_grid_mappings(tmp_path):
    maps = maps_of().rename(spatial_ref="utm")
    for array in maps.data_vars.values():
        array.encoding["grid_mapping"] = "utm"
    maps["covariance"] = (("y", "x", "parameter", "parameter_2"), np.ones((4, 5, 2, 2), np.float32))
    maps["training_mean"] = ("parameter", [1.0, 2.0])
    maps = maps.assign_coords(
        parameter=["lai", "water"],
        time=np.datetime64("2022-07-24", "ns"),
        lon=(("y", "x"), np.ones((4, 5))),
    )
    save_maps(maps, tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", decode_coords="all") as read:
        assert read.parameter.values.tolist() == ["lai", "water"]
        assert read.time.values == maps.time.values
        assert read.rio.crs == UTM
        assert "lon" in read.coords
        assert_same_maps(read, maps)


def test_a_table_of_estimates_without_a_place_is_written_to_netcdf(tmp_path):
    table = xr.Dataset({"water": ("sample", [1.0, np.nan])}, coords={"sample": ["a", "b"]})
    save_maps(table, tmp_path / "table.nc")
    with xr.open_dataset(tmp_path / "table.nc") as read:
        xr.testing.assert_identical(read.load(), table)


def test_netcdf_maps_open_as_rasters_with_their_place(tmp_path):
    save_maps(maps_of(), tmp_path / "maps.nc")
    with rasterio.open(f"netcdf:{tmp_path / 'maps.nc'}:water") as file:
        assert file.crs == UTM
        assert file.transform == TRANSFORM


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("order", [("y", "x"), ("x", "y")])
def test_geotiff_maps_come_back_with_names_nan_flags_crs_and_transform(tmp_path, lazy, order):
    maps = maps_of(lazy=lazy)
    save_maps(maps.transpose(*order), tmp_path / "maps.tif")
    with rasterio.open(tmp_path / "maps.tif") as file:
        assert file.descriptions == ("water", "water_std")
        assert file.dtypes == ("float32", "float32")
        assert np.isnan(file.nodata)
        assert file.units[0] == "g m-2"
        assert file.crs == UTM
        assert file.transform == TRANSFORM
        np.testing.assert_array_equal(file.read(1), maps.water.values)
        np.testing.assert_array_equal(file.read(2), maps.water_std.values)
    with rasterio.open(tmp_path / "maps_flag.tif") as file:
        assert file.descriptions == ("quality_flag",)
        assert file.dtypes == ("uint8",)
        assert file.nodata is None
        assert file.transform == TRANSFORM
        np.testing.assert_array_equal(file.read(1), maps.quality_flag.values)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["maps.tif", "maps_flag.tif"]


def test_geotiff_widens_rather_than_loses_digits_and_needs_no_flag(tmp_path):
    maps = maps_of().drop_vars("quality_flag")
    maps["log_evidence"] = maps.water.astype(np.float64) / 3
    maps["n_modes"] = maps.water.fillna(0).astype(np.uint8)
    save_maps(maps, tmp_path / "maps.tiff")
    with rasterio.open(tmp_path / "maps.tiff") as file:
        assert set(file.dtypes) == {"float64"}
        np.testing.assert_array_equal(file.read(3), maps.log_evidence.values)
        np.testing.assert_array_equal(file.read(4), maps.n_modes.values)
    assert not (tmp_path / "maps_flag.tiff").exists()


@pytest.mark.parametrize("rows", [slice(2, 4), slice(3, 4), slice(None, None, 2)])
@pytest.mark.parametrize("name", ["maps.nc", "maps.tif"])
def test_maps_sliced_since_are_written_at_their_new_place(tmp_path, name, rows):
    part = maps_of((6, 5)).isel(y=rows, x=slice(1, None))
    save_maps(part, tmp_path / name)
    source = tmp_path / name if name.endswith("tif") else f"netcdf:{tmp_path / name}:water"
    with rasterio.open(source) as file:
        top_left = file.xy(0, 0)
    np.testing.assert_allclose(top_left, [part.x.values[0], part.y.values[0]], atol=1e-3)


def test_a_flipped_y_axis_keeps_every_value_at_its_place(tmp_path):
    maps = maps_of().isel(y=slice(None, None, -1))
    save_maps(maps, tmp_path / "maps.tif")
    back = open_cube(tmp_path / "maps.tif").sel(band="water", drop=True)
    np.testing.assert_array_equal(back.sel(y=maps.y, x=maps.x).values, maps.water.values)


def test_a_single_row_that_does_not_tell_its_pixel_size_is_an_error(tmp_path):
    maps = xr.Dataset({"water": (("y", "x"), np.ones((1, 2), np.float32))}, coords={"y": [1.0], "x": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"maps of 1 x 2 pixels.*write_transform"):
        save_maps(maps, tmp_path / "maps.tif")
    assert list(tmp_path.iterdir()) == []
    save_maps(maps, tmp_path / "maps.nc")


def test_a_swath_keeps_the_grid_mapping_it_declares(tmp_path):
    maps = maps_of().drop_vars(["x", "y"]).rename(y="line", x="sample")
    save_maps(maps, tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", decode_coords="all") as read:
        assert read.water.encoding["grid_mapping"] == "spatial_ref"


def test_maps_without_a_place_are_written_without_warnings(tmp_path):
    maps = xr.Dataset({"water": (("y", "x"), np.ones((3, 2), np.float32))})
    save_maps(maps, tmp_path / "maps.tif")
    save_maps(maps, tmp_path / "maps.nc")
    assert open_cube(tmp_path / "maps.tif").rio.crs is None


@pytest.mark.parametrize("name", ["maps.nc", "maps.tif"])
def test_lazy_maps_that_share_blocks_compute_each_block_once(tmp_path, name):
    calls = []

    def kernel(block):
        calls.append(block.shape)
        return block

    shared = da.ones((4, 6), chunks=(2, 3), dtype=np.float32).map_blocks(kernel, meta=np.empty((0, 0), np.float32))
    maps = xr.Dataset({"a": (("y", "x"), shared), "b": (("y", "x"), shared * 2), "c": (("y", "x"), shared + 1)})
    save_maps(maps, tmp_path / name)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.expand_dims(time=2), r"maps over \('y', 'x'\) only, not water \('time', 'y', 'x'\)"),
        (lambda m: m.assign(mean=("parameter", [1.0])), r"not mean \('parameter',\)"),
        (lambda m: m.rename(y="row", x="column"), r"needs dimensions 'y' and 'x'.*'row', 'column'"),
        (lambda m: m.assign(water=m.water.astype(str)), "GeoTIFF holds numbers, not water"),
        (lambda m: m[["quality_flag"]], "no maps beside 'quality_flag'"),
    ],
)
def test_geotiff_of_anything_but_two_dimensional_maps_is_an_error(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        save_maps(change(maps_of()), tmp_path / "maps.tif")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["maps.zip", "maps"])
def test_an_unknown_suffix_is_an_error_that_lists_the_accepted(tmp_path, name):
    with pytest.raises(ValueError, match=r"cannot write .*use one of \.nc, \.nc4, \.tif, \.tiff"):
        save_maps(maps_of(), tmp_path / name)


def test_an_empty_dataset_and_an_array_are_errors(tmp_path):
    with pytest.raises(ValueError, match="no variables"):
        save_maps(xr.Dataset(), tmp_path / "maps.nc")
    with pytest.raises(TypeError, match=r"not DataArray; use array\.to_dataset"):
        save_maps(maps_of().water, tmp_path / "maps.nc")


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("name", ["maps.nc", "maps.zarr", "maps.tif"])
def test_a_file_that_does_not_hold_what_was_written_is_not_published(tmp_path, monkeypatch, name, lazy):
    maps = maps_of(lazy=lazy)
    save_maps(maps, tmp_path / name)
    sums = itertools.count()
    monkeypatch.setattr("specinvert.io.writing.verify._checksum", lambda values: next(sums))
    with pytest.raises(OSError, match=rf"{name}: not written whole \(.* differs when it is read back\): no space"):
        save_maps(maps.assign(water=maps.water + 1), tmp_path / name)
    kept = open_cube(tmp_path / name, variable=None if name.endswith("tif") else "water").values
    assert np.nanmin(kept) == np.nanmin(maps.water if name != "maps.tif" else maps.water_std)


@pytest.mark.parametrize("name", ["maps.nc", "maps.tif"])
def test_a_second_writer_is_refused_by_the_name_of_the_first(tmp_path, name):
    maps = maps_of(lazy=True)

    def second(state):
        with pytest.raises(BlockingIOError, match=rf"{name}: is being written by process {os.getpid()} on .* since"):
            save_maps(maps_of(lazy=state.blocks % 2), tmp_path / name)

    save_maps(maps, tmp_path / name, progress=second)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    save_maps(maps, tmp_path / name)


def test_maps_of_a_folder_that_another_run_has_taken_are_not_published(tmp_path):
    def taken(state):
        if state.blocks == state.n_blocks:
            plan = side_folder(tmp_path / "maps.nc") / "plan.json"
            plan.write_text(plan.read_text().replace('"run": "', '"run": "0'))

    with pytest.raises(BlockingIOError, match="another run has taken this folder"):
        save_maps(maps_of(lazy=True), tmp_path / "maps.nc", progress=taken)
    assert not (tmp_path / "maps.nc").exists()
