"""EM iterations and inversions against the dense float64 products that they cannot avoid, in turn in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from data import cube_in_memory, fitted, make_spectra
from sizes import N_PARAMETERS, Sizes
from timing import alternate, iteration_seconds, say, seconds_of

CASES: tuple[tuple[str, bool, float | None], ...] = (
    ("iso", False, 1.2),
    ("iso", True, 1.2),
    ("diag", False, 2.0),
    ("diag", True, 2.0),
    ("full", False, 12.0),
    ("full", True, 12.0),
)
"""Noise, whether tied, and the greatest ratio wanted."""
MANY_CASES: tuple[tuple[str, bool, float | None], ...] = (("iso", False, 1.0), ("diag", False, None))
"""The same with many components."""
OUTPUTS: tuple[tuple[str, ...], ...] = (
    ("mean", "std"),
    ("mean", "std", "flag"),
    ("mean", "std", "log_evidence"),
    ("mean", "cov"),
    ("mean", "fit_rmse"),
)
INVERSION_TARGET = 1.4


def em(sizes: Sizes) -> list[dict[str, Any]]:
    """Ratio of an EM iteration to its two products, for each structure of the noise."""
    cases = [(sizes.n_components, *case) for case in CASES]
    cases += [(sizes.many_components, *case) for case in MANY_CASES]
    return [_em_case(sizes, *case) for case in cases]


def _em_case(sizes: Sizes, n_components: int, sigma: str, tied: bool, target: float | None) -> dict[str, Any]:
    what = f"EM iteration, {sigma}{', tied' if tied else ''}"
    spectra, parameters = make_spectra(sizes.n, sizes.n_bands)
    settings = {"n_latent": sizes.n_latent, "sigma": sigma, "tied_sigma": tied}
    products = two_products(spectra, n_components * (N_PARAMETERS + sizes.n_latent + 1))
    rounds, iterations = (1, sizes.full_iterations) if sigma == "full" else (sizes.rounds, sizes.iterations)
    iteration_seconds(spectra, parameters, n_components, 1, **settings)
    seconds: list[float] = []
    dense: list[float] = []
    for _ in range(rounds):
        dense += [seconds_of(products) for _ in range(5)][1:]
        seconds += iteration_seconds(spectra, parameters, n_components, iterations, **settings)
    dense += [seconds_of(products) for _ in range(5)][1:]
    shape = {"N": sizes.n, "D": sizes.n_bands, "K": n_components, "L_t": N_PARAMETERS, "L_w": sizes.n_latent}
    row = _row(what, shape, float(np.median(seconds)), float(np.median(dense)), sizes.n, target)
    say(f"  {what}, K={n_components}: {row['ratio']:.2f} of the products")
    return row


def two_products(spectra: np.ndarray, width: int) -> Callable[[], None]:
    """The products of an iteration, spectra times stacked columns and weighted rows times spectra, with all cores.

    They write into arrays that are there already: no time goes into asking the system for memory.
    """
    rng = np.random.default_rng(1)
    columns, rows = rng.standard_normal((spectra.shape[1], width)), rng.standard_normal((len(spectra), width))
    inner, sums = np.empty((len(spectra), width)), np.empty((width, spectra.shape[1]))

    def run() -> None:
        np.matmul(spectra, columns, out=inner)
        np.matmul(rows.T, spectra, out=sums)

    return run


def inversion(sizes: Sizes) -> list[dict[str, Any]]:
    """Ratio of an inversion of float32 pixels in memory to its one product, for several outputs."""
    say(f"  inversion of {sizes.pixels:,} pixels")
    inverter = fitted(sizes.n_bands, sizes.n_components, sizes.n_latent)
    cube = cube_in_memory(sizes.pixels, sizes.n_bands)
    wide = cube.values.reshape(-1, sizes.n_bands).astype(np.float64)
    columns = np.random.default_rng(1).standard_normal((sizes.n_bands, sizes.width))
    inner = np.empty((sizes.pixels, sizes.width))
    cases: dict[str, Callable[[], Any]] = {}
    for outputs in OUTPUTS:
        cases[f"product before {outputs}"] = partial(np.matmul, wide, columns, out=inner)
        cases[", ".join(outputs)] = partial(inverter.invert, cube, outputs=outputs)
    found = alternate(cases, sizes.rounds)
    product = float(np.median([seconds for name, seconds in found.items() if name.startswith("product")]))
    shape = {"n": sizes.pixels, "D": sizes.n_bands, "K": sizes.n_components, "L": N_PARAMETERS + sizes.n_latent}
    return [
        _row(f"inversion: {name}", shape, found[name], product, sizes.pixels, INVERSION_TARGET if i < 2 else None)
        for i, name in enumerate(", ".join(outputs) for outputs in OUTPUTS)
    ]


def _row(
    what: str, shape: dict[str, int], seconds: float, products: float, n: int, target: float | None
) -> dict[str, Any]:
    return {
        "what": what,
        "sizes": shape,
        "seconds": seconds,
        "products": products,
        "ratio": seconds / products,
        "per_second": n / seconds,
        "target": target,
    }
