"""One HTML page on a model and its maps: what it is, how good it is, what to beware of. It needs nothing else."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import xarray as xr

from ..cubes import describe_bands, legible, made_by, percent
from ..inverter import EvaluatedSample, GLLiMInverter, evaluate_sample, model_of
from ..io import atomic_path, check_target
from ..scores import (
    Finding,
    band_findings,
    evaluation_findings,
    map_findings,
    model_findings,
    noise_findings,
    other_model,
)
from .evaluation import plot_calibration, plot_evaluation
from .layout import new_figure
from .plots import Results, read_results
from .report_tables import (
    Safe,
    element,
    evaluation_table,
    flag_table,
    joined,
    map_table,
    model_facts,
    parameter_table,
    picture,
    provenance_facts,
    settings_table,
)
from .spectrum import plot_spectrum
from .training import plot_convergence, plot_training, sampled_spectra


@dataclass(frozen=True)
class _Section:
    """A part of the page: its anchor, heading and content."""

    anchor: str
    heading: str
    content: Safe


def write_report(
    path: str | os.PathLike[str],
    inverter: GLLiMInverter,
    maps: xr.Dataset | None = None,
    test: xr.Dataset | None = None,
    training: xr.Dataset | None = None,
    truth: xr.Dataset | None = None,
    *,
    title: str = "GLLiM model report",
    noise: Any = None,
    band_dim: str | None = None,
    tolerance: float = 1.0,
) -> list[Finding]:
    """Write a report on a model as one HTML page that needs no other file, no network and no script.

    The page opens with findings: what to beware of, computed from what is given, each with its number and what to do.

    Parameters
    ----------
    path
        The page to write; it appears whole or not at all.
    inverter
        A trained `GLLiMInverter`.
    maps
        What `invert` gave, along one dimension or two, to be drawn with the shares of their flags; lazy or not.
    test
        Spectra and true parameters, as `GLLiMInverter.evaluate` takes them.  Figures show at most 20000 of them, a
        fixed random choice; tables are of all.
    training
        The training set, to be drawn.
    truth
        True maps on the grid of `maps`, drawn beside them.
    title
        Heading of the page.
    noise
        Noise of the test spectra beyond that of training: a number, or one a band of the test set.
    band_dim, tolerance
        As in `GLLiMInverter.invert`, for the test set.

    Returns
    -------
    The findings, serious ones first; an empty list where there is nothing to beware of.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If the inverter is not fitted, or data do not fit the model.
    OSError
        If the folder does not exist or cannot be written.

    Examples
    --------
    >>> from specinvert import GLLiMInverter
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
    >>> write_report("report.html", inverter)
    []
    """
    model = model_of(inverter)
    check_target(path)
    new_figure(1.0, 1.0)
    options: dict[str, Any] = {"noise": noise, "band_dim": band_dim, "tolerance": tolerance}
    results = None if maps is None else read_results(maps, truth, _in_maps(maps, model.names))
    sample = None if test is None else evaluate_sample(inverter, test, options)
    found = model_findings(model)
    sections = [_model(inverter), _training(inverter, training, found)]
    if sample is not None:
        sections.append(_evaluation(inverter, sample, found))
    if results is not None:
        sections.append(_maps(inverter, results, found))
    found.sort(key=lambda finding: not finding.serious)
    sections.insert(0, _findings(found, evaluated=test is not None))

    page = Template(files("specinvert.figures").joinpath("report_template.html").read_text(encoding="utf-8"))
    text = page.substitute(title=html.escape(legible(title)), body=_body(title, inverter.model_id, sections))
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return found


def _in_maps(maps: xr.Dataset, names: list[str]) -> list[str]:
    present = [name for name in names if name in maps.data_vars]
    if not present:
        raise ValueError(f"the maps hold none of the model's parameters {names}, but {list(maps.data_vars)}")
    return present


def _body(title: str, model_id: str, sections: Iterable[_Section]) -> Safe:
    from .._version import __version__

    stamp = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    sections = list(sections)
    links = (element("li", element("a", section.heading, href=f"#{section.anchor}")) for section in sections)
    head = element(
        "header",
        element("h1", title),
        element("p", f"Model {model_id}, reported by specinvert {__version__} on {stamp}.", class_="quiet"),
        element("nav", element("ul", *links), aria_label="Sections"),
    )
    parts = (
        element("section", element("h2", section.heading, id=section.anchor), section.content) for section in sections
    )
    return joined((head, element("main", *parts)))


def _findings(found: list[Finding], evaluated: bool) -> _Section:
    heading = "What to beware of"
    parts = [
        element(
            "article",
            element("h3", finding.title),
            element("p", element("span", "Serious. " if finding.serious else "Note. ", class_="kind"), finding.what),
            element("p", element("span", "What to do: ", class_="kind"), finding.todo),
            class_="finding serious" if finding.serious else "finding",
        )
        for finding in found
    ]
    if not found:
        parts = [element("p", "Nothing was found to beware of in what this report looked at.", class_="clear")]
    if not evaluated:
        parts.append(
            element(
                "p",
                "No test set was given, so nothing here says how large errors are, or whether uncertainties hold.",
                class_="quiet",
            )
        )
    return _Section("findings", heading, joined(parts))


def _model(inverter: GLLiMInverter) -> _Section:
    model = inverter.model_
    parts = [model_facts(inverter)]
    if model.names:
        parts.append(parameter_table(model))
    parts.append(element("details", element("summary", "All settings"), settings_table(model)))
    return _Section("model", "Model", joined(parts))


def _training(inverter: GLLiMInverter, training: xr.Dataset | None, found: list[Finding]) -> _Section:
    model = inverter.model_
    n = len(model.log_likelihoods)
    state = "converged" if model.converged else "not converged"
    parts = [
        picture(
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
        found += band_findings(rows, describe_bands(array, dim), "training spectra")
        ranges = ", ".join(
            f"{key} from {low:.3g} to {high:.3g}"
            for key, low, high in zip(model.names, model.low, model.high, strict=True)
        )
        parts.append(
            picture(
                plot_training(training, name, model.names, dim),
                f"Percentiles of {len(rows)} training spectra band by band, and histograms of {ranges}.",
                "Spectra and parameters of the training set. Histograms are the prior that the model has learned.",
            )
        )
    return _Section("training", "Training", joined(parts))


def _evaluation(inverter: GLLiMInverter, sample: EvaluatedSample, found: list[Finding]) -> _Section:
    scores = sample.evaluation
    found += evaluation_findings(scores)
    found += noise_findings(float(sample.estimates["fit_rmse"].median()), inverter.model_.training_noise)
    found += band_findings(sample.rows, inverter.model_.bands, "test spectra")
    said = "; ".join(
        f"{name}: NRMSE {float(nrmse):.3g}"
        + (f", {100 * float(held):.3g} % of truths in 90 % intervals" if np.isfinite(held) else "")
        for name, nrmse, held in zip(scores["parameter"].values, scores["nrmse"], scores["coverage_90"], strict=True)
    )
    parts = [
        evaluation_table(scores),
        picture(
            plot_evaluation(sample.estimates, sample.truth, scores),
            f"Estimated against true values with the line of equality. {said}.",
            "Estimates against the truth; on the line they are equal.",
        ),
        picture(
            plot_calibration(sample.pit),
            f"Histograms of PIT values and coverage against the level of intervals. {said}.",
            "Left: where truths fall in their posteriors; flat within the grey band if uncertainties are right. Right: "
            "the share of truths inside intervals of each level; on the diagonal if they hold what they say.",
        ),
    ]
    for kind, place in sample.examples.items():
        true = {name: float(sample.truth[name].isel(place)) for name in inverter.model_.names}
        fit = float(sample.estimates["fit_rmse"].isel(place))
        beside = ", ".join(f"{name} {value:.3g}" for name, value in true.items())
        parts.append(
            picture(
                plot_spectrum(inverter, sample.cube.isel(place), truth=true, **sample.options),
                f"The spectrum of {kind} misfit, observed and fitted with RMSE {fit:.3g}, its residuals, and the "
                f"posterior of each parameter beside its true value: {beside}.",
                f"The spectrum of {kind} misfit among {sample.n_examined:,} of the test set, and its fit at the "
                "posterior mean. Where several solutions are left, their mean fits worse than each of them.",
            )
        )
    return _Section("evaluation", "Evaluation on test spectra", joined(parts))


def _maps(inverter: GLLiMInverter, results: Results, found: list[Finding]) -> _Section:
    shares = results.flag_shares
    found += map_findings(shares)
    found += other_model(made_by(results.attrs), inverter.model_id)
    parts = [provenance_facts(results), map_table(results, inverter.model_)]
    if shares:
        parts.append(flag_table(shares))
    said = "; ".join(f"{name.replace('_', ' ')} {percent(share)}" for name, share in shares.items() if share > 0)
    parts.append(
        picture(
            results.draw(),
            f"Estimates of {', '.join(results.names)} with their uncertainty and quality flags. "
            + (f"Shares of flags: {said}." if said else "There are no flags."),
            "Colours run from the 2nd to the 98th percentile; grey has no estimate."
            if results.is_image
            else "Estimates in the order of the samples, with their intervals; rings mark flags.",
        )
    )
    return _Section("maps", "Maps" if results.is_image else "Results", joined(parts))
