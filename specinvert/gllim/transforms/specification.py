"""The transforms one by one: what the user may write for a parameter or for all spectra, and the functions meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax

from ..core import Array

ACCEPTED = (
    '"identity", "softplus", ("softplus", scale), "log", "sqrt", ("logit", lower, upper), or "ilr" for a tuple of '
    "parameters"
)
LOWER = {"log": 0.0, "sqrt": 0.0, "ilr": 0.0, "softplus": 0.0}
"""Lower bounds, where the user does not give one; other bounds are infinite."""


@dataclass(frozen=True)
class Entry:
    """One transform.

    Attributes
    ----------
    kind : "identity", "softplus", "log", "logit", "sqrt" or "ilr".
    columns : its physical parameters, several for "ilr" only. start : its first column of z.
    lower, upper : the bounds of each parameter, infinite where there is none.
    insets : (lower, upper) of each parameter, the least distance from the bounds; zero before the training.
    unit : of z, the scale of a softplus, NaN before the training where the user gave none; else one.
    """

    kind: str
    columns: tuple[int, ...]
    start: int
    lower: float
    upper: float
    insets: tuple[tuple[float, float], ...]
    unit: float = 1.0

    @property
    def size(self) -> int:
        """Number of columns of z."""
        return max(len(self.columns) - 1, 1)

    @property
    def z(self) -> slice:
        """Its columns of z."""
        return slice(self.start, self.start + self.size)

    @property
    def scale(self) -> float:
        """The distance of two finite bounds, else the unit: t is this times the standard t of z / unit, plus offset."""
        return self.upper - self.lower if self.kind == "logit" else self.unit

    @property
    def offset(self) -> float:
        """The lower bound of a logit, else zero."""
        return self.lower if self.kind == "logit" else 0.0

    @property
    def ceiling(self) -> float:
        """The greatest value that results have: the upper bound, one for parts of a composition."""
        return 1.0 if self.kind == "ilr" else self.upper

    def forward(self, values: Array) -> Array:
        """z (n, size) of values (n, parameters) within the bounds, kept the insets away from them."""
        lower, upper = np.array(self.insets).T
        if self.kind == "log":
            return np.log(np.maximum(values, lower))
        if self.kind == "logit":
            above = np.clip(values - self.lower, lower, self.scale - upper)
            return np.log(above) - np.log(np.clip(self.upper - values, upper, self.scale - lower))
        if self.kind == "sqrt":
            return np.sqrt(values)
        if self.kind == "ilr":
            return np.log(np.maximum(values, lower)) @ helmert(len(self.columns))
        if self.kind == "softplus":
            above = np.maximum(values, lower)
            return above + self.unit * np.log(-np.expm1(-above / self.unit))
        return values

    def inverse(self, z: Array) -> Array:
        """Values (n, parameters) of z (n, size), NaN beyond float64."""
        with np.errstate(all="ignore"):
            if self.kind == "softplus":  # z itself, far from the bound
                return np.maximum(z, 0.0) + self.unit * np.log1p(np.exp(-abs(z) / self.unit))
            values = self.scale * self.standard_inverse(z.T).T + self.offset
        values[np.isinf(values)] = np.nan
        return np.clip(values, self.lower, self.ceiling)

    def standard_inverse(self, z: Array) -> Array:
        """Values (parameters, ...) of z / unit (size, ...), for the bounds 0 and 1 of a logit."""
        if self.kind == "log":
            return np.exp(z)
        if self.kind == "logit":
            return expit(z)
        if self.kind == "sqrt":
            return np.maximum(z, 0.0) ** 2
        if self.kind == "ilr":
            return composition(z)
        if self.kind == "softplus":
            return np.logaddexp(0.0, z)
        return np.array(z)

    def log_jacobian(self, z: Array) -> Array:
        """log |dt/dz| (n,) at z (n, size)."""
        if self.kind == "log":
            return z[:, 0]
        if self.kind == "logit":
            return np.log(self.scale) + log_expit(z[:, 0]) + log_expit(-z[:, 0])
        if self.kind == "softplus":
            return log_expit(z[:, 0] / self.unit)
        if self.kind == "sqrt":
            with np.errstate(divide="ignore"):
                return np.log(2.0 * np.maximum(z[:, 0], 0.0))
        if self.kind == "ilr":
            parts = len(self.columns)
            return 0.5 * np.log(parts) + log_softmax(z @ helmert(parts).T, axis=1).sum(axis=1)
        return np.zeros(len(z))

    def to_attrs(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The entry in lists, strings and numbers."""
        bounds = {"lower": self.lower, "upper": self.upper} if self.kind == "logit" else {}
        bounds |= {"scale": self.unit} if self.kind == "softplus" else {}
        parameters = [names[column] for column in self.columns]
        return {"kind": self.kind, "parameters": parameters, **bounds, "insets": [list(pair) for pair in self.insets]}


@dataclass(frozen=True)
class SpectraTransform:
    """One function of the values of all bands, ``kind`` "log" or "sqrt", or None for none; the model is of its results.

    Values without a result, zero and below under "log", below zero under "sqrt", count as missing.
    """

    kind: str | None = None

    def forward(self, spectra: Array) -> Array:
        """The model's spectra of those in the user's units, in their precision, NaN where there is no result."""
        if self.kind is None:
            return spectra
        with np.errstate(invalid="ignore", divide="ignore"):
            made = np.log(spectra) if self.kind == "log" else np.sqrt(spectra)
        return np.where(np.isinf(made), np.nan, made)

    def inverse(self, made: Array) -> Array:
        """Spectra in the user's units."""
        if self.kind is None:
            return made
        with np.errstate(over="ignore"):
            return np.exp(made) if self.kind == "log" else np.maximum(made, 0.0) ** 2

    def slope(self, spectra: Array) -> Array:
        """Derivative of the function at spectra in the user's units, NaN where it has no result.

        By it noise goes to the model's units, to first order; it is infinite for the square root of zero.
        """
        spectra = np.where(np.isnan(self.forward(spectra)), np.nan, spectra).astype(np.float64)
        if self.kind is None:
            return np.ones_like(spectra)
        with np.errstate(divide="ignore"):
            return 1.0 / spectra if self.kind == "log" else 0.5 / np.sqrt(spectra)

    def log_volume(self, spectra: Array) -> Array:
        """Logs of the slopes, summed over the bands with a result, (n,) of (n, D): what log-densities gain by it."""
        if self.kind is None:
            return np.zeros(len(spectra))
        return np.asarray(np.nansum(np.log(self.slope(spectra)), axis=1))


UNCHANGED = SpectraTransform()


def entry_from_attrs(attrs: Mapping[str, Any]) -> tuple[Any, Any, tuple[tuple[float, float], ...]]:
    """Key and value that the user would write, and the insets, of what ``Entry.to_attrs`` wrote."""
    kind, parameters = attrs["kind"], attrs["parameters"]
    key = tuple(parameters) if kind == "ilr" else parameters[0]
    numbers = {"logit": ("lower", "upper"), "softplus": ("scale",)}.get(kind, ())
    value = (kind, *(attrs[name] for name in numbers)) if numbers else kind
    insets = tuple((float(low), float(high)) for low, high in attrs["insets"])
    if len(insets) != len(parameters) or not all(0.0 <= end < np.inf for pair in insets for end in pair):
        raise ValueError(f"insets {insets} do not fit the {len(parameters)} parameters of a transform")
    return key, value, insets


@lru_cache
def helmert(parts: int) -> Array:
    """Orthonormal basis (parts, parts - 1) of what sums to zero: each column sets a part against those before it."""
    basis = np.zeros((parts, parts - 1))
    for j in range(1, parts):
        basis[:j, j - 1] = 1.0 / np.sqrt(j * (j + 1))
        basis[j, j - 1] = -np.sqrt(j / (j + 1))
    basis.flags.writeable = False
    return basis


def composition(z: Array) -> Array:
    """Parts (m, ...), summing to one, of isometric log-ratios (m - 1, ...)."""
    logs = np.stack([sum(weight * ratio for weight, ratio in zip(row, z, strict=True)) for row in helmert(len(z) + 1)])
    logs -= logs.max(axis=0)
    np.exp(logs, out=logs)
    logs /= logs.sum(axis=0)
    return logs


def entries_of(spec: Mapping[Any, Any], names: tuple[str, ...]) -> tuple[Entry, ...]:
    """Entries for all names, a composition where its first part stands; see ``Transforms.of`` for the errors."""
    if not isinstance(spec, Mapping):
        raise ValueError(
            f"transforms are {spec!r}: pass a dictionary of parameter to transform, such as {{'a': 'log'}}"
        )
    by_column: dict[int, tuple[str, tuple[int, ...], float, float, float]] = {}
    for key, value in spec.items():
        kind, lower, upper, unit = _kind(key, value)
        columns = _columns(key, kind, names)
        for column in columns:
            if column in by_column or columns.count(column) > 1:
                raise ValueError(f"parameter {names[column]!r} has two entries in transforms: keep one of them")
        by_column.update(dict.fromkeys(columns, (kind, columns, lower, upper, unit)))
    entries: list[Entry] = []
    start = 0
    for index in range(len(names)):
        kind, columns, lower, upper, unit = by_column.get(index, ("identity", (index,), -np.inf, np.inf, 1.0))
        if index == min(columns):
            entries.append(Entry(kind, columns, start, lower, upper, ((0.0, 0.0),) * len(columns), unit))
            start += entries[-1].size
    return tuple(entries)


def _kind(key: Any, value: Any) -> tuple[str, float, float, float]:
    """Kind, bounds and unit of a value of the user's dictionary."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if parts and parts[0] == "logit":
        bounds = parts[1:]
        if len(bounds) != 2 or not all(isinstance(bound, Real) and np.isfinite(float(bound)) for bound in bounds):
            raise ValueError(f'the logit of {key!r} is {value!r}: write ("logit", lower, upper) with finite bounds')
        lower, upper = (float(bound) for bound in bounds)
        if not lower < upper or not np.isfinite(upper - lower):
            raise ValueError(f"the logit of {key!r} has bounds {lower:g} and {upper:g}: lower must be less than upper")
        return "logit", lower, upper, 1.0
    if parts and parts[0] == "softplus" and len(parts) < 3:
        if not all(isinstance(scale, Real) and 0.0 < float(scale) < np.inf for scale in parts[1:]):
            raise ValueError(f'the softplus of {key!r} is {value!r}: write ("softplus", scale) with a scale above zero')
        return "softplus", 0.0, np.inf, float(parts[1]) if len(parts) == 2 else np.nan
    if len(parts) != 1 or parts[0] not in ("identity", "log", "sqrt", "ilr"):
        raise ValueError(f"transform {value!r} of {key!r} is not known: use {ACCEPTED}")
    return parts[0], LOWER.get(parts[0], -np.inf), np.inf, 1.0


def _columns(key: Any, kind: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """The columns of a key of the user's dictionary."""
    if kind == "ilr":
        if not isinstance(key, tuple):
            raise ValueError(
                f'"ilr" is asked of {key!r}, which is not a tuple: name all parts of the composition, ("a", "b", "c")'
            )
        if len(key) < 2:
            raise ValueError(f'"ilr" is asked of {key!r}: a composition has at least two parts, name them all')
    elif isinstance(key, tuple):
        raise ValueError(f"{kind!r} is asked of {key!r} together: write one entry a parameter, only ilr takes several")
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if part not in names:
            raise ValueError(f"transforms name the parameter {part!r}, the parameters are {', '.join(names)}")
    return tuple(names.index(part) for part in parts)
