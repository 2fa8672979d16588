"""From a model and a request to the kernel that inverts its blocks, and what the maps say of how they were made."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import xarray as xr

from . import __version__
from .cubes.engine import BlockInverter, Predictor
from .cubes.given import check_request, read_conditions, without_training
from .cubes.outputs import Output
from .cubes.reading import Domain
from .cubes.request import Request
from .io.model import Model


def block_inverter(
    model: Model,
    by_evidence: bool,
    request: Request,
    declared: Sequence[Output],
    noise: Any = None,
    known: Any = None,
    tolerance: float = 1.0,
    min_valid_bands: int | None = None,
    truth: xr.Dataset | None = None,
    noise_includes_training: bool = False,
) -> BlockInverter:
    """The kernel of one request; ``by_evidence`` weighs the members of a committee by the density of the spectrum.

    Raises
    ------
    ValueError : noise, known parameters or outputs that do not go with the model, the request or each other.
    """
    theta = model.theta
    least = min_valid_bands
    if least is None:
        least = min(theta.n_bands, max(theta.n_parameters + 1, -(-theta.n_bands // 10)))
    if not isinstance(least, numbers.Integral) or isinstance(least, bool) or not 1 <= least <= theta.n_bands:
        raise ValueError(f"min_valid_bands={least!r} must be an integer from 1 to the {theta.n_bands} bands")
    units = {name: model.attrs[name].get("units") for name in model.names}
    conditions = read_conditions(
        request, model.bands, model.names, noise, known, model.spectra_units, units, tolerance, truth
    )
    check_request(conditions, declared, model.transforms)
    if noise_includes_training:
        conditions = without_training(conditions, model.training_noise)
    predictor = Predictor(
        model.members,
        model.transforms,
        Domain(model.low, model.high, model.log_tail),
        by_evidence,
        int(least),
        model.recalibration,
        model.held_out,
    )
    return BlockInverter(predictor, request.bands, tuple(declared), request.dtype, request.fill, conditions)


def provenance(model: Model, *remarks: str) -> dict[str, str]:
    """Attributes of maps: version, model, time, ranges of training, and remarks on bands and on what was given."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ranges = "; ".join(
        f"{name}: {low:g} to {high:g}" for name, low, high in zip(model.names, model.low, model.high, strict=True)
    )
    return {
        "source": f"specinvert {__version__}, GLLiM model {identity(model)}",
        "history": "; ".join([f"{stamp} specinvert {__version__} invert", *filter(None, remarks)]),
        "training_ranges": ranges,
    }


def identity(model: Model) -> str:
    """Short hash of the fitted parameters."""
    digest = hashlib.sha256()
    for theta in model.members:
        for array in theta.arrays().values():
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]
