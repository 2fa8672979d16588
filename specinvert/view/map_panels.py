"""Figures of maps: images of a parameter, its uncertainty and the flags, moved together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.events import RangesUpdate, Tap
from bokeh.models import ColorBar, ColumnDataSource, DataRange1d, HoverTool, LinearColorMapper
from bokeh.plotting import figure

from specinvert.diagnostics.map_plots import MOST_ODD
from specinvert.diagnostics.wording import legible

from .axes import Window, aspect_of
from .maps import MapSource
from .panels import TOOLS, Panels
from .parts import canvas, text, title
from .picture import Picture

HEIGHT, BAR = 440, 64
"""Pixels of a figure, and of those what its colour bar takes."""

_PRINTF: dict[str, Any] = {"$x": "printf", "$y": "printf"}


class MapPanels(Panels):
    """Images over two axes, vertical and horizontal."""

    def __init__(self, maps: MapSource, picture: Picture | None = None) -> None:
        super().__init__(maps)
        self.vertical, self.horizontal = maps.axes
        self.ranges: dict[str, Any] = {
            "x_range": DataRange1d(),
            "y_range": DataRange1d(flipped=not self.vertical.placed),
        }
        self.value = self._map("value", self.value_colours, HEIGHT)
        self.std = self._map("std", self.std_colours, HEIGHT)
        self.flags = self._map("shown", self.flag_colours, HEIGHT - BAR)
        for made, mapper in ((self.value, self.value_colours), (self.std, self.std_colours)):
            made.add_layout(ColorBar(color_mapper=mapper, height=12, padding=6), "below")
        self.painted = ColumnDataSource()
        if picture is not None:
            self.paint(np.zeros((1, 1), dtype=np.uint32), [axis.whole for axis in maps.axes])  # none is no image
            self.image = self._figure(HEIGHT - BAR)
            self.image.title.text = title(picture.title)
            drawn = self.image.image_rgba("rgba", "x", "y", "dw", "dh", source=self.painted, level="image")
            self.image.add_tools(HoverTool(tooltips=self._places()[:1], formatters=_PRINTF, renderers=[drawn]))

    def _map(self, column: str, mapper: LinearColorMapper, height: int) -> figure:
        made = self._figure(height)
        image = made.image(
            image=column, x="x", y="y", dw="dw", dh="dh", color_mapper=mapper, source=self.data, level="image"
        )
        made.add_tools(self.hover(image, *self._places(), **_PRINTF))
        return made

    def _figure(self, height: int) -> figure:
        """A figure over the ranges that all share, with the frame of the map and the mark of a pixel."""
        across, down = (axis.span(axis.whole) for axis in (self.horizontal, self.vertical))
        ratio = aspect_of(self.maps.dataset, self.maps.axes)
        shape = ratio * down[1] / across[1]
        shown = min(max(shape, 1.0 / MOST_ODD), MOST_ODD)
        if shown != shape:
            longer = (self.horizontal if shown > shape else self.vertical).dim
            self.remark = f"Drawn compressed {max(shape / shown, shown / shape):.2g} times along {longer}."
        aspect = {"match_aspect": True, "aspect_scale": shape / (ratio * shown)}
        made = canvas(height, TOOLS, active_scroll="wheel_zoom", **aspect, **self.ranges)
        frame = made.rect(
            x=across[0] + across[1] / 2,
            y=down[0] + down[1] / 2,
            width=across[1],
            height=down[1],
            fill_color=None,
            line_color="#808080",
        )
        for end in self.ranges.values():
            end.renderers = [*(end.renderers or []), frame]
        for size, colour in ((17, "black"), (13, "white")):
            made.scatter(
                "x",
                "y",
                source=self.marked,
                marker="square",
                size=size,
                fill_color=None,
                line_color=colour,
                line_width=2,
            )
        made.xaxis.axis_label = text(self.horizontal.label)
        made.yaxis.axis_label = text(self.vertical.label)
        for axis in made.axis:
            axis.formatter.use_scientific = False
            axis.ticker.desired_num_ticks = 4
        made.grid.visible = False
        return made

    def paint(self, colours: np.ndarray, windows: Sequence[Window]) -> None:
        """Draw the picture (rows, columns) of the cube over the windows."""
        self.painted.data = {"rgba": self.packed(colours)} | self.place(windows)

    def _places(self) -> list[tuple[str, str]]:
        across, down = self.horizontal.digits, self.vertical.digits
        named = f"{self.horizontal.dim}, {self.vertical.dim}"
        rows = [("place" if self.vertical.placed else legible(named), f"$x{{%.{across}f}}, $y{{%.{down}f}}")]
        if self.maps.geolocation:
            rows.append(("lat, lon", "@lat{0.00000}, @lon{0.00000}"))
        return rows

    def packed(self, values: np.ndarray) -> list[np.ndarray]:
        """One image, from the lower left where the axes have coordinates."""
        turned = [-1 if axis.step < 0 else 1 for axis in self.maps.axes]
        return [np.ascontiguousarray(values[:: turned[0], :: turned[1]])]

    def place(self, windows: Sequence[Window]) -> dict[str, list[float]]:
        """Where the image is."""
        (y, height), (x, width) = (axis.span(w) for axis, w in zip(self.maps.axes, windows, strict=True))
        return {"x": [x], "y": [y], "dw": [width], "dh": [height]}

    def windows(self, event: RangesUpdate) -> list[Window]:
        """Pixels in sight and some around them."""
        return [self.vertical.visible(event.y0, event.y1), self.horizontal.visible(event.x0, event.x1)]

    def pixel_at(self, event: Tap) -> dict[str, int] | None:
        """The pixel under a click: of all pixels of the map, not of those shown alone."""
        row, column = self.vertical.index(event.y), self.horizontal.index(event.x)
        return None if row is None or column is None else {self.vertical.dim: row, self.horizontal.dim: column}

    def mark(self, place: dict[str, int], value: float, std: float) -> None:
        """A square around a pixel."""
        x, y = (axis.centre(place[axis.dim]) for axis in (self.horizontal, self.vertical))
        self.marked.data = {"x": [x], "y": [y], "value": [value], "std": [std]}
