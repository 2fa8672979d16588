"""What belongs to the pixels of a block beside the estimate of them, row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..gllim.arrays import Array
from ..gllim.posterior import Rows


@dataclass(frozen=True, eq=False)
class Domain:
    """Where the model was trained: ranges ``low`` and ``high`` (L_t,) in physical units, ``log_tail`` the log of the
    tail probability that a hundredth of spectra like the training set fall below, one or one a row (NaN: not known)."""

    low: Array
    high: Array
    log_tail: float | Array = np.nan

    def of(self, rows: Rows) -> Domain:
        """Of some rows, where they have levels of their own."""
        return replace(self, log_tail=self.log_tail[rows]) if isinstance(self.log_tail, np.ndarray) else self


@dataclass(frozen=True, eq=False)
class Interval:
    """The parameter ``index`` lies between ``low`` and ``high`` (n,), infinite where that is not known."""

    index: int
    low: Array
    high: Array

    def of(self, rows: Rows) -> Interval:
        """Of some rows."""
        return Interval(self.index, self.low[rows], self.high[rows])


@dataclass(frozen=True, eq=False)
class Pixels:
    """The spectra of n pixels, and what is said of each.

    Attributes
    ----------
    spectra : (n, D), NaN where missing. domain : where a spectrum is like those of training.
    known : (n, L_t) physical parameters, NaN where unknown, or None. interval : of a parameter known by one, or None.
    truth : (n, L_t) to compare with, or None.
    """

    spectra: Array
    domain: Domain
    known: Array | None = None
    interval: Interval | None = None
    truth: Array | None = None

    def of(self, rows: Rows) -> Pixels:
        """Of some rows."""
        return Pixels(
            self.spectra[rows],
            self.domain.of(rows),
            None if self.known is None else self.known[rows],
            None if self.interval is None else self.interval.of(rows),
            None if self.truth is None else self.truth[rows],
        )
