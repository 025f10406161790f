"""What a solve returns: the best checked schedule, its bound and where both came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipesat.core.claims import Bound, Standing, Status, require_best
from pipesat.core.memory import peak_memory
from pipesat.core.metrics import bubbles, pair_counts
from pipesat.core.problem import Problem
from pipesat.core.schedule import Objective, Schedule


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


@dataclass(frozen=True)
class Result:
    """The outcome of a solve. Unknown quantities are ``None``, never 0.

    ``target`` names the runtime whose restrictions value and bound obey, ``None`` if none.
    ``baselines_left_out``: the search ended before all hand-written schedules were made, so that
    ``baseline`` is the best of some. ``contradictions`` are proofs that a checked schedule has
    refuted: faults of pipesat. ``warnings`` say which proofs the solve itself has dropped
    for that reason, and what failed in it without costing the schedule; the explanation has them.

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

    def document(self, schedule_path: str | None = None) -> dict[str, Any]:
        """Return the result object of the contract, ready for JSON."""
        makespan_bubble, span_bubble = (
            (None, None) if self.schedule is None else bubbles(self.problem, self.schedule)
        )
        return {
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
            "baseline": None if self.baseline is None else self.baseline._asdict(),
            "schedule": schedule_path,
            "wall_s": round(self.wall_s, 3),
            "seed": self.seed,
            "workers": self.workers,
            "versions": self.versions,
            "explanation": self.explanation or None,
            "for": self.target,
        }
