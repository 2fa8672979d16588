"""``rank``, ``check``, ``adapt``, ``reweight``, ``calibrate``: what measured spectra and field values say of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .assessment import TestOptions, in_one_line
from .base import (
    Command,
    Session,
    check_model_target,
    check_targets,
    cluster,
    require_spectra,
    tell_written,
    write_table,
)
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
    TRAINING,
    VARIABLE,
    Names,
)
from .values import Preparation, noise_of, read_known, read_noise

N_SPECTRA = click.option(
    "--n-spectra",
    type=click.IntRange(20),
    default=1000,
    show_default=True,
    help="How many spectra of SCENE are used at most.",
)


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
    """Rank models by SPECTRA, which need no parameters: by what each says of bands that it is not shown.

    Of a large scene 1000 spectra are read. The evidence is told, but does not count: it rewards inflated noise.

    \b
    specinvert rank scene.nc narrow.nc wide.nc noisy.nc -o ranking.csv --plot ranking.png
    """
    from .. import scores
    from ..figures import plot_ranking, save_figure
    from ..inverter import load_inverter
    from ..inverter import rank as ranked
    from ..io.reading import open_cube

    check_targets((output, plot), figure=plot)
    names = scores.model_names(models)
    inverters = {name: load_inverter(path) for name, path in zip(names, models, strict=True)}
    cube = open_cube(require_spectra(spectra), variable=options.pop("variable"), reader=options.pop("reader"))
    options["noise"] = noise_of(read_noise(options["noise"]), cube, None, options["band_dim"])
    with cluster(scheduler):
        table = ranked(inverters, cube, **options)
    if plot is not None:
        save_figure(plot_ranking(table), plot)
    write_table(table, output)
    click.echo(scores.format_ranking(table))
    compared = f"compared on {int(table['n'][0])} of {table.attrs['n_spectra']} spectra."
    click.echo(f"{compared} {table.attrs['verdict']}".rstrip())
    click.echo(scores.CAVEAT)
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


@click.command(cls=Command, short_help="Learn from a scene, without field values, what simulations lack.")
@click.argument("model", type=FILE)
@click.argument("scene", type=FILE)
@click.option("--training", type=FILE, required=True, help="The training set of MODEL.")
@click.option("-o", "--output", type=FILE, required=True, help="What was found, to write (.nc), for --noise.")
@N_SPECTRA
@click.option("--force", is_flag=True, help="Write what is refused, too.")
@FIGURE
@VARIABLE
@READER
@TRAINING
@TOLERANCE
def adapt(
    model: Path,
    scene: Path,
    training: Path,
    output: Path,
    plot: Path | None,
    scheduler: str | None,
    force: bool,
    **options: Any,
) -> None:
    """Learn from spectra of SCENE how they differ from the simulations that MODEL was trained on.

    Give the options that train had for spectra, bands, sensor, noise and nuisance, which is drawn anew. What is found
    is noise for the model, and --noise of the other commands takes it. Where it is refused, nothing is written. An
    error that looks like another value of a parameter leaves no trace in spectra: field values tell, see calibrate.

    \b
    specinvert adapt model.nc scene.nc --training training.nc -o found.nc
    specinvert adapt model.nc scene.nc --training training.nc --noise 0.005 -o found.nc
    specinvert invert model.nc scene.nc --noise found.nc -o maps.nc
    """
    from ..figures import plot_adaptation, save_figure
    from ..inverter import adapt as learn
    from ..inverter import load_inverter
    from ..io import atomic_path
    from ..io.reading import open_dataset

    check_targets((output, plot), figure=plot)
    inverter, preparation = load_inverter(model), Preparation.of(options)
    options.pop("transform")  # as the model has it
    prepared, noise = preparation.apply(open_dataset(require_spectra(training)))
    reading = CubeReading(options.pop("variable"), options.pop("reader"), preparation.band_dim)
    options |= {"spectra": preparation.spectra, "band_dim": preparation.band_dim, "random_state": options.pop("seed")}
    with cluster(scheduler):
        found = learn(inverter, reading.open(require_spectra(scene)), prepared, noise, force=force, **options)
    for window, before, after in zip(*(found[name].values for name in ("window", "q_before", "q_after")), strict=True):
        click.echo(f"{window}: squared errors {before:.2g} times those predicted, then {after:.2g}")
    click.echo(found.attrs["verdict"])
    if plot is not None:
        save_figure(plot_adaptation(found), plot)
    if found.attrs["refused"]:
        raise ValueError("what was found is refused, and not written: look at the spectra, or give --force")
    with atomic_path(output) as temporary:
        found.to_netcdf(temporary)
    tell_written((output, plot))


@click.command(cls=Command, short_help="Take a step from the prior of a model to that of a scene.")
@click.argument("model", type=FILE)
@click.argument("scene", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Model file to write (.nc).")
@N_SPECTRA
@click.option("--force", is_flag=True, help="Take a step that is refused, too.")
@NOISE
@VARIABLE
@READER
@BAND_DIM
@TOLERANCE
@SCHEDULER
def reweight(model: Path, scene: Path, output: Path, scheduler: str | None, force: bool, **options: Any) -> None:
    """Draw the prior of MODEL one step nearer to what is common in SCENE: estimates follow, intervals narrow.

    For models that are calibrated for SCENE: others are refused, and nothing is written. Maps of the written model are
    for SCENE. Give the --noise that maps are made with; what adapt found for MODEL goes with the written model, too.

    \b
    specinvert reweight model.nc scene.nc -o of_scene.nc
    specinvert reweight model.nc scene.nc --noise found.nc -o of_scene.nc
    """
    from ..inverter import load_inverter
    from ..inverter import reweight as step
    from ..io.reading import open_cube

    check_model_target(output)
    cube = open_cube(require_spectra(scene), variable=options.pop("variable"), reader=options.pop("reader"))
    noise = noise_of(read_noise(options.pop("noise")), cube, None, options["band_dim"])
    with cluster(scheduler):
        made = step(load_inverter(model), cube, noise, force=force, **options)
    assert made.model_.scene_prior is not None
    click.echo(made.model_.scene_prior.verdict)
    made.to_netcdf(output)
    tell_written((output,))


@click.command(cls=Command, short_help="Correct a model by a few values measured in the field.")
@click.argument("model", type=FILE)
@click.argument("field", type=FILE, required=False)
@click.option("-o", "--output", type=FILE, required=True, help="Model file to write (.nc).")
@click.option(
    "--groups",
    type=Names(),
    help="Columns of FIELD that say which values belong together, as of a site, or of a site and a day: site,date.",
)
@click.option(
    "--correction",
    type=click.Choice(("auto", "none", "bias", "slope")),
    default="auto",
    show_default=True,
    help="What is corrected beside the width of intervals; slope: bias and slope; auto: what pays in groups left out.",
)
@click.option("--undo", is_flag=True, help="Write MODEL without its calibration; without FIELD.")
@NOISE
@KNOWN
@BAND_DIM
@TOLERANCE
def calibrate(
    model: Path,
    field: Path | None,
    output: Path,
    groups: list[str] | None,
    correction: str,
    undo: bool,
    **options: Any,
) -> None:
    """Correct estimates and intervals of MODEL by FIELD, spectra with measured values: 15 in 4 groups or more.

    FIELD is a netCDF, Zarr or CSV file, as for evaluate; a value that is missing is an empty cell. Values of a group,
    such as a site, err alike, so that groups count, not rows: give groups like those that the maps will be of. The
    corrected model is a file of its own. Invert with the same --noise and --known.

    \b
    specinvert calibrate model.nc field.csv --groups site -o calibrated.nc
    specinvert calibrate model.nc field.csv --groups site,date --known incidence=incidence --noise 0.01 -o calibrated.nc
    specinvert calibrate calibrated.nc --undo -o model.nc
    """
    from ..inverter import calibrated, inversion_of, load_inverter
    from ..io import save_model
    from ..io.reading import open_dataset

    check_model_target(output)
    if undo != (field is None):
        raise click.UsageError("give FIELD to calibrate, or --undo without it")
    inverter = load_inverter(model)
    if field is None:
        inverter.calibrate(None).to_netcdf(output)
        tell_written((output,))
        return
    if not groups:
        raise click.UsageError("give --groups, the columns of FIELD that say which values belong together")
    data = open_dataset(require_spectra(field))
    conditions = TestOptions(**options, add_noise=None, measured=True).conditions(inverter.model_, data)
    made = calibrated(inversion_of(inverter, **conditions), data, groups, correction)
    for finding in made.findings:
        Session.current().console.warn(f"{finding.title}. {finding.what} {finding.todo}")
    assert made.model.calibration is not None
    for line in made.model.calibration.described.split("; "):
        click.echo(line)
    click.echo(made.promise)
    save_model(made.model, output)
    tell_written((output,))
