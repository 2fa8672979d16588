"""Changing the ranges that a simulator draws its parameters from.

Imports the standard library and `mixing` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specinvert.physics.mixing import MixtureParameter


def with_ranges(
    parameters: Mapping[str, MixtureParameter],
    limits: Mapping[str, tuple[float, float]],
    ranges: Mapping[str, tuple[float, float]] | None,
) -> dict[str, MixtureParameter]:
    """Return the parameters with other ranges for some.

    Parameters
    ----------
    parameters
        What the simulator draws, with the ranges it draws from by default.
    limits
        Smallest and largest value that the model takes, for each.
    ranges
        (low, high) by name; equal for a constant.

    Raises
    ------
    ValueError
        If a name is unknown, or a range is not two numbers, outside the limits or upside down.
    """
    chosen = dict(parameters)
    for name, given in (ranges or {}).items():
        if name not in parameters:
            raise ValueError(f"ranges names {name!r}; choose from {', '.join(parameters)}")
        try:
            low, high = map(float, given)
        except (TypeError, ValueError):
            raise ValueError(f"range of {name} is {given!r}; give two numbers (low, high)") from None
        least, most = limits[name]
        if not least <= low <= high <= most:
            raise ValueError(f"range of {name} is {low:g} to {high:g}; give low <= high within {least:g} to {most:g}")
        chosen[name] = replace(chosen[name], low=low, high=high)
    return chosen
