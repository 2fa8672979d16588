"""Whether a model file can be a model: its sizes before anything is read, its values before a model is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..cubes import NM_PER_UNIT
from ..gllim.core import Array
from ..gllim.model import GLLiMParameters
from ..model import Model
from ..settings import InverterSettings, check_settings, settings_of

THETA_DIMS = {
    "pi": ("component",),
    "c": ("component", "x"),
    "Gamma": ("component", "x", "x_2"),
    "A": ("component", "band", "x"),
    "b": ("component", "band"),
}
"""Dimensions of the arrays of theta, but for Sigma, whose structure has its own."""
VECTOR_DIMS = {"low": ("parameter",), "high": ("parameter",), "log_likelihoods": ("iteration",)}
OTHER_DIMS = {
    "member": ("component",),
    "wavelength": ("band",),
    "training_noise": ("band",),
    "held_out": ("held_out_sample", "band"),
    "recalibration_level": ("level",),
    "recalibration_raw": ("parameter", "level"),
    "recalibration_score": ("score",),
    "recalibration_raw_score": ("parameter", "score"),
    "calibration_shift": ("parameter",),
    "calibration_slope": ("parameter",),
    "calibration_raw_score": ("parameter", "calibration_score"),
}
_DESCRIBED: dict[str, type | tuple[type, ...]] = {
    "spectra_name": str,
    "spectra_units": (str, type(None)),
    "names": list,
    "attrs": dict,
    "n_latent": int,
    "n_samples": int,
    "n_removed": int,
    "total_weight": Real,
    "log_tail": (Real, type(None)),
    "converged": bool,
    "bics": dict,
    "settings": dict,
    "training": str,
}
_SHARES_SUM = 1e-6
_SYMMETRY = 1e-8


def check_sizes(data: xr.Dataset, size: int) -> None:
    """Raise ValueError where the arrays of an opened file are not numbers, or larger than its ``size`` in bytes."""
    for name, variable in data.variables.items():
        if variable.dtype.kind not in "fi":
            raise ValueError(f"{name} holds {variable.dtype}, not numbers")
    claimed = sum(variable.nbytes for variable in data.variables.values())
    if claimed > size:
        raise ValueError(
            f"arrays of {claimed:.3g} bytes in a file of {size} bytes; where it was compressed, nccopy -d 0 undoes that"
        )


def check_description(described: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError where the description of a model lacks something or has another type."""
    for name, kind in _DESCRIBED.items():
        value = described.get(name, "") if name == "training" else described[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{name} is {value!r}")
    names, attrs = described["names"], described["attrs"]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"parameters are named {names!r}")
    if set(attrs) != set(names) or not all(isinstance(one, dict) for one in attrs.values()):
        raise ValueError(f"attributes are of {', '.join(attrs)}, parameters are {', '.join(names)}")
    if not all(isinstance(value, str | Real) for one in attrs.values() for value in one.values()):
        raise TypeError(f"attributes of parameters are {attrs!r}")
    if min(described["n_latent"], described["n_samples"], described["n_removed"]) < 0:
        raise ValueError("a count is negative")
    if not all(isinstance(value, Real) for value in described["bics"].values()):
        raise TypeError(f"bics are {described['bics']!r}")
    if str(described["n_latent"]) not in described["bics"]:
        raise ValueError(f"no BIC of n_latent={described['n_latent']}")
    unknown = set(described["settings"]) - set(settings_of(InverterSettings))
    if unknown:
        raise ValueError(f"unknown settings {', '.join(sorted(unknown))}")
    check_settings(described["settings"], InverterSettings)
    bands = described["bands"]
    if not isinstance(bands["dim"], str) or not isinstance(bands["guessed"], bool):
        raise TypeError(f"the band dimension is {bands['dim']!r}")
    if bands["unit"] is not None and bands["unit"] not in NM_PER_UNIT:
        raise ValueError(f"wavelengths in {bands['unit']!r}")


def check_dims(data: xr.Dataset, sigma: tuple[str, ...]) -> None:
    """Raise ValueError where an array lacks or has other dimensions than models have, Sigma those of its structure."""
    needed = {**THETA_DIMS, **VECTOR_DIMS, "Sigma": sigma, "member": OTHER_DIMS["member"]}
    for name, dims in {**OTHER_DIMS, **needed}.items():
        if name not in data.variables:
            if name in needed:
                raise ValueError(f"no {name}")
        elif data.variables[name].dims != dims:
            raise ValueError(f"{name} is over ({', '.join(map(str, data.variables[name].dims))})")


def check_members(member: np.ndarray) -> None:
    """Raise ValueError where the members of components (K,) are not counted from zero."""
    found = np.unique(member)
    if not found.size or member.dtype.kind != "i" or not np.array_equal(found, np.arange(found.size)):
        raise ValueError("members are not counted from 0")


def check_model(model: Model) -> None:
    """Raise ValueError where values of a model cannot be: not finite, not positive, or of other sizes than theta."""
    for theta in model.members:
        _check_theta(theta)
    n_parameters, n_bands = len(model.names), model.theta.n_bands
    transforms, bands = model.transforms, model.bands
    if list(transforms.names) != model.names or transforms.n_transformed != model.theta.n_parameters:
        raise ValueError(f"theta of {model.theta.n_parameters} parameters does not fit {', '.join(model.names)}")
    rows: Iterable[Any] = (
        model.low,
        *(() if model.recalibration is None else (model.recalibration.raw,)),
        *(() if model.calibration is None else (model.calibration.shift,)),
    )
    if any(len(one) != n_parameters for one in rows):
        raise ValueError(f"ranges or calibrations are not of {n_parameters} parameters")
    _require("low and high", np.isfinite([model.low, model.high]).all() and (model.low <= model.high).all())
    _require("wavelength", (bands.wavelength is None) == (bands.unit is None))
    if bands.wavelength is not None:
        _require("wavelength", np.isfinite(bands.wavelength).all() and (bands.wavelength > 0).all())
    if bands.labels is not None:
        _require("labels", bands.labels.shape == (n_bands,))
    if model.training_noise is not None:
        _require("training_noise", np.isfinite(model.training_noise).all() and (model.training_noise >= 0).all())
    if model.held_out is not None:
        _require("held_out", not np.isinf(model.held_out).any())
    if model.member_weights is not None:
        _require("member_weights", model.member_weights.shape == (len(model.members),))
        _require_shares("member_weights", model.member_weights, model.member_weights >= 0)
    _require("log_tail", not model.log_tail > 0)
    _require("total_weight", 0 < model.total_weight < np.inf)
    for told in (model.recalibration, model.calibration):
        str(None if told is None else told.described)
    scene = model.scene_prior
    if scene is not None and not (isinstance(scene.of, str) and isinstance(scene.verdict, str)):
        raise TypeError(f"scene_prior is {scene!r}")
    if model.summary is not None:
        str(model.summary), model.summary.trials


def _check_theta(theta: GLLiMParameters) -> None:
    for name, array in theta.arrays().items():
        _require(name, array.dtype == np.float64 and np.isfinite(array).all())
    _require_shares("pi", theta.pi, theta.pi > 0)
    own = slice(theta.n_parameters, None) if theta.constraints.flat else slice(None)
    _require_covariances("Gamma", theta.Gamma[:, own, own])
    with np.errstate(all="ignore"):
        try:
            regular = bool(np.isfinite(theta.structure.log_det(theta.Sigma, theta.n_bands)).all())
        except np.linalg.LinAlgError:
            regular = False
    _require("Sigma", regular and (theta.structure.correlated or bool((theta.Sigma > 0).all())))
    if theta.Sigma.ndim == 3:
        _require_covariances("Sigma", theta.Sigma)


def _require(name: str, holds: Any) -> None:
    if not holds:
        raise ValueError(f"values of {name} that no model has")


def _require_shares(name: str, shares: Array, positive: NDArray[np.bool_]) -> None:
    _require(name, np.isfinite(shares).all() and positive.all() and abs(shares.sum() - 1.0) < _SHARES_SUM)


def _require_covariances(name: str, covariances: Array) -> None:
    """Symmetric, and positive definite, (K, m, m)."""
    size = np.sqrt(np.abs(np.diagonal(covariances, axis1=1, axis2=2)))
    uneven = np.abs(covariances - covariances.transpose(0, 2, 1)) > _SYMMETRY * size[:, :, None] * size[:, None, :]
    _require(name, not uneven.any())
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        _require(name, False)
