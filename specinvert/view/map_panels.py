"""Figures of maps: images of a parameter, its uncertainty and the flags, moved together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.events import RangesUpdate, Tap
from bokeh.models import ColorBar, DataRange1d, LinearColorMapper
from bokeh.plotting import figure

from .axes import Window, aspect_of
from .maps import MapSource
from .panels import FLAG_TITLE, TOOLS, Panels
from .parts import canvas, text

HEIGHT, BAR = 440, 64
"""Pixels of a figure, and of those what its colour bar takes."""


class MapPanels(Panels):
    """Images over two axes, vertical and horizontal."""

    def __init__(self, maps: MapSource) -> None:
        super().__init__(maps)
        self.vertical, self.horizontal = maps.axes
        self.ranges: dict[str, Any] = {
            "x_range": DataRange1d(),
            "y_range": DataRange1d(flipped=not self.vertical.placed),
        }
        self.value = self._figure("value", self.value_colours, HEIGHT)
        self.std = self._figure("std", self.std_colours, HEIGHT)
        self.flags = self._figure("shown", self.flag_colours, HEIGHT - BAR)
        self.flags.title.text = FLAG_TITLE
        for made, mapper in ((self.value, self.value_colours), (self.std, self.std_colours)):
            made.add_layout(ColorBar(color_mapper=mapper, height=12, padding=6), "below")

    def _figure(self, column: str, mapper: LinearColorMapper, height: int) -> figure:
        aspect = {"match_aspect": True, "aspect_scale": 1.0 / aspect_of(self.maps.dataset, self.maps.axes)}
        made = canvas(height, TOOLS, active_scroll="wheel_zoom", **aspect, **self.ranges)
        across, down = (axis.span(axis.whole) for axis in (self.horizontal, self.vertical))
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
        image = made.image(
            image=column, x="x", y="y", dw="dw", dh="dh", color_mapper=mapper, source=self.data, level="image"
        )
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
        made.add_tools(self.hover(image, *self._places(), **{"$x": "printf", "$y": "printf"}))
        made.xaxis.axis_label = text(self.horizontal.label)
        made.yaxis.axis_label = text(self.vertical.label)
        for axis in made.axis:
            axis.formatter.use_scientific = False
            axis.ticker.desired_num_ticks = 4
        made.grid.visible = False
        return made

    def _places(self) -> list[tuple[str, str]]:
        across, down = self.horizontal.digits, self.vertical.digits
        rows = [("place", f"$x{{%.{across}f}}, $y{{%.{down}f}}")]
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
