"""Figures of training: what the training set holds, and how EM converged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..cubes import describe_bands, find_band_dim, find_spectra, require_numbers, subsample, units_of
from ..inverter import GLLiMInverter, model_of
from .layout import (
    DOT,
    SMALL,
    TITLE,
    BandAxis,
    new_figure,
    panel_grid,
    robust_limits,
    spans_decades,
    title_of,
    with_units,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_SAMPLES = 4000
"""Spectra that percentiles are of, chosen at random with a fixed seed where there are more."""

PERCENTILES = (5, 25, 50, 75, 95)
_BINS = 40


def plot_training(
    training: xr.Dataset,
    spectra: str | None = None,
    parameters: Sequence[str] | None = None,
    band_dim: str | None = None,
) -> Figure:
    """Draw a training set: percentiles of its spectra band by band, and the histogram of each parameter.

    Percentiles are of at most 4000 spectra, a random choice that is always the same; of lazy spectra only these are
    read. Histograms are of all samples, on a logarithmic axis where all are positive and span more than two decades.

    Parameters
    ----------
    training : spectra and parameters as `GLLiMInverter.fit` takes them.
    spectra, parameters, band_dim : as in `GLLiMInverter.fit`, with its defaults.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : the spectra are not to be found, are empty, or a parameter is missing or no number.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> figure = plot_training(simulate_mixtures(50), parameters=["ice_fraction", "grain_size"])
    >>> len(figure.axes) > 1
    True
    """
    array, dim, rows = sampled_spectra(training, spectra, band_dim)
    names = _names(training, array, dim, parameters)

    columns = min(max(len(names), 1), 3)
    panel_rows = -(-len(names) // 3)
    figure = new_figure(9.0, 3.2 + 2.3 * panel_rows)
    layout = figure.add_gridspec(1 + panel_rows, columns, height_ratios=[3.2, *[2.3] * panel_rows])
    _draw_spectra(figure.add_subplot(layout[0, :]), BandAxis.of(describe_bands(array, dim)), rows, array)
    for i, name in enumerate(names):
        ax = figure.add_subplot(layout[1 + i // columns, i % columns])
        _draw_histogram(ax, training[name].values.ravel().astype(np.float64))
        ax.set_xlabel(with_units(title_of(name), units_of(training[name].attrs)), fontsize=9)
        ax.tick_params(labelsize=SMALL)
        if i % columns == 0:
            ax.set_ylabel("samples", fontsize=9)
    return figure


def plot_convergence(inverter: GLLiMInverter) -> Figure:
    """Draw the gain of each EM iteration in log-likelihood, nats a sample, beside the tolerance that stops it.

    Parameters
    ----------
    inverter : a trained `GLLiMInverter`; of a committee, the first member is drawn.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : the inverter is not fitted.

    Examples
    --------
    >>> from specinvert import GLLiMInverter
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
    >>> plot_convergence(inverter).axes[0].get_xlabel()
    'iteration'
    """
    model = model_of(inverter)
    curve = np.asarray(model.log_likelihoods, dtype=np.float64) / model.total_weight
    iterations = np.arange(1, curve.size + 1)
    figure, (left, right) = panel_grid(2, 4.4, 3.0)
    left.plot(iterations, curve, ".-", color=DOT, markersize=3, linewidth=1.2)
    left.set(xlabel="iteration", ylabel="log-likelihood (nats a sample)")
    gains = np.diff(curve)
    rising = gains > 0
    right.semilogy(iterations[1:][rising], gains[rising], ".-", color=DOT, markersize=3, linewidth=1.2)
    tol = float(model.settings.get("tol", 0.0))
    if tol > 0:
        right.axhline(tol, color="black", linewidth=0.8, linestyle="--", label=f"tol = {tol:g}")
        right.legend(fontsize=SMALL, frameon=False)
    right.set(xlabel="iteration", ylabel="gain (nats a sample)")
    left.set_title("converged" if model.converged else "not converged", fontsize=TITLE)
    return figure


def sampled_spectra(
    training: xr.Dataset, spectra: str | None = None, band_dim: str | None = None
) -> tuple[xr.DataArray, str, np.ndarray]:
    """The spectra of a training set, their band dimension, and at most MAX_SAMPLES of them as rows (n, D)."""
    array = require_numbers(find_spectra(training, spectra, band_dim), "spectra")
    dim = find_band_dim(array, band_dim)
    if 0 in array.shape:
        raise ValueError(f"the training spectra are empty: {dict(array.sizes)}")
    some = subsample(array, [d for d in array.dims if d != dim], MAX_SAMPLES)
    return array, dim, some.transpose(..., dim).values.reshape(-1, array.sizes[dim])


def _names(training: xr.Dataset, array: xr.DataArray, dim: str, parameters: Sequence[str] | None) -> list[str]:
    from ..cubes import parameter_names

    names = parameter_names(training, parameters, array, dim, None)
    for name in names:
        require_numbers(training[name], f"parameter {name!r}")
    return names


def _draw_histogram(ax: Axes, values: np.ndarray) -> None:
    seen = values[np.isfinite(values)]
    edges = np.histogram_bin_edges(seen, _BINS)
    if spans_decades(seen, robust_limits(seen)):
        edges = np.geomspace(seen.min(), seen.max(), _BINS + 1)
        ax.set_xscale("log")
    ax.hist(seen, bins=edges.tolist(), color=DOT, alpha=0.6)


def _draw_spectra(ax: Axes, axis: BandAxis, rows: np.ndarray, array: xr.DataArray) -> None:
    curves = _percentiles(rows)
    for outer, alpha in ((0, 0.2), (1, 0.4)):
        low, high = curves[outer], curves[-1 - outer]
        label = f"{PERCENTILES[outer]} to {PERCENTILES[-1 - outer]} % of spectra"
        ax.fill_between(axis.x, axis.y(low), axis.y(high), color=DOT, alpha=alpha, linewidth=0, label=label)
    ax.plot(axis.x, axis.y(curves[2]), color="black", linewidth=1.2, marker=axis.marker, label="median")
    ax.set(xlabel=axis.label, ylabel=with_units(title_of(array.name or "spectra"), units_of(array.attrs)))
    ax.set_title(f"{len(rows):,} spectra", fontsize=TITLE)
    ax.tick_params(labelsize=SMALL)
    ax.legend(fontsize=SMALL, frameon=False, ncols=3)


def _percentiles(rows: np.ndarray) -> np.ndarray:
    """PERCENTILES (5, D) of the finite values of every band, NaN where a band has none."""
    values = np.where(np.isfinite(rows), rows, np.nan).astype(np.float64)
    percentiles = np.full((len(PERCENTILES), values.shape[1]), np.nan)
    some = np.isfinite(values).any(axis=0)
    percentiles[:, some] = np.nanpercentile(values[:, some], PERCENTILES, axis=0)
    return percentiles
