"""From a labelled training set and an inverter's settings, checked before any work, to a model with its domain."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import numpy as np
import xarray as xr

from ..cubes import DaskChunks, TrainingChoice, TrainingSet, read_training, resample
from ..gllim import held_out_tails
from ..gllim.em import ColumnNames, FitProgress, Settings, Training, train, train_members
from ..gllim.model import GLLiMParameters
from ..io import CheckpointFile
from ..model import Model
from ..nuisance import Noise, Nuisance, apply
from ..settings import FitSettings, InverterSettings, check_settings, settings_of


def read_settings(inverter: InverterSettings) -> Settings:
    """Settings of one fit from those of an inverter.

    Raises
    ------
    ValueError : a setting that is none of its choices or out of its range, those of committees among them.
    """
    values = {name: plain(getattr(inverter, name)) for name in settings_of(FitSettings)}
    check_settings({name: value for name, value in vars(inverter).items() if name not in values})
    return Settings(**values)


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

    def read(self, training: xr.Dataset, transforms: Any, random_state: Any) -> tuple[TrainingSet, np.ndarray | None]:
        """The samples, and the standard deviation of the noise added to them; None without, or where it is not white.

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
        return read_training(training, self, transforms, self.responsibilities), added


KEPT = 500
"""Held-out spectra that a model keeps, to tell what lies in its domain under other noise."""


def fit_model(
    data: TrainingSet,
    members: Sequence[Settings],
    stored_settings: dict[str, Any],
    progress: FitProgress | None = None,
    keeper: CheckpointFile | None = None,
) -> Model:
    """Fit all members, then find how far out spectra like the training set lie.

    Members of a committee run in dask's threads; on dask-backed data one after the other, each with all workers.
    """

    def fit_member(own: Settings, number: int) -> Training:
        return train(
            data.source,
            own,
            data.n_responsibilities,
            column_names(data),
            _of_member(progress, number, len(members)),
            None if keeper is None else keeper.of_member(number),
        )

    def run(fits: Sequence[Callable[[], Training]]) -> list[Training]:
        if isinstance(data.source, DaskChunks):
            return [fit() for fit in fits]
        return list(dask.compute(*[dask.delayed(fit, pure=False)() for fit in fits], scheduler="threads"))

    trained = train_members(members, fit_member, run)
    first, thetas = trained[0], tuple(_contiguous(member.fit.parameters) for member in trained)
    held_out = held_out_tails(data.source, members[0], thetas, first.moments)
    moments, plain = first.moments.parameters, data.transforms.is_identity
    return Model(
        members=thetas,
        transforms=data.transforms,
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
        training=data.history,
    )


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
    wavelength, labels = data.bands.wavelength, data.bands.labels

    def band(i: int) -> str:
        if wavelength is not None:
            return f"{wavelength[i]:g} nm"
        return f"band {labels[i] if labels is not None else i}"

    return ColumnNames(band, lambda i: repr(data.transforms.transformed_names[i]))


def _of_member(progress: FitProgress | None, number: int, count: int) -> FitProgress | None:
    """The callback, with the member's number in its label where there are several."""
    if progress is None or count == 1:
        return progress
    return lambda label, iteration, value: progress(f"member {number + 1}, {label}", iteration, value)
