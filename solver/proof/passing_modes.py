"""Bounds by the modes in which long microbatches pass, which branching decides."""

from __future__ import annotations

from pipesat.bounds.counting import Branching
from pipesat.bounds.passing import passing_programmes
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner

_AT_ONCE = 10  # nodes
_SECONDS = 0.06  # that a node takes, for clocks that do not look


class PassingModes:
    """Raises the bound of the strongest argument of :mod:`pipesat.bounds.passing`."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self.incumbent = incumbent
        several = passing_programmes(problem, incumbent.objective)
        found = [(Branching(programmes), source) for source, programmes in several]
        self.open = sorted(found, key=lambda one: one[0].bound)[-1:]
        self.tried, self.spent = 0, 0.0

    @property
    def finished(self) -> bool:
        """Whether no mode is left to decide."""
        return not self.open

    def step(self, runner: Runner) -> None:
        """Split a few nodes."""
        clock = runner.clock
        begin, (branching, source) = clock.elapsed, self.open[0]
        if not all(branching.split() for _ in range(_AT_ONCE)):
            self.open.clear()
        clock.count(_AT_ONCE * _SECONDS)
        self.tried += _AT_ONCE
        self.spent += clock.elapsed - begin
        self.incumbent.raise_bound(Bound(branching.bound, f"{source}, branching over modes"))
