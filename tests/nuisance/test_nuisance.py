"""Nuisances: their moments and covariances, the order in which they act, and what they refuse."""

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from documents import assert_prints_what_it_shows
from labelled import WAVELENGTHS, make_training, refuses, wavelength_coordinate
from nuisances import EVERYTHING, GAUSSIAN, SOIL, SPECTRUM
from specinvert import nuisance
from specinvert.nuisance import (
    Background,
    Chain,
    Discrepancy,
    Gain,
    Haze,
    Noise,
    Nuisance,
    Offset,
    ThinCloud,
    WavelengthShift,
    apply,
    base,
    driver,
    errors,
    scene,
)

N = 20_000


def drawn(what: Nuisance, n: int = N, spectrum: np.ndarray = SPECTRUM, seed: int = 0) -> np.ndarray:
    """Copies of one spectrum, each changed, (n, D)."""
    return what.apply(np.tile(spectrum, (n, 1)), WAVELENGTHS, np.random.default_rng(seed))


def assert_mean(values: np.ndarray, expected: Any) -> None:
    """Means over the first axis agree within 5 standard errors."""
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("what", GAUSSIAN.values(), ids=GAUSSIAN)
def test_the_covariance_is_that_of_draws(what: Nuisance) -> None:
    covariance = what.covariance(WAVELENGTHS, SPECTRUM)
    variance = np.diag(covariance)
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / N)
    assert (np.abs(np.cov(drawn(what).T) - covariance) <= 5 * error + 1e-15).all()
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > -1e-12


@pytest.mark.parametrize("what", GAUSSIAN.values(), ids=GAUSSIAN)
def test_gaussian_nuisances_keep_the_mean_but_for_an_offset_that_has_one(what: Nuisance) -> None:
    assert_mean(drawn(what), SPECTRUM + getattr(what, "mean", 0.0))


def test_noise_adds_white_and_relative_variances() -> None:
    np.testing.assert_allclose(
        Noise(0.02, 0.1).covariance(None, SPECTRUM), np.diag(0.02**2 + (0.1 * SPECTRUM) ** 2), rtol=1e-12
    )


@pytest.mark.parametrize("kernel", errors.KERNELS)
def test_a_discrepancy_has_the_kernel_in_nanometres_whatever_the_order_of_bands(kernel: str) -> None:
    what = Discrepancy(2.0, 50.0, kernel=kernel)
    distance = np.abs(np.subtract.outer(WAVELENGTHS, WAVELENGTHS)) / 50.0
    np.testing.assert_allclose(what.covariance(WAVELENGTHS), 4.0 * errors.KERNELS[kernel](distance), rtol=1e-12)
    assert errors.KERNELS[kernel](np.array(0.0)) == 1.0


def test_a_smooth_discrepancy_of_many_bands_draws_few_numbers() -> None:
    wavelength = np.linspace(400.0, 2500.0, 300)
    root = errors._root("squared_exponential", 200.0, wavelength.tobytes())
    assert len(root) < 60
    exact = Discrepancy(1.0, 200.0).covariance(wavelength)
    np.testing.assert_allclose(root.T @ root, exact, rtol=0, atol=1e-8)
    curves = Discrepancy(1.0, 200.0).apply(np.zeros((50, 300)), wavelength, np.random.default_rng(0))
    assert np.abs(np.diff(curves, axis=1)).max() < 0.2


def test_a_thin_cloud_has_the_share_brightness_and_damping_it_says() -> None:
    wavelength = [500.0, 1300.0, 2300.0]
    what = ThinCloud(probability=0.3, mean_fraction=0.1, brightness=(0.6, 0.9), damping=0.7)
    values = what.apply(np.full((N, 3), 0.2), wavelength, np.random.default_rng(0))
    mean = 0.3 * 0.1 * (1 - np.exp(-1 / 0.1))
    assert_mean(values, 0.2 + mean * (0.75 * np.exp([0.0, 0.0, -0.7]) - 0.2))
    clear = (values == 0.2).all(axis=1)
    assert_mean(clear[:, None].astype(float), 0.7)
    np.testing.assert_array_equal(values[:, 0], values[:, 1])


def test_an_opaque_cloud_is_the_most_that_a_thin_one_becomes() -> None:
    values = ThinCloud(1.0, 50.0, (0.6, 0.9), damping=0.0).apply(np.zeros((500, 2)), None, np.random.default_rng(0))
    assert values.max() <= 0.9
    assert ((values >= 0.6).mean(axis=0) > 0.9).all()


def test_haze_lets_through_what_its_depth_says() -> None:
    what = Haze(mean_depth=0.1, brightness=(0.4, 0.4), slope=1.3)
    fall = (WAVELENGTHS / 1000.0) ** -1.3
    expected = 1.0 / (1.0 + 2.0 * 0.1 * fall)
    assert_mean(drawn(what), 0.4 + expected * (SPECTRUM - 0.4))


def test_background_is_mixed_in_by_its_fraction_all_rows_as_likely() -> None:
    values = drawn(Background(SOIL, fraction=(0.1, 0.4), probability=0.5))
    assert_mean(values, SPECTRUM + 0.5 * 0.25 * (SOIL.values.mean(axis=0) - SPECTRUM))


@pytest.mark.parametrize("unit", ["nm", "um"])
def test_background_bands_are_found_by_wavelength_in_any_order_and_unit(unit: str) -> None:
    soil = SOIL.assign_coords(wavelength=wavelength_coordinate("band", unit)).isel(band=[4, 2, 7, 0, 1, 6, 5, 3])
    padded = xr.concat([soil, soil.isel(band=[0]).assign_coords(wavelength=soil.wavelength[:1] * 3)], "band")
    padded = padded.assign_coords(wavelength=padded.wavelength.assign_attrs(units=unit)).transpose("band", "soil")
    np.testing.assert_array_equal(drawn(Background(padded), n=50), drawn(Background(SOIL), n=50))


def test_a_background_without_wavelengths_is_matched_by_position() -> None:
    plain = SOIL.drop_vars("wavelength")
    values = Background(plain, band_dim="band").apply(np.zeros((5, 8)), None, np.random.default_rng(0))
    assert np.isfinite(values).all()


def test_a_shift_moves_a_straight_line_and_holds_its_ends() -> None:
    line = 1e-3 * WAVELENGTHS
    clean = xr.DataArray(
        np.tile(line, (300, 1)), dims=("sample", "band"), coords={"wavelength": wavelength_coordinate()}
    )
    moved = apply(clean, WavelengthShift(3.0), record=True)
    distance = moved["nuisance_wavelength_shift_distance"]
    expected = np.clip(line + 1e-3 * distance.values[:, None], line.min(), line.max())
    np.testing.assert_allclose(moved.values, expected, rtol=1e-12)
    assert_mean(distance.values[:, None] ** 2, 9.0)
    assert distance.attrs["units"] == "nm"


def test_plain_arrays_keep_their_values_and_give_the_same_for_the_same_generator(subtests: pytest.Subtests) -> None:
    for what in EVERYTHING:
        with subtests.test(what=what):
            spectra = np.tile(SPECTRUM, (5, 1))
            first, again = (what.apply(spectra, WAVELENGTHS, np.random.default_rng(7)) for _ in range(2))
            np.testing.assert_array_equal(first, again)
            np.testing.assert_array_equal(spectra, np.tile(SPECTRUM, (5, 1)))
            assert not np.array_equal(first, spectra)


def test_steps_act_in_order() -> None:
    rows = np.ones((4, 8))
    gain, offset = Gain(0.5), Offset(0.0, mean=1.0)
    one = (gain | offset).apply(rows, None, np.random.default_rng(0))
    other = (offset | gain).apply(rows, None, np.random.default_rng(0))
    factor = gain.apply(rows, None, np.random.default_rng(0))
    np.testing.assert_allclose(one, factor + 1.0)
    assert not np.allclose(other, one)


def test_chains_are_taken_apart_and_equal_whichever_way_they_are_made() -> None:
    a, b, c = Gain(0.1), Noise(0.1), Offset(0.1)
    assert (a | b) | c == a | (b | c) == Chain([a, Chain([b, c])]) == Chain((a, b, c))
    assert Chain([a, b]).steps == (a, b)
    assert (a | b) != (b | a)


def test_settings_out_of_range_are_refused_when_the_nuisance_is_made(subtests: pytest.Subtests) -> None:
    for make, parts in [
        (lambda: Noise(white=-0.1), ("Noise", "white is -0.1", "0 or more")),
        (lambda: Noise(relative=[0.1, np.nan]), ("Noise", "relative is nan")),
        (lambda: Noise(white=np.ones((2, 2))), ("Noise", "white has shape (2, 2)")),
        (lambda: Gain(np.inf), ("Gain", "std is inf")),
        (lambda: Offset(-1.0), ("Offset", "std is -1.0")),
        (lambda: Offset(1.0, mean=np.nan), ("Offset", "mean is nan")),
        (lambda: Discrepancy(0.1, 0.0), ("Discrepancy", "length_scale is 0.0", "above 0")),
        (lambda: Discrepancy(0.1, 80.0, kernel="rbf"), ("'rbf'", "'squared_exponential'", "'matern32'")),
        (lambda: WavelengthShift(-1.0), ("WavelengthShift", "std is -1.0")),
        (lambda: ThinCloud(probability=1.5), ("ThinCloud", "probability is 1.5", "0 to 1")),
        (lambda: ThinCloud(mean_fraction=0.0), ("mean_fraction is 0.0",)),
        (lambda: ThinCloud(brightness=(0.9, 0.6)), ("brightness is (0.9, 0.6)", "in order")),
        (lambda: Haze(slope=-1.0), ("Haze", "slope is -1.0")),
        (lambda: Background(SOIL, fraction=(0.0, 1.1)), ("fraction is (0.0, 1.1)", "from 0 to 1")),
        (lambda: Background(SOIL.where(SOIL > 0.15)), ("background spectra", "NaN")),
        (lambda: Background(SOIL.isel(soil=[])), ("background spectra", "empty")),
        (lambda: Background(SOIL, tolerance=-1.0), ("tolerance is -1.0",)),
        (lambda: Background(SOIL.drop_vars("wavelength")), ("no dimension carries wavelengths", "band_dim=")),
        (lambda: Chain([]), ("no nuisance to apply", "at least one")),
    ]:
        with subtests.test(make=make, parts=parts), refuses(ValueError, *parts):
            make()


def test_other_mistakes_are_named(subtests: pytest.Subtests) -> None:
    for call, kind, parts in [
        (lambda: apply(SPECTRUM, Noise(0.1)), TypeError, ("Dataset or DataArray", "ndarray")),
        (lambda: apply(make_training(5), [Noise(0.1), "gain"]), TypeError, ("'gain' is no nuisance",)),
        (lambda: apply(make_training(5), []), ValueError, ("no nuisance",)),
        (lambda: Background(SPECTRUM), TypeError, ("background", "DataArray", "ndarray")),
        (lambda: Noise(0.1).apply(SPECTRUM, None, None), ValueError, ("shape (8,)", "(n, D)")),
        (lambda: Noise(0.1).apply([SPECTRUM], [500.0], None), ValueError, ("wavelength has shape (1,)", "8 bands")),
        (lambda: ThinCloud().covariance(WAVELENGTHS), ValueError, ("ThinCloud", "not additive Gaussian")),
        (lambda: (Noise(0.1) | Haze()).covariance(WAVELENGTHS), ValueError, ("Haze", "not additive Gaussian")),
        (lambda: Noise(0.1).covariance(None), ValueError, ("neither wavelength nor spectrum",)),
        (lambda: Noise(0.1, 0.1).covariance(WAVELENGTHS), ValueError, ("relative to the spectrum", "spectrum=")),
        (lambda: Gain(0.1).covariance(WAVELENGTHS), ValueError, ("relative to the spectrum",)),
        (lambda: Noise(0.1).covariance(None, [SPECTRUM]), ValueError, ("shape (1, 8)",)),
        (lambda: Discrepancy(0.1, 80.0).covariance(None, SPECTRUM), ValueError, ("needs wavelengths",)),
    ]:
        with subtests.test(call=call, kind=kind, parts=parts), refuses(kind, *parts):
            call()


@pytest.mark.parametrize("module", [base, errors, scene, driver], ids=lambda m: m.__name__)
def test_examples_in_docstrings_print_what_they_show(module: Any) -> None:
    names = {**vars(nuisance), "np": np, "xr": xr}
    found = doctest.testmod(module, extraglobs=names)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.docs
def test_the_guide_prints_what_it_shows() -> None:
    assert_prints_what_it_shows(Path(__file__).parents[2] / "docs" / "nuisance.md")
