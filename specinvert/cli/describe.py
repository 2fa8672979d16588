"""A model in a few lines."""

from __future__ import annotations

from typing import Any

from ..diagnostics.layout import units_of


def describe_model(inverter: Any) -> str:
    """What a trained inverter is, with the ranges of its parameters."""
    model, theta = inverter.model_, inverter.parameters_
    wavelength = model.bands.wavelength
    span = "" if wavelength is None else f", {wavelength.min():g} to {wavelength.max():g} nm"
    state = "converged" if model.converged else "not converged"
    lines = [
        f"GLLiM model {inverter.model_id}",
        f"  bands       {theta.n_bands}{span}",
        f"  components  {theta.n_components}" + (f" ({model.n_removed} removed)" if model.n_removed else ""),
        f"  latent      {theta.n_latent}",
        f"  noise       {theta.constraints.sigma}{', tied' if theta.constraints.tied_sigma else ''}",
        *([f"  committee   {len(model.members)} models"] if len(model.members) > 1 else []),
        f"  training    {model.n_samples} samples, {inverter.n_iter_} iterations, {state}",
        *(f"  history     {line}" for line in model.training.splitlines()),
        f"  BIC         {inverter.bic_:.6g}",
        *(["  recalibrated, quantiles and central intervals"] if model.recalibration is not None else []),
        "  parameters",
    ]
    for i, (name, low, high) in enumerate(zip(model.names, model.low, model.high, strict=True)):
        units = units_of(model.attrs[name])
        kind = model.transforms.entry(i).kind
        line = f"    {name}: {low:g} to {high:g}{f' {units}' if units else ''}"
        lines.append(line if kind == "identity" else f"{line}, {kind}")
    return "\n".join(lines)
