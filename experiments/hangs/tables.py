"""Put a table between its two markers in README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def put(readme: Path, name: str, lines: Sequence[Sequence[str]], above: str) -> None:
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(f"{above}\n\n{table}")
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    text = readme.read_text()
    head, tail = text.split(begin)[0], text.split(end)[1]
    readme.write_text(f"{head}{begin}{above}\n\n{table}\n{end}{tail}")
