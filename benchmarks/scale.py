"""From files to files: rate against memory, out-of-core training against its size, and peak memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from child import run_child
from data import Files, cube_in_memory, fitted
from sizes import Sizes
from timing import say, seconds_of


def files(sizes: Sizes, place: Files) -> list[dict[str, Any]]:
    """A Zarr cube to netCDF maps in a fresh process: rate as a share of that in memory, and peak memory.

    A cube of half the side goes first, for its peak memory.
    """
    inverter = fitted(sizes.n_bands, sizes.n_components, sizes.n_latent)
    model = place.model(sizes.n_bands, sizes.n_components, sizes.n_latent)
    cube = cube_in_memory(sizes.pixels, sizes.n_bands)
    inverter.invert(cube)
    rows = []
    for side in (sizes.cube_side // 2, sizes.cube_side):
        say(f"  writing a cube of {side} x {side} x {sizes.n_bands}")
        path = place.cube(side, sizes.cube_block, sizes.n_bands)
        runs, memory = [], []
        for _ in range(3):
            say("  in memory, then from Zarr to netCDF")
            memory.append(seconds_of(lambda: inverter.invert(cube)) / sizes.pixels)
            runs.append(run_child("invert", model, path, place.folder / "maps.nc"))
        seconds = float(np.median([run["seconds"] for run in runs]))
        rows.append(
            {
                "what": "inversion, Zarr to netCDF",
                "sizes": {"y": side, "x": side, "D": sizes.n_bands, "block": sizes.cube_block},
                "seconds": seconds,
                "per_second": side**2 / seconds,
                "memory_per_second": 1 / float(np.median(memory)),
                "share": side**2 / seconds * float(np.median(memory)),
                "peak_bytes": max(run["peak_bytes"] for run in runs),
                "target": 0.6 if side == sizes.cube_side else None,
            }
        )
        if side == sizes.cube_side:
            place.remove(path)
    return rows


def training(sizes: Sizes, place: Files) -> list[dict[str, Any]]:
    """Training from Zarr, read again for each iteration: time a spectrum of a large set against a small one.

    The small set is timed before and after the large one.
    """
    paths = {}
    for n in (sizes.small_training, sizes.large_training):
        say(f"  writing {n:,} spectra")
        paths[n] = place.training(n, sizes.chunk, sizes.n_bands)
    runs: dict[int, list[dict[str, Any]]] = {n: [] for n in paths}
    for n in (sizes.small_training, sizes.large_training, sizes.small_training):
        say(f"  training on {n:,} spectra")
        iterations = 3 if n == sizes.large_training else sizes.iterations
        runs[n].append(run_child("train", paths[n], sizes.n_components, sizes.n_latent, iterations))
    for path in paths.values():
        place.remove(path)
    rows: list[dict[str, Any]] = []
    for n, found in runs.items():
        seconds = float(np.median([each for run in found for each in run["seconds"]]))
        rows.append(
            {
                "what": "EM iteration from Zarr",
                "sizes": {"N": n, "D": sizes.n_bands, "K": sizes.n_components, "chunk": sizes.chunk},
                "seconds": seconds,
                "per_second": n / seconds,
                "peak_bytes": max(run["peak_bytes"] for run in found),
            }
        )
    small, large = rows
    large["times_a_spectrum"] = small["per_second"] / large["per_second"]
    large["target"] = 1.15
    return rows
