"""Maps whose blocks take their time, for saves that are stopped."""

import time

import dask
import dask.array as da
import numpy as np
import xarray as xr

import specinvert
from specinvert.io.writing.blocks import block_layout

SUFFIXES = [".nc", ".zarr", ".tif"]


def slow_maps(seconds: float, shift: float = 0.0) -> xr.Dataset:
    """Two maps and a flag in six blocks that take so long each, with the same identity for any time."""

    def slow(block: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return block + np.float32(shift)

    rows = da.arange(120, chunks=40, dtype=np.float32)[:, None]
    grid = rows + da.arange(60, chunks=30, dtype=np.float32)[None, :]
    water = grid.map_blocks(slow, name=f"water-{shift}", meta=np.empty((0, 0), np.float32))
    maps = xr.Dataset(
        {
            "water": (("y", "x"), water),
            "water_std": (("y", "x"), water / 3),
            "quality_flag": (("y", "x"), (water % 3).astype(np.uint8)),
        },
        coords={"y": 120.0 - np.arange(120), "x": np.arange(60.0)},
    )
    assert block_layout(maps) == {"y": (40,) * 3, "x": (30,) * 2}
    return maps.rio.write_crs("EPSG:32633").rio.write_transform()


def save_slowly(path: str, scheduler: str = "threads") -> None:
    with dask.config.set(scheduler=scheduler, num_workers=2):
        specinvert.save_maps(slow_maps(0.02), path)
