"""PACE OCI Level 2 files open from their groups by the one convention."""

import h5py
import netCDF4
import numpy as np
import pytest
from hdf_products import write_pace

from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.open import open_cube
from specinvert.io.readers import pace


@pytest.mark.parametrize("variable", ["rhos", "Rrs", "other"])
def test_a_cube_is_unpacked_and_has_its_place_and_flags(tmp_path, variable):
    numbers = write_pace(tmp_path / "scene.nc", variable)
    cube = open_cube(tmp_path / "scene.nc")
    assert cube.name == variable
    assert cube.dims == ("number_of_lines", "pixels_per_line", "wavelength")
    assert cube.dtype == np.float32
    assert cube.chunks[2] == (2,)
    expected = np.where(numbers == -32767, np.nan, numbers * 2e-5 + 0.4)
    np.testing.assert_allclose(cube.values, expected, rtol=1e-4, atol=1e-6)
    assert cube.attrs == {"sensor": "PACE OCI", "units": "1"}
    assert cube.wavelength.values.tolist() == [555, 2258]
    assert describe_bands(cube, find_band_dim(cube)).unit == "nm"
    assert cube.lat.values[2, 0] == 28
    assert cube.lon.values[0, 2] == 22
    assert cube.lon.attrs["standard_name"] == "longitude"
    assert cube.l2_flags.values[3, 1] == 10
    assert cube.l2_flags.attrs["flag_meanings"] == "ATMFAIL LAND"


def test_reflectance_comes_before_other_cubes_and_others_by_name(tmp_path):
    write_pace(tmp_path / "scene.nc", "Rrs")
    with netCDF4.Dataset(tmp_path / "scene.nc", "a") as file:
        dims = ("number_of_lines", "pixels_per_line", "wavelength_3d")
        file["geophysical_data"].createVariable("Rrs_unc", "f4", dims)[:] = 0.25
    assert open_cube(tmp_path / "scene.nc").name == "Rrs"
    chosen = open_cube(tmp_path / "scene.nc", chunks={"wavelength_3d": 1, "number_of_lines": 2}, variable="Rrs_unc")
    assert chosen.chunks == ((2, 2), (3,), (1, 1))
    assert (chosen.values == 0.25).all()
    with pytest.raises(ValueError, match="no cube 'rhos'; the cubes over 'wavelength_3d' are Rrs, Rrs_unc"):
        open_cube(tmp_path / "scene.nc", variable="rhos")
    assert isinstance(open_cube(tmp_path / "scene.nc", chunks=None).data, np.ndarray)


def test_the_netcdf_reader_reaches_into_groups_too(tmp_path):
    numbers = write_pace(tmp_path / "scene.nc")
    cube = open_cube(tmp_path / "scene.nc", variable="/geophysical_data/rhos", reader="netcdf")
    assert cube.dims == ("number_of_lines", "pixels_per_line", "wavelength_3d")
    assert cube.dtype == np.float32
    np.testing.assert_allclose(cube.values[0], numbers[0] * 2e-5 + 0.4, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="has no group 'other'"):
        open_cube(tmp_path / "scene.nc", variable="other/rhos", reader="netcdf")


def _without(name):
    def change(path):
        with h5py.File(path, "r+") as file:
            del file[name]

    return change


def _unit(path):
    with netCDF4.Dataset(path, "a") as file:
        file["sensor_band_parameters/wavelength_3d"].units = "parsec"


def _one_wavelength_less(path):
    _without("sensor_band_parameters/wavelength_3d")(path)
    with netCDF4.Dataset(path, "a") as file:
        parameters = file["sensor_band_parameters"]
        parameters.createDimension("wavelength_3d", 1)
        parameters.createVariable("wavelength_3d", "i4", ("wavelength_3d",))[:] = [555]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("geophysical_data"), "no group 'geophysical_data'"),
        (_without("sensor_band_parameters"), "no group 'sensor_band_parameters'"),
        (_without("navigation_data"), "no group 'navigation_data'"),
        (_without("geophysical_data/rhos"), "no cube over 'wavelength_3d' .*only l2_flags"),
        (_without("sensor_band_parameters/wavelength_3d"), "has no wavelengths of the cubes"),
        (_without("navigation_data/longitude"), "group 'navigation_data' lacks longitude"),
        (_one_wavelength_less, "1 wavelengths for 2 bands"),
        (_unit, "'parsec' .*not understood"),
    ],
)
def test_a_damaged_layout_is_one_clear_error(tmp_path, change, message):
    path = tmp_path / "PACE_OCI.nc"
    write_pace(path)
    change(path)
    with pytest.raises(ValueError, match=rf"PACE_OCI\.nc: .*{message}") as caught:
        open_cube(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda whole: whole[: len(whole) // 2], "damaged or truncated"),
        (lambda whole: b"sample,500\n1,0.2\n", "not a netCDF file"),
        (lambda whole: b"", "the file is empty"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, damage, message):
    path = tmp_path / "PACE_OCI.nc"
    write_pace(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"PACE_OCI\.nc: .*{message}"):
        open_cube(path)


def test_a_file_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    write_pace(tmp_path / "scene.nc")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("xarray.open_dataset", refuse)
    with pytest.raises(PermissionError, match=r"scene\.nc: no permission to read"):
        pace.read(tmp_path / "scene.nc")


def test_a_netcdf_file_of_another_kind_is_not_claimed(tmp_path):
    write_pace(tmp_path / "scene.nc")
    head = (tmp_path / "scene.nc").read_bytes()[:4096]
    assert pace.matches(tmp_path / "scene.nc", head)
    assert not pace.matches(tmp_path, b"")
    _without("geophysical_data")(tmp_path / "scene.nc")
    _without("sensor_band_parameters")(tmp_path / "scene.nc")
    assert not pace.matches(tmp_path / "scene.nc", head)
