"""From the estimate of a block to the outputs asked for, in physical units, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ..flags import ABOVE_RANGE, BELOW_RANGE, MULTIMODAL, OUT_OF_DOMAIN, PARTIAL_BANDS, PRIOR_ANSWERS
from ..gllim.core import Array, row_hash
from ..gllim.mixtures import (
    Mixture,
    Truncated,
    cdf,
    count_modes,
    draws,
    entropy,
    highest_density,
    highest_mode,
    joined,
    list_modes,
    marginal_entropy,
    normal_score,
    separated,
    truncated,
    truncated_quantile,
    written_out,
)
from ..gllim.posterior import (
    Estimate,
    ForwardTerms,
    Interval,
    Pixels,
    beyond,
    member_shares,
    residual_rows,
    rms_rows,
)
from ..gllim.transforms import (
    UNCHANGED,
    Before,
    SpectraTransform,
    Transforms,
    physical_components,
    physical_crps,
    physical_mean_and_std,
    physical_moments,
    physical_quantiles,
)
from .calibration import NO_CORRECTIONS, Corrections

Kept = TypeVar("Kept")


@dataclass(frozen=True, eq=False)
class Domain:
    """Where the model was trained: ranges ``low`` and ``high`` (L_t,) in physical units, ``log_tail`` the log of the
    tail probability that a hundredth of spectra like the training set fall below (NaN: not known)."""

    low: Array
    high: Array
    log_tail: float = np.nan


@dataclass(frozen=True, eq=False)
class Trained:
    """What all readings of one inversion share.

    Attributes
    ----------
    terms : the members, prepared for complete spectra. transforms : from physical parameters to theirs.
    domain : where spectra are like those of training.
    levels : of the quantiles wanted, rising, by parameter. covariance : whether it is wanted.
    corrections : which levels to ask for instead.
    spectra_transform : from the spectra of pixels to those of the members.
    member_weights : (M,) of the members, None where they are all the same.
    least : nats (L_t,) told of each parameter below which its prior answers, or None.
    """

    terms: Sequence[ForwardTerms]
    transforms: Transforms
    domain: Domain
    levels: Mapping[int, Sequence[float]]
    covariance: bool = False
    corrections: Corrections = NO_CORRECTIONS
    spectra_transform: SpectraTransform = UNCHANGED
    member_weights: Array | None = None
    least: Array | None = None

    @cached_property
    def before(self) -> Before:
        """What is known of the wanted parameters before a spectrum is seen."""
        n, thetas = self.terms[0].theta.n_parameters, [own.theta for own in self.terms]
        parts = [Mixture(t.pi[None], t.c[None, :, :n], t.Gamma[None, :, :n, :n]) for t in thetas]
        return Before(self.transforms, joined(parts, member_shares(len(parts), self.member_weights)[None]))


class Reading:
    """What outputs ask of one estimate, ``pixels`` being its rows."""

    def __init__(self, estimate: Estimate, trained: Trained, pixels: Pixels) -> None:
        self.estimate, self.trained, self.pixels = estimate, trained, pixels
        self.terms, self.transforms, self.corrections = trained.terms, trained.transforms, trained.corrections
        self.spectra, self.truth = pixels.spectra, pixels.truth
        self.known = np.empty((len(pixels.spectra), 0)) if pixels.known is None else pixels.known
        self.n_transformed = self.terms[0].theta.n_parameters
        self.unknown = [i for i in range(self.n_transformed) if i not in estimate.known]
        self.bends = self.transforms.bends(self.unknown)
        self.interval = self._in_model_units(pixels.interval)
        self._kept: dict[Any, Any] = {}

    def _once(self, key: Any, compute: Callable[..., Kept]) -> Kept:
        """What ``compute`` gives for a key, a name and its arguments, computed where it is first asked for."""
        if key not in self._kept:
            self._kept[key] = compute(*key[1:])
        kept: Kept = self._kept[key]
        return kept

    @cached_property
    def mixture(self) -> Mixture:
        """Of the unknown wanted parameters, in the units of the model."""
        return self.estimate.mixture(len(self.unknown))

    def _in_model_units(self, interval: Interval | None) -> Interval | None:
        """The interval of the transformed parameter; None where that is known by value."""
        if interval is None or self.transforms.column(interval.index) not in self.unknown:
            return None
        ends = self.transforms.interval_forward(interval.index, interval.low, interval.high)
        return Interval(self.transforms.column(interval.index), *ends)

    @cached_property
    def _truncated(self) -> Truncated:
        """All unknown dimensions, given that one of them lies in its interval."""
        assert self.interval is not None
        whole = self.estimate.mixture(self.terms[0].theta.A.shape[2] - len(self.estimate.known))
        return truncated(whole, self._position, self.interval.low, self.interval.high)

    @property
    def _position(self) -> int:
        """Of the parameter known by an interval, among the unknown."""
        assert self.interval is not None
        return self.unknown.index(self.interval.index)

    @cached_property
    def log_evidence(self) -> Array:
        """(n,)."""
        evidence = self.estimate.log_evidence + self.trained.spectra_transform.log_volume(self.spectra)
        if self.interval is None:
            return evidence
        before = self.estimate.prior(self.terms, self.known[:, self.estimate.known], len(evidence))
        prior = truncated(before, self._position, self.interval.low, self.interval.high)
        return evidence + self._truncated.log_probability - prior.log_probability

    @cached_property
    def _moments(self) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Mean (n, L_t), variances (n, L_t) or covariance (n, L_t, L_t) of the wanted parameters, and their overflow.

        The last (n,) says where a transform leads beyond what numbers can hold.
        """
        crossed = self.trained.covariance
        nowhere = np.zeros(len(self.spectra), dtype=bool)
        if self.transforms.is_identity and self.interval is not None:
            size, within = len(self.unknown), self._truncated
            spread = within.covariance[:, :size, :size]
            spread = spread if crossed else np.diagonal(spread, axis1=1, axis2=2).copy()
            return *self._with_known(within.mean[:, :size], spread), nowhere
        if self.transforms.is_identity:
            mean, spread = self.estimate.moments(crossed, len(self.unknown))
            return *self._with_known(mean, spread), nowhere
        if not crossed and self._bounded is not None:
            return *self._with_known(*self._bounded[0]), nowhere
        summarise = physical_moments if crossed else physical_mean_and_std
        parts = [summarise(self.transforms, part) for part in self._physical_parts()]
        mean, spread, overflow = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        spread = spread if crossed else spread**2
        for i in self._known_parameters:
            mean[:, i] = self.known[:, i]
            spread[:, i] = spread[..., i] = 0.0
        return mean, spread, np.asarray(overflow, dtype=bool)

    @cached_property
    def _bounded(self) -> tuple[tuple[Array, Array], tuple[Array, Array]] | None:
        """Mean and variances (n, unknown), and those in the units of the model; None where one pass has not both."""
        there = self.transforms.keeps_units and self.interval is None
        return self.estimate.bounded_moments(self.transforms.softness[self.unknown]) if there else None

    @cached_property
    def _known_parameters(self) -> list[int]:
        """Indices of the known among the physical parameters."""
        t = self.transforms
        return [i for i in range(t.n_physical) if len(t.entry(i).columns) == 1 and t.column(i) in self.estimate.known]

    def _with_known(self, mean: Array, spread: Array) -> tuple[Array, Array]:
        if not self.estimate.known:
            return mean, spread
        n, size = len(mean), self.n_transformed
        full_mean, full_spread = np.empty((n, size)), np.zeros((n, size) if spread.ndim == 2 else (n, size, size))
        full_mean[:, self.unknown] = mean
        full_mean[:, self.estimate.known] = self.known[:, self.estimate.known]
        at: Any = np.ix_(np.arange(n), *[np.array(self.unknown, dtype=np.intp)] * (spread.ndim - 1))
        full_spread[at] = spread
        return full_mean, full_spread

    @cached_property
    def _whole_mixture(self) -> Mixture:
        """Of all wanted parameters in the units of the model; what is known has its value, and no covariance."""
        mixture = self.mixture
        if not self.estimate.known:
            return mixture
        n, room = mixture.weights.shape
        size = self.n_transformed
        means, covariances = np.zeros((n, room, size)), np.zeros((n, room, size, size))
        means[:, :, self.unknown] = mixture.means
        covariances[:, :, np.array(self.unknown, dtype=np.intp)[:, None], self.unknown] = mixture.covariances
        for i in self._known_parameters:
            column = self.transforms.column(i)
            means[:, :, column] = self.transforms.known_forward(i, self.known[:, i])[:, None]
            covariances[:, :, column, column] = 1e-12
        return Mixture(mixture.weights, means, covariances)

    def _physical_parts(self) -> Iterator[Mixture]:
        """:attr:`_whole_mixture`, given the interval where there is one, all rows in one part or several."""
        if self.interval is None:
            yield self._whole_mixture
        else:
            yield from written_out(self._whole_mixture, self.interval.index, self.interval.low, self.interval.high)

    @property
    def mean(self) -> Array:
        """(n, L_t)."""
        return self._moments[0]

    @cached_property
    def std(self) -> Array:
        """(n, L_t)."""
        spread = self._moments[1]
        return self._widened * np.sqrt(spread if spread.ndim == 2 else np.diagonal(spread, axis1=1, axis2=2))

    @property
    def covariance(self) -> Array:
        """(n, L_t, L_t)."""
        return self._moments[1] * np.outer(self._widened, self._widened)

    @cached_property
    def _widened(self) -> Array:
        """(L_t,) factors of standard deviations."""
        return self.corrections.factors(self.transforms.n_physical)

    @cached_property
    def best(self) -> Array:
        """(n, L_t), the mean or the median, as suits the transform of each parameter."""
        best = self.mean.copy()
        for i in (i for i, kind in enumerate(self.transforms.estimates) if kind == "median"):
            best[:, i] = self.quantile(i, 0.5)
        return best

    def quantile(self, i: int, level: float) -> Array:
        """(n,) of parameter i; those of all its levels wanted are found together."""
        wanted = self.trained.levels.get(i, ())
        levels = tuple(wanted) if level in wanted else (level,)
        return self._once(("quantiles", i, levels), self._quantiles)[:, levels.index(level)]

    def _quantiles(self, i: int, levels: Any) -> Array:
        """(n, m) of m levels."""
        levels, found = self.corrections.asked(i, levels, exact=self.interval is None)
        if i in self._known_parameters:
            return np.repeat(self.known[:, i : i + 1], len(levels), axis=1)
        if self.interval is not None and len(self.transforms.entry(i).columns) == 1:
            low, high, of = self.interval.low, self.interval.high, self.unknown.index(self.transforms.column(i))
            within = truncated_quantile(self.mixture, self._position, low, high, levels, of)
            return self.transforms.inverse_of(i, within)
        if self.transforms.keeps_units and self.interval is None:
            within = np.asarray(found(*self.mixture.marginal(self.unknown.index(i)), levels))
            return self.transforms.inverse_of(i, within)
        parts = self._physical_parts()
        return np.concatenate([physical_quantiles(self.transforms, p, i, levels, found) for p in parts])

    def shortest(self, i: int, mass: float) -> tuple[Array, Array]:
        """Ends (n,) of the shortest interval of parameter i, in the units of the model, that holds so much of it."""
        if i in self._known_parameters:
            return self.known[:, i], self.known[:, i]
        return self._once(("shortest", i, self.corrections.mass(i, mass)), self._shortest)

    def _shortest(self, i: int, mass: float) -> tuple[Array, Array]:
        lower, upper = highest_density(*self.mixture.marginal(self.unknown.index(i)), mass)
        return self.transforms.inverse_of(i, lower), self.transforms.inverse_of(i, upper)

    def pit(self, i: int) -> Array:
        """Distribution function at the truth, corrected where the model is; NaN where that is unknown, of known
        parameters and parts of compositions, and where a parameter is known by an interval."""
        if self.corrections.by_scores:
            return np.asarray(ndtr(self.score(i)))
        return self.corrections.level(i, self._at_truth(i, cdf))

    def score(self, i: int) -> Array:
        """Standard normal score of :meth:`pit`, which may be far out."""
        return self.corrections.score(i, self._at_truth(i, normal_score))

    def _at_truth(self, i: int, function: Callable[[Array, Array, Array, Array], Array]) -> Array:
        assert self.truth is not None
        values = np.full(len(self.spectra), np.nan)
        there = np.flatnonzero(np.isfinite(self.truth[:, i]))
        apart = self.interval is not None or i in self._known_parameters or len(self.transforms.entry(i).columns) > 1
        if apart or not len(there):
            return values
        truth, entry = self.truth[there, i], self.transforms.entry(i)
        z = self.transforms.known_forward(i, np.clip(truth, entry.lower, entry.upper))
        at = self.unknown.index(self.transforms.column(i))
        values[there] = function(*self.mixture.select(there).marginal(at), z)
        return values

    def crps(self, i: int) -> Array:
        """Continuous ranked probability score (n,); NaN with an interval, of known parameters and parts of wholes."""
        assert self.truth is not None
        entry = self.transforms.entry(i)
        if self.interval is not None or len(entry.columns) > 1 or i in self._known_parameters:
            return np.full(len(self.spectra), np.nan)
        marginal = self.mixture.marginal(self.unknown.index(entry.start))
        return physical_crps(entry, marginal, self.truth[:, i])

    @cached_property
    def entropy(self) -> Array:
        """(n,) in nats, of the unknown parameters in the units of the model."""
        return entropy(self.mixture)

    @cached_property
    def highest_mode(self) -> Array:
        """(n, L_t)."""
        highest = highest_mode(self.mixture, self.bends)[0] if self.unknown else np.empty((len(self.spectra), 0))
        return self._physical(highest[:, None])[:, 0]

    @cached_property
    def modes(self) -> tuple[Array, Array]:
        """Parameters at the modes (n, M, L_t), and the mass of each (n, M), by falling mass, NaN after the last."""
        n = len(self.spectra)
        found = list_modes(self.mixture, self.bends) if self.unknown else (np.empty((n, 1, 0)), np.ones((n, 1)))
        points, mass = found[:2]
        return np.where(np.isnan(mass)[:, :, None], np.nan, self._physical(points)), mass

    @cached_property
    def n_modes(self) -> NDArray[np.int64]:
        """(n,) of those that hold a tenth of the posterior."""
        return count_modes(self.mixture, self.bends)

    def draws(self, count: int) -> Array:
        """(n, count, L_t); those of a spectrum depend on its values and the posterior alone."""
        return self._once(("draws", count), self._draws)

    def _draws(self, count: int) -> Array:
        numbers = (row_hash(self.spectra) >> np.uint64(1)).astype(np.int64)
        points = draws(self.mixture, count, 0, numbers) if self.unknown else np.empty((len(numbers), count, 0))
        return self._physical(points)

    def _physical(self, points: Array) -> Array:
        """Values (n, m, L_t) in physical units of points (n, m, unknown) in those of the model."""
        n, m = points.shape[:2]
        z = np.empty((n, m, self.n_transformed))
        z[:, :, self.unknown] = points
        for i in self._known_parameters:
            z[:, :, self.transforms.column(i)] = self.transforms.known_forward(i, self.known[:, i])[:, None]
        if self.transforms.is_identity:
            return z
        return self.transforms.inverse(z.reshape(n * m, -1)).reshape(n, m, -1)

    @property
    def latent(self) -> Array:
        """Posterior mean (n, L_w)."""
        if self.interval is not None:
            return self._truncated.mean[:, len(self.unknown) :]
        size = len(self.unknown) + self.terms[0].theta.n_latent
        return self.estimate.moments(False, size)[0][:, len(self.unknown) :]

    @cached_property
    def residual(self) -> Array:
        """Observed spectra (n, D) less the mean of those that the components reconstruct."""
        x = np.zeros((len(self.spectra), self.terms[0].theta.A.shape[2]))
        for i in self._known_parameters:
            x[:, self.transforms.column(i)] = self.transforms.known_forward(i, self.known[:, i])
        fitted = self.trained.spectra_transform.inverse(self.estimate.fitted(self.terms, x))
        residual_rows(np.asarray(self.spectra, dtype=np.float64), fitted)
        return fitted

    @property
    def fit_rmse(self) -> Array:
        """Root mean squared residual (n,)."""
        rms = np.empty(len(self.spectra))
        rms_rows(self.residual, rms)
        return rms

    def information(self, i: int) -> Array:
        """Nats (n,) that a spectrum tells of parameter i: the entropy of its prior less that of its posterior.

        In the units of the model, whose transforms are those in which parameters count. Of a part of a composition, the
        logarithm of the ratio of physical standard deviations. NaN of known parameters.
        """
        return self._once(("information", i), self._information)

    def _information(self, i: int) -> Array:
        if i in self._known_parameters:
            return np.full(len(self.spectra), np.nan)
        with np.errstate(divide="ignore"):
            if len(self.transforms.entry(i).columns) > 1:
                return np.asarray(np.log(self.trained.before.std[i] / self.std[:, i]))
        z = self.transforms.column(i)
        return np.asarray(self.trained.before.entropy[z] - marginal_entropy(self.mixture, self.unknown.index(z)))

    @cached_property
    def _least_told(self) -> Array:
        """Nats (n, L_z - known) that a spectrum tells of each parameter of the model at least, by its variance."""
        if self.transforms.is_identity and not self.estimate.known:
            variance = self.std**2
        elif not self.trained.covariance and self._bounded is not None:
            variance = self._bounded[1][1]
        else:
            variance = self.estimate.moments(False, len(self.unknown))[1]
        with np.errstate(divide="ignore"):
            return np.asarray(self.trained.before.entropy[self.unknown] - 0.5 * np.log(2.0 * np.pi * np.e * variance))

    def _prior_answers(self, i: int) -> NDArray[np.bool_]:
        """Whether (n,) a spectrum tells less of parameter i than its least; entropies where variances do not tell."""
        assert self.trained.least is not None
        least, answers = self.trained.least[i], np.zeros(len(self.spectra), dtype=bool)
        if least == -np.inf or i in self._known_parameters or self.interval is not None:
            return answers
        if len(self.transforms.entry(i).columns) > 1:
            return np.asarray(self.information(i) < least)
        z = self.transforms.column(i)
        at = self.unknown.index(z)
        rows = np.flatnonzero(self._least_told[:, at] < least)
        if len(rows):
            told = self.trained.before.entropy[z] - marginal_entropy(self.estimate.mixture(at + 1, rows), at)
            answers[rows] = told < least
        return answers

    @cached_property
    def _separated(self) -> NDArray[np.bool_]:
        """Whether (n, L_t) there are two solutions of each parameter."""
        two = np.zeros((len(self.spectra), self.transforms.n_physical), dtype=bool)
        if not self.unknown or self.interval is not None:
            return two
        of_model = np.zeros((len(two), self.n_transformed), dtype=bool)
        of_model[:, self.unknown] = self.estimate.separated(self.trained.before.scales[self.unknown])
        for i in range(two.shape[1]):
            if len(self.transforms.entry(i).columns) > 1:
                two[:, i] = separated(*physical_components(self.transforms, self._whole_mixture, i))
            else:
                two[:, i] = of_model[:, self.transforms.column(i)]
        return two

    @cached_property
    def flags(self) -> NDArray[np.uint8]:
        """Bits (n, L_t) of the quality flags that are of one parameter."""
        best, domain = self.best, self.trained.domain
        found = (best < domain.low, BELOW_RANGE), (best > domain.high, ABOVE_RANGE), (self._separated, MULTIMODAL)
        flags = np.zeros(best.shape, dtype=np.uint8)
        for where, bit in found:
            flags |= where * np.uint8(bit)
        for i in range(best.shape[1]):
            flags[self._prior_answers(i), i] |= PRIOR_ANSWERS
        return flags

    @property
    def flag(self) -> NDArray[np.uint8]:
        """Bits (n,) of the quality flags."""
        flag: NDArray[np.uint8] = np.bitwise_or.reduce(self.flags, axis=1, initial=0)
        flag[np.broadcast_to(np.less(self.estimate.n_valid, self.spectra.shape[1]), flag.shape)] |= PARTIAL_BANDS
        flag[self.out_of_domain()] |= OUT_OF_DOMAIN
        return flag

    def out_of_domain(self) -> NDArray[np.bool_]:
        """Whether (n,) the spectra are unlike those of training."""
        overflow = self._moments[2] if self.pixels.outside is None else self._moments[2] | self.pixels.outside
        level = self.pixels.log_tail
        if np.isnan(level).any():
            return overflow
        if len(self.estimate.blocks) == 1:
            block = self.estimate.blocks[0]
            return overflow | beyond(block.posterior, block.n_valid, level)
        return overflow | (self.estimate.log_tail() < level)
