"""The README shows what really happens."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_ten_lines_print_what_the_readme_shows() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert code is not None
    assert shown is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code[1], "README.md", "exec"), {})
    assert printed.getvalue().split() == shown[1].split()


def test_the_readme_links_to_files_that_exist() -> None:
    root = Path(__file__).parents[1]
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (root / link).exists()] == []
