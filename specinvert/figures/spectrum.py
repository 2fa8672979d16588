"""Figure of one spectrum: how the model fits it, and what it says about each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import units_of
from ..inverter import Explanation, GLLiMInverter, Marginal, explain, inversion_of
from ..model import Model
from .layout import BAND_COLOUR, DOT, MARK, SMALL, SOFT, TITLE, BandAxis, new_figure, short_units, title_of, with_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


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

    The fit is the spectrum of the posterior mean of parameters and latents (output ``residual``). The grey band about
    the residuals is two standard deviations to each side: of the model's noise, that of each component counted by its
    weight, and of `noise`. Densities are those of the posterior mixture (eq. JGMM_inverse_map) in physical units,
    before any recalibration; the strip below each shows mean and 90 % interval in the range of training.

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
    >>> inverter = GLLiMInverter(3, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
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
    upper.set_ylabel(with_units(title_of(model.spectra_name), units))
    upper.legend(fontsize=SMALL, frameon=False, ncols=2)
    lower.fill_between(
        axis.x,
        axis.y(-2 * deviation),
        axis.y(2 * deviation),
        color=BAND_COLOUR,
        linewidth=0,
        label="± 2 std of the noise",
    )
    lower.axhline(0.0, color="black", linewidth=0.6)
    lower.plot(axis.x, axis.y(residual), color=DOT, linewidth=1.0, marker=axis.marker, label="observed less fitted")
    lower.set(xlabel=axis.label, ylabel=with_units("residual", units))
    lower.legend(fontsize=SMALL, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0.0, 1.28), borderpad=0)
    seen = np.isfinite(residual)
    inside = np.abs(residual[seen]) <= 2 * deviation[seen]
    rmse = float(np.sqrt((residual[seen] ** 2).mean()))
    upper.set_title(
        f"fit RMSE {rmse:.3g}{f' {short_units(units)}' if units else ''}; {100 * inside.mean():.0f} % of "
        f"{seen.sum()} bands within ± 2 std of the noise (95 % expected)",
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
    ax.set_title(f"{title}: {marginal.mean:.4g}{f' {short_units(units)}' if units else ''}", fontsize=TITLE)
    values, density = marginal.values, marginal.density
    ax.fill_between(values, density, color=DOT, alpha=0.12, linewidth=0)
    held = (values >= marginal.lower) & (values <= marginal.upper)
    ax.fill_between(values, density, where=held, color=DOT, alpha=0.3, linewidth=0, label="90 % interval")
    ax.plot(values, density, color=DOT, linewidth=1.4, label="posterior density")
    ax.axvline(marginal.mean, color="black", linewidth=1.0, label="mean")
    if true is not None:
        ax.axvline(true, color=MARK, linewidth=1.4, linestyle="--", label="true")
    if not values.size:
        ax.text(0.5, 0.5, "known", transform=ax.transAxes, ha="center", fontsize=SMALL, color=SOFT)
    ax.set(yticks=[], ylim=(0.0, None))
    ax.tick_params(labelsize=SMALL)


def _draw_range(ax: Axes, marginal: Marginal, trained: tuple[float, float], units: str) -> None:
    """A strip: the range of training in grey, the 90 % interval and the mean on it."""
    low, high = min(trained[0], marginal.lower), max(trained[1], marginal.upper)
    margin = 0.02 * (high - low) or 1.0
    ax.plot(trained, (0, 0), color="0.75", linewidth=5, solid_capstyle="butt")
    ax.plot((marginal.lower, marginal.upper), (0, 0), color=DOT, linewidth=5, solid_capstyle="butt")
    ax.plot(marginal.mean, 0, "|", color="black", markersize=8)
    ax.set(xlim=(low - margin, high + margin), ylim=(-1, 1))
    ends = " to ".join(f"{end:.0f}" if 1e3 <= abs(end) < 1e5 else f"{end:.3g}" for end in trained)
    text = f"in the training range, {ends}{f' {short_units(units)}' if units else ''}"
    ax.text(0.5, -0.6, text, transform=ax.transAxes, ha="center", va="top", fontsize=SMALL, color=SOFT)
