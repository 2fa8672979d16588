"""Figure of parameter maps with their uncertainty and flags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from ..cubes import legible, percent, units_of
from ..flags import FLAG_NAME, FLAG_VARIABLE, FLAGS, NODATA, Flag, flag_bits, flag_shares, read_flags
from ..scores import paired
from .layout import (
    SMALL,
    SOFT,
    chosen,
    given_in_advance,
    lines_of,
    new_figure,
    plain,
    robust_limits,
    spans_decades,
    title_of,
    told_in_advance,
    with_units,
    with_variables,
)
from .results import entries_of, undecided

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

MAX_SIDE = 2000
"""Maps with more pixels a side are drawn with a stride."""

_TRUE, _ESTIMATED, _STD, _FLAGS = "true", "estimated", "uncertainty (std)", "quality flag"
_SHARES = "share_of_pixels"
_STACKED, _STACKED_WIDTH = 0.45, 7.0
"""Height over width below which maps stand one below the other, and their width in inches."""
_SIDE, _MOST_HIGH = 2.3, 2.2
"""Width in inches of maps side by side, and how many times that they are high at most."""
MOST_ODD = 6.0
"""Height over width, or width over height, from which maps are compressed."""
_NARROW = 1.4
"""Inches of width below which the labels of ticks are upright."""
BLANK = "#d1d1d1"
"""Of pixels without data."""
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
    """Where pixels are: for imshow, the size of a unit upwards in units to the right, and height over width.

    ``placed`` by coordinates, or else by number.
    """

    options: dict[str, Any]
    aspect: float
    shape: float
    labels: tuple[str, str]
    placed: bool


def plot_maps(maps: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw parameter maps: a row a parameter; true, estimated, uncertainty and quality flag side by side.

    True and estimated maps share their colour limits, the 2nd to 98th percentile of both together. NaN is grey. A pixel
    with several flags takes the colour of the first; the shares in the legend count them all, over every pixel. Pixels
    have the shape that evenly spaced coordinates give them, degrees of longitude shortened as at the middle latitude;
    without such coordinates they are square. Maps more than twice as wide as high stand one below the other, and those
    beyond six to one are drawn compressed, which the figure says. Colours are logarithmic where all values are positive
    and span more than two decades. Coordinates of one value, such as the time of ``maps.isel(time=0)``, are told above
    the maps.

    Parameters
    ----------
    maps : two-dimensional estimates, with `<parameter>_std` and `quality_flag` (with CF `flag_masks` and
        `flag_meanings`) where they are to be drawn. Lazy variables are computed together.
    truth : true maps on the same grid, or None.
    parameters : which to draw, in order; by default all that `maps` (and `truth`) hold, less those known in advance
        (std 0 everywhere), which a line above the maps names with their values.

    Returns
    -------
    A matplotlib Figure; see `save_figure`. Above 2000 pixels a side, every second, third, ... is drawn.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : a parameter is missing, a map is not two-dimensional, or the grids differ.

    Examples
    --------
    >>> maps = xr.Dataset({"lai": (("y", "x"), [[1.0, 2.0], [3.0, 4.0]], {"units": "m2 m-2"})})
    >>> plot_maps(maps).axes[0].get_title()
    'estimated'
    """
    return draw_maps(sample_maps(maps, truth, parameters))


@dataclass(frozen=True)
class MapSample:
    """Maps thinned for drawing, in memory, with the ``shares`` (flag_name,) of all their pixels, None without flags.

    ``names`` are drawn; ``given`` are the values of parameters that were known in advance and are not.
    """

    maps: xr.Dataset
    truth: xr.Dataset | None
    shares: xr.DataArray | None
    names: list[str]
    given: dict[str, str]
    dims: tuple[str, str]


def sample_maps(
    maps: xr.Dataset, truth: xr.Dataset | None, parameters: Sequence[str] | None, leave_given: bool | None = None
) -> MapSample:
    """Read what :func:`plot_maps` draws, in one computation; raises as it does.

    ``leave_given`` leaves parameters known in advance out, by default where ``parameters`` names none.
    """
    truth = with_variables(truth, maps)
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
    drawn = thinned.compute()
    shares = drawn[_SHARES] if flags else None
    drawn = drawn.drop_dims(FLAG_NAME, errors="ignore").transpose(*dims, ...)
    given = given_in_advance(drawn, names) if leave_given or (leave_given is None and parameters is None) else {}
    return MapSample(drawn, truth, shares, [name for name in names if name not in given], given, dims)


def draw_maps(sample: MapSample) -> Figure:
    """Draw maps that are in memory; see :func:`plot_maps`."""
    maps, truth, names, dims = sample.maps, sample.truth, sample.names, sample.dims
    flagged, spread = sample.shares is not None, any(f"{name}_std" in maps for name in names)
    present = {_TRUE: truth is not None, _ESTIMATED: True, _STD: spread, _FLAGS: flagged}
    columns = [column for column, shown in present.items() if shown]
    placing = _placing(maps, dims)
    stacked = placing.shape < _STACKED
    panels = [_panels(maps, truth, name, dims) for name in names]
    if stacked:
        cells = [(i, column) for i, drawn in enumerate(panels) for column in columns if column in drawn]
        cells += [(0, _FLAGS)] if flagged else []
        size, shape, width = (len(cells), 1), (_STACKED_WIDTH, _STACKED_WIDTH * placing.shape), _STACKED_WIDTH + 1.6
    else:
        cells = [(i, column) for i in range(len(names)) for column in columns]
        high = _SIDE * min(placing.shape, _MOST_HIGH)
        size, shape = (len(names), len(columns)), (min(high / placing.shape, _SIDE), high)
        width = (shape[0] + 1.2) * len(columns) + 0.5
    below = max(1, int(width / 2.5))
    n_flags = 0 if sample.shares is None else int((sample.shares > 0).sum())
    remarks = _remarks(sample)
    legend = 0.22 * -(-n_flags // below) + 0.3 * len(remarks)
    figure = new_figure(max(width, 5.0), (shape[1] + 0.55) * size[0] + legend + 0.4, "compressed")
    grid = figure.subplots(*size, squeeze=False)
    for ax, (i, column) in zip(grid.flat, cells, strict=True):
        if column in panels[i]:
            _draw_panel(ax, panels[i][column], placing)
        elif column == _FLAGS and i == 0:
            _draw_flags(ax, maps[FLAG_VARIABLE], placing)
        else:
            ax.set_axis_off()
        if stacked:
            ax.set_title(column if column == _FLAGS else f"{title_of(names[i])}, {column}".replace("\n", " "))
        elif i == 0:
            ax.set_title(column)
    labels = ["" for _ in cells] if stacked else [title_of(name) for name in names]
    _label_axes(grid, labels, placing, shape)
    if sample.shares is not None:
        handles = _flag_handles(maps[FLAG_VARIABLE], sample.shares)
        figure.legend(handles=handles, loc="outside lower center", ncols=below, fontsize=SMALL, frameon=False)
    if remarks:
        figure.suptitle("\n".join(map(plain, remarks)), fontsize=SMALL, color=SOFT, wrap=True)
    return figure


def _remarks(sample: MapSample) -> list[str]:
    """Lines above the maps: of which entry of other dimensions they are, and what is not drawn."""
    entries = ", ".join(f"{legible(name)} {text}" for name, text in entries_of(sample.maps).items())
    return [line for line in (entries, told_in_advance(sample.given)) if line]


def _map_dims(maps: xr.Dataset, names: list[str]) -> tuple[str, str]:
    """Return the vertical and the horizontal dimension that all maps have."""
    dims = tuple(str(dim) for dim in maps[names[0]].dims)
    for name in names:
        if len(dims) != 2 or set(maps[name].dims) != set(dims):
            raise ValueError(undecided(maps, names))
    return (dims[1], dims[0]) if dims[0] in ("x", "lon", "longitude") else (dims[0], dims[1])


def _thinned(maps: xr.Dataset, dims: tuple[str, str]) -> xr.Dataset:
    stride = max(math.ceil(maps.sizes[dim] / MAX_SIDE) for dim in dims)
    return maps.isel({dim: slice(None, None, stride) for dim in dims})


def _panels(maps: xr.Dataset, truth: xr.Dataset | None, name: str, dims: tuple[str, str]) -> dict[str, _Panel]:
    label = lines_of(units_of(maps[name].attrs, {} if truth is None else truth[name].attrs), 2)
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
    from matplotlib.colors import LogNorm, Normalize

    seen = panel.values[np.isfinite(panel.values)]
    image = ax.imshow(
        panel.values,
        cmap=colormaps[panel.colours].with_extremes(bad=BLANK),
        norm=(LogNorm if spans_decades(panel.values, panel.limits) else Normalize)(*panel.limits),
        **placing.options,
    )
    ax.set_aspect(placing.aspect)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.9, extend=_extend(seen, panel.limits))
    bar.set_label(panel.label, fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)


def _extend(seen: np.ndarray, limits: tuple[float, float]) -> Literal["neither", "min", "max", "both"]:
    """Which ends of the colours stand for values beyond them, too."""
    below, above = bool((seen < limits[0]).any()), bool((seen > limits[1]).any())
    return "both" if below and above else "min" if below else "max" if above else "neither"


def flag_colours(flags: Sequence[Flag]) -> list[str]:
    """A colour for each flag, grey for no data."""
    return [BLANK if f.name == FLAGS[NODATA] else FLAG_COLOURS[i % len(FLAG_COLOURS)] for i, f in enumerate(flags)]


def _draw_flags(ax: Axes, flags: xr.DataArray, placing: _Placing) -> None:
    from matplotlib.colors import ListedColormap

    named = read_flags(flags)
    bits = flag_bits(flags).values
    first = np.select([(bits & flag.mask) != 0 for flag in named], list(range(1, len(named) + 1)), default=0)
    colours = [_NO_FLAG_COLOUR, *flag_colours(named)]
    ax.imshow(first, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(named) + 0.5, **placing.options)
    ax.set_aspect(placing.aspect)


def _flag_handles(flags: xr.DataArray, shares: xr.DataArray) -> list[Patch]:
    """A patch in the colour of each flag that any pixel has, with the share of the pixels."""
    from matplotlib.patches import Patch

    named = read_flags(flags)
    colours, titles = [_NO_FLAG_COLOUR, *flag_colours(named)], ["none", *(flag.title for flag in named)]
    return [
        Patch(facecolor=colour, edgecolor="0.4", label=f"{title_of(title)} ({percent(share)})")
        for colour, title, share in zip(colours, titles, map(float, shares.values), strict=True)
        if share > 0
    ]


def _placing(maps: xr.Dataset, dims: tuple[str, str]) -> _Placing:
    """Say where imshow puts the pixels: by the coordinates, or by number with the first row on top."""
    edges = [edges_of(maps, dim) for dim in dims]
    placed = edges[0] is not None and edges[1] is not None
    first, last = edges[0] if placed and edges[0] else (-0.5, maps.sizes[dims[0]] - 0.5)
    left, right = edges[1] if placed and edges[1] else (-0.5, maps.sizes[dims[1]] - 0.5)
    upwards = placed and last > first
    extent = (left, right, first, last) if upwards else (left, right, last, first)
    aspect = unit_ratio(maps, dims, (first, last), (left, right)) if placed else 1.0
    shape = aspect * abs(last - first) / abs(right - left)
    shown = min(max(shape, 1.0 / MOST_ODD), MOST_ODD)
    names = [plain(dim) if placed else f"{plain(dim)} (number)" for dim in dims]
    compressed = f", compressed {max(shape / shown, shown / shape):.2g} times" if shown != shape else ""
    units = [units_of(maps[dim].attrs) if placed else "" for dim in dims]
    return _Placing(
        {"extent": extent, "origin": "lower" if upwards else "upper", "interpolation": "nearest"},
        aspect * shown / shape,
        shown,
        (
            with_units(names[0], units[0]) + compressed * (shown < shape),
            with_units(names[1], units[1]) + compressed * (shown > shape),
        ),
        placed,
    )


def unit_ratio(
    maps: xr.Dataset, dims: tuple[str, str], vertical: tuple[float, float], horizontal: tuple[float, float]
) -> float:
    """Length of a unit of the vertical coordinate over one of the horizontal."""
    units = [str(maps[dim].attrs.get("units", "")) for dim in dims]
    degrees = [
        unit.startswith("degree") or dim in names
        for unit, dim, names in zip(units, dims, (("lat", "latitude"), ("lon", "longitude")), strict=True)
    ]
    if all(degrees):
        return float(1.0 / np.cos(np.radians(np.clip(0.5 * sum(vertical), -80.0, 80.0))))
    if units[0] == units[1]:
        return 1.0
    pixel = [abs(b - a) / maps.sizes[dim] for dim, (a, b) in zip(dims, (vertical, horizontal), strict=True)]
    return pixel[1] / pixel[0]


def edges_of(maps: xr.Dataset, dim: str) -> tuple[float, float] | None:
    """Return the outer edges of an evenly spaced coordinate, None where there is none."""
    if dim not in maps.indexes or maps.sizes[dim] < 2 or not np.issubdtype(maps[dim].dtype, np.number):
        return None
    centres = maps[dim].values.astype(np.float64)
    step = (centres[-1] - centres[0]) / (centres.size - 1)
    if step == 0.0 or not np.allclose(np.diff(centres), step, rtol=0.05, atol=0.0):
        return None
    return float(centres[0] - step / 2), float(centres[-1] + step / 2)


def _label_axes(grid: np.ndarray, names: list[str], placing: _Placing, size: tuple[float, float]) -> None:
    """Tick labels and axis names at the left and the bottom only, the parameter's name at the left.

    ``size`` of a map in inches decides how many ticks there is room for.
    """
    from matplotlib.ticker import MaxNLocator

    upright = size[0] < _NARROW
    across, down = (max(1, min(3, int(length / room))) for length, room in zip(size, (0.7, 0.4), strict=True))
    for ax in grid.flat:
        ax.xaxis.set_major_locator(MaxNLocator(across, integer=not placing.placed))
        ax.yaxis.set_major_locator(MaxNLocator(down, integer=not placing.placed))
        ax.ticklabel_format(style="plain", useOffset=False)
        ax.tick_params(labelleft=False, labelbottom=False, labelsize=SMALL)
        ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    for ax, name in zip(grid[:, 0], names, strict=True):
        ax.tick_params(labelleft=True)
        ax.set_ylabel("\n".join(part for part in (name, placing.labels[0]) if part))
    for ax in grid[-1]:
        ax.tick_params(labelbottom=True)
    grid[-1, 0].set_xlabel(placing.labels[1])
