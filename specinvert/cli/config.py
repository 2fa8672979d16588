"""Options in a TOML file: written beside what a command made, read by ``--config`` to do it again.

Relative paths in the file are relative to its folder, so that a folder can move with all that is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from .options import FILE, Names
from .values import is_number

NOT_KEPT = frozenset({"config", "dry_run", "resume", "scheduler", "help"})
"""Options that say how a run is done, not what comes out."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

Move = Callable[[str], str]


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


def write_config(text: str, output: Path) -> Path:
    """Write it whole or not at all; returns where."""
    from ..io import atomic_path

    path = config_path(output)
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--config``, whose values stand where the command line gives none."""
    return click.option(
        "--config",
        type=FILE,
        is_eager=True,
        expose_value=False,
        callback=_apply,
        help="Options in a TOML file, as written beside the result; those of the command line go before.",
    )(function)


def _apply(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None and not ctx.resilient_parsing:
        ctx.default_map = read_config(value, ctx.command)


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
            raise ValueError(f"{path}: unknown key {key!r} in [{name}]; {_nearest(key, list(params))}")
        _check_kind(path, params[key], value)
        values[key] = _moved(params[key], value, move)
    return values


def _nearest(key: str, known: list[str]) -> str:
    """The keys that somebody who wrote this one may have meant."""
    nearest = get_close_matches(key.lower().replace("-", "_"), known, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}"


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
    return f'"{"".join(map(_escaped, str(value)))}"'


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError("a file name is no UTF-8, which the file of options cannot hold: rename it")
    if character in _ESCAPES:
        return _ESCAPES[character]
    return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character


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
        return _file_or_number(str(value), move)
    if param.name == "known":
        return [_known(str(part), move) for part in value]
    if param.name == "nuisance":
        return [_background(str(part), move) for part in value]
    return value


def _file_or_number(text: str, move: Move) -> str:
    return text if is_number(text) else move(text)


def _known(text: str, move: Move) -> str:
    name, equals, value = text.partition("=")
    numbers = all(is_number(part) for part in value.split(":"))
    return text if numbers else f"{name}{equals}{move(value)}"


def _background(text: str, move: Move) -> str:
    name, *parts = text.split(",")
    kind, equals, value = name.partition("=")
    if kind != "background":
        return text
    moved = [f"spectra={move(part.partition('=')[2])}" if part.startswith("spectra=") else part for part in parts]
    return ",".join([f"{kind}{equals}{move(value)}" if equals else kind, *moved])
