"""The paper's synthetic functions f, g and h (section "High-dimensional Function Inversion"), and a fit to one of them.

Functions map t, observed, and w, hidden, to D bands with noise; the fit is to estimate t of test spectra.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from common import Record, error_record, failures
from methods import Kernel, unfitted

from specinvert.gllim import GLLiM

N_BANDS, N_TRAIN, N_TEST, SNR_DB, N_COMPONENTS, MAX_LATENT = 50, 200, 200, 6.0, 5, 10
EXTREME = 10.0 / 3.0
"""Errors above a third of the range of t are extreme."""
STARTS = ("kmeans", "kmeans-joint")
TRUE_LATENT = {"f": 1, "g": 1, "h": 2}
PAPER_KERNEL: Kernel = ("linear_spline", 8.0)
"""The relevance vector machine's best of 140 in the paper."""


def draw_function(
    kind: str, seed: int, n_bands: int = N_BANDS, snr: float = SNR_DB
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training t (N,) and y (N, D), test t and y, of one random function of a kind ("f", "g" or "h"); snr in dB."""
    rng = np.random.default_rng([ord(kind), seed])
    amplitude, frequency, phase, mixing, cubic = (
        rng.uniform(0.0, top, n_bands) for top in (2.0, 4.0 * np.pi, 2.0 * np.pi, np.pi, 2.0)
    )

    def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
        t, w = rng.uniform(0.0, 10.0, n), rng.uniform(-1.0, 1.0, (n, 2))
        angle = frequency * t[:, None] / 10.0 + phase
        if kind != "f":
            angle = angle + mixing * w[:, :1]
        y = amplitude * np.cos(angle)
        if kind != "g":
            y = y + cubic * w[:, 1:] ** 3
        return t, y

    (t, y), (t_test, y_test) = sample(N_TRAIN), sample(N_TEST)
    deviation = np.sqrt(np.mean(y**2) / 10.0 ** (snr / 10.0))
    noise = deviation * rng.standard_normal((N_TRAIN + N_TEST, n_bands))
    return t, y + noise[:N_TRAIN], t_test, y_test + noise[N_TRAIN:]


@dataclass(frozen=True)
class Trial:
    """A method fitted to one random function; ``start`` is GLLiM's."""

    kind: str
    seed: int
    method: str
    start: str = "kmeans"
    n_components: int = N_COMPONENTS
    n_bands: int = N_BANDS
    snr: float = SNR_DB

    @property
    def key(self) -> str:
        """What differs from the settings of the paper's table is named."""
        parts = [self.kind, str(self.seed), self.method]
        defaults = (("start", "kmeans"), ("n_components", N_COMPONENTS), ("n_bands", N_BANDS), ("snr", SNR_DB))
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults if getattr(self, name) != value]
        return " ".join(parts)


def run_trial(trial: Trial) -> Record:
    """Errors of t on the test spectra, and GLLiM's BIC."""
    t, y, t_test, y_test = draw_function(trial.kind, trial.seed, trial.n_bands, trial.snr)
    record: Record = {}
    with failures(record):
        gllim = {"n_components": trial.n_components, "sigma": "iso", "tied_sigma": True, "init": trial.start}
        model = unfitted(trial.method, trial.seed, gllim, jgmm={"n_components": trial.n_components}).fit(y, t)
        record |= error_record(model.predict(y_test).ravel() - t_test, EXTREME)
        if isinstance(model, GLLiM):
            record["bic"] = round(model.bic_, 2)
    return record
