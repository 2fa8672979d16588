"""``--dry-run``: what a command would read, hold and write, and how long it would take, by a small part of the work."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..flags import FLAG_VARIABLE, out_of_domain
from ..progress import duration
from ..settings import AUTO
from .values import centres_and_widths, each_array

if TYPE_CHECKING:
    import xarray as xr

    from ..cubes import Lookup
    from ..inverter import GLLiMInverter
    from .values import Preparation

PIXELS, SAMPLES, SAMPLES_PER_COMPONENT = 2048, 500, 20
"""Sizes of the parts: pixels inverted; samples fitted, at least so many and so many for each component."""
ITERATIONS = 4
BASE_BYTES = 380e6
"""About what Python and the libraries hold."""
ARRAYS, FILE_BYTES = ("pi", "c", "Gamma", "A", "b", "Sigma"), 20e3
"""Arrays of a model that its file holds, and about what the file has beside them."""
COPIES = 3
"""Copies of a block of spectra alive while it is read, masked and inverted."""
LARGE: dict[str, Any] = {"n_components": 60, "n_latent": 3, "sigma": "iso", "shrinkage": None}
"""What settings that are yet to be found are taken for."""
BLOCK_AND_SWATH = 3
"""Size of a block of a grid with the part of the swath that it comes from, in blocks."""


def describe_inversion(
    inverter: Any,
    cube: xr.DataArray,
    maps: xr.Dataset,
    options: Mapping[str, Any],
    output: Path,
    compression: int,
) -> str:
    """Check what ``invert`` would do by inverting and writing a window of the cube, and tell what it would take.

    The window is in the middle; the maps of it go to a temporary folder that is removed. ``maps`` are the lazy ones of
    the whole cube, ``options`` the arguments of ``GLLiMInverter.invert``.
    """
    from ..cubes import find_band_dim
    from ..gllim.core import available_cpus

    dim = options["band_dim"] or (inverter.model_.bands.dim if inverter.model_.bands.wavelength is None else None)
    dim = find_band_dim(cube, dim)
    sizes = {name: size for name, size in cube.sizes.items() if name != dim}
    n_blocks, block = _blocks(cube, sizes)
    pixels = prod(sizes.values())
    spectrum, result = cube.nbytes / max(pixels, 1), maps.nbytes / max(pixels, 1)
    threads = min(n_blocks, available_cpus())
    held = block * (COPIES * spectrum + result)
    rate, tried = _rate(inverter, cube, sizes, options, output, compression)
    window = prod(tried.sizes[name] for name in sizes)
    seconds = pixels / (rate * threads)
    return "\n".join(
        [
            f"cube        {_sizes(cube.sizes)}, {cube.dtype}, {_bytes(cube.nbytes)}",
            f"bands       {inverter.model_.bands.size} of {cube.sizes[dim]} match the model {inverter.model_id}",
            f"blocks      {n_blocks} of at most {block} pixels, {_bytes(block * spectrum)} of spectra each",
            _memory(held, threads),
            _output(maps, output),
            *_domain(tried),
            f"time        about {duration(seconds)} with {_count(threads, 'thread')}, beside reading and writing; "
            f"measured on {window} pixels in the middle of the scene, {rate:,.0f} pixels/s in one thread",
            "dry run: nothing was written",
        ]
    )


def describe_orthorectification(
    maps: xr.Dataset, lookup: Lookup, made: xr.Dataset, output: Path, compression: int
) -> str:
    """Check what ``orthorectify`` would do by making and writing a block, and tell what it would take.

    ``maps`` are those of the swath in dask blocks, ``made`` the lazy ones of the grid. The block is in the middle.
    """
    import numpy as np

    from ..cubes import percent
    from ..gllim.core import available_cpus

    whole = {str(name): array for name, array in made.data_vars.items() if {"y", "x"} <= set(array.dims)}
    n_blocks, block = _blocks(next(iter(whole.values())), {"y": made.sizes["y"], "x": made.sizes["x"]})
    pixels = prod(lookup.shape)
    threads = min(n_blocks, available_cpus())
    held = BLOCK_AND_SWATH * block * sum(array.nbytes for array in whole.values()) / max(pixels, 1)
    kept = maps.nbytes + lookup.glt_x.nbytes + lookup.glt_y.nbytes
    window = {}
    for dim in ("y", "x"):
        sizes = next(iter(whole.values())).chunksizes[dim]
        start = sum(sizes[: len(sizes) // 2])
        window[dim] = slice(start, start + sizes[len(sizes) // 2])
    begun = time.perf_counter()
    _try_to_write(made.isel(window), output, compression)
    seconds = (time.perf_counter() - begun) * n_blocks
    there = np.count_nonzero((lookup.glt_x > 0) & (lookup.glt_y > 0)) / max(pixels, 1)
    return "\n".join(
        [
            f"maps        {_sizes(maps.sizes)}, {_bytes(maps.nbytes)}",
            f"grid        y {lookup.shape[0]}, x {lookup.shape[1]}; {percent(there)} of it has pixels of the swath",
            f"blocks      {n_blocks} of at most {block} pixels",
            _memory(held, threads, kept),
            _output(made, output),
            f"time        about {duration(seconds)}, measured on the block in the middle",
            "dry run: nothing was written",
        ]
    )


def describe_training(inverter: GLLiMInverter, data: xr.Dataset, preparation: Preparation, output: Path) -> str:
    """Check what ``train`` would do by a few iterations on some of the samples, and tell what it would take."""
    from ..cubes import find_band_dim, find_spectra
    from ..gllim import LEAST_HELD_OUT
    from ..gllim.core import available_cpus
    from ..inverter import KEPT, is_automatic, read_settings

    spectra, band_dim = preparation.spectra, preparation.band_dim
    array = find_spectra(data, spectra, band_dim)
    sizes = {name: size for name, size in array.sizes.items() if name != find_band_dim(array, band_dim)}
    count = prod(sizes.values())
    searched = is_automatic(inverter)
    large = LARGE | {"n_components": max(1, min(LARGE["n_components"], count // SAMPLES_PER_COMPONENT))}
    inverter = replace(inverter, **{name: value for name, value in large.items() if getattr(inverter, name) == AUTO})
    n_components = int(inverter.n_components)
    part = _thinned(data, sizes, max(SAMPLES, SAMPLES_PER_COMPONENT * n_components)).load()
    prepared, noise = preparation.apply(part)
    array_used = find_spectra(prepared, spectra, band_dim)
    used = prod(size for name, size in array_used.sizes.items() if name in sizes)
    bands = array_used.sizes[find_band_dim(array_used, band_dim)]
    latents = read_settings(inverter).latent_dimensions(bands)
    seconds, fitted = _fit_seconds(inverter, latents[-1], prepared, {"noise": noise, **preparation.reading})
    start, iteration = (measured * count / used for measured in seconds)
    n_ensemble = int(inverter.n_ensemble) if inverter.n_ensemble != AUTO else 4 if searched else 1
    members = -(-n_ensemble // available_cpus())
    stacked = n_ensemble > 1 and inverter.ensemble_weights == "stacked"
    runs = members * inverter.n_init * len(latents) * (2 if stacked else 1)
    total = runs * (start + inverter.max_iter * iteration)
    model = fitted.model_
    held = count * (bands * max(array_used.dtype.itemsize, 4) + 8 * (len(model.names) + 1))
    theta = fitted.parameters_
    member = n_components * sum(getattr(theta, name).nbytes for name in ARRAYS) / theta.n_components
    kept = 0 if model.held_out is None else 4 * bands * min(KEPT, max(LEAST_HELD_OUT, count // 10))
    models = f"{_count(n_ensemble, 'model')} of {_count(n_components, 'component')}"
    return "\n".join(
        [
            f"training    {_sizes(array.sizes)}, {array.dtype}, {_bytes(array.nbytes)}",
            f"spectra     {array.name}, {_count(bands, 'band')} to use",
            f"parameters  {', '.join(model.names) or 'none'}",
            f"memory      about {_bytes(BASE_BYTES + array.nbytes + held)} at the peak",
            f"output      {output}: {models}, about {_bytes(n_ensemble * member + kept + FILE_BYTES)}",
            *(
                ["settings    are looked for first; the rest is of a large model that this may lead to"]
                if searched
                else []
            ),
            f"time        at most about {duration(total)}: {_count(runs, 'run')}, each {start:.2g} s to start and "
            f"{inverter.max_iter} iterations of {iteration:.2g} s; measured on {used} of {count} samples, the others "
            "were not read",
            "dry run: nothing was written",
        ]
    )


def open_training(path: Path, sensor: Any = None) -> xr.Dataset:
    """A training set whose values are not read yet, where the file allows that."""
    from ..io.reading import SUFFIXES, open_dataset, open_group

    if not path.exists() or path.suffix.lower() in SUFFIXES:
        return open_dataset(path, centres_and_widths(sensor))
    return open_group(path)


def _thinned(data: xr.Dataset, sizes: Mapping[Any, int], wanted: int) -> xr.Dataset:
    """Evenly spaced samples along the longest dimension, so that about ``wanted`` are left."""
    longest = max(sizes, key=lambda name: sizes[name])
    step = max(1, prod(sizes.values()) // wanted)
    return data.isel({longest: slice(None, None, min(step, max(1, sizes[longest] // 2)))})


def _fit_seconds(
    inverter: GLLiMInverter, n_latent: int, training: xr.Dataset, options: Mapping[str, Any]
) -> tuple[tuple[float, float], GLLiMInverter]:
    """Seconds to start and for an iteration, and the model fitted so."""
    short = replace(inverter, n_latent=n_latent, max_iter=ITERATIONS, tol=0.0, n_init=1, n_ensemble=1)
    starts, iterations = [], []
    for _ in range(2):  # compiled code may be made in the first
        times = [time.perf_counter()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            short.fit(training, **options, progress=lambda *_, times=times: times.append(time.perf_counter()))
        first, *steps = [later - earlier for earlier, later in pairwise(times)]
        iterations.append(min(steps))
        starts.append(max(0.0, first - iterations[-1]))
    return (min(starts), min(iterations)), short


def _rate(
    inverter: Any,
    cube: xr.DataArray,
    sizes: Mapping[Any, int],
    options: Mapping[str, Any],
    output: Path,
    compression: int,
) -> tuple[float, xr.Dataset]:
    """Pixels a second in one thread, measured on a window in the middle; and the maps of the window."""
    side = max(1, round(PIXELS ** (1 / len(sizes)))) if sizes else 1
    window = {}
    for name, size in sizes.items():
        start = max(0, (size - side) // 2)
        window[name] = slice(start, min(size, start + side))
    part = cube.isel(window).load()
    there = each_array(options, lambda array: array.isel(window, missing_dims="ignore"))
    times = []
    for _ in range(2):  # compiled code may be made in the first
        begun = time.perf_counter()
        maps = inverter.invert(part, **there)
        times.append(time.perf_counter() - begun)
    _try_to_write(maps, output, compression)
    n = prod(part.sizes[name] for name in sizes)
    return n / max(min(times), 1e-9), maps


def _domain(maps: xr.Dataset) -> list[str]:
    """The line on how many pixels of a window are like training, where its maps tell."""
    if FLAG_VARIABLE not in maps:
        return []
    outside, there = out_of_domain(maps[FLAG_VARIABLE])
    return [f"domain      {outside} of {there} pixels with data in the middle are out of the domain of training"]


def _try_to_write(maps: xr.Dataset, output: Path, compression: int) -> None:
    """Write maps to a temporary folder, which goes; what is wrong is said of the output."""
    from ..io.writing import save_maps

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / output.name
        try:
            save_maps(maps, target, compression=compression, progress=False)
        except ValueError as error:
            raise ValueError(str(error).replace(os.fspath(target), os.fspath(output))) from error


def _blocks(array: xr.DataArray, sizes: Mapping[Any, int]) -> tuple[int, int]:
    """How many blocks the pixels are in, and pixels of the largest."""
    chunks = [array.chunksizes[name] if array.chunks else (size,) for name, size in sizes.items()]
    return prod(len(lengths) for lengths in chunks), prod(max(lengths) for lengths in chunks)


def _memory(held: float, threads: int, kept: float = 0.0) -> str:
    """The line on memory: bytes ``held`` for each block under way, and ``kept`` throughout."""
    peak = BASE_BYTES + kept + (threads + 1) * held
    return f"memory      about {_bytes(held)} a block, {_bytes(peak)} at the peak with {_count(threads, 'thread')}"


def _output(maps: xr.Dataset, output: Path) -> str:
    return f"output      {output}: {', '.join(map(str, maps.data_vars))}; {_bytes(maps.nbytes)} before compression"


def _sizes(sizes: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _bytes(number: float) -> str:
    """A size in kB, MB or GB, of powers of ten."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number / 1e3:.3g} kB"
