"""HDF5 files through h5py, with clear errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"\x89HDF\r\n\x1a\n"


def first_bytes(path: Path, count: int) -> bytes:
    """The first bytes of a file; PermissionError, which names it, where it may not be read."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error


@contextmanager
def open_hdf5(path: Path, kind: str) -> Iterator[Any]:
    """An open `h5py.File`; ValueError where the file is damaged or no HDF5, with `kind` in the message."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except PermissionError as error:
        raise PermissionError(f"{path}: no permission to read this file") from error
    except OSError as error:
        raise ValueError(f"{path}: not a readable {kind}, damaged, truncated or of another kind ({error})") from error
    with file:
        yield file


def claims(path: Path, head: bytes, name_claims: bool, looks_right: Callable[[Any], bool]) -> bool:
    """Whether a file is of a kind: by its content where HDF5 opens it, else by its name. Never raises.

    Parameters
    ----------
    path : the file.
    head : its first bytes; none for a folder.
    name_claims : whether the name is one of this kind.
    looks_right : whether the open `h5py.File` is of this kind.
    """
    if not head:
        return False
    if not head.startswith(MAGIC):
        return name_claims
    try:
        with open_hdf5(path, "HDF5 file") as file:
            return bool(looks_right(file))
    except (OSError, ValueError, KeyError, RuntimeError, TypeError):
        return name_claims


def text(value: object) -> str:
    """An attribute as text, whether stored as bytes, text or an array of one of them."""
    first = np.ravel(np.asarray(value))[:1]
    single = first[0] if first.size else ""
    return single.decode("utf-8", "replace") if isinstance(single, bytes) else str(single)
