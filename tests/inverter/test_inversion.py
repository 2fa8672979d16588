"""Inversion of labelled spectra: any dimensions, bands matched by wavelength, missing bands exact, labels set anew."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from labelled import (
    PARAMETERS,
    QUICK,
    SIZES,
    TRUTH_ATTRS,
    WAVELENGTHS,
    assert_close,
    fitted,
    make_cube,
    make_training,
    make_truth,
    refuses,
    unsupervised,
)
from specinvert import GLLiMInverter, open_cube, save_maps
from specinvert.cubes import in_words, made_with

EVERY = ("mean", "std", "cov", "latent", "log_evidence", "flag")
NODATA, PARTIAL = 1, 2


def dense_posterior(inverter: GLLiMInverter, spectra: np.ndarray) -> dict[str, np.ndarray]:
    """The reference's posterior of rows (n, 8), NaN bands dropped, from dense D x D covariances."""
    theta = inverter.parameters_
    dense = reference.Theta(theta.pi, theta.c, theta.Gamma, theta.A, theta.b, theta.sigma_dense(), theta.n_latent)
    return reference.posterior(dense, spectra.astype(np.float64))


def assert_posterior(maps: xr.Dataset, rows: dict[str, np.ndarray], rtol: float) -> None:
    """Maps of every output over (y, x) hold the posterior of the rows."""
    flat = maps.stack(pixel=("y", "x")).transpose("pixel", ...)
    for i, name in enumerate(PARAMETERS):
        np.testing.assert_allclose(flat[name], rows["mean"][:, i], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(flat[f"{name}_std"], np.sqrt(rows["cov"][:, i, i]), rtol=rtol)
    np.testing.assert_allclose(flat["covariance"], rows["cov"][:, :2, :2], rtol=rtol, atol=rtol)
    if "latent" in flat:
        np.testing.assert_allclose(flat["latent"], rows["mean"][:, 2:], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(flat["log_evidence"], rows["log_evidence"], rtol=rtol, atol=rtol)


def spoiled_cube() -> xr.DataArray:
    """A cube whose pixels miss no band, some, a neighbour's, or all."""
    cube = make_cube()
    values = cube.values
    values[0, 0, 2] = values[0, 1, [0, 3, 7]] = np.nan
    values[1, 1, 1:] = np.nan
    values[2, 2] = values[4, 5] = np.nan
    values[3, 3, 4] = np.inf
    return cube


@settings(max_examples=12)
@given(
    dims=st.sampled_from([(), ("x",), ("y", "x"), ("time", "y", "x")]).flatmap(
        lambda pixels: st.permutations([*pixels, "band"])
    )
)
def test_spectra_of_any_dimensions_in_any_order_give_the_same_maps(dims: list[str]) -> None:
    pixel_dims = tuple(d for d in dims if d != "band")
    maps = fitted(1).invert(make_cube(tuple(dims)), outputs=EVERY)
    assert maps["water"].dims == pixel_dims
    assert maps["covariance"].dims == (*pixel_dims, "parameter", "parameter_2")
    assert maps["latent"].dims == (*pixel_dims, "latent_dim")
    straight = fitted(1).invert(make_cube((*pixel_dims, "band")), outputs=EVERY)
    assert_close(maps, straight)
    sizes = tuple(d for d in SIZES if d in pixel_dims)
    turned = fitted(1).invert(make_cube(tuple(dims)).transpose(*sizes, "band"), outputs=EVERY)
    assert_close(maps.transpose(*sizes, ...), turned.transpose(*sizes, ...))


def test_a_pixel_of_a_cube_alone_gives_the_values_of_the_map() -> None:
    cube = make_cube(("time", "y", "x", "band"))
    maps = fitted(1).invert(cube, outputs=EVERY)
    place = {"time": 1, "y": 2, "x": 3}
    alone = fitted(1).invert(cube.isel(place), outputs=EVERY)
    assert_close(alone.drop_vars("latent"), maps.drop_vars("latent").isel(place))
    np.testing.assert_array_equal(alone["latent"], maps["latent"].isel(place))
    assert float(alone["x"]) == 366120.0
    assert alone["water"].attrs == maps["water"].attrs


def test_a_table_of_spectra_gives_a_table_of_estimates() -> None:
    table = make_training(10)["reflectance"].assign_coords(sample=[f"s{i}" for i in range(10)])
    maps = fitted().invert(table)
    assert maps["water"].dims == ("sample",)
    assert list(maps["sample"].values) == [f"s{i}" for i in range(10)]


def test_stacked_pixels_keep_their_index() -> None:
    cube = make_cube()
    maps = fitted().invert(cube.stack(pixel=("y", "x")))
    assert_close(maps.unstack("pixel"), fitted().invert(cube))


def test_a_dataset_is_searched_for_the_variable_of_training_else_the_only_one_with_bands() -> None:
    cube = make_cube()
    expected = fitted().invert(cube)
    named = make_truth().assign(reflectance=cube, other=cube + 1.0)
    assert_close(fitted().invert(named), expected)
    assert_close(fitted().invert(cube.to_dataset(name="radiance")), expected)
    with refuses(ValueError, "'radiance', 'other'", "spectra="):
        fitted().invert(cube.to_dataset(name="radiance").assign(other=cube))


@pytest.mark.oracle
@pytest.mark.parametrize("sigma", ["iso", "diag", "full"])
@pytest.mark.parametrize("n_latent", [0, 1])
def test_every_output_is_the_reference_s_posterior(sigma: str, n_latent: int) -> None:
    cube = spoiled_cube()
    outputs = tuple(o for o in EVERY if n_latent or o != "latent")
    maps = fitted(n_latent, sigma).invert(cube, outputs=outputs, min_valid_bands=1)
    assert ("latent" in maps) == bool(n_latent)
    rows = cube.values.reshape(-1, 8).copy()
    rows[~np.isfinite(rows)] = np.nan
    assert_posterior(maps, dense_posterior(fitted(n_latent, sigma), rows), 1e-9)
    valid = np.isfinite(rows).sum(axis=1).reshape(5, 6)
    flags = np.where(valid == 0, NODATA, np.where(valid < 8, PARTIAL, 0))
    np.testing.assert_array_equal(maps["quality_flag"] & (NODATA | PARTIAL), flags)


def test_pixels_with_missing_bands_leave_their_neighbours_untouched() -> None:
    spoiled, whole = spoiled_cube(), make_cube()
    untouched = np.isfinite(spoiled).all("band")
    assert int(untouched.sum()) == 24
    found, expected = fitted(1).invert(spoiled, outputs=EVERY), fitted(1).invert(whole, outputs=EVERY)
    assert_close(found.where(untouched), expected.where(untouched))


def test_a_pixel_without_a_valid_band_is_nan_and_flagged() -> None:
    maps = fitted(1).invert(spoiled_cube(), outputs=EVERY).isel(y=2, x=2)
    assert int(maps["quality_flag"]) == NODATA
    for name in set(maps.data_vars) - {"quality_flag"}:
        assert bool(maps[name].isnull().all()), name


@pytest.mark.parametrize("key", ["_FillValue", "missing_value", "nodata"])
@pytest.mark.parametrize(("dtype", "fill"), [("f8", -9999.0), ("f4", -3.4028234663852886e38), ("i2", -32768)])
def test_a_fill_value_left_in_the_attributes_is_missing_data(key: str, dtype: str, fill: float) -> None:
    inverter, scale = fitted(), 1.0
    if dtype == "i2":
        scale = 1e4
        inverter = GLLiMInverter(n_latent=0, **QUICK).fit(
            make_training().assign(reflectance=lambda d: scale * d["reflectance"])
        )
    cube = (scale * make_cube()).round(6 if scale == 1.0 else 0).drop_attrs()
    holed = cube.copy(deep=True)
    holed[0, 0, 2] = holed[1, 1] = np.nan
    filled = holed.fillna(fill).astype(dtype).assign_attrs({key: np.array([fill], dtype=dtype)})
    maps, expected = inverter.invert(filled), inverter.invert(holed.astype("f4" if dtype == "f4" else "f8"))
    assert_close(maps, expected)
    flags = maps["quality_flag"] & (NODATA | PARTIAL)
    assert (int(flags[0, 0]), int(flags[1, 1])) == (PARTIAL, NODATA)
    lazy = inverter.invert(filled.chunk(x=2)).compute()
    assert_close(lazy, expected)


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint8"])
def test_integer_cubes_are_inverted_in_float64(dtype: str) -> None:
    training = make_training().assign(reflectance=lambda d: 100.0 * d["reflectance"])
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(training)
    counts = (100.0 * make_cube()).clip(0, 255).round().astype(dtype)
    maps = inverter.invert(counts)
    assert maps["water"].dtype == np.float64
    assert_close(maps, inverter.invert(counts.astype(np.float64)))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("chunks", [None, {"y": 2, "x": 4}])
def test_maps_have_the_float_type_of_the_cube(dtype: str, chunks: Any) -> None:
    cube = make_cube(dtype=dtype)
    maps = fitted(1).invert(cube if chunks is None else cube.chunk(chunks), outputs=EVERY)
    wanted = np.dtype(np.float32 if "4" in dtype else np.float64)
    declared = {name: array.dtype for name, array in maps.data_vars.items()}
    computed = {name: array.dtype for name, array in maps.compute().data_vars.items()}
    assert declared == computed
    assert declared.pop("log_evidence") == np.float64
    assert declared.pop("quality_flag") == np.uint8
    assert set(declared.values()) == {wanted}
    if wanted == np.float32:
        double = fitted(1).invert(cube.astype(np.float64), outputs=EVERY)
        np.testing.assert_array_equal(maps["water"], double["water"].astype(np.float32))
        np.testing.assert_array_equal(maps["log_evidence"], double["log_evidence"])


def test_attributes_are_set_anew_on_every_output() -> None:
    cube = make_cube().assign_attrs(_FillValue=-9999.0, ancillary_variables="noise", valid_range=[0.0, 1.0])
    maps = fitted(1).invert(cube, outputs=EVERY)
    beside = {"ancillary_variables": "water_std quality_flag", "estimate": "mean"}
    assert maps["water"].attrs == {**TRUTH_ATTRS["water"], **beside}
    assert maps["water_std"].attrs == {"long_name": "standard deviation of leaf water", "units": "g m-2"}
    assert maps["dust"].attrs["long_name"] == "dust"
    meanings = "nodata partial_bands out_of_domain below_training_range above_training_range multimodal prior_answers"
    assert maps["quality_flag"].attrs["flag_meanings"] == meanings
    assert list(maps["quality_flag"].attrs["flag_masks"]) == [1, 2, 4, 8, 16, 32, 64]
    for name, array in maps.data_vars.items():
        assert "long_name" in array.attrs, name
        assert not {"sensor", "_FillValue", "wavelength_units", "valid_range", "wavelength"} & set(array.attrs), name
        assert set(array.encoding) <= {"grid_mapping"}, name
    assert list(maps["covariance"]["parameter"].values) == PARAMETERS == list(maps["parameter_2"].values)
    assert maps.attrs["Conventions"].startswith("CF-")
    assert fitted(1).model_id in maps.attrs["source"]
    told = {"title", "source", "model_id", "conditions", "history", "training_ranges", "references"}
    assert set(maps.attrs) == {"Conventions"} | told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, ""),
        ({"noise": 0.1}, "; noise 0.1 beyond training"),
        ({"noise": np.full(8, 0.1)}, "; noise of each band beyond training"),
        ({"noise": 0.01 * np.eye(8)}, "; noise as a covariance beyond training"),
        ({"noise": xr.zeros_like(make_cube()) + 0.1}, "; noise of each pixel"),
        ({"known": {"dust": 0.25}}, "; dust known, 0.25"),
        ({"known": {"water": xr.DataArray(np.ones((5, 6)), dims=("y", "x"))}}, "; water known in each pixel"),
        ({"known": {"dust": (0.0, 1.5)}}, "; dust known within 0 and 1.5"),
        ({"known": {"dust": (make_cube()[..., 0] * 0, 9.0)}}, "; dust known within bounds of each pixel"),
    ],
)
def test_history_tells_which_noise_and_known_parameters_were_given(given: dict[str, Any], told: str) -> None:
    attrs = fitted(1).invert(make_cube(), **given).attrs
    assert attrs["history"].partition(" invert")[2] == told
    assert "; ".join(in_words(made_with(attrs) or {})) == told.removeprefix("; ")


def test_the_posterior_takes_noise_that_includes_that_of_training() -> None:
    inverter = GLLiMInverter(3, n_latent=0, max_iter=4, tol=0.0, random_state=0).fit(make_training(), noise=0.3)
    expected = inverter.posterior(make_cube(), noise=0.4)
    assert_close(inverter.posterior(make_cube(), noise=0.5, noise_includes_training=True), expected)


def test_coordinates_of_the_pixels_are_kept_and_those_of_the_bands_dropped() -> None:
    cube = make_cube().assign_coords(
        lon=(("y", "x"), np.arange(30.0).reshape(5, 6), {"units": "degrees_east"}),
        fwhm=("band", np.full(8, 6.5)),
        band=np.arange(8),
        line=("y", np.arange(5)),
        gain=(("y", "band"), np.ones((5, 8))),
        acquired=np.datetime64("2024-06-01", "ns"),
    )
    maps = fitted().invert(cube)
    assert set(maps.coords) == {"y", "x", "lon", "line", "acquired", "spatial_ref"}
    for name in maps.coords:
        xr.testing.assert_identical(maps[name].variable, cube[name].variable)


@pytest.mark.parametrize("given_as", [xr.DataArray, xr.Dataset])
@pytest.mark.parametrize("suffix", [".nc", ".tif"])
@pytest.mark.parametrize("mapping", ["spatial_ref", "utm"])
def test_the_place_survives_inversion_and_both_file_kinds(
    tmp_path: Any, given_as: type, suffix: str, mapping: str
) -> None:
    cube = make_cube(("band", "y", "x"), np.float32).rename(spatial_ref=mapping)
    cube.encoding["grid_mapping"] = mapping
    data = cube if given_as is xr.DataArray else cube.to_dataset()
    maps = fitted().invert(data)
    place, crs = make_truth().rio.transform(), "EPSG:32633"
    assert maps.rio.crs.to_string() == crs
    assert maps["water_std"].rio.transform() == place
    save_maps(maps, tmp_path / f"maps{suffix}")
    if suffix == ".tif":
        opened = open_cube(tmp_path / "maps.tif")
        assert list(opened["band"].values) == ["water", "dust", "water_std", "dust_std"]
        np.testing.assert_array_equal(opened.sel(band="dust"), maps["dust"])
    else:
        with xr.open_dataset(tmp_path / "maps.nc", decode_coords="all") as reopened:
            opened = reopened.load()
        xr.testing.assert_equal(opened, maps)
        assert opened["water"].attrs == maps["water"].attrs
        assert opened["dust"].encoding["grid_mapping"] == mapping
    assert opened.rio.crs.to_string() == crs
    assert opened.rio.transform() == place


def test_a_cube_without_a_place_gets_none() -> None:
    maps = fitted().invert(make_cube().drop_vars(["spatial_ref", "y", "x"]))
    assert not maps.coords
    assert maps.rio.crs is None
    assert "grid_mapping" not in maps["water"].encoding


@settings(max_examples=25)
@given(
    order=st.permutations(range(11)),
    unit=st.sampled_from(["nm", "um", "m"]),
    as_dim=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bands_are_matched_by_wavelength_in_any_unit_and_order_from_a_superset(
    order: list[int], unit: str, as_dim: bool, seed: int
) -> None:
    cube = make_cube()
    rng = np.random.default_rng(seed)
    others = np.array([400.0, 750.0, 2200.0])
    nanometres = np.concatenate([WAVELENGTHS + rng.uniform(-0.4, 0.4, 8), others])[order]
    values = np.concatenate([cube.values, np.full((5, 6, 3), 77.0)], axis=-1)[..., order]
    scale = {"nm": 1.0, "um": 1e-3, "m": 1e-9}[unit]
    dim = "wavelength" if as_dim else "channel"
    coordinate = (dim, nanometres * scale, {"units": unit})
    offered = xr.DataArray(values, dims=("y", "x", dim), coords={"wavelength": coordinate}, attrs={"units": "1"})
    bare = cube.drop_vars(["y", "x", "spatial_ref"])
    assert_close(fitted(1).invert(offered, outputs=EVERY), fitted(1).invert(bare, outputs=EVERY))


def test_a_band_further_off_than_the_tolerance_is_an_error_that_names_it() -> None:
    shifted = make_cube().assign_coords(wavelength=("band", WAVELENGTHS + np.array([0] * 7 + [1.4]), {"units": "nm"}))
    with refuses(ValueError, "1200.00 nm (nearest 1201.40)", "within 1 nm", "tolerance"):
        fitted().invert(shifted)
    assert_close(fitted().invert(shifted, tolerance=1.5), fitted().invert(make_cube()))


def test_without_wavelengths_bands_are_matched_by_label_else_by_place() -> None:
    training = make_training().drop_vars("wavelength")
    labels = [f"B{i}" for i in range(8)]
    cube = make_cube().drop_vars("wavelength")
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(training.assign_coords(band=labels), band_dim="band")
    expected = fitted().invert(make_cube())
    turned = cube.assign_coords(band=labels).isel(band=[7, 0, 1, 2, 3, 4, 5, 6])
    assert_close(inverter.invert(turned), expected)
    assert_close(inverter.invert(cube), expected)
    by_place = GLLiMInverter(n_latent=0, **QUICK).fit(training, band_dim="band")
    assert_close(by_place.invert(cube.rename(band="channel"), band_dim="channel"), expected)
    with refuses(ValueError, "labels B7 are not in the cube", "rename"):
        inverter.invert(cube.assign_coords(band=[*labels[:-1], "B9"]))


def test_outputs_may_be_one_name_and_come_in_a_fixed_order() -> None:
    cube = make_cube()
    assert list(fitted().invert(cube).data_vars) == ["water", "dust", "water_std", "dust_std", "quality_flag"]
    assert list(fitted().invert(cube, outputs="std").data_vars) == ["water_std", "dust_std"]
    assert list(fitted().invert(cube, outputs=("flag", "mean")).data_vars) == ["water", "dust", "quality_flag"]
    every = fitted(1).invert(cube, outputs=EVERY)
    assert set(every.data_vars) == {
        *PARAMETERS,
        "water_std",
        "dust_std",
        "covariance",
        "latent",
        "log_evidence",
        "quality_flag",
    }
    for output in EVERY:
        alone = fitted(1).invert(cube, outputs=(output,))
        assert_close(alone, every[list(alone.data_vars)])


@pytest.mark.oracle
def test_latents_of_an_unsupervised_model_are_the_reference_s() -> None:
    cube = make_cube()
    maps = unsupervised().invert(cube, outputs=("latent", "log_evidence"))
    rows = dense_posterior(unsupervised(), cube.values.reshape(-1, 8))
    np.testing.assert_allclose(maps["latent"].values.reshape(-1, 2), rows["mean"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(maps["log_evidence"].values.ravel(), rows["log_evidence"], rtol=1e-9)


def test_a_coordinate_named_as_an_output_gives_way_but_a_dimension_must_be_renamed() -> None:
    cube = make_cube()
    known = cube.assign_coords(water=make_truth()["water"], quality_flag=0)
    assert_close(fitted().invert(known), fitted().invert(cube))
    with refuses(ValueError, "'water'", ".rename({'water': 'water_axis'})"):
        fitted().invert(cube.rename(y="water"))
    with refuses(ValueError, "'latent'", ".rename("):
        fitted(1).invert(cube.rename(x="latent"), outputs=("latent",))
