"""Work done in a process of its own, for its peak memory and its times; prints one line of JSON.

python benchmarks/child.py invert MODEL CUBE MAPS
python benchmarks/child.py train TRAINING COMPONENTS LATENT ITERATIONS
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import xarray as xr
from timing import Intervals

import specinvert


def run_child(*arguments: Any) -> dict[str, Any]:
    """What this file prints when run with these arguments."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def peak_bytes() -> int:
    """Most memory this program ever held: unlike getrusage's, the figure does not count what its parent held."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")


@click.group()
def main() -> None:
    """Do one piece of work and tell its peak memory."""


@main.command()
@click.argument("model")
@click.argument("cube")
@click.argument("maps")
def invert(model: str, cube: str, maps: str) -> None:
    """Invert a Zarr cube to a netCDF file; the clock starts when modules and compiled kernels are loaded."""
    inverter, write = specinvert.load_inverter(model), specinvert.save_maps
    spectra = specinvert.open_cube(cube)
    inverter.invert(spectra[:1, :1].load())
    start = perf_counter()
    write(inverter.invert(spectra), maps)
    click.echo(json.dumps({"seconds": perf_counter() - start, "peak_bytes": peak_bytes()}))


@main.command()
@click.argument("training")
@click.argument("components", type=int)
@click.argument("latent", type=int)
@click.argument("iterations", type=int)
def train(training: str, components: int, latent: int, iterations: int) -> None:
    """Train on a Zarr store that is read again for each iteration."""
    intervals = Intervals()
    with xr.open_zarr(training, consolidated=False) as data:
        inverter = specinvert.GLLiMInverter(components, latent, random_state=0, max_iter=iterations + 1, tol=0.0)
        inverter.fit(data, persist=False, progress=intervals)
    click.echo(json.dumps({"seconds": intervals.seconds, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
