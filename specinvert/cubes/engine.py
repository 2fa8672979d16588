"""The inversion engine: a kernel over blocks of pixels, run by NumPy or lazily by dask through one call.

The kernel travels as a 0-d object array, so that a graph holds it once; all outputs of a block come from one pass.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from operator import getitem
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.base import normalize_token
from dask.highlevelgraph import HighLevelGraph

from ..gllim.chunks import available_cpus
from ..gllim.forward import ForwardTerms
from ..gllim.parameters import GLLiMParameters
from ..gllim.posterior import BLOCK_ROWS, posterior_blocks
from ..gllim.threads import one_blas_thread
from .labels import pixel_coordinates
from .outputs import NODATA, PARTIAL_BANDS, Output

PIECE_ROWS = 24 * BLOCK_ROWS
"""Spectra that a thread takes at a time from an array in memory."""


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
        arrays = (*theta.arrays().values(), self.bands)
        rest = (repr(theta.constraints), theta.n_latent, repr(self.outputs), str(self.dtype), self.fill)
        plain = [np.ascontiguousarray(array) for array in arrays]  # tokens of arrays depend on their memory order
        return normalize_token((type(self).__name__, plain, rest))

    @cached_property
    def terms(self) -> ForwardTerms:
        """Theta prepared for complete spectra, once a process."""
        return ForwardTerms.of(self.theta)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "terms"}

    @property
    def core_sizes(self) -> dict[str, int]:
        """Sizes of the dimensions that outputs may have beyond those of the pixels."""
        n_t = self.theta.n_parameters
        return {"parameter": n_t, "parameter_2": n_t, "latent": self.theta.n_latent}

    def __call__(self, block: np.ndarray) -> tuple[np.ndarray, ...]:
        """Outputs of a block, each (..., *core)."""
        results = self.empty(block.shape[:-1])
        self.fill_rows(block, results)
        return results

    def empty(self, pixels: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        """Outputs (*pixels, *core) of no data."""
        core = self.core_sizes
        return tuple(
            np.full(
                (*pixels, *(core[d] for d in output.core_dims)),
                NODATA if output.kind == "flag" else np.nan,
                dtype=output.dtype or self.dtype,
            )
            for output in self.outputs
        )

    def fill_rows(self, block: np.ndarray, empty: tuple[np.ndarray, ...]) -> None:
        """Fill the :meth:`empty` outputs of a block in place."""
        spectra = self.spectra(block)
        results = [array.reshape((len(spectra), *array.shape[block.ndim - 1 :])) for array in empty]
        n_t = self.theta.n_parameters
        kinds = {output.kind for output in self.outputs}
        with one_blas_thread():
            for part in posterior_blocks(self.terms, spectra):
                mean, spread = part.posterior.moments("cov" in kinds, None if "latent" in kinds else n_t)
                made: dict[str, Any] = {"mean": mean[:, :n_t], "latent": mean[:, n_t:]}
                variance = spread
                if "cov" in kinds:
                    made["cov"] = spread[:, :n_t, :n_t]
                    variance = np.diagonal(spread, axis1=1, axis2=2)
                if "std" in kinds:
                    made["std"] = np.sqrt(variance[:, :n_t])
                made["log_evidence"] = part.posterior.log_evidence
                made["flag"] = np.where(np.less(part.n_valid, self.theta.n_bands), PARTIAL_BANDS, 0)
                for output, result in zip(self.outputs, results, strict=True):
                    values = made[output.kind]
                    result[part.rows] = values if output.index is None else values[:, output.index]

    def spectra(self, block: np.ndarray) -> np.ndarray:
        """The model's bands of a block as rows (n, D), nodata as NaN."""
        if not np.array_equal(self.bands, np.arange(block.shape[-1])):
            block = block[..., self.bands]
        spectra = block.reshape(-1, len(self.bands))
        if spectra.dtype.newbyteorder("=") not in (np.float32, np.float64):
            spectra = spectra.astype(np.float64)
        spectra = spectra.astype(spectra.dtype.newbyteorder("="), copy=False)
        if self.fill is not None:
            spectra = np.where(spectra == self.fill, np.nan, spectra)
        return spectra


def _invert_array(block: np.ndarray, kernel: BlockInverter) -> tuple[np.ndarray, ...]:
    """The kernel over an array in memory: threads share pieces of it, so temporaries stay small."""
    if block.ndim == 1:
        return kernel(block)
    results = kernel.empty(block.shape[:-1])
    rows, outputs = block, results
    if block.flags.c_contiguous:
        rows = block.reshape(-1, block.shape[-1])
        outputs = tuple(r.reshape((len(rows), *r.shape[block.ndim - 1 :])) for r in results)
    step = max(1, PIECE_ROWS * len(rows) // int(np.prod(block.shape[:-1])))
    pieces = [slice(start, start + step) for start in range(0, len(rows), step)]
    with one_blas_thread(), ThreadPoolExecutor(available_cpus()) as pool:
        for _ in pool.map(lambda piece: kernel.fill_rows(rows[piece], tuple(o[piece] for o in outputs)), pieces):
            pass
    return results


def _call(block: np.ndarray, kernel: BlockInverter) -> tuple[np.ndarray, ...]:
    return kernel(block)


def _invert_lazily(cube: da.Array, kernel: BlockInverter) -> list[da.Array]:
    """The kernel over the blocks of a cube (..., D), each with all bands: one task a block, and one an output."""
    pixels = tuple(range(cube.ndim - 1))
    held = da.from_delayed(dask.delayed(kernel, pure=True), shape=(), dtype=object)
    made = da.blockwise(
        _call,
        pixels,
        cube,
        (*pixels, cube.ndim - 1),
        held,
        (),
        dtype=object,
        meta=np.empty((0,) * len(pixels), dtype=object),
        concatenate=True,
    )
    arrays = []
    for number, output in enumerate(kernel.outputs):
        name = f"{output.name}-{made.name}"
        core = tuple((kernel.core_sizes[dim],) for dim in output.core_dims)
        tasks = {
            (name, *index, *(0 for _ in core)): (getitem, (made.name, *index), number)
            for index in np.ndindex(*made.numblocks)
        }
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=[made])
        arrays.append(da.Array(graph, name, chunks=cube.chunks[:-1] + core, dtype=output.dtype or kernel.dtype))
    return arrays


def apply_blocks(cube: xr.DataArray, band_dim: str, kernel: BlockInverter) -> xr.Dataset:
    """The kernel's outputs over the cube, lazy where the cube is; dimensions but the band's keep their order.

    A coordinate that has the name of an output gives way to it.
    """
    moved = cube.transpose(..., band_dim)
    arrays = _invert_array(moved.values, kernel) if cube.chunks is None else _invert_lazily(moved.data, kernel)
    pixel_dims = moved.dims[:-1]
    variables = {
        output.name: ((*pixel_dims, *output.core_dims), array)
        for output, array in zip(kernel.outputs, arrays, strict=True)
    }
    return xr.Dataset(variables, coords=pixel_coordinates(cube, band_dim, variables))
