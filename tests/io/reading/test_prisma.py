"""PRISMA products open as one cube of both detectors, at the right place, whatever the axis order in the file."""

import pickle

import h5py
import numpy as np
import pytest
import xarray as xr
from affine import Affine
from xarray.core import indexing

from hdf_products import write_prisma
from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.reading.convention import FileArray
from specinvert.io.reading.open import open_cube
from specinvert.io.reading.products import prisma
from specinvert.io.writing.writers import save_maps

SORTED = [402.5, 700.0, 942.5, 972.5, 2496.5]


def expected_cube(vnir, swir):
    """Values (y, x, band) sorted by wavelength, pixel by pixel from the definition of the scale."""
    made = np.empty((6, 5, 5))
    for y in range(6):
        for x in range(5):
            for band, (cube, index, low, high) in enumerate(
                [(vnir, 3, 0, 1.2), (vnir, 2, 0, 1.2), (swir, 1, 0.1, 0.9), (vnir, 1, 0, 1.2), (swir, 0, 0.1, 0.9)]
            ):
                number = int(cube[y, index, x])
                made[y, x, band] = low + number * (high - low) / 65535 if number else np.nan
    return made


def test_both_detectors_make_one_cube_sorted_by_wavelength(tmp_path):
    vnir, swir = write_prisma(tmp_path / "PRS_L2D_STD.he5")
    cube = open_cube(tmp_path / "PRS_L2D_STD.he5")
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.dtype == np.float32
    assert cube.chunks is not None
    assert cube.attrs == {"sensor": "PRISMA", "units": "1"}
    assert cube.wavelength.values.tolist() == SORTED
    assert cube.wavelength.attrs["units"] == "nm"
    assert cube.fwhm.values.tolist() == [11, 12, 10, 13, 9]
    np.testing.assert_allclose(cube.values, expected_cube(vnir, swir), rtol=1e-6)
    assert int(np.isnan(cube.values).sum()) == 6
    assert describe_bands(cube, find_band_dim(cube)).unit == "nm"


def test_corners_are_centres_of_pixels(tmp_path):
    write_prisma(tmp_path / "PRS_L2D_STD.he5")
    cube = open_cube(tmp_path / "PRS_L2D_STD.he5")
    assert cube.rio.crs.to_epsg() == 32632
    assert cube.rio.transform() == Affine(30, 0, 300000, 0, -30, 5000220)
    assert cube.spatial_ref.attrs["GeoTransform"] == "300000.0 30.0 0.0 5000220.0 0.0 -30.0"
    assert (cube.x.values[0], cube.y.values[0]) == (300015, 5000205)
    maps = cube.isel(wavelength=0, drop=True).to_dataset(name="water")
    save_maps(maps, tmp_path / "maps.tif")
    assert open_cube(tmp_path / "maps.tif").rio.transform() == cube.rio.transform()


def test_any_window_of_the_file_is_read_right(tmp_path):
    write_prisma(tmp_path / "PRS_L2D_STD.he5")
    cube = open_cube(tmp_path / "PRS_L2D_STD.he5", chunks={"y": 4, "x": 3, "wavelength": 2})
    assert cube.chunks == ((4, 2), (3, 2), (2, 2, 1))
    whole = open_cube(tmp_path / "PRS_L2D_STD.he5", chunks=None)
    assert isinstance(whole.data, np.ndarray)
    np.testing.assert_array_equal(cube.values, whole.values)
    for key in (np.s_[::-1, 1:4:2, -1], np.s_[5, :0, 1:], np.s_[4:1:-2, ::2, ::-2]):
        np.testing.assert_array_equal(cube[key].values, whole.values[key])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cube)).values, whole.values)


@pytest.mark.parametrize(
    "key",
    [np.s_[::-1, 1:4:2], np.s_[4, -2], np.s_[4:1:-2, ::3], np.s_[:0, 2:], np.s_[3::-3, [3, 0, 0]], np.s_[..., ::-2]],
)
def test_an_array_still_in_the_file_is_indexed_like_one_in_memory(key):
    values = np.arange(30).reshape(6, 5)
    asked = []

    def read(window):
        asked.append(window)
        return values[window]

    array = xr.Variable(("y", "x"), indexing.LazilyIndexedArray(FileArray(values.shape, values.dtype, read)))
    plain = xr.Variable(("y", "x"), values)
    np.testing.assert_array_equal(array[key].values, plain[key].values)
    assert all(part.step is None for part in asked[0])


def test_one_detector_may_be_chosen(tmp_path):
    write_prisma(tmp_path / "PRS_L2D_STD.he5")
    whole = open_cube(tmp_path / "PRS_L2D_STD.he5")
    swir = open_cube(tmp_path / "PRS_L2D_STD.he5", variable="SWIR")
    vnir = open_cube(tmp_path / "PRS_L2D_STD.he5", variable="vnir_cube")
    assert swir.wavelength.values.tolist() == [942.5, 2496.5]
    np.testing.assert_array_equal(vnir.values, whole.isel(wavelength=[0, 1, 3]).values)
    assert vnir.isel(wavelength=slice(2)).data.name != swir.data.name
    with pytest.raises(ValueError, match="variable='PAN' is no detector"):
        open_cube(tmp_path / "PRS_L2D_STD.he5", variable="PAN")


def test_a_swath_keeps_its_latitudes_and_longitudes(tmp_path):
    write_prisma(tmp_path / "PRS_L2C_STD.he5", level="2C")
    cube = open_cube(tmp_path / "PRS_L2C_STD.he5")
    assert cube.rio.crs is None
    assert cube.lat.values[3, 0] == 48
    assert cube.lon.values[0, 2] == 12
    assert cube.lat.attrs["units"] == "degrees_north"


def _attribute(name, value):
    def change(file):
        del file.attrs[name]
        if value is not None:
            file.attrs[name] = value

    return change


def _without(name):
    def change(file):
        del file[f"HDFEOS/{name}"]

    return change


def _smaller_swir(file):
    _without("SWATHS/PRS_L2D_HCO/Data Fields/SWIR_Cube")(file)
    file["HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/SWIR_Cube"] = np.ones((6, 3, 4), np.uint16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("SWATHS"), "has no group HDFEOS/SWATHS"),
        (_without("SWATHS/PRS_L2D_HCO/Data Fields/VNIR_Cube"), "has no cube .*VNIR_Cube"),
        (_smaller_swir, r"VNIR \(6, 4, 5\) and SWIR \(6, 3, 4\) differ in size"),
        (_attribute("List_Cw_Vnir", None), "attribute 'List_Cw_Vnir' is missing"),
        (_attribute("List_Cw_Swir", np.zeros(4)), "4 wavelengths for 3 SWIR bands"),
        (_attribute("List_Cw_Swir", np.array([2.4965, 0.9425, 0])), "contradict|not positive|nm"),
        (_attribute("L2ScaleVnirMax", None), "attribute 'L2ScaleVnirMax' is missing"),
        (_attribute("L2ScaleVnirMax", np.float32(-1)), "L2ScaleVnirMin 0 is not below L2ScaleVnirMax -1"),
        (_attribute("Epsg_Code", np.uint32(7)), "CRS '7' is not understood"),
        (_attribute("Epsg_Code", np.bytes_("UTM")), "'Epsg_Code' is .* where a number belongs"),
        (_attribute("Product_LRcorner_easting", 300500.0), "17.17 pixels of 30 m apart along x, where the cube has 5"),
        (
            lambda file: file.move("HDFEOS/SWATHS/PRS_L2D_HCO", "HDFEOS/SWATHS/PRS_L1_HCO"),
            "is of Level 1; .* 2B, 2C, 2D",
        ),
    ],
)
def test_a_damaged_layout_is_one_clear_error(tmp_path, change, message):
    path = tmp_path / "PRS_L2D_STD.he5"
    write_prisma(path)
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(ValueError, match=rf"PRS_L2D_STD\.he5: .*({message})") as caught:
        prisma.read(path)
    assert "\n" not in str(caught.value)


def test_a_product_is_known_by_its_groups_whatever_its_name(tmp_path):
    write_prisma(tmp_path / "scene.h5")
    head = (tmp_path / "scene.h5").read_bytes()[:4096]
    assert prisma.matches(tmp_path / "scene.h5", head)
    assert not prisma.matches(tmp_path, b"")
    with h5py.File(tmp_path / "scene.h5", "r+") as file:
        del file["HDFEOS"]
    assert not prisma.matches(tmp_path / "scene.h5", head)
