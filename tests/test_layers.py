"""The house of the design: arrows between the layers point down only, and the mathematics stands alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "specinvert"
LAYERS = (
    "__main__",
    "cli",
    "demo",
    "accessor",
    "view",
    "model_selection",
    "inverter",
    "grid_fits",
    "settings",
    "inversion",
    "fitting",
    "diagnostics",
    "io",
    "physics",
    "nuisance",
    "baselines",
    "cubes",
    "gllim",
    "interrupts",
)
"""From the top down; the package's own __init__ is above them all."""
ALLOWED = {
    "gllim": {"numpy", "scipy", "sklearn", "numba", "threadpoolctl"},
    "cubes": {"numpy", "xarray", "dask", "distributed", "threadpoolctl"},
}
"""What a layer may import besides the standard library and the layers below; other layers may import anything."""
ABOVE_ALL = {"__version__"}
"""Names of the package itself that any layer but gllim may take from it."""
MODULES = sorted(PACKAGE.rglob("*.py"))


def names(path: Path) -> tuple[str, ...]:
    """The dotted name of a file's module, in parts."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(path: Path, nodes: Iterator[ast.AST] | None = None) -> Iterator[tuple[str, ...]]:
    """Everything that a file imports, in functions and for type checking too, as absolute dotted names in parts."""
    package = names(path) if path.name == "__init__.py" else names(path)[:-1]
    for node in nodes or ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def layer(name: tuple[str, ...]) -> str | None:
    """The layer of a dotted name of the package; None for the package itself."""
    return name[1] if len(name) > 1 and name[1] in LAYERS else None


def test_every_module_belongs_to_a_layer() -> None:
    found = {names(path)[1] for path in MODULES if len(names(path)) > 1}
    assert {"gllim", "cubes", "io", "inverter", "accessor"} <= found
    assert found <= set(LAYERS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(names(path)))
def test_imports_point_down(path: Path) -> None:
    own = layer(names(path))
    if own is None:
        return assert_package_imports(path)
    for name in imports(path):
        if name[0] != "specinvert":
            continue
        target = layer(name)
        if target is None:
            assert own != "gllim", f"gllim imports {'.'.join(name)} of the package above it"
            assert name[1] in ABOVE_ALL, f"{own} imports {'.'.join(name)}"
        else:
            assert LAYERS.index(target) >= LAYERS.index(own), f"{own} imports {'.'.join(name)} from above"
    return None


def assert_package_imports(path: Path) -> None:
    """The package's __init__ imports the accessor when it is imported, and before it what meets Ctrl-C meanwhile."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    eager = [name for name in imports(path, iter(tree.body)) if name[0] == "specinvert"]
    assert eager == [("specinvert", "interrupts", "leave_quietly_on_interrupt"), ("specinvert", "accessor")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(names(path)))
def test_low_layers_import_only_what_they_may(path: Path) -> None:
    own = layer(names(path))
    foreign = {name[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"specinvert", "__future__"}
    assert foreign <= ALLOWED.get(own or "", foreign)


def test_an_arrow_that_points_up_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "specinvert"
    (package / "gllim").mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    for source in (
        "from ..cubes import bands",
        "def f():\n    from specinvert.io.model import Model",
        "import specinvert.inverter",
        "from .. import cubes",
        "from .. import __version__",
    ):
        path = package / "gllim" / "wrong.py"
        path.write_text(source)
        with pytest.raises(AssertionError, match="gllim imports"):
            test_imports_point_down(path)
    path.write_text("import xarray")
    with pytest.raises(AssertionError):
        test_low_layers_import_only_what_they_may(path)


ALONE = """
import sys, types
for blocked in ("xarray", "dask", "rioxarray", "rasterio", "netCDF4", "matplotlib", "click"):
    sys.modules[blocked] = None
package = types.ModuleType("specinvert")
package.__path__ = [sys.argv[1]]
sys.modules["specinvert"] = package
import numpy as np
from specinvert.gllim import GLLiM
rng = np.random.default_rng(0)
t = rng.normal(size=(80, 2))
y = t @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(80, 6))
model = GLLiM(2, n_latent=1, max_iter=5, tol=0.0, random_state=0).fit(y, t)
assert np.abs(model.predict(y) - t).mean() < 0.2
assert all(not name.startswith("specinvert.") or name.startswith("specinvert.gllim") for name in sys.modules)
print("alone")
"""


def test_gllim_fits_and_predicts_where_xarray_and_dask_are_blocked() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, str(PACKAGE)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alone"), done.stderr


def test_importing_the_package_loads_no_layer_but_the_accessor() -> None:
    code = "import sys, specinvert; print(sorted(n for n in sys.modules if n.startswith('specinvert.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "['specinvert.accessor', 'specinvert.interrupts']"
