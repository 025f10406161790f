"""Which schedule a user means, checked; what it says, as text and step by step."""

from __future__ import annotations

import os.path
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pipesat.check import checker
from pipesat.compare import result as own
from pipesat.compare.result import Result
from pipesat.core.amounts import time_cell, time_text, unit_of_cells
from pipesat.core.arguments import public
from pipesat.core.claims import percent
from pipesat.core.errors import BadInput, NotApplicable, Note, require, require_applicable
from pipesat.core.grouping import in_rows
from pipesat.core.settings import RuleChoice
from pipesat.core.showing import Displayed, Facts, Table, ranges, table_of
from pipesat.schedule import schedule as plain
from pipesat.schedule.metrics import Metrics, measure
from pipesat.schedule.summary import modes_text, over_text, units_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.errors import Violation
    from pipesat.problem.problem import Problem
    from pipesat.runtimes.hangs.verdict import Verdict
    from pipesat.runtimes.steps import Steps
    from pipesat.runtimes.torch.companions import Companions
    from pipesat.runtimes.torch.csv_file import Imported
    from pipesat.schedule.schedule import Schedule
    from pipesat.schedule.timing import PathStep


_AS_TEXT = "An order as text is a .csv: a line per rank, as 0F0,0F1,0B0"


@public
def schedule_of(
    problem: Problem, given: Schedule | Result | str | Path | Sequence[Sequence[str]]
) -> own.Schedule:
    """Return the schedule of a problem that is meant, not yet checked; it may exceed memory.

    Parameters
    ----------
    given
        A schedule; the result that has it; the path of a schedule file, of torch's CSV
        (``.csv``) with what lies beside it, of another runtime's order (``.py``, read as data), or
        of the folder that a solve has written; or the name
        of a hand-written schedule as the rows of :func:`pipesat.compare` have it: ``1f1b``,
        ``1f1b, descending``, ``interleaved-1f1b, groups of 4``. Or an order, a list of ops as
        ``"0F0"`` per device: each starts as early as it can.

    Raises
    ------
    BadInput
        If there is no such name or file, or it cannot be read.
    NotApplicable
        If the hand-written schedule does not exist for this problem.
    Deadlock
        If the ops of an order wait for each other, or for one that it lacks.
    """
    from pipesat.schedule.schedule_file import schedule_in_order

    if isinstance(given, Result):
        if given.schedule is None:
            raise BadInput(f"the result has no schedule: it is {given.status}")
        given = given.schedule
    if isinstance(given, str | Path):
        given = _read(problem, given)
    made = given if isinstance(given, plain.Schedule) else schedule_in_order(problem, given)
    return own.Schedule.of_problem(made, problem)


def _read(problem: Problem, given: str | Path) -> Schedule:
    from pipesat.core.folder import has_file
    from pipesat.schedule.schedule_file import read_schedule

    path, file = str(given), Path(given)
    if os.path.isdir(path):
        require(
            has_file(file, "schedule.json"),
            "no schedule.json here, expected the folder of a solve that found a schedule",
            source=path,
        )
        return read_schedule(file / "schedule.json", problem)
    if file.suffix in (".csv", ".py"):
        read = read_order(file, problem)
        for text in read.notes:
            warnings.warn(Note(text), stacklevel=3)
        return read.schedule
    if file.suffix or os.sep in path or os.path.exists(path):
        try:
            return read_schedule(file, problem)
        except BadInput as error:
            if error.expected.startswith("not JSON"):
                raise BadInput(f"{error.expected}. {_AS_TEXT}", source=path) from None
            raise
    from pipesat.compare.hand_written import baseline, in_words

    try:
        return baseline(*in_words(path, problem))
    except NotApplicable as error:
        raise NotApplicable(f"{path} does not apply: {error}") from None


def valid_schedule(
    problem: Problem, schedule: Schedule | Result | str | Path | Sequence[Sequence[str]]
) -> own.Schedule:
    """Return a schedule that keeps every rule of a problem.

    Parameters
    ----------
    schedule
        As :func:`schedule_of`.
    """
    checker.require_valid(problem, timed := schedule_of(problem, schedule), name_of(schedule))
    return timed


def name_of(schedule: object) -> str | Path:
    """Return what a user calls a schedule that is given."""
    return schedule if isinstance(schedule, str | Path) else "the schedule"


def read_order(path: Path, problem: Problem, companions: Companions | None = None) -> Imported:
    """Read a runtime's order (Python as data, else torch's CSV) and time it, not yet checked."""
    from pipesat.runtimes.programs import read_program
    from pipesat.runtimes.torch.csv_file import Imported, read_torch_csv

    if path.suffix == ".py":
        return Imported(read_program(path, problem), ())
    return read_torch_csv(path, problem, companions)


@overload
def check(
    problem: Problem, schedule: Schedule | Result | str | Path, runtime: None = None
) -> list[Violation]: ...
@overload
def check(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    runtime: RuleChoice,
    version: str | None = None,
) -> Verdict: ...
@public
def check(
    problem: Problem,
    schedule: Schedule | Result | str | Path,
    runtime: RuleChoice | None = None,
    version: str | None = None,
) -> list[Violation] | Verdict:
    """Return every violation; an empty list means that the schedule is valid. O(n log n).

    With a ``runtime``, return whether a valid one can hang under its rule: docs/runtimes.md says
    what each rule means, and where sends and receives are posted.

    Parameters
    ----------
    schedule
        The schedule: a file, a folder that a solve wrote, or the name of a hand-written schedule.
    runtime
        Say whether the order can hang under this rule for sends and receives: ``pair-fifo``,
        ``edge-fifo``, ``group``, ``rendezvous``, ``graph``, or that of ``torch``, ``torchtitan`` or
        ``automodel``; ``None``: not asked. These three run ``pair-fifo`` over NCCL, and post what
        torch makes of the order. ``group`` is one communicator of all ranks.

    Raises
    ------
    NotValid
        If there is a ``runtime``, and the schedule is not valid.
    """
    if runtime is None:
        return checker.check(problem, schedule_of(problem, schedule))
    from pipesat.runtimes.hangs.verdict import verdict

    return verdict(problem, valid_schedule(problem, schedule), runtime, version=version)


WIDTH = 100
MOST_CLASSES = 12  # named


@dataclass(frozen=True, repr=False, slots=True)
class ShownSchedule(Displayed):
    """A checked schedule: ``print`` shows it as a text grid, ``to_frame`` where time goes.

    ``fits`` is ``False`` for one that exceeds memory.
    """

    problem: Problem
    schedule: own.Schedule
    metrics: Metrics
    width: int = WIDTH
    fits: bool = True

    def __str__(self) -> str:
        from pipesat.draw.text import text_grid

        return text_grid(self.problem, self.schedule, self.width)

    @property
    def critical_path(self) -> list[PathStep]:
        """The chain of ops that sets the makespan."""
        from pipesat.schedule.timing import critical_path

        return critical_path(self.problem, self.schedule)

    def facts(self) -> Facts:
        """Return makespan and span, each with its bubble."""
        metrics, unit = self.metrics, self.problem.time_unit
        values = {
            "Makespan": (metrics.makespan, metrics.bubble_of_makespan),
            "Span": (metrics.span, metrics.bubble_of_span),
        }
        return [
            *((k, f"{time_text(v, unit)} (bubble {percent(b)})") for k, (v, b) in values.items()),
            *self.differing(),
        ]

    def tables(self) -> Iterator[Table]:
        """Yield where each device's time goes."""
        yield table_of(self.records(), notes=["; ".join(units_of(self.problem))])

    def details(self) -> Facts:
        """Return the critical path: when, which op, where, and what it waited for."""
        reason = {"device": "after the op before", "input": "when its input arrives", "start": ""}
        unit = self.problem.time_unit
        note = f"times in {unit_of_cells(unit)}" if unit else ""
        return [
            (note, "the chain that sets the makespan:"),
            *(
                (
                    f"{time_cell(timed.start, unit)} to {time_cell(timed.end, unit)}",
                    f"{timed.item} on {self.problem.device_name(device)} {reason[why]}".rstrip(),
                )
                for device, timed, why in self.critical_path
            ),
        ]

    def document(self, *, critical_path: bool = False) -> dict[str, Any]:
        """Return its figures, and where each device's time goes, ready for JSON."""
        timed = self.schedule
        said = {"makespan": timed.makespan, "span": timed.span, "devices": self.records()}
        if not self.fits:
            said["fits"] = False
        if critical_path:
            chain = self.critical_path
            said["critical_path"] = [[d, str(t.item), t.start, t.end, why] for d, t, why in chain]
        return said

    def differing(self) -> Facts:
        """Return which microbatches are of which class, and how many run in which mode."""
        found: list[tuple[str, str]] = []
        for number, route in enumerate(self.problem.routes):
            if route.classes is None:
                continue
            classes = zip(route.classes, range(route.microbatches), strict=True)
            members = zip(route.definitions, in_rows(len(route.definitions), classes), strict=True)
            named = [f"{kind.name} {ranges(numbers)}" for kind, numbers in members]
            left = len(named) - MOST_CLASSES
            said = "; ".join(named[:MOST_CLASSES]) + (f"; {left} more" if left > 0 else "")
            where = f" of route {number}" if len(self.problem.routes) > 1 else ""
            found.append((f"Classes{where}", said))
        if self.problem.has_modes:
            found.append(("Modes", modes_text(self.problem, self.schedule)))
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
        return self.schedule.plot()


@public
def show(
    problem: Problem, schedule: Schedule | Result | str | Path, *, width: int = WIDTH
) -> ShownSchedule:
    """Return a checked schedule as a text grid, and where each device's time goes.

    One that only exceeds memory is shown, too, with a note.

    Parameters
    ----------
    width
        Columns of the text.

    Raises
    ------
    NotValid
        If the checker refuses the schedule for another reason than memory.
    """
    timed = schedule_of(problem, schedule)
    free = problem.with_memory(None)
    checker.require_valid(free, timed, name_of(schedule))
    over = over_text(problem, timed)
    if over:
        text = f"{name_of(schedule)} does not fit into memory: {over}. It is shown all the same"
        warnings.warn(Note(text), stacklevel=2)
    metrics = measure(free if over else problem, timed)  # what is exceeded delays nothing
    return ShownSchedule(problem, timed, metrics, width, fits=not over)


@public
def steps(problem: Problem, schedule: Schedule | Result | str | Path) -> Steps:
    """Return each rank's steps, sends and receives included, in an order that cannot deadlock.

    Sends and receives may block until the other side is there.

    Parameters
    ----------
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
    from pipesat.runtimes.steps import steps_of

    timed = valid_schedule(problem, schedule)
    require_applicable(
        not any(timed.copies), "steps has no copies yet: this schedule offloads microbatches"
    )
    return steps_of(problem, timed)
