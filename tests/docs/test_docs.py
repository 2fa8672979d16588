"""The documentation: its examples run, its links lead somewhere, and the reference has every public name."""

import doctest
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import xarray as xr

import specinvert
import specinvert.baselines
import specinvert.figures
import specinvert.physics
import specinvert.scores
from specinvert.io.reading import products as readers
from specinvert.settings import GLLiMSettings, InverterSettings, settings_of

SETTINGS = settings_of(GLLiMSettings) | settings_of(InverterSettings)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "specinvert"
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.rst")))
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))

NEEDED = {"prosail_model": "prosail"}
"""Packages beyond the required ones that the examples of a module use."""
SHARED = {
    "specinvert.physics.geometry": ["refuse"],
    "specinvert.physics.mixing": ["with_ranges"],
    "specinvert.gllim": [
        *("LEAST_HELD_OUT", "held_out_rows", "held_out_tails", "level_with_noise"),
        *("SEARCHED_ROWS", "SMALL", "Candidate", "Found", "Search", "Trial", "candidate_settings", "splits"),
    ],
    "specinvert.scores": [
        *("CORRECTIONS", "LEAST_GROUPS", "LEAST_VALUES", "Corrected", "FieldValues", "correct", "promise"),
        *(
            "AXES",
            "CALIBRATED",
            "CAVEAT",
            "LeftOut",
            "ranked",
            "DEFAULT_METHODS",
            "Finding",
            "KNOWN",
            "best_of",
            "broadcast_truth",
            "edges_of",
        ),
        *("MEASURED", "grouped_errors", "in_decades", "of_samples", "weighted_calibration"),
        *("format_selection", "is_given", "model_names", "other_model", "paired", "read_truth", "require_comparable"),
        *("require_criterion", "require_score", "scores_of", "shared_parameters"),
        *("BY_BAND", "BY_WINDOW", "Checked", "Surprise", "misfits", "name_window", "predictive_check", "windows_of"),
        *("LEAST_SPECTRA", "Excess", "WindowAmplitudes", "calibrate_windows", "correlation", "excess"),
        *(f"{of}_findings" for of in ("band", "check", "evaluation", "map", "model", "noise")),
    ],
    "specinvert.figures": [
        *("BLANK", "BandAxis", "MOST_ODD", "edges_of", "entry_text", "flag_colours", "is_tiff", "open_geotiff_maps"),
        *("open_results", "pick", "pixel_dims", "plot_selection", "render", "require_figure", "robust_limits"),
        *("unit_ratio",),
    ],
}
"""What wings lend to others of the package, and users need not know."""


def module_of(path: Path) -> ModuleType:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def defined_in(module: ModuleType) -> list[str]:
    """Public names of a module: its ``__all__``, else the functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, found in vars(module).items()
        if not name.startswith("_")
        and getattr(found, "__module__", None) == module.__name__
        and (inspect.isfunction(found) or inspect.isclass(found))
    ]


def public_objects() -> Iterator[tuple[str, Any]]:
    """Dotted names of all public functions and classes, and of public data, with what they are."""
    modules = [specinvert.gllim, specinvert.nuisance, specinvert.baselines, specinvert.scores, specinvert.figures]
    simulators = [found.name for found in pkgutil.iter_modules(specinvert.physics.__path__)]
    modules += [importlib.import_module(f"specinvert.physics.{name}") for name in simulators]
    for module in (specinvert, *modules):
        for name in defined_in(module):
            if name not in SHARED.get(module.__name__, ()):
                yield f"{module.__name__}.{name}", getattr(module, name)


def public_members(owner: type) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_") and name not in SETTINGS]


def in_reference(name: str) -> bool:
    """Whether a page documents the name, by itself or with all others of its module."""
    module, _, last = map(re.escape, name.rpartition("."))
    alone = rf"^\.\. auto\w+:: (\w+\.)*{last}$"
    listed = rf"^\.\. automodule:: {module}\n   :members:( .*\b{last}\b.*)?$"
    return re.search(f"{alone}|{listed}", REFERENCE, re.MULTILINE) is not None


def can_run(path: Path) -> bool:
    return path.stem not in NEEDED or importlib.util.find_spec(NEEDED[path.stem]) is not None


def test_examples_in_docstrings_show_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    for path in filter(can_run, WITH_EXAMPLES):
        folder = tmp_path.joinpath(*path.relative_to(PACKAGE).parts)
        folder.mkdir(parents=True)
        run = 0
        for test in doctest.DocTestFinder().find(module_of(path)):
            with monkeypatch.context() as patch:
                patch.chdir(folder)  # examples that write files do so there
                patch.setattr(readers, "_readers", list(readers._readers))  # and some register one
                run += doctest.DocTestRunner(verbose=False).run(test, out=told.append).attempted
        expected = len(re.findall(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE))
        if run != expected:
            told.append(f"{path.relative_to(PACKAGE)}: {run} of {expected} examples ran")
    assert not told, "".join(told)


def test_no_example_is_skipped() -> None:
    skipped = [path.name for path in WITH_EXAMPLES if "doctest: +SKIP" in path.read_text(encoding="utf-8")]
    assert skipped == []


def test_every_public_name_has_a_docstring_of_its_own() -> None:
    bare = [
        name
        for name, found in public_objects()
        if (inspect.isfunction(found) or inspect.isclass(found)) and not (found.__doc__ or "").strip()
    ]
    accessors = [type(kind().gllim) for kind in (xr.Dataset, xr.DataArray)]
    owners = [specinvert.GLLiMInverter, specinvert.gllim.GLLiM, *accessors]
    bare += [
        f"{owner.__name__}.{name}"
        for owner in owners
        for name in public_members(owner)
        if not (getattr(owner, name).__doc__ or "").strip()
    ]
    assert bare == []


def test_every_public_name_is_in_the_reference() -> None:
    names = [name for name, found in public_objects() if not inspect.ismodule(found)]
    assert len(names) > 80
    assert [name for name in names if not in_reference(name)] == []


def test_every_method_of_the_accessors_is_in_the_reference() -> None:
    kinds = {kind.__name__: type(kind().gllim) for kind in (xr.Dataset, xr.DataArray)}
    assert all(public_members(accessor) for accessor in kinds.values())
    names = [f"{kind}.gllim.{name}" for kind, accessor in kinds.items() for name in public_members(accessor)]
    assert [name for name in names if f".. autoaccessormethod:: {name}\n" not in REFERENCE] == []


def test_every_method_of_the_inverter_is_in_the_table_of_its_page() -> None:
    page = (DOCS / "api" / "inverter.rst").read_text(encoding="utf-8")
    assert [n for n in public_members(specinvert.GLLiMInverter) if f"   GLLiMInverter.{n}\n" not in page] == []


def test_links_lead_to_files_that_exist() -> None:
    broken = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", link)]
        broken += [(page.name, link) for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert broken == []


def test_every_page_is_reached_from_another() -> None:
    listed = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"```\{toctree\}\n(.*?)```", listed, re.DOTALL)
    entries = [line for block in blocks for line in block.split("\n") if line and not line.startswith(":")]
    for page in DOCS.rglob("*.md"):
        if page != DOCS / "index.md":
            name = page.relative_to(DOCS).with_suffix("").as_posix()
            assert any(Path(name).match(entry) or Path(name).match(f"*/{entry}") for entry in entries), name


def test_the_quick_start_runs_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "notebooks" / "quickstart.md").read_text(encoding="utf-8")
    cells = re.findall(r"```\{code-cell\} python\n(?!:tags:)(.*?)```", text, re.DOTALL)  # with tags: not shown
    assert len(cells) > 5
    scope: dict[str, Any] = {}
    exec(compile("\n".join(cells), "quickstart.md", "exec"), scope)
    written = {"model.nc", "maps.nc", "maps.tif", "maps_flag.tif", "maps.png"}
    assert {path.name for path in tmp_path.iterdir()} == written
    assert max(float(score) for score in specinvert.nrmse(scope["maps"], scope["truth"]).values()) < 0.4
