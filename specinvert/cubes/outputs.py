"""What an inversion can give: each output declared once, with its names, dimensions, units, texts and computation.

An output is added by an entry in ``DECLARED``, and a test of its values; nothing else lists outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..flags import FLAG_VARIABLE, NODATA, flag_attrs
from .labels import listed

if TYPE_CHECKING:
    from .reading import Reading

DEFAULT_OUTPUTS = ("estimate", "std", "flag")
PARAMETER, PARAMETER_2, LATENT, BAND = "parameter", "parameter_2", "latent_dim", "band"
"""Dimensions whose sizes are the model's; ``BAND`` stands for the band dimension of the cube."""
OF_PARAMETER, OF_SPECTRA = "those of the parameter", "those of the spectra"
"""Units that come with the data."""
LEVEL, COUNT = "level", "count"
"""What the digits of an output are: those after a decimal point, or an integer."""
COVARIANCE, DOMAIN, GAIN, TRUTH = "covariance", "domain", "gain", "truth"
"""What costs more than the posterior itself, and is prepared where an output needs it."""
COMMITTEE, TRANSFORMS, INTERVAL = "committee", "transforms", "interval"
"""Of a model or a request, what an output may not go with; an interval is one that a parameter is known by."""
_NOT_TRUNCATED = {
    INTERVAL: "{0} cannot be given where a parameter is known by an interval: leave {0} out of outputs, or give the "
    "parameter a value"
}
_NOT_TRANSFORMED = {
    TRANSFORMS: "hdi outputs need a model without transforms: ask for central intervals, such as 'ci90'"
}


@dataclass(frozen=True, eq=False, repr=False)
class Output:
    """A kind of variable that maps can hold.

    Attributes
    ----------
    asked : the name by which it is asked for; where it has a ``number``, its last digits are an example of any.
    name : of the variables, ``{p}`` is the parameter, ``{digits}`` those asked for; one a parameter where there is
        ``{p}``.
    long_name : in the maps, ``{of}`` is that of the parameter, ``{percent}`` the level.
    compute : values (n, \\*sizes of dims) of a variable from a reading of the posterior.
    units : a unit, ``OF_PARAMETER``, ``OF_SPECTRA``, or None where there is no single one.
    dims : beyond those of the pixels; one whose size is not the model's is as long as the count asked for.
    number : ``LEVEL`` or ``COUNT``, "" for an output without a number.
    levels : levels of the quantiles that ``compute`` asks the reading for, of the number.
    standard_name : CF's modifier of that of the parameter, "" for none.
    ancillary : whether it tells of every parameter, without being of one.
    attrs : gives further attributes.
    dtype, empty : None for the float type of the cube; the value where there is no data.
    needs : what ``compute`` asks of the reading that others do not: ``COVARIANCE``, ``DOMAIN``, ``GAIN``, what
        spectra like training tell, or ``TRUTH``, which maps do not have.
    not_with : what it is not to be had with, and the message, whose ``{0}`` lists the outputs.
    """

    asked: str
    name: str
    long_name: str
    compute: Callable[[Reading, MapVariable], NDArray[Any]]
    units: str | None
    dims: tuple[str, ...] = ()
    number: str = ""
    levels: Callable[[float], tuple[float, ...]] | None = None
    standard_name: str = ""
    ancillary: bool = False
    attrs: Callable[[], dict[str, object]] = dict
    dtype: type[np.generic] | None = None
    empty: float = np.nan
    needs: tuple[str, ...] = ()
    not_with: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Output {self.asked!r}: {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _declared, (self.asked, self.name)

    @property
    def per_parameter(self) -> bool:
        """Whether every parameter has a variable of it."""
        return "{p}" in self.name

    @property
    def is_estimate(self) -> bool:
        """Whether its variables are the parameters themselves."""
        return self.name == "{p}"

    @cached_property
    def _asked_as(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\d+$", "", self.asked) + r"(\d+)" if self.number else self.asked + "()")

    @cached_property
    def _named_as(self) -> re.Pattern[str]:
        return re.compile(self.name.replace("{p}", "(?P<p>.+)").replace("{digits}", r"\d+"))

    def digits(self, asked: object) -> str | None:
        """The digits of what is asked for, "" where it needs none; None where it is another output."""
        match = self._asked_as.fullmatch(asked) if isinstance(asked, str) else None
        return match and match[1]

    def variables(self, asked: str, parameters: Sequence[str]) -> list[MapVariable]:
        """Its variables in maps of the parameters, asked for by a name that it matches."""
        digits = self.digits(asked) or ""
        number = float(f"0.{digits}" if self.number == LEVEL else digits or 0)
        if self.number == LEVEL and not 0.0 < number < 1.0:
            shown = self.name.format(p="p", digits=digits)
            raise ValueError(f"level 0.{digits} of {shown!r} must lie between 0 and 1")
        if self.number == COUNT and number < 1:
            raise ValueError(f"output {asked!r} asks for none: give a number of 1 or more")
        of = enumerate(parameters) if self.per_parameter else [(-1, "")]
        return [MapVariable(self.name.format(p=p, digits=digits), self, i, number, asked) for i, p in of]

    def makes(self, name: str, dims: Collection[Hashable], parameters: Collection[str]) -> bool:
        """Whether a variable of maps of the parameters is one of its, and no parameter."""
        match = None if self.is_estimate else self._named_as.fullmatch(name)
        if match is None or not self.per_parameter:
            return match is not None
        return match["p"] in parameters and set(self.dims) <= set(dims)


@dataclass(frozen=True)
class MapVariable:
    """One variable of the maps: its ``name`` and the :class:`Output` that it is, ``asked`` for by the user.

    ``index`` is that of its parameter, -1 where it has none; ``number`` the level (0.05 of "q05") or the count.
    """

    name: str
    output: Output
    index: int = -1
    number: float = 0.0
    asked: str = ""

    @property
    def count(self) -> int:
        """The number of draws or modes."""
        return int(self.number)

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of the quantiles that it needs."""
        return () if self.output.levels is None else self.output.levels(self.number)

    def compute(self, reading: Reading) -> NDArray[Any]:
        """Values (n, \\*sizes)."""
        return self.output.compute(reading, self)

    def sizes(self, n_parameters: int, n_latent: int, n_bands: int) -> tuple[int, ...]:
        """Sizes of the dimensions that it has beyond those of the pixels."""
        known = {PARAMETER: n_parameters, PARAMETER_2: n_parameters, LATENT: n_latent, BAND: n_bands}
        return tuple(known.get(dim, self.count) for dim in self.output.dims)

    def dtype(self, cube: np.dtype) -> np.dtype:
        """In the maps of a cube of some float type."""
        return cube if self.output.dtype is None else np.dtype(self.output.dtype)

    def long_name(self, of: str = "") -> str:
        """In the maps, of the parameter with the long name ``of`` where it belongs to one."""
        return self.output.long_name.format(of=of, percent=f"{round(100.0 * self.number, 10):g} %")


def _padded(values: NDArray[Any], count: int) -> NDArray[Any]:
    """The first ``count`` columns (n, count), NaN where there are fewer."""
    columns = np.full((len(values), count), np.nan)
    used = min(count, values.shape[1])
    columns[:, :used] = values[:, :used]
    return columns


_of_parameter = partial(Output, units=OF_PARAMETER)
_quantile = partial(_of_parameter, compute=lambda r, v: r.quantile(v.index, v.levels[0]), number=LEVEL)
_shortest = partial(_of_parameter, number=LEVEL, not_with=_NOT_TRUNCATED | _NOT_TRANSFORMED)
_counted = partial(Output, number=COUNT, not_with=_NOT_TRUNCATED)
_of_point = partial(Output, not_with=_NOT_TRUNCATED)
_score = partial(Output, dtype=np.float64, needs=(TRUTH,))

DECLARED = (
    _of_parameter("estimate", "{p}", "{of}", lambda r, v: r.best[:, v.index]),
    _of_parameter("mean", "{p}", "{of}", lambda r, v: r.mean[:, v.index]),
    _of_parameter("median", "{p}_median", "median of {of}", lambda r, v: r.quantile(v.index, 0.5)),
    _of_parameter(
        *("std", "{p}_std", "standard deviation of {of}", lambda r, v: r.std[:, v.index]),
        standard_name="standard_error",
    ),
    _quantile("q05", "{p}_q{digits}", "{percent} quantile of {of}", levels=lambda level: (level,)),
    _quantile(
        *("ci90", "{p}_ci{digits}_lower", "lower end of the central {percent} interval of {of}"),
        levels=lambda mass: (0.5 * (1.0 - mass),),
    ),
    _quantile(
        *("ci90", "{p}_ci{digits}_upper", "upper end of the central {percent} interval of {of}"),
        levels=lambda mass: (1.0 - 0.5 * (1.0 - mass),),
    ),
    _shortest(
        *("hdi90", "{p}_hdi{digits}_lower", "lower end of the shortest {percent} interval of {of}"),
        lambda r, v: r.shortest(v.index, v.number)[0],
    ),
    _shortest(
        *("hdi90", "{p}_hdi{digits}_upper", "upper end of the shortest {percent} interval of {of}"),
        lambda r, v: r.shortest(v.index, v.number)[1],
    ),
    _counted(
        *("draws100", "{p}_draws", "random draws of {of} from the posterior"),
        *(lambda r, v: r.draws(v.count)[:, :, v.index], OF_PARAMETER, ("draw",)),
    ),
    _counted(
        *("modes3", "{p}_modes", "{of} at the modes of the posterior, by falling mass"),
        *(lambda r, v: _padded(r.modes[0][:, :, v.index], v.count), OF_PARAMETER, ("mode_rank",)),
    ),
    _counted(
        *("modes3", "mode_mass", "share of the posterior that belongs to each mode"),
        *(lambda r, v: _padded(r.modes[1], v.count), "1", ("mode_rank",)),
    ),
    _of_point(
        *("mode", "{p}_mode", "{of} at the highest mode of the posterior"),
        *(lambda r, v: r.highest_mode[:, v.index], OF_PARAMETER),
    ),
    Output(
        *("flags", "{p}_flag", "quality flags of {of} alone", lambda r, v: r.flags[:, v.index], None),
        dtype=np.uint8,
        empty=NODATA,
        needs=(GAIN,),
        attrs=flag_attrs,
    ),
    Output(
        *(
            "information",
            "{p}_information",
            "nats that the spectrum tells of {of}",
            lambda r, v: r.information(v.index),
        ),
        units="1",
        not_with=_NOT_TRUNCATED,
    ),
    Output(
        *("cov", "covariance", "posterior covariance of the parameters", lambda r, _: r.covariance),
        *(None, (PARAMETER, PARAMETER_2)),
        needs=(COVARIANCE,),
    ),
    Output(
        *("latent", "latent", "posterior mean of the latent dimensions", lambda r, _: r.latent, "1", (LATENT,)),
        not_with={COMMITTEE: "the latents of a committee's members are not comparable: ask for other outputs"},
    ),
    _of_point(
        *("n_modes", "n_modes", "number of modes that hold a tenth of the posterior", lambda r, _: r.n_modes, "1"),
        dtype=np.uint8,
        empty=0,
    ),
    _of_point("entropy", "entropy", "entropy of the posterior, nats", lambda r, _: r.entropy, "1"),
    _of_point(*("residual", "residual", "observed less fitted spectrum", lambda r, _: r.residual, OF_SPECTRA, (BAND,))),
    _of_point(
        *("fit_rmse", "fit_rmse", "root mean squared residual of the fitted spectrum", lambda r, _: r.fit_rmse),
        OF_SPECTRA,
    ),
    Output(
        *("log_evidence", "log_evidence", "log density of the spectrum under the model"),
        *(lambda r, _: r.log_evidence, "1"),
        dtype=np.float64,
    ),
    Output(
        *("flag", FLAG_VARIABLE, "quality flags", lambda r, _: r.flag, None),
        dtype=np.uint8,
        empty=NODATA,
        needs=(DOMAIN, GAIN),
        ancillary=True,
        attrs=flag_attrs,
    ),
    _score("pit", "{p}_pit", "posterior distribution function at the true {of}", lambda r, v: r.pit(v.index), "1"),
    _score("score", "{p}_score", "standard normal score of the true {of}", lambda r, v: r.score(v.index), "1"),
    _score(
        *("crps", "{p}_crps", "continuous ranked probability score of {of}", lambda r, v: r.crps(v.index), OF_PARAMETER)
    ),
)
"""Every output, in the order in which maps hold them; those with numbers take that in which they are asked for."""
RESERVED = (*dict.fromkeys(dim for output in DECLARED for dim in output.dims if dim != BAND), "component")
"""Dimensions of the results beside the cube's own."""
OUTPUTS = tuple(output.asked for output in DECLARED if not output.number and TRUTH not in output.needs)
"""Names of the outputs without a number."""
TOGETHER = tuple(name for name in OUTPUTS if name != "mean")
"""Those of them that may be asked for together: the mean has the name of the estimate."""
EXAMPLES = tuple(dict.fromkeys(output.asked for output in DECLARED if output.number))
"""Names of those with a number, and any digits."""
_FIRST_NUMBERED = next(place for place, output in enumerate(DECLARED) if output.number)
_PLACES = {output.asked: _FIRST_NUMBERED if output.number else i for i, output in enumerate(DECLARED)}


def _declared(asked: str, name: str) -> Output:
    return next(output for output in DECLARED if (output.asked, output.name) == (asked, name))


def declare_outputs(outputs: Sequence[str], parameters: Sequence[str], n_latent: int) -> list[MapVariable]:
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
    accepted = ", ".join(map(repr, (*OUTPUTS, *EXAMPLES)))
    if not asked:
        raise ValueError(f"no outputs asked for; choose from {accepted}")
    unknown = [name for name in asked if not _asked_for(name)]
    if unknown:
        raise ValueError(f"outputs {unknown} not known; choose from {accepted} (any digits)")
    chosen = {name: _asked_for(name) for name in asked}
    of_one_name = dict.fromkeys(output.name for output in DECLARED if "{digits}" not in output.name)
    alike = [[name for name, of in chosen.items() if any(o.name == one for o in of)] for one in of_one_name]
    for several in (names for names in alike if len(names) > 1):
        raise ValueError(f"outputs {several} give the same variables: ask for one of them")
    latent = [name for name, of in chosen.items() if any(LATENT in output.dims for output in of)]
    if latent and n_latent == 0:
        raise ValueError(f"output {latent[0]!r} needs a model with n_latent >= 1; this one has none")
    wanted: list[MapVariable] = []
    for name in sorted(chosen, key=lambda name: _PLACES[chosen[name][0].asked]):
        if parameters or not any(output.per_parameter for output in chosen[name]):
            wanted += [variable for output in chosen[name] for variable in output.variables(name, parameters)]
    if not wanted:
        raise ValueError(f"outputs {list(asked)} need parameters, and this model has none: ask for 'latent'")
    names = [variable.name for variable in wanted]
    clashing = sorted({n for n in names if names.count(n) > 1} | {p for p in parameters if p in RESERVED})
    if clashing:
        raise ValueError(f"a parameter's name collides with an output: {clashing}; rename the parameter")
    return wanted


def declare_scores(kinds: Sequence[str], parameters: Sequence[str]) -> list[MapVariable]:
    """Variables that compare with a truth, such as "pit", or are compared, as "mean"."""
    wanted = [output for kind in kinds for output in DECLARED if output.asked == kind]
    return [variable for output in wanted for variable in output.variables(output.asked, parameters)]


def is_output(name: str, dims: Collection[Hashable], parameters: Collection[str]) -> bool:
    """Whether a variable of maps is what inversion adds to its estimates of the parameters, such as ``p_std``."""
    return any(output.makes(name, dims, parameters) for output in DECLARED)


def check_outputs(wanted: Sequence[MapVariable], *conditions: str) -> None:
    """Raise ValueError where an output is not to be had with what a model or a request is, such as ``COMMITTEE``."""
    for condition in conditions:
        refused = {v.asked: v.output.not_with[condition] for v in wanted if condition in v.output.not_with}
        if refused:
            message = next(iter(refused.values()))
            raise ValueError(message.format(listed(refused)))


def _asked_for(name: object) -> list[Output]:
    """The outputs that a name asks for; none where it is no name of any."""
    return [output for output in DECLARED if TRUTH not in output.needs and output.digits(name) is not None]
