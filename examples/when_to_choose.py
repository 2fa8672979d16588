"""When to choose GLLiM: its defaults beside other methods on simulated and on measured sets, errors and intervals.

Each set is split into five parts, or once where it is large; nothing is tuned by hand. Intervals are those of 90 %:
GLLiM's, the Gaussian process's, and for the other methods the quantiles of their own errors in cross-validation on the
training part (split conformal), which are of one width for all spectra.

    python examples/when_to_choose.py --output results                                   # simulated sets alone
    python examples/when_to_choose.py --leaves ely_plsr_data.csv --soils soils.csv --output results

The table of soils has a column for each band, named by its wavelength in nm, and the parameter in the first column.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.preprocessing import StandardScaler

import specinvert
from specinvert.baselines import make_method
from specinvert.physics.mixing import simulate_mixtures

METHODS = ("ridge", "pls", "rf", "mlp", "rvm", "lut", "gpr")
LARGE, TEST, GPR_ROWS = 1500, 1000, 1000
LEVEL = 0.9


def dataset(wavelengths: np.ndarray, spectra: np.ndarray, parameters: dict[str, np.ndarray]) -> xr.Dataset:
    """A training set of arrays."""
    return xr.Dataset(
        {"reflectance": (("sample", "wavelength"), spectra)} | {name: ("sample", t) for name, t in parameters.items()},
        coords={"wavelength": ("wavelength", wavelengths, {"units": "nm"})},
    )


def leaves(path: Path) -> xr.Dataset:
    """Measured leaves: water, dry matter and nitrogen, every tenth band."""
    table = pd.read_csv(path)
    bands = [name for name in table.columns if name.startswith("Wave_") and int(name[5:]) % 10 == 0]
    names = {"water": "H20_g_m2", "dry matter": "LMA_g_m2", "nitrogen": "N_g_m2"}
    columns = {name: table[column].to_numpy(float) for name, column in names.items()}
    return dataset(np.array([float(name[5:]) for name in bands]), table[bands].to_numpy(float) / 100.0, columns)


def soils(path: Path) -> xr.Dataset:
    """A table whose first column is the parameter."""
    table = pd.read_csv(path).dropna()
    name, *bands = table.columns
    return dataset(np.array(bands, float), table[bands].to_numpy(float), {name: table[name].to_numpy(float)})


def mixtures(n: int) -> xr.Dataset:
    """Simulated ice and dust under haze, three of four parameters wanted."""
    made = simulate_mixtures(n, noise=0.005, seed=1)
    return made[["reflectance", "ice_fraction", "grain_size", "dust_water"]].isel(wavelength=slice(None, None, 2))


def parts(data: xr.Dataset) -> Iterator[tuple[xr.Dataset, xr.Dataset]]:
    """Training and test sets."""
    n = data.sizes["sample"]
    if n > LARGE:
        order = np.random.default_rng(0).permutation(n)
        yield data.isel(sample=order[TEST:]), data.isel(sample=order[:TEST])
        return
    for train, test in KFold(5, shuffle=True, random_state=0).split(np.empty(n)):
        yield data.isel(sample=train), data.isel(sample=test)


Result = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Estimates, lower and upper ends of intervals, (n, L_t)."""


def gllim(train: xr.Dataset, test: xr.Dataset, names: list[str]) -> Result:
    """With the defaults."""
    inverter = specinvert.GLLiMInverter(tol=1e-3, random_state=0).fit(train, parameters=names, progress=False)
    maps = inverter.invert(test["reflectance"], outputs=["mean", "q05", "q95"])
    estimate, lower, upper = (np.stack([maps[f"{n}{end}"].values for n in names], 1) for end in ("", "_q05", "_q95"))
    return estimate, lower, upper


def process(x: np.ndarray, t: np.ndarray, x_test: np.ndarray) -> Result:
    """A Gaussian process for each parameter, of a thousand spectra at most."""
    rows = np.random.default_rng(0).permutation(len(x))[:GPR_ROWS]
    scaler, targets = StandardScaler().fit(x[rows]), StandardScaler().fit(t[rows])
    kernel = ConstantKernel(10.0) * RBF(np.sqrt(x.shape[1])) + WhiteKernel(0.1)
    means, deviations = [], []
    for column in targets.transform(t[rows]).T:
        fitted = GaussianProcessRegressor(kernel, random_state=0).fit(scaler.transform(x[rows]), column)
        mean, std = fitted.predict(scaler.transform(x_test), return_std=True)
        means.append(mean)
        deviations.append(std)
    mean, std = targets.inverse_transform(np.stack(means, 1)), np.stack(deviations, 1) * targets.scale_
    return mean, mean - 1.645 * std, mean + 1.645 * std


def other(name: str, x: np.ndarray, t: np.ndarray, x_test: np.ndarray) -> Result:
    """A method with conformal intervals."""
    method = make_method(name, random_state=0)
    own = np.reshape(cross_val_predict(method, x, t, cv=KFold(3, shuffle=True, random_state=1)), t.shape)
    estimate = np.reshape(method.fit(x, t).predict(x_test), (len(x_test), -1))
    lower, upper = np.quantile(t - own, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
    return estimate, estimate + lower, estimate + upper


def scores(truth: np.ndarray, result: Result) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """NRMSE, share of truths inside, and the mean interval score over the standard deviation of the truth, (L_t,)."""
    estimate, lower, upper = result
    spread = truth.std(axis=0)
    outside = np.maximum(lower - truth, 0.0) + np.maximum(truth - upper, 0.0)
    width = (upper - lower + 2.0 / (1.0 - LEVEL) * outside).mean(axis=0)
    inside = ((lower <= truth) & (truth <= upper)).mean(axis=0)
    return np.sqrt(((estimate - truth) ** 2).mean(axis=0)) / spread, inside, width / spread


def run(data: xr.Dataset, methods: tuple[str, ...]) -> pd.DataFrame:
    """All methods on a set."""
    names = [str(name) for name in data.data_vars if name != "reflectance"]
    truth, results, seconds = [], {m: [] for m in ("GLLiM", *methods)}, dict.fromkeys(("GLLiM", *methods), 0.0)
    for train, test in parts(data):
        x, x_test = (part["reflectance"].values.astype(float) for part in (train, test))
        t = np.stack([train[name].values for name in names], 1)
        truth.append(np.stack([test[name].values for name in names], 1))
        for method in results:
            begun = time.perf_counter()
            if method == "GLLiM":
                results[method].append(gllim(train, test, names))
            else:
                results[method].append(process(x, t, x_test) if method == "gpr" else other(method, x, t, x_test))
            seconds[method] += time.perf_counter() - begun
    rows = []
    for method, folds in results.items():
        joined = tuple(np.concatenate([fold[i] for fold in folds]) for i in range(3))
        for name, nrmse, inside, score in zip(names, *scores(np.concatenate(truth), joined), strict=True):  # type: ignore[arg-type]
            rows.append((method, name, nrmse, inside, score, seconds[method]))
    return pd.DataFrame(rows, columns=["method", "parameter", "nrmse", "inside", "interval_score", "seconds"])


def draw(tables: dict[str, pd.DataFrame], path: Path) -> None:
    """Mean error and mean interval score of each method, over the parameters of each set, less being better."""
    figure, axes = plt.subplots(2, 1, figsize=(7.5, 5.0), sharex=True, layout="constrained")
    for axis, score, title in zip(axes, ("nrmse", "interval_score"), ("NRMSE", "interval score / std"), strict=True):
        for place, (name, table) in enumerate(tables.items()):
            means = table.groupby("method", sort=False)[score].mean()
            shift = (place - 0.5 * (len(tables) - 1)) * 0.8 / len(tables)
            axis.bar(np.arange(len(means)) + shift, means, 0.8 / len(tables), label=name)
            axis.set_xticks(np.arange(len(means)), means.index)
        axis.set_ylabel(title)
    axes[0].legend(frameon=False, ncols=len(tables))
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run the sets that are given, print and write their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=Path)
    parser.add_argument("--soils", type=Path)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--output", type=Path, default=Path("when_to_choose"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    sets = {"mixtures 400": mixtures(400), "mixtures 5000": mixtures(5000)}
    if given.leaves:
        sets["leaves"] = leaves(given.leaves)
    if given.soils:
        sets["soils"] = soils(given.soils)
    tables: dict[str, pd.DataFrame] = {}
    for name, data in sets.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = run(data, tuple(given.methods.split(",")))
        tables[name] = table
        table.to_csv(given.output / f"{name.replace(' ', '_')}.csv", index=False)
        print(f"\n{name}: {dict(data.sizes)}\n{table.round(3).to_string(index=False)}", flush=True)
    draw(tables, given.output / "when_to_choose.png")


if __name__ == "__main__":
    main()
