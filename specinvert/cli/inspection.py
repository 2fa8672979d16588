"""``info``, ``plot`` and ``view``: what files hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .base import Command, Session, check_targets
from .inversion import CubeReading, invert
from .options import FILE, KNOWN, NOISE, READER, SELECT, TRUTH, VARIABLE, Names, config_path, read_config
from .values import each_array, noise_of, picked, read_known, read_noise

if TYPE_CHECKING:
    import xarray as xr


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
    from ..io import is_model

    if variable is None and reader is None and is_model(file):
        from ..inverter import load_inverter

        inverter = load_inverter(file)
        trials = [] if inverter.summary_ is None else inverter.summary_.trials
        click.echo("\n".join([describe_model(inverter), *(f"  {line}" for line in trials)]))
        return
    from ..io.reading import describe_file

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
def view(maps: Path, port: int | None, address: str, browser: bool, **given: Any) -> None:
    """Look at MAPS in the browser, with the spectra of CUBE where it is given, until Ctrl-C.

    What a click computes has the noise, known parameters and bands in the settings beside the maps, MAPS.toml, which
    invert writes; --noise and --known go before.

    \b
    specinvert view maps.nc
    specinvert view maps.nc scene.nc --model model.nc --port 5006
    specinvert view maps.nc scene.nc --model model.nc --noise 0.01 --known incidence=30
    specinvert view series.nc --select time=2020-06-01
    """
    from ..view import open_maps, open_unread, serve

    source = open_maps(picked(open_unread(maps), given["chosen"]), maps.name)
    spectra, conditions = spectra_and_conditions(maps, **given)
    page: dict[str, Any] = {"port": port, "address": address, "open_browser": browser, "say": click.echo}
    serve(source, spectra, given["model"], **page, **conditions)


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
    from ..figures import open_results, plot_results, save_figure

    check_targets((output,), figure=output)
    true: xr.Dataset | None = None if truth is None else picked(open_results(truth), chosen, all_of_them=False)
    save_figure(plot_results(picked(open_results(maps), chosen), true, parameters), output)
    click.echo(f"wrote {output}")


def describe_model(inverter: Any) -> str:
    """What a trained inverter is, with the ranges of its parameters."""
    from ..cubes import units_of

    model, theta = inverter.model_, inverter.parameters_
    wavelength = model.bands.wavelength
    span = "" if wavelength is None else f", {wavelength.min():g} to {wavelength.max():g} nm"
    state = "converged" if model.converged else "not converged"
    lines = [
        f"GLLiM model {inverter.model_id}",
        f"  bands       {theta.n_bands}{span}",
        *([f"  spectra     {model.spectra_transform.kind}"] if model.spectra_transform.kind else []),
        f"  components  {theta.n_components}" + (f" ({model.n_removed} removed)" if model.n_removed else ""),
        f"  latent      {theta.n_latent}",
        f"  noise       {theta.constraints.sigma}{', tied' if theta.constraints.tied_sigma else ''}",
        *([f"  committee   {model.committee}"] if len(model.members) > 1 else []),
        f"  training    {model.n_samples} samples, {inverter.n_iter_} iterations, {state}",
        *(f"  history     {line}" for line in model.training.splitlines()),
        f"  BIC         {inverter.bic_:.6g}",
        *([f"  recalibrated {model.recalibration.described}"] if model.recalibration is not None else []),
        *(
            [f"  calibrated  {said}" for said in model.calibration.described.split("; ")]
            if model.calibration is not None
            else []
        ),
        *([f"  prior       {model.scene_prior.verdict}"] if model.scene_prior is not None else []),
        "  parameters",
    ]
    for i, (name, low, high) in enumerate(zip(model.names, model.low, model.high, strict=True)):
        units = units_of(model.attrs[name])
        entry = model.transforms.entry(i)
        kind = f"softplus of scale {entry.unit:.3g}" if entry.kind == "softplus" else entry.kind
        line = f"    {name}: {low:g} to {high:g}{f' {units}' if units else ''}"
        lines.append(line if kind == "identity" else f"{line}, {kind}")
    if model.summary is not None:
        lines += [f"  {line}" for line in str(model.summary).splitlines()]
    return "\n".join(lines)


def spectra_and_conditions(
    maps: Path,
    cube: Path | None,
    model: Path | None,
    noise: str | None,
    known: Sequence[str],
    chosen: Sequence[str] = (),
) -> tuple[Any, dict[str, Any]]:
    """The cube as ``invert`` read it, or None, and what ``serve`` takes, at the entries that ``chosen`` names."""
    if (noise is not None or known) and (cube is None or model is None):
        raise ValueError("--noise and --known are for the spectrum that is clicked: give CUBE and --model too")
    if cube is None:
        return None, {}
    settings = _settings(maps)
    kept = settings.keys() & {"band_dim", "tolerance", "min_valid_bands", "noise_includes_training"}
    options = {name: settings[name] for name in kept}
    same = "cube" in settings and Path(settings["cube"]).absolute() == cube.absolute()
    left_out = () if same else ("variable", "reader")
    names = [one.name for one in fields(CubeReading) if one.name in settings and one.name not in left_out]
    reading = CubeReading(**{name: settings[name] for name in names})
    spectra = reading.open(cube)
    origin = "as given"
    if noise is None and not known:
        noise, known = settings.get("noise"), settings.get("known", ())
        origin = f"as {config_path(maps).name} says"
    else:
        options.pop("noise_includes_training", None)
    try:
        given = {"noise": noise_of(read_noise(noise), spectra, None, reading.band_dim), "known": read_known(known)}
    except ValueError as error:
        raise ValueError(f"{error}; give --noise and --known, or correct {config_path(maps)}") from error
    given = each_array(given, lambda array: picked(array, chosen, all_of_them=False))
    return picked(spectra, chosen, all_of_them=False), {**given, **options, "origin": origin}


def _settings(maps: Path) -> dict[str, Any]:
    """The options of the inversion that made the maps, where their file is beside them and is one of ``invert``."""
    path = config_path(maps)
    if not path.exists():
        return {}
    try:
        return read_config(path, invert)
    except (ValueError, OSError) as error:
        Session.current().console.warn(f"{error}; a click is computed without these settings")
        return {}
