"""A file is written whole or not at all."""

import os

import dask.array as da
import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from xarray.backends import NetCDF4DataStore

from files import maps_of
from specinvert.io.atomic import NETCDF_LOCK, atomic_path
from specinvert.io.writing.writers import save_maps

pytestmark = pytest.mark.stops

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)


class Interrupted(Exception):
    pass


def failing_maps():
    def fail(block):
        raise Interrupted

    broken = da.ones((4, 5), chunks=2, dtype=np.float32).map_blocks(fail, meta=np.empty((0, 0), np.float32))
    return xr.Dataset({"water": (("y", "x"), broken)})


@pytest.mark.parametrize("name", ["maps.nc", "maps.tif"])
@pytest.mark.parametrize("earlier", [None, b"earlier result"])
def test_a_computation_that_fails_leaves_what_was_there(tmp_path, name, earlier):
    if earlier is not None:
        (tmp_path / name).write_bytes(earlier)
    with pytest.raises(Interrupted):
        save_maps(failing_maps(), tmp_path / name)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == ({} if earlier is None else {name: earlier})


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("name", "writer"), [("maps.nc", "netCDF4.Dataset"), ("maps.tif", "rasterio.open")])
def test_a_write_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch, name, writer, lazy):
    def interrupted(path, *args, **kwargs):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_maps(maps_of(lazy=lazy), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_netcdf_library_is_called_under_the_lock_that_xarray_reads_under(tmp_path):
    save_maps(maps_of(), tmp_path / "maps.nc")
    store = NetCDF4DataStore.open(tmp_path / "maps.nc")
    assert store.lock is NETCDF_LOCK
    store.close()
    with NETCDF_LOCK:
        assert NETCDF_LOCK.locked()


def test_a_flag_file_that_fails_takes_the_maps_with_it(tmp_path):
    (tmp_path / "maps_flag.tif").mkdir()
    with pytest.raises(ValueError, match=r"maps_flag\.tif: is a directory"):
        save_maps(maps_of(), tmp_path / "maps.tif")
    assert [p.name for p in tmp_path.iterdir()] == ["maps_flag.tif"]


def test_the_place_is_checked_before_anything_is_computed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match=r"directory .*nowhere does not exist"):
        save_maps(failing_maps(), tmp_path / "nowhere" / "maps.nc")
    with pytest.raises(ValueError, match="is a file, not a directory"):
        save_maps(failing_maps(), tmp_path / "file" / "maps.nc")
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(PermissionError, match="no permission to write in"):
        save_maps(failing_maps(), tmp_path / "maps.nc")


def test_atomic_path_appears_only_on_success_and_follows_links(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    with atomic_path(link) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".txt"
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.txt", "target.txt"]


@pytest.mark.parametrize(
    "content", [["notes.txt"], ["data.csv", "sub/more.txt"], ["zarr.json", "notes.txt"], ["zarr.json", "lai/notes.txt"]]
)
@pytest.mark.parametrize("lazy", [True, False])
def test_a_folder_called_as_a_zarr_store_that_is_none_is_refused_and_kept(tmp_path, content, lazy):
    folder = tmp_path / "x.zarr"
    for name in content:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("mine")
    maps = maps_of(lazy=True)
    with pytest.raises(ValueError, match=r"x\.zarr: is a directory that is no Zarr store, .* would be lost"):
        save_maps(maps if lazy else maps.compute(), folder)
    assert all((folder / name).read_text() == "mine" for name in content)
    assert [path.name for path in tmp_path.iterdir()] == ["x.zarr"]


def test_a_zarr_store_of_maps_and_an_empty_folder_are_replaced(tmp_path):
    maps = maps_of(lazy=True)
    (tmp_path / "x.zarr").mkdir()
    for _ in range(2):
        save_maps(maps, tmp_path / "x.zarr")
        with xr.open_zarr(tmp_path / "x.zarr") as found:
            assert set(maps.data_vars) <= set(found.variables)
