"""The inversion engine: a kernel over blocks of pixels, run by NumPy or lazily by dask through one call.

The kernel travels as a 0-d object array, so that a graph holds it once; all outputs of a block come from one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.base import normalize_token

from ..gllim.parameters import GLLiMParameters
from ..gllim.posterior import posterior_blocks
from ..gllim.threads import one_blas_thread
from .outputs import NODATA, PARTIAL_BANDS, Output


@dataclass(frozen=True, eq=False)
class BlockInverter:
    """Inverts a block of spectra (..., D_cube): picks the model's bands, then fills the declared outputs.

    ``bands`` index the cube's bands in the model's order; ``fill`` is a value that stands for nodata, or None.
    """

    theta: GLLiMParameters
    bands: np.ndarray
    outputs: tuple[Output, ...]
    dtype: np.dtype
    fill: float | None = None

    def __dask_tokenize__(self) -> Any:
        theta = self.theta
        arrays = (theta.pi, theta.c, theta.Gamma, theta.A, theta.b, theta.Sigma, self.bands)
        rest = (repr(theta.constraints), theta.n_latent, repr(self.outputs), str(self.dtype), self.fill)
        return normalize_token((type(self).__name__, arrays, rest))

    def __call__(self, block: np.ndarray) -> tuple[np.ndarray, ...]:
        """Outputs of a block, each (..., *core)."""
        pixels = block.shape[:-1]
        spectra = self.spectra(block)
        n_t, n_w = self.theta.n_parameters, self.theta.n_latent
        core = {"parameter": n_t, "parameter_2": n_t, "latent": n_w}
        results = []
        for output in self.outputs:
            shape = (len(spectra), *(core[d] for d in output.core_dims))
            empty = 0 if output.kind == "flag" else np.nan
            results.append(np.full(shape, empty, dtype=output.dtype or self.dtype))
        kinds = {output.kind for output in self.outputs}
        with one_blas_thread():
            for rows, posterior in posterior_blocks(self.theta, spectra):
                mean, spread = posterior.moments("cov" in kinds)
                made: dict[str, np.ndarray] = {"mean": mean[:, :n_t], "latent": mean[:, n_t:]}
                variance = spread
                if "cov" in kinds:
                    made["cov"] = spread[:, :n_t, :n_t]
                    variance = np.diagonal(spread, axis1=1, axis2=2)
                if "std" in kinds:
                    made["std"] = np.sqrt(variance[:, :n_t])
                made["log_evidence"] = posterior.log_evidence
                for output, result in zip(self.outputs, results, strict=True):
                    if output.kind != "flag":
                        values = made[output.kind]
                        result[rows] = values if output.index is None else values[:, output.index]
        for output, result in zip(self.outputs, results, strict=True):
            if output.kind == "flag":
                result[...] = _flags(spectra)
        return tuple(r.reshape((*pixels, *r.shape[1:])) for r in results)

    def spectra(self, block: np.ndarray) -> np.ndarray:
        """The model's bands of a block as rows (n, D), nodata as NaN."""
        if not np.array_equal(self.bands, np.arange(block.shape[-1])):
            block = block[..., self.bands]
        spectra = block.reshape(-1, len(self.bands))
        if spectra.dtype.kind != "f":
            spectra = spectra.astype(np.float64)
        if self.fill is not None:
            spectra = np.where(spectra == self.fill, np.nan, spectra)
        return spectra


def _flags(spectra: np.ndarray) -> np.ndarray:
    valid = np.isfinite(spectra).sum(axis=1)
    flags = np.where(valid == 0, NODATA, 0) | np.where((valid > 0) & (valid < spectra.shape[1]), PARTIAL_BANDS, 0)
    return flags.astype(np.uint8)


def _call(block: np.ndarray, kernel: BlockInverter) -> tuple[np.ndarray, ...] | np.ndarray:
    arrays = kernel(block)
    return arrays if len(arrays) > 1 else arrays[0]


def apply_blocks(cube: xr.DataArray, band_dim: str, kernel: BlockInverter) -> xr.Dataset:
    """The kernel's outputs over the cube, lazy where the cube is; dimensions but the band's keep their order.

    A coordinate that has the name of an output gives way to it.
    """
    core = {"parameter": kernel.theta.n_parameters, "latent": kernel.theta.n_latent}
    core["parameter_2"] = core["parameter"]
    used = {dim for output in kernel.outputs for dim in output.core_dims}
    dtypes = [output.dtype or kernel.dtype for output in kernel.outputs]
    moved = cube.transpose(..., band_dim)
    if cube.chunks is None:
        arrays = kernel(moved.values)
    else:
        held = da.from_delayed(dask.delayed(kernel, pure=True), shape=(), dtype=object)
        results = ",".join(f"({','.join(o.core_dims)})" for o in kernel.outputs)
        arrays = da.apply_gufunc(
            _call,
            f"(band),()->{results}",
            moved.data,
            held,
            output_dtypes=dtypes,
            output_sizes={dim: core[dim] for dim in used},
            vectorize=False,
        )
        arrays = arrays if isinstance(arrays, tuple) else (arrays,)
    pixel_dims = moved.dims[:-1]
    variables = {
        output.name: ((*pixel_dims, *output.core_dims), array)
        for output, array in zip(kernel.outputs, arrays, strict=True)
    }
    coords = {
        name: coordinate
        for name, coordinate in cube.coords.items()
        if band_dim not in coordinate.dims and name != band_dim and name not in variables
    }
    maps = xr.Dataset(variables, coords=coords)
    # xarray takes a variable named as one of its dimensions for a coordinate
    return maps.reset_coords("latent") if "latent" in variables else maps
