"""Maps saved block by block: stopped at any moment, nothing false is left, and resuming gives the same maps."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import specinvert
from labelled import assert_close, fitted, make_cube, refuses
from specinvert.io import file_identity
from specinvert.io.writing.blocks import BlockProgress, ProgressCallback, block_layout, kept_blocks, side_folder

pytestmark = pytest.mark.stops

SUPPORT = Path(__file__).parents[2] / "support"

SUFFIXES = ["maps.nc", "maps.tif"]


def lazy_maps() -> xr.Dataset:
    return fitted(1).invert(make_cube(dtype=np.float32).chunk(y=2, x=3))


def reopened(path: Path) -> xr.Dataset:
    if path.suffix == ".nc":
        return xr.open_dataset(path, decode_coords="all").load()
    bands = xr.open_dataset(path, engine="rasterio", band_as_variable=True).load()
    return bands.rename({name: bands[name].attrs["long_name"] for name in bands.data_vars})


def computed(maps: xr.Dataset, folder: Path, progress: ProgressCallback | None = None) -> xr.Dataset:
    """The maps as they are written block by block."""
    found = maps.copy(data={name: np.zeros(array.shape, array.dtype) for name, array in maps.data_vars.items()})

    def write(name: str, place: tuple[slice, ...], values: np.ndarray) -> None:
        found[name].values[place] = values

    with kept_blocks(maps, folder, progress=progress) as run:
        run.compute(write)
    return found


class Stop(Exception):
    """Raised in the middle of a run."""


def stop_after(n_blocks: int) -> object:
    def progress(state: BlockProgress) -> None:
        if state.blocks >= n_blocks:
            raise Stop

    return progress


@pytest.mark.parametrize("name", SUFFIXES)
def test_maps_written_block_by_block_equal_those_in_memory(tmp_path: Path, name: str) -> None:
    maps = lazy_maps()
    specinvert.save_maps(maps, tmp_path / name)
    specinvert.save_maps(maps.compute(), tmp_path / f"whole-{name}")
    xr.testing.assert_identical(
        reopened(tmp_path / name).drop_attrs(), reopened(tmp_path / f"whole-{name}").drop_attrs()
    )
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


@pytest.mark.parametrize("name", SUFFIXES)
@pytest.mark.parametrize("done", [1, 3, 5])
def test_a_stopped_run_leaves_no_file_and_resumes_to_the_same_maps(tmp_path: Path, name: str, done: int) -> None:
    path = tmp_path / name
    with pytest.raises(Stop):
        specinvert.save_maps(lazy_maps(), path, progress=stop_after(done))
    assert [p.name for p in tmp_path.iterdir()] == [side_folder(path).name]
    kept = len(list(side_folder(path).glob("block-*.npy")))
    assert kept >= done

    states: list[BlockProgress] = []
    specinvert.save_maps(lazy_maps(), path, resume=True, progress=states.append)
    assert states[0].blocks == kept
    assert len(states) == 1 + 6 - kept
    assert (states[-1].blocks, states[-1].pixels) == (6, 30)
    specinvert.save_maps(lazy_maps(), tmp_path / f"once-{name}")
    assert_close(reopened(path), reopened(tmp_path / f"once-{name}"), 0.0)
    assert not side_folder(path).exists()


READ_INVERT_WRITE = """
import sys
from pathlib import Path
import dask
import numpy as np
import xarray as xr
sys.path.insert(0, sys.argv[2])
from labelled import fitted
import specinvert
folder = Path(sys.argv[1])
with dask.config.set(scheduler="threads", num_workers=4):
    for number in range(20):
        cube = specinvert.open_cube(folder / "cube.nc", chunks={"y": 2, "x": 3})
        specinvert.save_maps(fitted(1).invert(cube), folder / f"maps-{number % 2}.nc")
        with xr.open_dataset(folder / f"maps-{number % 2}.nc", chunks={}) as maps:
            assert np.isfinite(maps.water).any()
"""


def test_reading_and_writing_netcdf_from_many_threads_twenty_times_ends_well(tmp_path: Path) -> None:
    make_cube(dtype=np.float32).to_dataset().to_netcdf(tmp_path / "cube.nc")
    command = [sys.executable, "-c", READ_INVERT_WRITE, str(tmp_path), str(SUPPORT)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cube.nc", "maps-0.nc", "maps-1.nc"]


def test_a_resumed_run_writes_blocks_that_were_kept_and_others_once_each(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        computed(lazy_maps(), tmp_path / "side", progress=stop_after(3))
    written: list[tuple[slice, ...]] = []
    with kept_blocks(lazy_maps(), tmp_path / "side", resume=True) as run:
        run.compute(lambda name, place, values: written.append(place) if name == "water" else None)
    corners = [(rows.start, columns.start) for rows, columns in written]
    assert sorted(corners) == [(y, x) for y in (0, 2, 4) for x in (0, 3)]


def test_lazy_dates_truths_and_coordinates_are_saved_with_the_maps(tmp_path: Path) -> None:
    maps = lazy_maps()
    dates = da.full((5, 6), np.datetime64("2026-11-28T10:00", "ns"), chunks=(2, 3))
    lazy = maps.assign(dry=maps.water < 1.0, date=(("y", "x"), dates))
    lazy = lazy.assign_coords(lon=(("y", "x"), da.arange(30.0, chunks=7).reshape(5, 6)))
    for name in ("maps.nc", "maps.zarr"):
        specinvert.save_maps(lazy, tmp_path / name)
        with xr.open_dataset(tmp_path / name, engine="zarr" if name.endswith("zarr") else None) as found:
            for variable in ("water", "dry", "date", "lon"):
                np.testing.assert_array_equal(found[variable], lazy[variable])
                assert found[variable].dtype == lazy[variable].dtype


def test_resuming_with_another_model_cube_or_chunks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "maps.nc"
    with pytest.raises(Stop):
        specinvert.save_maps(lazy_maps(), path, progress=stop_after(1))
    cube = make_cube(dtype=np.float32)
    for other in (
        fitted(0).invert(cube.chunk(y=2, x=3)),
        fitted(1).invert((cube + 0).chunk(y=2, x=3) * np.float32(1.5)),
        fitted(1).invert(cube.chunk(y=3, x=3)),
    ):
        with refuses(ValueError, "holds blocks of another run", "without resume to start anew"):
            specinvert.save_maps(other, path, resume=True)
    specinvert.save_maps(fitted(0).invert(cube.chunk(y=2, x=3)), path)
    assert path.exists()


def test_each_block_is_computed_once_for_all_variables(tmp_path: Path) -> None:
    calls: list[tuple[int, ...]] = []

    def kernel(block: np.ndarray) -> np.ndarray:
        calls.append(block.shape)
        return block

    shared = da.ones((4, 6), chunks=(2, 3)).map_blocks(kernel, meta=np.empty((0, 0)))
    maps = xr.Dataset({"a": (("y", "x"), shared), "b": (("y", "x"), 2 * shared)})
    found = computed(maps, tmp_path / "side")
    assert len(calls) == 4
    assert_close(found, maps.compute(), 0.0)


def test_progress_counts_pixels_and_tells_the_time_left(tmp_path: Path) -> None:
    states: list[BlockProgress] = []
    computed(lazy_maps(), tmp_path / "side", progress=states.append)
    assert [s.blocks for s in states] == list(range(7))
    assert [s.pixels for s in states] == sorted(s.pixels for s in states)
    assert states[-1].pixels == states[-1].n_pixels == 30
    assert states[-1].seconds_left == 0.0
    assert states[3].pixels_per_second > 0.0


def test_variables_with_core_dimensions_share_the_grid_of_pixel_blocks(tmp_path: Path) -> None:
    cube = make_cube().chunk(y=2, x=4)
    maps = fitted(1).invert(cube, outputs=("mean", "cov", "latent", "log_evidence", "flag"))
    assert block_layout(maps) == {"y": (2, 2, 1), "x": (4, 2)}
    assert_close(computed(maps, tmp_path / "side"), maps.compute(), 0.0)


def test_maps_of_different_grids_are_saved_all_the_same(tmp_path: Path) -> None:
    maps = xr.Dataset({"a": (("y", "x"), da.ones((4, 6), chunks=2)), "b": (("y", "x"), da.zeros((4, 6), chunks=3))})
    maps["total"] = maps.a.sum()
    assert block_layout(maps) is None
    specinvert.save_maps(maps, tmp_path / "maps.nc")
    assert_close(reopened(tmp_path / "maps.nc"), maps.compute(), 0.0)


def test_the_side_folder_holds_arrays_only(tmp_path: Path) -> None:
    maps, held = lazy_maps(), {}

    def look(state: BlockProgress) -> None:
        if state.blocks == state.n_blocks:
            held.update({path.name: path.read_bytes() for path in (tmp_path / "side").iterdir()})

    computed(maps, tmp_path / "side", progress=look)
    assert not (tmp_path / "side").exists()
    assert sorted(held) == [*(f"block-{i}-{j}.npy" for i in range(3) for j in range(2)), "plan.json"]
    assert set(json.loads(held["plan.json"])) == {"digest", "source", "run"}
    file = io.BytesIO(held["block-1-1.npy"])
    for name in maps.data_vars:
        values = np.load(file, allow_pickle=False)
        np.testing.assert_array_equal(values, maps[name][2:4, 3:6])


def test_zarr_maps_open_again_as_they_were_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "maps.zarr"
    with pytest.raises(Stop):
        specinvert.save_maps(lazy_maps(), path, progress=stop_after(2))
    assert not path.exists()
    specinvert.save_maps(lazy_maps(), path, resume=True)
    with xr.open_zarr(path, decode_coords="all") as found:
        assert_close(found.load().reset_coords(drop=True), lazy_maps().compute().reset_coords(drop=True), 0.0)
        assert found.rio.crs.to_epsg() == 32633
    specinvert.save_maps(fitted(0).invert(make_cube(dtype=np.float32)), path)
    assert [p.name for p in tmp_path.iterdir()] == ["maps.zarr"]


def test_a_cube_in_zarr_opens_lazily_like_one_in_netcdf(tmp_path: Path) -> None:
    cube = make_cube(dtype=np.float32)
    cube.to_dataset().to_zarr(tmp_path / "cube.zarr", consolidated=False)
    opened = specinvert.open_cube(tmp_path / "cube.zarr", chunks={"y": 2})
    assert opened.chunks is not None
    assert_close(fitted(1).invert(opened).compute(), fitted(1).invert(cube), 0.0)


def test_a_folder_that_is_no_zarr_store_is_refused(tmp_path: Path) -> None:
    with refuses(ValueError, str(tmp_path), "not a file"):
        specinvert.open_cube(tmp_path)
    (tmp_path / "zarr.json").write_text("{")
    with refuses(ValueError, str(tmp_path), "not a readable Zarr store"):
        specinvert.open_cube(tmp_path)


def test_a_run_is_not_resumed_on_a_zarr_cube_that_was_written_again_in_place(tmp_path: Path) -> None:
    cube, path = make_cube(dtype=np.float32).rename("r"), tmp_path / "cube.zarr"
    cube.chunk(y=2, x=3).to_dataset().to_zarr(path, consolidated=False)
    first = specinvert.open_cube(path, chunks={"y": 2, "x": 3})
    with pytest.raises(Stop):
        specinvert.save_maps(fitted(1).invert(first), tmp_path / "maps.nc", progress=stop_after(2))
    again = specinvert.open_cube(path, chunks={"y": 2, "x": 3})
    assert again.data.name == first.data.name
    times = os.stat(path)
    array = zarr.open_group(path, mode="r+")["r"]
    array[:] = array[:] * np.float32(0.5)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with refuses(ValueError, "holds blocks of another run", "without resume to start anew"):
        maps = fitted(1).invert(specinvert.open_cube(path, chunks={"y": 2, "x": 3}))
        specinvert.save_maps(maps, tmp_path / "maps.nc", resume=True)


def test_maps_of_a_cube_that_changes_while_they_are_made_are_not_published(tmp_path: Path) -> None:
    make_cube(dtype=np.float32).to_dataset(name="r").to_netcdf(tmp_path / "cube.nc")
    cube = specinvert.open_cube(tmp_path / "cube.nc", chunks={"y": 2})

    def change(state: BlockProgress) -> None:
        os.utime(tmp_path / "cube.nc", ns=(0, state.blocks))

    with refuses(ValueError, "written again while maps were made"):
        specinvert.save_maps(fitted(1).invert(cube), tmp_path / "maps.nc", progress=change)
    assert not (tmp_path / "maps.nc").exists()


def test_the_identity_of_a_file_is_that_of_its_parts(tmp_path: Path) -> None:
    part = tmp_path / "store" / "c" / "0"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"one")
    before = file_identity(tmp_path / "store")
    assert file_identity(tmp_path / "store") == before
    part.write_bytes(b"two!")
    assert file_identity(tmp_path / "store") != before
    assert file_identity(part) == file_identity(part)
