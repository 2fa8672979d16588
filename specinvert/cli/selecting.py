"""``select``: how many components and latent dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .base import Command, Session
from .options import (
    BAND_DIM,
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
)
from .work import check_model_target, check_targets, cluster, kept_by, require_spectra, tell_written, write_table


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
    from ..diagnostics.layout import require_figure, save_figure
    from ..diagnostics.selection import format_selection
    from ..io.tables import open_dataset
    from ..model_selection import select_model

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
