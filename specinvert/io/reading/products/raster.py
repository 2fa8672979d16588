"""Reads the image formats of GDAL, ENVI and GeoTIFF above all, as a lazy cube (y, x, band).

Band metadata come from the tags of every band, because rioxarray keeps those of the first only. Numbers are
decoded here, band by band: rioxarray leaves scales that differ between bands undone.
"""

from __future__ import annotations

import os
import struct
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from ..band_tags import BandTags, read_band_tags
from ..convention import (
    STORED,
    Chunks,
    band_coords,
    chunk_cube,
    file_variable,
    rename_chunks,
    require_no_variable,
    stored_in_words,
    without_fills,
)
from ..files import DATA_SUFFIXES, data_file_of_header, first_bytes, header_of, require_size, require_whole

DRIVERS = (
    *("GTiff", "ENVI", "PDS", "PDS4", "ISIS3", "ISIS2", "VICAR", "ERS", "EHdr", "HFA", "PCIDSK", "PAux", "NITF"),
    *("JP2OpenJPEG", "JP2KAK", "JP2ECW", "JP2MrSID", "PNG", "JPEG", "WEBP", "BMP", "GIF"),
    *("RRASTER", "RST", "SAGA", "ILWIS", "AAIGrid", "GSBG", "FITS", "GenBin", "LAN", "ELAS", "KRO", "MFF", "RMF", "BT"),
)
"""Formats of GDAL that hold the pixels themselves: no VRT, WMS or index, which read other files or ask servers."""
_LABELS = {"PDS", "PDS4", "ISIS3", "ISIS2", "VICAR", "ERS"}
"""Those whose labels name the file of the pixels."""

_LOCAL = {"CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".none"}
"""Options of GDAL while it opens a file: no names of servers are followed."""


def matches(path: Path, head: bytes) -> bool:
    """Any file that no other reader takes: GDAL decides."""
    return path.is_file()


@dataclass(frozen=True)
class Description:
    """What decides how stored numbers become a cube; sequences have one entry a band.

    Attributes
    ----------
    driver : GDAL's name of the format.
    tags : what the metadata say of the bands.
    dtype : of the stored numbers.
    shape : rows and columns.
    nodata : the stored value that stands for no data, or None.
    scales, offsets : value = stored * scale + offset.
    units : of the values, where all bands have the same.
    names : descriptions of the bands.
    indexes : numbers of these bands in the file, from 1; None for all.
    masked : whether the file has a mask of its pixels apart.
    saturated : stored values that stand for no data by the rule for all files, and are known to.
    opacity : number of the band that tells the opacity of pixels, 0 where there is no data.
    """

    driver: str
    tags: BandTags
    dtype: np.dtype
    shape: tuple[int, int]
    nodata: Sequence[float | None]
    scales: Sequence[float]
    offsets: Sequence[float]
    units: str | None
    names: Sequence[str | None]
    indexes: Sequence[int] | None = None
    masked: bool = False
    opacity: int | None = None
    saturated: tuple[float, ...] = ()


def read(path: Path, chunks: Chunks, variable: str | None) -> xr.DataArray:
    """Open a raster file, or the ENVI header of one, as a cube (y, x, wavelength) or (y, x, band).

    Parameters
    ----------
    chunks : as for `open_cube`; a mapping may call the band dimension "band" or "wavelength".

    Raises
    ------
    ValueError : GDAL cannot read the file, it is truncated, holds several images or complex numbers, or its
        band metadata do not fit its bands.
    FileNotFoundError : a header without its data file.
    """
    require_no_variable(variable, path, "this is none, leave it out")
    source = data_file_of_header(path) if path.suffix.lower() == ".hdr" else path
    return build_cube(source, describe_raster(source), chunks)


def build_cube(source: Path, description: Description, chunks: Chunks) -> xr.DataArray:
    """A raster file as a lazy cube, by `describe_raster` with what a reader knows better put in its place."""
    import rioxarray

    with _quiet_rasterio():
        raw = rioxarray.open_rasterio(
            str(source), masked=False, mask_and_scale=False, cache=False, driver=description.driver
        )
    preferred = raw.encoding.get("preferred_chunks", {})
    raw = raw.rename({raw.dims[0]: "band"}) if raw.dims[0] != "band" else raw
    if description.indexes is not None and len(description.indexes) < raw.sizes["band"]:
        raw = raw.isel(band=[index - 1 for index in description.indexes])
    raw.encoding["preferred_chunks"] = {name: preferred[name] for name in ("y", "x") if name in preferred}
    listed = description.tags.wavelength
    if listed is not None and listed.size != raw.sizes["band"]:
        raise ValueError(
            f"{source}: {raw.sizes['band']} bands and {listed.size} wavelengths; the metadata belong to another file"
        )
    dim = "band" if listed is None else "wavelength"
    raw = chunk_cube(raw, rename_chunks(chunks, dim, "band"), whole="band", path=str(source))
    cube = _decode(raw, description, source)
    if description.masked or description.opacity is not None:
        cube = cube.where(_mask(source, raw, description.opacity))
    cube = _label(cube.transpose("y", "x", "band"), description)
    cube.name = "cube"
    cube.attrs = {} if description.units is None else {"units": description.units}
    if description.tags.source is not None:
        cube.attrs["comment"] = f"wavelengths from the {description.tags.source}"
    scales = _scales(description).tolist()
    stored = stored_in_words(raw.dtype, scales, description.offsets, description.nodata)
    cube.encoding = {"_FillValue": np.nan, "source": str(source), STORED: stored}
    return _placed(cube)


def _mask(source: Path, raw: xr.DataArray, opacity: int | None) -> xr.DataArray:
    """Which pixels (y, x) have data by the mask of the file or its band of opacity, in the blocks of `raw`."""
    shape = raw.sizes["y"], raw.sizes["x"]
    unread = file_variable(("y", "x"), shape, np.dtype(bool), partial(_read_mask, source, opacity))
    mask = xr.DataArray(unread, name="mask")
    blocks = None if raw.chunks is None else {dim: raw.chunksizes[dim][0] for dim in ("y", "x")}
    return chunk_cube(mask, blocks, whole="", path=str(source))


def _read_mask(source: Path, opacity: int | None, places: tuple[slice, ...]) -> np.ndarray:
    from rasterio.windows import Window

    with open_gdal(source) as dataset:
        window = Window.from_slices(*places)
        mask = dataset.dataset_mask(window=window) if opacity is None else dataset.read(opacity, window=window)
        return np.asarray(mask > 0)


def _last_is_opacity(dataset: Any) -> bool:
    """Whether the last band tells the opacity of the others; that of four bands of bytes is called so by default."""
    by_default = dataset.count == 4 and dataset.dtypes[0] == "uint8"
    return dataset.count > 1 and not by_default and dataset.colorinterp[-1].name == "alpha"


def _placed(cube: xr.DataArray) -> xr.DataArray:
    """The cube with what is known of the pixels' places, and no coordinates made up of their numbers."""
    if cube.rio.crs is None:
        turned = not {"x", "y"} <= set(cube.coords) or "gcps" in cube.coords["spatial_ref"].attrs
        unplaced = [] if turned else ["spatial_ref"]
        unplaced += ["x", "y"] if unplaced and cube.rio.transform().is_identity else []
        return cube.drop_vars(unplaced, errors="ignore")
    cube.encoding["grid_mapping"] = "spatial_ref"
    return cube


def describe_raster(source: Path) -> Description:
    """Collect what a raster file says of itself, and check that it is whole; raises as `read` does."""
    path = str(source)
    with open_gdal(source) as dataset:
        if dataset.subdatasets:
            names = ", ".join(name.rsplit("/", 1)[-1] for name in dataset.subdatasets)
            raise ValueError(f"{path}: holds several images ({names}); convert the one you need to GeoTIFF")
        if np.dtype(dataset.dtypes[0]).kind == "c":
            raise ValueError(f"{path}: holds complex numbers, not spectra")
        check = _CHECKS.get(dataset.driver)
        if check is not None:
            check(dataset, path)
        opacity = dataset.count if _last_is_opacity(dataset) else None
        bands = [index for index in dataset.indexes if index != opacity]
        tags = read_band_tags(dataset, path, bands)
        _require_lists(dataset, path)
        units = {dataset.units[index - 1] or None for index in bands}
        masks = dataset.mask_flag_enums
        nodata = [dataset.nodatavals[index - 1] for index in bands]
        return Description(
            driver=dataset.driver,
            tags=tags,
            dtype=np.dtype(dataset.dtypes[0]),
            shape=dataset.shape,
            nodata=[tags.ignore_value if value is None else value for value in nodata],
            scales=[dataset.scales[index - 1] for index in bands],
            offsets=[dataset.offsets[index - 1] for index in bands],
            units=units.pop() if len(units) == 1 else None,
            names=[dataset.descriptions[index - 1] for index in bands],
            indexes=bands,
            masked=all({"per_dataset"} == {"per_dataset", "alpha"} & {flag.name for flag in flags} for flags in masks),
            opacity=opacity,
        )


@contextmanager
def open_gdal(source: Path, driver: str | None = None) -> Iterator[Any]:
    """Open a rasterio dataset without warnings of a missing place.

    Raises ValueError for what GDAL cannot read by ``driver`` or one of `DRIVERS`, and for files that name others
    outside their folder.
    """
    import rasterio
    from rasterio.errors import RasterioError

    _check_beside(source)
    try:
        allowed = [driver] if driver else [*DRIVERS]  # rasterio.open takes one alone
        with _quiet_rasterio(), rasterio.Env(**_LOCAL), rasterio.DatasetReader(str(source), driver=allowed) as dataset:
            _check_places(source, dataset)
            yield dataset
    except RasterioError as error:
        reason = str(error).replace(f"'{source}' ", "").removeprefix(f"{source}: ").rstrip(".")
        raise ValueError(f"{source}: not a raster file that can be read ({reason}){_remedy(source)}") from error


def _check_beside(source: Path) -> None:
    """Raise where overviews, masks or metadata beside a file, which GDAL follows, name further files or servers."""
    for beside in source.parent.glob(f"{escape(source.name)}.*"):
        kind = beside.suffix.lower()
        drawn = kind in (".ovr", ".msk") and first_bytes(beside, 64).lstrip().startswith(b"<")
        if drawn or (kind == ".xml" and beside.is_file() and b"OVERVIEW_FILE" in beside.read_bytes()):
            raise ValueError(f"{source}: {beside.name} beside it names other files or servers: move it away")


def _check_places(source: Path, dataset: Any) -> None:
    """Raise where the pixels, or overviews that metadata name, are outside the folder of a file."""
    folder = Path(os.path.abspath(source)).parent
    outside = [file for file in dataset.files if not Path(os.path.abspath(file)).is_relative_to(folder)]
    if dataset.driver in _LABELS and outside:
        raise ValueError(f"{source}: its pixels are in {outside[0]}, outside its folder; put the files side by side")
    overviews = dataset.tags(ns="OVERVIEWS").get("OVERVIEW_FILE")
    if overviews is not None:
        raise ValueError(
            f"{source}: names a file of overviews, {overviews!r}; take that out of its metadata (.aux.xml)"
        )


def _remedy(source: Path) -> str:
    """What may help with a file that GDAL does not open, after a semicolon."""
    start = first_bytes(source, 4) if source.is_file() else b""
    if start.lstrip().startswith(b"<"):
        return "; XML that names files or servers is not followed: make a GeoTIFF of it with gdal_translate"
    if not start:
        return "; the file is empty, get it anew" if source.is_file() else ""
    for mark, kind in _ARCHIVES.items():
        if start.startswith(mark):
            return f"; it is {kind}: unpack it, or save the table as CSV"
    header = header_of(source)
    if header is not None and not os.access(header, os.R_OK):
        return f"; no permission to read its header {header.name}"
    if header is not None and first_bytes(header, len(BOM_UTF8)) == BOM_UTF8:
        return f"; its header {header.name} begins with a byte-order mark: save it as UTF-8 without one (BOM)"
    if header is not None:
        return f"; check its header {header.name}, which may be damaged"
    if source.suffix.lower() in DATA_SUFFIXES[1:]:
        return "; the data file of ENVI needs its header, .hdr, beside it"
    return "; check how it was written or copied"


def _check_envi(dataset: Any, path: str) -> None:
    """Raise where an ENVI header lacks what GDAL makes up, or the size of the data file contradicts it."""
    tags = dataset.tags(ns="ENVI")
    interleave = tags.get("interleave", "").strip()
    if interleave.lower() not in _INTERLEAVES and dataset.count > 1:
        wrong = f"interleave {interleave!r}, which is none of bsq, bil and bip" if interleave else "no interleave"
        raise ValueError(f"{path}: its header has {wrong}; correct it, or copy it again")
    if tags.get("file_compression", "0").strip() not in ("", "0"):
        return
    offset = tags.get("header_offset", "0").strip()
    if not offset.isdigit():
        raise ValueError(f"{path}: header offset holds {offset!r} where a number of bytes belongs; correct the header")
    sizes = {"bands": dataset.count, "lines": dataset.height, "samples": dataset.width}
    require_size(Path(path), int(offset), sizes, np.dtype(dataset.dtypes[0]).itemsize)


def _require_lists(dataset: Any, path: str) -> None:
    """Raise where an ENVI header lists numbers in a way that rioxarray does not read."""
    tags = dataset.tags(ns="ENVI")
    for key in ("wavelength", "fwhm"):
        entries = tags.get(key, "").strip("{} ").split(",")
        try:
            _ = [float(entry) for entry in entries if entry.strip()]
        except ValueError:
            raise ValueError(
                f"{header_of(Path(path)) or path}: {key} = {tags[key]!r:.40} is no list of numbers in braces with "
                f"commas between; write it as in: {key} = {{450, 460, ...}}"
            ) from None


def _check_tiff_size(dataset: Any, path: str) -> None:
    rows, columns = dataset.block_shapes[0]
    last = f"{-(-dataset.width // columns) - 1}_{-(-dataset.height // rows) - 1}"
    for band in (1, dataset.count):
        start = dataset.get_tag_item(f"BLOCK_OFFSET_{last}", "TIFF", bidx=band)
        length = dataset.get_tag_item(f"BLOCK_SIZE_{last}", "TIFF", bidx=band)
        if start and length:
            require_whole(Path(path), int(start) + int(length), f"band {band} ends at")


def _check_jpeg2000_size(dataset: Any, path: str) -> None:
    held = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        bare = file.read(2) == b"\xff\x4f"  # a code stream without boxes around it
        end = held if bare else _end_of_code_stream(file, held)
        file.seek(max(end - 2, 0))
        if end > held or file.read(2) != b"\xff\xd9":
            raise ValueError(f"{path}: truncated, {held} bytes and no end of the code stream; copy it again")


def _end_of_code_stream(file: BinaryIO, held: int) -> int:
    """Where the box with the code stream of a JPEG 2000 file ends (ISO/IEC 15444-1, annex I)."""
    start, kind = 0, b""
    while start < held and kind != b"jp2c":
        file.seek(start)
        length, kind = struct.unpack(">I4s", file.read(8).ljust(8, b"\0"))
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        start += max(length, 8) if length else held - start
    return start


_ARCHIVES = {b"PK": "a zip archive or a spreadsheet", b"\x1f\x8b": "compressed by gzip", b"BZh": "compressed by bzip2"}
_INTERLEAVES = frozenset({"bsq", "bil", "bip"})
_CHECKS = {"ENVI": _check_envi, "GTiff": _check_tiff_size, "JP2OpenJPEG": _check_jpeg2000_size}


def _decode(raw: xr.DataArray, description: Description, source: Path) -> xr.DataArray:
    cube = without_fills(raw, source, declared=[*description.nodata, *description.saturated])
    dtype = cube.dtype
    nodata = np.array([np.nan if value is None else value for value in description.nodata], dtype=np.float64)
    if raw.dtype.kind == "f":
        with np.errstate(over="ignore"):  # GDAL writes the largest float64 as nodata of float32 files
            nodata = nodata.astype(raw.dtype)
    if np.isfinite(nodata).any() or np.isinf(nodata).any():
        cube = cube.where(raw != _per_band(nodata))
    scales, offsets = _scales(description), np.array(description.offsets)
    if (scales != 1).any():
        cube = cube * _per_band(scales.astype(dtype))
    if (offsets != 0).any():
        cube = cube + _per_band(offsets.astype(dtype))
    return cube


def _scales(description: Description) -> np.ndarray:
    """The factor of each band: that of the tags where the file has no scale and offset of its own."""
    scales = np.array(description.scales)
    plain = (scales == 1).all() and not np.any(description.offsets)
    return scales * description.tags.scale if plain and description.tags.scale is not None else scales


def _per_band(values: np.ndarray) -> xr.DataArray | np.generic:
    return values[0] if (values == values[0]).all() else xr.DataArray(values, dims="band")


def _label(cube: xr.DataArray, description: Description) -> xr.DataArray:
    tags = description.tags
    cube = cube.drop_vars([name for name, coordinate in cube.coords.items() if "band" in coordinate.dims])
    dim = "band" if tags.wavelength is None else "wavelength"
    cube = cube.rename(band=dim) if dim != "band" else cube
    coords = band_coords(dim, tags.unit, tags.wavelength, tags.fwhm, tags.good)
    names = np.array([name or "" for name in description.names])
    if tags.wavelength is None and (names != "").all() and len(set(names)) == names.size:
        coords["band"] = (dim, names, {"long_name": "band name"})
    cube = cube.assign_coords(coords)
    return cube.rio.write_coordinate_system() if cube.rio.crs and {"x", "y"} <= set(cube.coords) else cube


@contextmanager
def _quiet_rasterio() -> Iterator[None]:
    from rasterio.errors import NotGeoreferencedWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        warnings.filterwarnings("ignore", message="(Scales|Offsets) differ across bands")
        yield
