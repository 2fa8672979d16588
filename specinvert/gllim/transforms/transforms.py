"""Bounded and skewed parameters: the model is trained on transforms z of the user's parameters t.

==================  ===================  =================================================================
a parameter's       domain               z
==================  ===================  =================================================================
``"identity"``      any value            t
``"softplus"``      t > 0                t + s log(1 - exp(-t / s)), undone by s log(1 + exp(z / s)): z is t where that
                                         is large beside the scale s, and near log t close to zero
``"log"``           t > 0                log t
``"sqrt"``          t >= 0               sqrt(t), undone by max(z, 0)^2
``("logit", l, u)`` l < t < u            log((t - l) / (u - t))
``"ilr"``           parts summing to 1   isometric log-ratios, one fewer than parts (Egozcue et al., 2003, *Isometric
                                         logratio transformations for compositional data analysis*)
==================  ===================  =================================================================

Values on an open bound have no z. A :class:`Tally` of the training values says how close they come; ``settle`` keeps
half that distance as the inset, ``INSET`` scales for a softplus, and ``forward`` moves everything closer to the bound
than the inset to it.
Back-transforms stay within the closed bounds; what float64 cannot hold becomes NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew

from ..core import Array
from ..mixtures import BENT, Bends
from .specification import Entry, entries_of, entry_from_attrs

Counts = NDArray[np.intp]

SUM_TOLERANCE = 1e-6
"""Parts of a composition sum to one within this."""
SCALE = 0.1
"""Scale of a softplus where the user gives none, in standard deviations of the training values."""
INSET = 0.0025
"""Inset of a softplus, in its scale: nothing beside what a parameter varies, and z of zero is no outlier."""
DECADES = 30.0
"""Ratio of the 95 % to the 5 % quantile of positive values above which they may be bounded by a log."""


def bound_of(values: Array) -> str | None:
    """The bound that training values (n,) of a parameter suggest: None, "softplus" or "log".

    None where some are below zero or all are equal. A log where they span decades, all are above zero, and their
    logarithms are less skewed.
    """
    if not len(values) or values.min() < 0.0 or values.min() == values.max():
        return None
    low, high = np.quantile(values, [0.05, 0.95])
    if values.min() > 0.0 and high > DECADES * low and abs(skew(np.log(values))) < abs(skew(values)):
        return "log"
    return "softplus"


@dataclass(frozen=True)
class Tally:
    """How parameters (L_t,) of some rows lie to their bounds; ``+`` merges, in any order and grouping.

    Attributes
    ----------
    on_lower, on_upper : counts of values on an open bound.
    below, above, not_finite : counts of values outside the bounds, and of NaN and infinite ones.
    off_sum : counts of rows whose parts do not sum to one, at the first part of a composition.
    gap_lower, gap_upper : smallest distance of the values within to the bounds, infinite where there is none.
    low, high : the extreme values. worst_sum : the sum furthest from one.
    """

    on_lower: Counts
    on_upper: Counts
    below: Counts
    above: Counts
    not_finite: Counts
    off_sum: Counts
    gap_lower: Array
    gap_upper: Array
    low: Array
    high: Array
    worst_sum: Array

    def __add__(self, other: Tally) -> Tally:
        counts = ("on_lower", "on_upper", "below", "above", "not_finite", "off_sum")
        least = ("gap_lower", "gap_upper", "low")
        # of two sums equally far from one the greater is kept: merging is commutative
        mine, its = (np.stack([abs(tally.worst_sum - 1.0), tally.worst_sum]) for tally in (self, other))
        further = (mine[0] > its[0]) | ((mine[0] == its[0]) & (mine[1] >= its[1]))
        return Tally(
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            **{name: np.minimum(getattr(self, name), getattr(other, name)) for name in least},
            high=np.maximum(self.high, other.high),
            worst_sum=np.where(further, self.worst_sum, other.worst_sum),
        )


@dataclass(frozen=True)
class Transforms:
    """Transforms of the parameters ``names`` (L_t,), by entries in the order of the transformed ones (L_z,)."""

    names: tuple[str, ...]
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, spec: Mapping[Any, Any] | None, names: Sequence[str]) -> Transforms:
        """Transforms the user writes, such as ``{"a": "log", "b": ("logit", 0, 1), ("c", "d", "e"): "ilr"}``.

        Parameters without an entry stay as they are.

        Raises
        ------
        ValueError : an unknown parameter or transform, bounds that are not lower < upper, a parameter in two entries,
            or a composition that is not a tuple of at least two names.
        """
        if isinstance(names, str):
            raise ValueError(f"parameter names are the string {names!r}: pass a sequence of names")
        return cls(tuple(names), entries_of({} if spec is None else spec, tuple(names)))

    @classmethod
    def found(cls, spec: Mapping[Any, Any] | None, names: Sequence[str], values: Array) -> Transforms:
        """Transforms settled on finite training values (n, L_t): those the user writes, and bounds for the others.

        A parameter that ``spec`` does not name has a bound at zero where :func:`bound_of` its values says so. An empty
        ``spec`` is none at all. Raises as :meth:`of` and :meth:`settle`.
        """
        cls.of(spec, names)  # raises where it is none
        given = dict(spec or {})
        named = {name for key in given for name in (key if isinstance(key, tuple) else (key,))}
        if spec is None or given:
            bounds = {name: bound_of(values[:, i]) for i, name in enumerate(names) if name not in named}
            given |= {name: bound for name, bound in bounds.items() if bound is not None}
        made = cls.of(given, names)
        entries = [
            replace(entry, unit=SCALE * float(values[:, entry.columns[0]].std()) or 1.0)
            if np.isnan(entry.unit)
            else entry
            for entry in made.entries
        ]
        made = replace(made, entries=tuple(entries))
        return made if made.is_identity else made.settle(made.tally(values))

    @property
    def n_physical(self) -> int:
        """L_t."""
        return len(self.names)

    @property
    def n_transformed(self) -> int:
        """L_z, one less than L_t for every composition."""
        return sum(entry.size for entry in self.entries)

    @property
    def transformed_names(self) -> tuple[str, ...]:
        """Names of z: the parameter's, or ``ilr(a,b,c)[0]``."""
        names: list[str] = []
        for entry in self.entries:
            parts = [self.names[column] for column in entry.columns]
            names += parts if len(parts) == 1 else [f"ilr({','.join(parts)})[{i}]" for i in range(entry.size)]
        return tuple(names)

    @property
    def is_identity(self) -> bool:
        """Whether z is t."""
        return all(entry.kind == "identity" for entry in self.entries)

    @property
    def keeps_units(self) -> bool:
        """Whether z is t but near a bound."""
        return all(entry.kind in ("identity", "softplus") for entry in self.entries)

    @property
    def softness(self) -> Array:
        """Scales (L_z,) of the softplus, zero for other transforms."""
        scales = np.zeros(self.n_transformed)
        for entry in self.entries:
            if entry.kind == "softplus":
                scales[entry.z] = entry.unit
        return scales

    @property
    def estimates(self) -> tuple[str, ...]:
        """What estimates each parameter: its median under a log or a logit, which skew posteriors, else its mean.

        The means of the parts of a composition sum to one.
        """
        return tuple("median" if self.entry(i).kind in ("log", "logit") else "mean" for i in range(self.n_physical))

    def bends(self, columns: Sequence[int]) -> Bends:
        """What modes over some columns of z need to be those of t; a composition's are all or none among them."""
        kinds, units = np.zeros(self.n_transformed, dtype=np.int64), np.ones(self.n_transformed)
        for entry in self.entries:
            kinds[entry.start] = BENT.index(entry.kind)
            units[entry.start] = entry.size if entry.kind == "ilr" else entry.unit
        at = np.array([] if self.is_identity else columns, dtype=np.intp)
        return Bends(kinds[at], units[at])

    def entry(self, index: int) -> Entry:
        """The entry of physical parameter ``index``."""
        return next(entry for entry in self.entries if index in entry.columns)

    def column(self, index: int) -> int:
        """The column of z that belongs to physical parameter ``index``; ValueError for a part of a composition."""
        return self._alone(index).start

    def tally(self, values: Array) -> Tally:
        """Count values (n, L_t) on and beyond the bounds; bounds are compared in the values' own precision."""
        values = self._checked(values)
        with np.errstate(over="ignore"):
            lower, upper = (self._bounds(side).astype(values.dtype) for side in ("lower", "upper"))
        bounded = np.isfinite(lower)
        bent = np.array([self.entry(i).kind != "identity" for i in range(self.n_physical)], dtype=bool)
        finite = np.isfinite(values)
        inside = finite & (values > lower) & (values < upper)
        opened = bounded & np.array([self.entry(i).kind != "sqrt" for i in range(self.n_physical)], dtype=bool)

        def least(distances: Array, where: Any) -> Array:
            return np.where(where, distances, np.inf).min(axis=0, initial=np.inf)

        double = values.astype(np.float64)
        off_sum, worst_sum = np.zeros(self.n_physical, dtype=np.intp), np.ones(self.n_physical)
        for entry in self.entries:
            if entry.kind == "ilr" and len(values):
                sums = double[:, entry.columns].sum(axis=1)
                distance = np.where(np.isfinite(sums), abs(sums - 1.0), 0.0)
                off_sum[entry.columns[0]] = np.count_nonzero(distance > SUM_TOLERANCE)
                worst_sum[entry.columns[0]] = sums[distance == distance.max()].max() if distance.max() > 0 else 1.0
        return Tally(
            on_lower=((values == lower) & opened).sum(axis=0),
            on_upper=(values == upper).sum(axis=0, where=finite),
            below=(finite & (values < lower)).sum(axis=0),
            above=(finite & (values > upper)).sum(axis=0),
            not_finite=(~finite & bent).sum(axis=0),
            off_sum=off_sum,
            gap_lower=least(np.maximum(double - self._bounds("lower"), 0.0), inside & opened),
            gap_upper=least(np.maximum(self._bounds("upper") - double, 0.0), inside & np.isfinite(upper)),
            low=least(double, finite),
            high=-least(-double, finite),
            worst_sum=worst_sum,
        )

    def settle(self, tally: Tally) -> Transforms:
        """The transforms with insets of half the smallest distance that training values keep from their bounds.

        Warns once where values lie on a bound.

        Raises
        ------
        ValueError : values are outside their bounds or not finite, parts do not sum to one, all values of a parameter
            lie on its bounds, or a softplus has no scale.
        """
        self._refuse_outside(tally, "training values")
        self._refuse_scaleless()
        told, settled = [], []
        for entry in self.entries:
            insets = []
            for column in entry.columns:
                gaps, on = (
                    (float(getattr(tally, f"{what}_lower")[column]), float(getattr(tally, f"{what}_upper")[column]))
                    for what in ("gap", "on")
                )
                if sum(on) > 0 and not np.isfinite(gaps[0]):
                    raise ValueError(
                        f"all {int(sum(on))} training values of {self.names[column]!r} lie on the bounds of its "
                        f"{entry.kind} transform: leave the parameter out, or move the bounds away"
                    )
                tiny = float(np.finfo(np.float64).tiny)
                low, high = (max(0.5 * gap, tiny) if np.isfinite(gap) else 0.0 for gap in gaps)
                if entry.kind == "softplus":
                    insets.append((INSET * entry.unit, 0.0))
                    continue
                insets.append((low, high))
                told += [
                    f"{int(count)} of {self.names[column]!r} on {bound:g}, by {inset:.3g}"
                    for count, bound, inset in zip(on, (entry.lower, entry.upper), insets[-1], strict=True)
                    if count > 0
                ]
            settled.append(replace(entry, insets=tuple(insets)))
        if told:
            warnings.warn(
                "training values on the bound of a transform move inside by half the smallest distance of the others: "
                + "; ".join(told),
                UserWarning,
                stacklevel=2,
            )
        return replace(self, entries=tuple(settled))

    def forward(self, values: Array) -> Array:
        """Transformed parameters z (n, L_z) of values (n, L_t), NaN staying NaN.

        Raises
        ------
        ValueError : values outside the bounds, or on an open bound before ``settle``.
        """
        tally = self.tally(values)
        self._refuse_outside(replace(tally, not_finite=0 * tally.not_finite), "values")
        self._refuse_unsettled(tally)
        values = np.asarray(values, dtype=np.float64)
        z = np.empty((len(values), self.n_transformed))
        for entry in self.entries:
            z[:, entry.z] = entry.forward(values[:, entry.columns])
        return z

    def inverse(self, z: Array) -> Array:
        """Physical values (n, L_t) of z (n, L_z), within the closed bounds; NaN where float64 cannot hold them.

        The inverse of a mode of z is not the mode of t: see :meth:`bends`.
        """
        z = np.asarray(z, dtype=np.float64)
        values = np.empty((len(z), self.n_physical))
        for entry in self.entries:
            values[:, entry.columns] = entry.inverse(z[:, entry.z])
        return values

    def known_forward(self, index: int, values: Any) -> Array:
        """Transform values, of any shape, of physical parameter ``index`` that are known; NaN stays NaN.

        Raises
        ------
        ValueError : a part of a composition, values outside the bounds or, before ``settle``, on an open bound.
        """
        entry = self._alone(index)
        one = Transforms((self.names[index],), (replace(entry, columns=(0,), start=0),))
        values = np.asarray(values)
        return one.forward(values.reshape(-1, 1)).reshape(values.shape)

    def interval_forward(self, index: int, low: Array, high: Array) -> tuple[Array, Array]:
        """Transform the ends (n,) of intervals of physical parameter ``index``; NaN stays NaN.

        Ends on a bound or beyond it are infinite: all values on their side are meant.

        Raises
        ------
        ValueError : a part of a composition, or an interval that lies beyond a bound.
        """
        entry = self._alone(index)
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        beyond = (high <= entry.lower) | (low >= entry.upper)
        if beyond.any():
            row = int(np.argmax(beyond))
            raise ValueError(
                f"{self.names[index]!r} cannot lie from {low[row]:g} to {high[row]:g}: its {entry.kind} transform has "
                f"the bounds {entry.lower:g} and {entry.upper:g}"
            )
        with np.errstate(divide="ignore"):
            bare = replace(entry, insets=((0.0, 0.0),))
            first, last = (bare.forward(np.clip(end, entry.lower, entry.upper)) for end in (low, high))
        return np.where(low <= entry.lower, -np.inf, first), np.where(high >= entry.upper, np.inf, last)

    def inverse_of(self, index: int, z: Array) -> Array:
        """Values of physical parameter ``index`` of its z, of any shape; ValueError for a part of a composition."""
        z = np.asarray(z, dtype=np.float64)
        return self._alone(index).inverse(z.reshape(-1, 1)).reshape(z.shape)

    def log_jacobian(self, z: Array) -> Array:
        """log |dt/dz| (n,) at z (n, L_z): the log-density of t is that of z less this.

        A composition counts by all its parts but the last. It is -inf where some z of a sqrt is negative: there t
        has an atom at zero.
        """
        z = np.asarray(z, dtype=np.float64)
        total = np.zeros(len(z))
        for entry in self.entries:
            total += entry.log_jacobian(z[:, entry.z])
        return total

    @property
    def spec(self) -> dict[Any, Any]:
        """What :meth:`of` makes these of, insets left out, parameters without a transform too."""
        return dict(entry_from_attrs(entry.to_attrs(self.names))[:2] for entry in self.entries)

    def to_attrs(self) -> dict[str, Any]:
        """Everything as lists, strings and numbers, for JSON."""
        return {"names": list(self.names), "entries": [entry.to_attrs(self.names) for entry in self.entries]}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Transforms:
        """The transforms that :meth:`to_attrs` wrote."""
        written = [entry_from_attrs(entry) for entry in attrs["entries"]]
        bare = cls.of({key: value for key, value, _ in written}, attrs["names"])
        settled = (replace(own, insets=insets) for own, (_, _, insets) in zip(bare.entries, written, strict=True))
        return replace(bare, entries=tuple(settled))

    def _alone(self, index: int) -> Entry:
        entry = self.entry(index)
        if entry.kind == "ilr":
            parts = ", ".join(self.names[column] for column in entry.columns)
            raise ValueError(
                f"{self.names[index]!r} is a part of the composition ({parts}) and has no transform of its own: "
                "only parameters outside compositions can be known"
            )
        return entry

    def _bounds(self, side: str) -> Array:
        return np.array([getattr(self.entry(i), side) for i in range(self.n_physical)], dtype=np.float64)

    def _checked(self, values: Array) -> Array:
        values = np.asarray(values)
        if values.dtype.kind != "f":
            values = values.astype(np.float64)
        if values.ndim != 2 or values.shape[1] != self.n_physical:
            raise ValueError(f"parameters have shape {values.shape}: {self.n_physical} need (n, {self.n_physical})")
        return values

    def _refuse_outside(self, tally: Tally, what: str) -> None:
        for entry in self.entries:
            for column in entry.columns:
                name = self.names[column]
                if tally.not_finite[column]:
                    raise ValueError(
                        f"{tally.not_finite[column]} {what} of {name!r} are NaN or infinite: leave these rows out"
                    )
                for count, side, extreme, bound in (
                    (tally.below[column], "below the lower", ("smallest", tally.low[column]), entry.lower),
                    (tally.above[column], "above the upper", ("greatest", tally.high[column]), entry.upper),
                ):
                    if count:
                        raise ValueError(
                            f"{count} {what} of {name!r} lie {side} bound {bound:g} of its {entry.kind} transform, the "
                            f"{extreme[0]} is {extreme[1]:g}: correct them, or choose other bounds or no transform"
                        )
            if tally.off_sum[entry.columns[0]]:
                parts = ", ".join(self.names[column] for column in entry.columns)
                raise ValueError(
                    f"the parts ({parts}) do not sum to one in {tally.off_sum[entry.columns[0]]} rows, the sum "
                    f"furthest off is {tally.worst_sum[entry.columns[0]]:.9g}: normalise them, or do without ilr"
                )

    def _refuse_scaleless(self) -> None:
        for entry in self.entries:
            if np.isnan(entry.unit):
                raise ValueError(
                    f'the softplus of {self.names[entry.columns[0]]!r} has no scale: write ("softplus", scale), or '
                    "find the transforms by the training values"
                )

    def _refuse_unsettled(self, tally: Tally) -> None:
        self._refuse_scaleless()
        for entry in self.entries:
            for column, insets in zip(entry.columns, entry.insets, strict=True):
                for side, inset in zip(("lower", "upper"), insets, strict=True):
                    count = getattr(tally, f"on_{side}")[column]
                    if count and inset == 0.0:
                        raise ValueError(
                            f"{count} values of {self.names[column]!r} lie on the {side} bound "
                            f"{getattr(entry, side):g} of its {entry.kind} transform, where it is infinite: settle the "
                            "transforms on a tally of the training values first"
                        )
