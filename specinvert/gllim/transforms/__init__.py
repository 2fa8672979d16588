"""Bounded and skewed parameters: transforms, and what is expected under them."""

from .physical import physical_mean_and_std, physical_moments, physical_quantiles
from .transforms import Transforms

__all__ = [
    "Transforms",
    "physical_mean_and_std",
    "physical_moments",
    "physical_quantiles",
]
