"""xllim in a process of its own, where a crash of its ends nothing else; prints one line of JSON.

python benchmarks/xllim_peer.py train|invert INPUT.npz

INPUT holds theta in our names, spectra and parameters. xllim insists on arrays that own their memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from timing import difference, seconds_of

EVER = -1e300
"""A threshold on the gain of the likelihood that never stops it."""


def write_input(path: Path, theta: Any, spectra: np.ndarray, parameters: np.ndarray) -> Path:
    """Keep the model and the data for a process of its own."""
    np.savez(path, spectra=spectra, parameters=parameters, n_latent=theta.n_latent, **theta.arrays())
    return path


def make_model(given: dict[str, np.ndarray]) -> Any:
    """An xllim model with our parameters and isotropic noise."""
    import xllim  # type: ignore[import-not-found]

    shape, n_latent = given["A"].shape, int(given["n_latent"])
    model = xllim.GLLiM(*shape, "full", "iso", n_hidden_variables=n_latent)
    theta = xllim.GLLiMParameters(*shape, "full", "iso")
    names = {"Pi": "pi", "A": "A", "B": "b", "C": "c", "Gamma": "Gamma", "Sigma": "Sigma"}
    for theirs, ours in names.items():
        setattr(theta, theirs, owned(given[ours]))
    model.setParams(theta)
    return model


def owned(array: np.ndarray) -> np.ndarray:
    """A float64 copy in C order."""
    return np.array(array, dtype=np.float64, order="C", copy=True)


def train_seconds(given: dict[str, np.ndarray]) -> float:
    """Seconds of an EM iteration from the given model on."""
    y, t = owned(given["spectra"].T), owned(given["parameters"].T)
    return difference(lambda iterations: make_model(given).train(t, y, iterations, EVER, 1e-12, 0))


def invert_seconds(given: dict[str, np.ndarray]) -> float:
    """Seconds to invert a spectrum."""
    model, y = make_model(given), owned(given["spectra"].T)
    return seconds_of(lambda: model.inverseDensities(y, verbose=0)) / int(y.shape[1])


if __name__ == "__main__":
    with np.load(sys.argv[2]) as stored:
        arrays = dict(stored)
    work = {"train": train_seconds, "invert": invert_seconds}[sys.argv[1]]
    print(json.dumps(work(arrays)))
