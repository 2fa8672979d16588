"""Figures of spectra: those of a training set, with the convergence of EM on them, and one as the model explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import (
    describe_bands,
    find_band_dim,
    find_spectra,
    parameter_names,
    require_numbers,
    subsample,
    units_of,
)
from ..inverter import Explanation, GLLiMInverter, Marginal, explain, inversion_of, model_of
from ..model import Model
from .layout import (
    BAND_COLOUR,
    DOT,
    MARK,
    SMALL,
    SOFT,
    TITLE,
    BandAxis,
    in_units,
    new_figure,
    panel_grid,
    robust_limits,
    spans_decades,
    title_of,
    with_units,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

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
    names = parameter_names(training, parameters, array, dim, None)
    for name in names:
        require_numbers(training[name], f"parameter {name!r}")

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
    >>> inverter = GLLiMInverter(3, n_latent=0, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
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


_COLUMNS = 3
_FIT_HEIGHT, _ROW_HEIGHT = 4.2, 2.5


def plot_spectrum(
    inverter: GLLiMInverter,
    spectrum: xr.DataArray | xr.Dataset,
    noise: Any = None,
    known: Any = None,
    truth: Mapping[Any, Any] | None = None,
    **options: Any,
) -> Figure:
    """Draw one spectrum with the model's fit and residuals, and the posterior of each parameter.

    The fit is the mean of the spectra that the components reconstruct (output ``residual``). The band behind it is what
    bands of other windows predict, which a fit that follows an error does not show. The grey band about
    the residuals is two standard deviations to each side: of the model's noise, that of each component counted by its
    weight, and of `noise`. Densities are those of the posterior mixture (eq. JGMM_inverse_map) in physical units,
    before any recalibration; the strip below each shows estimate and 90 % interval in the range of training.

    Parameters
    ----------
    inverter : a trained `GLLiMInverter`.
    spectrum : one spectrum; dimensions beside the bands have size 1.
    noise, known : as in `GLLiMInverter.invert`, for one spectrum.
    truth : true values of parameters by name, to be marked; others are left out.
    options : further ones of `GLLiMInverter.invert`, such as `band_dim` and `tolerance`.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : the inverter is not fitted, there is more than one spectrum, too few of its bands are valid, or a
        parameter is known by an interval.

    Examples
    --------
    >>> from specinvert import GLLiMInverter
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, n_latent=0, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
    >>> figure = plot_spectrum(inverter, training["reflectance"][:1], noise=0.005)
    >>> len(figure.axes)
    4
    """
    inversion = inversion_of(inverter, noise=noise, known=known, **options)
    return draw_spectrum(inversion.model, explain(inversion, spectrum), truth)


def draw_spectrum(model: Model, explained: Explanation, truth: Mapping[Any, Any] | None = None) -> Figure:
    """Draw a spectrum that was explained: see :func:`plot_spectrum`."""
    if not explained.is_inverted:
        raise ValueError("too few bands of the spectrum are valid to invert it: choose another")
    if explained.residual is None:
        raise ValueError("a parameter is known by an interval, and then there are no residuals to draw")
    rows = -(-len(model.names) // _COLUMNS)
    figure = new_figure(9.0, _FIT_HEIGHT + _ROW_HEIGHT * rows)
    if not rows:
        _draw_fit(figure, model, explained)
        return figure
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[_FIT_HEIGHT, _ROW_HEIGHT * rows])[:, 0]
    _draw_fit(upper, model, explained)
    shown = {} if truth is None else {name: float(truth[name]) for name in model.names if name in truth}
    _draw_parameters(lower, rows, model, explained.marginals, shown)
    return figure


def _draw_fit(figure: Figure | SubFigure, model: Model, explained: Explanation) -> None:
    observed, residual, deviation = explained.observed, explained.residual, explained.deviation
    assert residual is not None
    assert deviation is not None
    axis = BandAxis.of(model.bands)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    units = units_of({"units": model.spectra_units})
    upper.plot(axis.x, axis.y(observed), color="black", linewidth=1.4, marker=axis.marker, label="observed")
    upper.plot(axis.x, axis.y(observed - residual), color=MARK, linewidth=1.2, linestyle="--", label="fitted")
    misfits = ""
    if explained.expected is not None:
        low, high = axis.y(explained.expected.low), axis.y(explained.expected.high)
        label = "from bands of other windows, ± 2 std"
        upper.fill_between(axis.x, low, high, color=MARK, alpha=0.18, linewidth=0, label=label, zorder=0)
        misfits = "".join(f"\nnot what other windows predict: {text}" for text in explained.expected.misfits)
    upper.set_ylabel(with_units(title_of(model.spectra_name), units))
    upper.legend(fontsize=SMALL, frameon=False, ncols=3)
    spread = axis.y(2 * deviation)
    lower.fill_between(axis.x, -spread, spread, color=BAND_COLOUR, linewidth=0, label="± 2 std of the noise")
    lower.axhline(0.0, color="black", linewidth=0.6)
    lower.plot(axis.x, axis.y(residual), color=DOT, linewidth=1.0, marker=axis.marker, label="observed less fitted")
    lower.set(xlabel=axis.label, ylabel=with_units("residual", units))
    lower.legend(fontsize=SMALL, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0.0, 1.28), borderpad=0)
    seen = np.isfinite(residual)
    inside = np.abs(residual[seen]) <= 2 * deviation[seen]
    rmse = float(np.sqrt((residual[seen] ** 2).mean()))
    upper.set_title(
        f"fit RMSE {in_units(f'{rmse:.3g}', units)}; {100 * inside.mean():.0f} % of "
        f"{seen.sum()} bands within ± 2 std of the noise (95 % expected){misfits}",
        fontsize=TITLE,
    )
    for ax in (upper, lower):
        ax.tick_params(labelsize=SMALL)


def _draw_parameters(
    figure: Figure | SubFigure, rows: int, model: Model, marginals: list[Marginal], truth: Mapping[str, float]
) -> None:
    columns = min(_COLUMNS, len(marginals))
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[1.0, 0.1] * rows)
    for ax in grid.flat:
        ax.set_axis_off()
    for i, (name, marginal) in enumerate(zip(model.names, marginals, strict=True)):
        row, column = divmod(i, columns)
        upper, lower = grid[2 * row, column], grid[2 * row + 1, column]
        units = units_of(model.attrs[name])
        _draw_density(upper, marginal, title_of(name), units, truth.get(name))
        _draw_range(lower, marginal, (float(model.low[i]), float(model.high[i])), units)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False)


def _draw_density(ax: Axes, marginal: Marginal, title: str, units: str, true: float | None) -> None:
    ax.set_axis_on()
    ax.set_title(f"{title}: {in_units(f'{marginal.estimate:.4g}', units)}", fontsize=TITLE)
    values, density = marginal.values, marginal.density
    ax.fill_between(values, density, color=DOT, alpha=0.12, linewidth=0)
    held = (values >= marginal.lower) & (values <= marginal.upper)
    ax.fill_between(values, density, where=held, color=DOT, alpha=0.3, linewidth=0, label="90 % interval")
    ax.plot(values, density, color=DOT, linewidth=1.4, label="posterior density")
    ax.axvline(marginal.estimate, color="black", linewidth=1.0, label="estimate")
    if true is not None:
        ax.axvline(true, color=MARK, linewidth=1.4, linestyle="--", label="true")
    if not values.size:
        ax.text(0.5, 0.5, "known", transform=ax.transAxes, ha="center", fontsize=SMALL, color=SOFT)
    ax.set(yticks=[], ylim=(0.0, None))
    ax.tick_params(labelsize=SMALL)


def _draw_range(ax: Axes, marginal: Marginal, trained: tuple[float, float], units: str) -> None:
    """A strip: the range of training in grey, the 90 % interval and the estimate on it."""
    low, high = min(trained[0], marginal.lower), max(trained[1], marginal.upper)
    margin = 0.02 * (high - low) or 1.0
    ax.plot(trained, (0, 0), color="0.75", linewidth=5, solid_capstyle="butt")
    ax.plot((marginal.lower, marginal.upper), (0, 0), color=DOT, linewidth=5, solid_capstyle="butt")
    ax.plot(marginal.estimate, 0, "|", color="black", markersize=8)
    ax.set(xlim=(low - margin, high + margin), ylim=(-1, 1))
    ends = " to ".join(f"{end:.0f}" if 1e3 <= abs(end) < 1e5 else f"{end:.3g}" for end in trained)
    text = f"in the training range, {in_units(ends, units)}"
    ax.text(0.5, -0.6, text, transform=ax.transAxes, ha="center", va="top", fontsize=SMALL, color=SOFT)
