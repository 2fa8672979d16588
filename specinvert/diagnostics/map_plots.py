"""Figure of parameter maps with their uncertainty and flags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from specinvert.diagnostics.flags import FLAG_NAME, FLAG_VARIABLE, NODATA, flag_bits, flag_shares, read_flags
from specinvert.diagnostics.layout import (
    SMALL,
    chosen,
    new_figure,
    plain,
    robust_limits,
    title_of,
    units_of,
    with_units,
)
from specinvert.diagnostics.metrics import paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_SIDE = 2000
"""Maps with more pixels a side are drawn with a stride."""

_TRUE, _ESTIMATED, _STD, _FLAGS = "true", "estimated", "uncertainty (std)", "quality flag"
_SHARES = "share_of_pixels"
_NAN_COLOUR = "0.82"
_NO_FLAG_COLOUR = "1.0"
FLAG_COLOURS = ("#56B4E9", "#D55E00", "#0072B2", "#E69F00", "#CC79A7", "#009E73", "#F0E442", "#000000")


@dataclass(frozen=True)
class _Panel:
    """One map to draw: values (vertical, horizontal), colour map, limits and colour-bar label."""

    values: np.ndarray
    colours: str
    limits: tuple[float, float]
    label: str


@dataclass(frozen=True)
class _Placing:
    """Where pixels are: for imshow, the size of a unit upwards in units to the right, and height over width."""

    options: dict[str, Any]
    aspect: float
    shape: float
    labels: tuple[str, str]


def plot_maps(maps: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw parameter maps: a row a parameter; true, estimated, uncertainty and quality flag side by side.

    True and estimated maps share their colour limits, the 2nd to 98th percentile of both together.  NaN is
    grey.  A pixel with several flags takes the colour of the first; the shares in the legend count them all,
    over every pixel.  Pixels have the shape that evenly spaced coordinates give them, degrees of longitude
    shortened as at the middle latitude; without such coordinates they are square.

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
    A matplotlib Figure; see `save_figure`.  Above 2000 pixels a side, every second, third, ... is drawn.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If a parameter is missing, a map is not two-dimensional, or the grids differ.
    """
    return draw_maps(sample_maps(maps, truth, parameters))


@dataclass(frozen=True)
class MapSample:
    """Maps thinned for drawing, in memory, with the ``shares`` (flag_name,) of all their pixels, None without flags."""

    maps: xr.Dataset
    truth: xr.Dataset | None
    shares: xr.DataArray | None
    names: list[str]
    dims: tuple[str, str]


def sample_maps(maps: xr.Dataset, truth: xr.Dataset | None, parameters: Sequence[str] | None) -> MapSample:
    """Read what :func:`plot_maps` draws, in one computation; raises as it does."""
    names = chosen(maps, truth, parameters)
    dims = _map_dims(maps, names)
    spreads = [f"{name}_std" for name in names if f"{name}_std" in maps]
    flags = [FLAG_VARIABLE] if FLAG_VARIABLE in maps else []
    if truth is not None:
        for name in names:
            paired(maps[name], truth[name], name)
        truth = _thinned(truth[names], dims).compute()
    thinned = _thinned(maps[[*names, *spreads, *flags]], dims)
    if flags:
        thinned = thinned.assign({_SHARES: flag_shares(maps[FLAG_VARIABLE])})
    found = thinned.compute()
    shares = found[_SHARES] if flags else None
    return MapSample(found.drop_dims(FLAG_NAME, errors="ignore").transpose(*dims, ...), truth, shares, names, dims)


def draw_maps(sample: MapSample) -> Figure:
    """Draw maps that are in memory; see :func:`plot_maps`."""
    maps, truth, names, dims = sample.maps, sample.truth, sample.names, sample.dims
    flagged, spread = sample.shares is not None, any(f"{name}_std" in maps for name in names)
    present = {_TRUE: truth is not None, _ESTIMATED: True, _STD: spread, _FLAGS: flagged}
    columns = [column for column, shown in present.items() if shown]
    placing = _placing(maps, dims)
    beside = 2.4 if flagged and len(names) == 1 else 0.0
    height = 2.5 * min(max(placing.shape, 0.4), 1.6) + 0.5
    figure = new_figure(3.5 * len(columns) + beside, height * len(names) + 0.4)
    grid = figure.subplots(len(names), len(columns), squeeze=False)

    for row, name in zip(grid, names, strict=True):
        panels = _panels(maps, truth, name, dims)
        for ax, column in zip(row, columns, strict=True):
            if column in panels:
                _draw_panel(ax, panels[column], placing)
            else:
                ax.set_axis_off()
    if sample.shares is not None:
        _draw_flags(grid[:, -1], maps[FLAG_VARIABLE], sample.shares, placing)
    for ax, column in zip(grid[0], columns, strict=True):
        ax.set_title(column)
    _label_axes(grid, [title_of(name) for name in names], placing.labels)
    return figure


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
    label = plain(units_of(maps[name].attrs, {} if truth is None else truth[name].attrs))
    values = {_ESTIMATED: maps[name].values}
    if truth is not None:
        values[_TRUE] = truth[name].transpose(*dims).values
    limits = robust_limits(*values.values())
    panels = {column: _Panel(array, "viridis", limits, label) for column, array in values.items()}
    if f"{name}_std" in maps:
        spread = maps[f"{name}_std"].values
        panels[_STD] = _Panel(spread, "magma", robust_limits(spread), label)
    return panels


def _draw_panel(ax: Axes, panel: _Panel, placing: _Placing) -> None:
    from matplotlib import colormaps

    image = ax.imshow(
        panel.values,
        cmap=colormaps[panel.colours].with_extremes(bad=_NAN_COLOUR),
        vmin=panel.limits[0],
        vmax=panel.limits[1],
        **placing.options,
    )
    ax.set_aspect(placing.aspect)
    ax.figure.colorbar(image, ax=ax, label=panel.label, shrink=0.9)


def _draw_flags(column: np.ndarray, flags: xr.DataArray, shares: xr.DataArray, placing: _Placing) -> None:
    """Draw the flag map in the first of a column of axes, its legend in the second or beside the map."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    named = read_flags(flags)
    palette = [
        _NAN_COLOUR if flag.name == NODATA else FLAG_COLOURS[i % len(FLAG_COLOURS)] for i, flag in enumerate(named)
    ]
    bits = flag_bits(flags).values
    first = np.select([(bits & flag.mask) != 0 for flag in named], list(range(1, len(named) + 1)), default=0)

    ax = column[0]
    ax.set_axis_on()
    colours = [_NO_FLAG_COLOUR, *palette]
    ax.imshow(first, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(named) + 0.5, **placing.options)
    ax.set_aspect(placing.aspect)
    handles = [
        Patch(facecolor=colour, edgecolor="0.4", label=f"{plain(text)} ({100 * share:.2g} %)")
        for colour, text, share in zip(colours, ["none", *(flag.title for flag in named)], shares.values, strict=True)
        if share > 0
    ]
    if len(column) > 1:
        column[1].legend(handles=handles, loc="upper left", frameon=False)
    else:
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)


def _placing(maps: xr.Dataset, dims: tuple[str, str]) -> _Placing:
    """Say where imshow puts the pixels: by the coordinates, or by number with the first row on top."""
    edges = [edges_of(maps, dim) for dim in dims]
    placed = edges[0] is not None and edges[1] is not None
    first, last = edges[0] if placed and edges[0] else (-0.5, maps.sizes[dims[0]] - 0.5)
    left, right = edges[1] if placed and edges[1] else (-0.5, maps.sizes[dims[1]] - 0.5)
    upwards = placed and last > first
    extent = (left, right, first, last) if upwards else (left, right, last, first)
    aspect = unit_ratio(maps, dims, (first, last), (left, right)) if placed else 1.0
    units = [units_of(maps[dim].attrs) if placed else "" for dim in dims]
    return _Placing(
        {"extent": extent, "origin": "lower" if upwards else "upper", "interpolation": "nearest"},
        aspect,
        aspect * abs(last - first) / abs(right - left),
        (with_units(plain(dims[0]), units[0]), with_units(plain(dims[1]), units[1])),
    )


def unit_ratio(
    maps: xr.Dataset, dims: tuple[str, str], vertical: tuple[float, float], horizontal: tuple[float, float]
) -> float:
    """Length of a unit of the vertical coordinate over one of the horizontal."""
    units = [str(maps[dim].attrs.get("units", "")) for dim in dims]
    degrees = [
        unit.startswith("degree") or dim in names for unit, dim, names in zip(units, dims, _DEGREES, strict=True)
    ]
    if all(degrees):
        return float(1.0 / np.cos(np.radians(np.clip(0.5 * sum(vertical), -80.0, 80.0))))
    if units[0] == units[1]:
        return 1.0
    pixel = [abs(b - a) / maps.sizes[dim] for dim, (a, b) in zip(dims, (vertical, horizontal), strict=True)]
    return pixel[1] / pixel[0]


_DEGREES = (("lat", "latitude"), ("lon", "longitude"))


def edges_of(maps: xr.Dataset, dim: str) -> tuple[float, float] | None:
    """Return the outer edges of an evenly spaced coordinate, None where there is none."""
    if dim not in maps.indexes or maps.sizes[dim] < 2 or not np.issubdtype(maps[dim].dtype, np.number):
        return None
    centres = maps[dim].values.astype(np.float64)
    step = (centres[-1] - centres[0]) / (centres.size - 1)
    if step == 0.0 or not np.allclose(np.diff(centres), step, rtol=0.05, atol=0.0):
        return None
    return float(centres[0] - step / 2), float(centres[-1] + step / 2)


def _label_axes(grid: np.ndarray, names: list[str], axis_labels: tuple[str, str]) -> None:
    """Tick labels and axis names at the left and the bottom only, the parameter's name at the left."""
    from matplotlib.ticker import MaxNLocator

    for ax in grid.flat:
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.yaxis.set_major_locator(MaxNLocator(3))
        ax.ticklabel_format(style="plain", useOffset=False)
        ax.tick_params(labelleft=False, labelbottom=False, labelsize=SMALL)
    for ax, name in zip(grid[:, 0], names, strict=True):
        ax.tick_params(labelleft=True)
        ax.set_ylabel(f"{name}\n{axis_labels[0]}")
    for ax in grid[-1]:
        ax.tick_params(labelbottom=True)
    grid[-1, 0].set_xlabel(axis_labels[1])
