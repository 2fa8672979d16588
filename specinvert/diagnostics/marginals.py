"""The posterior density of each parameter of one spectrum, in physical units, as a curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from specinvert.gllim.arrays import Array
    from specinvert.io.model import Model

STEP_LEVELS = tuple(np.round(np.arange(0.02, 0.99, 0.02), 2).tolist())
"""Quantiles between which the density of a part of a composition is drawn as constant."""

_ENDS = (0.002, 0.998)
_FINE, _EACH = 241, 41
_SEEN_WEIGHT = 1e-4


@dataclass(frozen=True)
class Marginal:
    """A density (m,) at values (m,), empty for a known parameter, with its mean and 90 % interval."""

    values: Array
    density: Array
    mean: float
    lower: float
    upper: float


def needed_outputs(model: Model) -> list[str]:
    """The outputs of an inversion that :func:`marginals` reads."""
    if not model.names:
        return []
    steps = [f"q{round(100 * level):02d}" for level in STEP_LEVELS] if _has_composition(model) else []
    return ["mean", "std", "ci90", *steps]


def marginals(model: Model, posterior: xr.Dataset, found: xr.Dataset) -> list[Marginal]:
    """Densities of all parameters, of the ``posterior`` of one spectrum and the outputs ``found`` for it.

    A transformed parameter t of z has the density of z at z(t), divided by dt/dz.  Of a part of a composition there
    is none in closed form: it is constant between the quantiles of ``STEP_LEVELS``.
    """
    made = []
    for i, name in enumerate(model.names):
        mean, lower, upper = (float(found[key]) for key in (name, f"{name}_ci90_lower", f"{name}_ci90_upper"))
        if float(found[f"{name}_std"]) == 0.0:
            curve: tuple[Array, Array] = np.empty(0), np.empty(0)
        elif model.transforms.entry(i).kind == "ilr":
            curve = _steps(np.array([float(found[f"{name}_q{100 * p:02.0f}"]) for p in STEP_LEVELS]))
        else:
            curve = _exact(model, posterior, i)
        made.append(Marginal(*curve, mean, lower, upper))
    return made


def intervals(model: Model, found: xr.Dataset) -> list[Marginal]:
    """Means and intervals alone, of the outputs ``found``: without densities."""
    nothing = np.empty(0)
    ends = ("", "_ci90_lower", "_ci90_upper")
    return [Marginal(nothing, nothing, *(float(found[f"{name}{end}"]) for end in ends)) for name in model.names]


def _has_composition(model: Model) -> bool:
    return any(entry.kind == "ilr" for entry in model.transforms.entries)


def _exact(model: Model, posterior: xr.Dataset, index: int) -> tuple[Array, Array]:
    from specinvert.gllim.quantiles import quantile

    transforms = model.transforms
    column = transforms.column(index)
    weights = np.asarray(posterior["weight"].values, dtype=np.float64)
    seen = weights > _SEEN_WEIGHT * weights.max()
    weights = weights[seen] / weights[seen].sum()
    means = posterior["mean"].values[seen, column]
    deviations = np.sqrt(posterior["covariance"].values[seen, column, column])
    low, high = quantile(weights[None], means[None], deviations[None] ** 2, list(_ENDS))[0]
    near = (means[:, None] + deviations[:, None] * np.linspace(-4.0, 4.0, _EACH)).ravel()
    z = np.unique(np.concatenate([np.linspace(low, high, _FINE), near[(near > low) & (near < high)]]))
    scaled = (z[:, None] - means) / deviations
    density = (np.exp(-0.5 * scaled**2) / (np.sqrt(2.0 * np.pi) * deviations)) @ weights
    slope = np.exp(transforms.entry(index).log_jacobian(z[:, None]))
    there = slope > 0.0  # a sqrt has an atom where z is negative
    return transforms.inverse_of(index, z)[there], density[there] / slope[there]


def _steps(quantiles: Array) -> tuple[Array, Array]:
    widths = np.diff(quantiles)
    mass = np.diff(np.array(STEP_LEVELS))
    wide = widths > 0.0
    density = mass[wide] / widths[wide]
    edges = np.stack([quantiles[:-1][wide], quantiles[1:][wide]], axis=1)
    return edges.ravel(), np.repeat(density, 2)
