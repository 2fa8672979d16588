"""What is given beside the spectrum that is clicked: noise and known parameters, as the maps were made with."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from ..cubes import Conditions, Request, in_words, made_with, read_conditions, without_training
from ..model import Model

_TELLING = ("--noise", "--known")


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

    @property
    def band_dim(self) -> str | None:
        """The band dimension, where it was named."""
        return self.options.get("band_dim")

    @property
    def tolerance(self) -> float:
        """Largest difference in nm between bands of the model and of the cube."""
        return float(self.options.get("tolerance", 1.0))

    def at(self, place: Mapping[Hashable, int]) -> Given:
        """What holds for one pixel."""
        known = self.known
        if isinstance(known, xr.Dataset):
            known = known.isel({dim: place[dim] for dim in known.dims if dim in place}).compute()
        elif known is not None:
            known = {str(name): _at(value, place) for name, value in known.items()}
        return Given(_at(self.noise, place), known, self.options, self.origin)

    def conditions(self, request: Request, model: Model) -> Conditions:
        """Noise and known parameters, checked; raises as :func:`specinvert.cubes.given.read_conditions`."""
        found = read_conditions(request, model.labels, self.noise, self.known, self.tolerance)
        if not self.options.get("noise_includes_training"):
            return found
        if np.ndim(self.noise) == 2 and not isinstance(self.noise, xr.DataArray):
            raise ValueError("a covariance of the noise that includes that of training is not to be had in the viewer")
        return without_training(found, model.training_noise)

    def arguments(self, conditions: Conditions, model: Model, band_dim: str) -> dict[str, Any]:
        """Arguments for ``invert`` and ``posterior`` alike at one pixel, whose ``conditions`` these are."""
        noise = self.noise
        if self.options.get("noise_includes_training") and conditions.variance is not None:
            deviation = np.sqrt(np.broadcast_to(conditions.variance, model.theta.n_bands))
            dim, coords = model.band_coordinates()
            noise = xr.DataArray(deviation, dims=dim, coords=coords).rename({dim: band_dim} if dim != band_dim else {})
        kept = {key: value for key, value in self.options.items() if key in ("tolerance", "min_valid_bands")}
        return {"noise": noise, "known": self.known, "band_dim": band_dim, **kept}

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
        record = made_with(attrs)
        told = told_by(str(attrs.get("history", ""))) if record is None else "; ".join(in_words(record))
        if told:
            return [
                f"The maps were made with {told}, as their history says; a click is computed without: start the "
                "viewer with the same."
            ]
        return ["A click is computed without noise beyond the model's and without known parameters."]


def told_by(history: str) -> str:
    """Noise and known parameters of the last inversion in a history, for maps without the attribute that tells them."""
    for line in reversed(history.splitlines()):
        _, of_command, command = line.partition("specinvert invert ")
        words = _words(command) if of_command else []
        told = [f"{word} {words[i + 1]}" for i, word in enumerate(words[:-1]) if word in _TELLING]
        told += [word for word in words if word.startswith(tuple(f"{option}=" for option in _TELLING))]
        if told:
            return " ".join(told)
        _, of_method, said = line.partition(" invert; ")
        found = [part for part in said.split("; ") if part.startswith("noise ") or " known" in part]
        if of_method and found:
            return "; ".join(found)
    return ""


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _at(value: Any, place: Mapping[Hashable, int]) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_at(part, place) for part in value)
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
