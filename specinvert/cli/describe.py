"""A model in a few lines."""

from __future__ import annotations

from typing import Any


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
        "  parameters",
    ]
    for name, low, high in zip(model.names, model.low, model.high, strict=True):
        units = model.attrs[name].get("units", "")
        lines.append(f"    {name}: {low:g} to {high:g} {units if units != '1' else ''}".rstrip())
    return "\n".join(lines)
