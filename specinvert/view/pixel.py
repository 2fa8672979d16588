"""One pixel in full: what the maps hold there, its spectrum with the fit, and what the model says of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from bokeh.models import Column, ColumnDataSource, Div, Span
from bokeh.plotting import figure

from ..cubes import describe_bands, find_band_dim, find_spectra, in_words, made_by, made_with, units_of
from ..figures import BandAxis, entry_text, render
from ..inverter import Explanation, GLLiMInverter, Inversion, Marginal, explain, inversion_of
from ..scores import paired
from .maps import Layer, MapSource, SceneImage
from .panels import PARTS, canvas, line, prose, side_by_side, text, title

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
class Given:
    """Arguments of an inversion: noise, known parameters, and other ``options``; ``origin`` says where they are from.

    ``options`` are ``band_dim``, ``tolerance``, ``min_valid_bands`` and ``noise_includes_training``, as those of
    :meth:`specinvert.GLLiMInverter.invert`.
    """

    noise: Any = None
    known: Mapping[Any, Any] | xr.Dataset | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""

    def at(self, place: Mapping[Hashable, int]) -> Given:
        """What holds for one pixel."""
        known = self.known
        if isinstance(known, xr.Dataset):
            known = known.isel({dim: place[dim] for dim in known.dims if dim in place}).compute()
        elif known is not None:
            known = {str(name): _entry_of(value, place) for name, value in known.items()}
        return Given(_entry_of(self.noise, place), known, self.options, self.origin)

    def inversion(self, inverter: GLLiMInverter, band_dim: str | None = None) -> Inversion:
        """How the inverter inverts with it, bands along ``band_dim`` where that is found already."""
        options = {"rechunk": "auto", **self.options} | ({} if band_dim is None else {"band_dim": band_dim})
        return inversion_of(inverter, noise=self.noise, known=self.known, **options)

    def remarks(self, attrs: Mapping[Any, Any]) -> list[str]:
        """What clicks use, and where the attributes of the maps tell of more."""
        said = [] if self.noise is None else [f"noise {_shown(self.noise)} beyond the model's"]
        if self.options.get("noise_includes_training"):
            said = [f"noise {_shown(self.noise)}, that of training included"]
        known = {} if self.known is None else self.known
        if isinstance(known, xr.Dataset):
            known = {name: array for name, array in known.variables.items() if name not in known.dims}
        said += [f"{name} = {_shown(value)} known" for name, value in known.items()]
        origin = f" ({self.origin})" if self.origin else ""
        if said:
            return [f"A click is computed with {', '.join(said)}{origin}."]
        if told := in_words(made_with(attrs) or {}):
            phrases = "; ".join(told)
            return [f"The maps were made with {phrases}; a click is computed without: start the viewer with the same."]
        return ["A click is computed without noise beyond the model's and without known parameters."]


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
class Pixel:
    """All that is known of a pixel at ``place``; ``remarks`` say what is missing.

    ``observed`` (D,) is its spectrum, where there is a cube; ``explained`` what the model says of it, where it can.
    """

    place: dict[str, int]
    coordinates: list[tuple[str, str]]
    stored: list[Stored]
    flags: list[str] | None
    observed: np.ndarray | None = None
    explained: Explanation | None = None
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
        self.fill: float | None = None
        self.spectra: xr.DataArray | None = None
        if cube is None:
            return
        if inverter is None:
            band_dim = self.given.options.get("band_dim")
            spectra = find_spectra(cube, None, band_dim) if isinstance(cube, xr.Dataset) else cube
            self.spectra, self.band_dim = spectra, find_band_dim(spectra, band_dim)
            self.axis = BandAxis.of(describe_bands(spectra, self.band_dim))
        else:
            inversion = self.given.inversion(inverter)
            request = inversion.request(cube)
            inversion.conditions(request)
            self.spectra, self.band_dim, self.fill = request.cube, request.band_dim, request.fill
            self.axis = BandAxis.of(inverter.model_.bands)
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

    def picture(self) -> SceneImage | None:
        """The cube as a picture over the pixels of the maps; None without a cube."""
        if self.spectra is None:
            return None
        return SceneImage(self.spectra, self.band_dim, self.source.dims, self.fill)

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
        observed: np.ndarray | None = None
        explained: Explanation | None = None
        if self.spectra is not None:
            where = {dim: index.get(dim, 0) for dim in self.spectra.dims if dim != self.band_dim}
            cube = self.spectra.isel(where).compute()
            observed = np.asarray(cube.values, dtype=np.float64)
            if self.inverter is not None:
                made = explain(self.given.at(where).inversion(self.inverter, self.band_dim), cube)
                observed, explained = made.observed, made if made.is_inverted else None
                remarks += [TOO_FEW] if explained is None else [] if made.residual is not None else [INTERVAL]
        stored = [self._stored(other, at, layer) for other in self.source.layers]
        if explained is not None and not all(self._agrees(explained, entry) for entry in stored):
            remarks.append(OTHER_VALUES)
        return Pixel(at, self._coordinates(index), stored, self._flags(at, layer), observed, explained, remarks)

    def _agrees(self, explained: Explanation, stored: Stored) -> bool:
        """Whether a value of the maps is the estimate of its parameter, or no such, as near as float32 holds it."""
        name = stored.layer.name
        if self.inverter is None or not stored.current or name not in self.inverter.model_.names:
            return True
        found, std = explained.outputs[name], float(explained.outputs[f"{name}_std"])
        if self.source.dataset[name].attrs.get("estimate", "mean") != found.attrs["estimate"]:
            return True
        return bool(abs(stored.value - float(found)) <= _SAME * std + 1e-5 * abs(float(found)))

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
        bits = 0 if np.isnan(value) else int(value)
        return [flag.title for flag in self.source.flags if bits & flag.mask]


def _entry_of(value: Any, place: Mapping[Hashable, int]) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_entry_of(part, place) for part in value)
    if isinstance(value, xr.DataArray):
        return value.isel({dim: place[dim] for dim in value.dims if dim in place}).compute()
    return value


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " to ".join("any" if part is None else _shown(part) for part in value)
    if np.ndim(value) == 0:
        return f"{float(value):.6g}"
    if isinstance(value, xr.DataArray | xr.Variable):
        return f"by {', '.join(map(str, value.dims))}"
    return "of each band" if np.ndim(value) == 1 else "as a covariance"


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
        self.head: Div = prose(line(ASK, "note"))
        self.numbers: Div = prose("", visible=False)
        self.lines = ColumnDataSource(data={"x": [], "observed": [], "fitted": [], "low": [], "high": []})
        self.residuals = ColumnDataSource(data={"x": [], "residual": [], "lower": [], "upper": []})
        attrs = {} if reader.inverter is None else reader.inverter.model_.attrs
        names = [] if reader.inverter is None else reader.inverter.model_.names
        self.densities = [DensityFigure(name.replace("_", " "), units_of(attrs[name])) for name in names]
        self.spectra = Column(children=self._spectra(), sizing_mode="stretch_width", visible=False)
        figures = [density.figure for density in self.densities]
        self.posteriors = side_by_side(*figures, least=260)
        self.posteriors.visible = False
        beside = side_by_side(self.numbers, *([self.spectra] if reader.spectra is not None else []), least=400)
        below = [self.posteriors] if figures else []
        self.root = Column(children=[self.head, beside, *below], sizing_mode="stretch_width")

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
        upper.yaxis.axis_label = text(_titled(name, units))
        upper.xaxis.axis_label = text(axis.label)
        if self.reader.inverter is None:
            return [upper]
        fitted = {"line_color": _FITTED, "line_width": 1.6, "line_dash": "dashed", "legend_label": "fitted"}
        upper.line("x", "fitted", source=self.lines, **fitted)
        expected = {"fill_color": _FITTED, "fill_alpha": 0.18, "legend_label": "from other windows, ± 2 std"}
        upper.varea("x", "low", "high", source=self.lines, level="underlay", **expected)
        lower = canvas(RESIDUAL_HEIGHT, **_TOOLS, x_range=upper.x_range)
        band = {"fill_color": _NOISE, "fill_alpha": 0.5, "legend_label": "± 2 std of the noise"}
        lower.varea("x", "lower", "upper", source=self.residuals, **band)
        lower.add_layout(Span(location=0.0, dimension="width", line_color=_OBSERVED, line_width=0.6))
        lower.line("x", "residual", source=self.residuals, line_color=_DENSITY, line_width=1.4, legend_label="residual")
        lower.xaxis.axis_label = text(axis.label)
        upper.xaxis.axis_label = None
        lower.yaxis.axis_label = text(_titled("residual", units))
        for made in (upper, lower):
            made.legend.orientation = "horizontal"
            made.legend.padding = made.legend.margin = 0
            made.legend.border_line_color = None
            made.add_layout(made.legend[0], "above")
        return [upper, lower]

    def show(self, pixel: Pixel) -> None:
        """Show all that is known of a pixel."""
        explained = pixel.explained
        self.head.text = _head(pixel)
        estimates = None if explained is None else _estimates(self.reader, explained, pixel.stored)
        stored = [(_titled(entry.layer.title, entry.layer.units), _value(entry)) for entry in pixel.stored]
        self.numbers.text = render(PARTS, "numbers", estimates=estimates, stored=stored)
        self.numbers.visible = True
        if pixel.observed is not None:
            self._show_spectrum(pixel.observed, explained)
        self.spectra.visible = pixel.observed is not None
        self.posteriors.visible = explained is not None and bool(self.densities)
        if explained is not None:
            for density, marginal in zip(self.densities, explained.marginals, strict=True):
                density.show(marginal)

    def fail(self, reason: str) -> None:
        """Say why a pixel cannot be shown."""
        self.head.text = line(f"This pixel cannot be shown: {reason}", "warn")
        self.numbers.visible = self.spectra.visible = self.posteriors.visible = False

    def _show_spectrum(self, observed: np.ndarray, explained: Explanation | None) -> None:
        axis, nothing = self.reader.axis, np.full(observed.shape, np.nan)
        residual = nothing if explained is None or explained.residual is None else explained.residual
        deviation = nothing if explained is None or explained.deviation is None else explained.deviation
        expected = None if explained is None else explained.expected
        low, high = (nothing, nothing) if expected is None else (expected.low, expected.high)
        lines = {"observed": observed, "fitted": observed - residual, "low": low, "high": high}
        self.lines.data = {"x": axis.x, **{name: axis.y(values) for name, values in lines.items()}}
        spread = axis.y(2.0 * deviation)
        self.residuals.data = {"x": axis.x, "residual": axis.y(residual), "lower": -spread, "upper": spread}


class DensityFigure:
    """Posterior density of a parameter with its estimate and 90 % interval."""

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
        self.mean.location, self.mean.visible = marginal.estimate, True
        self.figure.visible = bool(x.size)
        interval = f"{marginal.lower:.4g} to {marginal.upper:.4g} {self.units}".rstrip()
        self.figure.title.text = title(self.name, f"estimate {marginal.estimate:.4g}, 90 % {interval}")


def _head(pixel: Pixel) -> str:
    place = ", ".join(f"{dim} {index}" for dim, index in pixel.place.items())
    rows = list(pixel.coordinates)
    if pixel.flags is not None:
        rows.append(("flags", ", ".join(pixel.flags) or "none"))
    if pixel.explained is not None and "fit_rmse" in pixel.explained.outputs:
        rmse = pixel.explained.outputs["fit_rmse"]
        rows.append(("fit RMSE", f"{float(rmse):.4g} {units_of(rmse.attrs)}".strip()))
    if pixel.explained is not None and pixel.explained.expected is not None:
        rows.append(("not what other windows predict", ", ".join(pixel.explained.expected.misfits) or "no window"))
    return render(PARTS, "pixel", place=place, rows=rows, remarks=pixel.remarks)


def _estimates(reader: PixelReader, explained: Explanation, stored: list[Stored]) -> list[tuple[str, ...]]:
    assert reader.inverter is not None
    model = reader.inverter.model_
    held = {entry.layer.name: entry.value for entry in stored if entry.current}
    rows: list[tuple[str, ...]] = []
    for i, (name, marginal) in enumerate(zip(model.names, explained.marginals, strict=True)):
        std = float(explained.outputs[f"{name}_std"])
        rows.append(
            (
                _titled(name.replace("_", " "), units_of(model.attrs[name])),
                f"{marginal.estimate:.5g}",
                f"{std:.3g}" if std else "known",
                f"{marginal.lower:.4g} to {marginal.upper:.4g}" if std else "",
                f"{held[name]:.5g}" if name in held else "",
                f"{model.low[i]:.4g} to {model.high[i]:.4g}",
            )
        )
    return rows


def _titled(name: str, units: str) -> str:
    return f"{name} ({units})" if units else name


def _value(entry: Stored) -> str:
    if np.isnan(entry.value):
        return "no data"
    return f"{entry.value:.6g}" if entry.std is None or np.isnan(entry.std) else f"{entry.value:.6g} ± {entry.std:.3g}"
