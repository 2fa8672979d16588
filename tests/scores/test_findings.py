"""Findings: what is wrong with training, estimates, maps and bands is told, each with its number, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from labelled import fitted
from specinvert.cubes.bands import Bands
from specinvert.gllim.model.parameters import Constraints
from specinvert.scores.findings import band_findings, evaluation_findings, map_findings, model_findings, other_model


def healthy():
    """A model that leaves nothing to say."""
    model = fitted().model_
    bands = replace(model.bands, guessed=False)
    return replace(model, converged=True, n_removed=0, n_samples=10_000, log_tail=-4.0, bands=bands)


def full(model):
    theta = model.theta
    constraints = Constraints(sigma="full")
    return replace(theta, Sigma=theta.sigma_dense(), constraints=constraints)


def test_a_healthy_model_has_no_findings():
    assert list(model_findings(healthy())) == []


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"converged": False}, ["did not converge", "4 iterations", "max_iter"]),
        ({"n_removed": 2}, ["removed", "2 components", "3 are left"]),
        ({"total_weight": 15.0}, ["Few training samples", "3 of 3 components", "9 that an affine map of 3 columns"]),
        ({"log_tail": np.nan}, ["domain", "10000 training samples"]),
        ({"log_tail": -60.0}, ["held out", "-60", "more latent dimensions"]),
    ],
    ids=lambda value: str(next(iter(value))),
)
def test_what_is_wrong_with_training_is_found(changes, parts):
    (finding,) = model_findings(replace(healthy(), **changes))
    said = f"{finding.title} {finding.what} {finding.todo}"
    for part in parts:
        assert part in said


def test_latents_at_the_end_of_the_search_and_an_overfitted_full_covariance_are_found():
    model = fitted(1).model_
    searched = replace(model, settings=model.settings | {"n_latent": "bic"}, bics={0: 3.0, 1: 1.0})
    searched = replace(searched, converged=True, n_removed=0, n_samples=10_000, log_tail=-4.0)
    (finding,) = model_findings(searched)
    assert "BIC chose 1 of 0, 1" in finding.what
    assert list(model_findings(replace(searched, bics={0: 3.0, 1: 1.0, 2: 2.0}))) == []
    covariances = replace(healthy(), members=(full(healthy()),), total_weight=20.0, log_tail=-60.0)
    titles = [finding.title for finding in model_findings(covariances)]
    assert "Few training samples for a full covariance" in titles
    assert "sigma='diag'" in list(model_findings(covariances))[-1].todo


def scores(**columns):
    good = {"nrmse": [0.1, 0.2], "rmse": [1.0, 1.0], "bias": [0.1, 0.0], "coverage_90": [0.9, 0.89], "n": [900, 900]}
    both = {name: ("parameter", values) for name, values in (good | columns).items()}
    return xr.Dataset(both, coords={"parameter": ["lai", "cab"]})


@pytest.mark.parametrize(
    ("columns", "parts", "serious"),
    [
        ({"coverage_90": [0.9, 0.62]}, ["too small: cab", "62 % for cab", "recalibrate"], True),
        ({"coverage_90": [0.99, 0.98]}, ["too large: lai, cab", "99 % for lai, 98 % for cab"], False),
        ({"nrmse": [0.97, 0.2]}, ["Not retrievable", "lai", "0.97 for lai"], True),
        ({"bias": [-0.8, 0.1]}, ["too low: lai", "-0.8 (80 % of the RMSE)"], False),
        ({"n": [100, 100]}, ["small", "100 pairs", "6 %"], False),
        ({"n": [0, 900], "nrmse": [np.nan, 0.2], "coverage_90": [np.nan, 0.9]}, ["Not evaluated: lai"], True),
    ],
    ids=str,
)
def test_what_is_wrong_with_estimates_is_found(columns, parts, serious):
    assert list(evaluation_findings(scores())) == []
    (finding,) = evaluation_findings(scores(**columns))
    for part in parts:
        assert part in f"{finding.title} {finding.what} {finding.todo}"
    assert finding.serious is serious


def test_advice_on_measured_truth_is_other_than_on_simulated():
    narrow = scores(coverage_90=[0.5, 0.9])
    (simulated,), (measured,) = (evaluation_findings(narrow.assign_attrs(truth=t)) for t in ("simulated", "measured"))
    assert "with more components" in simulated.todo
    assert "do not help here" in measured.todo
    for advised in (
        "specinvert.nuisance",
        "specinvert adapt",
        "specinvert rank",
        "inverter.calibrate",
        "specinvert calibrate",
    ):
        assert advised in measured.todo
    (wide,) = evaluation_findings(scores(coverage_90=[0.99, 0.9]).assign_attrs(truth="measured"))
    assert "measured values" in wide.todo
    assert "simulations" not in wide.todo
    (small,) = evaluation_findings(scores(n=[90, 90]).assign_attrs(truth="measured"))
    assert "simul" not in small.todo


def test_parameters_without_truth_and_groups_of_spectra_are_told():
    table = scores().assign_attrs(absent="water, dust")
    table["n_groups"], table["coverage_90_error"] = ("parameter", [12, 12]), ("parameter", [0.04, 0.06])
    absent, groups = evaluation_findings(table)
    assert absent.title == "Not evaluated: water, dust"
    assert "900 pairs of truth and estimate in 12 groups" in groups.what
    assert "uncertain by 12 %" in groups.what
    table["coverage_90_error"] = "parameter", [np.nan, np.nan]
    assert "unknown" in list(evaluation_findings(table))[1].what


def test_flags_are_told_by_their_share_of_the_pixels_with_data():
    assert list(map_findings({"none": 1.0, "nodata": 0.3, "multimodal": 0.1, "out_of_domain": 0.03})) == []
    (finding,) = map_findings({"nodata": 0.5, "out_of_domain": 0.04, "partial_bands": 0.1})
    assert finding.title.endswith("out of domain")
    assert "8 % of the pixels with data" in finding.what
    assert [f.title for f in map_findings({"nodata": 1.0})] == ["The maps are empty"]
    assert [f.title for f in map_findings({"nodata": 0.6})] == ["Much of the scene has no data"]
    assert [*other_model("0123456789ab", "0123456789ab"), *other_model(None, "x")] == []
    assert "model 0123456789ab" in next(other_model("0123456789ab", "cd")).what


def test_missing_and_constant_bands_are_named_by_wavelength():
    spectra = np.random.default_rng(0).random((40, 3))
    bands = Bands("band", 3, np.array([500.0, 600.0, 700.0]), "nm")
    assert list(band_findings(spectra, bands, "test spectra")) == []
    spectra[:10, 1], spectra[:, 2] = np.nan, 0.5
    spectra[-5:] = np.nan
    missing, still = band_findings(spectra, bands, "test spectra")
    assert "1 of 3 bands lack values, in 29 %" in missing.what
    assert "600 nm" in missing.what
    assert "700 nm" in still.what
