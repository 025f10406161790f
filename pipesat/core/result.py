"""What a solve returns: the best checked schedule, its bound and where both came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pipesat.core.amounts import Rounding, rounded, rounded_down, time_text
from pipesat.core.arguments import public
from pipesat.core.attached import attached
from pipesat.core.claims import Bound, Standing, Status, against, percent, plural, require_best
from pipesat.core.metrics import bubbles, mode_counts, pair_counts, peak_memory
from pipesat.core.microbatch_order import microbatch_order
from pipesat.core.problem import Problem
from pipesat.core.remarks import documents_of, text_of
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.showing import Displayed, Facts, sentences
from pipesat.core.summary import modes_text, peak_text, records_of, work_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.schedule import Exported

_NONE: Final = "nothing: no schedule was found in time"


class Baseline(NamedTuple):
    """A hand-written schedule and its value for the objective."""

    name: str
    value: int


class Improvement(NamedTuple):
    """One step of a solve: after ``seconds``, the incumbent or the bound became better.

    Both are in the problem's time unit, which is ``unit``.
    """

    seconds: float
    value: int | None
    bound: int | None
    source: str
    unit: str = ""


@dataclass(frozen=True, repr=False, slots=True)
class Result(Displayed):
    """The outcome of a solve. Unknown quantities are ``None``, never 0.

    ``print`` it, ``plot()`` it, ``save(folder)`` it, ``export(format)`` its order.

    Attributes
    ----------
    problem
        What was solved.
    status
        ``optimal``, ``feasible``, ``infeasible`` or ``unknown``.
    objective
        ``makespan`` or ``span``; ``value`` is the schedule's, in the problem's time unit.
    schedule
        The times of all ops; ``schedule.source`` says who found them: a hand-written schedule by
        name (:func:`pipesat.baselines`) or a part of the search (docs/proofs/search.md).
    bound
        What no schedule goes below, ``lower_bound``, and what proves it, ``lower_bound_source``.
    baseline
        ``name`` and ``value`` of the best hand-written schedule that fits.
    wall_s
        Seconds that the solve took.
    seed, workers, versions
        What else a repetition needs.
    history
        When value and bound became better.
    explanation
        Why it is infeasible or unknown, and what had to be dropped.
    target
        The runtime whose restrictions value and bound obey, ``None`` if none.
    baselines_left_out
        The search ended before all hand-written schedules were made: ``baseline`` is the best of
        some.
    contradictions
        Proofs that a checked schedule has refuted: faults of pipesat.
    warnings
        Which proofs the solve itself has dropped for that reason, and what failed in it without
        costing the schedule; the explanation has them.
    lanes, cpu_s
        Lanes that have searched, and the seconds of processor time that this process and theirs
        took; 0 where that is not known.

    Raises
    ------
    Contradiction
        If status, value, bound and baseline do not agree with each other.
    """

    problem: Problem
    status: Status
    objective: Objective
    schedule: Schedule | None
    bound: Bound | None
    baseline: Baseline | None
    wall_s: float
    seed: int
    workers: int
    versions: dict[str, str] = field(default_factory=dict)
    history: tuple[Improvement, ...] = ()
    explanation: str = ""
    target: str | None = None
    baselines_left_out: bool = False
    contradictions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    lanes: int = 0
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
        if self.schedule is not None:
            object.__setattr__(self, "schedule", self.schedule.on(self.problem))
        self.standing.require_status(self.status)
        if self.baseline is not None:
            require_best("the answer", self.value, [self.baseline])

    @property
    def standing(self) -> Standing:
        """What is proven of the value."""
        return Standing(self.value, self.lower_bound, self.status == "infeasible", self.objective)

    @property
    def lower_bound(self) -> int | None:
        """What no schedule goes below, in the problem's time unit; ``None`` if unknown."""
        return None if self.bound is None else self.bound.value

    @property
    def lower_bound_source(self) -> str | None:
        """What proves the lower bound: a formula of docs/proofs/bounds.md by name, or CP-SAT."""
        return None if self.bound is None else self.bound.source

    @property
    def value(self) -> int | None:
        """The objective's value of the schedule."""
        return None if self.schedule is None else self.schedule.value(self.objective)

    @property
    def gap(self) -> float | None:
        """``(value - lower_bound) / value``; 0 where both are 0."""
        return self.standing.gap

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
        lanes = f"{self.lanes} {plural(self.lanes, 'lane')}"
        return f"{text}, {lanes}, {share} of {self.workers} cores used"

    def answer(self) -> Facts:
        """Return the lines that every answer about this problem has."""
        facts = [("Take", self.taken()), ("Proof", self.proof()), ("Gain", self._gain())]
        if self.schedule is not None:
            facts.append(("Limit", work_text(self.problem, self.schedule, self.objective)))
        if self.problem.estimate:
            facts.append(("Doubt", f"times and memory are an estimate: {self.problem.estimate}"))
        note = self.explanation if self.schedule is None else "; ".join(self.warnings)
        return [*facts, ("Remark", text_of(self.problem.remarks)), ("Note", note)]

    def taken(self) -> str:
        """Say what was found, and by whom."""
        if self.schedule is None or self.value is None:
            return "nothing: no schedule exists" if self.status == "infeasible" else _NONE
        finder = self.schedule.source
        if self.baseline is not None and self.baseline.name == finder:
            finder = f"the hand-written schedule {finder}"
        return f"{self._time(self.value)} a step ({self.objective}), found by {finder}"

    def proof(self) -> str:
        """Say what is proven of it."""
        if self.bound is None:
            return self.standing.verdict
        return self.standing.proof(self._time(self.bound.value, rounded_down), self.bound.source)

    def _time(self, value: int, towards: Rounding = rounded) -> str:
        return time_text(value, self.problem.time_unit, towards)

    def _gain(self) -> str:
        """Say what it gains over 1F1B, which most runs use, and over the best hand-written one."""
        if self.baseline is None or self.value is None:
            return ""
        known = attached("usual")(self.problem, self.objective)
        usual, theirs = known or ("", self.baseline.value)
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
        unit = f" {self.problem.time_unit}" if self.problem.time_unit else ""
        bound = "unknown" if self.lower_bound is None else f"{self.lower_bound}{unit}"
        value = "unknown" if self.value is None else f"{self.value}{unit}"
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
        return cast("Figure | None", attached("figure_of_result")(self))

    @public
    def save(self, folder: str | Path, log: Sequence[str] = ()) -> str | None:
        """Write what ``pipesat solve -o`` writes: schedule, result, problem, pictures, orders.

        ``log`` are lines of ``solver.log``. Returns the schedule's path, if there is one.

        Raises
        ------
        BadInput
            If the folder cannot be written.
        """
        return cast("str | None", attached("save_result")(self, folder, log))

    @public
    def export(self, to: str, path: str | Path | None = None, **options: Any) -> Exported:
        """Return the schedule in another format; see :func:`pipesat.export`."""
        return cast("Exported", attached("export_result")(self, to, path, **options))

    def document(self, schedule_path: str | None = None) -> dict[str, Any]:
        """Return the result object of the contract, ready for JSON."""
        document: dict[str, Any] = {
            "status": self.status,
            "objective": self.objective,
            "value": self.value,
            "makespan": None,
            "span": None,
            "lower_bound": self.lower_bound,
            "lower_bound_source": self.lower_bound_source,
            "gap": self.gap,
            "bubble": {"makespan": None, "span": None},
            **dict.fromkeys(("peak_memory", "pairs", "modes", "microbatch_order")),
            "baseline": None if self.baseline is None else self.baseline._asdict(),
            "schedule": schedule_path,
            "wall_s": round(self.wall_s, 3),
            "seed": self.seed,
            "workers": self.workers,
            "lanes": self.lanes,
            "cpu_s": round(self.cpu_s, 3),
            "versions": self.versions,
            "explanation": self.explanation or None,
            "for": self.target,
            "remarks": documents_of(self.problem.remarks),
        }
        problem, schedule = self.problem, self.schedule
        if problem.estimate:
            document = {"estimate": problem.estimate, **document}
        if schedule is not None:
            of_makespan, of_span = bubbles(problem, schedule)
            document |= {
                "makespan": schedule.makespan,
                "span": schedule.span,
                "bubble": {"makespan": of_makespan, "span": of_span},
                "peak_memory": peak_memory(problem, schedule),
                "pairs": pair_counts(schedule),
                "modes": mode_counts(problem, schedule),
                "microbatch_order": microbatch_order(problem, schedule),
            }
        return document
