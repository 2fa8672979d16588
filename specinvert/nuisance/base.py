"""What a nuisance is: draws for n spectra, and spectra changed by them; chains of several."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from ..cubes import Bands, describe_bands
from ..gllim.core import one_blas_thread

FloatArray = NDArray[np.float64]
Draws = Mapping[str, FloatArray]
"""What was drawn for n spectra, by name: one number each, (n,), or one a band, (n, D)."""


class Nuisance(ABC):
    """Something that changes spectra at random, each independently of the others.

    A subclass gives :meth:`draw` and :meth:`perturb`. ``draw`` does all that is random, and all whose last bits may
    depend on how many spectra there are (matrix products, exponentials); ``perturb`` is plain arithmetic on each
    spectrum. Then :func:`specinvert.nuisance.apply` gives the same bits in any chunks.

    Examples
    --------
    >>> class Stripe(Nuisance):
    ...     def draw(self, rng, n, bands):
    ...         return {"level": rng.normal(0.0, 0.01, n)}
    ...     def perturb(self, spectra, bands, draws):
    ...         return spectra + draws["level"][:, None]
    >>> Stripe().apply(np.zeros((2, 3)), None, np.random.default_rng(0)).shape
    (2, 3)
    """

    recorded: ClassVar[Mapping[str, str | None]] = {}
    """Draws of one number a spectrum worth keeping, with their units; None stands for those of the spectra."""
    needs_wavelength: ClassVar[bool] = False
    """Whether bands must have wavelengths."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """Random numbers for ``n`` spectra with ``bands.size`` bands: arrays (n,) or (n, D) by name."""

    @abstractmethod
    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """New spectra (n, D) of the given ones (n, D), which stay as they are, and their draws."""

    def matched(self, bands: Bands, units: str | None) -> Nuisance:
        """The nuisance made ready for spectra of these bands and units: itself, unless a subclass says otherwise.

        Raises ValueError where it cannot serve them.
        """
        if self.needs_wavelength:
            self._wavelength(bands)
        return self

    def apply(self, spectra: ArrayLike, wavelength: ArrayLike | None, rng: np.random.Generator) -> FloatArray:
        """Change spectra held as a plain array.

        Parameters
        ----------
        spectra : shape (n, D), in any units; numbers, NaN allowed.
        wavelength : band centres in nm, shape (D,), in any order; None where there are none.
        rng : where the randomness comes from; it moves on.

        Returns
        -------
        New spectra, float64 (n, D).

        Raises
        ------
        ValueError : shapes do not fit, or the nuisance needs wavelengths and has none.

        Examples
        --------
        >>> from specinvert.nuisance import Offset
        >>> Offset(0.1).apply(np.zeros((2, 3)), None, np.random.default_rng(0)).shape
        (2, 3)
        """
        values = np.asarray(spectra, dtype=np.float64)
        if values.ndim != 2:
            raise ValueError(f"spectra have shape {values.shape}; give (n, D), one spectrum a row")
        bands = plain_bands(wavelength, values.shape[1])
        with one_blas_thread():
            ready = self.matched(bands, None)
            return ready.perturb(values, bands, ready.draw(rng, len(values), bands))

    def covariance(self, wavelength: ArrayLike | None, spectrum: ArrayLike | None = None) -> FloatArray:
        """Covariance (D, D) that this nuisance adds to a spectrum, in squared units of the spectrum.

        Parameters
        ----------
        wavelength : band centres in nm, shape (D,); None where ``spectrum`` tells how many bands there are.
        spectrum : shape (D,); needed by what is relative to it.

        Returns
        -------
        Symmetric, positive semi-definite, float64. For a :class:`Chain` the sum of its parts', which leaves out
        products of their variances.

        Raises
        ------
        ValueError : the nuisance is not additive Gaussian noise given the spectrum, or ``spectrum`` or ``wavelength``
            is needed and missing, or shapes differ.

        Examples
        --------
        >>> from specinvert.nuisance import Noise
        >>> Noise(white=0.1).covariance([500.0, 600.0]).round(3).tolist()
        [[0.01, 0.0], [0.0, 0.01]]
        """
        known = None if spectrum is None else np.asarray(spectrum, dtype=np.float64)
        if known is not None:
            if known.ndim != 1:
                raise ValueError(f"spectrum has shape {known.shape}; give one spectrum, (D,)")
            bands = plain_bands(wavelength, known.size)
        elif wavelength is not None:
            bands = plain_bands(wavelength, np.size(wavelength))
        else:
            raise ValueError("neither wavelength nor spectrum is given; one must tell how many bands there are")
        return self.matched(bands, None)._covariance(bands, known)

    def __or__(self, other: Nuisance) -> Chain:
        """This nuisance, then the other."""
        return Chain([self, other]) if isinstance(other, Nuisance) else NotImplemented

    def _covariance(self, bands: Bands, spectrum: FloatArray | None) -> FloatArray:
        raise ValueError(
            f"{type(self).__name__} is not additive Gaussian noise and has no covariance; leave it out, "
            "or apply it to many copies of a spectrum and take theirs"
        )

    def _spectrum(self, spectrum: FloatArray | None) -> FloatArray:
        if spectrum is None:
            raise ValueError(f"{self!r} is relative to the spectrum; pass spectrum=, shape (D,)")
        return spectrum

    def _wavelength(self, bands: Bands, remedy: str = "") -> FloatArray:
        if bands.wavelength is None:
            raise ValueError(
                f"{type(self).__name__} needs wavelengths and the bands have none; attach a 'wavelength' coordinate "
                f"to the band dimension {bands.dim!r}{remedy}"
            )
        return bands.wavelength


@dataclass(frozen=True, init=False)
class Chain(Nuisance):
    """Several nuisances, one after the other; ``a | b`` makes the same.

    Attributes
    ----------
    steps : the nuisances, the first to act first; chains among them are taken apart.

    Raises
    ------
    TypeError : a step is no nuisance.
    ValueError : there is no step.

    Examples
    --------
    >>> from specinvert.nuisance import Gain, Noise
    >>> Chain([Gain(0.02), Noise(0.01)]) == Gain(0.02) | Noise(0.01)
    True
    """

    steps: tuple[Nuisance, ...]

    def __init__(self, steps: Iterable[Nuisance]) -> None:
        flat: list[Nuisance] = []
        for step in steps:
            if not isinstance(step, Nuisance):
                raise TypeError(f"{step!r} is no nuisance; give instances of Noise, Gain, ThinCloud and their kind")
            flat.extend(step.steps if isinstance(step, Chain) else [step])
        if not flat:
            raise ValueError("there is no nuisance to apply; give at least one")
        object.__setattr__(self, "steps", tuple(flat))

    def draw(self, rng: np.random.Generator, n: int, bands: Bands) -> Draws:
        """The draws of all steps, the name of each after the step's number."""
        return {f"{i}.{k}": v for i, s in enumerate(self.steps) for k, v in s.draw(rng, n, bands).items()}

    def perturb(self, spectra: FloatArray, bands: Bands, draws: Draws) -> FloatArray:
        """Spectra changed by each step in turn."""
        for i, step in enumerate(self.steps):
            prefix = f"{i}."
            own = {k.removeprefix(prefix): v for k, v in draws.items() if k.startswith(prefix)}
            spectra = step.perturb(spectra, bands, own)
        return spectra

    def matched(self, bands: Bands, units: str | None) -> Chain:
        """The chain of its steps, each made ready."""
        return Chain([step.matched(bands, units) for step in self.steps])

    def _covariance(self, bands: Bands, spectrum: FloatArray | None) -> FloatArray:
        total = np.zeros((bands.size, bands.size))
        for step in self.steps:
            total += step._covariance(bands, spectrum)
        return total


def plain_bands(wavelength: ArrayLike | None, size: int) -> Bands:
    """The axis of ``size`` bands whose centres are plain numbers in nm, (size,), or unknown."""
    if wavelength is None:
        return Bands("band", size)
    values = np.asarray(wavelength, dtype=np.float64)
    if values.shape != (size,):
        raise ValueError(f"wavelength has shape {values.shape} and the spectra have {size} bands; give ({size},)")
    coordinate = ("band", values, {"units": "nm"})
    return describe_bands(xr.DataArray(np.empty(size), dims="band", coords={"wavelength": coordinate}), "band")


def require(owner: object, wanted: str, holds: Callable[[float], bool], /, **values: float) -> None:
    """Raise TypeError where a value is no real number, ValueError where it is not what is wanted, told in words."""
    for name, value in values.items():
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise TypeError(f"{type(owner).__name__}: {name} is {value!r}; give {wanted}")
        if not holds(value):
            raise ValueError(f"{type(owner).__name__}: {name} is {value}; give {wanted}")


def require_at_least_zero(owner: object, **values: float) -> None:
    """Raise TypeError where a value is no number, ValueError where it is negative, NaN or infinite."""
    require(owner, "a finite number, 0 or more", lambda value: 0 <= value < np.inf, **values)


def require_positive(owner: object, **values: float) -> None:
    """Raise TypeError where a value is no number, ValueError where it is 0, negative, NaN or infinite."""
    require(owner, "a finite number above 0", lambda value: 0 < value < np.inf, **values)


def require_probability(owner: object, probability: float) -> None:
    """Raise TypeError where a probability is no number, ValueError where it is not within 0 to 1."""
    require(owner, "a number from 0 to 1", lambda value: 0 <= value <= 1, probability=probability)


def require_range(owner: object, name: str, values: tuple[float, float], high: float = np.inf) -> None:
    """Raise ValueError where ``values`` are not a finite (low, high) pair, in order, within 0 to ``high``.

    TypeError where they are no numbers.
    """
    bound = f"from 0 to {high:g}" if np.isfinite(high) else "0 or more"
    wanted = f"(low, high), in order and {bound}"
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
        raise TypeError(f"{type(owner).__name__}: {name} is {values!r}; give {wanted}")
    for value in values:
        require(owner, wanted, lambda _: True, **{name: value})
    if len(values) != 2 or not 0 <= values[0] <= values[1] <= high or not np.isfinite(values[1]):
        raise ValueError(f"{type(owner).__name__}: {name} is {values}; give {wanted}")
