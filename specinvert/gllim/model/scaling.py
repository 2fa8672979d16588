"""Moments of the training data, and the units in which EM works.

EM runs on data shifted to their mean and, where ``standardize`` asks for it, divided by a scale: expanded
squares cancel otherwise. Moments merge by the pairwise update of mean and squared deviations, so an offset costs
no digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core import Array, Workspace, scale_rows
from .parameters import GLLiMParameters
from .structure import Structure


@dataclass(frozen=True)
class Moments:
    """Weighted mean, sum of squared deviations and range of each column, over a number of rows."""

    n_rows: int
    weight: float
    mean: Array
    squared: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, values: Array, weights: Array) -> Moments:
        """Moments of values (n, m) under frequencies weights (n,)."""
        total = float(weights.sum())
        if len(values) == 0 or total == 0.0:
            nothing = np.zeros(values.shape[1])
            return cls(len(values), 0.0, nothing, nothing, nothing + np.inf, nothing - np.inf)
        mean = weights @ values / total
        counted = values[weights > 0]
        return cls(len(values), total, mean, weights @ (values - mean) ** 2, counted.min(axis=0), counted.max(axis=0))

    def __add__(self, other: Moments) -> Moments:
        total = self.weight + other.weight
        share = other.weight / total if total > 0 else 0.0
        gap = other.mean - self.mean
        return Moments(
            self.n_rows + other.n_rows,
            total,
            self.mean + share * gap,
            self.squared + other.squared + gap**2 * (self.weight * share),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def variance(self) -> Array:
        """Weighted variance of each column (frequencies: divided by the sum of weights)."""
        return self.squared / self.weight

    def arrays(self) -> tuple[Array, ...]:
        """Mean, squared deviations, least and greatest value of each column."""
        return self.mean, self.squared, self.low, self.high


@dataclass(frozen=True)
class Scaling:
    """Affine units: user's value = scale * scaled value + shift, for spectra (D,) and parameters (L_t,)."""

    spectra_shift: Array
    spectra_scale: Array
    parameters_shift: Array
    parameters_scale: Array

    @classmethod
    def from_moments(
        cls, spectra: Moments, parameters: Moments, kind: type[Structure], standardize: bool, centre: bool = True
    ) -> Scaling:
        """Shift to the means unless not to ``centre``; scales of one where not ``standardize``.

        Each band has its own deviation, unless the kind of Sigma's structure asks for common ones: an iso Sigma for the
        root mean variance.
        """
        if not standardize:
            scales = np.ones_like(spectra.mean), np.ones_like(parameters.mean)
        else:
            scales = np.sqrt(kind.common_scale(spectra.variance)), np.sqrt(parameters.variance)
        if not centre:
            return cls(np.zeros_like(spectra.mean), scales[0], np.zeros_like(parameters.mean), scales[1])
        return cls(spectra.mean, scales[0], parameters.mean, scales[1])

    def inverse(self) -> Scaling:
        """The scaling that undoes this one."""
        return Scaling(
            -self.spectra_shift / self.spectra_scale,
            1.0 / self.spectra_scale,
            -self.parameters_shift / self.parameters_scale,
            1.0 / self.parameters_scale,
        )

    @property
    def log_volume(self) -> float:
        """Log of the volume element: subtract it, a sample, from a scaled log-density."""
        return self.spectral_log_volume + float(np.log(self.parameters_scale).sum())

    @property
    def spectral_log_volume(self) -> float:
        """Log of the volume element of the spectra alone."""
        return float(np.log(self.spectra_scale).sum())

    def apply(self, spectra: Array, parameters: Array, workspace: Workspace | None = None) -> tuple[Array, Array]:
        """Spectra (n, D) and parameters (n, L_t) of any float type to scaled float64, in ``workspace`` if given."""
        place = Workspace() if workspace is None else workspace
        scaled = place.array("spectra", *spectra.shape), place.array("parameters", *parameters.shape)
        scale_rows(spectra, self.spectra_shift, self.spectra_scale, scaled[0])
        scale_rows(parameters, self.parameters_shift, self.parameters_scale, scaled[1])
        return scaled

    def to_user(self, theta: GLLiMParameters) -> GLLiMParameters:
        """Theta of scaled data as theta of the user's data: the same density up to the volume element.

        Sigma may change its structure: an iso one under different band scales becomes diag.
        """
        latent = np.ones(theta.n_latent)
        x_scale = np.concatenate([self.parameters_scale, latent])
        x_shift = np.concatenate([self.parameters_shift, 0.0 * latent])
        structure, sigma = theta.structure.rescale(theta.Sigma, self.spectra_scale)
        maps = self.spectra_scale[:, None] * theta.A / x_scale
        return replace(
            theta,
            c=theta.c * x_scale + x_shift,
            Gamma=theta.Gamma * np.outer(x_scale, x_scale),
            A=maps,
            b=self.spectra_scale * theta.b + self.spectra_shift - maps @ x_shift,
            Sigma=sigma,
            constraints=theta.constraints.with_structure(structure),
        )
