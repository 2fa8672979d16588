"""Choosing bands by wavelength and by lists of bad bands, and bands marked bad at inversion."""

import logging
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, WAVELENGTHS, assert_close, fitted, make_cube, make_training, refuses
from specinvert import GLLiMInverter
from specinvert.cubes.request import read_request, select_bands

GRID = np.array([450.0, 1349.0, 1350.0, 1400.0, 1450.0, 1451.0, 1900.0, 2200.0])
LEFT = [450.0, 1349.0, 1451.0, 2200.0]
PARTIAL = 2


def cube_of(dims: tuple[str, ...] = ("y", "x", "band"), dtype: Any = np.float64, unit: str = "nm") -> xr.DataArray:
    """A cube of other bands, water vapour among them, with negative values and coordinates of all kinds."""
    cube = make_cube(dtype=dtype).drop_vars("wavelength") - dtype(0.5)
    scale = {"nm": 1.0, "um": 1e-3, "m": 1e-9}[unit]
    cube = cube.assign_coords(wavelength=("band", GRID * scale, {"units": unit}), fwhm=("band", np.full(8, 10 * scale)))
    cube.attrs = {"units": "1", "history": "made"}
    cube.encoding = {"grid_mapping": "spatial_ref"}
    return cube.transpose(*dims)


@pytest.mark.parametrize("unit", ["nm", "um", "m"])
@pytest.mark.parametrize("dims", [("y", "x", "band"), ("band", "y", "x")])
def test_water_vapour_is_left_out_whatever_the_unit_and_the_order(unit: str, dims: tuple[str, ...]) -> None:
    cube = cube_of(dims, unit=unit)
    found = select_bands(cube)
    keep = np.isin(GRID, LEFT)
    xr.testing.assert_identical(found.drop_attrs(), cube.isel(band=keep).drop_attrs())
    assert found.encoding["grid_mapping"] == "spatial_ref"
    assert found.attrs["units"] == "1"
    made, line = found.attrs["history"].split("\n")
    assert made == "made"
    assert line.endswith("select_bands: 4 of 8 bands kept, 4 in 1350 to 1450, 1800 to 1950 nm left out")
    masked = select_bands(cube, drop=False)
    assert masked.dims == dims
    xr.testing.assert_equal(masked, cube.where(xr.DataArray(keep, dims="band")))
    assert masked.encoding["grid_mapping"] == "spatial_ref"
    assert "4 of 8 bands kept, the others NaN" in masked.attrs["history"]


def test_ranges_to_keep_and_bad_bands_are_left_out_together() -> None:
    good = np.array([1, 1, 1, 1, 1, 1, 1, 0])
    cube = cube_of().assign_coords(good=("band", good))
    assert select_bands(cube).wavelength.values.tolist() == LEFT[:3]
    assert select_bands(cube, good_only=False).wavelength.values.tolist() == LEFT
    found = select_bands(cube, exclude=(), keep=[(400, 1349), (1900, 2500)])
    assert found.wavelength.values.tolist() == [450.0, 1349.0, 1900.0]
    assert found.attrs["history"].endswith("4 outside 400 to 1349, 1900 to 2500 nm left out; 1 marked bad left out")
    everything = select_bands(cube, exclude=(), good_only=False)
    assert everything.attrs["history"].endswith("8 of 8 bands kept, all bands")
    np.testing.assert_array_equal(everything, cube)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("drop", [True, False])
def test_negative_values_are_kept_or_made_missing_or_zero(dtype: Any, drop: bool) -> None:
    cube = cube_of(dtype=dtype)
    cube[0, 0, 0] = np.nan
    assert int((cube < 0).sum()) > 20
    options = {"exclude": (), "drop": drop}
    np.testing.assert_array_equal(select_bands(cube, **options), cube)
    missing, zero = (select_bands(cube, negative=policy, **options) for policy in ("nan", "clip"))
    np.testing.assert_array_equal(missing, cube.where(cube >= 0))
    np.testing.assert_array_equal(zero, np.maximum(cube, 0))
    assert missing.dtype == zero.dtype == dtype
    assert missing.attrs["history"].endswith("negative values made NaN")
    assert zero.attrs["history"].endswith("negative values made 0")


def test_values_that_stand_for_nodata_are_not_taken_for_negative_reflectance() -> None:
    cube = cube_of()
    cube.attrs["_FillValue"] = -9999.0
    cube[1, 2, 3] = -9999.0
    for policy in ("nan", "clip"):
        assert np.isnan(select_bands(cube, exclude=(), negative=policy)[1, 2, 3])
    cube.attrs["scale_factor"] = 1e-4
    with refuses(ValueError, "the cube: packed numbers"):
        select_bands(cube, negative="clip")


@pytest.mark.parametrize("drop", [True, False])
def test_lazy_cubes_stay_lazy_and_give_the_same(drop: bool) -> None:
    cube = cube_of(dtype=np.float32)
    options = {"negative": "clip", "drop": drop}
    lazy = select_bands(cube.chunk(y=2), **options)
    assert lazy.chunks is not None
    xr.testing.assert_equal(lazy.compute(), select_bands(cube, **options))
    assert lazy.dtype == np.float32


def test_a_dataset_loses_the_bands_of_all_variables_but_only_spectra_are_masked() -> None:
    cube = cube_of()
    data = xr.Dataset({"reflectance": cube, "sun": ("band", np.arange(8.0)), "mask": (("y", "x"), np.ones((5, 6)))})
    data.attrs["title"] = "scene"
    found = select_bands(data, spectra="reflectance")
    assert found["sun"].values.tolist() == [0.0, 1.0, 5.0, 7.0]
    assert found["reflectance"].sizes["band"] == 4
    assert found.attrs["title"] == "scene"
    assert "4 of 8 bands kept" in found.attrs["history"]
    assert found["reflectance"].attrs == cube.attrs
    masked = select_bands(data, spectra="reflectance", drop=False)
    xr.testing.assert_identical(masked["sun"], data["sun"])
    assert int(masked["reflectance"].isnull().sum()) == 4 * 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": [(1450, 1350)]}, "exclude holds (1450, 1350): give pairs (low, high) in nm"),
        ({"exclude": (1350, 1450)}, "exclude holds 1350: give pairs"),
        ({"keep": [("a", "b")]}, "keep holds ('a', 'b')"),
        ({"keep": [(3000, 4000)]}, "none of the 8 bands is left"),
        ({"negative": "zero"}, "negative='zero' must be"),
    ],
)
def test_a_selection_that_is_none_is_refused(options: dict[str, Any], message: str) -> None:
    with refuses(ValueError, message):
        select_bands(cube_of(), **options)


def test_bands_without_wavelengths_are_selected_by_the_list_of_bad_bands_only() -> None:
    cube = cube_of().drop_vars(["wavelength", "fwhm"]).assign_coords(good=("band", np.arange(8) > 2))
    with refuses(ValueError, "no wavelengths to select by", "exclude=()"):
        select_bands(cube, band_dim="band")
    assert select_bands(cube, exclude=(), band_dim="band").sizes["band"] == 5
    with refuses(TypeError, "ndarray"):
        select_bands(cube.values)
    with refuses(ValueError, "'good' along 'band' holds 0, 1, 2"):
        select_bands(cube.assign_coords(good=("band", np.arange(8))), exclude=(), band_dim="band")


def bad(*bands: int) -> xr.DataArray:
    """A cube in the bands of training, some marked bad and full of nonsense."""
    cube = make_cube()
    cube[..., list(bands)] = 7.0
    return cube.assign_coords(good=("band", ~np.isin(np.arange(8), bands)))


@pytest.mark.parametrize("chunks", [None, {"y": 2}])
def test_bands_marked_bad_count_as_missing_at_inversion(chunks: Any, caplog: pytest.LogCaptureFixture) -> None:
    cube = bad(1, 6) if chunks is None else bad(1, 6).chunk(chunks)
    expected = fitted(1).invert(make_cube().where(xr.DataArray(bad(1, 6).good.values, dims="band")))
    with caplog.at_level(logging.INFO, logger="specinvert"):
        found = fitted(1).invert(cube)
    assert "2 of 8 bands are marked bad in the cube (good is False) and count as missing" in caplog.text
    assert_close(found.drop_vars("good", errors="ignore"), expected)
    assert (found["quality_flag"] & PARTIAL).all()


def test_a_request_says_which_bands_are_missing_and_leaves_cubes_without_any_alone() -> None:
    model = fitted(1).model_

    def request(cube: xr.DataArray) -> Any:
        return read_request(cube, model.labels)

    whole = make_cube().assign_coords(good=("band", np.ones(8)))
    assert request(whole).remarks == ()
    assert np.shares_memory(request(whole).cube.values, whole.values)
    spoiled = request(bad(3))
    (remark,) = spoiled.remarks
    assert remark.startswith("1 of 8 bands are marked bad")
    assert spoiled.cube.attrs == make_cube().attrs
    assert request((bad(3) * 100).astype("i2")).dtype == np.float64
    with refuses(ValueError, "all 8 bands of the model are marked bad", "drop_vars('good')"):
        request(bad(*range(8)))


def test_a_cube_with_more_bands_in_another_order_gives_the_same_maps() -> None:
    cube = make_cube()
    extra = cube.isel(band=[0, 3]).assign_coords(wavelength=("band", [1500.0, 452.0], {"units": "nm"})) * 0 + 9
    more = xr.concat([extra, cube[..., ::-1]], dim="band")
    assert_close(fitted(1).invert(more), fitted(1).invert(cube))


def test_a_dropped_band_is_an_error_that_says_what_to_do_and_a_masked_one_is_missing() -> None:
    dropped = select_bands(make_cube(), exclude=[(600, 620)])
    with refuses(ValueError, "1 of 8 bands have no partner", "610.00 nm", "fit(training, sensor=cube)", "drop=False"):
        fitted(1).invert(dropped)
    masked = select_bands(make_cube(), exclude=[(600, 620)], drop=False)
    assert_close(fitted(1).invert(masked), fitted(1).invert(make_cube().where(make_cube().wavelength != 610.0)))


def test_a_model_of_selected_bands_fits_cubes_of_all_and_of_selected_bands() -> None:
    training = select_bands(make_training(), exclude=[(600, 620)])
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(training)
    np.testing.assert_array_equal(inverter.model_.bands.wavelength, WAVELENGTHS[WAVELENGTHS != 610.0])
    assert_close(inverter.invert(make_cube()), inverter.invert(select_bands(make_cube(), exclude=[(600, 620)])))
