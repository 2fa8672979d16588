"""Modes in physical units against dense grids of the density of the parameters themselves."""

from typing import Any

import numpy as np
import pytest
from scipy.ndimage import maximum_filter
from test_modes import log_densities

from specinvert.gllim.mixtures.mixture import LEAST_MASS, Mixture
from specinvert.gllim.mixtures.modes import count_modes, highest_mode, list_modes
from specinvert.gllim.transforms import Transforms
from strategies import covariances

pytestmark = pytest.mark.oracle

KINDS: dict[str, Any] = {
    "log": "log",
    "softplus": ("softplus", 0.5),
    "sqrt": "sqrt",
    "logit": ("logit", -1.0, 3.0),
    "identity": "identity",
}


def make(seed: int, size: int, n_components: int, where: float) -> Mixture:
    rng = np.random.default_rng(seed)
    spreads = 0.3 * covariances(rng, n_components, size)[None]
    means = where + rng.normal(size=(1, n_components, size))
    return Mixture(rng.dirichlet(np.ones(n_components), 1), means, spreads)


def physical_log_density(t: np.ndarray, mixture: Mixture, transforms: Transforms) -> np.ndarray:
    """At t (m, L)."""
    z = transforms.forward(t)
    return log_densities(z, mixture) - transforms.log_jacobian(z)


def mass_of(mixture: Mixture, transforms: Transforms) -> np.ndarray:
    """Of the modes of a row."""
    mass = list_modes(mixture, transforms.bends(range(mixture.n_dimensions)))[1][0]
    return mass[np.isfinite(mass)]


def peaks(heights: np.ndarray) -> np.ndarray:
    """Places of the local maxima within a grid, its border left out."""
    inner = np.zeros(heights.shape, dtype=bool)
    inner[(slice(1, -1),) * heights.ndim] = True
    return np.argwhere((heights == maximum_filter(heights, 3)) & inner)


@pytest.mark.parametrize("kind", KINDS)
def test_modes_of_one_parameter_are_peaks_of_its_own_density(kind: str) -> None:
    transforms = Transforms.of({"a": KINDS[kind]}, ["a"])
    for seed, n_components in ((0, 1), (1, 3), (2, 3), (3, 4)):
        mixture = make(seed, 1, n_components, 3.0 if kind in ("softplus", "sqrt") else 0.3)
        z = np.linspace(
            max(mixture.means.min() - 4.0, 0.02 if kind == "sqrt" else -np.inf), mixture.means.max() + 2.0, 4001
        )
        heights = physical_log_density(transforms.inverse(z[:, None]), mixture, transforms)
        points, _, found = list_modes(mixture, transforms.bends([0]))
        for mode in points[np.isfinite(points) & (points > 0.0 if kind == "sqrt" else True)]:
            assert abs(z[peaks(heights)] - mode).min() < 2e-3
        assert count_modes(mixture, transforms.bends([0]))[0] == (mass_of(mixture, transforms) >= LEAST_MASS).sum()
        if kind != "sqrt":
            highest, height, _ = highest_mode(mixture, transforms.bends([0]))
            assert highest[0, 0] == pytest.approx(z[heights.argmax()], abs=2e-3)
            constant = np.log(transforms.entry(0).scale) if kind == "logit" else 0.0
            assert height[0] == np.nanmax(found) == pytest.approx(heights.max() + constant, abs=1e-5)


@pytest.mark.parametrize("kinds", [("log", "softplus"), ("softplus", "identity"), ("logit", "log"), ("ilr",)], ids=str)
def test_modes_of_several_parameters_are_peaks_of_their_joint_density(kinds: tuple[str, ...]) -> None:
    names = ("a", "b", "c") if kinds == ("ilr",) else ("a", "b")
    spec = {names: "ilr"} if kinds == ("ilr",) else {name: KINDS[kind] for name, kind in zip(names, kinds, strict=True)}
    transforms = Transforms.of(spec, names)
    for seed in range(3):
        mixture = make(seed, 2, 3, 3.0 if "softplus" in kinds else 1.5)
        axes = [np.linspace(mixture.means.min() - 3.0, mixture.means.max() + 2.0, 401)] * 2
        z = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        heights = physical_log_density(transforms.inverse(z.reshape(-1, 2)), mixture, transforms).reshape(401, 401)
        highest = highest_mode(mixture, transforms.bends([0, 1]))[0][0]
        step = axes[0][1] - axes[0][0]
        np.testing.assert_allclose(highest, z[np.unravel_index(heights.argmax(), heights.shape)], atol=1.01 * step)
        points, _, _ = list_modes(mixture, transforms.bends([0, 1]))
        for mode in points[0][np.isfinite(points[0, :, 0])]:
            assert abs(z[tuple(peaks(heights).T)] - mode).max(axis=1).min() < 1.01 * step


def test_a_lognormal_has_its_mode_below_its_median_and_a_root_near_zero_has_it_there() -> None:
    mixture = Mixture(np.ones((2, 1)), np.array([[[1.0]], [[3.0]]]), np.full((2, 1, 1, 1), 0.64))
    logs, roots = (Transforms.of({"a": kind}, ["a"]) for kind in ("log", "sqrt"))
    np.testing.assert_allclose(highest_mode(mixture, logs.bends([0]))[0][:, 0], [0.36, 2.36], rtol=1e-9)
    np.testing.assert_allclose(
        highest_mode(mixture, roots.bends([0]))[0][:, 0], [0.0, 1.5 + np.sqrt(2.25 - 0.64)], rtol=1e-9
    )


def test_a_parameter_whose_root_is_zero_leaves_the_others_the_mode_given_that() -> None:
    spread = np.array([[1.0, 0.5], [0.5, 2.0]])
    mixture = Mixture(np.ones((1, 1)), np.array([[[0.5, 3.0]]]), spread[None, None])
    transforms = Transforms.of({"a": "sqrt"}, ["a", "b"])
    np.testing.assert_allclose(highest_mode(mixture, transforms.bends([0, 1]))[0], [[0.0, 3.0 - 0.25]], rtol=1e-9)


def test_a_spike_at_the_bound_that_no_mean_climbs_to_is_no_mode() -> None:
    mixture = Mixture(np.ones((2, 1)), np.array([[[1.0]], [[0.2]]]), np.full((2, 1, 1, 1), 0.25))
    transforms = Transforms.of({"a": ("softplus", 0.1)}, ["a"])
    within, at_bound = transforms.inverse(highest_mode(mixture, transforms.bends([0]))[0])[:, 0]
    assert within == pytest.approx(1.0, abs=2e-3)
    assert 0.0 <= at_bound < 1e-6
    heights = physical_log_density(np.array([[1e-9], [1.0]]), mixture, transforms)
    assert heights[0] > heights[1]
    np.testing.assert_array_equal(count_modes(mixture, transforms.bends([0])), 1)
