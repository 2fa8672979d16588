"""Settings found by what they make of samples held out: K, L_w, the noise and its shrinkage, starts, committees.

A setting is worth the density that it gives to the parameters of held-out spectra, each parameter for itself and after
one factor on the width of its posteriors (:class:`.Marginals`): what users want, comparable over everything that is
tried, which likelihoods of spectra are not. The search goes from cheap fits to dear ones, along one setting after the
other and only as far as that pays; it sees few rows at first, and takes the number of components up with more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .core import Array, row_hash
from .em import ArrayChunks, Chunk, Settings, evenly_spaced, train
from .model import few_samples
from .posterior import Marginals
from .transforms import SpectraTransform

GAIN = 0.02
"""Nats a parameter that a costlier setting of the same kind must gain."""
RICHER = {"spectra_transform": 0.1, "committee": 0.05}
"""What another kind of spectra, or a committee, must: the best on simulations is not the best on measurements."""
SMALL, FOLDS = 1500, 5
"""Rows below which every sample is held out once, in so many parts; above, one part is."""
SHARE, MOST_HELD_OUT = 0.25, 2000
"""What is held out then, of the rows and at most."""
LEVELS = (1500, 4000, 20_000)
"""Rows on which kinds of models are compared, settings of the best are refined, and components are added."""
SEARCHED_ROWS = LEVELS[-1]
"""Rows that a search has use for."""
NEAR = 0.2
"""Nats that mixtures of full covariances may lack at few components, to be tried with more."""
ENOUGH = 1.5
"""Times the rows at hand that there must be for a last step with all."""
MEMBERS = 4
SAMPLES_A_COLUMN = 4
"""Samples of the mean component, at least, for each column of its affine map."""
LADDERS: dict[str, tuple[Any, ...]] = {
    "n_components": (1, 2, 3, 5, 7, 10, 20, 35, 60, 100, 170, 300),
    "n_latent": (0, 1, 2, 3, 5, 8, 12, 16, 20),
    "shrinkage": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.6),
}
SIGMAS = ("iso", "diag")
STARTS = ("kmeans-joint", "kmeans", "kmeans-spectra")
MOST_FULL = 800
"""Bands above which no full covariance is tried."""
TRIAL_ITERATIONS, TRIAL_TOL = 20, 2e-2
"""What ends a trial, at most and at least."""
TIMES_FIT, LEAST_WORK = 1.5, 2e10
"""Work of a search: as many times that of the fit it leads to, no less than so many multiplications and additions. Not
in seconds, so that the same data give the same model on any machine."""
FIT_ITERATIONS = 50
"""What a fit is taken to need."""
NARROW = 0.1
"""Nats that a width costs that is wrong by a factor e: of two equally sharp models the honest one is better."""

SearchProgress = Callable[[int, float], None]
"""Called after each trial with the number of trials before it and the greatest score."""
Split = tuple[NDArray[np.intp], NDArray[np.intp]]


@dataclass(frozen=True)
class Candidate:
    """What is tried; several ``starts`` are a committee."""

    n_components: int
    n_latent: int
    sigma: str
    shrinkage: float | None
    starts: tuple[str, ...]
    spectra_transform: str | None = None
    tied_sigma: bool = False

    def __str__(self) -> str:
        parts = [f"K = {self.n_components}", f"L_w = {self.n_latent}", f"{'tied ' * self.tied_sigma}{self.sigma} Sigma"]
        if self.shrinkage is not None:
            parts[-1] += f" shrunk by {self.shrinkage:g}"
        if self.spectra_transform is not None:
            parts.append(f"{self.spectra_transform} of the spectra")
        if len(self.starts) > 1:
            parts.append(f"{len(self.starts)} members")
        if self.n_components > 1:
            parts.append("start " + " and ".join(dict.fromkeys(self.starts)))
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate and what came of it.

    Attributes
    ----------
    rows : samples, those held out among them. score : nats a parameter gained over the prior, -inf where a fit failed.
    nrmse, coverage_90, width : (L_t,) error, share of truths inside the plain 90 % intervals, and the factor that the
        posteriors' widths lack. work : multiplications and additions, about. seconds : of the fits and their scores.
    failure : why there is no score.
    """

    candidate: Candidate
    rows: int
    score: float
    nrmse: Array
    coverage_90: Array
    width: Array
    work: float
    seconds: float
    failure: str = ""


@dataclass(frozen=True, eq=False)
class Found:
    """The best trial, all trials in their order, and why the search ended."""

    best: Trial
    trials: tuple[Trial, ...]
    ended: str
    seconds: float


class OutOfTimeError(Exception):
    """The time of the search is over."""


def splits(rows: Chunk, small: bool) -> list[Split]:
    """Rows to fit and rows to hold out, by a hash of their values: the same in any order; of few rows each once."""
    n, columns = len(rows), rows.spectra[:, :: max(1, rows.spectra.shape[1] // 8)]
    place = np.argsort(row_hash(np.concatenate([rows.parameters, columns], axis=1)), kind="stable")
    if small:
        folds = [np.sort(place[k::FOLDS]) for k in range(FOLDS)]
    else:
        folds = [np.sort(place[: min(int(SHARE * n), MOST_HELD_OUT)])]
    return [(np.setdiff1d(np.arange(n), held), held) for held in folds]


class Search:
    """The trials of one training set.

    Parameters
    ----------
    rows : samples in memory. settings : of the fit; those that are not looked for stay.
    free : fields of :class:`Candidate` that are looked for. start : what the others are.
    n_rows : samples that the fit will have. seconds : most time; None: a few times the work of the fit it leads to.
    """

    def __init__(
        self,
        rows: Chunk,
        settings: Settings,
        free: Collection[str],
        start: Candidate,
        n_rows: int,
        seconds: float | None = None,
        progress: SearchProgress | None = None,
    ) -> None:
        self.settings, self.free, self.start, self.all = settings, frozenset(free), start, rows
        self.n_rows, self.seconds, self.progress = n_rows, seconds, progress
        self.begun = perf_counter()
        self.trials: list[Trial] = []
        self.work = 0.0
        self.best: Trial | None = None
        self.rivals: list[Trial] = []
        self._take(LEVELS[0] if len(rows) > SMALL else len(rows))

    def _take(self, n_rows: int) -> None:
        """Go on with so many rows; nothing tried on fewer compares."""
        self.rows = self.all.rows(evenly_spaced(len(self.all), n_rows))
        self.splits = splits(self.rows, len(self.all) <= SMALL)
        self.known: dict[Candidate, Trial] = {}
        self.members: dict[tuple[Candidate, int], list[Marginals]] = {}
        weights = self.rows.weights / self.rows.weights.sum()
        self.centre = weights @ self.rows.parameters
        self.scale = np.sqrt(weights @ (self.rows.parameters - self.centre) ** 2)

    def run(self) -> Found:
        """All stages; where the time is over before, the best so far."""
        ended = "nothing more paid"
        try:
            self._affine()
            self._mixtures()
            self._spectra()
            if len(self.rows) < len(self.all):
                self._refine(LEVELS[1])
            self._committee()
            if len(self.all) > ENOUGH * len(self.rows):
                self._take_up(LEVELS[2])
        except OutOfTimeError:
            ended = "its time was over"
            self.best = max((self.best, *self.rivals), key=lambda trial: -np.inf if trial is None else trial.score)
        if self.best is None or not np.isfinite(self.best.score):
            failures = "; ".join(dict.fromkeys(trial.failure for trial in self.trials)) or ended
            raise ValueError(f"no setting gives a model of these {len(self.all)} samples ({failures})")
        return Found(self.best, tuple(self.trials), ended, perf_counter() - self.begun)

    def _affine(self) -> None:
        """One affine map with a full covariance, shrunk: cheap, and the best of few samples."""
        n_bands = self.rows.spectra.shape[1]
        if not self._allows(n_components=1, n_latent=0, sigma="full") or n_bands > MOST_FULL:
            return
        shrinkage = 1e-3 if "shrinkage" in self.free else self.start.shrinkage
        self.consider(
            replace(self.start, n_components=1, n_latent=0, sigma="full", shrinkage=shrinkage, starts=self._starts[:1])
        )
        self._climb("shrinkage")

    def _mixtures(self) -> None:
        """Along L_w, the structure of Sigma, the start and K, in turn, until none pays."""
        affine, self.best = self.best, None
        self.rivals = [] if affine is None else [affine]
        self.consider(self._first_mixture())
        for _ in range(2):
            before = self.best
            self._climb("n_latent")
            self._choose("sigma", SIGMAS)
            self._choose("tied_sigma", (True,))
            self._choose("starts", [(start,) for start in self._starts])
            self._climb("n_components")
            if self.best is before:
                break
        if affine is not None:
            for tied in (True, False):
                assert self.best is not None
                self.rivals.append(self.best)
                self._full(self.rivals[-1], tied)
            for other in reversed(self.rivals):
                if not self._better(self.best, other, GAIN):
                    self.best = other
        self.rivals = []

    def _full(self, than: Trial, tied: bool) -> None:
        """Mixtures of shrunk full covariances, each its own or all the same one, where bands are few enough."""
        found, n_bands = than.candidate, self.rows.spectra.shape[1]
        wanted = {"sigma", "tied_sigma"} if tied else {"sigma"}
        if n_bands > MOST_FULL // 4 or not wanted <= self.free or found.n_components == 1:
            return
        n_components = min(found.n_components, 5) if "n_components" in self.free and not tied else found.n_components
        shrinkage = 0.1 if "shrinkage" in self.free else self.start.shrinkage
        self.best = None
        changes: dict[str, Any] = {"sigma": "full", "tied_sigma": tied or self.start.tied_sigma, "shrinkage": shrinkage}
        self.consider(replace(found, n_components=n_components, n_latent=0, **changes))
        if self._score() > than.score - 2 * NEAR:
            self._climb("shrinkage")
        if self._score() > than.score - NEAR:
            self._climb("n_components")

    def _score(self) -> float:
        return -np.inf if self.best is None else self.best.score

    def _spectra(self) -> None:
        """Another kind of spectra, which must gain more."""
        least = self.all.spectra.min()
        names = [name for name, fits in (("log", least > 0), ("sqrt", least >= 0)) if fits]
        self._choose("spectra_transform", names)

    def _refine(self, n_rows: int) -> None:
        """With more rows more components pay, and fewer latents."""
        self._take_up(n_rows)
        self._climb("n_latent")
        self._climb("shrinkage")

    def _take_up(self, n_rows: int) -> None:
        """The best again, with more rows and then with more components."""
        assert self.best is not None
        best, self.best = self.best.candidate, None
        self._take(min(n_rows, len(self.all)))
        self.consider(best)
        if best.n_components > 1:
            self._climb("n_components", falling=len(best.starts) == 1)

    def _committee(self) -> None:
        """Fits of the two starts that serve best, in turn; together they bear more components."""
        assert self.best is not None
        single = self.best.candidate
        if "starts" not in self.free or single.n_components == 1:
            return
        others = [self.trial(replace(single, starts=(start,))) for start in self._starts if (start,) != single.starts]
        pair = (*single.starts, *max(others, key=lambda trial: trial.score).candidate.starts)
        if self.consider(replace(single, starts=pair * (MEMBERS // 2)), RICHER["committee"]):
            self._climb("n_components", falling=False)

    @property
    def _starts(self) -> tuple[str, ...]:
        return STARTS if "starts" in self.free else self.start.starts

    def _allows(self, **values: Any) -> bool:
        return all(name in self.free or getattr(self.start, name) == value for name, value in values.items())

    def _first_mixture(self) -> Candidate:
        """A few components, two latents, one variance, but for what is given."""
        wanted: dict[str, Any] = {
            "n_components": min(10, self._most("n_components")),
            "n_latent": min(2, self._most("n_latent")),
            "sigma": "iso",
        }
        wanted |= {"starts": self._starts[:1], "shrinkage": None if "sigma" in self.free else self.start.shrinkage}
        given = {name: getattr(self.start, name) for name in wanted if name not in self.free and name != "shrinkage"}
        return replace(self.start, **(wanted | given))

    def _most(self, name: str) -> int:
        """The most that samples and bands allow."""
        n, n_bands = len(self.splits[0][0]), self.rows.spectra.shape[1]
        if name == "n_latent":
            return min(LADDERS[name][-1], max(n_bands - self.rows.parameters.shape[1] - 1, 0), n_bands - 1)
        n_latent = 0 if self.best is None else self.best.candidate.n_latent
        return max(1, n // (SAMPLES_A_COLUMN * (self.rows.parameters.shape[1] + n_latent + 1)))

    def _climb(self, name: str, falling: bool = True) -> None:
        """Along the ladder of a setting, up as far as it pays, else down; a step of one fit that does not is passed."""
        assert self.best is not None
        begun = getattr(self.best.candidate, name)
        if name not in self.free or begun is None:
            return
        limit = np.inf if name == "shrinkage" else self._most(name)
        up = [value for value in LADDERS[name] if begun < value <= limit]
        down = [value for value in reversed(LADDERS[name]) if value < begun]
        for steps, gain in ((up, GAIN), (down, 0.0)) if falling else ((up, GAIN),):
            gain = 0.0 if name == "shrinkage" else gain
            missed, most = 0, 1 if len(self.best.candidate.starts) > 1 else 2
            for value in steps:
                missed = 0 if self.consider(replace(self.best.candidate, **{name: value}), gain) else missed + 1
                if missed == most:
                    break
            if getattr(self.best.candidate, name) != begun:
                return

    def _choose(self, name: str, values: Sequence[Any]) -> None:
        assert self.best is not None
        if name in self.free:
            for value in values:
                self.consider(replace(self.best.candidate, **{name: value}), RICHER.get(name, GAIN))

    def consider(self, candidate: Candidate, gain: float = GAIN) -> bool:
        """Try a candidate, which is the best where it gains as much over that before; whether it is."""
        trial = self.trial(candidate)
        if not self._better(trial, self.best, gain):
            return False
        self.best = trial
        return True

    @staticmethod
    def _better(trial: Trial | None, than: Trial | None, gain: float) -> bool:
        return trial is not None and (than is None or not np.isfinite(than.score) or trial.score > than.score + gain)

    def trial(self, candidate: Candidate) -> Trial:
        """What comes of a candidate, on the rows at hand."""
        if candidate.n_components == 1:
            candidate = replace(candidate, starts=self._starts[:1])
        if candidate in self.known:
            return self.known[candidate]
        self._check_time()
        begun, worked = perf_counter(), self.work
        nothing = np.full(len(self.centre), np.nan)
        made: dict[str, Any] = {"score": -np.inf, "nrmse": nothing, "coverage_90": nothing, "width": nothing}
        try:
            made = self._scores(candidate)
        except (ValueError, np.linalg.LinAlgError) as error:
            made["failure"] = str(error)
        trial = Trial(candidate, len(self.rows), work=self.work - worked, seconds=perf_counter() - begun, **made)
        self.known[candidate] = trial
        self.trials.append(trial)
        if self.progress is not None:
            self.progress(len(self.trials) - 1, max(trial.score for trial in self.known.values()))
        return trial

    def _scores(self, candidate: Candidate) -> dict[str, Any]:
        parts = []
        for place, start in enumerate(candidate.starts):
            single = replace(candidate, starts=(start,))
            parts.append(Marginals.stacked(self._fitted(single, candidate.starts[:place].count(start))))
        held = np.concatenate([held for _, held in self.splits])
        weights = self.rows.weights[held]
        together = parts[0]
        if len(parts) > 1:
            together = Marginals.joined(parts, Marginals.weights_of(parts, weights))
        score, width = together.score(weights, self.centre, self.scale)
        share = weights / weights.sum()
        error = share @ (together.mean - together.truth) ** 2
        spread = share @ (together.truth - share @ together.truth) ** 2
        return {
            "score": float(score.mean() - NARROW * np.abs(np.log(width)).mean()),
            "nrmse": np.sqrt(error / spread),
            "coverage_90": share @ (np.abs(together.z) < ndtri(0.95)),
            "width": width,
        }

    def _fitted(self, single: Candidate, number: int) -> list[Marginals]:
        """What a fit from a start, the ``number``-th of its kind, says of each held-out part."""
        key = (single, number)
        if key not in self.members:
            settings = member_setting(single, self.settings, single.starts[0], number)
            quick = replace(
                settings,
                max_iter=min(settings.max_iter, TRIAL_ITERATIONS),
                tol=max(settings.tol, TRIAL_TOL),
            )
            spectra = SpectraTransform(single.spectra_transform).forward(self.rows.spectra)
            self.members[key] = [
                self._marginals(single, quick, replace(self.rows, spectra=spectra), *split) for split in self.splits
            ]
        return self.members[key]

    def _marginals(
        self, single: Candidate, settings: Settings, rows: Chunk, fitted: NDArray[np.intp], held: NDArray[np.intp]
    ) -> Marginals:
        fit = train(ArrayChunks(rows.rows(fitted)), settings, quiet=True).fit
        self.work += self._cost(single, len(fitted), fit.n_iter)
        few = few_samples(fit.parameters, fit.total_weight)
        if few is not None and settings.n_components > 1 and settings.shrinkage is None:
            raise ValueError(few.text)
        if 2 * fit.n_removed > settings.n_components:
            raise ValueError(f"{fit.n_removed} of {settings.n_components} components degenerated")
        return Marginals.of(fit.parameters, rows.spectra[held].astype(np.float64), rows.parameters[held])

    def _check_time(self) -> None:
        """Raise OutOfTimeError where there is a model already, and no more time."""
        if self.best is None:
            return
        if self.seconds is not None:
            over = perf_counter() - self.begun > self.seconds
        else:
            members = MEMBERS if "starts" in self.free else 1
            over = self.work > max(LEAST_WORK, TIMES_FIT * members * self._cost_of_fit())
        if over:
            raise OutOfTimeError

    def _cost_of_fit(self) -> float:
        assert self.best is not None
        return self._cost(self.best.candidate, self.n_rows, FIT_ITERATIONS)

    def _cost(self, candidate: Candidate, n_rows: int, n_iter: int) -> float:
        """Multiplications and additions of a fit: of the matrix products, those of a full Sigma among them."""
        n_bands, n_t = self.rows.spectra.shape[1], self.rows.parameters.shape[1]
        columns = 2 * (n_t + candidate.n_latent + 1) + (2 * n_bands if candidate.sigma == "full" else 0)
        return 2.0 * n_rows * n_bands * candidate.n_components * columns * n_iter


def candidate_settings(candidate: Candidate, settings: Settings) -> list[Settings]:
    """Settings of the members of a candidate, each with a seed of its own."""
    return [
        member_setting(candidate, settings, start, candidate.starts[:place].count(start))
        for place, start in enumerate(candidate.starts)
    ]


def member_setting(candidate: Candidate, settings: Settings, start: str, number: int) -> Settings:
    """Settings of a fit from the ``number``-th start of a kind."""
    seed = settings.random_state if number == 0 else number
    names = ("n_components", "n_latent", "sigma", "shrinkage", "tied_sigma")
    changes: dict[str, Any] = {name: getattr(candidate, name) for name in names}
    return replace(settings, init=start, random_state=seed, **changes)
