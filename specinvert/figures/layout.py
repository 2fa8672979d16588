"""What figures share: the blank figure, colours, text from files, rows of panels, lines of spectra, and saving."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from ..cubes import NM_PER_UNIT, Bands, legible, wrapped
from ..io import atomic_path
from ..scores import shared_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


DOT = "#0072B2"
MARK = "#D55E00"
BAND_COLOUR = "0.85"
SOFT = "0.35"
"""Grey of secondary text: 7.6 to 1 on white."""

TITLE, SMALL = 10, 8
"""Font sizes of titles of panels, and of tick labels and remarks."""

LINE = 28
"""Characters of a line of a label."""

MOST_PIXELS = 60_000
"""Pixels a side of a figure that matplotlib can still draw."""


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained") -> Figure:
    """A blank figure of so many inches, "compressed" for images; ImportError where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib; install it with: pip install 'specinvert[plot]'") from error
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def paired_rows(n_rows: int, height: float, ratio: float, **shared: Any) -> tuple[Figure, np.ndarray]:
    """A figure of rows, each a wide panel and a narrow one: the axes (n_rows, 2), with small tick labels.

    ``ratio`` is that of their widths, ``shared`` goes to matplotlib's ``subplots``.
    """
    figure = new_figure(7.4, height)
    grid = figure.subplots(n_rows, 2, squeeze=False, width_ratios=(ratio, 1), **shared)
    for ax in grid.flat:
        ax.tick_params(labelsize=SMALL)
    return figure, grid


def panel_grid(n_panels: int, width: float, height: float, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels of so many inches, up to ``columns`` in a row, and its first ``n_panels`` axes."""
    columns = min(n_panels, columns)
    n_rows = -(-n_panels // columns)
    figure = new_figure(width * columns, height * n_rows)
    axes = list(figure.subplots(n_rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.tick_params(labelsize=SMALL)
    for ax in axes[n_panels:]:
        ax.set_axis_off()
    return figure, axes[:n_panels]


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 150) -> None:
    """Write a figure; the file appears whole or not at all.

    Parameters
    ----------
    figure : a matplotlib Figure.
    path : where to; the suffix (.png, .pdf, .svg, ...) decides the format.
    dpi : dots an inch, for raster formats.

    Raises
    ------
    ValueError : matplotlib does not know the suffix.
    OSError : the folder does not exist or cannot be written.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> save_figure(Figure(), "empty.png")
    """
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=fitting_dpi(figure, dpi))


def fitting_dpi(figure: Figure, dpi: float) -> float:
    """Dots an inch, fewer where a figure of many panels would have more pixels than can be drawn."""
    return min(dpi, MOST_PIXELS / float(max(figure.get_size_inches())))


def require_figure(path: str | os.PathLike[str]) -> None:
    """Raise, before any work, ImportError where matplotlib is missing and ValueError where it lacks the format."""
    formats = sorted(new_figure(1, 1).canvas.get_supported_filetypes())
    suffix = Path(path).suffix
    if suffix and suffix[1:].lower() not in formats:
        raise ValueError(f"{os.fspath(path)}: format {suffix!r} is not supported; choose from {', '.join(formats)}")


def plain(text: object) -> str:
    """Text from a file as matplotlib shows it: dollar signs start no formula, unseen characters go."""
    return legible(text).replace("$", r"\$")


def title_of(name: object) -> str:
    """A parameter's name to read, in up to three lines."""
    return lines_of(legible(name).replace("_", " "), 3)


def lines_of(text: str, most: int, width: int = LINE) -> str:
    """Text from a file in up to so many lines of a label, or of so many characters."""
    return wrapped(legible(text), width, most).replace("$", r"\$")


def in_units(value: str, units: str) -> str:
    """A value with its units, where there are any, shortened where they are a sentence."""
    return f"{value} {lines_of(units, 1)}" if units else value


def with_units(label: str, units: str) -> str:
    """A label with the units in brackets, where there are any, on a line of their own where the label is long."""
    if not units:
        return label
    shown = lines_of(f"({units})", 2)
    fits = len(label.rpartition("\n")[2]) + len(shown) < LINE
    return f"{label}{' ' if fits else chr(10)}{shown}"


def chosen(maps: xr.Dataset, truth: xr.Dataset | None, parameters: Sequence[str] | None) -> list[str]:
    """The parameters to draw: those named, else all that both sides hold; ValueError where one is missing."""
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


def with_variables(truth: xr.Dataset | None, maps: xr.Dataset) -> xr.Dataset | None:
    """The truth with those of its coordinates as variables that are maps, too."""
    if truth is None:
        return None
    return truth.reset_coords([name for name in truth.coords if name in maps.data_vars and name not in truth.xindexes])


def given_in_advance(maps: xr.Dataset, names: Sequence[str]) -> dict[str, str]:
    """Values of parameters that were known at inversion, std 0 everywhere, of maps in memory; none where all are."""
    known = {}
    for name in names:
        spread = maps[f"{name}_std"].values if f"{name}_std" in maps else np.empty(0)
        spread = spread[np.isfinite(spread)]
        if spread.size and not spread.any():
            values = maps[name].values[np.isfinite(maps[name].values)]
            ends = (float(values.min()), float(values.max())) if values.size else ()
            known[name] = " to ".join(dict.fromkeys(f"{end:.4g}" for end in ends))
    return known if len(known) < len(names) else {}


def told_in_advance(given: Mapping[str, str]) -> str:
    """What of :func:`given_in_advance` is not drawn, in words."""
    known = ", ".join(f"{legible(name)} = {value}" for name, value in given.items())
    return f"Known in advance, not drawn: {known}" if known else ""


def robust_limits(*arrays: np.ndarray) -> tuple[float, float]:
    """The 2nd and 98th percentile of all finite values together, set apart where they are equal."""
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64).ravel() for array in arrays])
    if values.size == 0:
        return 0.0, 1.0
    low, high = np.percentile(values, [2.0, 98.0])
    margin = 0.5 * max(abs(low), 1e-6) * (high == low)
    return float(low - margin), float(high + margin)


def spans_decades(values: np.ndarray, limits: tuple[float, float]) -> bool:
    """Whether finite values, of which ``limits`` are robust ones, are all positive and want a logarithmic scale."""
    low, high = limits
    seen = values[np.isfinite(values)]
    return bool(low > 0 and high > 100.0 * low and seen.min() > 0)


_GAP = 4.0
_FEW = 25


@dataclass(frozen=True)
class BandAxis:
    """Where bands are drawn: ``order`` (D,) sorts them, ``places`` (D,) are sorted, ``breaks`` follow gaps."""

    order: np.ndarray
    places: np.ndarray
    breaks: np.ndarray
    label: str

    @classmethod
    def of(cls, bands: Bands) -> BandAxis:
        """By wavelength in the unit that the bands came in, else by number."""
        if bands.wavelength is None or bands.unit is None:
            places = np.arange(bands.size, dtype=np.float64)
            return cls(np.arange(bands.size), places, np.empty(0, dtype=np.intp), "band")
        order = np.argsort(bands.wavelength, kind="stable")
        places = bands.wavelength[order] / NM_PER_UNIT[bands.unit]
        steps = np.diff(places)
        wide = np.flatnonzero(steps > _GAP * np.median(steps)) + 1 if bands.size > _FEW else np.empty(0, dtype=np.intp)
        return cls(order, places, wide, f"wavelength ({bands.unit})")

    @property
    def marker(self) -> str:
        """A dot for each band where bands are few."""
        return "." if self.places.size <= _FEW else ""

    @property
    def x(self) -> np.ndarray:
        """Places of a line, with one more at each break."""
        return np.insert(self.places, self.breaks, self.places[self.breaks])

    def y(self, spectrum: np.ndarray) -> np.ndarray:
        """Values of a line for a spectrum (D,) in the order of the bands, NaN at each break."""
        return np.insert(np.asarray(spectrum, dtype=np.float64)[self.order], self.breaks, np.nan)
