"""The posterior mixture, simulated spectra and the comparison with the truth, all labelled."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr

import reference
from labelled import (
    PARAMETERS,
    QUICK,
    WAVELENGTHS,
    assert_close,
    fitted,
    make_cube,
    make_training,
    make_truth,
    refuses,
    spectra_of,
    unsupervised,
    wavelength_coordinate,
)
from specinvert import GLLiMInverter, load_inverter, nrmse
from specinvert.cubes import Recalibration
from specinvert.inverter import inversion_of, recalibrated
from specinvert.scores import coverage


def dense(inverter: GLLiMInverter) -> reference.Theta:
    theta = inverter.parameters_
    return reference.Theta(theta.pi, theta.c, theta.Gamma, theta.A, theta.b, theta.sigma_dense(), theta.n_latent)


@pytest.mark.oracle
@pytest.mark.parametrize("n_latent", [0, 1])
@pytest.mark.parametrize("chunks", [None, {"y": 2, "band": 3}])
def test_the_posterior_mixture_is_the_reference_s(n_latent: int, chunks: Any) -> None:
    cube = make_cube(("band", "y", "x"))
    cube[2, 0, 0] = cube[:, 1, 1] = np.nan
    given = cube if chunks is None else cube.chunk(chunks)
    found = fitted(n_latent).posterior(given)
    rows = cube.transpose("y", "x", "band").values.reshape(-1, 8)
    expected = reference.posterior(dense(fitted(n_latent)), rows)
    wanted = {
        "weight": (("component",), expected["weights"]),
        "mean": (("component", "parameter"), expected["component_means"][..., :2]),
        "covariance": (("component", "parameter", "parameter_2"), expected["component_cov"][..., :2, :2]),
        "log_evidence": ((), expected["log_evidence"]),
    }
    assert set(found.data_vars) == set(wanted)
    for name, (core, values) in wanted.items():
        assert found[name].dims == ("y", "x", *core)
        assert found[name].dtype == np.float64
        np.testing.assert_allclose(found[name].values.reshape(values.shape), values, rtol=1e-9, atol=1e-9, err_msg=name)
    assert list(found["parameter"].values) == PARAMETERS
    assert set(found.coords) == {"y", "x", "spatial_ref", "parameter", "parameter_2"}


def test_the_mixture_s_moments_are_the_maps() -> None:
    cube = make_cube()
    mixture, maps = fitted(1).posterior(cube), fitted(1).invert(cube)
    mean = (mixture["weight"] * mixture["mean"]).sum("component")
    for name in PARAMETERS:
        np.testing.assert_allclose(mean.sel(parameter=name), maps[name], rtol=1e-12)
        spread = mixture["covariance"].sel(parameter=name, parameter_2=name)
        square = (mixture["weight"] * (spread + mixture["mean"].sel(parameter=name) ** 2)).sum("component")
        np.testing.assert_allclose(np.sqrt(square - mean.sel(parameter=name) ** 2), maps[f"{name}_std"], rtol=1e-9)


def test_the_posterior_of_a_single_spectrum_has_components_only() -> None:
    found = fitted().posterior(make_cube().isel(y=1, x=2))
    assert found["mean"].dims == ("component", "parameter")
    assert float(found["weight"].sum()) == pytest.approx(1.0)


def test_the_posterior_of_a_grid_of_parameters_keeps_its_axes() -> None:
    grid = xr.Dataset(
        {
            "reflectance": (
                ("water", "dust", "band"),
                spectra_of(*np.meshgrid([0.5, 1.0], [0.2, 0.4, 0.6], indexing="ij")),
            )
        },
        coords={"water": [0.5, 1.0], "dust": [0.2, 0.4, 0.6], "wavelength": wavelength_coordinate()},
    )
    found = fitted().posterior(grid)
    assert found["weight"].dims == ("water", "dust", "component")
    assert list(found["dust"].values) == [0.2, 0.4, 0.6]


@pytest.mark.oracle
@pytest.mark.parametrize("n_latent", [0, 1])
def test_simulated_spectra_are_the_reference_s_with_the_bands_of_training(n_latent: int) -> None:
    truth = make_truth(("time", "y", "x"))
    spectra = fitted(n_latent).simulate(truth)
    rows = np.stack([truth[name].values.ravel() for name in PARAMETERS], axis=1)
    expected = reference.simulate(dense(fitted(n_latent)), rows)
    np.testing.assert_allclose(spectra.values.reshape(-1, 8), expected, rtol=1e-9)
    assert spectra.dims == ("time", "y", "x", "band")
    assert spectra.name == "reflectance"
    assert spectra.attrs == {"units": "1"}
    np.testing.assert_array_equal(spectra["wavelength"], WAVELENGTHS)
    assert spectra["wavelength"].attrs == {"units": "nm"}
    assert {"time", "y", "x"} <= set(spectra.coords)


def test_simulation_broadcasts_parameters_and_latents() -> None:
    axes = xr.Dataset(coords={"water": np.linspace(0.2, 1.8, 4), "dust": np.linspace(0.1, 0.9, 3)})
    latents = xr.DataArray([[-1.0], [0.0], [1.0], [2.0], [3.0]], dims=("case", "latent"))
    spectra = fitted(1).simulate(axes, latents)
    assert dict(spectra.sizes) == {"water": 4, "dust": 3, "case": 5, "band": 8}
    assert list(spectra["dust"].values) == list(axes["dust"].values)
    x = np.array([axes["water"][1], axes["dust"][2], 3.0])
    expected = reference.inverse_regression(dense(fitted(1)), x[None])
    np.testing.assert_allclose(spectra.isel(water=1, dust=2, case=4), expected[0], rtol=1e-9)


def test_simulated_spectra_carry_the_unit_of_training_and_can_be_inverted() -> None:
    training = make_training(noise=0.0).assign_coords(wavelength=wavelength_coordinate(unit="um"))
    inverter = GLLiMInverter(n_latent=1, **{**QUICK, "max_iter": 20}).fit(training)
    truth = make_truth()
    spectra = inverter.simulate(truth)
    assert spectra["wavelength"].attrs["units"] == "um"
    np.testing.assert_allclose(spectra["wavelength"], WAVELENGTHS * 1e-3)
    errors = nrmse(inverter.invert(spectra), truth)
    assert float(errors["water"]) < 0.35
    assert float(errors["dust"]) < 0.35


def test_an_unsupervised_model_simulates_from_its_latents() -> None:
    latents = xr.DataArray([[0.0, 1.0], [2.0, -1.0]], dims=("case", "latent"))
    spectra = unsupervised().simulate(xr.Dataset(), latents)
    expected = reference.inverse_regression(dense(unsupervised()), latents.values)
    np.testing.assert_allclose(spectra, expected, rtol=1e-9)
    with refuses(ValueError, "latents", "latent="):
        unsupervised().simulate(xr.Dataset())


def test_maps_are_simulated_with_nan_where_they_hold_nodata() -> None:
    cube = make_cube()
    cube.values[0, 0, 0], cube.values[1, 2] = np.nan, np.nan
    maps = fitted(1).invert(cube, outputs=["mean", "latent"])
    spectra = fitted(1).simulate(maps, maps["latent"])
    plain = fitted(1).simulate(maps.fillna(0.5), maps["latent"].fillna(0.5))
    xr.testing.assert_allclose(spectra, plain.where(maps["water"].notnull()), rtol=1e-12)
    assert int(spectra.isnull().sum()) == spectra.sizes["band"]


def test_what_cannot_be_simulated_is_refused() -> None:
    truth = make_truth()
    with refuses(ValueError, "'dust'", "'water'"):
        fitted().simulate(truth.drop_vars("dust"))
    endless = truth.copy(deep=True)
    endless["water"][1, 2] = np.inf
    with refuses(ValueError, "1 row", "infinity"):
        fitted().simulate(endless)
    with refuses(ValueError, "'water'", "numbers"):
        fitted().simulate(truth.assign(water="wet"))
    with refuses(ValueError, "'latent_dim': 1", "{'latent': 2}"):
        fitted(1).simulate(truth, xr.DataArray([0.0, 1.0], dims="latent"))
    with refuses(TypeError, "Dataset", "dict"):
        fitted().simulate({"water": 1.0, "dust": 0.5})  # type: ignore[arg-type]
    with refuses(TypeError, "'latent_dim'", "ndarray"):
        fitted(1).simulate(truth, np.zeros(1))  # type: ignore[arg-type]


def by_hand(estimate: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    error = estimate - truth
    deviation = truth - truth.mean()
    return {
        "nrmse": float(np.sqrt((error**2).sum() / (deviation**2).sum())),
        "rmse": float(np.sqrt((error**2).mean())),
        "bias": float(error.mean()),
        "r2": float(1 - (error**2).sum() / (deviation**2).sum()),
        "n": error.size,
    }


@pytest.mark.parametrize("chunks", [None, {"sample": 30}])
def test_a_table_is_evaluated_against_its_parameters(chunks: Any) -> None:
    test = make_training(100, seed=8)
    table = fitted(1).evaluate(test if chunks is None else test.chunk(chunks))
    maps = fitted(1).invert(test)
    assert list(table["parameter"].values) == PARAMETERS
    assert list(table["units"].values) == ["g m-2", "1"]
    for name in PARAMETERS:
        for metric, value in by_hand(maps[name].values, test[name].values).items():
            assert float(table[metric].sel(parameter=name)) == pytest.approx(value, rel=1e-9), metric


@pytest.mark.parametrize("order", [("y", "x", "band"), ("band", "x", "y")])
@pytest.mark.parametrize("chunks", [None, {"y": 2}])
def test_a_cube_is_evaluated_against_truth_maps_without_its_nodata(order: tuple[str, ...], chunks: Any) -> None:
    truth = make_truth()
    cube = make_cube(order)
    cube.loc[{"y": cube["y"][0], "x": cube["x"][0]}] = np.nan
    scene = truth.assign(reflectance=cube, haze=truth["water"] * 0.0)
    scene["water"][4, 4] = np.nan
    table = fitted(1).evaluate(scene if chunks is None else scene.chunk(chunks))
    assert list(table["n"].values) == [28, 29]
    maps = fitted(1).invert(scene)
    keep = np.isfinite(maps["dust"].transpose("y", "x").values)
    expected = by_hand(maps["dust"].transpose("y", "x").values[keep], truth["dust"].values[keep])
    assert float(table["nrmse"].sel(parameter="dust")) == pytest.approx(expected["nrmse"], rel=1e-9)
    assert float(table["rmse"].sel(parameter="dust")) == pytest.approx(expected["rmse"], rel=1e-9)


def test_the_truth_may_be_coordinates_axes_or_levels_of_an_index() -> None:
    flat = make_training(60, seed=8)
    expected = fitted(1).evaluate(flat)
    assert_close(fitted(1).evaluate(flat.set_coords(PARAMETERS)), expected)
    assert_close(fitted(1).evaluate(flat.set_index(sample=PARAMETERS)), expected)
    water, dust = np.linspace(0.2, 1.8, 6), np.linspace(0.1, 0.9, 5)
    full = np.meshgrid(water, dust, indexing="ij")
    grid = xr.Dataset(
        {"reflectance": (("water", "dust", "band"), spectra_of(*full))},
        coords={"water": water, "dust": dust, "wavelength": wavelength_coordinate()},
    )
    rows = xr.Dataset(
        {
            "reflectance": (("sample", "band"), spectra_of(*full).reshape(-1, 8)),
            "water": ("sample", full[0].ravel()),
            "dust": ("sample", full[1].ravel()),
        },
        coords={"wavelength": wavelength_coordinate()},
    )
    assert_close(fitted(1).evaluate(grid), fitted(1).evaluate(rows))
    assert_close(fitted(1).evaluate(grid.transpose("band", "dust", "water")), fitted(1).evaluate(rows))


def test_evaluation_leaves_the_test_set_alone_and_takes_the_options_of_inversion() -> None:
    test = make_training(40).set_coords(PARAMETERS)
    test["wavelength"] = test["wavelength"] + 3.0
    before = test.copy(deep=True)
    with refuses(ValueError, "within 1 nm"):
        fitted().evaluate(test)
    assert fitted().evaluate(test, tolerance=4.0)["n"].values.tolist() == [40, 40]
    xr.testing.assert_identical(test, before)


def test_a_truth_that_cannot_be_compared_is_refused() -> None:
    test = make_training(40)
    with refuses(ValueError, "'water', 'dust'", "not in the test set", "'reflectance'"):
        fitted().evaluate(test.drop_vars(["water", "dust"]))
    with refuses(ValueError, "'kg m-2'", "'g m-2'", "'water'"):
        fitted().evaluate(test.assign(water=test["water"].assign_attrs(units="kg m-2")))
    with refuses(ValueError, "'water'", "numbers"):
        fitted().evaluate(test.assign(water=("sample", ["wet"] * 40)))
    with refuses(TypeError, "Dataset", "DataArray"):
        fitted().evaluate(test["reflectance"])  # type: ignore[arg-type]
    with refuses(ValueError, "no parameters"):
        unsupervised().evaluate(test)


@pytest.mark.parametrize("transforms", [{}, {"water": "log", "dust": "identity"}])
def test_intervals_of_a_posterior_far_too_narrow_are_widened_by_what_was_found(transforms: Any, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**QUICK, "n_components": 1, "n_latent": 0, "transforms": transforms}
    inverter = GLLiMInverter(**settings).fit(make_training(300))
    plain = inverter.invert(make_training(40)["reflectance"], outputs=["q50", "q05", "q95"])
    scores = 15.0 * np.random.default_rng(0).standard_normal((2, 400))
    correction = Recalibration.of_scores(xr.Dataset({"water": ("n", scores[0]), "dust": ("n", scores[1])}))
    inverter._take(replace(inverter.model_, recalibration=correction))
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    assert repr(loaded.model_.recalibration) == repr(correction)
    for made in (inverter, loaded):
        wide = made.invert(make_training(40)["reflectance"], outputs=["q50", "ci90"])
        for i, name in enumerate(PARAMETERS):
            scale = np.log if transforms and name == "water" else np.asarray
            own = scale(plain[f"{name}_q95"]) - scale(plain[f"{name}_q50"])
            found = scale(wide[f"{name}_ci90_upper"]) - scale(wide[f"{name}_q50"])
            np.testing.assert_allclose(found / own, correction.raw_score(i, 0.95) / 1.6448536, rtol=1e-4)
            assert float((found / own).min()) > 12.0
    test = make_training(200, seed=4)
    truth_in = [
        (test[n] >= made[f"{n}_ci90_lower"]) & (test[n] <= made[f"{n}_ci90_upper"])
        for made in [inverter.invert(test["reflectance"], outputs=["ci90"])]
        for n in PARAMETERS
    ]
    np.testing.assert_allclose(inverter.evaluate(test)["coverage_90"], [float(inside.mean()) for inside in truth_in])


def test_scores_are_those_of_pit_values_of_any_size() -> None:
    inverter, test = fitted(), make_training(50, seed=5)
    test["water"] = test["water"] + 5.0
    scores, pit = inversion_of(inverter).scores(test), inverter.pit(test)
    assert (pit["water"] == 1.0).any()
    assert float(scores["water"].max()) > 10.0
    np.testing.assert_allclose(ndtr(scores["dust"]), pit["dust"], rtol=1e-9, atol=1e-12)


def test_a_test_set_may_lack_parameters_and_give_others_as_known() -> None:
    test = make_training(60, seed=6)
    whole, part = (fitted().evaluate(t, measured=m) for t, m in ((test, False), (test.drop_vars("dust"), True)))
    assert (whole.attrs["truth"], part.attrs["truth"], part.attrs["absent"]) == ("simulated", "measured", "dust")
    assert "absent" not in whole.attrs
    assert_close(part, whole.sel(parameter=["water"]))
    assert list(fitted().pit(test.drop_vars("dust"))) == ["water"]
    known = fitted().evaluate(test.drop_vars("dust"), known={"dust": test["dust"]})
    maps = fitted().invert(test["reflectance"], known={"dust": test["dust"]})
    assert float(known["rmse"][0]) == pytest.approx(float(np.sqrt(((maps["water"] - test["water"]) ** 2).mean())))
    assert float(known["rmse"][0]) != pytest.approx(float(whole["rmse"][0]))


def test_weights_count_as_repeated_spectra_and_zero_leaves_out() -> None:
    test = make_training(80, seed=7)
    counts = np.random.default_rng(0).integers(0, 4, 80)
    repeated = fitted().evaluate(test.isel(sample=np.repeat(np.arange(80), counts)))
    given = test.assign(weight=("sample", counts.astype(float)))
    for found in (
        fitted().evaluate(given, weights="weight"),
        fitted().evaluate(test, weights=given["weight"]),
        fitted().evaluate(given.chunk(sample=30), weights="weight"),
    ):
        assert found["n"].values.tolist() == [(counts > 0).sum()] * 2
        assert "ks_p" not in found
        same = [name for name in found.data_vars if name != "n"]
        assert_close(found[same], repeated[same], rtol=1e-9)
    with refuses(ValueError, "weights 'w' not in the test set"):
        fitted().evaluate(test, weights="w")
    with refuses(TypeError, "groups must be the name"):
        fitted().evaluate(test, groups=3)
    with refuses(ValueError, "weights have dimensions {'sample': 79}"):
        fitted().evaluate(test, weights=given["weight"][:79])


def test_errors_of_scores_are_those_of_groups_whose_spectra_err_alike() -> None:
    test = make_training(60, seed=8)
    test["site"] = "sample", np.array(list("abcdefghijklmnopqrst") * 3)
    twice = xr.concat([test, test, test], "sample", join="override")
    found, alone = fitted().evaluate(twice, groups="site"), fitted().evaluate(test, groups="site")
    assert found["n_groups"].values.tolist() == alone["n_groups"].values.tolist() == [20, 20]
    columns = ["rmse_error", "coverage_90_error", "rmse", "coverage_90"]
    assert_close(found[columns], alone[columns], rtol=1e-9)
    pit, error = fitted().pit(test), fitted().invert(test["reflectance"])["water"] - test["water"]
    inside = (abs(2.0 * pit["water"] - 1.0) <= 0.9).astype(float)
    rng, draws = np.random.default_rng(0), []
    sums = [
        np.array([float(v[test["site"].values == s].sum()) for s in np.unique(test["site"])])
        for v in (error**2, inside)
    ]
    for _ in range(4000):
        picked = rng.integers(0, 20, 20)
        draws.append([np.sqrt(sums[0][picked].mean() / 3.0), sums[1][picked].mean() / 3.0])
    expected = np.std(draws, axis=0)
    np.testing.assert_allclose([alone["rmse_error"][0], alone["coverage_90_error"][0]], expected, rtol=0.12)
    assert np.isnan(fitted().evaluate(test.assign(site="one"), groups="site")["rmse_error"]).all()


def test_values_of_some_parameters_correct_these_alone() -> None:
    test = make_training(120, seed=9)
    plain = GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    inverter.recalibrate(test.drop_vars("water"), 50, measured=True)
    found = inverter.model_.recalibration
    assert (found.source, found.n.tolist()) == ("measurements", [0, 120])
    outputs = ["q05", "q95"]
    maps, before = (one.invert(test["reflectance"], outputs=outputs) for one in (inverter, plain))
    assert_close(maps[["water_q05", "water_q95"]], before[["water_q05", "water_q95"]], rtol=1e-9)
    assert float(abs(maps["dust_q95"] - before["dust_q95"]).max()) > 0.0
    again = recalibrated(inversion_of(inverter), test.drop_vars("water"), 50)
    share = coverage(again.before, [0.9])["coverage"].values
    inside = (maps["dust_q05"] <= test["dust"]) & (test["dust"] <= maps["dust_q95"])
    np.testing.assert_allclose(share, [[float(inside.mean())]], atol=0.01)
