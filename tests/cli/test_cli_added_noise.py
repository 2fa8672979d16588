"""Noise of training on test sets: a set without it is told, and ``--add-noise`` draws it."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from commands import run, succeed
from specinvert import load_inverter
from specinvert.physics.mixing import simulate_mixtures

NAMES = ["ice_fraction", "grain_size"]
NOISE = 0.02


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulations without noise, and a model that training added noise to, by wavelength."""
    folder = tmp_path_factory.mktemp("added")
    for seed, name in enumerate(("training", "held_out", "test")):
        simulated = simulate_mixtures(2200 if name == "held_out" else 500, seed=seed)
        simulated[["reflectance", *NAMES]].isel(wavelength=slice(None, None, 8)).to_netcdf(folder / f"{name}.nc")
    wavelength = xr.open_dataset(folder / "training.nc")["wavelength"].values
    table = "".join(f"{value},{NOISE}\n" for value in wavelength[::-1])
    (folder / "noise.csv").write_text(f"wavelength,std\n{table}")
    succeed(
        *("train", folder / "training.nc", "-o", folder / "model.nc", "--noise", folder / "noise.csv"),
        *("--components", 4, "--latent", 1, "--tol", 0.1, "--transform", "grain_size=log"),
    )
    return folder


def test_a_test_set_without_the_noise_of_training_is_told(made: Path) -> None:
    clean = run("evaluate", made / "model.nc", made / "test.nc")
    assert clean.exit_code == 0
    assert "Beware: The test spectra lack the noise of training." in clean.stderr
    noisy = run("evaluate", made / "model.nc", made / "test.nc", "--add-noise", NOISE)
    assert noisy.exit_code == 0
    assert "lack the noise" not in noisy.stderr


def test_recalibration_on_noise_free_simulations_is_warned_of_and_with_noise_it_holds(made: Path) -> None:
    warned = run("recalibrate", made / "model.nc", made / "held_out.nc", "-o", made / "narrow.nc")
    assert "intervals too narrow" in warned.stderr
    succeed(
        *("recalibrate", made / "model.nc", made / "held_out.nc", "-o", made / "right.nc"),
        *("--add-noise", made / "noise.csv"),
    )
    test = xr.open_dataset(made / "test.nc")
    noise = np.random.default_rng(7).normal(0.0, NOISE, test["reflectance"].shape)
    test = test.assign(reflectance=test["reflectance"] + noise)
    held = {name: load_inverter(made / f"{name}.nc").evaluate(test)["coverage_90"] for name in ("narrow", "right")}
    assert float(held["narrow"].max()) < 0.84 < float(held["right"].min())


def test_methods_are_compared_on_spectra_with_the_added_noise(made: Path) -> None:
    files = (made / "training.nc", made / "test.nc", "--methods", "pls,lut", "--parameters", "grain_size")
    for name, options in {
        "clean": (),
        "noisy": ("--add-noise", NOISE),
        "other": ("--add-noise", NOISE, "--seed", 1),
    }.items():
        run("compare", *files, "-o", made / f"{name}.csv", *options)
    clean, noisy, other = (
        np.genfromtxt(made / f"{name}.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")["nrmse"]
        for name in ("clean", "noisy", "other")
    )
    assert (noisy > clean).all()
    assert (noisy != other).all()


def test_the_added_noise_of_a_report_needs_a_test_set(made: Path) -> None:
    result = run("report", made / "model.nc", "-o", made / "page.html", "--add-noise", NOISE)
    assert (result.exit_code, result.stderr) == (1, "Error: --add-noise is that of the test spectra: give --test too\n")


def test_a_model_tells_its_transforms_and_its_recalibration(made: Path) -> None:
    succeed(
        *("recalibrate", made / "model.nc", made / "held_out.nc", "-o", made / "told.nc", "--add-noise", NOISE),
    )
    assert "recalibrated" not in succeed("info", made / "model.nc")
    told = succeed("info", made / "told.nc")
    assert "held-out pairs of simulations, 90 % intervals hold" in told
    assert [line.rpartition(",")[2].strip() == "log" for line in told.splitlines() if "_" in line[:16]] == [False, True]
