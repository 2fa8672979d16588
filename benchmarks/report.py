"""The results as Markdown tables, and the part of docs/performance.md that they make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
Results = dict[str, list[dict[str, Any]]]


def markdown(found: dict[str, Any]) -> str:
    """What was measured, as text."""
    results: Results = found["results"]
    parts = [_machine(found)]
    makers = {
        "core": _core,
        "sweeps": _sweeps,
        "peers": _peers,
        "files": _files,
        "training": _training,
        "workers": _workers,
        "graphs": _graphs,
        "startup": _startup,
    }
    parts += [make(results[name]) for name, make in makers.items() if name in results]
    return "\n\n".join(parts) + "\n"


def rewrite(path: Path, text: str) -> None:
    """Put ``text`` between the two marks in a file."""
    old = path.read_text(encoding="utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1:
        raise ValueError(f"{path}: needs one line {BEGIN} and one line {END}")
    before, after = old.partition(BEGIN)[0], old.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n{text}{END}{after}", encoding="utf-8")


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    text = (
        f"{machine['date']}, {machine['cores']} cores ({machine['cpu']}), BLAS {', '.join(machine['blas'])}, "
        f"Python {machine['python']}, {versions}, seed {found['seed']}."
    )
    return f"{text}\n\n**A quick run at small sizes: figures mean little.**" if found["quick"] else text


def _core(rows: list[dict[str, Any]]) -> str:
    heads = ["what", "sizes", "ms", "products, ms", "ratio", "wanted", "spectra a second"]
    cells = [
        [
            row["what"],
            _sizes(row["sizes"]),
            f"{1e3 * row['seconds']:.1f}",
            f"{1e3 * row['products']:.1f}",
            f"{row['ratio']:.2f}",
            _wanted(row["target"], "at most {:.1f}"),
            f"{row['per_second']:,.0f}",
        ]
        for row in rows
    ]
    return _titled("Against the matrix products", heads, cells)


def _sweeps(rows: list[dict[str, Any]]) -> str:
    heads = ["what", "grows with", "sizes", "ms", "exponent"]
    cells = [
        [
            row["what"],
            row["slope_against"],
            ", ".join(f"{value:,}" for value in row["values"]),
            ", ".join(f"{1e3 * seconds:.1f}" for seconds in row["seconds"]),
            f"{row['slope']:.2f}",
        ]
        for row in rows
    ]
    return _titled("Growth", heads, cells, "The exponent is the slope in log-log: 1 is linear.")


def _peers(rows: list[dict[str, Any]]) -> str:
    heads = ["peer", "what", "sizes", "ms", "ours, ms", "compared with", "times ours"]
    cells = []
    for row in rows:
        if row["seconds"] is None:
            cells.append([row["peer"], row["what"], row["note"], "", "", "", ""])
            continue
        times = [f"{1e3 * row[key]:.4g}" for key in ("seconds", "ours_seconds")]
        sizes = _sizes(row["sizes"]) + (f"; {row['note']}" if "note" in row else "")
        cells.append([row["peer"], row["what"], sizes, *times, row["ours"], f"{row['times']:,.1f}"])
    return _titled("Other implementations", heads, cells)


def _files(rows: list[dict[str, Any]]) -> str:
    heads = ["what", "sizes", "s", "pixels a second", "in memory", "share", "wanted", "peak memory, GB"]
    cells = [
        [
            row["what"],
            _sizes(row["sizes"]),
            f"{row['seconds']:.1f}",
            f"{row['per_second']:,.0f}",
            f"{row['memory_per_second']:,.0f}",
            f"{row['share']:.2f}",
            _wanted(row["target"], "at least {:.1f}"),
            f"{row['peak_bytes'] / 1e9:.2f}",
        ]
        for row in rows
    ]
    note = "A fresh process, timed once modules and kernels are loaded; the share is of the rate in memory."
    return _titled("From files to files", heads, cells, note)


def _training(rows: list[dict[str, Any]]) -> str:
    heads = ["what", "sizes", "s", "spectra a second", "time a spectrum, relative", "wanted", "peak memory, GB"]
    cells = [
        [
            row["what"],
            _sizes(row["sizes"]),
            f"{row['seconds']:.2f}",
            f"{row['per_second']:,.0f}",
            f"{row.get('times_a_spectrum', 1.0):.2f}",
            _wanted(row.get("target"), "at most {:.2f}"),
            f"{row['peak_bytes'] / 1e9:.2f}",
        ]
        for row in rows
    ]
    return _titled("Training out of core", heads, cells, "Spectra are read again for each iteration.")


def _workers(rows: list[dict[str, Any]]) -> str:
    heads = ["what", "1 worker, s", "2 workers, s", "speed-up", "wanted"]
    cells = [
        [
            row["what"],
            *(f"{seconds:.2f}" for seconds in row["seconds"]),
            f"{row['speed_up']:.2f}",
            _wanted(row["target"], "at least {:.1f}"),
        ]
        for row in rows
    ]
    return _titled("Worker processes of one thread", heads, cells)


def _graphs(rows: list[dict[str, Any]]) -> str:
    heads = ["what", "blocks", "bytes", "bytes a further block", "wanted"]
    cells = [
        [
            row["what"],
            str(row["blocks"]),
            f"{row['bytes']:,}",
            f"{row['bytes_a_block']:,.0f}",
            _wanted(row["target"], "under {:,}"),
        ]
        for row in rows
    ]
    return _titled("Graphs, pickled", heads, cells)


def _startup(rows: list[dict[str, Any]]) -> str:
    cells = [[row["what"], f"{row['seconds']:.2f}", _wanted(row["target"], "at most {:.2f}")] for row in rows]
    return _titled("Start-up of a fresh process", ["what", "s", "wanted"], cells)


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}={value:,}" for name, value in sizes.items())


def _wanted(target: float | None, form: str) -> str:
    return "" if target is None else form.format(target)


def _titled(title: str, heads: list[str], rows: Iterable[list[str]], note: str = "") -> str:
    lines = [" | ".join(heads), " | ".join(["---"] * len(heads)), *(" | ".join(row) for row in rows)]
    table = "\n".join(f"| {line} |" for line in lines)
    return f"### {title}\n\n" + (f"{note}\n\n" if note else "") + table
