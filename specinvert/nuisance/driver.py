"""Nuisances applied to labelled spectra, in memory or lazily, with the same bits in any chunks.

The draws of a spectrum depend on the seed, on the step of the chain and on the spectrum's position among all spectra,
never on chunks: positions are taken in groups of :data:`GROUP`, each with a random stream of its own, and a group is
always drawn whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from operator import index
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..cubes import (
    Bands,
    describe_bands,
    find_band_dim,
    require_flags,
    require_numbers,
    require_one_band_chunk,
    training_spectra,
    with_history,
)
from ..gllim.core import one_blas_thread
from .base import Chain, Draws, Nuisance

GROUP = 64
"""Spectra that share a random stream."""
PIECE_VALUES = 2**17
"""About how many numbers are changed at a time, in whole groups, so that temporaries stay in the cache."""
DRAW_DIM = "draw"
_TOLD = 4

Labelled = TypeVar("Labelled", xr.Dataset, xr.DataArray)


def apply(
    training: Labelled,
    nuisance: Nuisance | Iterable[Nuisance],
    *,
    seed: int = 0,
    spectra: str | None = None,
    band_dim: str | None = None,
    repeat: int | None = None,
    record: bool = False,
    rechunk: str | None = None,
) -> Labelled:
    """Change every spectrum of a training set by its own draw of the nuisances.

    Nothing is computed where the spectra are dask-backed. A spectrum's draws depend on ``seed``, on its position
    among all spectra (in the order of the sample dimensions) and on the position of each nuisance in the chain: they
    are the same in any chunks, in memory, and where further nuisances follow.

    Parameters
    ----------
    training : a Dataset of spectra and their parameters, or spectra alone; any dimensions in any order.
    nuisance : one nuisance, a chain of them (``a | b``) or a list, the first to act first.
    seed : 0 or more; another seed gives other draws.
    spectra : name of the variable with the spectra; None where only one has a band dimension.
    band_dim : the band dimension; None where wavelengths tell.
    repeat : give each spectrum this many times, each with draws of its own, along a new first dimension ``draw``.
        Parameters stay as they are, and training broadcasts them. The first is the one without ``repeat``.
    record : keep what was drawn as coordinates of the samples, such as ``nuisance_thin_cloud_fraction``: one number a
        spectrum, in float64; noise and smooth curves are not kept.
    rechunk : what to do where the bands lie in several chunks: None raises an error, ``"auto"`` makes them one.

    Returns
    -------
    The same kind of object with the spectra changed: float32 if they were, else float64; in their units, with their
    attributes and all coordinates; ``history`` tells what was applied. NaN stays NaN.

    Raises
    ------
    TypeError : ``training`` is neither Dataset nor DataArray, or a nuisance is none.
    ValueError : no variable holds spectra or several do, no dimension carries wavelengths, spectra are empty or not
        numbers, a nuisance does not fit their bands or units, ``seed`` or ``repeat`` is out of range, or a name that
        ``repeat`` or ``record`` needs is taken.

    Examples
    --------
    >>> from specinvert.nuisance import Noise, ThinCloud
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> noisy = apply(simulate_mixtures(10), [ThinCloud(), Noise(white=0.005)], seed=1, repeat=3)
    >>> dict(noisy["reflectance"].sizes)
    {'draw': 3, 'sample': 10, 'wavelength': 121}
    """
    chain = Chain([nuisance] if isinstance(nuisance, Nuisance) else nuisance)
    start = _integer("seed", seed, 0)
    require_flags(record=record)
    array = require_numbers(training_spectra(training, spectra, band_dim), "spectra")
    if array.size == 0:
        raise ValueError(f"the spectra are empty: {dict(array.sizes)}")
    dim = find_band_dim(array, band_dim)
    array = require_one_band_chunk(array, dim, rechunk)
    bands = describe_bands(array, dim)
    units = None if array.attrs.get("units") is None else str(array.attrs["units"])
    ready = chain.matched(bands, units)
    records: tuple[Record, ...] = tuple(_records(chain, units)) if record else ()
    _require_free(training, [*(() if repeat is None else (DRAW_DIM,)), *(r.name for r in records)])

    copies = "" if repeat is None else f", {repeat} draws of each"
    done = f"nuisance {' | '.join(map(_told, chain.steps))}, seed {start}{copies}"
    native = array.dtype.newbyteorder("=")
    dtype = native if native == np.float32 else np.dtype(np.float64)
    kernel = NuisanceKernel(ready, bands, start, dtype, records)
    variable = array.variable if repeat is None else _repeated(array.variable, _integer("repeat", repeat, 1))
    changed, *drawn = _apply_kernel(variable, dim, kernel)
    recorded = {r.name: values for r, values in zip(records, drawn, strict=True)}
    if isinstance(training, xr.Dataset):
        result = training.assign({array.name: changed}).assign_coords(recorded)
        return result.assign_attrs(with_history(training.attrs, done))
    bare = xr.DataArray(changed, coords=array.coords, name=array.name).assign_coords(recorded)
    return bare.assign_attrs(with_history(array.attrs, done))


def _told(step: Nuisance) -> str:
    """A nuisance and its settings in few words: long ones by their number."""
    if not is_dataclass(step):
        return type(step).__name__
    settings = {f.name: getattr(step, f.name) for f in fields(step) if f.repr}
    said = [f"{name}={repr(v) if np.size(v) <= _TOLD else f'{np.size(v)} values'}" for name, v in settings.items()]
    return f"{type(step).__name__}({', '.join(said)})"


@dataclass(frozen=True)
class Record:
    """A draw to keep: the variable's name, the step of the chain and the draw it comes from, and its units."""

    name: str
    step: int
    draw: str
    units: str | None

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of the variable."""
        words = self.name.replace("_", " ")
        return {"long_name": f"{words}, as drawn"} | ({} if self.units is None else {"units": self.units})


@dataclass(frozen=True, eq=False)
class NuisanceKernel:
    """Changes a block of spectra (..., D), given the position of each among all spectra (...)."""

    chain: Chain
    bands: Bands
    seed: int
    dtype: np.dtype
    records: tuple[Record, ...]

    def __call__(self, block: np.ndarray, position: NDArray[np.int64]) -> tuple[np.ndarray, ...]:
        """The spectra changed (..., D), then the records (...)."""
        spectra = block if block.ndim > 1 else block[np.newaxis]
        flat = position.ravel()
        order = np.argsort(flat, kind="stable")
        piece_groups = max(1, PIECE_VALUES // (GROUP * self.bands.size))
        changed = np.empty((flat.size, self.bands.size), dtype=self.dtype)
        recorded = [np.empty(flat.size) for _ in self.records]
        with one_blas_thread():
            for start, stop in _runs(flat[order] // (GROUP * piece_groups)):
                rows = order[start:stop]
                piece = spectra[np.unravel_index(rows, spectra.shape[:-1])].astype(np.float64)
                for number, step in enumerate(self.chain.steps):
                    draws = self.draws(number, flat[rows])
                    piece = step.perturb(piece, self.bands, draws)
                    for record, values in zip(self.records, recorded, strict=True):
                        if record.step == number:
                            values[rows] = draws[record.draw]
                changed[rows] = piece
        return changed.reshape(block.shape), *(values.reshape(position.shape) for values in recorded)

    def draws(self, number: int, positions: NDArray[np.int64]) -> Draws:
        """What step ``number`` of the chain draws for spectra at ``positions`` (n,), in rising order."""
        step = self.chain.steps[number]
        parts: list[Draws] = []
        for start, stop in _runs(positions // GROUP):
            stream = np.random.SeedSequence(self.seed, spawn_key=(number, int(positions[start]) // GROUP))
            drawn = step.draw(np.random.default_rng(stream), GROUP, self.bands)
            members = positions[start:stop] % GROUP
            parts.append({name: values[members] for name, values in drawn.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _integer(name: str, value: int, low: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; give a whole number, {low} or more") from None
    if number < low:
        raise ValueError(f"{name} is {number}; give {low} or more")
    return number


def _apply_kernel(spectra: xr.Variable, dim: str, kernel: NuisanceKernel) -> list[xr.Variable]:
    """The spectra changed, with dimensions and attributes as they were, and the records; lazy where they are."""
    moved = spectra.transpose(..., dim)
    outputs: Any
    if spectra.chunks is None:
        outputs = kernel(moved.values, np.arange(moved.size // moved.shape[-1]).reshape(moved.shape[:-1]))
    else:
        outputs = da.apply_gufunc(
            _call,
            "(band),(),()->(band)" + ",()" * len(kernel.records),
            moved.data,
            _positions(moved.data),
            da.from_delayed(dask.delayed(kernel, pure=True, traverse=False), shape=(), dtype=object),
            output_dtypes=[kernel.dtype] + [np.dtype(np.float64)] * len(kernel.records),
            vectorize=False,
        )
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    changed = xr.Variable(moved.dims, outputs[0], spectra.attrs).transpose(*spectra.dims)
    records = zip(kernel.records, outputs[1:], strict=True)
    return [changed, *(xr.Variable(moved.dims[:-1], values, record.attrs) for record, values in records)]


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Start and stop of each run of equal numbers, all 0 or more."""
    return pairwise([*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)])


def _call(
    block: np.ndarray, position: NDArray[np.int64], kernel: NuisanceKernel
) -> tuple[np.ndarray, ...] | np.ndarray:
    arrays = kernel(block, position)
    return arrays if len(arrays) > 1 else arrays[0]


def _positions(rows: da.Array) -> da.Array:
    """The position of each spectrum of ``rows`` (..., D) among all, (...), in the same chunks."""
    position = da.zeros((), dtype=np.int64)
    for size, chunks in zip(rows.shape[:-1], rows.chunks[:-1], strict=True):
        position = position[..., np.newaxis] * size + da.arange(size, chunks=(chunks,), dtype=np.int64)
    return position


def _repeated(spectra: xr.Variable, repeat: int) -> xr.Variable:
    """The spectra ``repeat`` times along a new first dimension, each in chunks of its own."""
    data = spectra.data
    copies = (
        np.broadcast_to(spectra.values, (repeat, *data.shape)) if spectra.chunks is None else da.stack([data] * repeat)
    )
    return xr.Variable((DRAW_DIM, *spectra.dims), copies, spectra.attrs)


def _records(chain: Chain, units: str | None) -> Iterator[Record]:
    """The records of a chain; the second nuisance of a kind has a 2 in its name."""
    seen: Counter[str] = Counter()
    for number, step in enumerate(chain.steps):
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(step).__name__).lower()
        seen[kind] += 1
        prefix = f"nuisance_{kind}" + (f"_{seen[kind]}" if seen[kind] > 1 else "")
        for draw, own in step.recorded.items():
            yield Record(f"{prefix}_{draw}", number, draw, units if own is None else own)


def _require_free(training: xr.Dataset | xr.DataArray, names: Iterable[str]) -> None:
    taken: set[Hashable] = {*training.dims, *training.coords}
    if isinstance(training, xr.Dataset):
        taken |= {*training.variables}
    for name in names:
        if name in taken:
            raise ValueError(f"{name!r} is needed for the result and taken; rename it, as with .rename({name}=...)")
