"""A labelled training set as chunks of arrays: spectra, parameters, weights, in one fixed sample order.

Every dimension of the spectra but the band's is a sample dimension; parameters, weights and responsibilities are
broadcast to them. dask-backed spectra stay on disk, one chunk being loaded for each sum, a map over chunks and a tree
reduction in a fixed order. On a dask.distributed cluster the workers load and sum. What they hold, they hold by tasks
that the scheduler can run again, so a worker that dies takes nothing with it but time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from operator import add, call
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr

from ..gllim.em import (
    ArrayChunks,
    Chunk,
    ChunkSource,
    Mask,
    Sum,
    check_responsibilities,
    check_weights,
    evenly_spaced,
    join,
    sum_blocks,
)
from ..gllim.model import Scaling
from ..gllim.transforms import SpectraTransform, Transforms
from .bands import as_text, describe_bands, find_band_dim
from .labels import (
    Labels,
    earlier_history,
    find_spectra,
    listed,
    meant,
    native,
    no_labelled,
    places_of_blocks,
    require_one_band_chunk,
    same_places,
    unmasked,
)
from .outputs import TOGETHER, declare_outputs

logger = logging.getLogger(__name__)

PERSIST_BYTES = 1_000_000_000
"""Training spectra up to this size are kept in memory between iterations, where the user leaves the choice to us."""
MERGED_BYTES = 8_000_000
"""Blocks smaller than this are merged with their neighbours into one chunk..."""
MERGED_CHUNKS = 256
"""...but not into fewer chunks than this, so that many workers have a share."""

Part = tuple[np.ndarray, np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class TrainingSet(Labels):
    """What training needs of a labelled Dataset.

    Attributes
    ----------
    plain : the samples as they were read, in the user's units. values : their parameters (n, L_t), in memory.
    transforms, spectra_transform : what ``source`` holds of them.
    low, high : ranges (L_t,) of the parameters.
    n_responsibilities : K where responsibilities came along. history : that of the Dataset and its spectra.
    """

    plain: ChunkSource
    values: np.ndarray
    n_responsibilities: int | None
    transforms: Transforms
    spectra_transform: SpectraTransform
    low: np.ndarray
    high: np.ndarray
    history: str

    @cached_property
    def source(self) -> ChunkSource:
        """The samples as EM takes them, transformed: made once in memory, at each reading of dask's blocks."""
        if self.transforms.is_identity and self.spectra_transform.kind is None:
            return self.plain
        return self.plain.map(partial(_represented, self.transforms, self.spectra_transform))

    @property
    def is_lazy(self) -> bool:
        """Whether dask holds the samples."""
        return isinstance(self.plain, DaskChunks)

    def where(self, mask: Mask) -> TrainingSet:
        """The samples for which a function of a chunk in the user's units is True, under the same transforms."""
        return replace(self, plain=self.plain.where(mask))

    def under(
        self, transforms: Mapping[Any, Any] | None, spectra_transform: str | None = None, missing: str = "raise"
    ) -> TrainingSet:
        """The samples under other transforms of parameters, as :meth:`Transforms.found`, and spectra; nothing is read.

        Raises
        ------
        ValueError : parameters out of the bounds of a transform, or spectra that hold values without a transform where
            ``missing`` is "raise"; else samples with such values are left out.
        """
        settled = Transforms.found(transforms, self.parameters, self.values)
        of_spectra = SpectraTransform(spectra_transform)
        made = replace(self, transforms=settled, spectra_transform=of_spectra)
        return made if of_spectra.kind is None else made._representable(missing)

    def _representable(self, missing: str) -> TrainingSet:
        """The samples whose spectra have a transform in all bands; ValueError where ``missing`` says so."""
        rows, *counts = self.plain.sum(partial(_without, self.spectra_transform)).tolist()
        if not rows:
            return self
        worst = sorted(np.flatnonzero(counts), key=lambda i: -counts[i])
        places = ", ".join(f"{counts[i]} at {self.bands.name(int(i))}" for i in worst[:3])
        more = f" and in {len(worst) - 3} more bands" if len(worst) > 3 else ""
        kind, bounds = self.spectra_transform.kind, {"log": "of zero or below", "sqrt": "below zero"}
        lacking = f"{rows} training samples hold values {bounds[kind or '']} ({places}{more}), which have no {kind}"
        if missing == "raise":
            raise ValueError(
                f"{lacking}: leave these bands out, choose another spectra_transform or less noise=, or pass "
                "missing='drop' to leave the samples out"
            )
        logger.warning("%s; they are left out", lacking)
        return self.where(partial(_with, self.spectra_transform))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class TrainingChoice:
    """What of a Dataset is trained on, and how it is read: arguments of :meth:`specinvert.GLLiMInverter.fit`."""

    spectra: str | None = None
    parameters: Sequence[str] | None = None
    band_dim: str | None = None
    weights: Any = None
    missing: str = "raise"
    rechunk: str | None = None
    persist: bool | str = "auto"

    def __post_init__(self) -> None:
        if self.missing not in ("raise", "drop"):
            raise ValueError(f"missing={self.missing!r} must be 'raise' or 'drop'")
        if self.persist not in (True, False, "auto"):
            raise ValueError(f"persist={self.persist!r} must be True, False or 'auto'")


DEFAULT_CHOICE = TrainingChoice()


def read_training(
    training: xr.Dataset,
    choice: TrainingChoice = DEFAULT_CHOICE,
    transforms: Mapping[Any, Any] | None = None,
    responsibilities: Any = None,
    spectra_transform: str | None = None,
) -> TrainingSet:
    """Find spectra and parameters in a Dataset, check them, and line them up by sample.

    Raises
    ------
    TypeError : ``training`` is not a Dataset.
    ValueError : variables that are absent, not numbers, of other dimensions, or of the name of an output; NaN, or
        values that have no transform, where ``missing`` is "raise".
    """
    if not isinstance(training, xr.Dataset):
        raise no_labelled("training", "Dataset of spectra and parameters", training)
    array = native(meant(find_spectra(training, choice.spectra, choice.band_dim), "spectra"))
    dim = find_band_dim(array, choice.band_dim)
    array = require_one_band_chunk(array, dim, choice.rechunk)
    bands = describe_bands(array, dim)
    if 0 in array.shape:
        raise ValueError(f"the training spectra are empty: {dict(array.sizes)}")
    samples = array.transpose(..., dim)
    sizes = {d: array.sizes[d] for d in samples.dims[:-1]}
    weight_name = choice.weights if isinstance(choice.weights, str) else None
    names = parameter_names(training, choice.parameters, array, dim, weight_name)
    declare_outputs(TOGETHER, names, 1)  # raises where a name collides
    columns = [_flat(meant(training[name], f"parameter {name!r}"), sizes, name) for name in names]
    n_rows = int(np.prod(list(sizes.values()), dtype=np.int64))
    values = np.stack(columns, axis=1) if columns else np.empty((n_rows, 0))
    finite = np.isfinite(values)
    low = np.where(finite, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(finite, values, -np.inf).max(axis=0, initial=-np.inf)
    frequencies = check_weights(_weights(training, choice.weights, array, sizes), n_rows)
    given = check_responsibilities(responsibilities, n_rows)
    chunks = _chunks(samples, values, frequencies, given, choice.persist)
    units = array.attrs.get("units")
    plain = TrainingSet(
        plain=_complete(chunks, names, choice.missing),
        values=values[finite.all(axis=1)],
        bands=bands,
        spectra_name=array.name,
        spectra_units=None if units is None else as_text(units),
        parameters=names,
        attrs={name: _text_attrs(training[name].attrs) for name in names},
        n_responsibilities=None if given is None else given.shape[1],
        transforms=Transforms.of(None, names),
        spectra_transform=SpectraTransform(),
        low=low,
        high=high,
        history=earlier_history(training.attrs, array.attrs),
    )
    return plain.under(transforms, spectra_transform, choice.missing)


def _weights(
    training: xr.Dataset, weights: Any, spectra: xr.DataArray, sizes: dict[Hashable, int]
) -> np.ndarray | None:
    """Frequencies of the samples in their order, where there are any: of a variable's name, an array or numbers."""
    if isinstance(weights, str):
        if weights not in training.variables:
            raise ValueError(f"weights {weights!r} not in the Dataset; it has {listed(training.variables)}")
        weights = training[weights]
    if not isinstance(weights, xr.DataArray):
        return None if weights is None else np.ravel(meant(xr.DataArray(unmasked(weights)), "weights"))
    for along in set(weights.dims) & set(spectra.dims) & set(weights.coords) & set(spectra.coords):
        if weights.sizes[along] == spectra.sizes[along] and not same_places(weights[along], spectra[along]):
            raise ValueError(f"weights have other coordinates along {along!r} than the spectra: reindex them to these")
    return _flat(meant(weights, "weights"), sizes, "weights")


def _chunks(
    samples: xr.DataArray, values: np.ndarray, frequencies: np.ndarray, given: np.ndarray | None, persist: bool | str
) -> ArrayChunks | DaskChunks:
    """Spectra (*samples, D) with what belongs to each."""
    if samples.chunks is None:
        return ArrayChunks(Chunk(samples.values.reshape(len(values), -1), values, frequencies, given))
    chunks = delayed_chunks(samples.data, values, frequencies, given)
    kept = persist is True or (persist == "auto" and samples.nbytes <= PERSIST_BYTES)
    return chunks.persist() if kept else chunks


def _complete(source: ArrayChunks | DaskChunks, names: Sequence[str], missing: str) -> ChunkSource:
    """The samples without NaN; ValueError where there are others and ``missing`` is "raise"."""
    rows, *counts = source.sum(_lacking).tolist()
    if not rows:
        return source
    places = ["the spectra", *map(repr, names)]
    parts = [f"{count} in {place}" for place, count in zip(places, counts, strict=True) if count]
    lacking = f"{rows} training samples hold NaN or infinite values ({', '.join(parts)})"
    if missing == "raise":
        raise ValueError(f"{lacking}; drop them first or pass missing='drop'")
    logger.warning("%s; they are left out", lacking)
    return source.where(_finite)


def _represented(transforms: Transforms, of_spectra: SpectraTransform, chunk: Chunk) -> Chunk:
    """The chunk under transforms."""
    return replace(chunk, spectra=of_spectra.forward(chunk.spectra), parameters=transforms.forward(chunk.parameters))


def _with(of_spectra: SpectraTransform, chunk: Chunk) -> np.ndarray:
    """Whether all values of a spectrum have a transform, (n,)."""
    return np.asarray(np.isfinite(of_spectra.forward(chunk.spectra)).all(axis=1))


def _without(of_spectra: SpectraTransform, chunk: Chunk) -> np.ndarray:
    """How many samples hold a value without a transform, and how many values of each band have none, (1 + D,)."""
    bare = ~np.isfinite(of_spectra.forward(chunk.spectra))
    return np.array([bare.any(axis=1).sum(), *bare.sum(axis=0)])


def parameter_names(
    training: xr.Dataset,
    parameters: Sequence[str] | None,
    spectra: xr.DataArray,
    band_dim: str,
    weights: str | None,
) -> list[str]:
    """Those asked for, checked; without a choice every variable over sample dimensions alone."""
    if parameters is None:
        others = [n for n in training.data_vars if n not in (spectra.name, weights)]
        names = [n for n in others if training[n].dims and set(training[n].dims) <= set(spectra.dims) - {band_dim}]
        if not names and len(spectra.dims) > 2:
            names = [d for d in spectra.dims if d != band_dim and d in training.coords]
        if not names:
            raise ValueError(
                "no parameters found beside the spectra: pass parameters=[...] with names of variables or coordinates "
                f"({listed(training.variables)}), or parameters=[] for unsupervised training"
            )
        return _texts(names)
    if isinstance(parameters, str):
        raise ValueError(f"parameters={parameters!r} must be a list of names: use [{parameters!r}]")
    if not isinstance(parameters, Iterable):
        raise TypeError(f"parameters={parameters!r} must be a list of names")
    names = list(parameters)
    absent = [name for name in names if name not in training.variables]
    if absent:
        raise ValueError(f"parameters {listed(absent)} not in the Dataset; it has {listed(training.variables)}")
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(f"parameters {listed(repeated)} are asked for more than once")
    return _texts(names)


def _texts(names: Sequence[Hashable]) -> list[str]:
    """The names of parameters; ValueError where one is no text, as files and outputs need it."""
    others = [name for name in names if not isinstance(name, str)]
    if others:
        raise ValueError(
            f"parameter {others[0]!r} has a name that is no text: rename it, as with .rename({{{others[0]!r}: "
            f"{'parameter_' + str(others[0])!r}}})"
        )
    return list(map(str, names))


def _flat(array: xr.DataArray, sizes: dict[Hashable, int], name: str) -> np.ndarray:
    """Values in the order of the flattened sample dimensions, float64 (n,)."""
    strange = {d: n for d, n in array.sizes.items() if sizes.get(d) != n}
    if strange:
        raise ValueError(f"{name!r} has dimensions {strange} that the samples {sizes} do not have")
    full = array.drop_vars(list(array.coords)).expand_dims({d: n for d, n in sizes.items() if d not in array.dims})
    return np.asarray(full.transpose(*sizes).values, dtype=np.float64).ravel()


def _lacking(chunk: Chunk) -> np.ndarray:
    """How many samples are not finite: of all, in the spectra, and in each parameter, (2 + L_t,)."""
    spectra, parameters = ~np.isfinite(chunk.spectra).all(axis=1), ~np.isfinite(chunk.parameters)
    return np.array([(spectra | parameters.any(axis=1)).sum(), spectra.sum(), *parameters.sum(axis=0)])


def _finite(chunk: Chunk) -> np.ndarray:
    return np.asarray(np.isfinite(chunk.spectra).all(axis=1) & np.isfinite(chunk.parameters).all(axis=1))


def _text_attrs(attrs: dict[Any, Any]) -> dict[str, str]:
    kept = ("units", "long_name", "standard_name", "description")
    return {key: as_text(attrs[key]) for key in kept if attrs.get(key) is not None}


def active_client() -> Any:
    """The active dask.distributed client, or None where there is none or ``dask.config`` names another scheduler."""
    if dask.config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
        return None
    try:
        from distributed import get_client

        client = get_client()
    except (ImportError, ValueError):
        return None
    return client if client.status == "running" else None


def large_graphs() -> AbstractContextManager[Any]:
    """Lets graphs of any size go to a cluster without a warning: those that hold a model, once, on purpose.

    Without a cluster nothing is set: a setting made before distributed is imported takes its defaults away at the end.
    """
    if active_client() is None:
        return nullcontext()
    setting: AbstractContextManager[Any] = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"})
    return setting


@dataclass(frozen=True)
class DaskChunks(ChunkSource):
    """Delayed chunks, the numbers of their rows in the order of samples, and the client whose cluster works on them."""

    chunks: list[Any]
    numbers: list[np.ndarray]
    client: Any = None

    def sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None = None, row_numbers: int = 1) -> Sum:
        """Sum over the chunks, pairwise so that few terms are alive at a time."""
        total: Sum = self._compute(self.delayed_sum(function, scaling, row_numbers))[0]
        return total

    def delayed_sum(self, function: Callable[[Chunk], Sum], scaling: Scaling | None, row_numbers: int) -> Any:
        """The sum, yet to be computed; on a cluster, what is to be done is on its way to the workers."""
        (step,) = _hold([partial(sum_blocks, function, scaling=scaling, row_numbers=row_numbers)], self.client)
        terms = [dask.delayed(call)(step, chunk) for chunk in self.chunks]
        while len(terms) > 1:
            pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
            terms = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return terms[0]

    def sample(self, n_rows: int) -> Chunk:
        """At most ``n_rows`` evenly spaced rows, in the order of samples whatever the chunks."""
        ordered = np.sort(np.concatenate(self.numbers))
        wanted = ordered[evenly_spaced(len(ordered), n_rows)]
        places = [np.flatnonzero(np.isin(numbers, wanted)) for numbers in self.numbers]
        parts = [dask.delayed(Chunk.rows)(chunk, place) for chunk, place in zip(self.chunks, places, strict=True)]
        chosen = np.concatenate([numbers[place] for numbers, place in zip(self.numbers, places, strict=True)])
        return join(list(self._compute(*parts))).rows(np.argsort(chosen))

    def where(self, mask: Mask) -> DaskChunks:
        """Chunks of the rows for which a function of a chunk is True."""
        masks = self._compute(*[dask.delayed(mask)(chunk) for chunk in self.chunks])
        held = _hold(list(masks), self.client)
        chunks = [dask.delayed(Chunk.rows)(chunk, rows) for chunk, rows in zip(self.chunks, held, strict=True)]
        numbers = [numbers[chosen] for numbers, chosen in zip(self.numbers, masks, strict=True)]
        return DaskChunks(chunks, numbers, self.client)

    def map(self, function: Callable[[Chunk], Chunk]) -> DaskChunks:
        """Chunks that a function makes of these, where they are and whenever they are asked for."""
        (step,) = _hold([function], self.client)
        return DaskChunks([dask.delayed(call)(step, chunk) for chunk in self.chunks], self.numbers, self.client)

    def persist(self) -> DaskChunks:
        """The same chunks, loaded and held by dask's workers."""
        with _needing(self.client):
            held = dask.persist(*self.chunks) if self.client is None else self.client.persist(self.chunks)
        return DaskChunks(list(held), self.numbers, self.client)

    def _compute(self, *values: Any) -> tuple[Any, ...]:
        with _needing(self.client):
            results: tuple[Any, ...] = dask.compute(*values, scheduler=self.client)
        return results


def delayed_chunks(
    spectra: da.Array, parameters: np.ndarray, weights: np.ndarray, given: np.ndarray | None
) -> DaskChunks:
    """Chunks of ``spectra`` (*samples, D), one block of bands, with what belongs to their samples.

    ``parameters`` (n, L_t), ``weights`` (n,) and ``given`` responsibilities (n, K) are in the order of the flattened
    samples. Blocks are flattened one by one, never rechunked; empty ones are left out.
    """
    client = active_client()
    grid = np.arange(len(weights)).reshape(spectra.shape[:-1])
    every = [grid[place].ravel() for place in places_of_blocks(spectra.chunks[:-1])]
    places = [place for place in every if len(place)]
    blocks = [block for place, block in zip(every, spectra.to_delayed().ravel(), strict=True) if len(place)]
    row_bytes = spectra.shape[-1] * spectra.dtype.itemsize
    runs = _merged_runs([len(place) * row_bytes for place in places])
    numbers = [np.concatenate(places[run]) if run.stop - run.start > 1 else places[run.start] for run in runs]
    held = _hold([_part(rows, parameters, weights, given) for rows in numbers], client)
    chunks = [dask.delayed(_chunk)(blocks[run], part) for run, part in zip(runs, held, strict=True)]
    return DaskChunks(chunks, numbers, client)


def _merged_runs(sizes: list[int]) -> list[slice]:
    """Runs of consecutive blocks of small size; they follow from the sizes alone, so that sums keep their bits."""
    limit = min(MERGED_BYTES, sum(sizes) // MERGED_CHUNKS)
    starts, held = [0], 0
    for number, size in enumerate(sizes):
        if number > 0 and held + size > limit:
            starts.append(number)
            held = 0
        held += size
    return [slice(start, stop) for start, stop in pairwise([*starts, len(sizes)])]


def _part(numbers: np.ndarray, parameters: np.ndarray, weights: np.ndarray, given: np.ndarray | None) -> Part:
    consecutive = bool((np.diff(numbers) == 1).all())
    rows = slice(numbers[0], numbers[-1] + 1) if consecutive else numbers
    return parameters[rows], weights[rows], None if given is None else given[rows]


def _chunk(blocks: list[np.ndarray], part: Part) -> Chunk:
    rows = [block.reshape(-1, block.shape[-1]) for block in blocks]
    return Chunk(rows[0] if len(rows) == 1 else np.concatenate(rows), *part)


def _hold(values: list[Any], client: Any) -> list[Any]:
    """Values that tasks refer to, sent to the cluster once: in a task of their own, which outlives a worker."""
    held = [dask.delayed(value, traverse=False) for value in values]
    if client is None:
        return held
    with _needing(client), large_graphs():
        return list(client.persist(held))


@contextmanager
def _needing(client: Any) -> Iterator[None]:
    """One line for whatever distributed raises where the client's cluster is gone."""
    try:
        yield
    except Exception as error:
        if isinstance(error, CancelledError) or (client is not None and client.status != "running"):
            raise RuntimeError(
                f"the cluster was closed or cancelled the training ({error}): run it again when the cluster is back; "
                "with checkpoint=... it goes on from the last state kept"
            ) from error
        raise
