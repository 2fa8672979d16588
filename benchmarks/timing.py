"""Medians, alternation of what is compared, slopes, and what machine this is."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_info

from specinvert.gllim import GLLiM

PACKAGES = ("specinvert", "numpy", "scipy", "numba", "scikit-learn", "xarray", "dask", "distributed", "zarr", "xllim")


def say(text: str) -> None:
    """Tell on stderr what is being done."""
    click.echo(text, err=True)


def seconds_of(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = perf_counter()
    function()
    return perf_counter() - start


def alternate(cases: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each case, called in turn so that a drift of the clock meets all alike; one round warms up."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, function in cases.items():
            seconds = seconds_of(function)
            if turn:
                times[name].append(seconds)
    return {name: float(np.median(found)) for name, found in times.items()}


class Intervals:
    """A progress callback of EM that notes the time between its calls, which is that of an iteration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last: float | None = None

    def __call__(self, *_: Any) -> None:
        """Take the time of an iteration."""
        now = perf_counter()
        if self._last is not None:
            self.seconds.append(now - self._last)
        self._last = perf_counter()


def iteration_seconds(
    spectra: np.ndarray, parameters: np.ndarray, n_components: int, iterations: int, **settings: Any
) -> list[float]:
    """Seconds of each iteration, M-step and E-step, of a fit from a fixed start."""
    model = GLLiM(n_components, random_state=0, max_iter=iterations + 1, tol=0.0, **settings)
    intervals = Intervals()
    model.fit(spectra, parameters, progress=intervals)
    return intervals.seconds


def difference(fit: Callable[[int], Any], few: int = 1, many: int = 4, rounds: int = 3) -> float:
    """Median seconds of an iteration: two fits of few and many differ by it and by nothing that a fit does besides."""
    pairs = [(seconds_of(lambda: fit(few)), seconds_of(lambda: fit(many))) for _ in range(rounds)]
    return float(np.median([(longer - shorter) / (many - few) for shorter, longer in pairs]))


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Exponent of a power law through the points: the slope in log-log."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def machine() -> dict[str, Any]:
    """What the figures depend on: date, cores, BLAS kernels as they ran, versions."""
    kernels = {f"{i['internal_api']} {i.get('architecture', '')} {i['version'] or ''}" for i in threadpool_info()}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        "blas": sorted(" ".join(kernel.split()) for kernel in kernels),
        "load": os.getloadavg()[0],
        "versions": {name: installed(name) for name in PACKAGES},
    }


def installed(package: str) -> str | None:
    """The version of a package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()
