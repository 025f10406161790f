"""What a solve finds: the best checked schedule, its bound and where both came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipesat.core.claims import Bound, Period, Standing, Status, require_best
from pipesat.problem.problem import Problem
from pipesat.problem.remarks import documents_of
from pipesat.schedule.metrics import bubbles, mode_counts, pair_counts, peak_memory
from pipesat.schedule.microbatch_order import microbatch_order
from pipesat.schedule.schedule import Objective, Schedule


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

    @property
    def standing(self) -> Standing:
        """Value and bound; a bound that the value refutes is none: the end of the solve tells."""
        refuted = self.value is not None and self.bound is not None and self.bound > self.value
        return Standing(self.value, None if refuted else self.bound)


@dataclass(frozen=True, slots=True)
class Solution:
    """The outcome of a search. Unknown quantities are ``None``, never 0.

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
    release
        That runtime with its release, as ``torch 2.15``.
    baselines_left_out
        The search ended before all hand-written schedules were made: ``baseline`` is the best of
        some.
    contradictions
        Proofs that a checked schedule has refuted: faults of pipesat.
    warnings
        Which proofs the solve itself has dropped for that reason, and what failed in it without
        costing the schedule; the explanation has them.
    period
        What is known of the time per microbatch in the long run, a
        :class:`pipesat.core.claims.Period`; ``None`` with
        fewer than 4 microbatches per device, lists, or several routes.
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
    release: str | None = None
    baselines_left_out: bool = False
    contradictions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    period: Period | None = None
    lanes: int = 0
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
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

    def document(self, schedule_path: str | None = None) -> dict[str, Any]:
        """Return the result object of the contract, ready for JSON."""
        document: dict[str, Any] = {
            "format": "pipesat.result/1",
            "status": self.status,
            "problem_sha256": self.problem.sha256,
            "objective": self.objective,
            "value": self.value,
            "makespan": None,
            "span": None,
            "lower_bound": self.lower_bound,
            "lower_bound_source": self.lower_bound_source,
            "gap": self.gap,
            "bubble": {"makespan": None, "span": None},
            **dict.fromkeys(("peak_memory", "pairs", "modes", "microbatch_order")),
            "period": None if self.period is None else self.period.document,
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
            "release": self.release,
            "remarks": documents_of(self.problem.remarks),
        }
        problem, schedule = self.problem, self.schedule
        if problem.estimate:
            document["estimate"] = problem.estimate
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
