"""What is held equal, zero or fixed in theta."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings import GLLiMSettings, check_settings
from .covariance import STRUCTURES, Structure, structure_of

SIGMA_STRUCTURES = (*STRUCTURES, "block")
GAMMA_STRUCTURES = (*STRUCTURES, "flat")
FIXABLE = ("pi", "c", "Gamma", "Sigma")
"""Parts of theta that may be given instead of estimated."""
AUTO = "auto"


@dataclass(frozen=True)
class Constraints:
    """What is held equal, zero or fixed in theta.

    Attributes
    ----------
    sigma, gamma : names of the structures of Sigma_k and Gamma^t_k. Gamma "flat" is no prior on the parameters at all:
        responsibilities and likelihood are those of the spectra given the parameters.
    tied_sigma, tied_gamma : equal for all components, weighted by r_k / N; ``tied_gamma="volume"`` makes the
        determinants equal alone.
    tied_pi : all weights 1/K. tied_maps : A equal for all components, under a tied Sigma.
    intercept : whether there is a b; False holds b = 0 in the user's units.
    sigma_blocks : for ``sigma="block"``, the group of each band, D integers, or lists of the bands of each group; or
        "auto", groups found by :mod:`specinvert.gllim.em.fixing`.
    fixed : names of the parts of theta that are given, of "pi", "c", "Gamma" (of the parameters) and "Sigma".

    Examples
    --------
    >>> Constraints(sigma="block", sigma_blocks=[[0, 2], [1]]).sigma_blocks
    (0, 1, 0)
    """

    sigma: str = GLLiMSettings.sigma
    tied_sigma: bool = GLLiMSettings.tied_sigma
    gamma: str = GLLiMSettings.gamma
    tied_gamma: bool | str = GLLiMSettings.tied_gamma
    tied_pi: bool = GLLiMSettings.tied_pi
    tied_maps: bool = GLLiMSettings.tied_maps
    intercept: bool = GLLiMSettings.intercept
    sigma_blocks: Any = GLLiMSettings.sigma_blocks
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, accepted in (
            ("sigma", self.sigma, SIGMA_STRUCTURES),
            ("gamma", self.gamma, GAMMA_STRUCTURES),
        ):
            if not isinstance(value, str) or value not in accepted:
                raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, accepted))}")
        check_settings(vars(self))
        if self.tied_maps and not (self.tied_sigma or "Sigma" in self.fixed):
            raise ValueError(
                "tied_maps=True needs tied_sigma=True: maps shared under unequal noise have no closed form"
            )
        object.__setattr__(self, "sigma_blocks", _blocks(self.sigma, self.sigma_blocks))
        object.__setattr__(self, "fixed", tuple(self.fixed))
        self._check_fixed()

    def _check_fixed(self) -> None:
        for name in self.fixed:
            if name not in FIXABLE:
                raise ValueError(f"fixed names {name!r}, which is not one of {', '.join(map(repr, FIXABLE))}")
        if self.gamma == "flat" and {"c", "Gamma"} & set(self.fixed):
            raise ValueError("gamma='flat' leaves no prior on the parameters: do not fix its c or Gamma")
        if self.sigma_blocks == AUTO and "Sigma" in self.fixed:
            raise ValueError("sigma_blocks='auto' finds the groups of a Sigma to estimate: name those of a fixed one")
        if self.tied_pi and "pi" in self.fixed:
            raise ValueError("tied_pi=True and fixed weights exclude each other: give one of them")

    @property
    def structure(self) -> Structure:
        """The structure of Sigma; raises ValueError where the groups of bands are not known yet."""
        if self.sigma_blocks == AUTO:
            raise ValueError("sigma_blocks='auto' names no groups of bands yet: training finds them")
        return structure_of(self.sigma, self.sigma_blocks)

    def nothing_own(self, n_parameters: int) -> bool:
        """Whether no part of theta is a single component's own, so that one without samples does no harm."""
        weights = self.tied_pi or "pi" in self.fixed
        prior = n_parameters == 0 or self.gamma == "flat" or {"c", "Gamma"} <= set(self.fixed)
        return bool(self.tied_maps and not self.intercept and weights and prior)

    def of_bands(self, bands: NDArray[np.intp]) -> Constraints:
        """The constraints of a subset of the bands."""
        if self.sigma != "block":
            return self
        return replace(self, sigma_blocks=tuple(self.sigma_blocks[band] for band in bands))

    def check_bands(self, n_bands: int) -> None:
        """Raises ValueError where ``sigma_blocks`` is for another number of bands."""
        if self.sigma == "block" and self.sigma_blocks != AUTO and len(self.sigma_blocks) != n_bands:
            raise ValueError(f"sigma_blocks groups {len(self.sigma_blocks)} bands, the spectra have {n_bands}")


def _blocks(sigma: str, given: Any) -> Any:
    """The group (D,) of each band as integers from zero, in the order in which they first occur; None or "auto"."""
    if sigma != "block":
        if given is not None:
            raise ValueError(f"sigma_blocks are for sigma='block', not for sigma={sigma!r}")
        return None
    if isinstance(given, str) and given == AUTO:
        return AUTO
    if given is None or isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise ValueError(
            f"sigma='block' with sigma_blocks={given!r}: give the group of each band, lists of the bands of each "
            "group, or 'auto'"
        )
    if all(isinstance(label, numbers.Integral) for label in given):
        order: dict[int, int] = {}
        return tuple(order.setdefault(int(label), len(order)) for label in given)
    return _labels_of_lists(given)


def _labels_of_lists(given: Iterable[Any]) -> tuple[int, ...]:
    try:
        groups = [[int(band) for band in group] for group in given]
    except (TypeError, ValueError):
        raise ValueError(f"sigma_blocks={given!r} must be integers, or lists of integers") from None
    owner = {band: number for number, group in enumerate(groups) for band in group}
    counted = sum(map(len, groups))
    if sorted(owner) != list(range(counted)):
        raise ValueError(
            f"the lists of sigma_blocks hold {counted} bands, {len(owner)} of them distinct: each band from 0 to D - 1 "
            "must be in one group"
        )
    order: dict[int, int] = {}
    return tuple(order.setdefault(owner[band], len(order)) for band in range(counted))
