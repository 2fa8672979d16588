"""The cube as a picture: three bands near red, green and blue, or one in grey, stretched to be seen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product

import numpy as np
import xarray as xr

from specinvert.cubes.bands import Bands, describe_bands
from specinvert.diagnostics.layout import robust_limits
from specinvert.diagnostics.wording import legible

from .axes import Window
from .maps import tile_lengths, tiles

COLOURS = (640.0, 550.0, 470.0)
"""Wavelengths in nm of red, green and blue."""
_NEAR = 60.0
"""Nanometres from one of these at which a band still stands for it."""
_BLANK = 0xD1


class Picture:
    """A picture of spectra over ``dims``, the vertical and the horizontal dimension.

    Each band is stretched from its 2nd to its 98th percentile in the first view. Bands marked bad are not taken.
    """

    def __init__(self, spectra: xr.DataArray, band_dim: str, dims: Sequence[str], fill: float | None = None) -> None:
        self.spectra, self.band_dim, self.dims, self.fill = spectra, band_dim, tuple(dims), fill
        bands = describe_bands(spectra, band_dim)
        good = spectra["good"].values if "good" in spectra.coords and spectra["good"].dims == (band_dim,) else None
        self.chosen, self.title = _choose(bands, good)
        self._limits: list[tuple[float, float]] = []

    def read(self, windows: Sequence[Window], selection: Mapping[Hashable, int]) -> np.ndarray:
        """Colours (rows, columns) as uint32 of the pixels that the windows show, grey where there is no data.

        Read in tiles, at the entry of dimensions beside the pixels that ``selection`` names.
        """
        values = self._values(windows, selection)
        if not self._limits:
            self._limits = [robust_limits(values[..., i]) for i in range(values.shape[-1])]
        low, high = np.array(self._limits).T
        there = np.isfinite(values).all(axis=-1)
        levels = np.clip((np.where(there[..., None], values, low) - low) / (high - low), 0.0, 1.0)
        shown = np.full((*there.shape, 4), 255, dtype=np.uint8)
        shown[..., :3] = np.where(there[..., None], np.round(255 * levels), _BLANK)
        return shown.view(np.uint32)[..., 0]

    def _values(self, windows: Sequence[Window], selection: Mapping[Hashable, int]) -> np.ndarray:
        beside = {d: selection.get(d, 0) for d in self.spectra.dims if d not in (*self.dims, self.band_dim)}
        flat = self.spectra.isel(beside).transpose(*self.dims, self.band_dim)
        blocks = flat.variable.chunksizes
        chunks = [max(blocks.get(dim, (1,))) for dim in self.dims]
        size = flat.dtype.itemsize * flat.sizes[self.band_dim]
        out = np.empty([*(len(window.indices) for window in windows), len(self.chosen)])
        lengths = tile_lengths(windows, chunks, size)
        parts = (list(tiles(window, length)) for window, length in zip(windows, lengths, strict=True))
        flat = flat.isel({self.band_dim: self.chosen})
        for tile in product(*parts):
            spans = {dim: slice(i[0], i[-1] + 1) for dim, (_, i) in zip(self.dims, tile, strict=True)}
            block = flat.isel(spans).values
            out[tuple(place for place, _ in tile)] = block[np.ix_(*(i - i[0] for _, i in tile))]
        return out if self.fill is None else np.where(out == self.fill, np.nan, out)


def _choose(bands: Bands, good: np.ndarray | None) -> tuple[list[int], str]:
    """Bands that stand for red, green and blue, or one in the middle, and what they are."""
    usable = np.arange(bands.size) if good is None or not good.any() else np.flatnonzero(good)
    if bands.wavelength is None:
        middle = int(usable[usable.size // 2])
        name = f"number {middle}" if bands.labels is None else legible(bands.labels[middle])
        return [middle], f"image of the cube: band {name}"
    wavelength = np.where(np.isin(np.arange(bands.size), usable), bands.wavelength, np.inf)
    nearest = [int(np.argmin(np.abs(wavelength - colour))) for colour in COLOURS]
    if all(abs(wavelength[i] - colour) <= _NEAR for i, colour in zip(nearest, COLOURS, strict=True)):
        shown = ", ".join(f"{wavelength[i]:.4g}" for i in nearest)
        return nearest, f"image of the cube: red, green, blue at {shown} nm"
    middle = int(usable[np.argsort(wavelength[usable], kind="stable")[usable.size // 2]])
    return [middle], f"image of the cube: {wavelength[middle]:.4g} nm"
