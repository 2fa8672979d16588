"""What is held equal, zero or fixed in theta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...settings import STRUCTURES as NAMES
from ...settings import GLLiMSettings, check_settings
from .covariance import AUTO
from .structure import Structure


def _kinds(of: Any) -> Iterator[type[Structure]]:
    for kind in of.__subclasses__():
        yield from (kind, *_kinds(kind))


KINDS: Mapping[str, type[Structure]] = {
    name: kind for name in NAMES for kind in _kinds(Structure) if vars(kind).get("name") == name
}
"""All structures of Sigma by name: the classes that settings name."""
STRUCTURES: Mapping[str, Structure] = {name: kind.of(None) for name, kind in KINDS.items() if not kind.needs_blocks}
"""The structures that a name alone tells, those of Gamma too."""
FLAT = "flat"
"""The ``gamma`` that is no prior."""
FIXABLE = ("pi", "c", "Gamma", "Sigma")
"""Parts of theta that may be given instead of estimated."""


@lru_cache(maxsize=64)
def structure_of(name: str, blocks: tuple[int, ...] | None = None) -> Structure:
    """The structure of a name; "block" needs the group (D,) of each band."""
    return STRUCTURES[name] if blocks is None else KINDS[name].of(blocks)


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
        "auto", groups found by :mod:`specinvert.gllim.em.em`.
    shrinkage : s from 0 to 1. Sigma_k is the maximum a posteriori under an inverse Wishart prior, (r_k E_k + nu T) /
        (r_k + nu) with nu = s / (1 - s) N / K, E_k of eq. SOLVA_Sigmak and T one variance for all bands in the user's
        units: that of the residuals of one affine map for all samples.
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
    shrinkage: float | None = GLLiMSettings.shrinkage
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, accepted in (("sigma", self.sigma, KINDS), ("gamma", self.gamma, (*STRUCTURES, FLAT))):
            if not isinstance(value, str) or value not in accepted:
                raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, accepted))}")
        check_settings(vars(self), GLLiMSettings)
        if self.tied_maps and not (self.tied_sigma or "Sigma" in self.fixed):
            raise ValueError(
                "tied_maps=True needs tied_sigma=True: maps shared under unequal noise have no closed form"
            )
        if self.shrinkage is not None and (self.kind.isotropic or "Sigma" in self.fixed):
            held = "a fixed Sigma" if "Sigma" in self.fixed else f"sigma={self.sigma!r}"
            raise ValueError(
                f"shrinkage={self.shrinkage!r} draws bands towards one variance: {held} leaves it nothing to do; "
                "use sigma='full', 'block' or 'diag', or shrinkage=None"
            )
        object.__setattr__(self, "sigma_blocks", self.kind.read_blocks(self.sigma_blocks))
        object.__setattr__(self, "fixed", tuple(self.fixed))
        self._check_fixed()

    def _check_fixed(self) -> None:
        for name in self.fixed:
            if name not in FIXABLE:
                raise ValueError(f"fixed names {name!r}, which is not one of {', '.join(map(repr, FIXABLE))}")
        if self.flat and {"c", "Gamma"} & set(self.fixed):
            raise ValueError("gamma='flat' leaves no prior on the parameters: do not fix its c or Gamma")
        if self.sigma_blocks == AUTO and "Sigma" in self.fixed:
            raise ValueError("sigma_blocks='auto' finds the groups of a Sigma to estimate: name those of a fixed one")
        if self.tied_pi and "pi" in self.fixed:
            raise ValueError("tied_pi=True and fixed weights exclude each other: give one of them")

    @property
    def kind(self) -> type[Structure]:
        """The class of Sigma's structure."""
        return KINDS[self.sigma]

    @property
    def structure(self) -> Structure:
        """The structure of Sigma; raises ValueError where the groups of bands are not known yet."""
        if self.sigma_blocks == AUTO:
            raise ValueError("sigma_blocks='auto' names no groups of bands yet: training finds them")
        return structure_of(self.sigma, self.sigma_blocks)

    @property
    def flat(self) -> bool:
        """Whether there is no prior on the parameters."""
        return self.gamma == FLAT

    @property
    def prior_structure(self) -> Structure:
        """The structure of Gamma, where the prior is not flat."""
        return structure_of(self.gamma)

    def nothing_own(self, n_parameters: int) -> bool:
        """Whether no part of theta is a single component's own, so that one without samples does no harm."""
        weights = self.tied_pi or "pi" in self.fixed
        prior = n_parameters == 0 or self.flat or {"c", "Gamma"} <= set(self.fixed)
        return bool(self.tied_maps and not self.intercept and weights and prior)

    def with_structure(self, structure: Structure) -> Constraints:
        """The same constraints with another structure of Sigma."""
        if (structure.name, structure.blocks) == (self.sigma, self.sigma_blocks):
            return self
        return replace(self, sigma=structure.name, sigma_blocks=structure.blocks)

    def check_bands(self, n_bands: int) -> None:
        """Raises ValueError where ``sigma_blocks`` is for another number of bands."""
        if self.sigma_blocks not in (None, AUTO) and len(self.sigma_blocks) != n_bands:
            raise ValueError(f"sigma_blocks groups {len(self.sigma_blocks)} bands, the spectra have {n_bands}")
