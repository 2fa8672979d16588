"""Reads tables of spectra from text files, comma-separated or of that kind, as (sample, wavelength)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from ..lazy import Chunks, chunk_cube
from ..spectra_table import SPECTRA, looks_like_table, read_spectra_table


def matches(path: Path, head: bytes) -> bool:
    """Whether the name ends in .csv or .tsv; or in .txt, and columns are named by wavelength."""
    return looks_like_table(path, head)


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open a table of spectra, one a row, as (sample, wavelength); other columns are coordinates along `sample`.

    The table is read whole, and then cut into blocks. What columns and values may look like, and what is raised, is
    told at :func:`specinvert.io.reading.spectra_table.read_spectra_table`, whose `columns` is `variable`.
    """
    spectra = read_spectra_table(path, variable)[SPECTRA]
    spectra = spectra.astype(np.float32).rename(f"{SPECTRA} {variable}")
    return chunk_cube(spectra, chunks, whole="wavelength", path=str(path)).rename(SPECTRA)
