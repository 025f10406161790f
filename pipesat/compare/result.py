"""What users get and keep: a schedule that knows its problem, and the answer of a solve."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pipesat.check.checker import check
from pipesat.core.amounts import Number, Rounding, exact_text, rounded, rounded_down, time_text
from pipesat.core.arguments import public
from pipesat.core.claims import against, percent, plural
from pipesat.core.errors import BadInput
from pipesat.core.showing import Displayed, Facts, sentences
from pipesat.draw.gantt import gantt_figure, title_of, title_of_schedule
from pipesat.problem.remarks import text_of
from pipesat.schedule import schedule as plain
from pipesat.schedule.metrics import bubbles, peak_memory
from pipesat.schedule.result import Solution
from pipesat.schedule.schedule_file import write_schedule
from pipesat.schedule.summary import modes_text, peak_text, records_of, work_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.errors import Violation
    from pipesat.problem.problem import Problem
    from pipesat.schedule.schedule import Exported

_NONE: Final = "nothing: no schedule was found in time"


@dataclass(frozen=True, repr=False, eq=False)
class Schedule(plain.Schedule):
    """A schedule that pipesat hands out: it knows its ``problem``."""

    problem: Problem | None = None

    @classmethod
    def of_problem(cls, made: plain.Schedule, problem: Problem) -> Schedule:
        """Return a schedule as one of a problem; what was worked out of it stays."""
        if isinstance(made, cls):
            return made.on(problem)
        same = cls(made.devices, made.source, made.copies, problem)
        same.__dict__.update({k: v for k, v in made.__dict__.items() if k not in same.__dict__})
        return same

    def on(self, problem: Problem) -> Schedule:
        """Return this schedule as one of a problem; what was worked out of it stays."""
        if self.problem is problem:
            return self
        same = copy.copy(self)
        object.__setattr__(same, "problem", problem)
        return same

    @property
    def of(self) -> Problem:
        """The problem.

        Raises
        ------
        BadInput
            If nothing says which one it is.
        """
        if self.problem is None:
            raise BadInput("no problem is known: pipesat.schedule_of(problem, schedule) has one")
        return self.problem

    @property
    def peak_memory(self) -> list[int]:
        """Most memory that each device holds, static memory included."""
        return peak_memory(self.of, self)

    def check(self) -> list[Violation]:
        """Return every violation of a rule; empty if it is valid. See :func:`pipesat.check`."""
        return check(self.of, self)

    def plot(self) -> Figure:
        """Draw it as a Gantt chart; return a matplotlib figure."""
        return gantt_figure(self.of, self, title=title_of_schedule(self.of, self))

    def export(self, to: str, path: str | Path | None = None, **options: Any) -> Exported:
        """Return it in another format; see :func:`pipesat.export`."""
        from pipesat.runtimes.written import exported, warned

        return warned(exported(self.of, self, to, path, **options))

    def write(self, path: str | Path) -> None:
        """Write a schedule file.

        Raises
        ------
        BadInput
            If the file cannot be written.
        """
        write_schedule(path, self.of, self)


@dataclass(frozen=True, repr=False, slots=True)
class Result(Displayed, Solution):
    """The outcome of a solve, the best that is known. Unknown quantities are ``None``, never 0.

    ``print`` it, ``plot()`` it, ``save(folder)`` it, ``export(format)`` its order. It has what a
    :class:`pipesat.schedule.result.Solution` has.

    Attributes
    ----------
    usual
        Name and value of what most runs use today, 1F1B or interleaved 1F1B; without a value it
        exceeds memory. ``None`` if neither exists, or the problem is too large for a look.
    """

    schedule: Schedule | None
    usual: tuple[str, int | None] | None = None

    def __post_init__(self) -> None:
        if self.schedule is not None:
            own = Schedule.of_problem(self.schedule, self.problem)
            object.__setattr__(self, "schedule", own)
        Solution.__post_init__(self)

    @classmethod
    def of(cls, found: Solution, **changes: Any) -> Self:
        """Return what a search has found as the answer, compared with what most runs use."""
        from pipesat.compare.usual import usual  # slow to import

        known = {one.name: getattr(found, one.name) for one in fields(found)} | changes
        known["usual"] = usual(known["problem"], known["objective"])
        return cls(**known)

    def facts(self) -> Facts:
        """Return what was found and proven, what it gains, and what costs the time."""
        facts = [*self.answer()]
        if self.schedule is not None:
            problem, schedule = self.problem, self.schedule
            of_makespan, of_span = map(percent, bubbles(problem, schedule))
            facts += [
                ("Memory", peak_text(problem, peak_memory(problem, schedule))),
                ("Modes", modes_text(problem, schedule) if problem.has_modes else ""),
                ("Bubble", f"{of_makespan} of the makespan, {of_span} of the span"),
            ]
        return [*facts, ("Searched", self._searched())]

    def _searched(self) -> str:
        """Say how long the search took, and with several workers how much of the machine it used.

        Its share is processor time over seconds and workers.
        """
        text = f"{self.wall_s:.1f} s"
        if self.workers == 1 or not (self.lanes and self.wall_s):
            return text
        share = percent(min(1.0, self.cpu_s / (self.wall_s * self.workers)), 0)
        return (
            f"{text}, {self.lanes} {plural(self.lanes, 'lane')}, {share} of {self.workers} cores "
            "used"
        )

    def answer(self) -> Facts:
        """Return the lines that every answer about this problem has."""
        facts = [("Take", self.taken()), ("Proof", self.proof())]
        facts += [("Period", self._steady()), ("Gain", self._gain())]
        facts.append(("For", self.release or ""))
        if self.schedule is not None:
            facts.append(("Limit", work_text(self.problem, self.schedule, self.objective)))
        if self.problem.estimate:
            facts.append(("Doubt", f"times and memory are an estimate: {self.problem.estimate}"))
        note = self.explanation if self.schedule is None else "; ".join(self.warnings)
        facts += [("Remark", text_of(self.problem.remarks)), ("Note", note)]
        if self.target is not None and self.schedule is not None:
            from pipesat.runtimes import on_shapes  # slow to import

            facts.append(("Shapes", on_shapes(self.problem, self.target)))
        return facts

    def taken(self) -> str:
        """Say what was found, and by whom."""
        if self.schedule is None or self.value is None:
            return "nothing: no schedule exists" if self.status == "infeasible" else _NONE
        finder = self.schedule.source
        if self.baseline is not None and self.baseline.name == finder:
            best = ", the best made in time" if self.baselines_left_out else ""
            finder = f"the hand-written schedule {finder}{best}"
        return f"{self._time(self.value)} a step ({self.objective}), found by {finder}"

    def proof(self) -> str:
        """Say what is proven of it."""
        if self.bound is None:
            return self.standing.verdict
        return self.standing.proof(self._time(self.bound.value, rounded_down), self.bound.source)

    def _steady(self) -> str:
        """Say what a microbatch of a long run takes, and takes at least."""
        if self.period is None:
            return ""
        value, least = self.period.value, self.period.lower_bound
        return self.period.text(self._time(value), self._time(least, rounded_down))

    def _time(self, value: Number, towards: Rounding = rounded) -> str:
        return time_text(value, self.problem.time_unit, towards)

    def _gain(self) -> str:
        """Say what it gains over 1F1B, which most runs use, and over the best hand-written one."""
        if self.baseline is None or self.value is None:
            return ""
        usual, theirs = self.usual or ("", self.baseline.value)
        if self.problem.has_lists and not self.problem.alike:
            usual += " in the order given"
        if theirs is None:
            return sentences([self._over_the_best(), f"{usual} does not fit into memory"])
        over = [] if theirs == self.baseline.value else [self._over(usual, theirs)]
        return sentences([*over, self._over_the_best()])

    def _over_the_best(self) -> str:
        assert self.baseline is not None  # noqa: S101
        name, theirs = self.baseline
        best = "made in time" if self.baselines_left_out else "that fits"
        what = f"{name}, the best hand-written schedule {best}"
        return f"none over {what}" if theirs == self.value else self._over(what, theirs)

    def _over(self, name: str, theirs: int) -> str:
        assert self.value is not None  # noqa: S101
        return f"{against(self.value, theirs, name)} ({self._time(theirs)})"

    def details(self) -> Facts:
        """Return the exact numbers, and what a repetition needs."""
        bound, value = (
            "unknown" if number is None else exact_text(number, self.problem.time_unit)
            for number in (self.lower_bound, self.value)
        )
        same = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return [
            ("status", self.status),
            (self.objective, value),
            ("lower bound", bound),
            ("gap", self.standing.gap_text(3)),
            ("seed", str(self.seed)),
            ("workers", str(self.workers)),
            ("versions", same),
            ("search", self.explanation if self.status == "feasible" else ""),
        ]

    def records(self) -> list[dict[str, Any]]:
        """Return a row per op, in execution order device by device: those of ``to_frame()``."""
        return [] if self.schedule is None else records_of(self.problem, self.schedule)

    def plot(self) -> Figure | None:
        """Draw the schedule as a Gantt chart; return a matplotlib figure.

        Write it with ``savefig``; a notebook shows it at the end of a cell. ``None`` without a
        schedule.
        """
        if self.schedule is None:
            return None
        return gantt_figure(self.problem, self.schedule, title=title_of(self))

    @public
    def save(self, folder: str | Path, log: Sequence[str] = ()) -> str | None:
        """Write what ``pipesat solve -o`` writes: schedule, result, problem, pictures, orders.

        ``log`` are lines of ``solver.log``. Returns the schedule's path, if there is one.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        from pipesat.compare.result_folder import write_result_folder

        written = write_result_folder(Path(folder), self, log)
        if written.told:
            warnings.warn(written.told, stacklevel=3)  # beyond what looks at the arguments
        return written.schedule

    @public
    def export(self, to: str, path: str | Path | None = None, **options: Any) -> Exported:
        """Return the schedule in another format; see :func:`pipesat.export`."""
        from pipesat.runtimes.written import exported, warned

        if self.schedule is None:
            raise BadInput(f"the result has no schedule: it is {self.status}")
        return warned(exported(self.problem, self.schedule, to, path, **options), stacklevel=4)
