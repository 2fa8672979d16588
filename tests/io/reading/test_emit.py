"""EMIT products open by the one convention, with their hidden fills found and their lookup table at hand."""

import pickle

import dask
import h5py
import netCDF4
import numpy as np
import pytest

from hdf_products import EMIT_WAVELENGTHS, write_emit
from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.io.reading.open import open_cube
from specinvert.io.reading.products import emit
from specinvert.io.reading.products.emit import read_lookup


def test_reflectance_has_wavelengths_place_and_nan_for_both_fills(tmp_path):
    stored = write_emit(tmp_path / "scene.nc")
    cube = open_cube(tmp_path / "scene.nc")
    assert cube.dims == ("downtrack", "crosstrack", "wavelength")
    assert cube.dtype == np.float32
    assert cube.chunks is not None
    expected = stored.copy()
    expected[1, 2] = np.nan
    expected[:, :, 1] = np.nan
    np.testing.assert_array_equal(cube.values, expected)
    assert cube.values[2, 3, 0] == np.float32(-0.01), "a good band keeps a value near zero"
    assert cube.attrs == {"sensor": "EMIT", "units": "unitless"}
    np.testing.assert_array_equal(cube.wavelength, EMIT_WAVELENGTHS)
    assert cube.wavelength.attrs["units"] == "nm"
    assert describe_bands(cube, find_band_dim(cube)).unit == "nm"
    np.testing.assert_allclose(cube.fwhm, [8.5, 8.6, 8.7], rtol=1e-6)
    assert cube.good.values.tolist() == [True, False, True]
    assert cube.good.dtype == bool
    assert cube.lat.values[2, 0] == 48.0
    assert cube.lon.values[0, 3] == 13.0
    assert cube.lat.attrs == {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north"}
    assert cube.elev.attrs["units"] == "m"
    assert cube.elev.values[3, 1] == 103.0


def test_blocks_hold_all_bands_and_those_of_the_place_align(tmp_path):
    write_emit(tmp_path / "scene.nc")
    with dask.config.set({"array.chunk-size": "120B"}):
        cube = open_cube(tmp_path / "scene.nc")
    assert cube.chunks[2] == (3,)
    assert len(cube.chunks[0]) * len(cube.chunks[1]) > 1
    assert cube.lat.chunks == cube.chunks[:2]
    by_hand = open_cube(tmp_path / "scene.nc", chunks={"downtrack": 2, "bands": 1})
    assert by_hand.chunks == ((2, 2, 2), (5,), (1, 1, 1))
    read = open_cube(tmp_path / "scene.nc", chunks=None)
    assert isinstance(read.data, np.ndarray)
    assert isinstance(read.lat.data, np.ndarray)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cube)).values, read.values)


def test_other_cubes_of_the_layout_open_by_name_or_alone(tmp_path):
    stored = write_emit(tmp_path / "radiance.nc", variable="radiance")
    np.testing.assert_array_equal(open_cube(tmp_path / "radiance.nc").values[0, 0, 0], stored[0, 0, 0])
    with netCDF4.Dataset(tmp_path / "radiance.nc", "a") as file:
        file.createVariable("uncertainty", "f4", ("downtrack", "crosstrack", "bands"))[:] = 0.25
    with pytest.raises(ValueError, match=r"several cubes \(radiance, uncertainty\); pass variable="):
        open_cube(tmp_path / "radiance.nc")
    assert (open_cube(tmp_path / "radiance.nc", variable="uncertainty").values == 0.25).all()
    with pytest.raises(ValueError, match=r"no cube 'rho'; .* are radiance, uncertainty"):
        open_cube(tmp_path / "radiance.nc", variable="rho")


def test_the_lookup_table_is_reachable(tmp_path):
    write_emit(tmp_path / "scene.nc")
    lookup = read_lookup(tmp_path / "scene.nc")
    assert lookup.shape == (4, 7)
    assert lookup.transform == (10.0, 0.5, 0.0, 50.0, 0.0, -0.5)
    assert lookup.swath == (6, 5)
    assert lookup.x[0] == 10.25
    assert lookup.y[-1] == 50.0 - 3.5 * 0.5
    assert (lookup.glt_x[0, 2], lookup.glt_y[0, 2]) == (5, 3)
    assert (lookup.glt_x[0, :2] == 0).all()


def test_a_file_without_a_lookup_table_says_so(tmp_path):
    write_emit(tmp_path / "scene.nc")
    with h5py.File(tmp_path / "scene.nc", "r+") as file:
        del file.attrs["geotransform"], file["location/glt_x"]
    with pytest.raises(ValueError, match=r"scene\.nc: has no lookup table to a map, glt_x, geotransform missing"):
        read_lookup(tmp_path / "scene.nc")


def test_only_emit_files_are_claimed(tmp_path):
    write_emit(tmp_path / "scene.nc")
    head = (tmp_path / "scene.nc").read_bytes()[:4096]
    assert emit.matches(tmp_path / "scene.nc", head)
    assert not emit.matches(tmp_path, b"")
    with netCDF4.Dataset(tmp_path / "scene.nc", "a") as file:
        file.setncatts({"instrument": "REMIT", "sensor": "other"})
    assert not emit.matches(tmp_path / "scene.nc", head)
