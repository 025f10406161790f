"""Text from files, made safe: for HTML, for JSON inside a script element, for one line."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 200  # characters of a name that a report shows


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


def shown(value: Any) -> Any:
    """Return what a template writes for a value, and then escapes if it is not markup."""
    return value if hasattr(value, "__html__") else plain(value, 20 * LONGEST)


def script_json(document: Any) -> str:
    """Return a document as JSON that may stand inside ``<script type="application/json">``.

    Only ASCII comes out, and none of the characters that could end the element or open a comment.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
