"""The correction of posteriors that are not as wide as they say, from PIT values: fitted, applied and stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from ..gllim.core import Array

_ROUNDING = 1e-6

GRID: Array = np.concatenate([[0.0], np.sin(0.5 * np.pi * np.arange(1, 200) / 200) ** 2, [1.0]])
"""Levels (201,) where a recalibration is stored.

Their step, 0.0157 sqrt(p (1 - p)), is a fixed share of the sampling error of an empirical CDF at level p: 0.7 of it
for 2000 values.
"""

IDENTITY_SHARE = 1e-11
"""Share of the identity in a recalibration: what makes it strictly increasing where PIT values repeat.

Raw levels so stay distinct in double precision next to 1. Between the levels 0.05 and 0.95 none is nearer than 5e-13 to
0 or 1, 7 standard deviations of a Gaussian.
"""

MANY = 2000
"""Pairs from which the map is the whole empirical one."""
FEW = 50
"""Fewest pairs for a recalibration by cross-validation: the coverage of 90 % intervals errs by 4 %."""
KNOTS: Array = ndtri([0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975])
"""Standard normal scores (J,) where the map of few pairs is stored; it is odd about the middle one, or as found."""
ASYMMETRY = 2.24
"""Of sqrt(n) sup |F(z) + F(-z) - 1|, which symmetric scores exceed in one case of twenty (Butler, 1969)."""
SATURATED = 8.0
"""Score beyond which PIT values lose their digits."""
FOLDS = 10
"""Parts of the pairs that are left out in turn, to tell what a recalibration is worth; two where pairs are many."""
SOURCES, METHODS = ("simulations", "measurements", "training"), ("held-out", "cross-validation")


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Levels to ask of a posterior so that its quantiles hold what they say (Kuleshov et al., 2018).

    With G the CDF of PIT values of truths that were not trained on, the quantile of level p is taken from the posterior
    at the raw level G^-1(p), and a PIT value u becomes G(u). For the central interval of level 0.9, take the raw levels
    of 0.05 and 0.95. The map increases strictly from (0, 0) to (1, 1); it corrects each parameter by itself, on average
    over spectra like those that it was found on.

    From ``MANY`` pairs on it is the empirical CDF. Of fewer, standard normal scores z = Phi^-1(u) are mapped, at
    ``KNOTS`` by quantiles with the finite-sample correction of conformal prediction, n + 1 (Vovk, Gammerman and Shafer,
    2005), by lines between and along the same factor beyond, however far: of both sides together where they do not
    differ significantly, else of each side.

    A PIT of exactly 0 or 1 says only that the truth is beyond what double precision resolves (about 8 standard
    deviations). Where a share a of the values is there, no raw level reaches the truth, and intervals of level above
    1 - 2 a hold less than they say; `reach` gives that level. Scores have no such limit.

    Source: Kuleshov, Fenner and Ermon, 2018, Accurate uncertainties for deep learning using calibrated regression,
    ICML, arXiv:1807.00263.

    Attributes
    ----------
    levels : (M,) nominal levels from 0 to 1.
    raw : (P, M) raw level of each parameter at these.
    scores, raw_scores : (J,) nominal scores and (P, J) raw ones, where the map is of scores; else None.
    source, method : of what the truths were, "simulations", "measurements", or "training", samples of the training set,
        and how they were kept out of training, "held-out" or "cross-validation".
    n : (P,) pairs of truth and estimate; None in models of former versions.
    before, after : (P,) share of the truths in 90 % intervals without and with the correction, the latter of pairs left
        out in turn.

    Examples
    --------
    >>> pit = xr.Dataset({"lai": ("sample", np.linspace(0.0, 1.0, 2001) ** 2)})
    >>> correction = Recalibration.of(pit)
    >>> correction.raw_level(0, [0.5]).round(3).tolist()
    [0.25]
    >>> correction
    <Recalibration by 2001 held-out pairs of simulations, 90 % intervals hold 0.75, then 0.9>
    """

    levels: Array
    raw: Array
    scores: Array | None = None
    raw_scores: Array | None = None
    source: str = "simulations"
    method: str = "held-out"
    n: Array | None = None
    before: Array | None = None
    after: Array | None = None

    def __post_init__(self) -> None:
        if self.levels.ndim != 1 or self.raw.ndim != 2 or self.raw.shape[1:] != self.levels.shape:
            raise ValueError(
                f"raw levels of shape {self.raw.shape} do not fit levels of shape {self.levels.shape}; "
                "they need (parameters, levels)"
            )
        for name, rows in (("levels", self.levels[None]), ("raw", self.raw)):
            rising = (np.diff(rows) > 0).all() and (rows[:, 0] == 0).all() and (rows[:, -1] == 1).all()
            if not rising:
                raise ValueError(f"{name} of a recalibration must increase strictly from 0 to 1")
        if (self.scores is None) != (self.raw_scores is None):
            raise ValueError("a recalibration of scores needs both, the nominal and the raw ones")
        if self.scores is not None and self.raw_scores is not None:
            if self.raw_scores.shape != (len(self.raw), len(self.scores)):
                raise ValueError(f"raw scores of shape {self.raw_scores.shape} do not fit {len(self.raw)} parameters")
            rows = np.concatenate([self.scores[None], self.raw_scores])
            if not ((np.diff(rows) > 0).all() and np.isfinite(rows).all()):
                raise ValueError("scores and raw scores of a recalibration must increase strictly")
        for told in (self.n, self.before, self.after):
            if told is not None and told.shape != (len(self.raw),):
                raise ValueError(f"counts and shares of a recalibration are not of {len(self.raw)} parameters")
        for given, known in ((self.source, SOURCES), (self.method, METHODS)):
            if given not in known:
                raise ValueError(f"{given!r} is not one of {', '.join(map(repr, known))}")

    def __repr__(self) -> str:
        return f"<Recalibration {self.described}>"

    @property
    def described(self) -> str:
        """What it was found on, and what it is worth, in words."""
        if self.n is None or self.before is None or self.after is None:
            return f"by {self.method} pairs of {self.source}"
        n = self.n[self.n > 0]
        counts = "-".join(f"{count}" for count in sorted({int(n.min()), int(n.max())}))
        shown = [values[self.n > 0] for values in (self.before, self.after)]
        shares = ", then ".join(", ".join(f"{share:.2g}" for share in values) for values in shown)
        return f"by {counts} {self.method} pairs of {self.source}, 90 % intervals hold {shares}"

    @classmethod
    def of(cls, pit: xr.Dataset, minimum: int = MANY, source: str = "simulations") -> Recalibration:
        """Estimate the map from PIT values of truths that were held out of training.

        Parameters
        ----------
        pit : PIT values, a variable a parameter; their order is that of the rows of `raw`.
        minimum : fewest values to accept for any parameter. The CDF of n values errs by sqrt(p (1 - p) / n): with 2000,
            coverage of 90 % intervals by 0.7 %.
        source : "simulations", "measurements" or "training".

        Raises
        ------
        ValueError : a parameter has fewer values than `minimum`, or `pit` holds no variable or a value outside [0, 1].
        """
        values = list(_enough(pit_values(pit), minimum).values())
        if min(u.size for u in values) >= MANY:
            return cls._empirical(values, source, "held-out")
        edge = ndtr(-SATURATED), 1.0 - np.finfo(float).eps
        return cls._of_few([ndtri(np.clip(u, *edge)) for u in values], source, "held-out")

    @classmethod
    def of_scores(
        cls,
        scores: xr.Dataset,
        minimum: int = FEW,
        source: str = "simulations",
        method: str = "cross-validation",
    ) -> Recalibration:
        """Estimate the map from standard normal scores z = Phi^-1(PIT) of truths, whatever their size.

        Those of cross-validation: each truth is compared with the posterior of a model fitted without it
        (:meth:`specinvert.inverter.Inversion.scores`), all put together.

        Parameters
        ----------
        scores : a variable a parameter; their order is that of the rows of `raw`. NaN do not count.
        minimum : fewest values to accept for any parameter.
        source : "simulations", "measurements" or "training". method : "held-out" or "cross-validation".

        Raises
        ------
        ValueError : a parameter has fewer values than `minimum`.

        Examples
        --------
        >>> scores = xr.Dataset({"lai": ("sample", 12.0 * np.random.default_rng(0).standard_normal(125))})
        >>> correction = Recalibration.of_scores(scores)
        >>> correction.raw_score(0, [0.05, 0.95]).round().tolist()
        [-18.0, 18.0]
        """
        loaded = scores.compute()
        values = list(_enough({str(name): _flat(one) for name, one in loaded.data_vars.items()}, minimum).values())
        saturated = any((np.abs(z) > SATURATED).mean() > 0.01 for z in values)
        if min(z.size for z in values) >= MANY and not saturated:
            return cls._empirical([ndtr(z) for z in values], source, method)
        return cls._of_few(values, source, method)

    @classmethod
    def _empirical(cls, values: list[Array], source: str, method: str) -> Recalibration:
        raw = np.array([_quantiles(u) for u in values])

        def after(fitted: Array, left: Array) -> Array:
            return np.asarray(np.interp(left, _quantiles(fitted), GRID))

        shares = np.array([_shares(u, u, after) for u in values])
        return cls(GRID.copy(), raw, None, None, source, method, np.array([u.size for u in values]), *shares.T)

    @classmethod
    def _of_few(cls, values: list[Array], source: str, method: str) -> Recalibration:
        raw_scores = np.array([_score_knots(z) for z in values])
        raw = ndtr(np.array([bent(ndtri(GRID), KNOTS, knots) for knots in raw_scores]))
        raw = (1 - IDENTITY_SHARE) * raw + IDENTITY_SHARE * GRID

        def after(fitted: Array, left: Array) -> Array:
            return np.asarray(ndtr(bent(left, _score_knots(fitted), KNOTS)))

        shares = np.array([_shares(z, ndtr(z), after) for z in values])
        n = np.array([z.size for z in values])
        return cls(GRID.copy(), raw, KNOTS.copy(), raw_scores, source, method, n, *shares.T)

    def placed(self, rows: Sequence[int | None]) -> Recalibration:
        """The rows in another order; None stands for a parameter without pairs, whose map is the identity."""
        if list(rows) == list(range(len(self.raw))):
            return self

        def chosen(values: Array | None, empty: ArrayLike) -> Any:
            return None if values is None else np.array([empty if row is None else values[row] for row in rows])

        return replace(
            self,
            raw=chosen(self.raw, self.levels),
            raw_scores=chosen(self.raw_scores, KNOTS),
            n=chosen(self.n, 0),
            **{name: chosen(getattr(self, name), np.nan) for name in ("before", "after")},
        )

    @property
    def reach(self) -> Array:
        """(P,) level of the widest central interval whose ends double precision resolves; 1 if all are."""
        if self.raw_scores is not None:
            return np.ones(len(self.raw))
        near = np.array([2 * IDENTITY_SHARE, 1 - 2 * IDENTITY_SHARE])
        below, above = np.array([self.level(i, near) for i in range(self.raw.shape[0])]).T
        beyond = np.maximum(below, 1 - above)
        return np.asarray(np.where(beyond < self.levels[2], 1.0, 1 - 2 * beyond))

    def raw_level(self, parameter_index: int, level: ArrayLike) -> Array:
        """Say at which raw level the posterior has the quantile of a level.

        Parameters
        ----------
        parameter_index : row of `raw`.
        level : levels of quantiles, any shape, from 0 to 1; not levels of intervals.

        Returns
        -------
        Raw levels, shape of `level`; NaN stays NaN.

        Raises
        ------
        ValueError : a level is outside [0, 1].
        """
        asked: Array = np.asarray(level, dtype=np.float64)
        if ((asked < 0) | (asked > 1)).any():
            raise ValueError(f"levels run from {np.nanmin(asked):g} to {np.nanmax(asked):g}; give them between 0 and 1")
        if self.scores is not None and self.raw_scores is not None:
            return np.asarray(ndtr(self.raw_score(parameter_index, asked)))
        return np.asarray(np.interp(asked, self.levels, self.raw[parameter_index]))

    def raw_score(self, parameter_index: int, level: ArrayLike) -> Array:
        """The standard normal score of `raw_level`, however far out."""
        if self.scores is None or self.raw_scores is None:
            return np.asarray(ndtri(self.raw_level(parameter_index, level)))
        return self.raw_of_score(parameter_index, ndtri(np.asarray(level, dtype=np.float64)))

    def raw_of_score(self, parameter_index: int, scores: ArrayLike) -> Array:
        """Raw scores of nominal ones, however far out, where the map is of scores."""
        if self.scores is None or self.raw_scores is None:
            return np.asarray(ndtri(self.raw_level(parameter_index, ndtr(scores))))
        return bent(np.asarray(scores, dtype=np.float64), self.scores, self.raw_scores[parameter_index])

    def level(self, parameter_index: int, raw: ArrayLike) -> Array:
        """Invert `raw_level`: the recalibrated PIT of a raw PIT.

        Parameters
        ----------
        parameter_index : row of `raw`.
        raw : raw levels or PIT values, any shape; below 0 and above 1 count as 0 and 1.

        Returns
        -------
        Levels, shape of `raw`; NaN stays NaN.
        """
        u = np.asarray(raw, dtype=np.float64)
        if self.raw_scores is not None:
            return np.asarray(ndtr(self.score(parameter_index, ndtri(np.clip(u, 0.0, 1.0)))))
        return np.asarray(np.interp(u, self.raw[parameter_index], self.levels))

    def score(self, parameter_index: int, raw: ArrayLike) -> Array:
        """Invert `raw_score`: the recalibrated score of a raw score."""
        z = np.asarray(raw, dtype=np.float64)
        if self.scores is None or self.raw_scores is None:
            return np.asarray(ndtri(self.level(parameter_index, ndtr(z))))
        return bent(z, self.raw_scores[parameter_index], self.scores)

    def recalibrated(self, pit: xr.Dataset) -> xr.Dataset:
        """PIT values, a variable a parameter in the order of `raw`, as they are with the correction."""
        return pit.assign({name: pit[name].copy(data=self.level(i, pit[name])) for i, name in enumerate(pit.data_vars)})

    def pit_of_scores(self, scores: xr.Dataset) -> xr.Dataset:
        """PIT values with the correction, of scores without it, a variable a parameter in the order of `raw`."""
        corrected = {name: ndtr(self.score(i, scores[name])) for i, name in enumerate(scores.data_vars)}
        return scores.assign({name: scores[name].copy(data=values) for name, values in corrected.items()})

    def to_arrays(self) -> dict[str, Array]:
        """Return what a model file stores: `recalibration_level` (M,) and `recalibration_raw` (P, M).

        Of a map of scores `recalibration_score` (J,) and `recalibration_raw_score` (P, J) too.
        """
        arrays = {"recalibration_level": self.levels, "recalibration_raw": self.raw}
        if self.scores is not None and self.raw_scores is not None:
            arrays |= {"recalibration_score": self.scores, "recalibration_raw_score": self.raw_scores}
        return arrays

    def to_attrs(self) -> dict[str, Any]:
        """What it was found on, as JSON holds it."""
        numbers = {"n": self.n, "before": self.before, "after": self.after}
        told = {name: None if values is None else values.tolist() for name, values in numbers.items()}
        return {"source": self.source, "method": self.method, **told}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike], attrs: Mapping[str, Any] | None = None) -> Recalibration:
        """Make it again from `to_arrays` and `to_attrs`; other entries of the arrays are left alone.

        Raises
        ------
        KeyError : an array is missing.
        ValueError : shapes do not fit or a map does not increase from 0 to 1.
        """
        of_scores = {"recalibration_score", "recalibration_raw_score"} & set(arrays)
        needed = ["level", "raw", *(["score", "raw_score"] if of_scores else [])]
        found: list[Any] = [np.asarray(arrays[f"recalibration_{name}"], dtype=np.float64) for name in needed]
        told: dict[str, Any] = dict(attrs or {})
        told |= {name: np.array(value) for name, value in told.items() if isinstance(value, list)}
        return cls(*found, **told)


def _quantiles(u: Array) -> Array:
    """G^-1 on `GRID`: the sorted values at i / (n + 1), joined by lines, with a trace of the identity."""
    knots = np.concatenate([[0.0], np.sort(u), [1.0]])
    inverse = np.interp(GRID, np.linspace(0.0, 1.0, u.size + 2), knots)
    return np.asarray((1 - IDENTITY_SHARE) * inverse + IDENTITY_SHARE * GRID)


def _score_knots(z: Array) -> Array:
    """Raw scores (J,) at `KNOTS`: quantiles of |z| with both signs, or of z where its two sides differ."""
    n, size = z.size, np.sort(np.abs(z))
    below, above = np.searchsorted(np.sort(z), -size, side="left"), np.searchsorted(np.sort(z), size, side="right")
    if np.sqrt(n) * np.abs((below + above) / n - 1.0).max(initial=0.0) > ASYMMETRY:
        knots = np.interp((n + 1) * ndtr(KNOTS), np.arange(1, n + 1), np.sort(z))
    else:
        ends = np.interp((n + 1) * (2.0 * ndtr(np.abs(KNOTS)) - 1.0), np.arange(1, n + 1), size)
        knots = np.sign(KNOTS) * ends
    return np.asarray((1 - IDENTITY_SHARE) * knots + IDENTITY_SHARE * KNOTS)


def bent(x: Array, knots: Array, values: Array) -> Array:
    """Lines through (knots, values) (J,); beyond the ends along that from the middle to the end."""
    middle, inner = len(knots) // 2, np.interp(x, knots, values)
    for end, outside in ((0, x < knots[0]), (-1, x > knots[-1])):
        slope = (values[end] - values[middle]) / (knots[end] - knots[middle])
        inner = np.where(outside, values[end] + slope * (x - knots[end]), inner)
    return np.asarray(inner)


def _shares(values: Array, pit: Array, after: Callable[[Array, Array], Array]) -> tuple[float, float]:
    """Shares of PIT values in 90 % intervals, as they are and as ``after(fitted, left)`` makes those left out."""
    folds = FOLDS if values.size < FOLDS * MANY else 2
    fold = np.random.default_rng(0).permutation(values.size) % folds
    corrected = np.full(values.size, np.nan)
    for number in range(folds):
        left = fold == number
        if left.any() and not left.all():
            corrected[left] = after(values[~left], values[left])
    shares = [float(np.mean(np.abs(2.0 * u - 1.0) <= 0.9 + 1e-12)) for u in (pit, corrected)]
    return shares[0], shares[1]


def _flat(values: xr.DataArray) -> Array:
    flat = values.values.ravel().astype(np.float64)
    return np.asarray(flat[~np.isnan(flat)])


def _enough(values: dict[str, Array], minimum: int) -> dict[str, Array]:
    """The values; ValueError where a parameter has too few."""
    if not values:
        raise ValueError("the Dataset holds no variable; give one for each parameter")
    for name, one in values.items():
        if one.size < max(minimum, 1):
            raise ValueError(
                f"{name} has {one.size} finite pairs of truth and estimate, recalibration needs {max(minimum, 1)}: "
                "hold out more simulations, or accept a coarser map with a smaller minimum"
            )
    return values


def pit_values(pit: xr.Dataset) -> dict[str, Array]:
    """PIT values in memory, flat, in double precision and without NaN, by parameter.

    Raises
    ------
    ValueError : `pit` holds no variable or a value outside [0, 1].
    """
    names = [str(name) for name, values in pit.data_vars.items() if "grid_mapping_name" not in values.attrs]
    if not names:
        raise ValueError("the Dataset of PIT values holds no variable; give one for each parameter")
    loaded = pit[names].compute()
    flat: dict[str, Array] = {}
    for name in names:
        u = _flat(loaded[name])
        if u.size and not (u.min() >= -_ROUNDING and u.max() <= 1 + _ROUNDING):
            raise ValueError(
                f"PIT values of {name} run from {u.min():g} to {u.max():g}; give the posterior's CDF at the truth, "
                "between 0 and 1"
            )
        flat[name] = np.clip(u, 0.0, 1.0)
    return flat
