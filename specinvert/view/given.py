"""What is given beside the spectrum that is clicked: noise and known parameters, as the maps were made with."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from ..inverter import GLLiMInverter, Inversion, inversion_of


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
            known = {str(name): _at(value, place) for name, value in known.items()}
        return Given(_at(self.noise, place), known, self.options, self.origin)

    def inversion(self, inverter: GLLiMInverter, band_dim: str | None = None) -> Inversion:
        """How the inverter inverts with it, bands along ``band_dim`` where that is found already."""
        options = {"rechunk": "auto", **self.options} | ({} if band_dim is None else {"band_dim": band_dim})
        return inversion_of(inverter, noise=self.noise, known=self.known, **options)

    def remarks(self, conditions: str) -> list[str]:
        """What clicks use, and where the ``conditions`` of the maps were others."""
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
        if conditions:
            return [
                f"The maps were made with {conditions}; a click is computed without: start the viewer with the same."
            ]
        return ["A click is computed without noise beyond the model's and without known parameters."]


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
