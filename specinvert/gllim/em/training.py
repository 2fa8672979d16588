"""From settings and training data to the best fit: checks, scaling, starts, n_init and the choice of L_w by BIC.

Also the members of a committee, several fits from starts of their own, and the parts of theta that the user gives.
"""

from __future__ import annotations

import logging
import numbers
import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ...settings import GLLiMSettings, check_settings
from ..core import Array, fingerprint, one_blas_thread
from ..model import AUTO, FIXABLE, Constraints, GLLiMParameters, Scaling, few_samples
from .em import MARGINAL, Fit, Problem, State, Stopping, find_blocks, run_em
from .initialize import PrincipalGrid, Start, find_start, given_responsibilities, pooled_variance
from .maximization import Fixed, Rules
from .source import ChunkSource, DataMoments, as_numbers, brief, moments_of

logger = logging.getLogger(__name__)

FitProgress = Callable[[str, int, float], None]

FIRST_SETTINGS = (
    *("n_components", "n_latent", "max_latent", "constraints", "standardize", "init", "n_init", "max_iter", "tol"),
    *("reg_covar", "random_state", "latent_mean", "latent_covariance", "fixed", "algorithm"),
)
FIRST_CONSTRAINTS = (
    *("sigma", "tied_sigma", "gamma", "tied_gamma", "tied_pi", "tied_maps", "intercept", "sigma_blocks", "fixed"),
)
"""Settings that the first checkpoints knew, in their order, and those that were in ``constraints``."""
PACKAGE = str(Path(__file__).parents[2]) + os.sep
EQUAL = 1e-9
"""Greatest difference, relative to the largest entry, of a given Sigma from one that has the structure asked for."""


class ColumnNames(NamedTuple):
    """What error messages call a band, and a parameter, of a number."""

    band: Callable[[int], str] = "band {}".format
    parameter: Callable[[int], str] = "parameter {}".format


NUMBERED = ColumnNames()


class Checkpoint(ABC):
    """Keeps the states of EM runs, so that training can go on after a stop to the same bits."""

    @abstractmethod
    def begin(self, fingerprint: str) -> None:
        """Take up the states of the same training; raises ValueError where those kept are of another."""

    @abstractmethod
    def load(self, label: str) -> State | None:
        """The last state kept of a run."""

    @abstractmethod
    def keep(self, label: str, state: State, last: bool) -> None:
        """Keep the state of a run; ``last`` where the run ends with it."""


@dataclass(eq=False, repr=False)
class Settings(GLLiMSettings):
    """Settings of a fit, checked; ``constraints`` are those of them that constrain theta."""

    constraints: Constraints = field(init=False)

    def __post_init__(self) -> None:
        own = {one.name: getattr(self, one.name) for one in fields(Constraints)}
        self.constraints = Constraints(**(own | {"fixed": check_names(self.fixed)}))
        started = isinstance(self.init, GLLiMParameters | PrincipalGrid)
        check_settings(
            {name: value for name, value in vars(self).items() if name != "init" or not started}, GLLiMSettings
        )
        if self.algorithm != "general" and (self.tied_maps or not self.intercept):
            raise ValueError(
                f"algorithm={self.algorithm!r} takes the latents out of the regression, which tied_maps=True or "
                "intercept=False do not allow: use algorithm='general'"
            )
        if self.algorithm in MARGINAL and self.shrinkage is not None:
            raise ValueError(f"algorithm={self.algorithm!r} has no shrinkage: use algorithm='general' or 'aecm'")

    @property
    def identity(self) -> str:
        """The text that tells these settings from others, in the words of the first checkpoints.

        Settings that came later stand in it where they differ from their default, so that checkpoints stay valid.
        """
        known = FIRST_SETTINGS + FIRST_CONSTRAINTS
        since = [one for one in fields(GLLiMSettings) if one.name not in known]
        changed = [one.name for one in since if repr(getattr(self, one.name)) != repr(one.default)]
        text = _told("Settings", self, (*FIRST_SETTINGS, *changed))
        return text.replace(repr(self.constraints), _told("Constraints", self.constraints, FIRST_CONSTRAINTS), 1)

    def latent_dimensions(self, n_bands: int) -> list[int]:
        """The L_w to try; raises where one cannot be fitted to ``n_bands`` bands."""
        if self.n_latent != "bic":
            wanted = [int(self.n_latent)]
            if wanted[0] >= n_bands and not self.tied_maps:
                raise ValueError(
                    f"n_latent={wanted[0]} is not below the {n_bands} bands: the noise would be unconstrained; "
                    "use sigma='full' with n_latent=0"
                )
            return wanted
        if isinstance(self.max_latent, numbers.Integral):
            return list(range(min(int(self.max_latent), n_bands - 1) + 1))
        assert isinstance(self.max_latent, Collection)
        wanted = sorted({int(value) for value in self.max_latent})
        if wanted[-1] >= n_bands:
            raise ValueError(
                f"max_latent={list(self.max_latent)!r} must hold integers from 0 to {n_bands - 1}, one below the bands"
            )
        return wanted


def _told(what: str, values: Any, names: Sequence[str]) -> str:
    return f"{what}({', '.join(f'{name}={getattr(values, name)!r}' for name in names)})"


@dataclass(frozen=True)
class Training:
    """What training gave: the chosen fit, the BIC of each L_w tried, and the moments of the data."""

    fit: Fit
    bics: dict[int, float]
    moments: DataMoments


def train(
    source: ChunkSource,
    settings: Settings,
    n_responsibilities: int | None = None,
    names: ColumnNames = NUMBERED,
    progress: FitProgress | None = None,
    checkpoint: Checkpoint | None = None,
    quiet: bool = False,
) -> Training:
    """Train on the chunks of a source.

    Parameters
    ----------
    source : training data, free of NaN.
    settings : what to fit.
    n_responsibilities : K, where the chunks carry responsibilities to start from.
    names : of the columns, for error messages.
    progress : called after each EM iteration with the name of the run, the iteration and the log-likelihood.
    checkpoint : keeps the states of the runs, and gives those of an earlier, stopped training.
    quiet : whether nothing is logged of components that are removed or have few samples: for trials.

    Raises
    ------
    ValueError : constant bands or parameters, fewer samples than components, a start that does not fit the data,
        or all components degenerate.
    """
    check_progress(progress)
    with one_blas_thread():
        moments = source.sum(moments_of)
        check_data(moments, settings, n_responsibilities, names)
        n_bands = len(moments.spectra.mean)
        dimensions = settings.latent_dimensions(n_bands)
        settings.constraints.check_bands(n_bands)
        problem = problem_of(source, settings, moments)
        starts = _starts(problem, settings, moments, n_responsibilities)
        level = logging.DEBUG if quiet else logging.WARNING
        if checkpoint is not None:
            checkpoint.begin(fingerprint(settings.identity, *moments.arrays()))
        fits: dict[int, Fit] = {}
        for n_latent in dimensions:
            runs = []
            for number, start in enumerate(starts):
                label = f"L_w = {n_latent}" + (f", start {number + 1}" if len(starts) > 1 else "")
                fixed = _fixed(settings, problem, start, n_latent, n_responsibilities)
                report = None if progress is None else partial(progress, label)
                own = problem
                if problem.constraints.sigma_blocks == AUTO:
                    own = problem.constrained(sigma_blocks=find_blocks(problem, starts[0], fixed))
                if checkpoint is None:
                    runs.append(run_em(own, start, fixed, report, level=level))
                else:
                    keep = partial(_keep, checkpoint, label, settings.max_iter)
                    runs.append(run_em(own, checkpoint.load(label) or start, fixed, report, keep, level))
            fits[n_latent] = max(runs, key=lambda fit: fit.log_likelihoods[-1] + fit.log_prior)
    chosen = min(fits.values(), key=lambda fit: fit.bic)
    few = None if quiet else few_samples(chosen.parameters, chosen.total_weight)
    if few is not None:
        advice = ", a shrinkage, tied_sigma=True or sigma='diag'" if few.of_noise else ""
        message = "%s: uncertainties will be too small; use fewer components or more samples%s"
        logger.warning(message, few.text, advice)
    return Training(chosen, {n_latent: fit.bic for n_latent, fit in fits.items()}, moments)


def warn_unconverged(settings: Settings, fits: Iterable[Fit]) -> None:
    """Warn, at the line that called the package, where EM of one of the fits did not converge."""
    if settings.tol == 0 or all(fit.converged for fit in fits):
        return
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"EM did not converge in max_iter={settings.max_iter} iterations: raise max_iter, or raise "
        f"tol={settings.tol:g} (nats a sample) if the likelihood has levelled off",
        ConvergenceWarning,
        stacklevel=level,
    )


def _keep(checkpoint: Checkpoint, label: str, max_iter: int, state: State) -> None:
    checkpoint.keep(label, state, state.converged or len(state.log_likelihoods) == max_iter)


def check_progress(progress: Any) -> None:
    """TypeError where it is neither None nor a function."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress={progress!r} must be a function of a label, the iteration and the log-likelihood")


def check_data(moments: DataMoments, settings: Settings, n_responsibilities: int | None, names: ColumnNames) -> None:
    """ValueError for constant bands or parameters, fewer samples than components, or a start that does not fit."""
    n_components = n_responsibilities or settings.n_components
    if isinstance(settings.init, GLLiMParameters) and n_responsibilities is None:
        n_components = settings.init.n_components
    if moments.spectra.n_rows < n_components:
        raise ValueError(
            f"{moments.spectra.n_rows} sample{'s' if moments.spectra.n_rows != 1 else ''} cannot train "
            f"n_components={n_components} components: give more samples or fewer components"
        )
    if not moments.spectra.weight > 0:
        raise ValueError("the sample weights sum to zero: at least one must be positive")
    for columns, name, what in (
        (moments.spectra, names.band, "band"),
        (moments.parameters, names.parameter, "parameter"),
    ):
        constant = np.flatnonzero(~(columns.high > columns.low))
        if len(constant):
            shown = ", ".join(f"{name(int(i))} (always {columns.low[i]:g})" for i in constant[:5])
            more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
            raise ValueError(f"constant {what} in training: {shown}{more}; leave it out")


def problem_of(source: ChunkSource, settings: Settings, moments: DataMoments) -> Problem:
    """What stays the same during EM on a source, scaled and floored by the moments of the data."""
    constraints = settings.constraints
    scaling = Scaling.from_moments(
        moments.spectra, moments.parameters, constraints.kind, settings.standardize, constraints.intercept
    )
    rules = Rules(
        constraints,
        settings.reg_covar,
        moments.spectra.variance / scaling.spectra_scale**2,
        moments.parameters.variance / scaling.parameters_scale**2,
    )
    if constraints.shrinkage:
        rules = replace(rules, target=pooled_variance(source, scaling, rules))
    return Problem(source, scaling, rules, Stopping(settings.max_iter, settings.tol), settings.algorithm)


def _starts(
    problem: Problem, settings: Settings, moments: DataMoments, n_responsibilities: int | None
) -> Sequence[Start | GLLiMParameters]:
    if n_responsibilities is not None:
        return [given_responsibilities]
    if isinstance(settings.init, GLLiMParameters):
        theta, n_bands, n_t = settings.init, len(moments.spectra.mean), len(moments.parameters.mean)
        if (theta.n_bands, theta.n_parameters) != (n_bands, n_t):
            raise ValueError(
                f"the init model has {theta.n_bands} bands and {theta.n_parameters} parameters, the training set "
                f"{n_bands} and {n_t}"
            )
        if settings.n_latent != theta.n_latent:
            raise ValueError(
                f"the init model has {theta.n_latent} latent dimensions, n_latent={settings.n_latent!r} asks for others"
            )
        return [theta]
    if isinstance(settings.init, PrincipalGrid):
        if len(settings.init.nodes) != settings.n_components:
            raise ValueError(
                f"the grid of init has {len(settings.init.nodes)} nodes, n_components={settings.n_components}"
            )
        return [settings.init.start(problem.source, problem.scaling)]
    random = check_random_state(settings.random_state)
    return [
        find_start(
            settings.init,
            settings.n_components,
            problem.source,
            problem.scaling,
            (problem.rules.parameters, problem.rules.spectra),
            int(random.randint(np.iinfo(np.int32).max)),
        )
        for _ in range(settings.n_init)
    ]


def _fixed(
    settings: Settings, problem: Problem, start: Start | GLLiMParameters, n_latent: int, n_responsibilities: int | None
) -> Fixed:
    """What the settings, or the theta of a warm start, say that is not estimated, in scaled units."""
    given = partial(fixed_parts, settings.fixed or {}, settings.constraints, problem.scaling)
    if isinstance(start, GLLiMParameters):
        n_t = start.n_parameters
        return Fixed(start.c[:, n_t:], start.Gamma[:, n_t:, n_t:], given(start.n_components))
    standard = Fixed.standard(n_responsibilities or settings.n_components, n_latent)
    mean, covariance = standard.mean, standard.covariance
    parts = given(len(mean))
    if settings.latent_mean is not None:
        mean = as_array(f"latent_mean={brief(settings.latent_mean)}", settings.latent_mean, mean.shape)
    if settings.latent_covariance is not None:
        what = f"latent_covariance={brief(settings.latent_covariance)}"
        covariance = as_covariances(what, settings.latent_covariance, covariance.shape)
    return Fixed(mean, covariance, parts)


UNLIKE = ("kmeans", "kmeans-joint")
"""Starts that the members of a committee take in turn."""


def member_settings(settings: Settings, n_members: int, starts: Sequence[str] = UNLIKE) -> list[Settings]:
    """Settings of each member: distinct seeds and, where ``init`` is "kmeans", the ``starts`` in turn.

    Raises ValueError where all members would be the same fit.
    """
    if n_members == 1:
        return [settings]
    if not isinstance(settings.init, str):
        raise ValueError(f"n_ensemble={n_members} members need starts of their own: init must be a name, not a model")
    random = check_random_state(settings.random_state)
    starts = starts if settings.init == "kmeans" else (settings.init,)
    return [
        replace(settings, init=starts[m % len(starts)], random_state=int(random.randint(np.iinfo(np.int32).max)))
        for m in range(n_members)
    ]


def train_members(
    settings: Sequence[Settings],
    fit: Callable[[Settings, int], Training],
    together: Callable[[Sequence[Callable[[], Training]]], Sequence[Training]],
) -> list[Training]:
    """Fit all members; the first chooses L_w, and groups of bands, for all; the others run ``together``."""
    first = fit(settings[0], 0)
    theta = first.fit.parameters
    chosen: dict[str, Any] = {"n_latent": theta.n_latent, "sigma_blocks": theta.constraints.sigma_blocks}
    rest = [(replace(own, **chosen), m) for m, own in enumerate(settings) if m > 0]
    return [first, *together([lambda own=own, m=m: fit(own, m) for own, m in rest])]  # type: ignore[misc]


def check_names(fixed: Any) -> tuple[str, ...]:
    """The names of the parts, in the order of theta; raises where there are others."""
    if fixed is None:
        return ()
    if not isinstance(fixed, Mapping):
        raise ValueError(f"fixed={fixed!r} must be a dictionary of arrays by the names {', '.join(map(repr, FIXABLE))}")
    unknown = [name for name in fixed if name not in FIXABLE]
    if unknown:
        raise ValueError(f"fixed names {unknown[0]!r}, which is not one of {', '.join(map(repr, FIXABLE))}")
    return tuple(name for name in FIXABLE if name in fixed)


def fixed_parts(
    fixed: Mapping[str, Any], constraints: Constraints, scaling: Scaling, n_components: int
) -> dict[str, Array]:
    """The given parts in scaled units, one a component.

    Parameters
    ----------
    fixed : in the user's units: "pi" (K,); "c" () to (K, L_t); "Gamma" (L_t, L_t) or (K, L_t, L_t); "Sigma" a variance
        (), variances (D,), a covariance (D, D) or one a component (K, D, D).
    constraints : whose structure Sigma must have. scaling : the units of the fit. n_components : K.

    Raises
    ------
    ValueError : another shape, weights that do not sum to one, a covariance that is not positive definite or has
        another structure.
    """
    parts: dict[str, Array] = {}
    n_t, n_bands = len(scaling.parameters_scale), len(scaling.spectra_scale)
    for name in check_names(fixed):
        what, given = f"fixed {name}", fixed[name]
        if name in ("c", "Gamma") and n_t == 0:
            raise ValueError(f"{what} is of parameters, and there are none: latent_mean and latent_covariance")
        if name == "pi":
            weights = as_array(what, given, (n_components,))
            if not (weights > 0).all() or abs(weights.sum() - 1.0) > EQUAL:
                raise ValueError(f"{what} must be positive and sum to one, not to {weights.sum():g}")
            parts[name] = weights
        elif name == "c":
            centred = as_array(what, given, (n_components, n_t)) - scaling.parameters_shift
            parts[name] = centred / scaling.parameters_scale
        elif name == "Gamma":
            covariance = as_covariances(what, given, (n_components, n_t, n_t))
            parts[name] = covariance / np.outer(scaling.parameters_scale, scaling.parameters_scale)
        else:
            parts[name] = _noise(given, constraints, scaling, (n_components, n_bands, n_bands))
    return parts


def as_array(what: str, given: Any, shape: tuple[int, ...]) -> Array:
    """Finite numbers of a shape that they broadcast to; ValueError where they are not."""
    values = as_numbers(what, given)
    if not np.isfinite(values).all():
        raise ValueError(f"{what} holds NaN or infinite values")
    try:
        return np.broadcast_to(values, shape).copy()
    except ValueError:
        raise ValueError(f"{what} has shape {values.shape}, which does not broadcast to {shape}") from None


def as_covariances(what: str, given: Any, shape: tuple[int, ...]) -> Array:
    """Covariances of a shape that they broadcast to; ValueError where they are not symmetric or positive definite."""
    covariances = as_array(what, given, shape)
    off = np.abs(covariances - covariances.transpose(0, 2, 1)).max(initial=0.0)
    if off > EQUAL * np.abs(covariances).max(initial=0.0):
        raise ValueError(f"{what} must be symmetric, it is off by {off:g}")
    least = np.linalg.eigvalsh(covariances).min(initial=np.inf)
    if not least > 0:
        raise ValueError(f"{what} must be positive definite, it has an eigenvalue of {least:g}")
    return covariances


def _noise(given: Any, constraints: Constraints, scaling: Scaling, shape: tuple[int, ...]) -> Array:
    values, n_bands, structure = as_numbers("fixed Sigma", given), shape[-1], constraints.structure
    if values.shape in ((), (n_bands,)):
        values = np.where(np.eye(n_bands, dtype=bool), values, 0.0)
    dense = as_covariances("fixed Sigma", values, shape)
    compact = np.ascontiguousarray(structure.compact(dense))
    if np.abs(structure.dense(compact, n_bands) - dense).max() > EQUAL * np.abs(dense).max():
        raise ValueError(f"fixed Sigma has not the structure of sigma={constraints.sigma!r}: ask for another")
    return structure.rescale(compact, 1.0 / scaling.spectra_scale)[1]
