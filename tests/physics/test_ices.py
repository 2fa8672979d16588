"""Grains, mixtures, and the training sets of polar ices and of canopies."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

from documents import assert_prints_what_it_shows
from specinvert.physics import ices
from specinvert.physics.geometry import Geometry
from specinvert.physics.hapke import hapke_reflectance
from specinvert.physics.ices import CONSTITUENTS, simulate_polar_ices
from specinvert.physics.optics import (
    areal_mixture,
    fresnel_averages,
    grain_albedo,
    intimate_mixture,
    optical_constants,
    refractive_index,
)
from specinvert.physics.prosail_model import LEAF_PARAMETERS, simulate_prosail, simulate_prospect
from specinvert.physics.prosail_model import PARAMETERS as CANOPY

UM = np.linspace(0.9, 4.3, 80)
BANDS = np.linspace(1000.0, 4000.0, 12)


def band(centre, width, peak):
    return 1e-6 + peak * np.exp(-0.5 * ((UM - centre) / width) ** 2)


CONSTANTS = {
    "water_ice": optical_constants(
        UM, 1.3, band(1.5, 0.1, 5e-4) + band(2.0, 0.1, 1.6e-3) + band(3.1, 0.2, 0.3), units="um"
    ),
    "co2_ice": optical_constants(UM, 1.4, band(2.7, 0.05, 1e-2), units="um"),
    "dust": optical_constants(UM, 1.5, 3e-3, units="um"),
}


def fresnel(angle, m):
    """Reflectance of unpolarised light."""
    cosine, inner = np.cos(angle), np.sqrt(m**2 - np.sin(angle) ** 2 + 0j)
    across, along = (cosine - inner) / (cosine + inner), (m**2 * cosine - inner) / (m**2 * cosine + inner)
    return 0.5 * (abs(across) ** 2 + abs(along) ** 2)


@pytest.mark.parametrize("m", [1.3, 1.5 + 0.1j, 0.6 + 1j, 2.5, 0.9])
def test_fresnel_averages_agree_with_numerical_integration(m):
    for found, index in zip(fresnel_averages(m), (m, 1 / m), strict=True):
        corner = [np.arcsin(min(1.0, abs(index)))]
        wanted = quad(lambda t: fresnel(t, index) * np.sin(2 * t), 0, np.pi / 2, points=corner, limit=500)[0]  # noqa: B023
        assert float(found) == pytest.approx(wanted, rel=1e-7)


def test_diffuse_light_obeys_the_square_law_of_the_refractive_index():
    n = np.array([1.1, 1.31, 1.8, 3.0])
    outside, inside = fresnel_averages(n)
    np.testing.assert_allclose(1 - outside, n**2 * (1 - inside), rtol=1e-10)


def test_grains_that_do_not_absorb_are_white_and_opaque_ones_keep_their_surface():
    assert grain_albedo(1.3, 100.0, 1500.0) == pytest.approx(1.0)
    opaque = 1.5 + 0.1j
    assert grain_albedo(opaque, 1e5, 1500.0) == pytest.approx(float(fresnel_averages(opaque)[0]))


def test_the_albedo_of_a_grain_falls_with_its_size_and_rises_with_scatterers_inside():
    sizes = grain_albedo(1.3 + 1e-5j, np.geomspace(1, 1e5, 30), 1500.0)
    assert (np.diff(sizes) < 0).all()
    clear, faint, milky = grain_albedo(1.3 + 1e-5j, 1000.0, 1500.0, internal_scattering=[0.0, 1e-9, 0.1])
    assert faint == pytest.approx(clear, rel=1e-5)
    assert milky > clear


def test_weak_absorption_dims_a_grain_in_proportion_to_its_mean_path():
    n, k = 1.3, 1e-9
    path = 2 / 3 * (n**2 - (n**2 - 1) ** 1.5 / n) * 100.0
    outside, inside = fresnel_averages(n)
    lost = (1 - outside) / (1 - inside) * 4 * np.pi * k / 1.5 * path
    assert 1 - grain_albedo(n + 1j * k, 100.0, 1500.0) == pytest.approx(lost, rel=1e-3)


def test_a_mixture_of_one_constituent_or_of_like_ones_is_that_constituent():
    assert intimate_mixture([0.7], [1.0], [50.0]) == pytest.approx(0.7)
    assert intimate_mixture([0.7, 0.2], [1.0, 0.0], [50.0, 3.0]) == pytest.approx(0.7)
    assert intimate_mixture([0.7, 0.7], [0.4, 0.6], [50.0, 3.0]) == pytest.approx(0.7)
    assert areal_mixture([0.4, 0.9], [1.0, 0.0]) == pytest.approx(0.4)


def test_fine_dust_darkens_an_intimate_mixture_far_beyond_its_share_of_the_volume():
    assert intimate_mixture([1.0, 0.5], [0.99, 0.01], [1000.0, 10.0]) == pytest.approx(0.7487, abs=1e-4)


def test_constants_are_interpolated_in_any_unit_and_order():
    metres = optical_constants([2e-6, 1e-6], [1.2, 1.4], [1e-4, 1e-6], units="m")
    np.testing.assert_allclose(refractive_index(metres, [1500.0]), [1.3 + 1e-5j], rtol=1e-12)
    ends = optical_constants([0.5, 1.0, 2.0], 1.3, [np.nan, 1e-6, 1e-4], units="um")
    np.testing.assert_allclose(refractive_index(ends, [1000.0]), [1.3 + 1e-6j], rtol=1e-12)


def test_bad_input_is_refused_with_the_value(subtests):
    for call, message in [
        (lambda: refractive_index(CONSTANTS["dust"].drop_vars("k"), BANDS, name="dust"), "dust has no k, only n"),
        (lambda: refractive_index(CONSTANTS["dust"], [4400.0], name="dust"), "dust covers 900 to 4300 nm, not 4400 nm"),
        (
            lambda: refractive_index(CONSTANTS["dust"].drop_vars("wavelength"), BANDS),
            "no wavelengths along 'wavelength'",
        ),
        (
            lambda: refractive_index(optical_constants([1, 2, 3], 1.3, [0, -1, 0], units="um"), [1500]),
            "k -1 at 2000 nm",
        ),
        (lambda: grain_albedo(1.3, 0.0, 1000.0), "grain diameter is 0 um"),
        (lambda: intimate_mixture([0.5, 0.5], [0.5, 0.6], [1, 1]), "shares sum to 1.1"),
        (lambda: areal_mixture([0.5, 0.5], [1.5, -0.5]), "a share is -0.5"),
        (lambda: areal_mixture([0.5], [0.5, 0.5]), "2 shares for 1 constituents"),
        (lambda: simulate_polar_ices(0, CONSTANTS), "n_samples is 0"),
        (lambda: simulate_polar_ices(1, {"dust": CONSTANTS["dust"]}), "constants lack water_ice, co2_ice"),
        (lambda: simulate_polar_ices(1, CONSTANTS, wavelength=[500.0]), "water_ice covers 900 to 4300 nm, not 500 nm"),
        (lambda: simulate_polar_ices(1, CONSTANTS, mixture="linear"), "mixture is 'linear'"),
        (lambda: simulate_polar_ices(1, CONSTANTS, variant="2001"), "variant is '2001'"),
        (lambda: simulate_polar_ices(1, CONSTANTS, chunks=0), "chunks is 0"),
        (lambda: simulate_polar_ices(1, CONSTANTS, geometry=Geometry([0, 1], 0)), r"geometry has shape \(2,\)"),
        (lambda: simulate_polar_ices(1, CONSTANTS, ranges={"dust": (0.5, 1), "water_ice": (0.6, 1)}), "at least 1.1"),
        (lambda: simulate_polar_ices(1, CONSTANTS, ranges={"dust": (0.5, 0.1)}), "range of dust is 0.5 to 0.1"),
        (lambda: simulate_prosail(0), "n_samples is 0"),
        (lambda: simulate_prosail(1, priors={"sla": (0, 1)}), "priors names sla; choose from leaf_structure"),
        (lambda: simulate_prosail(1, priors={"lai": (3, 1)}), r"prior of lai is \(3, 1\)"),
        (lambda: simulate_prospect(0), "n_samples is 0; ask for at least 1 leaf"),
        (lambda: simulate_prospect(1, priors={"lai": (0, 1)}), "priors names lai; choose from leaf_structure"),
        (lambda: simulate_prospect(1, sensor=([2490.0], 175.0)), "band at 2490 nm lies outside 400 to 2500 nm"),
        (lambda: simulate_prosail(1, sensor=([2490.0], 175.0)), "band at 2490 nm lies outside 400 to 2500 nm"),
    ]:
        with subtests.test(call=call, message=message), pytest.raises(ValueError, match=message):
            call()


def test_shares_sum_to_one_and_stay_in_their_ranges():
    data = simulate_polar_ices(
        500, CONSTANTS, wavelength=BANDS, ranges={"water_ice": (0, 1), "dust": (0.1, 0.9)}, seed=2
    )
    shares = data[list(CONSTITUENTS)].to_array()
    np.testing.assert_allclose(shares.sum("variable"), 1.0, rtol=1e-12)
    assert float(shares.min()) >= 0
    assert float(data.dust.min()) >= 0.1
    assert float(data.co2_ice.max()) > 0.6
    assert data.co2_grain_size.attrs["units"] == "um"
    assert 1e3 <= float(data.co2_grain_size.min()) < 3e3 < 4e4 < float(data.co2_grain_size.max()) <= 1e5


@pytest.mark.parametrize("mixture", ["intimate", "areal"])
def test_a_surface_of_one_constituent_is_that_constituent(mixture):
    only_dust = {"water_ice": (0.0, 0.0), "dust": (1.0, 1.0)}
    data = simulate_polar_ices(3, CONSTANTS, wavelength=BANDS, ranges=only_dust, mixture=mixture, dust_diameter=20.0)
    albedo = grain_albedo(refractive_index(CONSTANTS["dust"], BANDS), 20.0, BANDS)
    wanted = hapke_reflectance(albedo, Geometry(60.0, 0.0))
    np.testing.assert_allclose(data.reflectance, np.tile(wanted, (3, 1)), rtol=1e-12)


def test_water_bands_deepen_with_water_and_carbon_dioxide_bands_with_its_grains():
    def spectra(water, size):
        ranges = {"water_ice": (water, water), "dust": (0.001, 0.001), "co2_grain_size": (size, size)}
        ranges["water_grain_size"] = (200.0, 200.0)
        return simulate_polar_ices(1, CONSTANTS, wavelength=[1250.0, 2000.0, 2700.0], ranges=ranges).reflectance[0]

    little, much, coarse = spectra(0.001, 1e4), spectra(0.1, 1e4), spectra(0.001, 5e4)
    assert much[1] / much[0] < 0.9 * little[1] / little[0]
    assert abs(float(coarse[0] - little[0])) > 1e-3


def test_lazy_spectra_are_the_same_chunk_by_chunk_and_nothing_is_computed_early(monkeypatch):
    monkeypatch.setattr(ices, "_BLOCK", 64)
    options = {"wavelength": BANDS, "seed": 5}
    eager = simulate_polar_ices(150, CONSTANTS, **options)
    lazy = simulate_polar_ices(150, CONSTANTS, chunks=40, **options)
    assert lazy.reflectance.chunks == ((40, 40, 40, 30), (12,))
    np.testing.assert_allclose(lazy.reflectance.compute(), eager.reflectance, rtol=1e-12)
    assert eager.equals(simulate_polar_ices(150, CONSTANTS, **options))
    assert not eager.equals(simulate_polar_ices(150, CONSTANTS, wavelength=BANDS, seed=6))


def test_the_default_bands_are_184_and_reflectance_is_that_of_snow():
    data = simulate_polar_ices(20, CONSTANTS)
    assert dict(data.sizes) == {"sample": 20, "wavelength": 184}
    assert data.wavelength.attrs["units"] == "nm"
    assert 0 < float(data.reflectance.min()) < float(data.reflectance.max()) < 1.1


@pytest.mark.parametrize("simulate", [simulate_prosail, simulate_prospect])
def test_without_prosail_the_message_says_what_to_install(monkeypatch, simulate):
    monkeypatch.setitem(sys.modules, "prosail", None)
    with pytest.raises(ImportError, match=f"{simulate.__name__} needs the package prosail; pip install prosail"):
        simulate(1)


def test_canopies_follow_their_priors_and_grow_green():
    pytest.importorskip("prosail")
    sensor = ([664.6, 864.7], [31.0, 21.0])
    priors = {"lai": (0.2, 6.0), "carotenoids": lambda drawn: 0.2 * drawn["chlorophyll"], "chlorophyll": (40.0, 60.0)}
    data = simulate_prosail(40, priors=priors, sensor=sensor, seed=1)
    assert set(CANOPY) < set(data.data_vars)
    assert data.chlorophyll.attrs == {"units": "ug cm-2", "long_name": "leaf chlorophyll content"}
    np.testing.assert_array_equal(data.carotenoids, 0.2 * data.chlorophyll)
    np.testing.assert_array_equal(np.sort(np.floor((data.lai.values - 0.2) / 5.8 * 40)), np.arange(40))
    red, infrared = data.reflectance.values.T
    index = (infrared - red) / (infrared + red)
    assert np.corrcoef(np.log(data.lai), index)[0, 1] > 0.7
    assert data.equals(simulate_prosail(40, priors=priors, sensor=sensor, seed=1))


def test_canopy_bands_are_the_average_of_the_spectrum_that_prosail_gives():
    pytest.importorskip("prosail")
    fine = simulate_prosail(1)
    assert fine.sizes["wavelength"] == 2101
    weight = np.exp(-4 * np.log(2) * ((fine.wavelength - 865.0) / 20.0) ** 2)
    banded = simulate_prosail(1, sensor=([865.0], [20.0])).reflectance.item()
    assert banded == pytest.approx(float((fine.reflectance[0] * weight).sum() / weight.sum()), rel=1e-4)


def test_leaves_are_those_of_prospect_and_darken_where_their_pigments_and_water_absorb():
    prosail = pytest.importorskip("prosail")
    priors = {"brown_pigments": (0.0, 0.0)}
    leaves = simulate_prospect(30, priors=priors, seed=2)
    assert dict(leaves.sizes) == {"sample": 30, "wavelength": 2101}
    assert set(leaves.data_vars) == {"reflectance", "transmittance", *LEAF_PARAMETERS}
    assert not leaves.brown_pigments.any()
    leaf = leaves.isel(sample=3)
    names = ["leaf_structure", "chlorophyll", "carotenoids", "brown_pigments", "leaf_water", "dry_matter"]
    _, *sides = prosail.run_prospect(*(float(leaf[name]) for name in names), ant=float(leaf.anthocyanins))
    for name, values in zip(("reflectance", "transmittance"), sides, strict=True):
        np.testing.assert_allclose(leaf[name], values, rtol=1e-12)
    absorbed = 1.0 - leaves.reflectance - leaves.transmittance
    assert float(absorbed.min()) > -1e-9
    for nm, cause in ((680.0, "chlorophyll"), (1450.0, "leaf_water")):
        assert np.corrcoef(np.log(leaves[cause] + 1e-3), absorbed.sel(wavelength=nm))[0, 1] > 0.6
    banded = simulate_prospect(30, priors=priors, sensor=([680.0, 1650.0], [10.0, 20.0]), seed=2)
    assert banded.reflectance.shape == banded.transmittance.shape == (30, 2)
    np.testing.assert_allclose(banded.transmittance[:, 0], leaves.transmittance.sel(wavelength=680.0), atol=0.02)
    np.testing.assert_array_equal(banded.dry_matter, leaves.dry_matter)


def test_the_guide_prints_what_it_shows():
    assert_prints_what_it_shows(Path(__file__).parents[2] / "docs" / "physics.md")
