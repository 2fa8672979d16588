"""The README shows what really happens."""

import re
from pathlib import Path

from documents import assert_prints_what_it_shows

ROOT = Path(__file__).parents[2]


def test_the_ten_lines_print_what_the_readme_shows() -> None:
    assert_prints_what_it_shows(ROOT / "README.md")


def test_the_readme_links_to_files_that_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text()) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
