"""What a command leaves behind: its one line of complaint, the files below a folder."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Outcome


def one_bad_line(outcome: Outcome, *words: str) -> None:
    """Assert the promise that all bad input shares."""
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith("pipesat: error: ")
    assert line.isprintable()
    for word in words:
        assert word in line


def listing(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder, and the files' contents."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }
