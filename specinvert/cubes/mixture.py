"""The posterior mixture with labels, and labelled parameters to expected spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ..gllim.estimate import estimates
from ..gllim.inverse import inverse_regression
from ..gllim.merging import merged
from ..gllim.mixture import Mixture
from ..gllim.parameters import GLLiMParameters
from ..gllim.transforms import Transforms
from .engine import BlockInverter
from .labels import listed, meant, no_labelled, pixel_coordinates
from .request import Request

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
