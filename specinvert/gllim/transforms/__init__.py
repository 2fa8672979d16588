"""Transforms of bounded and skewed parameters, what is expected under them, and transforms of spectra."""

from .expectations import softplus_free, softplus_moments
from .physical import (
    Before,
    physical_components,
    physical_crps,
    physical_mean_and_std,
    physical_moments,
    physical_quantiles,
)
from .specification import UNCHANGED, SpectraTransform
from .transforms import Transforms

__all__ = [
    "UNCHANGED",
    "Before",
    "SpectraTransform",
    "Transforms",
    "physical_components",
    "physical_crps",
    "physical_mean_and_std",
    "physical_moments",
    "physical_quantiles",
    "softplus_free",
    "softplus_moments",
]
