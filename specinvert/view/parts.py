"""Parts that make up the page: plain text from files, prose, blank canvases, and how they stand side by side."""

from __future__ import annotations

from typing import Any

from bokeh.models import Div, InlineStyleSheet, LayoutDOM, PlainText, Row
from bokeh.plotting import figure

from specinvert.diagnostics.markup import Safe
from specinvert.diagnostics.wording import legible, wrapped

BLANK = "#d1d1d1"
"""Of pixels without data."""

_WRAP = ":host { flex-wrap: wrap; }"
_PROSE = """
.bk-clearfix { display: block !important; }
:host { overflow-x: auto; max-width: 100%; font: 14px/1.45 system-ui, sans-serif; color: #1a1a1a; }
h1 { font-size: 19px; margin: 0; } h2 { font-size: 16px; margin: 8px 0 2px; } p { margin: 2px 0; }
.note { color: #595959; } .warn { color: #8a3800; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; margin: 4px 0; }
caption { text-align: left; color: #595959; padding: 2px 0; }
th, td { padding: 2px 10px 2px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid #e3e3e3; }
th { font-weight: 600; white-space: normal; } tbody th { min-width: 8em; overflow-wrap: anywhere; }
tbody th, thead th:first-child { text-align: left; font-weight: 400; }
td.words, th.words { text-align: left; }
dl { margin: 4px 0; display: grid; grid-template-columns: max-content 1fr; gap: 1px 12px; }
dt { color: #595959; } dd { margin: 0; overflow-wrap: anywhere; }
"""


def text(content: object) -> PlainText:
    """Text from a file for a canvas: no part of it is a formula, unseen characters go."""
    return PlainText(text=legible(content))


def title(*lines: str) -> PlainText:
    """Text from files as the title of a figure: each part in up to three lines of its own."""
    return PlainText(text="\n".join(wrapped(legible(line), 42, 3) for line in lines))


def prose(content: Safe, **options: Any) -> Div:
    """A piece of the page in HTML, of which text from files is escaped already."""
    sheet = InlineStyleSheet(css=_PROSE)
    return Div(text=str(content), sizing_mode="stretch_width", disable_math=True, stylesheets=[sheet], **options)


def canvas(height: int, tools: str, **options: Any) -> figure:
    """A figure as wide as its place."""
    made = figure(height=height, sizing_mode="stretch_width", tools=tools, min_border_right=14, **options)
    made.toolbar.logo = None
    made.title.text_font_size = "14px"
    for axis in made.axis:
        axis.axis_label_text_font_style = "normal"
    return made


def side_by_side(*parts: LayoutDOM, least: int = 340) -> Row:
    """Parts of equal width, below each other where the page has fewer than ``least`` pixels for each."""
    for part in parts:
        part.styles = {"flex": f"1 1 {least}px", "min-width": "0"}
    return Row(children=list(parts), sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=_WRAP)], spacing=12)
