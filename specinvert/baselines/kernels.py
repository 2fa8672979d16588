"""Kernels of the relevance vector machine, looked up by name.

With r = |x - z| / scale, the distance of two spectra over the scale, and x.z their inner product. The names that
Tipping's SparseBayes gives to some of them (Tipping, 2001, J. Mach. Learn. Res. 1, 211-244) are accepted too. A
relevance vector machine needs no positive definite kernel: it takes its values as basis functions.

=================== ============= ======================================================================
name                SparseBayes   k(x, z)
=================== ============= ======================================================================
``gaussian``        gauss         exp(-r**2)
``laplace``                       exp(-r)
``cauchy``                        1 / (1 + r**2)
``cubic``                         r**3
``distance``        r             r
``thin_plate``      tps           r**2 log(r), 0 at r = 0
``bubble``                        1 where r < 1, else 0
``linear``                        x.z / scale**2
``linear_spline``   spline,       product over bands of 1 + m M + m**2 (M / 2 - m / 6), m and M the smaller and the
                    lspline       larger of x_d / scale and z_d / scale (Vapnik, Golowich and Smola, 1997)
``additive_spline``               mean over bands of the same factors
``poly2``, ``poly3``              (x.z / scale**2 + 1)**2 and **3
``hpoly2``,                       (x.z / scale**2)**2 and **3, homogeneous
``hpoly3``
=================== ============= ======================================================================
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.metrics.pairwise import euclidean_distances

from ..gllim.kernels import compiled

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], Array]
LARGEST = 1e150
"""Greatest value of a kernel whose squares can still be summed."""


def kernel_matrix(name: str, x: Array, z: Array, scale: float = 1.0) -> Array:
    """Values of a kernel between spectra x (n, D) and z (m, D): (n, m).

    Raises
    ------
    ValueError : an unknown kernel, a scale that is not positive, or values that overflow.
    """
    kernel = find_kernel(name)
    check_scale(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        values = kernel(x / scale, z / scale)
    if not (np.abs(values) <= LARGEST).all():
        raise ValueError(
            f"kernel {name!r} overflows at scale {scale:g}: standardise the spectra or take a larger scale"
        )
    return values


def find_kernel(name: str) -> Kernel:
    """The kernel of a name, as a function of spectra over the scale; ValueError lists the names."""
    if name not in _KERNELS and name not in _ALIASES:
        raise ValueError(f"kernel={name!r} is not one of {', '.join(map(repr, KERNELS))}")
    return _KERNELS[_ALIASES.get(name, name)]


def check_scale(scale: Any) -> None:
    """Raise ValueError unless the scale is a positive number."""
    if not isinstance(scale, numbers.Real) or isinstance(scale, bool) or not 0 < float(scale) < np.inf:
        raise ValueError(f"scale={scale!r} must be a positive number")


def _squared_distances(x: Array, z: Array) -> Array:
    """(n, m), about the mean of z: far from the origin the expanded square would cancel."""
    centre = z.mean(axis=0)
    return np.asarray(euclidean_distances(x - centre, z - centre, squared=True))


def _of_distance(function: Callable[[Array], Array], x: Array, z: Array) -> Array:
    return function(_squared_distances(x, z))


def _polynomial(degree: int, offset: float, x: Array, z: Array) -> Array:
    return np.asarray((x @ z.T + offset) ** degree)


@compiled
def _fill_spline(x: Array, z: Array, product: bool, values: Array) -> None:
    """Vapnik's spline of order one with infinitely many nodes: its product, or else its mean, over bands."""
    for i in range(x.shape[0]):
        for j in range(z.shape[0]):
            value = 1.0 if product else 0.0
            for d in range(x.shape[1]):
                low, high = min(x[i, d], z[j, d]), max(x[i, d], z[j, d])
                factor = 1.0 + low * (high + low * (high / 2.0 - low / 6.0))
                value = value * factor if product else value + factor
            values[i, j] = value if product else value / x.shape[1]


def _spline(product: bool, x: Array, z: Array) -> Array:
    values = np.empty((len(x), len(z)))
    _fill_spline(x, z, product, values)
    return values


_KERNELS: dict[str, Kernel] = {
    "gaussian": partial(_of_distance, lambda r2: np.exp(-r2)),
    "laplace": partial(_of_distance, lambda r2: np.exp(-np.sqrt(r2))),
    "cauchy": partial(_of_distance, lambda r2: 1 / (1 + r2)),
    "cubic": partial(_of_distance, lambda r2: r2**1.5),
    "distance": partial(_of_distance, np.sqrt),
    "thin_plate": partial(_of_distance, lambda r2: 0.5 * xlogy(r2, r2)),
    "bubble": partial(_of_distance, lambda r2: (r2 < 1).astype(np.float64)),
    "linear": partial(_polynomial, 1, 0.0),
    "linear_spline": partial(_spline, True),
    "additive_spline": partial(_spline, False),
    "poly2": partial(_polynomial, 2, 1.0),
    "poly3": partial(_polynomial, 3, 1.0),
    "hpoly2": partial(_polynomial, 2, 0.0),
    "hpoly3": partial(_polynomial, 3, 0.0),
}
KERNELS = tuple(_KERNELS)
"""The names of all kernels."""
_ALIASES = {
    "gauss": "gaussian",
    "r": "distance",
    "tps": "thin_plate",
    "spline": "linear_spline",
    "lspline": "linear_spline",
}
