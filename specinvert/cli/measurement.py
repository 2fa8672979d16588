"""``rank`` and ``check``: what measured spectra say of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .assessment import in_one_line
from .base import Command, Session, check_targets, cluster, require_spectra, tell_written, write_table
from .inversion import CubeReading
from .options import (
    BAND_DIM,
    BANDS,
    EXCLUDE,
    FIGURE,
    FILE,
    KNOWN,
    NOISE,
    READER,
    SCHEDULER,
    TABLE,
    TOLERANCE,
    VARIABLE,
)
from .values import noise_of, read_known, read_noise


@click.command(cls=Command, short_help="Rank models by spectra whose parameters are not known.")
@click.argument("spectra", type=FILE)
@click.argument("models", metavar="MODEL...", type=FILE, nargs=-1, required=True)
@TABLE
@FIGURE
@NOISE
@VARIABLE
@READER
@BAND_DIM
@TOLERANCE
@SCHEDULER
def rank(
    spectra: Path,
    models: tuple[Path, ...],
    output: Path | None,
    plot: Path | None,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Rank models by the density that they give to SPECTRA, which need no parameters.

    \b
    specinvert rank scene.nc narrow.nc wide.nc noisy.nc -o ranking.csv --plot ranking.png
    """
    from .. import scores
    from ..figures import plot_ranking, save_figure
    from ..inverter import load_inverter
    from ..io.reading import open_cube

    check_targets((output, plot), figure=plot)
    names = scores.model_names(models)
    inverters = {name: load_inverter(path) for name, path in zip(names, models, strict=True)}
    scores.require_comparable({name: inverter.model_ for name, inverter in inverters.items()})
    cube = open_cube(require_spectra(spectra), variable=options.pop("variable"), reader=options.pop("reader"))
    options["noise"] = noise_of(read_noise(options["noise"]), cube, None, options["band_dim"])
    with cluster(scheduler):
        maps = {n: i.invert(cube, outputs=["log_evidence"], rechunk="auto", **options) for n, i in inverters.items()}
        table = scores.rank({name: of_model["log_evidence"] for name, of_model in maps.items()})
    if plot is not None:
        save_figure(plot_ranking(table), plot)
    write_table(table, output)
    click.echo(scores.format_ranking(table))
    click.echo(f"compared on {int(table['n'][0])} of {table.attrs['n_spectra']} spectra. {scores.CAVEAT}")
    tell_written((output, plot))


@click.command(cls=Command, short_help="Whether spectra are what a model expects of them.")
@click.argument("model", type=FILE)
@click.argument("spectra", type=FILE)
@TABLE
@FIGURE
@click.option(
    "--n-spectra",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many are compared at most, a fixed random choice.",
)
@NOISE
@KNOWN
@VARIABLE
@READER
@BAND_DIM
@BANDS
@EXCLUDE
@TOLERANCE
@SCHEDULER
def check(
    model: Path, spectra: Path, output: Path | None, plot: Path | None, scheduler: str | None, **options: Any
) -> None:
    """Predict bands of SPECTRA from their other bands by MODEL, and tell where they are not what it expects.

    q of a window of bands is the mean squared error over the variance that the model predicts: 1 is right. What to
    beware of is told on stderr. An error that looks like another value of a parameter does not show.

    \b
    specinvert check model.nc scene.nc --plot check.png
    specinvert check model.nc scene.nc --noise 0.01 -o windows.csv
    """
    from ..figures import plot_check, save_figure
    from ..inverter import load_inverter
    from ..scores import check_findings, format_check

    check_targets((output, plot), figure=plot)
    reading = CubeReading(
        **{name: options.pop(name) for name in ("variable", "reader", "band_dim", "bands", "exclude")}
    )
    inverter, cube = load_inverter(model), reading.open(require_spectra(spectra))
    noise = noise_of(read_noise(options.pop("noise")), cube, None, reading.band_dim)
    known = read_known(options.pop("known"))
    with cluster(scheduler):
        made = inverter.check(cube, noise, known, band_dim=reading.band_dim, rechunk="auto", **options)
    if plot is not None:
        save_figure(plot_check(made), plot)
    write_table(made.drop_dims([dim for dim in made.dims if dim != "window"]), output)
    click.echo(format_check(made))
    click.echo(made.attrs["verdict"])
    for finding in check_findings(made, measured=True):
        Session.current().console.note(in_one_line(finding))
    tell_written((output, plot))
