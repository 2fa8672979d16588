"""One HTML page on a model and its maps: what it is, how good it is, what to beware of. It needs nothing else.

What the page says is gathered here as facts, tables and pictures; how it looks is in the templates beside.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import describe_bands, legible, made_by, percent, units_of
from ..inverter import EvaluatedSample, GLLiMInverter, evaluate_sample, explain, inversion_of, model_of, noise_variance
from ..io import atomic_path, check_target
from ..model import Model
from ..scores import (
    KNOWN,
    MEASURED,
    Finding,
    band_findings,
    check_findings,
    evaluation_findings,
    is_given,
    map_findings,
    model_findings,
    noise_findings,
    other_model,
)
from .evaluation import plot_calibration, plot_check, plot_evaluation
from .layout import fitting_dpi, new_figure
from .results import entries_of
from .spectrum import draw_spectrum, plot_convergence, plot_training, sampled_spectra
from .table import Results, read_results

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

DPI = 130


@dataclass(frozen=True)
class Facts:
    """A list of names and what they are."""

    rows: Sequence[tuple[str, str]]
    kind = "facts"


@dataclass(frozen=True)
class Table:
    """A table whose rows begin with their heading; columns ``words`` hold text, the others numbers.

    It is out of sight under the words ``folded`` until asked for, where there are any.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = ()
    folded: str = ""
    kind = "table"


@dataclass(frozen=True)
class Picture:
    """A figure within the page, as PNG of so many pixels, with the text that stands for it and the one below it."""

    source: str
    width: int
    height: int
    alt: str
    caption: str
    kind = "picture"

    @classmethod
    def of(cls, figure: Figure, alt: str, caption: str) -> Picture:
        """Of a figure of matplotlib."""
        buffer, dpi = io.BytesIO(), fitting_dpi(figure, DPI)
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
        width, height = (round(dpi * inches) for inches in figure.get_size_inches())
        return cls(source, width, height, alt, caption)


Part = Facts | Table | Picture


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, heading and content."""

    anchor: str
    heading: str
    parts: Sequence[Part]


def render(template: str, part: str, **content: Any) -> str:
    """HTML of a macro of a template of this package: all text is escaped, unseen characters go.

    Raises ImportError where jinja2 is missing.
    """
    return str(getattr(_templates().get_template(template).module, part)(**content))


@cache
def _templates() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader
    except ImportError as error:
        raise ImportError("pages need jinja2; install it with: pip install 'specinvert[plot]'") from error
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return value if isinstance(value, Markup) else legible(value)

    loader = PackageLoader(__name__.partition(".")[0], ".")
    return Environment(loader=loader, autoescape=True, finalize=shown, trim_blocks=True, lstrip_blocks=True)


def write_report(
    path: str | os.PathLike[str],
    inverter: GLLiMInverter,
    maps: xr.Dataset | None = None,
    test: xr.Dataset | None = None,
    training: xr.Dataset | None = None,
    truth: xr.Dataset | None = None,
    *,
    title: str = "GLLiM model report",
    measured: bool = False,
    **options: Any,
) -> list[Finding]:
    """Write a report on a model as one HTML page that needs no other file, no network and no script.

    The page opens with findings: what to beware of, computed from what is given, each with its number and what to do.

    Parameters
    ----------
    path : the page to write; it appears whole or not at all.
    inverter : a trained `GLLiMInverter`.
    maps : what `invert` gave, along one dimension or two, to be drawn with the shares of their flags; lazy or not.
    test : spectra and true parameters, as `GLLiMInverter.evaluate` takes them. Figures show at most 20000 of them, a
        fixed random choice; tables are of all.
    training : the training set, to be drawn.
    truth : true maps on the grid of `maps`, drawn beside them.
    title : heading of the page.
    measured : whether the true parameters of `test` were measured, not simulated.
    options : `noise` of the test spectra beyond that of training, `band_dim`, `tolerance` and others of
        `GLLiMInverter.invert`, for the test set.

    Returns
    -------
    The findings, serious ones first; an empty list where there is nothing to beware of.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : the inverter is not fitted, or data do not fit the model.
    OSError : the folder does not exist or cannot be written.

    Examples
    --------
    >>> from specinvert import GLLiMInverter
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, 2, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
    >>> write_report("report.html", inverter)
    []
    """
    model = model_of(inverter)
    check_target(path)
    new_figure(1.0, 1.0)
    inversion = inversion_of(inverter, **options)
    results = None if maps is None else read_results(maps, truth, _in_maps(maps, model.names))
    sample = None if test is None else evaluate_sample(inversion, test, measured)
    findings = list(model_findings(model))
    parameters = [_parameter_table(model)] if model.names else []
    about: list[Part] = [_model_facts(model), *parameters, _settings_table(model)]
    sections = [Section("model", "Model", about), _training(inverter, training, findings)]
    if sample is not None:
        sections.append(_evaluation(model, sample, findings))
    if results is not None:
        sections.append(_maps(model, results, findings))
    findings.sort(key=lambda finding: not finding.serious)
    page = _page(title, model.identity, findings, test is not None, sections)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return findings


def _page(title: str, model_id: str, findings: list[Finding], evaluated: bool, sections: list[Section]) -> str:
    from .._version import __version__

    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    content = {"findings": findings, "evaluated": evaluated, "sections": sections}
    return render(
        "figures/report.html", "page", title=title, model_id=model_id, version=__version__, stamp=stamp, **content
    )


def _in_maps(maps: xr.Dataset, names: list[str]) -> list[str]:
    present = [name for name in names if name in maps.data_vars]
    if not present:
        raise ValueError(f"the maps hold none of the model's parameters {names}, but {list(maps.data_vars)}")
    return present


def _training(inverter: GLLiMInverter, training: xr.Dataset | None, findings: list[Finding]) -> Section:
    model = inverter.model_
    n = len(model.log_likelihoods)
    state = "converged" if model.converged else "not converged"
    parts: list[Part] = [
        Picture.of(
            plot_convergence(inverter),
            f"Two curves over {n} EM iterations: the log-likelihood, and the gain of each iteration; {state}.",
            "Left: log-likelihood of the training set. Right: what each iteration gained, and the tolerance that stops "
            "training.",
        )
    ]
    if training is not None:
        name = model.spectra_name if model.spectra_name in training.data_vars else None
        own = model.bands.dim if model.bands.dim in training.dims else None
        array, dim, rows = sampled_spectra(training, name, own)
        findings += band_findings(rows, describe_bands(array, dim), "training spectra")
        ranges = ", ".join(
            f"{key} from {low:.3g} to {high:.3g}"
            for key, low, high in zip(model.names, model.low, model.high, strict=True)
        )
        parts.append(
            Picture.of(
                plot_training(training, name, model.names, dim),
                f"Percentiles of {len(rows)} training spectra band by band, and histograms of {ranges}.",
                "Spectra and parameters of the training set. Histograms are the prior that the model has learned.",
            )
        )
    return Section("training", "Training", parts)


def _evaluation(model: Model, sample: EvaluatedSample, findings: list[Finding]) -> Section:
    scores = sample.evaluation
    findings += evaluation_findings(scores)
    if scores.attrs["truth"] != MEASURED:
        findings += noise_findings(float(sample.estimates["fit_rmse"].median()), model.training_noise)
    if sample.check is not None:
        findings += check_findings(sample.check, scores.attrs["truth"] == MEASURED)
    findings += band_findings(sample.rows, model.bands, "test spectra")
    said = "; ".join(
        f"{name}: NRMSE {float(nrmse):.3g}"
        + (f", {100 * float(held):.3g} % of truths in 90 % intervals" if np.isfinite(held) else "")
        for name, nrmse, held in zip(scores["parameter"].values, scores["nrmse"], scores["coverage_90"], strict=True)
    )
    parts: list[Part] = [
        _evaluation_table(scores),
        Picture.of(
            plot_evaluation(sample.estimates, sample.truth, scores),
            f"Estimated against true values with the line of equality. {said}.",
            "Estimates against the truth; on the line they are equal.",
        ),
        Picture.of(
            plot_calibration(sample.pit),
            f"Histograms of PIT values and coverage against the level of intervals. {said}.",
            "Left: where truths fall in their posteriors; flat within the grey band if uncertainties are right. Right: "
            "the share of truths inside intervals of each level; on the diagonal if they hold what they say.",
        ),
    ]
    if sample.check is not None:
        parts.append(_checked(sample.check))
    for kind, place in sample.examples.items():
        true = {name: float(sample.truth[name].isel(place)) for name in sample.truth.data_vars}
        fit = float(sample.estimates["fit_rmse"].isel(place))
        beside = ", ".join(f"{name} {value:.3g}" for name, value in true.items())
        parts.append(
            Picture.of(
                draw_spectrum(model, explain(sample.inversion, sample.cube.isel(place)), true),
                f"The spectrum of {kind} misfit, observed and fitted with RMSE {fit:.3g}, its residuals, and the "
                f"posterior of each parameter beside its true value: {beside}.",
                f"The spectrum of {kind} misfit among {sample.n_examined:,} of the test set, and its fit, "
                "the mean of the spectra of the components that answer for it.",
            )
        )
    return Section("evaluation", "Evaluation on test spectra", parts)


def _checked(check: xr.Dataset) -> Picture:
    return Picture.of(
        plot_check(check),
        f"Observed and reconstructed spectra, and errors of bands predicted from others. {check.attrs['verdict']}",
        f"What {check.attrs['n_spectra']:,} spectra of the test set are beside what the model expects, whatever their "
        "truth. Below, each band predicted from those outside of its window: within the grey band if the model is "
        "right. An error that looks like another value of a parameter does not show here.",
    )


def _maps(model: Model, results: Results, findings: list[Finding]) -> Section:
    shares = results.flag_shares
    findings += map_findings(shares)
    findings += other_model(made_by(results.attrs), model.identity)
    parts: list[Part] = [_provenance_facts(results), _map_table(results, model)]
    if shares:
        rows = [(name.replace("_", " "), percent(share)) for name, share in shares.items()]
        parts.append(Table("Quality flags; a pixel may have several", ["flag", "share of pixels"], rows))
    said = "; ".join(f"{name.replace('_', ' ')} {percent(share)}" for name, share in shares.items() if share > 0)
    parts.append(
        Picture.of(
            results.draw(),
            f"Estimates of {', '.join(results.names)} with their uncertainty and quality flags. "
            + (f"Shares of flags: {said}." if said else "There are no flags."),
            "Colours run from the 2nd to the 98th percentile; grey has no estimate."
            if results.is_image
            else "Estimates in the order of the samples, with their intervals; rings mark flags.",
        )
    )
    return Section("maps", "Maps" if results.is_image else "Results", parts)


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
    "rmse_decades": "RMSE (decades)",
    "factor": "factor",
    "n": "pairs",
}
_SHARES = ("coverage_50", "coverage_90", "coverage_95", "calibration_error")


def _model_facts(model: Model) -> Facts:
    """What a model is, as a list."""
    theta = model.theta
    units = units_of({"units": model.spectra_units})
    weights = np.concatenate([share * member.pi for share, member in zip(model.shares, model.members, strict=True)])
    deviation = np.sqrt(noise_variance(model, weights))
    constraints = theta.constraints
    of_transform = f" of the {model.spectra_transform.kind}" if model.spectra_transform.kind else ""
    tied = ", shared by all components" if constraints.tied_sigma else " in each component"
    removed = f" ({model.n_removed} removed)" if model.n_removed else ""
    members = f", a committee of {model.committee}" if len(model.members) > 1 else ""
    rows = [
        ("Identity", model.identity),
        ("Spectra", f"{model.spectra_name}{f' ({units})' if units else ''}, {_bands(model)}"),
        ("Components", f"{theta.n_components}{removed}{members}"),
        ("Latent dimensions", _latent(model)),
        ("Noise model", f"{constraints.kind.text}{tied}"),
        ("Noise (std)", f"{_spread(deviation)}{of_transform or (f' {units}' if units else '')}"),
        ("Training", f"{model.n_samples:,} samples{_added_noise(model, units)}"),
        ("Iterations", f"{len(model.log_likelihoods)}, {'converged' if model.converged else 'not converged'}"),
        ("BIC", f"{model.bics[theta.n_latent]:,.0f}"),
        ("Recalibrated", "no" if model.recalibration is None else model.recalibration.described),
        ("Prior", "of training" if model.scene_prior is None else model.scene_prior.verdict),
        ("Calibrated by field values", "no" if model.calibration is None else model.calibration.described),
    ]
    return Facts(rows)


def _parameter_table(model: Model) -> Table:
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
    return Table("Parameters and their training ranges", head, rows, words=(1, 2, 5))


def _settings_table(model: Model) -> Table:
    """The arguments of the inverter."""
    settings = model.settings | {"transforms": model.transforms.spec}
    rows = [(name, repr(value)) for name, value in settings.items()]
    return Table("Settings of GLLiMInverter", ["setting", "value"], rows, words=(1,), folded="All settings")


def _evaluation_table(scores: xr.Dataset) -> Table:
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
    return Table(caption, ["parameter", "units", *(_SCORES[column] for column in columns)], rows, words=(1,))


def _map_table(results: Results, model: Model) -> Table:
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
            (name, str(results.data[name].attrs.get("units", "")), *shown, f"{model.low[i]:.4g} to {model.high[i]:.4g}")
        )
    head = ["parameter", "units", "5 %", "median", "95 %", "median std", "training range"]
    return Table("Estimates over the scene" if results.is_image else "Estimates", head, rows, words=(1,))


def _provenance_facts(results: Results) -> Facts:
    """Where the maps come from, as they say themselves, and of which entry of further dimensions they are."""
    told = [
        (key.capitalize(), str(results.attrs[key])) for key in ("title", "source", "history") if key in results.attrs
    ]
    return Facts([*told, *((name.capitalize(), text) for name, text in entries_of(results.data).items())])


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
