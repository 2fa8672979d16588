"""Rows shared by threads, and BLAS held to one thread while blocks run, restored when the last of them is done.

threadpoolctl sets and restores a limit for the whole process. Blocks run in several threads at once, where plain
nesting would restore too early and, at the end, to the limit itself; so the entrants are counted. From 3.8 on it also
lets one thread alone set OpenBLAS, the first that ever did, and ignores all others: under our lock any thread may.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

_lock = Lock()
_inside = 0
_limit: Any = None


@cache
def _controller() -> ThreadpoolController:
    """The BLAS of NumPy and SciPy, found once: looking through all loaded libraries takes a tenth of a second."""
    scipy.linalg.blas.dgemm(1.0, np.eye(1), np.eye(1))
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One thread a BLAS or OpenMP call inside; the first entrant sets it, the last restores what was before."""
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _take_control()
            _limit = _controller().limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _take_control()
                _limit.restore_original_limits()
                _take_control()
                _limit = None


def available_cpus() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_rows(function: Callable[[slice], object], n_rows: int, step: int) -> None:
    """Call ``function`` with every ``step`` of ``n_rows`` rows, in threads on all cores, BLAS in one thread each."""
    pieces = [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
    with one_blas_thread(), ThreadPoolExecutor(available_cpus()) as pool:
        for _ in pool.map(function, pieces):
            pass


def _take_control() -> None:
    """Let whichever thread comes next set OpenBLAS."""
    for library in _controller().lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
