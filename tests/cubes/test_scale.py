"""Spectra on another scale than those of training are told, those of ordinary scenes are not."""

import numpy as np
import pytest

from labelled import fitted, make_cube, make_training
from specinvert import GLLiMInverter
from specinvert.cubes.scale import times_training

TYPICAL = np.array([0.05, 0.08, 0.4, 0.3])


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("times", "told"), [(1e4, "10 000 times"), (100.0, "100 times"), (0.01, "1/100 of")])
def test_spectra_on_another_scale_are_told_with_what_to_do(times: float, told: str, lazy: bool) -> None:
    cube = (times * make_cube()).assign_attrs(units="1")
    with pytest.warns(UserWarning, match=f"about {told} those of training: (divide them|multiply) by .* declare"):
        fitted(1).invert(cube.chunk(y=3) if lazy else cube).compute()


@pytest.mark.parametrize(
    ("spectra", "times"),
    [
        (1e4 * TYPICAL, 1e4),
        (100.0 * np.array([0.02, 0.03, 0.3, 0.1]), 100.0),
        (1e-2 * TYPICAL, 1e-2),
        (TYPICAL, None),
        (np.full(4, 0.95), None),
        (np.array([0.03, 0.02, 0.001, 0.0005]), None),
        (np.array([0.05, 0.08, 0.4, 9e36]), None),
        (np.full(4, -3.4e38), None),
        (np.full(4, np.nan), None),
        (np.zeros(4), None),
    ],
)
def test_snow_deep_water_odd_bands_and_fills_are_no_other_scale(spectra: np.ndarray, times: float | None) -> None:
    assert times_training(np.stack([spectra, 1.1 * spectra]).astype(np.float64), TYPICAL) == times


@pytest.mark.parametrize("kind", ["log", "sqrt"])
def test_the_scale_is_that_of_the_spectra_whatever_the_model_makes_of_them(kind: str) -> None:
    settings = {"spectra_transform": kind, "max_iter": 2, "tol": 0.0, "random_state": 0}
    inverter = GLLiMInverter(2, 0, **settings).fit(make_training(), missing="drop")
    inverter.invert(make_cube())
    with pytest.warns(UserWarning, match="about 1 000 times"):
        inverter.invert((1e3 * make_cube()).assign_attrs(units="1"))
