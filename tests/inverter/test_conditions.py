"""Noise and known parameters at inversion: however they are given, plain conditioning of the joint Gaussians."""

import re
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import reference
from conditions import DEVIATIONS, PIXELS, along_bands
from labelled import PARAMETERS, WAVELENGTHS, assert_close, fitted, make_cube, make_truth
from specinvert import GLLiMInverter
from specinvert.cubes import in_words, made_by, made_with

pytestmark = pytest.mark.oracle

OUTPUTS = ("mean", "std", "cov", "log_evidence", "flag")
NODATA, PARTIAL, ABOVE = 1, 2, 16
MODELS = [((0, "iso"), np.float64), ((1, "diag"), np.float32), ((1, "diag"), np.float64), ((1, "full"), np.float64)]
PLACES = [(0, 0), (0, 1), (1, 2), (2, 4), (3, 3), (4, 5)]
"""Pixels compared with the reference: those that miss bands or noise, and others."""
ORDER = [5, 0, 7, 2, 4, 1, 6, 3]


def spotted_cube(dtype: Any = np.float64) -> xr.DataArray:
    """A cube some of whose pixels miss bands."""
    cube = make_cube(dtype=dtype)
    cube.values[0, 0, 2] = cube.values[0, 1, [0, 3, 7]] = np.nan
    return cube


def of_pixels(seed: int, *more: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.005, 0.1, (*PIXELS, *more))


def holed_deviations() -> np.ndarray:
    """Deviations (5, 6, 8) of which some are NaN, and all of one pixel."""
    values = of_pixels(3, 8)
    values[1, 2, [0, 4]] = values[3, 3, :] = np.nan
    return values


def random_covariance() -> np.ndarray:
    root = 0.03 * np.random.default_rng(4).normal(size=(8, 8))
    return root @ root.T


def pixel_noise() -> tuple[xr.DataArray, np.ndarray]:
    return xr.DataArray(of_pixels(1).T, dims=("x", "y")), of_pixels(1)[..., None]


def column_noise() -> tuple[xr.DataArray, np.ndarray]:
    return xr.DataArray(of_pixels(1)[0], dims="x", coords={"x": make_truth()["x"]}), of_pixels(1)[:1, :, None]


def pixel_and_band_noise() -> tuple[xr.DataArray, np.ndarray]:
    given = along_bands(holed_deviations()[..., ORDER], WAVELENGTHS[ORDER], "y", "x")
    return given.transpose("band", "x", "y"), holed_deviations()


def superset_noise() -> tuple[xr.DataArray, np.ndarray]:
    values, nanometres = np.append(DEVIATIONS[ORDER], [9.0, 9.0]), np.append(WAVELENGTHS[ORDER] + 0.3, [400.0, 2000.0])
    return along_bands(values, nanometres), DEVIATIONS


NOISES: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "a number": lambda: (0.03, np.array(0.03)),
    "an array over bands": lambda: (list(DEVIATIONS), DEVIATIONS),
    "labelled bands in another order, and more": superset_noise,
    "pixels, dimensions turned": pixel_noise,
    "one of the pixel dimensions": column_noise,
    "pixels and bands in another order, some NaN": pixel_and_band_noise,
    "a covariance": lambda: (random_covariance(), random_covariance()),
}


def known_pixels() -> np.ndarray:
    """Water of the pixels, unknown (NaN) in every third."""
    values = np.random.default_rng(6).uniform(0.2, 1.8, PIXELS)
    values.ravel()[::3] = np.nan
    return values


def labelled_known() -> tuple[xr.DataArray, dict[str, np.ndarray]]:
    given = xr.DataArray(known_pixels().T, dims=("x", "y"), coords={"y": make_truth()["y"]}, attrs={"units": "g m-2"})
    return given, {"water": known_pixels()}


KNOWN: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "a number": lambda: ({"water": 0.8}, {"water": 0.8}),
    "a DataArray without dimensions": lambda: ({"dust": xr.DataArray(0.4)}, {"dust": 0.4}),
    "pixels, NaN where unknown": lambda: ({"water": labelled_known()[0]}, labelled_known()[1]),
    "a Dataset with other variables": lambda: (
        xr.Dataset({"water": labelled_known()[0], "quality": ("y", np.zeros(5))}),
        labelled_known()[1],
    ),
    "a coordinate of a Dataset": lambda: (
        xr.Dataset(coords={"water": labelled_known()[0].variable, "y": make_truth()["y"]}),
        labelled_known()[1],
    ),
    "an array without dimensions": lambda: ({"dust": np.array(0.4)}, {"dust": 0.4}),
    "coordinates that differ by rounding": lambda: (
        {"water": labelled_known()[0].assign_coords(y=make_truth()["y"] * (1 + 1e-9))},
        labelled_known()[1],
    ),
    "one of each": lambda: (
        {"water": labelled_known()[0], "dust": np.float32(0.5)},
        {**labelled_known()[1], "dust": 0.5},
    ),
}


def conditioned(inverter: GLLiMInverter, spectrum: np.ndarray, noise: np.ndarray, known: np.ndarray) -> dict[str, Any]:
    """Mean (2,) and covariance (2, 2) of both parameters, what is known in its place, and the rest of the reference."""
    theta = inverter.parameters_
    dense = reference.Theta(theta.pi, theta.c, theta.Gamma, theta.A, theta.b, theta.sigma_dense(), theta.n_latent)
    if noise.shape != (8, 8):
        deviation = np.broadcast_to(noise, 8)
        spectrum = np.where(np.isnan(deviation), np.nan, spectrum)
        noise = np.diag(np.nan_to_num(deviation) ** 2)
    found = reference.conditional(dense, spectrum.astype(np.float64), noise, known)
    unknown = np.flatnonzero(np.isnan(known))
    weights, means = found["weights"], found["means"][:, : len(unknown)]
    mean, cov = known.copy(), np.zeros((2, 2))
    mean[unknown] = weights @ means
    gap = means - mean[unknown]
    within = found["covariances"][:, : len(unknown), : len(unknown)] + gap[:, :, None] * gap[:, None, :]
    cov[np.ix_(unknown, unknown)] = np.einsum("k,kij->ij", weights, within)
    return {**found, "mean": mean, "cov": cov, "n_valid": int(np.isfinite(spectrum).sum())}


def assert_conditioned(
    maps: xr.Dataset,
    inverter: GLLiMInverter,
    cube: xr.DataArray,
    noise: np.ndarray = np.zeros(()),  # noqa: B008
    known: dict[str, Any] | None = None,
) -> None:
    """Every pixel holds the reference's posterior; noise (y, x, 1 or band) or of all pixels, known (y, x)."""
    rtol = 1e-8 if cube.dtype == np.float64 else 2e-6
    values = np.stack([np.broadcast_to((known or {}).get(name, np.nan), PIXELS) for name in PARAMETERS], axis=-1)
    found = {name: array.transpose("y", "x", ...).values for name, array in maps.data_vars.items()}
    for y, x in PLACES:
        here = noise[y % len(noise), x] if noise.ndim == 3 else noise
        expected = conditioned(inverter, cube.values[y, x], here, values[y, x].astype(np.float64))
        pixel = {name: array[y, x] for name, array in found.items()}
        flag = int(pixel["quality_flag"])
        if not expected["n_valid"]:
            assert flag == NODATA
            assert all(np.isnan(value).all() for name, value in pixel.items() if name != "quality_flag")
            continue
        assert bool(flag & PARTIAL) == (expected["n_valid"] < 8)
        for i, name in enumerate(PARAMETERS):
            np.testing.assert_allclose(pixel[name], expected["mean"][i], rtol=rtol, atol=rtol)
            np.testing.assert_allclose(pixel[f"{name}_std"], np.sqrt(expected["cov"][i, i]), rtol=rtol)
        np.testing.assert_allclose(pixel["covariance"], expected["cov"], rtol=rtol, atol=0.1 * rtol)
        np.testing.assert_allclose(pixel["log_evidence"], expected["log_evidence"], rtol=1e-8, atol=1e-8)


def lazily(given: Any) -> Any:
    """DataArrays in chunks of their own; anything else as it is."""
    if isinstance(given, dict):
        return {name: lazily(value) for name, value in given.items()}
    many = isinstance(given, xr.Dataset) or (isinstance(given, xr.DataArray) and given.ndim)
    return given.chunk(dict.fromkeys(given.dims, 3)) if many else given


@pytest.mark.parametrize(("model", "dtype"), MODELS, ids=str)
@pytest.mark.parametrize("form", NOISES)
def test_noise_in_any_form_is_the_reference_s_posterior(form: str, model: tuple[int, str], dtype: Any) -> None:
    inverter, cube = fitted(*model), spotted_cube(dtype)
    given, deviation = NOISES[form]()
    maps = inverter.invert(cube, given, outputs=OUTPUTS)
    assert_conditioned(maps, inverter, cube, deviation)
    plain = inverter.invert(cube, outputs=OUTPUTS)
    assert not np.allclose(maps["water_std"], plain["water_std"], rtol=1e-3, equal_nan=True)


@pytest.mark.parametrize(("model", "dtype"), MODELS, ids=str)
@pytest.mark.parametrize("form", KNOWN)
def test_known_parameters_in_any_form_are_the_reference_s_posterior(
    form: str, model: tuple[int, str], dtype: Any
) -> None:
    inverter, cube = fitted(*model), spotted_cube(dtype)
    given, values = KNOWN[form]()
    maps = inverter.invert(cube, known=given, outputs=OUTPUTS)
    assert_conditioned(maps, inverter, cube, known=values)
    for name, value in values.items():
        there = np.broadcast_to(~np.isnan(value), PIXELS)
        assert there.any()
        np.testing.assert_array_equal(maps[name].values[there], np.broadcast_to(value, PIXELS)[there].astype(dtype))
        assert (maps[f"{name}_std"].values[there] == 0).all()
        assert (maps["covariance"].sel(parameter=name).values[there] == 0).all()
        assert (maps["covariance"].sel(parameter_2=name).values[there] == 0).all()
        assert (maps[f"{name}_std"].values[~there] > 0).all()


@pytest.mark.parametrize(
    ("model", "dtype", "chunks"),
    [
        ((0, "iso"), np.float64, {"y": 2, "x": 4}),
        ((1, "diag"), np.float32, {"y": -1, "x": (1, 5)}),
        ((1, "full"), np.float64, {"y": 4, "x": -1}),
    ],
    ids=str,
)
def test_lazy_conditions_in_chunks_of_their_own_give_the_maps_of_numpy(
    model: tuple[int, str], dtype: Any, chunks: Any
) -> None:
    inverter, cube = fitted(*model), spotted_cube(dtype)
    for noise_form, known_form in zip(NOISES, cycle(KNOWN), strict=False):
        noise, known = NOISES[noise_form]()[0], KNOWN[known_form]()[0]
        expected = inverter.invert(cube, noise, known, outputs=OUTPUTS)
        for own_noise, own_known in ((noise, known), (lazily(noise), lazily(known))):
            maps = inverter.invert(cube.chunk(chunks), own_noise, own_known, outputs=OUTPUTS)
            assert all(maps[name].chunks is not None for name in maps.data_vars)
            assert_close(maps.compute(scheduler="sync"), expected, rtol=1e-9 if dtype == np.float64 else 1e-6)


def test_lazy_noise_and_known_serve_a_cube_in_memory() -> None:
    noise, known = pixel_and_band_noise()[0], labelled_known()[0]
    maps = fitted(1).invert(spotted_cube(), lazily(noise), {"water": lazily(known)})
    assert maps["water"].chunks is None
    assert_close(maps, fitted(1).invert(spotted_cube(), noise, {"water": known}))


def test_noise_and_known_together_are_the_reference_s_posterior() -> None:
    cube, (noise, deviation), (known, values) = spotted_cube(), pixel_and_band_noise(), labelled_known()
    maps = fitted(1).invert(cube, noise, {"water": known}, outputs=OUTPUTS)
    assert_conditioned(maps, fitted(1), cube, deviation, values)


def test_arrays_of_noise_follow_the_bands_of_the_cube_not_those_of_the_model() -> None:
    cube = spotted_cube()
    alien = cube.isel(band=[0, 1]).assign_coords(wavelength=("band", [1500.0, 1600.0], {"units": "nm"}))
    wide = xr.concat([cube.isel(band=ORDER), alien], "band")
    expected = fitted(1).invert(cube, DEVIATIONS, outputs=OUTPUTS)
    assert_close(fitted(1).invert(wide, np.append(DEVIATIONS[ORDER], [5.0, 5.0]), outputs=OUTPUTS), expected)
    covariance = np.eye(10)
    covariance[:8, :8] = random_covariance()[np.ix_(ORDER, ORDER)]
    expected = fitted(1).invert(cube, random_covariance(), outputs=OUTPUTS)
    assert_close(fitted(1).invert(wide, covariance, outputs=OUTPUTS), expected)


def test_no_noise_and_zero_noise_are_the_same_posterior() -> None:
    plain = fitted(1).invert(spotted_cube(), outputs=OUTPUTS)
    for noise in (0, np.zeros(8), np.zeros((8, 8)), xr.zeros_like(make_truth()["dust"])):
        assert_close(fitted(1).invert(spotted_cube(), noise, outputs=OUTPUTS), plain, rtol=1e-10)


def test_a_band_of_nan_noise_counts_as_missing() -> None:
    cube, noise = make_cube(), along_bands(np.full((*PIXELS, 8), 0.02), WAVELENGTHS, "y", "x")
    noise.values[2, 3, [1, 6]] = np.nan
    missing = cube.copy(deep=True)
    missing.values[2, 3, [1, 6]] = np.nan
    maps = fitted(1).invert(cube, noise, outputs=OUTPUTS)
    assert_close(maps, fitted(1).invert(missing, 0.02, outputs=OUTPUTS), rtol=1e-10)
    assert int(maps["quality_flag"][2, 3]) & PARTIAL
    noise.values[2, 3] = np.nan
    assert int(fitted(1).invert(cube, noise)["quality_flag"][2, 3]) == NODATA


def test_the_posterior_given_noise_and_known_is_the_reference_s_mixture() -> None:
    cube, (noise, deviation), (known, values) = spotted_cube(), pixel_and_band_noise(), labelled_known()
    inverter = fitted(1)
    found = inverter.posterior(cube, noise, {"water": known}, min_valid_bands=1)
    for y, x in PLACES:
        water = values["water"][y, x]
        expected = conditioned(inverter, cube.values[y, x], deviation[y, x], np.array([water, np.nan]))
        pixel = found.isel(y=y, x=x)
        if not expected["n_valid"]:
            assert all(bool(pixel[name].isnull().all()) for name in pixel.data_vars)
            continue
        first = int(not np.isnan(water))
        np.testing.assert_allclose(pixel["weight"], expected["weights"], rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(pixel["log_evidence"], expected["log_evidence"], rtol=1e-8)
        np.testing.assert_allclose(pixel["mean"][:, first:], expected["means"][:, : 2 - first], rtol=1e-8)
        covariances = expected["covariances"][:, : 2 - first, : 2 - first]
        np.testing.assert_allclose(pixel["covariance"][:, first:, first:], covariances, rtol=1e-8)
        if first:
            assert (pixel["mean"].sel(parameter="water") == water).all()
            assert (pixel["covariance"].sel(parameter="water") == 0).all()
            assert (pixel["covariance"].sel(parameter_2="water") == 0).all()


def test_known_values_far_outside_training_are_flagged() -> None:
    cube, high = make_cube(), fitted(1).model_.high
    plain = fitted(1).invert(cube)["quality_flag"]
    inside = fitted(1).invert(cube, known={"water": 0.5 * high[0]})["quality_flag"]
    assert not ((inside & ABOVE) > (plain & ABOVE)).any()
    assert ((fitted(1).invert(cube, known={"water": 20.0 * high[0]})["quality_flag"] & ABOVE) == ABOVE).all()


def test_every_output_is_given_where_all_parameters_are_known() -> None:
    outputs = (
        "mean",
        "std",
        "q05",
        "ci90",
        "hdi90",
        "mode",
        "cov",
        "residual",
        "fit_rmse",
        "log_evidence",
        "flag",
        "entropy",
    )
    known = {"water": 0.7, "dust": labelled_known()[0].drop_attrs().fillna(0.2)}
    maps = fitted(1).invert(make_cube(), known=known, outputs=outputs)
    for name in ("water", "water_q05", "water_ci90_lower", "water_hdi90_upper", "water_mode"):
        assert (maps[name] == 0.7).all()
    assert (maps["covariance"] == 0).all()
    assert (maps["entropy"] == 0).all()
    assert np.isfinite(maps["residual"]).all()
    assert np.isfinite(maps["log_evidence"]).all()


@pytest.mark.parametrize("lazy", [False, True])
def test_the_graph_with_noise_and_known_of_pixels_has_one_task_a_block_and_one_an_output(lazy: bool) -> None:
    cube = xr.concat([make_cube()] * 40, "y", coords="minimal", compat="override").drop_vars("y").chunk(y=5, x=2)
    noise = xr.DataArray(np.full((200, 6), 0.05), dims=("y", "x"))
    known = xr.DataArray(np.full((200, 6), 0.5), dims=("y", "x"))
    if lazy:
        noise, known = noise.chunk(y=5, x=2), known.chunk(y=5, x=2)
    plain = len(dict(fitted().invert(cube).__dask_graph__()))
    with_both = len(dict(fitted().invert(cube, noise, {"dust": known}).__dask_graph__()))
    n_blocks = 40 * 3
    n_input = len(dict(cube.__dask_graph__()))
    n_outputs = 5
    assert plain <= n_input + (1 + n_outputs) * n_blocks + 2
    assert with_both <= plain + 2 * (n_blocks + 1)


def test_names_of_tasks_tell_noise_and_known_values_apart() -> None:
    cube, (noise, _), (known, _) = make_cube().chunk(y=2), pixel_noise(), labelled_known()
    requests: list[dict[str, Any]] = [
        {},
        {"noise": 0.01},
        {"noise": 0.02},
        {"noise": DEVIATIONS},
        {"noise": noise},
        {"noise": 2 * noise},
        {"known": {"water": 0.5}},
        {"known": {"water": 0.6}},
        {"known": {"dust": 0.5}},
        {"known": {"water": known}},
        {"known": {"water": known + 0.1}},
        {"known": {"dust": known.drop_attrs()}},
        {"min_valid_bands": 5},
    ]
    names = [fitted().invert(cube, **request)["water"].data.name for request in requests]
    assert len(set(names)) == len(requests)
    assert names == [fitted().invert(cube, **request)["water"].data.name for request in requests]
    assert all(re.fullmatch(r"water-.+", name) for name in names)


def test_lazy_noise_is_read_block_by_block() -> None:
    read: list[tuple[int, ...]] = []

    def reading(block: np.ndarray) -> np.ndarray:
        if block.size:
            read.append(block.shape)
        return block

    cube = make_cube().chunk(y=1)
    noise = xr.full_like(make_cube(), 0.01).chunk(y=1)
    noise = noise.copy(data=noise.data.map_blocks(reading, dtype=noise.dtype))
    maps = fitted().invert(cube, noise)
    read.clear()
    maps.isel(y=0).compute(scheduler="synchronous")
    assert len(read) == 1


def test_the_conditions_of_an_inversion_are_attributes_of_the_maps(tmp_path: Path) -> None:
    cube, (noise, _), (known, _) = make_cube(), pixel_noise(), labelled_known()
    requests: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
        ({}, {}, []),
        (
            {"noise": 0.01, "known": {"dust": 0.5}},
            {"noise": 0.01, "noise_includes_training": False, "known": {"dust": 0.5}},
            ["noise 0.01 beyond training", "dust known, 0.5"],
        ),
        (
            {"noise": DEVIATIONS, "known": {"water": (0.5, None)}},
            {"noise": "of each band", "noise_includes_training": False, "known": {"water": [0.5, None]}},
            ["noise of each band beyond training", "water known above 0.5"],
        ),
        (
            {"noise": noise, "known": {"water": known}},
            {"noise": "of each pixel", "noise_includes_training": False, "known": {"water": "of each pixel"}},
            ["noise of each pixel", "water known in each pixel"],
        ),
        (
            {"known": {"water": (0.2, known + 1.0)}},
            {"known": {"water": ["of each pixel", "of each pixel"]}},
            ["water known within bounds of each pixel"],
        ),
    ]
    for request, told, words in requests:
        fitted().invert(cube, **request).to_netcdf(tmp_path / "maps.nc")
        with xr.open_dataset(tmp_path / "maps.nc") as maps:
            assert made_by(maps.attrs) == fitted().model_id
            assert made_with(maps.attrs) == {"bands": 8, "min_valid_bands": 3} | told
            assert in_words(told) == words
            assert maps.attrs["history"].endswith("; ".join(["invert", *words]))
    assert made_by({"source": "specinvert 0.1, GLLiM model 0123456789ab"}) == "0123456789ab"
    assert made_by({}) is made_with({}) is made_with({"conditions": "fine weather"}) is None
