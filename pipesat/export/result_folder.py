"""The folder that ``solve -o DIR`` writes, all files or none."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.result import Result
from pipesat.core.schedule import Schedule
from pipesat.export import export_torch_csv, export_trace
from pipesat.files.folder import write_folder
from pipesat.files.schedule_file import schedule_bytes
from pipesat.picture.gantt import gantt_png
from pipesat.picture.of_result import title_of


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
    folder: Path, result: Result, log: Sequence[str], *, home: str = "", torch: bool = True
) -> ResultFiles:
    """Make every file of a result that is to lie in a folder; without ``torch``, no order for it.

    ``home``: the folder in it that has this result, where there are several.
    """
    path = None
    files: dict[str, bytes] = {}
    said = ""
    if result.schedule is not None:
        path = str(folder / home / "schedule.json")
        files["schedule.json"] = schedule_bytes(result.problem, result.schedule)
        trace = export_trace(result.problem, result.schedule)
        files["trace.json"] = trace.data
        log = [*log, *(f"trace.json: {note}" for note in trace.notes)]
        if torch:
            told, said = _add_torch_csv(files, result.problem, result.schedule)
            log = [*log, *told]
    files["problem.json"] = _json_bytes(result.problem.document)
    files["result.json"] = _json_bytes(result.document(path))
    lines = [*log, f"status {result.status} after {result.wall_s:.1f} s"]
    if result.explanation:
        lines.append(result.explanation)
    files["solver.log"] = ("\n".join(lines) + "\n").encode()

    def pictures() -> dict[str, bytes]:
        if result.schedule is None:
            return {}
        drawn = gantt_png(result.problem, result.schedule, title=title_of(result))
        return {os.path.join(home, "gantt.png"): drawn}

    return ResultFiles({os.path.join(home, n): d for n, d in files.items()}, pictures, path, said)


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
    made = result_files(folder, result, log, home=home)
    write_folder(folder, made.files, pictures=made.pictures, keep=keep)
    return made


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
