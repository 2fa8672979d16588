"""Seconds that fresh processes take to import, to show help, and for a first fit with compiled kernels kept or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sizes import Sizes
from timing import alternate, say, seconds_of

FIRST_FIT = """
import numpy as np
from specinvert.gllim import GLLiM
rng = np.random.default_rng(0)
t = rng.uniform(size=(200, 2))
y = t @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(200, 6))
GLLiM(2, n_latent=1, max_iter=3, tol=0.0, random_state=0).fit(y, t).predict(y)
"""


def startup(sizes: Sizes) -> list[dict[str, Any]]:
    """Median wall seconds of fresh processes, called in turn; the first fit on an empty cache is timed once."""
    say("  imports, help, first fit")
    command = Path(sys.executable).with_name("specinvert")
    with TemporaryDirectory() as folder:
        fit = partial(_python, FIRST_FIT, NUMBA_CACHE_DIR=folder)
        empty = seconds_of(fit)
        cases: dict[str, Callable[[], Any]] = {
            "import xarray": partial(_python, "import xarray"),
            "import specinvert": partial(_python, "import specinvert"),
            "specinvert --help": partial(_run, [str(command), "--help"]),
            "first fit, kernels cached": fit,
        }
        found = alternate(cases, sizes.starts)
    found["first fit, empty cache"] = empty
    targets = {"import specinvert": found["import xarray"] + 0.4, "specinvert --help": 0.7}
    return [{"what": name, "seconds": seconds, "target": targets.get(name)} for name, seconds in found.items()]


def _python(code: str, **environment: str) -> None:
    _run([sys.executable, "-c", code], **environment)


def _run(command: list[str], **environment: str) -> None:
    subprocess.run(command, env=os.environ | environment, stdout=subprocess.DEVNULL, check=True)
