"""Results from files, GeoTIFF pairs of maps and flags among them, and one entry of their further dimensions."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from ..cubes import legible, units_of
from ..flags import FLAG_VARIABLE

MAGIC = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
"""First bytes of TIFF and BigTIFF files."""
_FLAG_ENDING = "_flag"
_NO_ATTRS = ("STATISTICS_", "AREA_OR_POINT", "_FillValue", "scale_factor", "add_offset")


def open_results(path: str | os.PathLike[str]) -> xr.Dataset:
    """Maps or rows of results from a file: in memory up to 2 GB, else lazily.

    netCDF, Zarr and tables are opened by :func:`specinvert.io.reading.open.open_dataset`, GeoTIFF by
    :func:`open_geotiff_maps`; raises as these do.
    """
    from ..io.reading import IN_MEMORY_BYTES, open_dataset

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
    from ..io.writing import flag_name

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

    from ..io.reading import open_gdal

    with open_gdal(file) as opened:
        names, driver = _names(opened.descriptions, file.stem), opened.driver
        tags = [opened.tags(index) for index in opened.indexes]
        units, whole = opened.units, opened.tags()
        filled = any(value is not None and not np.isnan(value) for value in opened.nodatavals)
        packed = filled or {*opened.scales} != {1.0} or {*opened.offsets} != {0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        raw = rioxarray.open_rasterio(file, mask_and_scale=packed, cache=False, driver=driver)
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


Data = TypeVar("Data", xr.DataArray, xr.Dataset)

_SPATIAL = (("y", "x"), ("lat", "lon"), ("latitude", "longitude"))
_HORIZONTAL = ("x", "lon", "longitude")
_ISO = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d(\.\d+)?)?)?)?)?)?")
_OF_A_GRID = frozenset({"crs_wkt", "grid_mapping_name", "spatial_ref", "GeoTransform"})
"""Attributes of a variable that holds a grid's place, and not a value."""
_LISTED = 6
"""Entries of a dimension that a message names one by one."""


def pixel_dims(variables: Mapping[Hashable, xr.DataArray]) -> tuple[str, ...]:
    """The vertical and the horizontal dimension of maps, or the only one of a table."""
    for pair in _SPATIAL:
        if any(set(pair) <= set(array.dims) for array in variables.values()):
            return pair
    base = variables.get(FLAG_VARIABLE, min(variables.values(), key=lambda array: array.ndim))
    dims = tuple(str(dim) for dim in base.dims[-2:])
    return dims[::-1] if dims[0] in _HORIZONTAL else dims


def entry_text(value: Any) -> str:
    """A coordinate's value to read: dates by ISO 8601, as short as they can be."""
    return _iso(value).removesuffix(":00").removesuffix("T00:00") if _is_date(value) else legible(value)


def _is_date(value: Any) -> bool:
    return isinstance(value, np.datetime64) or hasattr(value, "isoformat")


def _iso(date: Any) -> str:
    """A date with its time to the second, or to the fraction where there is one."""
    text = str(np.datetime_as_string(date, "ns")) if isinstance(date, np.datetime64) else str(date.isoformat())
    text = text if "T" in text else f"{text}T00:00:00"
    return re.sub(r"(\.\d*?)0+$", r"\1", text).removesuffix(".")


def told_entries(data: xr.DataArray | xr.Dataset, dim: Hashable) -> str:
    """How many entries a dimension has, and which: ``3 entries, 0 to 2`` by number where it has no coordinate."""
    size = data.sizes[dim]
    if size == 0:
        return "no entries"
    own = _labels(data, dim)
    labels = np.arange(size) if own is None else own
    listed = own is not None and size <= _LISTED
    shown = ", ".join(map(entry_text, labels)) if listed else f"{entry_text(labels[0])} to {entry_text(labels[-1])}"
    return f"{size} {'entry' if size == 1 else 'entries'}, {shown}"


def undecided(maps: xr.Dataset, names: list[str]) -> str:
    """Why the maps ``names`` cannot be drawn, and what to do: they have a third dimension, or other ones each."""
    dims = pixel_dims({name: maps[name] for name in names})
    name = next((name for name in names if set(maps[name].dims) != set(dims)), names[0])
    is_over = f"{legible(name)} is over {maps[name].dims}"
    beside = [str(dim) for dim in maps[name].dims if dim not in dims]
    if len(dims) != 2 or not set(dims) <= set(maps[name].dims):
        others = [f"{legible(other)} over {maps[other].dims}" for other in names if maps[other].dims != maps[name].dims]
        return f"{', '.join([is_over, *others[:1]])}: choose parameters over the same two dimensions"
    told = " and ".join(f"{dim!r} ({told_entries(maps, dim)})" for dim in beside)
    first = {dim: None if (labels := _labels(maps, dim)) is None else labels[0] for dim in beside}
    labelled = ", ".join(f"{dim}={_in_python(value)}" for dim, value in first.items())
    by_label = "" if None in first.values() else f" or .sel({labelled})"
    options = " ".join(f"--select {dim}={'0' if value is None else entry_text(value)}" for dim, value in first.items())
    by_number = ", ".join(f"{dim}=0" for dim in beside)
    return f"{is_over}: choose one entry of {told}, with .isel({by_number}){by_label}; on the command line, {options}"


def pick(data: Data, wanted: Mapping[str, str], all_of_them: bool = True) -> Data:
    """One entry of each dimension that is named; the dimension stays, of size 1, with a coordinate.

    Parameters
    ----------
    data : in memory or lazy.
    wanted : dimension to entry, as text. By number from 0 where the dimension has no coordinate; else the nearest
        number, the date that begins so (ISO 8601), or the text itself.
    all_of_them : whether a dimension that the data lack is an error, or left out.

    Raises
    ------
    ValueError : no such dimension or entry, or several entries are meant; the message says what there is.
    """
    if missing := [dim for dim in wanted if dim not in data.dims] if all_of_them else []:
        has = "; ".join(f"{dim!r} ({told_entries(data, dim)})" for dim in data.dims)
        raise ValueError(f"no dimension is called {missing[0]!r}; there are {has or 'none'}")
    for dim, text in wanted.items():
        if dim not in data.dims:
            continue
        index = _index(data, dim, text)
        lacks = _labels(data, dim) is None
        data = data.isel({dim: slice(index, index + 1)})
        data = data.assign_coords({dim: [index]}) if lacks else data
    return data


def entries_of(data: xr.Dataset) -> dict[str, str]:
    """The entries that were chosen of dimensions which the data have no more: their coordinates of one value."""
    return {
        legible(name): f"{entry_text(array.values[()])} {units_of(array.attrs)}".strip()
        for name, array in data.coords.items()
        if array.ndim == 0 and array.dtype.kind in "iufMUO" and not _OF_A_GRID & set(array.attrs)
    }


def _labels(data: xr.DataArray | xr.Dataset, dim: Hashable) -> np.ndarray | None:
    """Values of a dimension's own coordinate."""
    there = dim in data.coords and data.coords[dim].dims == (dim,)
    return np.asarray(data.coords[dim].values) if there else None


def _in_python(label: Any) -> str:
    """A label as ``.sel`` takes it."""
    return entry_text(label) if np.asarray(label).dtype.kind in "iuf" else repr(entry_text(label))


def _index(data: xr.DataArray | xr.Dataset, dim: str, text: str) -> int:
    labels = _labels(data, dim)
    has = f"{dim!r} has {told_entries(data, dim)}"
    if labels is None:
        if not text.isdecimal() or int(text) >= data.sizes[dim]:
            raise ValueError(f"{dim}={text}: no number of an entry, as {dim!r} has no coordinate; {has}")
        return int(text)
    if labels.dtype.kind in "iuf":
        return _nearest(labels.astype(np.float64), dim, text, has)
    texts = [entry_text(value) for value in labels]
    if all(_is_date(value) for value in labels):
        entries = _dated([_iso(value) for value in labels], dim, text, has)
    else:
        entries = [i for i, one in enumerate(texts) if one == text]
    if len(entries) != 1:
        meant = ", ".join(texts[i] for i in entries[:_LISTED]) + (", ..." if len(entries) > _LISTED else "")
        said = f"several entries, {meant}: name one of them" if entries else f"no such entry; {has}"
        raise ValueError(f"{dim}={text}: {said}")
    return entries[0]


def _nearest(labels: np.ndarray, dim: str, text: str, has: str) -> int:
    """The nearest number, not further beyond the ends than half the longest step."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ValueError(f"{dim}={text}: {text!r} is no number; {has}")
    ordered = np.sort(labels[np.isfinite(labels)])
    room = 0.5 * np.max(np.diff(ordered), initial=0.0) + 1e-6 * abs(value)
    if not ordered.size or not ordered[0] - room <= value <= ordered[-1] + room:
        raise ValueError(f"{dim}={text}: outside the entries; {has}")
    return int(np.nanargmin(np.abs(labels - value)))


def _dated(dates: list[str], dim: str, text: str, has: str) -> list[int]:
    """Which dates begin as the text says."""
    wanted = text.strip().replace(" ", "T").removesuffix("Z")
    if not _ISO.fullmatch(wanted):
        raise ValueError(f"{dim}={text}: no date by ISO 8601, such as 2020-06-01 or 2020-06-01T10:30; {has}")
    exact = [i for i, date in enumerate(dates) if date == wanted]
    return exact or [i for i, date in enumerate(dates) if date.startswith(wanted)]
