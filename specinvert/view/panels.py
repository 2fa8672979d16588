"""What the figures of maps and those of tables share: their data, colours, titles, and the values under the pointer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bokeh.events import RangesUpdate, Tap
from bokeh.models import ColumnDataSource, CustomJSHover, GlyphRenderer, HoverTool, LinearColorMapper
from bokeh.plotting import figure

from specinvert.diagnostics.flags import NODATA, Flag
from specinvert.diagnostics.map_plots import FLAG_COLOURS
from specinvert.diagnostics.wording import legible

from .axes import Window
from .maps import Layer, MapSource
from .parts import BLANK, title

TOOLS = "pan,wheel_zoom,box_zoom,reset,save"
VALUES, SPREAD, NO_FLAG = "Viridis256", "Magma256", "#ffffff"
FLAG_TITLE = "quality flags (of several, the first)"
_SPREAD = 'return isNaN(value) ? "" : ` ± ${Number(value.toPrecision(3))}`'
_DECODE = """
const found = names.filter((_, i) => (value & masks[i]) != 0)
return found.length > 0 ? found.join(", ") : "none"
"""


def flag_colours(flags: Sequence[Flag]) -> list[str]:
    """A colour for each flag, grey for no data."""
    return [BLANK if f.name == NODATA else FLAG_COLOURS[i % len(FLAG_COLOURS)] for i, f in enumerate(flags)]


def first_flag(values: np.ndarray, flags: Sequence[Flag], active: Sequence[int]) -> np.ndarray:
    """Number of the first flag of those ``active`` that each pixel has, counted from 1; 0 for none."""
    if not active:
        return np.zeros(values.shape, dtype=np.uint8)
    raised = [(values & flags[i].mask) != 0 for i in active]
    return np.select(raised, [i + 1 for i in active], default=0).astype(np.uint8)


class Panels(ABC):
    """Figures ``value``, ``std`` and ``flags`` of the same pixels, and ``image`` of the cube where there can be one."""

    value: figure
    std: figure
    flags: figure
    image: figure | None = None
    remark = ""

    def __init__(self, maps: MapSource) -> None:
        self.maps = maps
        self.data = ColumnDataSource()
        self.marked = ColumnDataSource(data={"x": [], "y": [], "value": [], "std": []})
        colours = [NO_FLAG, *flag_colours(maps.flags)]
        self.value_colours = LinearColorMapper(palette=VALUES, low=0.0, high=1.0, nan_color=BLANK)
        self.std_colours = LinearColorMapper(palette=SPREAD, low=0.0, high=1.0, nan_color=BLANK)
        self.flag_colours = LinearColorMapper(palette=colours, low=-0.5, high=len(colours) - 0.5)

    @property
    def figures(self) -> list[figure]:
        """All of them."""
        return [self.value, self.std, self.flags, *([] if self.image is None else [self.image])]

    def listen(self, tapped: Callable[[Tap], None], moved: Callable[[RangesUpdate], None]) -> None:
        """Call back on clicks, and where a range changes."""
        for made in self.figures:
            made.on_event(Tap, tapped)
            made.on_event(RangesUpdate, moved)

    def yield_to_touch(self) -> None:
        """Let a finger that is drawn over a figure move the page, until the tool to pan is chosen."""
        for made in self.figures:
            made.toolbar.active_drag = None

    def label(self, layer: Layer) -> None:
        """Titles of the figures."""
        units, entry = f" ({layer.units})" if layer.units else "", [layer.entry] if layer.entry else []
        self.value.title.text = title(f"{layer.what}{units}", *entry)
        self.std.title.text = title(f"standard deviation{units}", *entry)
        self.flags.title.text = title(FLAG_TITLE, *entry)

    def show(self, found: dict[str, np.ndarray], windows: Sequence[Window], active: Sequence[int]) -> None:
        """Draw pixels that were read over the windows, and of their flags those that are active."""
        self.raw_flags = found.get("flag")
        shape = found["value"].shape
        flags = np.zeros(shape, dtype=np.int32) if self.raw_flags is None else self.raw_flags
        columns = {"std": np.full(shape, np.nan, dtype=np.float32)} | found
        columns["shown"] = first_flag(flags, self.maps.flags, active)
        self.data.data = {key: self.packed(values) for key, values in columns.items()} | self.place(windows)

    def recolour(self, active: Sequence[int]) -> None:
        """Show other flags of the same pixels."""
        if self.raw_flags is not None:
            shown = first_flag(self.raw_flags, self.maps.flags, active)
            self.data.data = {**self.data.data, "shown": self.packed(shown)}

    def hover(self, renderer: GlyphRenderer, *rows: tuple[str, str], **formatters: Any) -> HoverTool:
        """Value, deviation and flags under the pointer, then ``rows``; bokeh escapes what it fills in."""
        shown = [("value", "@value{%.6g}@std{custom}")]
        formats: dict[str, Any] = {"@value": "printf", "@std": CustomJSHover(code=_SPREAD), **formatters}
        if self.maps.flags:
            names = [legible(flag.title) for flag in self.maps.flags]
            args = {"masks": [flag.mask for flag in self.maps.flags], "names": names}
            formats["@flag"] = CustomJSHover(args=args, code=_DECODE)
            shown.append(("flags", "@flag{custom}"))
        return HoverTool(tooltips=[*shown, *rows], formatters=formats, renderers=[renderer])

    @abstractmethod
    def packed(self, values: np.ndarray) -> Any:
        """Values as a column of the data."""

    @abstractmethod
    def place(self, windows: Sequence[Window]) -> dict[str, Any]:
        """Columns that say where the values are."""

    @abstractmethod
    def windows(self, event: RangesUpdate) -> list[Window]:
        """What is to be read for ranges."""

    @abstractmethod
    def pixel_at(self, event: Tap) -> dict[str, int] | None:
        """The pixel under a click, by dimension; None where there is none."""

    @abstractmethod
    def mark(self, place: dict[str, int], value: float, std: float) -> None:
        """Mark a pixel, which has these values."""
