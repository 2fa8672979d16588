"""Figure of a table of results, each parameter against the samples; and results of either kind, table or image."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import percent, units_of
from ..flags import FLAG_NAME, FLAG_VARIABLE, flag_bits, flag_shares
from ..scores import paired
from .layout import (
    DOT,
    MARK,
    SMALL,
    SOFT,
    chosen,
    given_in_advance,
    new_figure,
    plain,
    robust_limits,
    spans_decades,
    title_of,
    told_in_advance,
    with_units,
    with_variables,
)
from .maps import MapSample, draw_maps, plot_maps, sample_maps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_ROWS = 5000
"""Of longer tables every second, third, ... row is drawn."""

MAX_LABELS = 30
"""Rows whose names, where they have any, are written below them."""

MANY_ROWS = 300
"""With more rows, marks and bars are thinner."""

_BAR = "#A6CBE3"

_ROOM = 1.5
"""Factor that a logarithmic axis leaves on both sides of the values."""

_LOWER = re.compile(r"_(ci|hdi)(\d+)_lower$")


def plot_table(table: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw one-dimensional results: a panel a parameter, values against the samples with their intervals.

    Intervals are the first of `<parameter>_ci90_lower` and `..._upper` (any digits; `hdi` too) that the table has,
    else the quantiles `_q05` and `_q95`, else one standard deviation to each side from `<parameter>_std`.

    Parameters
    ----------
    table : estimates along one dimension, lazy or not. Its coordinate, where it is one of numbers or dates, is the
        horizontal axis, else the rows are numbered. Rows with a `quality_flag` are ringed.
    truth : true values on the same rows, or None.
    parameters : which to draw, in order; by default all that `table` (and `truth`) hold, less those known in advance
        (std 0 everywhere), which a line above the panels names with their values.

    Returns
    -------
    A matplotlib Figure; see `save_figure`. Of more than 5000 rows, every second, third, ... is drawn. Axes of
    parameters are logarithmic where all values are positive and span more than two decades.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : a parameter is missing, is not one-dimensional, or the rows of the truth differ.

    Examples
    --------
    >>> table = xr.Dataset({"lai": ("plot", [1.0, 2.0, 4.0]), "lai_std": ("plot", [0.1, 0.1, 0.2])})
    >>> figure = plot_table(table)
    >>> len(figure.axes)
    1
    """
    truth = with_variables(truth, table)
    names = chosen(table, truth, parameters)
    dim = _row_dim(table, names)
    if truth is not None:
        for name in names:
            paired(table[name], truth[name], name)
    stride = max(1, math.ceil(table.sizes[dim] / MAX_ROWS))
    table = table.isel({dim: slice(None, None, stride)}).compute()
    truth = None if truth is None else truth[names].isel({dim: slice(None, None, stride)}).compute()
    places = _places(table, dim, stride)
    given = given_in_advance(table, names) if parameters is None else {}
    names = [name for name in names if name not in given]

    figure = new_figure(8.0, 2.3 * len(names) + 0.5)
    axes = figure.subplots(len(names), 1, squeeze=False, sharex=True)[:, 0]
    for ax, name in zip(axes, names, strict=True):
        _draw_rows(ax, places, table, None if truth is None else truth[name].values, name)
        ax.set_ylabel(with_units(title_of(name), units_of(table[name].attrs)))
        ax.tick_params(labelsize=SMALL)
        ax.legend(loc="upper right", fontsize=SMALL, ncols=4, frameon=False, bbox_to_anchor=(1.0, 1.15))
    axes[-1].set_xlabel(with_units(plain(dim), units_of(table[dim].attrs) if dim in table.coords else ""))
    if dim in table.indexes and table[dim].dtype.kind in "UO" and places.size <= MAX_LABELS:
        shown = [textwrap.shorten(plain(label), 20, placeholder=" …") for label in table[dim].values]
        axes[-1].set_xticks(places, shown, rotation=30, ha="right", rotation_mode="anchor")
    if given:
        figure.suptitle(plain(told_in_advance(given)), fontsize=SMALL, color=SOFT, wrap=True)
    return figure


def _row_dim(table: xr.Dataset, names: list[str]) -> str:
    dims = {table[name].dims for name in names}
    if len(dims) != 1 or len(next(iter(dims))) != 1:
        shown = ", ".join(f"{name} {table[name].dims}" for name in names)
        raise ValueError(f"these are not results along one dimension: {shown}; select one, as with .isel(time=0)")
    return str(next(iter(dims))[0])


def _places(table: xr.Dataset, dim: str, stride: int) -> np.ndarray:
    if dim in table.indexes and table[dim].dtype.kind in "iufM":
        return np.asarray(table[dim].values)
    return stride * np.arange(table.sizes[dim])


def _draw_rows(ax: Axes, places: np.ndarray, table: xr.Dataset, truth: np.ndarray | None, name: str) -> None:
    values = table[name].values.astype(np.float64)
    interval = _interval(table, name)
    few = values.size <= MANY_ROWS
    if interval is not None:
        lower, upper, label = interval
        ax.vlines(places, lower, upper, color=_BAR, linewidth=1.2 if few else 0.6, label=label)
    _scale(ax, values if truth is None else np.concatenate([values, truth.astype(np.float64)]))
    ax.plot(places, values, ".", color=DOT, markersize=5 if few else 2, label="estimated")
    if truth is not None:
        ax.plot(places, truth, "x", color="black", markersize=4 if few else 2, markeredgewidth=0.8, label="true")
    flagged = _flagged(table, name)
    if flagged.any():
        share = f"flagged ({percent(float(flagged.mean()))})"
        size, edge = (7, 1.0) if few else (4, 0.5)
        rings = ax.plot(places[flagged], values[flagged], "o", mfc="none", mec=MARK, markersize=size, label=share)
        rings[0].set_markeredgewidth(edge)


def _scale(ax: Axes, values: np.ndarray) -> None:
    """A logarithmic axis where the values ask for one, of which lower ends of intervals at or below zero run out."""
    limits = robust_limits(values)
    if spans_decades(values, limits):
        ax.set_yscale("log", nonpositive="clip")
        seen = values[np.isfinite(values)]
        ax.set_ylim(seen.min() / _ROOM, seen.max() * _ROOM)


def _interval(table: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray, str] | None:
    """Ends of the intervals of one parameter, and what they are."""
    for lower in map(str, table.data_vars):
        ends = _LOWER.search(lower)
        upper = lower.removesuffix("_lower") + "_upper"
        if ends and lower == f"{name}{ends[0]}" and upper in table:
            kind = "central" if ends[1] == "ci" else "shortest"
            return table[lower].values, table[upper].values, f"{kind} {100 * float(f'0.{ends[2]}'):g} %"
    if f"{name}_q05" in table and f"{name}_q95" in table:
        return table[f"{name}_q05"].values, table[f"{name}_q95"].values, "central 90 %"
    if f"{name}_std" in table:
        centre, spread = table[name].values, table[f"{name}_std"].values
        return centre - spread, centre + spread, "± 1 std"
    return None


def _flagged(table: xr.Dataset, name: str) -> np.ndarray:
    """Rows with a flag, those of a single value for the whole table included."""
    if FLAG_VARIABLE not in table:
        return np.zeros(table[name].size, dtype=bool)
    return np.broadcast_to(flag_bits(table[FLAG_VARIABLE]).values != 0, table[name].shape)


@dataclass(frozen=True)
class Results:
    """Results in memory, images thinned; ``flag_shares`` are those of all pixels, "none" first, empty without flags."""

    names: list[str]
    data: xr.Dataset
    truth: xr.Dataset | None
    flag_shares: dict[str, float]
    attrs: dict[Any, Any]
    image: MapSample | None

    @property
    def is_image(self) -> bool:
        """Whether there are two dimensions."""
        return self.image is not None

    def draw(self) -> Figure:
        """The figure of `plot_maps` for images, of `plot_table` for rows."""
        if self.image is not None:
            return draw_maps(self.image)
        given = given_in_advance(self.data, self.names)
        return plot_table(self.data, self.truth, [name for name in self.names if name not in given])


def read_results(
    results: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None
) -> Results:
    """Read results along one dimension or two, computed once; ValueError where they are neither, or grids differ.

    Dimensions of size 1 do not count: images of one row or column are rows.
    """
    truth = with_variables(truth, results)
    names = chosen(results, truth, parameters)
    results, truth = squeezed(results, names), None if truth is None else squeezed(truth, names)
    if all(results[name].ndim == 1 for name in names):
        data = results.compute()
        shares = flag_shares(data[FLAG_VARIABLE]) if FLAG_VARIABLE in data else None
        return Results(names, data, truth, _by_name(shares), results.attrs, None)
    image = sample_maps(results, truth, names, leave_given=True)
    return Results(names, image.maps, image.truth, _by_name(image.shares), results.attrs, image)


def squeezed(data: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """The data without dimensions of size 1, as long as the variables ``names`` keep one dimension."""
    dims = list(dict.fromkeys(dim for name in names for dim in data[name].dims))
    single = [dim for dim in dims if data.sizes[dim] == 1]
    return data.isel(dict.fromkeys(single if len(single) < len(dims) else single[:-1], 0))


def _by_name(shares: xr.DataArray | None) -> dict[str, float]:
    if shares is None:
        return {}
    return {str(name): float(share) for name, share in zip(shares[FLAG_NAME].values, shares.values, strict=True)}


def plot_results(
    results: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None
) -> Figure:
    """Draw what an inversion gave: `plot_maps` of images, `plot_table` of rows.

    Parameters
    ----------
    results : estimates along one dimension or two, with their intervals, deviations and flags. Dimensions of size 1 do
        not count: images of one row or column are drawn as rows.
    truth : true values on the same grid, or None.
    parameters : which to draw, in order; by default all that `results` (and `truth`) hold.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : a parameter is missing, has neither one dimension nor two, or the grids differ.

    Examples
    --------
    >>> results = xr.Dataset({"lai": ("plot", [1.0, 2.0, 4.0])})
    >>> figure = plot_results(results, truth=results + 0.1)
    >>> len(figure.axes)
    1
    """
    truth = with_variables(truth, results)
    names = chosen(results, truth, parameters)
    results, truth = squeezed(results, names), None if truth is None else squeezed(truth, names)
    draw = plot_table if all(results[name].ndim == 1 for name in names) else plot_maps
    return draw(results, truth, parameters)
