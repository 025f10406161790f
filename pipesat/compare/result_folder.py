"""The folder that ``solve -o DIR`` writes, all files or none."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

from pipesat.core.errors import NotApplicable
from pipesat.core.folder import json_file, write_folder
from pipesat.core.settings import OnTorch
from pipesat.draw.gantt import gantt, title_of
from pipesat.runtimes import EXPORTERS, FILE_NAMES
from pipesat.runtimes.options import Options
from pipesat.schedule.result import Solution
from pipesat.schedule.schedule_file import schedule_bytes

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
    result: Solution,
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

    problem, schedule = result.problem, result.schedule
    path = None if schedule is None else str(folder / home / "schedule.json")
    files = {
        "problem.json": json_file(problem.document),
        "result.json": json_file(result.document(path)),
    }
    shown, told = [*log], ""
    if schedule is not None:
        files["schedule.json"] = schedule_bytes(problem, schedule)
        if early is not None and len(schedule) > _QUICK_OPS:
            early(at_home(files))
    drawn = schedule is not None and len(schedule) <= _MOST_OPS_SHOWN
    if schedule is not None and not drawn:
        shown.append(told := _LEFT_OUT)
    elif schedule is not None:
        trace = EXPORTERS["trace"](problem, schedule)
        files["trace.json"] = trace.data
        shown += [f"trace.json: {note}" for note in trace.notes]
        for to in dict.fromkeys(("torch", result.target or "torch")) if orders else ():
            made, said, told = _order(result, to)
            files |= made
            shown += said
    shown.append(f"status {result.status} after {result.wall_s:.1f} s")
    if result.explanation:
        shown.append(result.explanation)
    files["solver.log"] = ("\n".join(shown) + "\n").encode()

    def pictures() -> dict[str, bytes]:
        if schedule is None or not drawn:
            return {}
        return at_home({"gantt.png": gantt(problem, schedule, title=title_of(result))})

    return ResultFiles(at_home(files), pictures, path, told)


def write_result_folder(
    folder: Path,
    result: Solution,
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


def _order(result: Solution, to: str) -> tuple[dict[str, bytes], list[str], str]:
    """Make the order for a runtime, where it can run it.

    Returns the files, what the log is told, and what a user is.
    """
    name = FILE_NAMES[to]
    try:
        on_torch = result.target in get_args(OnTorch)
        options = Options(Path(name), version=result.release if on_torch else None)
        made = EXPORTERS[to](result.problem, result.schedule, options)
    except NotApplicable as error:
        told = f"no {name}: {error}"
        return {}, [told], told
    files = {Path(name).with_suffix(suffix).name: data for suffix, data in made.beside.items()}
    notes = [f"{name}: {note}" for note in made.notes]
    return files | {name: made.data}, notes, f"{name}: {made.changed}" if made.changed else ""
