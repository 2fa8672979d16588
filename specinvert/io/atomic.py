"""Writing files: under a temporary name, so that one under its final name is whole; netCDF in one thread at a time."""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xarray.backends import NetCDF4DataStore

NETCDF_LOCK: Any = inspect.signature(NetCDF4DataStore).parameters["lock"].default
"""The lock under which xarray reads netCDF files; the library serves one thread, so what else calls it holds it too."""

_OF_GROUPS = frozenset({"zarr.json", ".zgroup", ".zattrs", ".zmetadata", ".DS_Store"})
"""Files of a Zarr group, beside those of its arrays."""
_SHOWN = 3


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside `path`; on success rename it to `path`, on any exception remove it.

    The temporary name keeps the suffix of `path`, and nothing exists under it yet. A symbolic link is
    followed: its target is replaced, the link stays.

    Parameters
    ----------
    path : the final name. An existing file there is replaced in one step, and only on success.

    Raises
    ------
    FileNotFoundError : the directory does not exist.
    PermissionError : the directory cannot be written to.
    ValueError : `path` is a directory, a device or a pipe, or its directory is a file.

    Examples
    --------
    >>> with atomic_path("notes.txt") as temporary:
    ...     _ = temporary.write_text("whole or not at all")
    >>> Path("notes.txt").read_text()
    'whole or not at all'
    """
    final = check_target(path)
    temporary = final.with_name(f".{final.stem}-{uuid.uuid4().hex[:12]}{final.suffix}")
    try:
        yield temporary
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """Check that a file can be written at `path`, and return its resolved name; raises as `atomic_path` does."""
    final = Path(os.path.realpath(path))
    directory = final.parent
    if final.is_dir() and final.suffix != ".zarr":
        raise ValueError(f"{os.fspath(path)}: is a directory; give the name of a file in it")
    if final.is_dir() and (foreign := _not_of_a_store(final)):
        raise ValueError(
            f"{os.fspath(path)}: is a directory that is no Zarr store, or holds more than one ({foreign}), which would "
            "be lost; use another name, or move it"
        )
    if final.exists() and not (final.is_file() or final.is_dir()):
        raise ValueError(f"{os.fspath(path)}: is a device or a pipe; give the name of a file to write")
    if not directory.exists():
        raise FileNotFoundError(f"{os.fspath(path)}: directory {directory} does not exist; create it first")
    if not directory.is_dir():
        raise ValueError(f"{os.fspath(path)}: {directory} is a file, not a directory; choose another place")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(f"{os.fspath(path)}: no permission to write in {directory}; choose another place")
    return final


def _not_of_a_store(folder: Path) -> str:
    """What a folder holds that is no part of a Zarr store of maps, by name; "" where there is nothing."""
    entries = sorted(folder.iterdir())
    if not any(entry.name in ("zarr.json", ".zgroup") for entry in entries):
        return ", ".join(entry.name for entry in entries[:_SHOWN])
    arrays = ("zarr.json", ".zarray", ".zgroup")
    foreign = [
        entry.name
        for entry in entries
        if entry.name not in _OF_GROUPS and not any((entry / name).is_file() for name in arrays)
    ]
    return ", ".join(foreign[:_SHOWN])


def put_in_place(new: Path, final: Path) -> None:
    """Give a finished file or folder its name; what was there, if it is a folder, is left beside `new`.

    A folder is exchanged with the new one in one step where the system can do so; elsewhere there is a moment in
    which neither has the name.
    """
    if not final.is_dir():
        os.replace(new, final)
    elif not _exchange(new, final):
        replaced = new.with_name(f"{new.name}.replaced")
        final.rename(replaced)
        try:
            os.replace(new, final)
        except BaseException:
            if not final.exists():
                replaced.rename(final)
            raise


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step, by renameat2(2) of Linux or renamex_np(2) of macOS; False where it is not done."""
    here, exchange = -100, 2
    names = os.fsencode(first), os.fsencode(second)
    try:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return bool(library.renamex_np(*names, exchange) == 0)
        return bool(library.renameat2(here, names[0], here, names[1], exchange) == 0)
    except (AttributeError, OSError, TypeError):
        return False
