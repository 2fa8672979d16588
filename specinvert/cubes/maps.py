"""The `history` attribute of what this package returns.

Attributes of the maps: set anew on every output, the cube's georeference restored.

The posterior mixture with labels, and labelled parameters to expected spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..flags import flag_attrs
from ..gllim.mixtures import Mixture, merged
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import estimates, inverse_regression
from ..gllim.transforms import Transforms
from .engine import BlockInverter
from .labels import listed, meant, no_labelled, pixel_coordinates
from .outputs import IN_SPECTRA_UNITS, UNITLESS, Output, describe
from .request import Request

CONVENTIONS = "CF-1.11"
CUBE_FILE = "cube_file"
"""Key of the encoding of maps that names the file of their cube."""
REFERENCES = (
    "Deleforge, A., Forbes, F. and Horaud, R. (2015): High-dimensional regression with Gaussian mixtures and "
    "partially-latent response variables. Statistics and Computing 25, 893-911, doi:10.1007/s11222-014-9461-5"
)


def grid_mapping_of(cube: xr.DataArray) -> str | None:
    """Name of the cube's grid mapping coordinate, as xarray or rioxarray keep it."""
    name = cube.encoding.get("grid_mapping") or cube.attrs.get("grid_mapping")
    if name is None and "spatial_ref" in cube.coords:
        name = "spatial_ref"
    return str(name) if name in cube.coords else None


def label_maps(
    maps: xr.Dataset,
    cube: xr.DataArray,
    declared: Sequence[Output],
    parameters: Sequence[str],
    attrs: Mapping[str, Mapping[str, str]],
    provenance: Mapping[str, str],
    spectra_units: str | None = None,
) -> xr.Dataset:
    """Give every variable its attributes and the cube's grid mapping; ``provenance`` goes on the Dataset.

    Where the cube was read from a file, the encoding tells which, so that the maps are not written over it.
    """
    mapping = grid_mapping_of(cube)
    for output in declared:
        variable = maps[output.name]
        variable.attrs = _attrs(output, parameters, attrs, declared, spectra_units)
        if mapping is not None:
            variable.encoding["grid_mapping"] = mapping
    used = {dim for output in declared for dim in output.core_dims}
    for dim in ("parameter", "parameter_2"):
        if dim in used:
            maps = maps.assign_coords({dim: list(parameters)})
    if "latent" in used and maps["latent"].ndim > 1:
        maps = maps.reset_coords("latent")  # xarray takes a variable named as one of its dimensions for a coordinate
    names = [_long_name(parameter, attrs) for parameter in parameters]
    title = f"Estimates of {', '.join(names)} from spectra" if names else "Latent dimensions of spectra"
    maps.attrs = {"Conventions": CONVENTIONS, "title": title, **provenance, "references": REFERENCES}
    if "source" in cube.encoding:
        maps.encoding[CUBE_FILE] = cube.encoding["source"]
    return maps


def _long_name(parameter: str, attrs: Mapping[str, Mapping[str, str]]) -> str:
    return attrs.get(parameter, {}).get("long_name", parameter.replace("_", " "))


def _attrs(
    output: Output,
    parameters: Sequence[str],
    attrs: Mapping[str, Mapping[str, str]],
    declared: Sequence[Output],
    spectra_units: str | None,
) -> dict[str, object]:
    if output.kind == "flag":
        return flag_attrs()
    if output.index is None:
        made: dict[str, object] = {"long_name": describe(output)}
        units = spectra_units if output.kind in IN_SPECTRA_UNITS else "1" if output.kind in UNITLESS else None
        return made if units is None else made | {"units": units}
    parameter = parameters[output.index]
    own = dict(attrs.get(parameter, {}))
    long_name = _long_name(parameter, attrs)
    if output.kind != "mean":
        made = {"long_name": describe(output, long_name)}
        if "units" in own:
            made["units"] = own["units"]
        if output.kind == "std" and "standard_name" in own:
            made["standard_name"] = f"{own['standard_name']} standard_error"
        return made
    made = {"long_name": long_name, **own}
    beside = [o.name for o in declared if o.index == output.index and o.kind != "mean"]
    linked = [*beside, *(["quality_flag"] if any(o.kind == "flag" for o in declared) else [])]
    if linked:
        made["ancillary_variables"] = " ".join(linked)
    return made


CORE_DIMS = ("component", "parameter", "parameter_2")


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
    for part in estimates(kernel.terms, rows, given, predictor.by_evidence, every_component=True):
        block, mixture = np.arange(n)[part.rows], part.components()
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
        made["log_evidence"][block] = part.log_evidence
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
) -> tuple[np.ndarray, xr.DataArray]:
    """Spectra (..., D) expected for parameters, and an array that has their pixel dimensions and coordinates.

    NaN where a parameter or latent is. Of a committee the average of the members'; latents belong to a member alone.

    Raises
    ------
    TypeError, ValueError : a parameter that is absent, infinite or no number, or latents of the wrong size or places.
    """
    if not isinstance(parameters, xr.Dataset):
        raise no_labelled("parameters", "Dataset", parameters)
    if not isinstance(latent, xr.DataArray | None):
        raise TypeError(f"latent must be a DataArray with a 'latent' dimension, not {type(latent).__name__}")
    theta, names = members[0], transforms.names
    if latent is not None and len(members) > 1:
        raise ValueError("the latents of a committee's members are not comparable: simulate without latent=")
    absent = [name for name in names if name not in parameters.variables]
    if absent:
        raise ValueError(f"parameters {listed(absent)} not in the Dataset; it has {listed(parameters.variables)}")
    columns: list[Any] = [meant(parameters[name], f"parameter {name!r}").reset_coords(drop=True) for name in names]
    if latent is not None:
        if latent.sizes.get("latent") != theta.n_latent:
            raise ValueError(f"latent has sizes {dict(latent.sizes)}; the model needs 'latent': {theta.n_latent}")
        columns += [latent.isel(latent=i).reset_coords(drop=True) for i in range(theta.n_latent)]
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
    spectra[there] = np.mean([inverse_regression(member, z, w) for member in members], axis=0)
    beside = parameters[list(names)].coords
    like = full[0].assign_coords({name: c for name, c in beside.items() if set(c.dims) <= set(full[0].dims)})
    return spectra.reshape((*like.shape, -1)), like
