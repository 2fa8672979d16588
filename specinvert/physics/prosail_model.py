"""Training sets of leaves and of vegetation canopies: PROSPECT-D and SAIL as the `prosail` package computes them.

`prosail` is optional and imported when first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.stats import qmc, truncnorm

from ..cubes import Cells, Sensor, band_weights, read_sensor
from .geometry import FloatArray
from .mixing import Parameter, reflectance_attrs, wavelength_attrs

Prior = tuple[float, float] | tuple[float, float, float, float] | Callable[[Mapping[str, FloatArray]], FloatArray]

_GRID_NM = np.arange(400.0, 2501.0)
_LEAST_COVERAGE = 0.9


@dataclass(frozen=True)
class CanopyParameter(Parameter):
    """One parameter of PROSPECT or PROSAIL: its prior, and its labels.

    The prior is uniform, or a normal distribution cut to the range where `mean` and `std` are given.
    """

    mean: float | None = None
    std: float | None = None

    def from_unit(self, fraction: ArrayLike) -> FloatArray:
        """Map numbers in 0..1 onto the prior."""
        if self.mean is None or self.std is None:
            return super().from_unit(fraction)
        a, b = (self.low - self.mean) / self.std, (self.high - self.mean) / self.std
        return np.asarray(truncnorm.ppf(fraction, a, b, self.mean, self.std))


PARAMETERS: Mapping[str, CanopyParameter] = MappingProxyType(
    {
        "leaf_structure": CanopyParameter(1.0, 2.5, "1", "leaf structure parameter", 1.5, 0.3, limits=(1.0, np.inf)),
        "chlorophyll": CanopyParameter(0.0, 100.0, "ug cm-2", "leaf chlorophyll content", 45.0, 30.0),
        "carotenoids": CanopyParameter(0.0, 25.0, "ug cm-2", "leaf carotenoid content", 10.0, 5.0),
        "anthocyanins": CanopyParameter(0.0, 5.0, "ug cm-2", "leaf anthocyanin content"),
        "brown_pigments": CanopyParameter(0.0, 0.5, "1", "brown pigments in arbitrary units"),
        "leaf_water": CanopyParameter(0.001, 0.05, "cm", "equivalent water thickness of the leaf", 0.015, 0.01),
        "dry_matter": CanopyParameter(0.001, 0.02, "g cm-2", "leaf dry matter content", 0.006, 0.004),
        "lai": CanopyParameter(0.0, 8.0, "1", "leaf area index"),
        "leaf_angle": CanopyParameter(30.0, 70.0, "degree", "mean leaf inclination", limits=(0.0, 90.0)),
        "hotspot": CanopyParameter(0.01, 0.5, "1", "hot spot size parameter"),
        "soil_brightness": CanopyParameter(0.3, 1.2, "1", "soil brightness factor", limits=(0.0, 2.0)),
        "soil_dryness": CanopyParameter(0.0, 1.0, "1", "share of dry soil, the rest is wet", limits=(0.0, 1.0)),
        "sun_zenith": CanopyParameter(20.0, 60.0, "degree", "solar zenith angle", limits=(0.0, 89.0)),
        "view_zenith": CanopyParameter(0.0, 10.0, "degree", "view zenith angle", limits=(0.0, 89.0)),
        "relative_azimuth": CanopyParameter(0.0, 180.0, "degree", "azimuth between sun and observer"),
    }
)
"""PROSAIL's parameters and the priors `simulate_prosail` draws from."""

LEAF_PARAMETERS: Mapping[str, CanopyParameter] = MappingProxyType(
    {name: PARAMETERS[name] for name in list(PARAMETERS)[: list(PARAMETERS).index("lai")]}
)
"""Those of the leaf alone: PROSPECT's parameters and the priors `simulate_prospect` draws from."""


def simulate_prosail(
    n_samples: int,
    *,
    priors: Mapping[str, Prior] | None = None,
    sensor: Any = None,
    seed: int = 0,
) -> xr.Dataset:
    """Make a training set of canopy reflectances by PROSPECT-D and 4SAIL (prosail), about 5 ms each.

    Parameters
    ----------
    n_samples : how many canopies, at least 1.
    priors : other priors for some of `PARAMETERS`: (low, high), uniform and constant where both are equal; (low, high,
        mean, std), normal and cut to the range; or a function of the drawn values, {name: (sample,)}, for a parameter
        that follows others: `{"carotenoids": lambda drawn: 0.223 * drawn["chlorophyll"] + 1.0}`.
    sensor : bands to average to, as `cubes.resampling.resample` takes them: a cube with coordinates `wavelength` and
        `fwhm`, a table of responses, or (centres, fwhm) in nm; Gaussians reach 1.5 FWHM to either side. None keeps
        PROSAIL's own 2101 wavelengths, 400 to 2500 nm.
    seed : of the Latin hypercube, which depends on nothing else but n_samples.

    Returns
    -------
    Dataset with `reflectance` (sample, band), the bidirectional reflectance factor, the sensor's coordinates (or
    `wavelength` in nm), and all of `PARAMETERS` over sample, with units and long names. No noise is added.

    Raises
    ------
    ImportError : `prosail` is not installed.
    ValueError : an argument or a prior is out of range, a name is unknown, a band lies by more than 10 % outside 400 to
        2500 nm, or the model has no finite value.

    Examples
    --------
    >>> canopies = simulate_prosail(3, priors={"lai": (0.5, 5.0)}, sensor=([665.0, 865.0], 20.0))
    >>> canopies["reflectance"].shape, canopies["lai"].attrs["units"]
    ((3, 2), '1')
    """
    return _simulate(_CANOPY, n_samples, priors or {}, sensor, seed)


def simulate_prospect(
    n_samples: int,
    *,
    priors: Mapping[str, Prior] | None = None,
    sensor: Any = None,
    seed: int = 0,
) -> xr.Dataset:
    """Make a training set of leaf reflectances and transmittances by PROSPECT-D (prosail).

    Parameters
    ----------
    n_samples : how many leaves, at least 1.
    priors : other priors for some of `LEAF_PARAMETERS`, as `simulate_prosail` takes them.
    sensor : bands to average to, as `simulate_prosail` takes them; None keeps the 2101 wavelengths from 400 to 2500 nm.
    seed : of the Latin hypercube, which depends on nothing else but n_samples.

    Returns
    -------
    Dataset with `reflectance` and `transmittance` (sample, band), directional-hemispherical factors, the sensor's
    coordinates (or `wavelength` in nm), and all of `LEAF_PARAMETERS` over sample, with units and long names. No noise
    is added. To train on one of the two spectra name it: ``inverter.fit(leaves, spectra="reflectance")``.

    Raises
    ------
    ImportError, ValueError : as for :func:`simulate_prosail`.

    Examples
    --------
    >>> leaves = simulate_prospect(3, sensor=([665.0, 865.0], 20.0))
    >>> bool((leaves["reflectance"] + leaves["transmittance"] < 1.0).all())
    True
    """
    return _simulate(_LEAF, n_samples, priors or {}, sensor, seed)


@dataclass(frozen=True)
class _Model:
    """A model of the `prosail` package: its parameters, the spectra that it gives, and how to run it once."""

    simulator: str
    source: str
    sample: str
    parameters: Mapping[str, CanopyParameter]
    spectra: Mapping[str, dict[str, str]]
    run: Callable[..., tuple[FloatArray, ...]]


def _run_prosail(prosail: Any, *drawn: float) -> tuple[FloatArray, ...]:
    structure, chl, car, ant, brown, water, dry, lai, angle, hotspot, bright, dryness, sun, view, azimuth = drawn
    reflectance = prosail.run_prosail(
        *(structure, chl, car, brown, water, dry, lai, angle, hotspot, sun, view, azimuth),
        ant=ant,
        prospect_version="D",
        rsoil=bright,
        psoil=dryness,
    )
    return (reflectance,)


def _run_prospect(prosail: Any, *drawn: float) -> tuple[FloatArray, ...]:
    structure, chl, car, ant, brown, water, dry = drawn
    _, *sides = prosail.run_prospect(structure, chl, car, brown, water, dry, ant=ant, prospect_version="D")
    return tuple(sides)


_CANOPY = _Model(
    "simulate_prosail",
    "PROSPECT-D and 4SAIL by prosail",
    "canopy",
    PARAMETERS,
    {"reflectance": reflectance_attrs()},
    _run_prosail,
)
_LEAF = _Model(
    "simulate_prospect",
    "PROSPECT-D by prosail",
    "leaf",
    LEAF_PARAMETERS,
    {
        side: {"units": "1", "long_name": f"leaf directional-hemispherical {side}"}
        for side in ("reflectance", "transmittance")
    },
    _run_prospect,
)


def _simulate(model: _Model, n: int, priors: Mapping[str, Prior], sensor: Any, seed: int) -> xr.Dataset:
    if n < 1:
        raise ValueError(f"n_samples is {n}; ask for at least 1 {model.sample}")
    target, weights = (None, None) if sensor is None else _bands(sensor)
    values = _draw(n, model.parameters, priors, seed)
    try:
        import prosail
    except ImportError as error:
        raise ImportError(f"{model.simulator} needs the package prosail; pip install prosail") from error
    spectra = np.empty((len(model.spectra), n, _GRID_NM.size if weights is None else len(weights)))
    for row, drawn in enumerate(zip(*values.values(), strict=True)):
        for number, fine in enumerate(model.run(prosail, *drawn)):
            spectra[number, row] = fine if weights is None else weights @ fine
    for name, side in zip(model.spectra, spectra, strict=True):
        bad = np.flatnonzero(~np.isfinite(side).all(axis=1))
        if bad.size:
            zero = ", ".join(name for name, value in values.items() if value[bad[0]] == 0.0) or "nothing"
            raise ValueError(
                f"prosail gives no finite {name} for {bad.size} of {n} draws, the first with zero {zero}: it "
                "has none where leaves absorb nothing; give leaf_water or dry_matter a prior above 0"
            )
    dim = "wavelength" if target is None else target.dim
    of_spectra = zip(model.spectra.items(), spectra, strict=True)
    return xr.Dataset(
        {
            **{name: (("sample", dim), side, attrs) for (name, attrs), side in of_spectra},
            **{name: ("sample", value, model.parameters[name].attrs) for name, value in values.items()},
        },
        coords={dim: (dim, _GRID_NM, wavelength_attrs())} if target is None else target.coords,
        attrs={"source": model.source},
    )


def _bands(sensor: Any) -> tuple[Sensor, FloatArray]:
    """The sensor's bands and the weights (band, 2101) of the models' wavelengths in each."""
    target = read_sensor(sensor, reach=1.5)
    weights, covered = band_weights(target.response, Cells.of(_GRID_NM, None))
    poor = covered < _LEAST_COVERAGE
    if poor.any():
        raise ValueError(
            f"band at {target.centre[poor][0]:g} nm lies outside 400 to 2500 nm, which the model covers, by "
            f"{100 * (1 - covered[poor][0]):.0f} %; leave it out"
        )
    return target, weights


def _draw(
    n: int, parameters: Mapping[str, CanopyParameter], priors: Mapping[str, Prior], seed: int
) -> dict[str, FloatArray]:
    """All parameters, in their order."""
    unknown = [name for name in priors if name not in parameters]
    if unknown:
        raise ValueError(f"priors names {', '.join(unknown)}; choose from {', '.join(parameters)}")
    chosen = dict(parameters)
    followers = {}
    for name, prior in priors.items():
        if callable(prior):
            followers[name] = prior
        else:
            chosen[name] = _with_prior(name, chosen[name], prior)
    unit = qmc.LatinHypercube(len(parameters), rng=np.random.default_rng(seed)).random(n).T
    values = {name: p.from_unit(u) for (name, p), u in zip(chosen.items(), unit, strict=True)}
    free = MappingProxyType({name: value for name, value in values.items() if name not in followers})
    for name, follow in followers.items():
        values[name] = _followed(name, follow, free, n)
    for name, value in values.items():
        low, high = parameters[name].limits
        outside = ~((value >= low) & (value <= high) & np.isfinite(value))
        if outside.any():
            raise ValueError(
                f"{name} is {value[outside][0]:g} in {outside.sum()} of {n} draws; give a prior "
                f"within {low:g} to {high:g}"
            )
    return values


def _followed(
    name: str, follow: Callable[[Mapping[str, FloatArray]], FloatArray], free: Mapping[str, FloatArray], n: int
) -> FloatArray:
    """What a function makes of the drawn values, (n,)."""
    try:
        values = np.asarray(follow(free), dtype=np.float64)
    except KeyError as error:
        raise ValueError(
            f"the prior of {name} asks for {error.args[0]!r}; functions are given {', '.join(free)}"
        ) from error
    if values.shape not in ((), (n,)):
        raise ValueError(f"the prior of {name} gives shape {values.shape} for {n} draws; give one value a draw")
    return np.broadcast_to(values, (n,)).copy()


def _with_prior(name: str, parameter: CanopyParameter, prior: tuple[float, ...]) -> CanopyParameter:
    try:
        numbers = np.array(prior, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.shape not in ((2,), (4,)) or not np.isfinite(numbers).all() or not 0.0 <= numbers[0] <= numbers[1]:
        raise ValueError(f"prior of {name} is {prior}; give (low, high) or (low, high, mean, std), 0 <= low <= high")
    low, high, *normal = map(float, numbers)
    if normal and not normal[1] > 0.0:
        raise ValueError(f"prior of {name} has std {normal[1]:g}; it must be above 0")
    mean, std = normal if normal and low < high else (None, None)
    return replace(parameter, low=low, high=high, mean=mean, std=std)
