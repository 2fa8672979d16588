"""A training set of reflectances seen from many directions: Hapke's model at the geometries of an instrument.

The geometries take the place of bands.  Imports NumPy and xarray; the model is `hapke`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .geometry import Geometry
from .hapke import QUANTITIES, hapke_reflectance
from .mixing import MixtureParameter, with_ranges
from .phase import HenyeyGreenstein

FloatArray = NDArray[np.float64]

PARAMETERS: Mapping[str, MixtureParameter] = MappingProxyType(
    {
        "w": MixtureParameter(0.0, 1.0, "1", "single-scattering albedo"),
        "theta_bar": MixtureParameter(0.0, 35.0, "degree", "mean slope angle"),
        "b": MixtureParameter(0.0, 0.9, "1", "width of the phase function's lobes"),
        "c": MixtureParameter(0.0, 1.0, "1", "share of the backward lobe"),
        "b0": MixtureParameter(0.0, 1.0, "1", "amplitude of the opposition effect"),
        "h": MixtureParameter(0.02, 1.0, "1", "width of the opposition effect"),
    }
)
"""Hapke's parameters and the ranges `simulate_brdf` draws from."""

_LIMITS = {
    "w": (0.0, 1.0),
    "theta_bar": (0.0, 89.0),
    "b": (0.0, 0.99),
    "c": (0.0, 1.0),
    "b0": (0.0, np.inf),
    "h": (1e-6, np.inf),
}
_BLOCK = 4096


def brdf(
    parameters: Mapping[str, FloatArray], geometry: Geometry, *, variant: str = "2002", quantity: str = "reff"
) -> FloatArray:
    """Reflectance at every geometry for Hapke's six parameters.

    Parameters
    ----------
    parameters
        `w`, `theta_bar` (degrees), `b`, `c`, `b0`, `h`: numbers or arrays that broadcast, shape (...).
    geometry
        Directions, shape (geometry,).
    variant, quantity
        As in `hapke.hapke_reflectance`.

    Returns
    -------
    Shape (..., geometry).

    Raises
    ------
    ValueError
        If a parameter is missing or outside its range.

    Examples
    --------
    >>> parameters = {"w": 0.5, "theta_bar": 10.0, "b": 0.3, "c": 0.4, "b0": 1.0, "h": 0.1}
    >>> brdf(parameters, Geometry(30.0, [0.0, 30.0], 0.0)).round(3).tolist()
    [0.133, 0.229]
    """
    missing = [name for name in PARAMETERS if name not in parameters]
    if missing:
        raise ValueError(f"parameters lack {', '.join(missing)}; give {', '.join(PARAMETERS)}")
    p = {name: np.asarray(parameters[name], dtype=np.float64)[..., np.newaxis] for name in PARAMETERS}
    return hapke_reflectance(
        p["w"],
        geometry,
        phase=HenyeyGreenstein(p["b"], p["c"]),
        opposition=(p["b0"], p["h"]),
        theta_bar=p["theta_bar"],
        variant=variant,
        quantity=quantity,
    )


def simulate_brdf(
    n_samples: int,
    geometry: Geometry,
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    variant: str = "2002",
    quantity: str = "reff",
    seed: int = 0,
) -> xr.Dataset:
    """Make a training set of reflectances over geometries, parameters drawn evenly from their ranges.

    Parameters
    ----------
    n_samples
        How many, at least 1.
    geometry
        Directions, shape (geometry,).
    ranges
        Other ranges (low, high) for some of `PARAMETERS`; equal for a constant.
    variant, quantity
        As in `hapke.hapke_reflectance`.
    seed
        Of the draws.

    Returns
    -------
    Dataset with `reflectance` (sample, geometry), `w`, `theta_bar`, `b`, `c`, `b0`, `h` over sample with units and long
    names, and the angles as coordinates of geometry in degrees.  No noise is added.  Train with
    `GLLiMInverter().fit(training, band_dim="geometry")`.

    Raises
    ------
    ValueError
        If n_samples is below 1, the geometry is not a list, or a range is out of the model's limits.

    Examples
    --------
    >>> dict(simulate_brdf(5, Geometry(30.0, [0.0, 30.0, 60.0])).sizes)
    {'sample': 5, 'geometry': 3}
    """
    if n_samples < 1:
        raise ValueError(f"n_samples is {n_samples}; ask for at least 1")
    if len(geometry.shape) != 1 or geometry.shape[0] == 0:
        raise ValueError(f"geometry has shape {geometry.shape}; give a non-empty list of directions")
    chosen = with_ranges(PARAMETERS, _LIMITS, ranges)
    draws = np.random.default_rng(seed).random((len(chosen), n_samples))
    values = {name: p.from_unit(u) for (name, p), u in zip(chosen.items(), draws, strict=True)}
    spectra = np.empty((n_samples, geometry.shape[0]))
    for start in range(0, n_samples, _BLOCK):
        rows = slice(start, start + _BLOCK)
        part = {name: value[rows] for name, value in values.items()}
        spectra[rows] = brdf(part, geometry, variant=variant, quantity=quantity)
    units = "1" if quantity in ("reff", "radf") else "sr-1"
    return xr.Dataset(
        {
            "reflectance": (("sample", "geometry"), spectra, {"units": units, "long_name": QUANTITIES[quantity]}),
            **{name: ("sample", values[name], p.attrs) for name, p in chosen.items()},
        },
        coords=geometry_coordinates(geometry),
        attrs={"source": f"specinvert Hapke BRDF simulator, variant {variant}"},
    )


def geometry_coordinates(geometry: Geometry) -> dict[str, tuple[str, FloatArray, dict[str, str]]]:
    """Coordinates of a list of directions along `geometry`, in degrees.

    Examples
    --------
    >>> list(geometry_coordinates(Geometry([30.0, 30.0], [0.0, 30.0], 0.0)))
    ['incidence', 'emergence', 'azimuth']
    """
    angles = {
        "incidence": (geometry.incidence, "angle of the incident light from the normal"),
        "emergence": (geometry.emergence, "angle of the observer from the normal"),
        "azimuth": (geometry.azimuth, "angle between the planes of incidence and emergence"),
    }
    return {name: ("geometry", a, {"units": "degree", "long_name": text}) for name, (a, text) in angles.items()}
