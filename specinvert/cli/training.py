"""``train`` and ``resample``: from simulated spectra to a model.

What ``train`` does to spectra before the fit: a sensor's bands, bands left out, noise and nuisances.

``select``: how many components and latent dimensions."""

from __future__ import annotations

from collections.abc import Iterable
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
    em_progress,
    kept_by,
    require_spectra,
    tell_written,
    write_table,
)
from .config import config_option, config_text, write_config
from .options import (
    BAND_DIM,
    BANDS,
    DRY_RUN,
    EXCLUDE,
    FIGURE,
    FILE,
    MAX_ITER,
    N_INIT,
    PARAMETERS,
    SCHEDULER,
    SIGMA,
    SPECTRA,
    TABLE,
    TOL,
    WEIGHTS,
    Integers,
    Latent,
    narrow,
    noise_by_band,
    open_sensor,
    read_noise,
    read_nuisances,
    read_ranges,
)

if TYPE_CHECKING:
    import xarray as xr


@click.command(cls=Command, short_help="A model from simulated spectra and their parameters.")
@click.argument("training", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Model file to write (.nc).")
@config_option
@SPECTRA
@PARAMETERS
@BAND_DIM
@WEIGHTS
@click.option(
    "--sensor",
    type=FILE,
    help="Cube with band widths, or CSV of wavelength and fwhm, to whose bands the spectra are averaged first.",
)
@BANDS
@EXCLUDE
@click.option(
    "--noise",
    metavar="NUMBER|FILE",
    help="Add noise of this standard deviation, in units of the spectra; or a file of one a band.",
)
@click.option(
    "--nuisance",
    metavar="NAME=VALUE",
    multiple=True,
    help="Add gain=0.02, discrepancy=0.01,length_scale=80, thin_cloud=0.5...; repeat it, the first acts first.",
)
@click.option(
    "--transform",
    metavar="NAME=KIND",
    multiple=True,
    help="Keep a parameter in its bounds: lai=sqrt, size=log, ice=logit:0:1, a+b+c=ilr; repeat it.",
)
@click.option("--components", type=int, default=50, show_default=True, help="K, the number of affine maps.")
@click.option("--latent", type=Latent(), default=0, show_default=True, help="L_w, latent dimensions.")
@click.option("--max-latent", type=int, default=10, show_default=True, help="Largest L_w that bic tries.")
@SIGMA
@click.option("--tied-sigma/--no-tied-sigma", help="One noise covariance for all components.")
@click.option(
    "--gamma",
    type=click.Choice(["full", "diag", "iso"]),
    default="full",
    show_default=True,
    help="Parameter covariances.",
)
@click.option("--tied-gamma/--no-tied-gamma", help="One parameter covariance for all components.")
@click.option(
    "--algorithm",
    type=click.Choice(["general", "marginal", "ecm", "aecm"]),
    default="general",
    show_default=True,
    help="Steps of EM.",
)
@click.option("--ensemble", type=int, default=1, show_default=True, help="Models to fit and average.")
@click.option("--init", default="kmeans", show_default=True, help="Start: kmeans, kmeans-joint, kmeans-spectra, gmm.")
@N_INIT
@MAX_ITER
@TOL
@click.option("--reg-covar", type=float, default=1e-10, show_default=True, help="Least share of variance kept.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of starts, noise and nuisances.")
@click.option("--drop-missing/--no-drop-missing", help="Leave out samples with NaN.")
@click.option("--checkpoint", type=FILE, help="File that keeps the state of EM, to go on from after a stop.")
@DRY_RUN
@SCHEDULER
def train(
    training: Path,
    output: Path,
    spectra: str | None,
    parameters: list[str] | None,
    band_dim: str | None,
    weights: str | None,
    components: int,
    latent: int | str,
    ensemble: int,
    transform: tuple[str, ...],
    seed: int,
    drop_missing: bool,
    checkpoint: Path | None,
    dry_run: bool,
    scheduler: str | None,
    sensor: Path | None,
    bands: str | None,
    exclude: str | None,
    noise: str | None,
    nuisance: tuple[str, ...],
    **settings: Any,
) -> None:
    """Train a model on TRAINING, a netCDF, Zarr or CSV file of simulated spectra and their parameters.

    The options in effect are written to OUTPUT.toml, for --config.

    \b
    specinvert train training.nc -o model.nc --parameters lai,cab --components 50 --latent 2
    specinvert train training.nc -o model.nc --latent bic --sigma diag --noise 0.005 --transform lai=sqrt
    specinvert train fine.nc -o model.nc --sensor scene.hdr --exclude 1350-1450,1800-1950 --nuisance thin_cloud=0.5
    """
    from ..inverter import GLLiMInverter
    from .dry_run import describe_training, open_training
    from .options import read_transforms

    session = Session.current()
    session.kept = lambda: kept_by(checkpoint, "model", "training", "the state of EM")
    check_model_target(output)
    text = config_text(output)
    inverter = GLLiMInverter(
        *(components, latent),
        random_state=seed,
        n_ensemble=ensemble,
        transforms=read_transforms(transform),
        sigma_blocks="auto" if settings["sigma"] == "block" else None,
        **settings,
    )
    preparation = Preparation.of(sensor, bands, exclude, noise, nuisance, spectra, band_dim)
    options: dict[str, Any] = {"missing": "drop" if drop_missing else "raise", "rechunk": "auto"}
    if dry_run:
        data = open_training(require_spectra(training))
        click.echo(describe_training(inverter, data, preparation, (parameters, weights), options, output))
        return
    prepared, added = preparation.apply(_open(training))
    with cluster(scheduler), em_progress(session, settings["max_iter"]) as progress:
        inverter.fit(
            *(prepared, spectra, parameters, band_dim, weights, added),
            **options,
            checkpoint=checkpoint,
            progress=progress,
        )
    inverter.to_netcdf(output)
    from .inspection import describe_model

    click.echo(describe_model(inverter))
    write_config(text, output)
    click.echo(f"wrote {output}")


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
    with columns wavelength and fwhm.

    \b
    specinvert resample fine.nc scene.hdr -o training.nc
    specinvert resample fine.nc bands.csv -o training.nc --exclude 1350-1450,1800-1950
    """
    from ..io import check_target
    from ..io.writing import save_maps
    from .options import open_sensor

    check_target(output)
    averaged = to_sensor(
        *(_open(training), open_sensor(sensor), bands, exclude),
        good_only=not include_bad_bands,
        **options,
    )
    save_maps(averaged, output, history=Session.current().command_line)
    click.echo(f"wrote {output}")


def _open(training: Path) -> Any:
    from ..io.reading import open_dataset

    return open_dataset(require_spectra(training))


@dataclass(frozen=True)
class Preparation:
    """Options read and checked, ready for the training set."""

    sensor: Any
    bands: str | None
    exclude: str | None
    noise: Any
    nuisance: Any
    spectra: str | None
    band_dim: str | None

    @classmethod
    def of(
        cls,
        sensor: Path | None,
        bands: str | None,
        exclude: str | None,
        noise: str | None,
        nuisance: Iterable[str],
        spectra: str | None,
        band_dim: str | None,
    ) -> Preparation:
        """Read files and check what can be checked without the training set."""
        read_ranges("--bands", bands)
        read_ranges("--exclude", exclude)
        opened = None if sensor is None else open_sensor(sensor)
        return cls(opened, bands, exclude, read_noise(noise), read_nuisances(nuisance), spectra, band_dim)

    def apply(self, training: xr.Dataset) -> tuple[xr.Dataset, Any]:
        """The training set with the bands to use, and the noise for ``fit``: None, numbers or a nuisance."""
        from ..nuisance import Noise

        if self.sensor is None:
            training = narrow(
                training, self.bands, self.exclude, good_only=False, spectra=self.spectra, band_dim=self.band_dim
            )
        else:
            training = to_sensor(
                training, self.sensor, self.bands, self.exclude, spectra=self.spectra, band_dim=self.band_dim
            )
        noise = noise_by_band(self.noise, training, self.spectra, self.band_dim)
        if self.nuisance is None:
            return training, noise
        return training, self.nuisance if noise is None else self.nuisance | Noise(white=noise)


def with_noise(data: xr.Dataset, noise: str | None, spectra: str | None, band_dim: str | None, seed: int) -> xr.Dataset:
    """The data with a draw of the noise of ``--add-noise`` on every spectrum, or as they are without it."""
    if noise is None:
        return data
    from ..nuisance import Noise, apply

    deviation = noise_by_band(read_noise(noise), data, spectra, band_dim)
    return apply(data, Noise(white=deviation), seed=seed, spectra=spectra, band_dim=band_dim, rechunk="auto")


def to_sensor(
    training: xr.Dataset,
    sensor: Any,
    bands: str | None,
    exclude: str | None,
    *,
    good_only: bool = True,
    spectra: str | None = None,
    band_dim: str | None = None,
    uncovered: str = "raise",
) -> xr.Dataset:
    """Spectra averaged to those bands of the sensor that the ranges leave, in memory or lazily."""
    import xarray as xr

    from ..cubes import resample

    table = isinstance(sensor, xr.Dataset) and "fwhm" not in sensor.variables
    if not table:
        centres = sensor.set_coords("fwhm")["fwhm"] if isinstance(sensor, xr.Dataset) else sensor
        sensor = narrow(centres, bands, exclude, good_only=good_only)
    training = resample(
        training,
        sensor,
        spectra=spectra,
        band_dim=band_dim,
        uncovered=uncovered,
        good_only=good_only,
        rechunk="auto",
    )
    return narrow(training, bands, exclude, good_only=False, spectra=spectra, band_dim=band_dim) if table else training


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
@SPECTRA
@PARAMETERS
@BAND_DIM
@WEIGHTS
@click.option("--noise", type=float, help="Add noise of this standard deviation, in units of the spectra.")
@SIGMA
@N_INIT
@MAX_ITER
@TOL
@click.option("--seed", "random_state", type=int, default=0, show_default=True, help="Seed of starts and noise.")
@click.option("--checkpoint", type=FILE, help="File that keeps finished fits, to go on from after a stop.")
@SCHEDULER
def select(
    training: Path,
    output: Path | None,
    plot: Path | None,
    best: Path | None,
    checkpoint: Path | None,
    scheduler: str | None,
    criterion: str,
    **options: Any,
) -> None:
    """Choose K and L_w for TRAINING, a file of simulated spectra and their parameters, by fits over a grid.

    \b
    specinvert select training.nc --components 10,20,50 --latent 0,1,2 -o table.csv --plot curves.png --model best.nc
    """
    from ..figures import require_figure, save_figure
    from ..io.reading import open_dataset
    from ..model_selection import select_model
    from ..scores import format_selection

    check_targets((output, plot))
    if best is not None:
        check_model_target(best)
    if plot is not None:
        require_figure(plot)
    session = Session.current()
    session.kept = lambda: kept_by(checkpoint, "table", "selection", "the finished fits")

    def progress(label: str, done: int, count: int) -> None:
        if session.stopped.is_set():
            raise KeyboardInterrupt
        session.console.progress(f"fit {done} of {count}: {label}", last=done == count)

    with cluster(scheduler):
        found = select_model(
            open_dataset(require_spectra(training)),
            criterion=criterion,
            refit=best is not None,
            checkpoint=checkpoint,
            progress=progress,
            rechunk="auto",
            sigma_blocks="auto" if options["sigma"] == "block" else None,
            **options,
        )
    session.console.clear()
    write_table(found.table, output)
    if plot is not None:
        save_figure(found.plot(), plot)
    if found.inverter is not None and best is not None:
        found.inverter.to_netcdf(best)
    click.echo(format_selection(found.table, criterion))
    click.echo(f"best by {criterion}: K = {found.best['n_components']}, L_w = {found.best['n_latent']}")
    tell_written((output, plot, best))
