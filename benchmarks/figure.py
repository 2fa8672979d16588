"""The results as one figure, a panel for each question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
MARKERS = ("o", "s", "^", "D")
Rows = list[dict[str, Any]]


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw what was measured; panels of what was not are left out."""
    from matplotlib.figure import Figure  # here, since worker processes import this module and draw nothing

    results = found["results"]
    panels: list[tuple[str, Callable[[Axes, Rows], None]]] = [
        ("core", _ratios),
        ("sweeps", _growth),
        ("sweeps", _rates),
        ("peers", _peers),
        ("files", _memory),
        ("shares", _shares),
    ]
    given = results | {"files": _with_memory(results), "shares": _all_shares(results)}
    shown = [(given[name], panel) for name, panel in panels if given.get(name)]
    if not shown:
        return
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.7 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, (rows, panel) in zip(axes.flat, shown, strict=False):
        panel(axis, rows)
        axis.spines[["top", "right"]].set_visible(False)
    if found["quick"]:
        figure.suptitle("quick run at small sizes: figures mean little")
    figure.savefig(path, dpi=130)


def _ratios(axis: Axes, rows: Rows) -> None:
    names = [_short(row) for row in rows]
    _bars(axis, names, [row["ratio"] for row in rows], [row["target"] for row in rows], "{:.2f}")
    axis.axvline(1.0, color=GREY, linewidth=1, linestyle="--")
    if max(row["ratio"] for row in rows) > 10.0:  # full Sigma
        axis.set_xscale("log")
    axis.set_xlabel("time / time of the dense products")
    axis.set_title("Against the matrix products")


def _short(row: dict[str, Any]) -> str:
    name = row["what"].replace("EM iteration, ", "EM ").replace("inversion: ", "inv. ").replace("log_evidence", "log p")
    return f"{name}, K={row['sizes']['K']}" if name.startswith("EM") else name


def _bars(axis: Axes, names: list[str], values: list[float], targets: list[float | None], form: str) -> None:
    """Horizontal bars from the top down, each named with its value; a diamond stands at the value wanted."""
    places = range(len(names))
    axis.barh(places, values, color=BLUE, height=0.65)
    wanted = [(target, place) for target, place in zip(targets, places, strict=True) if target is not None]
    if wanted:
        x, y = zip(*wanted, strict=True)
        axis.scatter(x, y, marker="D", s=26, color=ORANGE, edgecolor="black", linewidth=0.6, zorder=3, label="wanted")
        axis.legend(loc="lower right", fontsize=8, frameon=False)
    labels = [f"{name}: {form.format(value)}" for name, value in zip(names, values, strict=True)]
    axis.set_yticks(places, labels, fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.08)


def _growth(axis: Axes, rows: Rows) -> None:
    for row, colour, marker in zip([r for r in rows if r["what"] == "EM iteration"], COLOURS, MARKERS, strict=True):
        sizes = [4 + value for value in row["values"]] if row["size"] == "L_w" else row["values"]
        middle = len(sizes) // 2
        x = [size / sizes[middle] for size in sizes]
        y = [seconds / row["seconds"][middle] for seconds in row["seconds"]]
        label = f"{row['slope_against']}: exponent {row['slope']:.2f}"
        axis.loglog(x, y, color=colour, marker=marker, markersize=5, linewidth=1.4, label=label)
    _plain_ticks(axis)
    low, high = axis.get_xlim()
    axis.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=1, label="linear")
    axis.set_xlabel("size / size of the middle point")
    axis.set_ylabel("time / its time")
    axis.set_title("Growth of an EM iteration (iso)")
    axis.legend(fontsize=8, frameon=False)


def _plain_ticks(axis: Axes) -> None:
    """Plain numbers at 1, 2 and 5 of each decade of a logarithmic panel."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for one in (axis.xaxis, axis.yaxis):
        one.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        one.set_major_formatter(StrMethodFormatter("{x:g}"))
        one.set_minor_formatter(NullFormatter())


def _rates(axis: Axes, rows: Rows) -> None:
    for row, colour, marker in zip([r for r in rows if r["what"] == "inversion"], COLOURS, MARKERS, strict=False):
        rates = [each / 1e3 for each in row["per_second"]]
        label = f"against {row['size']}: exponent of time {row['slope']:.2f}"
        axis.loglog(row["values"], rates, color=colour, marker=marker, markersize=5, linewidth=1.4, label=label)
    _plain_ticks(axis)
    axis.set_xlabel("K components, or D bands")
    axis.set_ylabel("1000 pixels a second")
    axis.set_title("Rate of inversion")
    axis.legend(fontsize=8, frameon=False)


def _peers(axis: Axes, rows: Rows) -> None:
    rows = [row for row in rows if row["seconds"] is not None]
    places = range(len(rows))
    peers = [1e3 * row["seconds"] for row in rows]
    axis.barh([p - 0.2 for p in places], peers, height=0.36, color=GREY, label="peer")
    axis.barh(
        [p + 0.2 for p in places], [1e3 * row["ours_seconds"] for row in rows], height=0.36, color=BLUE, label="ours"
    )
    for place, row, value in zip(places, rows, peers, strict=True):
        text = f"{row['times']:,.1f} x ours"
        axis.annotate(text, (value, place - 0.2), xytext=(4, 0), textcoords="offset points", va="center", size=8)
    axis.set_xscale("log")
    names = [row["peer"].replace("GaussianMixture", "GMM").replace(", of [t; y]", "") for row in rows]
    axis.set_yticks(places, [f"{n}\n{row['what']}" for n, row in zip(names, rows, strict=True)], fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.3)
    axis.set_xlabel("ms")
    axis.set_title("Other implementations")
    axis.legend(fontsize=8, frameon=False)


def _with_memory(results: dict[str, Rows]) -> Rows:
    return [*results.get("files", []), *results.get("training", [])]


def _memory(axis: Axes, rows: Rows) -> None:
    names = []
    for row in rows:
        sizes = row["sizes"]
        training = "N" in sizes
        size = f"{sizes['N']:,} spectra" if training else f"{sizes['y']:,} x {sizes['x']:,} pixels"
        names.append(f"{'training' if training else 'inversion'}\n{size}")
    targets = [2.0 if "N" in row["sizes"] else 1.5 for row in rows]
    _bars(axis, names, [row["peak_bytes"] / 1e9 for row in rows], list(targets), "{:.2f}")
    axis.set_xlabel("peak memory of the process, GB")
    axis.set_title("Out of core, from Zarr")


def _all_shares(results: dict[str, Rows]) -> Rows:
    found = [
        {"name": f"Zarr to netCDF / in memory\n{r['sizes']['y']:,} x {r['sizes']['x']:,}", "value": r["share"]}
        | _target(r)
        for r in results.get("files", [])
    ]
    found += [
        {"name": "time a spectrum, large / small\ntraining from Zarr", "value": r["times_a_spectrum"]} | _target(r)
        for r in results.get("training", [])
        if "times_a_spectrum" in r
    ]
    found += [
        {"name": f"1 / 2 workers, time of\n{r['what']}", "value": r["speed_up"]} | _target(r)
        for r in results.get("workers", [])
    ]
    return found


def _target(row: dict[str, Any]) -> dict[str, Any]:
    return {"target": row.get("target")}


def _shares(axis: Axes, rows: Rows) -> None:
    names, values = [row["name"] for row in rows], [row["value"] for row in rows]
    _bars(axis, names, values, [row["target"] for row in rows], "{:.2f}")
    axis.axvline(1.0, color=GREY, linewidth=1, linestyle="--")
    axis.set_xlabel("ratio")
    axis.set_title("Files, sizes, workers")
