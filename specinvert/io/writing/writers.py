"""`save_maps`: maps to netCDF, Zarr or GeoTIFF, whole or not at all, with no encoding inherited from the input."""

from __future__ import annotations

import numbers
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from ...cubes import CUBE_FILE, require_flags
from ...progress import reporting
from .. import check_target, locked, put_in_place
from .blocks import ProgressCallback, Write, block_layout, block_place, kept_blocks, side_folder
from .cf import dress
from .stores import FLAG, flag_name, geotiff_files, netcdf_file, raster_dtype, raster_maps, storable, zarr_store
from .verify import WrittenValues

_NETCDF = frozenset({".nc", ".nc4"})
_ZARR = frozenset({".zarr"})
_GEOTIFF = frozenset({".tif", ".tiff"})
_OpenFile = Callable[[xr.Dataset, Path], AbstractContextManager[Write]]


def save_maps(
    maps: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    resume: bool = False,
    progress: ProgressCallback | bool | None = None,
    compression: int = 0,
    history: str | None = None,
) -> None:
    """Write maps to a netCDF (.nc, .nc4), Zarr (.zarr) or GeoTIFF (.tif, .tiff) file.

    Lazy maps are computed block by block, each block once for all variables, and kept in a hidden folder beside the
    file (:mod:`.blocks`). The file grows there too as blocks arrive, in memory bounded by a few of them,
    and appears under its name only when complete and read back as it was written; the folder stays behind when a run is
    stopped, for ``resume``. A file that another process is writing is refused.

    netCDF and Zarr hold every variable: floats with NaN as fill value, integers without a fill value and in netCDF
    compressed, coordinates and CRS, with what CF-1.11 asks of names, units and coordinates (:mod:`.cf`).
    Types and attributes that files do not hold are spelled in those that they do (:mod:`.stores`).
    GeoTIFF, cloud-optimised with overviews and statistics, holds the maps as bands named after the variables, NaN for
    no data, in the smallest float type that holds them all, their attributes as tags; the variable `quality_flag` goes
    to `<name>_flag.tif` beside it, as the integers it is, without a nodata value.

    Parameters
    ----------
    maps : Dataset; for GeoTIFF, every variable two-dimensional and numeric.
    path : the file to write; an existing one is replaced.
    resume : go on with the blocks that a stopped run of the same maps left behind.
    progress : False for none, True for a bar, which is shown by default on a terminal and in a notebook; or a function,
        called after each block with a :class:`specinvert.io.writing.blocks.BlockProgress`.
    compression : deflate level of float variables in netCDF, 0 (none) to 9. Level 1 makes noisy maps a fifth smaller
        and the whole inversion a tenth longer; maps with much nodata shrink more.
    history : what made the file, such as a command: a line with the time, added to the attribute `history`.

    Raises
    ------
    ValueError : another suffix, a compression that is no level, no variables or empty ones, a MultiIndex, a variable of
        a type that no file holds, for GeoTIFF one that is no 2-D map or no number, or maps of a swath, or blocks of
        other maps to resume from; or the maps were inverted from the cube in that file, which would be lost.
    TypeError : `maps` is not a Dataset, `progress` no function, `history` no text.
    FileNotFoundError, PermissionError : the directory is missing or cannot be written to.
    BlockingIOError : another process is writing the file.
    OSError : the file was not written whole, as on a full disk, and what was there before is.

    Warns
    -----
    UserWarning : names or units that CF cannot hold, and what is written instead (not for GeoTIFF).

    Examples
    --------
    >>> maps = xr.Dataset({"lai": (("y", "x"), [[1.0, 2.0], [3.0, 4.0]], {"units": "m2 m-2"})})
    >>> save_maps(maps, "maps.nc")
    >>> save_maps(maps, "maps.tif")
    >>> from specinvert import open_cube
    >>> open_cube("maps.tif").values[..., 0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if not isinstance(maps, xr.Dataset):
        raise TypeError(f"maps must be an xarray.Dataset, not {type(maps).__name__}; use array.to_dataset(name=...)")
    _check_options(resume, progress, compression, history)
    cube = maps.encoding.get(CUBE_FILE)
    if cube is not None and os.path.realpath(cube) == os.path.realpath(path):
        raise ValueError(
            f"{Path(path)}: holds the cube that these maps come from, which would be lost; use another name"
        )
    suffix = Path(path).suffix.lower()
    if suffix not in _NETCDF | _ZARR | _GEOTIFF:
        accepted = ", ".join(sorted(_NETCDF | _ZARR | _GEOTIFF))
        raise ValueError(f"{os.fspath(path)}: cannot write {suffix or 'a name without suffix'}; use one of {accepted}")
    if not maps.data_vars:
        raise ValueError(f"{os.fspath(path)}: the Dataset has no variables to write")
    maps = storable(maps, path)
    final = Path(path)
    open_file: _OpenFile
    if suffix in _GEOTIFF:
        maps, open_file = raster_maps(maps, final), geotiff_files
    else:
        open_file = partial(netcdf_file, compression=compression) if suffix in _NETCDF else zarr_store
    final = check_target(final)
    made = [final.name]
    if suffix in _GEOTIFF and FLAG in maps:
        made.append(check_target(final.with_name(flag_name(final))).name)
    maps = _numbers_lazy(maps if suffix in _GEOTIFF else dress(maps))
    if history is not None:
        stamped = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {history}"
        maps.attrs["history"] = "\n".join(line for line in (maps.attrs.get("history"), stamped) if line)
    dtypes = {str(name): raster_dtype(maps) for name in maps.data_vars if name != FLAG} if suffix in _GEOTIFF else {}
    with ExitStack() as locks:
        for name in made:
            locks.enter_context(locked(final.with_name(name)))
        if block_layout(maps) is not None:
            with (
                reporting(progress, lambda bars: bars.blocks) as report,
                kept_blocks(maps, side_folder(final), resume, report) as run,
            ):
                with _file(open_file, maps, run.folder / final.name, made, dtypes) as write:
                    _write_lazy(maps, write, leave=set(run.lazy))
                    run.compute(write)
                run.require_own()
                _publish(run.folder, final.parent, made)
        else:
            with tempfile.TemporaryDirectory(prefix=f".{final.stem}-", dir=final.parent) as folder:
                with _file(open_file, maps, Path(folder) / final.name, made, dtypes) as write:
                    _write_lazy(maps, write, leave=set())
                _publish(Path(folder), final.parent, made)


def _check_options(resume: object, progress: object, compression: object, history: object) -> None:
    require_flags(resume=resume)
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress={progress!r} must be a function that takes a BlockProgress")
    level = isinstance(compression, numbers.Integral) and not isinstance(compression, bool)
    if not level or compression not in range(10):
        raise ValueError(f"compression={compression!r} is no level of deflate: use 0 (none) to 9 (smallest)")
    if not isinstance(history, str | None):
        raise TypeError(f"history={history!r} must be a text, such as the command that made the maps")


def _numbers_lazy(maps: xr.Dataset) -> xr.Dataset:
    """The maps with lazy variables that a file encodes, such as dates and text, in memory."""
    maps = maps.copy()
    for variable in maps.variables.values():
        if variable.chunks is not None and variable.dtype.kind not in "biuf":
            variable.load()
    return maps


def _write_lazy(maps: xr.Dataset, write: Write, leave: set[str]) -> None:
    """Write lazy variables that share no grid of blocks, each block by block."""
    for name, variable in maps.variables.items():
        if variable.chunks is not None and name not in leave:
            for index in np.ndindex(*map(len, variable.chunks)):
                place = block_place(variable.chunks, index)
                write(str(name), place, variable[place].values)


@contextmanager
def _file(
    open_file: _OpenFile, maps: xr.Dataset, path: Path, made: list[str], dtypes: dict[str, np.dtype]
) -> Iterator[Write]:
    """A new file in a folder that outlives a failure, read back at the end; after a failure it does not outlive it.

    Threads of Zarr write on for a moment after a stop, so that its folder may not be empty yet: that hides no stop, and
    what is left goes when the run is taken up again.
    """
    remains = [path.with_name(name) for name in made]
    for remain in remains:
        _remove(remain)
    try:
        written = WrittenValues(maps, dtypes)
        with open_file(maps, path) as write:
            yield written.noting(write, path)
        written.check(path, remains)
    except BaseException:
        for remain in remains:
            with suppress(OSError):
                _remove(remain)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _publish(folder: Path, target: Path, names: list[str]) -> None:
    """Give finished files their final place, the first one last; what was there goes.

    An interrupt between two of them does not part them.
    """
    try:
        for name in reversed(names):
            put_in_place(folder / name, target / name)
    except KeyboardInterrupt:
        left = [name for name in reversed(names) if (folder / name).is_file()]
        for name in left if len(left) < len(names) else ():
            put_in_place(folder / name, target / name)
        raise
