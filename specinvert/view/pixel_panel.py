"""The part of the page on one pixel: its numbers, its spectrum with the fit, and the density of each parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import Column, ColumnDataSource, Div, Span
from bokeh.plotting import figure

from specinvert.diagnostics.layout import units_of
from specinvert.diagnostics.marginals import Marginal
from specinvert.diagnostics.markup import Safe, element, facts, joined, table

from .parts import canvas, prose, side_by_side, text, title
from .pixel import Inversion, Pixel, PixelReader, Spectrum, Stored

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
    return table("What the model says of this spectrum", head, rows)


def _stored(stored: list[Stored]) -> Safe:
    rows = [
        (
            f"{entry.layer.title}{f' ({entry.layer.units})' if entry.layer.units else ''}",
            _value(entry),
        )
        for entry in stored
    ]
    return table("What the maps hold", ("map", "value"), rows)


def _value(entry: Stored) -> str:
    if np.isnan(entry.value):
        return "no data"
    return f"{entry.value:.6g}" if entry.std is None or np.isnan(entry.std) else f"{entry.value:.6g} ± {entry.std:.3g}"
