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
from typing import Any, Final, Self, TypeAlias

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
    """The rows of a folder, by key, while this process has its lock.

    Raises
    ------
    BadInput
        On entering, if the folder cannot be written, another sweep has it, or the file has other
        things in it than rows of this format.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.by_key: dict[str, SweepRow] = {}
        self.cut_off = 0
        self._lock = -1
        self._file = -1

    def __enter__(self) -> Self:
        prepare_folder(self.path.parent)
        self._lock = _locked(self.path.parent / LOCK)
        try:
            self.by_key, good, self.cut_off = read_rows(self.path)
            self._file = _open(self.path)
            if self.cut_off:
                os.ftruncate(self._file, good)
            elif good and not _ends_line(self.path):
                self._write(b"\n")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def append(self, row: SweepRow) -> None:
        """Add a row and make sure that it is on the disk.

        Raises
        ------
        BadInput
            If it cannot be written, the disk being full, say; the file then ends as before.
        """
        self._write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self.by_key[row["key"]] = row

    def forget_failures(self, keys: Container[str]) -> None:
        """Take the rows of failed cases out of the file, which is replaced as a whole."""
        kept = {
            key: row
            for key, row in self.by_key.items()
            if key not in keys or row["status"] not in FAILURES
        }
        if len(kept) == len(self.by_key):
            return
        lines = (json.dumps(row, allow_nan=False) + "\n" for row in kept.values())
        write_file(self.path, "".join(lines).encode())
        os.close(self._file)
        self._file = _open(self.path)
        self.by_key = kept

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            if os.write(self._file, data) < len(data):
                raise OSError("the disk is full")
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            reason = error.strerror or error
            raise BadInput(f"cannot write: {reason}", source=str(self.path)) from None

    def _close(self) -> None:
        for handle in (self._file, self._lock):
            if handle >= 0:
                os.close(handle)
        self._file = self._lock = -1


def read_rows(path: Path) -> tuple[dict[str, SweepRow], int, int]:
    """Return the rows by key, how many bytes they take, and how many of a torn one follow.

    Raises
    ------
    BadInput
        If there is anything but rows of this format, with the number of the line.
    """
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise BadInput(f"cannot read: {error.strerror or error}", source=str(path)) from None
    rows: dict[str, SweepRow] = {}
    good = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n") and not _is_whole(line):
            _check_torn(line, f"{path}:{number}")
            return rows, good, len(line)
        row = _row(line, f"{path}:{number}")
        if row["key"] in rows:
            raise BadInput("this key has a row already", source=f"{path}:{number}", where="key")
        rows[row["key"]] = row
        good += len(line)
    return rows, good, 0


def _check_torn(line: bytes, source: str) -> None:
    """Refuse to cut off what is not the beginning of a row, or the zeros of a lost block."""
    head = line.rstrip(b"\0")
    if not (head.startswith(_HEAD) or _HEAD.startswith(head)):
        raise BadInput("expected rows of a sweep", source=source)


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


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


def _locked(path: Path) -> int:
    """Open the lock file and take its lock, which no child inherits."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror or error}", source=str(path)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        busy = isinstance(error, BlockingIOError)
        why = "another sweep is running in this folder" if busy else f"cannot lock: {error}"
        raise BadInput(why, source=str(path.parent)) from None
    return handle


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror or error}", source=str(path)) from None


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


REFUTED: Final = "proof refuted: "
"""Beginning of a row's ``why`` where a checked schedule refuted a proof, which was dropped."""


def standing_of(row: SweepRow) -> Standing:
    """What a row says of its value.

    Raises
    ------
    Contradiction
        If its value is below its bound.
    """
    result: Mapping[str, Any] = row["result"] or {}
    infeasible = row["status"] == "infeasible"
    of = f"case {row['key'][:12]}"
    return Standing(result.get("value"), result.get("lower_bound"), infeasible, of)


def require_agreement(rows: Iterable[SweepRow]) -> None:
    """Check every row, and all rows of one problem against each other.

    Raises
    ------
    Contradiction
        If status, value, bound and baseline of a row do not agree, or a value of another row of the
        same problem is below a bound.
    """
    bounds: dict[object, Standing] = {}
    values: dict[object, list[Standing]] = {}
    for row in rows:
        if row["result"] is None or row["status"] in FAILURES:
            continue
        standing, result = standing_of(row), row["result"]
        standing.require_status(row["status"])
        if baseline := result.get("baseline"):
            require_best(standing.of, standing.value, [(baseline["name"], baseline["value"])])
        problem = row.get("problem_sha256"), result.get("objective"), result.get("for")
        known = bounds.get(problem)
        if standing.bound is not None and (known is None or standing.bound > (known.bound or 0)):
            bounds[problem] = standing
        values.setdefault(problem, []).append(standing)
    for same, highest in bounds.items():
        for standing in values[same]:
            Standing(standing.value, highest.bound, of=f"{highest.of} and {standing.of}")
