"""The checkpoint of a grid of fits: the numbers of each that is done in one JSON file, written whole after each."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from .atomic import atomic_path, check_target

_TITLE = "specinvert finished fits"


class FinishedFits:
    """Keeps what is known of finished fits in a file.

    Parameters
    ----------
    path : the file; taken up where it exists.

    Raises
    ------
    ValueError : the file exists and is of another kind.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_target(path)
        self._fits: dict[str, Any] = self._read() if self.path.exists() else {}

    def begin(self, names: Collection[str]) -> None:
        """Take up the fits of these names; ValueError where the file holds others only."""
        if self._fits and not set(names) & set(self._fits):
            raise ValueError(
                f"{self.path}: finished fits of other data or settings, none of this grid: remove it to start anew"
            )

    def load(self, name: str) -> Mapping[str, Any] | None:
        """What was kept of a fit."""
        return self._fits.get(name)

    def keep(self, name: str, found: Mapping[str, Any]) -> None:
        """Keep what is known of a fit, of strings, numbers, lists and dictionaries, and write all."""
        self._fits[name] = dict(found)
        with atomic_path(self.path) as temporary:
            temporary.write_text(json.dumps({"title": _TITLE, "fits": self._fits}, indent=1), encoding="utf-8")

    def remove(self) -> None:
        """Delete the file: all is done."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            held = json.loads(self.path.read_text(encoding="utf-8"))
            if held["title"] != _TITLE:
                raise ValueError("another kind of file")
            return dict(held["fits"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path}: not a readable file of finished fits: {error}") from None
