"""``demo``: simulate, train, invert an imaginary scene, compare with its truth, and leave the files behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .base import Command, Session, working
from .options import FILE

if TYPE_CHECKING:
    import xarray as xr

    from ..gllim.em import FitProgress
    from ..model import Summary

PARAMETERS = ["ice_fraction", "grain_size", "dust_water"]
NOISE = 0.005
SETTINGS: dict[str, Any] = {"max_iter": 100, "tol": 0.01, "random_state": 0}


@dataclass(frozen=True)
class DemoResult:
    """What training says of itself, the evaluation of the scene, and the files written."""

    summary: Summary | None
    scores: xr.Dataset
    files: list[Path]


def run_demo(
    folder: Path,
    n_samples: int = 4000,
    shape: tuple[int, int] = (120, 160),
    say: Callable[[str], None] = print,
    progress: FitProgress | None = None,
) -> DemoResult:
    """Run the demo and write training.nc, scene.nc, model.nc, maps.nc and maps.png into ``folder``.

    Haze varies over the scene and is not among the parameters: latent dimensions take it up.

    Raises FileNotFoundError or PermissionError where the folder cannot be written.
    """
    from ..figures import plot_maps, save_figure
    from ..inverter import GLLiMInverter
    from ..io.writing import save_maps
    from ..physics import make_scene, simulate_mixtures

    folder.mkdir(parents=True, exist_ok=True)
    say(f"simulating {n_samples} spectra of ice and dust under haze, and a scene of {shape[0]} x {shape[1]} pixels")
    training = simulate_mixtures(n_samples, noise=NOISE, seed=1)
    cube, truth = make_scene(shape, noise=NOISE, seed=0)
    scene = truth.assign({str(cube.name): cube})
    say(f"looking for settings and training on {', '.join(PARAMETERS)}")
    inverter = GLLiMInverter(**SETTINGS).fit(training, parameters=PARAMETERS, progress=progress)
    scores = inverter.evaluate(scene)
    maps = inverter.invert(cube)
    files = [folder / name for name in ("training.nc", "scene.nc", "model.nc", "maps.nc", "maps.png")]
    save_maps(training, files[0], progress=False)
    save_maps(scene, files[1], progress=False)
    inverter.to_netcdf(files[2])
    save_maps(maps, files[3], progress=False)
    save_figure(plot_maps(maps, truth, PARAMETERS), files[4])
    return DemoResult(inverter.summary_, scores, files)


@click.command(cls=Command, short_help="The whole path on simulated data, in about a minute.")
@click.option("-o", "--output", type=FILE, default=Path("specinvert_demo"), show_default=True, help="Folder to write.")
def demo(output: Path) -> None:
    """Simulate, train, invert a scene and compare with the truth, in about a minute.

    \b
    specinvert demo -o my_demo
    """
    session = Session.current()
    with working(session) as bars:
        result = run_demo(output, say=session.console.note, progress=bars.training(SETTINGS["max_iter"]))
    click.echo(str(result.summary))
    click.echo(f"\n{'on the scene':16}{'NRMSE':>8}{'in 90 % intervals':>20}")
    for name, scores in result.scores.groupby("parameter"):
        click.echo(f"{name:16}{float(scores['nrmse'].item()):8.3f}{float(scores['coverage_90'].item()):20.0%}")
    click.echo("\nwrote " + ", ".join(str(path) for path in result.files))
