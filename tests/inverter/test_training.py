"""Training on labelled data: what is found in a Dataset, and that labels, order and chunks never change a fit."""

import logging
from functools import cache
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from labelled import (
    PARAMETERS,
    QUICK,
    QUICK_FIT,
    TRUTH_ATTRS,
    WAVELENGTHS,
    assert_close,
    assert_same_fit,
    fitted,
    make_cube,
    make_responsibilities,
    make_training,
    refuses,
    spectra_of,
    wavelength_coordinate,
)
from specinvert import GLLiMInverter
from specinvert.gllim import GLLiM


def fit(training: xr.Dataset, *names: Any, given: Any = None, n_latent: int = 0, **arguments: Any) -> GLLiMInverter:
    """A quick fit; ``given`` are responsibilities."""
    return GLLiMInverter(n_latent=n_latent, **QUICK).fit(training, *names, responsibilities=given, **arguments)


def make_grid(noise: float = 0.02) -> xr.Dataset:
    """A gridded look-up table: the parameters are dimension coordinates, ``draw`` repeats each node."""
    water, dust = np.linspace(0.1, 1.9, 9), np.linspace(0.05, 0.95, 7)
    clean = spectra_of(*np.meshgrid(water, dust, indexing="ij"))
    values = clean[None] + noise * np.random.default_rng(3).normal(size=(2, *clean.shape))
    return xr.Dataset(
        {"reflectance": (("draw", "water", "dust", "band"), values, {"units": "1"})},
        coords={
            "water": ("water", water, TRUTH_ATTRS["water"]),
            "dust": ("dust", dust, TRUTH_ATTRS["dust"]),
            "wavelength": wavelength_coordinate(),
        },
    )


def flatten(grid: xr.Dataset) -> xr.Dataset:
    """The table of the grid: one row a node and draw, made by hand."""
    values = grid["reflectance"].transpose("draw", "water", "dust", "band").values
    draws, water, dust = np.meshgrid(np.arange(2), grid["water"].values, grid["dust"].values, indexing="ij")
    assert draws.shape == values.shape[:-1]
    return xr.Dataset(
        {
            "reflectance": (("sample", "band"), values.reshape(-1, 8), {"units": "1"}),
            "water": ("sample", water.ravel(), TRUTH_ATTRS["water"]),
            "dust": ("sample", dust.ravel(), TRUTH_ATTRS["dust"]),
        },
        coords={"wavelength": wavelength_coordinate()},
    )


@pytest.mark.parametrize("sigma", ["iso", "diag", "full"])
@pytest.mark.parametrize("n_latent", [0, 1])
def test_the_inverter_gives_the_fit_of_the_estimator_on_the_bare_arrays(sigma: str, n_latent: int) -> None:
    training = make_training()
    given_ = make_responsibilities(training)
    inverter = GLLiMInverter(n_latent=n_latent, sigma=sigma, tied_sigma=True, **QUICK)
    inverter.fit(training, responsibilities=given_)
    estimator = GLLiM(n_latent=n_latent, sigma=sigma, tied_sigma=True, **QUICK_FIT)
    targets = np.stack([training[name].values for name in PARAMETERS], axis=1)
    estimator.fit(training["reflectance"].values, targets, responsibilities=given_)
    np.testing.assert_array_equal(inverter.log_likelihoods_, estimator.log_likelihoods_)
    np.testing.assert_array_equal(inverter.parameters_.A, estimator.parameters_.A)
    assert inverter.bic_ == estimator.bic_
    maps = inverter.invert(training["reflectance"])
    mean, std = estimator.predict(training["reflectance"].values, return_std=True)
    for i, name in enumerate(PARAMETERS):
        np.testing.assert_array_equal(maps[name], mean[:, i])
        np.testing.assert_array_equal(maps[f"{name}_std"], std[:, i])


@pytest.mark.parametrize("dim", ["sample", "case", "time", "x"])
def test_samples_lie_along_a_dimension_of_any_name(dim: str) -> None:
    assert_same_fit(fit(make_training(dim=dim)), fit(make_training()))


def test_bands_may_come_first() -> None:
    training = make_training()
    given_ = make_responsibilities(training)
    assert_same_fit(fit(training.transpose("band", "sample"), given=given_), fit(training, given=given_), 1e-10)


def test_a_gridded_table_gives_the_fit_of_its_rows() -> None:
    grid = make_grid()
    table = flatten(grid)
    given_ = make_responsibilities(table)
    inverter = fit(grid, None, PARAMETERS, given=given_)
    assert_same_fit(inverter, fit(table, given=given_), 1e-10)
    assert inverter.model_.n_samples == 126
    assert inverter.model_.attrs == TRUTH_ATTRS


def test_without_other_variables_the_coordinates_of_a_grid_are_the_parameters() -> None:
    assert fit(make_grid()).model_.names == PARAMETERS
    assert fit(make_grid().transpose("band", "dust", "water", "draw")).model_.names == ["dust", "water"]


def test_parameters_of_some_sample_dimensions_are_broadcast_to_all() -> None:
    grid = make_grid()
    table = flatten(grid)
    renamed = grid.rename(water="i", dust="j").drop_vars(["i", "j"])
    renamed["water"] = ("i", grid["water"].values)
    renamed["dust"] = (("j", "draw"), np.repeat(grid["dust"].values[:, None], 2, axis=1))
    given_ = make_responsibilities(table)
    assert_same_fit(fit(renamed, given=given_), fit(table, given=given_), 1e-10)


def test_a_stacked_table_takes_the_levels_of_its_index() -> None:
    stacked = make_grid().stack(sample=("draw", "water", "dust"))
    table = flatten(make_grid())
    given_ = make_responsibilities(table)
    assert_same_fit(fit(stacked, None, PARAMETERS, given=given_), fit(table, given=given_), 1e-10)


def test_by_default_every_variable_of_the_samples_alone_is_a_parameter() -> None:
    training = make_training().assign(
        frequency=("sample", np.arange(150.0)),
        fwhm=("band", np.full(8, 6.5)),
        crs=0,
        ancillary=("station", np.zeros(3)),
    )
    spectra = "reflectance"
    assert fit(training, spectra).model_.names == ["water", "dust", "frequency"]
    assert fit(training, spectra, weights="frequency").model_.names == PARAMETERS


def test_parameters_keep_the_order_asked_for_and_may_be_coordinates() -> None:
    training = make_training().set_coords("water")
    inverter = fit(training, None, ["dust", "water"])
    assert inverter.model_.names == ["dust", "water"]
    np.testing.assert_array_equal(inverter.model_.high, [training["dust"].max(), training["water"].max()])
    assert_close(
        inverter.invert(training)[PARAMETERS], fit(training, None, PARAMETERS).invert(training)[PARAMETERS], 1e-8
    )


def test_without_parameters_the_latents_are_fitted_alone() -> None:
    training = make_training()
    inverter = fit(training, None, [], n_latent=2)
    assert inverter.model_.names == []
    assert inverter.parameters_.n_parameters == 0
    estimator = GLLiM(n_latent=2, **QUICK_FIT).fit(training["reflectance"].values)
    np.testing.assert_array_equal(inverter.log_likelihoods_, estimator.log_likelihoods_)
    maps = inverter.invert(make_cube(), outputs=("latent", "flag"))
    assert maps["latent"].dims == ("y", "x", "latent_dim")
    assert set(maps.data_vars) == {"latent", "quality_flag"}


def test_the_spectra_are_the_variable_with_wavelengths_whatever_its_name() -> None:
    training = make_training().rename(reflectance="radiance")
    inverter = fit(training)
    assert inverter.model_.spectra_name == "radiance"
    np.testing.assert_array_equal(inverter.model_.bands.wavelength, WAVELENGTHS)


def test_of_two_variables_with_wavelengths_one_must_be_named() -> None:
    training = make_training().assign(other=lambda d: 2.0 * d["reflectance"])
    with refuses(ValueError, "'reflectance', 'other'", "spectra="):
        fit(training)
    assert_same_fit(fit(training, "reflectance"), fit(make_training()))


def test_without_wavelengths_the_band_dimension_is_named() -> None:
    training = make_training().drop_vars("wavelength")
    inverter = fit(training, band_dim="band")
    assert inverter.model_.bands.wavelength is None
    np.testing.assert_array_equal(inverter.log_likelihoods_, fitted().log_likelihoods_)
    labelled = training.assign_coords(band=[f"B{i}" for i in range(8)])
    assert list(fit(labelled, band_dim="band").model_.bands.labels) == [f"B{i}" for i in range(8)]


def test_weights_come_by_name_as_an_array_or_labelled_in_any_order() -> None:
    grid = make_grid()
    values = np.random.default_rng(4).uniform(0.5, 2.0, (2, 9, 7))
    named = grid.assign(frequency=(("draw", "water", "dust"), values))
    expected = fit(grid, None, PARAMETERS, weights=values)
    assert_same_fit(fit(named, None, PARAMETERS, weights="frequency"), expected)
    turned = xr.DataArray(values, dims=("draw", "water", "dust")).transpose("dust", "draw", "water")
    assert_same_fit(fit(grid, None, PARAMETERS, weights=turned), expected)
    assert_same_fit(fit(grid, None, PARAMETERS, weights=values.ravel()), expected)
    assert not np.allclose(expected.log_likelihoods_, fit(grid, None, PARAMETERS).log_likelihoods_)


@pytest.mark.parametrize("n_latent", [0, 1])
def test_integer_weights_are_repeated_samples(n_latent: int) -> None:
    training = make_training()
    given_ = make_responsibilities(training)
    counts = np.random.default_rng(6).integers(0, 4, 150)
    repeated = np.repeat(np.arange(150), counts)
    weighted = fit(training, weights=counts, given=given_, n_latent=n_latent)
    plain = fit(training.isel(sample=repeated), given=given_[repeated], n_latent=n_latent)
    assert_same_fit(weighted, plain, 1e-10)
    np.testing.assert_allclose(weighted.bic_, plain.bic_, rtol=1e-10)


def test_given_responsibilities_set_the_number_of_components() -> None:
    training = make_training()
    assert fit(training, given=make_responsibilities(training, 4)).n_components_ == 4


@cache
def fit_in_memory(kind: str, n_latent: int = 0) -> GLLiMInverter:
    """What lazy fits of a small table, or of the grid, are compared with."""
    table = make_training(60) if kind == "table" else flatten(make_grid())
    return fit(table, given=make_responsibilities(table), n_latent=n_latent)


@pytest.mark.parametrize("n_latent", [0, 1])
@settings(max_examples=10)
@given(data=st.data())
def test_the_fit_of_a_lazy_table_does_not_depend_on_its_chunks(n_latent: int, data: st.DataObject) -> None:
    training = make_training(60)
    sizes: list[int] = []
    while sum(sizes) < 60:
        sizes.append(data.draw(st.integers(1, 60 - sum(sizes)), "chunk"))
    with dask.config.set(scheduler="synchronous"):
        lazy = fit(training.chunk(sample=tuple(sizes)), given=make_responsibilities(training), n_latent=n_latent)
    assert_same_fit(lazy, fit_in_memory("table", n_latent), 1e-10)


@settings(max_examples=10)
@given(
    order=st.permutations(["draw", "water", "dust", "band"]),
    chunks=st.fixed_dictionaries({"draw": st.integers(1, 2), "water": st.integers(3, 9), "dust": st.integers(3, 7)}),
)
def test_a_lazy_grid_in_any_order_and_chunks_gives_the_fit_of_the_table(order: list, chunks: dict) -> None:
    grid = make_grid().transpose(*order).chunk(chunks)
    rows = np.arange(126).reshape(2, 9, 7)
    sample_order = [("draw", "water", "dust").index(d) for d in order if d != "band"]
    given_ = make_responsibilities(flatten(make_grid()))[rows.transpose(sample_order).ravel()]
    with dask.config.set(scheduler="synchronous"):
        lazy = fit(grid, None, PARAMETERS, given=given_)
    assert_same_fit(lazy, fit_in_memory("grid"), 1e-10)


def test_lazy_weights_and_parameters_serve_too() -> None:
    training = make_training().assign(frequency=("sample", np.linspace(0.5, 2.0, 150)))
    given_ = make_responsibilities(training)
    expected = fit(training, weights="frequency", given=given_)
    assert_same_fit(fit(training.chunk(sample=40), weights="frequency", given=given_), expected, 1e-10)


def test_a_lazy_fit_has_the_same_bits_for_any_number_of_threads() -> None:
    lazy = make_training().chunk(sample=23)
    with dask.config.set(scheduler="synchronous"):
        alone = fit(lazy, n_latent=1)
    with dask.config.set(scheduler="threads", num_workers=5):
        together = fit(lazy, n_latent=1)
    assert_same_fit(together, alone)
    np.testing.assert_array_equal(together.parameters_.A, alone.parameters_.A)


def test_bands_in_several_chunks_are_merged_only_on_request() -> None:
    training = make_training()
    given_ = make_responsibilities(training)
    split = training.chunk(sample=50, band=3)
    with refuses(ValueError, "'band'", "3 chunks", ".chunk({'band': -1})", "rechunk='auto'"):
        fit(split, given=given_)
    assert_same_fit(fit(split, given=given_, rechunk="auto"), fit(training, given=given_), 1e-10)
    assert_same_fit(fit(split.chunk({"band": -1}), given=given_), fit(training, given=given_), 1e-10)


@pytest.mark.parametrize("chunks", [None, {"sample": 31}])
def test_samples_with_a_missing_value_are_left_out_on_request(chunks: Any) -> None:
    training = make_training()
    bad = [3, 50, 51, 149]
    training["reflectance"][3, 2] = np.nan
    training["reflectance"][50, :] = np.inf
    training["water"][51] = np.nan
    training["dust"][149] = -np.inf
    weights = np.linspace(0.5, 2.0, 150)
    keep = np.setdiff1d(np.arange(150), bad)
    given_ = make_responsibilities(make_training())
    given_data = training if chunks is None else training.chunk(chunks)
    inverter = fit(given_data, weights=weights, given=given_, missing="drop")
    expected = fit(training.isel(sample=keep), weights=weights[keep], given=given_[keep])
    assert_same_fit(inverter, expected, 1e-10)
    assert inverter.model_.n_samples == 146


@pytest.mark.filterwarnings("ignore:the values of the spectra are about")
@pytest.mark.parametrize("n_latent", [0, 1])
def test_float32_spectra_give_the_fit_of_the_same_values_in_float64(n_latent: int) -> None:
    training = make_training()
    training["reflectance"] = (1e3 * training["reflectance"] + 1e4).astype(np.float32)
    given_ = make_responsibilities(training)
    double = training.assign(reflectance=training["reflectance"].astype(np.float64))
    single = fit(training, given=given_, n_latent=n_latent)
    assert_same_fit(single, fit(double, given=given_, n_latent=n_latent), 1e-10)


@pytest.mark.filterwarnings("ignore:the values of the spectra are about")
def test_counts_are_spectra_too() -> None:
    training = make_training()
    counts = training.assign(reflectance=(1e4 * training["reflectance"]).round().astype(np.uint16))
    as_floats = counts.assign(reflectance=counts["reflectance"].astype(np.float64))
    assert_same_fit(fit(counts), fit(as_floats), 1e-10)


def test_the_model_keeps_units_names_and_ranges_of_training() -> None:
    training = make_training()
    model = fit(training).model_
    assert model.names == PARAMETERS
    assert model.attrs == TRUTH_ATTRS
    assert model.spectra_units == "1"
    np.testing.assert_array_equal(model.low, [training[name].min() for name in PARAMETERS])
    np.testing.assert_array_equal(model.high, [training[name].max() for name in PARAMETERS])


def test_progress_hears_of_every_iteration() -> None:
    heard: list[tuple[str, int, float]] = []
    inverter = fit(make_training(), progress=lambda *news: heard.append(news))
    assert [iteration for _, iteration, _ in heard] == list(range(inverter.n_iter_))
    np.testing.assert_array_equal([value for _, _, value in heard], inverter.log_likelihoods_)


def test_bic_chooses_the_latent_dimension_with_the_least() -> None:
    inverter = GLLiMInverter(n_latent="bic", max_latent=2, **QUICK).fit(make_training())
    assert sorted(inverter.bics_) == [0, 1, 2]
    assert inverter.n_latent_ == min(inverter.bics_, key=inverter.bics_.__getitem__) == 1
    assert inverter.bic_ == min(inverter.bics_.values())


def test_a_fit_that_fails_leaves_the_earlier_one() -> None:
    inverter = fit(make_training())
    earlier = inverter.parameters_
    with refuses(ValueError, "'nothing'"):
        inverter.fit(make_training(), parameters=["nothing"])
    assert inverter.parameters_ is earlier


def test_training_leaves_its_data_and_the_logging_alone(caplog: pytest.LogCaptureFixture) -> None:
    training = make_training()
    before = training.copy(deep=True)
    with caplog.at_level(logging.WARNING):
        fit(training, missing="drop")
    xr.testing.assert_identical(training, before)
    assert not caplog.records


@pytest.mark.parametrize("n_ensemble", [1, 2])
def test_a_warning_of_training_points_at_the_line_that_asked_for_it(n_ensemble: int) -> None:
    settings: dict[str, Any] = {**QUICK, "n_latent": 0, "max_iter": 2, "tol": 1e-9, "n_ensemble": n_ensemble}
    for fit in (GLLiMInverter(**settings).fit, lambda training: training.gllim.fit(**settings)):
        with pytest.warns(ConvergenceWarning, match="max_iter=2") as told:
            fit(make_training())
        assert [one.filename for one in told] == [__file__]
