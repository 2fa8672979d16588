"""What stands for no data is NaN in every format, by one rule, and told where the file does not say so."""

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import xarray as xr

from files import write_envi, write_raster
from specinvert import open_cube
from specinvert.io.reading import open_dataset
from specinvert.io.reading.convention import fill_places

WAVELENGTHS = [500.0, 600.0, 700.0]
LOWEST = float(np.finfo(np.float32).min)
FILLS = [-9999.0, LOWEST, 9.96921e36, -32768.0]
TOLD = "values that the file does not declare as fills are taken for no data"


def image(fill: float, dtype: str = "f4") -> np.ndarray:
    values = np.full((2, 3, 3), 0.25 if dtype == "f4" else 2500, dtype)
    values[0, 1, 2] = fill
    return values


def netcdf(path: Path, values: np.ndarray, **attrs: object) -> Path:
    coords = {"wavelength": ("wavelength", WAVELENGTHS, {"units": "nm"})}
    xr.DataArray(values, dims=("y", "x", "wavelength"), coords=coords, name="r", attrs=attrs).to_netcdf(
        path, encoding={"r": {"_FillValue": None}}
    )
    return path


def written(folder: Path, kind: str, values: np.ndarray) -> Path:
    """The image as a file that declares no fill."""
    if kind == "envi":
        return write_envi(folder, values.transpose(2, 0, 1))
    if kind == "tif":
        return write_raster(folder / "c.tif", values.transpose(2, 0, 1))
    if kind == "mat":
        scipy.io.savemat(folder / "c.mat", {"cube": values, "wavelength": WAVELENGTHS})
        return folder / "c.mat"
    if kind == "csv":
        rows = [",".join(map(str, row)) for row in values.reshape(-1, 3)]
        (folder / "c.csv").write_text("\n".join(["500,600,700", *rows]))
        return folder / "c.csv"
    return netcdf(folder / "c.nc", values)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("kind", ["envi", "tif", "mat", "nc"])
def test_a_fill_that_no_file_declares_is_missing_and_told(tmp_path: Path, kind: str, fill: float) -> None:
    path = written(tmp_path, kind, image(fill))
    with pytest.warns(UserWarning, match=f"{path}: {TOLD}"):
        values = open_cube(path).values
    assert np.argwhere(np.isnan(values)).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("fill", FILLS)
def test_a_table_has_the_same_fills(tmp_path: Path, fill: float) -> None:
    values = open_cube(written(tmp_path, "csv", image(fill))).values
    assert np.argwhere(np.isnan(values)).tolist() == [[1, 2]]


@pytest.mark.parametrize(("dtype", "fill"), [("i2", -32768), ("i2", -9999), ("u2", 65535), ("i4", -2147483647)])
def test_ends_of_integer_types_are_missing(tmp_path: Path, dtype: str, fill: int) -> None:
    path = write_raster(tmp_path / "c.tif", image(fill, dtype).transpose(2, 0, 1))
    with pytest.warns(UserWarning, match=TOLD):
        assert np.isnan(open_cube(path).values).sum() == 1


def test_declared_fills_negative_reflectance_and_small_types_are_not_told(tmp_path: Path) -> None:
    declared = write_raster(tmp_path / "c.tif", image(LOWEST).transpose(2, 0, 1), nodata=-3.402823e38)
    negative = written(tmp_path, "nc", image(-0.02))
    assert np.isnan(open_cube(declared).values).sum() == 1
    assert open_cube(negative).values.min() == np.float32(-0.02)
    assert not fill_places(np.array([255, 0], np.uint8), np.dtype(np.uint8)).any()


def test_packed_fills_and_values_far_out_of_the_valid_range_are_missing_in_netcdf(tmp_path: Path) -> None:
    packed = netcdf(tmp_path / "p.nc", image(-9999, "i2"), scale_factor=1e-4)
    ranged = netcdf(tmp_path / "v.nc", image(-99.0), valid_range=np.array([0.0, 1.0]))
    slightly = netcdf(tmp_path / "s.nc", image(-0.02), valid_range=np.array([0.0, 1.0]))
    for path in (packed, ranged):
        with pytest.warns(UserWarning, match=TOLD):
            assert np.isnan(open_cube(path).values).sum() == 1
    assert open_cube(slightly).values.min() == np.float32(-0.02)


def test_a_training_set_has_no_fills_either(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=TOLD):
        assert np.isnan(open_dataset(netcdf(tmp_path / "t.nc", image(9.96921e36))).r.values).sum() == 1
