"""Options that several commands have, and the types of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names separated by commas."""

    name = "NAMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split at commas."""
        if isinstance(value, list):
            return value
        return [name.strip() for name in str(value).split(",") if name.strip()]


class Integers(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers separated by commas."""

    name = "INTEGERS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Split at commas."""
        if isinstance(value, list):
            return value
        try:
            return [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers, such as 10,20,50", param, ctx)


class Latent(click.ParamType):  # type: ignore[type-arg]
    """A number of latent dimensions, or bic."""

    name = "INTEGER|bic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """An integer, or the word itself."""
        if value == "bic":
            return "bic"
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither an integer nor 'bic'", param, ctx)


SCHEDULER = click.option(
    "--scheduler", metavar="ADDRESS", help="Work on this dask cluster, such as tcp://10.0.0.1:8786."
)
BAND_DIM = click.option("--band-dim", help="Band dimension, where no wavelength coordinate tells.")
TOLERANCE = click.option("--tolerance", type=float, default=1.0, show_default=True, help="Band matching tolerance, nm.")
READER = click.option("--reader", help="Reader to use, such as raster or emit, where the file does not tell.")
NOISE = click.option(
    "--noise",
    metavar="NUMBER|FILE",
    help="Standard deviation beyond the noise of training, in units of the spectra, or a file of them.",
)
ADD_NOISE = click.option(
    "--add-noise",
    metavar="NUMBER|FILE",
    help="Draw noise of this standard deviation onto the spectra first, as train --noise does, where they have none.",
)
BANDS = click.option("--bands", metavar="RANGES", help="Use only bands in these ranges, nm: 400-1300,1500-1750.")
EXCLUDE = click.option("--exclude", metavar="RANGES", help="Leave out bands in these ranges, nm: 1350-1450,1800-1950.")
SPECTRA = click.option(
    "--spectra", help="Variable that holds the spectra.  [default: the only one with a band dimension]"
)
PARAMETERS = click.option("--parameters", type=Names(), help="Parameters to retrieve.  [default: all]")
WEIGHTS = click.option("--weights", help="Variable that holds the samples' weights.")
SIGMA = click.option(
    "--sigma",
    type=click.Choice(["iso", "diag", "block", "full"]),
    default="iso",
    show_default=True,
    help="Noise; block finds bands of correlated noise.",
)
N_INIT = click.option("--n-init", type=int, default=1, show_default=True, help="Starts to try.")
MAX_ITER = click.option("--max-iter", type=int, default=100, show_default=True, help="Most iterations of EM.")
TOL = click.option(
    "--tol", type=float, default=1e-4, show_default=True, help="Least gain of an iteration, nats a sample."
)
TABLE = click.option("-o", "--output", type=FILE, help="Table to write (.csv).")
TRUTH = click.option("--truth", type=FILE, help="File of true maps on the same grid, drawn beside the estimates.")
VARIABLE = click.option("--variable", help="Variable that holds the spectra, in a file of several.")
FIGURE = click.option("--plot", type=FILE, help="Figure to write (.png, .pdf, .svg).")
DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Check what can be checked, tell sizes, memory and time; write nothing."
)
SELECT = click.option(
    "--select",
    "chosen",
    metavar="DIM=VALUE",
    multiple=True,
    help="One entry of a further dimension: time=2020-06-01, depth=0.5 (the nearest), or its number from 0 where the "
    "dimension has no coordinate; repeat it.",
)
