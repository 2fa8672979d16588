"""``info``, ``plot`` and ``view``: what files hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .base import Command
from .options import FILE, NOISE, READER, SELECT, TRUTH, VARIABLE, Names

if TYPE_CHECKING:
    import xarray as xr


KNOWN = click.option("--known", metavar="NAME=VALUE", multiple=True, help="A parameter known, as in invert; repeat it.")


@click.command(cls=Command, short_help="What a model, maps, a training set or a cube holds.")
@click.argument("file", type=FILE)
@VARIABLE
@READER
def info(file: Path, variable: str | None, reader: str | None) -> None:
    """Tell what FILE holds: a model, maps, a training set, an image cube or spectra.

    \b
    specinvert info model.nc
    specinvert info scene.tif --reader raster
    """
    from ..io.model import is_model

    if variable is None and reader is None and is_model(file):
        from ..inverter import load_inverter
        from .describe import describe_model

        click.echo(describe_model(load_inverter(file)))
        return
    from ..io.describe import describe_file

    click.echo(describe_file(file, variable, reader))


@click.command(cls=Command, short_help="Maps in the browser; a click shows a spectrum and its fit.")
@click.argument("maps", type=FILE)
@click.argument("cube", type=FILE, required=False)
@click.option("--model", type=FILE, help="Model that made the maps, to draw its fit of a pixel's spectrum.")
@NOISE
@KNOWN
@SELECT
@click.option("--port", type=int, help="Port to serve at.  [default: a free one]")
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to serve at.")
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in a browser.")
def view(
    maps: Path,
    cube: Path | None,
    model: Path | None,
    noise: str | None,
    known: tuple[str, ...],
    chosen: tuple[str, ...],
    port: int | None,
    address: str,
    browser: bool,
) -> None:
    """Look at MAPS in the browser, with the spectra of CUBE where it is given, until Ctrl-C.

    What a click computes has the noise, known parameters and bands in the settings beside the maps, MAPS.toml, which
    invert writes; --noise and --known go before.

    \b
    specinvert view maps.nc
    specinvert view maps.nc scene.nc --model model.nc --port 5006
    specinvert view maps.nc scene.nc --model model.nc --noise 0.01 --known incidence=30
    specinvert view series.nc --select time=2020-06-01
    """
    from ..view import serve
    from ..view.maps import open_maps, open_unread
    from .values import picked
    from .viewing import spectra_and_conditions

    source = open_maps(picked(open_unread(maps), chosen), maps.name)
    spectra, conditions = spectra_and_conditions(maps, cube, model, noise, known, chosen)
    serve(source, spectra, model, port=port, address=address, open_browser=browser, say=click.echo, **conditions)


@click.command(cls=Command, short_help="A figure of maps with their uncertainty and flags.")
@click.argument("maps", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Figure to write (.png, .pdf, .svg).")
@TRUTH
@click.option("--parameters", type=Names(), help="Parameters to draw.  [default: all that were not known in advance]")
@SELECT
def plot(maps: Path, output: Path, truth: Path | None, parameters: list[str] | None, chosen: tuple[str, ...]) -> None:
    """Draw MAPS: each parameter with its uncertainty, and the flags.

    \b
    specinvert plot maps.nc -o maps.png --truth scene.nc
    specinvert plot series.nc -o june.png --select time=2020-06-01
    """
    from ..diagnostics.layout import require_figure
    from ..diagnostics.maps_file import open_results
    from ..diagnostics.plots import plot_results, save_figure
    from ..io.atomic import check_target
    from .values import picked

    check_target(output)
    require_figure(output)
    true: xr.Dataset | None = None if truth is None else picked(open_results(truth), chosen, all_of_them=False)
    save_figure(plot_results(picked(open_results(maps), chosen), true, parameters), output)
    click.echo(f"wrote {output}")
