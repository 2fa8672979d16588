"""Hypothesis settings of the suite, the same examples every time; and Ctrl-C heeded, wherever the suite was started."""

import signal

from hypothesis import settings

settings.register_profile("specinvert", derandomize=True, deadline=None, max_examples=40, print_blob=True)
settings.load_profile("specinvert")

# ignored in the background of a script, which programs under test would inherit
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
