"""What pages are filled with: tables between marks, and where a figure was measured."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from pipesat.core.claims import at_most


def table(head: Iterable[object], rows: Iterable[Iterable[object]], right: int = 0) -> str:
    """A Markdown table; all columns but the first have numbers if ``right`` is 1."""
    head = [*map(str, head)]
    rule = ["---" if not right or number < right else "---:" for number in range(len(head))]
    lines = [head, rule, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replaced(text: str, name: str, content: str) -> str:
    """The page with one generated part exchanged."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n{content}\n{end}", text)
    if count != 1:
        sys.exit(f"the page needs one pair of marks {begin} ... {end}, it has {count}")
    return new


def put(page: Path, name: str, content: str, *, whole: bool = True) -> None:
    """Print a part, and write it into its page if it is ``whole``."""
    print(content)
    if whole:
        page.write_text(replaced(page.read_text(encoding="utf-8"), name, content), encoding="utf-8")


def percent(part: float | None) -> str:
    """``0.123 %``, rounded up; zero is exact, and so is printed without digits."""
    if not part:
        return "-" if part is None else "0"
    return at_most(part, 3 if abs(part) < 0.01 else 2)


def measured(*more: str) -> str:
    """The sentence above a table: date, cores, Python, and what else was set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        ", ".join(
            [f"{date.today()}", f"{cores} cores", f"Python {platform.python_version()}", *more]
        )
        + "."
    )
