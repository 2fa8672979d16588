"""Labelled data as xarray's users have them: byte orders, attributes, indexes, names and chunks of every kind."""

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from labelled import (
    PARAMETERS,
    QUICK,
    WAVELENGTHS,
    assert_close,
    assert_same_fit,
    fitted,
    make_cube,
    make_training,
    make_truth,
    refuses,
)
from specinvert import GLLiMInverter, load_inverter

PIXELS = ("y", "x")
EVERY = ("mean", "std", "flag", "cov", "latent", "draws3", "modes2", "residual", "log_evidence")


def fit(training: Any, **options: Any) -> GLLiMInverter:
    return GLLiMInverter(n_latent=1, **QUICK).fit(training, **({"parameters": PARAMETERS} | options))


def holes() -> xr.DataArray:
    """Pixels (y, x), True in two of them."""
    places = np.zeros((5, 6), dtype=bool)
    places[0, 0] = places[2, 3] = True
    return xr.DataArray(places, dims=PIXELS)


def filled(array: xr.DataArray, where: xr.DataArray) -> xr.DataArray:
    """The array with -9999 in places, which its attributes name as fill value."""
    return array.where(~where, -9999.0).assign_attrs(array.attrs, _FillValue=-9999.0)


@pytest.mark.filterwarnings("ignore:the values of the spectra are about")
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("dtype", [">f4", ">f8", "f2", "longdouble", ">i2"])
def test_training_does_not_depend_on_how_numbers_are_stored(dtype: str, lazy: bool) -> None:
    training = make_training()
    stored = (100 * training if dtype == ">i2" else training).astype(dtype)
    stored = stored.chunk(sample=40) if lazy else stored
    plain = stored.astype(np.float32 if dtype == ">f4" else np.float64)
    assert_same_fit(fit(stored), fit(plain), rtol=0.0 if dtype != ">i2" else 1e-12)


def test_fill_values_left_in_attributes_are_missing_in_training_spectra_and_parameters() -> None:
    training = make_training()
    odd = xr.DataArray(np.arange(150) % 50 == 3, dims="sample")
    expected = fit(training.where(~odd, drop=True))
    for name in ("reflectance", "water"):
        stored = training.assign({name: filled(training[name], odd)})
        with refuses(ValueError, "3 training samples hold NaN", "missing='drop'"):
            fit(stored)
        assert_same_fit(fit(stored, missing="drop"), expected)
        assert_same_fit(fit(stored.chunk(sample=40), missing="drop"), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["reflectance", "water"])
@pytest.mark.parametrize("attrs", [{"scale_factor": 1e-4}, {"add_offset": -100.0}, {"scale_factor": [1.0, 0.1]}])
def test_a_scale_that_is_not_applied_is_refused_wherever_it_is(name: str, attrs: dict[str, Any]) -> None:
    said = ("packed", *attrs, "mask_and_scale=True")
    training, cube, truth = make_training(), make_cube(), make_truth()
    with refuses(ValueError, *said):
        fit(training.assign({name: training[name].assign_attrs(attrs)}))
    test = truth.assign(reflectance=cube)
    packed = test.assign({name: test[name].assign_attrs(attrs)})
    with refuses(ValueError, *said):
        fitted(1).evaluate(packed)
    if name == "water":
        with refuses(ValueError, "known 'water'", *said):
            fitted(1).invert(cube, known=packed[["water"]])
        with refuses(ValueError, "parameter 'water'", *said):
            fitted(1).simulate(packed)
    else:
        with refuses(ValueError, "the cube", *said):
            fitted(1).invert(packed)
    with refuses(ValueError, "noise", *said):
        fitted(1).invert(cube, noise=xr.DataArray(0.01, attrs=attrs))


def test_a_scale_of_one_an_offset_of_nothing_and_attributes_that_are_none_say_nothing() -> None:
    cube = make_cube()
    attrs = {"scale_factor": [1.0, 1.0], "add_offset": 0, "_FillValue": None, "nodata": None, "history": None}
    maps = fitted(1).invert(cube.assign_attrs(attrs))
    xr.testing.assert_equal(maps, fitted(1).invert(cube))
    assert "None" not in maps.attrs["history"]
    training = make_training()
    training["water"].attrs = {"units": None, "long_name": None}
    assert "units" not in fit(training).invert(cube)["water"].attrs


@pytest.mark.parametrize("lazy", [False, True])
def test_fill_values_of_known_parameters_noise_and_truths_are_missing(lazy: bool) -> None:
    cube, truth, places = make_cube(), make_truth(), holes()
    chunks = dict.fromkeys(PIXELS, 3)
    given = filled(truth["water"], places)
    noise = xr.full_like(truth["water"].drop_attrs(), 0.01)
    if lazy:
        cube, given, noise = cube.chunk(chunks), given.chunk(chunks), noise.chunk(chunks)
    missing = truth["water"].where(~places)
    inverter = fitted(1)
    eager = make_cube()
    assert_close(inverter.invert(cube, known={"water": given}), inverter.invert(eager, known={"water": missing}))
    assert_close(
        inverter.invert(cube, noise=filled(noise, places)), inverter.invert(eager, noise=noise.where(~places).compute())
    )
    test = truth.assign(reflectance=cube)
    assert_close(inverter.evaluate(test.assign(water=given)), inverter.evaluate(test.assign(water=missing)))
    assert_close(inverter.simulate(truth.assign(water=given)), inverter.simulate(truth.assign(water=missing)))


def test_masked_arrays_of_noise_and_weights_are_not_taken_for_what_is_under_the_mask() -> None:
    masked = np.ma.masked_array(np.full(8, 0.01), [False] * 7 + [True])
    with refuses(ValueError, "1 of 8 values of noise are NaN"):
        fitted(1).invert(make_cube(), noise=masked)
    with pytest.raises(ValueError, match="weight"):
        fit(make_training(), weights=np.ma.masked_array(np.ones(150), np.arange(150) == 3))


def test_weights_at_other_places_than_the_samples_are_refused() -> None:
    training = make_training().assign_coords(sample=np.arange(150))
    weights = xr.DataArray(np.arange(1.0, 151.0), dims="sample", coords={"sample": training["sample"]})
    assert_same_fit(fit(training, weights=weights), fit(training, weights=weights.values))
    with refuses(ValueError, "weights have other coordinates along 'sample'", "reindex"):
        fit(training, weights=weights.assign_coords(sample=weights["sample"].values[::-1]))


def test_noise_follows_the_labels_of_bands_where_there_are_no_wavelengths() -> None:
    names = [f"B{i:02d}" for i in range(8)]
    training = make_training().drop_vars("wavelength").assign_coords(band=names)
    cube = make_cube().drop_vars("wavelength").assign_coords(band=names)
    noise = xr.DataArray(np.linspace(0.01, 0.1, 8), dims="band", coords={"band": names})
    inverter = fit(training, band_dim="band")
    expected = inverter.invert(cube, noise=noise.values)
    assert_close(inverter.invert(cube, noise=noise.isel(band=slice(None, None, -1))), expected)
    with refuses(ValueError, "band labels differ", "the noise"):
        inverter.invert(cube, noise=noise.assign_coords(band=[*names[:7], "B99"]))


@pytest.mark.parametrize("unit", [1, b"1", np.str_("1"), np.int64(1)])
def test_units_that_are_no_text_are_read_as_text(unit: Any) -> None:
    cube = make_cube().assign_attrs(units=unit)
    xr.testing.assert_equal(fitted(1).invert(cube), fitted(1).invert(make_cube()))
    training = make_training()
    for name in ("reflectance", "dust"):
        training[name].attrs["units"] = unit
    assert fit(training).invert(make_cube())["dust"].attrs["units"] == "1"
    with refuses(ValueError, "{'a': 1}", "'1' is expected"):
        fitted(1).invert(cube.assign_attrs(units={"a": 1}))


def test_wavelengths_whose_unit_is_bytes_are_understood() -> None:
    cube = make_cube().assign_coords(wavelength=("band", WAVELENGTHS, {"units": b"nm"}))
    xr.testing.assert_equal(fitted(1).invert(cube), fitted(1).invert(make_cube()))


def test_chunks_of_unknown_size_are_refused_with_what_helps() -> None:
    values = da.from_array(make_training()["reflectance"].values, chunks=(50, 8))
    table = xr.DataArray(values[values[:, 0] > 0], dims=("p", "band"), coords={"wavelength": ("band", WAVELENGTHS)})
    with refuses(ValueError, "the cube", "unknown size along 'p'", "compute_chunk_sizes()"):
        fitted(1).invert(table)
    known = table.copy(data=table.data.compute_chunk_sizes())
    assert_close(fitted(1).invert(known), fitted(1).invert(known.compute()))


@pytest.mark.parametrize(
    "name", ["parameter", "parameter_2", "latent", "latent_dim", "draw", "mode_rank", "water", "residual"]
)
@pytest.mark.parametrize("values", [3, (PIXELS, np.arange(30.0).reshape(5, 6))])
def test_coordinates_with_names_that_the_maps_need_give_way(name: str, values: Any) -> None:
    cube = make_cube()
    named = cube.assign_coords({name: values, "kept": values})
    expected = fitted(1).invert(cube, outputs=EVERY)
    for given in (named, named.chunk(y=2)):
        maps = fitted(1).invert(given, outputs=EVERY)
        assert_close(maps.drop_vars("kept"), expected)
        xr.testing.assert_equal(maps["kept"].variable, named["kept"].variable)


@pytest.mark.parametrize("name", ["component", "parameter", "parameter_2", "weight", "mean"])
def test_coordinates_with_names_that_the_posterior_needs_give_way(name: str) -> None:
    spectra = make_cube().isel(y=0)
    expected = fitted(1).posterior(spectra)
    assert_close(fitted(1).posterior(spectra.assign_coords({name: 3})), expected)


def test_a_coordinate_of_latents_stays_one_where_no_latents_are_asked_for() -> None:
    values = (PIXELS, np.arange(30.0).reshape(5, 6))
    maps = fitted(1).invert(make_cube().assign_coords(latent=values))
    assert "latent" in maps.coords
    assert list(maps.data_vars) == ["water", "dust", "water_std", "dust_std", "quality_flag"]


@pytest.mark.parametrize(
    "places",
    [
        [1.0, np.nan, 3.0, 4.0, 5.0],
        pd.to_datetime(["2000", None, "2001", "2002", "2003"]),
        xr.date_range("2000", periods=5, calendar="noleap", use_cftime=True),
        np.array(["a", "b", None, "d", "e"], dtype=object),
        [2.0, 2.0, 3.0, 3.0, 3.0],
    ],
)
def test_known_parameters_at_places_of_any_kind_are_those_of_the_pixels(places: Any) -> None:
    cube, water = make_cube().assign_coords(y=places), make_truth()["water"].assign_coords(y=places)
    expected = fitted(1).invert(make_cube(), known={"water": make_truth()["water"]})
    assert_close(fitted(1).invert(cube, known={"water": water}).drop_vars("y"), expected.drop_vars("y"))
    moved = water.assign_coords(y=water["y"].values[::-1])
    if not np.array_equal(pd.Index(moved["y"].values), pd.Index(water["y"].values)):
        with refuses(ValueError, "other coordinates along 'y'"):
            fitted(1).invert(cube, known={"water": moved})


def test_stacked_pixels_take_stacked_conditions_and_unstack_to_the_maps() -> None:
    cube, truth = make_cube(), make_truth()
    stacked = cube.stack(pixel=PIXELS)
    expected = fitted(1).invert(cube, known={"water": truth["water"]}, outputs=EVERY)
    maps = fitted(1).invert(stacked, known={"water": truth["water"].stack(pixel=PIXELS)}, outputs=EVERY)
    assert_close(maps.unstack("pixel").transpose("y", "x", ...), expected)
    with refuses(ValueError, "other coordinates along 'pixel'"):
        fitted(1).invert(stacked, known={"water": truth["water"].stack(pixel=("x", "y"))})
    test = truth.assign(reflectance=cube)
    assert_close(fitted(1).evaluate(test.stack(pixel=PIXELS)), fitted(1).evaluate(test))


@pytest.mark.parametrize(
    "labels",
    [
        [f"B{i:02d}" for i in range(8)],
        np.array([b"B%d" % i for i in range(8)]),
        pd.date_range("2000", periods=8, unit="ns"),
        pd.timedelta_range(0, periods=8),
        xr.date_range("2000", periods=8, calendar="360_day", use_cftime=True),
        pd.period_range("2000", periods=8, freq="M"),
        pd.CategoricalIndex(list("abcdefgh")),
        np.arange(8),
    ],
)
def test_bands_labelled_by_anything_are_matched_by_it_from_a_model_file_too(labels: Any, tmp_path: Any) -> None:
    training = make_training().drop_vars("wavelength").assign_coords(band=labels)
    cube = make_cube().drop_vars("wavelength").drop_attrs().assign_coords(band=labels)
    inverter = fit(training, band_dim="band")
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    expected = inverter.invert(cube)
    assert_close(loaded.invert(cube), expected)
    assert_close(loaded.invert(cube.isel(band=slice(None, None, -1))), expected)
    simulated = inverter.simulate(make_truth())
    assert simulated.identical(loaded.simulate(make_truth()))
    assert simulated["band"].dtype.kind == (
        training["band"].dtype.kind if training["band"].dtype.kind in "mMi" else "U"
    )


def test_bands_labelled_by_several_levels_are_matched_by_all_of_them(tmp_path: Any) -> None:
    levels = pd.MultiIndex.from_product([["visible", "infrared"], range(4)], names=["detector", "number"])
    labels = xr.Coordinates.from_pandas_multiindex(levels, "band")
    cube = make_cube().drop_vars("wavelength").drop_attrs().assign_coords(labels)
    inverter = fit(make_training().drop_vars("wavelength").assign_coords(labels), band_dim="band")
    inverter.to_netcdf(tmp_path / "model.nc")
    backwards = cube.isel(band=slice(None, None, -1))
    assert_close(load_inverter(tmp_path / "model.nc").invert(backwards), inverter.invert(cube))


def test_dimensions_may_have_names_that_are_no_text() -> None:
    training, cube = make_training(), make_cube().drop_vars("y")
    named = cube.to_dataset().rename_dims(y=2, band=1)
    maps = fit(training.rename_dims(sample=0, band=1)).invert(named)
    assert_close(maps.rename_dims({2: "y"}), fit(training).invert(cube))


@pytest.mark.parametrize("name", [0, ("a", "b")])
def test_parameters_whose_names_are_no_text_are_refused_before_training(name: Any) -> None:
    training = make_training().rename(water=name)
    for parameters in (None, [name, "dust"]):
        with refuses(ValueError, repr(name), "no text", ".rename("):
            fit(training, parameters=parameters)


def test_simulated_spectra_keep_all_coordinates_of_the_parameters() -> None:
    truth = make_truth().assign_coords(
        lat=(PIXELS, np.ones((5, 6))), site=("y", list("abcde")), time=np.datetime64("2000-01-01", "ns"), wavelength=3
    )
    spectra = fitted(1).simulate(truth)
    assert set(spectra.coords) == {"y", "x", "spatial_ref", "lat", "site", "time", "wavelength"}
    assert spectra["wavelength"].dims == ("band",)
    np.testing.assert_array_equal(spectra.values, fitted(1).simulate(make_truth()).values)
    with refuses(ValueError, "dimension 'band'", "rename"):
        fitted(1).simulate(make_truth().rename(y="band"))


def test_latents_at_other_places_than_the_parameters_are_refused() -> None:
    latent = xr.DataArray(np.zeros((6, 1)), dims=("x", "latent_dim"), coords={"x": make_truth()["x"] + 30.0})
    with refuses(ValueError, "different places", "'x'", "reindex"):
        fitted(1).simulate(make_truth(), latent)


def test_a_tree_of_datasets_is_refused_with_how_to_take_a_node() -> None:
    tree = xr.DataTree(make_training())
    for use in (fit, fitted(1).invert, fitted(1).posterior, fitted(1).simulate):
        with refuses(TypeError, "DataTree", ".to_dataset()"):
            use(tree)


def test_columns_of_a_table_with_types_of_pandas_train_and_their_gaps_are_missing() -> None:
    training = make_training()
    water = training["water"].values
    typed = training.assign(water=("sample", pd.array(water, dtype="Float64"), training["water"].attrs))
    assert_same_fit(fit(typed), fit(training))
    gap = training.assign(water=("sample", pd.array([None, *water[1:]], dtype="Float64")))
    with refuses(ValueError, "1 training samples hold NaN", "'water'"):
        fit(gap)


@pytest.mark.parametrize(
    "options",
    [
        {"keep_attrs": True},
        {"keep_attrs": False},
        {"arithmetic_join": "exact", "use_new_combine_kwarg_defaults": True},
    ],
)
def test_options_of_xarray_change_nothing(options: dict[str, Any]) -> None:
    training, cube, test = make_training(), make_cube(), make_truth().assign(reflectance=make_cube())
    marked = cube.assign_coords(good=("band", [True] * 7 + [False]))
    expected = fitted(1).invert(marked), fitted(1).evaluate(test), fitted(1).simulate(make_truth())
    with xr.set_options(**options):
        inverter = fit(training)
        found = inverter.invert(marked.chunk(y=2)), inverter.evaluate(test), inverter.simulate(make_truth())
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b)
        assert a.attrs.keys() == b.attrs.keys()
    for name in found[0].variables:
        assert str(found[0][name].attrs) == str(expected[0][name].attrs), name
