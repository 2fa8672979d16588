"""What a model is, beside its file: theta of every member, bands, transforms, ranges, calibrations."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from .cubes import NM_PER_UNIT, Bands, FieldCalibration, Labels, Recalibration
from .gllim.model import GLLiMParameters
from .gllim.posterior import member_shares
from .gllim.transforms import UNCHANGED, SpectraTransform, Transforms


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """How good a model is on samples that were held out, how its settings were chosen, and what to beware of.

    Attributes
    ----------
    names, units : of the parameters (L_t,).
    n_samples, n_held_out, n_parts : samples, those held out at some time, and in how many parts.
    rmse, nrmse : (L_t,) errors of the estimates. coverage, recalibrated : (L_t,) share of truths in the 90 % intervals
        as they are, and after recalibration, judged by samples that it has not seen; NaN where there is none.
    baseline, baseline_rmse : the better of ridge regression and partial least squares on the same samples, its errors.
    chosen, ended, seconds : the settings, why the search for them ended, and how long it took.
    tried : settings, rows, score, nrmse, coverage_90, width, seconds and failure of each trial.
    bounds : transforms that keep parameters within bounds. beware : what to beware of, in sentences.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    n_samples: int
    n_held_out: int
    n_parts: int
    rmse: np.ndarray
    nrmse: np.ndarray
    coverage: np.ndarray
    recalibrated: np.ndarray
    baseline: str
    baseline_rmse: np.ndarray
    chosen: str
    ended: str = ""
    seconds: float = 0.0
    bounds: Mapping[str, str] = field(default_factory=dict)
    tried: tuple[Mapping[str, Any], ...] = ()
    beware: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(getattr(self, name)) for name in ("names", "units", "rmse", "nrmse", "coverage", "recalibrated")}
        if len(sizes | {len(self.baseline_rmse)}) != 1:
            raise ValueError("the summary has not one value for each parameter")

    def __str__(self) -> str:
        how = f"in {self.n_parts} parts" if self.n_parts > 1 else "once"
        lines = [f"on {self.n_held_out} of {self.n_samples} samples, held out {how}:", *self._table()]
        lines.append(f"settings: {self.chosen}")
        if self.tried:
            lines.append(f"  the best of {len(self.tried)} tried in {self.seconds:.0f} s; {self.ended}")
        if self.bounds:
            lines.append("bounds: " + ", ".join(f"{name} ({kind})" for name, kind in self.bounds.items()))
        return "\n".join([*lines, *(f"beware: {sentence}" for sentence in self.beware)])

    def _table(self) -> list[str]:
        """A line a parameter."""
        width = max(map(len, self.names))
        lines = []
        for i, name in enumerate(self.names):
            line = f"  {name:{width}}  RMSE {self.rmse[i]:.3g}{' ' * bool(self.units[i])}{self.units[i]} "
            line += f"(NRMSE {self.nrmse[i]:.2f}; {self.baseline} {self.baseline_rmse[i]:.3g})"
            if np.isfinite(self.coverage[i]):
                before, after = 100.0 * self.coverage[i], 100.0 * self.recalibrated[i]
                line += f", 90 % intervals hold {before:.0f} %, recalibrated {after:.0f} %"
            lines.append(line)
        return lines

    @property
    def trials(self) -> list[str]:
        """What was tried to find the settings, a line each under one that says what it tells; empty where nothing."""
        lines = ["tried: nats a parameter gained over the prior, samples, seconds, settings"] if self.tried else []
        for trial in self.tried:
            said = f"{trial['score']:8.3f} {trial['rows']:6} {trial['seconds']:6.1f}  {trial['settings']}"
            lines.append(said + (f" ({trial['failure']})" if trial["failure"] else ""))
        return lines

    def __repr__(self) -> str:
        return f"<Summary\n{self}\n>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def to_attrs(self) -> dict[str, Any]:
        """As JSON holds it."""
        values = asdict(self)
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Summary:
        """Of :meth:`to_attrs`; other entries are left alone."""
        known = {one.name: one.type for one in fields(cls)}
        values = {name: attrs[name] for name in known if name in attrs}
        for name, kind in known.items():
            if kind == "np.ndarray":
                values[name] = np.array(values[name], dtype=np.float64)
            elif isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True)
class ScenePrior:
    """How a model got the prior of a scene: see :func:`specinvert.reweight`.

    Attributes
    ----------
    of : identity of the model before. n_spectra : of the scene, in the domain.
    effective : share of effective samples of a whole step. step : its length, 1 where it is whole.
    covered : share of simulated values in 90 % intervals after it, of each parameter.
    gain : mean log density of left-out bands, nats a spectrum, after less before, and its standard error.
    q, disagreement : before and after, squared errors of left-out bands, and squared moves of estimates without a
        window of bands, over those expected.
    width_ratio : mean standard deviation of each parameter, after over before. verdict : in words.
        Figures are empty where nothing changed.
    """

    of: str
    n_spectra: int
    effective: float
    step: float
    covered: tuple[float, ...] = ()
    gain: tuple[float, ...] = ()
    q: tuple[float, ...] = ()
    disagreement: tuple[float, ...] = ()
    width_ratio: tuple[float, ...] = ()
    verdict: str = ""

    def described(self, names: Sequence[str]) -> str:
        """In words, for parameters of these names."""
        widths = ", ".join(f"{ratio:.2g} ({name})" for name, ratio in zip(names, self.width_ratio, strict=True))
        step = "a step" if self.step == 1.0 else f"{self.step:.2g} of a step"
        return f"{step} to the prior of {self.n_spectra} spectra; intervals are times as wide: {widths}"

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> ScenePrior:
        """Of what ``asdict`` made of one, read from JSON."""
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in attrs.items()}
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with its labels.

    ``members`` are the fits of a committee, one where there is none; their parameters are ``transforms`` of the
    physical ones. ``names`` and ``attrs`` are those of the physical parameters, ``low`` and ``high`` (L_t,) their
    training ranges; ``log_tail`` is the log of the tail probability below which a spectrum is out of the domain (NaN
    where training was too small to tell); ``bics`` holds the BIC of each L_w tried, ``settings`` the arguments of the
    inverter. Log-likelihoods are those of the first member. ``recalibration`` corrects the levels of quantiles,
    ``calibration`` by field values what is left, of which theta knows nothing; ``member_weights`` (M,) are those of the
    members' posteriors, summing to one, where they are neither equal nor by evidence; ``training_noise`` are the
    standard deviations (D,) that training added to the spectra, ``held_out`` spectra (m, D) of training that
    ``log_tail`` is of, ``training`` is the history of the training set, a line for each step, ``summary`` what the fit
    found of itself on samples held out, ``scene_prior`` how it got the prior of a scene. Theta and ``held_out`` are of
    spectra under ``spectra_transform``, noise is in the spectra's own units.
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
    summary: Summary | None = None
    calibration: FieldCalibration | None = None
    scene_prior: ScenePrior | None = None

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
