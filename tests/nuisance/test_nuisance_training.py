"""Nuisances on training sets: draws depend on nothing but seed, step and position, and labels stay."""

import pickle
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from dask.base import tokenize
from hypothesis import given, settings
from hypothesis import strategies as st

import specinvert
from labelled import QUICK, TRUTH_ATTRS, make_training, refuses, wavelength_coordinate
from nuisances import EVERYTHING, SOIL, SPECTRUM, Ripple
from specinvert.cubes import labels as history
from specinvert.nuisance import (
    Background,
    Chain,
    Discrepancy,
    Gain,
    Haze,
    Noise,
    Nuisance,
    Offset,
    ThinCloud,
    WavelengthShift,
    apply,
    driver,
    errors,
)

SIZES = {"time": 3, "y": 7, "x": 11}


def make_spectra(dims: tuple[str, ...] = ("time", "y", "x", "band"), dtype: Any = np.float64) -> xr.DataArray:
    """Spectra with dimensions in the order given, ``band`` among them, a few NaN."""
    pixels = [d for d in dims if d != "band"]
    rng = np.random.default_rng(3)
    values = rng.uniform(0.0, 1.0, (*(SIZES[d] for d in pixels), 8))
    values[rng.uniform(size=values.shape) < 0.01] = np.nan
    array = xr.DataArray(
        values.astype(dtype),
        dims=(*pixels, "band"),
        coords={"wavelength": wavelength_coordinate(), **{d: np.arange(SIZES[d]) * 10.0 for d in pixels}},
        attrs={"units": "1", "long_name": "reflectance"},
        name="reflectance",
    )
    return array.transpose(*dims)


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories of the same steps are the same text."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2026, 1, 1, tzinfo=tz)

    monkeypatch.setattr(history, "datetime", Stopped)


def refusing_scheduler(*arguments: Any, **options: Any) -> None:
    raise AssertionError("something was computed")


@st.composite
def chunkings(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Sample dimensions and the band in any order, and irregular chunks of the samples."""
    order = draw(st.permutations([*draw(st.sampled_from([("x",), ("y", "x"), ("time", "y", "x")])), "band"]))
    chunks = {}
    for dim in order:
        if dim != "band":
            cuts = draw(st.sets(st.integers(1, SIZES[dim] - 1), max_size=3))
            chunks[dim] = tuple(int(n) for n in np.diff([0, *sorted(cuts), SIZES[dim]]))
    return tuple(order), chunks


@settings(max_examples=30)
@given(
    chunking=chunkings(),
    steps=st.lists(st.sampled_from(EVERYTHING), min_size=1, max_size=4),
    seed=st.integers(0, 2**70),
    repeat=st.sampled_from([None, 1, 3]),
    dtype=st.sampled_from([np.float32, np.float64, ">f4"]),
)
def test_lazy_spectra_in_any_chunks_and_order_have_the_bits_of_numpy(
    chunking: tuple[tuple[str, ...], dict], steps: list[Nuisance], seed: int, repeat: int | None, dtype: Any
) -> None:
    order, chunks = chunking
    spectra = make_spectra(order, dtype)
    expected = apply(spectra, steps, seed=seed, repeat=repeat, record=True)
    lazy = apply(spectra.chunk(chunks), steps, seed=seed, repeat=repeat, record=True)
    assert lazy.chunks is not None
    xr.testing.assert_identical(lazy.compute(scheduler="synchronous"), expected)
    assert lazy.dtype == expected.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert expected.dims == (order if repeat is None else ("draw", *order))


def test_many_pieces_have_the_bits_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    training = make_training(1000)
    expected = apply(training, EVERYTHING)
    monkeypatch.setattr(driver, "PIECE_VALUES", 1)
    xr.testing.assert_identical(apply(training, EVERYTHING), expected)
    xr.testing.assert_identical(apply(training.chunk(sample=333), EVERYTHING).compute(), expected)


@pytest.mark.parametrize("position", range(4))
def test_the_band_dimension_may_stand_anywhere(position: int) -> None:
    order = ["time", "y", "x"]
    order.insert(position, "band")
    spectra = make_spectra()
    moved = apply(spectra.transpose(*order), EVERYTHING)
    assert moved.dims == tuple(order)
    xr.testing.assert_identical(moved.transpose(*spectra.dims), apply(spectra, EVERYTHING))


def test_a_single_spectrum_is_a_training_set_too() -> None:
    single = xr.DataArray(SPECTRUM, dims="band", coords={"wavelength": wavelength_coordinate()})
    expected = apply(single, EVERYTHING, record=True)
    xr.testing.assert_identical(apply(single.chunk(), EVERYTHING, record=True).compute(), expected)
    assert expected["nuisance_gain_factor"].dims == ()


@pytest.mark.parametrize("unit", ["um", "m"])
def test_wavelengths_may_come_in_any_unit(unit: str) -> None:
    spectra = make_spectra()
    converted = spectra.assign_coords(wavelength=wavelength_coordinate("band", unit))
    expected = apply(spectra, EVERYTHING).values
    np.testing.assert_allclose(apply(converted, EVERYTHING).values, expected, rtol=1e-6)


def test_building_the_graph_computes_nothing_and_computing_runs_each_block_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes: list[tuple[int, ...]] = []
    kernel = driver.NuisanceKernel.__call__

    def counted(self: Any, block: np.ndarray, position: np.ndarray) -> Any:
        shapes.append(block.shape)
        return kernel(self, block, position)

    monkeypatch.setattr(driver.NuisanceKernel, "__call__", counted)
    monkeypatch.setattr(errors, "_root", refusing_scheduler)
    training = make_training(300)
    training["reflectance"] = training["reflectance"].variable.chunk(sample=100)
    with dask.config.set(scheduler=refusing_scheduler):
        lazy = apply(training, [ThinCloud(), Discrepancy(0.02, 80.0)], repeat=2, record=True)
    assert shapes == []
    monkeypatch.undo()
    monkeypatch.setattr(driver.NuisanceKernel, "__call__", counted)
    lazy.compute(scheduler="synchronous")
    assert shapes == [(1, 100, 8)] * 6


def test_equal_models_have_equal_tokens_and_travel() -> None:
    def made(seed: int, spectra: xr.DataArray) -> str:
        return str(apply(spectra, EVERYTHING[:-1], seed=seed).data.name)

    spectra = make_spectra().chunk(x=4)
    assert made(0, spectra) == made(0, spectra)
    assert made(0, spectra) != made(1, spectra)
    with dask.config.set({"tokenize.ensure-deterministic": True}):
        assert tokenize(Chain(EVERYTHING[:-1])) == tokenize(Chain(EVERYTHING[:-1]))
    copy = pickle.loads(pickle.dumps(Chain(EVERYTHING)))
    xr.testing.assert_identical(apply(spectra, copy).compute(), apply(spectra, EVERYTHING).compute())


def test_seed_decides_and_steps_that_follow_change_no_draws() -> None:
    spectra = make_spectra()
    short = apply(spectra, [ThinCloud(), Gain(0.1)], seed=5, record=True)
    xr.testing.assert_identical(short, apply(spectra, ThinCloud() | Gain(0.1), seed=5, record=True))
    longer = apply(spectra, [ThinCloud(), Gain(0.1), Noise(0.1)], seed=5, record=True)
    for name in ("nuisance_thin_cloud_fraction", "nuisance_gain_factor"):
        np.testing.assert_array_equal(longer[name], short[name])
    other = apply(spectra, [ThinCloud(), Gain(0.1)], seed=6, record=True)
    assert not np.isin(other["nuisance_gain_factor"], short["nuisance_gain_factor"]).any()


def test_spectra_of_all_groups_and_steps_are_drawn_independently() -> None:
    training = make_training(4096)
    found = apply(training, [Gain(1.0), Offset(1.0)], record=True)
    factor = found["nuisance_gain_factor"].values - 1.0
    level = found["nuisance_offset_level"].values
    assert len(np.unique(factor)) == len(np.unique(level)) == 4096
    pairs = [(factor, level), (factor[:-64], factor[64:]), (factor[:-1], factor[1:])]
    assert all(abs(np.corrcoef(*pair)[0, 1]) < 5 / np.sqrt(4000) for pair in pairs)


def test_repeat_adds_fresh_draws_after_those_that_were_there() -> None:
    training = make_training(100)
    once, thrice, five = (apply(training, EVERYTHING, repeat=m)["reflectance"] for m in (None, 3, 5))
    np.testing.assert_array_equal(thrice[0], once)
    np.testing.assert_array_equal(five[:3], thrice)
    assert all(not np.array_equal(five[0], five[i]) for i in range(1, 5))


def test_records_are_what_was_drawn() -> None:
    training = make_training(200)
    found = apply(training, [Gain(0.1), Offset(0.1), Gain(0.2)], record=True)
    clean = training["reflectance"]
    made = (clean * found["nuisance_gain_factor"] + found["nuisance_offset_level"]) * found["nuisance_gain_2_factor"]
    np.testing.assert_allclose(found["reflectance"], made.transpose(*clean.dims), rtol=1e-12)
    assert set(found.data_vars) == set(training.data_vars)
    assert found["nuisance_offset_level"].attrs["units"] == "1"
    assert set(apply(training, Ripple(), record=True).coords) == {"wavelength", "nuisance_ripple_amplitude"}
    assert set(apply(training, Ripple()).coords) == {"wavelength"}


def test_labels_attributes_and_parameters_stay_and_packing_goes() -> None:
    training = make_training(50).assign_coords(plot=("sample", np.arange(50)))
    training["reflectance"].encoding = {"dtype": "int16", "scale_factor": 1e-4}
    kept = training.copy(deep=True)
    noisy = apply(training, Noise(0.01))
    told = noisy.attrs["history"]
    assert noisy["reflectance"].encoding == {}
    xr.testing.assert_identical(training, kept)
    del noisy.attrs["history"]
    xr.testing.assert_identical(noisy.drop_vars("reflectance"), kept.drop_vars("reflectance"))
    assert noisy["reflectance"].attrs == kept["reflectance"].attrs
    assert list(noisy["reflectance"].coords) == list(kept["reflectance"].coords)
    alone = apply(training["reflectance"], Noise(0.01))
    assert alone.attrs == {**noisy["reflectance"].attrs, "history": told}
    xr.testing.assert_identical(alone.drop_attrs(), noisy["reflectance"].drop_attrs())


@dataclass(frozen=True)
class Stripe(Nuisance):
    """A nuisance with a setting of many numbers."""

    levels: tuple[float, ...] = (0.01,) * 8

    def draw(self, rng: np.random.Generator, n: int, bands: Any) -> Any:
        return {"level": rng.normal(size=(n, 8)) * self.levels}

    def perturb(self, spectra: Any, bands: Any, draws: Any) -> Any:
        return spectra + draws["level"]


@pytest.mark.parametrize("chunks", [None, {"sample": 7}])
def test_history_tells_every_nuisance_with_its_settings_after_what_was_there(chunks: Any) -> None:
    training = make_training(20).assign_attrs(history="2020 simulated", title="table")
    training = training if chunks is None else training.chunk(chunks)
    noisy = apply(training, Gain(0.02) | Stripe(), seed=3, repeat=2)
    assert noisy.attrs["title"] == "table"
    earlier, line = noisy.attrs["history"].split("\n")
    assert earlier == "2020 simulated"
    assert line.startswith("2026-01-01T00:00:00Z specinvert ")
    assert line.endswith("nuisance Gain(std=0.02) | Stripe(levels=8 values), seed 3, 2 draws of each")
    again = apply(noisy["reflectance"], Ripple())
    assert again.attrs["history"].endswith("nuisance Ripple, seed 0")


def test_whole_numbers_become_float64_and_missing_bands_stay_missing() -> None:
    counts = make_spectra().fillna(0.0).astype(np.int16)
    assert apply(counts, Offset(0.0)).dtype == np.float64
    spectra = make_spectra()
    steps = [what for what in EVERYTHING if not isinstance(what, WavelengthShift)]
    np.testing.assert_array_equal(np.isnan(apply(spectra, steps)), np.isnan(spectra))


def test_the_variable_with_spectra_may_be_named() -> None:
    training = make_training(20)
    training["other"] = training["reflectance"] * 2.0
    with refuses(ValueError, "several variables", "spectra="):
        apply(training, Noise(0.1))
    found = apply(training, Noise(0.1), spectra="other", band_dim="band")
    xr.testing.assert_identical(found["reflectance"], training["reflectance"])
    assert not np.array_equal(found["other"], training["other"])


def test_training_takes_repeated_draws_and_a_record_as_a_parameter() -> None:
    training = apply(make_training(60), [ThinCloud(probability=1.0), Noise(0.02)], repeat=3, record=True)
    inverter = specinvert.GLLiMInverter(n_latent=0, **QUICK)
    inverter.fit(training, parameters=["water", "nuisance_thin_cloud_fraction"])
    maps = inverter.invert(make_training(10)["reflectance"])
    assert {"water", "nuisance_thin_cloud_fraction"} <= set(maps)
    assert maps["water"].attrs["units"] == TRUTH_ATTRS["water"]["units"]
    inverter.fit(training.chunk(sample=20))
    assert {"water", "dust"} <= set(inverter.model_.names)


def test_bands_in_several_chunks_are_refused_or_joined() -> None:
    training = make_training(30).chunk(band=4)
    with refuses(ValueError, "split into 2 chunks", ".chunk({'band': -1})", "rechunk='auto'"):
        apply(training, Noise(0.1))
    joined = apply(training, Noise(0.1), rechunk="auto")
    xr.testing.assert_identical(joined.compute(), apply(make_training(30), Noise(0.1)))


def test_spectra_that_do_not_fit_are_refused_before_anything_is_computed(subtests: pytest.Subtests) -> None:
    for spectra, what, options, parts in [
        (make_spectra(), Noise(0.1), {"seed": -1}, ("seed is -1", "0 or more")),
        (make_spectra(), Noise(0.1), {"seed": None}, ("seed is None", "whole number")),
        (make_spectra(), Noise(0.1), {"repeat": 0}, ("repeat is 0", "1 or more")),
        (make_spectra(), Noise(0.1), {"repeat": 1.5}, ("repeat is 1.5", "whole number")),
        (make_spectra(), Noise(0.1), {"spectra": "reflectance"}, ("spectra='reflectance'", "leave it out")),
        (make_spectra(), Noise(0.1), {"band_dim": "z"}, ("band_dim='z'", "time: 3")),
        (make_spectra(), Noise([0.1, 0.2]), {}, ("Noise", "white has 2 numbers", "8 bands")),
        (make_spectra().rename(x="draw"), Noise(0.1), {"repeat": 2}, ("'draw'", "taken", "rename")),
        (
            make_spectra().assign_coords(nuisance_gain_factor=1.0),
            Gain(0.1),
            {"record": True},
            ("'nuisance_gain_factor'", "taken"),
        ),
        (make_spectra().isel(x=[]), Noise(0.1), {}, ("empty", "'x': 0")),
        (make_spectra().astype(str), Noise(0.1), {}, ("spectra must be numbers",)),
        (make_spectra().assign_attrs(units="percent"), ThinCloud(), {}, ("ThinCloud", "'percent'", "units='percent'")),
        (make_spectra().assign_attrs(units="%"), Haze(), {}, ("Haze", "brightness=", "units='%'")),
        (make_spectra().assign_attrs(units="%"), Background(SOIL), {}, ("background", "multiply by 100")),
        (make_spectra(), Background(SOIL.isel(band=slice(7))), {}, ("background", "1 of 8 bands", "1200.00 nm")),
        (
            make_spectra().drop_vars("wavelength"),
            Background(SOIL),
            {"band_dim": "band"},
            ("background", "wavelengths"),
        ),
        *(
            (make_spectra().drop_vars("wavelength"), what, {"band_dim": "band"}, (name, "wavelength", "'band'"))
            for name, what in {
                "ThinCloud": ThinCloud(),
                "Haze": Haze(),
                "Discrepancy": Discrepancy(0.1, 80.0),
                "WavelengthShift": WavelengthShift(1.0),
            }.items()
        ),
    ]:
        for lazy in [False, True]:
            with subtests.test(what=what, options=options, lazy=lazy):
                if lazy:
                    spectra = spectra.copy(data=spectra.variable.chunk().data)
                with dask.config.set(scheduler=refusing_scheduler), refuses(ValueError, *parts):
                    apply(spectra, what, **options)
