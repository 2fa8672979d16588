"""Text in figures and pages: what files say without characters that hide or turn text, long names in lines, shares."""

from __future__ import annotations

import re
import textwrap

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def legible(text: object) -> str:
    """Text from a file as it is, less control characters and those that are not seen or turn its direction."""
    return _UNSEEN.sub("", _CONTROL.sub(" ", str(text)))


def wrapped(text: str, width: int, lines: int) -> str:
    """Text in at most so many lines of at most ``width`` characters; what is longer ends in three dots."""
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …")) or text


def percent(share: float) -> str:
    """A share as a percentage, to read: two digits, more where it is nearly all."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.4g} %"
