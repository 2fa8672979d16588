"""`open_cube`: one call for every kind of image file, one convention for what comes out."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from .chunks import Chunks

_NETCDF_MAGIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05", b"\x89HDF\r\n\x1a\n")
_NETCDF_SUFFIXES = frozenset({".nc", ".nc4", ".cdf", ".netcdf"})


def open_cube(path: str | os.PathLike[str], chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open an image cube lazily: netCDF, Zarr, ENVI (header or data file), GeoTIFF, or what else GDAL reads.

    Whatever the file, the cube has NaN where there is no data, scale and offset applied, and float32 values
    (float64 where the file holds float64). A 1-D coordinate `wavelength` keeps the unit of the file in its
    `units`; `fwhm` and `good` (False for bands listed as bad) are there where the file tells. CRS and
    transform are where `cube.rio` finds them. Rasters come as (y, x, wavelength), or (y, x, band) where the
    file tells no wavelengths, then with the band names as coordinate; netCDF variables keep their dimensions.

    Parameters
    ----------
    path : the file.
    chunks : "auto" keeps all bands of a pixel in one block and sizes blocks to dask's `array.chunk-size`;
        a dict gives block lengths by dimension; None reads the cube into memory.
    variable : for netCDF, which variable; None for the only one with a band dimension.

    Returns
    -------
    xarray.DataArray backed by dask, or by NumPy with `chunks=None`.

    Raises
    ------
    FileNotFoundError : no such file, or a header without its data file.
    PermissionError : the file may not be read.
    ValueError : the file is empty, truncated or of another kind; its band metadata do not fit its bands;
        `variable` is missing, ambiguous or given for a raster; `chunks` names an unknown dimension.

    Examples
    --------
    >>> cube = open_cube("scene.tif")  # doctest: +SKIP
    >>> cube.dims  # doctest: +SKIP
    ('y', 'x', 'wavelength')
    """
    file = Path(path)
    head = _read_head(file)
    if head.startswith(_NETCDF_MAGIC) or is_zarr(file):
        from .netcdf import open_netcdf

        return open_netcdf(file, chunks, variable)
    if file.suffix.lower() in _NETCDF_SUFFIXES:
        raise ValueError(f"{file}: not a netCDF file, it starts with {head!r}; check how it was written or copied")
    if variable is not None:
        raise ValueError(f"{file}: variable={variable!r} is for netCDF files, and this is none; leave it out")
    from .raster import open_raster

    return open_raster(file, chunks)


def is_zarr(path: Path) -> bool:
    """Whether the path is the folder of a Zarr store."""
    return path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def _read_head(file: Path) -> bytes:
    if not file.exists():
        raise FileNotFoundError(f"{file}: no such file")
    if is_zarr(file):
        return b""
    if not file.is_file():
        raise ValueError(f"{file}: not a file; give the path of the image file itself")
    try:
        with file.open("rb") as opened:
            head = opened.read(8)
    except PermissionError as error:
        raise PermissionError(f"{file}: no permission to read this file") from error
    if not head:
        raise ValueError(f"{file}: the file is empty (0 bytes); check how it was written or copied")
    return head
