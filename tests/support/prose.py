"""The words of a Markdown page: what a reader sees, without code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator


def without_code(text: str) -> str:
    """Drop fenced and indented blocks, comments and formulas' blocks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"(?<=\n\n)(?: {4}.*\n+)+", "\n", text)


def rendered(text: str) -> str:
    """What stands on the page: link targets, pictures and marks are gone, code spans stay."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", without_code(text))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"</?[a-z][^>]*>|[\[\]*#`]|^[ |:-]*$", "", text, flags=re.MULTILINE)


def words(text: str) -> int:
    """How many words a page has: tables count, code blocks do not."""
    return sum(any(map(str.isalnum, word)) for word in rendered(text).split())


def sentences(text: str) -> Iterator[str]:
    """Sentences of the prose: headings, list items, cells and their semicolons each end one."""
    kept = re.sub(r"`[^`\n]*(?:\n[^`\n]+)?`", "CODE", without_code(text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.)\s?)", rendered(kept)):
        cells = re.split(r"[|;]", block) if block.lstrip().startswith("|") else [block]
        for cell in cells:
            ends = r"(?<=[.!?])[)*\"]*\s+(?=[^a-z]|pipesat)"
            yield from filter(None, re.split(ends, " ".join(cell.split())))
