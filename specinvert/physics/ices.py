"""A training set of polar surfaces: grains of water ice, carbon dioxide ice and dust, mixed.

The user supplies the optical constants; grains come from `optics`, reflectance from `hapke`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .geometry import FloatArray, Geometry
from .hapke import hapke_reflectance
from .mixing import MixtureParameter, reflectance_attrs, wavelength_attrs, with_ranges
from .optics import areal_mixture, grain_albedo, intimate_mixture, refractive_index
from .phase import ISOTROPIC, PhaseFunction

CONSTITUENTS = ("water_ice", "co2_ice", "dust")
"""Names of the constituents, which are those of their optical constants and of their shares."""

_SHARE = partial(MixtureParameter, 0.0006, 0.002, "1", limits=(0.0, 1.0))
_SIZE = partial(MixtureParameter, units="um", log_uniform=True, limits=(1e-3, 1e9))
PARAMETERS: Mapping[str, MixtureParameter] = MappingProxyType(
    {
        "water_ice": _SHARE("share of water ice"),
        "dust": _SHARE("share of dust"),
        "water_grain_size": _SIZE(50.0, 450.0, long_name="grain diameter of water ice"),
        "co2_grain_size": _SIZE(1e3, 1e5, long_name="grain diameter of carbon dioxide ice"),
    }
)
"""What is drawn, and where; the share of carbon dioxide ice is the rest."""

_BLOCK = 4096


def default_wavelengths() -> FloatArray:
    """Return 184 band centres from 950 to 4150 nm, shape (band,).

    Examples
    --------
    >>> default_wavelengths().shape
    (184,)
    """
    return np.linspace(950.0, 4150.0, 184)


def simulate_polar_ices(
    n_samples: int,
    constants: Mapping[str, xr.Dataset],
    *,
    wavelength: ArrayLike | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    dust_diameter: float = 10.0,
    mixture: str = "intimate",
    geometry: Geometry | None = None,
    phase: PhaseFunction = ISOTROPIC,
    theta_bar: float = 0.0,
    variant: str = "2002",
    chunks: int | None = None,
    seed: int = 0,
) -> xr.Dataset:
    """Make a training set of icy and dusty surfaces.

    Shares of water ice and dust are drawn uniformly from their ranges, among those that leave no less than 0 for
    carbon dioxide ice; grain sizes evenly in their logarithm.

    Parameters
    ----------
    n_samples : how many spectra, at least 1.
    constants : optical constants of "water_ice", "co2_ice" and "dust", each as `optics.refractive_index` takes them.
    wavelength : band centres in nm, shape (band,); by default `default_wavelengths()`.
    ranges : other ranges (low, high) for some of `PARAMETERS`.
    dust_diameter : grain diameter of the dust in um.
    mixture : "intimate": shares are of the grain volume, constituents mixed grain by grain; "areal": shares are of the
        area, patches side by side.
    geometry : one direction of light and observer; by default 60 degrees of incidence, seen from the normal.
    phase, theta_bar, variant : as in `hapke.hapke_reflectance`.
    chunks : spectra a dask chunk, for spectra that are computed when asked for; None for spectra in memory, made 4096
        at a time.
    seed : of the draws, which depend on nothing else but n_samples and ranges.

    Returns
    -------
    Dataset with `reflectance` (sample, wavelength), a reflectance factor, and over sample, with units and long names:
    `water_ice`, `co2_ice`, `dust` (which sum to 1), `water_grain_size`, `co2_grain_size`. No noise is added.

    Raises
    ------
    ValueError : an argument is out of range, or constants are missing or do not cover the bands.

    Examples
    --------
    >>> from specinvert.physics.optics import optical_constants
    >>> grey = {name: optical_constants([0.9, 4.2], 1.4, 1e-5, units="um") for name in CONSTITUENTS}
    >>> dict(simulate_polar_ices(10, grey).sizes)
    {'sample': 10, 'wavelength': 184}
    """
    if n_samples < 1:
        raise ValueError(f"n_samples is {n_samples}; ask for at least 1 spectrum")
    if chunks is not None and chunks < 1:
        raise ValueError(f"chunks is {chunks}; give the number of spectra a chunk, at least 1, or None")
    if not dust_diameter > 0:
        raise ValueError(f"dust_diameter is {dust_diameter} um; it must be above 0")
    if mixture not in ("intimate", "areal"):
        raise ValueError(f"mixture is {mixture!r}; choose 'intimate' or 'areal'")
    direction = Geometry(60.0, 0.0) if geometry is None else geometry
    if direction.shape != ():
        raise ValueError(f"geometry has shape {direction.shape}; a training set has one, give numbers")
    missing = [name for name in CONSTITUENTS if name not in constants]
    if missing:
        raise ValueError(f"constants lack {', '.join(missing)}; give {', '.join(CONSTITUENTS)}")
    lam = default_wavelengths() if wavelength is None else np.asarray(wavelength, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0:
        raise ValueError(f"wavelength has shape {lam.shape}; give a non-empty list of band centres in nm")

    parameters = with_ranges(PARAMETERS, ranges)
    minor = (parameters["water_ice"], parameters["dust"])
    least, drawn = sum(p.low for p in minor), any(p.low < p.high for p in minor)
    if least > 1.0 or (least == 1.0 and drawn):
        raise ValueError(f"water_ice and dust are at least {least:g} together; leave room within 1")
    values = _draw(parameters, n_samples, np.random.default_rng(seed))
    model = partial(
        _spectra,
        index={name: refractive_index(constants[name], lam, name=name) for name in CONSTITUENTS},
        wavelength=lam,
        dust_diameter=dust_diameter,
        mixture=mixture,
        reflectance=partial(hapke_reflectance, geometry=direction, phase=phase, theta_bar=theta_bar, variant=variant),
    )
    model(np.array([[0.0, 1.0, 0.0, 100.0, 1e4]]))  # a bad name or slope is told before the long work
    table = np.stack(list(values.values()), axis=1)
    attrs = {name: p.attrs for name, p in parameters.items()}
    attrs["co2_ice"] = {"units": "1", "long_name": "share of carbon dioxide ice"}
    return xr.Dataset(
        {
            "reflectance": (("sample", "wavelength"), _in_blocks(model, table, lam.size, chunks), reflectance_attrs()),
            **{name: ("sample", values[name], attrs[name]) for name in values},
        },
        coords={"wavelength": ("wavelength", lam, wavelength_attrs())},
        attrs={"source": "specinvert polar ice and dust simulator"},
    )


def _draw(parameters: Mapping[str, MixtureParameter], n: int, rng: np.random.Generator) -> dict[str, FloatArray]:
    """The three shares and the two grain sizes, (n,) each, in the order that `_spectra` takes them."""
    water, dust = (p.from_unit(rng.random(n)) for p in (parameters["water_ice"], parameters["dust"]))
    while (over := water + dust > 1.0).any():
        count = int(over.sum())
        water[over], dust[over] = (
            p.from_unit(rng.random(count)) for p in (parameters["water_ice"], parameters["dust"])
        )
    sizes = {name: parameters[name].from_unit(rng.random(n)) for name in ("water_grain_size", "co2_grain_size")}
    return {"water_ice": water, "co2_ice": 1.0 - water - dust, "dust": dust, **sizes}


def _spectra(
    table: FloatArray,
    *,
    index: Mapping[str, NDArray[np.complex128]],
    wavelength: FloatArray,
    dust_diameter: float,
    mixture: str,
    reflectance: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Spectra (n, band) of rows of the three shares and the two grain sizes."""
    water, carbon, dust, water_size, carbon_size = table.T[:, :, np.newaxis]
    shares = [water, np.clip(carbon, 0.0, 1.0), dust]
    sizes = [water_size, carbon_size, np.array([[dust_diameter]])]
    albedo = [grain_albedo(index[name], size, wavelength) for name, size in zip(CONSTITUENTS, sizes, strict=True)]
    if mixture == "intimate":
        return reflectance(intimate_mixture(albedo, shares, sizes))
    return areal_mixture([reflectance(w) for w in albedo], shares)


def _in_blocks(model: Callable[[FloatArray], FloatArray], table: FloatArray, bands: int, chunks: int | None) -> Any:
    if chunks is not None:
        import dask.array as da

        rows = da.from_array(table, chunks=(chunks, table.shape[1]))
        return rows.map_blocks(model, chunks=(rows.chunks[0], (bands,)), dtype=np.float64, meta=np.empty((0, 0)))
    spectra = np.empty((len(table), bands))
    for start in range(0, len(table), _BLOCK):
        spectra[start : start + _BLOCK] = model(table[start : start + _BLOCK])
    return spectra
