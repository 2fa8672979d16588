"""The methods of the paper's table "tab:unif" as named settings of one estimator.

The first four are supervised, the others unsupervised: they are fitted with ``GLLiM.fit(X)``. With parameters as well,
``fit(X, y)``, an unsupervised one becomes its hybrid generalisation.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .em import PrincipalGrid, basis, check_names, regular_grid
from .estimator import GLLiM

DIRAC = 1e-16
"""Variance of latents on a grid: the limit of zero to rounding."""


@dataclass(frozen=True)
class Preset:
    """A method as settings of :class:`GLLiM`.

    Attributes
    ----------
    description : what it is. reference : who described it.
    settings : those that make the method. defaults : others that suit it.
    needs : settings that have to be given.
    """

    description: str
    reference: str
    settings: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


_STANDARD = {"latent_mean": None, "latent_covariance": None}
_ISO_TIED = {"sigma": "iso", "tied_sigma": True}

PRESETS: Mapping[str, Preset] = {
    "mle": Preset(
        "mixture of local linear experts: diagonal noise, no latents",
        "Xu, Jordan and Hinton, 1995",
        {"n_latent": 0, "sigma": "diag", "tied_sigma": False},
    ),
    "mlr": Preset(
        "mixture of linear regressions: no prior on the parameters, equal isotropic noise",
        "Jedidi, Ramaswamy, DeSarbo and Wedel, 1996",
        {"n_latent": 0, "gamma": "flat", **_ISO_TIED},
    ),
    "jgmm": Preset(
        "Gaussian mixture on the joint vector of parameters and spectra: everything free",
        "Qiao and Minematsu, 2009",
        {"n_latent": 0, "sigma": "full", "tied_sigma": False, "gamma": "full", "tied_gamma": False, "tied_pi": False},
    ),
    "ppam": Preset(
        "probabilistic piecewise affine mapping: equal volumes and weights, equal diagonal noise",
        "Deleforge and Horaud, 2012",
        {"n_latent": 0, "tied_gamma": "volume", "tied_pi": True, "sigma": "diag", "tied_sigma": True},
    ),
    "gtm": Preset(
        "generative topographic mapping: a grid of latents through fixed basis functions, shared maps, no intercept",
        "Bishop, Svensen and Williams, 1998",
        {"tied_pi": True, "tied_maps": True, "intercept": False, **_ISO_TIED},
    ),
    "ppca": Preset(
        "probabilistic principal component analysis: one component, isotropic noise",
        "Tipping and Bishop, 1999",
        {"n_components": 1, "sigma": "iso", **_STANDARD},
        ("n_latent",),
    ),
    "mppca": Preset(
        "mixture of probabilistic principal component analysers: isotropic noise",
        "Tipping and Bishop, 1999",
        {"sigma": "iso", "tied_sigma": False, **_STANDARD},
        ("n_latent",),
    ),
    "mfa": Preset(
        "mixture of factor analysers: diagonal noise",
        "Ghahramani and Hinton, 1996",
        {"sigma": "diag", "tied_sigma": False, **_STANDARD},
        ("n_latent",),
    ),
    "pcca": Preset(
        "probabilistic canonical correlation analysis: one component, noise in blocks of bands",
        "Bach and Jordan, 2005",
        {"n_components": 1, "sigma": "block", **_STANDARD},
        ("n_latent", "sigma_blocks"),
    ),
    "rca": Preset(
        "residual component analysis: one component, noise known",
        "Kalaitzis and Lawrence, 2011",
        {"n_components": 1, "sigma": "full", **_STANDARD},
        ("n_latent", "fixed"),
        {"algorithm": "marginal"},
    ),
}
"""The methods by name."""


def preset(name: str, **settings: Any) -> GLLiM:
    """The estimator of a method of the paper's table "tab:unif".

    Parameters
    ----------
    name : one of :data:`PRESETS`.
    settings : of :class:`GLLiM`, those that make the method excepted. "ppca", "mppca", "mfa", "pcca" and "rca" need
        ``n_latent``, "pcca" ``sigma_blocks`` too (its noise is not determined by the likelihood alone and may become
        singular: keep ``reg_covar`` above zero), and "rca" ``fixed={"Sigma": covariance}``. "gtm" takes ``grid``, the
        nodes a side (default (10, 10)), ``functions``, the Gaussian basis functions a side (default (4, 4)), and
        ``width``, theirs (default their distance) on a map from -1 to 1; its latents are the coordinates on the map, so
        that the first columns of ``transform`` are a spectrum's mean place, then the Gaussians and a constant.

    Raises
    ------
    ValueError : an unknown name, a setting that is missing, or one that would make another method.

    Examples
    --------
    >>> preset("mppca", n_components=3, n_latent=2)
    GLLiM(n_components=3, n_latent=2)
    """
    chosen = PRESETS.get(name)
    if chosen is None:
        raise ValueError(f"preset {name!r} is not one of {', '.join(map(repr, PRESETS))}")
    if name == "gtm":
        settings = _on_grid(**settings)
    missing = [need for need in chosen.needs if need not in settings]
    if missing:
        raise ValueError(f"preset {name!r} needs {' and '.join(f'{need}=' for need in missing)}")
    if name == "rca" and set(check_names(settings["fixed"])) != {"Sigma"}:
        raise ValueError("preset 'rca' needs fixed={'Sigma': covariance}, and nothing else fixed")
    for key, value in chosen.settings.items():
        if key in settings and (np.ndim(settings[key]) or settings[key] != value):
            raise ValueError(
                f"preset {name!r} has {key}={value!r}, not {settings[key]!r}: set up a GLLiM for another method"
            )
    return GLLiM(**{**chosen.defaults, **settings, **chosen.settings})


def _on_grid(
    grid: Sequence[int] = (10, 10), functions: Sequence[int] = (4, 4), width: float | None = None, **settings: Any
) -> dict[str, Any]:
    """Settings of latents on a grid."""
    for key in ("n_components", "n_latent", "latent_mean", "latent_covariance"):
        if key in settings:
            raise ValueError(f"preset 'gtm' makes {key} itself: give grid, functions and width")
    for key, sides in (("grid", grid), ("functions", functions)):
        several = isinstance(sides, Sequence | np.ndarray) and len(sides) > 0
        if not several or not all(isinstance(side, numbers.Integral) and int(side) >= 1 for side in sides):
            raise ValueError(f"{key}={sides!r} must be a list of integers, one or more a side")
    if len(grid) != len(functions):
        raise ValueError(f"grid={tuple(grid)} and functions={tuple(functions)} must have as many sides")
    if max(grid) < 2:
        raise ValueError(f"grid={tuple(grid)} is one node: a side needs two or more")
    if width is not None and not 0.0 < width < np.inf:
        raise ValueError(f"width={width!r} must be above zero, on a map from -1 to 1")
    nodes = regular_grid(grid)
    if width is None:
        width = 2.0 / max(max(functions) - 1, 1)
    latents = basis(nodes, regular_grid(functions), width)
    return {
        "init": PrincipalGrid(nodes),
        **settings,
        "n_components": len(nodes),
        "n_latent": latents.shape[1],
        "latent_mean": latents,
        "latent_covariance": DIRAC * np.eye(latents.shape[1]),
    }
