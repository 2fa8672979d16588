"""What diagnostics ask of a trained inverter, which stands above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import xarray as xr

if TYPE_CHECKING:
    from specinvert.io.model import Model


class FittedInverter(Protocol):
    """A trained :class:`specinvert.GLLiMInverter`."""

    model_: Model

    @property
    def model_id(self) -> str:
        """Short hash of the model."""

    def invert(
        self,
        cube: Any,
        noise: Any = None,
        known: Any = None,
        outputs: Any = ...,
        *,
        band_dim: str | None = None,
        tolerance: float = 1.0,
    ) -> xr.Dataset:
        """Estimates of every spectrum."""

    def posterior(
        self,
        spectra: Any,
        noise: Any = None,
        known: Any = None,
        *,
        band_dim: str | None = None,
        tolerance: float = 1.0,
    ) -> xr.Dataset:
        """The posterior mixture of every spectrum."""

    def evaluate(self, test: xr.Dataset, **options: Any) -> xr.Dataset:
        """Estimates against the truth."""

    def pit(self, test: xr.Dataset, **options: Any) -> xr.Dataset:
        """Distribution functions at the truth."""


def model_of(inverter: FittedInverter) -> Model:
    """The model of an inverter; ValueError where it is not fitted."""
    from specinvert.io.model import Model

    model = vars(inverter).get("model_")
    if not isinstance(model, Model):
        raise ValueError("the inverter is not fitted: call fit(training) or specinvert.load_inverter(path) first")
    return model
