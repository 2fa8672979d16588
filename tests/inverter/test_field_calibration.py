"""A model calibrated by field values: every output of it, what is stored, undone, refused and told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, assert_close, fitted, make_training
from specinvert import GLLiMInverter, load_inverter
from specinvert.cubes import CALIBRATION_KNOTS, FieldCalibration
from specinvert.scores import model_findings

PARTS = ["q05", "q5", "ci90", "std", "cov", "hdi90", "modes2", "draws3", "n_modes", "entropy"]


def field(n: int = 40, n_groups: int = 8) -> xr.Dataset:
    """Measured values of water, too high by 0.4, the half of them without dust, of so many sites on two days each."""
    made = make_training(n, seed=5)
    site = np.arange(n) % n_groups
    water = made["water"] + 0.4 + 0.02 * np.random.default_rng(6).standard_normal(n)
    sites = np.array([f"site {i}" for i in site], dtype=object)
    days = np.array(["2026-05-01", "2026-06-01"], dtype="datetime64[D]").astype("datetime64[ns]")[
        np.arange(n) // n_groups % 2
    ]
    return made.assign(
        water=water.assign_attrs(made["water"].attrs),
        dust=made["dust"].where(np.arange(n) < 12),
        site=("sample", sites),
        day=("sample", days),
    )


def calibrated(**options: Any) -> GLLiMInverter:
    """A new inverter calibrated by the field values, of which those of dust are too few."""
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    with pytest.warns(UserWarning, match="Not calibrated: dust, 12 values in"):
        return inverter.calibrate(field(), **{"groups": "site"} | options)


def given(n_ensemble: int = 1) -> tuple[GLLiMInverter, GLLiMInverter]:
    """An inverter, and the same with a calibration of water: z -> 0.5 + 2 z, intervals three times as wide."""
    inverter = fitted(n_ensemble)
    raw = np.stack([3.0 * CALIBRATION_KNOTS, CALIBRATION_KNOTS])
    calibration = FieldCalibration(np.array([0.5, 0.0]), np.array([2.0, 1.0]), raw, {}, "site")
    other = GLLiMInverter(n_latent=0, **QUICK | {"n_ensemble": n_ensemble})
    other._take(replace(inverter.model_, calibration=calibration))
    return inverter, other


@pytest.mark.parametrize("n_ensemble", [1, 2])
def test_bias_and_slope_are_in_every_output_and_widths_in_those_of_intervals(n_ensemble: int) -> None:
    plain, corrected = given(n_ensemble)
    spectra = make_training(20, seed=7)["reflectance"]
    before, after = (one.invert(spectra, outputs=["mean", *PARTS]) for one in (plain, corrected))
    assert_close(after["water"], 0.5 + 2.0 * before["water"], rtol=1e-6)
    assert_close(after["water_q5"], 0.5 + 2.0 * before["water_q5"], rtol=1e-6)
    assert_close(after["water_std"], 6.0 * before["water_std"], rtol=1e-6)
    np.testing.assert_allclose(
        after["covariance"], before["covariance"] * np.array([[36.0, 6.0], [6.0, 1.0]]), rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(after["water_modes"], 0.5 + 2.0 * before["water_modes"], rtol=1e-4)
    np.testing.assert_allclose(after["water_draws"], 0.5 + 2.0 * before["water_draws"], rtol=1e-6)
    np.testing.assert_allclose(after["entropy"], before["entropy"] + np.log(2.0), atol=1e-6)
    for name in ("dust", "dust_std", "dust_q05", "n_modes"):
        np.testing.assert_allclose(after[name], before[name], rtol=1e-6)
    wider = (after["water_ci90_upper"] - after["water_ci90_lower"]) / (
        before["water_ci90_upper"] - before["water_ci90_lower"]
    )
    shortest = after["water_hdi90_upper"] - after["water_hdi90_lower"]
    assert float(wider.median()) == pytest.approx(6.0, rel=0.1)
    assert float((shortest / (after["water_ci90_upper"] - after["water_ci90_lower"])).median()) == pytest.approx(
        1, abs=0.1
    )
    np.testing.assert_array_equal(after["water_q05"], after["water_ci90_lower"])


def test_a_truth_has_the_score_at_which_its_quantile_is() -> None:
    corrected, test = given()[1], make_training(20, seed=7)
    pit = corrected.pit(test)["water"]
    inside = (pit > 0.05) & (pit < 0.95)
    maps = corrected.invert(test, outputs=["ci90"])
    expected = (test["water"] > maps["water_ci90_lower"]) & (test["water"] < maps["water_ci90_upper"])
    np.testing.assert_array_equal(inside, expected)


def test_what_is_known_is_known_in_units_of_the_field() -> None:
    plain, corrected = given()
    spectra = make_training(10, seed=7)["reflectance"]
    before = plain.invert(spectra, known={"water": 0.8})
    after = corrected.invert(spectra, known={"water": 2.1})
    assert_close(after["dust"], before["dust"], rtol=1e-9)
    assert (after["water"] == 2.1).all()
    within = corrected.invert(spectra, known={"water": (1.5, 2.1)}, outputs=["q05", "q95"])
    assert (within["water_q05"] >= 1.5).all()
    assert (within["water_q95"] <= 2.1).all()


def test_field_values_calibrate_are_stored_and_undone(tmp_path: Any) -> None:
    inverter = calibrated()
    found = inverter.model_.calibration
    assert found is not None
    row = found.table["water"]
    assert (row["kind"], row["n"], row["n_groups"], list(found.table)) == ("slope", 40, 8, ["water"])
    assert (found.shift[1], found.slope[1]) == (0.0, 1.0)
    fresh = make_training(200, seed=8)
    shifted = fresh.assign(water=(fresh["water"] + 0.4).assign_attrs(fresh["water"].attrs))
    scores = inverter.evaluate(shifted).sel(parameter="water")
    assert 0.82 < float(scores["coverage_90"]) <= 1.0
    assert abs(float(scores["bias"])) < 0.1
    told = [one for one in model_findings(inverter.model_) if "field values" in one.title]
    assert "8 groups promise" in told[0].what
    maps = inverter.invert(fresh["reflectance"], outputs=["ci90"])
    assert "calibrated: water by 40 field values of 8 groups (site), bias and slope corrected" in maps.attrs["history"]
    assert '"calibration"' in maps.attrs["conditions"]
    assert "Draws, modes" in maps.attrs["calibration"]
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    assert repr(loaded.model_.calibration) == repr(found)
    xr.testing.assert_identical(loaded.invert(fresh["reflectance"], outputs=["ci90"]), maps)
    xr.testing.assert_equal(inverter.invert(fresh["reflectance"].chunk(sample=50), outputs=["ci90"]).compute(), maps)
    xr.testing.assert_identical(
        inverter.calibrate(None).invert(fresh["reflectance"]), fitted().invert(fresh["reflectance"])
    )


def test_groups_may_be_several_columns_or_an_array() -> None:
    assert calibrated(groups=["site", "day"]).model_.calibration.table["water"]["n_groups"] == 16  # type: ignore[union-attr]
    array = xr.DataArray(np.arange(40) // 8, dims="sample", name="plot")
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    inverter.calibrate(field().drop_vars("dust"), array, correction="bias")
    found = inverter.model_.calibration
    assert found is not None
    assert (found.groups, found.table["water"]["n_groups"], found.slope[0]) == ("plot", 5, 1.0)


def test_a_calibration_under_noise_tells_where_other_noise_is_given() -> None:
    inverter = calibrated(noise=0.02)
    spectra = make_training(5, seed=7)["reflectance"]
    inverter.invert(spectra, noise=0.02)
    with pytest.warns(UserWarning, match=r"calibrated by field values with noise 0\.02, and inverts without noise"):
        inverter.invert(spectra)


def test_a_new_recalibration_undoes_the_calibration_and_says_so() -> None:
    inverter = calibrated()
    with pytest.warns(UserWarning, match="The calibration by field values is undone"):
        inverter.recalibrate(make_training(), 100)
    assert inverter.model_.calibration is None
    assert inverter.model_.recalibration is not None
    with pytest.warns(UserWarning, match="Not calibrated"):
        inverter.calibrate(field(), "site")
    assert inverter.model_.recalibration is not None


def test_values_that_do_not_follow_the_estimates_widen_and_are_told() -> None:
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    mixed = field().drop_vars("dust")
    mixed["water"] = mixed["water"].copy(data=np.random.default_rng(9).permutation(mixed["water"].values))
    spectra = make_training(20, seed=7)["reflectance"]
    before = inverter.invert(spectra, outputs=["ci90"])
    with pytest.warns(UserWarning, match="Field values do not follow the estimates: water"):
        inverter.calibrate(mixed, "site")
    after = inverter.invert(spectra, outputs=["ci90"])
    width = [m["water_ci90_upper"] - m["water_ci90_lower"] for m in (before, after)]
    assert (width[1] > 1.1 * width[0]).all()


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda f: f.isel(sample=slice(14)), {}, "needs 15 field values of a parameter in 4 groups"),
        (lambda f: f.assign(site=f["site"] * 0), {"groups": "one"}, "groups 'one' not in the test set"),
        (lambda f: f.assign(one=("sample", np.arange(40) % 3)), {"groups": "one"}, "water, 40 values in 3 groups"),
        (lambda f: f.assign(one=("sample", [np.nan] * 2 + [1.0] * 38)), {"groups": "one"}, "2 of 40 .* have no group"),
        (lambda f: f, {"groups": None}, "groups= must say"),
        (lambda f: f, {"correction": "gain"}, "correction='gain' is not one of"),
        (lambda f: f.rename(water="lai", dust="cab"), {}, "not in the test set"),
    ],
)
def test_what_cannot_calibrate_is_refused_and_changes_nothing(change: Any, options: Any, said: str) -> None:
    inverter = fitted()
    with pytest.raises(ValueError, match=said):
        inverter.calibrate(change(field()), **{"groups": "site"} | options)
    assert inverter.model_.calibration is None


def test_values_beyond_the_bounds_of_a_transform_are_refused() -> None:
    inverter = GLLiMInverter(n_latent=0, **QUICK | {"transforms": {"water": ("logit", 0, 2.01)}}).fit(make_training())
    with pytest.raises(
        ValueError, match=r"field values of 'water' are outside the bounds of its transform 'logit', 0 to"
    ):
        inverter.calibrate(field(), "site")
