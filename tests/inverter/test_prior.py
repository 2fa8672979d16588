"""``reweight``: one step to the prior of a scene, and no step where it would mislead."""

from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import specinvert
from specinvert.nuisance import Discrepancy, apply
from specinvert.physics.mixing import simulate_mixtures

PARAMETERS = ["ice_fraction", "grain_size"]


@dataclass
class Case:
    """A model, spectra of its own prior, those of a part of it, and the model of these."""

    inverter: specinvert.GLLiMInverter
    like: xr.Dataset
    narrow: xr.Dataset
    reweighted: specinvert.GLLiMInverter


def simulated(n: int, seed: int) -> xr.Dataset:
    return simulate_mixtures(n, noise=0.05, seed=seed).isel(wavelength=slice(None, None, 6))


@pytest.fixture(scope="module")
def case() -> Case:
    inverter = specinvert.GLLiMInverter(8, n_latent=1, sigma="diag", tol=0.05, random_state=0)
    inverter.fit(simulated(1500, 0), parameters=PARAMETERS)
    many = simulated(1500, 1)
    narrow = many.isel(sample=np.flatnonzero(abs(many["ice_fraction"].values - 0.45) < 0.15))
    return Case(inverter, many.isel(sample=slice(400)), narrow, specinvert.reweight(inverter, narrow["reflectance"]))


def test_estimates_of_a_scene_with_a_narrower_prior_are_better_and_intervals_hold(case: Case) -> None:
    told, spread = case.reweighted.model_.scene_prior, float(case.narrow["ice_fraction"].std())
    before, after = (one.evaluate(case.narrow) for one in (case.inverter, case.reweighted))
    ratio = (after["rmse"] / before["rmse"]).values
    assert ratio[0] < 0.9
    assert ratio[1] < 1.03
    assert float(after["coverage_90"].min()) > 0.84
    assert told is not None
    assert told.of == case.inverter.model_id != case.reweighted.model_id
    assert 0.2 < told.effective < 0.9
    assert told.gain[0] > 2.0 * told.gain[1]
    assert told.width_ratio[0] < 0.97
    assert min(told.covered) > 0.85
    assert told.verdict.startswith("reweighted: ")
    prior = [one.parameters_ for one in (case.inverter, case.reweighted)]
    stds = [float(np.sqrt(p.pi @ (p.Gamma[:, 0, 0] + (p.c[:, 0] - p.pi @ p.c[:, 0]) ** 2))) for p in prior]
    assert spread < stds[1] < stds[0]
    for name in ("A", "b", "Sigma"):
        np.testing.assert_array_equal(getattr(prior[0], name), getattr(prior[1], name))


def test_where_the_scene_has_the_prior_of_the_model_nothing_changes(case: Case) -> None:
    for n in (100, 400):
        made = specinvert.reweight(case.inverter, case.like["reflectance"].isel(sample=slice(n)))
        assert made.model_.scene_prior is not None
        assert made.model_.scene_prior.verdict == "the scene has the prior of the model"
        assert made.model_id == case.inverter.model_id
    assert case.inverter.model_.scene_prior is None


def test_a_second_step_is_refused_by_force_too(case: Case) -> None:
    with pytest.raises(ValueError, match="a second step overshoots"):
        specinvert.reweight(case.reweighted, case.narrow["reflectance"], force=True)


def test_spectra_that_the_model_is_not_calibrated_for_are_refused_unless_forced(case: Case) -> None:
    other = apply(case.narrow, Discrepancy(std=0.05, length_scale=150.0), seed=3)["reflectance"]
    with pytest.raises(ValueError, match=r"refused: .*not calibrated for the spectra"):
        specinvert.reweight(case.inverter, other)
    with pytest.warns(UserWarning, match="forced: "):
        forced = specinvert.reweight(case.inverter, other, force=True)
    assert "forced" in forced.invert(other).attrs["history"]


def test_a_scene_of_which_the_prior_has_hardly_a_sample_is_refused() -> None:
    training, many = (
        simulate_mixtures(n, noise=0.002, seed=n).isel(wavelength=slice(None, None, 6)) for n in (800, 2000)
    )
    inverter = specinvert.GLLiMInverter(8, n_latent=0, sigma="diag", tol=0.1, random_state=0)
    inverter.fit(training, parameters=PARAMETERS)
    near = (abs(many["ice_fraction"] - 0.5) < 0.03) & (abs(many["grain_size"] - many["grain_size"].median()) < 20.0)
    few = np.resize(np.flatnonzero(near), 500)
    with pytest.raises(ValueError, match="of the samples would count"):
        specinvert.reweight(inverter, many["reflectance"].isel(sample=few))


def test_what_there_is_no_step_from_is_an_error(case: Case) -> None:
    with pytest.raises(ValueError, match="reweight needs 20 spectra in the domain of the model or more, and 12 of 12"):
        specinvert.reweight(case.inverter, case.like["reflectance"].isel(sample=slice(12)))
    with pytest.raises(ValueError, match="n_spectra=3"):
        specinvert.reweight(case.inverter, case.like["reflectance"], n_spectra=3)
    unsupervised = specinvert.GLLiMInverter(2, n_latent=2, tol=0.5, random_state=0)
    unsupervised.fit(case.like, parameters=[])
    with pytest.raises(ValueError, match="parameters with a prior"):
        specinvert.reweight(unsupervised, case.like["reflectance"])


def test_a_lazy_cube_a_committee_and_what_adapt_found_go_with_it(case: Case) -> None:
    inverter = specinvert.GLLiMInverter(3, n_latent=0, sigma="diag", tol=0.2, random_state=0, n_ensemble=2)
    training = simulated(1500, 0)
    inverter.fit(training, parameters=PARAMETERS)
    found = specinvert.adapt(inverter, case.narrow["reflectance"], training)
    lazy = xr.DataArray(
        da.from_array(np.tile(case.narrow["reflectance"].values, (9, 1)), chunks=(100, -1)),
        dims=("sample", "wavelength"),
        coords={"wavelength": case.narrow["wavelength"]},
    )
    made = specinvert.reweight(inverter, lazy, found, n_spectra=300)
    assert made.model_.scene_prior is not None
    assert made.model_.scene_prior.n_spectra <= 300
    made.invert(lazy, noise=found).compute()
