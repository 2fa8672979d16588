"""The settings of an inverter: checked before any work, and as its model file keeps them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from .gllim.parameters import Constraints, GLLiMParameters
from .gllim.training import Settings

CONSTRAINTS = ("sigma", "tied_sigma", "gamma", "tied_gamma", "tied_pi", "sigma_blocks")
NAMES = (
    *("n_components", "n_latent", "max_latent", *CONSTRAINTS, "algorithm", "standardize", "init", "n_init"),
    *("max_iter", "tol", "reg_covar", "random_state"),
)
"""The attributes of an inverter that one fit takes."""


def read_settings(inverter: Any) -> Settings:
    """Settings of one fit from the attributes of an inverter.

    Raises
    ------
    ValueError : a setting that is none of its choices or out of its range, those of committees among them.
    """
    values = {name: plain(getattr(inverter, name)) for name in NAMES}
    constraints = Constraints(**{name: values.pop(name) for name in CONSTRAINTS})
    count = inverter.n_ensemble
    if not isinstance(count, numbers.Integral) or isinstance(count, bool) or count < 1:
        raise ValueError(f"n_ensemble={count!r} must be an integer, 1 or more")
    if not isinstance(inverter.ensemble_weights, str) or inverter.ensemble_weights not in ("equal", "evidence"):
        raise ValueError(f"ensemble_weights={inverter.ensemble_weights!r} is not one of 'equal', 'evidence'")
    return Settings(constraints=constraints, **values)


def stored_settings(inverter: Any) -> dict[str, Any]:
    """What JSON can hold of the settings; a start that is a model and a generator of random numbers are left out."""
    values = {name: plain(getattr(inverter, name)) for name in NAMES}
    if isinstance(inverter.init, GLLiMParameters):
        values["init"] = "kmeans"
    if not isinstance(values["random_state"], int | None):
        values["random_state"] = None
    return values | {"n_ensemble": int(inverter.n_ensemble), "ensemble_weights": inverter.ensemble_weights}


def plain(setting: Any) -> Any:
    """A setting as the Python value that JSON holds: NumPy scalars, and sequences of them, converted."""
    if isinstance(setting, np.generic):
        return setting.item()
    if isinstance(setting, str | GLLiMParameters) or not isinstance(setting, Iterable):
        return setting
    return [plain(value) for value in setting]
