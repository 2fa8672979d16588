"""The reflectance models at the ends of their ranges, and what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from specinvert.physics.geometry import Geometry
from specinvert.physics.hapke import VARIANTS, brdf, hapke_reflectance, simulate_brdf
from specinvert.physics.mixing import simulate_mixtures
from specinvert.physics.optics import areal_mixture, fresnel_averages, grain_albedo, intimate_mixture, optical_constants
from specinvert.physics.phase import HenyeyGreenstein
from specinvert.physics.prosail_model import simulate_prosail, simulate_prospect
from specinvert.physics.shkuratov import shkuratov_reflectance

DIRECTION = Geometry(30.0, 20.0)
LEAF = ([665.0, 865.0], 20.0)


def test_grains_that_do_not_absorb_never_scatter_more_than_hapke_takes() -> None:
    index = np.linspace(1.01, 4.0, 3000)
    albedo = grain_albedo(index, 100.0, 1500.0)
    assert albedo.max() == 1.0
    mixed = intimate_mixture([albedo, albedo], [0.3, 0.7], [3.0, 70.0])
    assert np.isfinite(hapke_reflectance(mixed, DIRECTION)).all()


def test_a_grain_like_its_surroundings_has_no_surface() -> None:
    assert fresnel_averages(1.0) == (0.0, 0.0)
    size, nm, k = 100.0, 1500.0, 1e-4
    path = 2.0 / 3.0 * size
    assert float(grain_albedo(1.0 + 1j * k, size, nm)) == pytest.approx(np.exp(-4e3 * np.pi * k / nm * path), rel=1e-6)
    assert float(grain_albedo(1.0, size, nm)) == 1.0


def test_nothing_of_a_constituent_is_as_if_it_were_not_there() -> None:
    assert float(intimate_mixture([0.9, 0.2], [0.0, 1.0], [1.0, 50.0])) == 0.2
    assert float(areal_mixture([0.9, 0.2], [1.0, 0.0])) == 0.9


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("theta_bar", [0.0, 1e-300, 20.0, 80.0])
def test_grazing_light_and_any_slope_give_numbers(variant: str, theta_bar: float) -> None:
    angles = np.array([0.0, 60.0, 89.9, 89.999])
    geometry = Geometry(angles[:, None, None], angles[:, None], np.array([0.0, 90.0, 180.0]))
    for w in (0.0, 0.5, 1.0):
        phase = HenyeyGreenstein(0.4, 0.5)
        found = hapke_reflectance(w, geometry, phase=phase, theta_bar=theta_bar, variant=variant)
        assert np.isfinite(found).all()
        assert (found >= 0.0).all()
        assert found.any() == (w > 0.0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("theta_bar", [0.0, 25.0, 60.0])
def test_no_more_light_comes_back_than_fell_on_a_surface_that_scatters_alike(variant: str, theta_bar: float) -> None:
    x, share = np.polynomial.legendre.leggauss(40)
    zenith, around = np.radians(45.0 * (x + 1.0)), 90.0 * (x + 1.0)
    solid = np.outer(np.radians(45.0) * share * np.sin(zenith) * np.cos(zenith), np.pi * share)
    most = 1.0 if variant != "1981" else 1.041
    for incidence in (0.0, 50.0, 85.0):
        geometry = Geometry(incidence, np.degrees(zenith)[:, None], around)
        found = [
            float((hapke_reflectance(w, geometry, variant=variant, theta_bar=theta_bar, quantity="brdf") * solid).sum())
            for w in (0.0, 0.3, 0.9, 1.0)
        ]
        assert found[0] == 0.0
        assert (np.diff(found) > 0.0).all()
        assert found[-1] <= most + 1e-4


def test_a_normal_prior_of_no_width_is_a_constant() -> None:
    pytest.importorskip("prosail")
    leaves = simulate_prospect(3, priors={"chlorophyll": (20.0, 20.0, 45.0, 30.0)}, sensor=LEAF)
    assert (leaves.chlorophyll == 20.0).all()
    assert np.isfinite(leaves.reflectance).all()


def bare(**priors: Any) -> Callable[[], Any]:
    return lambda: simulate_prosail(2, priors=priors, sensor=LEAF)


def test_what_cannot_be_is_refused_with_the_value(subtests: pytest.Subtests) -> None:
    for call, message in [
        (lambda: hapke_reflectance(1.0 + 1e-12, DIRECTION), "w is 1.000000000001; a single-scattering albedo"),
        (lambda: brdf({"w": 0.5, "b": 0.1}, DIRECTION), "parameters lack theta_bar, c, b0, h; give w, theta_bar"),
        (lambda: simulate_brdf(1, Geometry([0], 0), ranges={"b": (0.5,)}), r"range of b is \(0.5,\); give two numbers"),
        (lambda: simulate_brdf(1, Geometry([0], 0), ranges={"b": 0.5}), "range of b is 0.5; give two numbers"),
        (lambda: simulate_mixtures(1, noise=np.inf), "noise is inf"),
        (lambda: shkuratov_reflectance(-0.1, DIRECTION, slope=0.1, mu1=1.0), "albedo is -0.1; it must be at least 0"),
        (lambda: shkuratov_reflectance(0.1, DIRECTION, slope=0.1, mu1=1.0, m=-1.0), "m is -1; it must be at least 0"),
        (lambda: optical_constants([1.0, 2.0], [1.3, 1.4, 1.5], 0.0), r"shapes \(2,\), \(3,\) and \(\); give a list"),
        (lambda: optical_constants(1.0, 1.3, 0.0), "give a list of wavelengths"),
        (lambda: grain_albedo(1.3 - 1e-3j, 100.0, 1500.0), "refractive index is 1.3-0.001j; n must be above 0"),
        (lambda: grain_albedo(1.3, 100.0, [1500.0, 0.0]), "wavelength is 0 nm; it must be above 0"),
        (lambda: fresnel_averages([1.3, -1.3]), "refractive index is -1.3"),
        (lambda: intimate_mixture([0.5, 0.5], [0.5, 0.5], [-1.0, 2.0]), "grain diameter is -1; it must be above 0"),
        (lambda: intimate_mixture([1.5, 0.5], [0.5, 0.5], [1.0, 2.0]), "albedo is 1.5; a single-scattering albedo"),
        (lambda: areal_mixture([0.5, 0.5], [[np.nan, -0.5], [1.0, 1.5]]), "a share is -0.5"),
        (bare(lai=(np.nan, 1.0)), r"prior of lai is \(nan, 1.0\)"),
        (bare(lai=3.0), "prior of lai is 3.0; give"),
        (bare(lai=(0.0, 3.0, np.nan, 1.0)), "prior of lai is"),
        (bare(leaf_structure=(0.0, 0.0)), "leaf_structure is 0 in 2 of 2 draws; give a prior within 1 to inf"),
        (bare(sun_zenith=(95.0, 95.0)), "sun_zenith is 95 in 2 of 2 draws; give a prior within 0 to 89"),
        (bare(carotenoids=lambda drawn: -drawn["chlorophyll"]), "carotenoids is -.* in 2 of 2 draws"),
        (bare(carotenoids=lambda drawn: np.ones(7)), r"the prior of carotenoids gives shape \(7,\) for 2 draws"),
        (
            bare(carotenoids=lambda drawn: drawn["chl"]),
            "carotenoids asks for 'chl'; functions are given leaf_st",
        ),
    ]:
        with subtests.test(call=call, message=message), pytest.raises(ValueError, match=message):
            call()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_canopies_of_leaves_that_absorb_nothing_somewhere_are_refused() -> None:
    pytest.importorskip("prosail")
    with pytest.raises(ValueError, match="no finite reflectance for 1 of 1 draws, the first with zero leaf_water, dry"):
        simulate_prosail(1, priors={"leaf_water": (0.0, 0.0), "dry_matter": (0.0, 0.0)}, sensor=LEAF)
