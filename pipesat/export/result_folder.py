"""The folder that ``solve -o DIR`` writes, all files or none."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.result import Result
from pipesat.export import EXPORTERS, FILE_NAMES, export_trace
from pipesat.export.options import Options
from pipesat.files.folder import write_folder
from pipesat.files.schedule_file import schedule_bytes
from pipesat.picture.gantt import gantt, title_of

_QUICK_OPS = 20_000  # a second or so for all files
_MOST_OPS_SHOWN = 200_000
_LEFT_OUT = (
    f"of more than {_MOST_OPS_SHOWN:,} ops, no trace, order for a runtime or picture is made:"
    " pipesat export makes them"
)


class ResultFiles(NamedTuple):
    """The files of a result: what is written first, and what makes the pictures.

    ``schedule`` is the path of the schedule, if there is one; ``told`` what a user is told
    about the order for the runtime, torch if none was asked for: that it takes another time, or why
    there is none.
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
    orders: bool = True,
    early: Callable[[dict[str, bytes]], None] | None = None,
) -> ResultFiles:
    """Make every file of a result that is to lie in a folder.

    ``orders``: with those for torch and for the runtime that was solved for. ``home``: the folder
    in it that has this result, where there are several. ``early`` gets the schedule, the result and
    the problem where all else takes seconds.
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
        if orders:
            made, told, said = _orders(folder / home, result)
            files |= made
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
    """Write every file of a result; of what the folder's last result had, ``keep`` alone stays."""
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


def _orders(folder: Path, result: Result) -> tuple[dict[str, bytes], list[str], str]:
    """Make the order for torch, and for the runtime that was solved for, where they can run it.

    Returns the files, what the log is told, and what a user is: of the runtime solved for, if any.
    """
    files: dict[str, bytes] = {}
    told: list[str] = []
    said = ""
    for to in dict.fromkeys(("torch", result.target or "torch")):
        name = FILE_NAMES[to]
        try:
            made = EXPORTERS[to](result.problem, result.schedule, Options(output=folder / name))
        except (NotApplicable, BadInput) as error:  # of a path that no configuration can say
            told.append(said := f"no {name}: {error}")
            continue
        files |= {name: made.data} | {
            Path(name).with_suffix(suffix).name: data for suffix, data in made.beside.items()
        }
        told += [f"{name}: {note}" for note in made.notes]
        said = f"{name}: {made.changed}" if made.changed else ""
    return files, told, said


def _json_bytes(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()  # ASCII: paths may be no text
