"""Opens netCDF Datasets of labelled spectra: training sets, test sets, maps."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

IN_MEMORY_BYTES = 2_000_000_000


def open_dataset(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open a netCDF Dataset with its CRS: in memory up to 2 GB, else lazily with the file's chunks.

    Raises
    ------
    FileNotFoundError : no such file. PermissionError : it may not be read.
    ValueError : truncated, or no netCDF.
    """
    shown = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"{shown}: no such file")
    try:
        dataset = xr.open_dataset(path, engine="netcdf4", decode_coords="all", decode_timedelta=False)
        if dataset.nbytes <= IN_MEMORY_BYTES:
            with dataset:
                return dataset.load()
        return dataset.chunk("auto")
    except PermissionError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{shown}: not a readable netCDF file (truncated, or of another kind): {error}") from None
