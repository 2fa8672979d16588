"""Fine spectra averaged to the bands of a sensor, in memory or lazily, and what becomes of their noise."""

from __future__ import annotations

import logging
import numbers
from dataclasses import dataclass
from operator import call
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
import xarray as xr

from ..gllim.core import one_blas_thread
from .bands import describe_bands, find_band_dim, match_bands, read_fwhm
from .labels import listed, require_flags, require_one_band_chunk, training_spectra, unmasked, with_history
from .responses import Cells, Sensor, band_weights, read_sensor

logger = logging.getLogger(__name__)

BAND_BLOCK = 16
"""Sensor bands, neighbours in wavelength, that share one matrix product over the samples that any of them needs."""
PIECE_ROWS = 4096
"""Spectra that are averaged at a time."""
_SHOWN = 5

Labelled = TypeVar("Labelled", xr.Dataset, xr.DataArray)


def resample(
    training: Labelled,
    sensor: Any,
    *,
    spectra: str | None = None,
    band_dim: str | None = None,
    min_coverage: float = 0.9,
    uncovered: str = "raise",
    good_only: bool = False,
    reach: float = 0.5,
    rechunk: str | None = None,
) -> Labelled:
    """Average fine spectra to the bands of a sensor.

    The weight of sample j in band i is the integral of the band's response over the cell of the sample, divided by the
    sum of these integrals, so that a constant spectrum stays constant::

        W[i, j] = I[i, j] / sum_j I[i, j],    I[i, j] = integral of r_i(x) dx over cell j,
        r_i(x) = exp(-4 ln 2 (x - centre_i)^2 / fwhm_i^2) where |x - centre_i| <= reach fwhm_i, else 0.

    The cell of a sample is as wide as its ``fwhm``, where the training set has that coordinate; else it ends half-way
    to its neighbours. With ``reach`` 0.5 these are the weights of Spectral Python's ``BandResampler``.

    Parameters
    ----------
    training : spectra of any dimensions at fine wavelengths (nm, um or m), alone or in a Dataset; in memory or dask.
    sensor : a cube, or a Dataset, with coordinates ``wavelength`` and ``fwhm``; or responses tabulated along a
        dimension ``response_wavelength`` with a coordinate of that name, linear between, the other dimension being the
        bands; or a pair of centres and FWHM, (B,) each.
    spectra : name of the spectra in a Dataset; None where only one variable has a band dimension.
    band_dim : their band dimension, where no wavelength coordinate tells.
    min_coverage : least share of a band's response that the wavelengths of training must cover, 0 to 1.
    uncovered : ``"raise"`` where bands have less, or ``"drop"`` them.
    good_only : whether to leave out bands of the sensor whose ``good`` is False.
    reach : how far a Gaussian response reaches to either side, in FWHM: 0.5 is Spectral Python's, 1.5 takes in 99.96 %
        of a whole Gaussian.
    rechunk : ``"auto"`` to merge bands that are split into several chunks.

    Returns
    -------
    The same kind of object, all else in it kept, lazy where it was: ``wavelength``, ``fwhm`` and ``good`` are those of
    the sensor along the band dimension, other coordinates along it are dropped, and ``history`` tells. float32 stays
    float32, all else becomes float64. A band that needs a sample that is NaN or infinite is NaN.

    Raises
    ------
    TypeError : arguments of other kinds.
    ValueError : wavelengths, widths or responses that are missing or impossible, bands that training does not cover, or
        further variables along the band dimension.

    Examples
    --------
    >>> fine = xr.DataArray(np.ones((1, 101)), dims=("sample", "wavelength"), coords={"wavelength": range(400, 501)})
    >>> resample(fine, ([430.0, 460.0], 10.0)).values.tolist()
    [[1.0, 1.0]]
    """
    array = training_spectra(training, spectra, band_dim)
    dim = find_band_dim(array, band_dim)
    array = require_one_band_chunk(array, dim, rechunk)
    weights, target, note = _plan(array, dim, read_sensor(sensor, reach, good_only), min_coverage, uncovered)
    if isinstance(training, xr.Dataset):
        others = [name for name, a in training.data_vars.items() if dim in a.dims and name != array.name]
        if others:
            raise ValueError(
                f"variables {listed(others)} lie along {dim!r} too: drop them with .drop_vars, or resample each alone"
            )
    native = array.dtype.newbyteorder("=")
    dtype = native if native == np.float32 else np.dtype(np.float64)
    variable = _average(array.variable, dim, BandAverage.of(weights, dtype))
    coords = {name: (dim, v.values, v.attrs) for name, v in target.coords.items()}
    kept = training.drop_vars([name for name, c in training.coords.items() if dim in c.dims])
    if isinstance(training, xr.Dataset):
        result = kept.assign({array.name: variable})
        return result.assign_coords(coords).assign_attrs(with_history(training.attrs, note))
    bare = xr.DataArray(variable, coords=kept.coords, name=array.name).assign_coords(coords)
    return bare.assign_attrs(with_history(array.attrs, note))


def resample_noise(
    noise: Any,
    training: xr.Dataset | xr.DataArray,
    sensor: Any,
    *,
    covariance: bool = False,
    spectra: str | None = None,
    band_dim: str | None = None,
    min_coverage: float = 0.9,
    uncovered: str = "raise",
    good_only: bool = False,
    reach: float = 0.5,
) -> xr.DataArray:
    """What becomes of noise in fine spectra that :func:`resample` averages: W S W'.

    Parameters
    ----------
    noise : standard deviations in the units of the spectra, one or one a band of training (S,), a DataArray of them
        over its bands, matched by wavelength; or a covariance (S, S).
    training, sensor, spectra, band_dim, min_coverage, uncovered, good_only, reach : as for :func:`resample`.
    covariance : whether to return the covariance, which is not diagonal where responses overlap.

    Returns
    -------
    Standard deviations (B,) along the band dimension, with the sensor's coordinates, for ``invert(noise=...)``; or the
    covariance (B, B) along it and ``<band dimension>_2``, whose ``.values`` serve there.

    Raises
    ------
    TypeError, ValueError : as for :func:`resample`; noise that is negative, not finite or of another shape.

    Examples
    --------
    >>> fine = xr.DataArray(np.ones((1, 101)), dims=("sample", "wavelength"), coords={"wavelength": range(400, 501)})
    >>> resample_noise(0.01, fine, ([430.0, 460.0], [10.0, 20.0])).values.round(4).tolist()
    [0.0032, 0.0023]
    """
    require_flags(covariance=covariance)
    array = training_spectra(training, spectra, band_dim)
    dim = find_band_dim(array, band_dim)
    weights, target, note = _plan(array, dim, read_sensor(sensor, reach, good_only), min_coverage, uncovered)
    size = array.sizes[dim]
    if isinstance(noise, xr.DataArray) and noise.ndim == 1:
        own = describe_bands(noise, str(noise.dims[0]))
        noise = noise.values[match_bands(describe_bands(array, dim), own, of="the noise")]
    values = unmasked(noise)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"noise must be numbers, not {values.dtype} ({noise!r:.60})")
    if values.shape not in ((), (size,), (size, size)):
        raise ValueError(f"noise of shape {values.shape} is none for {size} bands: give a number, ({size},) or both")
    if not np.isfinite(values).all() or (values.ndim < 2 and (values < 0).any()):
        raise ValueError("noise holds negative, NaN or infinite values: give standard deviations, or a covariance")
    if values.ndim == 2:
        full = weights @ values.astype(np.float64) @ weights.T
    else:
        scaled = weights * values
        full = scaled @ scaled.T
    coords = {name: (dim, v.values, v.attrs) for name, v in target.coords.items()}
    attrs = {} if "units" not in array.attrs or covariance else {"units": array.attrs["units"]}
    data, dims = (full, (dim, f"{dim}_2")) if covariance else (np.sqrt(np.diagonal(full)), (dim,))
    return xr.DataArray(data, dims=dims, coords=coords, name="noise", attrs=with_history(attrs, note))


@dataclass(frozen=True, eq=False)
class BandAverage:
    """Weights (B, S) as products over ``blocks``: bands, the first and past the last sample, weights (m, len(bands)).

    Floats of ``dtype`` come out.
    """

    blocks: tuple[tuple[np.ndarray, int, int, np.ndarray], ...]
    n_bands: int
    dtype: np.dtype

    @classmethod
    def of(cls, weights: np.ndarray, dtype: np.dtype) -> BandAverage:
        """Blocks of neighbouring bands of a matrix, each band of which has a sample."""
        needed = weights > 0
        order = np.argsort(np.argmax(needed, axis=1), kind="stable")
        blocks = []
        for begin in range(0, order.size, BAND_BLOCK):
            bands = order[begin : begin + BAND_BLOCK]
            where = np.flatnonzero(needed[bands].any(axis=0))
            start, stop = int(where[0]), int(where[-1]) + 1
            blocks.append((bands, start, stop, np.ascontiguousarray(weights[bands, start:stop].T.astype(dtype))))
        return cls(tuple(blocks), len(weights), dtype)

    def __call__(self, block: np.ndarray) -> np.ndarray:
        """Averages (..., B) of spectra (..., S); NaN for a band that needs what is not finite."""
        flat = block.reshape(-1, block.shape[-1])
        averages = np.empty((len(flat), self.n_bands), dtype=self.dtype)
        with one_blas_thread():
            for begin in range(0, len(flat), PIECE_ROWS):
                piece = flat[begin : begin + PIECE_ROWS].astype(self.dtype, copy=False)
                missing = ~np.isfinite(piece)
                spoiled = np.flatnonzero(missing.any(axis=1))
                if spoiled.size:
                    piece = np.where(missing, self.dtype.type(0), piece)
                rows = averages[begin : begin + PIECE_ROWS]
                for bands, start, stop, weights in self.blocks:
                    rows[:, bands] = piece[:, start:stop] @ weights
                    if spoiled.size:
                        lost = missing[spoiled, start:stop].astype(np.float32) @ (weights > 0).astype(np.float32) > 0
                        rows[np.ix_(spoiled, bands)] = np.where(lost, np.nan, rows[np.ix_(spoiled, bands)])
        return averages.reshape(*block.shape[:-1], self.n_bands)


def _plan(
    array: xr.DataArray, dim: str, sensor: Sensor, min_coverage: float, uncovered: str
) -> tuple[np.ndarray, Sensor, str]:
    """Weights (B, S), the sensor with the bands that are covered, and what was done in words."""
    if uncovered not in ("raise", "drop"):
        raise ValueError(f"uncovered={uncovered!r} must be 'raise' or 'drop'")
    if not isinstance(min_coverage, numbers.Real) or isinstance(min_coverage, bool) or not 0 <= min_coverage <= 1:
        raise ValueError(f"min_coverage={min_coverage!r} must be a number from 0 to 1")
    bands = describe_bands(array, dim)
    if bands.wavelength is None:
        raise ValueError(f"the training spectra have no wavelengths along {dim!r}: attach a 'wavelength' coordinate")
    if not bands.size:
        raise ValueError(f"the training spectra have no bands along {dim!r}")
    cells = Cells.of(bands.wavelength, read_fwhm(array, bands))
    weights, share = band_weights(sensor.response, cells)
    enough = (share >= min_coverage - 1e-9) & (weights > 0).any(axis=1)
    note = f"resample: {bands.size} to {int(enough.sum())} bands by {sensor.response.describe()}"
    whole = (cells.lower <= sensor.response.lower[:, None]) & (cells.upper >= sensor.response.upper[:, None])
    coarse = int((whole.any(axis=1) & enough).sum())
    if coarse:
        remark = f"{coarse} bands are narrower than what one sample stands for, and take its value"
        logger.warning("%s: training spectra of finer sampling would tell more", remark)
        note += f"; {remark}"
    if enough.all():
        return weights, sensor, note
    which = np.flatnonzero(~enough)
    shown = ", ".join(f"{sensor.centre[i]:.4g} nm ({100 * share[i]:.0f} %)" for i in which[:_SHOWN])
    shown += ", ..." if which.size > _SHOWN else ""
    low, high = bands.wavelength.min(), bands.wavelength.max()
    if uncovered == "raise" or not enough.any():
        raise ValueError(
            f"{which.size} of the sensor's {enough.size} bands have less than {100 * min_coverage:g} % of their "
            f"response covered by the training spectra, {low:g} to {high:g} nm: {shown}; select other bands of the "
            "sensor, pass uncovered='drop', or simulate a wider range"
        )
    note += f"; {which.size} bands of the sensor that {low:g} to {high:g} nm do not cover were dropped: {shown}"
    return weights[enough], sensor.take(np.flatnonzero(enough)), note


def _average(spectra: xr.Variable, dim: str, kernel: BandAverage) -> xr.Variable:
    """The spectra averaged, dimensions and attributes as they were; lazy where they are."""
    moved = spectra.transpose(..., dim)
    if spectra.chunks is None:
        data: Any = kernel(moved.values)
    else:
        data = da.apply_gufunc(
            call,
            "(),(fine)->(band)",
            da.from_delayed(dask.delayed(kernel, pure=True, traverse=False), shape=(), dtype=object),
            moved.data,
            output_dtypes=kernel.dtype,
            output_sizes={"band": kernel.n_bands},
            vectorize=False,
        )
    return xr.Variable(moved.dims, data, spectra.attrs).transpose(*spectra.dims)
