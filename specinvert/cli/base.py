"""What all commands share: verbosity, one line for bad input, exit codes, and how a run is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any

import click

from .console import Console

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes after Ctrl-C and SIGTERM, as shells have them."""


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
    """A command with ``-v`` and ``-q``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _verbosity()


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
            with session.console.listening(), _sigterm():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            session.stopped.set()
            message = "stopped" if session.kept is None else session.kept()
            raise Interrupted(message, TERMINATED if isinstance(stop, Terminated) else INTERRUPTED) from None
        except (ValueError, TypeError, OSError, ImportError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error
        except RuntimeError as error:
            if not str(error).startswith("NetCDF"):
                raise
            raise click.ClickException(f"a netCDF file is damaged: {error}") from error


@contextmanager
def _sigterm() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Terminated

    earlier = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
