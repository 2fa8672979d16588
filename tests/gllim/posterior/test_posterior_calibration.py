"""The posterior is calibrated where the model is right: on draws from its own joint density, whatever is missing."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import PARAMETERS, WAVELENGTHS, fitted, make_training
from specinvert import GLLiMInverter

N = 20_000


def draw(inverter: GLLiMInverter, noise: Any = 0.0, missing: float = 0.0, n: int = N, seed: int = 0) -> xr.Dataset:
    """Parameters and spectra of the fitted mixture, with noise beyond and bands that are missing."""
    theta, rng = inverter.parameters_, np.random.default_rng(seed)
    label = rng.choice(theta.n_components, n, p=theta.pi)
    root = np.linalg.cholesky(theta.Gamma)[label]
    x = theta.c[label] + np.einsum("nij,nj->ni", root, rng.normal(size=(n, theta.A.shape[2])))
    own = np.linalg.cholesky(theta.sigma_dense())[label]
    spectra = np.einsum("ndl,nl->nd", theta.A[label], x) + theta.b[label]
    spectra += np.einsum("nij,nj->ni", own, rng.normal(size=spectra.shape)) + noise * rng.normal(size=spectra.shape)
    spectra[rng.random(spectra.shape) < missing] = np.nan
    return xr.Dataset(
        {"reflectance": (("sample", "band"), spectra), **{p: ("sample", x[:, i]) for i, p in enumerate(PARAMETERS)}},
        coords={"wavelength": ("band", WAVELENGTHS, {"units": "nm"})},
    )


@pytest.mark.parametrize("sigma", ["iso", "full"])
@pytest.mark.parametrize(("noise", "missing"), [(0.0, 0.0), (0.05, 0.0), (0.0, 0.1), (0.03, 0.1)])
def test_intervals_hold_what_they_say_on_draws_of_the_model(sigma: str, noise: float, missing: float) -> None:
    inverter = fitted(1, sigma)
    test = draw(inverter, noise, missing)
    found = inverter.evaluate(test, noise=noise or None)
    assert ((found["coverage_90"] > 0.88) & (found["coverage_90"] < 0.92)).all(), found
    assert (found["calibration_error"] < 0.01).all()
    assert (inverter.evaluate(test.isel(sample=slice(2000)), noise=noise or None)["ks_p"] > 0.01).all()


def test_a_noise_a_band_of_its_own_for_each_pixel_is_calibrated() -> None:
    inverter = fitted(1)
    deviation = np.random.default_rng(5).uniform(0.0, 0.1, (4000, 8))
    test = draw(inverter, deviation, n=4000)
    found = inverter.evaluate(test, noise=xr.DataArray(deviation, dims=("sample", "band")))
    assert ((found["coverage_90"] > 0.88) & (found["coverage_90"] < 0.92)).all()
    assert (found["ks_p"] > 0.01).all()
    ignored = inverter.evaluate(test)
    assert (ignored["coverage_90"] < 0.85).all()


def test_recalibrated_intervals_hold_what_they_say_where_the_raw_ones_do_not(tmp_path: Any) -> None:
    inverter = GLLiMInverter(6, 1, random_state=0, max_iter=20, tol=0.0).fit(make_training(150))
    held_out, test = make_training(2500, seed=11), make_training(4000, seed=12)
    raw = inverter.evaluate(test)
    assert (raw["coverage_90"] < 0.87).all()
    inverter.recalibrate(held_out)
    found = inverter.evaluate(test)
    assert ((found["coverage_90"] > 0.87) & (found["coverage_90"] < 0.93)).all()
    np.testing.assert_array_equal(found["rmse"], raw["rmse"])
    maps = inverter.invert(test, outputs=("q05", "q95"))
    for name in PARAMETERS:
        inside = (maps[f"{name}_q05"] <= test[name]) & (test[name] <= maps[f"{name}_q95"])
        assert float(inside.mean()) == pytest.approx(float(found["coverage_90"].sel(parameter=name)), abs=0.002)


def test_recalibration_needs_enough_pairs() -> None:
    inverter = GLLiMInverter(3, 0, random_state=0, max_iter=5, tol=0.0).fit(make_training())
    with pytest.raises(ValueError, match="has 100 finite pairs of truth and estimate, recalibration needs 2000"):
        inverter.recalibrate(make_training(100, seed=3))
