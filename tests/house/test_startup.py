"""What starting costs: which modules an import and ``--help`` load, and compiled kernels that are kept and reused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
HELP_MAY_ADD = {"click", "difflib", "gettext", "encodings", "lazy_loader", "specinvert"}
"""Top-level packages that ``specinvert --help`` may load beyond those of ``import xarray``."""
NO_FOLDER = "/proc/specinvert"
"""A folder that nobody can make, root included."""

HEAVY = {"scipy", "sklearn", "numba", "matplotlib", "rioxarray", "rasterio", "click", "netCDF4", "dask.array"}
HAS_ACCESSOR = "assert hasattr(xr.DataArray, 'gllim') and hasattr(xr.Dataset, 'gllim')"
HELP = """
import contextlib, io
sys.argv = ["specinvert", "--help"]
from specinvert.cli import main
with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    main()
assert "Usage: specinvert" in shown.getvalue()
"""
FIT = """
import json, sys
import numpy as np
import specinvert
from numba.core.dispatcher import Dispatcher
from specinvert.gllim import GLLiM
rng = np.random.default_rng(0)
t = rng.uniform(size=(200, 2))
y = t @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(200, 6))
model = GLLiM(2, n_latent=1, max_iter=3, tol=0.0, random_state=0).fit(y, t)
"""
PREDICT = """
assert np.abs(model.predict(y) - t).mean() < 0.2
"""
KERNELS = """
modules = [module for name, module in sys.modules.items() if name.startswith("specinvert.")]
kernels = {id(v): v for module in modules for v in vars(module).values() if isinstance(v, Dispatcher)}.values()
stats = [kernel.stats for kernel in kernels]
print(json.dumps({
    "package": specinvert.__file__,
    "ran": sum(bool(kernel.signatures) for kernel in kernels),
    "hits": sum(sum(s.cache_hits.values()) for s in stats),
    "misses": sum(sum(s.cache_misses.values()) for s in stats),
    "cached": sum(s.cache_path is not None for s in stats),
}))
"""

QUIET = ["-P", "-W", "error", "-W", "ignore:numpy.ndarray size changed:RuntimeWarning"]
"""Warnings are errors, as in the suite; the current folder is not searched."""


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *QUIET, "-c", code],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> Any:
    """What a process started by :func:`start` prints last, which is JSON."""
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    return json.loads(stdout.splitlines()[-1])


def loaded(code: str) -> set[str]:
    """Names of the modules that ``code`` adds in a fresh process to those of ``import xarray``."""
    before = "import json, sys, xarray as xr\nhad = set(sys.modules)"
    return set(finish(start(f"{before}\n{code}\nprint(json.dumps(sorted(set(sys.modules) - had)))")))


def packages(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def cache_files(folder: Path) -> dict[str, int]:
    """Index (.nbi) and code (.nbc) files of numba below a folder, and when each was written."""
    found = [path for path in folder.rglob("*") if path.suffix in (".nbi", ".nbc")]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in found}


def test_importing_specinvert_adds_itself_its_accessor_and_its_lazy_loader_to_xarray() -> None:
    added = loaded(f"import specinvert\n{HAS_ACCESSOR}")
    assert packages(added) == {"lazy_loader", "specinvert"}
    own = {"specinvert", "specinvert._version", "specinvert.accessor", "specinvert.interrupts"}
    assert {name for name in added if name.startswith("specinvert")} == own
    assert not added & HEAVY


def test_help_adds_nothing_but_click_to_xarray() -> None:
    added = loaded(HELP)
    assert "click" in added
    assert packages(added) <= HELP_MAY_ADD
    assert not added & (HEAVY - {"click"})


def test_the_accessor_is_there_where_xarray_is_imported_after_specinvert() -> None:
    finish(start(f"import specinvert, xarray as xr\n{HAS_ACCESSOR}\nprint(1)"))


def test_a_public_name_loads_only_what_it_needs() -> None:
    absent = {
        "nrmse": {"scipy", "sklearn", "numba", "matplotlib", "click"},
        "gllim": {"rioxarray", "netCDF4", "matplotlib", "click"},
        "GLLiMInverter": {"matplotlib", "click", "rasterio"},
    }
    code = "import json, sys, xarray, specinvert\nhad = set(sys.modules)\nadded = {}\n"
    for name in absent:
        code += f"specinvert.{name}\nadded[{name!r}] = sorted(set(sys.modules) - had)\n"
    added = finish(start(f"{code}print(json.dumps(added))"))
    assert {name: set(added[name]) & banned for name, banned in absent.items()} == {name: set() for name in absent}


def test_a_read_only_installation_without_any_cache_folder_still_fits(tmp_path: Path) -> None:
    """Files named __pycache__ stand where the folders would be, since root may write to read-only folders."""
    package = tmp_path / "site" / "specinvert"
    shutil.copytree(REPOSITORY / "specinvert", package, ignore=shutil.ignore_patterns("__pycache__"))
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    for folder in folders:
        (folder / "__pycache__").touch()
        folder.chmod(0o555)
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"), NO_FOLDER)
    try:
        found = finish(start(FIT + PREDICT + KERNELS, PYTHONPATH=str(package.parent), **nowhere))
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert found["package"] == str(package / "__init__.py")
    assert found["ran"] > 0
    assert found["cached"] == found["hits"] == 0
    assert cache_files(tmp_path) == {}


def test_the_first_fits_compile_and_later_processes_reuse_what_they_kept(tmp_path: Path) -> None:
    """The first two start at once on an empty cache, as workers do."""
    folder = {"NUMBA_CACHE_DIR": str(tmp_path)}
    first = [finish(process) for process in [start(FIT + KERNELS, **folder), start(FIT + KERNELS, **folder)]]
    assert sum(found["misses"] for found in first) > 0
    kept = cache_files(tmp_path)
    assert kept
    later = finish(start(FIT + KERNELS, **folder))
    assert later["hits"] >= later["ran"] > 0
    assert later["misses"] == 0
    assert cache_files(tmp_path) == kept
