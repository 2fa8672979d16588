"""The page: a list of maps, the chosen one with its uncertainty and flags, and the pixel that was clicked."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from bokeh.document import Document
from bokeh.events import RangesUpdate, Tap
from bokeh.models import (
    Button,
    CheckboxGroup,
    Column,
    InlineStyleSheet,
    NumericInput,
    RadioButtonGroup,
    Select,
)

from ..cubes import legible, percent
from ..figures import flag_colours, render, robust_limits
from ..flags import FLAG_NAME, flag_shares
from .maps import Layer, MapSource, Window
from .panels import PARTS, MapPanels, Panels, TablePanels, line, prose, side_by_side
from .pixel import Pixel, PixelPanel, PixelReader

DELAY = 200
"""Milliseconds of rest after which a moved view is read anew."""
BESIDE = ("Uncertainty", "Quality flags", "Image")
TEMPLATE = """
{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'self' data: blob:; connect-src 'self';
 script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'">
<style>
html { scrollbar-gutter: stable; }
body { margin: 0 auto; padding: 8px 12px; max-width: 1500px; height: auto; background: #fff; }
</style>
{% endblock %}
"""


class Page:
    """One browser's page and what it does on clicks; ``pixel`` is the one shown last."""

    def __init__(self, source: MapSource, reader: PixelReader) -> None:
        self.source, self.reader = source, reader
        self.picture = reader.picture() if len(source.dims) == 2 else None
        self.panels: Panels = MapPanels(source, self.picture) if len(source.dims) == 2 else TablePanels(source)
        self.painted: tuple[list[Window], dict[Hashable, int]] | None = None
        self.panel = PixelPanel(reader)
        self.layer: Layer = source.layers[0]
        self.seen: list[Window] = []
        self.pixel: Pixel | None = None
        self._document: Document | None = None
        self._pending: Any = None

        options = [
            (str(i), title) for i, title in enumerate(_distinct([legible(layer.title) for layer in source.layers]))
        ]
        self.choice = Select(title="Map", options=options, value="0", sizing_mode="stretch_width")
        self.low = NumericInput(title="Colours from", mode="float", sizing_mode="stretch_width")
        self.high = NumericInput(title="to", mode="float", sizing_mode="stretch_width")
        self.robust = Button(label="2 to 98 %", align="end", sizing_mode="stretch_width")
        self.beside = RadioButtonGroup(labels=list(BESIDE if self.picture else BESIDE[:2]), active=0, align="end")
        self.flags = CheckboxGroup(labels=[], active=list(range(len(source.flags))), stylesheets=[_swatches(source)])
        self.status = prose("")
        beside = [*self.panels.figures[1:], self.flags]
        self.right = Column(children=beside, sizing_mode="stretch_width")
        self.root = self._arrange()
        self.show(self.layer)
        self._switch()

    def _arrange(self) -> Column:
        remarks = [*self.reader.remarks, *self.reader.conditions]
        title = str(self.source.dataset.attrs.get("title", ""))
        head = prose(render(PARTS, "page", name=self.source.name, title=title, remarks=remarks))
        limits = [self.low, self.high, self.robust] if len(self.source.dims) == 2 else []
        controls = side_by_side(self.choice, *([side_by_side(*limits, least=70)] if limits else []), least=300)
        maps = side_by_side(self.panels.value, self.right, least=340)
        return Column(
            children=[head, controls, self.beside, maps, self.status, self.panel.root], sizing_mode="stretch_width"
        )

    def attach(self, document: Document) -> None:
        """Make the page the content of a document, and listen."""
        self._document = document
        document.title = legible(f"{self.source.name} - specinvert")
        document.template = TEMPLATE
        self.choice.on_change("value", lambda attr, old, new: self.show(self.source.layers[int(new)]))
        for end in (self.low, self.high):
            end.on_change("value", lambda attr, old, new: self._limit())
        self.robust.on_click(self._reset_limits)
        self.beside.on_change("active", lambda attr, old, new: self._switch())
        self.flags.on_change("active", lambda attr, old, new: self.panels.recolour(new))
        request = getattr(document.session_context, "request", None)
        if request is not None and "Mobi" in request.headers.get("User-Agent", ""):
            self.panels.yield_to_touch()
        self.panels.listen(self.tapped, self._moved)
        document.add_root(self.root)  # last: bokeh forgets events that are asked for later

    def show(self, layer: Layer) -> None:
        """Show another map, over the same pixels as before."""
        entry_stays = layer.at_entry_of(self.layer) and self.layer.at_entry_of(layer)
        self.layer = layer
        whole = [axis.whole for axis in self.source.axes]
        seen, self.seen = self.seen or whole, whole
        views = self.source.read(layer, whole)
        self.panels.label(layer)
        self._limits = robust_limits(views["value"])
        self._reset_limits()
        colours = self.panels.std_colours
        colours.low, colours.high = robust_limits(views.get("std", np.empty(0)))
        self._share(views)
        self.panels.show(views, whole, self.flags.active)
        self._look(seen)
        self._switch()
        self._tell()
        if self.pixel is not None and entry_stays:
            self._mark(self.pixel)
        elif self.pixel is not None:
            self.select(self.pixel.place)

    def _share(self, views: dict[str, np.ndarray]) -> None:
        """Write beside each flag the share of pixels that have it."""
        variable = self.source.flag_variable
        if variable is None:
            return
        dims = self.source.dims
        shares = flag_shares(xr.DataArray(views["flag"], dims=dims, attrs=variable.attrs))
        each = [float(shares.sel({FLAG_NAME: flag.name})) for flag in self.source.flags]
        self.flags.labels = [
            f"{legible(flag.title)} ({percent(share)})" for flag, share in zip(self.source.flags, each, strict=True)
        ]

    def _look(self, windows: list[Window]) -> None:
        """Read what is in sight, unless it is shown already as densely."""
        if all(have.shows(wanted) for have, wanted in zip(self.seen, windows, strict=True)):
            return
        self.seen = windows
        self.panels.show(self.source.read(self.layer, windows), windows, self.flags.active)
        self._paint()
        self._tell()

    def _tell(self) -> None:
        stride = max(window.stride for window in self.seen)
        sizes = " x ".join(str(axis.size) for axis in self.source.axes)
        every = (
            f"one in {stride} of each dimension is shown; zoom in to see all" if stride > 1 else "all in sight shown"
        )
        lines = [f"{sizes} pixels, {every}."]
        if self.layer.long_name:
            lines.insert(0, f"{self.layer.long_name}.")
        if self.panels.remark:
            lines.append(self.panels.remark)
        if self.source.omitted:
            lines.append(f"Not in the list: {'; '.join(self.source.omitted)}; --select shows an entry of them.")
        self.status.text = line(" ".join(lines), "note")

    def _reset_limits(self) -> None:
        self.low.value, self.high.value = (float(f"{limit:.4g}") for limit in self._limits)
        self._limit()

    def _limit(self) -> None:
        """Take the range of colours from the inputs, where it is one."""
        low, high = self.low.value, self.high.value
        if low is not None and high is not None and low < high:
            self.panels.value_colours.low, self.panels.value_colours.high = low, high

    def _switch(self) -> None:
        """Show uncertainty, flags or the cube's image, as chosen and as there are."""
        there = [self.source.std_of(self.layer) is not None, bool(self.source.flags), self.picture is not None]
        chosen = self.beside.active if there[self.beside.active] else next((i for i in range(3) if there[i]), None)
        self.panels.std.visible = chosen == 0
        self.panels.flags.visible = self.flags.visible = chosen == 1
        if self.panels.image is not None:
            self.panels.image.visible = chosen == 2
        self.right.visible = chosen is not None
        self.beside.visible = sum(there) > 1
        self._paint()

    def _paint(self) -> None:
        """Read the cube's image where it is in sight and not yet drawn."""
        if self.picture is None or self.panels.image is None or not self.panels.image.visible:
            return
        wanted = self.seen, dict(self.layer.selection)
        if self.painted != wanted and isinstance(self.panels, MapPanels):
            self.painted = wanted
            self.panels.paint(self.picture.read(*wanted), self.seen)

    def _moved(self, event: RangesUpdate) -> None:
        """Read what came in sight once the view has rested."""
        document = self._document
        assert document is not None
        if self._pending is not None:
            document.remove_timeout_callback(self._pending)

        def rest() -> None:
            self._pending = None
            self.refine(event)

        self._pending = document.add_timeout_callback(rest, DELAY)

    def refine(self, event: RangesUpdate) -> None:
        """Read the pixels within ranges."""
        self._look(self.panels.windows(event))

    def tapped(self, event: Tap) -> None:
        """Show the pixel under a click."""
        place = self.panels.pixel_at(event)
        if place is not None:
            self.select(place)

    def select(self, place: dict[str, int]) -> None:
        """Show the pixel at an index by dimension."""
        try:
            self.pixel = self.reader.read(place, self.layer)
        except (OSError, ValueError, RuntimeError) as error:
            self.panel.fail(str(error))
            return
        self._mark(self.pixel)
        self.panel.show(self.pixel)

    def _mark(self, pixel: Pixel) -> None:
        stored = next(entry for entry in pixel.stored if entry.layer == self.layer)
        self.panels.mark(pixel.place, stored.value, np.nan if stored.std is None else stored.std)


def _distinct(titles: Sequence[str]) -> list[str]:
    """Titles with a number behind those that are taken."""
    made: list[str] = []
    for title in titles:
        count = sum(other == title or other.startswith(f"{title} [") for other in made)
        made.append(f"{title} [{count + 1}]" if count else title)
    return made


def _swatches(source: MapSource) -> InlineStyleSheet:
    """A patch in the colour of its flag before each label."""
    box = "content: ''; display: inline-block; width: 12px; height: 12px; margin-right: 6px; border: 1px solid #666;"
    rules = [
        f"label:nth-of-type({i}) > span::before {{ {box} background: {colour}; }}"
        for i, colour in enumerate(flag_colours(source.flags), start=1)
    ]
    return InlineStyleSheet(css=" ".join(rules))
