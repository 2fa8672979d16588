"""What measured spectra show that simulations lack, on spectra of a known discrepancy."""

import numpy as np
import pytest

from specinvert.gllim.posterior import SpectralMixture, windows
from specinvert.scores import calibrate_windows, correlation, excess
from specinvert.scores.adaptation import nearest
from strategies import random_theta

WAVELENGTH = np.linspace(400.0, 2400.0, 24)
KERNEL = correlation(WAVELENGTH)


def simulated(n: int, seed: int, noise: float = 0.01) -> np.ndarray:
    """Spectra (n, D) on a curved surface of two dimensions, with noise."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-1.0, 1.0, (n, 2))
    x = (WAVELENGTH - 400.0) / 2000.0
    clean = 0.5 + 0.2 * t[:, :1] * np.sin(3.0 * x) + 0.1 * (t[:, 1:] + t[:, :1] ** 2) * np.cos(5.0 * x)
    return np.asarray(clean + noise * np.random.default_rng(seed).standard_normal((n, len(x))))


def test_the_nearest_are_those_of_all_distances_but_the_one_left_out() -> None:
    rng = np.random.default_rng(0)
    library, spectra = rng.standard_normal((40, 3)), rng.standard_normal((7, 3))
    without = np.arange(7)
    means, first = nearest(spectra, library, [without])
    for i, one in enumerate(spectra):
        distances = ((library - one) ** 2).sum(axis=1)
        distances[i] = np.inf
        order = np.argsort(distances)
        assert first[i] == order[0]
        np.testing.assert_allclose(means[i], library[order[:5]].mean(axis=0), rtol=1e-12)


def test_simulations_with_other_nuisance_have_nothing_beyond_simulations() -> None:
    library, fresh = simulated(3000, 1), [simulated(3000, seed) for seed in (2, 3)]
    target = simulated(3000, 4)[::10]
    found = excess(target, library, fresh, KERNEL, np.random.default_rng(0))
    assert found.absorption == 1.0
    assert found.amplitude.max() == 0.0


@pytest.mark.parametrize("amplitude", [0.02, 0.05])
def test_a_smooth_discrepancy_is_found_with_what_the_nearest_spectra_follow_of_it(amplitude: float) -> None:
    library, fresh = simulated(3000, 1), [simulated(3000, seed) for seed in (2, 3)]
    curves = np.random.default_rng(5).standard_normal((300, len(WAVELENGTH))) @ np.linalg.cholesky(KERNEL).T
    found = excess(simulated(3000, 4)[::10] + amplitude * curves, library, fresh, KERNEL, np.random.default_rng(0))
    assert found.absorption > 1.02
    assert np.sqrt((found.amplitude**2).mean()) == pytest.approx(amplitude, rel=0.15)


def test_amplitudes_grow_until_windows_are_predicted_as_told_and_no_further() -> None:
    theta = random_theta(0, 2, 24, 2, 0, "diag")
    mixture, rng = SpectralMixture.of([theta]), np.random.default_rng(0)
    own = [rng.multivariate_normal(mean, c, 150) for mean, c in zip(mixture.means, mixture.covariances, strict=True)]
    rows = np.concatenate(own)[rng.permutation(300)]
    none = excess(rows, rows, [rows], KERNEL, rng)
    right = calibrate_windows(mixture, rows, none, KERNEL, windows(24))
    assert right.after.max() < 1.25
    assert (right.amplitude < 0.02 * rows.std(axis=0)).all()
    curves = 3.0 * rng.standard_normal((300, 24)) @ np.linalg.cholesky(KERNEL).T
    wrong = calibrate_windows(mixture, rows + curves, none, KERNEL, windows(24))
    assert wrong.before.max() > 1.5
    assert wrong.after.max() < 1.2
    assert np.median(wrong.amplitude) > 1.0
