"""What an inversion returns, labelled: maps with their attributes, posterior mixtures, and expected spectra."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import dask.threaded
import numpy as np
import xarray as xr

from ..gllim.mixtures import Mixture, merged
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import inverse_regression, member_shares
from ..gllim.transforms import UNCHANGED, SpectraTransform, Transforms
from .engine import BlockInverter
from .given import record_conditions
from .labels import Labels, listed, meant, no_labelled, pixel_coordinates
from .outputs import LATENT, OF_PARAMETER, OF_SPECTRA, PARAMETER, PARAMETER_2, MapVariable
from .request import Request

CONVENTIONS = "CF-1.11"
CUBE_FILE = "cube_file"
"""Key of the encoding of maps that names the file of their cube."""
REFERENCES = (
    "Deleforge, A., Forbes, F. and Horaud, R. (2015): High-dimensional regression with Gaussian mixtures and "
    "partially-latent response variables. Statistics and Computing 25, 893-911, doi:10.1007/s11222-014-9461-5"
)


def label_maps(
    maps: xr.Dataset,
    cube: xr.DataArray,
    declared: Sequence[MapVariable],
    labels: Labels,
    provenance: Mapping[str, str],
    estimates: Sequence[str],
) -> xr.Dataset:
    """Give every variable its attributes and the cube's grid mapping; ``provenance`` goes on the Dataset.

    ``estimates`` are what "estimate" means for each parameter.

    Where the cube was read from a file, the encoding tells which, so that the maps are not written over it.
    """
    mapping = cube.encoding.get("grid_mapping") or cube.attrs.get("grid_mapping") or "spatial_ref"
    for variable in declared:
        maps[variable.name].attrs = _attrs(variable, declared, labels, estimates)
        if mapping in cube.coords:
            maps[variable.name].encoding["grid_mapping"] = str(mapping)
    used = {dim for variable in declared for dim in variable.output.dims}
    named = {dim: list(labels.parameters) for dim in (PARAMETER, PARAMETER_2) if dim in used}
    maps = maps.assign_coords(named)
    names = [labels.long_name(parameter) for parameter in labels.parameters]
    title = f"Estimates of {', '.join(names)} from spectra" if names else "Latent dimensions of spectra"
    maps.attrs = {"Conventions": CONVENTIONS, "title": title, **provenance, "references": REFERENCES}
    if "source" in cube.encoding:
        maps.encoding[CUBE_FILE] = cube.encoding["source"]
    return maps


def _attrs(
    variable: MapVariable, declared: Sequence[MapVariable], labels: Labels, estimates: Sequence[str]
) -> dict[str, object]:
    output = variable.output
    if not output.per_parameter:
        made = {"long_name": variable.long_name(), **output.attrs()}
        units = labels.spectra_units if output.units == OF_SPECTRA else output.units
        return made if units is None else made | {"units": units}
    name = labels.parameters[variable.index]
    own, long_name = labels.attrs.get(name, {}), labels.long_name(name)
    if output.is_estimate:
        beside = [v for v in declared if v.output.ancillary or (v.index == variable.index and not v.output.is_estimate)]
        linked = {"ancillary_variables": " ".join(v.name for v in beside)} if beside else {}
        told = {"estimate": estimates[variable.index] if output.asked == "estimate" else output.asked}
        return {"long_name": long_name, **own, **linked, **told}
    made = {"long_name": variable.long_name(long_name), **output.attrs()}
    units = own.get("units") if output.units == OF_PARAMETER else output.units
    if units is not None:
        made["units"] = units
    if output.standard_name and "standard_name" in own:
        made["standard_name"] = f"{own['standard_name']} {output.standard_name}"
    return made


def inversion_attrs(model_id: str, kernel: BlockInverter) -> dict[str, str]:
    """Attributes of maps: ``model_id``, and as JSON ``conditions``, bands used and what was given beside spectra."""
    predictor = kernel.predictor
    record: dict[str, Any] = {"bands": predictor.members[0].n_bands, "min_valid_bands": predictor.least_bands}
    record |= record_conditions(kernel.conditions, predictor.transforms.names)
    if predictor.calibration is not None:
        record["calibration"] = predictor.calibration.to_attrs()
    if predictor.spectra_transform.kind is not None:
        record["spectra_transform"] = predictor.spectra_transform.kind
    return {"model_id": model_id, "conditions": json.dumps(record)}


def made_by(attrs: Mapping[Any, Any]) -> str | None:
    """The id of the model that made maps with these attributes; None where they do not tell."""
    told = re.search(r"GLLiM model (\w+)", str(attrs.get("source", "")))  # all that those of former versions have
    return str(attrs["model_id"]) if "model_id" in attrs else told and told[1]


def made_with(attrs: Mapping[Any, Any]) -> dict[str, Any] | None:
    """Under what conditions maps were made, as :func:`record_conditions` tells; None where their attributes do not."""
    try:
        record = json.loads(str(attrs["conditions"]))
    except (KeyError, ValueError):
        return None
    return record if isinstance(record, dict) else None


CORE_DIMS = ("component", PARAMETER, PARAMETER_2)


def label_posterior(kernel: BlockInverter, request: Request, n_components: int | None = None) -> xr.Dataset:
    """Weights, means, covariances of the components and log-evidence of every spectrum, in memory.

    Of a committee the components of all members; reduced to ``n_components`` where that is given.
    """
    moved = request.cube.transpose(..., request.band_dim)
    predictor = kernel.predictor
    names = predictor.transforms.transformed_names
    rows, _, given = kernel.read_block(moved.values, [extra.array.values for extra in kernel.conditions.extras])
    n, n_t = len(rows), len(names)
    n_k = sum(theta.n_components for theta in predictor.members)
    if n_components is not None:
        n_k = min(n_k, n_components)
    made = {
        "weight": np.full((n, n_k), np.nan),
        "mean": np.full((n, n_k, n_t), np.nan),
        "covariance": np.full((n, n_k, n_t, n_t), np.nan),
        "log_evidence": np.full(n, np.nan),
    }
    for where, part in kernel.estimates(rows, given, every_component=True):
        block, mixture = np.arange(n)[where], part.components()
        unknown = np.array([i for i in range(n_t) if i not in part.known], dtype=np.intp)
        size = len(unknown)
        mixture = Mixture(mixture.weights, mixture.means[:, :, :size], mixture.covariances[:, :, :size, :size])
        if n_components is not None:
            mixture = merged(mixture, n_components)
        made["weight"][block] = mixture.weights
        made["mean"][np.ix_(block, np.arange(n_k), unknown)] = mixture.means
        made["covariance"][block] = 0.0
        places = np.ix_(block, np.arange(n_k), unknown, unknown)
        made["covariance"][places] = mixture.covariances
        for i in part.known:
            assert given.known is not None
            made["mean"][block, :, i] = given.known[block, i, None]
        made["log_evidence"][block] = part.log_evidence + predictor.spectra_transform.log_volume(rows[where])
    pixel_dims, pixel_shape = moved.dims[:-1], moved.shape[:-1]
    variables = {
        name: ((*pixel_dims, *CORE_DIMS[: a.ndim - 1]), a.reshape((*pixel_shape, *a.shape[1:])))
        for name, a in made.items()
    }
    coords = pixel_coordinates(moved, request.band_dim, {*made, *CORE_DIMS})
    return xr.Dataset(variables, coords=coords).assign_coords(parameter=list(names), parameter_2=list(names))


def expected_spectra(
    members: Sequence[GLLiMParameters],
    transforms: Transforms,
    parameters: xr.Dataset,
    latent: xr.DataArray | None,
    weights: np.ndarray | None = None,
    spectra_transform: SpectraTransform = UNCHANGED,
) -> tuple[np.ndarray, xr.DataArray]:
    """Spectra (..., D) expected for parameters, and an array that has their pixel dimensions and coordinates.

    NaN where a parameter or latent is. Of a committee the average of the members' by ``weights`` (M,); latents belong
    to a member alone. Under ``spectra_transform`` they are the spectra whose transform is expected.

    Raises
    ------
    TypeError, ValueError : a parameter that is absent, infinite or no number, or latents of the wrong size or places.
    """
    if not isinstance(parameters, xr.Dataset):
        raise no_labelled("parameters", "Dataset", parameters)
    if not isinstance(latent, xr.DataArray | None):
        raise TypeError(f"latent must be a DataArray with a {LATENT!r} dimension, not {type(latent).__name__}")
    theta, names = members[0], transforms.names
    if latent is not None and len(members) > 1:
        raise ValueError("the latents of a committee's members are not comparable: simulate without latent=")
    absent = [name for name in names if name not in parameters.variables]
    if absent:
        raise ValueError(f"parameters {listed(absent)} not in the Dataset; it has {listed(parameters.variables)}")
    columns: list[Any] = [meant(parameters[name], f"parameter {name!r}").reset_coords(drop=True) for name in names]
    if latent is not None:
        columns += _latent_columns(latent, theta.n_latent)
    elif not columns:
        raise ValueError("an unsupervised model simulates from latents only: pass latent=")
    try:
        full = xr.broadcast(*xr.align(*columns, join="exact"))
    except ValueError as error:
        raise ValueError(
            f"parameters and latent lie at different places ({' '.join(str(error).split())}): reindex one to the other"
        ) from None
    values = np.stack([np.asarray(c.values, dtype=np.float64).ravel() for c in full], axis=1)
    infinite = int(np.isinf(values).any(axis=1).sum())
    if infinite:
        raise ValueError(f"{infinite} rows to simulate hold infinity: give numbers, NaN where there is no spectrum")
    there, n_t = ~np.isnan(values).any(axis=1), len(names)
    z, w = transforms.forward(values[there, :n_t]), None if latent is None else values[there, n_t:]
    spectra = np.full((len(values), theta.n_bands), np.nan)
    made = [spectra_transform.inverse(inverse_regression(member, z, w)) for member in members]
    spectra[there] = np.tensordot(member_shares(len(members), weights), made, axes=1)
    beside = parameters[list(names)].coords
    like = full[0].assign_coords({name: c for name, c in beside.items() if set(c.dims) <= set(full[0].dims)})
    return spectra.reshape((*like.shape, -1)), like


def _latent_columns(latent: xr.DataArray, n_latent: int) -> list[xr.DataArray]:
    """Values of each latent, without other coordinates than those of the pixels."""
    dim = LATENT if LATENT in latent.dims else "latent"  # as in former versions
    if latent.sizes.get(dim) != n_latent:
        raise ValueError(f"latent has sizes {dict(latent.sizes)}; the model needs {LATENT!r}: {n_latent}")
    return [latent.isel({dim: i}).reset_coords(drop=True) for i in range(n_latent)]


def _forget_threads() -> None:
    """Have dask start threads anew in a process that was forked: those of its parent are not there."""
    dask.threaded.default_pool = None
    dask.threaded.pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
