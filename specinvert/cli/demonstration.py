"""``demo``: the whole path on simulated data."""

from __future__ import annotations

from pathlib import Path

import click

from .base import Command, Session
from .options import FILE
from .work import em_progress


@click.command(cls=Command)
@click.option("-o", "--output", type=FILE, default=Path("specinvert_demo"), show_default=True, help="Folder to write.")
def demo(output: Path) -> None:
    """Simulate, train, invert a scene and compare with the truth, in under a minute.

    \b
    specinvert demo -o my_demo
    """
    from ..demo import SETTINGS, run_demo

    session = Session.current()
    with em_progress(session, SETTINGS["max_iter"]) as progress:
        result = run_demo(output, say=session.console.note, progress=progress)
    click.echo(f"\n{'NRMSE on the scene':24}{'L_w = 0':>10}{'L_w = 1':>10}")
    rows = zip(result.hybrid["parameter"].values, result.supervised["nrmse"], result.hybrid["nrmse"], strict=True)
    for name, supervised, hybrid in rows:
        click.echo(f"{name:24}{float(supervised):10.3f}{float(hybrid):10.3f}")
    click.echo("\nwrote " + ", ".join(str(path) for path in result.files))
