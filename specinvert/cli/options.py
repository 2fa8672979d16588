"""Options that several commands have, those of settings among them, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

from ..settings import InverterSettings, Setting, settings_of
from .values import read_transforms

FILE = click.Path(path_type=Path)
T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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


class IntegerOr(click.ParamType):  # type: ignore[type-arg]
    """A whole number, or a word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.name = f"INTEGER|{word}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """An integer, or the word itself."""
        if value == self.word:
            return self.word
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither an integer nor {self.word!r}", param, ctx)


def grouped(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order in the help."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def take(kind: Callable[..., T], options: dict[str, Any]) -> T:
    """The dataclass of the options that its fields name, which are taken out of ``options``."""
    return kind(**{one.name: options.pop(one.name) for one in fields(kind)})  # type: ignore[arg-type]


OFFERED = {name: one for name, one in settings_of(InverterSettings).items() if one.option}
"""Settings that are options of ``train``."""
GRID = ("n_components", "n_latent", "max_latent", "n_ensemble")
"""Those of them that are none of ``select``."""


def setting_option(one: Setting) -> Decorator:
    """The option of a setting; what is wrong with its value may show only when it becomes the setting."""
    accepted, name = one.accepted, one.option.removeprefix("--")
    if accepted.kind is bool:
        return click.option(f"--{name}/--no-{name}", default=one.default, help=one.help)
    kind: Any = accepted.kind
    if accepted.names:
        kind = click.Choice(accepted.names) if kind is str else IntegerOr(*accepted.names)
    return click.option(one.option, type=kind, default=one.default, show_default=True, help=one.help)


def given_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``GLLiMInverter``, taken out of the options of a command."""
    names = {name: one.option.removeprefix("--").replace("-", "_") for name, one in OFFERED.items()}
    settings = {name: options.pop(option) for name, option in names.items() if option in options}
    settings["sigma_blocks"] = "auto" if settings["sigma"] == "block" else None
    settings["transforms"] = read_transforms(options.pop("transform"))
    return settings | {"random_state": options.pop("seed")}


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
TRAINING = grouped(
    SPECTRA,
    PARAMETERS,
    BAND_DIM,
    WEIGHTS,
    click.option(
        "--sensor",
        type=FILE,
        help="Cube with band widths, or CSV of wavelength and fwhm, to whose bands the spectra are averaged first.",
    ),
    BANDS,
    EXCLUDE,
    click.option(
        "--noise",
        metavar="NUMBER|FILE",
        help="Add noise of this standard deviation, in units of the spectra; or a file of one a band.",
    ),
    click.option(
        "--nuisance",
        metavar="NAME=VALUE",
        multiple=True,
        help="Add gain=0.02, discrepancy=0.01,length_scale=80, thin_cloud=0.5...; repeat it, the first acts first.",
    ),
    click.option(
        "--transform",
        metavar="NAME=KIND",
        multiple=True,
        help="Keep a parameter in its bounds: lai=sqrt, size=log, ice=logit:0:1, a+b+c=ilr; repeat it.",
    ),
    click.option("--drop-missing/--no-drop-missing", help="Leave out samples with NaN."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of starts, noise and nuisances."),
    SCHEDULER,
)
"""Of what is trained on, and under which conditions."""
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
