"""What goes to stderr: progress, notes, warnings and log lines, each a line, none torn by another thread's."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

TERMINAL_SECONDS, LOG_SECONDS = 0.1, 2.0
"""Least time between two reports of progress, on a terminal and elsewhere."""


class Console:
    """Stderr of one run of the command; ``level`` is 0, more with ``-v``, less with ``-q``."""

    def __init__(self) -> None:
        self.level = 0
        self._shown = 0
        self._last = -LOG_SECONDS
        self._lock = threading.RLock()
        self._told: set[str] = set()
        self._listening = False

    def say(self, text: str) -> None:
        """A line of its own, where the progress was."""
        with self._lock:
            self.clear()
            click.echo(" ".join(text.split()), err=True)

    def note(self, text: str) -> None:
        """A line on what is being done, unless quiet."""
        if self.level >= 0:
            self.say(text)

    def warn(self, text: str) -> None:
        """A warning, once, unless quiet."""
        if self.level >= 0 and text not in self._told:
            self._told.add(text)
            self.say(f"Warning: {text}")

    def progress(self, text: str, last: bool = False) -> None:
        """How far the work is: overwritten on a terminal, lines with ``-v`` elsewhere, nothing when quiet."""
        terminal = sys.stderr.isatty()
        if self.level < 0 or not (terminal or self.level > 0):
            return
        with self._lock:
            now = time.monotonic()
            if not last and now - self._last < (TERMINAL_SECONDS if terminal else LOG_SECONDS):
                return
            self._last = now
            if not terminal:
                click.echo(text, err=True)
                return
            text = text[: shutil.get_terminal_size().columns - 1]
            click.echo("\r" + text.ljust(self._shown), nl=False, err=True)
            self._shown = len(text)

    def clear(self) -> None:
        """Take the progress off the terminal."""
        with self._lock:
            if self._shown:
                click.echo("\r" + " " * self._shown + "\r", nl=False, err=True)
                self._shown = 0

    def set_level(self, level: int) -> None:
        """Verbosity, also that of the package's loggers while the console listens to them."""
        self.level = level
        if not self._listening:
            return
        levels = {0: logging.WARNING, 1: logging.INFO}
        logging.getLogger("specinvert").setLevel(
            logging.ERROR if level < 0 else levels.get(level, logging.DEBUG),
        )

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
            self.clear()
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
