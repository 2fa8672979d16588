"""Committees: members of their own, whose posteriors are averaged as the weights say, saved and resumed like one."""

import warnings
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.special import logsumexp, softmax

from labelled import PARAMETERS, QUICK, assert_close, fitted, make_cube, make_training, refuses
from specinvert import GLLiMInverter, load_inverter
from specinvert.cubes import read_training
from specinvert.gllim import held_out_rows
from specinvert.gllim.core import hold_out
from specinvert.gllim.em import member_settings
from specinvert.gllim.posterior import log_parameter_density, stacking_weights
from specinvert.inverter import inversion_of, read_settings
from specinvert.inverter.fit import fit_model, stacked, stored_settings, validate

OUTPUTS = ("mean", "std", "cov", "q05", "ci90", "hdi90", "mode", "n_modes", "entropy", "log_evidence", "flag")
ARRAYS = ("pi", "c", "Gamma", "A", "b", "Sigma")


WEIGHTS = np.array([0.7, 0.0, 0.3])
"""Of a committee that is called stacked here."""


@cache
def committee(weights: str = "equal", n_latent: int = 0) -> GLLiMInverter:
    """Three members; do not change it."""
    if weights == "stacked":
        inverter = GLLiMInverter(n_latent=n_latent, n_ensemble=3, ensemble_weights="stacked", **QUICK)
        inverter._take(
            replace(committee(n_latent=n_latent).model_, member_weights=WEIGHTS, settings=stored_settings(inverter))
        )
        return inverter
    inverter = GLLiMInverter(n_latent=n_latent, n_ensemble=3, ensemble_weights=weights, **QUICK)
    return inverter.fit(make_training())


def alone(inverter: GLLiMInverter, member: int) -> GLLiMInverter:
    """One member as an inverter."""
    theta = inverter.members_[member]
    one = GLLiMInverter(n_latent=theta.n_latent)
    one._take(replace(inverter.model_, members=(theta,), member_weights=None, log_tail=np.nan))
    return one


def conditions() -> dict[str, Any]:
    known = xr.DataArray(np.where(np.arange(6) % 2, 0.6, np.nan), dims="x")
    return {"noise": xr.DataArray(np.linspace(0.0, 0.05, 5), dims="y"), "known": {"dust": known}}


def holed_cube() -> xr.DataArray:
    cube = make_cube()
    cube.values[0, 0, 2] = cube.values[0, 1, [0, 3, 7]] = np.nan
    return cube


def assert_same_members(actual: GLLiMInverter, expected: GLLiMInverter) -> None:
    assert len(actual.members_) == len(expected.members_)
    for one, other in zip(actual.members_, expected.members_, strict=True):
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_members_are_different_fits_of_which_the_first_are_the_parameters() -> None:
    members = committee().members_
    assert len(members) == 3
    assert committee().parameters_ is members[0]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not np.allclose(members[i].A, members[j].A, rtol=1e-3)


@pytest.mark.parametrize("n_latent", [0, 1])
@pytest.mark.parametrize("weights", ["equal", "evidence", "stacked"])
@pytest.mark.parametrize("given", ["nothing", "noise and known"])
def test_a_committee_s_posterior_is_the_average_of_its_members(weights: str, n_latent: int, given: str) -> None:
    inverter, options = committee(weights, n_latent), {} if given == "nothing" else conditions()
    outputs = ("mean", "std", "cov", "log_evidence", "residual")
    maps = inverter.invert(holed_cube(), outputs=outputs, **options)
    parts = [alone(inverter, m).invert(holed_cube(), outputs=outputs, **options) for m in range(3)]
    evidence = np.stack([part["log_evidence"].values for part in parts])
    own = WEIGHTS if weights == "stacked" else np.full(3, 1.0 / 3.0)
    fixed = np.broadcast_to(own[:, None, None], evidence.shape)
    shares = softmax(evidence, axis=0) if weights == "evidence" else fixed
    means = np.stack([np.stack([part[name].values for name in PARAMETERS], axis=-1) for part in parts])
    mean = np.einsum("myx,myxi->yxi", shares, means)
    gap = means - mean
    within = np.stack([part["covariance"].values for part in parts]) + gap[..., :, None] * gap[..., None, :]
    cov = np.einsum("myx,myxij->yxij", shares, within)
    residual = np.einsum("myx,myxb->yxb", shares, np.stack([part["residual"].values for part in parts]))
    for i, name in enumerate(PARAMETERS):
        np.testing.assert_allclose(maps[name], mean[..., i], rtol=1e-10)
        np.testing.assert_allclose(maps[f"{name}_std"], np.sqrt(cov[..., i, i]), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(maps["covariance"], cov, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(maps["log_evidence"], logsumexp(evidence, axis=0, b=fixed), rtol=1e-10)
    np.testing.assert_allclose(maps["residual"], residual, rtol=1e-8, atol=1e-12)


def test_the_weights_make_a_difference() -> None:
    equal, *others = (committee(weights).invert(make_cube()) for weights in ("equal", "evidence", "stacked"))
    assert_same_members(committee("equal"), committee("evidence"))
    for other in others:
        assert float(abs(equal["water"] - other["water"]).max()) > 1e-3


def test_stacked_weights_are_those_of_the_greatest_density_of_held_out_parameters() -> None:
    training = make_training(400)
    settings: dict[str, Any] = {**QUICK, "n_latent": 0, "max_iter": 12, "n_ensemble": 3}
    inverter = GLLiMInverter(ensemble_weights="stacked", **settings).fit(training)
    model, equal = inverter.model_, GLLiMInverter(**settings).fit(training)
    held = hold_out(0.2, training[PARAMETERS].to_array().values.T, training["reflectance"].values)
    assert 50 < held.sum() < 110
    rest = GLLiMInverter(**settings).fit(training.isel(sample=~held))
    spectra, truth = training["reflectance"].values[held], training[PARAMETERS].to_array().values.T[held]
    weights = stacking_weights(np.stack([log_parameter_density(m, spectra, truth) for m in rest.members_], axis=1))
    assert model.member_weights is not None
    np.testing.assert_allclose(model.member_weights, weights[weights > 0.0], atol=1e-6)
    masks = (partial(held_out_rows, share=0.2, others=others) for others in (False, True))
    found = validate(read_training(training, transforms={}), member_settings(read_settings(inverter), 3), *masks)
    assert len(found.held_out) == held.sum()
    rest._take(replace(rest.model_, member_weights=WEIGHTS))
    scores = inversion_of(rest).scores(training.isel(sample=held)).to_array().values.T
    np.testing.assert_allclose(found.scores(WEIGHTS), scores, rtol=1e-6, atol=1e-6)
    members = [member for member, weight in zip(equal.members_, weights, strict=True) if weight > 0.0]
    for member, expected in zip(inverter.members_, members, strict=True):
        np.testing.assert_array_equal(member.A, expected.A)


def test_a_member_without_weight_is_left_out_and_a_single_one_needs_no_weight() -> None:
    data = read_training(make_training(300), transforms={})
    fine = read_settings(GLLiMInverter(n_latent=0, **QUICK))
    wrong = replace(fine, fixed={"Sigma": 1e-9})
    members, weights = stacked(data, [wrong, fine, wrong])
    assert (members, weights.tolist()) == ([fine], [1.0])
    assert fit_model(data, members, {}, weights=weights).member_weights is None
    with refuses(ValueError, "'stacked' needs parameters"):
        GLLiMInverter(n_latent=1, n_ensemble=2, ensemble_weights="stacked", **QUICK).fit(make_training(), parameters=[])


def test_the_posterior_holds_the_components_of_all_members() -> None:
    found = committee("evidence").posterior(holed_cube(), **conditions())
    parts = [alone(committee(), m).posterior(holed_cube(), **conditions()) for m in range(3)]
    shares = softmax(np.stack([part["log_evidence"].values for part in parts], axis=-1), axis=-1)
    weights = np.concatenate([shares[..., m : m + 1] * part["weight"].values for m, part in enumerate(parts)], axis=-1)
    np.testing.assert_allclose(found["weight"], weights, rtol=1e-9, atol=1e-300)
    joined = xr.concat([part[["mean", "covariance"]] for part in parts], "component")
    assert_close(found[["mean", "covariance"]], joined.transpose(*found["covariance"].dims))


def test_simulated_spectra_are_the_average_of_the_members() -> None:
    parameters = make_training(5)[PARAMETERS]
    found = committee().simulate(parameters)
    parts = [alone(committee(), m).simulate(parameters) for m in range(3)]
    np.testing.assert_allclose(found, np.mean(parts, axis=0), rtol=1e-12)
    by_weight = committee("stacked").simulate(parameters)
    np.testing.assert_allclose(by_weight, np.tensordot(WEIGHTS, parts, axes=1), rtol=1e-12)


def assert_same_to_rounding(maps: xr.Dataset, expected: xr.Dataset) -> None:
    """Kernels of rows with missing bands round by where arrays lie, and that chooses among intervals equally short."""
    ends = [f"{name}_hdi90_{end}" for name in PARAMETERS for end in ("lower", "upper")]
    assert_close(maps.drop_vars(ends), expected.drop_vars(ends), rtol=1e-7)
    for lower, upper in zip(ends[::2], ends[1::2], strict=True):
        np.testing.assert_allclose(maps[upper] - maps[lower], expected[upper] - expected[lower], rtol=5e-3)


@pytest.mark.parametrize("weights", ["equal", "evidence", "stacked"])
def test_a_saved_committee_is_loaded_to_the_same_bits(tmp_path: Path, weights: str) -> None:
    committee(weights).to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    assert_same_members(loaded, committee(weights))
    assert (loaded.n_ensemble, loaded.ensemble_weights) == (3, weights)
    assert loaded.model_id == committee(weights).model_id != committee(weights, 1).model_id
    np.testing.assert_array_equal(loaded.model_.shares, committee(weights).model_.shares)
    expected = committee(weights).invert(holed_cube(), outputs=OUTPUTS)
    assert_same_to_rounding(loaded.invert(holed_cube(), outputs=OUTPUTS), expected)


@pytest.mark.parametrize("weights", ["equal", "evidence", "stacked"])
def test_lazy_maps_of_a_committee_are_those_of_numpy(weights: str) -> None:
    expected = committee(weights).invert(holed_cube(), outputs=OUTPUTS, **conditions())
    maps = committee(weights).invert(holed_cube().chunk(y=2, x=5), outputs=OUTPUTS, **conditions())
    assert_same_to_rounding(maps.compute(), expected)


def test_graphs_of_the_weightings_have_names_of_their_own_and_weights_an_identity() -> None:
    cube = make_cube().chunk(y=2)
    names = {committee(weights).invert(cube)["water"].data.name for weights in ("equal", "evidence", "stacked")}
    assert len(names | {alone(committee(), 0).invert(cube)["water"].data.name}) == 4
    assert committee("stacked").model_id != committee().model_id == committee("evidence").model_id


@pytest.mark.parametrize("chunks", [None, 40])
def test_training_a_committee_twice_gives_the_same_bits(chunks: int | None) -> None:
    training = make_training() if chunks is None else make_training().chunk(sample=chunks)
    fits = [GLLiMInverter(n_ensemble=3, n_latent=0, **QUICK).fit(training) for _ in range(2)]
    assert_same_members(*fits)
    assert fits[0].model_.log_tail == fits[1].model_.log_tail
    other = GLLiMInverter(n_latent=0, n_ensemble=3, **{**QUICK, "random_state": 1}).fit(training)
    assert other.model_id != fits[0].model_id


def test_one_member_is_the_fit_without_a_committee() -> None:
    single = GLLiMInverter(n_ensemble=1, n_latent=0, **QUICK).fit(make_training())
    assert single.model_id == fitted().model_id
    assert_close(single.invert(make_cube()), fitted().invert(make_cube()), rtol=0.0)


def test_all_members_have_the_latents_that_bic_chose() -> None:
    inverter = GLLiMInverter(n_latent="bic", max_latent=2, n_ensemble=3, **QUICK).fit(make_training())
    assert {theta.n_latent for theta in inverter.members_} == {inverter.n_latent_}
    assert set(inverter.bics_) == {0, 1, 2}


def test_latents_of_a_committee_are_refused() -> None:
    with refuses(ValueError, "latents", "members are not comparable"):
        committee(n_latent=1).invert(make_cube(), outputs=("mean", "latent"))
    latent = xr.DataArray(np.zeros((5, 1)), dims=("sample", "latent"))
    with refuses(ValueError, "latents", "simulate without latent="):
        committee(n_latent=1).simulate(make_training(5)[PARAMETERS], latent)


@pytest.mark.parametrize("n_ensemble", [0, -1, 1.5, True, "3", None])
def test_n_ensemble_must_be_a_count(n_ensemble: Any) -> None:
    with refuses(ValueError, f"n_ensemble={n_ensemble!r}", "integer, 1 or more"):
        GLLiMInverter(n_ensemble=n_ensemble)


def test_weights_of_another_name_are_refused() -> None:
    with refuses(ValueError, "ensemble_weights='bic'", "'equal', 'stacked', 'evidence'"):
        GLLiMInverter(n_ensemble=2, ensemble_weights="bic")


def test_a_committee_starts_from_no_model_and_no_responsibilities() -> None:
    with refuses(ValueError, "n_ensemble=2", "not a model"):
        GLLiMInverter(n_ensemble=2, init=fitted().parameters_).fit(make_training())
    with refuses(ValueError, "responsibilities", "n_ensemble > 1"):
        GLLiMInverter(n_ensemble=2, n_latent=0, **QUICK).fit(
            make_training(), responsibilities=np.full((150, 3), 1.0 / 3.0)
        )


class Stop(Exception):
    """Raised in the middle of a run."""


@pytest.mark.stops
@pytest.mark.parametrize("chunks", [None, 40])
@pytest.mark.parametrize("label", ["member 1, L_w = 1", "member 3, L_w = 1"])
def test_a_stopped_committee_resumes_to_the_same_bits(tmp_path: Path, label: str, chunks: int | None) -> None:
    training = make_training() if chunks is None else make_training().chunk(sample=chunks)
    settings: dict[str, Any] = {**QUICK, "max_iter": 12, "n_latent": 1, "n_ensemble": 3}
    path = tmp_path / "checkpoint.nc"

    def stop(run: str, iteration: int, log_likelihood: float) -> None:
        if run == label and iteration == 7:
            raise Stop

    with pytest.raises(Stop):
        GLLiMInverter(**settings).fit(training, checkpoint=path, progress=stop)
    assert path.exists()
    done: list[tuple[str, int]] = []
    resumed = GLLiMInverter(**settings)
    resumed.fit(training, checkpoint=path, progress=lambda run, i, _: done.append((run, i)))
    first = min(i for run, i in done if run == label)
    assert first == 5
    assert_same_members(resumed, GLLiMInverter(**settings).fit(training))
    assert list(tmp_path.iterdir()) == []


def test_progress_names_the_member() -> None:
    seen: set[str] = set()
    GLLiMInverter(n_ensemble=2, n_latent=0, **QUICK).fit(make_training(), progress=lambda run, *_: seen.add(run))
    assert seen == {"member 1, L_w = 0", "member 2, L_w = 0"}


def test_members_in_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    before = list(warnings.filters)
    for seed in range(3):
        GLLiMInverter(3, n_latent=0, n_ensemble=6, tol=1.0, random_state=seed).fit(make_training())
        assert list(warnings.filters) == before
