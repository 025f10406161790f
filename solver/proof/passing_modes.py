"""Bounds by branching over how long microbatches pass: in which modes, and beside which others."""

from __future__ import annotations

from functools import cached_property
from itertools import chain

from pipesat.bounds.counting import Branching
from pipesat.bounds.paired_passing import paired_passing_programmes
from pipesat.bounds.passing import passing_programmes
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.runner import Runner

_AT_ONCE = 10  # nodes
_SECONDS = 0.06  # that a node takes, for clocks that do not look
_MOST = 2000  # nodes: each keeps up to 0.2 MiB


def branching_applies(problem: Problem) -> bool:
    """Whether branching over those that pass raises the bound with more time, without modes."""
    if problem.overlap is not None:
        return problem.has_lists
    return problem.order == "same" and problem.one_stage_per_device


class PassingModes:
    """Raises the bound of the strongest argument of :mod:`pipesat.bounds.passing`."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self.problem, self.incumbent = problem, incumbent
        self.tried, self.finished = 0, False

    @cached_property
    def _strongest(self) -> tuple[Branching, str] | None:
        """The argument whose programmes say most: made in the lane that tries it.

        What bounds the span bounds the makespan, which is no less.
        """
        programmes_of = (
            passing_programmes if self.problem.overlap is None else paired_passing_programmes
        )
        objectives = dict.fromkeys((self.incumbent.objective, "span"))
        several = chain.from_iterable(programmes_of(self.problem, one) for one in objectives)
        found = [(Branching(programmes), source) for source, programmes in several]
        return max(found, key=lambda one: one[0].bound, default=None)

    def step(self, runner: Runner) -> None:
        """Split a few nodes."""
        if self._strongest is None:
            self.finished = True
            return
        branching, source = self._strongest
        made, split = 0, 1
        while split and made < _AT_ONCE:
            split = branching.split()
            made += split
        self.tried += made
        self.finished = not split or self.tried >= _MOST
        runner.clock.count(made * _SECONDS)
        self.incumbent.raise_bound(Bound(branching.bound, f"{source}, branching"))
