"""One pixel in full: what the maps hold there, its spectrum, and what the model says of it.

The part of the page on one pixel: its numbers, its spectrum with the fit, and the density of each parameter."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from bokeh.models import Column, ColumnDataSource, Div, Span
from bokeh.plotting import figure

from ..cubes import Request, describe_bands, find_band_dim, find_spectra, made_by, read_request, units_of
from ..figures import (
    BandAxis,
    Marginal,
    Safe,
    element,
    entry_text,
    facts,
    html_table,
    intervals,
    joined,
    marginals,
    needed_outputs,
    noise_variance,
)
from ..scores import paired
from .given import Given
from .maps import Layer, MapSource, Picture
from .panels import canvas, prose, side_by_side, text, title

if TYPE_CHECKING:
    from ..inverter import GLLiMInverter


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
            self.request = read_request(cube, model.labels, self.given.band_dim, self.given.tolerance, "auto")
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
        other = made_by(self.source.dataset.attrs)
        if other is not None and other != self.inverter.model_id:
            made.append(f"The maps were made with another model ({other}) than that given ({self.inverter.model_id}).")
        return made

    @property
    def conditions(self) -> list[str]:
        """With what noise and known parameters a click is computed, where it is."""
        if self.inverter is None or self.spectra is None:
            return []
        return self.given.remarks(self.source.dataset.attrs)

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


SPECTRUM_HEIGHT, RESIDUAL_HEIGHT, DENSITY_HEIGHT = 280, 170, 180
ASK = "Click a pixel to see its numbers, its spectrum and what the model says of it."
_OBSERVED, _FITTED, _DENSITY, _NOISE = "#000000", "#D55E00", "#0072B2", "#bdbdbd"
_TOOLS: dict[str, Any] = {"tools": "pan,box_zoom,reset,save", "active_drag": None}


class PixelPanel:
    """Figures and tables of one pixel, filled by :meth:`show`."""

    def __init__(self, reader: PixelReader) -> None:
        self.reader = reader
        self.head: Div = prose(element("p", ASK, class_="note"))
        self.numbers: Div = prose(Safe(""), visible=False)
        self.lines = ColumnDataSource(data={"x": [], "observed": [], "fitted": []})
        self.residuals = ColumnDataSource(data={"x": [], "residual": [], "lower": [], "upper": []})
        names = [] if reader.inverter is None else reader.inverter.model_.names
        self.densities = [DensityFigure(name.replace("_", " "), self._units(name)) for name in names]
        self.spectra = Column(children=self._spectra(), sizing_mode="stretch_width", visible=False)
        figures = [density.figure for density in self.densities]
        self.posteriors = side_by_side(*figures, least=260)
        self.posteriors.visible = False
        beside = side_by_side(self.numbers, *([self.spectra] if reader.spectra is not None else []), least=400)
        below = [self.posteriors] if figures else []
        self.root = Column(children=[self.head, beside, *below], sizing_mode="stretch_width")

    def _units(self, name: str) -> str:
        assert self.reader.inverter is not None
        return units_of(self.reader.inverter.model_.attrs[name])

    def _spectra(self) -> list[figure]:
        if self.reader.spectra is None:
            return []
        axis, spectra = self.reader.axis, self.reader.spectra
        units = units_of(spectra.attrs)
        name = str(spectra.name or "spectrum").replace("_", " ")
        upper = canvas(SPECTRUM_HEIGHT, **_TOOLS)
        observed = {"source": self.lines, "line_color": _OBSERVED, "line_width": 1.6, "legend_label": "observed"}
        upper.line("x", "observed", **observed)
        if axis.marker:
            upper.scatter("x", "observed", source=self.lines, color=_OBSERVED, size=5)
        upper.yaxis.axis_label = text(f"{name} ({units})" if units else name)
        upper.xaxis.axis_label = text(axis.label)
        if self.reader.inverter is None:
            return [upper]
        fitted = {"line_color": _FITTED, "line_width": 1.6, "line_dash": "dashed", "legend_label": "fitted"}
        upper.line("x", "fitted", source=self.lines, **fitted)
        lower = canvas(RESIDUAL_HEIGHT, **_TOOLS, x_range=upper.x_range)
        band = {"fill_color": _NOISE, "fill_alpha": 0.5, "legend_label": "± 2 std of the noise"}
        lower.varea("x", "lower", "upper", source=self.residuals, **band)
        lower.add_layout(Span(location=0.0, dimension="width", line_color=_OBSERVED, line_width=0.6))
        lower.line("x", "residual", source=self.residuals, line_color=_DENSITY, line_width=1.4, legend_label="residual")
        lower.xaxis.axis_label = text(axis.label)
        upper.xaxis.axis_label = None
        lower.yaxis.axis_label = text(f"residual ({units})" if units else "residual")
        for made in (upper, lower):
            made.legend.orientation = "horizontal"
            made.legend.padding = made.legend.margin = 0
            made.legend.border_line_color = None
            made.add_layout(made.legend[0], "above")
        return [upper, lower]

    def show(self, pixel: Pixel) -> None:
        """Show all that is known of a pixel."""
        self.head.text = _head(pixel)
        tables = [_estimates(self.reader, pixel.inversion, pixel.stored)] if pixel.inversion is not None else []
        self.numbers.text = joined([*tables, _stored(pixel.stored)])
        self.numbers.visible = True
        if pixel.spectrum is not None:
            self._show_spectrum(pixel.spectrum)
        self.spectra.visible = pixel.spectrum is not None
        self.posteriors.visible = pixel.inversion is not None and bool(self.densities)
        if pixel.inversion is not None:
            for density, marginal in zip(self.densities, pixel.inversion.marginals, strict=True):
                density.show(marginal)

    def fail(self, reason: str) -> None:
        """Say why a pixel cannot be shown."""
        self.head.text = element("p", f"This pixel cannot be shown: {reason}", class_="warn")
        self.numbers.visible = self.spectra.visible = self.posteriors.visible = False

    def _show_spectrum(self, spectrum: Spectrum) -> None:
        axis, nothing = spectrum.axis, np.full(spectrum.observed.shape, np.nan)
        fitted = nothing if spectrum.fitted is None else spectrum.fitted
        deviation = nothing if spectrum.deviation is None else spectrum.deviation
        self.lines.data = {"x": axis.x, "observed": axis.y(spectrum.observed), "fitted": axis.y(fitted)}
        self.residuals.data = {
            "x": axis.x,
            "residual": axis.y(spectrum.observed - fitted),
            "lower": axis.y(-2.0 * deviation),
            "upper": axis.y(2.0 * deviation),
        }


class DensityFigure:
    """Posterior density of a parameter with its mean and 90 % interval."""

    def __init__(self, name: str, units: str) -> None:
        self.name, self.units = name, units
        self.curve = ColumnDataSource(data={"x": [], "density": []})
        self.held = ColumnDataSource(data={"x": [], "density": []})
        self.mean = Span(location=0.0, dimension="height", line_color=_OBSERVED, line_width=1.5, visible=False)
        self.figure = canvas(DENSITY_HEIGHT, "", toolbar_location=None)
        self.figure.title.text_font_size = "12px"
        self.figure.varea("x", 0, "density", source=self.held, fill_color=_DENSITY, fill_alpha=0.3)
        self.figure.line("x", "density", source=self.curve, line_color=_DENSITY, line_width=1.6)
        self.figure.add_layout(self.mean)
        self.figure.yaxis.visible = False
        self.figure.y_range.start = 0.0
        self.figure.xaxis.ticker.desired_num_ticks = 5

    def show(self, marginal: Marginal) -> None:
        """Show a density; nothing of a parameter that has none, as a known one."""
        x, density = marginal.values, marginal.density
        inside = (x >= marginal.lower) & (x <= marginal.upper)
        self.curve.data = {"x": x, "density": density}
        self.held.data = {"x": x[inside], "density": density[inside]}
        self.mean.location, self.mean.visible = marginal.mean, True
        self.figure.visible = bool(x.size)
        interval = f"{marginal.lower:.4g} to {marginal.upper:.4g} {self.units}".rstrip()
        self.figure.title.text = title(self.name, f"mean {marginal.mean:.4g}, 90 % {interval}")


def _head(pixel: Pixel) -> Safe:
    place = ", ".join(f"{dim} {index}" for dim, index in pixel.place.items())
    rows: list[tuple[str, object]] = [(name, value) for name, value in pixel.coordinates]
    if pixel.flags is not None:
        rows.append(("flags", ", ".join(pixel.flags) or "none"))
    if pixel.inversion is not None and "fit_rmse" in pixel.inversion.found:
        rmse = pixel.inversion.found["fit_rmse"]
        rows.append(("fit RMSE", f"{float(rmse):.4g} {units_of(rmse.attrs)}".strip()))
    remarks = [element("p", remark, class_="warn") for remark in pixel.remarks]
    return joined([element("h2", f"Pixel {place} (counted from 0)"), facts(rows), *remarks])


def _estimates(reader: PixelReader, inversion: Inversion, stored: list[Stored]) -> Safe:
    assert reader.inverter is not None
    model = reader.inverter.model_
    held = {entry.layer.name: entry.value for entry in stored if entry.current}
    rows = []
    for i, (name, marginal) in enumerate(zip(model.names, inversion.marginals, strict=True)):
        units, std = units_of(model.attrs[name]), float(inversion.found[f"{name}_std"])
        rows.append(
            (
                f"{name.replace('_', ' ')}{f' ({units})' if units else ''}",
                f"{marginal.mean:.5g}",
                f"{std:.3g}" if std else "known",
                f"{marginal.lower:.4g} to {marginal.upper:.4g}" if std else "",
                f"{held[name]:.5g}" if name in held else "",
                f"{model.low[i]:.4g} to {model.high[i]:.4g}",
            )
        )
    head = ("parameter", "mean", "std", "90 % interval", "in the maps", "training range")
    return html_table("What the model says of this spectrum", head, rows)


def _stored(stored: list[Stored]) -> Safe:
    rows = [
        (
            f"{entry.layer.title}{f' ({entry.layer.units})' if entry.layer.units else ''}",
            _value(entry),
        )
        for entry in stored
    ]
    return html_table("What the maps hold", ("map", "value"), rows)


def _value(entry: Stored) -> str:
    if np.isnan(entry.value):
        return "no data"
    return f"{entry.value:.6g}" if entry.std is None or np.isnan(entry.std) else f"{entry.value:.6g} ± {entry.std:.3g}"
