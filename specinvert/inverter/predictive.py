"""Spectra of a cube beside those that a model predicts: a sample of any cube, lazily read, and what to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dask
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..cubes import BlockInverter, Request, places_of_blocks
from ..gllim.core import Array
from ..gllim.posterior import alike, sharing_keys
from ..model import Model
from ..scores import BY_BAND, BY_WINDOW, Checked, Surprise, name_window, predictive_check, windows_of

MOST_BLOCKS = 32
"""Blocks of a lazy cube that are read."""
SPARE = 4
"""Spectra that are read for each that is wanted: some have no data."""
MOST_PATTERNS, MOST_FACTORED = 100, 25
"""Patterns of missing bands, noise and known parameters that are compared: each takes factors of its own, and longer
where bands are correlated."""
SAMPLE = "chosen_sample"
APART = 3.0
"""Root mean square error of a window of one spectrum, in standard deviations of its prediction, that is told."""


@dataclass(frozen=True)
class ExpectedSpectrum:
    """What a model expects of the bands of one spectrum from those outside of their window, in the spectrum's units.

    ``low`` and ``high`` (D,) are two standard deviations from the prediction; ``misfits`` are windows far from it, in
    words.
    """

    low: Array
    high: Array
    misfits: list[str]


def expected(model: Model, kernel: BlockInverter, request: Request) -> ExpectedSpectrum:
    """What the model expects of the only spectrum of a request, which it can use; see :func:`checked`."""
    block, extras = sample_pixels(request, kernel, 1)
    surprise = compare(model, kernel, block, extras, by_band=False).surprises[BY_WINDOW]
    inverse, mean, reach = model.spectra_transform.inverse, surprise.mean[0], 2.0 * surprise.deviation[0]
    apart = {
        name_window(model.bands, window): float(np.sqrt(np.nanmean(surprise.error[0, window] ** 2)))
        for window in windows_of(model.bands)
        if np.isfinite(surprise.error[0, window]).any()
    }
    told = [f"{name} ({error:.2g} predicted std)" for name, error in apart.items() if error > APART]
    return ExpectedSpectrum(inverse(mean - reach), inverse(mean + reach), told)


def checked(model: Model, kernel: BlockInverter, request: Request, n_spectra: int, by_band: bool) -> xr.Dataset:
    """The posterior predictive check of a random choice of spectra, always the same.

    ``kernel`` gives the output "residual"; ``by_band`` whether each band is predicted from all others too.
    """
    block, extras = sample_pixels(request, kernel, n_spectra)
    of, bands = compare(model, kernel, block, extras, by_band), model.bands
    return predictive_check(of, bands, windows_of(bands), model.band_coordinates()[1], model.spectra_units)


def compare(
    model: Model, kernel: BlockInverter, block: Array, extras: Sequence[Array], by_band: bool = True
) -> Checked:
    """Spectra of a block (n, D_cube), what their model reconstructs and predicts, in the order of the model's bands."""
    spectra, _, given = kernel.read_block(block, extras)
    (residual,) = kernel(block, *extras)
    transform, kinds = kernel.predictor.spectra_transform, {BY_WINDOW: windows_of(model.bands)}
    if by_band:
        kinds[BY_BAND] = list(np.arange(model.bands.size)[:, None])
    made = np.asarray(transform.forward(spectra), dtype=np.float64)
    surprises = {kind: Surprise.of(made, parts, kernel.windows(spectra, given, parts)) for kind, parts in kinds.items()}
    return Checked(np.asarray(spectra, np.float64), residual.astype(np.float64), transform.slope(spectra), surprises)


def sample_pixels(request: Request, kernel: BlockInverter, most: int) -> tuple[Array, list[Array]]:
    """At most so many spectra (n, D_cube) that the model can use, and what is given of each, in memory.

    Of a lazy cube spectra of a few blocks are read, so that its size does not matter.
    """
    cube = request.cube.transpose(..., request.band_dim)
    dims, shape = cube.dims[:-1], cube.shape[:-1]
    rng, arrays = np.random.default_rng(0), [cube, *(extra.array for extra in kernel.conditions.extras)]
    if dims:
        places = np.unravel_index(_places(shape, cube.chunks and cube.chunks[:-1], SPARE * most, rng), shape)
        at = {dim: xr.DataArray(index, dims=SAMPLE) for dim, index in zip(dims, places, strict=True)}
        picked = [array.isel(at).data for array in arrays]
    else:
        picked = [array.expand_dims(SAMPLE).data for array in arrays]
    block, *extras = dask.compute(*picked)
    usable = _usable(kernel, block, extras, most, rng)
    return block[usable], [extra[usable] for extra in extras]


def _usable(
    kernel: BlockInverter, block: Array, extras: Sequence[Array], most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """At most so many rows of a block with enough bands, of the patterns that most of them share."""
    spectra, _, given = kernel.read_block(block, extras)
    valid, added, n = np.isfinite(spectra), given.added, len(spectra)
    rows = np.flatnonzero(valid.sum(axis=1) >= given.least_bands)
    if rows.size > most:
        rows = np.sort(rng.choice(rows, most, replace=False))
    patterns = MOST_FACTORED if kernel.terms[0].theta.structure.correlated else MOST_PATTERNS
    if kernel.predictor.spectra_transform.kind and (added is not None or kernel.conditions.variance is not None):
        return rows[: min(most, patterns)]  # to each of which noise means another
    known = np.empty((n, 0)) if given.known is None else given.known
    keys = sharing_keys(valid[rows], known[rows], None if added is None else added[rows])
    groups = sorted(alike(keys), key=len, reverse=True)[:patterns]
    return np.sort(rows[np.concatenate(groups)]) if groups else rows


def _places(
    shape: tuple[int, ...], chunks: tuple[tuple[int, ...], ...] | None, most: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """At most so many flat places of pixels, of a lazy array in a few of its blocks, which are chosen at random."""
    total = int(np.prod(shape, dtype=np.int64))
    blocks = [] if chunks is None else places_of_blocks(chunks)
    if len(blocks) <= MOST_BLOCKS:
        return np.sort(rng.choice(total, min(most, total), replace=False))
    found = []
    for number in np.sort(rng.choice(len(blocks), MOST_BLOCKS, replace=False)):
        block = blocks[number]
        size = tuple(part.stop - part.start for part in block)
        inside = int(np.prod(size, dtype=np.int64))
        places = np.unravel_index(rng.choice(inside, min(-(-most // MOST_BLOCKS), inside), replace=False), size)
        found.append(np.ravel_multi_index([p + part.start for p, part in zip(places, block, strict=True)], shape))
    return np.sort(np.concatenate(found)).astype(np.intp)
