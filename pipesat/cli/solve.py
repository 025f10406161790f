"""``pipesat solve``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.cli.command import command

if TYPE_CHECKING:
    from pipesat.cli.asked import Asked
    from pipesat.core.result import Result


@command(
    "solve",
    example="pipesat solve problem.json -o solved --time-limit 30",
    names={"target": "--for"},
    without=("schedules", "known_bound"),
    output="DIR",
)
def solve(asked: Asked) -> int:
    """Find the best schedule, with a proof of how good it is.

    Writes schedule.json, result.json, problem.json, gantt.png, trace.json, solver.log and, where
    torch can run it, schedule.csv with its hazards into DIR. With --for, that runtime's file too.

    Ends early when the schedule is proven optimal. Ctrl-C keeps the best schedule so far.
    """
    from pipesat.export.result_folder import write_result_folder

    result: Result = asked.answer(
        lambda found, folder, lines: write_result_folder(folder, found, lines)
    )
    written = asked.written
    told = "" if written is None else written.told
    document = lambda: result.document(None if written is None else written.schedule)  # noqa: E731
    asked.show(result, document, [("Note", told)])
    return asked.end(result)
