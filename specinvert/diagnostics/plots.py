"""Figures of parameter maps and of estimates against the truth.

matplotlib is an extra: it is imported inside the functions, and only through its object-oriented interface,
so no global state and no window is touched.  At module level: NumPy, xarray, `metrics` and `io.atomic`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from specinvert.diagnostics.metrics import paired, shared_parameters
from specinvert.io.atomic import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_SIDE = 1000
"""Maps with more pixels a side are drawn with a stride."""

MAX_POINTS = 4000
MAX_ERROR_BARS = 400

_TRUE, _ESTIMATED, _STD, _FLAGS = "true", "estimated", "uncertainty (std)", "quality flag"
_FLAG_VARIABLE = "quality_flag"
_DOT = "#0072B2"
_NAN_COLOUR = "0.82"
_NO_FLAG_COLOUR = "1.0"
_FLAG_COLOURS = ("#56B4E9", "#D55E00", "#0072B2", "#E69F00", "#CC79A7", "#009E73", "#F0E442", "#000000")


@dataclass(frozen=True)
class _Panel:
    """One map to draw: values (vertical, horizontal), colour map, limits and colour-bar label."""

    values: np.ndarray
    colours: str
    limits: tuple[float, float]
    label: str


def plot_maps(maps: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw parameter maps: a row a parameter; true, estimated, uncertainty and quality flag side by side.

    True and estimated maps share their colour limits, the 2nd to 98th percentile of both together.  NaN is
    grey.  A pixel with several flags takes the colour of the first; the shares in the legend count them all.

    Parameters
    ----------
    maps
        Two-dimensional estimates, with `<parameter>_std` and `quality_flag` (with CF `flag_masks` and
        `flag_meanings`) where they are to be drawn.  Lazy variables are computed together.
    truth
        True maps on the same grid, or None.
    parameters
        Which to draw, in order; by default all that `maps` (and `truth`) hold.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.  Above 1000 pixels a side, every second, third, ... is drawn.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If a parameter is missing, a map is not two-dimensional, or the grids differ.
    """
    names = _chosen(maps, truth, parameters)
    dims = _map_dims(maps, names)
    spreads = [f"{name}_std" for name in names if f"{name}_std" in maps]
    flags = [_FLAG_VARIABLE] if _FLAG_VARIABLE in maps else []
    if truth is not None:
        for name in names:
            paired(maps[name], truth[name], name)
        truth = _thinned(truth[names], dims).compute()
    maps = _thinned(maps[[*names, *spreads, *flags]], dims).compute().transpose(*dims, ...)

    present = {_TRUE: truth is not None, _ESTIMATED: True, _STD: bool(spreads), _FLAGS: bool(flags)}
    columns = [column for column, shown in present.items() if shown]
    aspect = maps.sizes[dims[0]] / maps.sizes[dims[1]]
    beside = 2.4 if flags and len(names) == 1 else 0.0
    height = 2.5 * min(max(aspect, 0.4), 1.6) + 0.5
    figure = _new_figure(3.5 * len(columns) + beside, height * len(names) + 0.4)
    grid = figure.subplots(len(names), len(columns), squeeze=False)
    placing = _placing(maps, dims)

    for row, name in zip(grid, names, strict=True):
        panels = _panels(maps, truth, name, dims)
        for ax, column in zip(row, columns, strict=True):
            if column in panels:
                _draw_panel(ax, panels[column], placing)
            else:
                ax.set_axis_off()
    if flags:
        _draw_flags(grid[:, -1], maps[_FLAG_VARIABLE], placing)
    for ax, column in zip(grid[0], columns, strict=True):
        ax.set_title(column)
    _label_axes(grid, [name.replace("_", " ") for name in names], [_axis_label(maps, d) for d in dims])
    return figure


def plot_evaluation(estimates: xr.Dataset, truth: xr.Dataset, evaluation: xr.Dataset) -> Figure:
    """Draw estimates against the truth, one panel a parameter, with the 1:1 line and the NRMSE.

    Parameters
    ----------
    estimates
        Estimated parameters, any dimensions, with error bars from `<parameter>_std` where present.
    truth
        True parameters on the same grid.
    evaluation
        The result of `metrics.evaluation`; its `parameter` coordinate says which panels to draw.

    Returns
    -------
    A matplotlib Figure; a panel shows at most 4000 evenly spaced samples, 400 of them with error bars.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If a parameter is missing, or the grids differ.
    """
    names = _chosen(estimates, truth, [str(name) for name in evaluation["parameter"].values])
    spreads = [f"{name}_std" for name in names if f"{name}_std" in estimates]
    for name in names:
        paired(estimates[name], truth[name], name)
    estimates, truth = estimates[[*names, *spreads]].compute(), truth[names].compute()

    columns = min(len(names), 3)
    rows = math.ceil(len(names) / columns)
    figure = _new_figure(3.8 * columns, 4.1 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax, name in zip(axes, names, strict=False):
        _draw_scatter(ax, estimates, truth, name)
        score = float(evaluation["nrmse"].sel(parameter=name))
        ax.set_title(f"{name.replace('_', ' ')}\nNRMSE {score:.3f}", fontsize=10)
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150) -> None:
    """Write a figure; the file appears whole or not at all.

    Parameters
    ----------
    figure
        A matplotlib Figure.
    path
        Where to; the suffix (.png, .pdf, .svg, ...) decides the format.
    dpi
        Dots an inch, for raster formats.

    Raises
    ------
    ValueError
        If matplotlib does not know the suffix.
    OSError
        If the folder does not exist or cannot be written.
    """
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=dpi)


def _new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib; install it with: pip install 'specinvert[plot]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _chosen(maps: xr.Dataset, truth: xr.Dataset | None, parameters: Sequence[str] | None) -> list[str]:
    if parameters is None:
        return shared_parameters(maps, maps if truth is None else truth)
    names = list(parameters)
    if not names:
        raise ValueError("parameters is empty; name at least one to draw")
    for label, side in (("estimates", maps), ("truth", maps if truth is None else truth)):
        absent = [name for name in names if name not in side]
        if absent:
            raise ValueError(f"{label} lack {absent}; they hold {list(side.data_vars)}")
    return names


def _map_dims(maps: xr.Dataset, names: list[str]) -> tuple[str, str]:
    """Return the vertical and the horizontal dimension that all maps have."""
    dims = tuple(str(dim) for dim in maps[names[0]].dims)
    for name in names:
        if len(dims) != 2 or set(maps[name].dims) != set(dims):
            raise ValueError(
                f"{name} has dimensions {maps[name].dims}; select two-dimensional maps, as with .isel(time=0)"
            )
    return (dims[1], dims[0]) if dims[0] in ("x", "lon", "longitude") else (dims[0], dims[1])


def _thinned(maps: xr.Dataset, dims: tuple[str, str]) -> xr.Dataset:
    stride = max(math.ceil(maps.sizes[dim] / MAX_SIDE) for dim in dims)
    return maps.isel({dim: slice(None, None, stride) for dim in dims})


def _panels(maps: xr.Dataset, truth: xr.Dataset | None, name: str, dims: tuple[str, str]) -> dict[str, _Panel]:
    units = maps[name].attrs.get("units") or ("" if truth is None else truth[name].attrs.get("units", ""))
    label = "" if units == "1" else str(units)
    values = {_ESTIMATED: maps[name].values}
    if truth is not None:
        values[_TRUE] = truth[name].transpose(*dims).values
    limits = _robust_limits(*values.values())
    panels = {column: _Panel(array, "viridis", limits, label) for column, array in values.items()}
    if f"{name}_std" in maps:
        spread = maps[f"{name}_std"].values
        panels[_STD] = _Panel(spread, "magma", _robust_limits(spread), label)
    return panels


def _robust_limits(*arrays: np.ndarray) -> tuple[float, float]:
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    if values.size == 0:
        return 0.0, 1.0
    low, high = np.percentile(values, [2.0, 98.0])
    margin = 0.5 * max(abs(low), 1e-6) * (high == low)
    return float(low - margin), float(high + margin)


def _draw_panel(ax: Axes, panel: _Panel, placing: dict[str, Any]) -> None:
    from matplotlib import colormaps

    image = ax.imshow(
        panel.values,
        cmap=colormaps[panel.colours].with_extremes(bad=_NAN_COLOUR),
        vmin=panel.limits[0],
        vmax=panel.limits[1],
        **placing,
    )
    ax.figure.colorbar(image, ax=ax, label=panel.label, shrink=0.9)


def _draw_flags(column: np.ndarray, flags: xr.DataArray, placing: dict[str, Any]) -> None:
    """Draw the flag map in the first of a column of axes, its legend in the second or below the map."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    bits = np.nan_to_num(flags.values).astype(np.int64)
    masks, meanings = _flag_meanings(flags, bits)
    palette = [
        _NAN_COLOUR if meaning == "nodata" else _FLAG_COLOURS[i % len(_FLAG_COLOURS)]
        for i, meaning in enumerate(meanings)
    ]
    raised = [(bits & mask) != 0 for mask in masks]
    first = np.select(raised, list(range(1, len(masks) + 1)), default=0)

    ax = column[0]
    ax.set_axis_on()
    ax.imshow(first, cmap=ListedColormap([_NO_FLAG_COLOUR, *palette]), vmin=-0.5, vmax=len(masks) + 0.5, **placing)
    entries = [(_NO_FLAG_COLOUR, "none", first == 0)]
    entries += [(c, m.replace("_", " "), r) for c, m, r in zip(palette, meanings, raised, strict=True)]
    handles = [
        Patch(facecolor=colour, edgecolor="0.4", label=f"{text} ({100 * where.mean():.2g} %)")
        for colour, text, where in entries
        if where.any()
    ]
    if len(column) > 1:
        column[1].legend(handles=handles, loc="upper left", frameon=False)
    else:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)


def _flag_meanings(flags: xr.DataArray, bits: np.ndarray) -> tuple[list[int], list[str]]:
    """Read masks and meanings from the CF attributes; without them every bit in use is named by its value."""
    masks = [int(mask) for mask in np.atleast_1d(flags.attrs.get("flag_masks", []))]
    meanings = str(flags.attrs.get("flag_meanings", "")).split()
    if masks and len(masks) == len(meanings):
        return masks, meanings
    used = [1 << bit for bit in range(8) if (bits & (1 << bit)).any()]
    return used, [f"bit {mask}" for mask in used]


def _placing(maps: xr.Dataset, dims: tuple[str, str]) -> dict[str, Any]:
    """Say where imshow puts the pixels: by the coordinates, or by number with the first row on top."""
    vertical, horizontal = (_edges(maps, dim) for dim in dims)
    first, last = vertical or (-0.5, maps.sizes[dims[0]] - 0.5)
    left, right = horizontal or (-0.5, maps.sizes[dims[1]] - 0.5)
    upwards = vertical is not None and last > first
    extent = (left, right, first, last) if upwards else (left, right, last, first)
    return {"extent": extent, "origin": "lower" if upwards else "upper", "interpolation": "nearest"}


def _edges(maps: xr.Dataset, dim: str) -> tuple[float, float] | None:
    """Return the outer edges of an evenly spaced coordinate, None where there is none."""
    if dim not in maps.indexes or maps.sizes[dim] < 2 or not np.issubdtype(maps[dim].dtype, np.number):
        return None
    centres = maps[dim].values.astype(np.float64)
    step = (centres[-1] - centres[0]) / (centres.size - 1)
    if not np.allclose(np.diff(centres), step, rtol=0.05, atol=0.0):
        return None
    return float(centres[0] - step / 2), float(centres[-1] + step / 2)


def _label_axes(grid: np.ndarray, names: list[str], axis_labels: list[str]) -> None:
    """Tick labels and axis names at the left and the bottom only, the parameter's name at the left."""
    from matplotlib.ticker import MaxNLocator

    for ax in grid.flat:
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.yaxis.set_major_locator(MaxNLocator(3))
        ax.ticklabel_format(style="plain", useOffset=False)
        ax.tick_params(labelleft=False, labelbottom=False, labelsize=8)
    for ax, name in zip(grid[:, 0], names, strict=True):
        ax.tick_params(labelleft=True)
        ax.set_ylabel(f"{name}\n{axis_labels[0]}")
    for ax in grid[-1]:
        ax.tick_params(labelbottom=True)
    grid[-1, 0].set_xlabel(axis_labels[1])


def _draw_scatter(ax: Axes, estimates: xr.Dataset, truth: xr.Dataset, name: str) -> None:
    x, y = (side.values.ravel() for side in reversed(paired(estimates[name], truth[name], name)))
    seen = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    shown = seen[:: max(1, math.ceil(seen.size / MAX_POINTS))]
    ax.plot(x[shown], y[shown], ".", markersize=3, markeredgewidth=0, alpha=0.4, color=_DOT, rasterized=True)
    if f"{name}_std" in estimates:
        spread = estimates[f"{name}_std"].transpose(*estimates[name].dims).values.ravel()
        some = seen[:: max(1, math.ceil(seen.size / MAX_ERROR_BARS))]
        ax.errorbar(x[some], y[some], spread[some], fmt="none", elinewidth=0.5, color="0.7", zorder=1)
    if shown.size:
        low, high = min(x[shown].min(), y[shown].min()), max(x[shown].max(), y[shown].max())
        margin = 0.04 * (high - low) or 1.0
        ends = (low - margin, high + margin)
        ax.plot(ends, ends, color="black", linewidth=0.8)
        ax.set(xlim=ends, ylim=ends)
    ax.set_aspect("equal")
    units = estimates[name].attrs.get("units") or truth[name].attrs.get("units", "1")
    suffix = "" if units == "1" else f" ({units})"
    ax.set(xlabel=f"true{suffix}", ylabel=f"estimated{suffix}")


def _axis_label(maps: xr.Dataset, dim: str) -> str:
    units = maps[dim].attrs.get("units") if dim in maps.coords else None
    return f"{dim} ({units})" if units else dim
