"""GeoTIFF and ENVI: every reader gives the one cube convention."""

import pickle

import dask
import numpy as np
import pytest
import rasterio
import rioxarray  # noqa: F401  (registers .rio)
from affine import Affine

from files import TRANSFORM, UTM, WAVELENGTHS, enmap_like, netcdf_cube, write_envi, write_raster
from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.reading.open import open_cube
from specinvert.io.writing.writers import save_maps

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)


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
        (
            "wavelength = [500, 600]\n",
            r"scene.hdr: wavelength = '\[500, 600\]' is no list .* as in: wavelength = \{450,",
        ),
        ("fwhm = {5 6}\n", r"scene.hdr: fwhm = '\{5 6\}' is no list of numbers in braces with commas between"),
        ("wavelength = {500\n600}\n", r"list 1 values of 'wavelength' .* as in: wavelength = \{1, 2, ...\}"),
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


def test_empty_braces_tell_nothing_and_a_byte_order_mark_is_named(tmp_path):
    empty = "".join(f"{key} = {{}}\n" for key in ("fwhm", "bbl", "data ignore value", "wavelength units"))
    path = write_envi(tmp_path, np.ones((2, 3, 3)), "bsq", header="wavelength = {500, 600}\n" + empty)
    cube = open_cube(path)
    assert cube.wavelength.values.tolist() == [500.0, 600.0]
    assert not {"fwhm", "good"} & set(cube.coords)
    header = next(tmp_path.glob("*.hdr"))
    header.write_bytes(b"\xef\xbb\xbf" + header.read_bytes())
    for given in (path, header):
        with pytest.raises(ValueError, match=r"scene\.hdr begins with a byte-order mark: save it as UTF-8 without one"):
            open_cube(given)
