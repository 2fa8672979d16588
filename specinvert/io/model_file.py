"""The model file: a trained model as arrays and attributes in netCDF, never a pickle.

``specinvert_schema`` is its version. Everything needed to invert on another machine is in it: theta of every member of
the committee, one component after the other, the bands with their wavelengths, names, units, transforms and training
ranges of the parameters, and how the model was fitted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..cubes import Bands, FieldCalibration, Recalibration
from ..gllim.model import Constraints, GLLiMParameters
from ..gllim.transforms import SpectraTransform, Transforms
from ..model import Model, ScenePrior, Summary
from .atomic import atomic_path
from .model_content import (
    OTHER_DIMS,
    THETA_DIMS,
    VECTOR_DIMS,
    check_description,
    check_dims,
    check_members,
    check_model,
    check_sizes,
)

SCHEMA = 3
_KIND = "GLLiM model"


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to netCDF, whole or not at all.

    Raises FileNotFoundError or PermissionError where the folder is missing or not writable.
    """
    theta = model.theta
    shapes = {**THETA_DIMS, "Sigma": theta.structure.dims}
    variables: dict[str, Any] = {
        name: (dims, np.concatenate([getattr(member, name) for member in model.members]))
        for name, dims in shapes.items()
    }
    counts = [member.n_components for member in model.members]
    variables["member"] = (("component",), np.repeat(np.arange(len(counts)), counts))
    variables |= {name: (dims, getattr(model, name)) for name, dims in VECTOR_DIMS.items()}
    if model.bands.wavelength is not None:
        attrs = {"units": "nm", "standard_name": "radiation_wavelength"}
        variables["wavelength"] = (("band",), model.bands.wavelength, attrs)
    arrays = {name: getattr(model, name) for name in ("held_out", "training_noise") if getattr(model, name) is not None}
    for correction in (model.recalibration, model.calibration):
        arrays |= {} if correction is None else correction.to_arrays()
    variables |= {name: (OTHER_DIMS[name], array) for name, array in arrays.items()}
    labels = None if model.bands.labels is None else np.asarray(model.bands.labels)
    times = None if labels is None or labels.dtype.kind not in "mM" else labels.dtype
    from .._version import __version__

    description = {
        "n_latent": theta.n_latent,
        "constraints": asdict(theta.constraints),
        "bands": {
            "dim": model.bands.dim,
            "unit": model.bands.unit,
            "guessed": model.bands.guessed,
            "labels": None if labels is None else (labels if times is None else labels.astype(np.int64)).tolist(),
            "labels_dtype": None if times is None else str(times),
        },
        "spectra_name": model.spectra_name,
        "spectra_units": model.spectra_units,
        "names": model.names,
        "attrs": model.attrs,
        "transforms": model.transforms.to_attrs(),
        "log_tail": None if np.isnan(model.log_tail) else float(model.log_tail),
        "n_samples": model.n_samples,
        "total_weight": model.total_weight,
        "converged": model.converged,
        "n_removed": model.n_removed,
        "bics": {str(n_latent): value for n_latent, value in model.bics.items()},
        "settings": model.settings,
        "training": model.training,
        "summary": None if model.summary is None else model.summary.to_attrs(),
    }
    if model.recalibration is not None:
        description["recalibration"] = model.recalibration.to_attrs()
    if model.calibration is not None:
        description["calibration"] = model.calibration.to_attrs()
    if model.scene_prior is not None:
        description["scene_prior"] = asdict(model.scene_prior)
    if model.member_weights is not None:
        description["member_weights"] = model.member_weights.tolist()
    if model.spectra_transform.kind is not None:  # earlier versions read models without
        description["spectra_transform"] = model.spectra_transform.kind
    dataset = xr.Dataset(
        variables,
        attrs={
            "title": _KIND,
            "specinvert_schema": SCHEMA,
            "source": f"specinvert {__version__}",
            "specinvert_model": json.dumps(description, default=str),
        },
    )
    dataset.attrs["specinvert_checksum"] = _checksum(dataset)
    encoding = {name: {"_FillValue": None} for name in dataset.variables}
    with atomic_path(path) as temporary:
        dataset.to_netcdf(temporary, engine="netcdf4", encoding=encoding)


def _checksum(dataset: xr.Dataset) -> str:
    """SHA-256 of the arrays and their description, by which damage is found."""
    digest = hashlib.sha256(dataset.attrs.get("specinvert_model", "").encode())
    for name in sorted(map(str, dataset.variables)):
        array = dataset.variables[name].values
        digest.update(f"{name} {array.dtype.kind}{array.dtype.itemsize} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether the file is a netCDF file that calls itself a specinvert model, of any schema."""
    try:
        with xr.open_dataset(path, engine="netcdf4") as opened:
            return opened.attrs.get("title") == _KIND
    except (OSError, RuntimeError, ValueError):
        return False


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model written by :func:`save_model`, to the same bits.

    Raises
    ------
    FileNotFoundError : no such file.
    ValueError : the file is truncated or no netCDF, holds no model, has another schema, or was changed since it was
        written.
    """
    shown = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"{shown}: no such model file")
    with _netcdf_errors(shown):
        opened = xr.open_dataset(path, engine="netcdf4", decode_cf=False, create_default_indexes=False)
    with opened:
        _check_head(opened, shown)
        with _netcdf_errors(shown):
            data = opened.load()
    if data.attrs.get("specinvert_checksum") != _checksum(data):
        raise ValueError(
            f"{shown}: damaged specinvert model: its content is not what was written; copy or train it again"
        )
    try:
        model = _model(data)
        check_model(model)
    except KeyError as error:
        raise ValueError(f"{shown}: damaged specinvert model: no {error} in it") from None
    except (ArithmeticError, AttributeError, IndexError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{shown}: damaged specinvert model: {error}") from None
    return model


@contextmanager
def _netcdf_errors(shown: str) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{shown}: not a readable netCDF file (truncated, or of another kind): {error}") from None


def _check_head(data: xr.Dataset, shown: str) -> None:
    if data.attrs.get("title") != _KIND or "specinvert_schema" not in data.attrs:
        raise ValueError(f"{shown}: a netCDF file, but not a specinvert model; `specinvert train` makes one")
    schema = data.attrs["specinvert_schema"]
    if schema != SCHEMA:
        raise ValueError(
            f"{shown}: model schema {schema}, this version of specinvert reads {SCHEMA}: train again, or install the "
            f"version that wrote it ({data.attrs.get('source', 'unknown')})"
        )
    try:
        check_sizes(data, Path(shown).stat().st_size)
    except ValueError as error:
        raise ValueError(f"{shown}: damaged specinvert model: {error}") from None


def _model(data: xr.Dataset) -> Model:
    described = json.loads(data.attrs["specinvert_model"])
    check_description(described)
    arrays: dict[str, Any] = {str(name): variable.values for name, variable in data.variables.items()}
    bands = described.pop("bands")
    labels = bands["labels"]
    constraints = Constraints(**described.pop("constraints"))
    check_dims(data, constraints.structure.dims)
    n_latent, member = described.pop("n_latent"), arrays["member"]
    check_members(member)
    members = tuple(
        GLLiMParameters(
            **{name: arrays[name][member == number] for name in (*THETA_DIMS, "Sigma")},
            n_latent=n_latent,
            constraints=constraints,
        )
        for number in range(int(member.max()) + 1)
    )
    log_tail, weights = described.pop("log_tail"), described.pop("member_weights", None)
    recalibration, summary = described.pop("recalibration", None), described.pop("summary", None)
    calibration, scene = described.pop("calibration", None), described.pop("scene_prior", None)
    return Model(
        members=members,
        transforms=Transforms.from_attrs(described.pop("transforms")),
        spectra_transform=SpectraTransform(described.pop("spectra_transform", None)),
        log_tail=np.nan if log_tail is None else log_tail,
        bands=Bands(
            dim=bands["dim"],
            size=members[0].n_bands,
            wavelength=arrays.get("wavelength"),
            unit=bands["unit"],
            guessed=bands["guessed"],
            labels=None if labels is None else np.asarray(labels, dtype=bands.get("labels_dtype")),
        ),
        bics={int(n_latent): value for n_latent, value in described.pop("bics").items()},
        held_out=arrays.get("held_out"),
        member_weights=None if weights is None else np.array(weights),
        training_noise=arrays.get("training_noise"),
        recalibration=None
        if recalibration is None and "recalibration_level" not in arrays
        else Recalibration.from_arrays(arrays, recalibration),
        summary=None if summary is None else Summary.from_attrs(summary),
        scene_prior=None if scene is None else ScenePrior.from_attrs(scene),
        calibration=None
        if calibration is None and "calibration_shift" not in arrays
        else FieldCalibration.from_arrays(arrays, calibration or {}),
        **{name: arrays[name] for name in VECTOR_DIMS},
        **described,
    )
