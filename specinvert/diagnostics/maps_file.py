"""Opens results from files: netCDF, Zarr, tables, and the GeoTIFF pairs of maps and flags that `save_maps` writes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from specinvert.diagnostics.flags import FLAG_VARIABLE

MAGIC = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
"""First bytes of TIFF and BigTIFF files."""
_FLAG_ENDING = "_flag"
_NO_ATTRS = ("STATISTICS_", "AREA_OR_POINT", "_FillValue", "scale_factor", "add_offset")


def open_results(path: str | os.PathLike[str]) -> xr.Dataset:
    """Maps or rows of results from a file: in memory up to 2 GB, else lazily.

    netCDF, Zarr and tables are opened by :func:`specinvert.io.tables.open_dataset`, GeoTIFF by
    :func:`open_geotiff_maps`; raises as these do.
    """
    from specinvert.io.tables import IN_MEMORY_BYTES, open_dataset

    if not is_tiff(path):
        return open_dataset(path)
    maps = open_geotiff_maps(path)
    return maps.load() if maps.nbytes <= IN_MEMORY_BYTES else maps.chunk()


def is_tiff(path: str | os.PathLike[str]) -> bool:
    """Whether a file that exists is a TIFF by its first bytes, or is named so; FileNotFoundError where there is none.

    Raises PermissionError where the file may not be read.
    """
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"{file}: no such file")
    if file.is_dir():
        return False
    try:
        with file.open("rb") as opened:
            head = opened.read(4)
    except PermissionError as error:
        raise PermissionError(f"{file}: no permission to read this file") from error
    return head in MAGIC or file.suffix.lower() in (".tif", ".tiff")


def open_geotiff_maps(path: str | os.PathLike[str]) -> xr.Dataset:
    """Maps (y, x) of a GeoTIFF, unread: a variable a band, called what the band's description says.

    The flags come from ``<name>_flag.tif`` beside it, where that is. NaN stands for no data; units and attributes are
    those of the bands' tags, those of the Dataset the file's.

    Raises
    ------
    ValueError : GDAL cannot read a file, the flags are of another grid, or the path is that of the flags alone.
    """
    from specinvert.io.geotiff import flag_name

    file = Path(path)
    maps = _bands(file)
    if set(maps.data_vars) == {FLAG_VARIABLE}:
        beside = file.with_name(file.name.replace(f"{_FLAG_ENDING}.", "."))
        raise ValueError(f"{file}: holds the flags alone; give the file of the maps, such as {beside.name}")
    beside = file.with_name(flag_name(file))
    if FLAG_VARIABLE in maps or not beside.exists():
        return maps
    flags = _bands(beside)
    if FLAG_VARIABLE not in flags:
        flags = flags.rename({next(iter(flags.data_vars)): FLAG_VARIABLE})
    if flags.sizes != maps.sizes:
        raise ValueError(
            f"{beside}: the flags are of {dict(flags.sizes)} pixels and the maps {file.name} of {dict(maps.sizes)}; "
            "write both anew, or move the file of the flags away"
        )
    return maps.assign({FLAG_VARIABLE: flags[FLAG_VARIABLE].variable})


def _bands(file: Path) -> xr.Dataset:
    import rioxarray
    from rasterio.errors import NotGeoreferencedWarning

    from specinvert.io.raster import open_gdal

    with open_gdal(file) as opened:
        names = _names(opened.descriptions, file.stem)
        tags = [opened.tags(index) for index in opened.indexes]
        units, whole = opened.units, opened.tags()
        filled = any(value is not None and not np.isnan(value) for value in opened.nodatavals)
        packed = filled or {*opened.scales} != {1.0} or {*opened.offsets} != {0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        raw = rioxarray.open_rasterio(file, mask_and_scale=packed, cache=False)
    assert isinstance(raw, xr.DataArray)
    raw = raw.rename({raw.dims[0]: "band"})
    arrays = {}
    for i, name in enumerate(names):
        array = raw.isel(band=i).drop_vars("band", errors="ignore")
        array.attrs = _attrs(tags[i]) | ({"units": units[i]} if units[i] else {})
        arrays[name] = array
    maps = xr.Dataset(arrays, attrs=_attrs(whole))
    if maps.rio.crs is None and maps.rio.transform().is_identity:
        maps = maps.drop_vars(["x", "y", "spatial_ref"], errors="ignore")
    return maps


def _names(descriptions: Sequence[str | None], stem: str) -> list[str]:
    """A name for each band, all different."""
    if len(descriptions) == 1 and not descriptions[0]:
        return [stem]
    names: list[str] = []
    for i, given in enumerate(descriptions, start=1):
        name = given or f"band_{i}"
        names.append(f"{name}_{i}" if name in names else name)
    return names


def _attrs(tags: Mapping[str, str]) -> dict[str, object]:
    kept: dict[str, object] = {key: text for key, text in tags.items() if not key.startswith(_NO_ATTRS)}
    masks = str(kept.get("flag_masks", "")).split()
    if masks and all(mask.isdigit() for mask in masks):
        kept["flag_masks"] = np.array(masks, dtype=np.int64)
    return kept
