"""Draws docs/images/house.png, the wings of the package by floors: ``python docs/_ext/house.py``.

Whatever is imported lies on a lower floor. A box has the name of a wing, its files and lines; an arrow is an import.
"""

import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "house"))

from test_layers import MODULES, PACKAGE, WINGS, crossing, names, wing  # noqa: E402

COLOURS = {"gllim": "#cfe3f5", "io": "#fde8c8", "": "#e6efe0"}
LEFT_OUT = {"__main__", "_version", "interrupts"}
WIDTH, HEIGHT, GAP = 2.3, 0.62, 0.5


def imported() -> dict[str, set[str]]:
    """The wings that each wing imports."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        for own, target, _ in crossing(path):
            if not {own, target} & LEFT_OUT:
                arrows[own].add(target)
    return arrows


def floors(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Wings by floors, the lowest first: each one above all that it imports."""
    level: dict[str, int] = {}
    for name in reversed([name for name in WINGS if name not in LEFT_OUT]):
        level[name] = 1 + max((level[below] for below in arrows[name]), default=-1)
    for name in WINGS:  # what imports nothing: up, to right below the lowest that imports it
        above = [level[other] for other in level if name in arrows[other]]
        if name in level and above and not arrows[name]:
            level[name] = min(above) - 1
    return [[name for name in WINGS if level.get(name) == i] for i in range(max(level.values()) + 1)]


def size(name: str) -> tuple[int, int]:
    """Files and lines of a wing."""
    files = [path for path in MODULES if wing(names(path)) == name]
    return len(files), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def direct(arrows: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that do not follow from others: what is reached by a longer way needs no arrow."""

    def reached(name: str) -> set[str]:
        return {far for below in arrows[name] for far in {below} | reached(below)}

    return [
        (name, below)
        for name in list(arrows)
        for below in arrows[name]
        if not any(below in reached(other) for other in arrows[name] if other != below)
    ]


def draw(path: Path) -> None:
    """Write the picture."""
    arrows = imported()
    levels = floors(arrows)
    widest = max(map(len, levels))
    figure = Figure(figsize=(widest * (WIDTH + GAP) + 0.4, len(levels) * (HEIGHT + GAP) + 0.2))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, widest * (WIDTH + GAP) + 0.4), ylim=(0, len(levels) * (HEIGHT + GAP) + 0.2))
    axes.axis("off")
    place: dict[str, tuple[float, float]] = {}
    for i, level in enumerate(levels):
        start = 0.2 + GAP / 2 + (widest - len(level)) * (WIDTH + GAP) / 2
        for j, name in enumerate(level):
            place[name] = (start + j * (WIDTH + GAP), 0.2 + i * (HEIGHT + GAP))
    for upper, lower in direct(arrows):
        (x0, y0), (x1, y1) = place[upper], place[lower]
        ends = (x0 + WIDTH / 2, y0 - 0.03), (x1 + WIDTH / 2, y1 + HEIGHT + 0.03)
        axes.add_patch(
            FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=9, color="0.45", linewidth=0.9, zorder=1)
        )
    for name, (x, y) in place.items():
        colour = COLOURS.get(name.split(".")[0], COLOURS[""])
        box = FancyBboxPatch(
            (x, y), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.08", fc=colour, ec="0.35", zorder=2
        )
        axes.add_patch(box)
        files, lines = size(name)
        shown = f"{name}/" if (PACKAGE / name.replace(".", "/")).is_dir() else f"{name}.py"
        axes.text(
            x + WIDTH / 2, y + HEIGHT * 0.64, shown, ha="center", va="center", fontsize=11, weight="bold", zorder=3
        )
        count = f"{files} files, {lines} lines" if files > 1 else f"{lines} lines"
        axes.text(
            x + WIDTH / 2, y + HEIGHT * 0.27, count, ha="center", va="center", fontsize=8.5, color="0.3", zorder=3
        )
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(ROOT / "docs" / "images" / "house.png")
