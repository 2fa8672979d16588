"""What becomes of posteriors that values of a field have corrected, and of levels that simulations have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from ..gllim.core import Array
from ..gllim.mixtures import quantile, score_quantile
from ..gllim.model import GLLiMParameters, Scaling
from ..gllim.transforms import Transforms
from .recalibration import IDENTITY_SHARE, KNOTS, Recalibration, bent

CALIBRATION_KNOTS: Array = KNOTS
"""Standard normal scores (J,) where the widths of a calibration by field values are stored."""
_ARRAYS = ("shift", "slope", "raw_score")


@dataclass(frozen=True, eq=False)
class FieldCalibration:
    """A bias, a slope and widths of intervals for each parameter, by a few values that were measured in the field.

    The posterior of a transformed parameter z becomes that of shift + slope z, in all that an inversion gives: the
    model itself is written for it, A / slope and so on. Intervals are then as wide as groups of values left out say
    (:mod:`specinvert.scores`): quantiles and central intervals are taken at other scores, shortest intervals hold as
    much as the central ones, standard deviations and covariances are scaled by the factor of one deviation. Draws,
    modes, entropy and scores of the whole density keep the posterior's own width.

    Attributes
    ----------
    shift, slope : (P,) of the transformed parameters, 0 and 1 where nothing was corrected.
    raw_scores : (P, J) scores to ask for in place of ``CALIBRATION_KNOTS``, before those of a recalibration.
    table : what was found of each calibrated parameter: n, n_groups, worth, signal, kind, rmse, inside.
    groups : what the groups were named after.
    noise : what the inversion was told of noise, as :func:`record_conditions` puts it; None without.
    """

    shift: Array
    slope: Array
    raw_scores: Array
    table: Mapping[str, Mapping[str, Any]]
    groups: str
    noise: Any = None

    def __post_init__(self) -> None:
        if self.raw_scores.shape != (len(self.shift), len(CALIBRATION_KNOTS)) or self.slope.shape != self.shift.shape:
            raise ValueError(f"raw scores of shape {self.raw_scores.shape} do not fit {len(self.shift)} parameters")
        finite = all(np.isfinite(array).all() for array in (self.shift, self.slope, self.raw_scores))
        if not (finite and (np.diff(self.raw_scores) > 0).all() and (self.slope > 0).all()):
            raise ValueError("raw scores and slopes of a calibration must increase strictly")

    @classmethod
    def of(cls, names: Sequence[str], found: Mapping[str, Any], groups: str, noise: Any = None) -> FieldCalibration:
        """Of what was ``found`` of some of the parameters; the others are left as they are."""
        rows = [found.get(name) for name in names]
        knots = np.array([CALIBRATION_KNOTS if row is None else row.raw_scores for row in rows])
        told = ("n", "n_groups", "worth", "signal", "kind", "rmse", "inside")
        return cls(
            np.array([0.0 if row is None else row.shift for row in rows]),
            np.array([1.0 if row is None else row.slope for row in rows]),
            (1.0 - IDENTITY_SHARE) * knots + IDENTITY_SHARE * CALIBRATION_KNOTS,
            {name: {key: getattr(row, key) for key in told} for name, row in found.items()},
            groups,
            noise,
        )

    def __repr__(self) -> str:
        return f"<FieldCalibration {self.described}>"

    @property
    def described(self) -> str:
        """What it was found on, and what it is worth, in words."""
        said = []
        for name, row in self.table.items():
            did = {"none": "", "bias": ", bias corrected", "slope": ", bias and slope corrected"}[row["kind"]]
            before, after = (f"{100.0 * share:.0f}" for share in row["inside"])
            said.append(
                f"{name} by {row['n']} field values of {row['n_groups']} groups ({self.groups}){did}, 90 % intervals "
                f"hold {before} % without and {after} % with it, of groups left out"
                + ("" if row["signal"] else "; the estimates tell no more than the mean of the field values")
            )
        return "; ".join(said)

    def factor(self, i: int) -> float:
        """By how much one standard deviation of parameter i is widened, beside its slope."""
        return float(bent(np.ones(1), CALIBRATION_KNOTS, self.raw_scores[i])[0])

    def raw(self, i: int, scores: ArrayLike) -> Array:
        """Scores to ask for in place of nominal ones."""
        return bent(np.asarray(scores, dtype=np.float64), CALIBRATION_KNOTS, self.raw_scores[i])

    def nominal(self, i: int, scores: ArrayLike) -> Array:
        """The inverse of :meth:`raw`: scores of truths as they are with the calibration."""
        return bent(np.asarray(scores, dtype=np.float64), self.raw_scores[i], CALIBRATION_KNOTS)

    def members(self, members: Sequence[GLLiMParameters], transforms: Transforms) -> tuple[GLLiMParameters, ...]:
        """The members of a model with bias and slope: theta of the corrected parameters."""
        moved = np.flatnonzero((self.shift != 0.0) | (self.slope != 1.0))
        if not moved.size:
            return tuple(members)
        shift, slope = np.zeros(transforms.n_transformed), np.ones(transforms.n_transformed)
        for i in moved:
            shift[transforms.column(int(i))], slope[transforms.column(int(i))] = self.shift[i], self.slope[i]
        n_bands = members[0].n_bands
        corrected = Scaling(np.zeros(n_bands), np.ones(n_bands), shift, slope)
        return tuple(corrected.to_user(theta) for theta in members)

    def to_arrays(self) -> dict[str, Array]:
        """What a model file stores: `calibration_shift` and `calibration_slope` (P,), and `calibration_raw_score`."""
        values = (self.shift, self.slope, self.raw_scores)
        return {f"calibration_{name}": array for name, array in zip(_ARRAYS, values, strict=True)}

    def to_attrs(self) -> dict[str, Any]:
        """What it was found on, as JSON holds it."""
        return {
            "table": {name: dict(row) for name, row in self.table.items()},
            "groups": self.groups,
            "noise": self.noise,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike], attrs: Mapping[str, Any]) -> FieldCalibration:
        """Make it again; KeyError or ValueError where something is missing or does not fit."""
        shift, slope, raw = (np.asarray(arrays[f"calibration_{name}"], dtype=np.float64) for name in _ARRAYS)
        return cls(shift, slope, raw, **attrs)


@dataclass(frozen=True)
class Corrections:
    """What is done to the scores and levels of a posterior: a calibration, on top of a recalibration; None: nothing."""

    recalibration: Recalibration | None = None
    calibration: FieldCalibration | None = None

    @property
    def by_scores(self) -> bool:
        """Whether scores are mapped, however far out, not PIT values."""
        return self.calibration is not None or (
            self.recalibration is not None and self.recalibration.raw_scores is not None
        )

    def asked(self, i: int, levels: Any, exact: bool) -> tuple[Any, Callable[[Array, Array, Array, Any], Array]]:
        """What to ask for levels of parameter i, and how: scores, or where not ``exact`` levels within (0, 1)."""
        if self.recalibration is None and self.calibration is None:
            return levels, quantile
        if self.by_scores and exact:
            return self._raw_scores(i, levels), score_quantile
        raw = ndtr(self._raw_scores(i, levels)) if self.calibration is not None else self._raw_levels(i, levels)
        return np.clip(raw, np.finfo(float).tiny, 1.0 - np.finfo(float).eps), quantile

    def mass(self, i: int, mass: float) -> float:
        """How much of the posterior the interval of a mass holds, where it is calibrated."""
        if self.calibration is None:
            return mass
        return float(2.0 * ndtr(self.calibration.raw(i, ndtri(0.5 + 0.5 * mass))) - 1.0)

    def factors(self, n_parameters: int) -> Array:
        """Factors (L_t,) of standard deviations."""
        given = self.calibration
        return np.ones(n_parameters) if given is None else np.array([given.factor(i) for i in range(n_parameters)])

    def score(self, i: int, raw: Array) -> Array:
        """Scores of truths with the corrections, of those without."""
        scores = raw if self.recalibration is None else self.recalibration.score(i, raw)
        return scores if self.calibration is None else self.calibration.nominal(i, scores)

    def level(self, i: int, raw: Array) -> Array:
        """PIT values with the recalibration, of those without."""
        return raw if self.recalibration is None else self.recalibration.level(i, raw)

    def _raw_levels(self, i: int, levels: Any) -> Array:
        assert self.recalibration is not None
        return self.recalibration.raw_level(i, levels)

    def _raw_scores(self, i: int, levels: Any) -> Array:
        if self.calibration is None:
            assert self.recalibration is not None
            return self.recalibration.raw_score(i, levels)
        scores = self.calibration.raw(i, ndtri(np.asarray(levels, dtype=np.float64)))
        return scores if self.recalibration is None else self.recalibration.raw_of_score(i, scores)


NO_CORRECTIONS = Corrections()
