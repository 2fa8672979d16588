"""The page of maps, the chosen one with uncertainty and flags and the clicked pixel; and the server that shows it.

Files are opened once, each browser has its own page.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from bokeh.document import Document
from bokeh.events import RangesUpdate, Tap
from bokeh.models import Button, CheckboxGroup, Column, InlineStyleSheet, NumericInput, RadioButtonGroup, Select
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.server.util import check_allowlist
from bokeh.settings import settings
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import ErrorHandler

from ..cubes import legible, percent
from ..figures import flag_colours, render, robust_limits
from ..flags import FLAG_NAME, flag_shares
from ..inverter import GLLiMInverter, load_inverter, model_of
from ..io.reading import open_cube
from .maps import Layer, MapSource, Window, open_maps
from .panels import PARTS, MapPanels, Panels, TablePanels, line, prose, side_by_side
from .pixel import Given, Pixel, PixelPanel, PixelReader

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


class Viewer:
    """What a page is made from: maps, the cube that they are of, and the model.

    Parameters
    ----------
    maps : path of a netCDF file, Zarr store, GeoTIFF or table, a Dataset, or a MapSource. Files are read as far as
        they are shown.
    cube : path of a file that :func:`specinvert.open_cube` opens, or spectra with labels; None for none.
    model : path of a model, or a fitted GLLiMInverter; None for none.
    given : noise, known parameters and other options for the spectrum that is clicked; None for none.

    Raises
    ------
    FileNotFoundError, PermissionError : of a path.
    ValueError : no maps, a cube of other pixels, one that does not fit the model, a model that is not fitted, or
        noise or known parameters that do not fit cube and model.
    """

    def __init__(
        self,
        maps: str | os.PathLike[str] | xr.Dataset | MapSource,
        cube: str | os.PathLike[str] | xr.DataArray | xr.Dataset | None = None,
        model: str | os.PathLike[str] | GLLiMInverter | None = None,
        given: Given | None = None,
    ) -> None:
        self.source = open_maps(maps)
        inverter = load_inverter(os.fspath(model)) if isinstance(model, str | os.PathLike) else model
        spectra = open_cube(cube) if isinstance(cube, str | os.PathLike) else cube
        if inverter is not None:
            model_of(inverter)
        self.reader = PixelReader(self.source, spectra, inverter, given)

    def __call__(self, document: Document) -> None:
        """Put a page of its own into a document of bokeh."""
        Page(self.source, self.reader).attach(document)


class Application(BokehTornado):  # type: ignore[misc]
    """Bokeh's, that answers only requests for hosts of its own: names that others point here read nothing."""

    def __init__(self, viewer: Viewer, hosts: Sequence[str], url: str) -> None:
        self.hosts = [host.lower() for host in hosts]
        super().__init__(viewer, extra_websocket_origins=self.hosts, absolute_url=url)

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> HTTPMessageDelegate:
        """Of bokeh where the host of a request is one of ours, else one that refuses it, websockets too."""
        host = request.host.lower()
        bare = ":" not in host and check_allowlist(f"{host}:443", self.hosts)  # behind a proxy
        if bare or check_allowlist(host, self.hosts):
            return super().find_handler(request, **options)
        return self.get_handler_delegate(request, ErrorHandler, {"status_code": 403})


LOOPBACK = "127.0.0.1"
_OPTIONS = {"band_dim", "tolerance", "min_valid_bands", "noise_includes_training"}


def serve(
    maps: str | os.PathLike[str] | xr.Dataset | MapSource,
    cube: str | os.PathLike[str] | xr.DataArray | xr.Dataset | None = None,
    model: str | os.PathLike[str] | GLLiMInverter | None = None,
    *,
    noise: Any = None,
    known: Any = None,
    port: int | None = None,
    address: str = LOOPBACK,
    open_browser: bool = True,
    origins: Sequence[str] = (),
    say: Callable[[str], None] = print,
    origin: str = "",
    **options: Any,
) -> None:
    """Show maps in the browser until Ctrl-C.

    Parameters
    ----------
    maps, cube, model : as for :class:`Viewer`.
    noise, known : for the spectrum that is clicked, as in :meth:`specinvert.GLLiMInverter.invert`: give those that
        the maps were made with.
    port : to listen on; None or 0 takes a free one.
    address : to listen on. Any but the loopback lets others who reach it read the maps, and ``say`` warns of it.
    open_browser : whether to open the page in the browser of this machine.
    origins : further ``host:port`` under which browsers may open the page, as behind a proxy.
    say : called with the address of the page, and with warnings.
    origin : words for the page on where noise, known parameters and options come from.
    options : ``band_dim``, ``tolerance``, ``min_valid_bands`` and ``noise_includes_training`` of the inversion.

    Raises
    ------
    FileNotFoundError, PermissionError, ValueError : as of :class:`Viewer`, and for a port that is none.
    OSError : the port is in use, or the address is not one of this machine.
    """
    port = port or 0
    if not 0 <= port <= 65535:
        raise ValueError(f"port={port} must lie between 0 and 65535")
    strange = sorted(set(options) - _OPTIONS)
    if strange:
        raise TypeError(f"serve() got unexpected arguments {', '.join(strange)}")
    viewer = Viewer(maps, cube, model, Given(noise, known, options, origin))
    server = start(viewer, port, address, origins)
    assert server.port is not None
    url = f"http://{_host(address, server.port)}/"
    if not is_loopback(address):
        say(f"Warning: listening on {address}, so everyone who reaches this machine there can read the maps.")
    try:
        say(f"{viewer.source.name} is shown at {url} until Ctrl-C")
        if open_browser:
            server.io_loop.add_callback(server.show, "/")
        server.io_loop.start()
    except KeyboardInterrupt:
        say("stopped")
    finally:
        server.stop()
        server.io_loop.close()


def start(viewer: Viewer, port: int, address: str = LOOPBACK, origins: Sequence[str] = ()) -> BaseServer:
    """A server that listens, to be run by its ``io_loop``; raises as :func:`serve`."""
    settings.resources = "server"  # whatever the environment says: nothing is asked of other machines
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = socket.create_server((address, port), family=family)
    except OSError as error:
        raise OSError(_reason(error, address, port)) from error
    listening.setblocking(False)
    port = listening.getsockname()[1]
    allowed = [*allowed_origins(address, port), *origins]
    tornado = Application(viewer, allowed, f"http://{_host(address, port)}")
    http = HTTPServer(tornado)
    http.add_socket(listening)
    server = BaseServer(IOLoop.current(), tornado, http)
    server.start()
    return server


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def allowed_origins(address: str, port: int) -> list[str]:
    """The hosts in the browser's address line under which the page may be opened; no other request is answered."""
    hosts = ["127.0.0.1", "localhost", "[::1]"]
    if not is_loopback(address):
        hosts += [socket.gethostname(), socket.getfqdn(), address]
    return [f"{host}:{port}" for host in dict.fromkeys(hosts)]


def _host(address: str, port: int) -> str:
    """Host and port for an address line."""
    shown = "127.0.0.1" if address in ("0.0.0.0", "::", "") else address
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def _reason(error: OSError, address: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} of {address} is in use: end what listens there, or choose another port (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"no permission to listen on port {port}: choose one above 1023"
    return f"cannot listen on {address}, port {port}: {error.strerror}"
