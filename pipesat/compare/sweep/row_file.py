"""The rows of a sweep: a file that only grows, one line per finished case, safe against crashes.

A row is one ``write`` with its line end, then ``fsync``. What a crash leaves of a row has no line
end: it is cut off when the file is opened next, and the case runs again. One sweep at a time has
the folder; its lock ends with its process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from pipesat.core.atomic import complaining, prepare_folder, write_file
from pipesat.core.claims import Standing, require_best
from pipesat.core.errors import BadInput
from pipesat.core.strict_json import parse_json

FORMAT: Final = "pipesat.sweep-row/1"
NAME: Final = "rows.jsonl"
_LOCK: Final = "rows.lock"
_HEAD: Final = b'{"format": "pipesat.sweep-row/'

SweepRow: TypeAlias = dict[str, Any]


class RowFile:
    """The rows of a folder, by key, while this process has its lock; see :func:`opened`."""

    def __init__(self, path: Path, rows: dict[str, SweepRow], file: IO[bytes]) -> None:
        self.path, self.by_key, self._file = path, rows, file

    def append(self, row: SweepRow) -> None:
        """Add a row and make sure that it is on the disk."""
        handle, data = self._file.fileno(), _line(row)
        size = os.fstat(handle).st_size
        with complaining(self.path):
            try:
                if os.write(handle, data) < len(data):
                    raise OSError("the disk is full")
                os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, size)
                raise
        self.by_key[row["key"]] = row


@contextlib.contextmanager
def opened(folder: Path, forget: Container[str] = ()) -> Iterator[RowFile]:
    """Open the rows of a folder to add to them; failed cases of some keys are taken out first."""
    prepare_folder(folder)
    path = folder / NAME
    with contextlib.ExitStack() as stack:
        with complaining(folder / _LOCK):
            lock = stack.enter_context((folder / _LOCK).open("ab"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = "another sweep is running in this folder"
                raise BadInput(why, source=str(folder)) from None
        rows, rest = _read(path)
        left = {key: row for key, row in rows.items() if row["result"] or key not in forget}
        if len(left) < len(rows):
            write_file(path, b"".join(map(_line, left.values())))
        with complaining(path):
            file = stack.enter_context(path.open("ab", buffering=0))
            if rest and len(left) == len(rows):
                os.truncate(path, path.stat().st_size - len(rest))
        yield RowFile(path, left, file)


def _line(row: SweepRow) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def read_rows(path: Path) -> dict[str, SweepRow]:
    """Return the rows of a file by key; none if there is no such file."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, SweepRow], bytes]:
    """Return the rows by key, and what a crash left of one, which has no line end.

    That is the beginning of a row, or the zeros of a lost block: all else is not ours to cut off.
    """
    with complaining(path, "cannot read"):
        data = path.read_bytes() if path.exists() else b""
    rows: dict[str, SweepRow] = {}
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        source = f"{path}:{number}"
        row = _row(line, source)
        if row["key"] in rows:
            raise BadInput("this key has a row already", source=source, where="key")
        rows[row["key"]] = row
    head = rest.rstrip(b"\0")
    if not (head.startswith(_HEAD) or _HEAD.startswith(head)):
        raise BadInput("expected rows of a sweep", source=f"{path}:{len(lines) + 1}")
    return rows, rest


def _row(line: bytes, source: str) -> SweepRow:
    row = parse_json(line.decode(errors="surrogateescape"), source)
    if not isinstance(row, Mapping) or "format" not in row:
        raise BadInput(f'expected a row of the format "{FORMAT}"', source=source)
    for name, kind, wanted in (
        ("format", str, f'"{FORMAT}": rows of another version need a folder of their own'),
        ("key", str, "a string"),
        ("status", str, "a string"),
        ("case", dict, "an object"),
        ("result", dict | None, "an object or null"),
    ):
        value = row.get(name)
        if not isinstance(value, kind) or (name == "format" and value != FORMAT):
            raise BadInput(f"expected {wanted}", source=source, where=name, value=value)
    return {"result": None, **row}


def standing_of(row: SweepRow) -> Standing:
    """What a row says of its value."""
    result: Mapping[str, Any] = row["result"] or {}
    infeasible = row["status"] == "infeasible"
    of = f"case {row['key'][:12]}"
    return Standing(result.get("value"), result.get("lower_bound"), infeasible, of)


def require_agreement(rows: Iterable[SweepRow]) -> None:
    """Check every row, and all rows of one problem against each other."""
    of_problem: dict[object, list[Standing]] = {}
    for row in rows:
        if row["result"] is None:
            continue
        standing, result = standing_of(row), row["result"]
        standing.require_status(row["status"])
        if baseline := result.get("baseline"):
            require_best(standing.of, standing.value, [(baseline["name"], baseline["value"])])
        problem = row.get("problem_sha256"), result.get("objective"), result.get("for")
        of_problem.setdefault(problem, []).append(standing)
    for same in of_problem.values():
        highest = max(same, key=lambda one: one.bound or 0)
        for standing in same:
            Standing(standing.value, highest.bound, of=f"{highest.of} and {standing.of}")
