"""``adapt``: learnt from unlabelled spectra, used as noise, refused where it should not be used."""

from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import specinvert
from specinvert.flags import OUT_OF_DOMAIN
from specinvert.nuisance import Discrepancy, Noise, apply
from specinvert.physics.mixing import simulate_mixtures

NOISE = 0.004
PARAMETERS = ["ice_fraction", "grain_size"]


@dataclass
class Case:
    """A model, what it was trained on, and spectra: like training, and with a smooth discrepancy."""

    inverter: specinvert.GLLiMInverter
    training: xr.Dataset
    like: xr.Dataset
    other: xr.Dataset
    found: xr.Dataset


@pytest.fixture(scope="module")
def case() -> Case:
    training = simulate_mixtures(1500, seed=0).isel(wavelength=slice(None, None, 6))
    inverter = specinvert.GLLiMInverter(8, n_latent=0, sigma="full", tol=0.05, random_state=0)
    inverter.fit(training, parameters=PARAMETERS, noise=NOISE)
    like = apply(simulate_mixtures(300, seed=1).isel(wavelength=slice(None, None, 6)), Noise(NOISE), seed=2)
    other = apply(like, Discrepancy(std=0.02, length_scale=150.0), seed=3)
    return Case(inverter, training, like, other, specinvert.adapt(inverter, other, training, NOISE))


def test_a_known_discrepancy_is_found_and_intervals_hold_again(case: Case) -> None:
    found = case.found
    assert not found.attrs["refused"]
    assert found.attrs["model"] == case.inverter.model_id
    assert float(found["amplitude"].mean()) == pytest.approx(0.02, rel=0.35)
    assert float(found["q_before"].max()) > 3.0 > 1.3 > float(found["q_after"].max())
    np.testing.assert_allclose(np.diagonal(found["discrepancy"]), found["amplitude"] ** 2)
    before, after = (case.inverter.evaluate(case.other, noise=noise) for noise in (None, found))
    assert float(before["coverage_90"].min()) < 0.5
    assert float(after["coverage_90"].min()) > 0.8
    assert (after["rmse"] < before["rmse"]).all()


def test_where_there_is_nothing_to_mend_nothing_changes(case: Case) -> None:
    found = specinvert.adapt(case.inverter, case.like, case.training, NOISE)
    assert found.attrs["verdict"] == "nothing to mend"
    before, after = (case.inverter.evaluate(case.like, noise=noise) for noise in (None, found))
    np.testing.assert_allclose(after["rmse"], before["rmse"], rtol=0.05)
    np.testing.assert_allclose(after["coverage_90"], before["coverage_90"], atol=0.02)


def test_it_is_the_covariance_that_noise_may_be_with_the_flags_from_before(case: Case) -> None:
    cube = case.other["reflectance"]
    as_noise = case.inverter.invert(cube, noise=case.found["discrepancy"].values, outputs=["estimate", "std"])
    maps = case.inverter.invert(cube, noise=case.found)
    for name in as_noise.data_vars:
        np.testing.assert_allclose(maps[name], as_noise[name], rtol=1e-9)
    plain = case.inverter.invert(cube)["quality_flag"]
    assert (plain.values & OUT_OF_DOMAIN).any()
    np.testing.assert_array_equal(maps["quality_flag"] & OUT_OF_DOMAIN, plain & OUT_OF_DOMAIN)
    assert "discrepancy" in maps.attrs["history"]


def test_bands_in_another_order_missing_ones_and_lazy_cubes_are_the_same_spectra(case: Case) -> None:
    turned = case.other.isel(wavelength=slice(None, None, -1))
    again = specinvert.adapt(case.inverter, turned, case.training, NOISE)
    np.testing.assert_allclose(again["amplitude"], case.found["amplitude"], rtol=1e-6)
    maps = [case.inverter.invert(cube, noise=case.found, outputs=["estimate"]) for cube in (case.other, turned)]
    np.testing.assert_allclose(maps[0]["grain_size"], maps[1]["grain_size"], rtol=1e-9)
    holed = case.other["reflectance"].copy()
    holed[:, 3], holed[::7, 5] = np.nan, np.nan
    kept = specinvert.adapt(case.inverter, holed, case.training, NOISE)
    assert kept.attrs["n_spectra"] == 257
    assert np.isfinite(kept["discrepancy"]).all()
    lazy = xr.DataArray(
        da.from_array(np.tile(case.other["reflectance"].values, (40, 1)), chunks=(500, -1)),
        dims=("sample", "wavelength"),
        coords={"wavelength": case.other["wavelength"]},
    )
    few = specinvert.adapt(case.inverter, lazy, case.training, NOISE, n_spectra=200)
    assert few.attrs["n_spectra"] == 200
    np.testing.assert_allclose(few["amplitude"].mean(), case.found["amplitude"].mean(), rtol=0.3)


def test_spectra_that_are_not_of_what_was_simulated_are_refused_unless_forced(case: Case) -> None:
    strange = case.other["reflectance"] * xr.where(case.other["wavelength"] > 1500.0, 3.0, 0.4)
    with pytest.warns(UserWarning, match="refused: its amplitude"):
        found = specinvert.adapt(case.inverter, strange, case.training, NOISE)
    with pytest.raises(ValueError, match="not to be used"):
        case.inverter.invert(strange, noise=found)
    with pytest.warns(UserWarning, match="forced"):
        forced = specinvert.adapt(case.inverter, strange, case.training, NOISE, force=True)
    case.inverter.invert(strange, noise=forced)


def test_what_cannot_be_learnt_from_is_an_error(case: Case) -> None:
    with pytest.raises(ValueError, match=r"trained with fit\(noise=\.\.\.\)"):
        specinvert.adapt(case.inverter, case.other, case.training)
    with pytest.raises(ValueError, match="adapt needs 20 spectra or more, and 12 of 12"):
        specinvert.adapt(case.inverter, case.other.isel(sample=slice(12)), case.training, NOISE)
    with pytest.raises(ValueError, match="n_spectra=3"):
        specinvert.adapt(case.inverter, case.other, case.training, NOISE, n_spectra=3)
    another = specinvert.GLLiMInverter(2, n_latent=0, sigma="diag", tol=0.5, random_state=1)
    another.fit(case.training, parameters=PARAMETERS, noise=NOISE)
    with pytest.raises(ValueError, match="was found for model"):
        another.invert(case.other, noise=case.found)


def test_a_committee_and_a_transform_of_spectra_are_adapted_in_their_own_units(case: Case) -> None:
    inverter = specinvert.GLLiMInverter(
        3, n_latent=0, sigma="diag", tol=0.2, random_state=0, n_ensemble=2, spectra_transform="log"
    ).fit(case.training, parameters=PARAMETERS, noise=NOISE)
    found = specinvert.adapt(inverter, case.other, case.training, NOISE)
    assert found.attrs["spectra_transform"] == "log"
    assert found["q_after"].max() < found["q_before"].max()
    before, after = (inverter.evaluate(case.other, noise=noise) for noise in (None, found))
    assert (after["coverage_90"] > before["coverage_90"]).all()
