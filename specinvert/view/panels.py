"""Figures of the page: images of a map, its uncertainty and flags, moved together, or dots of a table; and its text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bokeh.events import RangesUpdate, Tap
from bokeh.models import (
    ColorBar,
    ColumnDataSource,
    CustomJSHover,
    DataRange1d,
    Div,
    GlyphRenderer,
    HoverTool,
    InlineStyleSheet,
    LayoutDOM,
    LinearColorMapper,
    PlainText,
    Row,
)
from bokeh.plotting import figure

from ..cubes import legible, wrapped
from ..figures import BLANK, MOST_ODD, flag_colours, render, unit_ratio
from ..flags import Flag
from .maps import Layer, MapSource, SceneImage, Window

PARTS = "view/parts.html"
"""Template of the text of the page."""


_PROSE = """
.bk-clearfix { display: block !important; }
:host { overflow-x: auto; max-width: 100%; font: 14px/1.45 system-ui, sans-serif; color: #1a1a1a; }
h1 { font-size: 19px; margin: 0; } h2 { font-size: 16px; margin: 8px 0 2px; } p { margin: 2px 0; }
.note { color: #595959; } .warn { color: #8a3800; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; margin: 4px 0; }
caption { text-align: left; color: #595959; padding: 2px 0; }
th, td { padding: 2px 10px 2px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid #e3e3e3; }
th { font-weight: 600; white-space: normal; } tbody th { min-width: 8em; overflow-wrap: anywhere; }
tbody th, thead th:first-child { text-align: left; font-weight: 400; }
td.words, th.words { text-align: left; }
dl { margin: 4px 0; display: grid; grid-template-columns: max-content 1fr; gap: 1px 12px; }
dt { color: #595959; } dd { margin: 0; overflow-wrap: anywhere; }
"""


def text(content: object) -> PlainText:
    """Text from a file for a canvas: no part of it is a formula, unseen characters go."""
    return PlainText(text=legible(content))


def title(*lines: str) -> PlainText:
    """Text from files as the title of a figure: each part in up to three lines of its own."""
    return PlainText(text="\n".join(wrapped(legible(line), 42, 3) for line in lines))


def line(content: str, kind: str) -> str:
    """A line of text in HTML: a "note" or to "warn"."""
    return render(PARTS, "line", text=content, kind=kind)


def prose(content: str, **options: Any) -> Div:
    """A piece of the page in HTML, of which text from files is escaped already."""
    sheet = InlineStyleSheet(css=_PROSE)
    return Div(text=content, sizing_mode="stretch_width", disable_math=True, stylesheets=[sheet], **options)


def canvas(height: int, tools: str, **options: Any) -> figure:
    """A figure as wide as its place."""
    made = figure(height=height, sizing_mode="stretch_width", tools=tools, min_border_right=14, **options)
    made.toolbar.logo = None
    made.title.text_font_size = "14px"
    for axis in made.axis:
        axis.axis_label_text_font_style = "normal"
    return made


def side_by_side(*parts: LayoutDOM, least: int = 340) -> Row:
    """Parts of equal width, below each other where the page has fewer than ``least`` pixels for each."""
    for part in parts:
        part.styles = {"flex": f"1 1 {least}px", "min-width": "0"}
    wrap = InlineStyleSheet(css=":host { flex-wrap: wrap; }")
    return Row(children=list(parts), sizing_mode="stretch_width", stylesheets=[wrap], spacing=12)


TOOLS = "pan,wheel_zoom,box_zoom,reset,save"
VALUES, SPREAD, NO_FLAG = "Viridis256", "Magma256", "#ffffff"
FLAG_TITLE = "quality flags (of several, the first)"
_SPREAD = 'return isNaN(value) ? "" : ` ± ${Number(value.toPrecision(3))}`'
_DECODE = """
const found = names.filter((_, i) => (value & masks[i]) != 0)
return found.length > 0 ? found.join(", ") : "none"
"""


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

    def show(self, views: dict[str, np.ndarray], windows: Sequence[Window], active: Sequence[int]) -> None:
        """Draw pixels that were read over the windows, and of their flags those that are active."""
        self.raw_flags = views.get("flag")
        shape = views["value"].shape
        flags = np.zeros(shape, dtype=np.int32) if self.raw_flags is None else self.raw_flags
        columns = {"std": np.full(shape, np.nan, dtype=np.float32)} | views
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


HEIGHT, BAR = 440, 64
"""Pixels of a figure, and of those what its colour bar takes."""

_PRINTF: dict[str, Any] = {"$x": "printf", "$y": "printf"}


class MapPanels(Panels):
    """Images over two axes, vertical and horizontal."""

    def __init__(self, maps: MapSource, picture: SceneImage | None = None) -> None:
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
        up, right = ((axis.first, axis.first + axis.size * axis.step) for axis in self.maps.axes)
        dims = self.vertical.dim, self.horizontal.dim
        ratio = unit_ratio(self.maps.dataset, dims, up, right) if self.vertical.placed else 1.0
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
        square = {"marker": "square", "fill_color": None, "line_width": 2}
        for size, colour in ((17, "black"), (13, "white")):
            made.scatter("x", "y", source=self.marked, size=size, line_color=colour, **square)
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


TABLE_HEIGHT = 340
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
        made = canvas(TABLE_HEIGHT, TOOLS, active_scroll="wheel_zoom", x_range=self.x_range, y_range=y_range)
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
