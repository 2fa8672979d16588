"""Every output of an inversion is the summary of the posterior that it says it is, labelled, and flagged."""

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm

import reference
from labelled import PARAMETERS, TRUTH_ATTRS, WAVELENGTHS, assert_close, fitted, make_cube, make_training, make_truth
from specinvert import GLLiMInverter, save_maps
from strategies import dense
from tabled import EVERY, ROWS, maps_of_table, spectra_of_squares, square_model, square_training, table

NODATA, PARTIAL, OUT_OF_DOMAIN, BELOW, ABOVE, MULTIMODAL, PRIOR_ANSWERS = 1, 2, 4, 8, 16, 32, 64


@cache
def mixtures() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Weights (K,), means (K, 2) and covariances (K, 2, 2) of each spectrum of the table."""
    found = fitted(1).posterior(table())
    names = ("weight", "mean", "covariance")
    return [tuple(found[name].isel(sample=i).values for name in names) for i in range(ROWS)]  # type: ignore[misc]


@cache
def large_model(n_latent: int = 0, n_ensemble: int = 1) -> GLLiMInverter:
    """Trained on enough spectra for a level of one in a hundred."""
    settings: dict[str, Any] = {"n_components": 6, "max_iter": 15, "tol": 0.0, "random_state": 0}
    return GLLiMInverter(n_latent=n_latent, n_ensemble=n_ensemble, **settings).fit(make_training(6000, seed=3))


def log_density(points: Any, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """Of points (..., 2)."""
    gap = np.asarray(points)[..., None, :] - means
    distance = np.einsum("...ki,kij,...kj->...k", gap, np.linalg.inv(covariances), gap)
    constants = np.log(weights) - np.log(2.0 * np.pi) - 0.5 * np.log(np.linalg.det(covariances))
    return np.asarray(logsumexp(constants - 0.5 * distance, axis=-1))


def cdf(values: Any, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, i: int) -> np.ndarray:
    """Distribution function of the marginal of parameter i."""
    deviations = np.sqrt(covariances[:, i, i])
    return np.asarray(norm.cdf((np.asarray(values)[..., None] - means[:, i]) / deviations) @ weights)


def flags(maps: xr.Dataset, bit: int) -> np.ndarray:
    return (maps["quality_flag"].values & bit) == bit


@pytest.mark.parametrize("i", [0, 1])
def test_quantiles_and_central_intervals_cut_off_the_mass_that_they_name(i: int) -> None:
    name = PARAMETERS[i]
    levels = {"q05": 0.05, "q5": 0.5, "q975": 0.975, "ci90_lower": 0.05, "ci90_upper": 0.95}
    for row, mixture in enumerate(mixtures()):
        for output, level in levels.items():
            value = float(maps_of_table()[f"{name}_{output}"][row])
            assert float(cdf(value, *mixture, i)) == pytest.approx(level, abs=1e-9)


@pytest.mark.parametrize("i", [0, 1])
def test_hdi_is_the_shortest_interval_of_its_mass(i: int) -> None:
    for row, mixture in enumerate(mixtures()):
        lower, upper = (float(maps_of_table()[f"{PARAMETERS[i]}_hdi90_{end}"][row]) for end in ("lower", "upper"))
        assert float(cdf(upper, *mixture, i) - cdf(lower, *mixture, i)) == pytest.approx(0.9, abs=1e-9)
        grid = np.linspace(lower - 1.0, upper + 1.0, 10_001)
        below = cdf(grid, *mixture, i)
        starts = np.linspace(1e-4, 0.1 - 1e-4, 999)
        lengths = np.interp(starts + 0.9, below, grid) - np.interp(starts, below, grid)
        assert upper - lower <= lengths.min() + 1e-5
        assert upper - lower == pytest.approx(lengths.min(), abs=1e-3)


def test_mode_is_the_highest_of_the_joint_density() -> None:
    for row, mixture in enumerate(mixtures()):
        mode = np.array([float(maps_of_table()[f"{name}_mode"][row]) for name in PARAMETERS])
        climbs = [minimize(lambda p, m=mixture: -log_density(p, *m), mean, tol=1e-10) for mean in mixture[1]]
        best = min(climbs, key=lambda climb: climb.fun)
        assert log_density(mode, *mixture) == pytest.approx(-best.fun, abs=1e-8)
        np.testing.assert_allclose(mode, best.x, atol=1e-4)


def test_mean_std_and_covariance_are_the_moments_of_the_posterior_mixture() -> None:
    for row, (weights, means, covariances) in enumerate(mixtures()):
        mean = weights @ means
        gap = means - mean
        cov = np.einsum("k,kij->ij", weights, covariances + gap[:, :, None] * gap[:, None, :])
        found = maps_of_table().isel(sample=row)
        np.testing.assert_allclose([found["water"], found["dust"]], mean, rtol=1e-9)
        np.testing.assert_allclose([found["water_std"], found["dust_std"]], np.sqrt(np.diagonal(cov)), rtol=1e-9)
        np.testing.assert_allclose(found["covariance"], cov, rtol=1e-9)


def test_entropy_is_the_integral_over_the_joint_density() -> None:
    for row, mixture in enumerate(mixtures()):
        _, means, covariances = mixture
        reach = 6.0 * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        axes = [np.linspace((means - reach)[:, j].min(), (means + reach)[:, j].max(), 250) for j in (0, 1)]
        logs = log_density(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), *mixture)
        cell = np.prod([axis[1] - axis[0] for axis in axes])
        assert np.exp(logs).sum() * cell == pytest.approx(1.0, abs=1e-3)
        integral = -(np.exp(logs) * logs).sum() * cell
        assert float(maps_of_table()["entropy"][row]) == pytest.approx(integral, abs=0.03)


@pytest.mark.parametrize("n_latent", [0, 1])
def test_residual_is_the_spectrum_less_the_mean_of_what_the_components_reconstruct(n_latent: int) -> None:
    inverter, cube = fitted(n_latent), make_cube()
    cube.values[1, 2, [0, 5]] = np.nan
    maps, theta = inverter.invert(cube, outputs=("residual", "fit_rmse")), inverter.parameters_
    naive = reference.posterior(dense(theta), cube.transpose("y", "x", "band").values.reshape(-1, 8))
    spectra = np.einsum("kdl,nkl->nkd", theta.A, naive["component_means"]) + theta.b
    fit = np.einsum("nk,nkd->nd", naive["weights"], spectra).reshape(*cube.shape[:2], 8)
    expected = cube.values - fit
    assert np.isnan(expected[1, 2]).sum() == 2
    np.testing.assert_allclose(maps["residual"], expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(maps["fit_rmse"], np.sqrt(np.nanmean(expected**2, axis=-1)), rtol=1e-8)


def test_residual_has_the_band_dimension_of_the_cube_and_the_bands_of_the_model() -> None:
    order = [5, 0, 7, 2, 4, 1, 6, 3]
    cube = make_cube()
    alien = cube.isel(band=[0]).assign_coords(wavelength=("band", [1500.0], {"units": "nm"}))
    wide = xr.concat([cube.isel(band=order), alien], "band").swap_dims(band="wavelength").transpose("wavelength", ...)
    expected = fitted(1).invert(cube, outputs="residual")["residual"]
    for data in (wide, wide.chunk(y=2)):
        found = fitted(1).invert(data, outputs="residual")["residual"]
        assert found.dims == ("y", "x", "wavelength")
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


def test_residual_has_the_wavelengths_of_its_bands() -> None:
    found = fitted(1).invert(make_cube().isel(band=[5, 0, 7, 2, 4, 1, 6, 3]), outputs="residual")["residual"]
    np.testing.assert_allclose(found["wavelength"], WAVELENGTHS)


def test_n_modes_counts_the_peaks_that_hold_a_tenth_of_the_posterior() -> None:
    spectra = spectra_of_squares([-0.9, -0.5, 0.0, 0.02, 0.5, 0.9])
    maps = square_model().invert(spectra, outputs=("n_modes", "mode"))
    posterior = square_model().posterior(spectra)
    grid = np.linspace(-2.0, 2.0, 8001)
    for row in range(6):
        weights, means = posterior["weight"][row].values, posterior["mean"][row, :, 0].values
        deviations = np.sqrt(posterior["covariance"][row, :, 0, 0].values)
        density = (weights * norm.pdf(grid[:, None], means, deviations)).sum(axis=1)
        peaks = 1 + np.flatnonzero((density[1:-1] > density[:-2]) & (density[1:-1] > density[2:]))
        valleys = [a + density[a:b].argmin() for a, b in pairwise(peaks)]
        mass = [part.sum() / density.sum() for part in np.split(density, valleys)]
        assert int(maps["n_modes"][row]) == sum(m > 0.1 for m in mass)
        assert float(maps["t_mode"][row]) == pytest.approx(grid[density.argmax()], abs=1e-3)
    np.testing.assert_array_equal(maps["n_modes"], [2, 2, 1, 1, 2, 2])


def test_a_posterior_with_two_modes_is_flagged_until_the_sign_is_known() -> None:
    spectra = spectra_of_squares([-0.9, -0.5, 0.0, 0.02, 0.5, 0.9])
    maps = square_model().invert(spectra)
    np.testing.assert_array_equal(flags(maps, MULTIMODAL), [True, True, False, False, True, True])
    assert not flags(square_model().invert(spectra, known={"t": 0.5}), MULTIMODAL).any()


@pytest.mark.parametrize("n_components", [4, 10, 40])
def test_both_solutions_of_a_square_are_told_whatever_the_number_of_components(n_components: int) -> None:
    settings: dict[str, Any] = {"max_iter": 15, "tol": 0.0, "random_state": 0}
    model = GLLiMInverter(n_components, **settings).fit(square_training())
    t = np.linspace(-1.0, 1.0, 81)
    noisy = np.random.default_rng(5).normal(size=(81, 8)) * 0.01
    found = flags(model.invert(spectra_of_squares(list(t)) + noisy), MULTIMODAL)
    assert found[np.abs(t) > 0.35].mean() > 0.75
    assert n_components == 4 or not found[np.abs(t) < 0.05].any()


def test_flags_of_each_parameter_make_those_of_the_spectrum() -> None:
    cube = make_cube()
    cube.values[0, 0], cube.values[0, 1, 3] = np.nan, np.nan
    known = {"dust": make_truth()["dust"] + 2.0}
    maps = fitted(1).invert(cube, known=known, outputs=("mean", "flag", "flags"))
    bits = maps["water_flag"] | maps["dust_flag"]
    np.testing.assert_array_equal(bits | (maps["quality_flag"] & (PARTIAL | OUT_OF_DOMAIN)), maps["quality_flag"])
    np.testing.assert_array_equal(maps["dust_flag"].values[1:], ABOVE)
    assert ((maps["water_flag"].values[1:] & ABOVE) < ABOVE).all()
    two = square_model().invert(spectra_of_squares([-0.9, 0.0]), outputs=("flags",))
    np.testing.assert_array_equal(two["t_flag"], [MULTIMODAL, 0])
    assert two["t_flag"].attrs["flag_meanings"].split()[-1] == "prior_answers"


def entropy_of(weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> float:
    """By a sum over a grid."""
    deviations = np.sqrt(variances)
    grid = np.linspace((means - 8 * deviations).min(), (means + 8 * deviations).max(), 20_001)
    density = np.maximum((weights * norm.pdf(grid[:, None], means, deviations)).sum(axis=1), 1e-300)
    return float(-(density * np.log(density)).sum() * (grid[1] - grid[0]))


@pytest.mark.parametrize("i", [0, 1])
def test_information_is_the_entropy_of_the_prior_less_that_of_the_posterior(i: int) -> None:
    theta = fitted(1).parameters_
    before = entropy_of(theta.pi, theta.c[:, i], theta.Gamma[:, i, i])
    found = fitted(1).invert(table(), outputs=("information",))[f"{PARAMETERS[i]}_information"]
    for row, (weights, means, covariances) in enumerate(mixtures()):
        after = entropy_of(weights, means[:, i], covariances[:, i, i])
        assert float(found[row]) == pytest.approx(before - after, abs=0.02)
    known = fitted(1).invert(table(), known={"water": 1.0}, outputs=("information",))
    assert np.isnan(known["water_information"]).all()
    assert np.isfinite(known["dust_information"]).all()


def test_spectra_that_tell_little_are_flagged_and_two_solutions_are_not_little() -> None:
    spectra = make_training(3000, seed=9)["reflectance"]
    maps = large_model().invert(spectra, outputs=("flag", "flags"))
    assert flags(maps, PRIOR_ANSWERS).mean() < 0.02
    blind = large_model().invert(spectra[:50], noise=5.0, outputs=("flag", "flags"))
    assert flags(blind, PRIOR_ANSWERS).all()
    assert (blind["water_flag"] & PRIOR_ANSWERS > 0).all()
    sure = large_model().invert(spectra[:50], noise=5.0, known={"water": 1.0, "dust": 0.5})
    assert not flags(sure, PRIOR_ANSWERS).any()
    assert not flags(square_model().invert(spectra_of_squares([-0.9, 0.9])), PRIOR_ANSWERS).any()


def test_names_dimensions_and_types_of_every_output() -> None:
    maps = fitted(1).invert(make_cube(dtype=np.float32), outputs=(*EVERY, "latent"))
    of_parameters = ("{}", "{}_std", "{}_q05", "{}_q5", "{}_q975", "{}_ci90_lower", "{}_ci90_upper")
    of_parameters += ("{}_hdi90_lower", "{}_hdi90_upper", "{}_mode")
    whole = {"n_modes", "covariance", "entropy", "residual", "fit_rmse", "log_evidence", "quality_flag", "latent"}
    assert set(maps.data_vars) == whole | {pattern.format(name) for pattern in of_parameters for name in PARAMETERS}
    more = {"covariance": ("parameter", "parameter_2"), "residual": ("band",), "latent": ("latent_dim",)}
    types = {"n_modes": np.uint8, "quality_flag": np.uint8, "log_evidence": np.float64}
    for name, array in maps.data_vars.items():
        assert array.dims == ("y", "x", *more.get(str(name), ())), name
        assert array.dtype == types.get(str(name), np.float32), name


def test_lazy_outputs_are_those_of_numpy() -> None:
    cube = make_cube()
    cube.values[1, 2, [0, 5]] = np.nan
    maps = fitted(1).invert(cube.chunk(y=2, x=5), outputs=EVERY)
    assert_close(maps.compute(), fitted(1).invert(cube, outputs=EVERY), rtol=1e-7)


def test_every_output_has_a_long_name_the_units_of_what_it_is_and_a_link_from_its_parameter() -> None:
    training = make_training()
    training["reflectance"].attrs["units"] = "W m-2"
    training["water"].attrs["standard_name"] = "water_amount"
    inverter = GLLiMInverter(n_components=2, n_latent=0, max_iter=2, tol=0.0, random_state=0).fit(training)
    maps = inverter.invert(make_cube().assign_attrs(units="W m-2"), outputs=EVERY)
    long_names = {
        "water": "leaf water",
        "water_std": "standard deviation of leaf water",
        "water_q05": "5 % quantile of leaf water",
        "dust_q975": "97.5 % quantile of dust",
        "water_ci90_lower": "lower end of the central 90 % interval of leaf water",
        "water_hdi90_upper": "upper end of the shortest 90 % interval of leaf water",
        "water_mode": "leaf water at the highest mode of the posterior",
    }
    assert {name: maps[name].attrs["long_name"] for name in long_names} == long_names
    for name in maps.data_vars:
        parameter = next((p for p in PARAMETERS if str(name).startswith(p)), None)
        in_spectra_units = "W m-2" if name in ("residual", "fit_rmse") else "1"
        expected = TRUTH_ATTRS[parameter]["units"] if parameter else in_spectra_units
        if name not in ("covariance", "quality_flag"):
            assert maps[name].attrs["units"] == expected, name
        assert maps[name].attrs["long_name"]
        assert ("ancillary_variables" in maps[name].attrs) == (name in PARAMETERS)
    assert maps["water_std"].attrs["standard_name"] == "water_amount standard_error"
    for name in PARAMETERS:
        linked = maps[name].attrs["ancillary_variables"].split()
        assert linked == [v for v in maps.data_vars if str(v).startswith(f"{name}_")] + ["quality_flag"]


@pytest.mark.parametrize(("least", "first"), [(None, 3), (1, 1), (5, 5), (8, 8)])
def test_spectra_with_fewer_bands_than_asked_for_are_no_data(least: int | None, first: int) -> None:
    spectra = make_training(9, seed=4)["reflectance"]
    for row in range(9):
        spectra.values[row, row:] = np.nan
    maps = fitted(1).invert(spectra, outputs=EVERY, min_valid_bands=least)
    np.testing.assert_array_equal(maps["quality_flag"][:first], NODATA)
    np.testing.assert_array_equal(flags(maps, NODATA), np.arange(9) < first)
    np.testing.assert_array_equal(flags(maps, PARTIAL), (np.arange(9) >= first) & (np.arange(9) < 8))
    assert (maps["n_modes"][:first] == 0).all()
    assert (maps["n_modes"][first:] > 0).all()
    for name in set(maps.data_vars) - {"quality_flag", "n_modes", "residual"}:
        assert maps[name][:first].isnull().all(), name
        assert maps[name][first:].notnull().all(), name
    posterior = fitted(1).posterior(spectra, min_valid_bands=least)
    np.testing.assert_array_equal(posterior["log_evidence"].notnull(), np.arange(9) >= first)


def test_estimates_beyond_the_training_range_are_flagged_and_no_others() -> None:
    inverter = fitted(1)
    maps = inverter.invert(make_training(400, seed=5)["reflectance"])
    mean = np.stack([maps[name].values for name in PARAMETERS], axis=1)
    below, above = (mean < inverter.model_.low).any(axis=1), (mean > inverter.model_.high).any(axis=1)
    assert 0 < below.sum() < 200
    assert 0 < above.sum() < 200
    np.testing.assert_array_equal(flags(maps, BELOW), below)
    np.testing.assert_array_equal(flags(maps, ABOVE), above)
    training = make_training()
    np.testing.assert_array_equal(inverter.model_.low, [training[name].min() for name in PARAMETERS])
    np.testing.assert_array_equal(inverter.model_.high, [training[name].max() for name in PARAMETERS])


@pytest.mark.parametrize("n_ensemble", [1, 2])
@pytest.mark.parametrize("n_latent", [0, 1])
def test_one_in_a_hundred_fresh_simulations_is_out_of_domain(n_latent: int, n_ensemble: int) -> None:
    fresh = make_training(6000, seed=31)["reflectance"]
    inverter = large_model(n_latent, n_ensemble)
    assert 0.002 < flags(inverter.invert(fresh), OUT_OF_DOMAIN).mean() < 0.03
    fresh.values[:, [1, 4, 6]] = np.nan
    assert 0.002 < flags(inverter.invert(fresh), OUT_OF_DOMAIN).mean() < 0.03
    noisy = fresh + 0.5 * np.random.default_rng(1).normal(size=fresh.shape)
    assert flags(inverter.invert(noisy), OUT_OF_DOMAIN).mean() > 0.3
    assert 0.002 < flags(inverter.invert(noisy, 0.5), OUT_OF_DOMAIN).mean() < 0.03


@pytest.mark.parametrize("n_ensemble", [1, 2])
def test_spectra_of_another_material_are_out_of_domain(n_ensemble: int) -> None:
    there = make_training(50, seed=32)["reflectance"]
    others = {
        "dark in every other band": there * np.arange(8.0) % 2.0,
        "ten times as bright": 10.0 * there,
        "lines": xr.zeros_like(there).where(WAVELENGTHS != 700.0, 3.0),
        "huge": there.copy(data=1e9 * np.random.default_rng(0).normal(size=there.shape)),
    }
    for what, spectra in others.items():
        assert flags(large_model(1, n_ensemble).invert(spectra), OUT_OF_DOMAIN).all(), what
    assert not flags(large_model(1, n_ensemble).invert(others["lines"], noise=5.0), OUT_OF_DOMAIN).any()


def test_spectra_with_many_bands_beyond_those_of_training_are_out_of_domain() -> None:
    spectra = make_training(40, seed=9)["reflectance"]
    held = large_model().model_.held_out
    assert held is not None
    high = held.max(axis=0) + 0.03 * np.ptp(held, axis=0)
    for bands, odd in (([0], True), ([], False)):
        changed = spectra.copy()
        changed.values[:, bands] = high[bands]
        changed.values[:, 5] = np.nan
        found = flags(large_model().invert(changed), OUT_OF_DOMAIN)
        assert found.all() if odd else found.mean() < 0.2
    wide = large_model().invert(changed.where(False, other=high), noise=10.0, outputs=("flag",))
    assert not flags(wide, OUT_OF_DOMAIN).any()


@pytest.mark.filterwarnings("ignore:the values of the spectra are about")
def test_too_few_training_spectra_give_no_level_and_no_spectrum_is_called_out_of_domain() -> None:
    inverter = GLLiMInverter(n_components=2, n_latent=0, max_iter=2, tol=0.0, random_state=0).fit(make_training(60))
    assert np.isnan(inverter.model_.log_tail)
    assert not flags(inverter.invert(100.0 * make_cube()), OUT_OF_DOMAIN).any()


def test_flags_and_outputs_survive_a_netcdf_file(tmp_path: Path) -> None:
    cube = make_cube()
    cube.values[0, 0] = np.nan
    cube.values[0, 1, 3] = np.nan
    cube.values[0, 2] = 100.0
    known = make_truth()["dust"].copy()
    known.values[1] = 2.0
    known.values[2] = -2.0
    maps = fitted(1).invert(cube, outputs=EVERY, known={"dust": known.where(known.x > known.x[0])})
    for bit in (NODATA, PARTIAL, OUT_OF_DOMAIN, BELOW, ABOVE):
        assert 0 < flags(maps, bit).sum() < 30, bit
    save_maps(maps, tmp_path / "maps.nc")
    with xr.open_dataset(tmp_path / "maps.nc", decode_coords="all") as opened:
        found = opened.load()
    xr.testing.assert_equal(found, maps)
    assert found["quality_flag"].dtype == np.uint8
    assert found["n_modes"].dtype == np.uint8
    for name in maps.data_vars:
        wanted = maps[name].attrs
        assert set(found[name].attrs) == set(wanted)
        assert all(np.array_equal(found[name].attrs[key], value) for key, value in wanted.items()), name
