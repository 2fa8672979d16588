"""What a model is, beside its file: theta of every member, bands, transforms, ranges, calibrations."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cubes import NM_PER_UNIT, Bands, Labels, Recalibration
from .gllim.model import GLLiMParameters
from .gllim.posterior import member_shares
from .gllim.transforms import UNCHANGED, SpectraTransform, Transforms


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with its labels.

    ``members`` are the fits of a committee, one where there is none; their parameters are ``transforms`` of the
    physical ones. ``names`` and ``attrs`` are those of the physical parameters, ``low`` and ``high`` (L_t,) their
    training ranges; ``log_tail`` is the log of the tail probability below which a spectrum is out of the domain (NaN
    where training was too small to tell); ``bics`` holds the BIC of each L_w tried, ``settings`` the arguments of the
    inverter. Log-likelihoods are those of the first member. ``recalibration`` corrects the levels of quantiles;
    ``member_weights`` (M,) are those of the members' posteriors, summing to one, where they are neither equal nor by
    evidence; ``training_noise`` are the standard deviations (D,) that training added to the spectra, ``held_out``
    spectra (m, D) of training that ``log_tail`` is of, ``training`` is the history of the training set, a line for each
    step. Theta and ``held_out`` are of spectra under ``spectra_transform``, noise is in the spectra's own units.
    """

    members: tuple[GLLiMParameters, ...]
    transforms: Transforms
    bands: Bands
    spectra_name: str
    spectra_units: str | None
    names: list[str]
    attrs: dict[str, dict[str, str]]
    low: np.ndarray
    high: np.ndarray
    log_tail: float
    n_samples: int
    total_weight: float
    log_likelihoods: np.ndarray
    converged: bool
    n_removed: int
    bics: dict[int, float]
    settings: dict[str, Any]
    recalibration: Recalibration | None = None
    member_weights: np.ndarray | None = None
    training_noise: np.ndarray | None = None
    held_out: np.ndarray | None = None
    training: str = ""
    spectra_transform: SpectraTransform = UNCHANGED

    @property
    def theta(self) -> GLLiMParameters:
        """The first member."""
        return self.members[0]

    @property
    def labels(self) -> Labels:
        """What it knows of the labels of its training set."""
        return Labels(self.bands, self.spectra_name, self.spectra_units, self.names, self.attrs)

    @property
    def identity(self) -> str:
        """Short hash of the fitted parameters: the model's name in its products."""
        digest = hashlib.sha256()
        for theta in self.members:
            for array in theta.arrays().values():
                digest.update(np.ascontiguousarray(array).tobytes())
        if self.member_weights is not None:
            digest.update(self.member_weights.tobytes())
        digest.update((self.spectra_transform.kind or "").encode())
        return digest.hexdigest()[:12]

    @property
    def shares(self) -> np.ndarray:
        """Weights (M,) of the members' posteriors where these do not follow the evidence."""
        return member_shares(len(self.members), self.member_weights)

    @property
    def committee(self) -> str:
        """Its members in words, with their weights where they have some of their own."""
        weights = (
            "" if self.member_weights is None else f", weights {', '.join(f'{w:.2g}' for w in self.member_weights)}"
        )
        return f"{len(self.members)} fits{weights}"

    def band_coordinates(self) -> tuple[str, dict[str, Any]]:
        """The band dimension and its coordinates, wavelengths in the unit of training."""
        bands = self.bands
        if bands.wavelength is not None and bands.unit is not None:
            values = bands.wavelength / NM_PER_UNIT[bands.unit]
            return bands.dim, {"wavelength": (bands.dim, values, {"units": bands.unit})}
        return bands.dim, {} if bands.labels is None else {bands.dim: bands.labels}
