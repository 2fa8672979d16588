"""Writing files: under a temporary name, so that one under its final name is whole; netCDF in one thread at a time.

And by what a file that is read is known to be the same as before.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import inspect
import os
import re
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

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
        with write_errors(final):
            yield temporary
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


_CUT_SHORT = re.compile(r"\d+ requested and \d+ written")
"""What NumPy says of a full disk: it gives no errno, and so no other way to tell."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """What libraries raise where a file cannot be written whole, as :func:`not_whole`; they do not all tell why."""
    try:
        yield
    except Exception as error:
        full = isinstance(error, OSError) and (error.errno in _FULL or _CUT_SHORT.search(str(error)) is not None)
        of_netcdf = isinstance(error, RuntimeError) and str(error).startswith("NetCDF")
        if not (full or of_netcdf or type(error).__module__.startswith("rasterio")):
            raise
        raise not_whole(path, getattr(error, "strerror", None) or str(error)) from error


def not_whole(path: Path, reason: str) -> OSError:
    """The error that a file was not written whole, for a reason in words."""
    free = shutil.disk_usage(path.parent).free
    return OSError(
        f"{path.name}: not written whole ({reason}): no space is left, or a quota or a limit on the size of files is "
        f"reached; {free / 1e6:.3g} MB are free in {path.parent}. Nothing was replaced"
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file for writing, by a lock beside it that goes with this process, however that ends.

    Raises BlockingIOError, which names the process, where another holds it. Where the file system has no locks, a file
    beside it stands for one, which a process that is killed leaves behind.
    """
    lock = path.with_name(f".{path.name}.lock")
    with _acquired(lock, path) as file:
        with suppress(OSError):  # of a full disk, which the file itself tells
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _acquired(lock: Path, path: Path) -> IO[str]:
    """The file of a lock, locked and empty; one that another process has removed meanwhile does not count."""
    while True:
        file = lock.open("a+", encoding="utf-8")
        file.seek(0)
        holder, hint = file.read(), ""
        try:
            if fcntl is None:
                raise OSError(errno.ENOLCK, "no locks")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        except OSError:
            free, hint = not holder, f"; if that is no more, remove {lock}"
        if not free:
            file.close()
            raise BlockingIOError(
                f"{path}: is being written by {holder or 'another process'}; wait for it, or use another name{hint}"
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                file.truncate(0)
                return file
        file.close()


def file_identity(path: str | os.PathLike[str]) -> str:
    """What tells a file or folder, such as a Zarr store, from what it was before it was written again.

    It is a digest of the sizes and times of all files: that of a folder stays when a file in it is written in place.
    """
    top = os.fspath(path)
    files = [top]
    if os.path.isdir(top):
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names)
    digest = hashlib.sha256()
    for file in files:
        status = os.stat(file)
        digest.update(f"{os.path.relpath(file, top)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


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
