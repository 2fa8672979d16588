"""Parameters that are never below zero in training have a bound there without being asked for."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, QUICK_FIT, assert_close, assert_same_fit, make_cube, make_training, spectra_of
from specinvert import GLLiMInverter, load_inverter
from specinvert.cli.inspection import describe_model

NAMES = ("water", "dust")


@cache
def bounded() -> GLLiMInverter:
    """With the default; do not change it."""
    return GLLiMInverter(n_latent=0, **QUICK_FIT).fit(make_training(300))


@pytest.mark.parametrize("noise", [None, 0.05])
@pytest.mark.parametrize("outputs", [("mean", "std", "q05", "ci90", "mode", "hdi90", "draws5"), ("mean", "cov")])
def test_results_are_never_below_zero_whatever_the_spectrum(outputs: tuple[str, ...], noise: float | None) -> None:
    rng = np.random.default_rng(0)
    cube = make_training(300, seed=4)["reflectance"] * np.exp(2.0 * rng.normal(size=(300, 1)))
    plain = GLLiMInverter(n_latent=0, **QUICK).fit(make_training(300))
    assert min(float(plain.invert(cube)[name].min()) for name in NAMES) < -0.01
    maps = bounded().invert(cube, noise=noise, outputs=outputs)
    for name, values in maps.data_vars.items():
        if name != "covariance":
            assert float(values.min()) >= 0.0, name


def test_far_from_the_bound_nothing_changes() -> None:
    training = make_training().assign(water=lambda d: d["water"] + 100.0, dust=lambda d: d["dust"] + 1000.0)
    inverter = GLLiMInverter(n_latent=0, **QUICK_FIT).fit(training)
    assert {entry.kind for entry in inverter.model_.transforms.entries} == {"softplus"}
    plain = GLLiMInverter(n_latent=0, **QUICK).fit(training)
    np.testing.assert_array_equal(inverter.log_likelihoods_, plain.log_likelihoods_)
    outputs = ("mean", "std", "q05", "hdi90", "mode", "entropy", "flag", "residual")
    cube = make_cube()
    assert_close(inverter.invert(cube, outputs=outputs), plain.invert(cube, outputs=outputs), 1e-12)
    assert_close(inverter.invert(cube, outputs=("cov",)), plain.invert(cube, outputs=("cov",)), 1e-9)
    noise = xr.full_like(cube.isel(band=0, drop=True), 0.01)
    assert_close(inverter.invert(cube, noise=noise), plain.invert(cube, noise=noise), 1e-10)
    assert_close(inverter.evaluate(training), plain.evaluate(training), 5e-3)


@pytest.mark.parametrize("known", [{}, {"dust": 0.02}, {"dust": (0.0, 0.1)}])
@pytest.mark.parametrize("noise", [None, "pixels"])
def test_moments_and_quantiles_are_those_of_draws(known: dict[str, Any], noise: str | None) -> None:
    cube = xr.DataArray(spectra_of([0.02, 0.3, 1.0], [0.02, 0.05, 0.5]), dims=("pixel", "band"))
    cube = cube.assign_coords(make_training()["reflectance"].isel(sample=0, drop=True).coords)
    given: Any = None if noise is None else xr.DataArray([0.02, 0.03, 0.02], dims="pixel")
    outputs = ["mean", "std", "q05", "q95", "cov"]
    maps = bounded().invert(cube, noise=given, known=known, outputs=outputs)
    assert_close(bounded().invert(cube, noise=given, known=known)[list(NAMES)], maps[list(NAMES)], 1e-4)
    if isinstance(known.get("dust"), tuple):
        assert ((maps["dust"] >= 0) & (maps["dust"] <= 0.1)).all()
        return
    draws = bounded().invert(cube, noise=given, known=known, outputs=["draws4000"])
    for name in NAMES:
        of = draws[f"{name}_draws"]
        deviation = maps[f"{name}_std"].values
        np.testing.assert_allclose(maps[name], of.mean("draw"), atol=0.06 * deviation.max())
        np.testing.assert_allclose(deviation, of.std("draw"), atol=0.06 * deviation.max())
        np.testing.assert_allclose(maps[f"{name}_q05"], of.quantile(0.05, "draw"), atol=0.2 * deviation.max())
    product = (draws["water_draws"] * draws["dust_draws"]).mean("draw") - maps["water"] * maps["dust"]
    scale = float((maps["water_std"] * maps["dust_std"]).max())
    np.testing.assert_allclose(maps["covariance"].values[:, 0, 1], product, atol=0.1 * scale + 1e-3)


def test_lazy_gridded_and_unsupervised_training_sets() -> None:
    training = make_training()
    whole = GLLiMInverter(n_latent=0, **QUICK_FIT).fit(training)
    lazy = GLLiMInverter(n_latent=0, **QUICK_FIT).fit(training.chunk(sample=40), persist=False)
    assert_same_fit(lazy, whole, 1e-10)
    assert lazy.model_.transforms == whole.model_.transforms
    water, dust = np.linspace(0.0, 2.0, 12), np.linspace(0.0, 1.0, 10)
    values = spectra_of(water[:, None], dust) + 0.01 * np.random.default_rng(0).normal(size=(12, 10, 8))
    coords = {"water": water, "dust": dust, "wavelength": training["wavelength"]}
    grid = xr.Dataset({"reflectance": (("water", "dust", "band"), values)}, coords=coords)
    table = GLLiMInverter(n_latent=0, **QUICK_FIT).fit(grid)
    assert [entry.kind for entry in table.model_.transforms.entries] == ["softplus"] * 2
    assert float(table.model_.low.min()) == 0.0
    assert not GLLiMInverter(n_latent=1, **QUICK_FIT).fit(training, parameters=[]).model_.transforms.entries


def test_some_parameters_may_be_named_and_all_left_free(tmp_path: Path) -> None:
    training = make_training()
    for spec, kinds in (
        ({"water": "identity"}, ["identity", "softplus"]),
        ({"water": "sqrt"}, ["sqrt", "softplus"]),
        ({}, ["identity", "identity"]),
    ):
        inverter = GLLiMInverter(n_latent=0, transforms=spec, **QUICK_FIT).fit(training)
        assert [entry.kind for entry in inverter.model_.transforms.entries] == kinds
        inverter.to_netcdf(tmp_path / "model.nc")
        back = load_inverter(tmp_path / "model.nc")
        assert back.model_.transforms == inverter.model_.transforms
        assert_close(back.invert(training["reflectance"]), inverter.invert(training["reflectance"]), 1e-12)
        assert [entry.kind for entry in back.fit(training).model_.transforms.entries] == kinds
    scale = bounded().model_.transforms.entries[0].unit
    assert (
        f"water: {bounded().model_.low[0]:g} to {bounded().model_.high[0]:g} g m-2, softplus of scale {scale:.3g}"
        in (describe_model(bounded()))
    )


def test_scores_hold_truths_below_the_bound_and_in_the_units_of_the_parameter() -> None:
    test = make_training(400, seed=5)
    low = np.flatnonzero(test["water"].values > 1.0)[:20]
    test["water"][low] = -0.1
    scores, plain = bounded().evaluate(test), GLLiMInverter(n_latent=0, **QUICK).fit(make_training(300)).evaluate(test)
    np.testing.assert_allclose(scores["crps"], plain["crps"], rtol=0.1)
    assert (bounded().pit(test)["water"][low] < 0.05).all()
    alone = bounded().invert(test["reflectance"][:1], outputs=["draws9999"])["water_draws"].values[0]
    truth = float(test["water"][30])
    one = test.isel(sample=[30])
    draws = bounded().invert(one["reflectance"], outputs=["draws9999"])["water_draws"].values[0]
    assert len(alone) == len(draws)
    expected = np.abs(draws - truth).mean() - 0.5 * np.abs(draws[:5000, None] - draws[None, 5000:9999]).mean()
    assert float(bounded().evaluate(one)["crps"][0]) == pytest.approx(expected, rel=0.05)


def test_the_density_of_a_parameter_near_its_bound_holds_its_mass_without_a_spike() -> None:
    from specinvert.inverter import explain, inversion_of

    one = make_training(1, seed=4)["reflectance"].copy(data=spectra_of([0.02], [0.3]))
    (water, _) = explain(inversion_of(bounded(), noise=0.2), one).marginals
    assert water.values.min() == 0.0
    assert np.trapezoid(water.density, water.values) == pytest.approx(1.0, abs=0.02)
    assert water.density[0] < 3.0 * water.density[water.values > 0.1].max()
