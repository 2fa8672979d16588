"""A process that is forked after dask has started threads has none of them."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, dask.array as da, specinvert.cubes.maps
lazy = da.ones((4, 4), chunks=2).sum()
assert lazy.compute() == 16.0
child = os.fork()
if child == 0:
    os._exit(int(lazy.compute()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_computes_after_its_parent_has() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "16"
