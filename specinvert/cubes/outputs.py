"""What an inversion can give: each output declared once, with its dimensions, type and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

OUTPUTS = ("mean", "std", "cov", "latent", "log_evidence", "flag")
DEFAULT_OUTPUTS = ("mean", "std", "flag")

NODATA, PARTIAL_BANDS = 1, 2
RESERVED = ("parameter", "parameter_2", "latent", "component")
"""Dimensions of the results beside the cube's own."""
FLAGS = {NODATA: "nodata", PARTIAL_BANDS: "partial_bands"}


@dataclass(frozen=True)
class Output:
    """One variable of the maps.

    ``kind`` is the output asked for, ``index`` the parameter it belongs to (None: all), ``core_dims`` follow the
    cube's own dimensions, ``dtype`` None is the cube's float type.
    """

    name: str
    kind: str
    index: int | None = None
    core_dims: tuple[str, ...] = ()
    dtype: np.dtype | None = None


def declare_outputs(outputs: Sequence[str], parameters: Sequence[str], n_latent: int) -> list[Output]:
    """The variables of a request, in a fixed order.

    Raises
    ------
    ValueError : an unknown output, none at all, latents of a model without, or a parameter whose name collides.
    """
    if isinstance(outputs, str):
        outputs = (outputs,)
    unknown = [o for o in outputs if o not in OUTPUTS]
    if unknown:
        raise ValueError(f"outputs {unknown} not known; choose from {', '.join(map(repr, OUTPUTS))}")
    if not outputs:
        raise ValueError(f"no outputs asked for; choose from {', '.join(map(repr, OUTPUTS))}")
    if "latent" in outputs and n_latent == 0:
        raise ValueError("output 'latent' needs a model with n_latent >= 1; this one has none")
    wanted: list[Output] = []
    if "mean" in outputs:
        wanted += [Output(p, "mean", i) for i, p in enumerate(parameters)]
    if "std" in outputs:
        wanted += [Output(f"{p}_std", "std", i) for i, p in enumerate(parameters)]
    if "cov" in outputs:
        wanted.append(Output("covariance", "cov", core_dims=("parameter", "parameter_2")))
    if "latent" in outputs:
        wanted.append(Output("latent", "latent", core_dims=("latent",)))
    if "log_evidence" in outputs:
        wanted.append(Output("log_evidence", "log_evidence", dtype=np.dtype(np.float64)))
    if "flag" in outputs:
        wanted.append(Output("quality_flag", "flag", dtype=np.dtype(np.uint8)))
    if not wanted:
        raise ValueError(f"outputs {list(outputs)} need parameters, and this model has none: ask for 'latent'")
    names = [o.name for o in wanted]
    clashing = sorted({n for n in names if names.count(n) > 1} | {p for p in parameters if p in RESERVED})
    if clashing:
        raise ValueError(f"a parameter's name collides with an output: {clashing}; rename the parameter")
    return wanted


def flag_attrs() -> dict[str, object]:
    """CF attributes of the quality flag."""
    return {
        "long_name": "quality flags",
        "standard_name": "quality_flag",
        "flag_masks": np.array(list(FLAGS), dtype=np.uint8),
        "flag_meanings": " ".join(FLAGS.values()),
    }
