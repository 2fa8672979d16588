"""``train``, ``select`` and ``resample``: from simulated spectra, brought to what a sensor measures, to a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .base import (
    Command,
    Session,
    check_model_target,
    check_targets,
    kept_by,
    require_spectra,
    tell_written,
    working,
    write_table,
)
from .options import (
    BAND_DIM,
    BANDS,
    CONFIG,
    DRY_RUN,
    EXCLUDE,
    FIGURE,
    FILE,
    OF_ONE_FIT,
    OFFERED,
    SPECTRA,
    TABLE,
    TRAINING,
    Integers,
    config_text,
    given_settings,
    grouped,
    setting_option,
    write_config,
)
from .values import Preparation, centres_and_widths, open_sensor, to_sensor

if TYPE_CHECKING:
    pass


@click.command(cls=Command, short_help="A model from simulated spectra and their parameters.")
@click.argument("training", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Model file to write (.nc).")
@CONFIG
@TRAINING
@grouped(*map(setting_option, OFFERED.values()))
@click.option("--checkpoint", type=FILE, help="File that keeps the state of EM, to go on from after a stop.")
@click.option(
    "--assess/--no-assess",
    default=None,
    help="Tell errors and coverage on samples held out, and recalibrate by them.  [default: where settings are found]",
)
@DRY_RUN
def train(
    training: Path,
    output: Path,
    checkpoint: Path | None,
    assess: bool | None,
    dry_run: bool,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Train a model on TRAINING, a netCDF, Zarr or CSV file of simulated spectra and their parameters.

    Settings that are not given are found by samples held out. The options in effect are written to OUTPUT.toml, for
    --config.

    \b
    specinvert train training.nc -o model.nc
    specinvert train training.nc -o model.nc --parameters lai,cab --components 50 --latent 2
    specinvert train training.nc -o model.nc --latent bic --sigma diag --noise 0.005 --transform lai=sqrt
    specinvert train fine.nc -o model.nc --sensor scene.hdr --exclude 1350-1450,1800-1950 --nuisance thin_cloud=0.5
    """
    from ..inverter import GLLiMInverter
    from .dry_run import describe_training, open_training

    session = Session.current()
    session.kept = lambda: kept_by(checkpoint, "model", "training", "the state of EM")
    check_model_target(output)
    text = config_text(output)
    inverter = GLLiMInverter(**given_settings(options))
    preparation = Preparation.of(options)
    if dry_run:
        data = open_training(require_spectra(training), preparation.sensor)
        click.echo(describe_training(inverter, data, preparation, output))
        return
    prepared, noise = preparation.apply(_open(training, preparation.sensor))
    with working(session, scheduler) as bars:
        progress = bars.training(inverter.max_iter)
        inverter.fit(
            prepared, noise=noise, **preparation.reading, checkpoint=checkpoint, progress=progress, assess=assess
        )
    inverter.to_netcdf(output)
    from .inspection import describe_model

    click.echo(describe_model(inverter))
    write_config(text, output)
    click.echo(f"wrote {output}")
    if inverter.summary_ is not None:
        click.echo(f"next: specinvert invert {output} SCENE -o maps.nc")


@click.command(cls=Command, short_help="Choose the numbers of components and latent dimensions.")
@click.argument("training", type=FILE)
@click.option("--components", "n_components", type=Integers(), default="10,20,50", show_default=True, help="K to try.")
@click.option("--latent", "n_latent", type=Integers(), default="0,1,2,3", show_default=True, help="L_w to try.")
@click.option(
    "--criterion",
    type=click.Choice(["bic", "aic", "icl", "held_out"]),
    default="bic",
    show_default=True,
    help="Measure by which the best is chosen.",
)
@click.option(
    "--held-out", type=float, default=0.2, show_default=True, help="Share of the samples held out of every fit."
)
@TABLE
@FIGURE
@click.option("--model", "best", type=FILE, help="Model file to write (.nc), the best fitted to all samples.")
@TRAINING
@grouped(*map(setting_option, OF_ONE_FIT.values()))
@click.option("--checkpoint", type=FILE, help="File that keeps finished fits, to go on from after a stop.")
def select(
    training: Path,
    output: Path | None,
    plot: Path | None,
    best: Path | None,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Choose K and L_w for TRAINING, a file of simulated spectra and their parameters, by fits over a grid.

    \b
    specinvert select training.nc --components 10,20,50 --latent 0,1,2 -o table.csv --plot curves.png --model best.nc
    """
    from ..figures import save_figure
    from ..model_selection import select_model
    from ..scores import format_selection

    check_targets((output, plot), figure=plot)
    if best is not None:
        check_model_target(best)
    session = Session.current()
    session.kept = lambda: kept_by(options["checkpoint"], "table", "selection", "the finished fits")
    settings, preparation = given_settings(options), Preparation.of(options)
    prepared, noise = preparation.apply(_open(training, preparation.sensor))
    with working(session, scheduler) as bars:
        selection = select_model(
            prepared,
            noise=noise,
            refit=best is not None,
            progress=bars.selection,
            **preparation.reading,
            **settings,
            **options,
        )
    write_table(selection.table, output)
    if plot is not None:
        save_figure(selection.plot(), plot)
    if selection.inverter is not None and best is not None:
        selection.inverter.to_netcdf(best)
    chosen = selection.best
    click.echo(format_selection(selection.table, selection.criterion))
    click.echo(f"best by {selection.criterion}: K = {chosen['n_components']}, L_w = {chosen['n_latent']}")
    tell_written((output, plot, best))


@click.command(cls=Command)
@click.argument("training", type=FILE)
@click.argument("sensor", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Training set to write (.nc or .zarr).")
@SPECTRA
@BAND_DIM
@BANDS
@EXCLUDE
@click.option("--include-bad-bands", is_flag=True, help="Average to bands that the sensor marks bad, too.")
@click.option(
    "--uncovered",
    type=click.Choice(["raise", "drop"]),
    default="raise",
    show_default=True,
    help="What to do with bands of the sensor that the spectra do not cover.",
)
def resample(
    training: Path,
    sensor: Path,
    output: Path,
    bands: str | None,
    exclude: str | None,
    include_bad_bands: bool,
    **options: Any,
) -> None:
    """Average the spectra of TRAINING to the bands of SENSOR.

    SENSOR is a cube with band widths, a netCDF file of wavelength and fwhm or of tabulated responses, or a CSV table
    with columns wavelength and fwhm, or these two without names.

    \b
    specinvert resample fine.nc scene.hdr -o training.nc
    specinvert resample fine.nc bands.csv -o training.nc --exclude 1350-1450,1800-1950
    """
    from ..io import check_target
    from ..io.writing import save_maps

    check_target(output)
    averaged = to_sensor(
        *(_open(training), open_sensor(sensor), bands, exclude), good_only=not include_bad_bands, **options
    )
    save_maps(averaged, output, history=Session.current().command_line, progress=False)
    click.echo(f"wrote {output}")


def _open(training: Path, sensor: Any = None) -> Any:
    from ..io.reading import open_dataset

    return open_dataset(require_spectra(training), centres_and_widths(sensor))
