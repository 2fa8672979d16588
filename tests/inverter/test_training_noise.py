"""Noise that training adds to its spectra, and noise at inversion that includes it."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import assert_close, assert_same_fit, make_cube, make_training, refuses
from specinvert import GLLiMInverter, load_inverter
from specinvert.nuisance import Discrepancy, Noise

SETTINGS: dict[str, Any] = {"n_components": 3, "n_latent": 1, "max_iter": 8, "tol": 0.0, "random_state": 3}


@cache
def noisy() -> GLLiMInverter:
    return GLLiMInverter(**SETTINGS).fit(make_training(), noise=0.05)


def pixels(value: float) -> xr.DataArray:
    return xr.full_like(make_cube().isel(band=0, drop=True), value).drop_attrs()


def test_training_noise_ends_up_in_sigma() -> None:
    plain = GLLiMInverter(**SETTINGS).fit(make_training())
    more = noisy().parameters_.Sigma - plain.parameters_.Sigma
    assert (np.abs(more - 0.05**2) < 0.2 * 0.05**2).all()


def test_the_draw_depends_on_the_seed_alone() -> None:
    chunked = GLLiMInverter(**SETTINGS).fit(make_training().chunk(sample=37), noise=Noise(white=0.05))
    assert_same_fit(chunked, noisy(), 1e-9)
    other = GLLiMInverter(**(SETTINGS | {"random_state": 4})).fit(make_training(), noise=0.05)
    assert not np.allclose(other.parameters_.b, noisy().parameters_.b)


@pytest.mark.parametrize("noise", [0.05, np.full(8, 0.05), np.diag(np.full(8, 0.05**2))])
def test_noise_that_includes_training_s_alone_is_none_beyond_it(noise: Any) -> None:
    found = noisy().invert(make_cube(), noise=noise, noise_includes_training=True)
    assert_close(found, noisy().invert(make_cube()))


def test_noise_that_includes_training_s_counts_for_what_is_beyond_it(tmp_path: Path) -> None:
    expected = noisy().invert(make_cube(), noise=np.sqrt(0.1**2 - 0.05**2))
    noisy().to_netcdf(tmp_path / "model.nc")
    for inverter in (noisy(), load_inverter(tmp_path / "model.nc")):
        assert_close(inverter.invert(make_cube(), noise=0.1, noise_includes_training=True), expected)
        found = inverter.invert(make_cube().chunk(y=2), noise=pixels(0.1), noise_includes_training=True)
        assert_close(found.compute(), expected)


@pytest.mark.parametrize(
    ("noise", "told"),
    [
        (0.1, "noise 0.1, training's included"),
        (np.full(8, 0.1), "noise of each band, training's included"),
        (0.01 * np.eye(8), "noise as a covariance, training's included"),
        (pixels(0.1), "noise of each pixel, training's included"),
    ],
)
def test_history_tells_noise_as_it_was_given_where_it_includes_training_s(noise: Any, told: str) -> None:
    maps = noisy().invert(make_cube(), noise=noise, noise_includes_training=True)
    assert maps.attrs["history"].endswith(f"invert; {told}")


@pytest.mark.parametrize("noise", [0.01, pixels(0.01)])
def test_noise_below_that_of_training_is_an_error(noise: Any) -> None:
    with pytest.raises(ValueError, match="noise is below that of training in"):
        noisy().invert(make_cube(), noise=noise, noise_includes_training=True)


def test_noise_cannot_include_what_training_did_not_add() -> None:
    plain = GLLiMInverter(**SETTINGS).fit(make_training())
    smooth = GLLiMInverter(**SETTINGS).fit(make_training(), noise=Discrepancy(0.02, 200.0))
    relative = GLLiMInverter(**SETTINGS).fit(make_training(), noise=Noise(relative=0.02))
    for inverter in (plain, smooth, relative):
        with refuses(ValueError, "trained with fit(noise=...) of white noise and nothing else", "beyond training"):
            inverter.invert(make_cube(), noise=0.1, noise_includes_training=True)
    with pytest.raises(ValueError, match="noise_includes_training needs noise="):
        noisy().invert(make_cube(), noise_includes_training=True)


@pytest.mark.parametrize(("noise", "message"), [(-1.0, "white is -1"), ([0.1, 0.2], "2 numbers .* 8 bands")])
def test_training_noise_that_is_none_is_refused(noise: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GLLiMInverter(**SETTINGS).fit(make_training(), noise=noise)
