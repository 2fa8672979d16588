"""What measured spectra show that simulations lack: a smooth covariance, learnt without labels.

A spectrometer, a crop or a soil differs from its simulation by a curve that the nuisance of training does not hold. Its
covariance is taken as S = diag(a) K diag(a), with one amplitude a_j a band and K_jl the mean of
exp(-|lambda_j - lambda_l| / l) over lengths l of 300 and 1500 nm, because errors are local and broad. It is added to
the noise of every component; weights and prior stay as they are, because the discrepancy is common to all spectra and a
prior that may move explains it.

Three steps. The *nearest residual* tells how far measured spectra are from the support of the simulations, whatever
their density, beyond what simulations with a fresh nuisance are. What is *absorbed*, because the nearest spectra follow
a smooth error, is undone by matching. Then amplitudes are *calibrated*: windows of bands are predicted from all others,
and where errors exceed what the model expects, the window's amplitude grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from ..gllim.core import Array
from ..gllim.posterior import SpectralMixture

LENGTHS = 300.0, 1500.0
"""Lengths over which the discrepancy is alike, nm. With the first alone intervals hold less than they say under smooth
curves of that length."""
NEIGHBOURS, NEIGHBOURING = 5, 3
"""Nearest simulations whose mean stands for a spectrum, and bands over which mean squares are averaged: in a single one
the excess errs, and one of zero would make the model trust that band as before."""
LEAST_SPECTRA = 20
"""Measured spectra that are needed: the mean square of fewer errs by more than a third."""
LEAST_SIGNAL, LEAST_START = 1e-4, 3e-3
"""Amplitude, relative to the signal, that is always there, and that calibration starts from."""
ABSORBED, NO_EXCESS = 3.0, 0.1
"""Greatest factor by which absorption is undone, and the excess over simulations below which nothing is."""
STEPS, DAMPING, LARGEST_STEP = 20, 0.35, 5.0
"""Of the calibration: steps, the exponent of a step, and the greatest ratio of errors that it follows."""
CALIBRATING, SETTLED = 500, 0.01
"""Spectra that steps of the calibration are of at most, and the relative change of amplitudes at which it ends."""
ROWS, SPARSEST = 256, 2.0
"""Spectra that are compared at a time, and the greatest factor for the sparsity of a library."""
MATCHINGS, LARGEST_MATCH, JITTER = 5, 4.0, 1e-10
"""Steps that match what is absorbed, the greatest ratio that one follows, and what keeps K positive definite."""


def correlation(positions: Array) -> Array:
    """K (D, D) of bands at ``positions`` (D,), in nm."""
    apart = np.abs(positions[:, None] - positions)
    return np.asarray(np.mean([np.exp(-apart / length) for length in LENGTHS], axis=0))


def nearest(spectra: Array, library: Array, without: Sequence[NDArray[np.intp]] = ()) -> tuple[Array, NDArray[np.intp]]:
    """Mean (n, D) of the nearest spectra of a ``library`` (N, D), and the nearest (n,) of all.

    ``without`` are those of the library, one (n,) or several, that do not count for each.
    """
    origin = library.mean(axis=0)
    centred, squares = library - origin, ((library - origin) ** 2).sum(axis=1)
    means, first = np.empty(spectra.shape), np.empty(len(spectra), dtype=np.intp)
    count = min(NEIGHBOURS, len(library) - len(without))
    for start in range(0, len(spectra), ROWS):
        rows = slice(start, start + ROWS)
        distance = squares - 2.0 * (spectra[rows] - origin) @ centred.T
        places = np.arange(len(distance))
        for one in without:
            distance[places, one[rows]] = np.inf
        chosen = np.argpartition(distance, count - 1, axis=1)[:, :count]
        means[rows] = library[chosen].mean(axis=1)
        first[rows] = chosen[places, distance[places[:, None], chosen].argmin(axis=1)]
    return means, first


@dataclass(frozen=True, eq=False)
class Excess:
    """What the residuals of measured spectra have beyond those of simulations.

    Attributes
    ----------
    amplitude : (D,) root of the mean square beyond, absorption undone. absorption : the factor that undid it, from 1.
    matched : (n, D) the simulations nearest to the measured spectra, with other nuisance.
    """

    amplitude: Array
    absorption: float
    matched: Array


def excess(spectra: Array, library: Array, fresh: Sequence[Array], kernel: Array, rng: np.random.Generator) -> Excess:
    """By how much spectra (n, D) are farther from a library (N, D) than simulations are.

    Bands are in the order of wavelength; ``fresh`` are draws (N, D) of the library with other nuisance; ``kernel`` is K
    (D, D). The nearest of a sparse library lie where it is denser: how much nearer to others these are than those that
    they are nearest to is told by the nearest of the nearest.
    """
    mean, first = nearest(spectra, library)
    measured = ((spectra - mean) ** 2).mean(axis=0)
    root = np.linalg.cholesky(kernel + JITTER * np.eye(len(kernel)))
    matched = [draw[first] for draw in fresh]
    curves = rng.standard_normal(spectra.shape) @ root.T

    def squares(made: Sequence[Array], *without: NDArray[np.intp]) -> Array:
        """Mean squares (D,) of residuals."""
        apart = [((one - nearest(one, library, without)[0]) ** 2).mean(axis=0) for one in made]
        return np.asarray(np.mean(apart, axis=0))

    null = squares(matched, first)
    second = nearest(matched[0], library, [first])[1]
    sparse = float(np.clip(null.sum() / squares([draw[second] for draw in fresh], first, second).sum(), 1.0, SPARSEST))
    over = measured - sparse * null
    averaged = uniform_filter1d(np.maximum(over, 0.0), NEIGHBOURING, mode="nearest")
    beyond = np.sqrt(np.maximum(averaged, 0.0))  # a running sum may round below zero
    factor, total = 1.0, float(over.sum())
    if total < NO_EXCESS * null.sum():
        return Excess(np.zeros_like(beyond), factor, matched[0])
    for _ in range(MATCHINGS):
        found = float((squares([one + factor * beyond * curves for one in matched], first) - null).sum())
        ratio = np.clip(total / found, 1.0 / LARGEST_MATCH, LARGEST_MATCH) if found > 0.0 else LARGEST_MATCH
        factor = float(np.clip(factor * np.sqrt(ratio), 1.0, ABSORBED))
    return Excess(factor * beyond, factor, matched[0])


@dataclass(frozen=True, eq=False)
class WindowAmplitudes:
    """Amplitudes (D,) that windows of bands were calibrated with, and q (W,) before and after.

    q is the mean of squared error over predictive variance of a window's bands, given all others: 1 where the model
    errs as much as it says. ``simulated`` is that of simulations, without discrepancy.
    """

    amplitude: Array
    before: Array
    after: Array
    simulated: Array


def calibrate_windows(
    mixture: SpectralMixture,
    spectra: Array,
    beyond: Excess,
    kernel: Array,
    parts: Sequence[NDArray[np.intp]],
) -> WindowAmplitudes:
    """Let the amplitude of windows of bands, ``parts``, grow until all are predicted as told.

    It grows from what spectra (n, D), complete, have ``beyond`` simulations, and only while they are predicted worse
    than simulations are: where these err q0 times the variance V0 that a model of few samples predicts, q becomes 1 +
    (q0 - 1) V0 / V under the variance V with a discrepancy. ``kernel`` is K (D, D).
    """

    def predicted(of: Array, added: Array | None = None) -> tuple[Array, list[Array]]:
        """q (W,) and the variances (n, m) of each window."""
        made = mixture.predict(of, parts, added)
        errors = [(of[:, window] - one.mean) ** 2 for window, one in zip(parts, made, strict=True)]
        q = [(error / one.variance).mean() for error, one in zip(errors, made, strict=True)]
        return np.array(q), [one.variance for one in made]

    def covariance() -> Array:
        return np.asarray(amplitude[:, None] * kernel * amplitude)

    signal, rows = np.sqrt((spectra**2).mean(axis=0)), slice(None, None, -(-len(spectra) // CALIBRATING))
    least = np.maximum(beyond.amplitude, LEAST_SIGNAL * signal)
    simulated, (before, plain) = predicted(beyond.matched)[0], predicted(spectra)
    amplitude = np.maximum(least, LEAST_START * signal)
    for _ in range(STEPS):
        former = amplitude.copy()
        for i, (q, variance) in enumerate(zip(*predicted(spectra[rows], covariance()), strict=True)):
            kept = float(np.minimum(plain[i][rows] / variance, 1.0).mean())
            ratio = q / (1.0 + max(simulated[i] - 1.0, 0.0) * kept)
            grown = amplitude[parts[i]] * np.clip(ratio, 1.0 / LARGEST_STEP, LARGEST_STEP) ** DAMPING
            amplitude[parts[i]] = np.maximum(least[parts[i]], grown)
        if np.abs(amplitude / former - 1.0).max() < SETTLED:
            break
    return WindowAmplitudes(amplitude, before, predicted(spectra, covariance())[0], simulated)
