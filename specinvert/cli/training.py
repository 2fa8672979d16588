"""``train`` and ``resample``: from simulated spectra to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .base import Command, Session
from .config import config_option, config_text, write_config
from .options import (
    BAND_DIM,
    BANDS,
    DRY_RUN,
    EXCLUDE,
    FILE,
    MAX_ITER,
    N_INIT,
    PARAMETERS,
    SCHEDULER,
    SIGMA,
    SPECTRA,
    TOL,
    WEIGHTS,
    Latent,
)
from .work import check_model_target, cluster, em_progress, kept_by, require_spectra


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
    from .conditions import Preparation
    from .dry_run import describe_training, open_training
    from .values import read_transforms

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
    from .describe import describe_model

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
    from ..io.atomic import check_target
    from ..io.writers import save_maps
    from .conditions import to_sensor
    from .values import open_sensor

    check_target(output)
    averaged = to_sensor(
        *(_open(training), open_sensor(sensor), bands, exclude),
        good_only=not include_bad_bands,
        **options,
    )
    save_maps(averaged, output, history=Session.current().command_line)
    click.echo(f"wrote {output}")


def _open(training: Path) -> Any:
    from ..io.tables import open_dataset

    return open_dataset(require_spectra(training))
