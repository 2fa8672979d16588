"""``adapt``: what a cube shows that simulations lack, learnt without labels, and whether to use it.

Numbers are those of :mod:`specinvert.scores.adaptation`; here are labels, the spectra it is learnt from, and what it
does to the estimates.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._version import __version__
from ..cubes import (
    DISCREPANCY,
    find_band_dim,
    listed,
    match_bands,
    percent,
    require_flags,
    subsample,
    training_spectra,
    with_history,
)
from ..gllim.core import Array
from ..gllim.posterior import SpectralMixture
from ..model import Model
from ..scores import (
    LEAST_SPECTRA,
    Excess,
    WindowAmplitudes,
    calibrate_windows,
    correlation,
    excess,
    name_window,
    windows_of,
)
from ..settings import InverterSettings
from .fit import TrainingOptions
from .inverter import GLLiMInverter, inversion_of, model_of
from .predictive import sample_pixels

MOST_SPECTRA, MOST_SIMULATIONS, MOST_BANDS = 1000, 10_000, 256
"""Measured and simulated spectra that are compared at most, and the bands; amplitudes of others lie between theirs."""
DRAWS = 3
"""Draws of the nuisance of training that measured spectra are compared with."""
LARGE_SHARE, TOO_LARGE = 0.7, 2.0
"""Amplitude over the standard deviation of training, in its worst band, that is told, and that is refused: between
spectrometers it was 0.9 to 1.5 where adaptation took a half to five sixths of the error away."""
UNCALIBRATED, NARROWER, WIDER, MOVED = 1.2, 0.98, 1.02, 0.01
"""Ratio of errors above which a window is told; of deviations after and before below which a discrepancy is refused;
up to which, with no more than such a share of estimates moved, there was nothing to mend."""


def adapt(
    inverter: GLLiMInverter,
    cube: xr.DataArray | xr.Dataset,
    training: xr.Dataset,
    noise: Any = None,
    *,
    spectra: str | None = None,
    band_dim: str | None = None,
    sensor: Any = None,
    tolerance: float = 1.0,
    n_spectra: int = MOST_SPECTRA,
    random_state: int = 0,
    force: bool = False,
) -> xr.Dataset:
    """Learn from measured spectra, without labels, what simulations lack: a smooth covariance S.

    ``inverter.invert(cube, noise=found)`` adds S to the noise of every component. Spectra are compared with the nearest
    simulations, whatever their density, and amplitudes grow until windows of bands are predicted from the others as
    well as the model says. An error that looks like another value of a parameter leaves no trace in spectra, and S does
    nothing then: field values tell (:meth:`GLLiMInverter.calibrate`).

    Parameters
    ----------
    inverter : fitted; its mixture and prior stay as they are.
    cube : measured spectra as :meth:`GLLiMInverter.invert` takes them, 20 at least; of a large one a fixed random
        choice of blocks is read.
    training, noise, spectra, sensor : as :meth:`GLLiMInverter.fit` took them, so that nuisance can be drawn anew.
    band_dim : the band dimension, where no wavelength coordinate tells.
    tolerance : largest difference in nm between a band of the model and its partner.
    n_spectra : how many measured spectra are compared at most.
    random_state : seed of fresh nuisance and of curves.
    force : whether what is refused can be used nevertheless.

    Returns
    -------
    Dataset over the bands of the model: ``discrepancy`` (band, band_2), S in the squared units of the spectra, or of
    their transform where the model has one; ``amplitude``, its root diagonal; ``share``, that over the standard
    deviation of training. Over ``window``: ``q_before`` and ``q_after``, mean squared error over variance of its bands
    predicted from the others, and ``q_simulated``, that of simulations. Over ``parameter``: ``width_ratio`` of mean
    standard deviations after and before, and ``moved``, the share of estimates that moved by more than one former
    deviation. ``absorption`` is the factor for what nearest simulations follow. Attributes: ``verdict`` in words,
    ``refused`` (0 or 1), ``n_spectra``, ``model``.

    Raises
    ------
    ValueError : not fitted, no wavelengths, bands that differ, fewer than 20 spectra, or noise that training had and
        ``noise`` lacks.

    Warns
    -----
    UserWarning : where it is refused: an amplitude of twice the standard deviation of training, or narrower intervals.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training, scene = simulate_mixtures(600, seed=0), simulate_mixtures(100, noise=0.003, seed=1)
    >>> inverter = GLLiMInverter(4, n_latent=2, tol=0.1, random_state=0)
    >>> inverter = inverter.fit(training, parameters=["ice_fraction", "grain_size"], noise=0.003)
    >>> tilted = scene["reflectance"] * (1.0 + 0.05 * np.sin(scene["wavelength"] / 300.0))
    >>> found = adapt(inverter, tilted, training, noise=0.003)
    >>> bool(found["q_before"].max() > 2.0), bool(found["q_after"].max() < 1.5)
    (True, True)
    >>> maps = inverter.invert(tilted, noise=found)
    """
    require_flags(force=force)
    model = model_of(inverter)
    if not isinstance(n_spectra, numbers.Integral) or isinstance(n_spectra, bool) or n_spectra < LEAST_SPECTRA:
        raise ValueError(f"n_spectra={n_spectra!r} must be an integer, {LEAST_SPECTRA} or more")
    if model.bands.wavelength is None:
        raise ValueError("adapt needs wavelengths, and the bands of the model have none: name those of training")
    if noise is None and model.training_noise is not None:
        raise ValueError("the model was trained with fit(noise=...): pass the same noise=, so that it is drawn anew")
    options = TrainingOptions(spectra, model.names, band_dim, None, "drop", "auto", noise=noise, sensor=sensor)
    measured = _measured(inverter, cube, band_dim, tolerance, int(n_spectra))
    bands, rows = _usable(measured, model.bands.wavelength)
    target = measured[np.ix_(rows, bands)]
    seeds = [inverter.random_state] + [int(random_state) + 1 + i for i in range(0 if noise is None else DRAWS)]
    library, *fresh = _simulated(model, training, options, seeds, tolerance)
    kernel = correlation(model.bands.wavelength[bands])
    rng = np.random.default_rng(random_state)
    beyond = excess(target, library[:, bands], [draw[:, bands] for draw in fresh or [library]], kernel, rng)
    mixture = SpectralMixture.of([member.select_bands(bands) for member in model.members], model.shares)
    parts = [np.flatnonzero(np.isin(bands, window)) for window in windows_of(model.bands)]
    made = calibrate_windows(mixture, target, beyond, kernel, [part for part in parts if part.size])
    found = _labelled(model, bands, library.std(axis=0), beyond, made, [part.size > 0 for part in parts])
    return _judged(inverter, found.assign_attrs(n_spectra=len(rows)), measured[rows], force)


def _simulated(
    model: Model, training: xr.Dataset, options: TrainingOptions, seeds: Sequence[Any], tolerance: float
) -> list[Array]:
    """Draws (N, D) of at most so many samples of training, as the model sees spectra, one for each seed."""
    array = training_spectra(training, options.spectra, options.band_dim)
    dim = find_band_dim(array, options.band_dim)
    some = subsample(training, [other for other in array.dims if other != dim], MOST_SIMULATIONS)
    draws = []
    for seed in seeds:
        data, _ = options.read(some, InverterSettings(transforms={}), seed)
        order = match_bands(model.bands, data.bands, tolerance, "training")
        spectra = np.asarray(data.plain.sample(MOST_SIMULATIONS).spectra, dtype=np.float64)
        draws.append(model.spectra_transform.forward(spectra[:, order]))
    there = np.logical_and.reduce([np.isfinite(draw).all(axis=1) for draw in draws])
    if there.sum() <= LEAST_SPECTRA:
        raise ValueError(f"{int(there.sum())} training spectra are complete: adapt needs more than {LEAST_SPECTRA}")
    return [np.ascontiguousarray(draw[there]) for draw in draws]


def _measured(
    inverter: GLLiMInverter, cube: xr.DataArray | xr.Dataset, band_dim: str | None, tolerance: float, most: int
) -> Array:
    """A choice of measured spectra (n, D), as the model sees spectra, NaN where a band is missing."""
    inversion = inversion_of(inverter, band_dim=band_dim, tolerance=tolerance, rechunk="auto")
    request = inversion.request(cube)
    kernel = inversion.kernel(request, [])
    block, extras = sample_pixels(request, kernel, most)
    spectra, _, _ = kernel.read_block(block, extras)
    made = inverter.model_.spectra_transform.forward(np.asarray(spectra, dtype=np.float64))
    return np.where(np.isfinite(made), made, np.nan)


def _usable(measured: Array, wavelength: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Bands that half of the spectra or more have, at most so many, by wavelength; the spectra that have all."""
    there = np.isfinite(measured)
    bands = np.flatnonzero(there.mean(axis=0) >= 0.5) if len(measured) else np.arange(len(wavelength))
    bands = bands[np.argsort(wavelength[bands], kind="stable")]
    if len(bands) > MOST_BANDS:
        bands = bands[np.linspace(0, len(bands) - 1, MOST_BANDS).round().astype(np.intp)]
    rows = np.flatnonzero(there[:, bands].all(axis=1))
    if len(rows) < LEAST_SPECTRA:
        raise ValueError(
            f"adapt needs {LEAST_SPECTRA} spectra or more, and {len(rows)} of {len(measured)} have {len(bands)} of "
            f"{len(wavelength)} bands: give more spectra of the target, which need no field values"
        )
    return bands, rows


def _labelled(
    model: Model,
    bands: NDArray[np.intp],
    deviation: Array,
    beyond: Excess,
    made: WindowAmplitudes,
    used: Sequence[bool],
) -> xr.Dataset:
    """What was found, over all bands of the model; amplitudes of bands not ``bands`` lie between those of others."""
    wavelength, names = model.bands.wavelength, [name_window(model.bands, window) for window in windows_of(model.bands)]
    assert wavelength is not None
    amplitude = np.interp(wavelength, wavelength[bands], made.amplitude)
    ratios = np.full((3, len(names)), np.nan)
    ratios[:, np.flatnonzero(used)] = made.before, made.after, made.simulated
    dim, coords = model.band_coordinates()
    other, kept = f"{dim}_2", model.spectra_transform.kind is None and model.spectra_units is not None
    units = {"units": model.spectra_units} if kept else {}
    squared = {"units": "1" if model.spectra_units == "1" else f"({model.spectra_units})2"} if kept else {}
    covariance = amplitude[:, None] * correlation(wavelength) * amplitude
    q = "mean squared error over variance of the window's bands, predicted from the others"
    return xr.Dataset(
        {
            DISCREPANCY: ((dim, other), covariance, {"long_name": "covariance that simulations lack", **squared}),
            "amplitude": (dim, amplitude, {"long_name": "standard deviation that simulations lack", **units}),
            "share": (dim, amplitude / deviation, {"long_name": "amplitude over that of training", "units": "1"}),
            "q_before": ("window", ratios[0], {"long_name": f"{q}, before", "units": "1"}),
            "q_after": ("window", ratios[1], {"long_name": f"{q}, after", "units": "1"}),
            "q_simulated": ("window", ratios[2], {"long_name": f"{q}, of simulations", "units": "1"}),
            "absorption": ((), beyond.absorption, {"long_name": "factor for what fits absorb", "units": "1"}),
        },
        coords=coords | {"window": names},
    )


def _judged(inverter: GLLiMInverter, found: xr.Dataset, measured: Array, force: bool) -> xr.Dataset:
    """What was found, with what it does to the estimates of spectra (n, D), and a verdict."""
    model = inverter.model_
    dim, coords = model.band_coordinates()
    spectra = model.spectra_transform.inverse(measured)
    cube = xr.DataArray(spectra, dims=("sample", dim), coords=coords, name=model.spectra_name)
    outputs = ["estimate", "std"]
    before, after = (inverter.invert(cube, noise=noise, outputs=outputs, band_dim=dim) for noise in (None, found))
    names, ratios, moved = model.names, [], []
    for name in names:
        std = before[f"{name}_std"]
        ratios.append(float(after[f"{name}_std"].mean() / std.mean()))
        moved.append(float((np.abs(after[name] - before[name]) > std).mean()))
    told = {
        "width_ratio": ("parameter", ratios, {"long_name": "mean standard deviation, after over before", "units": "1"}),
        "moved": ("parameter", moved, {"long_name": "share moved by more than a deviation from before", "units": "1"}),
    }
    made = found.assign({name: value for name, value in told.items() if names}).assign_coords(parameter=names)
    refusals, beware = _refusals(made), _beware(made)
    nothing = max(ratios, default=1.0) <= WIDER and max(moved, default=0.0) <= MOVED
    state = ("forced" if force else "refused") if refusals else "nothing to mend" if nothing else "adapted"
    verdict = ": ".join(filter(None, (state, "; ".join([*refusals, *beware]))))
    if refusals:
        hint = "" if force else "; look at the spectra and at training, or pass force=True"
        warnings.warn(f"{verdict}{hint}", UserWarning, stacklevel=3)
    transform = {"spectra_transform": model.spectra_transform.kind} if model.spectra_transform.kind else {}
    attrs = {"title": "What measured spectra show that simulations lack", "source": f"specinvert {__version__}"}
    told_of = {"model": model.identity, "verdict": verdict, "refused": int(bool(refusals) and not force)}
    return made.assign_attrs(with_history(found.attrs | attrs | told_of | transform, f"adapt: {verdict}"))


def _refusals(found: xr.Dataset) -> list[str]:
    """Why a discrepancy should not be used, in words."""
    reasons, worst = [], int(found["share"].values.argmax())
    if found["share"][worst] > TOO_LARGE:
        reasons.append(
            f"its amplitude is {float(found['share'][worst]):.2g} times the standard deviation of training at "
            f"{_band(found, worst)}: the spectra are not of what was simulated, or on another scale"
        )
    if "width_ratio" in found:
        narrower = found["parameter"].values[found["width_ratio"].values < NARROWER].tolist()
        if narrower:
            reasons.append(f"intervals of {listed(narrower)} become narrower with it")
    return reasons


def _beware(found: xr.Dataset) -> list[str]:
    """What to know of a discrepancy that may be used."""
    told, worst = [], int(found["share"].values.argmax())
    if LARGE_SHARE < found["share"][worst] <= TOO_LARGE:
        told.append(f"its amplitude is {float(found['share'][worst]):.2g} times training's at {_band(found, worst)}")
    bad = found["window"].values[found["q_after"].values > UNCALIBRATED * np.maximum(found["q_simulated"].values, 1.0)]
    if len(bad):
        told.append(f"not calibrated: bands at {', '.join(bad)} err by more than predicted")
    if "moved" in found:
        shares = zip(found["parameter"].values, found["moved"].values, strict=True)
        far = [f"{percent(share)} of {name}" for name, share in shares if share > MOVED]
        told += [f"estimates moved by more than a former standard deviation: {', '.join(far)}"] if far else []
    return told


def _band(found: xr.Dataset, index: int) -> str:
    """A band in words."""
    return f"{float(found['wavelength'][index]):.5g} {found['wavelength'].attrs.get('units', 'nm')}"
