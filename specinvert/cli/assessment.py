"""``evaluate``, ``recalibrate``, ``compare`` and ``report``: how good models are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
from .options import (
    ADD_NOISE,
    BAND_DIM,
    FIGURE,
    FILE,
    KNOWN,
    NOISE,
    PARAMETERS,
    SCHEDULER,
    SELECT,
    SPECTRA,
    TABLE,
    TOLERANCE,
    TRUTH,
    Names,
    grouped,
    take,
)
from .values import noise_by_band, noise_of, picked, read_known, read_noise

if TYPE_CHECKING:
    import xarray as xr

    from ..model import Model
    from ..scores import Finding

MEASURED = click.option("--measured", is_flag=True, help="The true parameters were measured, not simulated.")
OF_TEST = grouped(NOISE, ADD_NOISE, KNOWN, MEASURED, BAND_DIM, TOLERANCE)


@dataclass(frozen=True)
class TestOptions:
    """The options of spectra whose true parameters are known."""

    noise: str | None
    add_noise: str | None
    known: tuple[str, ...]
    measured: bool
    band_dim: str | None
    tolerance: float

    def noisy(self, model: Model, data: Any) -> Any:
        """The spectra with the noise of ``--add-noise`` drawn onto them."""
        return with_noise(data, self.add_noise, *self._spectra_of(model, data), seed=1)

    def conditions(self, model: Model, data: Any) -> dict[str, Any]:
        """Options of an inversion, with the noise in the band dimension of the test set.

        A parameter known may be a variable of the test set, as in ``--known incidence=incidence``.
        """
        noise = noise_of(read_noise(self.noise), data, *self._spectra_of(model, data))
        given = {name: data[text] for name, _, text in (item.partition("=") for item in self.known) if text in data}
        others = [item for item in self.known if item.partition("=")[0] not in given]
        known = given | (read_known(others) or {}) or None
        return {"noise": noise, "known": known, "band_dim": self.band_dim, "tolerance": self.tolerance}

    def _spectra_of(self, model: Model, data: Any) -> tuple[str | None, str | None]:
        """Name and band dimension of the spectra of a test set, as those of training where nothing else tells."""
        name, dim = model.spectra_name, model.bands.dim
        own = dim if model.bands.wavelength is None and dim in data.dims else None
        return name if name in data.data_vars else None, self.band_dim or own


@click.command(cls=Command, short_help="Errors and coverage where the true parameters are known.")
@click.argument("model", type=FILE)
@click.argument("test", type=FILE)
@TABLE
@OF_TEST
@click.option("--weights", metavar="NAME", help="Variable of TEST that holds weights of the spectra.")
@click.option(
    "--groups", metavar="NAME", help="Variable of TEST that says which spectra belong together, as of a site."
)
@SCHEDULER
def evaluate(
    model: Path,
    test: Path,
    output: Path | None,
    scheduler: str | None,
    weights: str | None,
    groups: str | None,
    **options: Any,
) -> None:
    """Compare MODEL's estimates with the true parameters in TEST, a netCDF, Zarr or CSV file of spectra and parameters.

    TEST needs the bands of the model (average finer ones with resample) and, where it is simulated, the noise of
    training; parameters that it lacks are left out. What to beware of is told on stderr.

    \b
    specinvert evaluate model.nc test.nc -o errors.csv
    specinvert evaluate model.nc simulated.nc --add-noise 0.005
    specinvert evaluate model.nc test.nc --noise 0.01
    specinvert evaluate model.nc field.csv --measured --groups site --known incidence=incidence
    """
    from ..inverter import inversion_of, lacking_noise, load_inverter
    from ..io.reading import open_dataset
    from ..scores import check_findings, evaluation_findings, format_table

    check_targets((output,))
    inverter = load_inverter(model)
    of_test = take(TestOptions, options)
    data = of_test.noisy(inverter.model_, open_dataset(require_spectra(test)))
    conditions = of_test.conditions(inverter.model_, data)
    with cluster(scheduler):
        told: dict[str, Any] = {"measured": of_test.measured, "weights": weights, "groups": groups}
        table = inverter.evaluate(data, rechunk="auto", **told, **conditions)
        lacking = [] if of_test.measured else lacking_noise(inversion_of(inverter, **conditions), data)
        check = inversion_of(inverter, **conditions).check_of(data)
    click.echo(format_table(table))
    fitting = [] if check is None else check_findings(check, of_test.measured)
    if check is not None:
        Session.current().console.note(f"Spectra: {check.attrs['verdict']}")
    for finding in (*lacking, *fitting, *evaluation_findings(table)):
        Session.current().console.note(in_one_line(finding))
    write_table(table, output)
    tell_written((output,))


@click.command(cls=Command, short_help="Correct a model's intervals on spectra held out of training.")
@click.argument("model", type=FILE)
@click.argument("held_out", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Model file to write (.nc).")
@click.option(
    "--minimum", type=click.IntRange(1), default=2000, show_default=True, help="Fewest pairs of truth and estimate."
)
@OF_TEST
def recalibrate(model: Path, held_out: Path, output: Path, minimum: int, **options: Any) -> None:
    """Correct the quantiles and central intervals of MODEL on HELD_OUT, spectra and parameters that it never saw.

    HELD_OUT needs the noise of training: without it, intervals become too narrow. The corrected model is a file of its
    own. Means, standard deviations and shortest intervals stay as they are. What intervals hold after is told by
    spectra of HELD_OUT left out in turn.

    \b
    specinvert recalibrate model.nc held_out.nc -o calibrated.nc
    specinvert recalibrate model.nc simulated.nc -o calibrated.nc --add-noise 0.005
    specinvert recalibrate model.nc field.csv -o calibrated.nc --measured --minimum 50
    """
    from ..cubes import percent
    from ..inverter import inversion_of, load_inverter, recalibrated
    from ..io import save_model
    from ..io.reading import open_dataset
    from ..scores import coverage

    check_model_target(output)
    inverter = load_inverter(model)
    of_test = take(TestOptions, options)
    data = of_test.noisy(inverter.model_, open_dataset(require_spectra(held_out)))
    conditions = {"rechunk": "auto", **of_test.conditions(inverter.model_, data)}
    source = "measurements" if of_test.measured else "simulations"
    made = recalibrated(inversion_of(inverter, **conditions), data, minimum, source)
    for finding in made.findings:
        Session.current().console.warn(f"{finding.title}. {finding.what} {finding.todo}")
    before, found = coverage(made.before, [0.9])["coverage"].sel(level=0.9), made.model.recalibration
    assert found is not None
    assert found.after is not None
    for name, after in zip(made.model.names, found.after, strict=True):
        if name in made.before:
            share = percent(float(before.sel(parameter=name)))
            click.echo(f"{name}: 90 % intervals hold {share} before, {percent(after)} after")
        else:
            click.echo(f"{name}: not corrected, {held_out} holds no values of it")
    save_model(made.model, output)
    tell_written((output,))


@click.command(cls=Command, short_help="Errors of other methods fitted to the same spectra.")
@click.argument("train", type=FILE)
@click.argument("test", type=FILE)
@click.option(
    "--methods",
    type=Names(),
    help="Methods to compare.  [default: gllim-0, gllim-1, gllim-bic, jgmm, sir-1, sir-2, rvm, rf, mlp, lut, pls]",
)
@PARAMETERS
@click.option(
    "--score",
    default="nrmse",
    show_default=True,
    help="What to print and draw: nrmse, rmse, mae, bias, r2, extreme_share.",
)
@click.option("-o", "--output", type=FILE, help="Table of all scores to write (.csv).")
@FIGURE
@ADD_NOISE
@SPECTRA
@BAND_DIM
@TOLERANCE
@click.option(
    "--seed", "random_state", type=int, default=0, show_default=True, help="Seed of the methods and of noise."
)
def compare(train: Path, test: Path, score: str, output: Path | None, plot: Path | None, **options: Any) -> None:
    """Fit methods to TRAIN and compare their errors on TEST, files of spectra and parameters.

    Methods see no noise but that of the files, which both need alike, or that of --add-noise, drawn onto both.

    \b
    specinvert compare train.nc test.nc --methods gllim-1,rvm,rf -o scores.csv --plot scores.png
    specinvert compare train.nc test.nc --add-noise 0.005 --parameters lai,cab
    """
    from .. import scores
    from ..figures import plot_comparison, save_figure
    from ..io.reading import open_dataset

    check_targets((output, plot), figure=plot)
    scores.require_score(score)
    console = Session.current().console
    methods, seed = options.pop("methods"), options["random_state"]
    labels = (options.pop("add_noise"), options["spectra"], options["band_dim"])
    table = scores.compare(
        with_noise(open_dataset(require_spectra(train)), *labels, 2 * seed),
        with_noise(open_dataset(require_spectra(test)), *labels, 2 * seed + 1),
        scores.DEFAULT_METHODS if methods is None else methods,
        progress=lambda name, number, count: console.note(f"{name} ({number + 1} of {count})"),
        **options,
    )
    if plot is not None:
        save_figure(plot_comparison(table, score), plot)
    write_table(table, output)
    click.echo(scores.format_comparison(table, score))
    counts = {what: table.attrs[what] for what in ("n_train", "n_test", "n_left_out")}
    click.echo("{n_train} spectra to fit, {n_test} to test, {n_left_out} left out".format_map(counts))
    tell_written((output, plot))
    if bool((table["error"] != "").all()):
        raise ValueError(f"all {table.sizes['method']} methods failed, for the reasons above")


@click.command(cls=Command, short_help="A page on a model: how good it is, what to beware of.")
@click.argument("model", type=FILE)
@click.argument("maps_given", metavar="[MAPS]", type=FILE, required=False)
@click.argument("test_given", metavar="[TEST]", type=FILE, required=False)
@click.option("-o", "--output", type=FILE, required=True, help="Page to write (.html).")
@click.option("--maps", type=FILE, help="Maps that the model made, to be drawn.")
@TRUTH
@click.option("--test", type=FILE, help="Spectra and true parameters, to evaluate the model.")
@click.option("--training", type=FILE, help="The training set, to be drawn.")
@click.option("--title", help="Heading of the page.")
@SELECT
@OF_TEST
def report(model: Path, output: Path, title: str | None, chosen: tuple[str, ...], **options: Any) -> None:
    """Write a page on MODEL: what it is, how good it is and what to beware of, with what else is given.

    MAPS and TEST may be given by --maps and --test, too. The page needs no other file, no network and no script. What
    to beware of is printed. --noise, --add-noise, --band-dim and --tolerance are for the spectra of TEST, --select is
    for MAPS and --truth.

    \b
    specinvert report model.nc -o report.html
    specinvert report model.nc maps.nc test.nc -o report.html
    specinvert report model.nc --maps maps.nc --test test.nc --training training.nc -o report.html
    """
    from ..figures import write_report
    from ..inverter import load_inverter

    check_targets((output,))
    of_test = take(TestOptions, options)
    data = _given(options, of_test, chosen)
    inverter = load_inverter(model)
    conditions: dict[str, Any] = {"band_dim": of_test.band_dim, "tolerance": of_test.tolerance}
    conditions["measured"] = of_test.measured
    if data["test"] is not None:
        data["test"] = of_test.noisy(inverter.model_, data["test"])
        conditions |= of_test.conditions(inverter.model_, data["test"])
        if any(not isinstance(value, int | float | tuple) for value in (conditions["known"] or {}).values()):
            raise ValueError("--known of a report must be numbers: use evaluate for values of each spectrum")
    if title is not None:
        conditions["title"] = title
    for finding in write_report(output, inverter, **data, **conditions):
        click.echo(in_one_line(finding))
    tell_written((output,))


def _given(options: dict[str, Any], of_test: TestOptions, chosen: tuple[str, ...]) -> dict[str, Any]:
    """What a report is given beside the model, by place or by name, opened; None where it is not."""
    from ..figures import open_results

    for name in ("maps", "test"):
        placed, named = options.pop(f"{name}_given"), options[name]
        if placed is not None and named is not None:
            raise ValueError(f"{name} are given twice, {placed} and --{name} {named}: leave one out")
        options[name] = named or placed
    for wanted, what, value in (
        ("test", "--noise is that of the test spectra", of_test.noise),
        ("test", "--add-noise is that of the test spectra", of_test.add_noise),
        ("test", "--known is of the test spectra", of_test.known or None),
        ("test", "--measured is of the test spectra", of_test.measured or None),
        ("maps", "--truth is drawn beside maps", options["truth"]),
        ("maps", "--select is of the maps", chosen or None),
    ):
        if value is not None and options[wanted] is None:
            raise ValueError(f"{what}: give --{wanted} too")
    data = {name: None if path is None else open_results(path) for name, path in options.items()}
    if data["maps"] is not None:
        data["maps"] = picked(data["maps"], chosen)
    if data["truth"] is not None:
        data["truth"] = picked(data["truth"], chosen, all_of_them=False)
    return data


def in_one_line(finding: Finding) -> str:
    """A finding as one line."""
    return f"{'Beware' if finding.serious else 'Note'}: {finding.title}. {finding.what} {finding.todo}"


def with_noise(data: xr.Dataset, noise: str | None, spectra: str | None, band_dim: str | None, seed: int) -> xr.Dataset:
    """The data with a draw of the noise of ``--add-noise`` on every spectrum, or as they are without it."""
    if noise is None:
        return data
    from ..nuisance import Noise, apply

    deviation = noise_by_band(read_noise(noise), data, spectra, band_dim)
    return apply(data, Noise(white=deviation), seed=seed, spectra=spectra, band_dim=band_dim, rechunk="auto")
