"""Other implementations at the same sizes: scikit-learn's GaussianMixture, and xllim where it is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xllim_peer
from data import Files, cube_in_memory, fitted, make_spectra
from sizes import N_PARAMETERS, Sizes
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from timing import alternate, difference, installed, iteration_seconds, say
from xllim_peer import write_input

from specinvert.gllim import GLLiM


def peers(sizes: Sizes, place: Files) -> list[dict[str, Any]]:
    """Seconds of an EM iteration and of an inversion, of a peer and of ours; None where a peer is not installed."""
    return [*_mixtures(sizes), *_xllim(sizes, place)]


def _mixtures(sizes: Sizes) -> list[dict[str, Any]]:
    spectra, parameters = make_spectra(sizes.n, sizes.n_bands)
    joint = np.hstack([parameters, spectra])
    ours = {
        "full": ("full, L_w=0", _ours(sizes, sigma="full", n_latent=0)),
        "diag": (f"diag, L_w={sizes.n_latent}", _ours(sizes, sigma="diag", n_latent=sizes.n_latent)),
    }
    rows = []
    for kind, (name, own) in ours.items():
        say(f"  scikit-learn, {kind}")

        def fit(iterations: int, kind: str = kind) -> None:
            mixture = GaussianMixture(
                sizes.n_components,
                covariance_type=kind,
                tol=0.0,
                max_iter=iterations,
                init_params="random_from_data",
                random_state=0,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                mixture.fit(joint)

        peer = f"scikit-learn {installed('scikit-learn')} GaussianMixture, {kind}, of [t; y]"
        rows.append(_row(peer, "EM iteration", _shape(sizes), difference(fit), f"ours, {name}", own))
    return rows


def _xllim(sizes: Sizes, place: Files) -> list[dict[str, Any]]:
    peer, version = "xllim", installed("xllim")
    if version is None:
        missing = {"peer": peer, "seconds": None, "note": "not installed (pip install xllim)"}
        return [missing | {"what": what} for what in ("EM iteration", "inversion of a spectrum")]
    peer = f"xllim {version}, iso"
    say("  xllim")
    spectra, parameters = make_spectra(sizes.n, sizes.n_bands)
    start = GLLiM(sizes.n_components, n_latent=sizes.n_latent, max_iter=2, tol=0.0, random_state=0)
    theta = start.fit(spectra, parameters).parameters_
    seconds = _xllim_seconds("train", write_input(place.folder / "train.npz", theta, spectra, parameters))
    own = _ours(sizes, sigma="iso", n_latent=sizes.n_latent)
    rows = [_row(peer, "EM iteration", _shape(sizes), seconds, f"ours, iso, L_w={sizes.n_latent}", own)]
    inverter = fitted(sizes.n_bands, sizes.n_components, 0)
    few = make_spectra(sizes.peer_spectra, sizes.n_bands, seed=3)
    seconds = _xllim_seconds("invert", write_input(place.folder / "invert.npz", inverter.parameters_, *few))
    cube = cube_in_memory(sizes.sweep_pixels, sizes.n_bands)
    own = alternate({"ours": partial(inverter.invert, cube)}, 3)["ours"] / sizes.sweep_pixels
    shape = {"D": sizes.n_bands, "K": sizes.n_components, "L_t": N_PARAMETERS, "L_w": 0}
    row = _row(peer, "inversion of a spectrum", shape, seconds, "ours, iso, L_w=0", own)
    return [*rows, row | {"note": "with hidden variables its inverse raises"}]


def _xllim_seconds(work: str, given: Path) -> float:
    command = [sys.executable, xllim_peer.__file__, work, str(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _ours(sizes: Sizes, **settings: Any) -> float:
    spectra, parameters = make_spectra(sizes.n, sizes.n_bands)
    iteration_seconds(spectra, parameters, sizes.n_components, 1, **settings)
    return float(np.median(iteration_seconds(spectra, parameters, sizes.n_components, 6, **settings)))


def _shape(sizes: Sizes) -> dict[str, int]:
    return {"N": sizes.n, "D": sizes.n_bands, "K": sizes.n_components, "L_t": N_PARAMETERS}


def _row(peer: str, what: str, shape: dict[str, int], seconds: float, ours: str, own: float) -> dict[str, Any]:
    return {
        "peer": peer,
        "what": what,
        "sizes": shape,
        "seconds": seconds,
        "ours": ours,
        "ours_seconds": own,
        "times": seconds / own,
    }
