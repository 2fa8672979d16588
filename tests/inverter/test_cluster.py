"""On a dask cluster of real worker processes: the same bits as here, quietly, and files written whole."""

import copy
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.utils import get_mp_context

import specinvert
from labelled import assert_close, assert_same_fit, fitted, make_cube, make_training
from specinvert import GLLiMInverter
from specinvert.cubes.training import DaskChunks, active_client, read_training
from specinvert.gllim.em.source import Chunk

SETTINGS: dict[str, Any] = {"n_components": 4, "n_latent": 1, "max_iter": 5, "tol": 0.0, "random_state": 0}
SECONDS = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two workers; none is given up because its process happens to be down the usual 15 s after it was killed first.

    Their processes are forked from one that has everything imported, so that those that are killed are back soon.
    """
    options = {
        "distributed.deploy.lost-worker-timeout": "1 hour",
        "distributed.worker.multiprocessing-method": "forkserver",
    }
    with dask.config.set(options):
        get_mp_context().set_forkserver_preload(
            ["distributed", "specinvert.inverter", "specinvert.io.writing", "labelled"]
        )
    with (
        dask.config.set(options),
        LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=":0") as local,
    ):
        yield local


def all_up(cluster: LocalCluster, client: Client) -> dict[str, int]:
    """The process of each worker, once its nanny knows it runs too: of one killed before, the nanny loses track."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        processes = [nanny.process for nanny in cluster.workers.values()]
        pids = {process.worker_address: process.pid for process in processes if process.status == Status.running}
        if len(pids) == 2 and set(pids) == set(client.scheduler_info()["workers"]):
            return pids
        time.sleep(0.05)
    raise TimeoutError(f"two workers are not up after {SECONDS} s")


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected, warnings.catch_warnings():
        warnings.filterwarnings("error", message="Sending large graph")
        all_up(cluster, connected)
        yield connected


def stored_training(folder: Path, n: int = 600, chunk: int = 100) -> xr.Dataset:
    """A training set on disk."""
    make_training(n).chunk(sample=chunk).to_zarr(folder / "training.zarr", consolidated=False)
    return xr.open_zarr(folder / "training.zarr", consolidated=False)


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


@pytest.mark.stops
def test_a_killed_worker_changes_nothing_but_the_time(cluster: LocalCluster, client: Client, tmp_path: Path) -> None:
    cube = make_cube(dtype=np.float32)
    killed: list[int] = []

    def kill_one(state: Any) -> None:
        if state.blocks == 2 and not killed:
            killed.append(next(iter(all_up(cluster, client).values())))
            os.kill(killed[0], signal.SIGKILL)

    path = tmp_path / "maps.nc"
    specinvert.save_maps(fitted(1).invert(cube.chunk(y=1, x=2)), path, progress=kill_one)
    assert killed
    with xr.open_dataset(path, decode_coords="all") as found:
        assert_close(found.load()[list(fitted(1).invert(cube))], fitted(1).invert(cube), 0.0)


@pytest.mark.stops
@pytest.mark.parametrize("persist", [True, False])
def test_workers_killed_between_iterations_change_nothing_but_the_time(
    cluster: LocalCluster, client: Client, persist: bool, tmp_path: Path
) -> None:
    training = stored_training(tmp_path)
    seen: list[set[int]] = []

    def progress(label: str, iteration: int, log_likelihood: float) -> None:
        pids = list(all_up(cluster, client).values())
        seen.append(set(pids))
        if iteration < 2:
            for pid in pids[: iteration + 1]:
                os.kill(pid, signal.SIGKILL)

    found = GLLiMInverter(**SETTINGS).fit(training, persist=persist, progress=progress)
    assert [len(before - after) for before, after in pairwise(seen)] == [1, 2, 0, 0]
    with dask.config.set(scheduler="threads"):
        assert_same_fit(found, GLLiMInverter(**SETTINGS).fit(training))


def read_or_die(block: np.ndarray, folder: Path) -> np.ndarray:
    """The block; the process of the thirtieth reader dies, once."""
    (folder / f"read-{time.monotonic_ns()}").touch()
    if len(list(folder.glob("read-*"))) >= 30 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.stops
def test_a_worker_that_dies_at_a_chunk_changes_nothing_but_the_time(client: Client, tmp_path: Path) -> None:
    training = stored_training(tmp_path)
    lazy = da.map_blocks(read_or_die, training["reflectance"].data, tmp_path, meta=np.empty((0, 0)))
    deadly = training.assign(reflectance=training["reflectance"].copy(data=lazy))
    found = GLLiMInverter(**SETTINGS).fit(deadly, persist=False)
    assert (tmp_path / "died").exists()
    with dask.config.set(scheduler="threads"):
        assert_same_fit(found, GLLiMInverter(**SETTINGS).fit(training))


@pytest.mark.parametrize("persist", [True, False])
def test_nothing_piles_up_on_the_cluster_and_graphs_are_small(
    cluster: LocalCluster, client: Client, persist: bool, tmp_path: Path
) -> None:
    training = stored_training(tmp_path, 10_000, 1000)
    held: list[int] = []

    def progress(label: str, iteration: int, log_likelihood: float) -> None:
        patience = time.monotonic() + 5.0
        while held and len(cluster.scheduler.tasks) > held[0] and time.monotonic() < patience:
            time.sleep(0.01)  # tasks are forgotten a moment after their results are
        held.append(len(cluster.scheduler.tasks))

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "150 kB"}):
        GLLiMInverter(**SETTINGS).fit(training, persist=persist, progress=progress)
    assert max(held) == held[0] < 100


class Traveller:
    """Counts the rows of a chunk; heavy, and writes down each process in which it arrives."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (self.file, np.zeros(100_000))

    def __call__(self, chunk: Chunk) -> int:
        return len(chunk)


def arrive(file: Path, load: np.ndarray) -> Traveller:
    with file.open("a") as lines:
        lines.write(f"{os.getpid()}\n")
    return Traveller(file)


def test_what_a_sum_needs_is_sent_once_to_each_worker(client: Client, tmp_path: Path) -> None:
    source = read_training(stored_training(tmp_path, chunk=10)).source
    assert isinstance(source, DaskChunks)
    assert len(source.chunks) == 60
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "100 kB"}):
        assert source.sum(Traveller(tmp_path / "arrivals")) == 600
    arrivals = Counter(map(int, (tmp_path / "arrivals").read_text().split()))
    assert {pid for pid in arrivals if pid != os.getpid()} <= set(client.run(os.getpid).values())
    assert max(count for pid, count in arrivals.items() if pid != os.getpid()) == 1, arrivals


class Heavy(np.ndarray):
    """Spectra of a size to be warned of, that write down each process in which they arrive."""

    def __reduce__(self) -> tuple[Any, ...]:
        return heavy, (self.file, np.asarray(self))


def heavy(file: Path, values: np.ndarray) -> Heavy:
    with file.open("a") as lines:
        lines.write(f"{os.getpid()}\n")
    array = values.view(Heavy)
    array.file = file
    return array


@pytest.mark.parametrize("suffix", ["nc", "zarr", "tif", None])
def test_a_model_of_16_mb_is_sent_quietly_and_not_with_every_block(
    client: Client, tmp_path: Path, suffix: str | None
) -> None:
    inverter = copy.copy(fitted(1))
    file, spectra = tmp_path / "arrivals", np.zeros((250_000, 8))
    inverter._take(replace(inverter.model_, held_out=heavy(file, spectra)))
    file.write_text("")
    cube = make_cube(dtype=np.float32).chunk(y=1, x=2)
    if suffix is None:
        test = make_training(60)
        assert_close(inverter.evaluate(test.chunk(sample=5)), fitted(1).evaluate(test))
    else:
        specinvert.save_maps(inverter.invert(cube), tmp_path / f"maps.{suffix}")
        assert (tmp_path / f"maps.{suffix}").exists()
    arrivals = Counter(pid for pid in map(int, file.read_text().split()) if pid != os.getpid())
    assert set(arrivals) <= set(client.run(os.getpid).values())
    assert arrivals
    # again where the task that holds it changes workers, which a loaded machine makes it do; blocks are 12 or 15
    assert sum(arrivals.values()) <= 6, arrivals


def fail(chunk: Chunk) -> int:
    raise ValueError("not this chunk")


def test_an_error_of_the_work_itself_is_raised_as_it_is(client: Client, tmp_path: Path) -> None:
    source = read_training(stored_training(tmp_path)).source
    with pytest.raises(ValueError, match=r"^not this chunk$"):
        source.sum(fail)


@pytest.mark.stops
@pytest.mark.parametrize("persist", [True, False])
def test_a_cluster_closed_during_training_is_reported(persist: bool, tmp_path: Path) -> None:
    training = stored_training(tmp_path)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as local, Client(local):
        with pytest.raises(RuntimeError, match=r"^the cluster was closed .*checkpoint=") as caught:
            GLLiMInverter(**SETTINGS).fit(training, persist=persist, progress=lambda *_: local.close())
        assert "\n" not in str(caught.value)
