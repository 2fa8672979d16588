"""The settings of a fit, each declared once: name, default, what is accepted, help, and the option of the commands.

A field of a class below is a setting: the classes make the signatures and docstrings of :class:`GLLiM` and
:class:`GLLiMInverter`, the checks, what model files keep, and the options of ``train`` and ``select``.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from inspect import cleandoc
from textwrap import fill
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=type)


class Accepted:
    """What a setting may be. This one accepts all: what the value has to be shows where it is used."""

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError, in a line that names the setting, where the value is not accepted."""


@dataclass(frozen=True)
class Integer(Accepted):
    """An integer, ``least`` or more, or a word."""

    least: int
    word: str | None = None

    def check(self, name: str, value: Any) -> None:
        """Booleans are no integers."""
        if self.word is not None and isinstance(value, str):
            _require(value == self.word, name, value, f"must be an integer or {self.word!r}")
            return
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= self.least
        _require(whole, name, value, f"must be an integer, {self.least} or more")


class Integers(Integer):
    """An integer, or a collection of them."""

    def check(self, name: str, value: Any) -> None:
        """An empty collection is none."""
        several = isinstance(value, Collection) and not isinstance(value, str) and len(value) > 0
        whole = isinstance(value, numbers.Integral)
        _require(several or whole, name, value, "must be an integer or a sequence of them")
        for one in (value,) if whole else value:
            super().check(name, one)


class Number(Accepted):
    """A finite number, zero or more."""

    def check(self, name: str, value: Any) -> None:
        """Booleans are no numbers."""
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        _require(real and 0 <= float(value) < np.inf, name, value, "must be a number, zero or more")


@dataclass(frozen=True)
class Boolean(Accepted):
    """True, False, or a word."""

    word: str | None = None

    def check(self, name: str, value: Any) -> None:
        """Numbers are no booleans."""
        word = isinstance(value, str) and value == self.word
        said = "True or False" if self.word is None else f"True, False or {self.word!r}"
        _require(word or isinstance(value, bool | np.bool_), name, value, f"must be {said}")


@dataclass(frozen=True)
class OneOf(Accepted):
    """One of some names; the commands do not offer those that are ``unlisted``."""

    names: tuple[str, ...]
    unlisted: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """The message lists the names."""
        known = isinstance(value, str) and value in (*self.names, *self.unlisted)
        _require(known, name, value, f"is not one of {self.listed}")

    @property
    def listed(self) -> str:
        """The names as a message has them."""
        return ", ".join(map(repr, (*self.names, *self.unlisted)))


class Start(OneOf):
    """The name of a start. Models are accepted by who knows them."""

    @property
    def listed(self) -> str:
        """The names, and what else there is."""
        return f"{super().listed} or a GLLiMParameters"


class Seed(Accepted):
    """What scikit-learn takes for a seed."""

    def check(self, name: str, value: Any) -> None:
        """Booleans are no seeds, which scikit-learn takes for 0 and 1."""
        from sklearn.utils import check_random_state

        try:
            check_random_state(str(value) if isinstance(value, bool) else value)
        except ValueError:
            what = f"must be an integer from 0 to {2**32 - 1}, a numpy RandomState or None"
            raise ValueError(f"{name}={value!r} {what}") from None


def _require(right: bool, name: str, value: Any, what: str) -> None:
    if not right:
        raise ValueError(f"{name}={value!r} {what}")


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its name.

    Attributes
    ----------
    default : its value where none is given.
    accepted : what it may be.
    help : what it does, as the docstrings say it.
    option : that of ``train`` and ``select``, as ``"--tol"``; where it is empty, the commands have none.
    short_help : what it does as the commands say it, where the docstrings say more.
    """

    default: Any
    accepted: Accepted
    help: str
    option: str = ""
    short_help: str = ""


def setting(*declared: Any, **more: Any) -> Any:
    """The field of a :class:`Setting`."""
    made = Setting(*declared, **more)
    return field(default=made.default, metadata={"setting": made})


def settings_of(kind: type) -> dict[str, Setting]:
    """The settings of a class by their names."""
    return {one.name: one.metadata["setting"] for one in fields(kind) if "setting" in one.metadata}


def documented(kind: T) -> T:
    """The class, with its settings where the docstring says ``{settings}``."""
    entries = [f"{name} : {one.help}" for name, one in settings_of(kind).items()]
    text = "\n".join(fill(entry, 116, subsequent_indent="    ", break_on_hyphens=False) for entry in entries)
    kind.__doc__ = cleandoc(kind.__doc__ or "").replace("{settings}", text)
    return kind


_n_components = partial(setting, accepted=Integer(1), help="K, the number of affine maps.", option="--components")


@dataclass(eq=False, repr=False)
class FitSettings:
    """Settings of a fit to arrays and to labelled spectra alike."""

    n_components: int = _n_components(50)
    n_latent: int | str = setting(
        0,
        Integer(0, "bic"),
        'L_w, the number of latent dimensions, for what varies in the spectra beside the parameters; ``"bic"`` tries '
        "0 to ``max_latent`` and keeps the least BIC.",
        "--latent",
        "L_w, latent dimensions.",
    )
    _: KW_ONLY
    max_latent: Any = setting(
        10,
        Integers(0),
        "the largest L_w to try, or a sequence of them.",
        "--max-latent",
        "Largest L_w that bic tries.",
    )
    sigma: str = setting(
        "iso",
        OneOf(("iso", "diag", "block", "full")),
        'structure of the noise covariances, ``"iso"``, ``"diag"``, ``"block"`` or ``"full"``.',
        "--sigma",
        "Noise; block finds bands of correlated noise.",
    )
    tied_sigma: bool = setting(
        False,
        Boolean(),
        "one noise covariance for all components.",
        "--tied-sigma",
    )
    gamma: str = setting(
        "full",
        OneOf(("full", "diag", "iso"), unlisted=("flat",)),
        'structure of the parameters\' covariances, ``"full"``, ``"diag"`` or ``"iso"``; ``"flat"`` is no prior on the '
        "parameters: mixtures of regressions, whose likelihood is that of the spectra given the parameters.",
        "--gamma",
        "Parameter covariances.",
    )
    tied_gamma: bool | str = setting(
        False,
        Boolean("volume"),
        'one covariance of the parameters for all components; ``"volume"`` makes their determinants equal.',
        "--tied-gamma",
        "One parameter covariance for all components.",
    )
    tied_pi: bool = setting(False, Boolean(), "all weights 1/K.")
    sigma_blocks: Any = setting(
        None,
        Accepted(),
        'groups of bands whose noise is correlated, for ``sigma="block"``: the group of each band, D integers, or '
        'lists of the bands of each group; ``"auto"`` finds them in the residuals of a first fit.',
    )
    algorithm: str = setting(
        "general",
        OneOf(("general", "marginal", "ecm", "aecm")),
        '``"general"`` EM, or a variant that treats less of the latents as missing, ``"marginal"``, ``"ecm"`` or '
        '``"aecm"``: other steps to the same maxima.',
        "--algorithm",
        "Steps of EM.",
    )
    standardize: bool = setting(
        True, Boolean(), "centre and scale the data for the fit; results are in the user's units either way."
    )
    init: Any = setting(
        "kmeans",
        Start(("kmeans", "kmeans-joint", "kmeans-spectra", "gmm")),
        'start of EM: ``"kmeans"`` on the parameters (on the spectra where there are none), ``"kmeans-joint"`` on both '
        'with equal weight, ``"kmeans-spectra"``, ``"gmm"`` (a mixture on the parameters), a GLLiMParameters to go on '
        "from, which brings its own K, or a :class:`specinvert.gllim.em.initialize.PrincipalGrid`.",
        "--init",
        "Start: kmeans, kmeans-joint, kmeans-spectra, gmm.",
    )
    n_init: int = setting(
        1, Integer(1), "starts to try; the greatest likelihood is kept.", "--n-init", "Starts to try."
    )
    max_iter: int = setting(100, Integer(1), "most iterations of EM.", "--max-iter")
    tol: float = setting(
        1e-4,
        Number(),
        "EM stops when an iteration gains less, in nats a sample (0: never).",
        "--tol",
        "Least gain of an iteration, nats a sample.",
    )
    reg_covar: float = setting(
        1e-10,
        Number(),
        "no variance falls below this share of the band's or parameter's own variance (a clip, never added).",
        "--reg-covar",
        "Least share of variance kept.",
    )
    random_state: Any = setting(None, Seed(), "seed of the starts.")

    def __dask_tokenize__(self) -> tuple[type, dict[str, Any]]:
        """What dask tells objects apart by: what was fitted, too, not the fields of the dataclass alone."""
        return type(self), vars(self)


@dataclass(eq=False, repr=False)
class GLLiMSettings(FitSettings):
    """Settings of a fit to arrays."""

    n_components: int = _n_components(5)
    _: KW_ONLY
    tied_maps: bool = setting(False, Boolean(), "one A for all components; needs ``tied_sigma``.")
    intercept: bool = setting(True, Boolean(), "False holds b = 0, and data are not centred for the fit.")
    fixed: Any = setting(
        None,
        Accepted(),
        'parts of theta that are given, not estimated, in the user\'s units: ``"pi"`` (K,), ``"c"`` up to (K, L_t) and '
        '``"Gamma"`` up to (K, L_t, L_t) of the parameters, ``"Sigma"`` a variance, (D,), (D, D) or (K, D, D).',
    )
    latent_mean: Any = setting(None, Accepted(), "fixed mean of the latents, broadcast to (K, L_w); 0.")
    latent_covariance: Any = setting(
        None, Accepted(), "fixed covariance of the latents, broadcast to (K, L_w, L_w); the identity."
    )


@dataclass(eq=False, repr=False)
class InverterSettings(FitSettings):
    """Settings of an inverter of labelled spectra."""

    _: KW_ONLY
    transforms: Any = setting(
        None,
        Accepted(),
        'of bounded or skewed parameters: ``{"grain_size": "log", "co2_ice": ("logit", 0, 1), "lai": "sqrt", '
        '("a", "b", "c"): "ilr"}``. The model holds the transformed ones, results are in physical units and within '
        "bounds.",
    )
    n_ensemble: int = setting(
        1,
        Integer(1),
        "a committee of so many fits from starts of their own, whose posteriors are averaged.",
        "--ensemble",
        "Models to fit and average.",
    )
    ensemble_weights: str = setting(
        "equal",
        OneOf(("equal", "evidence")),
        'of the posteriors of a committee: ``"equal"``, or ``"evidence"`` in proportion to the density each gives to '
        "the spectrum.",
    )

    def __post_init__(self) -> None:
        check_settings(vars(self))


SETTINGS = settings_of(GLLiMSettings) | settings_of(InverterSettings)


def check_settings(values: Mapping[str, Any]) -> None:
    """Raise ValueError for the first of the values that its setting does not accept; other names are let pass."""
    for name, one in SETTINGS.items():
        if name in values:
            one.accepted.check(name, values[name])
