"""The `history` attribute of what this package returns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def with_history(attrs: Mapping[Any, Any], done: str) -> dict[Any, Any]:
    """The attributes with one line more in their ``history``: when, by which version, and what was ``done``."""
    from .. import __version__

    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = f"{stamp} specinvert {__version__} {done}"
    earlier = attrs.get("history")
    return {**attrs, "history": f"{earlier}\n{line}" if earlier else line}
