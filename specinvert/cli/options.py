"""Options that several commands have, the types of their values, and the TOML file that keeps those of a command.

The file is written beside what a command made, and read by ``--config`` to do it again. Relative paths in it are
relative to its folder, so that a folder can move with all that is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from ..settings import GLLiMSettings, InverterSettings, Setting, settings_of
from .values import number, read_transforms

FILE = click.Path(path_type=Path)
T = TypeVar("T")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Move = Callable[[str], str]


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


class NumberOr(click.ParamType):  # type: ignore[type-arg]
    """A number of a kind, or one of some words."""

    def __init__(self, kind: type[int] | type[float], *words: str) -> None:
        self.kind, self.words = kind, words
        self.what = "INTEGER" if kind is int else "NUMBER"
        self.name = "|".join((self.what, *words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float | str:
        """A number, or the word itself."""
        if value in self.words:
            return str(value)
        try:
            return self.kind(value)
        except ValueError:
            words = " nor ".join(map(repr, self.words))
            self.fail(
                f"{value!r} is neither {'an integer' if self.kind is int else 'a number'} nor {words}", param, ctx
            )


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
GRID = ("n_components", "n_latent", "max_latent", "n_ensemble", "ensemble_weights", "search_seconds")
"""Those of them that are none of ``select``, whose others are of one fit: nothing is looked for but in the grid."""
OF_ONE_FIT = {name: settings_of(GLLiMSettings).get(name, one) for name, one in OFFERED.items() if name not in GRID}


def setting_option(one: Setting) -> Decorator:
    """The option of a setting; what is wrong with its value may show only when it becomes the setting."""
    accepted, name = one.accepted, one.option.removeprefix("--")
    if accepted.kind is bool:
        return click.option(f"--{name}/--no-{name}", default=one.default, help=one.help)
    kind: Any = accepted.kind
    if accepted.names:
        none = ("none",) if accepted.test(None) else ()
        kind = click.Choice((*accepted.names, *none)) if kind is str else NumberOr(kind, *accepted.names)
    return click.option(one.option, type=kind, default=one.default, show_default=True, help=one.help)


def given_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``GLLiMInverter``, taken out of the options of a command."""
    names = {name: one.option.removeprefix("--").replace("-", "_") for name, one in OFFERED.items()}
    settings = {name: options.pop(option) for name, option in names.items() if option in options}
    settings = {name: None if value == "none" else value for name, value in settings.items()}
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
KNOWN = click.option(
    "--known",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter known here: incidence=30, incidence=angles.nc, or lai=0:3 for an interval; repeat it.",
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
        help="Keep a parameter in its bounds: lai=sqrt, size=log, ice=logit:0:1, a+b+c=ilr, or t=identity; repeat it. "
        "Others that are never below zero are kept so; none: no bounds.",
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
NOT_KEPT = frozenset({"config", "dry_run", "resume", "scheduler", "help"})
"""Options that say how a run is done, not what comes out."""


def config_path(output: Path) -> Path:
    """Where the options of what became ``output`` are kept."""
    return output.with_name(f"{output.name}.toml")


def config_text(output: Path) -> str:
    """The options in effect of the command that runs, as the TOML file beside ``output`` holds them."""
    from .._version import __version__

    ctx = click.get_current_context()
    folder = os.path.abspath(output.parent)

    def move(path: str) -> str:
        return path if os.path.isabs(path) else os.path.relpath(os.path.abspath(path), folder)

    command = ctx.command.name
    lines = [
        f"# specinvert {command} --config {config_path(output).name!r} runs this again; relative paths start here",
        f"version = {toml_value(__version__)}",
        f"command = {toml_value(command)}",
        "",
        f"[{command}]",
    ]
    for param in ctx.command.params:
        value = ctx.params.get(str(param.name))
        if param.name in NOT_KEPT or value is None or value == ():
            continue
        lines.append(f"{param.name} = {toml_value(_moved(param, value, move))}")
    return "\n".join(lines) + "\n"


def write_config(text: str, output: Path) -> None:
    """Write it whole or not at all."""
    from ..io import atomic_path

    with atomic_path(config_path(output)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _apply(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        ctx.default_map = read_config(value, ctx.command)


CONFIG = click.option(
    "--config",
    type=FILE,
    is_eager=True,
    expose_value=False,
    callback=_apply,
    help="Options in a TOML file, as written beside the result; those of the command line go before.",
)
"""Its values stand where the command line gives none."""


def read_config(path: Path, command: click.Command) -> dict[str, Any]:
    """Values of a command's parameters from a TOML file, paths made absolute.

    Raises
    ------
    FileNotFoundError : no such file.
    ValueError : not TOML, of another command, an unknown key, or a value of the wrong kind; the message names the key.
    """
    import tomllib

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path}: not a readable TOML file: lists or tables are nested too deep") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise ValueError(f"{path}: not a readable TOML file: {error}") from error
    name = str(command.name)
    if content.get("command", name) != name or name not in content:
        other = content.get("command", "no command")
        raise ValueError(f"{path}: holds no options of {name!r}, but of {other!r}; they stand in a table [{name}]")
    strange = sorted(set(content) - {"version", "command", name})
    if strange or not isinstance(content[name], dict):
        raise ValueError(f"{path}: unknown key {(strange or [name])[0]!r}; options stand in a table [{name}]")
    params = {str(param.name): param for param in command.params if param.expose_value}
    folder = path.parent.absolute()

    def move(given: str) -> str:
        return os.path.normpath(folder / given)

    values = {}
    for key, value in content[name].items():
        if key not in params:
            nearest = get_close_matches(key.lower().replace("-", "_"), params, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(params)}"
            raise ValueError(f"{path}: unknown key {key!r} in [{name}]; {hint}")
        _check_kind(path, params[key], value)
        values[key] = _moved(params[key], value, move)
    return values


def toml_value(value: Any) -> str:
    """A string, path, number, boolean or list of these in TOML.

    Raises ValueError for text that TOML cannot hold, and TypeError for other types.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if not isinstance(value, str | Path):
        raise TypeError(f"{value!r} has no place in a configuration")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in str(value)):
        raise ValueError("a file name is no UTF-8, which the file of options cannot hold: rename it")
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_kind(path: Path, param: click.Parameter, value: Any) -> None:
    """Refuse what TOML tells apart and click would not: booleans, lists and tables out of place."""
    flag = isinstance(param, click.Option) and param.is_flag
    many = isinstance(param.type, Names) or (isinstance(param, click.Option) and param.multiple)
    kinds: tuple[type, ...] = (bool,) if flag else (list, str) if isinstance(param.type, Names) else (list,)
    if not flag and not many:
        kinds = (str, int, float)
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and not flag)
    if wrong or (isinstance(value, list) and not all(isinstance(part, str) for part in value)):
        what = "true or false" if flag else "a list of strings" if many else "a string or a number"
        raise ValueError(f"{path}: {param.name} = {value!r} must be {what}")


def _moved(param: click.Parameter, value: Any, move: Move) -> Any:
    """The value with the paths in it moved."""
    if isinstance(param.type, click.Path):
        return move(str(value))
    if param.name == "noise":
        return move(str(value)) if number(str(value)) is None else str(value)
    if param.name == "known":
        return [_known(str(part), move) for part in value]
    if param.name == "nuisance":
        return [_background(str(part), move) for part in value]
    return value


def _known(text: str, move: Move) -> str:
    name, equals, value = text.partition("=")
    return f"{name}{equals}{move(value)}" if None in map(number, value.split(":")) else text


def _background(text: str, move: Move) -> str:
    name, *parts = text.split(",")
    kind, equals, value = name.partition("=")
    if kind != "background":
        return text
    moved = [f"spectra={move(part.partition('=')[2])}" if part.startswith("spectra=") else part for part in parts]
    return ",".join([f"{kind}{equals}{move(value)}" if equals else kind, *moved])
