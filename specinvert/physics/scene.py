"""An imaginary georeferenced scene of the mixture simulator: a cube and the truth behind it.

Every spectrum comes from `mixing.mixture_reflectance`; this module only paints the parameter maps
(snow fields, dunes, a crater with a frozen lake, drifting haze), then adds what spoils real images: noise,
pixels without data, detector columns with dead bands, saturated bands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import rioxarray  # noqa: F401  (registers the .rio accessor)
import xarray as xr
from affine import Affine
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter

from .geometry import FloatArray
from .mixing import PARAMETERS, default_wavelengths, mixture_reflectance, reflectance_attrs, wavelength_attrs

Labelled = TypeVar("Labelled", xr.DataArray, xr.Dataset)

CRS = "EPSG:32633"
PIXEL_M = 30.0
UPPER_LEFT_M = (500_000.0, 8_700_000.0)
MINIMUM_SIDE = 8


@dataclass(frozen=True)
class _Canvas:
    """Pixel positions in units of the shorter side, shape (y, x), and the source of randomness."""

    y: FloatArray
    x: FloatArray
    height: float
    width: float
    rng: np.random.Generator

    def smooth(self, scale: float) -> FloatArray:
        """Draw a random field of correlation length `scale`, stretched to 0..1."""
        noise = self.rng.standard_normal(self.y.shape)
        field: FloatArray = gaussian_filter(noise, scale * min(self.y.shape), mode="reflect")
        field -= field.min()
        field /= field.max()
        return field

    def distance(self, down: float, across: float) -> FloatArray:
        """Return the distance from a point given as shares of the scene's height and width."""
        return np.hypot(self.y - down * self.height, self.x - across * self.width)


def make_scene(
    shape: tuple[int, int] = (120, 160),
    *,
    wavelength: ArrayLike | None = None,
    noise: float = 0.005,
    seed: int = 0,
) -> tuple[xr.DataArray, xr.Dataset]:
    """Make a scene: a reflectance cube and the parameter maps it was simulated from.

    Parameters
    ----------
    shape : rows and columns, each at least 8; pixels are 30 m wide.
    wavelength : band centres in nm, shape (band,); by default `mixing.default_wavelengths()`.
    noise : standard deviation of the white noise added to the reflectance, at least 0.
    seed : of the layout and the noise; the same seed gives the same scene.

    Returns
    -------
    cube : `reflectance` (y, x, wavelength), float32, in UTM; about 7 % of the pixels are NaN in all bands, 2 % in some.
    truth : Dataset (y, x) of the parameters of every pixel, the nuisance included, also where the cube is NaN.

    Raises
    ------
    ValueError : a side is below 8 pixels, noise is negative, or a wavelength is outside the simulator's range.

    Examples
    --------
    >>> cube, truth = make_scene((20, 30))
    >>> cube.dims, sorted(truth.data_vars)
    (('y', 'x', 'wavelength'), ['dust_water', 'grain_size', 'haze', 'ice_fraction'])
    """
    if len(shape) != 2 or min(shape) < MINIMUM_SIDE:
        raise ValueError(f"shape is {tuple(shape)}; give rows and columns, each at least {MINIMUM_SIDE} pixels")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise is {noise}; it is a standard deviation in reflectance, give 0 or more")
    lam = default_wavelengths() if wavelength is None else np.asarray(wavelength, dtype=np.float64)
    side, (rows, columns) = min(shape), np.indices(shape) + 0.5
    canvas = _Canvas(rows / side, columns / side, shape[0] / side, shape[1] / side, np.random.default_rng(seed))
    values = _paint(canvas)
    spectra = mixture_reflectance(**values, wavelength=lam)
    spectra += noise * canvas.rng.standard_normal(spectra.shape)
    _spoil(spectra, canvas)

    cube = xr.DataArray(
        spectra.astype(np.float32),
        dims=("y", "x", "wavelength"),
        coords={**_grid(shape), "wavelength": ("wavelength", lam, wavelength_attrs())},
        name="reflectance",
        attrs=reflectance_attrs(),
    )
    truth = xr.Dataset(
        {name: (("y", "x"), values[name], p.attrs) for name, p in PARAMETERS.items()},
        coords=_grid(shape),
        attrs={"source": "specinvert ice and dust mixture simulator"},
    )
    return _georeference(cube), _georeference(truth)


def _paint(canvas: _Canvas) -> Mapping[str, FloatArray]:
    """Return the parameter maps (y, x): dunes to the lower left, a crater to the upper right."""
    from_crater = canvas.distance(0.34, 0.68)
    bowl = _step(0.20 - from_crater, 0.015)
    lake = _step(0.11 - from_crater - 0.05 * (canvas.smooth(0.06) - 0.5), 0.004)
    rim = np.exp(-0.5 * ((from_crater - 0.21) / 0.018) ** 2)
    ejecta = np.exp(-np.clip(from_crater - 0.21, 0.0, None) / 0.18)

    along = 0.8 * canvas.x + 0.6 * canvas.y
    crests = 0.5 + 0.5 * np.sin(2.0 * np.pi * (11.0 * along + 1.6 * canvas.smooth(0.15)))
    dunes = crests * _step(0.52 - canvas.distance(0.85, 0.2) + 0.3 * (canvas.smooth(0.1) - 0.5), 0.05)

    snow = _step(canvas.smooth(0.09) - 0.5, 0.08)
    ice = 0.25 + 0.45 * snow - 0.25 * dunes - 0.30 * rim + 0.12 * canvas.smooth(0.02)
    size = 0.20 + 0.55 * canvas.smooth(0.12) + 0.25 * dunes - 0.15 * snow
    water = 0.15 + 0.50 * canvas.smooth(0.14) + 0.35 * ejecta - 0.20 * dunes
    drift = canvas.smooth(0.2)
    haze = 0.02 + 0.30 * canvas.x / canvas.width + 0.35 * drift + 0.45 * drift * canvas.smooth(0.05)

    ice = _blend(_blend(ice, 0.35, bowl), 0.93, lake)
    size = _blend(_blend(size, 0.45, bowl), 0.92, lake)
    layout = {"ice_fraction": ice, "grain_size": size, "dust_water": water, "haze": haze}
    return {name: PARAMETERS[name].from_unit(np.clip(layout[name], 0.02, 0.98)) for name in PARAMETERS}


def _spoil(spectra: FloatArray, canvas: _Canvas) -> None:
    """Set to NaN, in place: a slanted swath edge and cloud holes (all bands), dead and saturated bands."""
    rows, columns, bands = spectra.shape
    dead = slice(bands // 3, bands // 3 + max(1, bands // 12))
    spectra[:, columns // 3, dead] = np.nan
    other_dead = slice(3 * bands // 4, 3 * bands // 4 + max(1, bands // 20))
    spectra[rows // 2 :, 4 * columns // 5, other_dead] = np.nan
    saturated = canvas.rng.random((rows, columns)) < 0.01
    spectra[saturated, : max(1, bands // 10)] = np.nan

    missing = canvas.x < 0.07 * canvas.width - 0.09 * canvas.y
    for down, across, radius in ((0.15, 0.33, 0.06), (0.72, 0.82, 0.09), (0.66, 0.90, 0.05)):
        ragged = radius * (0.7 + 0.6 * canvas.smooth(0.03))
        missing |= canvas.distance(down, across) < ragged
    spectra[missing] = np.nan


def _step(signed: FloatArray, softness: float) -> FloatArray:
    """Return 0 where signed is far below zero, 1 far above, smooth over `softness`."""
    return 0.5 * (1.0 + np.tanh(signed / softness))


def _blend(background: FloatArray, value: float, cover: FloatArray) -> FloatArray:
    return background + cover * (value - background)


def _grid(shape: tuple[int, int]) -> dict[str, tuple[str, np.ndarray]]:
    """Coordinates of the pixel centres in metres, north up."""
    left, top = UPPER_LEFT_M
    return {
        "y": ("y", top - PIXEL_M * (np.arange(shape[0]) + 0.5)),
        "x": ("x", left + PIXEL_M * (np.arange(shape[1]) + 0.5)),
    }


def _georeference(labelled: Labelled) -> Labelled:
    """Attach the CRS, the transform and the CF attributes of x and y."""
    left, top = UPPER_LEFT_M
    transform = Affine(PIXEL_M, 0.0, left, 0.0, -PIXEL_M, top)
    placed: Labelled = labelled.rio.write_crs(CRS).rio.write_transform(transform).rio.write_coordinate_system()
    return placed
