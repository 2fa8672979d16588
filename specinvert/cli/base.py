"""What all commands share: verbosity, one line for bad input, exit codes, and how a run is stopped."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from ..interrupts import EXIT_CODE, leave
from .console import Console

INTERRUPTED, TERMINATED = EXIT_CODE, 143
"""Exit codes after Ctrl-C and SIGTERM, as shells have them."""
_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")
WRITTEN = frozenset({"output", "plot", "checkpoint", "best"})
"""Parameters of commands that name files to write."""


@dataclass
class Session:
    """One run of the command line.

    ``arguments`` are those after the program's name; ``kept`` says what an interrupted command leaves behind;
    ``stopped`` is set when it is interrupted.
    """

    arguments: list[str] = field(default_factory=list)
    console: Console = field(default_factory=Console)
    kept: Callable[[], str] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def current(cls) -> Session:
        """That of the command that runs."""
        return click.get_current_context().ensure_object(cls)

    @property
    def command_line(self) -> str:
        """The command as a shell would take it."""
        import shlex

        return "specinvert " + shlex.join(self.arguments)


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


class Interrupted(click.ClickException):
    """A run that was stopped from outside: one line, and the exit code that shells give."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        """Say what is kept."""
        click.echo(f"Interrupted: {self.format_message()}", err=True)


def _set_level(sign: int, ctx: click.Context, param: click.Parameter, value: int) -> None:
    session = ctx.find_object(Session)
    if value and session is not None:
        session.console.set_level(session.console.level + sign * value)


def _verbosity() -> list[click.Parameter]:
    return [
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=partial(_set_level, 1),
            help="Tell more on stderr, with progress; -vv all.",
        ),
        click.Option(
            ["-q", "--quiet"],
            count=True,
            expose_value=False,
            callback=partial(_set_level, -1),
            help="Nothing but errors on stderr.",
        ),
    ]


class Command(click.Command):
    """A command with ``-v`` and ``-q``, which writes over nothing that it reads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _verbosity()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        check_written(self, ctx.params)
        return super().invoke(ctx)


class Group(click.Group):
    """Turns what our functions raise on bad input into one line on stderr and exit code 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _verbosity()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they came."""
        ctx.obj = Session(list(args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        session: Session = ctx.obj
        try:
            with session.console.listening(), _signals():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            session.stopped.set()
            message = "stopped" if session.kept is None else session.kept()
            raise Interrupted(message, TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, OSError) and _CUT_SHORT.fullmatch(text):
                text = f"no space is left where the result is written, or a limit is reached: {text} bytes"
            command = self.commands.get(str(ctx.invoked_subcommand))
            raise click.ClickException(text if command is None else in_options(text, command)) from error
        except RuntimeError as error:
            if not str(error).startswith("NetCDF"):
                raise
            raise click.ClickException(f"a netCDF file is damaged: {error}") from error


def in_options(text: str, command: click.Command) -> str:
    """A message that names arguments of our functions, such as ``band_dim=``, with the command's options instead."""
    for param in command.params:
        option = max(param.opts, key=len)
        if option.startswith("--"):
            text = re.sub(rf"(?<![\w.-]){param.name}=(?=[\s,;:)]|$)", option, text)
    return text.replace("missing='drop'", "--drop-missing") if "--drop-missing" in _options(command) else text


def _options(command: click.Command) -> set[str]:
    return {option for param in command.params for option in param.opts}


def check_written(command: click.Command, values: Mapping[str, Any]) -> None:
    """Raise ValueError where a file to be written is read by the same command, or is written twice."""
    written: dict[str, Path] = {}
    for param in command.params:
        path = values.get(str(param.name)) if param.name in WRITTEN else None
        if path is None:
            continue
        if os.path.realpath(path) in written:
            raise ValueError(f"{path}: is to be written twice; give each result a name of its own")
        written[os.path.realpath(path)] = path
    for name, value in values.items():
        for part in _paths(value) if name not in WRITTEN else ():
            if os.path.realpath(part) in written:
                raise ValueError(f"{part}: is read by this command and would be lost; write to another file")


def _paths(value: Any) -> Iterator[str]:
    """What in an option's value may be a path."""
    for one in value if isinstance(value, list | tuple) else (value,):
        if isinstance(one, str | Path):
            yield from filter(None, (str(one), *re.split("[=,]", str(one))))


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does, by an exception, so that it is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Terminated

    handlers: dict[int, Callable[..., Any]] = {signal.SIGTERM: stop}
    if signal.getsignal(signal.SIGINT) is leave:
        handlers[signal.SIGINT] = signal.default_int_handler
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
