"""The folder that ``solve -o DIR`` writes, all files or none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipesat.core.errors import NotApplicable
from pipesat.core.problem import Problem
from pipesat.core.result import Result
from pipesat.core.schedule import Schedule
from pipesat.export import export_torch_csv, export_trace
from pipesat.export.torch.companions import SUFFIXES as COMPANIONS
from pipesat.files.atomic import write_files
from pipesat.files.schedule_file import schedule_bytes
from pipesat.picture.gantt import gantt_png
from pipesat.picture.of_result import title_of

_OF_A_SCHEDULE = {
    "schedule.json",
    "gantt.png",
    "trace.json",
    "schedule.csv",
    "schedule.hazards.txt",
    *(f"schedule{suffix}" for suffix in COMPANIONS),
}


class Written(NamedTuple):
    """Path of the schedule, if there is one, and what a user is told about torch's order.

    ``told``: that it takes another time, or why there is none.
    """

    schedule: str | None
    told: str = ""


def write_result_folder(
    folder: Path, result: Result, log: Sequence[str], *, torch: bool = True
) -> Written:
    """Write every file of a result; without ``torch``, no order for it.

    Raises
    ------
    BadInput
        If the folder cannot be written; then nothing in it has changed.
    """
    path = None if result.schedule is None else str(folder / "schedule.json")
    files: dict[str, bytes] = {}
    said = ""
    if result.schedule is not None:
        files["schedule.json"] = schedule_bytes(result.problem, result.schedule)
        files["gantt.png"] = gantt_png(result.problem, result.schedule, title=title_of(result))
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
    write_files(folder, files)
    for stale in _OF_A_SCHEDULE - files.keys():
        (folder / stale).unlink(missing_ok=True)  # of an earlier solve into the same folder
    return Written(path, said)


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
