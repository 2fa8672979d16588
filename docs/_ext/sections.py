"""Docstrings with underlined sections, ``name : text`` or ``name`` and indented text, as field lists of Sphinx."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent, indent
from typing import Any

from sphinx.ext import autosummary

LISTS = ("Parameters", "Attributes", "Raises", "Warns")
BLOCKS = ("Returns", "Yields")
RUBRICS = ("Examples", "Notes", "References")
ATTRIBUTE = re.compile(r"(?<![\w`.])([A-Za-z]\w*_)(?![\w`])")
"""A name such as ``parameters_``, which would be a link."""


def parts(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The sections of a docstring with their headings; what is before the first has none."""
    heading, body = "", []
    rest = iter([*lines, ""])
    line = next(rest)
    for after in rest:
        if line.strip() in LISTS + BLOCKS + RUBRICS and re.fullmatch(r"-{3,}", after.strip()):
            yield heading, body
            heading, body = line.strip(), []
            after = next(rest, "")
        else:
            body.append(line)
        line = after
    yield heading, body


def items(body: list[str]) -> Iterator[tuple[str, str]]:
    """Names and texts of a section that is a list."""
    text = dedent("\n".join(body)).strip()
    for item in re.split(r"\n+(?=\S)", text):
        head, *more = item.split("\n")
        name, _, first = head.partition(" : ")
        yield name.strip(), "\n".join([first.strip(), dedent("\n".join(more))]).strip()


def as_fields(lines: list[str]) -> list[str]:
    """The docstring's lines as reStructuredText."""
    made: list[str] = []
    for heading, body in parts(lines):
        if heading in LISTS:
            made += ["", f":{heading}:"]
            for name, text in items(body):
                names = ", ".join(f"``{one.strip()}``" for one in name.split(","))
                made += [f"    {names}", *indent(text or "\\ ", " " * 8).split("\n"), ""]
        elif heading in BLOCKS:
            made += ["", f":{heading}:", *indent(dedent("\n".join(body)).strip(), "    ").split("\n"), ""]
        elif heading:
            made += ["", f".. rubric:: {heading}", "", *dedent("\n".join(body)).split("\n"), ""]
        else:
            made += body
    return made


def _convert(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [ATTRIBUTE.sub(r"``\1``", line) for line in as_fields(lines)]


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to estimators to route metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.",)  # no end of a sentence
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _convert)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
