"""Files that cannot be read are told in one line, when they are opened."""

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr

from files import enmap_like, write_envi, write_raster
from specinvert.io.reading.open import open_cube

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)


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
