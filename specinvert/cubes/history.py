"""The `history` attribute of what this package returns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np


def with_history(attrs: Mapping[Any, Any], done: str) -> dict[Any, Any]:
    """The attributes with one line more in their ``history``: when, by which version, and what was ``done``."""
    from .. import __version__

    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = f"{stamp} specinvert {__version__} {done}"
    return {**attrs, "history": "\n".join(filter(None, (earlier_history(attrs), line)))}


def earlier_history(*holders: Mapping[Any, Any]) -> str:
    """The ``history`` of all these attributes as one text, what several of them say told once."""
    found = [attrs.get("history") for attrs in holders]
    texts = ["\n".join(map(str, np.ravel(history))) for history in found if history is not None]
    return "\n".join(dict.fromkeys(filter(None, texts)))
