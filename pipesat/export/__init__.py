"""What a schedule can be exported to: one file per format, one function each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pipesat.errors import Fault
from pipesat.export.trace import expected_in_trace, ops_in_trace, trace_bytes
from pipesat.problem import Problem
from pipesat.schedule import Schedule

Exporter: TypeAlias = Callable[[Problem, Schedule], bytes]


def export_trace(problem: Problem, schedule: Schedule) -> bytes:
    """Return a trace for Perfetto, parsed back and compared op by op.

    Raises
    ------
    Fault
        If the trace does not say what the schedule says.
    """
    data = trace_bytes(problem, schedule)
    if ops_in_trace(data) != expected_in_trace(problem, schedule):
        raise Fault("the exported trace does not have the schedule's ops")
    return data


def export_png(problem: Problem, schedule: Schedule) -> bytes:
    """Return a Gantt chart."""
    from pipesat.picture.gantt import gantt_png  # matplotlib is slow to import

    title = f"{problem.name or 'schedule'}\nmakespan {schedule.makespan}, span {schedule.span}"
    return gantt_png(problem, schedule, title=title)


EXPORTERS: Final[dict[str, Exporter]] = {"png": export_png, "trace": export_trace}
