"""The picture of a result: its schedule, under what is proven of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesat.picture.gantt import gantt_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule


def figure_of_result(result: Result) -> Figure | None:
    """Draw a result's schedule; ``None`` without one."""
    if result.schedule is None:
        return None
    return gantt_figure(result.problem, result.schedule, title=title_of(result))


def figure_of_schedule(problem: Problem, schedule: Schedule) -> Figure:
    """Draw a schedule."""
    values = f"makespan {schedule.makespan:,}, span {schedule.span:,}"
    return gantt_figure(problem, schedule, title=f"{problem.name or 'schedule'}\n{values}")


def title_of(result: Result) -> str:
    """Title of a picture: the name, and below it value, bound and gap."""
    unit = f" {result.problem.time_unit}" if result.problem.time_unit else ""
    title = f"{result.problem.name or 'schedule'}\n{result.objective} {result.value:,}{unit}"
    if result.lower_bound is None:
        return title
    verdict = result.standing.verdict
    if result.status == "optimal":
        return f"{title}, {verdict}"
    return f"{title}, bound {result.lower_bound:,}, {verdict}"
