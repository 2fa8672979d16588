"""From coordinates to pixels: the axes of a map, and the part of each that is read for a view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from specinvert.diagnostics.layout import units_of
from specinvert.diagnostics.map_plots import edges_of, unit_ratio

MOST = 1000
"""Pixels a side that a view reads at most."""
_MARGIN = 0.25
"""Share of the visible length that is read beyond either end, so that a short pan shows data at once."""


@dataclass(frozen=True)
class Window:
    """Pixels ``start`` to ``stop`` of an axis, of which one in ``stride`` is shown: that in the middle of each step."""

    start: int
    stop: int
    stride: int

    @property
    def indices(self) -> np.ndarray:
        """The pixels that are shown."""
        return np.minimum(np.arange(self.start, self.stop, self.stride) + self.stride // 2, self.stop - 1)

    def shows(self, wanted: Window) -> bool:
        """Whether the window has all pixels of another, as densely."""
        return self.stride <= wanted.stride and self.start <= wanted.start and self.stop >= wanted.stop

    @classmethod
    def of(cls, start: int, stop: int, size: int, margin: float = _MARGIN) -> Window:
        """Around the visible pixels ``start`` to ``stop`` of ``size``, aligned to its stride."""
        extra = int(np.ceil(margin * (stop - start)))
        start, stop = max(start - extra, 0), min(stop + extra, size)
        stride = max(-(-(stop - start) // MOST), 1)
        return cls(start // stride * stride, min(-(-stop // stride) * stride, size), stride)


@dataclass(frozen=True)
class PixelAxis:
    """A dimension of the maps: pixel i reaches from ``first + i * step`` to ``first + (i + 1) * step``."""

    dim: str
    size: int
    first: float
    step: float
    units: str
    placed: bool

    @classmethod
    def of(cls, maps: xr.Dataset, dim: str, placed: bool) -> PixelAxis:
        """By the coordinate where it is evenly spaced and ``placed``, else by number."""
        size = maps.sizes[dim]
        edges = edges_of(maps, dim) if placed else None
        if edges is None:
            return cls(dim, size, -0.5, 1.0, "", False)
        return cls(dim, size, edges[0], (edges[1] - edges[0]) / size, units_of(maps[dim].attrs), True)

    @property
    def label(self) -> str:
        """Name and units."""
        if not self.placed:
            return f"{self.dim} (number)"
        return f"{self.dim} ({self.units})" if self.units else self.dim

    @property
    def digits(self) -> int:
        """Decimals that tell neighbouring pixels apart."""
        return max(0, 1 - int(np.floor(np.log10(abs(self.step))))) if self.placed else 0

    def centre(self, index: int) -> float:
        """Coordinate of the middle of a pixel."""
        return self.first + (index + 0.5) * self.step

    def index(self, value: float) -> int | None:
        """The pixel at a coordinate; None outside the map."""
        index = int(np.floor((value - self.first) / self.step))
        return index if 0 <= index < self.size else None

    def span(self, window: Window) -> tuple[float, float]:
        """Lower end and length of the cells of a window, whose last one may reach beyond the map."""
        count = len(window.indices) * window.stride
        ends = self.first + window.start * self.step, self.first + (window.start + count) * self.step
        return min(ends), abs(ends[1] - ends[0])

    def visible(self, low: float, high: float) -> Window:
        """The window to read where coordinates ``low`` to ``high`` are in sight; the whole axis where none of it is."""
        ends = sorted((value - self.first) / self.step for value in (low, high))
        start, stop = (int(end) for end in np.clip([np.floor(ends[0]), np.ceil(ends[1])], 0, self.size))
        return self.whole if start >= stop else Window.of(start, stop, self.size)

    @property
    def whole(self) -> Window:
        """All of it."""
        return Window.of(0, self.size, self.size)


def map_axes(maps: xr.Dataset, dims: tuple[str, ...]) -> tuple[PixelAxis, ...]:
    """Axes of the dimensions of the pixels; two are placed by coordinates together or not at all."""
    placed = len(dims) == 2 and all(edges_of(maps, dim) is not None for dim in dims)
    return tuple(PixelAxis.of(maps, dim, placed) for dim in dims)


def aspect_of(maps: xr.Dataset, axes: tuple[PixelAxis, ...]) -> float:
    """Length of a unit of the vertical axis over one of the horizontal one."""
    vertical, horizontal = axes
    if not vertical.placed:
        return 1.0
    ends = [(axis.first, axis.first + axis.size * axis.step) for axis in axes]
    return unit_ratio(maps, (vertical.dim, horizontal.dim), ends[0], ends[1])
