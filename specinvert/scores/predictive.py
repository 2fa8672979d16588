"""Measured spectra beside those that a model expects: the posterior predictive check, in numbers and in words.

It needs no truth. A fit swallows a part of any error of the spectra, because the estimates follow it; so each band is
predicted from all other bands, and each window of bands from those outside: narrow errors show in the first, broad ones
in the second. Errors count in standard deviations of the prediction. q, the mean of their squares, is 1 where the model
errs as much as it says. Errors that look like another value of a parameter leave no trace in spectra, and none here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..cubes import Bands, describe_bands, percent
from ..gllim.core import Array
from ..gllim.posterior import WindowPrediction, windows
from .findings import Finding
from .metrics import aligned, format_number

MISFIT, SERIOUS, TOO_SURE = 1.2, 4.0, 0.5
"""q of a window above which it does not fit the model, and much above, and of all below which predictions are wide."""
COARSE = 2.0
"""q above which simulated spectra are told not to fit: maps that are affine in parts leave some misfit."""
OFF, LARGE = 1.0, 2.0
"""Mean error of a band, and root mean square, in predicted standard deviations, above which it is told."""
SURE, ALONE = 2.0, np.sqrt(2.0)
"""Standard errors by which a limit has to be exceeded, and that of q of one spectrum, whose bands err alike."""
SHOWN = 3
"""Windows and bands that are named."""
BY_BAND, BY_WINDOW = "band", "window"
"""What is predicted from all else."""
_TAIL = 0.05
_QUANTILES = (0.05, 0.5, 0.95)


def windows_of(bands: Bands) -> list[NDArray[np.intp]]:
    """Windows of bands that are next to each other in wavelength: four of fewer than twenty bands, else six."""
    order = np.arange(bands.size) if bands.wavelength is None else np.argsort(bands.wavelength, kind="stable")
    return [order[window] for window in windows(bands.size)]


def name_window(bands: Bands, window: NDArray[np.intp]) -> str:
    """A window of bands in words."""
    first, last = (_name(bands, int(window[place])) for place in (0, -1))
    return first if len(window) == 1 else f"{first.removesuffix(' nm')} to {last.removeprefix('band ')}"


def _name(bands: Bands, index: int) -> str:
    return bands.name(index) if bands.wavelength is None else f"{bands.wavelength[index]:.5g} nm"


@dataclass(frozen=True, eq=False)
class Surprise:
    """Spectra (n, D) beside what all else predicts of their bands, NaN where there is no band.

    Attributes
    ----------
    error : (n, D) observed less predicted, in standard deviations of the prediction. deviation : (n, D) these.
    mean : (n, D) predicted. inside : (n, D) 1 where the observed value lies in the central 90 % of the prediction.
    """

    error: Array
    deviation: Array
    mean: Array
    inside: Array

    @classmethod
    def of(cls, spectra: Array, parts: Sequence[NDArray[np.intp]], predicted: Sequence[WindowPrediction]) -> Surprise:
        """Of spectra (n, D) in the units of the model, whose bands ``parts`` were predicted."""
        made = cls(*np.full((4, *spectra.shape), np.nan))
        for bands, one in zip(parts, predicted, strict=True):
            made.mean[:, bands], made.deviation[:, bands] = one.mean, np.sqrt(one.variance)
            made.inside[:, bands] = np.where(np.isnan(one.below), np.nan, np.abs(one.below - 0.5) <= 0.5 - _TAIL)
        made.error[:] = (spectra - made.mean) / made.deviation
        return made


@dataclass(frozen=True, eq=False)
class Checked:
    """What a check is of: spectra ``observed`` (n, D) and ``residual`` (n, D), observed less fitted, in their units.

    ``surprises`` by what was predicted, ``BY_BAND`` or ``BY_WINDOW``; ``slope`` (n, D) of the spectra's transform.
    """

    observed: Array
    residual: Array
    slope: Array
    surprises: dict[str, Surprise]


def predictive_check(
    checked: Checked,
    bands: Bands,
    parts: Sequence[NDArray[np.intp]],
    coordinates: Mapping[str, Any],
    units: str | None = None,
) -> xr.Dataset:
    """Numbers over ``left_out`` and ``band`` and over ``window``: see :meth:`specinvert.GLLiMInverter.check`.

    ``coordinates`` are those of the bands, ``units`` those of the spectra.
    """
    kinds = list(checked.surprises)
    each = [checked.surprises[kind] for kind in kinds]
    of_bands, of_spectra = ("left_out", bands.dim), ("quantile", bands.dim)
    seen = np.where(np.isnan(checked.residual), np.nan, checked.observed)
    squares = [surprise.error**2 for surprise in each]
    broad = checked.surprises[BY_WINDOW]
    q = np.array([_mean(broad.error[:, window] ** 2) for window in parts])
    made = xr.Dataset(
        {
            "observed": (of_spectra, _quantiles(seen)),
            "reconstructed": (of_spectra, _quantiles(seen - checked.residual)),
            "residual": (bands.dim, _mean(checked.residual, 0)),
            "residual_std": (bands.dim, _spread(checked.residual)),
            "predicted_std": (of_bands, [_root(_mean((s.deviation / checked.slope) ** 2, 0)) for s in each]),
            "offset": (of_bands, [_mean(surprise.error, 0) for surprise in each]),
            "ratio": (of_bands, [_root(_mean(values, 0)) for values in squares]),
            "inside_90": (of_bands, [_mean(surprise.inside, 0) for surprise in each]),
            "window_bands": ("window", [name_window(bands, window) for window in parts]),
            "q": ("window", q),
            "q_error": ("window", [_error(_mean(broad.error[:, window] ** 2, 1)) for window in parts]),
            "window_offset": ("window", [_mean(broad.error[:, window]) for window in parts]),
            "window_inside_90": ("window", [_mean(broad.inside[:, window]) for window in parts]),
        },
        coords={"left_out": kinds, "quantile": list(_QUANTILES), **coordinates},
    )
    for name, text in _MEANING.items():
        made[name].attrs["long_name"] = text
    for name in _IN_UNITS if units is not None else ():
        made[name].attrs["units"] = units
    made.attrs["n_spectra"] = int(np.isfinite(checked.residual).any(axis=1).sum())
    made.attrs["verdict"] = _verdict(made)
    return made


_IN_UNITS = ("observed", "reconstructed", "residual", "residual_std", "predicted_std")
_MEANING = {
    "observed": "quantiles of the observed spectra",
    "reconstructed": "quantiles of the spectra that the model reconstructs at its estimates",
    "residual": "mean of the observed less the reconstructed spectrum",
    "residual_std": "standard deviation of the observed less the reconstructed spectrum",
    "predicted_std": "standard deviation of the prediction from all else, root mean square",
    "offset": "mean of the observed less the predicted value, in standard deviations of the prediction",
    "ratio": "root mean square of the observed less the predicted value, in standard deviations of the prediction",
    "inside_90": "share of observed values in the central 90 % of the prediction",
    "window_bands": "the bands of a window",
    "q": "mean squared error over predictive variance of a window given all other bands; 1 if the model were right",
    "q_error": "standard error of q, of spectra taken as independent",
    "window_offset": "mean of the observed less the predicted value, in standard deviations of the prediction",
    "window_inside_90": "share of observed values in the central 90 % of the prediction",
}


def misfits(check: xr.Dataset, limit: float = MISFIT) -> NDArray[np.intp]:
    """Windows that do not fit the model, their q surely above a limit, the worst first."""
    q = check["q"].values
    bad = np.flatnonzero(q - SURE * np.nan_to_num(check["q_error"].values, nan=ALONE) > limit)
    return np.asarray(bad[np.argsort(-q[bad])], dtype=np.intp)


def _verdict(check: xr.Dataset) -> str:
    q, bad = check["q"].values, misfits(check)
    if not check.attrs["n_spectra"]:
        return "No spectrum has enough valid bands to be checked."
    held = f"90 % intervals hold {percent(float(check['window_inside_90'].mean()))}"
    most = f"q from {np.nanmin(q):.2g} to {np.nanmax(q):.2g} where 1 is right"
    if bad.size:
        named = _some([f"{check['window_bands'].values[i]} (q {q[i]:.3g})" for i in bad])
        said = f"{bad.size} of {q.size} windows of bands are not what the others predict: {named}, where 1 is right"
    elif np.nanmax(q) < TOO_SURE:
        said = f"Windows of bands are nearer to what the others predict than the model says: {most}"
    else:
        few = f", as far as {check.attrs['n_spectra']} spectra tell" if np.nanmax(q) > MISFIT else ""
        said = f"Windows of bands are predicted from the others at least as well as the model says{few}: {most}"
    alone = [name for name, *_ in _off_bands(check)]
    return f"{said}; {held}." + (f" Bands off beside their neighbours: {_some(alone)}." if alone else "")


def format_check(check: xr.Dataset) -> str:
    """Lay out the windows of a check as aligned plain text, a heading and one line a window.

    Examples
    --------
    >>> windows = {"window_bands": ["450 to 520 nm"], "q": [4.0], "window_offset": [1.5], "window_inside_90": [0.4]}
    >>> print(format_check(xr.Dataset({name: ("window", values) for name, values in windows.items()})))
    bands          q  offset  inside_90
    450 to 520 nm  4     1.5        0.4
    """
    columns = [["bands", *map(str, check["window_bands"].values)]]
    for name in ("q", "window_offset", "window_inside_90"):
        columns.append([name.removeprefix("window_"), *map(format_number, check[name].values)])
    return aligned(list(zip(*columns, strict=True)))


def check_findings(check: xr.Dataset, measured: bool) -> Iterator[Finding]:
    """What a reader should know of a check, as :meth:`specinvert.GLLiMInverter.check` gives it.

    Parameters
    ----------
    check : the result of a check.
    measured : whether the spectra were measured: what helps then differs, and simulated ones may err more, q up to 2,
        before it is told.

    Yields
    ------
    Findings with a title, what was seen with its number, and what to do.
    """
    bad = misfits(check, MISFIT if measured else COARSE)
    if bad.size:
        names, q = check["window_bands"].values, check["q"].values
        each = _some([f"{names[i]} by {_off(np.sqrt(q[i]), check['window_offset'].values[i])}" for i in bad])
        yield Finding(
            f"Spectra are not what the model expects: {_some([names[i] for i in bad])}",
            f"Predicted from all other bands, these miss what was observed: {each}; 1 where the model is right. A "
            "window that is wrong misleads the predictions of others.",
            _LEARN if measured else _DESCRIBE,
            float(q[bad[0]]) > SERIOUS,
        )
    elif np.nanmax(check["q"].values, initial=-np.inf) < TOO_SURE and check.attrs["n_spectra"]:
        yield Finding("The model expects larger errors than these spectra have", check.attrs["verdict"], _TOO_WIDE)
    yield from _single_bands(check)


_LEARN = (
    "Estimates follow what is wrong there, and intervals do not count it. Check these bands, and let the model learn "
    "from the spectra what its simulations lack: specinvert.adapt(inverter, cube, training), or specinvert adapt MODEL "
    "SCENE --training T -o found.nc, and invert with noise=found."
)
_DESCRIBE = (
    "If these spectra are simulated as those of training: train with more components or latent dimensions. If not, "
    "give both the same noise and nuisance."
)
_TOO_WIDE = "Intervals are wider than these spectra ask for: train, or invert, with less noise."


def _single_bands(check: xr.Dataset) -> Iterator[Finding]:
    found = _off_bands(check)
    if not found:
        return
    each = _some([f"{name} by {_off(ratio, offset)}" for name, ratio, offset in found])
    yield Finding(
        f"Bands are off beside their neighbours: {_some([name for name, *_ in found])}",
        f"Predicted from all other bands, they miss what was observed: {each}; 1 where the model is right.",
        "Check their calibration and the bad-band list; leave them out (specinvert.select_bands), or give them more "
        "noise.",
        found[0][1] > LARGE**2,
    )


def _off_bands(check: xr.Dataset) -> list[tuple[str, float, float]]:
    """Bands that all others do not predict, of those next to each other the worst: name, ratio and offset."""
    if BY_BAND not in check["left_out"].values:
        return []
    alone = check.sel(left_out=BY_BAND)
    bands = describe_bands(alone["residual"], str(alone["residual"].dims[0]))
    order = np.concatenate(windows_of(bands))
    ratio, offset = (np.nan_to_num(alone[name].values)[order] for name in ("ratio", "offset"))
    error = SURE / np.sqrt(max(check.attrs["n_spectra"], 1))
    bad = np.flatnonzero((np.abs(offset) > OFF + error * ratio) | (ratio > LARGE * (1.0 + error)))
    if not bad.size:
        return []
    groups = np.split(bad, np.flatnonzero(np.diff(bad) > 1) + 1)
    worst = sorted((group[np.argmax(ratio[group])] for group in groups), key=lambda i: -ratio[i])
    return [(_name(bands, int(order[i])), float(ratio[i]), float(offset[i])) for i in worst]


def _some(texts: Sequence[str]) -> str:
    """The first few of them."""
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more


def _off(error: float, offset: float) -> str:
    side = "" if abs(offset) < 0.5 * error else ", too bright" if offset > 0.0 else ", too dark"
    return f"{error:.2g} predicted standard deviations{side}"


def _mean(values: Array, axis: int | None = None) -> Any:
    """Mean of what is there, NaN where nothing is."""
    there = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0.0).sum(axis=axis) / there.sum(axis=axis))


def _spread(values: Array) -> Array:
    """Standard deviation (D,) of what is there."""
    return _root(_mean((values - _mean(values, 0)) ** 2, 0))


def _error(values: Array) -> float:
    """Standard error of the mean of what is there, NaN of fewer than two."""
    there = values[np.isfinite(values)]
    return float(there.std(ddof=1) / np.sqrt(there.size)) if there.size > 1 else np.nan


def _root(values: Array) -> Array:
    return np.asarray(np.sqrt(values))


def _quantiles(values: Array) -> Array:
    """``_QUANTILES`` (3, D) of what is there, NaN of a band without."""
    made = np.full((len(_QUANTILES), values.shape[1]), np.nan)
    some = np.isfinite(values).any(axis=0)
    made[:, some] = np.nanquantile(values[:, some], _QUANTILES, axis=0)
    return made
