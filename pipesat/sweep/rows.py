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
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Self, TypeAlias

from pipesat.core.claims import Standing, require_best
from pipesat.core.errors import BadInput
from pipesat.files.atomic import prepare_folder, write_file
from pipesat.files.strict_json import parse_json

FORMAT: Final = "pipesat.sweep-row/1"
NAME: Final = "rows.jsonl"
LOCK: Final = "rows.lock"
FAILURES: Final = frozenset({"refused", "out of memory", "out of time", "killed", "error"})
"""Values of ``status`` of cases that did not end by themselves; the others are a solve's."""

_HEAD: Final = b'{"format": "pipesat.sweep-row/'

SweepRow: TypeAlias = dict[str, Any]


class RowFile:
    """The rows of a folder, by key, while this process has its lock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.by_key: dict[str, SweepRow] = {}
        self.cut_off = False

    def __enter__(self) -> Self:
        prepare_folder(self.path.parent)
        with contextlib.ExitStack() as opened:
            _lock(opened.enter_context(_for_writing(self.path.parent / LOCK)))
            self.by_key, rest = _read(self.path)
            self.cut_off = bool(rest)
            self._file = opened.enter_context(_for_writing(self.path))
            if rest:
                os.truncate(self.path, self.path.stat().st_size - len(rest))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def append(self, row: SweepRow) -> None:
        """Add a row and make sure that it is on the disk."""
        handle, data = self._file.fileno(), _line(row)
        size = os.fstat(handle).st_size
        try:
            if os.write(handle, data) < len(data):
                raise OSError("the disk is full")
            os.fsync(handle)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            reason = error.strerror or error
            raise BadInput(f"cannot write: {reason}", source=str(self.path)) from None
        self.by_key[row["key"]] = row

    def forget_failures(self, keys: Container[str]) -> None:
        """Take the rows of failed cases out of the file, which is replaced as a whole."""
        kept = {
            key: row
            for key, row in self.by_key.items()
            if key not in keys or row["status"] not in FAILURES
        }
        if len(kept) < len(self.by_key):
            write_file(self.path, b"".join(map(_line, kept.values())))
            self.by_key = kept
            self._file = self._open.enter_context(_for_writing(self.path))


def _line(row: SweepRow) -> bytes:
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def read_rows(path: Path) -> dict[str, SweepRow]:
    """Return the rows of a file by key; none if there is no such file."""
    return _read(path)[0]


def _read(path: Path) -> tuple[dict[str, SweepRow], bytes]:
    """Return the rows by key, and what a crash left of one, which has no line end.

    That is the beginning of a row, or the zeros of a lost block: all else is not ours to cut off.
    """
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror or error}", source=str(path)) from None
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
    if row["format"] != FORMAT:
        raise BadInput(
            f'expected "{FORMAT}": rows of another version need a folder of their own',
            source=source,
            where="format",
            value=row["format"],
        )
    for name, kind in (("key", str), ("status", str), ("case", dict)):
        if not isinstance(row.get(name), kind):
            wanted = "a string" if kind is str else "an object"
            raise BadInput(f"expected {wanted}", source=source, where=name, value=row.get(name))
    return dict(row)


def _for_writing(path: Path) -> IO[bytes]:
    """Open a file to add to it; no child inherits it."""
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror or error}", source=str(path)) from None


def _lock(file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        busy = isinstance(error, BlockingIOError)
        why = "another sweep is running in this folder" if busy else f"cannot lock: {error}"
        raise BadInput(why, source=str(Path(file.name).parent)) from None


REFUTED: Final = "proof refuted: "
"""Beginning of a row's ``why`` where a checked schedule refuted a proof, which was dropped."""


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
        if row["result"] is None or row["status"] in FAILURES:
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
