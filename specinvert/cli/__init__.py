"""The command line: ``specinvert demo | train | invert | evaluate | ...``, one module for each group of commands.

Exit codes: 0 done, 1 bad input (one line on stderr), 2 wrong usage, 130 stopped by Ctrl-C, 143 by SIGTERM. Everything
heavy is imported when a command runs.
"""

from __future__ import annotations

import click

from .._version import __version__
from .assessment import compare, evaluate, recalibrate, report
from .base import Group
from .demo import demo as run_demo_command
from .inspection import info, plot, view
from .inversion import invert, orthorectify
from .measurement import adapt, calibrate, check, rank, reweight
from .training import resample, select, train

__all__ = ["main"]


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="specinvert")
def main() -> None:
    """Simulated spectra to a trained GLLiM model, image cubes to maps of physical parameters.

    \b
    specinvert demo
    specinvert train training.nc -o model.nc --parameters ice_fraction,grain_size --latent 1
    specinvert invert model.nc scene.tif -o maps.nc
    specinvert evaluate model.nc test.nc
    specinvert plot maps.nc -o maps.png
    """


_MAKING = (run_demo_command, train, select, resample, invert, orthorectify)
_TELLING = (evaluate, recalibrate, adapt, reweight, calibrate, check, rank, compare, report, info, plot, view)
for _command in _MAKING + _TELLING:
    main.add_command(_command)
