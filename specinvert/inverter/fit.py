"""From a labelled training set and an inverter's settings, checked before any work, to a model with its domain."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
import numpy as np
import xarray as xr

from ..cubes import TrainingChoice, TrainingSet, read_training, resample
from ..gllim import held_out_rows, held_out_tails
from ..gllim.core import one_blas_thread
from ..gllim.em import (
    Chunk,
    ColumnNames,
    FitProgress,
    Mask,
    Settings,
    Training,
    train,
    train_members,
    warn_unconverged,
)
from ..gllim.mixtures import normal_score
from ..gllim.model import GLLiMParameters
from ..gllim.posterior import ForwardTerms, estimates, log_parameter_density, stacking_weights
from ..io import CheckpointFile
from ..model import Model
from ..nuisance import Noise, Nuisance, apply
from ..settings import AUTO, FitSettings, InverterSettings, check_settings, settings_of

FOUND: dict[str, Any] = {"n_components": 10, "n_latent": 0, "sigma": "iso", "shrinkage": None}
"""What stands for settings that are yet to be found."""


def read_settings(inverter: InverterSettings) -> Settings:
    """Settings of one fit from those of an inverter.

    Raises
    ------
    ValueError : a setting that is none of its choices or out of its range, those of committees among them.
    """
    check_settings({name: value for name, value in vars(inverter).items() if name != "init"}, InverterSettings)
    values = {name: plain(getattr(inverter, name)) for name in settings_of(FitSettings)}
    theta = values["init"] if isinstance(values["init"], GLLiMParameters) else None
    begun = {} if theta is None else {"n_latent": theta.n_latent, "sigma": theta.structure.name}
    return Settings(**values | {name: (FOUND | begun)[name] for name in FOUND if values[name] == AUTO})


def is_automatic(asked: InverterSettings) -> bool:
    """Whether a fit looks for settings; a start that is a model brings its own."""
    wanted = AUTO in (asked.n_components, asked.n_latent, asked.shrinkage)
    return wanted and not isinstance(asked.init, GLLiMParameters)


def stored_settings(inverter: InverterSettings) -> dict[str, Any]:
    """What JSON can hold of the settings; a start that is a model and a generator of random numbers are left out."""
    values = {name: plain(getattr(inverter, name)) for name in settings_of(InverterSettings) if name != "transforms"}
    if not isinstance(values["init"], str):
        values["init"] = InverterSettings.init
    if not isinstance(values["random_state"], int | None):
        values["random_state"] = None
    return values


def plain(setting: Any) -> Any:
    """A setting as the Python value that JSON holds: NumPy scalars, and sequences of them, converted."""
    if isinstance(setting, np.generic):
        return setting.item()
    if isinstance(setting, str | GLLiMParameters) or not isinstance(setting, Iterable):
        return setting
    return [plain(value) for value in setting]


@dataclass(frozen=True, eq=False)
class TrainingOptions(TrainingChoice):
    """How a training set is prepared and read: arguments of :meth:`specinvert.GLLiMInverter.fit`."""

    noise: Any = None
    sensor: Any = None
    responsibilities: Any = None

    def read(
        self, training: xr.Dataset, settings: InverterSettings, random_state: Any
    ) -> tuple[TrainingSet, np.ndarray | None]:
        """The samples under the transforms of ``settings``, and the standard deviation of the noise added to them.

        That is None without noise, or where it is not white.

        Raises
        ------
        TypeError, ValueError : what is wrong with the data.
        """
        added: np.ndarray | None = None
        labels: dict[str, Any] = {"spectra": self.spectra, "band_dim": self.band_dim}
        if self.sensor is not None:
            training = resample(training, self.sensor, good_only=True, rechunk=self.rechunk, **labels)
        if self.noise is not None:
            training, added = add_noise(training, self.noise, random_state, **labels)
        of_spectra = None if settings.spectra_transform == AUTO else settings.spectra_transform
        return read_training(training, self, settings.transforms, self.responsibilities, of_spectra), added


KEPT = 500
"""Held-out spectra that a model keeps, to tell what lies in its domain under other noise."""
HELD_OUT_SHARE = 0.2
"""Of the samples, held out to weigh the members of a committee."""
MOST_HELD_OUT = 20_000
"""Rows that densities are of."""


def fit_model(
    data: TrainingSet,
    members: Sequence[Settings],
    stored_settings: dict[str, Any],
    progress: FitProgress | None = None,
    keeper: CheckpointFile | None = None,
    weights: np.ndarray | None = None,
    quiet: bool = False,
) -> Model:
    """Fit all members, then find how far out spectra like the training set lie.

    ``weights`` (M,) are those of the members' posteriors, where they have some of their own. ``quiet`` is for fits
    whose components and convergence are told otherwise.
    """
    trained = fit_members(data, members, _of_member(progress, len(members)), keeper, quiet)
    if not quiet:
        warn_unconverged(members[0], [one.fit for one in trained])
    first, thetas = trained[0], tuple(_contiguous(member.fit.parameters) for member in trained)
    weights = weights if len(thetas) > 1 else None
    held_out = held_out_tails(data.source, members[0], thetas, first.moments, weights)
    moments, plain = first.moments.parameters, data.transforms.is_identity
    return Model(
        members=thetas,
        transforms=data.transforms,
        spectra_transform=data.spectra_transform,
        bands=data.bands,
        spectra_name=str(data.spectra_name),
        spectra_units=data.spectra_units,
        names=data.parameters,
        attrs=data.attrs,
        low=moments.low if plain else data.low,
        high=moments.high if plain else data.high,
        log_tail=np.nan if held_out is None else held_out.log_level,
        held_out=None if held_out is None else held_out.spectra[:KEPT].astype(np.float32),
        n_samples=first.moments.spectra.n_rows,
        total_weight=first.fit.total_weight,
        log_likelihoods=np.array(first.fit.log_likelihoods),
        converged=first.fit.converged,
        n_removed=first.fit.n_removed,
        bics=first.bics,
        settings=stored_settings,
        member_weights=weights,
        training=data.history,
    )


MemberProgress = Callable[[int], FitProgress | None]
"""The callback of a member of a number."""


def fit_members(
    data: TrainingSet,
    members: Sequence[Settings],
    progress: MemberProgress | None = None,
    keeper: CheckpointFile | None = None,
    quiet: bool = False,
) -> list[Training]:
    """The fit of each member: in dask's threads; on dask-backed data one after the other, each with all workers.

    ``quiet`` fits are trials, of which nothing is logged.
    """

    def fit_member(own: Settings, number: int) -> Training:
        return train(
            data.source,
            own,
            data.n_responsibilities,
            column_names(data),
            None if progress is None else progress(number),
            None if keeper is None else keeper.of_member(number),
            quiet,
        )

    def run(fits: Sequence[Callable[[], Training]]) -> list[Training]:
        if data.is_lazy:
            return [fit() for fit in fits]
        return list(dask.compute(*[dask.delayed(fit, pure=False)() for fit in fits], scheduler="threads"))

    return train_members(members, fit_member, run)


@dataclass(frozen=True, eq=False)
class Validation:
    """Fits that have not seen the ``held_out`` rows, and their log-densities (n, M) log p_m(t_n | y_n) of these.

    Parameters, in ``held_out`` and in the densities, are those of the model, after transforms.
    """

    fits: list[Training]
    held_out: Chunk
    log_densities: np.ndarray

    def scores(self, weights: np.ndarray | None = None) -> np.ndarray:
        """Standard normal scores (n, L_t) of the held-out parameters under the committee, of ``weights`` (M,).

        What :meth:`specinvert.cubes.Recalibration.of_scores` takes, whichever of the monotone transforms there are.
        """
        n_t = self.held_out.parameters.shape[1]
        found = np.full((len(self.held_out), n_t), np.nan)
        terms = [ForwardTerms.of(one.fit.parameters) for one in self.fits]
        with one_blas_thread():
            for part in estimates(terms, np.asarray(self.held_out.spectra, dtype=np.float64), weights=weights):
                mixture, truth = part.mixture(n_t), self.held_out.parameters[part.rows]
                for i in range(n_t):
                    found[part.rows, i] = normal_score(*mixture.marginal(i), truth[:, i])
        return found


def validate(
    data: TrainingSet,
    members: Sequence[Settings],
    held: Mask,
    rest: Mask,
    progress: MemberProgress | None = None,
) -> Validation:
    """Fit members to the rows for which ``rest`` is True, and score them on those for which ``held`` is.

    Both are of rows in the user's units, the same under any transforms.

    At most ``MOST_HELD_OUT`` rows are scored. Raises ValueError where none is held out, or too few are left for a fit.
    """
    scored = data.where(held).source.sample(MOST_HELD_OUT)
    if not len(scored):
        raise ValueError("the training set is too small to hold out a part of it")
    fits = fit_members(data.where(rest), members, progress, quiet=True)
    spectra = np.asarray(scored.spectra, dtype=np.float64)
    densities = [log_parameter_density(one.fit.parameters, spectra, scored.parameters) for one in fits]
    return Validation(fits, scored, np.stack(densities, axis=1))


def stacked(
    data: TrainingSet, members: Sequence[Settings], progress: FitProgress | None = None
) -> tuple[list[Settings], np.ndarray]:
    """Members that are worth a weight, and these weights, by a fifth of the samples that is held out.

    Raises
    ------
    ValueError : no parameters, or too few samples.
    """
    if not data.parameters:
        raise ValueError("ensemble_weights='stacked' needs parameters: use 'equal' for an unsupervised committee")
    held, rest = (partial(held_out_rows, share=HELD_OUT_SHARE, others=others) for others in (False, True))
    found = validate(data, members, held, rest, _of_member(progress, len(members), "without a fifth, "))
    weights = stacking_weights(found.log_densities, found.held_out.weights)
    return worthy(members, weights)


def worthy(members: Sequence[Settings], weights: np.ndarray) -> tuple[list[Settings], np.ndarray]:
    """The members of a weight above zero, and these weights."""
    return [own for own, weight in zip(members, weights, strict=True) if weight > 0.0], weights[weights > 0.0]


def _contiguous(theta: GLLiMParameters) -> GLLiMParameters:
    """In the memory order of a model file: products of other orders differ in their last bits."""
    arrays: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in theta.arrays().items()}
    return replace(theta, **arrays)


def add_noise(
    training: xr.Dataset, noise: Any, random_state: Any, spectra: str | None, band_dim: str | None
) -> tuple[xr.Dataset, np.ndarray | None]:
    """The training set with one draw of noise a spectrum, and its standard deviation, () or (D,).

    That is None where a nuisance is more than white noise.

    Raises
    ------
    TypeError, ValueError : noise that is no number, negative, or of other bands.
    """
    if not isinstance(training, xr.Dataset):
        raise TypeError(f"training must be an xarray Dataset of spectra and parameters, not {type(training).__name__}")
    nuisance = noise if isinstance(noise, Nuisance) else Noise(white=noise)
    seed = int(random_state) if isinstance(random_state, numbers.Integral) else 0
    noisy = apply(training, nuisance, seed=seed, spectra=spectra, band_dim=band_dim)
    white = isinstance(nuisance, Noise) and not np.any(nuisance.relative)
    return noisy, np.asarray(nuisance.white) if white and isinstance(nuisance, Noise) else None


def column_names(data: TrainingSet) -> ColumnNames:
    """How messages name a band, by its wavelength, its label or its number, and a parameter."""
    return ColumnNames(data.bands.name, lambda i: repr(data.transforms.transformed_names[i]))


def _of_member(progress: FitProgress | None, count: int, words: str = "") -> MemberProgress | None:
    """The callbacks of members, whose labels begin with ``words`` and the member's number where there are several."""
    if progress is None:
        return None

    def told(number: int, label: str, iteration: int, value: float) -> None:
        member = f"member {number + 1}, " if count > 1 else ""
        progress(f"{words}{member}{label}", iteration, value)

    return lambda number: partial(told, number)
