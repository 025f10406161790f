"""What a schedule says: as text, where its time goes, and step by step with its transfers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesat.core.arguments import public
from pipesat.core.claims import percent
from pipesat.core.metrics import Metrics, measure
from pipesat.core.showing import Displayed, Facts, ranges
from pipesat.core.summary import modes_text
from pipesat.workflows.valid import valid_schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.problem import Problem
    from pipesat.core.result import Result
    from pipesat.core.schedule import Schedule
    from pipesat.core.timing import PathStep
    from pipesat.export.steps import Steps

WIDTH = 100
MOST_CLASSES = 12  # named


@dataclass(frozen=True, repr=False, slots=True)
class ShownSchedule(Displayed):
    """A checked schedule: ``print`` shows it as a text grid, ``to_frame`` where time goes."""

    problem: Problem
    schedule: Schedule
    metrics: Metrics
    width: int = WIDTH

    def __str__(self) -> str:
        from pipesat.picture.text import text_grid

        return text_grid(self.problem, self.schedule, self.width)

    @property
    def critical_path(self) -> list[PathStep]:
        """The chain of ops that sets the makespan."""
        from pipesat.core.timing import critical_path

        return critical_path(self.problem, self.schedule)

    def facts(self) -> Facts:
        """Return makespan and span, each with its bubble."""
        metrics = self.metrics
        return [
            ("makespan", f"{metrics.makespan} (bubble {percent(metrics.bubble_of_makespan)})"),
            ("span", f"{metrics.span} (bubble {percent(metrics.bubble_of_span)})"),
            *self.differing(),
        ]

    def differing(self) -> Facts:
        """Return which microbatches are of which class, and how many run in which mode."""
        found: list[tuple[str, str]] = []
        for number, route in enumerate(self.problem.routes):
            if route.classes is None:
                continue
            members: dict[str, list[int]] = {kind.name: [] for kind in route.definitions}
            for microbatch, kind in enumerate(route.classes):
                members[route.definitions[kind].name].append(microbatch)
            named = [f"{name} {ranges(numbers)}" for name, numbers in members.items()]
            left = len(named) - MOST_CLASSES
            said = "; ".join(named[:MOST_CLASSES]) + (f"; {left} more" if left > 0 else "")
            where = f" of route {number}" if len(self.problem.routes) > 1 else ""
            found.append((f"classes{where}", said))
        if self.problem.has_modes:
            found.append(("modes", modes_text(self.problem, self.schedule)))
        return found

    def records(self) -> list[dict[str, Any]]:
        """Return a row per device: where its time goes, in time units, and its peak memory."""
        return [
            {"device": self.problem.device_name(device), **asdict(times), "peak_memory": peak}
            for device, (times, peak) in enumerate(
                zip(self.metrics.devices, self.metrics.peak_memory, strict=True)
            )
        ]

    def plot(self) -> Figure | None:
        """Draw it as a Gantt chart; return a matplotlib figure."""
        return self.schedule.on(self.problem).plot()


@public
def show(
    problem: Problem, schedule: Schedule | Result | str | Path, *, width: int = WIDTH
) -> ShownSchedule:
    """Return a checked schedule as a text grid, and where each device's time goes.

    Parameters
    ----------
    problem
        The problem that it is a schedule of.
    schedule
        A schedule, the result that has it, or the path of a schedule file.
    width
        Columns of the text.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    """
    timed = valid_schedule(problem, schedule)
    return ShownSchedule(problem, timed, measure(problem, timed), width)


@public
def steps(problem: Problem, schedule: Schedule | Result | str | Path) -> Steps:
    """Return each rank's steps, sends and receives included, in an order that cannot deadlock.

    Sends and receives may block until the other side is there.

    Parameters
    ----------
    problem
        The problem that it is a schedule of.
    schedule
        A schedule, the result that has it, or the path of a schedule file.

    Returns
    -------
    Steps
        Per rank, its steps: ``kind``, ``item`` and, of a transfer, ``peer``.

    Raises
    ------
    NotValid
        If the checker refuses the schedule.
    NotApplicable
        If it has copies, whose effect on memory depends on times.
    """
    from pipesat.core.errors import Fault, NotApplicable
    from pipesat.export.steps import steps_of
    from pipesat.hangs.verdict import step_faults

    timed = valid_schedule(problem, schedule)
    if any(timed.copies):
        raise NotApplicable("steps has no copies yet: this schedule offloads microbatches")
    lists = steps_of(problem, timed)
    if faults := step_faults(problem, timed.order, lists):
        raise Fault(f"the steps cannot run: {faults[0]}")
    return lists
