"""The house of CONTRIBUTING: wings in layers, arrows that point down only, and the mathematics standing alone."""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "specinvert"
WINGS = (
    "__main__",
    "cli",
    "accessor",
    "view",
    "model_selection",
    "figures",
    "inverter",
    "scores",
    "io.writing",
    "io.reading",
    "io",
    "model",
    "physics",
    "nuisance",
    "cubes",
    "flags",
    "baselines",
    "gllim",
    "gllim.em",
    "gllim.posterior",
    "gllim.transforms",
    "gllim.mixtures",
    "gllim.model",
    "gllim.core",
    "progress",
    "settings",
    "interrupts",
    "_version",
)
"""From the top down; the package's own __init__ is above them all. A module belongs to the longest that holds it."""
APART = {frozenset(("io.reading", "io.writing")), frozenset(("gllim.posterior", "gllim.em"))}
"""Neither of a pair imports the other, though one stands above."""
ALLOWED = {
    "gllim": {"numpy", "scipy", "sklearn", "numba", "threadpoolctl"},
    "cubes": {"numpy", "scipy", "xarray", "dask", "distributed", "threadpoolctl", "lazy_loader"},
}
"""What a layer may import besides the standard library and the layers below; other layers may import anything."""
MOST_FILES, MOST_MODULES, MOST_LINES = 168, 15, 500
MODULES = sorted(PACKAGE.rglob("*.py"))
Rule = Callable[[Path], Iterator[str]]


def names(path: Path) -> tuple[str, ...]:
    """The dotted name of a file's module, in parts."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def import_statements(source: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, nodes: Iterable[ast.AST] | None = None) -> Iterator[tuple[str, ...]]:
    """Everything that a file imports, in functions and for type checking too, as absolute dotted names in parts."""
    package = names(path) if path.name == "__init__.py" else names(path)[:-1]
    for node in nodes or import_statements(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def wing(name: tuple[str, ...]) -> str | None:
    """The wing of a dotted name of the package; None for the package itself."""
    inner = ".".join(name[1:])
    holding = [known for known in WINGS if inner == known or inner.startswith(f"{known}.")]
    return max(holding, key=len, default=None)


def crossing(path: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """What a file imports of other wings: its own wing, the other, and the name."""
    own = wing(names(path))
    for name in imports(path):
        if name[0] == "specinvert" and own is not None and wing(name) != own:
            yield own, wing(name) or "", name


def test_every_module_belongs_to_a_wing() -> None:
    assert {wing(names(path)) for path in MODULES if len(names(path)) > 1} == set(WINGS)


def wrong_arrows(path: Path) -> Iterator[str]:
    """What a module imports from above, or of the other of a pair."""
    if wing(names(path)) is None:
        yield from wrong_in_package(path)
        return
    for own, target, name in crossing(path):
        if not target:
            yield f"{own} imports {'.'.join(name)} of the package above it"
        elif WINGS.index(target) <= WINGS.index(own):
            yield f"{own} imports {'.'.join(name)} from above"
        elif frozenset((own, target)) in APART:
            yield f"{own} imports {'.'.join(name)}"


def wrong_in_package(path: Path) -> Iterator[str]:
    """The package's __init__ imports the accessor when it is imported, and before it what meets Ctrl-C meanwhile."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    eager = [name[1:] for name in imports(path, tree.body) if name[0] == "specinvert"]
    if eager != [("interrupts", "leave_quietly_on_interrupt"), ("accessor",), ("_version", "__version__")]:
        yield f"the package imports {eager}"


def wrong_names(path: Path) -> Iterator[str]:
    """What a module imports of another wing that is not public there, or from elsewhere than where it is listed."""
    for own, target, name in crossing(path):
        folder = PACKAGE.joinpath(*target.split("."))
        if folder.is_dir():
            whole = ("specinvert", *target.split("."))
            if name == whole:
                continue
            if name[:-1] != whole:
                yield f"{own} reaches into {'.'.join(name[:-1])}"
            elif name[-1] not in importlib.import_module(f"specinvert.{target}").__all__:
                yield f"{own} imports {'.'.join(name)}, which is not listed"
        if name[-1].startswith("_") and name[-1] != "__version__":
            yield f"{own} imports {'.'.join(name)}"


def foreign(path: Path) -> Iterator[str]:
    """What a module imports of other packages that its layer may not."""
    own = (wing(names(path)) or "").split(".")[0]
    found = {name[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"specinvert", "__future__"}
    yield from (f"{own} imports {name}" for name in sorted(found - ALLOWED.get(own, found)))


@pytest.mark.parametrize("wrong", [wrong_arrows, wrong_names, foreign])
def test_modules_import_from_below_what_is_public_there_and_low_layers_little_else(wrong: Rule) -> None:
    assert [f"{'.'.join(names(path))}: {said}" for path in MODULES for said in wrong(path)] == []


def test_contributing_shows_every_wing_in_their_order() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|", text, re.MULTILINE)
    shown = [name for row in rows for name in re.findall(r"`([\w.]+)`", row) if name in WINGS]
    assert shown == [name for name in WINGS if name != "__main__"]


def test_rooms_are_few_and_of_a_size_to_live_in() -> None:
    folders = Counter(path.parent.relative_to(PACKAGE) for path in MODULES if path.name != "__init__.py")
    assert not {str(folder): count for folder, count in folders.items() if count > MOST_MODULES}
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {path: count for path, count in lines.items() if count > MOST_LINES}
    assert len(MODULES) <= MOST_FILES


def test_no_circle_of_imports() -> None:
    known = {names(path): path for path in MODULES}
    graph: dict[Path, set[Path]] = {}
    for path in MODULES:
        targets = {known.get(name, known.get(name[:-1], path)) for name in imports(path) if name[0] == "specinvert"}
        graph[path] = targets - {path}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_two_classes_have_one_name() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in MODULES]
    classes = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in classes.items() if count > 1]


def test_an_arrow_that_points_up_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "specinvert"
    (package / "gllim" / "em").mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", package)
    for source in (
        "from ...cubes import bands",
        "def f():\n    from specinvert.model import Model",
        "import specinvert.inverter",
        "from ... import cubes",
        "from ... import __version__",
        "from ..estimator import GLLiM",
        "from .. import GLLiM",
        "from ..posterior import Posterior",
    ):
        path = package / "gllim" / "em" / "wrong.py"
        path.write_text(source)
        assert re.match(r"gllim\.em imports", next(wrong_arrows(path), ""))
    path.write_text("import xarray")
    assert list(foreign(path)) == ["gllim imports xarray"]


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
ours = {name for name in sys.modules if name.startswith("specinvert.") and not name.startswith("specinvert.gllim")}
assert ours == {"specinvert.settings"}
print("alone")
"""


def test_gllim_fits_and_predicts_where_xarray_and_dask_are_blocked() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, str(PACKAGE)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alone"), done.stderr
