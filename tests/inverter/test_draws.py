"""Draws, all modes, and the posterior reduced to fewer components, of every spectrum."""

import numpy as np
import pytest
import xarray as xr

from bounded import PARTS, bounded, scaled_spectra
from labelled import PARAMETERS, fitted, make_cube, make_training, refuses
from tabled import maps_of_table, spectra_of_squares, square_model, table


def test_draws_have_the_moments_of_the_posterior() -> None:
    found = fitted(1).invert(table(), outputs=["mean", "cov", "draws4000"])
    drawn = np.stack([found[f"{name}_draws"].values for name in PARAMETERS], axis=-1)
    assert found["water_draws"].dims == ("sample", "draw")
    for i in range(len(drawn)):
        covariance = found["covariance"].values[i]
        error = np.sqrt(np.diagonal(covariance) / 4000)
        mean = [found[name].values[i] for name in PARAMETERS]
        assert (np.abs(drawn[i].mean(axis=0) - mean) < 5.0 * error).all()
        np.testing.assert_allclose(np.cov(drawn[i].T), covariance, atol=0.1 * np.trace(covariance))


def test_draws_do_not_depend_on_chunks_and_more_begin_with_the_fewer() -> None:
    cube = make_cube()
    whole = fitted(1).invert(cube, outputs=["draws7"])
    chunked = fitted(1).invert(cube.chunk(y=2, x=3), outputs=["draws7"]).compute()
    xr.testing.assert_allclose(chunked, whole, rtol=1e-9)
    fewer = fitted(1).invert(cube, outputs=["draws3"])
    xr.testing.assert_allclose(fewer["water_draws"], whole["water_draws"].isel(draw=slice(3)), rtol=1e-12)
    assert float(whole["water_draws"].std("draw").min()) > 0.0


@pytest.mark.parametrize("kind", ["draws", "modes"])
def test_draws_and_modes_keep_bounds_and_compositions(kind: str) -> None:
    found = bounded().invert(scaled_spectra(1.0, 50), outputs=["mean", f"{kind}3"])
    values = {name: found[f"{name}_{kind}"].values for name in bounded().model_.names}
    values = {name: array[np.isfinite(array)] for name, array in values.items()}
    assert {len(array) for array in values.values()} == {len(values["grain"])}
    assert len(values["grain"]) >= 50
    assert min(array.min() for name, array in values.items() if name != "cover") >= 0.0
    assert -1.0 <= values["cover"].min() < values["cover"].max() <= 3.0
    np.testing.assert_allclose(sum(values[name] for name in PARTS), 1.0, rtol=1e-9)


def test_draws_and_modes_keep_known_parameters() -> None:
    fixed = bounded().invert(scaled_spectra(1.0, 20), known={"grain": 100.0}, outputs=["draws5", "modes1"])
    np.testing.assert_allclose(fixed["grain_draws"], 100.0, rtol=1e-9)
    np.testing.assert_allclose(fixed["grain_modes"], 100.0, rtol=1e-9)


def test_all_modes_are_peaks_by_falling_mass_which_sums_to_one() -> None:
    found = square_model().invert(spectra_of_squares([0.5, 0.0]), outputs=["modes4", "mode"])
    modes, mass = found["t_modes"].values, found["mode_mass"].values
    assert found["t_modes"].dims == ("sample", "mode_rank")
    np.testing.assert_allclose(sorted(modes[0, :2]), [-0.5, 0.5], atol=0.05)
    np.testing.assert_allclose(np.nansum(mass, axis=1), 1.0, atol=1e-3)
    assert (np.diff(np.nan_to_num(mass), axis=1) <= 0.0).all()
    np.testing.assert_array_equal(np.isnan(modes), np.isnan(mass))
    assert (np.abs(modes - found["t_mode"].values[:, None]) < 1e-9).any(axis=1).all()


def test_a_merged_posterior_keeps_mean_and_covariance() -> None:
    merged = fitted(1).posterior(table(), n_components=2)
    assert merged.sizes["component"] == 2
    maps = maps_of_table()
    mean = (merged["weight"] * merged["mean"]).sum("component")
    for name in PARAMETERS:
        np.testing.assert_allclose(mean.sel(parameter=name), maps[name], rtol=1e-9)
    gap = (merged["mean"] - mean).values
    within = merged["covariance"].values + gap[..., :, None] * gap[..., None, :]
    covariance = np.einsum("nk,nkij->nij", merged["weight"].values, within)
    np.testing.assert_allclose(covariance, maps["covariance"], rtol=1e-7, atol=1e-12)
    single = fitted(1).posterior(table(), n_components=1)
    assert single.sizes["component"] == 1
    np.testing.assert_allclose(single["mean"].isel(component=0).sel(parameter="water"), maps["water"], rtol=1e-9)
    untouched = fitted(1).posterior(table(), n_components=99)
    xr.testing.assert_identical(untouched, fitted(1).posterior(table()))


@pytest.mark.parametrize("outputs", [["draws0"], ["modes0"]])
def test_no_draws_and_no_modes_are_refused(outputs: list[str]) -> None:
    with refuses(ValueError, "asks for none", outputs[0]):
        fitted(1).invert(table(), outputs=outputs)


def test_fewer_than_one_component_is_refused() -> None:
    with refuses(ValueError, "n_components=0", "1 or more"):
        fitted(1).posterior(table(), n_components=0)


def test_draws_are_refused_where_a_parameter_is_known_by_an_interval() -> None:
    with refuses(ValueError, "interval"):
        fitted(1).invert(table(), known={"water": (0.1, 0.2)}, outputs=["draws5"])


def test_the_calibration_of_estimates_given_an_interval_is_not_told() -> None:
    found = fitted(1).evaluate(make_training(40, seed=5), known={"water": (0.0, 0.6)})
    assert found["coverage_90"].isnull().all()
    assert found["nrmse"].notnull().all()
