"""What ``train`` does to spectra before the fit: a sensor's bands, bands left out, noise and nuisances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .values import noise_by_band, open_sensor, read_noise, read_nuisances, read_ranges, select

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Preparation:
    """Options read and checked, ready for the training set."""

    sensor: Any
    bands: str | None
    exclude: str | None
    noise: Any
    nuisance: Any
    spectra: str | None
    band_dim: str | None

    @classmethod
    def of(
        cls,
        sensor: Path | None,
        bands: str | None,
        exclude: str | None,
        noise: str | None,
        nuisance: Iterable[str],
        spectra: str | None,
        band_dim: str | None,
    ) -> Preparation:
        """Read files and check what can be checked without the training set."""
        read_ranges("--bands", bands)
        read_ranges("--exclude", exclude)
        opened = None if sensor is None else open_sensor(sensor)
        return cls(opened, bands, exclude, read_noise(noise), read_nuisances(nuisance), spectra, band_dim)

    def apply(self, training: xr.Dataset) -> tuple[xr.Dataset, Any]:
        """The training set with the bands to use, and the noise for ``fit``: None, numbers or a nuisance."""
        from ..nuisance import Noise

        if self.sensor is None:
            training = select(
                training, self.bands, self.exclude, good_only=False, spectra=self.spectra, band_dim=self.band_dim
            )
        else:
            training = to_sensor(
                training, self.sensor, self.bands, self.exclude, spectra=self.spectra, band_dim=self.band_dim
            )
        noise = noise_by_band(self.noise, training, self.spectra, self.band_dim)
        if self.nuisance is None:
            return training, noise
        return training, self.nuisance if noise is None else self.nuisance | Noise(white=noise)


def with_noise(data: xr.Dataset, noise: str | None, spectra: str | None, band_dim: str | None, seed: int) -> xr.Dataset:
    """The data with a draw of the noise of ``--add-noise`` on every spectrum, or as they are without it."""
    if noise is None:
        return data
    from ..nuisance import Noise, apply

    deviation = noise_by_band(read_noise(noise), data, spectra, band_dim)
    return apply(data, Noise(white=deviation), seed=seed, spectra=spectra, band_dim=band_dim, rechunk="auto")


def to_sensor(
    training: xr.Dataset,
    sensor: Any,
    bands: str | None,
    exclude: str | None,
    *,
    good_only: bool = True,
    spectra: str | None = None,
    band_dim: str | None = None,
    uncovered: str = "raise",
) -> xr.Dataset:
    """Spectra averaged to those bands of the sensor that the ranges leave, in memory or lazily."""
    import xarray as xr

    from ..cubes.resampling import resample

    table = isinstance(sensor, xr.Dataset) and "fwhm" not in sensor.variables
    if not table:
        centres = sensor.set_coords("fwhm")["fwhm"] if isinstance(sensor, xr.Dataset) else sensor
        sensor = select(centres, bands, exclude, good_only=good_only)
    training = resample(
        training,
        sensor,
        spectra=spectra,
        band_dim=band_dim,
        uncovered=uncovered,
        good_only=good_only,
        rechunk="auto",
    )
    return select(training, bands, exclude, good_only=False, spectra=spectra, band_dim=band_dim) if table else training
