"""What there is to see of an inversion: samples of a test set, recalibration before and after, one spectrum in full."""

from functools import cache

import numpy as np
import pytest
from scipy.integrate import trapezoid

from labelled import QUICK, assert_close, fitted, make_cube, make_training, make_truth
from specinvert import GLLiMInverter
from specinvert.inverter import evaluate_sample, explain, explanation, inversion_of, recalibrated
from specinvert.scores import calibration_table

PIXEL = {"y": 2, "x": 3}


@pytest.mark.parametrize("change", [lambda s: s, lambda s: s.chunk(y=2), lambda s: s.transpose("x", "y", "band")])
def test_figures_are_of_a_part_of_a_large_test_set_and_scores_of_all(change, monkeypatch):
    monkeypatch.setattr(explanation, "MAX_PAIRS", 12)
    scene = make_truth().assign(reflectance=make_cube())
    sample = evaluate_sample(inversion_of(fitted(1), noise=0.01), change(scene))
    assert int(sample.evaluation["n"][0]) == 30
    assert sample.rows.shape == (12, 8)
    maps = fitted(1).invert(make_cube(), noise=0.01)["water"].values.ravel().tolist()
    places = [maps.index(value) for value in sample.estimates["water"].values]
    np.testing.assert_array_equal(sample.truth["water"], scene["water"].values.ravel()[places])
    np.testing.assert_array_equal(sample.rows, scene["reflectance"].values.reshape(30, 8)[places])
    fit = sample.estimates["fit_rmse"]
    assert float(fit.isel(sample.examples["greatest"])) == float(fit.max())


def test_a_recalibration_tells_of_intervals_before_and_after_from_one_inversion():
    held_out = make_training(400, seed=3)
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(make_training()).recalibrate(make_training(), 100)
    made = recalibrated(inversion_of(inverter, noise=0.02), held_out, 100)
    columns = ["coverage_90", "ks_statistic"]
    expected = inverter.evaluate(held_out, noise=0.02)[columns].drop_vars("units")
    assert_close(calibration_table(made.before)[columns], expected)
    inverter.recalibrate(held_out, 100, noise=0.02)
    expected = inverter.evaluate(held_out, noise=0.02)[columns].drop_vars("units")
    assert_close(calibration_table(made.after)[columns], expected)
    np.testing.assert_array_equal(made.model.recalibration.raw, inverter.model_.recalibration.raw)


@cache
def transformed() -> GLLiMInverter:
    """A committee of two with a transform of each kind."""
    training = make_training()
    dust = training["dust"].clip(0.01, 0.99)
    parts = {"clay": dust, "sand": 1.0 - dust, "square": dust**2}
    training = training.drop_vars("dust").assign({name: part.assign_attrs(units="1") for name, part in parts.items()})
    transforms = {"water": "log", ("clay", "sand"): "ilr", "square": ("logit", 0, 1)}
    return GLLiMInverter(n_latent=0, **QUICK | {"transforms": transforms, "n_ensemble": 2}).fit(training)


@pytest.mark.parametrize("inverter", [fitted, transformed], ids=["plain", "transformed"])
def test_densities_have_mass_one_and_the_mean_of_the_inversion(inverter):
    model = inverter().model_
    cube = make_cube().isel(PIXEL)
    explained = explain(inversion_of(inverter()), cube)
    found, means = explained.outputs, inverter().invert(cube, outputs=("mean",))
    for name, marginal in zip(model.names, explained.marginals, strict=True):
        mass = trapezoid(marginal.density, marginal.values)
        tails = 0.04 if name in ("clay", "sand") else 0.004
        assert mass == pytest.approx(1.0 - tails, abs=0.01), name
        mean = trapezoid(marginal.values * marginal.density, marginal.values) / mass
        assert mean == pytest.approx(float(means[name]), abs=0.15 * float(found[f"{name}_std"])), name
        assert marginal.lower < marginal.estimate < marginal.upper
        assert marginal.estimate == float(found[name])


def test_one_spectrum_is_explained_as_it_is_inverted_or_said_to_have_too_few_bands():
    cube, inversion = make_cube().isel(PIXEL), inversion_of(fitted(1), noise=0.01)
    cube[3] = np.nan
    explained = explain(inversion, cube.expand_dims("time"))
    maps = fitted(1).invert(cube, noise=0.01, outputs=["mean", "std", "ci90", "residual", "fit_rmse"])
    assert_close(explained.outputs[list(maps.data_vars)], maps)
    np.testing.assert_array_equal(np.isnan(explained.observed), np.isnan(explained.residual))
    assert explained.is_inverted
    assert np.isnan(explained.observed).sum() == 1
    nothing = explain(inversion, cube * np.nan)
    assert not nothing.is_inverted
    assert nothing.observed.shape == (8,)
    bounded = explain(inversion_of(fitted(), known={"dust": (0.2, 0.6)}), make_cube().isel(PIXEL))
    assert bounded.residual is bounded.deviation is None
    assert [marginal.values.size for marginal in bounded.marginals] == [0, 0]
    assert not explain(inversion_of(fitted(), known={"dust": (0.2, 0.6)}), cube * np.nan).is_inverted
