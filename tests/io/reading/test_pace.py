"""PACE OCI Level 2 files open from their groups by the one convention."""

import h5py
import netCDF4
import numpy as np
import pytest

from hdf_products import write_pace
from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.reading.open import open_cube
from specinvert.io.reading.products import pace


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
    with pytest.raises(
        ValueError, match="no cube 'rhos'; the cubes over 'wavelength_3d' in group 'geophysical_data' are Rrs, Rrs_unc"
    ):
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


def test_a_netcdf_file_of_another_kind_is_not_claimed(tmp_path):
    write_pace(tmp_path / "scene.nc")
    head = (tmp_path / "scene.nc").read_bytes()[:4096]
    assert pace.matches(tmp_path / "scene.nc", head)
    assert not pace.matches(tmp_path, b"")
    with h5py.File(tmp_path / "scene.nc", "r+") as file:
        del file["geophysical_data"], file["sensor_band_parameters"]
    assert not pace.matches(tmp_path / "scene.nc", head)
