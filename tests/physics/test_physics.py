"""The built-in simulator: physical limits, shapes, seeds, and the scene it paints."""

import numpy as np
import pytest
import xarray as xr

from specinvert.gllim import GLLiM
from specinvert.physics import mixing
from specinvert.physics.mixing import PARAMETERS, mixture_reflectance, simulate_mixtures
from specinvert.physics.scene import make_scene

BANDS = mixing.default_wavelengths()


def spectrum(ice_fraction=0.6, grain_size=150.0, dust_water=4.0, haze=0.1, wavelength=BANDS):
    return mixture_reflectance(ice_fraction, grain_size, dust_water, haze, wavelength)


def band_depth(centre, shoulder, **parameters):
    """One minus the ratio of reflectance at a band's centre to that at its shoulder, both in nm."""
    bottom, top = np.moveaxis(spectrum(wavelength=[centre, shoulder], **parameters), -1, 0)
    return 1.0 - bottom / top


def test_reflectance_stays_between_zero_and_one_over_and_beyond_the_training_ranges():
    rng = np.random.default_rng(1)
    values = mixture_reflectance(
        rng.random(2000), 10 ** rng.uniform(-1, 5, 2000), rng.uniform(0, 100, 2000), rng.uniform(0, 5, 2000), BANDS
    )
    assert values.min() > 0.0
    assert values.max() <= 1.0


def test_pure_ice_of_vanishing_grains_is_white_without_any_band():
    np.testing.assert_allclose(spectrum(ice_fraction=1.0, grain_size=0.0, haze=0.0), 1.0, atol=1e-7)


def test_without_dust_its_water_has_no_effect():
    dry, wet = (spectrum(ice_fraction=1.0, dust_water=water) for water in (0.0, 12.0))
    np.testing.assert_array_equal(dry, wet)


def test_without_ice_the_grain_size_has_no_effect_and_dry_dust_is_red():
    fine, coarse = (spectrum(ice_fraction=0.0, grain_size=size, dust_water=0.0, haze=0.0) for size in (30, 600))
    np.testing.assert_array_equal(fine, coarse)
    assert (np.diff(fine[BANDS > 1200]) > 0).all()


@pytest.mark.parametrize(("centre", "shoulder"), [(1030, 930), (1260, 1150), (1510, 1340), (2000, 1800)])
def test_ice_bands_deepen_with_grain_size(centre, shoulder):
    sizes = np.geomspace(10.0, 300.0, 20)
    depths = band_depth(centre, shoulder, ice_fraction=1.0, grain_size=sizes, haze=0.0)
    assert (np.diff(depths) > 0).all()


def test_the_strong_ice_band_saturates_while_the_weak_one_still_deepens():
    def growth(centre, shoulder):
        small, large = band_depth(centre, shoulder, ice_fraction=1.0, grain_size=[400.0, 800.0], haze=0.0)
        return large / small

    assert growth(2000, 1800) < 1.02
    assert growth(1030, 930) > 1.25


def test_hydration_bands_deepen_with_dust_water():
    depths = band_depth(1930, 1750, ice_fraction=0.0, dust_water=np.linspace(0, 12, 20), haze=0.0)
    assert depths[0] < 0.02
    assert (np.diff(depths) > 0).all()


def test_thick_haze_hides_the_surface_most_at_short_wavelengths():
    surfaces = [
        spectrum(ice_fraction=f, grain_size=s, dust_water=w, haze=50.0) for f, s, w in ((0.1, 30, 12), (0.9, 600, 0))
    ]
    np.testing.assert_allclose(surfaces[0], surfaces[1], atol=1e-8)
    loss = 1.0 - np.ptp(spectrum(ice_fraction=[0.1, 0.9], haze=0.4), axis=0) / np.ptp(
        spectrum(ice_fraction=[0.1, 0.9], haze=0.0), axis=0
    )
    assert loss[0] > 2 * loss[-1] > 0.1


def test_the_nuisance_changes_spectra_by_far_more_than_the_noise():
    clear, hazy = (spectrum(haze=PARAMETERS["haze"].from_unit(u)) for u in (0.0, 1.0))
    assert np.abs(clear - hazy).max() > 0.05


def test_ice_absorption_follows_the_published_coefficients():
    # 4 pi k / lambda from the imaginary index at 1.03, 1.25, 1.50 and 2.00 um
    published = np.array([2.6e-5, 1.3e-4, 4.2e-3, 1.02e-2])
    nm = np.array([1030.0, 1250.0, 1500.0, 2000.0])
    ours = mixing._ICE_FLOOR_PER_UM + mixing._gaussians(mixing._ICE_BANDS, nm)
    np.testing.assert_allclose(ours, published, rtol=0.25)


def test_parameters_broadcast_and_bands_come_last():
    cube = mixture_reflectance(np.full((4, 1), 0.5), np.array([50.0, 100.0, 200.0]), 3.0, 0.0, [1000.0, 2000.0])
    assert cube.shape == (4, 3, 2)
    np.testing.assert_array_equal(cube[1, 2], mixture_reflectance(0.5, 200.0, 3.0, 0.0, [1000.0, 2000.0]))


def test_a_nan_parameter_gives_a_nan_spectrum_and_leaves_its_neighbours():
    values = spectrum(grain_size=np.array([100.0, np.nan]))
    assert np.isfinite(values[0]).all()
    assert np.isnan(values[1]).all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ice_fraction": 1.2}, r"ice_fraction is 1.2; it must be within 0 to 1"),
        ({"grain_size": [10.0, -3.0]}, r"grain_size is -3; it must be at least 0"),
        ({"dust_water": 101.0}, "dust_water is 101"),
        ({"haze": -0.1}, "haze is -0.1"),
        ({"wavelength": [1.0, 2.0]}, "wavelength 1 is outside 800 to 2600 nm"),
        ({"wavelength": [np.nan]}, "wavelength nan"),
        ({"wavelength": []}, r"shape \(0,\)"),
    ],
)
def test_unphysical_input_is_refused_with_the_value(bad, message):
    with pytest.raises(ValueError, match=message):
        spectrum(**bad)


def test_a_training_set_is_labelled_and_within_its_ranges():
    training = simulate_mixtures(500)
    assert training.reflectance.dims == ("sample", "wavelength")
    assert training.wavelength.attrs["units"] == "nm"
    assert (training.wavelength.values[[0, -1]] == [900.0, 2500.0]).all()
    for name, parameter in PARAMETERS.items():
        values = training[name]
        assert values.dims == ("sample",)
        assert values.attrs["units"] == parameter.units
        assert values.attrs["long_name"]
        assert parameter.low <= values.min() < values.max() <= parameter.high
        middle = parameter.from_unit(0.5)
        assert 0.4 < float((values < middle).mean()) < 0.6
    expected = mixture_reflectance(*(training[name].values for name in PARAMETERS), BANDS)
    np.testing.assert_array_equal(training.reflectance.values, expected)


def test_noise_has_the_stated_standard_deviation_and_leaves_the_parameters():
    clean, noisy = simulate_mixtures(400), simulate_mixtures(400, noise=0.02)
    xr.testing.assert_identical(clean[list(PARAMETERS)], noisy[list(PARAMETERS)])
    assert float((noisy.reflectance - clean.reflectance).std()) == pytest.approx(0.02, rel=0.02)


def test_the_same_seed_gives_the_same_training_set_and_another_seed_another():
    xr.testing.assert_identical(simulate_mixtures(50, noise=0.01, seed=4), simulate_mixtures(50, noise=0.01, seed=4))
    assert not simulate_mixtures(50, seed=4).equals(simulate_mixtures(50, seed=5))


def test_a_training_set_takes_other_wavelengths():
    training = simulate_mixtures(3, wavelength=[1500.0, 1000.0])
    np.testing.assert_array_equal(training.wavelength, [1500.0, 1000.0])
    np.testing.assert_array_equal(
        training.reflectance[:, ::-1], simulate_mixtures(3, wavelength=[1000.0, 1500.0]).reflectance
    )


@pytest.mark.parametrize(
    ("kwargs", "message"), [({"n_samples": 0}, "n_samples is 0"), ({"n_samples": 2, "noise": -1}, "noise is -1")]
)
def test_a_training_set_refuses_bad_sizes_and_noise(kwargs, message):
    with pytest.raises(ValueError, match=message):
        simulate_mixtures(**kwargs)


@pytest.fixture(scope="module")
def scene():
    return make_scene()


def test_a_scene_is_georeferenced(scene):
    for labelled in scene:
        assert labelled.rio.crs.to_epsg() == 32633
        assert labelled.spatial_ref.attrs["GeoTransform"] == "500000.0 30.0 0.0 8700000.0 0.0 -30.0"
        assert labelled.x.attrs["standard_name"] == "projection_x_coordinate"
        assert float(labelled.x[0]) == 500015.0
        assert float(labelled.y[0]) == 8699985.0
        assert (np.diff(labelled.y) == -30.0).all()


def test_a_scene_is_the_forward_model_of_its_truth_plus_noise(scene):
    cube, truth = scene
    assert cube.dtype == np.float32
    assert cube.dims == ("y", "x", "wavelength")
    clean = mixture_reflectance(*(truth[name].values for name in PARAMETERS), cube.wavelength.values)
    residual = cube.values - clean
    assert np.nanstd(residual) == pytest.approx(0.005, rel=0.02)
    assert abs(np.nanmean(residual)) < 1e-4


def test_a_scene_has_nodata_and_partial_pixels_and_truth_everywhere(scene):
    cube, truth = scene
    missing = cube.isnull().sum("wavelength")
    nodata = missing == cube.sizes["wavelength"]
    partial = (missing > 0) & ~nodata
    assert 0.03 < float(nodata.mean()) < 0.12
    assert 0.01 < float(partial.mean()) < 0.04
    assert not truth.isnull().any().to_array().any()


def test_a_scene_spans_much_of_the_training_ranges_and_never_leaves_them(scene):
    _, truth = scene
    for name, parameter in PARAMETERS.items():
        values = truth[name]
        assert parameter.low <= values.min()
        assert values.max() <= parameter.high
        scale = np.log if parameter.log_uniform else np.asarray
        spread = np.ptp(scale(values.values)) / np.ptp(scale(np.array([parameter.low, parameter.high])))
        assert spread > 0.5, name
        assert values.attrs == parameter.attrs


def test_neighbouring_pixels_are_alike_in_a_scene(scene):
    _, truth = scene
    for name in PARAMETERS:
        step = truth[name].diff("x").std() / truth[name].std()
        assert float(step) < 0.5, name


def test_a_scene_depends_on_its_seed_only():
    first, again, other = make_scene((20, 24), seed=7), make_scene((20, 24), seed=7), make_scene((20, 24), seed=8)
    for a, b, c in zip(first, again, other, strict=True):
        xr.testing.assert_identical(a, b)
        assert not a.equals(c)


def test_a_scene_takes_any_shape_from_eight_pixels_and_other_bands():
    cube, truth = make_scene((8, 31), wavelength=[1000.0, 1500.0, 2000.0], noise=0.0)
    assert cube.shape == (8, 31, 3)
    assert dict(truth.sizes) == {"y": 8, "x": 31}
    assert np.isfinite(cube.values).any()


@pytest.mark.parametrize(
    ("kwargs", "message"), [({"shape": (4, 30)}, r"shape is \(4, 30\)"), ({"noise": -0.1}, "noise is -0.1")]
)
def test_a_scene_refuses_bad_shapes_and_noise(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_scene(**kwargs)


def test_a_latent_dimension_lowers_the_error_that_the_unmodelled_haze_causes_in_every_parameter():
    names = [name for name in PARAMETERS if name != mixing.NUISANCE]
    train, test = simulate_mixtures(1500, noise=0.005, seed=1), simulate_mixtures(500, noise=0.005, seed=2)
    known, wanted = (data[names].to_array().values.T for data in (train, test))

    def errors(n_latent):
        model = GLLiM(n_components=15, n_latent=n_latent, max_iter=30, tol=0, random_state=0)
        residual = model.fit(train.reflectance.values, known).predict(test.reflectance.values) - wanted
        return residual.std(axis=0) / wanted.std(axis=0)

    with_latent, without = errors(1), errors(0)
    assert (with_latent < 0.45).all()
    assert (with_latent > 0.04).all()
    assert (with_latent < 0.9 * without).all()
    assert np.median(with_latent / without) < 0.75
