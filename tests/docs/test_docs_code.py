"""The documentation's code and commands: what pages show can be parsed, and names only what is there."""

import ast
import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import specinvert
from specinvert.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
CODE = r"```(?:\{code-cell\} )?python\n((?:.|\n)*?)```"


def blocks(page: Path, pattern: str) -> list[str]:
    return re.findall(pattern, page.read_text(encoding="utf-8"))


def shell_commands(page: Path) -> Iterator[list[str]]:
    """Arguments of every ``specinvert`` in a page's shell blocks and inline code."""
    lines = [
        line for block in blocks(page, r"```sh\n((?:.|\n)*?)```") for line in block.replace("\\\n", " ").split("\n")
    ]
    for text in [*lines, *blocks(page, r"`(specinvert [a-z][^`\n]*)`")]:
        for part in re.split(r"&&|\||;|\$\(", text):
            words = shlex.split(part, comments=True) if part.count('"') % 2 == 0 else []
            starts = [i for i, word in enumerate(words) if Path(word).name == "specinvert" and "install" not in words]
            if starts and len(words) > starts[-1] + 1:
                yield words[starts[-1] + 1 :]


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules of the package and the names that a page takes from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "specinvert":
            yield from ((str(node.module), alias.name) for alias in node.names)
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if re.fullmatch(r"specinvert(\.\w+)+", dotted):
            owner, _, name = dotted.rpartition(".")
            yield owner, name


def has(owner: str, name: str) -> bool:
    """Whether a module or an object of the package has this name, as an attribute or a module."""
    found: object = specinvert
    for part in [*owner.split(".")[1:], name]:
        module = getattr(found, "__name__", "")
        try:
            found = getattr(found, part)
        except AttributeError:
            if not module or importlib.util.find_spec(f"{module}.{part}") is None:
                return False
            found = importlib.import_module(f"{module}.{part}")
    return True


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of options that pages speak of, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "maps.nc.toml").write_text('[invert]\nmodel = "model.nc"\ncube = "scene.nc"\n')


def said_wrong(name: str, arguments: list[str]) -> str:
    """Why a command cannot be given so, if it cannot."""
    if name.startswith("-") or arguments[:1] == ["--help"]:
        return ""
    try:
        command = main.commands[name]
        if arguments:
            command.make_context(name, list(arguments))
    except (click.ClickException, KeyError) as error:
        return f"{name} {shlex.join(arguments)}: {error!r}"
    return ""


@pytest.mark.usefixtures("settings")
def test_commands_have_the_options_that_pages_give_them() -> None:
    given = [(page.name, said_wrong(name, arguments)) for page in PAGES for name, *arguments in shell_commands(page)]
    assert [(page, said) for page, said in given if said] == []


def test_the_pages_show_commands_at_all() -> None:
    shown = {words[0] for page in PAGES for words in shell_commands(page)}
    assert {"train", "invert", "evaluate", "plot", "view", "rank", "demo"} <= shown


def test_the_page_of_the_command_line_lists_every_command() -> None:
    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)", page, re.MULTILINE)) == sorted(main.commands)


def test_code_parses_and_takes_only_names_that_exist() -> None:
    shown = [(page, code) for page in PAGES for code in blocks(page, CODE)]
    assert len(shown) > 10
    wrong = []
    for page, code in shown:
        tree = ast.parse(re.sub(r"^:\w+:.*$", "", code, flags=re.MULTILINE), str(page))
        wrong += [f"{page.name}: {owner}.{name}" for owner, name in imported(tree) if not has(owner, name)]
    assert wrong == []


def test_inline_code_names_only_what_exists() -> None:
    named = {
        (page.name, dotted)
        for page in PAGES
        for dotted in re.findall(r"`(specinvert(?:\.\w+)+)", page.read_text(encoding="utf-8"))
        if not dotted.rpartition(".")[2].isupper()  # stands for any
    }
    assert len(named) > 10
    assert [(page, dotted) for page, dotted in sorted(named) if not has(*dotted.rsplit(".", 1))] == []


def test_links_within_the_documentation_lead_to_headings_that_exist() -> None:
    wrong = []
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", text):
            file, _, anchor = link.partition("#")
            target = (page.parent / file) if file else page
            if re.match(r"[a-z]+:", link) or target.suffix != ".md":
                continue
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            if anchor not in slugs and f"({anchor})=" not in target.read_text(encoding="utf-8"):
                wrong.append(f"{page.name}: {link}")
    assert wrong == []
