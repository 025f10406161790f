"""What a solve returns: the best checked schedule, its bound and where both came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pipesat.core.arguments import public
from pipesat.core.attached import attached
from pipesat.core.claims import Bound, Standing, Status, change, percent, require_best
from pipesat.core.memory import peak_memory
from pipesat.core.metrics import bubbles, mode_counts, pair_counts
from pipesat.core.microbatch_order import microbatch_order
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.showing import Displayed, Facts
from pipesat.core.summary import memory_text, modes_text, records_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipesat.core.exported import Exported


class Baseline(NamedTuple):
    """A hand-written schedule and its value for the objective."""

    name: str
    value: int


class Improvement(NamedTuple):
    """One step of a solve: after ``seconds``, the incumbent or the bound became better."""

    seconds: float
    value: int | None
    bound: int | None
    source: str


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
        name (:func:`pipesat.baselines`) or a part of the search (docs/search.md).
    lower_bound
        ``lower_bound.value`` is what no schedule goes below, ``lower_bound.source`` what proves it.
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

    Raises
    ------
    Contradiction
        If status, value, bound and baseline do not agree with each other.
    """

    problem: Problem
    status: Status
    objective: Objective
    schedule: Schedule | None
    lower_bound: Bound | None
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

    def __post_init__(self) -> None:
        self.standing.require_status(self.status)
        if self.baseline is not None:
            require_best("the answer", self.value, [self.baseline])

    @property
    def standing(self) -> Standing:
        """What is proven of the value."""
        bound = None if self.lower_bound is None else self.lower_bound.value
        return Standing(self.value, bound, self.status == "infeasible", self.objective)

    @property
    def value(self) -> int | None:
        """The objective's value of the schedule."""
        return None if self.schedule is None else self.schedule.value(self.objective)

    @property
    def gap(self) -> float | None:
        """``(value - lower_bound) / value``; 0 where both are 0."""
        return self.standing.gap

    def facts(self) -> Facts:
        """Return what is to be known of it, a label and a text each."""
        unit = f" {self.problem.time_unit}" if self.problem.time_unit else ""
        facts: list[tuple[str, str]] = [("status", self.status)]
        if self.schedule is not None:
            finder = self.schedule.source
            if self.baseline is not None and self.baseline.name == finder:
                finder = f"the baseline {finder}"  # some of them are greedy, not written by hand
            facts += [(self.objective, f"{self.value}{unit}"), ("found by", finder)]
        if self.lower_bound is not None:
            bound = f"{self.lower_bound.value}{unit} (proven by {self.lower_bound.source})"
            facts += [("lower bound", bound), ("gap", self.standing.gap_text(3))]
        if self.schedule is not None:
            of_makespan, of_span = bubbles(self.problem, self.schedule)
            facts += [("bubble of makespan", percent(of_makespan))]
            facts += [("bubble of span", percent(of_span))]
            facts += [("peak memory", memory_text(self.problem, self.schedule))]
            if self.problem.has_modes:
                facts += [("modes", modes_text(self.problem, self.schedule))]
        if self.baseline is not None and self.value is not None:
            name, theirs = self.baseline
            against = "equal"
            if theirs != self.value:
                against = f"this is {change(self.value, theirs)}"
            label = "best baseline made in time" if self.baselines_left_out else "best baseline"
            facts += [(label, f"{name}: {theirs}{unit} ({against})")]
        facts += [("time", f"{self.wall_s:.1f} s")]
        if self.problem.estimate:
            facts += [("estimate", f"of all times and memory: {self.problem.estimate}")]
        if self.explanation and self.status != "optimal":
            facts += [("note", self.explanation)]
        return facts

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
        estimate = {"estimate": self.problem.estimate} if self.problem.estimate else {}
        makespan_bubble, span_bubble = (
            (None, None) if self.schedule is None else bubbles(self.problem, self.schedule)
        )
        return estimate | {
            "status": self.status,
            "objective": self.objective,
            "value": self.value,
            "makespan": None if self.schedule is None else self.schedule.makespan,
            "span": None if self.schedule is None else self.schedule.span,
            "lower_bound": None if self.lower_bound is None else self.lower_bound.value,
            "lower_bound_source": None if self.lower_bound is None else self.lower_bound.source,
            "gap": self.gap,
            "bubble": {"makespan": makespan_bubble, "span": span_bubble},
            "peak_memory": (
                None if self.schedule is None else peak_memory(self.problem, self.schedule)
            ),
            "pairs": None if self.schedule is None else pair_counts(self.schedule),
            "modes": None if self.schedule is None else mode_counts(self.problem, self.schedule),
            "microbatch_order": (
                None if self.schedule is None else microbatch_order(self.problem, self.schedule)
            ),
            "baseline": None if self.baseline is None else self.baseline._asdict(),
            "schedule": schedule_path,
            "wall_s": round(self.wall_s, 3),
            "seed": self.seed,
            "workers": self.workers,
            "versions": self.versions,
            "explanation": self.explanation or None,
            "for": self.target,
        }
