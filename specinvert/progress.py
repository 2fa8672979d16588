"""Bars that tell how far long work is: what ``progress=`` of ``fit``, ``select_model`` and ``save_maps`` may be."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

SEARCH = "looking for settings"
"""The label of a search, whose iterations are trials and whose values are scores."""
TRIALS = "{desc}: {n} tried{postfix} |{bar}|"
EM = "{desc}: iteration {n} of {total}{postfix}, at most {remaining} left |{bar}|"
FITS = "fit {n} of {total}: {desc}, about {remaining} left |{bar}|"
BLOCKS = "{percentage:3.0f}% |{bar}| {desc}{postfix}"
MOST_TRIALS = 60
"""About as many as a search needs."""
BAR_SECONDS, LINE_SECONDS = 0.1, 2.0
"""Least time between two reports, by bars and by lines."""
UNASKED_SECONDS = 1.0
"""Time that work takes before a bar that nobody asked for is shown."""

Report = TypeVar("Report", bound=Callable[..., None])


class ProgressBars:
    """Bars of tqdm on stderr, on a terminal or in a notebook; one for each thread that fits.

    Parameters
    ----------
    lines : gets a line of text now and then, instead of bars.
    stop : the work ends with KeyboardInterrupt as soon as this is set.
    delay : seconds that work takes before its bar is shown.

    Examples
    --------
    >>> from specinvert import GLLiMInverter
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, n_latent=0, tol=0.1, random_state=0)
    >>> with ProgressBars() as bars:
    ...     inverter.fit(training, parameters=["grain_size"], progress=bars.training(inverter.max_iter))
    <GLLiMInverter n_components=3, n_latent=0, sigma='iso', tied_sigma=False: 121 bands -> grain_size>
    """

    def __init__(
        self, lines: Callable[[str], None] | None = None, stop: threading.Event | None = None, delay: float = 0.0
    ) -> None:
        self._lines = lines
        self._stop = stop
        self._delay = delay
        self._bars: dict[int | None, tuple[str, Any]] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the bars away."""
        with self._lock:
            for _, bar in self._bars.values():
                bar.close()
            self._bars.clear()

    def training(self, max_iter: int) -> Callable[[str, int, float], None]:
        """What ``fit`` calls: the iterations of a run of EM, of at most ``max_iter``."""

        def progress(label: str, iteration: int, log_likelihood: float) -> None:
            thread = threading.get_ident()
            if label == SEARCH:
                self._show(label, TRIALS, iteration + 1, MOST_TRIALS, label, f"best {log_likelihood:.3f}", thread)
                return
            told = f"log-likelihood {log_likelihood:.6g}"
            self._show(label, EM, iteration + 1, max_iter, f"EM, {label}", told, thread)

        return progress

    def selection(self, label: str, done: int, count: int) -> None:
        """What ``select_model`` calls: the fits that are done."""
        self._show("fits", FITS, done, count, label)

    def blocks(self, state: Any) -> None:
        """What ``save_maps`` calls: the pixels that are done, their rate and the time left."""
        rate = state.pixels_per_second
        told = f"{rate:,.0f} pixels/s, {duration(state.seconds_left)} left" if rate > 0 else ""
        words = f"block {state.blocks} of {state.n_blocks}"
        self._show("blocks", BLOCKS, state.pixels, state.n_pixels, words, told)

    def say(self, text: str) -> None:
        """A line of text on stderr, above the bars."""
        _tqdm().write(text, file=sys.stderr)

    def _show(
        self,
        work: str,
        form: str,
        done: int,
        total: int,
        words: str,
        told: str = "",
        thread: int | None = threading.main_thread().ident,
    ) -> None:
        if self._stop is not None and self._stop.is_set():
            raise KeyboardInterrupt
        with self._lock:
            shown, bar = self._bars.get(thread, ("", None))
            if shown != work:
                if bar is not None:
                    bar.close()
                bar = self._bar(form, initial=done, total=total, desc=words, postfix=told)
                self._bars[thread] = work, bar
            bar.set_description_str(words, refresh=False)
            bar.set_postfix_str(told, refresh=False)
            bar.update(done - bar.n)
            if done >= total and bar.format_dict["elapsed"] >= self._delay:
                bar.refresh()

    def _bar(self, form: str, **state: Any) -> Any:
        where: dict[str, Any] = {"file": sys.stderr, "mininterval": BAR_SECONDS, "bar_format": form}
        if self._lines is not None:
            form = form.replace("|{bar}| ", "").replace(" |{bar}|", "")
            where = {"file": _Lines(self._lines), "mininterval": LINE_SECONDS, "bar_format": form, "position": 0}
        elif not _in_notebook():
            columns, rows = shutil.get_terminal_size()
            where |= {"ncols": columns - 1, "nrows": rows}
        return _tqdm()(miniters=0, leave=False, delay=self._delay, **state, **where)


@contextmanager
def reporting(given: Report | bool | None, of: Callable[[ProgressBars], Report]) -> Iterator[Report | None]:
    """What long work has to call: what its argument ``progress`` says.

    Parameters
    ----------
    given : a function, called as it is; True, for bars; False, for nothing; None, for bars where a person looks.
    of : which report of the bars it is.

    Raises
    ------
    TypeError : it is none of these.
    """
    if given is None or given is True:
        if given is None and not person_looks():
            yield None
            return
        with ProgressBars(delay=0.0 if given else UNASKED_SECONDS) as bars:
            yield of(bars)
    elif given is False:
        yield None
    elif callable(given):
        yield given
    else:
        raise TypeError(f"progress={given!r} must be a function, True, False or None (bars where a person looks)")


def person_looks() -> bool:
    """Whether stderr is a terminal, or this is a notebook; not where ``TQDM_DISABLE`` is set."""
    if os.environ.get("TQDM_DISABLE", "") not in ("", "0"):
        return False
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


class _Lines:
    """A file for tqdm, which makes lines of what would overwrite itself on a terminal."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def write(self, text: str) -> None:
        """Take what is not blank."""
        if text.strip():
            self._take(text.strip())

    def flush(self) -> None:
        """Nothing is held back."""


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


@cache
def _tqdm() -> Any:
    """The kind of bar for where this runs."""
    if _in_notebook():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # text will do where a notebook has no widgets
            from tqdm.auto import tqdm
    else:
        from tqdm import tqdm
    return tqdm


def duration(seconds: float) -> str:
    """Seconds as ``42 s``, ``3:05 min`` or ``2:10:00 h``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def warn_user(text: str) -> None:
    """Warn who uses the package: in this process, or from a worker of a dask cluster."""
    warn: Callable[[str], object] = getattr(sys.modules.get("distributed"), "warn", warnings.warn)
    warn(text)
