"""Text from files, made safe: for HTML, for JSON inside a script element, for one line."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST = 200  # characters of a name that a report shows


class Markup(str):
    """HTML that is finished: everything else is escaped when it is put into a page."""

    __slots__ = ()


def plain(text: object, longest: int = LONGEST) -> str:
    """Return a text on one line, without control characters, cut in its middle if too long."""
    raw = str(text)
    if len(raw) > 2 * longest:
        raw = raw[:longest] + raw[-longest:]
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in raw)
    if len(line) <= longest:
        return line
    tail = longest // 3  # names differ at their ends
    return f"{line[: longest - tail - 1]}…{line[-tail:]}"


def escaped(value: object) -> Markup:
    """Return a value as HTML text, also safe inside a quoted attribute."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(plain(value, 20 * LONGEST), quote=True))


def script_json(document: Any) -> Markup:
    """Return a document as JSON that may stand inside ``<script type="application/json">``.

    Only ASCII comes out, and none of the characters that could end the element or open a comment.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def element(name: str, content: Iterable[object] | object = "", **attributes: object) -> Markup:
    """Return one element; ``class_`` is ``class``, ``data_show`` is ``data-show``."""
    words = [name]
    for key, value in attributes.items():
        words.append(f'{key.rstrip("_").replace("_", "-")}="{escaped(value)}"')
    return Markup(f"<{' '.join(words)}>{joined(content)}</{name}>")


def joined(content: Iterable[object] | object) -> Markup:
    """Return the parts as one piece of HTML."""
    if isinstance(content, str) or not isinstance(content, Iterable):
        return escaped(content)
    return Markup("".join(escaped(part) for part in content))


def table(caption: object, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table; the first cell of each row names it, numbers stand at the right.

    A column whose heading starts with ``#`` holds numbers.
    """
    numbers = [title.startswith("#") for title in head]
    titles = [
        element("th", title.lstrip("#"), scope="col", class_="number" if number else "text")
        for title, number in zip(head, numbers, strict=True)
    ]
    body = []
    for row in rows:
        first, *others = row
        cells = [element("th", first, scope="row", class_="text")]
        for value, number in zip(others, numbers[1:], strict=True):
            cells.append(element("td", value, class_="number" if number else "text"))
        body.append(element("tr", cells))
    parts = [
        element("caption", caption),
        element("thead", [element("tr", titles)]),
        element("tbody", body),
    ]
    scroller = element("table", parts)
    return element(
        "div", [scroller], class_="scroller", tabindex="0", role="region", aria_label=caption
    )
