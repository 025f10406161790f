"""The folder that ``solve -o DIR`` writes, all files or none."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.result import Result
from pipesat.core.schedule import Schedule
from pipesat.export import export_torch_csv, export_trace
from pipesat.files.folder import write_folder
from pipesat.files.schedule_file import schedule_bytes
from pipesat.picture.gantt import gantt, title_of

_QUICK_OPS = 20_000  # a second or so for all files
_MOST_OPS_SHOWN = 200_000
_LEFT_OUT = (
    f"of more than {_MOST_OPS_SHOWN:,} ops, no trace, order for torch or picture is made:"
    " pipesat export makes them"
)


class ResultFiles(NamedTuple):
    """The files of a result: what is written first, and what makes the pictures.

    ``schedule`` is the path of the schedule, if there is one; ``told`` what a user is told about
    torch's order: that it takes another time, or why there is none.
    """

    files: dict[str, bytes]
    pictures: Callable[[], dict[str, bytes]]
    schedule: str | None
    told: str = ""


def result_files(
    folder: Path,
    result: Result,
    log: Sequence[str],
    *,
    home: str = "",
    torch: bool = True,
    early: Callable[[dict[str, bytes]], None] | None = None,
) -> ResultFiles:
    """Make every file of a result that is to lie in a folder; without ``torch``, no order for it.

    ``home``: the folder in it that has this result, where there are several. ``early`` gets the
    schedule, the result and the problem where all else takes seconds.
    """

    def at_home(made: dict[str, bytes]) -> dict[str, bytes]:
        return {os.path.join(home, name): data for name, data in made.items()}

    path = None if result.schedule is None else str(folder / home / "schedule.json")
    files = _own_files(result, path)
    ops, said = 0 if result.schedule is None else len(result.schedule), ""
    if early is not None and ops > _QUICK_OPS:
        early(at_home(files))
    if result.schedule is not None and ops <= _MOST_OPS_SHOWN:
        trace = export_trace(result.problem, result.schedule)
        files["trace.json"] = trace.data
        log = [*log, *(f"trace.json: {note}" for note in trace.notes)]
        if torch:
            told, said = _add_torch_csv(files, result.problem, result.schedule)
            log = [*log, *told]
    elif result.schedule is not None:
        said = _LEFT_OUT
        log = [*log, said]
    lines = [*log, f"status {result.status} after {result.wall_s:.1f} s"]
    if result.explanation:
        lines.append(result.explanation)
    files["solver.log"] = ("\n".join(lines) + "\n").encode()

    def pictures() -> dict[str, bytes]:
        if result.schedule is None or ops > _MOST_OPS_SHOWN:
            return {}
        drawn = gantt(result.problem, result.schedule, title=title_of(result))
        return at_home({"gantt.png": drawn})

    return ResultFiles(at_home(files), pictures, path, said)


def write_result_folder(
    folder: Path,
    result: Result,
    log: Sequence[str],
    *,
    home: str = "",
    keep: Collection[str] = (),
) -> ResultFiles:
    """Write every file of a result; of what the folder's last result had, ``keep`` alone stays.

    Raises
    ------
    BadInput
        If the folder cannot be written; then nothing in it has changed.
    """
    write = partial(write_folder, folder, keep=keep)
    made = result_files(folder, result, log, home=home, early=write)
    write(made.files, pictures=made.pictures)
    return made


def _own_files(result: Result, schedule: str | None) -> dict[str, bytes]:
    """Make the files that say all: the problem, the result, and the schedule if there is one."""
    files = {
        "problem.json": _json_bytes(result.problem.document),
        "result.json": _json_bytes(result.document(schedule)),
    }
    if result.schedule is not None:
        files["schedule.json"] = schedule_bytes(result.problem, result.schedule)
    return files


def _add_torch_csv(
    files: dict[str, bytes], problem: Problem, schedule: Schedule
) -> tuple[list[str], str]:
    """Add the order for torch where torch can run it; return what the log and a user are told."""
    try:
        exported = export_torch_csv(problem, schedule)
    except NotApplicable as error:
        why = f"no schedule.csv: {error}"
        return [why], why
    files["schedule.csv"] = exported.data
    for suffix, text in exported.beside.items():
        files[f"schedule{suffix}"] = text
    changed = f"schedule.csv: {exported.changed}" if exported.changed else ""
    return [f"schedule.csv: {note}" for note in exported.notes], changed


def _json_bytes(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()  # ASCII: paths may be no text
