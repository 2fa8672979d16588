"""A save that is killed or interrupted at any moment: no half file under the final name, and resuming ends the same."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import rasterio
import xarray as xr

import specinvert
from slow_maps import SUFFIXES, slow_maps
from specinvert.io import NETCDF_LOCK
from specinvert.io.writing.blocks import side_folder

pytestmark = pytest.mark.stops

SUPPORT = Path(__file__).parents[2] / "support"

N_MOMENTS = 10
EXCHANGING = ("linux", "darwin")
"""Systems that exchange two folders in one step."""
KEPT = re.compile(r"block-\d+-\d+\.npy|plan\.json|maps\.zarr(\.replaced)?")
"""What an interrupted run may leave in its hidden folder; threads of Zarr write on for a moment."""
STARTER = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from slow_maps import SUFFIXES, save_slowly
for suffix in SUFFIXES:
    save_slowly(sys.argv[2] + suffix, "synchronous")
for line in sys.stdin:
    path, moment, number = line.rstrip().split("|")
    started, child = time.monotonic(), os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = 1
        try:
            save_slowly(path)
            code = 0
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    if moment:
        time.sleep(float(moment))
        os.kill(child, int(number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, time.monotonic() - started, flush=True)
"""


def values(path: Path) -> dict[str, np.ndarray]:
    """What lies under the name, every variable."""
    if path.suffix == ".tif":
        found = {}
        for file in (path, path.with_name("maps_flag.tif")):
            with rasterio.open(file) as bands:
                found |= dict(zip(bands.descriptions, bands.read(), strict=True))
        return found
    with xr.open_dataset(path, engine="zarr" if path.suffix == ".zarr" else "netcdf4") as maps:
        return {str(name): maps[name].values for name in ("water", "water_std", "quality_flag")}


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    return all(found[name].dtype == w.dtype and found[name].tobytes() == w.tobytes() for name, w in wanted.items())


@pytest.fixture(scope="module")
def starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process that has everything loaded and no thread of dask's, and makes a fresh child for each save."""
    first = tmp_path_factory.mktemp("starter") / "first"
    command = [sys.executable, "-c", STARTER, str(SUPPORT), str(first)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def save_in_child(starter: subprocess.Popen[str], path: Path, moment: str = "", number: int = 0) -> tuple[int, float]:
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(f"{path}|{moment}|{number}\n")
    starter.stdin.flush()
    status, seconds = starter.stdout.readline().split()
    return int(status), float(seconds)


def copy(source: Path, target: Path) -> None:
    for name in [source.name, "maps_flag.tif"] if source.suffix == ".tif" else [source.name]:
        if source.is_dir():
            shutil.copytree(source, target / name)
        else:
            shutil.copyfile(source.with_name(name), target / name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_saves_stopped_at_random_moments_are_whole_or_absent_and_resume_to_the_same_bytes(
    tmp_path: Path, starter: subprocess.Popen[str], suffix: str
) -> None:
    earlier = tmp_path / "earlier" / f"maps{suffix}"
    earlier.parent.mkdir()
    specinvert.save_maps(slow_maps(0.0, shift=1.0).compute(), earlier)
    whole = tmp_path / "whole" / f"maps{suffix}"
    whole.parent.mkdir()
    save_in_child(starter, whole)
    save_in_child(starter, tmp_path / f"again{suffix}")
    _, seconds = save_in_child(starter, tmp_path / f"again{suffix}")
    old, new = values(earlier), values(whole)
    assert same(new, {name: array.values for name, array in slow_maps(0.0).compute().data_vars.items()})

    n_stopped = 0
    for trial, moment in enumerate(np.random.default_rng(0).uniform(0.0, seconds, N_MOMENTS)):
        folder = tmp_path / str(trial)
        folder.mkdir()
        path = folder / whole.name
        replaces = trial % 4 < 2
        if replaces:
            copy(earlier, folder)
        killed = trial % 2
        status, _ = save_in_child(starter, path, f"{moment:.4f}", 9 if killed else 2)
        assert status in (0, -9 if killed else 130)
        n_stopped += status != 0
        if path.exists():
            found = values(path)
            assert same(found, new) or (replaces and same(found, old))
        else:
            assert status != 0
            assert not replaces or (suffix == ".zarr" and sys.platform not in EXCHANGING)
        if not killed and side_folder(path).exists():
            assert not [kept.name for kept in side_folder(path).iterdir() if not KEPT.fullmatch(kept.name)]
        specinvert.save_maps(slow_maps(0.0), path, resume=True)
        assert same(values(path), new)
        assert not [p.name for p in folder.iterdir() if p.name.startswith(".")]
    assert n_stopped >= N_MOMENTS / 3


def test_blocks_without_a_plan_are_nobody_s_and_never_resumed(tmp_path: Path) -> None:
    path = tmp_path / "maps.nc"
    side_folder(path).mkdir()
    for row, column in np.ndindex(3, 2):
        with (side_folder(path) / f"block-{row}-{column}.npy").open("wb") as file:
            for dtype in (np.float32, np.float32, np.uint8):
                np.save(file, np.ones((40, 30), dtype))
    specinvert.save_maps(slow_maps(0.0), path, resume=True)
    assert values(path)["water"][-1, -1] == 119 + 59


@pytest.mark.skipif(sys.platform not in EXCHANGING, reason="the system exchanges no folders")
def test_a_store_is_replaced_in_one_step_so_that_its_name_is_never_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "maps.zarr"
    specinvert.save_maps(slow_maps(0.0, shift=1.0), path)

    def refuse(*args: object) -> None:
        raise AssertionError("the store was moved out of the way")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        specinvert.save_maps(slow_maps(0.0), path)
    assert values(path)["water"][0, 0] == 0
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    monkeypatch.setattr("specinvert.io.atomic._exchange", lambda *names: False)
    specinvert.save_maps(slow_maps(0.0, shift=1.0), path)
    assert values(path)["water"][0, 0] == 1
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_netcdf_file_is_written_under_the_lock_that_cubes_are_read_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a lock of the file's own, whose order with the others is not that of reading")

    monkeypatch.setattr("xarray.backends.netCDF4_.get_write_lock", refuse)
    specinvert.save_maps(slow_maps(0.0), tmp_path / "maps.nc")
    assert values(tmp_path / "maps.nc")["water"][-1, -1] == 119 + 59


def test_a_stop_is_told_where_what_is_left_cannot_be_removed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(maps: xr.Dataset, store: Path, **options: object) -> None:
        (Path(store) / "written by a thread").mkdir(parents=True)
        raise KeyboardInterrupt

    def filling(path: Path) -> None:
        raise OSError(39, "Directory not empty", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(xr.Dataset, "to_zarr", stopped)
        patch.setattr("specinvert.io.writing.writers.shutil.rmtree", filling)
        with pytest.raises(KeyboardInterrupt):
            specinvert.save_maps(slow_maps(0.0), tmp_path / "maps.zarr")
    assert not (tmp_path / "maps.zarr").exists()
    specinvert.save_maps(slow_maps(0.0), tmp_path / "maps.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["maps.zarr"]
    assert same(values(tmp_path / "maps.zarr"), {n: a.values for n, a in slow_maps(0.0).compute().data_vars.items()})


def test_an_interrupt_that_leaves_the_lock_of_netcdf_taken_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specinvert.io.writing.stores._PATIENCE", 0.1)

    def interrupted(*args: object) -> None:
        NETCDF_LOCK.acquire()
        raise KeyboardInterrupt

    try:
        with monkeypatch.context() as patch:
            patch.setattr(xr.Dataset, "dump_to_store", interrupted)
            with pytest.raises(KeyboardInterrupt):
                specinvert.save_maps(slow_maps(0.0), tmp_path / "maps.nc")
    finally:
        NETCDF_LOCK.release()
    specinvert.save_maps(slow_maps(0.0), tmp_path / "maps.nc")
    assert values(tmp_path / "maps.nc")["water"][-1, -1] == 119 + 59
