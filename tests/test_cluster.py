"""On a dask cluster of real worker processes: the same bits as here, quietly, and files written whole."""

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from labelled import assert_close, fitted, make_cube, make_training

import specinvert
from specinvert import GLLiMInverter
from specinvert.cubes.chunks import active_client

SETTINGS: dict[str, Any] = {"n_components": 4, "n_latent": 1, "max_iter": 5, "tol": 0.0, "random_state": 0}
SECONDS = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as local:
        yield local


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected, warnings.catch_warnings():
        warnings.filterwarnings("error", message="Sending large graph")
        yield connected


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("sigma", ["iso", "full"])
def test_training_gives_the_same_bits_as_here(client: Client, persist: bool, sigma: str) -> None:
    training = make_training(600).chunk(sample=100)
    there = GLLiMInverter(sigma=sigma, **SETTINGS).fit(training, persist=persist)
    assert active_client() is client
    with dask.config.set(scheduler="threads"):
        assert active_client() is None
        here = GLLiMInverter(sigma=sigma, **SETTINGS).fit(training)
    np.testing.assert_array_equal(there.log_likelihoods_, here.log_likelihoods_)
    for name in ("pi", "c", "Gamma", "A", "b", "Sigma"):
        np.testing.assert_array_equal(getattr(there.parameters_, name), getattr(here.parameters_, name))


def test_maps_are_written_five_times_within_time_and_equal(client: Client, tmp_path: Path) -> None:
    cube = make_cube(dtype=np.float32)
    expected = fitted(1).invert(cube)
    for number in range(5):
        path = tmp_path / f"maps-{number}.nc"
        start = time.monotonic()
        specinvert.save_maps(fitted(1).invert(cube.chunk(y=1, x=2)), path)
        assert time.monotonic() - start < SECONDS
        with xr.open_dataset(path, decode_coords="all") as found:
            assert_close(found.load()[list(expected)], expected, 0.0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"maps-{n}.nc" for n in range(5)]


def test_a_killed_worker_changes_nothing_but_the_time(client: Client, tmp_path: Path) -> None:
    cube = make_cube(dtype=np.float32)
    killed: list[str] = []

    def kill_one(state: Any) -> None:
        if state.blocks == 2 and not killed:
            killed.append(next(iter(client.scheduler_info()["workers"])))
            client.restart_workers([killed[0]], timeout=30)

    path = tmp_path / "maps.nc"
    specinvert.save_maps(fitted(1).invert(cube.chunk(y=1, x=2)), path, progress=kill_one)
    assert killed
    with xr.open_dataset(path, decode_coords="all") as found:
        assert_close(found.load()[list(fitted(1).invert(cube))], fitted(1).invert(cube), 0.0)
