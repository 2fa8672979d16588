"""HTML from parts: all text is escaped, only what these functions return is not escaped again."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from specinvert.diagnostics.layout import fitting_dpi
from specinvert.diagnostics.wording import legible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 130


class Safe(str):
    """HTML that is whole and escaped where it has to be."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: object) -> Safe:
    """An element with its content; ``class_="wide"`` is an attribute named without the underscore.

    >>> element("p", "a < b ", element("b", "bold"), class_="note")
    '<p class="note">a &lt; b <b>bold</b></p>'
    """
    names = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(legible(value), quote=True)}"'
        for name, value in attributes.items()
    )
    return Safe(f"<{tag}{names}>{joined(content)}</{tag}>")


def joined(content: Iterable[object]) -> Safe:
    """Parts one after the other, escaped where they are plain."""
    return Safe("".join(part if isinstance(part, Safe) else html.escape(legible(part)) for part in content))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], words: Sequence[int] = ()) -> Safe:
    """A table that scrolls by itself where it is too wide; the first cell of a row is its heading.

    Columns ``words`` hold text and the others numbers.
    """
    kinds = [{"class_": "words"} if i in words else {} for i in range(len(head))]
    top = element("tr", *(element("th", cell, scope="col", **kind) for cell, kind in zip(head, kinds, strict=True)))
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, **kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
        )
        for row in rows
    ]
    made = element("table", element("caption", caption), element("thead", top), element("tbody", *body))
    return element("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def facts(rows: Iterable[tuple[str, object]]) -> Safe:
    """A list of names and what they are."""
    return element("dl", *(joined((element("dt", name), element("dd", value))) for name, value in rows))


def picture(figure: Figure, alt: str, caption: str) -> Safe:
    """A matplotlib figure within the page, as PNG, with the text that stands for it and the one below it."""
    buffer = io.BytesIO()
    dpi = fitting_dpi(figure, DPI)
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    width, height = (round(dpi * inches) for inches in figure.get_size_inches())
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{html.escape(legible(alt), quote=True)}">'
    frame = element("div", Safe(image), class_="scroll", tabindex=0, role="region", aria_label=f"Figure: {caption}")
    return element("figure", frame, element("figcaption", caption))
