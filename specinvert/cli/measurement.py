"""``rank``: what measured spectra say of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .base import Command, check_targets, cluster, require_spectra, tell_written, write_table
from .options import BAND_DIM, FIGURE, FILE, NOISE, READER, SCHEDULER, TABLE, TOLERANCE, VARIABLE
from .values import noise_of, read_noise


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
