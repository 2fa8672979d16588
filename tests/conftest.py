"""Of the whole suite: kinds of tests, the same examples of Hypothesis every time, and Ctrl-C heeded wherever it is."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("specinvert", derandomize=True, deadline=None, max_examples=40, print_blob=True)
settings.load_profile("specinvert")

# ignored in the background of a script, which programs under test would inherit
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FOLDERS = {"cli": "command_line", "docs": "docs", "io": "files"}
"""Kinds of all tests of a folder."""
FIXTURES = {"tmp_path": "files", "tmp_path_factory": "files", "browser": "browser"}
"""Kinds of tests that ask for a fixture, themselves or through another."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the kinds that follow from where a test stands and what it takes; test modules mark the others."""
    for item in items:
        kinds = {FOLDERS.get(item.path.relative_to(Path(__file__).parent).parts[0])}
        if isinstance(item, pytest.Function):
            kinds |= {FIXTURES.get(name) for name in item.fixturenames}
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            kinds.add("property")
        for kind in sorted(filter(None, kinds)):
            item.add_marker(kind)
