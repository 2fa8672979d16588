"""netCDF cubes give the one cube convention."""

from pathlib import Path

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from affine import Affine

from files import UTM, netcdf_cube
from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.reading.open import open_cube, open_dataset

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)


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


@pytest.mark.parametrize(("key", "value"), [("Scale_Factor", 1e-4), ("reflectance_scale_factor", 1e4), ("scale", 1e4)])
def test_a_scale_that_only_other_readers_would_know_is_applied(tmp_path, key, value):
    dataset = netcdf_cube()
    fractions = dataset.reflectance.values.copy()
    dataset["reflectance"] = (1e4 * dataset.reflectance).assign_attrs({key: value})
    dataset.to_netcdf(tmp_path / "cube.nc")
    cube = open_cube(tmp_path / "cube.nc")
    assert key not in cube.attrs
    np.testing.assert_allclose(cube.values, fractions, rtol=1e-6)
    np.testing.assert_allclose(open_dataset(tmp_path / "cube.nc").reflectance.values, fractions, rtol=1e-6)
