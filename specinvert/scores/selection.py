"""Of fits over a grid of K and L_w, as :func:`specinvert.select_model` makes: which is the best, and at what edge."""

from __future__ import annotations

import numpy as np
import xarray as xr

from .metrics import aligned, format_number

CRITERIA = {"bic": "bic", "aic": "aic", "icl": "icl", "held_out": "held_out_log_likelihood"}
"""The variable of each criterion; the greatest held-out likelihood is the best, the least of the others."""

AXES = ("n_components", "n_latent")

_SHOWN = ("log_likelihood", "n_free_parameters", *CRITERIA.values(), "n_iter", "converged", "n_removed", "seconds")


def require_criterion(criterion: str) -> None:
    """Raise ValueError where there is no such criterion."""
    if criterion not in CRITERIA:
        raise ValueError(f"criterion={criterion!r} is not one of {', '.join(map(repr, CRITERIA))}")


def scores_of(table: xr.Dataset, criterion: str) -> np.ndarray:
    """The criterion (n_components, n_latent), NaN where a fit failed; ValueError where there is none at all."""
    require_criterion(criterion)
    scores = np.asarray(table[CRITERIA[criterion]].transpose(*AXES).values, dtype=np.float64)
    if not np.isfinite(scores).any():
        raise ValueError(f"the table holds no {criterion}: no fit succeeded, or no spectra were held out")
    return scores


def best_of(table: xr.Dataset, criterion: str) -> tuple[int, int]:
    """Indices of the best K and L_w; of equals, those of the smaller K, then the smaller L_w."""
    scores = scores_of(table, criterion)
    costs = np.where(np.isfinite(scores), -scores if criterion == "held_out" else scores, np.inf)
    row, column = np.unravel_index(int(costs.argmin()), costs.shape)
    return int(row), int(column)


def edges_of(table: xr.Dataset, best: tuple[int, int], n_bands: int) -> list[str]:
    """In words, each edge of the grid that the best lies at, beyond which other values could be tried.

    An axis of one value has no edge; neither K = 1, L_w = 0 nor L_w = D - 1 is one.
    """
    edges = []
    for name, index, least, most in zip(AXES, best, (1, 0), (np.inf, n_bands - 1), strict=True):
        values = table[name].values
        value = int(values[index])
        if len(values) > 1 and value == values[-1] and value < most:
            edges.append(f"{name}={value} is the largest tried: try larger ones")
        elif len(values) > 1 and value == values[0] and value > least:
            edges.append(f"{name}={value} is the smallest tried: try smaller ones")
    return edges


def format_selection(table: xr.Dataset, criterion: str) -> str:
    """Lay out the table as aligned plain text, a heading and one line a fit, the best marked with a star."""
    best = best_of(table, criterion)
    rows = [["", *AXES, *_SHOWN]]
    for place in np.ndindex(*(table.sizes[name] for name in AXES)):
        cell = table.isel(dict(zip(AXES, place, strict=True)))
        values = [_cell(cell[name].item()) for name in (*AXES, *_SHOWN)]
        rows.append(["*" if place == best else "", *values])
    return aligned(rows, 0)


def _cell(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if np.isnan(value):
        return "-"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 1e4 else format_number(value)
