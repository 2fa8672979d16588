"""The guide to uncertainties shows what really happens, and names what there is."""

import re
from pathlib import Path

from documents import assert_prints_what_it_shows
from specinvert.cubes.outputs import OUTPUTS
from specinvert.flags import FLAGS

GUIDE = Path(__file__).parents[2] / "docs" / "uncertainty.md"


def test_the_example_prints_what_the_guide_shows() -> None:
    assert_prints_what_it_shows(GUIDE)


def test_the_guide_names_every_output_and_every_flag_with_its_bit() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [output for output in OUTPUTS if f"`{output}`" not in text] == []
    rows = re.findall(r"^\| ([\d, ]+) \| (.+?) \|", text, re.MULTILINE)
    named = {}
    for bits, names in rows:
        named |= dict(zip(map(int, bits.split(",")), re.findall(r"`(\w+)`", names), strict=True))
    assert named == FLAGS


def test_the_guide_links_to_files_that_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", GUIDE.read_text(encoding="utf-8")) if "://" not in link]
    assert links
    assert [link for link in links if not (GUIDE.parent / link).exists()] == []
