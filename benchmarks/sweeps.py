"""How the time grows with N, D, K and L_w, the others fixed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from core import two_products
from data import cube_in_memory, fitted, make_spectra
from sizes import N_PARAMETERS, Sizes
from timing import alternate, iteration_seconds, say, seconds_of, slope


def em_sweeps(sizes: Sizes) -> list[dict[str, Any]]:
    """Seconds of an EM iteration (iso) against each size, with the slope in log-log."""
    base = {"N": sizes.n, "D": sizes.n_bands, "K": sizes.n_components, "L_w": sizes.n_latent}
    values = {
        "N": sizes.sweep_n,
        "D": sizes.sweep_bands,
        "K": sizes.sweep_components,
        "L_w": sizes.sweep_latent,
    }
    return [_em_sweep(name, values[name], base, sizes) for name in values]


def _em_sweep(name: str, values: tuple[int, ...], base: dict[str, int], sizes: Sizes) -> dict[str, Any]:
    say(f"  EM iteration against {name}")
    seconds, dense = [], []
    for value in values:
        shape = base | {name: value}
        spectra, parameters = make_spectra(shape["N"], shape["D"])
        products = two_products(spectra, shape["K"] * (N_PARAMETERS + shape["L_w"] + 1))
        found = [seconds_of(products) for _ in range(4)][1:]
        times = iteration_seconds(spectra, parameters, shape["K"], sizes.iterations, n_latent=shape["L_w"])
        found += [seconds_of(products) for _ in range(4)][1:]
        seconds.append(float(np.median(times)))
        dense.append(float(np.median(found)))
    grown = [N_PARAMETERS + value + 1 for value in values] if name == "L_w" else list(values)
    return {
        "what": "EM iteration",
        "size": name,
        "values": list(values),
        "seconds": seconds,
        "products": dense,
        "slope": slope(grown, seconds),
        "slope_against": "1 + L" if name == "L_w" else name,
    }


def inversion_sweeps(sizes: Sizes) -> list[dict[str, Any]]:
    """Pixels a second of an inversion against K and D."""
    found = []
    for name, values in (("K", sizes.sweep_components), ("D", sizes.sweep_bands)):
        say(f"  inversion against {name}")
        seconds = []
        for value in values:
            n_bands = value if name == "D" else sizes.n_bands
            n_components = value if name == "K" else sizes.n_components
            inverter, cube = fitted(n_bands, n_components, sizes.n_latent), cube_in_memory(sizes.sweep_pixels, n_bands)
            seconds.append(alternate({"inversion": partial(inverter.invert, cube)}, sizes.rounds)["inversion"])
        rates = [sizes.sweep_pixels / each for each in seconds]
        found.append(
            {
                "what": "inversion",
                "size": name,
                "values": list(values),
                "seconds": seconds,
                "per_second": rates,
                "slope": slope(values, seconds),
                "slope_against": name,
            }
        )
    return found
