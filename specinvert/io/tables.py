"""Opens Datasets of labelled spectra: training sets, test sets, maps, from netCDF, Zarr and tables of spectra."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import xarray as xr

from .netcdf import engine_options
from .open import is_zarr
from .spectra_table import SUFFIXES, read_spectra_table

IN_MEMORY_BYTES = 2_000_000_000


def open_dataset(path: str | os.PathLike[str]) -> xr.Dataset:
    """Open a netCDF or Zarr Dataset with its CRS: in memory up to 2 GB, else lazily with the file's chunks.

    A table of spectra (.csv, .tsv, .txt) gives `reflectance` (sample, wavelength), a variable for each other
    column of numbers, and coordinates along `sample` for columns of text; see
    :func:`specinvert.io.spectra_table.read_spectra_table`.

    Raises
    ------
    FileNotFoundError : no such file. PermissionError : it may not be read.
    ValueError : truncated, or neither netCDF nor a table with columns named by wavelength.
    """
    shown = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"{shown}: no such file")
    if Path(path).suffix.lower() in SUFFIXES:
        return _open_table(Path(path))
    try:
        engine: Literal["zarr", "netcdf4"] = "zarr" if is_zarr(Path(path)) else "netcdf4"
        dataset = xr.open_dataset(
            path, engine=engine, decode_coords="all", decode_timedelta=False, chunks={}, **engine_options(engine)
        )
        if dataset.nbytes <= IN_MEMORY_BYTES:
            with dataset:
                return dataset.load()
        return dataset
    except PermissionError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{shown}: not a readable netCDF file (truncated, or of another kind): {error}") from None


def _open_table(path: Path) -> xr.Dataset:
    table = read_spectra_table(path)
    numbers = [
        name
        for name, column in table.coords.items()
        if column.dims == ("sample",) and name != "sample" and column.dtype.kind in "iuf"
    ]
    return table.reset_coords(numbers)
