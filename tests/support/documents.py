"""Documents whose examples are run."""

import contextlib
import io
import re
from pathlib import Path


def assert_prints_what_it_shows(document: Path) -> None:
    """The first Python block of a Markdown file prints its first text block, but for blanks."""
    text = document.read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert code is not None
    assert shown is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code[1], document.name, "exec"), {})
    assert printed.getvalue().split() == shown[1].split()
