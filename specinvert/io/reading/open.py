"""`open_cube`: one call for every kind of image file; `open_dataset`: labelled spectra and maps as Datasets."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import xarray as xr

from ...cubes import find_band_dim
from .convention import Chunks, checked
from .files import clear_errors, first_bytes
from .products import Reader, find_reader, match_reader

HEAD_BYTES = 4096
IN_MEMORY_BYTES = 2_000_000_000


def open_cube(
    path: str | os.PathLike[str],
    chunks: Chunks = "auto",
    variable: str | None = None,
    reader: str | None = None,
) -> xr.DataArray:
    """Open an image cube, or a table of spectra, lazily and by one convention whatever the file.

    Opened are products of Sentinel-2 (L2A), EnMAP (L2A), CRISM and other images with a PDS3 label, EMIT, PACE and
    PRISMA; ENVI spectral libraries; MATLAB and CSV files; netCDF and Zarr; ENVI images (header or data file), GeoTIFF
    and what else GDAL reads.
    The first reader that knows the file opens it; :func:`specinvert.register_reader` adds one.

    The cube has NaN where there is no data, also where fills are not declared but common (-9999, -32768, the ends of
    integer types, values beyond 1e15 or far out of the valid range), which warns. Scale and offset are applied, values
    are float32 (float64 where the file holds float64). A 1-D coordinate `wavelength` keeps the unit of the file in its
    `units`; `fwhm` and `good` (False for bands listed as bad or without data) are there where the file tells. CRS and
    transform are where `cube.rio` finds them; swaths have 2-D coordinates `lat` and `lon`. Rasters come as
    (y, x, wavelength), or (y, x, band) where the file tells no wavelengths, then with the band names as coordinate;
    netCDF variables keep their dimensions. Tables of spectra and spectral libraries come as (sample, wavelength), with
    what else the file tells of a spectrum along `sample`. Attribute `sensor` names the sensor, and `comment` what was
    assumed.

    Parameters
    ----------
    path : the file, or the folder of a product.
    chunks : "auto" keeps all bands of a pixel in one block and sizes blocks to dask's `array.chunk-size`;
        a dict gives block lengths by dimension; None reads the cube into memory.
    variable : which of several cubes in one file: a netCDF variable or a MATLAB array by name, "10m", "20m" or
        "60m" of Sentinel-2; None for the only or the usual one.
    reader : the reader to use, by name, where the file does not tell that it is of that kind; None to find it.

    Returns
    -------
    xarray.DataArray backed by dask, or by NumPy with `chunks=None`.

    Raises
    ------
    FileNotFoundError : no such file, or one that belongs to it is not beside it.
    PermissionError : the file may not be read.
    ValueError : the file is empty, truncated or of another kind; its band metadata do not fit its bands, or its
        wavelengths are missing for some, repeated, or in a unit that is unknown or contradicts them;
        `variable` is missing, ambiguous or not to be chosen; `chunks` names an unknown dimension; no reader is
        called `reader`.

    Examples
    --------
    >>> from specinvert import save_maps
    >>> from specinvert.physics.scene import make_scene
    >>> made, _ = make_scene((8, 10))
    >>> save_maps(made.to_dataset(), "scene.nc")
    >>> cube = open_cube("scene.nc")
    >>> cube.dims, cube.rio.crs.to_epsg()
    (('y', 'x', 'wavelength'), 32633)
    """
    if not isinstance(variable, str | None):
        raise TypeError(f"variable={variable!r} must be the name of one of the cubes in the file, or None")
    file, chosen = choose_reader(path, reader)
    cube = chosen.open(file, chunks, variable)
    if not isinstance(cube, xr.DataArray):
        raise TypeError(f"{file}: reader {chosen.name!r} returned {type(cube).__name__}; it must return a DataArray")
    try:
        dim = find_band_dim(cube)
    except ValueError:
        return cube
    return checked(cube, file, dim)


def choose_reader(path: str | os.PathLike[str], name: str | None = None) -> tuple[Path, Reader]:
    """Return the path and the reader that opens it: that called `name`, else the first that takes the file.

    Raises what `open_cube` raises on a file that is missing, empty, not to be read or of no known kind.
    """
    file = Path(path)
    head = _read_head(file)
    if name is not None:
        return file, find_reader(name)
    reader = match_reader(file, head)
    if reader is None:
        raise ValueError(
            f"{file}: not a file but a folder, and neither a Zarr store nor a Sentinel-2 product; give the path of the "
            "image file itself"
        )
    return file, reader


def _read_head(file: Path) -> bytes:
    if not file.exists():
        raise FileNotFoundError(f"{file}: no such file")
    if file.is_dir():
        try:
            os.listdir(file)
        except PermissionError as error:
            raise PermissionError(f"{file}: no permission to read this folder") from error
        return b""
    head = first_bytes(file, HEAD_BYTES)
    if not head:
        raise ValueError(f"{file}: the file is empty (0 bytes); check how it was written or copied")
    return head


def open_dataset(
    path: str | os.PathLike[str], sensor: tuple[np.ndarray, np.ndarray | None] | None = None
) -> xr.Dataset:
    """Open a netCDF or Zarr Dataset with its CRS: in memory up to 2 GB, else lazily with the file's chunks.

    A table of spectra (.csv, .tsv, .txt) gives `reflectance` (sample, wavelength), a variable for each other
    column of numbers, and coordinates along `sample` for columns of text; see
    :func:`specinvert.io.reading.products.csv.read_spectra_table`, also for `sensor`, wavelengths and widths in nm of
    bands that columns only number.

    Raises
    ------
    FileNotFoundError : no such file. PermissionError : it may not be read.
    ValueError : truncated, or neither netCDF nor a table with columns named by wavelength.
    """
    from .products.csv import SUFFIXES, read_spectra_table
    from .products.netcdf import clear_spectra, open_group

    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"{file}: no such file")
    if file.suffix.lower() in SUFFIXES:
        table = read_spectra_table(file, sensor=sensor)
        own = [name for name, column in table.coords.items() if column.dims == ("sample",) and name != "sample"]
        return table.reset_coords([name for name in own if table[name].dtype.kind in "iuf"])
    opened = open_group(file, decode_coords="all", chunks={})
    dataset = clear_spectra(opened, file)
    if dataset.nbytes > IN_MEMORY_BYTES:
        return dataset
    told = "its values cannot be read, damaged or truncated ({}); copy it again"
    with opened, clear_errors(file, told, OSError, RuntimeError, ValueError):
        return dataset.load()
