"""Reflectance of a grainy mixture of water ice and wet dust seen through haze, 0.8 to 2.6 um.

A small analytic simulator for demonstrations and tests: smooth, fast and vectorised, yet with the
traits that make real retrievals hard (bands that saturate, constituents that mask each other, a
nuisance with a spectral shape of its own).

The steps, for grains of diameter D at wavelength lam:

1. absorption: ice has a sum of Gaussian bands, coefficient alpha(lam) in 1/um, fitted here to the
   compilation of Warren & Brandt (2008, J. Geophys. Res. 113, D14220) to about 25 %; dust has an
   optical depth a grain that falls with wavelength (its red slope), a ferric band at 950 nm and
   hydration bands at 1420, 1930 and 2450 nm proportional to its water content;
2. a grain's single-scattering albedo w from the Bouguer transmission exp(-alpha D) and Fresnel-like
   surface reflections, the equivalent-slab form of Hapke (1981, J. Geophys. Res. 86, 3039);
3. intimate mixing: albedos average by share of geometric cross-section;
4. the diffusive reflectance r = (1 - gamma) / (1 + gamma), gamma = sqrt(1 - w), of the same paper;
5. a thin haze above, of optical depth tau at 1000 nm falling as lam**-1.3: the surface is seen with
   two-way transmission exp(-2 tau) and the rest is filled by the haze's own grey brightness.

What other simulators share stands here, too: their parameters, the ranges to draw them from, the attributes of spectra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from .geometry import FloatArray, refuse

VALID_WAVELENGTHS_NM = (800.0, 2600.0)

# centre (nm), standard deviation (nm), peak absorption (1/um)
_ICE_BANDS = np.array(
    [
        (1054.0, 77.0, 2.1e-5),
        (1260.0, 53.0, 1.3e-4),
        (1346.0, 26.0, 6.5e-5),
        (1512.0, 43.0, 4.2e-3),
        (1661.0, 110.0, 1.7e-3),
        (1989.0, 44.0, 5.8e-3),
        (2034.0, 83.0, 6.0e-3),
        (2516.0, 160.0, 3.8e-3),
    ]
)
_ICE_FLOOR_PER_UM = 2.1e-6
_ICE_INDEX = 1.3

# centre (nm), standard deviation (nm), optical depth a grain (hydration: for each percent of water)
_FERRIC_BAND = np.array([(950.0, 90.0, 0.10)])
_HYDRATION_BANDS = np.array([(1420.0, 35.0, 0.018), (1930.0, 50.0, 0.052), (2450.0, 120.0, 0.030)])
_DUST_CONTINUUM = 0.22
_DUST_SLOPE = 1.2
_DUST_INDEX = 1.6

_HAZE_BRIGHTNESS = 0.38
_HAZE_SLOPE = 1.3


@dataclass(frozen=True)
class Parameter:
    """One parameter of a simulator: its training range, drawn from evenly, its labels, and what the model takes."""

    low: float
    high: float
    units: str
    long_name: str
    limits: tuple[float, float] = field(default=(0.0, np.inf), kw_only=True)

    def from_unit(self, fraction: ArrayLike) -> FloatArray:
        """Map numbers in 0..1 (any shape) onto how the parameter is drawn."""
        return self.low + (self.high - self.low) * np.asarray(fraction, dtype=np.float64)

    @property
    def attrs(self) -> dict[str, str]:
        """Attributes of a variable that holds this parameter."""
        return {"units": self.units, "long_name": self.long_name}


@dataclass(frozen=True)
class MixtureParameter(Parameter):
    """One parameter of a simulator, drawn evenly from its training range, or evenly in the logarithm."""

    log_uniform: bool = False

    def from_unit(self, fraction: ArrayLike) -> FloatArray:
        """Map numbers in 0..1 (any shape) onto low..high, evenly or evenly in the logarithm."""
        if self.log_uniform:
            return self.low * (self.high / self.low) ** np.asarray(fraction, dtype=np.float64)
        return super().from_unit(fraction)


PARAMETERS: Mapping[str, MixtureParameter] = MappingProxyType(
    {
        "ice_fraction": MixtureParameter(0.1, 0.95, "1", "ice share of the grain cross-section"),
        "grain_size": MixtureParameter(30.0, 600.0, "um", "ice grain diameter", log_uniform=True),
        "dust_water": MixtureParameter(0.0, 12.0, "percent", "water content of the dust by mass"),
        "haze": MixtureParameter(0.0, 0.5, "1", "haze optical depth at 1000 nm"),
    }
)
"""The simulator's parameters and the ranges `simulate_mixtures` draws from, in forward-model order."""

NUISANCE = "haze"
"""The parameter meant to be left out of training, for the latent dimensions to absorb."""


def default_wavelengths() -> FloatArray:
    """Return the default band centres: 121 of them, 900 to 2500 nm, shape (band,).

    Examples
    --------
    >>> default_wavelengths().shape
    (121,)
    """
    return np.linspace(900.0, 2500.0, 121)


def mixture_reflectance(
    ice_fraction: ArrayLike,
    grain_size: ArrayLike,
    dust_water: ArrayLike,
    haze: ArrayLike,
    wavelength: ArrayLike,
) -> FloatArray:
    """Reflectance spectra of ice and dust grains under haze.

    Parameters
    ----------
    ice_fraction : share of the grain cross-section that is ice, 0 to 1; the rest is dust.
    grain_size : ice grain diameter in um, at least 0.
    dust_water : water content of the dust in percent of mass, 0 to 100.
    haze : optical depth of the haze at 1000 nm, at least 0.
    wavelength : band centres in nm, shape (band,), within 800 to 2600.

    Returns
    -------
    Reflectance in 0..1, shape (..., band), where ... is the broadcast shape of the four parameters.
    A NaN parameter gives a NaN spectrum.

    Raises
    ------
    ValueError : a parameter or a wavelength is outside its physical range, or shapes do not broadcast.

    Examples
    --------
    >>> mixture_reflectance(0.5, [50.0, 500.0], 4.0, 0.1, [1250.0, 1500.0, 2000.0]).shape
    (2, 3)
    """
    lam = _checked_wavelength(wavelength)
    fraction = _checked("ice_fraction", ice_fraction, 0.0, 1.0)
    diameter = _checked("grain_size", grain_size, 0.0, np.inf)
    water = _checked("dust_water", dust_water, 0.0, 100.0)
    depth = _checked("haze", haze, 0.0, np.inf)

    ice = _grain_albedo(diameter * (_ICE_FLOOR_PER_UM + _gaussians(_ICE_BANDS, lam)), _ICE_INDEX)
    dry = _DUST_CONTINUUM * (lam / 1000.0) ** -_DUST_SLOPE + _gaussians(_FERRIC_BAND, lam)
    dust = _grain_albedo(dry + water * _gaussians(_HYDRATION_BANDS, lam), _DUST_INDEX)

    gamma = np.sqrt(1.0 - (fraction * ice + (1.0 - fraction) * dust))
    surface = (1.0 - gamma) / (1.0 + gamma)
    transmission = np.exp(-2.0 * depth * (lam / 1000.0) ** -_HAZE_SLOPE)
    return _HAZE_BRIGHTNESS + transmission * (surface - _HAZE_BRIGHTNESS)


def simulate_mixtures(
    n_samples: int,
    *,
    wavelength: ArrayLike | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> xr.Dataset:
    """Make a training set: random parameters within `PARAMETERS` and their spectra.

    Parameters
    ----------
    n_samples : how many spectra, at least 1.
    wavelength : band centres in nm, shape (band,); by default `default_wavelengths()`.
    noise : standard deviation of the white noise added to the reflectance, at least 0.
    seed : of the random draws; the parameters do not depend on `noise` or `wavelength`.

    Returns
    -------
    Dataset with `reflectance` (sample, wavelength), the coordinate `wavelength` in nm, and one variable
    (sample) for each of `PARAMETERS`, the nuisance included, with `units` and `long_name`.

    Raises
    ------
    ValueError : n_samples is below 1, noise is negative, or a wavelength is out of range.

    Examples
    --------
    >>> training = simulate_mixtures(100, noise=0.01)
    >>> dict(training.sizes)
    {'sample': 100, 'wavelength': 121}
    """
    if n_samples < 1:
        raise ValueError(f"n_samples is {n_samples}; ask for at least 1 spectrum")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise is {noise}; it is a standard deviation in reflectance, give 0 or more")
    lam = default_wavelengths() if wavelength is None else _checked_wavelength(wavelength)
    rng = np.random.default_rng(seed)
    draws = rng.random((len(PARAMETERS), n_samples))
    values = {name: p.from_unit(u) for (name, p), u in zip(PARAMETERS.items(), draws, strict=True)}
    spectra = mixture_reflectance(**values, wavelength=lam)
    spectra += noise * rng.standard_normal(spectra.shape)
    return xr.Dataset(
        {
            "reflectance": (("sample", "wavelength"), spectra, reflectance_attrs()),
            **{name: ("sample", values[name], p.attrs) for name, p in PARAMETERS.items()},
        },
        coords={"wavelength": ("wavelength", lam, wavelength_attrs())},
        attrs={"source": "specinvert ice and dust mixture simulator"},
    )


def reflectance_attrs() -> dict[str, str]:
    """Attributes of a simulated reflectance variable."""
    return {"units": "1", "long_name": "simulated reflectance"}


def wavelength_attrs() -> dict[str, str]:
    """Attributes of the wavelength coordinate."""
    return {"units": "nm", "long_name": "band centre wavelength", "standard_name": "radiation_wavelength"}


def _checked_wavelength(wavelength: ArrayLike) -> FloatArray:
    lam = np.asarray(wavelength, dtype=np.float64)
    low, high = VALID_WAVELENGTHS_NM
    if lam.ndim != 1 or lam.size == 0:
        raise ValueError(f"wavelength has shape {lam.shape}; give a non-empty list of band centres in nm")
    outside = ~((lam >= low) & (lam <= high))
    refuse(lam, outside, f"wavelength {{:g}} is outside {low:g} to {high:g} nm; the simulator covers no more")
    return lam


def _checked(name: str, values: ArrayLike, low: float, high: float) -> FloatArray:
    """Return values with a trailing band axis, or raise if one is outside low..high."""
    array = np.asarray(values, dtype=np.float64)
    bound = f"within {low:g} to {high:g}" if np.isfinite(high) else f"at least {low:g}"
    refuse(array, (array < low) | (array > high), f"{name} is {{:g}}; it must be {bound}")
    return array[..., np.newaxis]


def _gaussians(bands: FloatArray, lam: FloatArray) -> FloatArray:
    """Sum of Gaussian bands (rows: centre, standard deviation, peak) at lam, shape (band,)."""
    centre, width, peak = bands[:, :, np.newaxis].transpose(1, 0, 2)
    total: FloatArray = np.sum(peak * np.exp(-0.5 * ((lam - centre) / width) ** 2), axis=0)
    return total


def _grain_albedo(optical_depth: FloatArray, index: float) -> FloatArray:
    """Single-scattering albedo of a grain of given absorption optical depth and refractive index."""
    external = ((index - 1.0) / (index + 1.0)) ** 2 + 0.05
    internal = 1.0 - 4.0 / (index * (index + 1.0) ** 2)
    transmitted = np.exp(-optical_depth)
    scattered = (1.0 - external) * (1.0 - internal) * transmitted / (1.0 - internal * transmitted)
    return external + scattered


def with_ranges(
    parameters: Mapping[str, MixtureParameter], ranges: Mapping[str, tuple[float, float]] | None
) -> dict[str, MixtureParameter]:
    """Return the parameters with other ranges for some.

    Parameters
    ----------
    parameters : what the simulator draws, with the ranges it draws from by default.
    ranges : (low, high) by name; equal for a constant.

    Raises
    ------
    ValueError : a name is unknown, or a range is not two numbers, outside the limits or upside down.
    """
    chosen = dict(parameters)
    for name, given in (ranges or {}).items():
        if name not in parameters:
            raise ValueError(f"ranges names {name!r}; choose from {', '.join(parameters)}")
        try:
            low, high = map(float, given)
        except (TypeError, ValueError):
            raise ValueError(f"range of {name} is {given!r}; give two numbers (low, high)") from None
        least, most = parameters[name].limits
        if not least <= low <= high <= most:
            raise ValueError(f"range of {name} is {low:g} to {high:g}; give low <= high within {least:g} to {most:g}")
        chosen[name] = replace(chosen[name], low=low, high=high)
    return chosen
