"""One partition in one shape, with what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from pipesat.core.claims import Bound
from pipesat.core.problem import Problem
from pipesat.core.result import Baseline, Improvement
from pipesat.core.schedule import Objective, Schedule
from pipesat.layers.pipeline import Pipeline
from pipesat.plan.recompute import Flags

Key: TypeAlias = tuple[int, tuple[int, ...], Flags]
"""Shape, cuts, which stages recompute: what a candidate is remembered by."""

_MOST_KEPT = 5


@dataclass(eq=False)
class Candidate:
    """A partition, its problem, its best schedules and its bound.

    Attributes
    ----------
    proposed_by
        Who came up with it, for tables.
    bound
        What no schedule of this partition is below.
    schedules
        Checked ones, the best first, of different sources.
    effort
        How much was looked for: 0 nothing, 1 a few greedy orders, 2 all of them, 3 the solver.
    history
        Improvements that its solves reported.
    baseline
        The best hand-written schedule of it that fits.
    """

    shape_number: int
    shape: Pipeline
    partition: tuple[range, ...]
    recompute: Flags
    problem: Problem
    proposed_by: str
    bound: Bound
    schedules: list[Schedule] = field(default_factory=list)
    effort: int = 0
    expanded: bool = False
    history: tuple[Improvement, ...] = ()
    baseline: Baseline | None = None

    @property
    def key(self) -> Key:
        """What it is remembered by."""
        return key_of(self.shape_number, self.partition, self.recompute)

    @property
    def flags(self) -> Flags:
        """Which stages recompute, one value per stage."""
        return self.recompute or (False,) * len(self.partition)

    def value(self, objective: Objective) -> int | None:
        """Value of its best schedule."""
        return self.schedules[0].value(objective) if self.schedules else None

    def proven(self, objective: Objective) -> bool:
        """Whether no schedule of this partition is better than its best."""
        return self.value(objective) == self.bound.value

    def keep(self, schedule: Schedule, objective: Objective) -> None:
        """Keep a checked schedule, of every source the best."""
        rest = [s for s in self.schedules if s.source != schedule.source]
        same = [s for s in self.schedules if s.source == schedule.source]
        best = min([*same, schedule], key=lambda s: s.value(objective))
        self.schedules = sorted([*rest, best], key=lambda s: s.value(objective))[:_MOST_KEPT]

    def prove(self, bound: Bound) -> None:
        """Keep a bound if it is better."""
        if bound.value > self.bound.value:
            self.bound = bound


def key_of(shape_number: int, partition: tuple[range, ...], recompute: Flags) -> Key:
    """What a partition is remembered by, with the flags that its recomputation settled on."""
    return shape_number, tuple(part.stop for part in partition), recompute
