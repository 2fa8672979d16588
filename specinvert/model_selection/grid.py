"""Fits of a grid, each scored on the samples that it was fitted to and on those held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from time import perf_counter

import numpy as np

from ..cubes import BlockInverter, Domain, Predictor, TrainingSet, declare_outputs
from ..gllim.core import hold_out, one_blas_thread
from ..gllim.em import Chunk, ChunkSource, Settings, check_data, density_and_entropy, moments_of, train
from ..gllim.model import GLLiMParameters, Moments, aic, bic, icl
from ..inverter import column_names

NUMBERS = {
    "log_likelihood": ("observed log-likelihood of the training spectra and parameters", "1"),
    "n_free_parameters": ("free parameters, rotations of the latents counted", "1"),
    "bic": ("Bayesian information criterion, smaller is better", "1"),
    "aic": ("Akaike information criterion, smaller is better", "1"),
    "icl": ("integrated completed likelihood, smaller is better", "1"),
    "held_out_log_likelihood": ("mean log density of a held-out spectrum and its parameters, larger is better", "1"),
    "n_iter": ("EM iterations", "1"),
    "n_removed": ("components removed as degenerate", "1"),
    "seconds": ("wall time of the fit and its scores", "s"),
}
"""Numbers of a fit, with what they are and their units."""


@dataclass(frozen=True)
class _Scores:
    """Sums over samples: of weights, of log densities, of entropies of responsibilities, of squared errors (L_t,)."""

    weight: float
    log_density: float
    entropy: float
    squared_error: np.ndarray
    truth: Moments

    def __add__(self, other: _Scores) -> _Scores:
        return _Scores(*(getattr(self, own.name) + getattr(other, own.name) for own in fields(self)))

    @property
    def nrmse(self) -> np.ndarray:
        """(L_t,), NaN where the truth is constant."""
        varied = self.truth.high > self.truth.low
        return np.sqrt(np.where(varied, self.squared_error, np.nan) / np.where(varied, self.truth.squared, 1.0))


@dataclass(frozen=True, eq=False)
class GridCell:
    """One cell of the grid: its numbers by name, and why there are none."""

    values: dict[str, float]
    nrmse: np.ndarray
    converged: bool = False
    failure: str = ""


@dataclass(frozen=True, eq=False)
class GridJob:
    """What a fit needs: ``data``, whose source holds the samples to fit, and those held out, if any."""

    data: TrainingSet
    held_out: ChunkSource | None

    @classmethod
    def of(cls, data: TrainingSet, share: float | None) -> GridJob:
        """Hold out a share of the samples, or none."""
        if share is None:
            return cls(data, None)
        rest, held = (data.where(partial(_chosen, share=share, held=wanted)) for wanted in (False, True))
        return cls(rest, held.source)

    def check(self, settings: Sequence[Settings]) -> tuple[int, int]:
        """Raise ValueError where a fit makes no sense; else the numbers of samples fitted and held out."""
        n_t = self.data.transforms.n_transformed
        moments = self.data.source.sum(moments_of)
        n, n_bands = moments.spectra.n_rows, len(moments.spectra.mean)
        n_held_out = 0
        if self.held_out is not None:
            held = self.held_out.sum(moments_of).spectra
            n_held_out = held.n_rows
            if not held.weight > 0:
                raise ValueError(
                    f"no sample of weight above zero is held out of {n + n_held_out}: raise held_out, or pass "
                    "held_out=None and choose by 'bic', 'aic' or 'icl'"
                )
        for own in settings:
            if own.n_latent == 0 and n_t == 0:
                raise ValueError("parameters=[] is unsupervised: n_latent must list numbers from 1 up")
            if own.n_components * (n_t + 2) > n:
                raise ValueError(
                    f"n_components={own.n_components} components of {n_t + 2} samples or more (L_t + 2) need "
                    f"{own.n_components * (n_t + 2)} samples, there are {n}"
                    + (f" when {n_held_out} are held out" if n_held_out else "")
                )
            own.latent_dimensions(n_bands)
            own.constraints.check_bands(n_bands)
            check_data(moments, own, None, column_names(self.data))
        return n, n_held_out

    def fit(self, settings: Settings) -> GridCell:
        """Fit and score one cell; a fit that degenerates has no numbers but the reason."""
        begun = perf_counter()
        nothing = np.full(len(self.data.parameters), np.nan)
        try:
            training = train(self.data.source, settings, None, column_names(self.data))
        except (ValueError, np.linalg.LinAlgError) as error:
            values = dict.fromkeys(NUMBERS, np.nan) | {"seconds": perf_counter() - begun}
            return GridCell(values, nothing, failure=str(error))
        fit = training.fit
        likelihood, n_free, total = fit.log_likelihoods[-1], fit.parameters.n_free, fit.total_weight
        with one_blas_thread():
            scores = self.data.source.sum(partial(_score, fit.parameters))
            held = None if self.held_out is None else self.held_out.sum(self._held_out_score(fit.parameters))
        return GridCell(
            {
                "log_likelihood": likelihood,
                "n_free_parameters": n_free,
                "bic": bic(likelihood, n_free, total),
                "aic": aic(likelihood, n_free),
                "icl": icl(likelihood, n_free, total, scores.entropy),
                "held_out_log_likelihood": np.nan if held is None else held.log_density / held.weight,
                "n_iter": fit.n_iter,
                "n_removed": fit.n_removed,
                "seconds": perf_counter() - begun,
            },
            nothing if held is None else held.nrmse,
            fit.converged,
        )

    def _held_out_score(self, theta: GLLiMParameters) -> Callable[[Chunk], _Scores]:
        data, n_bands = self.data, theta.n_bands
        declared = declare_outputs(("estimate",), data.parameters, theta.n_latent) if data.parameters else []
        predictor = Predictor((theta,), data.transforms, Domain(data.low, data.high))
        kernel = BlockInverter(predictor, np.arange(n_bands), tuple(declared), np.dtype(np.float64))
        return partial(_score, theta, kernel=kernel)


def _chosen(chunk: Chunk, share: float, held: bool) -> np.ndarray:
    """Rows that are held out, or all others, by a hash of their values."""
    chosen = hold_out(share, chunk.parameters, chunk.spectra)
    return chosen if held else ~chosen


def _score(theta: GLLiMParameters, chunk: Chunk, kernel: BlockInverter | None = None) -> _Scores:
    """The scores of a chunk; errors of the estimates that ``kernel`` makes, if it is given."""
    density, entropy = density_and_entropy(theta, chunk.spectra, chunk.parameters)
    truth: np.ndarray = np.empty((len(chunk), 0))
    error: np.ndarray = np.zeros(0)
    if kernel is not None and kernel.outputs:
        truth = kernel.predictor.transforms.inverse(chunk.parameters)
        error = chunk.weights @ (np.stack(kernel(chunk.spectra), axis=1) - truth) ** 2
    return _Scores(
        float(chunk.weights.sum()),
        float(chunk.weights @ density),
        float(chunk.weights @ entropy),
        error,
        Moments.of(truth, chunk.weights),
    )
