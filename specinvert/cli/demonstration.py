"""``demo``: the whole path on simulated data."""

from __future__ import annotations

from pathlib import Path

import click

from .base import Command, Session
from .options import FILE
from .work import em_progress


@click.command(cls=Command, short_help="The whole path on simulated data, in under a minute.")
@click.option("-o", "--output", type=FILE, default=Path("specinvert_demo"), show_default=True, help="Folder to write.")
def demo(output: Path) -> None:
    """Simulate, train, invert a scene and compare with the truth, in under a minute.

    \b
    specinvert demo -o my_demo
    """
    from ..demo import N_LATENT, SETTINGS, run_demo

    session = Session.current()
    with em_progress(session, SETTINGS["max_iter"]) as progress:
        result = run_demo(output, say=session.console.note, progress=progress)
    titles = [f"L_w = {n}" for n in (0, N_LATENT)]
    for measure, form, about in (
        ("nrmse", "10.3f", "NRMSE on the scene"),
        ("coverage_90", "10.0%", "truth in the 90 % interval"),
    ):
        click.echo(f"\n{about:28}" + "".join(f"{title:>10}" for title in titles))
        sides = result.supervised[measure], result.hybrid[measure]
        for name, *values in zip(result.hybrid["parameter"].values, *sides, strict=True):
            click.echo(f"{name:28}" + "".join(f"{float(value):{form}}" for value in values))
    click.echo("\nwrote " + ", ".join(str(path) for path in result.files))
