"""Serves the page on this machine until it is interrupted: files are opened once, each browser has its own page."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import xarray as xr
from bokeh.document import Document
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.settings import settings
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop

from ..inverter import GLLiMInverter, load_inverter, model_of
from ..io.reading import open_cube
from .maps import MapSource, open_maps
from .page import Page
from .pixel import Given, PixelReader


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
    tornado = BokehTornado(viewer, extra_websocket_origins=allowed, absolute_url=f"http://{_host(address, port)}")
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
    """The hosts in the browser's address line under which the page may be opened."""
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
