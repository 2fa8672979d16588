"""Hapke's model: limits, energy, reciprocity, and agreement with another implementation."""

import re

import numpy as np
import pytest
from scipy.integrate import quad

from specinvert.physics import hapke
from specinvert.physics.geometry import Geometry
from specinvert.physics.hapke import (
    QUANTITIES,
    VARIANTS,
    brdf,
    h_1981,
    h_1993,
    h_2002,
    h_exact,
    hapke_reflectance,
    simulate_brdf,
)
from specinvert.physics.phase import HenyeyGreenstein, Legendre, opposition_surge
from specinvert.physics.roughness import roughen

RNG = np.random.default_rng(3)
ANGLES = np.column_stack([RNG.uniform(0, 80, 60), RNG.uniform(0, 80, 60), RNG.uniform(0, 180, 60)])
GEOMETRY = Geometry(*ANGLES.T)
SWAPPED = Geometry(ANGLES[:, 1], ANGLES[:, 0], ANGLES[:, 2])
BACKWARD = HenyeyGreenstein(0.4, 0.7)


def sphere_mean(phase):
    """Mean of a phase function over all directions."""
    x, weight = np.polynomial.legendre.leggauss(200)
    return (phase(x) * weight).sum() / 2


def directional_hemispherical(w, incidence, **options):
    """Share of a beam's energy that a surface sends back."""
    x, weight = np.polynomial.legendre.leggauss(40)
    mu, weight = 0.5 * (x + 1), 0.5 * weight
    azimuth = np.arange(1.0, 180.0, 2.0)
    geometry = Geometry(incidence, np.degrees(np.arccos(mu))[:, np.newaxis], azimuth)
    mean = hapke_reflectance(w, geometry, quantity="brdf", **options).mean(axis=1)
    return float(2 * np.pi * (mean * mu * weight).sum())


@pytest.mark.parametrize(
    "phase", [HenyeyGreenstein(0.6), HenyeyGreenstein(0.3, 0.8), Legendre([0.5, 0.2]), Legendre()], ids=str
)
def test_phase_functions_are_normalised_and_agree_with_their_legendre_series(phase):
    assert sphere_mean(phase) == pytest.approx(1.0, abs=1e-12)
    cos_g = np.linspace(-1, 1, 9)
    series = Legendre([phase.coefficient(n) for n in range(1, phase.order + 1)])
    np.testing.assert_allclose(phase(cos_g), series(cos_g), rtol=1e-7)


def test_the_share_c_is_that_of_the_backward_lobe():
    assert HenyeyGreenstein(0.5, 1.0)(1.0) == pytest.approx(6.0)
    assert HenyeyGreenstein(0.5)(-1.0) == pytest.approx(6.0)
    assert HenyeyGreenstein(0.5, 0.5)(1.0) == HenyeyGreenstein(0.5, 0.5)(-1.0)


def test_the_opposition_effect_falls_to_half_where_the_tangent_of_half_the_phase_angle_is_its_width():
    width = 0.05
    half = np.degrees(2 * np.arctan(width))
    np.testing.assert_allclose(opposition_surge([0.0, half], 0.8, width), [0.8, 0.4])
    dark = {"opposition": (1.0, width), "variant": "1981"}
    peak, aside = hapke_reflectance(1e-6, Geometry(30.0, [30.0, 30.0 + half]), **dark)
    plain = hapke_reflectance(1e-6, Geometry(30.0, [30.0, 30.0 + half]), variant="1981")
    assert peak / plain[0] == pytest.approx(2.0, rel=1e-5)
    assert aside / plain[1] == pytest.approx(1.5, rel=1e-5)


def test_exact_h_function_solves_chandrasekhars_equation_and_gives_his_values():
    assert float(h_exact(1.0, 1.0)) == pytest.approx(2.9078, abs=5e-5)
    x, weight = np.polynomial.legendre.leggauss(200)
    mu, weight = 0.5 * (x + 1), 0.5 * weight
    for w, at in ((0.3, 0.2), (0.9, 0.7), (0.999, 1.0)):
        right = 1 + at * float(h_exact(at, w)) * w / 2 * (h_exact(mu, w) / (mu + at) * weight).sum()
        assert float(h_exact(at, w)) == pytest.approx(right, rel=2e-6)
        assert float(h_exact(at, w)) == pytest.approx(
            np.exp(-at / np.pi * quad(lambda t: np.log1p(-w * np.arctan(t) / t) / (1 + (at * t) ** 2), 0, np.inf)[0]),  # noqa: B023
            rel=1e-7,
        )


@pytest.mark.parametrize(("approximation", "error"), [(h_1981, 0.041), (h_1993, 0.008), (h_2002, 0.010)])
def test_approximations_of_h_stay_within_their_stated_error(approximation, error):
    x, w = np.meshgrid(np.linspace(0.01, 1, 40), np.append(np.linspace(0, 0.99, 40), 1.0))
    away = np.abs(approximation(x, w) / h_exact(x, w) - 1).max()
    assert 0.7 * error < away <= error


@pytest.mark.parametrize("incidence", [0.0, 45.0, 75.0])
def test_without_absorption_all_energy_comes_back(incidence):
    assert directional_hemispherical(1.0, incidence, variant="exact") == pytest.approx(1.0, abs=1e-6)
    for variant, error in (("1981", 0.05), ("1993", 0.016), ("2002", 0.016)):
        assert directional_hemispherical(1.0, incidence, variant=variant) == pytest.approx(1.0, abs=error)


def test_anisotropic_multiple_scattering_keeps_the_energy_that_the_isotropic_kind_loses():
    forward = HenyeyGreenstein(0.4)
    isotropic = [directional_hemispherical(1.0, i, variant="exact", phase=forward) for i in (0.0, 60.0)]
    anisotropic = [directional_hemispherical(1.0, i, variant="2002", phase=forward) for i in (0.0, 60.0)]
    assert max(isotropic) < 0.93
    np.testing.assert_allclose(anisotropic, 1.0, atol=0.02)


def test_no_more_energy_comes_back_than_went_in_and_more_of_it_from_brighter_grains():
    shares = [directional_hemispherical(w, 30.0, variant="exact") for w in (0.0, 0.3, 0.7, 0.95, 1.0)]
    assert shares[0] == 0.0
    assert (np.diff(shares) > 0).all()
    assert shares[-1] <= 1.0 + 1e-9


@pytest.mark.parametrize("variant", VARIANTS)
def test_light_and_observer_may_be_exchanged(variant):
    options = {"phase": BACKWARD, "opposition": (0.6, 0.1), "theta_bar": 20.0, "variant": variant}
    there = hapke_reflectance(0.8, GEOMETRY, quantity="brdf", **options)
    back = hapke_reflectance(0.8, SWAPPED, quantity="brdf", **options)
    np.testing.assert_allclose(there, back, rtol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_dark_grains_scatter_once(variant):
    w = 1e-5
    mu0, mu = GEOMETRY.mu0, GEOMETRY.mu
    once = w / 4 * BACKWARD(np.cos(np.radians(GEOMETRY.phase_angle))) / (mu0 + mu)
    np.testing.assert_allclose(hapke_reflectance(w, GEOMETRY, phase=BACKWARD, variant=variant), once, rtol=1e-4)


def test_bright_isotropic_grains_look_nearly_like_a_lambert_surface():
    flat = hapke_reflectance(1.0, Geometry([0, 20, 40], [30, 10, 40], [0, 90, 180]), variant="exact")
    np.testing.assert_allclose(flat, 1.0, atol=0.1)


def test_reflectance_rises_with_the_albedo():
    w = np.linspace(0, 1, 30)[:, np.newaxis]
    for variant in VARIANTS:
        assert (
            np.diff(hapke_reflectance(w, GEOMETRY, phase=BACKWARD, theta_bar=15.0, variant=variant), axis=0) > 0
        ).all()


def test_a_vanishing_slope_is_a_smooth_surface():
    smooth = roughen(GEOMETRY, 0.0)
    np.testing.assert_allclose(smooth.mu0, GEOMETRY.mu0, rtol=1e-12)
    np.testing.assert_allclose(smooth.shadowing, 1.0, rtol=1e-12)
    flat, tiny = hapke_reflectance(0.7, GEOMETRY, theta_bar=[[0.0], [0.05]])
    np.testing.assert_allclose(tiny, flat, rtol=1e-3)
    assert not np.array_equal(tiny, flat)


def test_effective_cosines_and_shadowing_are_those_of_the_formulas_for_one_direction():
    i, e, psi, slope = np.radians([30.0, 55.0, 70.0, 20.0])
    t = np.tan(slope)
    x = 1 / np.sqrt(1 + np.pi * t**2)

    def e1(angle):
        return np.exp(-2 / np.pi / t / np.tan(angle))

    def e2(angle):
        return np.exp(-1 / np.pi / t**2 / np.tan(angle) ** 2)

    half, below = np.sin(psi / 2) ** 2, 2 - e1(e) - psi / np.pi * e1(i)
    mu0 = x * (np.cos(i) + np.sin(i) * t * (np.cos(psi) * e2(e) + half * e2(i)) / below)
    mu = x * (np.cos(e) + np.sin(e) * t * (e2(e) - half * e2(i)) / below)
    alone_mu0 = x * (np.cos(i) + np.sin(i) * t * e2(i) / (2 - e1(i)))
    alone_mu = x * (np.cos(e) + np.sin(e) * t * e2(e) / (2 - e1(e)))
    f = np.exp(-2 * np.tan(psi / 2))
    s = mu / alone_mu * np.cos(i) / alone_mu0 * x / (1 - f + f * x * np.cos(i) / alone_mu0)
    found = roughen(Geometry(30.0, 55.0, 70.0), 20.0)
    np.testing.assert_allclose([found.mu0, found.mu, found.shadowing], [mu0, mu, s], rtol=1e-12)


def test_a_rough_surface_seen_from_the_normal_is_darker_and_casts_shadows_at_grazing_light():
    rough, smooth = hapke_reflectance(0.5, Geometry([10.0, 75.0], 0.0), theta_bar=[[25.0], [0.0]], quantity="radf")
    assert (rough < smooth).all()
    assert roughen(Geometry(75.0, 60.0, 180.0), 25.0).shadowing < roughen(Geometry(75.0, 60.0, 0.0), 25.0).shadowing


def test_quantities_differ_by_pi_and_the_cosine_of_incidence():
    r = {name: hapke_reflectance(0.6, GEOMETRY, quantity=name) for name in QUANTITIES}
    np.testing.assert_allclose(r["radf"], np.pi * r["r"])
    np.testing.assert_allclose(r["brdf"], r["r"] / GEOMETRY.mu0)
    np.testing.assert_allclose(r["reff"], np.pi * r["brdf"])


def test_parameters_wavelengths_and_geometries_broadcast():
    w = RNG.uniform(0.1, 0.9, (4, 5, 1))
    slope = np.array([5.0, 10.0, 20.0, 30.0])[:, np.newaxis, np.newaxis]
    options = {"opposition": (0.5, 0.1), "theta_bar": slope}
    whole = hapke_reflectance(w, GEOMETRY, phase=HenyeyGreenstein(np.full((4, 1, 1), 0.4), 0.7), **options)
    assert whole.shape == (4, 5, 60)
    one = hapke_reflectance(
        w[2, 3, 0], Geometry(*ANGLES[7]), phase=BACKWARD, opposition=(0.5, 0.1), theta_bar=slope[2, 0, 0]
    )
    assert whole[2, 3, 7] == pytest.approx(float(one), rel=1e-12)


def test_phase_functions_broadcast_over_any_geometry():
    b = np.array([0.2, 0.5, 0.6])[:, np.newaxis]
    whole = hapke_reflectance(0.8, GEOMETRY, phase=HenyeyGreenstein(b, 0.3))
    for row, width in zip(whole, b[:, 0], strict=True):
        np.testing.assert_allclose(row, hapke_reflectance(0.8, GEOMETRY, phase=HenyeyGreenstein(width, 0.3)), rtol=1e-9)
    here = hapke_reflectance(0.8, Geometry(30.0, 20.0), phase=HenyeyGreenstein([0.2, 0.5], 0.3))
    np.testing.assert_allclose(
        here,
        [hapke_reflectance(0.8, Geometry(30.0, 20.0), phase=HenyeyGreenstein(v, 0.3)) for v in (0.2, 0.5)],
        rtol=1e-9,
    )


def test_phase_angle_is_exact_near_opposition_and_azimuth_is_folded():
    angle = Geometry(40.0, [40.0, 40.0 + 1e-5], [0.0, 360.0]).phase_angle
    np.testing.assert_allclose(angle, [0.0, 1e-5], rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(Geometry(10.0, 20.0, [-30.0, 330.0, 390.0]).azimuth, 30.0)


def test_a_nan_parameter_gives_nan_and_leaves_its_neighbours():
    values = hapke_reflectance(np.array([0.5, np.nan]), Geometry(30.0, 0.0), phase=HenyeyGreenstein([0.3, np.nan], 0.5))
    assert np.isfinite(values).tolist() == [True, False]


def test_bad_input_is_refused_with_the_value(subtests):
    for call, message in [
        (lambda: Geometry(90.0, 0.0), "incidence is 90 degrees"),
        (lambda: Geometry(0.0, [1.0, np.nan]), "emergence is nan"),
        (lambda: Geometry(0.0, 0.0, np.inf), "azimuth is not finite"),
        (lambda: Geometry([1.0, 2.0], [1.0, 2.0, 3.0]), r"shapes \(2,\), \(3,\), \(\)"),
        (lambda: hapke_reflectance(1.2, GEOMETRY), "w is 1.2"),
        (lambda: hapke_reflectance(0.5, GEOMETRY, theta_bar=90.0), "theta_bar is 90 degrees"),
        (lambda: hapke_reflectance(0.5, GEOMETRY, opposition=(-1.0, 0.1)), "opposition amplitude is -1"),
        (lambda: hapke_reflectance(0.5, GEOMETRY, opposition=(1.0, 0.0)), "opposition width is 0"),
        (lambda: hapke_reflectance(0.5, GEOMETRY, variant="1984"), "variant is '1984'; choose from 1981, 1993"),
        (lambda: hapke_reflectance(0.5, GEOMETRY, quantity="albedo"), "quantity is 'albedo'"),
        (lambda: HenyeyGreenstein(1.0), "b is 1; it must be within 0 to below 1"),
        (lambda: simulate_brdf(0, GEOMETRY), "n_samples is 0"),
        (lambda: simulate_brdf(1, Geometry(0.0, 0.0)), r"geometry has shape \(\)"),
        (lambda: simulate_brdf(1, GEOMETRY, ranges={"x": (0, 1)}), "ranges names 'x'; choose from w, theta_bar"),
        (lambda: simulate_brdf(1, GEOMETRY, ranges={"b": (0.5, 1)}), "range of b is 0.5 to 1; give low <= high within"),
    ]:
        with subtests.test(call=call, message=message), pytest.raises(ValueError, match=message):
            call()


def test_a_simulated_brdf_is_labelled_seeded_and_the_model_of_its_parameters():
    data = simulate_brdf(50, GEOMETRY, ranges={"b0": (0.5, 0.5)}, variant="1993", seed=4)
    assert dict(data.sizes) == {"sample": 50, "geometry": 60}
    assert data.theta_bar.attrs == {"units": "degree", "long_name": "mean slope angle"}
    assert (data.b0 == 0.5).all()
    np.testing.assert_array_equal(data.incidence, ANGLES[:, 0])
    parameters = {name: data[name].values for name in hapke.PARAMETERS}
    np.testing.assert_array_equal(data.reflectance, brdf(parameters, GEOMETRY, variant="1993"))
    assert data.identical(simulate_brdf(50, GEOMETRY, ranges={"b0": (0.5, 0.5)}, variant="1993", seed=4))


def test_blocks_do_not_change_a_simulated_brdf(monkeypatch):
    whole = simulate_brdf(20, GEOMETRY, variant="1993")
    monkeypatch.setattr(hapke, "_BLOCK", 7)
    np.testing.assert_allclose(simulate_brdf(20, GEOMETRY, variant="1993").reflectance, whole.reflectance, rtol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize(("theirs", "ours"), [("2002", "1981"), ("1993", "1993")])
def test_agreement_with_xllim(theirs, ours):
    """Its names tell the H function: "2002" there is the two-stream one with isotropic multiple scattering."""
    xllim = pytest.importorskip("xllim")
    angles = np.vstack([ANGLES, [[0, 0, 0], [0, 40, 0], [30, 30, 180], [30, 0, 10], [60, 20, 180]]])
    model = xllim._core.HapkeModel(np.asfortranarray(angles), theirs, "six", 30.0, 0.0, 0.1)
    geometry = Geometry(*np.vstack([ANGLES, [[0, 0, 0], [0, 40, 0], [30, 30, 180], [30, 0, 10], [60, 20, 180]]]).T)
    draws = np.random.default_rng(0).uniform([0.05, 0.02, 0, 0, 0, 0.02], [0.95, 1, 0.9, 1, 1, 1], (10, 6))
    for x in draws:
        w, theta_bar, b, c, b0, h = model.toPhysic(x.copy())
        mine = hapke_reflectance(
            w, geometry, phase=HenyeyGreenstein(b, c), opposition=(b0, h), theta_bar=theta_bar, variant=ours
        )
        np.testing.assert_allclose(mine, model.F(x.copy()), rtol=1e-6)


def test_the_documented_variants_are_those_there_are():
    assert re.findall(r'^\| "(\w+)"', hapke.__doc__, re.MULTILINE) == list(VARIANTS)
