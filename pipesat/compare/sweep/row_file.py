"""The rows of a sweep: a file that only grows, one line per finished case, safe against crashes.

A row is one ``write`` with its line end, then ``fsync``. What a crash leaves of a row has no line
end: it is cut off when the file is opened next, and the case runs again. One sweep at a time has
the folder; its lock ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pipesat.core.atomic import complaining, prepare_folder, write_file
from pipesat.core.claims import Standing, require_best
from pipesat.core.complaint import Says, validated
from pipesat.core.errors import BadInput, require
from pipesat.core.strict_json import StrictModel, parse_json

FORMAT: Final = "pipesat.sweep-row/1"
NAME: Final = "rows.jsonl"
_LOCK: Final = "rows.lock"
_HEAD: Final = b'{"format": "pipesat.sweep-row/'

SweepRow: TypeAlias = dict[str, Any]


class SweepRowModel(StrictModel):
    """A row, as far as a sweep reads it again."""

    model_config = {"extra": "allow"}
    format: Annotated[
        Literal["pipesat.sweep-row/1"],
        Says(f'"{FORMAT}": rows of another version need a folder of their own'),
    ]
    key: str
    status: str
    case: dict[str, Any]
    result: dict[str, Any] | None


@contextmanager
def opened(
    folder: Path, forget: Container[str] = ()
) -> Iterator[tuple[dict[str, SweepRow], Callable[[SweepRow], None]]]:
    """Lock a folder: yield its rows by key, and what adds a row and is sure that the disk has it.

    Failed cases of some keys are taken out first.
    """
    prepare_folder(folder)
    path = folder / NAME
    with open(folder / _LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput("another sweep is running in this folder", source=str(folder)) from None
        rows, rest = _read(path)
        left = {key: row for key, row in rows.items() if row["result"] or key not in forget}
        if rest or len(left) < len(rows):
            write_file(path, b"".join(map(_line, left.values())))

        def append(row: SweepRow) -> None:
            with complaining(path), path.open("ab") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())
            left[row["key"]] = row

        yield left, append


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
        row = parse_json(line.decode(errors="surrogateescape"), source)
        key = validated(row, SweepRowModel, source).key
        require(key not in rows, "this key has a row already", source=source, where="key")
        rows[key] = row
    head = rest.rstrip(b"\0")
    require(
        head.startswith(_HEAD) or _HEAD.startswith(head),
        "expected rows of a sweep",
        source=f"{path}:{len(lines) + 1}",
    )
    return rows, rest


def standing_of(row: SweepRow) -> Standing:
    """What a row says of its value."""
    result: Mapping[str, Any] = row["result"] or {}
    infeasible = row["status"] == "infeasible"
    return Standing(
        result.get("value"), result.get("lower_bound"), infeasible, f"case {row['key'][:12]}"
    )


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
