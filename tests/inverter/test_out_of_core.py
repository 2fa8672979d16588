"""Training sets on disk: the same bits from many files, Zarr or memory in the same chunks, of any and of no size."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

from labelled import TRUTH_ATTRS, assert_same_fit, make_training, spectra_of, wavelength_coordinate
from specinvert import GLLiMInverter
from specinvert.cubes import training as reading
from specinvert.cubes.training import DaskChunks, TrainingChoice, read_training
from specinvert.gllim.em.source import moments_of

SUPPORT = Path(__file__).parents[1] / "support"

RAGGED = (40, 1, 0, 3, 106)
"""Sizes of chunks: many, one and no samples."""


def fit(training: xr.Dataset, **arguments: Any) -> GLLiMInverter:
    """A quick fit from a start by k-means."""
    inverter = GLLiMInverter(n_components=3, n_latent=1, tol=0.0, max_iter=3, random_state=0)
    return inverter.fit(training, parameters=["water", "dust"], **arguments)


def pieces() -> list[xr.Dataset]:
    """The training set in pieces of ragged sizes."""
    ends = np.cumsum([0, *RAGGED])
    return [make_training().isel(sample=slice(a, b)) for a, b in pairwise(ends)]


def many_netcdf(folder: Path) -> xr.Dataset:
    paths = [folder / f"part-{number}.nc" for number in range(len(RAGGED))]
    for path, piece in zip(paths, pieces(), strict=True):
        piece.to_netcdf(path)
    return xr.open_mfdataset(
        paths,
        combine="nested",
        concat_dim="sample",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
    )


def many_zarr(folder: Path) -> xr.Dataset:
    paths = [folder / f"part-{number}.zarr" for number in range(len(RAGGED))]
    for path, piece in zip(paths, pieces(), strict=True):
        piece.to_zarr(path, consolidated=False)
    return xr.concat([xr.open_zarr(path, consolidated=False) for path in paths], "sample", data_vars="minimal")


def one_netcdf(folder: Path) -> xr.Dataset:
    make_training().to_netcdf(folder / "training.nc")
    return xr.open_dataset(folder / "training.nc", chunks={"sample": RAGGED})


def one_zarr(folder: Path) -> xr.Dataset:
    make_training().to_zarr(folder / "training.zarr", consolidated=False)
    return xr.open_zarr(folder / "training.zarr", consolidated=False).chunk(sample=RAGGED)


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("stored", [many_netcdf, many_zarr, one_netcdf, one_zarr])
def test_training_from_files_gives_the_bits_of_the_same_chunks_in_memory(
    stored: Callable[[Path], xr.Dataset], persist: bool, tmp_path: Path
) -> None:
    expected = fit(make_training().chunk(sample=RAGGED))
    with stored(tmp_path) as training, dask.config.set(scheduler="threads", num_workers=3):
        found = fit(training, persist=persist)
    assert_same_fit(found, expected)
    np.testing.assert_array_equal(found.parameters_.A, expected.parameters_.A)
    assert_same_fit(found, fit(make_training()), 1e-10)


@pytest.mark.parametrize("sizes", [(150,), (0, 150), (1,) * 150, (75, 0, 0, 75)])
def test_chunks_of_any_size_give_the_fit_in_memory(sizes: tuple[int, ...]) -> None:
    assert_same_fit(fit(make_training().chunk(sample=sizes)), fit(make_training()), 1e-10)


def make_grid() -> xr.Dataset:
    """A gridded look-up table with a draw of noise at each node; some values are missing."""
    water, dust = np.linspace(0.1, 1.9, 12), np.linspace(0.05, 0.95, 10)
    values = np.stack([spectra_of(*np.meshgrid(water, dust, indexing="ij"))] * 3)
    values += 0.02 * np.random.default_rng(3).normal(size=values.shape)
    values[1, 3, 4:6, 2] = np.nan
    return xr.Dataset(
        {"reflectance": (("draw", "water", "dust", "band"), values)},
        coords={
            "water": ("water", water, TRUTH_ATTRS["water"]),
            "dust": ("dust", dust, TRUTH_ATTRS["dust"]),
            "wavelength": wavelength_coordinate(),
        },
    )


def test_a_grid_chunked_along_every_dimension_is_read_block_by_block_and_starts_as_in_memory(tmp_path: Path) -> None:
    grid = make_grid()
    grid.to_zarr(tmp_path / "grid.zarr", consolidated=False)
    stored = xr.open_zarr(tmp_path / "grid.zarr", consolidated=False).chunk(draw=2, water=5, dust=(4, 6))
    source = read_training(stored, TrainingChoice(parameters=["water", "dust"], missing="drop", persist=False)).source
    assert isinstance(source, DaskChunks)
    blocks = np.multiply.outer((2, 1), np.multiply.outer((5, 5, 2), (4, 6))).ravel()
    dropped = blocks - [len(numbers) for numbers in source.numbers]
    assert dropped.sum() == dropped.max() == 2
    assert_same_fit(fit(stored, missing="drop"), fit(grid, missing="drop"), 1e-10)
    weights, numbers = np.linspace(0.5, 2.0, 360), np.arange(360).reshape(3, 12, 10)
    by_sample = weights[numbers]
    assert_same_fit(
        fit(stored, missing="drop", weights=weights), fit(grid, missing="drop", weights=by_sample.ravel()), 1e-10
    )


def test_a_sample_of_rows_is_the_same_in_any_chunks() -> None:
    grid = make_grid().fillna(0.5)
    whole = read_training(grid, TrainingChoice(parameters=["water", "dust"])).source.sample(50)
    lazy = read_training(
        grid.chunk(draw=1, water=5, dust=4), TrainingChoice(parameters=["water", "dust"])
    ).source.sample(50)
    np.testing.assert_array_equal(lazy.spectra, whole.spectra)
    np.testing.assert_array_equal(lazy.parameters, whole.parameters)


def test_many_small_chunks_are_merged_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MERGED_CHUNKS", 10)
    expected = fit(make_training())
    for size, n_chunks in ((1, 10), (40, 4), (7, 11)):
        training = make_training().chunk(sample=size)
        source = read_training(training).source
        assert isinstance(source, DaskChunks)
        assert len(source.chunks) == n_chunks
        assert_same_fit(fit(training), expected, 1e-10)
    monkeypatch.setattr(reading, "MERGED_BYTES", 5 * 8 * 8)
    source = read_training(make_training().chunk(sample=1)).source
    assert isinstance(source, DaskChunks)
    assert len(source.chunks) == 30


def test_the_graph_of_a_sum_is_small(tmp_path: Path) -> None:
    make_training(640).chunk(sample=10).to_zarr(tmp_path / "training.zarr", consolidated=False)
    training = xr.open_zarr(tmp_path / "training.zarr", consolidated=False)
    source = read_training(training, TrainingChoice(persist=False)).source
    assert isinstance(source, DaskChunks)
    (total,) = dask.optimize(source.delayed_sum(moments_of, None, 1))
    assert len(pickle.dumps(dict(total.__dask_graph__()))) / 64 < 2000


def test_each_block_is_read_once_for_a_sum() -> None:
    read: list[int] = []

    def count(block: np.ndarray) -> np.ndarray:
        read.append(len(block))
        return block

    training = make_training().chunk(sample=30)
    lazy = da.map_blocks(count, training["reflectance"].data, meta=np.empty((0, 0)))
    source = read_training(
        training.assign(reflectance=(("sample", "band"), lazy)), TrainingChoice(persist=False)
    ).source
    read.clear()
    source.sum(moments_of)
    assert read == [30] * 5


def test_evaluating_lazily_before_distributed_is_imported_leaves_its_configuration_whole() -> None:
    pytest.importorskip("distributed")
    code = (
        "import sys, dask\n"
        f"sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from labelled import make_training\n"
        "from specinvert import GLLiMInverter\n"
        "assert 'distributed' not in sys.modules\n"
        "training = make_training()\n"
        "inverter = GLLiMInverter(2, tol=1.0, random_state=0).fit(training)\n"
        "inverter.evaluate(training.chunk(sample=50))\n"
        "import distributed\n"
        "assert len(dask.config.get('distributed')) > 5\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
