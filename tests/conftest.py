"""Hypothesis settings of the suite: the same examples every time, and how to reproduce a failure."""

from hypothesis import settings

settings.register_profile("specinvert", derandomize=True, deadline=None, max_examples=40, print_blob=True)
settings.load_profile("specinvert")
