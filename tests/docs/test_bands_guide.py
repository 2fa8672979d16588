"""The guide to bands shows what really happens."""

import inspect
from pathlib import Path

from documents import assert_prints_what_it_shows
from specinvert import GLLiMInverter
from specinvert.cubes.request import WATER_VAPOUR_NM, select_bands
from specinvert.cubes.resampling import resample

GUIDE = Path(__file__).parents[2] / "docs" / "bands.md"


def test_the_example_prints_what_the_guide_shows() -> None:
    assert_prints_what_it_shows(GUIDE)


def test_the_guide_tells_the_defaults_there_are() -> None:
    text = " ".join(GUIDE.read_text(encoding="utf-8").split())
    for name, owner in (("reach", resample), ("min_coverage", resample), ("tolerance", GLLiMInverter.invert)):
        assert f"`{name}={inspect.signature(owner).parameters[name].default}`" in text
    for low, high in WATER_VAPOUR_NM:
        assert f"{low:g} to {high:g} nm" in text
    for name in inspect.signature(select_bands).parameters:
        assert name in text or name in ("spectra", "band_dim", "good_only")
