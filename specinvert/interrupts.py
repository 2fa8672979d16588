"""Ctrl-C while the program starts: it leaves at once and without a word, with the exit code that shells give.

Most of a start is the import of xarray, in which Ctrl-C would end in a traceback. Nothing is done where the package is
imported by another program. This is the first module of all that is imported, so it needs little itself.
"""

from __future__ import annotations

import os
import signal
import sys

PROGRAM = "specinvert"
EXIT_CODE = 130
"""As shells have it for a program that SIGINT ended."""


def leave_quietly_on_interrupt() -> None:
    """From now on Ctrl-C ends the process by `leave`, where it is the command ``specinvert`` that starts.

    A handler that somebody has set stays, and so does SIGINT that is ignored, as of processes in the background.
    """
    if _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, leave)
        except ValueError:  # not the main thread, which alone has signals
            return


def leave(number: int, frame: object) -> None:
    """End the process at once; there is nothing yet to clean up."""
    os._exit(EXIT_CODE)


def _is_program() -> bool:
    """Whether the process was started as ``specinvert`` or ``python -m specinvert``."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    if name == "-m":  # while Python looks for the module
        given = sys.orig_argv
        return f"-m{PROGRAM}" in given or ("-m" in given and PROGRAM in given[given.index("-m") + 1 :][:1])
    return os.path.basename(name).removesuffix(".exe") == PROGRAM
