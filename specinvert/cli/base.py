"""What all commands share: what they say on stderr, one line for bad input, exit codes, and how a run is stopped."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from ..interrupts import EXIT_CODE, leave
from ..progress import ProgressBars

TERMINATED = 143
"""Exit code after SIGTERM, as shells have it."""
WRITTEN = frozenset({"output", "plot", "checkpoint", "best"})
"""Parameters of commands that name files to write."""


class Console:
    """Stderr of one run of the command, in whole lines; ``level`` is 0, more with ``-v``, less with ``-q``."""

    def __init__(self) -> None:
        self.level = 0
        self._bars: ProgressBars | None = None
        self._lock = threading.RLock()
        self._told: set[str] = set()
        self._listening = False

    def say(self, text: str) -> None:
        """A line of its own, above the progress."""
        line = " ".join(text.split())
        with self._lock:
            if self._bars is None:
                click.echo(line, err=True)
            else:
                self._bars.say(line)

    def note(self, text: str) -> None:
        """A line on what is being done, unless quiet."""
        if self.level >= 0:
            self.say(text)

    def warn(self, text: str) -> None:
        """A warning, once, unless quiet."""
        if self.level >= 0 and text not in self._told:
            self._told.add(text)
            self.say(f"Warning: {text}")

    @contextmanager
    def progress(self, stop: threading.Event) -> Iterator[ProgressBars]:
        """How far the work is: bars on a terminal, lines with ``-v`` elsewhere, nothing when quiet."""
        drawn = sys.stderr.isatty() and self.level >= 0
        lines = self.say if self.level > 0 else lambda line: None
        with ProgressBars(None if drawn else lines, stop) as bars:
            self._bars = bars if drawn else None
            try:
                yield bars
            finally:
                self._bars = None

    def set_level(self, level: int) -> None:
        """Verbosity, also that of the package's loggers while the console listens to them."""
        self.level = level
        if self._listening:
            levels = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
            logging.getLogger("specinvert").setLevel(levels[min(max(level, -1), 2) + 1])

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Python's warnings and the package's log records come here meanwhile."""
        logger = logging.getLogger("specinvert")
        earlier = logger.level
        handler = _Handler(self)
        logger.addHandler(handler)
        self._listening = True
        self.set_level(self.level)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                for category in (PendingDeprecationWarning, DeprecationWarning):
                    warnings.filterwarnings("ignore", category=category)
                warnings.filterwarnings("ignore", message="numpy.ndarray size changed")  # as NumPy itself ignores it
                warnings.showwarning = lambda message, *_, **__: self.warn(str(message))
                yield
        finally:
            self._listening = False
            logger.removeHandler(handler)
            logger.setLevel(earlier)


class _Handler(logging.Handler):
    """Log records as lines of the console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: Any) -> None:
        """Warnings are told once; what is less or more, as it is."""
        text = record.getMessage()
        if record.levelno == logging.WARNING:
            self.console.warn(text)
        else:
            self.console.say(text)


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


class _Verbose(click.Command):
    """Has ``-v`` and ``-q``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for names, sign, text in (
            (["-v", "--verbose"], 1, "Tell more on stderr, with progress; -vv all."),
            (["-q", "--quiet"], -1, "Nothing but errors on stderr."),
        ):
            act = partial(_set_level, sign)
            self.params.append(click.Option(names, count=True, expose_value=False, callback=act, help=text))


class Command(_Verbose):
    """A command that writes over nothing that it reads."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        check_written(self, ctx.params)
        return super().invoke(ctx)


class Group(_Verbose, click.Group):
    """Turns what our functions raise on bad input into one line on stderr and exit code 1."""

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
            raise Interrupted(message, TERMINATED if isinstance(stop, Terminated) else EXIT_CODE) from None
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            command = self.commands.get(str(ctx.invoked_subcommand))
            raise click.ClickException(text if command is None else in_options(text, command)) from error
        except RuntimeError as error:  # netCDF4 has no error of its own
            if not str(error).startswith("NetCDF"):
                raise
            raise click.ClickException(f"a netCDF file is damaged: {error}") from error


def in_options(text: str, command: click.Command) -> str:
    """A message that names arguments of our functions, such as ``band_dim=``, with the command's options instead."""
    for param in command.params:
        option = max(param.opts, key=len)
        if option.startswith("--"):
            text = re.sub(rf"(?<![\w.-]){param.name}=(?=[\s,;:)]|$)", option, text)
        if option == "--drop-missing":
            text = text.replace("missing='drop'", option)
    return text


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
def working(session: Session, scheduler: str | None = None) -> Iterator[ProgressBars]:
    """Long work, on a dask cluster where an address is given, with bars; threads end where the run is interrupted."""
    with cluster(scheduler), session.console.progress(session.stopped) as bars:
        yield bars


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


def check_targets(targets: Iterable[Path | None], figure: Path | None = None) -> None:
    """Raise where one of the files cannot be written, or the figure, which is one of them, cannot be drawn."""
    from ..io import check_target

    for target in filter(None, targets):
        check_target(target)
    if figure is not None:
        from ..figures import require_figure

        require_figure(figure)


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
    for target in filter(None, targets):
        click.echo(f"wrote {target}")
