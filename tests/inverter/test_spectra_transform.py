"""A transform of the spectra: as if the user had transformed them, and what is told of spectra in their own units."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, assert_close, make_cube, make_training, refuses
from specinvert import GLLiMInverter, load_inverter
from specinvert.cli.inspection import describe_model
from specinvert.cubes.training import TrainingChoice, read_training
from specinvert.model_selection import select_model

KINDS = ("log", "sqrt")
FORWARD = {"log": np.log, "sqrt": np.sqrt}
INVERSE = {"log": np.exp, "sqrt": np.square}
SLOPE = {"log": lambda y: 1 / y, "sqrt": lambda y: 0.5 / np.sqrt(y)}
OUTPUTS = ("mean", "std", "q05", "cov", "n_modes", "entropy", "flag")


def positive(data: Any) -> Any:
    """Spectra of `labelled`, or a training set of them, made positive."""
    if isinstance(data, xr.Dataset):
        return data.assign(reflectance=positive(data["reflectance"]))
    return np.exp(0.5 * data).assign_attrs(data.attrs)


def by_hand(data: Any, kind: str) -> Any:
    """The same with transformed values."""
    if isinstance(data, xr.Dataset):
        return data.assign(reflectance=by_hand(data["reflectance"], kind))
    return FORWARD[kind](data).assign_attrs(data.attrs)


@cache
def pair(kind: str, n_ensemble: int = 1, **settings: Any) -> tuple[GLLiMInverter, GLLiMInverter]:
    """An inverter with the transform, and one without of spectra transformed by hand."""
    training = positive(make_training())
    quick = QUICK | {"n_latent": 0, "n_ensemble": n_ensemble} | settings
    own = GLLiMInverter(spectra_transform=kind, **quick).fit(training)
    return own, GLLiMInverter(**quick).fit(by_hand(training, kind))


def spectra(n: int = 25) -> xr.DataArray:
    """Some to invert, of which one has missing bands and one a value that no transform takes."""
    made = positive(make_training(n, seed=3)["reflectance"]).copy()
    made[1, 2:4] = np.nan
    made[2, 5] = -0.01
    return made


@pytest.mark.parametrize("settings", [{}, {"n_ensemble": 2}, {"sigma": "full"}, {"n_latent": 1}])
@pytest.mark.parametrize("kind", KINDS)
def test_maps_are_those_of_spectra_transformed_by_hand(kind: str, settings: dict[str, Any]) -> None:
    own, plain = pair(kind, **settings)
    np.testing.assert_allclose(own.log_likelihoods_, plain.log_likelihoods_, rtol=1e-12)
    with np.errstate(invalid="ignore"):
        transformed = by_hand(spectra(), kind)
    maps = own.invert(spectra(), outputs=OUTPUTS)
    assert_close(maps, plain.invert(transformed, outputs=OUTPUTS), 1e-10)
    assert (maps["quality_flag"].values[1:3] & 2 > 0).all()
    assert_close(
        own.posterior(spectra()).drop_vars("log_evidence"),
        plain.posterior(transformed).drop_vars("log_evidence"),
        1e-10,
    )


@pytest.mark.parametrize("form", ["number", "bands", "pixels", "covariance"])
@pytest.mark.parametrize("sigma", ["iso", "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_told_in_the_units_of_the_spectra_and_taken_to_first_order(kind: str, sigma: str, form: str) -> None:
    own, plain = pair(kind, sigma=sigma)
    cube = positive(make_training(6, seed=4)["reflectance"])
    deviation = {"number": np.asarray(0.01), "bands": np.linspace(0.005, 0.02, 8)}.get(form, np.asarray(0.01))
    each = SLOPE[kind](cube) * deviation
    given: Any = deviation if form != "pixels" else xr.full_like(cube.isel(band=0, drop=True), 0.01)
    given = 1e-4 * (0.5 * np.eye(8) + 0.5) if form == "covariance" else float(given) if form == "number" else given
    outputs = ("mean", "std", "log_evidence")
    maps = own.invert(cube, noise=given, known={"dust": 0.5}, outputs=outputs)
    for row in range(6):
        noise: Any = each[row].values
        if form == "covariance":
            slope = SLOPE[kind](cube[row].values)
            noise = slope[:, None] * given * slope
        alone = plain.invert(by_hand(cube[row], kind), noise=noise, known={"dust": 0.5}, outputs=outputs)
        for name in ("water", "water_std"):
            assert float(maps[name][row]) == pytest.approx(float(alone[name]), rel=1e-8), name
        volume = np.log(SLOPE[kind](cube[row].values)).sum()
        assert float(maps["log_evidence"][row]) == pytest.approx(float(alone["log_evidence"]) + volume, rel=1e-9)
    assert_close(own.posterior(cube, noise=given, known={"dust": 0.5})["log_evidence"], maps["log_evidence"], 1e-9)


def test_the_square_root_of_zero_is_a_value_without_noise_and_missing_with_it() -> None:
    own, _ = pair("sqrt")
    cube = positive(make_training(2, seed=4)["reflectance"]).copy()
    cube[0, 3] = 0.0
    assert not int(own.invert(cube)["quality_flag"][0]) & 2
    maps = own.invert(cube, noise=0.01)
    assert int(maps["quality_flag"][0]) & 2
    cube[0, 3] = np.nan
    assert_close(maps, own.invert(cube, noise=0.01), 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_residuals_and_simulations_are_in_the_units_of_the_spectra(kind: str) -> None:
    own, plain = pair(kind)
    cube = positive(make_training(10, seed=4)["reflectance"])
    maps = own.invert(cube, outputs=("residual", "fit_rmse"))
    residual = plain.invert(by_hand(cube, kind), outputs=("residual",))["residual"]
    fitted = INVERSE[kind](by_hand(cube, kind) - residual)
    np.testing.assert_allclose(maps["residual"], cube - fitted, atol=1e-12)
    np.testing.assert_allclose(maps["fit_rmse"], np.sqrt(((cube - fitted) ** 2).mean("band")), rtol=1e-9)
    parameters = make_training(10, seed=4)[["water", "dust"]]
    np.testing.assert_allclose(own.simulate(parameters), INVERSE[kind](plain.simulate(parameters)), rtol=1e-12)
    own, _ = pair(kind, 2)
    each = [INVERSE[kind](m) for m in _members_spectra(own, parameters)]
    np.testing.assert_allclose(own.simulate(parameters), np.mean(each, axis=0), rtol=1e-12)


def _members_spectra(inverter: GLLiMInverter, parameters: xr.Dataset) -> list[np.ndarray]:
    from specinvert.gllim.posterior import inverse_regression

    t = np.stack([parameters[name].values for name in inverter.model_.names], axis=1)
    return [inverse_regression(theta, t, None) for theta in inverter.members_]


def test_evidence_is_a_density_of_the_spectra_themselves() -> None:
    """It sums to one over the values of one band, whatever the transform."""
    training = positive(make_training()).isel(band=[0])
    level = np.linspace(1e-4, 6.0, 6001)
    cube = xr.DataArray(level[:, None], dims=("pixel", "band"), coords={"wavelength": ("band", [450.0])})
    cube.wavelength.attrs["units"] = "nm"
    for kind in (*KINDS, None):
        inverter = GLLiMInverter(spectra_transform=kind, n_latent=0, **QUICK).fit(training)
        evidence = inverter.invert(cube, outputs=("log_evidence",), min_valid_bands=1)["log_evidence"]
        assert np.trapezoid(np.exp(evidence.values), level) == pytest.approx(1.0, abs=1e-3), kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_lazy_training_set_and_a_lazy_cube_give_the_same(kind: str) -> None:
    training = positive(make_training())
    whole = GLLiMInverter(spectra_transform=kind, n_latent=0, **QUICK).fit(training)
    lazy = GLLiMInverter(spectra_transform=kind, n_latent=0, **QUICK).fit(training.chunk(sample=40), persist=False)
    np.testing.assert_allclose(lazy.log_likelihoods_, whole.log_likelihoods_, rtol=1e-10)
    cube = positive(make_cube())
    outputs = (*OUTPUTS, "residual", "log_evidence")
    maps = whole.invert(cube, noise=0.01, outputs=outputs)
    assert_close(whole.invert(cube.chunk(y=2), noise=0.01, outputs=outputs).compute(), maps, 1e-9)


def test_values_without_a_transform_are_refused_in_training_or_left_out(caplog: pytest.LogCaptureFixture) -> None:
    training = positive(make_training())
    training["reflectance"][3, 2], training["reflectance"][5, 2:4] = -0.1, 0.0
    inverter = GLLiMInverter(spectra_transform="log", n_latent=0, **QUICK)
    with refuses(ValueError, "2 training samples hold values of zero or below (2 at 610 nm, 1 at 700 nm)", "'drop'"):
        inverter.fit(training)
    with refuses(ValueError, "1 training samples hold values below zero (1 at 610 nm)", "sqrt"):
        GLLiMInverter(spectra_transform="sqrt", n_latent=0, **QUICK).fit(training.chunk(sample=50))
    inverter.fit(training, missing="drop")
    assert "2 training samples" in caplog.text
    rest = training.isel(sample=[i for i in range(150) if i not in (3, 5)])
    expected = GLLiMInverter(spectra_transform="log", n_latent=0, **QUICK).fit(rest)
    np.testing.assert_allclose(inverter.log_likelihoods_, expected.log_likelihoods_, rtol=1e-10)
    with refuses(ValueError, "less noise="):
        GLLiMInverter(spectra_transform="log", n_latent=0, **QUICK).fit(positive(make_training()), noise=2.0)


def test_noise_of_training_is_added_before_the_transform_and_taken_off_in_the_units_of_the_spectra() -> None:
    from specinvert.nuisance import Noise, apply

    training = positive(make_training())
    inverter = GLLiMInverter(spectra_transform="log", n_latent=0, **QUICK).fit(training, noise=0.01)
    noisy = apply(training, Noise(white=0.01), seed=0)
    np.testing.assert_allclose(inverter.log_likelihoods_, pair_of(noisy).log_likelihoods_, rtol=1e-10)
    cube = positive(make_training(5, seed=4)["reflectance"])
    included = inverter.invert(cube, noise=0.05, noise_includes_training=True)
    assert_close(included, inverter.invert(cube, noise=np.sqrt(0.05**2 - 0.01**2)), 1e-9)


def pair_of(training: xr.Dataset) -> GLLiMInverter:
    return GLLiMInverter(spectra_transform="log", n_latent=0, **QUICK).fit(training)


def test_the_domain_is_that_of_spectra_like_the_training_set_under_the_noise_given() -> None:
    inverter = GLLiMInverter(spectra_transform="log", n_latent=0, **QUICK).fit(positive(make_training(600)))
    test = positive(make_training(600, seed=6)["reflectance"])
    rng = np.random.default_rng(0)
    for deviation in (None, 0.05):
        noisy = test if deviation is None else test + deviation * rng.normal(size=test.shape)
        for noise in (deviation, None if deviation is None else xr.full_like(test.isel(band=0, drop=True), deviation)):
            share = float((inverter.invert(noisy, noise=noise)["quality_flag"] & 4 > 0).mean())
            assert 0.0 < share < 0.04, (deviation, share)


def test_a_model_file_keeps_the_transform_and_its_identity_is_another(tmp_path: Path) -> None:
    own, plain = pair("log")
    assert own.model_id != plain.model_id
    own.to_netcdf(tmp_path / "model.nc")
    back = load_inverter(tmp_path / "model.nc")
    assert back.spectra_transform == "log"
    assert "  spectra     log\n" in describe_model(back)
    assert_close(back.invert(spectra()), own.invert(spectra()), 1e-12)
    assert '"spectra_transform": "log"' in own.invert(spectra()).attrs["conditions"]
    assert "spectra_transform" not in plain.invert(spectra()).attrs["conditions"]


def test_a_checkpoint_of_other_spectra_is_refused(tmp_path: Path) -> None:
    def stop(label: str, iteration: int, value: float) -> None:
        if iteration == 3:
            raise KeyboardInterrupt

    kept: dict[str, Any] = {"checkpoint": tmp_path / "state.nc"}
    training = positive(make_training())
    settings = QUICK | {"n_latent": 0, "n_init": 2}
    first = GLLiMInverter(spectra_transform="log", **(settings | {"max_iter": 6}))
    with pytest.raises(KeyboardInterrupt):
        first.fit(training, progress=lambda label, i, v: stop(label, i if "2" in label else 0, v), **kept)
    with refuses(ValueError, "another training"):
        GLLiMInverter(spectra_transform="sqrt", **(settings | {"max_iter": 6})).fit(training, **kept)
    first.fit(training, **kept)


@pytest.mark.filterwarnings("ignore:the best by bic lies at the edge")
def test_model_selection_takes_it() -> None:
    training = positive(make_training())
    quick = {name: value for name, value in QUICK.items() if name not in ("n_components", "random_state")}
    grid: dict[str, Any] = {"n_components": (1, 2), "n_latent": (0,), "refit": False, **quick}
    own = select_model(training, spectra_transform="log", held_out=None, **grid)
    plain = select_model(by_hand(training, "log"), held_out=None, **grid)
    np.testing.assert_allclose(own.table["bic"], plain.table["bic"], rtol=1e-10)
    held = select_model(training, spectra_transform="log", **grid).table
    assert np.isfinite(held["held_out_nrmse"]).all()


def test_a_training_set_that_was_read_goes_under_other_transforms() -> None:
    training = positive(make_training())
    data = read_training(training, TrainingChoice(), {})
    made = data.under({"water": "sqrt"}, "log")
    chunk = made.source.sample(150)
    np.testing.assert_array_equal(chunk.spectra, np.log(training["reflectance"].values))
    np.testing.assert_array_equal(chunk.parameters[:, 0], np.sqrt(training["water"].values))
    assert made.under({}).source is data.plain
    half = made.where(lambda chunk: chunk.spectra[:, 0] > 1.0).source.sample(150)
    np.testing.assert_array_equal(half.spectra, chunk.spectra[chunk.spectra[:, 0] > 0.0])


def test_what_is_said_of_one_spectrum_has_the_noise_in_its_units() -> None:
    from specinvert.inverter import explain, inversion_of

    own, plain = pair("log")
    one = positive(make_training(1, seed=4)["reflectance"])
    told, by = explain(inversion_of(own), one), explain(inversion_of(plain), by_hand(one, "log"))
    assert told.deviation is not None
    assert by.deviation is not None
    np.testing.assert_allclose(told.deviation, by.deviation * one.values[0], rtol=1e-9)
