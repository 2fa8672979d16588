"""HTML from parts: all text is escaped, only what these functions return is not escaped again.

Tables and lists of a report: the model, its parameters, settings and scores, and what maps hold."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import legible, percent, units_of
from ..inverter import GLLiMInverter
from ..model import Model
from ..scores import KNOWN, is_given
from .layout import fitting_dpi
from .plots import Results
from .results import entries_of
from .spectrum import noise_variance

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DPI = 130


class Safe(str):
    """HTML that is whole and escaped where it has to be."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: object) -> Safe:
    """An element with its content; ``class_="wide"`` is an attribute named without the underscore.

    >>> element("p", "a < b ", element("b", "bold"), class_="note")
    '<p class="note">a &lt; b <b>bold</b></p>'
    """
    names = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(legible(value), quote=True)}"'
        for name, value in attributes.items()
    )
    return Safe(f"<{tag}{names}>{joined(content)}</{tag}>")


def joined(content: Iterable[object]) -> Safe:
    """Parts one after the other, escaped where they are plain."""
    return Safe("".join(part if isinstance(part, Safe) else html.escape(legible(part)) for part in content))


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[int] = ()) -> Safe:
    """A table that scrolls by itself where it is too wide; the first cell of a row is its heading.

    Columns ``words`` hold text and the others numbers.
    """
    kinds = [{"class_": "words"} if i in words else {} for i in range(len(head))]
    top = element("tr", *(element("th", cell, scope="col", **kind) for cell, kind in zip(head, kinds, strict=True)))
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, **kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    made = element("table", element("caption", caption), element("thead", top), element("tbody", *body))
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def facts(rows: Iterable[tuple[str, object]]) -> Safe:
    """A list of names and what they are."""
    return element("dl", *(joined((element("dt", name), element("dd", value))) for name, value in rows))


def picture(figure: Figure, alt: str, caption: str) -> Safe:
    """A matplotlib figure within the page, as PNG, with the text that stands for it and the one below it."""
    buffer = io.BytesIO()
    dpi = fitting_dpi(figure, DPI)
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    width, height = (round(dpi * inches) for inches in figure.get_size_inches())
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{html.escape(legible(alt), quote=True)}">'
    frame = element("div", Safe(image), class_="scroll", tabindex=0, role="region", aria_label=f"Figure: {caption}")
    return element("figure", frame, element("figcaption", caption))


_SCORES = {
    "nrmse": "NRMSE",
    "rmse": "RMSE",
    "bias": "bias",
    "r2": "R²",
    "coverage_50": "in 50 %",
    "coverage_90": "in 90 %",
    "coverage_95": "in 95 %",
    "calibration_error": "calibration error",
    "crps": "CRPS",
    "n": "pairs",
}
_SHARES = ("coverage_50", "coverage_90", "coverage_95", "calibration_error")


def model_facts(inverter: GLLiMInverter) -> Safe:
    """What a model is, as a list."""
    model, theta = inverter.model_, inverter.model_.theta
    units = units_of({"units": model.spectra_units})
    weights = np.concatenate([member.pi for member in model.members]) / len(model.members)
    deviation = np.sqrt(noise_variance(model, weights, None))
    constraints = theta.constraints
    tied = ", shared by all components" if constraints.tied_sigma else " in each component"
    removed = f" ({model.n_removed} removed)" if model.n_removed else ""
    members = f", a committee of {len(model.members)} fits" if len(model.members) > 1 else ""
    rows = [
        ("Identity", inverter.model_id),
        ("Spectra", f"{model.spectra_name}{f' ({units})' if units else ''}, {_bands(model)}"),
        ("Components", f"{theta.n_components}{removed}{members}"),
        ("Latent dimensions", _latent(model)),
        ("Noise model", f"{constraints.kind.text}{tied}"),
        ("Noise (std)", f"{_spread(deviation)}{f' {units}' if units else ''}"),
        ("Training", f"{model.n_samples:,} samples{_added_noise(model, units)}"),
        ("Iterations", f"{len(model.log_likelihoods)}, {'converged' if model.converged else 'not converged'}"),
        ("BIC", f"{model.bics[theta.n_latent]:,.0f}"),
        ("Recalibrated", "no" if model.recalibration is None else "yes, quantiles and central intervals"),
    ]
    return facts(rows)


def parameter_table(model: Model) -> Safe:
    """Each parameter with its units, training range and transform."""
    rows = [
        (
            name,
            model.attrs[name].get("long_name", ""),
            str(model.attrs[name].get("units", "")),
            f"{low:.4g}",
            f"{high:.4g}",
            model.transforms.entry(i).kind.replace("identity", "none"),
        )
        for i, (name, low, high) in enumerate(zip(model.names, model.low, model.high, strict=True))
    ]
    head = ["parameter", "meaning", "units", "training from", "to", "transform"]
    return html_table("Parameters and their training ranges", head, rows, words=(1, 2, 5))


def settings_table(model: Model) -> Safe:
    """The arguments of the inverter."""
    settings = model.settings | {"transforms": model.transforms.spec}
    rows = [(name, repr(value)) for name, value in settings.items()]
    return html_table("Settings of GLLiMInverter", ["setting", "value"], rows, words=(1,))


def evaluation_table(scores: xr.Dataset) -> Safe:
    """Errors and coverage of each parameter."""
    columns = [name for name in _SCORES if name in scores]
    units = scores["units"].values if "units" in scores.coords else [""] * scores.sizes["parameter"]
    given = is_given(scores)
    rows = [
        (
            *(str(name), str(unit)),
            *(KNOWN if given[i] and c != "n" else _score(c, scores[c].values[i]) for c in columns),
        )
        for i, (name, unit) in enumerate(zip(scores["parameter"].values, units, strict=True))
    ]
    caption = "Errors, in the parameter's units where they have any, and truths inside intervals of 50, 90 and 95 %"
    return html_table(caption, ["parameter", "units", *(_SCORES[column] for column in columns)], rows, words=(1,))


def map_table(results: Results, model: Model) -> Safe:
    """What the estimates of each parameter are, beside its training range."""
    rows = []
    for name in results.names:
        values = results.data[name].values.astype(np.float64)
        values = values[np.isfinite(values)]
        quantiles = np.quantile(values, [0.05, 0.5, 0.95]) if values.size else np.full(3, np.nan)
        spread = results.data[f"{name}_std"].median(skipna=True) if f"{name}_std" in results.data else np.nan
        shown = [_number(value) for value in (*quantiles, float(spread))]
        if float(spread) == 0.0 and not np.any(results.data[f"{name}_std"].values > 0):
            shown[-1] = KNOWN
        i = model.names.index(name)
        rows.append(
            (
                name,
                str(results.data[name].attrs.get("units", "")),
                *shown,
                f"{model.low[i]:.4g} to {model.high[i]:.4g}",
            )
        )
    head = ["parameter", "units", "5 %", "median", "95 %", "median std", "training range"]
    return html_table("Estimates over the scene" if results.is_image else "Estimates", head, rows, words=(1,))


def flag_table(shares: Mapping[str, float]) -> Safe:
    """Share of the pixels with each flag."""
    rows = [(name.replace("_", " "), percent(share)) for name, share in shares.items()]
    return html_table("Quality flags; a pixel may have several", ["flag", "share of pixels"], rows)


def provenance_facts(results: Results) -> Safe:
    """Where the maps come from, as they say themselves, and of which entry of further dimensions they are."""
    told = [
        (key.capitalize(), str(results.attrs[key])) for key in ("title", "source", "history") if key in results.attrs
    ]
    return facts([*told, *((name.capitalize(), text) for name, text in entries_of(results.data).items())])


def _bands(model: Model) -> str:
    bands = model.bands
    if bands.wavelength is None:
        return f"{bands.size} bands"
    guess = ", unit guessed" if bands.guessed else ""
    return f"{bands.size} bands from {bands.wavelength.min():.5g} to {bands.wavelength.max():.5g} nm{guess}"


def _latent(model: Model) -> str:
    count = str(model.theta.n_latent)
    if len(model.bics) < 2:
        return count
    tried = ", ".join(f"{n}: {bic:,.0f}" for n, bic in sorted(model.bics.items()))
    return f"{count}, of least BIC ({tried})"


def _spread(deviation: np.ndarray) -> str:
    low, high = deviation.min(), deviation.max()
    return f"{low:.3g}" if high <= 1.001 * low else f"{np.median(deviation):.3g} (bands from {low:.3g} to {high:.3g})"


def _added_noise(model: Model, units: str) -> str:
    if model.training_noise is None:
        return ""
    return f", with noise of {_spread(model.training_noise)}{f' {units}' if units else ''} added"


def _score(column: str, value: Any) -> str:
    if column == "n":
        return f"{int(value):,}"
    if column in _SHARES:
        return f"{100 * float(value):.3g} %" if np.isfinite(value) else "not known"
    return _number(value)


def _number(value: Any) -> str:
    return f"{float(value):.4g}" if np.isfinite(value) else "not known"
