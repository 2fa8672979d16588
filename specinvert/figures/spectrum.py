"""The posterior density of each parameter of one spectrum, in physical units, as a curve.

Figure of one spectrum: how the model fits it, and what it says about each parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import read_request, units_of
from ..inverter import GLLiMInverter, model_of
from .layout import BAND_COLOUR, DOT, MARK, SMALL, SOFT, TITLE, BandAxis, new_figure, short_units, title_of, with_units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from ..gllim.core import Array
    from ..model import Model


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
    from ..gllim.mixtures import quantile

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


_COLUMNS = 3
_FIT_HEIGHT, _ROW_HEIGHT = 4.2, 2.5
_LABELLED_WEIGHT = 1e-3


def plot_spectrum(
    inverter: GLLiMInverter,
    spectrum: xr.DataArray | xr.Dataset,
    noise: Any = None,
    known: Any = None,
    truth: Mapping[Any, Any] | None = None,
    *,
    band_dim: str | None = None,
    tolerance: float = 1.0,
) -> Figure:
    """Draw one spectrum with the model's fit and residuals, and the posterior of each parameter.

    The fit is the spectrum of the posterior mean of parameters and latents (output ``residual``).  The grey band
    about the residuals is two standard deviations to each side: of the model's noise, that of each component counted
    by its weight, and of `noise`.  Densities are those of the posterior mixture (eq. JGMM_inverse_map) in physical
    units, before any recalibration; the strip below each shows mean and 90 % interval in the range of training.

    Parameters
    ----------
    inverter
        A trained `GLLiMInverter`.
    spectrum
        One spectrum; dimensions beside the bands have size 1.
    noise, known, band_dim, tolerance
        As in `GLLiMInverter.invert`; for one spectrum.
    truth
        True values of parameters by name, to be marked; others are left out.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If the inverter is not fitted, there is more than one spectrum, too few of its bands are valid, or a
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
    from ..cubes import read_conditions

    model = model_of(inverter)
    request = read_request(spectrum, model.labels, band_dim, tolerance, rechunk="auto")
    others = {str(dim): size for dim, size in request.cube.sizes.items() if dim != request.band_dim}
    if any(size > 1 for size in others.values()):
        one = ", ".join(f"{dim}=0" for dim in others)
        raise ValueError(f"these are spectra over {others}: select one, as with .isel({one})")
    cube = request.cube.squeeze(list(others), drop=True).compute()
    options: dict[str, Any] = {"noise": noise, "known": known, "band_dim": request.band_dim, "tolerance": tolerance}
    found = inverter.invert(cube, outputs=["residual", "fit_rmse", *needed_outputs(model)], **options)
    residual = found["residual"].values.astype(np.float64)
    if not np.isfinite(residual).any():
        raise ValueError("too few bands of the spectrum are valid to invert it: choose another")
    posterior = inverter.posterior(cube, **options)
    request = replace(request, cube=cube)
    added = read_conditions(request, model.labels, noise, tolerance=tolerance)
    deviation = np.sqrt(noise_variance(model, posterior["weight"].values, added.variance))
    observed = np.where(np.isfinite(residual), cube.values.astype(np.float64)[request.bands], np.nan)

    rows = -(-len(model.names) // _COLUMNS)
    figure = new_figure(9.0, _FIT_HEIGHT + _ROW_HEIGHT * rows)
    if not rows:
        _draw_fit(figure, model, observed, residual, deviation)
        return figure
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[_FIT_HEIGHT, _ROW_HEIGHT * rows])[:, 0]
    _draw_fit(upper, model, observed, residual, deviation)
    shown = {} if truth is None else {name: float(truth[name]) for name in model.names if name in truth}
    _draw_parameters(lower, rows, model, marginals(model, posterior, found), shown)
    return figure


def noise_variance(model: Model, weights: np.ndarray, added: np.ndarray | None) -> np.ndarray:
    """Variances (D,) of the noise: Sigma of the components by their weights, and what the user adds."""
    each = iter(weights)
    total: np.ndarray = np.zeros(model.theta.n_bands)
    for theta in model.members:
        for k in range(theta.n_components):
            weight = next(each)
            if weight > _LABELLED_WEIGHT:
                dense = theta.structure.dense(theta.Sigma[k : k + 1], theta.n_bands)[0]
                total += weight * np.diagonal(dense)
    if added is None:
        return total
    total += np.diagonal(added) if added.ndim == 2 else added
    return total


def _draw_fit(
    figure: Figure | SubFigure, model: Model, observed: np.ndarray, residual: np.ndarray, deviation: np.ndarray
) -> None:
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
    figure: Figure | SubFigure, rows: int, model: Model, found: list[Marginal], truth: Mapping[str, float]
) -> None:
    columns = min(_COLUMNS, len(found))
    grid = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=[1.0, 0.1] * rows)
    for ax in grid.flat:
        ax.set_axis_off()
    for i, (name, marginal) in enumerate(zip(model.names, found, strict=True)):
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
