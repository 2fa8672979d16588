"""Resampling to a sensor's bands: the weights, what they do to labelled data and to noise, and what is refused."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from labelled import QUICK, assert_close, make_cube, make_training, refuses
from specinvert import GLLiMInverter
from specinvert.cubes.resampling import BandAverage, resample, resample_noise
from specinvert.cubes.responses import Cells

FINE = np.arange(400.0, 1001.0)
CENTRES = np.array([450.0, 520.0, 993.0, 610.25, 902.0, 700.0])
"""Not in order, as those of sensors with two detectors."""
WIDTHS = np.array([8.0, 10.0, 12.0, 9.0, 11.0, 30.0])
SEEDS = st.integers(0, 2**32 - 1)


def spectra(values: Any, wavelength: Any = FINE, unit: str = "nm", **coords: Any) -> xr.DataArray:
    """Spectra (sample, band) in an array."""
    scale = {"nm": 1.0, "um": 1e-3, "m": 1e-9}[unit]
    along = {name: ("band", value) for name, value in coords.items()}
    return xr.DataArray(
        np.asarray(values),
        dims=("sample", "band"),
        coords={"wavelength": ("band", np.asarray(wavelength) * scale, {"units": unit}), **along},
        name="reflectance",
        attrs={"units": "1"},
    )


def random_spectra(n: int = 7, wavelength: Any = FINE, seed: int = 0, **coords: Any) -> xr.DataArray:
    values = np.random.default_rng(seed).uniform(size=(n, len(wavelength)))
    return spectra(values, wavelength, **coords)


def weights_of(training: xr.DataArray, sensor: Any, **options: Any) -> np.ndarray:
    """W (B, S): what becomes of unit spectra."""
    size = training.sizes["band"]
    units = xr.DataArray(
        np.eye(size), dims=("sample", "band"), coords=training.drop_vars("sample", errors="ignore").coords
    )
    return np.asarray(resample(units, sensor, **options).values.T)


def table(values: Any, grid: Any, **coords: Any) -> xr.DataArray:
    """Tabulated responses (band, response_wavelength) in nm."""
    axis = ("response_wavelength", np.asarray(grid, dtype=float), {"units": "nm"})
    along = {name: ("band", value) for name, value in coords.items()}
    dims = ("band", "response_wavelength")
    return xr.DataArray(np.asarray(values, dtype=float), dims=dims, coords={"response_wavelength": axis, **along})


def gaussian_table(reach: float = 3.0) -> xr.DataArray:
    grid = np.arange(300.0, 1100.5, 0.25)
    z = (grid - CENTRES[:5, None]) / WIDTHS[:5, None]
    return table(np.where(abs(z) <= reach, np.exp(-4 * np.log(2) * z**2), 0.0), grid, wavelength=CENTRES[:5])


@pytest.mark.oracle
@settings(max_examples=15)
@given(seed=SEEDS)
def test_weights_are_those_of_spectral_python_for_bands_with_widths(seed: int) -> None:
    resampling = pytest.importorskip("spectral.algorithms.resampling")
    rng = np.random.default_rng(seed)
    fine = 400.0 + np.cumsum(rng.uniform(2.0, 8.0, 80))
    fwhm = np.linspace(*rng.uniform(2.0, 20.0, 2), 80)
    centres, widths = rng.uniform(390.0, fine[-1] + 10.0, 12), rng.uniform(1.0, 60.0, 12)
    expected = resampling.BandResampler(fine, centres, fwhm, widths).matrix
    defined = ~np.isnan(expected).any(axis=1)
    training = random_spectra(1, fine, fwhm=fwhm)
    found = weights_of(training, (centres[defined], widths[defined]), min_coverage=0.0)
    np.testing.assert_allclose(found, expected[defined], atol=1e-12)
    undefined = resample(training, (centres, widths), min_coverage=0.0, uncovered="drop")
    assert undefined.sizes["band"] == defined.sum()


@pytest.mark.oracle
def test_weights_are_those_of_spectral_python_for_even_samples_without_widths() -> None:
    resampling = pytest.importorskip("spectral.algorithms.resampling")
    expected = resampling.BandResampler(FINE, CENTRES, None, WIDTHS).matrix
    np.testing.assert_allclose(weights_of(random_spectra(1), (CENTRES, WIDTHS)), expected, atol=1e-12)


@settings(max_examples=20)
@given(seed=SEEDS, reach=st.sampled_from([0.5, 1.0, 1.5]), widths=st.booleans(), tabulated=st.booleans())
def test_weights_are_shares_so_that_a_constant_spectrum_stays_constant(
    seed: int, reach: float, widths: bool, tabulated: bool
) -> None:
    rng = np.random.default_rng(seed)
    fine = rng.permutation(380.0 + np.cumsum(rng.uniform(0.5, 6.0, 250)))
    training = random_spectra(1, fine, **({"fwhm": rng.uniform(1.0, 9.0, 250)} if widths else {}))
    sensor = gaussian_table(reach) if tabulated else (CENTRES, WIDTHS)
    found = weights_of(training, sensor, reach=reach, uncovered="drop")
    assert len(found)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    constant = resample(training * 0 + 0.3, sensor, reach=reach, uncovered="drop")
    np.testing.assert_allclose(constant, 0.3, rtol=1e-12)


@settings(max_examples=10)
@given(seed=SEEDS, factor=st.floats(-5, 5))
def test_resampling_is_linear(seed: int, factor: float) -> None:
    one, other = random_spectra(seed=seed), random_spectra(seed=seed + 1)
    found = resample(one + factor * other, (CENTRES, WIDTHS))
    expected = resample(one, (CENTRES, WIDTHS)) + factor * resample(other, (CENTRES, WIDTHS))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_a_straight_spectrum_keeps_its_values_at_the_centres() -> None:
    straight = spectra(0.1 + 1e-3 * FINE[None])
    np.testing.assert_allclose(resample(straight, (CENTRES, WIDTHS))[0], 0.1 + 1e-3 * CENTRES, atol=2e-5)
    on_grid = resample(straight, ([450.0, 700.0], [8.0, 30.0]))
    np.testing.assert_allclose(on_grid[0], [0.55, 0.8], rtol=1e-12)


def test_the_whole_gaussian_is_taken_in_within_a_reach_of_one_and_a_half() -> None:
    line = np.exp(-4 * np.log(2) * (FINE - 700.0) ** 2 / 20.0**2)
    found = [float(resample(spectra(line[None]), ([700.0], [20.0]), reach=reach)[0, 0]) for reach in (0.5, 1.5)]
    assert found[1] == pytest.approx(1 / np.sqrt(2), abs=1e-3)  # of a line as wide as the band
    assert found[0] == pytest.approx(0.8401, abs=1e-3)  # erf(sqrt(2 ln 2)) / erf(sqrt(ln 2)) of that


def test_samples_of_uneven_spacing_weigh_by_what_they_stand_for() -> None:
    fine = np.concatenate([np.arange(400.0, 500.0, 1.0), np.arange(500.0, 700.0, 2.5)])
    found = weights_of(random_spectra(1, fine), table([[1.0, 1.0]], [480.0, 530.0]))[0]
    widths = np.where(fine < 500, 1.0, 2.5)
    widths[fine == 500] = 1.75
    inside = (fine > 481) & (fine < 528)
    np.testing.assert_allclose(found[inside] * 50.0, widths[inside], rtol=1e-12)


def test_tabulated_responses_weigh_like_the_gaussians_they_hold() -> None:
    training = random_spectra(3)
    found = resample(training, gaussian_table(3.0))
    expected = resample(training, (CENTRES[:5], WIDTHS[:5]), reach=3.0)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert found["wavelength"].values.tolist() == CENTRES[:5].tolist()


def test_a_broken_line_is_integrated_exactly() -> None:
    found = weights_of(random_spectra(1, [500.0, 502.0, 504.0]), table([[0, 2, 0]], [500.5, 501.5, 503.5]))
    # a triangle of area 3; cells end at 501, where it has risen to 1, and at 503, where it has fallen to 0.5
    np.testing.assert_allclose(found[0] * 3.0, [0.25, 2.625, 0.125], rtol=1e-12)


def test_a_table_without_centres_gets_the_centroids_and_keeps_names_of_bands() -> None:
    names = xr.DataArray(["B2", "B3"], dims="band")
    responses = table([[0, 1, 1, 0, 0], [0, 0, 0, 1, 0]], [500.0, 510.0, 520.0, 530.0, 540.0]).assign_coords(band=names)
    for sensor in (responses, responses.to_dataset(name="srf"), responses.transpose()):
        found = resample(random_spectra(2).rename(band="wl"), sensor)
        np.testing.assert_allclose(found["wavelength"], [515.0, 530.0])
        assert found["wavelength"].attrs["units"] == "nm"
        assert found["band"].values.tolist() == ["B2", "B3"]
        assert found.dims == ("sample", "wl")


@pytest.mark.parametrize("training_unit", ["nm", "um", "m"])
@pytest.mark.parametrize("unit", ["nm", "um"])
def test_units_of_training_and_sensor_may_differ_and_those_of_the_sensor_come_out(
    training_unit: str, unit: str
) -> None:
    scale = {"nm": 1.0, "um": 1e-3}[unit]
    values = random_spectra(3).values
    sensor = xr.Dataset(
        {"fwhm": ("b", WIDTHS * scale)}, {"wavelength": ("b", CENTRES * scale, {"units": unit, "long_name": "centre"})}
    )
    found = resample(spectra(values, unit=training_unit), sensor)
    np.testing.assert_allclose(found, resample(spectra(values), (CENTRES, WIDTHS)), rtol=1e-9)
    np.testing.assert_array_equal(found["wavelength"], CENTRES * scale)
    assert found["wavelength"].attrs == {"units": unit, "long_name": "centre"}
    np.testing.assert_array_equal(found["fwhm"], WIDTHS * scale)


def test_a_unit_that_was_guessed_or_stood_elsewhere_comes_out_with_the_wavelengths() -> None:
    cube = sensor_cube().assign_coords(wavelength=("band", CENTRES / 1e3)).assign_coords(fwhm=("band", WIDTHS / 1e3))
    for sensor, unit in (((CENTRES, WIDTHS), "nm"), (cube.assign_attrs({"wavelength units": "Micrometers"}), "um")):
        found = resample(random_spectra(1), sensor)
        assert found["wavelength"].attrs["units"] == found["fwhm"].attrs["units"] == unit


def sensor_cube(**coords: Any) -> xr.DataArray:
    """A cube (y, band, x) with these centres and widths."""
    along = {"wavelength": ("band", CENTRES, {"units": "nm"}), "fwhm": ("band", WIDTHS)}
    return xr.DataArray(np.zeros((2, 6, 3)), dims=("y", "band", "x"), coords={**along, **coords})


def test_the_order_of_training_s_samples_does_not_matter() -> None:
    training, order = random_spectra(), np.random.default_rng(1).permutation(FINE.size)
    shuffled = training.isel(band=order)
    np.testing.assert_allclose(resample(shuffled, sensor_cube()), resample(training, sensor_cube()), rtol=1e-12)


def test_a_dataset_keeps_all_else_and_says_what_was_done() -> None:
    good = np.array([True, False, True, True, True, True])
    training = random_spectra(4).swap_dims(band="wavelength").to_dataset()
    training = training.assign(lai=("sample", np.arange(4.0), {"units": "1"}), note=3)
    training = training.assign_coords(site=("sample", list("abcd")), order=("wavelength", FINE)).expand_dims("run")
    training.attrs = {"title": "table", "history": "made"}
    found = resample(training, sensor_cube(good=("band", good)))
    assert dict(found["reflectance"].sizes) == {"run": 1, "sample": 4, "wavelength": 6}
    assert set(found.coords) == {"wavelength", "fwhm", "good", "site"}
    assert found["good"].values.tolist() == good.tolist()
    assert found.indexes["wavelength"].tolist() == CENTRES.tolist()
    for name in ("lai", "note", "site"):
        xr.testing.assert_identical(found[name].variable, training[name].variable)
    assert found["reflectance"].attrs == {"units": "1"}
    assert found.attrs["title"] == "table"
    made, line = found.attrs["history"].split("\n")
    assert made == "made"
    assert "resample: 601 to 6 bands by Gaussian responses (FWHM 8 to 30 nm" in line
    assert training["reflectance"].sizes["wavelength"] == 601
    assert resample(training, sensor_cube(good=("band", good)), good_only=True)["good"].values.tolist() == [True] * 5


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4", "i2"])
@pytest.mark.parametrize("dims", [("sample", "band"), ("band", "sample")])
def test_lazy_spectra_give_the_values_of_those_in_memory_and_float32_stays(dtype: str, dims: tuple[str, ...]) -> None:
    training = (random_spectra(30) * 1000).astype(dtype).transpose(*dims)
    eager = resample(training, sensor_cube())
    lazy = resample(training.chunk(sample=7), sensor_cube())
    assert lazy.chunks is not None
    assert lazy.dims == eager.dims == dims
    assert lazy.dtype == eager.dtype == (np.float32 if dtype.endswith("f4") else np.float64)
    assert lazy.compute().dtype == eager.dtype
    tolerance = 1e-5 if eager.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(lazy, eager, rtol=tolerance)
    np.testing.assert_allclose(eager, resample(training.astype(float), sensor_cube()), rtol=tolerance)


def test_building_the_graph_averages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    whole = BandAverage.__call__
    monkeypatch.setattr(BandAverage, "__call__", lambda self, block: calls.append(1) or whole(self, block))
    lazy = resample(random_spectra(8).chunk(sample=4), sensor_cube())
    assert calls == []
    lazy.compute()
    assert len(calls) == 2
    again = resample(random_spectra(8).chunk(sample=4), sensor_cube())
    assert again.data.name == lazy.data.name


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_band_that_needs_a_missing_sample_is_missing_and_no_other(bad: float) -> None:
    training = random_spectra(5)
    whole = resample(training, sensor_cube())
    training[1, FINE == 450.0] = bad
    training[3, :] = bad
    found = resample(training, sensor_cube())
    lost = np.zeros((5, 6), dtype=bool)
    lost[1, 0] = lost[3] = True
    np.testing.assert_array_equal(np.isnan(found), lost)
    np.testing.assert_allclose(found.where(~lost), whole.where(~lost), rtol=1e-12)


def test_bands_that_training_does_not_cover_are_listed_or_dropped() -> None:
    sensor = ([395.0, 400.0, 450.0, 1020.0], 10.0)
    with refuses(
        ValueError, "3 of the sensor's 4 bands", "400 to 1000 nm", "395 nm (3 %), 400 nm (56 %), 1020 nm (0 %)"
    ):
        resample(random_spectra(), sensor)
    found = resample(random_spectra(), sensor, uncovered="drop")
    assert found["wavelength"].values.tolist() == [450.0]
    assert "3 bands of the sensor that 400 to 1000 nm do not cover were dropped" in found.attrs["history"]
    assert resample(random_spectra(), sensor, uncovered="drop", min_coverage=0.5).sizes["band"] == 2
    with refuses(ValueError, "1 of the sensor's 1 bands"):
        resample(random_spectra(), ([1020.0], 10.0), uncovered="drop", min_coverage=0.0)


def test_bands_finer_than_training_take_one_sample_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    coarse = random_spectra(3, np.arange(400.0, 1001.0, 20.0))
    found = resample(coarse, ([443.0, 610.0], [5.0, 30.0]))
    np.testing.assert_allclose(found[:, 0], coarse.isel(band=2), rtol=1e-12)
    said = "1 bands are narrower than what one sample stands for, and take its value"
    assert found.attrs["history"].endswith(said)
    assert said in caplog.text
    caplog.clear()
    assert "narrower" not in resample(random_spectra(3), ([443.0], [5.0])).attrs["history"] + caplog.text


@pytest.mark.parametrize("step", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("shift", [0.02, 0.2, 0.5])
def test_detectors_that_overlap_leave_no_gap(step: float, shift: float) -> None:
    first = 400.0 + step * np.arange(60)
    second = first[40] + step * (shift + np.arange(60))
    fine = np.concatenate([first, second])
    spectra = xr.DataArray(fine[None], dims=("sample", "wavelength"), coords={"wavelength": fine})
    centre = np.linspace(fine.min() + 4 * step, fine.max() - 4 * step, 40)
    averaged = resample(spectra, (centre, 3 * step), min_coverage=1.0)
    np.testing.assert_allclose(averaged.values[0], centre, atol=0.6 * step)


def test_gaps_are_found_where_few_samples_lie_between_them() -> None:
    kept = np.r_[400.0:1350.0:10, 1450.0, 1460.0, 1560.0:2000.0:10]
    covered = Cells.of(kept, None).covered
    np.testing.assert_allclose(covered, [[395, 1345], [1445, 1465], [1555, 1995]])


def test_a_gap_in_the_training_range_covers_nothing() -> None:
    gap = random_spectra().isel(band=(FINE < 600) | (FINE > 650))
    sensor = ([590.0, 602.0, 625.0, 655.0], 8.0)
    with refuses(ValueError, "2 of the sensor's 4 bands", "602 nm (15 %), 625 nm (0 %)"):
        resample(gap, sensor)
    joined = random_spectra(1, np.concatenate([np.arange(500, 600, 1.0), np.arange(600, 700, 10.0)]))
    assert resample(joined, ([605.0], 8.0)).shape == (1, 1)


def test_a_sensor_that_is_none_is_refused(subtests: pytest.Subtests) -> None:
    for sensor, kind, parts in [
        (5.0, TypeError, ["sensor must be a cube", "not float"]),
        (sensor_cube().drop_vars("fwhm"), ValueError, ["no 'fwhm'", "assign_coords(fwhm="]),
        (sensor_cube().drop_vars("wavelength"), ValueError, ["no dimension carries wavelengths"]),
        (sensor_cube().drop_vars("fwhm").to_dataset(name="cube"), ValueError, ["neither 'fwhm' nor responses"]),
        (([500.0, 600.0], [5.0]), ValueError, ["shapes (2,) and (1,)"]),
        (([500.0, 600.0], [5.0, np.nan]), ValueError, ["1 of 2 bands", "positions 1"]),
        (([500.0, 600.0], [5.0, 0.01]), ValueError, ["narrower than 0.05 nm"]),
        (([0.5, 0.6], [10.0, 10.0]), ValueError, ["'fwhm' in um", "wider than their wavelength"]),
        (table([[0, 1, np.nan]], [500, 501, 502]), ValueError, ["none NaN or negative"]),
        (table([[0, 0, 0]], [500, 501, 502]), ValueError, ["not all 0"]),
        (table([[0, 1, 0]], [500, 501, 502]).drop_vars("response_wavelength"), ValueError, ["coordinate of that name"]),
    ]:
        with subtests.test(sensor=sensor), refuses(kind, *parts):
            resample(random_spectra(), sensor)


def test_impossible_options_and_training_sets_are_refused() -> None:
    training, sensor = random_spectra(), (CENTRES, WIDTHS)
    for options, part in (
        ({"uncovered": "keep"}, "uncovered='keep'"),
        ({"min_coverage": 1.5}, "min_coverage=1.5"),
        ({"reach": 0.0}, "reach=0.0"),
    ):
        with refuses(ValueError, part):
            resample(training, sensor, **options)
    with refuses(TypeError, "ndarray"):
        resample(training.values, sensor)
    with refuses(ValueError, "'error'", "lie along 'band' too"):
        resample(training.to_dataset().assign(error=training), sensor, spectra="reflectance")
    with refuses(ValueError, "no wavelengths along 'band'"):
        resample(training.drop_vars("wavelength"), sensor, band_dim="band")
    with refuses(ValueError, "split into 2 chunks"):
        resample(training.chunk(band=400), sensor)
    assert resample(training.chunk(band=400), sensor, rechunk="auto").shape == (7, 6)
    with refuses(ValueError, "'good' along 'band' holds"):
        resample(training, sensor_cube(good=("band", np.arange(6))), good_only=True)
    with refuses(ValueError, "none of the sensor's 6 bands is good"):
        resample(training, sensor_cube(good=("band", np.zeros(6))), good_only=True)


def test_noise_becomes_that_of_weighted_averages() -> None:
    training, sensor = random_spectra(), (CENTRES, WIDTHS)
    weights, rng = weights_of(training, sensor), np.random.default_rng(3)
    root = rng.normal(size=(FINE.size, FINE.size))
    deviations = rng.uniform(0.01, 0.02, FINE.size)
    for noise, covariance in (
        (0.02, 4e-4 * np.eye(FINE.size)),
        (deviations, np.diag(deviations**2)),
        (training[0].copy(data=deviations)[::-1], np.diag(deviations**2)),
        (root @ root.T, root @ root.T),
    ):
        expected = weights @ covariance @ weights.T
        full = resample_noise(noise, training, sensor, covariance=True)
        np.testing.assert_allclose(full, expected, rtol=1e-10, atol=1e-12)
        assert full.dims == ("band", "band_2")
        found = resample_noise(noise, training.to_dataset(), sensor)
        np.testing.assert_allclose(found, np.sqrt(np.diagonal(expected)), rtol=1e-10)
        assert found.dims == ("band",)
        assert found["wavelength"].values.tolist() == CENTRES.tolist()
        assert found.attrs["units"] == "1"


def test_noise_of_resampled_draws_is_the_noise_resampled() -> None:
    noise = spectra(np.random.default_rng(0).normal(size=(4000, FINE.size)))
    found = resample(noise, (CENTRES, WIDTHS)).std("sample")
    np.testing.assert_allclose(found, resample_noise(1.0, noise, (CENTRES, WIDTHS)), rtol=0.06)


@pytest.mark.parametrize("noise", [-0.1, np.nan, np.ones(3), np.full(FINE.size, -1.0)])
def test_noise_that_is_none_is_refused(noise: Any) -> None:
    with pytest.raises(ValueError, match=r"noise .*(shape|negative)"):
        resample_noise(noise, random_spectra(), (CENTRES, WIDTHS))
    with pytest.raises(TypeError, match="noise must be numbers"):
        resample_noise("much", random_spectra(), (CENTRES, WIDTHS))


def fine_training() -> xr.Dataset:
    """A training set at 1 nm whose spectra pass through those of the coarse one, 0.5 beyond."""
    coarse = make_training().swap_dims(band="wavelength").sortby("wavelength")
    return coarse.interp(wavelength=np.arange(445.0, 1206.0)).fillna(0.5)


def test_training_for_a_sensor_gives_a_model_of_its_good_bands() -> None:
    cube = make_cube().assign_coords(fwhm=("band", np.full(8, 6.0)), good=("band", np.arange(8) != 2))
    training = fine_training()
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(training, sensor=cube, noise=np.full(7, 0.01))
    left = cube.wavelength.values[cube.good.values]
    np.testing.assert_allclose(inverter.model_.bands.wavelength, left)
    resampled = resample(training, cube.isel(band=cube.good.values))
    by_hand = GLLiMInverter(n_latent=0, **QUICK).fit(resampled, noise=0.01)
    assert_close(inverter.invert(cube), by_hand.invert(cube))
    lazy = GLLiMInverter(n_latent=0, **QUICK).fit(training.chunk(sample=40), sensor=cube, noise=0.01)
    assert_close(lazy.invert(cube), by_hand.invert(cube), rtol=1e-6)


def test_training_that_does_not_cover_the_sensor_is_refused() -> None:
    cube = make_cube().assign_coords(fwhm=("band", np.full(8, 6.0)))
    training = fine_training().sel(wavelength=slice(500.0, 1300.0))
    with refuses(ValueError, "1 of the sensor's 8 bands have less than 90 %", "450 nm (0 %)"):
        GLLiMInverter(n_latent=0, **QUICK).fit(training, sensor=cube)
    with refuses(ValueError, "no 'fwhm' coordinate"):
        GLLiMInverter(n_latent=0, **QUICK).fit(training, sensor=make_cube())
