"""Hapke parameters of a laboratory BRDF: least squares and GLLiM, against the measured errors.

    python examples/brdf_hapke.py JSC1_BRDF.json --output brdf_hapke

The file holds one surface: `geometries` (geometry, 3), incidence, emergence and azimuth in degrees; `wavelengths` in
nm; `reflectance_...` (wavelength, 2, geometry), the mean reflectance factor and its standard deviation.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure
from scipy.optimize import least_squares

import specinvert
from specinvert.physics import Geometry, brdf, geometry_coordinates, simulate_brdf
from specinvert.physics.hapke import PARAMETERS

NAMES = list(PARAMETERS)
LOW = np.array([1e-4, 0.01, 0.0, 0.0, 0.0, 0.02])
HIGH = np.array([0.9999, 35.0, 0.9, 1.0, 1.0, 1.0])
STARTS = ([0.8, 15.0, 0.3, 0.2, 0.5, 0.2], [0.5, 10.0, 0.6, 0.05, 0.9, 0.5], [0.8, 15.0, 0.2, 0.6, 0.9, 0.1])
SHOWN_NM = (1000.0, 2200.0, 3000.0)
COLOURS = {"least squares": "#0072b2", "GLLiM, measured errors": "#d55e00", "GLLiM, with model error": "#009e73"}


def read(path: Path) -> tuple[Geometry, xr.Dataset]:
    """Directions, and `reflectance` and `sigma` over wavelength and geometry."""
    (surface,) = json.loads(path.read_text(encoding="utf-8")).values()
    values = np.array(next(v for name, v in surface.items() if name.startswith("reflectance")))
    geometry = Geometry(*np.array(surface["geometries"]).T)
    wavelength = np.ravel(surface["wavelengths"])
    measured = xr.Dataset(
        {
            "reflectance": (("wavelength", "geometry"), values[:, 0], {"units": "1"}),
            "sigma": (("wavelength", "geometry"), values[:, 1], {"units": "1"}),
        },
        coords={"wavelength": ("wavelength", wavelength, {"units": "nm"}), **geometry_coordinates(geometry)},
    )
    return geometry, measured


def model(x: np.ndarray, geometry: Geometry, variant: str) -> np.ndarray:
    """Reflectance factors (..., geometry) of parameters (..., 6)."""
    return brdf(dict(zip(NAMES, np.moveaxis(x, -1, 0), strict=True)), geometry, variant=variant)


def least_squares_fit(
    y: np.ndarray, sigma: np.ndarray, starts: list[np.ndarray], geometry: Geometry, variant: str
) -> np.ndarray:
    """Parameters (6,) of the least chi-square from several starts."""
    step = 1e-6 * (HIGH - LOW)

    def residual(x: np.ndarray) -> np.ndarray:
        return (model(x, geometry, variant) - y) / sigma

    def jacobian(x: np.ndarray) -> np.ndarray:
        moved = np.where(x + step <= HIGH, step, -step)
        changed = model(np.vstack([x, x + np.diag(moved)]), geometry, variant)
        return ((changed[1:] - changed[0]) / moved[:, None] / sigma).T

    def solve(start: np.ndarray) -> tuple[float, np.ndarray]:
        inside = np.clip(start, LOW + 1e-3 * (HIGH - LOW), HIGH - 1e-3 * (HIGH - LOW))
        found = least_squares(residual, inside, jac=jacobian, bounds=(LOW, HIGH), x_scale=HIGH - LOW, max_nfev=60)
        return float(found.cost), found.x

    return min((solve(np.asarray(start)) for start in starts), key=lambda solved: solved[0])[1]


def fit_all(measured: xr.Dataset, geometry: Geometry, variant: str) -> np.ndarray:
    """Least-squares parameters (wavelength, 6): from the neighbour's result, every twentieth from fixed starts too."""
    found: list[np.ndarray] = []
    for row, (y, sigma) in enumerate(zip(measured["reflectance"].values, measured["sigma"].values, strict=True)):
        starts = [np.array(start) for start in STARTS if row % 20 == 0]
        found.append(least_squares_fit(y, sigma, [*starts, *found[-1:]], geometry, variant))
    return np.array(found)


def train(geometry: Geometry, variant: str, n: int, seed: int) -> specinvert.GLLiMInverter:
    """GLLiM trained on simulated BRDFs; the geometries are its bands."""
    ranges = {name: (low, high) for name, low, high in zip(NAMES, LOW, HIGH, strict=True)}
    training = simulate_brdf(n, geometry, ranges=ranges, variant=variant, seed=seed)
    bounds = {name: ("logit", low - 1e-6, high + 1e-6) for name, low, high in zip(NAMES, LOW, HIGH, strict=True)}
    return specinvert.GLLiMInverter(
        n_components=150, n_latent=0, sigma="diag", transforms=bounds, max_iter=60, tol=1e-2, random_state=seed
    ).fit(training, parameters=NAMES, band_dim="geometry")


def score(x: np.ndarray, measured: xr.Dataset, geometry: Geometry, variant: str) -> pd.DataFrame:
    """Reduced chi-square, relative RMS and the share of geometries within 2 sigma, a row a wavelength."""
    y, sigma = measured["reflectance"].values, measured["sigma"].values
    away = model(x, geometry, variant) - y
    return pd.DataFrame(
        {
            "wavelength": measured["wavelength"].values,
            "chi2": ((away / sigma) ** 2).sum(axis=1) / (y.shape[1] - len(NAMES)),
            "rms": np.sqrt((away**2).mean(axis=1)) / y.mean(axis=1),
            "within": (np.abs(away) <= 2 * sigma).mean(axis=1),
        }
    )


def markdown(scores: dict[str, pd.DataFrame], maps: dict[str, xr.Dataset], degrees: int) -> str:
    """A row a method: medians over wavelengths."""
    limit = 1 + 2 * np.sqrt(2 / degrees)
    lines = [
        f"| method | reduced chi2, median | smallest | wavelengths with chi2 up to {limit:.2f} | "
        "relative RMS, median | geometries within 2 sigma | out of domain |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, table in scores.items():
        outside = f"{100 * float(((maps[name].quality_flag & 4) > 0).mean()):.0f} %" if name in maps else ""
        fitted = f"{(table.chi2 <= limit).sum()} of {len(table)}"
        lines.append(
            f"| {name} | {table.chi2.median():.3g} | {table.chi2.min():.2g} | {fitted} "
            f"| {100 * table.rms.median():.2f} % | {100 * table.within.mean():.0f} % | {outside} |"
        )
    return "\n".join(lines)


def plot(
    found: dict[str, np.ndarray],
    maps: dict[str, xr.Dataset],
    scores: dict[str, pd.DataFrame],
    measured: xr.Dataset,
    curves: dict[str, np.ndarray],
    geometry: Geometry,
) -> Figure:
    """Parameters by wavelength, reduced chi-square, and reflectance by phase angle at three wavelengths."""
    figure = Figure(figsize=(12.5, 10), layout="constrained")
    axes = figure.subplots(4, 3)
    wavelength = measured["wavelength"].values
    for axis, (i, name) in zip(axes[:2].flat, enumerate(NAMES), strict=True):
        for method, x in found.items():
            axis.plot(wavelength, x[:, i], color=COLOURS[method], lw=1.2, label=method)
            if method in maps:
                std = maps[method][f"{name}_std"].values
                axis.fill_between(wavelength, x[:, i] - std, x[:, i] + std, color=COLOURS[method], alpha=0.15, lw=0)
        units = PARAMETERS[name].units
        axis.set(
            xlabel="wavelength (nm)", ylabel=name if units == "1" else f"{name} ({units})", ylim=(0, 1.02 * HIGH[i])
        )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    for axis, column, label in zip(
        axes[2], ("chi2", "rms", "within"), ("reduced chi2", "relative RMS", "share within 2 sigma"), strict=True
    ):
        for method in found:
            axis.plot(wavelength, scores[method][column], color=COLOURS[method], lw=1.2)
        axis.set(xlabel="wavelength (nm)", ylabel=label)
    axes[2, 0].set_yscale("log")
    axes[2, 0].axhline(1.0, color="black", lw=0.8, ls=":")
    axes[2, 1].set_yscale("log")
    phase = geometry.phase_angle
    for axis, nm in zip(axes[3], SHOWN_NM, strict=True):
        row = int(np.abs(wavelength - nm).argmin())
        y, sigma = measured["reflectance"].values[row], measured["sigma"].values[row]
        axis.errorbar(phase, y, 2 * sigma, fmt="o", ms=4, mfc="none", color="black", lw=0.8, label="measured, 2 sigma")
        for method, curve in curves.items():
            axis.plot(phase, curve[row], ".", ms=4, color=COLOURS[method])
        axis.set(title=f"{wavelength[row]:g} nm", xlabel="phase angle (degrees)", ylabel="reflectance factor")
    axes[3, 0].legend(frameon=False)
    return figure


@click.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default="brdf_hapke", show_default=True)
@click.option("--variant", type=click.Choice(["1981", "1993", "2002"]), default="1993", show_default=True)
@click.option("--simulations", type=click.IntRange(1000), default=30000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(path: Path, output: Path, variant: str, simulations: int, seed: int) -> None:
    """Fit the BRDF in the JSON file PATH, one wavelength at a time."""
    output.mkdir(parents=True, exist_ok=True)
    geometry, measured = read(path)
    degrees = geometry.shape[0] - len(NAMES)
    start = time.perf_counter()
    found = {"least squares": fit_all(measured, geometry, variant)}
    click.echo(f"least squares, {measured.sizes['wavelength']} wavelengths: {time.perf_counter() - start:.0f} s")
    scores = {"least squares": score(found["least squares"], measured, geometry, variant)}

    start = time.perf_counter()
    inverter = train(geometry, variant, simulations, seed)
    click.echo(f"GLLiM, {simulations} simulations: {time.perf_counter() - start:.0f} s")
    misfit = float(scores["least squares"].rms.median())
    click.echo(f"model error: {100 * misfit:.2f} % of the reflectance, the median RMS of least squares")
    noises = {
        "GLLiM, measured errors": measured["sigma"],
        "GLLiM, with model error": np.hypot(measured["sigma"], misfit * measured["reflectance"]),
    }
    maps = {}
    for name, noise in noises.items():
        start = time.perf_counter()
        maps[name] = inverter.invert(measured["reflectance"], noise=noise, band_dim="geometry")
        click.echo(f"{name}: {time.perf_counter() - start:.2f} s")
        found[name] = np.stack([maps[name][p].values for p in NAMES], axis=-1)
        scores[name] = score(found[name], measured, geometry, variant)

    some = slice(0, None, 6)
    refined = [
        least_squares_fit(y, sigma, [x], geometry, variant)
        for y, sigma, x in zip(
            measured["reflectance"].values[some],
            measured["sigma"].values[some],
            found["GLLiM, with model error"][some],
            strict=True,
        )
    ]
    part = measured.isel(wavelength=some)
    name = f"least squares from the last, {len(refined)} wavelengths"
    scores[name] = score(np.array(refined), part, geometry, variant)
    scores["least squares, the same wavelengths"] = scores["least squares"][some]

    text = markdown(scores, maps, degrees)
    (output / "brdf_hapke_table.md").write_text(text + "\n", encoding="utf-8")
    pd.concat(scores, names=["method"]).to_csv(output / "brdf_hapke_table.csv", float_format="%.5g")
    click.echo(text)
    curves = {name: model(x, geometry, variant) for name, x in found.items()}
    plot(found, maps, scores, measured, curves, geometry).savefig(output / "brdf_hapke.png", dpi=100)
    click.echo(f"written to {output}")


if __name__ == "__main__":
    main()
