"""Shkuratov's models: the albedo of powders, its inverse, and the photometric function."""

import numpy as np
import pytest

from specinvert.physics.geometry import Geometry
from specinvert.physics.shkuratov import shkuratov_albedo, shkuratov_k, shkuratov_reflectance

POWDER = {"n": 1.5, "grain_size": 30.0, "wavelength": 1000.0, "filling": 0.4}


def albedo(k, **changed):
    return shkuratov_albedo(k=k, **(POWDER | changed))


@pytest.mark.parametrize("n", [1.3, 1.5, 1.8])
@pytest.mark.parametrize("filling", [0.2, 0.6, 1.0])
def test_k_comes_back_from_the_albedo(n, filling):
    k = np.geomspace(1e-7, 2e-2, 40)
    found = shkuratov_k(albedo(k, n=n, filling=filling), **(POWDER | {"n": n, "filling": filling}))
    np.testing.assert_allclose(found, k, rtol=1e-8)


def test_a_powder_without_absorption_is_white_and_its_k_is_zero():
    assert albedo(0.0) == pytest.approx(1.0, abs=1e-6)
    assert shkuratov_k(albedo(0.0), **POWDER) == pytest.approx(0.0, abs=1e-15)


def test_albedo_falls_with_absorption_and_with_grain_size_and_rises_with_filling():
    assert (np.diff(albedo(np.geomspace(1e-7, 1e-1, 50))) < 0).all()
    assert (np.diff(albedo(1e-4, grain_size=np.geomspace(1, 1000, 20))) < 0).all()
    assert (np.diff(albedo(1e-4, filling=np.linspace(0.05, 1, 20))) > 0).all()


def test_an_opaque_powder_keeps_the_reflection_of_its_surfaces():
    outside = 0.04 + 0.05
    back = 0.4 * (0.28 * 1.5 - 0.20) * outside
    ahead = 0.4 * outside - back + 0.6
    half = (1 + back**2 - ahead**2) / (2 * back)
    assert albedo(1.0, grain_size=1e4) == pytest.approx(half - np.sqrt(half**2 - 1), rel=1e-9)


def test_an_albedo_that_no_absorption_gives_has_no_k():
    dark = albedo(1.0, grain_size=1e4) / 2
    assert np.isnan(shkuratov_k([dark, 0.5, np.nan], **POWDER)).tolist() == [True, False, True]


def test_bands_and_powders_broadcast():
    values = albedo(
        np.full(7, 1e-4), grain_size=np.array([10.0, 20.0])[:, np.newaxis], wavelength=np.linspace(500, 900, 7)
    )
    assert values.shape == (2, 7)
    assert values[1, 2] == pytest.approx(float(albedo(1e-4, grain_size=20.0, wavelength=np.linspace(500, 900, 7)[2])))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n": 1.0}, "n is 1; it must be above 1"),
        ({"k": -1e-3}, "k is -0.001"),
        ({"grain_size": 0.0}, "grain_size is 0; it must be above 0 um"),
        ({"wavelength": -1.0}, "wavelength is -1"),
        ({"filling": 1.1}, "filling is 1.1"),
    ],
)
def test_impossible_powders_are_refused_with_the_value(changed, message):
    with pytest.raises(ValueError, match=message):
        albedo(**({"k": 1e-4} | changed))


def test_impossible_albedos_are_refused_with_the_value():
    with pytest.raises(ValueError, match=r"albedo is 1.2"):
        shkuratov_k([0.5, 1.2], **POWDER)


def test_reflectance_at_opposition_is_the_albedo_and_falls_with_the_phase_angle():
    assert shkuratov_reflectance(0.3, Geometry(0.0, 0.0), slope=0.2, mu1=1.0) == pytest.approx(0.3)
    mirror = Geometry(30.0, [30.0, 30.0 + 1e-7], [0.0, 0.0])
    at, beside = shkuratov_reflectance(0.3, mirror, slope=0.2, mu1=1.0)
    assert at == pytest.approx(beside, rel=1e-6)
    away = shkuratov_reflectance(0.3, Geometry(0.0, np.linspace(0, 80, 20)), slope=0.2, mu1=1.0, mu2=0.1, m=0.3)
    assert (np.diff(away) < 0).all()


def test_agreement_with_xllim():
    """Its ShkuratovModel is the photometric function of 2011, not the albedo model of 1999."""
    xllim = pytest.importorskip("xllim")
    rng = np.random.default_rng(1)
    angles = np.column_stack([rng.uniform(1, 80, 60), rng.uniform(1, 80, 60), rng.uniform(1, 179, 60)])
    model = xllim._core.ShkuratovModel(np.asfortranarray(angles.copy()), "5p", np.ones(5), np.zeros(5))
    geometry = Geometry(*angles.T)
    for x in rng.random((10, 5)):
        an, mu1, nu, m, mu2 = x
        mine = shkuratov_reflectance(an, geometry, slope=nu, mu1=mu1, m=m, mu2=mu2)
        np.testing.assert_allclose(mine, model.F(x.copy()), rtol=1e-6)
