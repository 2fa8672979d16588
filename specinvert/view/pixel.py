"""One pixel in full: what the maps hold there, its spectrum, and what the model says of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from specinvert.cubes.bands import describe_bands, find_band_dim
from specinvert.cubes.labels import find_spectra
from specinvert.cubes.request import Request, read_request
from specinvert.diagnostics.band_axis import BandAxis
from specinvert.diagnostics.entries import entry_text
from specinvert.diagnostics.layout import units_of
from specinvert.diagnostics.marginals import Marginal, intervals, marginals, needed_outputs
from specinvert.diagnostics.metrics import paired
from specinvert.diagnostics.spectrum_plots import noise_variance

from .given import Given
from .maps import Layer, MapSource
from .picture import Picture

if TYPE_CHECKING:
    from specinvert.inverter import GLLiMInverter

NO_CUBE = "No cube was given, so there is no spectrum to show: start the viewer with one."
NO_MODEL = "No model was given, so there is no fit and no posterior: start the viewer with the model of the maps."
TOO_FEW = "Too few bands of this spectrum are valid to invert it."
INTERVAL = "A parameter is known by an interval: fit, residuals and densities are not to be had with it."
OTHER_VALUES = (
    "The maps hold other values here than the model gives: they were made with other noise, known parameters or bands, "
    "or of another cube."
)
_SAME = 1e-2
"""Share of the standard deviation by which a value of the maps may differ from that of a click."""


@dataclass(frozen=True)
class Stored:
    """A value of the maps, with its standard deviation where they hold one.

    ``current`` where it is of the entry of further dimensions, such as time, that the pixel is read at.
    """

    layer: Layer
    value: float
    std: float | None
    current: bool = True


@dataclass(frozen=True)
class Spectrum:
    """Observed and fitted values (D,), and the standard deviation (D,) of the noise, along the bands of ``axis``."""

    axis: BandAxis
    observed: np.ndarray
    fitted: np.ndarray | None = None
    deviation: np.ndarray | None = None


@dataclass(frozen=True)
class Inversion:
    """What the model says: outputs ``found``, the ``posterior`` mixture, and the density of each parameter.

    Without the mixture where a parameter is known by an interval.
    """

    found: xr.Dataset
    posterior: xr.Dataset | None
    marginals: list[Marginal]


@dataclass(frozen=True)
class Pixel:
    """All that is known of a pixel at ``place``; ``remarks`` say what is missing."""

    place: dict[str, int]
    coordinates: list[tuple[str, str]]
    stored: list[Stored]
    flags: list[str] | None
    spectrum: Spectrum | None = None
    inversion: Inversion | None = None
    remarks: list[str] = field(default_factory=list)


class PixelReader:
    """Reads pixels of maps, of the cube that these are of, and inverts them with the model.

    Raises
    ------
    ValueError : the cube has other pixels than the maps, or bands that do not match the model.
    """

    def __init__(
        self,
        source: MapSource,
        cube: xr.DataArray | xr.Dataset | None,
        inverter: GLLiMInverter | None,
        given: Given | None = None,
    ) -> None:
        self.source, self.inverter = source, inverter
        self.given = Given() if given is None else given
        self.request: Request | None = None
        self.spectra: xr.DataArray | None = None
        if cube is None:
            return
        spectra = (
            find_spectra(cube, None, self.given.band_dim) if isinstance(cube, xr.Dataset) and inverter is None else cube
        )
        if inverter is not None:
            model = inverter.model_
            self.request = read_request(
                *(cube, model.bands, model.spectra_name, model.spectra_units),
                *(self.given.band_dim, self.given.tolerance, "auto"),
            )
            spectra = self.request.cube
            self.given.conditions(self.request, model)
        assert isinstance(spectra, xr.DataArray)
        self.spectra = spectra
        self.band_dim = find_band_dim(spectra, self.given.band_dim) if self.request is None else self.request.band_dim
        bands = describe_bands(spectra, self.band_dim) if inverter is None else inverter.model_.bands
        self.axis = BandAxis.of(bands)
        self._require_same_pixels()

    def _require_same_pixels(self) -> None:
        assert self.spectra is not None
        first = self.source.dataset[self.source.layers[0].name]
        one = self.spectra.isel({self.band_dim: 0})
        lacking = [dim for dim in self.source.dims if dim not in one.dims]
        if lacking:
            raise ValueError(f"the cube has dimensions {self.spectra.dims}, and the maps are over {self.source.dims}")
        try:
            paired(
                first.isel({dim: 0 for dim in first.dims if dim not in one.dims}),
                one.isel({dim: 0 for dim in one.dims if dim not in first.dims}),
                "maps",
            )
        except ValueError as error:
            raise ValueError(f"these maps are not of this cube: {str(error).replace('truth', 'cube')}") from None

    def picture(self) -> Picture | None:
        """The cube as a picture over the pixels of the maps; None without a cube."""
        if self.spectra is None:
            return None
        return Picture(
            self.spectra, self.band_dim, self.source.dims, None if self.request is None else self.request.fill
        )

    @property
    def remarks(self) -> list[str]:
        """What is missing, or does not belong together."""
        made = [] if self.spectra is not None else [NO_CUBE]
        if self.inverter is None:
            return [*made, NO_MODEL]
        made_with = str(self.source.dataset.attrs.get("source", ""))
        if "GLLiM model" in made_with and self.inverter.model_id not in made_with:
            made.append(
                f"The maps were made with another model ({made_with}) than that given ({self.inverter.model_id})."
            )
        return made

    @property
    def conditions(self) -> list[str]:
        """With what noise and known parameters a click is computed, where it is."""
        if self.inverter is None or self.spectra is None:
            return []
        return self.given.remarks(str(self.source.dataset.attrs.get("history", "")))

    def read(self, place: Mapping[str, int], layer: Layer) -> Pixel:
        """The pixel at an index by dimension, at the entry of other dimensions that ``layer`` selects."""
        at, remarks = dict(place), list(self.remarks)
        index: dict[Hashable, int] = dict(layer.selection)
        index.update(at.items())
        spectrum, inversion = None, None
        if self.spectra is not None:
            where = {dim: index.get(dim, 0) for dim in self.spectra.dims if dim != self.band_dim}
            cube = self.spectra.isel(where).compute()
            if self.inverter is None:
                spectrum = Spectrum(self.axis, np.asarray(cube.values, dtype=np.float64))
            else:
                spectrum, inversion, said = self._invert(cube, self.given.at(where))
                remarks += said
        stored = [self._stored(other, at, layer) for other in self.source.layers]
        if inversion is not None and not all(map(self._agrees, repeat(inversion), stored)):
            remarks.append(OTHER_VALUES)
        return Pixel(
            at,
            self._coordinates(index),
            stored,
            self._flags(at, layer),
            spectrum,
            inversion,
            remarks,
        )

    def _invert(self, cube: xr.DataArray, given: Given) -> tuple[Spectrum, Inversion | None, list[str]]:
        assert self.inverter is not None
        assert self.request is not None
        model, axis = self.inverter.model_, self.axis
        observed = np.asarray(cube.values, dtype=np.float64)[self.request.bands]
        observed = observed if self.request.fill is None else np.where(observed == self.request.fill, np.nan, observed)
        conditions = given.conditions(replace(self.request, cube=cube), model)
        arguments = given.arguments(conditions, model, self.band_dim)
        if conditions.has_interval:
            found = self.inverter.invert(cube, outputs=needed_outputs(model), **arguments)
            if not np.isfinite(found[model.names[0]]):
                return Spectrum(axis, observed), None, [TOO_FEW]
            return Spectrum(axis, observed), Inversion(found, None, intervals(model, found)), [INTERVAL]
        found = self.inverter.invert(cube, outputs=["residual", "fit_rmse", *needed_outputs(model)], **arguments)
        residual = found["residual"].values.astype(np.float64)
        if not np.isfinite(residual).any():
            return Spectrum(axis, observed), None, [TOO_FEW]
        posterior = self.inverter.posterior(cube, **arguments)
        observed = np.where(np.isfinite(residual), observed, np.nan)
        deviation = np.sqrt(noise_variance(model, posterior["weight"].values, conditions.variance))
        spectrum = Spectrum(axis, observed, observed - residual, deviation)
        return spectrum, Inversion(found, posterior, marginals(model, posterior, found)), []

    def _agrees(self, inversion: Inversion, stored: Stored) -> bool:
        """Whether a value of the maps is the posterior mean of its parameter, as near as float32 holds it."""
        name = stored.layer.name
        if self.inverter is None or not stored.current or name not in self.inverter.model_.names:
            return True
        mean, std = float(inversion.found[name]), float(inversion.found[f"{name}_std"])
        return bool(abs(stored.value - mean) <= _SAME * std + 1e-5 * abs(mean))

    def _coordinates(self, place: Mapping[Hashable, int]) -> list[tuple[str, str]]:
        maps = self.source.dataset
        shown: list[tuple[str, str]] = []
        for name in dict.fromkeys([*self.source.dims, *self.source.geolocation, *maps.coords]):
            if name not in maps.variables or not maps[name].dims or not set(maps[name].dims) <= set(place):
                continue
            array = maps[name].isel({dim: place[dim] for dim in maps[name].dims})
            units = units_of(array.attrs)
            value = array.values[()]
            text = f"{float(value):.8g}" if array.dtype.kind == "f" else entry_text(value)
            shown.append((str(name), f"{text} {units}".strip()))
        return shown

    def _stored(self, layer: Layer, place: Mapping[str, int], shown: Layer) -> Stored:
        std = self.source.std_of(layer)
        value = _at(self.source.dataset[layer.name], place, layer.selection)
        deviation = None if std is None else _at(std, place, layer.selection)
        return Stored(layer, value, deviation, layer.at_entry_of(shown))

    def _flags(self, place: Mapping[str, int], layer: Layer) -> list[str] | None:
        if self.source.flag_variable is None:
            return None
        value = _at(self.source.flag_variable, place, layer.selection)
        return decode(self.source, 0 if np.isnan(value) else int(value))


def decode(source: MapSource, value: int) -> list[str]:
    """Names of the flags of a value."""
    return [flag.title for flag in source.flags if value & flag.mask]


def _at(array: xr.DataArray, place: Mapping[str, int], selection: Mapping[Hashable, int]) -> float:
    index = {dim: place[str(dim)] if str(dim) in place else selection.get(dim, 0) for dim in array.dims}
    return float(array.isel(index).values)
