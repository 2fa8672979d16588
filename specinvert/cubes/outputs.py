"""What an inversion can give: each output declared once, with its dimensions, type and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

RESERVED = ("parameter", "parameter_2", "latent", "component", "draw", "mode_rank")
"""Dimensions of the results beside the cube's own."""
DEFAULT_OUTPUTS = ("mean", "std", "flag")
BAND = "band"
"""Stands for the model's band dimension among the dimensions of an output."""


@dataclass(frozen=True)
class Output:
    """One variable of the maps.

    ``kind`` is the output asked for, ``level`` its number (0.05 of "q05"), ``index`` the parameter it belongs to (None:
    all), ``core_dims`` follow the cube's own dimensions, ``dtype`` None is the cube's float type, ``count`` the number
    of draws or modes, ``asked`` the name by which the user asked for it.
    """

    name: str
    kind: str
    index: int | None = None
    core_dims: tuple[str, ...] = ()
    dtype: np.dtype | None = None
    level: float = 0.0
    count: int = 0
    asked: str = ""


_PER_PARAMETER: dict[str, tuple[tuple[str, str], ...]] = {
    "mean": (("{}", "mean"),),
    "std": (("{}_std", "std"),),
    "mode": (("{}_mode", "mode"),),
}
_WHOLE = {
    "cov": Output("covariance", "cov", core_dims=("parameter", "parameter_2")),
    "latent": Output("latent", "latent", core_dims=("latent",)),
    "n_modes": Output("n_modes", "n_modes", dtype=np.dtype(np.uint8)),
    "entropy": Output("entropy", "entropy"),
    "residual": Output("residual", "residual", core_dims=(BAND,)),
    "fit_rmse": Output("fit_rmse", "fit_rmse"),
    "log_evidence": Output("log_evidence", "log_evidence", dtype=np.dtype(np.float64)),
    "flag": Output("quality_flag", "flag", dtype=np.dtype(np.uint8)),
}
_LEVELS: tuple[tuple[re.Pattern[str], tuple[tuple[str, str], ...]], ...] = (
    (re.compile(r"q(\d+)"), (("{}_q{}", "quantile"),)),
    (re.compile(r"ci(\d+)"), (("{}_ci{}_lower", "ci_lower"), ("{}_ci{}_upper", "ci_upper"))),
    (re.compile(r"hdi(\d+)"), (("{}_hdi{}_lower", "hdi_lower"), ("{}_hdi{}_upper", "hdi_upper"))),
)
_COUNTS = (re.compile(r"draws(\d+)"), re.compile(r"modes(\d+)"))
OUTPUTS = (*_PER_PARAMETER, *_WHOLE)
_ACCEPTED = ", ".join(repr(name) for name in (*OUTPUTS, "q05", "ci90", "hdi90", "draws100", "modes3"))


def declare_outputs(outputs: Sequence[str], parameters: Sequence[str], n_latent: int) -> list[Output]:
    """The variables of a request, in a fixed order.

    "q05", "q975" and the like are quantiles, "ci90" central and "hdi90" highest-density intervals: digits after the
    decimal point. "draws100" are a hundred random draws, "modes3" the three modes of greatest mass.

    Raises
    ------
    ValueError : an unknown output, none at all, latents of a model without, a level of 0, or a name that collides.
    """
    if not isinstance(outputs, Iterable):
        raise TypeError(f"outputs={outputs!r} must be a list of names, such as ['mean', 'std']")
    asked = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    if not asked:
        raise ValueError(f"no outputs asked for; choose from {_ACCEPTED}")
    patterns = [*(pattern for pattern, _ in _LEVELS), *_COUNTS]
    unknown = [o for o in asked if o not in OUTPUTS and not any(p.fullmatch(str(o)) for p in patterns)]
    if unknown:
        raise ValueError(f"outputs {unknown} not known; choose from {_ACCEPTED} (any digits)")
    for pattern in _COUNTS:
        alike = [name for name in dict.fromkeys(asked) if pattern.fullmatch(name)]
        if len(alike) > 1:
            raise ValueError(f"outputs {alike} give the same variables: ask for one of them")
    if "latent" in asked and n_latent == 0:
        raise ValueError("output 'latent' needs a model with n_latent >= 1; this one has none")
    wanted: list[Output] = []
    for kind in ("mean", "std"):
        if kind in asked:
            wanted += _asked(kind, _of_parameters(_PER_PARAMETER[kind], parameters))
    for name in dict.fromkeys(asked):
        for pattern, variables in _LEVELS:
            found = pattern.fullmatch(name)
            if found:
                wanted += _asked(name, _of_parameters(variables, parameters, found[1]))
        wanted += _asked(name, _counted(name, parameters))
    if "mode" in asked:
        wanted += _asked("mode", _of_parameters(_PER_PARAMETER["mode"], parameters))
    wanted += [replace(output, asked=name) for name, output in _WHOLE.items() if name in asked]
    if not wanted:
        raise ValueError(f"outputs {list(asked)} need parameters, and this model has none: ask for 'latent'")
    names = [o.name for o in wanted]
    clashing = sorted({n for n in names if names.count(n) > 1} | {p for p in parameters if p in RESERVED})
    if clashing:
        raise ValueError(f"a parameter's name collides with an output: {clashing}; rename the parameter")
    return wanted


def _asked(name: str, outputs: Iterable[Output]) -> list[Output]:
    return [replace(output, asked=name) for output in outputs]


def _counted(name: str, parameters: Sequence[str]) -> list[Output]:
    """Draws or modes of every parameter, and the mass of the modes."""
    for pattern, dim in zip(_COUNTS, ("draw", "mode_rank"), strict=True):
        found = pattern.fullmatch(name)
        if found and parameters:
            count, kind = int(found[1]), "draws" if dim == "draw" else "modes"
            if count < 1:
                raise ValueError(f"output {name!r} asks for none: give a number of 1 or more")
            of = [Output(f"{p}_{kind}", kind, i, (dim,), count=count) for i, p in enumerate(parameters)]
            return of if kind == "draws" else [*of, Output("mode_mass", "mode_mass", None, (dim,), count=count)]
    return []


def declare_scores(kinds: Sequence[str], parameters: Sequence[str]) -> list[Output]:
    """Variables that compare with a truth: "mean", and in float64 "pit" and "crps"."""
    double = np.dtype(np.float64)
    return [
        Output(name if kind == "mean" else f"{name}_{kind}", kind, index, dtype=None if kind == "mean" else double)
        for kind in kinds
        for index, name in enumerate(parameters)
    ]


def _of_parameters(
    variables: tuple[tuple[str, str], ...], parameters: Sequence[str], digits: str | None = None
) -> list[Output]:
    level = 0.0 if digits is None else float(f"0.{digits}")
    if digits is not None and not 0.0 < level < 1.0:
        raise ValueError(f"level 0.{digits} of {variables[0][0].format('p', digits)!r} must lie between 0 and 1")
    return [
        Output(pattern.format(name, digits), kind, index, level=level)
        for pattern, kind in variables
        for index, name in enumerate(parameters)
    ]


IN_SPECTRA_UNITS = frozenset({"residual", "fit_rmse"})
UNITLESS = frozenset({"log_evidence", "latent", "n_modes", "entropy", "mode_mass"})


def describe(output: Output, of: str = "") -> str:
    """Long name of an output, of the parameter ``of`` where it belongs to one."""
    percent = f"{round(100.0 * output.level, 10):g} %"
    texts = {
        "std": f"standard deviation of {of}",
        "mode": f"{of} at the highest mode of the posterior",
        "draws": f"random draws of {of} from the posterior",
        "modes": f"{of} at the modes of the posterior, by falling mass",
        "mode_mass": "share of the posterior that belongs to each mode",
        "quantile": f"{percent} quantile of {of}",
        "ci_lower": f"lower end of the central {percent} interval of {of}",
        "ci_upper": f"upper end of the central {percent} interval of {of}",
        "hdi_lower": f"lower end of the shortest {percent} interval of {of}",
        "hdi_upper": f"upper end of the shortest {percent} interval of {of}",
        "log_evidence": "log density of the spectrum under the model",
        "latent": "posterior mean of the latent dimensions",
        "cov": "posterior covariance of the parameters",
        "n_modes": "number of modes that hold a tenth of the posterior",
        "entropy": "entropy of the posterior, nats",
        "residual": "observed less fitted spectrum",
        "fit_rmse": "root mean squared residual of the fitted spectrum",
    }
    return texts[output.kind]
