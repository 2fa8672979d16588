"""The inversion engine: a kernel over blocks of pixels, run by NumPy or lazily by dask through one call.

The kernel travels as a 0-d object array, so that a graph holds it once; all outputs of a block come from one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import call, getitem
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.base import normalize_token
from numpy.typing import NDArray

from ..flags import LEAST_SHARE, LEAST_TYPICAL
from ..gllim import level_with_noise
from ..gllim.core import one_blas_thread, over_rows
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import (
    BLOCK_ROWS,
    Estimate,
    ForwardTerms,
    Interval,
    Pixels,
    Rows,
    SideInformation,
    WindowPrediction,
    estimates,
    leave_out,
    member_shares,
    outside_rows,
)
from ..gllim.transforms import UNCHANGED, SpectraTransform, Transforms
from .calibration import Corrections, FieldCalibration
from .given import HIGH, LOW, NOISE, NOTHING, TRUTH, VALUE, Conditions, Extra, less, refuse_negative
from .labels import pixel_coordinates
from .outputs import BAND, COVARIANCE, DOMAIN, GAIN, MapVariable
from .reading import Domain, Reading, Trained
from .recalibration import Recalibration
from .scale import SPECTRA, times_training, typical_values, warn_of_scale

PIECE_ROWS = 24 * BLOCK_ROWS
"""Spectra that a thread takes at a time from an array in memory."""


MANY_BANDS, MARGIN = 0.1, 0.02
"""Share of its bands that lie beyond those of held-out spectra, by so much of their range, where it is unlike them."""
LEAST_HELD = 100
"""Held-out spectra whose extremes tell."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model, or a committee, as the kernel needs it.

    ``transforms`` lead from physical parameters to those of ``members``; spectra with fewer valid bands than
    ``least_bands`` are no data; ``recalibration`` says which levels to ask for instead, and on top of it
    ``calibration``, whose bias and slope the members have;
    ``held_out`` spectra (m, D) tell how far out spectra with noise are; ``member_weights`` (M,) are those of the
    members' posteriors, where they are neither equal nor by evidence. ``members`` and ``held_out`` are of spectra under
    ``spectra_transform``.
    """

    members: tuple[GLLiMParameters, ...]
    transforms: Transforms
    domain: Domain
    by_evidence: bool = False
    least_bands: int = 1
    recalibration: Recalibration | None = None
    held_out: np.ndarray | None = None
    member_weights: np.ndarray | None = None
    spectra_transform: SpectraTransform = UNCHANGED
    calibration: FieldCalibration | None = None

    def __dask_tokenize__(self) -> Any:
        # tokens of arrays depend on their memory order
        arrays = [np.ascontiguousarray(a) for theta in self.members for a in theta.arrays().values()]
        domain = (np.asarray(self.domain.low), np.asarray(self.domain.high), self.domain.log_tail)
        kinds = [(repr(theta.constraints), theta.n_latent) for theta in self.members]
        correction = None if self.recalibration is None else self.recalibration.to_arrays()
        rest = (kinds, repr(self.transforms), domain, self.by_evidence, self.least_bands, correction, self.held_out)
        weighted = () if self.member_weights is None else (self.member_weights,)
        widths = () if self.calibration is None else (self.calibration.to_arrays(),)
        return normalize_token((type(self).__name__, arrays, rest, *weighted, self.spectra_transform.kind, *widths))


@dataclass(frozen=True, eq=False)
class BlockInverter:
    """Inverts a block of spectra (..., D_cube): picks the model's bands, then fills the declared variables.

    ``bands`` index the cube's bands in the model's order; ``fill`` is a value that stands for nodata, or None. What
    ``conditions`` give for each pixel comes as blocks beside that of the spectra, in their order.
    """

    predictor: Predictor
    bands: np.ndarray
    outputs: tuple[MapVariable, ...]
    dtype: np.dtype
    fill: float | None = None
    conditions: Conditions = NOTHING

    def __dask_tokenize__(self) -> Any:
        given = self.conditions
        roles = [(extra.role, extra.index, extra.banded) for extra in given.extras]
        shared = (given.variance, given.discrepancy, given.included, given.values, given.low, given.high)
        rest = (self.bands, repr(self.outputs), str(self.dtype), self.fill, roles, shared)
        return normalize_token((type(self).__name__, self.predictor.__dask_tokenize__(), rest))

    @cached_property
    def terms(self) -> list[ForwardTerms]:
        """The members prepared for complete spectra, once a process; under a transform noise is each spectrum's own."""
        variance = self.conditions.variance if self.predictor.spectra_transform.kind is None else None
        return [ForwardTerms.of(m if variance is None else m.with_noise(variance)) for m in self._members]

    @cached_property
    def _members(self) -> Sequence[GLLiMParameters]:
        """The members with what measured spectra are known to differ by."""
        discrepancy = self.conditions.discrepancy
        return [m if discrepancy is None else m.with_noise(discrepancy) for m in self.predictor.members]

    @cached_property
    def _levels(self) -> dict[bytes, float]:
        return {}

    @cached_property
    def _trained(self) -> Trained:
        predictor, levels = self.predictor, dict[int, list[float]]()
        for variable in self.outputs:
            levels[variable.index] = sorted({*levels.get(variable.index, ()), *variable.levels})
        made = Trained(
            *(self.terms, predictor.transforms, predictor.domain, levels, COVARIANCE in self._needs),
            Corrections(predictor.recalibration, predictor.calibration),
            *(predictor.spectra_transform, predictor.member_weights),
        )
        return replace(made, least=self._least(made)) if GAIN in self._needs else made

    def _least(self, trained: Trained) -> np.ndarray:
        """Nats (L_t,) told of a parameter below which its prior answers, by those held out of training, without noise.

        -inf where these are not kept, and of parameters that they tell too little of.
        """
        made, n_parameters = self.predictor.held_out, trained.transforms.n_physical
        if made is None or not len(made) or not n_parameters:
            return np.full(n_parameters, -np.inf)
        if self.conditions.variance is not None or self.conditions.discrepancy is not None:
            trained = replace(trained, terms=[ForwardTerms.of(member) for member in self.predictor.members])
        told = np.empty((len(made), n_parameters))
        with one_blas_thread():
            for part in self._estimates(trained.terms, made, SideInformation(), every_component=False):
                reading = Reading(part, trained, Pixels(made[part.rows]))
                told[part.rows] = np.stack([reading.information(i) for i in range(n_parameters)], axis=1)
        typical = np.median(told, axis=0)
        return np.where(typical >= LEAST_TYPICAL, LEAST_SHARE * typical, -np.inf)

    @property
    def _needs(self) -> set[str]:
        return {need for variable in self.outputs for need in variable.output.needs}

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _log_tail(self, added: np.ndarray | None) -> float | np.ndarray:
        """That of the domain under the noise of the pixels: for noise of each, by octaves of its mean variance."""
        if self.predictor.held_out is None:
            return self.predictor.domain.log_tail
        if added is None:
            shared = self.conditions.variance
            return self.predictor.domain.log_tail if shared is None else self._level(shared)
        given = added > 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            octaves = np.round(np.log2((added * given).sum(axis=1) / given.sum(axis=1)))
        kinds, which = np.unique(np.where(np.isfinite(octaves), octaves, -np.inf), return_inverse=True)
        return np.array([self._level(np.asarray(2.0**kind)) for kind in kinds])[which]

    def _outside(self, spectra: np.ndarray, added: np.ndarray | None) -> NDArray[np.bool_] | None:
        """Whether (n,) many bands lie beyond the extremes of held-out spectra, three deviations of noise included."""
        held = self.predictor.held_out
        if held is None or len(held) < LEAST_HELD:
            return None
        low, high = self.predictor.spectra_transform.inverse(np.stack([held.min(axis=0), held.max(axis=0)]))
        shared = 0.0 if self.conditions.variance is None else np.asarray(self.conditions.variance)
        variance = np.diagonal(shared) if np.ndim(shared) == 2 else np.asarray(shared)
        reach = MARGIN * (high - low) + 3.0 * np.sqrt(np.atleast_2d(variance if added is None else added))
        outside = np.empty(len(spectra), dtype=bool)
        outside_rows(spectra, low - reach, high + reach, MANY_BANDS, outside)
        return outside

    def _level(self, noise: np.ndarray) -> float:
        """The level under a noise, a variance, variances or a covariance, found once a process."""
        key = noise.tobytes()
        if key not in self._levels:
            predictor = self.predictor
            assert predictor.held_out is not None
            base, spectra = float(predictor.domain.log_tail), np.asarray(predictor.held_out, dtype=np.float64)
            self._levels[key] = base
            if noise.any():
                of = predictor.member_weights, predictor.spectra_transform
                self._levels[key] = level_with_noise(predictor.members, spectra, base, noise, *of)
        return self._levels[key]

    def core_sizes(self, variable: MapVariable) -> tuple[int, ...]:
        """Sizes of the dimensions that a variable has beyond those of the pixels."""
        theta = self.predictor.members[0]
        return variable.sizes(self.predictor.transforms.n_physical, theta.n_latent, theta.n_bands)

    def __call__(self, block: np.ndarray, *extras: np.ndarray) -> tuple[np.ndarray, ...]:
        """Outputs of a block, each (..., *core)."""
        self.check_scale(block)
        results = self.empty(block.shape[:-1])
        self.fill_rows(block, extras, results)
        return results

    def check_scale(self, block: np.ndarray) -> None:
        """Warn where spectra spread over a block are on another scale than those of training."""
        pixels = block.shape[:-1]
        step = max(1, int((np.prod(pixels) / SPECTRA) ** (1 / max(len(pixels), 1))))
        times = times_training(self.spectra(block[tuple(slice(None, None, step) for _ in pixels)]), self._typical)
        if times is not None:
            warn_of_scale(times)

    @cached_property
    def _typical(self) -> np.ndarray:
        return typical_values(self.predictor.members[0], self.predictor.spectra_transform)

    def empty(self, pixels: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        """Outputs (*pixels, *core) of no data."""
        return tuple(
            np.full((*pixels, *self.core_sizes(variable)), variable.output.empty, variable.dtype(self.dtype))
            for variable in self.outputs
        )

    def fill_rows(self, block: np.ndarray, extras: Sequence[np.ndarray], empty: tuple[np.ndarray, ...]) -> None:
        """Fill the :meth:`empty` outputs of a block in place."""
        spectra, known, given = self.read_block(block, extras)
        n = len(spectra)
        results = [array.reshape((n, *array.shape[block.ndim - 1 :])) for array in empty]
        log_tail = self._log_tail(given.added) if DOMAIN in self._needs else np.nan
        outside = self._outside(spectra, given.added) if DOMAIN in self._needs else None
        pixels = Pixels(spectra, log_tail, known, self._interval(extras, n), self._truth(extras, n), outside)
        if DOMAIN in self._needs and self.conditions.discrepancy is not None:
            pixels = replace(pixels, log_tail=np.nan, outside=self._before.out_of_domain(pixels, given))
        with one_blas_thread():
            for rows, part in self.estimates(spectra, given):
                reading = Reading(part, self._trained, pixels.of(rows))
                for variable, result in zip(self.outputs, results, strict=True):
                    result[rows] = variable.compute(reading)

    @cached_property
    def _before(self) -> BlockInverter:
        """The same without a discrepancy: what it hides from the model is still unlike training."""
        return replace(self, conditions=replace(self.conditions, discrepancy=None))

    def out_of_domain(self, pixels: Pixels, given: SideInformation) -> NDArray[np.bool_]:
        """Whether (n,) spectra are unlike those of training; False where nothing is estimated."""
        out = np.zeros(len(pixels.spectra), dtype=bool)
        with one_blas_thread():
            for rows, part in self.estimates(pixels.spectra, given):
                out[rows] = Reading(part, self._trained, pixels.of(rows)).out_of_domain()
        return out

    def estimates(
        self, spectra: np.ndarray, given: SideInformation, every_component: bool = False
    ) -> Iterator[tuple[Rows, Estimate]]:
        """Estimates of spectra (n, D), and their rows; of what is given, noise is in the units of the spectra."""
        for row, terms, made, own in self._prepared(spectra, given):
            for part in self._estimates(terms, made, own, every_component):
                yield part.rows if row is None else row, part

    def windows(
        self, spectra: np.ndarray, given: SideInformation, bands: Sequence[NDArray[np.intp]]
    ) -> list[WindowPrediction]:
        """Each window of ``bands`` of spectra (n, D) predicted from the others, in the units of the members."""
        predictor, n = self.predictor, len(spectra)
        weights = None if predictor.by_evidence else member_shares(len(predictor.members), predictor.member_weights)
        found = [WindowPrediction.empty(n, len(window)) for window in bands]
        for row, terms, made, own in self._prepared(spectra, given):
            rows = np.arange(n) if row is None else np.arange(n)[row]
            each = zip(*(leave_out(one, made, bands, own) for one in terms), strict=True)
            for whole, parts in zip(found, each, strict=True):
                whole.put(rows, np.arange(whole.mean.shape[1]), WindowPrediction.averaged(parts, weights))
        return found

    def _prepared(
        self, spectra: np.ndarray, given: SideInformation
    ) -> Iterator[tuple[slice | None, Sequence[ForwardTerms], np.ndarray, SideInformation]]:
        """Spectra in the units of the members, what is given in these, and the members: for all rows, or one by one."""
        transform, shared = self.predictor.spectra_transform, self.conditions.variance
        if transform.kind is None or (given.added is None and shared is None):
            yield None, self.terms, transform.forward(spectra), given
            return
        slope, made = transform.slope(spectra), transform.forward(spectra)
        if given.added is None and shared is not None and shared.ndim == 2:
            yield from self._each(made, slope, shared, given)
            return
        noise = np.asarray(shared) if given.added is None else given.added
        with np.errstate(invalid="ignore"):
            added = np.where(noise > 0.0, noise * slope**2, 0.0)
        known_badly = ~np.isfinite(added)
        given = replace(given, added=np.where(known_badly, 0.0, added))
        yield None, self.terms, np.where(known_badly, np.nan, made), given

    def _estimates(
        self, terms: Sequence[ForwardTerms], made: np.ndarray, given: SideInformation, every_component: bool
    ) -> Iterator[Estimate]:
        """Estimates of spectra in the units of the members."""
        predictor = self.predictor
        return estimates(terms, made, given, predictor.by_evidence, every_component, predictor.member_weights)

    def _each(
        self, made: np.ndarray, slope: np.ndarray, covariance: np.ndarray, given: SideInformation
    ) -> Iterator[tuple[slice, Sequence[ForwardTerms], np.ndarray, SideInformation]]:
        """One by one spectra under a transform, to each of which a covariance means another noise."""
        made = np.where(np.isfinite(slope), made, np.nan)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        for i in range(len(made)):
            own = slice(i, i + 1)
            known = None if given.known is None else given.known[own]
            noise = slope[i, :, None] * covariance * slope[i]
            terms = [ForwardTerms.of(member.with_noise(noise)) for member in self._members]
            yield own, terms, made[own], SideInformation(None, known, given.least_bands)

    def read_block(
        self, block: np.ndarray, extras: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray | None, SideInformation]:
        """Spectra (n, D), known parameters (n, L_t) in physical units, and what is given in those of :meth:`estimates`.

        Bands of NaN noise, and those without a transform, are missing from the spectra.
        """
        conditions, transforms = self.conditions, self.predictor.transforms
        spectra = self.spectra(block)
        n, added = len(spectra), None
        known = None
        if VALUE in {extra.role for extra in conditions.extras} or not np.isnan(conditions.values).all():
            known = np.tile(conditions.values, (n, 1))
        for extra, array in zip(conditions.extras, extras, strict=True):
            values = array.reshape((n, -1))
            if extra.role == NOISE:
                deviation = np.asarray(values, dtype=np.float64)
                refuse_negative(deviation)
                spectra = np.where(np.isnan(deviation), np.nan, spectra)
                added = deviation**2 if conditions.included is None else less(deviation**2, conditions.included)
                added = np.nan_to_num(added)
            elif extra.role == VALUE:
                assert known is not None
                known[:, extra.index] = np.asarray(values, dtype=np.float64)[:, 0]
                infinite = int(np.isinf(known[:, extra.index]).sum())
                if infinite:
                    raise ValueError(
                        f"known {transforms.names[extra.index]!r} is infinite in {infinite} pixels: give numbers, NaN "
                        "where it is unknown"
                    )
        z = None
        if known is not None:
            z = np.full((n, transforms.n_transformed), np.nan)
            for i in map(int, np.flatnonzero(~np.isnan(known).all(axis=0))):
                there = ~np.isnan(known[:, i])
                z[there, transforms.column(i)] = transforms.known_forward(i, known[there, i])
        of_spectra = self.predictor.spectra_transform
        if of_spectra.kind is not None:
            spectra = np.where(np.isnan(of_spectra.forward(spectra)), np.nan, spectra)
        return spectra, known, SideInformation(added, z, self.predictor.least_bands)

    def _truth(self, extras: Sequence[np.ndarray], n: int) -> np.ndarray | None:
        """True parameters (n, L_t) to compare with."""
        columns = [
            np.asarray(array, dtype=np.float64).reshape(n)
            for extra, array in zip(self.conditions.extras, extras, strict=True)
            if extra.role == TRUTH
        ]
        return np.stack(columns, axis=1) if columns else None

    def _interval(self, extras: Sequence[np.ndarray], n: int) -> Interval | None:
        """The interval of the parameter that is known by one, for every row."""
        conditions = self.conditions
        ends = {LOW: np.full(n, -np.inf), HIGH: np.full(n, np.inf)}
        index = -1
        for role, values in ((LOW, conditions.low), (HIGH, conditions.high)):
            for i in map(int, np.flatnonzero(~np.isnan(values))):
                index, ends[role][:] = i, values[i]
        for extra, array in zip(conditions.extras, extras, strict=True):
            if extra.role in ends:
                values = np.asarray(array, dtype=np.float64).reshape(n)
                index, ends[extra.role] = extra.index, np.where(np.isnan(values), ends[extra.role], values)
        if index < 0:
            return None
        empty = ends[LOW] >= ends[HIGH]
        if empty.any():
            name = self.predictor.transforms.names[index]
            raise ValueError(f"known {name!r}: the interval is empty in {int(empty.sum())} pixels (low >= high)")
        return Interval(index, ends[LOW], ends[HIGH])

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


def _invert_array(block: np.ndarray, extras: list[np.ndarray], kernel: BlockInverter) -> tuple[np.ndarray, ...]:
    """The kernel over an array in memory: threads share pieces of it, so temporaries stay small."""
    if block.ndim == 1:
        return kernel(block, *extras)
    kernel.check_scale(block)
    pixels = block.shape[:-1]
    results = kernel.empty(pixels)
    rows, given, outputs = block, extras, results
    if block.flags.c_contiguous:
        rows = block.reshape(-1, block.shape[-1])
        given = [extra.reshape((len(rows), *extra.shape[len(pixels) :])) for extra in extras]
        outputs = tuple(r.reshape((len(rows), *r.shape[block.ndim - 1 :])) for r in results)
    step = max(1, PIECE_ROWS * len(rows) // int(np.prod(pixels)))

    def fill(piece: slice) -> None:
        kernel.fill_rows(rows[piece], [extra[piece] for extra in given], tuple(o[piece] for o in outputs))

    over_rows(fill, len(rows), step)
    return results


def _invert_lazily(cube: da.Array, extras: Sequence[Extra], kernel: BlockInverter) -> list[da.Array]:
    """The kernel over the blocks of a cube (..., D), each with all bands: one task a block, and one an output.

    The kernel goes along without what differs from pixel to pixel, of which each block gets its own.
    """
    pixels = tuple(range(cube.ndim - 1))
    of_no_pixel = tuple(replace(extra, array=xr.DataArray()) for extra in extras)
    bare = replace(kernel, conditions=replace(kernel.conditions, extras=of_no_pixel))
    held = da.from_delayed(dask.delayed(bare, pure=True, traverse=False), shape=(), dtype=object)
    beside: list[Any] = []
    for extra in extras:
        chunks = (*cube.chunks[:-1], (len(kernel.bands),)) if extra.banded else cube.chunks[:-1]
        lazy = extra.array.chunks is not None
        array = extra.array.data.rechunk(chunks) if lazy else da.from_array(extra.array.values, chunks)
        beside += [array, (*pixels, cube.ndim) if extra.banded else pixels]
    blocks = da.blockwise(
        *(call, pixels, held, (), cube, (*pixels, cube.ndim - 1), *beside),
        dtype=object,
        meta=np.empty((0,) * len(pixels), dtype=object),
        concatenate=True,
    )
    arrays = []
    for number, variable in enumerate(kernel.outputs):
        core = dict(enumerate(kernel.core_sizes(variable), len(pixels)))
        dtype = variable.dtype(kernel.dtype)
        arrays.append(
            da.blockwise(
                *(getitem, (*pixels, *core), blocks, pixels, number, None),
                name=f"{variable.name}-{blocks.name}",
                new_axes=core,
                dtype=dtype,
                meta=np.empty((0,) * (len(pixels) + len(core)), dtype=dtype),
            )
        )
    return arrays


def apply_blocks(cube: xr.DataArray, band_dim: str, kernel: BlockInverter) -> xr.Dataset:
    """The kernel's outputs over the cube, lazy where the cube is; dimensions but the band's keep their order.

    A coordinate that has the name of an output, or of a dimension of one, gives way to it.
    """
    moved = cube.transpose(..., band_dim)
    extras = kernel.conditions.extras
    if cube.chunks is None:
        arrays: Sequence[Any] = _invert_array(moved.values, [extra.array.values for extra in extras], kernel)
    else:
        arrays = _invert_lazily(moved.data, extras, kernel)
    pixel_dims = moved.dims[:-1]
    variables = {
        v.name: ((*pixel_dims, *(band_dim if d == BAND else d for d in v.output.dims)), array)
        for v, array in zip(kernel.outputs, arrays, strict=True)
    }
    own = {dim for variable in kernel.outputs for dim in variable.output.dims}
    coords = pixel_coordinates(cube, band_dim, {*variables, *own})
    if BAND in own:
        picked = cube.isel({band_dim: kernel.bands}).coords
        along = {name: array for name, array in picked.items() if array.dims == (band_dim,) and name not in variables}
        coords |= {name: array.reset_coords(drop=True) for name, array in along.items()}
    return xr.Dataset(variables, coords=coords)
