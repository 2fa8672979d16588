"""Files: every reader gives the one cube convention, every writer a whole file or none."""

import os
import pickle
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from affine import Affine
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning

from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.atomic import atomic_path
from specinvert.io.open import open_cube
from specinvert.io.writers import save_maps

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)

TRANSFORM = Affine(30.0, 0.0, 366015.0, 0.0, -30.0, 5806125.0)
UTM = CRS.from_epsg(32633)
WAVELENGTHS = [418.2, 993.1, 902.3]


def write_raster(path, values, driver="GTiff", georeferenced=True, band_tags=None, **profile):
    """Write values (band, y, x); returns the path."""
    place = {"crs": UTM, "transform": TRANSFORM} if georeferenced else {}
    scales, offsets = profile.pop("scales", None), profile.pop("offsets", None)
    names, tags = profile.pop("names", None), profile.pop("tags", {})
    count, height, width = values.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(
            *(path, "w"),
            driver=driver,
            count=count,
            height=height,
            width=width,
            dtype=values.dtype,
            **place,
            **profile,
        ) as file:
            file.write(values)
            file.update_tags(**tags)
            for index, entry in enumerate(band_tags or [], start=1):
                file.update_tags(index, **entry)
            if scales is not None:
                file.scales = scales
            if offsets is not None:
                file.offsets = offsets
            if names is not None:
                file.descriptions = names
    return path


def enmap_like(path, **changes):
    """A small GeoTIFF with band tags as EnMAP products have them; band 2 is all nodata."""
    values = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5) * 100 - 200
    values[1] = -32768
    values[0, 1, 2] = -32768
    tags = [
        {"wavelength": str(w), "wavelength_units": "Nanometers", "fwhm": "6.5", "bbl": str(int(i != 1))}
        for i, w in enumerate(WAVELENGTHS)
    ]
    options = {"nodata": -32768, "scales": [1e-4] * 3, "offsets": [0.0] * 3, "band_tags": tags} | changes
    return values, write_raster(path, values, **options)


def write_envi(folder, values, interleave="bil", header="", name="scene", suffix=".img"):
    """Write values (band, y, x) float32 as plain bytes with a header by hand; returns the data file."""
    order = {"bil": (1, 0, 2), "bsq": (0, 1, 2), "bip": (1, 2, 0)}[interleave]
    count, lines, samples = values.shape
    data = folder / f"{name}{suffix}"
    data.write_bytes(np.ascontiguousarray(values.astype("<f4").transpose(order)).tobytes())
    (folder / f"{name}.hdr").write_text(
        f"ENVI\ndescription = {{test}}\nsamples = {samples}\nlines = {lines}\nbands = {count}\n"
        "header offset = 0\nfile type = ENVI Standard\ndata type = 4\n"
        f"interleave = {interleave}\nbyte order = 0\n{header}"
    )
    return data


def netcdf_cube():
    cube = xr.DataArray(
        np.arange(24, dtype=np.float32).reshape(3, 2, 4),
        dims=("bands", "y", "x"),
        coords={"y": [5806110.0, 5806080.0], "x": 366030.0 + 30 * np.arange(4)},
        attrs={"units": "1", "long_name": "reflectance"},
        name="reflectance",
    )
    wavelength = ("bands", [0.5, 0.6, 0.7], {"units": "um"})
    return cube.assign_coords(wavelength=wavelength).rio.write_crs(UTM).to_dataset()


def maps_of(shape=(4, 5), lazy=False):
    y, x = 5806110.0 - 30 * np.arange(shape[0]), 366030.0 + 30 * np.arange(shape[1])
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 0.5
    values[1, 2] = np.nan
    flag = np.isnan(values).astype(np.uint8)
    if lazy:
        values, flag = da.from_array(values, chunks=(2, -1)), da.from_array(flag, chunks=(2, -1))
    maps = xr.Dataset(
        {
            "water": (("y", "x"), values, {"units": "g m-2", "long_name": "leaf water"}),
            "water_std": (("y", "x"), values * np.float32(0.1)),
            "quality_flag": (("y", "x"), flag, {"flag_meanings": "nodata", "flag_masks": np.uint8(1)}),
        },
        coords={"y": y, "x": x},
        attrs={"Conventions": "CF-1.11"},
    )
    return maps.rio.write_crs(UTM).rio.write_transform(TRANSFORM)


# --- rasters in


def test_a_geotiff_gives_every_band_its_own_wavelength_fwhm_and_badness(tmp_path):
    values, path = enmap_like(tmp_path / "scene.tif")
    cube = open_cube(path)
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.wavelength.values.tolist() == WAVELENGTHS
    assert cube.wavelength.attrs["units"] == "Nanometers"
    assert cube.fwhm.values.tolist() == [6.5] * 3
    assert cube.good.values.tolist() == [True, False, True]
    assert cube.good.dtype == bool
    assert describe_bands(cube, find_band_dim(cube)).unit == "nm"
    expected = np.where(values == -32768, np.nan, values * 1e-4).transpose(1, 2, 0)
    np.testing.assert_allclose(cube.values, expected, rtol=1e-6)


def test_attributes_are_set_anew_and_the_place_is_kept(tmp_path):
    _, path = enmap_like(tmp_path / "scene.tif", tags={"start_time": "2022"})
    cube = open_cube(path)
    assert cube.attrs == {}
    assert cube.rio.crs == UTM
    assert cube.rio.transform() == TRANSFORM
    assert np.isnan(cube.rio.nodata)
    assert cube.x.values[0] == 366030.0
    assert cube.y.attrs["standard_name"] == "projection_y_coordinate"


def test_a_raster_opens_lazily_with_all_bands_in_one_block(tmp_path):
    _, path = enmap_like(tmp_path / "scene.tif")
    with dask.config.set({"array.chunk-size": "96B"}):
        cube = open_cube(path)
    assert cube.chunks[2] == (3,)
    assert len(cube.chunks[0]) * len(cube.chunks[1]) > 1
    by_hand = open_cube(path, chunks={"y": 2, "wavelength": 1})
    assert by_hand.chunks == ((2, 2), (5,), (1, 1, 1))
    np.testing.assert_array_equal(by_hand.values, cube.values)
    read = open_cube(path, chunks=None)
    assert isinstance(read.data, np.ndarray)
    np.testing.assert_array_equal(read.values, cube.values)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [({"bands": 1}, r"chunks= names \['bands'\]"), ("all", "chunks='all' is not understood")],
)
def test_chunks_that_make_no_sense_are_an_error(tmp_path, chunks, message):
    _, path = enmap_like(tmp_path / "scene.tif")
    with pytest.raises(ValueError, match=message):
        open_cube(path, chunks=chunks)


@pytest.mark.parametrize(
    ("stored", "read"),
    [("uint8", "float32"), ("uint16", "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_cubes_are_float32_unless_the_file_is_float64(tmp_path, stored, read):
    path = write_raster(tmp_path / "scene.tif", np.ones((2, 3, 3), stored), scales=[0.5, 0.5], offsets=[0.1, 0.1])
    cube = open_cube(path)
    assert cube.dtype == read
    assert cube.values.dtype == read
    np.testing.assert_allclose(cube.values, 0.6, rtol=1e-6)


def test_scales_and_offsets_may_differ_between_bands(tmp_path):
    path = write_raster(tmp_path / "s.tif", np.ones((2, 3, 3), np.uint16), scales=[0.5, 2.0], offsets=[0.0, 0.25])
    np.testing.assert_allclose(open_cube(path).values[0, 0], [0.5, 2.25])


def test_a_float64_nodata_of_a_float32_file_is_recognised(tmp_path):
    values = np.full((1, 2, 2), np.float32(-3.4e38))
    values[0, 0, 0] = 0.25
    cube = open_cube(write_raster(tmp_path / "s.tif", values, nodata=-3.4e38))
    assert np.isnan(cube.values).sum() == 3


def test_bands_without_wavelengths_are_named_by_the_file_or_not_at_all(tmp_path):
    values = np.ones((2, 3, 3), np.float32)
    named = open_cube(write_raster(tmp_path / "named.tif", values, names=["B02", "B03"]))
    assert named.dims == ("y", "x", "band")
    assert describe_bands(named, "band").labels.tolist() == ["B02", "B03"]
    plain = open_cube(write_raster(tmp_path / "plain.tif", values), chunks={"band": 1})
    assert "band" not in plain.coords
    assert describe_bands(plain, "band").labels is None


def test_a_band_without_a_wavelength_among_others_is_an_error_that_names_the_file(tmp_path):
    _, path = enmap_like(tmp_path / "s.tif", band_tags=[{"wavelength": "500"}, {"wavelength": "600"}, {}])
    with pytest.raises(ValueError, match=r"s\.tif: .* NaN or infinite for 1 of 3 bands .*; correct the metadata"):
        open_cube(path)


def test_lists_in_the_tags_of_a_geotiff_are_read(tmp_path):
    tags = {"wavelength": "{0.5, 0.6}", "wavelength_units": "Micrometers", "fwhm": "{0.01, 0.02}"}
    cube = open_cube(write_raster(tmp_path / "s.tif", np.ones((2, 3, 3), np.float32), tags=tags))
    assert cube.wavelength.values.tolist() == [0.5, 0.6]
    assert cube.fwhm.attrs["units"] == "Micrometers"


def test_a_rotated_transform_is_kept(tmp_path):
    rotated = Affine(20.0, 5.0, 366015.0, 5.0, -20.0, 5806125.0)
    values = np.ones((1, 3, 3), np.float32)
    with rasterio.open(
        tmp_path / "s.tif",
        "w",
        driver="GTiff",
        count=1,
        height=3,
        width=3,
        dtype="float32",
        crs=UTM,
        transform=rotated,
    ) as file:
        file.write(values)
    cube = open_cube(tmp_path / "s.tif")
    assert cube.rio.transform() == rotated
    save_maps(cube.isel(band=0).to_dataset(name="water"), tmp_path / "maps.tif")
    with rasterio.open(tmp_path / "maps.tif") as file:
        assert file.transform == rotated


def test_a_file_without_a_place_opens_without_warnings(tmp_path):
    path = write_raster(tmp_path / "s.tif", np.ones((2, 3, 3), np.float32), georeferenced=False)
    cube = open_cube(path)
    assert cube.rio.crs is None
    assert cube.compute().shape == (3, 3, 2)


@pytest.mark.parametrize("interleave", ["bil", "bsq", "bip"])
@pytest.mark.parametrize("suffix", ["", ".img", ".dat"])
@pytest.mark.parametrize("give", ["header", "data"])
def test_envi_opens_by_header_or_data_file(tmp_path, interleave, suffix, give):
    values = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    header = (
        "wavelength units = Nanometers\nwavelength = { 418.2 , 993.1,\n 902.3 }\nfwhm = {6, 7, 8}\nbbl = {1, 0, 1}\n"
    )
    data = write_envi(tmp_path, values, interleave, header, suffix=suffix)
    cube = open_cube(tmp_path / "scene.hdr" if give == "header" else data)
    assert cube.dims == ("y", "x", "wavelength")
    np.testing.assert_array_equal(cube.values, values.transpose(1, 2, 0))
    np.testing.assert_allclose(describe_bands(cube, "wavelength").wavelength, WAVELENGTHS)
    assert cube.fwhm.values.tolist() == [6, 7, 8]
    assert cube.good.values.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("header", "unit", "guessed"),
    [
        ("wavelength units = Micrometers\nwavelength = {0.5, 0.6}\n", "um", False),
        ("Wavelength_Units = um\nWavelengths = {0.5, 0.6}\n", "um", False),
        ("wavelenght = {500, 600}\n", "nm", True),
        ("wavelength units = Unknown\nwavelength = {0.5, 0.6}\n", "um", True),
    ],
)
def test_envi_keys_may_be_misspelled_and_units_missing(tmp_path, header, unit, guessed):
    cube = open_cube(write_envi(tmp_path, np.ones((2, 3, 3)), header=header))
    described = describe_bands(cube, find_band_dim(cube))
    np.testing.assert_allclose(described.wavelength, [500, 600])
    assert (described.unit, described.guessed) == (unit, guessed)
    assert "fwhm" not in cube.coords


@pytest.mark.parametrize("key", ["data ignore value", "data_ignore_value", "nodata value"])
def test_the_ignore_value_of_envi_is_nan(tmp_path, key):
    values = np.full((2, 3, 3), 0.25)
    values[1, 0, 2] = -9999
    cube = open_cube(write_envi(tmp_path, values, header=f"{key} = -9999\n"))
    assert np.argwhere(np.isnan(cube.values)).tolist() == [[0, 2, 1]]


def test_the_reflectance_scale_factor_of_envi_divides(tmp_path):
    cube = open_cube(write_envi(tmp_path, np.full((2, 3, 3), 2500.0), header="reflectance scale factor = 10000\n"))
    np.testing.assert_allclose(cube.values, 0.25)


def test_envi_written_by_gdal_keeps_its_place(tmp_path):
    values = np.ones((2, 3, 3), np.float32)
    path = write_raster(tmp_path / "scene.img", values, driver="ENVI", INTERLEAVE="BIL")
    cube = open_cube(path)
    assert cube.rio.crs.to_epsg() == 32633
    assert cube.rio.transform() == TRANSFORM


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("wavelength = {500, 600, 700}\n", r"list 3 values of 'wavelength' for 2 bands"),
        ("bbl = {1}\n", r"list 1 values of 'bbl' for 2 bands"),
        ("wavelength = {500, green}\n", r"'wavelength' holds ' ?green' where a number belongs"),
        ("reflectance scale factor = 0\n", "reflectance scale factor 0 is not positive"),
    ],
)
def test_envi_metadata_that_do_not_fit_the_bands_are_an_error(tmp_path, header, message):
    path = write_envi(tmp_path, np.ones((2, 3, 3)), "bsq", header=header)
    with pytest.raises(ValueError, match=message):
        open_cube(path)


def test_an_envi_header_without_one_data_file_is_an_error(tmp_path):
    data = write_envi(tmp_path, np.ones((2, 3, 3)))
    (tmp_path / "scene.dat").write_bytes(data.read_bytes())
    with pytest.raises(ValueError, match=r"several data files \(scene.img, scene.dat\)"):
        open_cube(tmp_path / "scene.hdr")
    data.unlink()
    (tmp_path / "scene.dat").unlink()
    with pytest.raises(FileNotFoundError, match="no data file beside it"):
        open_cube(tmp_path / "scene.hdr")
    (tmp_path / "scene.hdr").write_text("BYTEORDER I\n")
    with pytest.raises(ValueError, match="not an ENVI header"):
        open_cube(tmp_path / "scene.hdr")


def test_a_cube_travels_to_other_processes(tmp_path):
    _, raster = enmap_like(tmp_path / "scene.tif")
    netcdf_cube().to_netcdf(tmp_path / "cube.nc")
    for path in (raster, tmp_path / "cube.nc"):
        cube = open_cube(path)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(cube)).values, cube.values)


# --- netCDF in


def test_netcdf_keeps_dimension_order_units_and_place(tmp_path):
    netcdf_cube().to_netcdf(tmp_path / "cube.nc")
    cube = open_cube(tmp_path / "cube.nc")
    assert cube.dims == ("bands", "y", "x")
    assert cube.chunks[0] == (3,)
    assert cube.attrs == {"units": "1", "long_name": "reflectance"}
    np.testing.assert_allclose(describe_bands(cube, find_band_dim(cube)).wavelength, [500, 600, 700])
    assert cube.rio.crs == UTM
    assert cube.rio.transform() == Affine(30.0, 0.0, 366015.0, 0.0, -30.0, 5806125.0)
    np.testing.assert_array_equal(cube.values, netcdf_cube().reflectance.values)
    assert isinstance(open_cube(tmp_path / "cube.nc", chunks=None).data, np.ndarray)


def test_packed_netcdf_is_float32_with_nan_and_drops_the_packing(tmp_path):
    dataset = netcdf_cube()
    dataset.reflectance.values[0, 0, 0] = np.nan
    packing = {
        "grid_mapping": "spatial_ref",
        "dtype": "int16",
        "scale_factor": 0.5,
        "add_offset": 1.0,
        "_FillValue": -9999,
    }
    dataset.to_netcdf(tmp_path / "cube.nc", encoding={"reflectance": packing})
    cube = open_cube(tmp_path / "cube.nc")
    assert cube.dtype == np.float32
    np.testing.assert_array_equal(cube.values, dataset.reflectance.values)
    assert set(cube.encoding) == {"source", "grid_mapping", "stored"}
    assert cube.encoding["stored"] == "int16, value = number * 0.5 + 1, no data -9999"


def test_one_dimensional_variables_of_the_bands_become_coordinates(tmp_path):
    dataset = netcdf_cube().drop_vars("wavelength")
    dataset["wavelength"] = ("bands", [500.0, 600.0, 700.0], {"units": "nm"})
    dataset["FWHM"] = ("bands", [5.0, 6.0, 7.0])
    dataset["good_wavelengths"] = ("bands", np.array([1, 0, 1], np.uint8))
    dataset.to_netcdf(tmp_path / "cube.nc")
    cube = open_cube(tmp_path / "cube.nc")
    assert cube.name == "reflectance"
    assert cube.fwhm.values.tolist() == [5, 6, 7]
    assert cube.good.values.tolist() == [True, False, True]
    assert describe_bands(cube, "bands").wavelength.tolist() == [500, 600, 700]


def test_several_cubes_in_a_netcdf_file_are_an_error_until_one_is_named(tmp_path):
    dataset = netcdf_cube()
    dataset["uncertainty"] = dataset.reflectance * 0.1
    dataset["label"] = ("x", ["a", "b", "c", "d"])
    dataset.to_netcdf(tmp_path / "cube.nc")
    with pytest.raises(ValueError, match=r"several variables.*reflectance, uncertainty.*variable="):
        open_cube(tmp_path / "cube.nc")
    assert open_cube(tmp_path / "cube.nc", variable="uncertainty").name == "uncertainty"
    with pytest.raises(ValueError, match=r"no variable 'radiance'; the file has reflectance \('bands', 'y', 'x'\)"):
        open_cube(tmp_path / "cube.nc", variable="radiance")
    with pytest.raises(ValueError, match="variable 'label' holds no array of numbers"):
        open_cube(tmp_path / "cube.nc", variable="label")


def test_a_netcdf_file_without_wavelengths_is_an_error_until_the_cube_is_named(tmp_path):
    netcdf_cube().drop_vars("wavelength").to_netcdf(tmp_path / "cube.nc")
    with pytest.raises(ValueError, match=r"no variable has a dimension that carries wavelengths.*reflectance"):
        open_cube(tmp_path / "cube.nc")
    assert open_cube(tmp_path / "cube.nc", variable="reflectance").dims == ("bands", "y", "x")


# --- files that cannot be read


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tif: no such file"):
        open_cube(tmp_path / "nowhere.tif")


def test_a_directory_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="not a file"):
        open_cube(tmp_path)


@pytest.mark.parametrize("name", ["scene.tif", "scene.nc", "scene"])
def test_an_empty_file_is_an_error(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=rf"{name}: the file is empty"):
        open_cube(tmp_path / name)


@pytest.mark.parametrize(("name", "message"), [("a.nc", "not a netCDF file"), ("a.tif", "not a raster file")])
def test_a_file_of_another_kind_is_an_error(tmp_path, name, message):
    (tmp_path / name).write_text("wavelength,reflectance\n500,0.1\n")
    with pytest.raises(ValueError, match=message):
        open_cube(tmp_path / name)


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.99])
def test_a_truncated_file_is_an_error_when_opened(tmp_path, keep):
    values = np.random.default_rng(0).random((4, 64, 64)).astype(np.float32)
    wavelengths = {"wavelength": [500.0, 600.0, 700.0, 800.0]}
    cube = xr.DataArray(values, dims=("wavelength", "y", "x"), coords=wavelengths, name="r")
    cube.to_netcdf(tmp_path / "four.nc")
    cube.to_netcdf(tmp_path / "three.nc", format="NETCDF3_64BIT")
    write_raster(tmp_path / "plain.tif", values)
    write_raster(tmp_path / "packed.tif", values, compress="deflate", tiled=True, blockxsize=16, blockysize=16)
    write_envi(tmp_path, values)
    for name in ("four.nc", "three.nc", "plain.tif", "packed.tif", "scene.img"):
        path = tmp_path / name
        open_cube(path).compute()
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep)])
        with pytest.raises(ValueError, match=rf"{name}: .*(truncated|not a raster)"):
            open_cube(path)


def test_a_file_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    _, path = enmap_like(tmp_path / "scene.tif")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(PermissionError, match=r"scene\.tif: no permission to read"):
        open_cube(path)


def test_complex_numbers_and_a_variable_of_a_raster_are_errors(tmp_path):
    path = write_raster(tmp_path / "s.tif", np.ones((1, 3, 3), np.complex64))
    with pytest.raises(ValueError, match="complex numbers"):
        open_cube(path)
    with pytest.raises(ValueError, match="variable='r' is for netCDF"):
        open_cube(path, variable="r")


# --- maps out


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


# --- whole or not at all


class Interrupted(Exception):
    pass


def failing_maps():
    def fail(block):
        raise Interrupted

    broken = da.ones((4, 5), chunks=2, dtype=np.float32).map_blocks(fail, meta=np.empty((0, 0), np.float32))
    return xr.Dataset({"water": (("y", "x"), broken)})


@pytest.mark.parametrize("name", ["maps.nc", "maps.tif"])
@pytest.mark.parametrize("earlier", [None, b"earlier result"])
def test_a_computation_that_fails_leaves_what_was_there(tmp_path, name, earlier):
    if earlier is not None:
        (tmp_path / name).write_bytes(earlier)
    with pytest.raises(Interrupted):
        save_maps(failing_maps(), tmp_path / name)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({} if earlier is None else {name: earlier})


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("name", "writer"), [("maps.nc", "xarray.backends.NetCDF4DataStore.open"), ("maps.tif", "rasterio.open")]
)
def test_a_write_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch, name, writer, lazy):
    def interrupted(path, *args, **kwargs):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_maps(maps_of(lazy=lazy), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_flag_file_that_fails_takes_the_maps_with_it(tmp_path):
    (tmp_path / "maps_flag.tif").mkdir()
    with pytest.raises(ValueError, match=r"maps_flag\.tif: is a directory"):
        save_maps(maps_of(), tmp_path / "maps.tif")
    assert [p.name for p in tmp_path.iterdir()] == ["maps_flag.tif"]


def test_the_place_is_checked_before_anything_is_computed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match=r"directory .*nowhere does not exist"):
        save_maps(failing_maps(), tmp_path / "nowhere" / "maps.nc")
    with pytest.raises(ValueError, match="is a file, not a directory"):
        save_maps(failing_maps(), tmp_path / "file" / "maps.nc")
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(PermissionError, match="no permission to write in"):
        save_maps(failing_maps(), tmp_path / "maps.nc")


def test_atomic_path_appears_only_on_success_and_follows_links(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_path(link) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".txt"
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.txt", "target.txt"]


def test_a_crs_without_a_grid_mapping_attribute_is_kept(tmp_path: Path) -> None:
    cube = xr.DataArray(
        np.ones((2, 3, 2), np.float32),
        dims=("y", "x", "wavelength"),
        coords={"y": [1.0, 0.0], "x": [0.0, 1.0, 2.0], "wavelength": ("wavelength", [500.0, 600.0], {"units": "nm"})},
        name="reflectance",
    )
    cube = cube.rio.write_crs("EPSG:32633")
    plain = cube.to_dataset()
    plain["reflectance"].encoding = {}
    plain.to_netcdf(tmp_path / "plain.nc")
    assert open_cube(tmp_path / "plain.nc").rio.crs.to_epsg() == 32633
