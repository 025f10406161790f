"""The picture of a schedule, of a result, or of several schedules of one problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipesat.core.amounts import Rounding, rounded, rounded_down, time_text
from pipesat.schedule.summary import over_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.problem.problem import Problem
    from pipesat.schedule.result import Solution
    from pipesat.schedule.schedule import Schedule


def gantt_figure(
    problem: Problem,
    schedule: Schedule | Mapping[str, Schedule],
    *,
    title: str,
    time_unit: str | None = None,
    whole: bool = False,
) -> Figure:
    """Draw a schedule, or several ones of a problem by their names, on one time scale.

    Below each device's ops stands its memory over time, on one scale for all devices, with the
    capacities as dashed lines. Rows that are too low for memory, as those of more than some 80
    devices, and those of several schedules go without. Where numbers would not fit into the ops, a
    middle that repeats is drawn once.

    Parameters
    ----------
    title
        At most three lines of it are shown. Too long lines lose their middle.
    time_unit
        Of the schedules' times; the problem's if not given.
    whole
        Draw all of it, also a middle that repeats.
    """
    from pipesat.draw.chart import chart  # matplotlib is slow to import
    from pipesat.draw.device_rows import rows_of

    schedules = schedule if isinstance(schedule, Mapping) else {"": schedule}
    return chart(
        problem,
        rows_of(problem, schedules),
        title,
        problem.time_unit if time_unit is None else time_unit,
        whole=whole,
    )


def gantt(
    problem: Problem, schedule: Schedule, *, title: str, kind: str = "png", whole: bool = False
) -> bytes:
    """Draw a schedule as :func:`gantt_figure` does; return its file: ``png``, ``svg``, ``pdf``."""
    from pipesat.draw.figures import file_of

    return file_of(gantt_figure(problem, schedule, title=title, whole=whole), kind)


def title_of(result: Solution) -> str:
    """Title of a result's picture: whose it is, and below it value, bound and gap."""
    problem, value = result.problem, result.value
    said = [f"{result.objective} {_time(value, problem)}"]
    if result.lower_bound is not None:
        least = _time(result.lower_bound, problem, rounded_down)
        said += [] if result.status == "optimal" else [f"bound of these stages {least}"]
        said.append(result.standing.verdict)
    return f"{_name(problem)}\n{', '.join(said)}"


def title_of_schedule(problem: Problem, schedule: Schedule) -> str:
    """Title of a schedule's picture: whose it is, who made it, and its values."""
    values = f"makespan {_time(schedule.makespan, problem)}, span {_time(schedule.span, problem)}"
    if over := over_text(problem, schedule):
        values += f"\nDoes not fit into memory: {over}"
    return f"{_name(problem)}{f': {schedule.source}' if schedule.source else ''}\n{values}"


def _name(problem: Problem) -> str:
    devices, microbatches = len(problem.devices), max(problem.microbatches, default=0)
    return problem.name or f"{devices} devices, {microbatches} microbatches"


def _time(value: Any, problem: Problem, towards: Rounding = rounded) -> str:
    return time_text(value, problem.time_unit, towards)
