"""The settings of a fit, each declared once: name, default, what is accepted, help, and the option of the commands.

A field of a class below is a setting: the classes make the signatures and docstrings of :class:`GLLiM` and
:class:`GLLiMInverter`, the checks, what model files keep, and the options of ``train`` and ``select``.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from inspect import cleandoc
from textwrap import fill
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=type)

STRUCTURES = {"full": True, "diag": True, "iso": True, "block": False}
"""Structures of covariances by name, and whether the name alone tells them, so that Gamma may have them too."""


@dataclass(frozen=True)
class Accepted:
    """What a setting may be; by default anything, for it is checked where it is used.

    Attributes
    ----------
    test : whether a value is accepted.
    what : what is said of one that is not, after its name and the value.
    kind : type of the values of its option. names : those that the option offers.
    """

    test: Callable[[Any], bool] = lambda value: True
    what: str = ""
    kind: type = str
    names: tuple[str, ...] = ()


def integer(least: int, word: str = "") -> Accepted:
    """An integer that is no boolean, ``least`` or more, or a word."""
    what = f"must be an integer, {least} or more" + (f", or {word!r}" if word else "")
    names = (word,) if word else ()
    return Accepted(lambda value: _is_whole(value, least) or _is_named(value, names), what, int, names)


def boolean(word: str = "") -> Accepted:
    """True, False, or a word, which no option has."""
    what = f"must be True, False or {word!r}" if word else "must be True or False"
    return Accepted(lambda value: isinstance(value, bool | np.bool_) or _is_named(value, (word,)), what, bool)


def one_of(*names: str, unlisted: tuple[str, ...] = (), or_none: bool = False) -> Accepted:
    """One of some names, or None; the option does not offer those that are ``unlisted``."""
    every = (*names, *unlisted)
    what = f"is not one of {', '.join(map(repr, every))}{' or None' if or_none else ''}"
    return Accepted(partial(_is_named, names=every, or_none=or_none), what, str, names)


def share(*words: str) -> Accepted:
    """None, a number from 0 to 1, or one of some words."""
    what = f"must be a number from 0 to 1{''.join(f', {word!r}' for word in words)} or None"

    def test(value: Any) -> bool:
        return value is None or _is_named(value, words) or (_is_positive(value) and float(value) <= 1.0)

    return Accepted(test, what, float, words)


def _is_named(value: Any, names: tuple[str, ...], or_none: bool = False) -> bool:
    return (isinstance(value, str) and value in names) or (or_none and value is None)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def _are_whole(value: Any) -> bool:
    several = isinstance(value, Collection) and not isinstance(value, str) and len(value) > 0
    return all(_is_whole(one, 0) for one in value) if several else _is_whole(value, 0)


def _is_positive(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) < np.inf


def _is_seed(value: Any) -> bool:
    from sklearn.utils import check_random_state

    try:
        check_random_state(str(value) if isinstance(value, bool) else value)
    except ValueError:
        return False
    return True


ANYTHING = Accepted()
INTEGERS = Accepted(_are_whole, "must be an integer, 0 or more, or a sequence of them", int)
NUMBER = Accepted(_is_positive, "must be a number, zero or more", float)
SEED = Accepted(_is_seed, f"must be an integer from 0 to {2**32 - 1}, a numpy RandomState or None")
STARTS = ("kmeans", "kmeans-joint", "kmeans-spectra", "gmm")
START = Accepted(partial(_is_named, names=STARTS), f"is not one of {', '.join(map(repr, STARTS))} or a GLLiMParameters")
"""The name of a start; models are accepted by who knows them."""


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its name.

    Attributes
    ----------
    default : its value where none is given.
    accepted : what it may be.
    help : what it does, in a sentence. more : what docstrings say beside that.
    option : that of ``train`` and ``select``, as ``"--tol"``; where it is empty, the commands have none.
    """

    default: Any
    accepted: Accepted
    help: str
    more: str = ""
    option: str = ""

    @property
    def text(self) -> str:
        """What docstrings say."""
        first = self.help[0].lower() + self.help[1:] if self.help[1].islower() else self.help
        return f"{first.removesuffix('.')}; {self.more}" if self.more else first


def setting(*declared: Any, **more: Any) -> Any:
    """The field of a :class:`Setting`."""
    made = Setting(*declared, **more)
    return field(default=made.default, metadata={"setting": made})


def settings_of(kind: type) -> dict[str, Setting]:
    """The settings of a class by their names."""
    return {one.name: one.metadata["setting"] for one in fields(kind) if "setting" in one.metadata}


def documented(kind: T) -> T:
    """The class, with its settings where the docstring says ``{settings}``."""
    entries = [f"{name} : {one.text}" for name, one in settings_of(kind).items()]
    text = "\n".join(fill(entry, 116, subsequent_indent="    ", break_on_hyphens=False) for entry in entries)
    kind.__doc__ = cleandoc(kind.__doc__ or "").replace("{settings}", text)
    return kind


n_components = partial(setting, accepted=integer(1), help="K, the number of affine maps.", option="--components")


@dataclass(eq=False, repr=False)
class FitSettings:
    """Settings of a fit to arrays and to labelled spectra alike."""

    n_components: int = n_components(50)
    n_latent: int | str = setting(
        0,
        integer(0, "bic"),
        "L_w, latent dimensions.",
        'they take up what varies beside the parameters; ``"bic"`` tries 0 to ``max_latent`` and keeps the least BIC.',
        "--latent",
    )
    _: KW_ONLY
    max_latent: Any = setting(10, INTEGERS, "Largest L_w that bic tries.", "or all to try.", "--max-latent")
    sigma: str = setting(
        "iso",
        one_of(*STRUCTURES),
        "Noise; block finds bands of correlated noise.",
        'structure of its covariances, ``"iso"``, ``"diag"``, ``"block"`` or ``"full"``.',
        "--sigma",
    )
    tied_sigma: bool = setting(False, boolean(), "One noise covariance for all components.", option="--tied-sigma")
    shrinkage: float | None = setting(
        None,
        share(),
        "Share of the noise covariance that is taken from an isotropic one.",
        "each is the maximum a posteriori (1 - s) E + s T with E the residuals' own and T their pooled variance for "
        "all bands; components of few samples are shrunk more, so that a full one may have fewer samples than bands.",
        "--shrinkage",
    )
    gamma: str = setting(
        "full",
        one_of(*(name for name, alone in STRUCTURES.items() if alone), unlisted=("flat",)),
        "Parameter covariances.",
        '``"full"``, ``"diag"`` or ``"iso"``; ``"flat"`` is no prior on the parameters: mixtures of regressions, whose '
        "likelihood is that of the spectra given the parameters.",
        "--gamma",
    )
    tied_gamma: bool | str = setting(
        False,
        boolean("volume"),
        "One parameter covariance for all components.",
        '``"volume"`` makes their determinants equal.',
        "--tied-gamma",
    )
    tied_pi: bool = setting(False, boolean(), "All weights 1/K.")
    sigma_blocks: Any = setting(
        None,
        ANYTHING,
        'Groups of bands whose noise is correlated, for ``sigma="block"``.',
        'the group of each band, D integers, or lists of the bands of each group; ``"auto"`` finds them in the '
        "residuals of a first fit.",
    )
    algorithm: str = setting(
        "general",
        one_of("general", "marginal", "ecm", "aecm"),
        "Steps of EM.",
        '``"general"``, or a variant that treats less of the latents as missing, ``"marginal"``, ``"ecm"`` or '
        '``"aecm"``: other steps to the same maxima.',
        "--algorithm",
    )
    standardize: bool = setting(
        True, boolean(), "Centre and scale the data for the fit.", "results are in the user's units either way."
    )
    init: Any = setting(
        "kmeans",
        START,
        "Start: kmeans, kmeans-joint, kmeans-spectra, gmm.",
        '``"kmeans"`` and ``"gmm"``, a mixture, see the parameters (the spectra where there are none), '
        '``"kmeans-joint"`` both with equal weight; or a GLLiMParameters to go on from, which brings its own K, or a '
        ":class:`specinvert.gllim.em.initialize.PrincipalGrid`.",
        "--init",
    )
    n_init: int = setting(1, integer(1), "Starts to try.", "the greatest likelihood is kept.", "--n-init")
    max_iter: int = setting(100, integer(1), "Most iterations of EM.", option="--max-iter")
    tol: float = setting(
        1e-4, NUMBER, "Least gain of an iteration, nats a sample.", "EM stops at less (0: never).", "--tol"
    )
    reg_covar: float = setting(
        1e-10,
        NUMBER,
        "Least share of variance kept.",
        "of the band's or parameter's own variance (a clip, never added).",
        "--reg-covar",
    )
    random_state: Any = setting(None, SEED, "Seed of the starts.")

    def __dask_tokenize__(self) -> tuple[type, dict[str, Any]]:
        """What dask tells objects apart by: what was fitted, too, not the fields of the dataclass alone."""
        return type(self), vars(self)


@dataclass(eq=False, repr=False)
class GLLiMSettings(FitSettings):
    """Settings of a fit to arrays."""

    n_components: int = n_components(5)
    _: KW_ONLY
    tied_maps: bool = setting(False, boolean(), "One A for all components.", "it needs ``tied_sigma``.")
    intercept: bool = setting(True, boolean(), "Whether there is a b.", "without, data are not centred for the fit.")
    fixed: Any = setting(
        None,
        ANYTHING,
        "Parts of theta that are given, not estimated, in the user's units.",
        '``"pi"`` (K,), ``"c"`` up to (K, L_t) and ``"Gamma"`` up to (K, L_t, L_t) of the parameters, ``"Sigma"`` a '
        "variance, (D,), (D, D) or (K, D, D).",
    )
    latent_mean: Any = setting(None, ANYTHING, "Fixed mean of the latents.", "broadcast to (K, L_w); 0.")
    latent_covariance: Any = setting(
        None, ANYTHING, "Fixed covariance of the latents.", "broadcast to (K, L_w, L_w); the identity."
    )


AUTO = "auto"
"""What a setting is that is found by samples held out."""


def or_auto(name: str, more: str = "") -> Any:
    """The field of a setting of a fit, or "auto", its default but for a shrinkage."""
    one = settings_of(FitSettings)[name]
    known = one.accepted
    accepted = Accepted(
        lambda value: _is_named(value, (AUTO,)) or known.test(value),
        f"{known.what}, or {AUTO!r}",
        known.kind,
        (*known.names, AUTO),
    )
    return setting(
        one.default if name == "shrinkage" else AUTO, accepted, one.help, f"{one.more} {more}".strip(), one.option
    )


@dataclass(eq=False, repr=False)
class InverterSettings(FitSettings):
    """Settings of an inverter of labelled spectra."""

    n_components: int | str = or_auto(  # type: ignore[assignment]
        "n_components", '``"auto"`` finds it, and whatever else is ``"auto"``, by the density of held-out parameters.'
    )
    n_latent: int | str = or_auto("n_latent", '``"auto"`` tries more as long as that pays.')
    _: KW_ONLY
    sigma: str = or_auto("sigma", '``"auto"`` tries iso, diag and a shrunk full one; iso where K and L_w are given.')
    shrinkage: float | str | None = or_auto(  # type: ignore[assignment]
        "shrinkage", '``"auto"`` finds it.'
    )
    transforms: Any = setting(
        None,
        ANYTHING,
        "Transforms of bounded or skewed parameters.",
        '``{"grain_size": "log", "co2_ice": ("logit", 0, 1), "lai": "sqrt", ("a", "b", "c"): "ilr"}``. The model holds '
        "the transformed ones, results are in physical units, within bounds. A parameter that is not named and never "
        'below zero in training has a bound there, ``"softplus"``, or ``"log"`` where its values span decades; '
        '``"identity"`` for one, or ``{}`` for all, is none.',
    )
    spectra_transform: str | None = setting(
        AUTO,
        one_of("log", "sqrt", AUTO, or_none=True),
        "Transform of all spectra.",
        '``"log"``, ``"sqrt"``, None for none, or ``"auto"``, none but where settings are looked for. Noise is told, '
        "and spectra come back, in the units of the spectra; values that have no transform are missing bands.",
        "--spectra-transform",
    )
    n_ensemble: int | str = setting(
        AUTO,
        integer(1, AUTO),
        "Models to fit and average.",
        'a committee of fits from starts of their own, whose posteriors are averaged; ``"auto"`` is one, but where '
        "settings are looked for, which may take a few with stacked weights.",
        "--ensemble",
    )
    ensemble_weights: str = setting(
        "equal",
        one_of("equal", "stacked", "evidence"),
        "Weights of a committee's posteriors: equal, stacked or evidence.",
        '``"equal"``; ``"stacked"``, those of greatest density of held-out parameters, for which members are fitted '
        'twice, first without a fifth of the samples; or ``"evidence"``, in proportion to the density each gives to '
        "the spectrum.",
        "--ensemble-weights",
    )

    search_seconds: float | None = setting(
        None,
        Accepted(lambda value: value is None or _is_positive(value), "must be a number of seconds or None", float),
        "Most time to look for settings, s.",
        "None, the default, spends a few times the work of the fit that it leads to, and gives the same model on any "
        "machine.",
        "--search-seconds",
    )

    def __post_init__(self) -> None:
        check_settings(vars(self), InverterSettings)


def check_settings(values: Mapping[str, Any], kind: type) -> None:
    """Raise ValueError for the first of the values that its setting does not accept; other names are let pass."""
    for name, one in settings_of(kind).items():
        if name in values and not one.accepted.test(values[name]):
            raise ValueError(f"{name}={values[name]!r} {one.accepted.what}")
