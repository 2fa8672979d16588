"""What all commands share: verbosity, one line for bad input, exit codes, and how a run is stopped."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..interrupts import EXIT_CODE, leave
from .console import Console

if TYPE_CHECKING:
    from ..io.writing import BlockProgress

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


BAR = 20


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """A dask cluster to work on, where an address is given."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs dask's distributed: pip install 'specinvert[cluster]'") from None
    with Client(address, timeout="10s"):
        yield


@contextmanager
def em_progress(session: Session, max_iter: int) -> Iterator[Callable[[str, int, float], None]]:
    """Tells how far EM is; stops threads that still fit when the run is interrupted."""
    started: dict[str, tuple[float, int]] = {}

    def progress(label: str, iteration: int, log_likelihood: float) -> None:
        if session.stopped.is_set():
            raise KeyboardInterrupt
        begun, first = started.setdefault(label, (time.monotonic(), iteration))
        done = iteration + 1
        left = ""
        if iteration > first:
            seconds = (time.monotonic() - begun) / (iteration - first) * (max_iter - done)
            left = f", at most {duration(seconds)} left"
        text = f"EM, {label}: iteration {done} of {max_iter}, log-likelihood {log_likelihood:.6g}{left}"
        session.console.progress(text, last=done == max_iter)

    yield progress
    session.console.clear()


@contextmanager
def block_progress(session: Session) -> Iterator[Callable[[BlockProgress], None]]:
    """Tells how many pixels are done, their rate and the time left."""

    def progress(state: BlockProgress) -> None:
        share = state.pixels / max(state.n_pixels, 1)
        bar = "#" * round(BAR * share)
        text = f"[{bar:-<{BAR}}] {share:4.0%}, block {state.blocks} of {state.n_blocks}"
        if state.pixels_per_second > 0:
            text += f", {state.pixels_per_second:,.0f} pixels/s, {duration(state.seconds_left)} left"
        session.console.progress(text, last=state.blocks == state.n_blocks)

    yield progress
    session.console.clear()


def duration(seconds: float) -> str:
    """Seconds as ``42 s``, ``3:05 min`` or ``2:10:00 h``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def kept_by(checkpoint: Path | None, result: str, run: str, content: str) -> str:
    """What a stopped run leaves behind: no ``result``, and in its checkpoint, where there is one, ``content``."""
    if checkpoint is None:
        return f"no {result} was written; with --checkpoint FILE a stopped {run} can go on later"
    if not checkpoint.exists():
        return f"no {result} was written, and {checkpoint} keeps nothing yet; run the same command again"
    return f"no {result} was written; {checkpoint} keeps {content}, run the same command again to go on"


def require_spectra(path: Path) -> Path:
    """The path, of what is to hold spectra; ValueError where it is a model, as arguments in the wrong order make it."""
    from ..io import is_model

    if path.is_file() and is_model(path):
        raise ValueError(f"{path}: a trained model, where spectra are wanted; check the order of the arguments")
    return path


def check_targets(targets: Iterable[Path | None]) -> None:
    """Raise where one of the files cannot be written."""
    from ..io import check_target

    for target in targets:
        if target is not None:
            check_target(target)


def check_model_target(target: Path) -> None:
    """Raise where a model cannot be written there, or would have the name of another kind of file."""
    from ..io import check_target

    if target.suffix.lower() not in (".nc", ".nc4"):
        raise ValueError(f"{target}: a model is a netCDF file; give it a name that ends in .nc")
    check_target(target)


def write_table(table: Any, output: Path | None) -> None:
    """Write a table as CSV, where a file is given."""
    from ..io import atomic_path

    if output is not None:
        with atomic_path(output) as temporary:
            table.to_dataframe().to_csv(temporary)


def tell_written(targets: Iterable[Path | None]) -> None:
    """Say which files were written."""
    for target in targets:
        if target is not None:
            click.echo(f"wrote {target}")
