"""Time an EM iteration and an inversion against the matrix products they cannot avoid, in the same run.

    python benchmarks/run.py --output benchmarks.json

Prints a table of medians and ratios, the CPU cores used and the BLAS kernel that ran, and writes all of it as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import xarray as xr
from threadpoolctl import threadpool_info

import specinvert
from specinvert.gllim import GLLiM
from specinvert.gllim.chunks import available_cpus

N_PARAMETERS = 3


def make_spectra(n: int, n_bands: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Smooth spectra (n, D) of three parameters (n, 3) and a nuisance, with 1 % noise."""
    rng = np.random.default_rng(seed)
    u, t, w = np.linspace(0.0, 1.0, n_bands), rng.uniform(0.0, 1.0, (n, N_PARAMETERS)), rng.normal(size=(n, 1))
    spectra = 0.3 + 0.2 * np.sin(3 * u + 3 * t[:, :1]) + 0.2 * t[:, 1:2] * np.cos(5 * u)
    spectra += 0.1 * t[:, 2:] ** 2 * np.sin(9 * u) + 0.02 * w * np.cos(20 * u * (1 + t[:, :1]))
    return spectra + 0.01 * rng.standard_normal(spectra.shape), t


def median_time(function: Callable[[], Any], repeats: int) -> float:
    """Median seconds of a call, after one to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return float(np.median(times))


def em_iteration(n: int, n_bands: int, n_components: int, n_latent: int, sigma: str, tied: bool) -> dict[str, Any]:
    """Seconds of one iteration, M-step and E-step, and of its two dense products."""
    spectra, parameters = make_spectra(n, n_bands)
    model = GLLiM(n_components, n_latent=n_latent, sigma=sigma, tied_sigma=tied, random_state=0, max_iter=15, tol=0.0)
    ticks: list[float] = []
    model.fit(spectra, parameters, progress=lambda *_: ticks.append(perf_counter()))
    rng = np.random.default_rng(1)
    width = n_components * (N_PARAMETERS + n_latent + 1)
    columns, rows = rng.standard_normal((n_bands, width)), rng.standard_normal((n, width))
    seconds, products = float(np.median(np.diff(ticks))), median_time(lambda: (spectra @ columns, rows.T @ spectra), 9)
    return {
        "what": f"EM iteration, {sigma}{', tied' if tied else ''}",
        "sizes": f"N={n}, D={n_bands}, K={n_components}, L_t={N_PARAMETERS}, L_w={n_latent}",
        "seconds": seconds,
        "products": products,
        "ratio": seconds / products,
        "a second": n / seconds,
    }


def inversion(n: int, n_bands: int, n_components: int, n_latent: int) -> dict[str, Any]:
    """Seconds to invert float32 pixels into mean, std and flag, and of the one float64 product."""
    spectra, parameters = make_spectra(10_000, n_bands)
    training = xr.Dataset({"reflectance": (("sample", "band"), spectra)})
    training = training.assign({f"p{i}": ("sample", parameters[:, i]) for i in range(N_PARAMETERS)})
    inverter = specinvert.GLLiMInverter(n_components, n_latent, random_state=0, max_iter=30, tol=0.0)
    inverter.fit(training, band_dim="band")
    pixels = make_spectra(n, n_bands, seed=2)[0].astype(np.float32)
    cube = xr.DataArray(pixels.reshape(-1, 1000, n_bands), dims=("y", "x", "band"))
    seconds = median_time(lambda: inverter.invert(cube), 3)
    columns = np.random.default_rng(1).standard_normal((n_bands, n_components * (N_PARAMETERS + n_latent + 1)))
    wide = pixels.astype(np.float64)
    products = median_time(lambda: wide @ columns, 3)
    return {
        "what": "inversion: mean, std, flag",
        "sizes": f"n={n}, D={n_bands}, K={n_components}, L={N_PARAMETERS + n_latent}",
        "seconds": seconds,
        "products": products,
        "ratio": seconds / products,
        "a second": n / seconds,
    }


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=Path("benchmarks.json"), show_default=True)
@click.option("--pixels", default=1_000_000, show_default=True, help="Pixels to invert, a multiple of 1000.")
def main(output: Path, pixels: int) -> None:
    """Run the benchmarks."""
    rows = [
        em_iteration(10_000, 184, 50, 2, sigma, tied)
        for sigma, tied in (("iso", False), ("iso", True), ("diag", False), ("diag", True))
    ]
    rows += [em_iteration(10_000, 184, 200, 2, "iso", False), inversion(pixels, 184, 50, 2)]
    kernels = sorted({f"{i['internal_api']} {i.get('architecture', '')} {i['version']}" for i in threadpool_info()})
    found = {"version": specinvert.__version__, "cores": available_cpus(), "blas": kernels, "rows": rows}
    output.write_text(json.dumps(found, indent=1))
    click.echo(f"specinvert {specinvert.__version__}, {found['cores']} cores, {', '.join(kernels)}\n")
    click.echo("| what | sizes | ms | products, ms | ratio | spectra a second |\n| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        cells = [row["what"], row["sizes"], f"{1e3 * row['seconds']:.1f}", f"{1e3 * row['products']:.1f}"]
        click.echo("| " + " | ".join([*cells, f"{row['ratio']:.2f}", f"{row['a second']:,.0f}"]) + " |")


if __name__ == "__main__":
    main()
