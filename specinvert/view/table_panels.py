"""Figures of a table: sample by number against value, uncertainty and flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.events import RangesUpdate, Tap
from bokeh.models import DataRange1d
from bokeh.plotting import figure

from .axes import Window
from .maps import MapSource
from .panels import TOOLS, Panels
from .parts import canvas, text

HEIGHT = 340
_DOT = "#0072B2"


class TablePanels(Panels):
    """Dots over one axis, which the figures share."""

    def __init__(self, maps: MapSource) -> None:
        super().__init__(maps)
        (self.axis,) = maps.axes
        self.x_range = DataRange1d()
        self.y_range = DataRange1d()
        self.value = self._figure("value", _DOT, self.y_range)
        self.std = self._figure("std", _DOT, DataRange1d())
        self.flags = self._figure("value", {"field": "shown", "transform": self.flag_colours}, self.y_range)

    def _figure(self, column: str, colour: Any, y_range: DataRange1d) -> figure:
        made = canvas(HEIGHT, TOOLS, active_scroll="wheel_zoom", x_range=self.x_range, y_range=y_range)
        line = "#606060" if isinstance(colour, dict) else None
        dots = made.scatter("x", column, source=self.data, size=6, fill_color=colour, line_color=line, line_width=0.5)
        made.scatter("x", column, source=self.marked, size=14, fill_color=None, line_color="black", line_width=2)
        made.add_tools(self.hover(dots, (self.axis.dim, "@x")))
        made.xaxis.axis_label = text(self.axis.label)
        return made

    def packed(self, values: np.ndarray) -> np.ndarray:
        """One number a dot."""
        return values

    def place(self, windows: Sequence[Window]) -> dict[str, np.ndarray]:
        """Numbers of the samples."""
        return {"x": windows[0].indices}

    def windows(self, event: RangesUpdate) -> list[Window]:
        """Samples in sight and some around them."""
        return [self.axis.visible(event.x0, event.x1)]

    def pixel_at(self, event: Tap) -> dict[str, int] | None:
        """The sample of the nearest dot, distances as shares of the ranges in sight."""
        made = next(made for made in self.figures if made.id == event.model.id)
        column = "std" if made is self.std else "value"
        x, y = (np.asarray(self.data.data[key], dtype=np.float64) for key in ("x", column))
        across, down = ((r.end - r.start) or 1.0 for r in (made.x_range, made.y_range))
        distance = np.hypot((x - event.x) / across, (y - event.y) / down)
        if not np.isfinite(distance).any():
            return None
        return {self.axis.dim: int(x[np.nanargmin(distance)])}

    def mark(self, place: dict[str, int], value: float, std: float) -> None:
        """A ring around a dot."""
        self.marked.data = {"x": [place[self.axis.dim]], "y": [value], "value": [value], "std": [std]}
