"""What every phase of a search does with a candidate: order it, solve it, tell what is better."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from pipesat.core.problem import Problem
from pipesat.core.result import Baseline, Improvement
from pipesat.core.schedule import Objective, Schedule
from pipesat.core.solving import LEAST_SECONDS, Deadline, EitherStop, Listener, Solve
from pipesat.core.timing import retime
from pipesat.plan.findings import Findings
from pipesat.plan.question import Candidate
from pipesat.plan.shapes import shape_name

Orders: TypeAlias = Callable[[Problem, int], Iterator[Schedule]]
"""(problem, effort of 1 or 2) -> hand-written and greedy schedules, timed earliest, as made."""


@dataclass
class Search:
    """What is known, the means to learn more, and the time there is."""

    known: Findings
    orders: Orders
    solver: Solve
    deadline: Deadline
    listener: Listener | None = None
    told: tuple[int | None, int | None] | None = None

    @property
    def objective(self) -> Objective:
        """What is made small."""
        return self.known.question.objective

    def evaluate(self, candidate: Candidate, effort: int, seconds: float | None = None) -> None:
        """Make hand-written and greedy schedules of a candidate, keep what the checker passes."""
        if candidate.effort >= effort or candidate.proven(self.objective):
            return
        expires = time.monotonic() + (self.deadline.left if seconds is None else seconds)
        for schedule in self.orders(candidate.problem, effort):
            self.offer(candidate, schedule)
            over = time.monotonic() > expires and candidate.schedules
            if over or self.deadline.stop.is_set() or candidate.proven(self.objective):
                break
        candidate.effort = max(candidate.effort, effort)

    def offer(self, candidate: Candidate, schedule: Schedule) -> None:
        """Time the order of a hand-written schedule for the objective; keep it if it is better."""
        if self.objective == "span":
            schedule = retime(candidate.problem, schedule, "span", schedule.source)
        if self._kept(candidate, schedule):
            candidate.baseline = Baseline(schedule.source, schedule.value(self.objective))

    def _kept(self, candidate: Candidate, schedule: Schedule) -> bool:
        before = self.known.best
        kept = self.known.keep(candidate, schedule)
        if self.known.best is not before:
            self._tell(candidate, self.known.value, schedule.source)
        return kept

    def _tell(self, candidate: Candidate, value: int | None, source: str) -> None:
        bound = self.known.bound
        least = None if bound is None else bound.value
        if self.listener is not None and self.told != (value, least):
            self.told = (value, least)
            source = f"{shape_name(candidate.shape)}, {candidate.proposed_by}: {source}"
            unit = self.known.question.layers.time_unit
            self.listener(Improvement(self.deadline.seconds, value, least, source, unit))

    def solve(self, candidate: Candidate, seconds: float, *, drop: bool = True) -> None:
        """Solve a candidate; with ``drop``, only until it is known not to be better than the best.

        The best of the greedy schedules and all that are known are what it starts from.
        """
        known = self.known
        enough = EitherStop(self.deadline.stop)
        rival = known.value if candidate is not known.best else None

        def listen(improvement: Improvement) -> None:
            candidate.history += (improvement._replace(seconds=self.deadline.seconds),)
            bound = improvement.bound
            if drop and rival is not None and bound is not None and bound >= rival:
                enough.set()
            value = improvement.value
            if value is not None and candidate.shape_number >= 0 and known.beatable(value):
                self._tell(candidate, value, improvement.source)

        result = self.solver(
            candidate.problem,
            starts="greedy" if candidate.effort < 3 else "none",
            time_limit=max(LEAST_SECONDS, min(seconds, self.deadline.left)),
            schedules=candidate.schedules,
            known_bound=candidate.bound,
            listener=listen,
            stop=enough,
        )
        known.solves += 1
        known.contradictions += result.contradictions
        candidate.effort = 3
        if result.bound is not None:
            candidate.prove(result.bound)
        if result.baseline is not None:
            baseline = candidate.baseline
            if baseline is None or result.baseline.value < baseline.value:
                candidate.baseline = result.baseline
        if result.schedule is not None:
            self._kept(candidate, result.schedule)
