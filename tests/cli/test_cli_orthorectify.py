"""``specinvert orthorectify``: from files to files, its settings, a dry run, and going on after a stop."""

import tomllib
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

from commands import listing, run, succeed
from hdf_products import write_emit
from specinvert import orthorectify, save_maps
from specinvert.io.reading.products.emit import in_blocks
from specinvert.progress import ProgressBars

SWATH = ("downtrack", "crosstrack")
BLOCK = "54B"
"""Of six pixels of all variables, so that the grid has eight blocks."""


def make_maps() -> xr.Dataset:
    values = np.arange(30, dtype=np.float32).reshape(6, 5)
    flags = {"flag_masks": np.array([1, 2], np.uint8), "flag_meanings": "nodata outside"}
    return xr.Dataset(
        {
            "water": (SWATH, values, {"units": "g cm-2"}),
            "water_std": (SWATH, 0.1 * values),
            "quality_flag": (SWATH, (values % 3 == 0).astype(np.uint8) * np.uint8(2), flags),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_emit(tmp_path / "scene.nc")
    save_maps(make_maps(), tmp_path / "maps.nc")
    return tmp_path


def test_the_command_does_what_the_function_does_and_keeps_its_settings(folder: Path) -> None:
    succeed("orthorectify", folder / "maps.nc", folder / "scene.nc", "-o", folder / "grid.nc", "--compression", 3)
    expected = orthorectify(make_maps(), folder / "scene.nc")
    with xr.open_dataset(folder / "grid.nc", decode_coords="all") as made:
        for name in expected.data_vars:
            np.testing.assert_array_equal(made[name], expected[name])
        assert made.rio.crs == expected.rio.crs
        assert "specinvert orthorectify" in made.attrs["history"]
    settings = tomllib.loads((folder / "grid.nc.toml").read_text())
    assert set(settings["orthorectify"]) == {"maps", "swath", "output", "compression"}
    assert settings["orthorectify"]["compression"] == 3
    succeed("orthorectify", "--config", folder / "grid.nc.toml", "-o", folder / "again.nc")
    with xr.open_dataset(folder / "grid.nc") as one, xr.open_dataset(folder / "again.nc") as other:
        xr.testing.assert_equal(one, other)


def test_a_dry_run_tells_sizes_memory_and_time_and_writes_nothing(folder: Path) -> None:
    before = listing(folder)
    told = succeed("orthorectify", folder / "maps.nc", folder / "scene.nc", "-o", folder / "grid.tif", "--dry-run")
    lines = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert lines["maps"] == "downtrack 6, crosstrack 5, 0.27 kB"
    assert lines["grid"] == "y 4, x 7; 79 % of it has pixels of the swath"
    assert lines["blocks"] == "2 of at most 16 pixels"
    assert "at the peak with " in lines["memory"]
    assert "grid.tif: water, water_std, quality_flag" in lines["output"]
    assert "measured on the block in the middle" in lines["time"]
    assert told.endswith("dry run: nothing was written\n")
    assert listing(folder) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "grid.xyz"], "grid.xyz: cannot write .xyz"),
        (["-o", "none/grid.nc"], "none"),
        (["-o", "maps.nc"], "maps.nc: is read by this command and would be lost"),
        (["-o", "grid.nc", "--config", "none.toml"], "none.toml: no such file"),
    ],
)
def test_a_dry_run_finds_what_would_fail(folder: Path, monkeypatch: Any, options: list[str], message: str) -> None:
    monkeypatch.chdir(folder)
    result = run("orthorectify", "maps.nc", "scene.nc", *options, "--dry-run")
    assert result.exit_code == 1
    assert message in result.stderr.splitlines()[-1]


@pytest.mark.stops
def test_a_run_that_is_stopped_goes_on_to_the_same_maps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["orthorectify", folder / "maps.nc", folder / "scene.nc", "-o"]

    def stopping(bars: ProgressBars, state: Any) -> None:
        assert state.n_blocks == 8
        if state.blocks == 5:  # two are without any pixel of the swath
            raise KeyboardInterrupt

    with dask.config.set({"array.chunk-size": BLOCK, "scheduler": "synchronous"}):
        with monkeypatch.context() as patched:
            patched.setattr(ProgressBars, "blocks", stopping)
            result = run(*arguments, folder / "grid.nc")
        assert result.exit_code == 130
        assert result.stderr.splitlines()[-1].endswith(
            "grid.nc was not written; 5 finished blocks are kept, run the same command with --resume to go on"
        )
        assert not list(folder.glob("grid*"))
        kept = sorted((folder / ".grid.nc.blocks").glob("block-*"))
        assert len(kept) == 5
        seen = []
        gather = "specinvert.cubes.lookup._gather"
        original = orthorectify.__globals__["resample_swath"].__globals__["_gather"]
        monkeypatch.setattr(gather, lambda *given: (seen.append(1), original(*given))[1])
        succeed(*arguments, folder / "grid.nc", "--resume")
        resumed = len(seen)
        succeed(*arguments, folder / "whole.nc")
        assert 0 < resumed < len(seen) - resumed
    with xr.open_dataset(folder / "grid.nc") as one, xr.open_dataset(folder / "whole.nc") as other:
        xr.testing.assert_equal(one, other)
    assert not (folder / ".grid.nc.blocks").exists()


def test_maps_in_memory_are_cut_into_one_grid_of_blocks_whatever_their_types() -> None:
    maps = make_maps().assign(series=((*SWATH, "time"), np.zeros((6, 5, 3))), alone=("time", np.zeros(3)))
    with dask.config.set({"array.chunk-size": "144B"}):
        cut = in_blocks(maps, SWATH)
    assert {cut[name].chunks[:2] for name in ("water", "quality_flag", "series")} == {cut["water"].chunks}
    assert cut["water"].chunksizes["downtrack"][0] * cut["water"].chunksizes["crosstrack"][0] <= 6
    assert cut["series"].chunksizes["time"] == (3,)
    assert cut["alone"].chunks is None
    assert in_blocks(cut, SWATH) is cut
    assert in_blocks(maps, ("line", "sample")) is maps
    xr.testing.assert_equal(cut, maps)
