"""Times as models see them: in a unit that keeps every number of a model small.

Normally the unit is what all durations and delays have in common, and nothing is rounded. Beyond
``LARGEST`` units CP-SAT cannot be relied on: from 3 x 10^10 on, OR-Tools 9.15 declares models
infeasible that hold a schedule (measured on 2026-11-22). Then the unit is larger,
and durations and delays are rounded *down*. proofs/model.md proves what such a model says of the
exact problem; :meth:`Times.at_least`, :meth:`Times.at_most` and :meth:`Times.bound` say it in code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pipesat.problem.ops import KINDS, Kind, Op, Phase
from pipesat.problem.problem import Link, Problem, Route
from pipesat.problem.rules import duration, link_delay, one_of_each
from pipesat.problem.stage import HELD
from pipesat.schedule.schedule import Objective
from pipesat.solver.model.pairing import gains

_DIRECTIONS: tuple[Phase, ...] = ("F", "B")
LARGEST = 1 << 30
"""Largest number that a time in a model may take, in its units: the horizon."""


@dataclass(frozen=True)
class Times:
    """All times of a problem in multiples of ``unit`` time units, rounded down unless ``exact``.

    ``duration`` is that of every microbatch where they are alike, else of number 0.
    """

    unit: int
    exact: bool
    duration: dict[Kind, tuple[int, ...]]

    def at_least(self, time: int) -> int:
        """What a time of the model is at least, if ``time`` is a lower bound in time units."""
        return -(-time // self.unit) if self.exact else time // self.unit

    def at_most(self, time: int, objective: Objective = "makespan") -> int:
        """What the objective is at most in the model, if it is at most ``time``."""
        rounds_up = objective == "span" and not self.exact
        return -(-time // self.unit) if rounds_up else time // self.unit

    def bound(self, value: int, objective: Objective = "makespan") -> int:
        """Lower bound in time units that follows if the model's objective is at least ``value``."""
        if objective == "span" and not self.exact:
            return max(0, self.unit * (value - 1) + 1)
        return self.unit * value


def model_times(problem: Problem, longest: int, objective: Objective = "makespan") -> Times:
    """Express durations and delays in a unit of which ``longest`` time units are few enough.

    Without rounding, that is what they have in common; for the makespan alone, as the least span
    may be no multiple of it (docs/proofs/model.md).
    """
    unit = unit_for(longest)
    exact = unit == 1
    stages = range(len(problem.stages))
    durations = {k: [duration(problem, Op(s, k, 0)) for s in stages] for k in KINDS}
    every = [op for op in one_of_each(problem) if not op.mode]
    delays = [
        link_delay(problem, op.stage, d, op.microbatch, after)
        for op in every
        for after in problem.after[op.stage]
        for d in _DIRECTIONS
    ]
    common = math.gcd(*delays, *(duration(problem, op) for op in every), *gains(problem).values())
    if problem.overlap is not None and problem.has_lists:
        common = 1  # pairs of other classes take other times
    if objective == "makespan" and unit <= common:
        unit, exact = common, True
    return Times(
        unit, exact, {kind: tuple(t // unit for t in times) for kind, times in durations.items()}
    )


def latest_end(problem: Problem, objective: Objective, value: int) -> int:
    """Return when everything has ended, at the latest, in a schedule of this objective.

    By span, the devices' windows may lie one after the other. Where there is a single route, all
    begin within that of the device of its first stage, which has all its F's and backwards.
    """
    if objective == "makespan":
        return value
    if len(problem.routes) == 1 and problem.chains_only:
        return min(2, len(problem.devices)) * value
    links = (
        problem.link_of_class(stage, kind, after)
        for stage, after in problem.links
        for kind in problem.route(stage).class_numbers
    )
    farthest = max((max(link.F, link.B) for link in links if link is not None), default=0)
    return len(problem.devices) * (value + farthest)


def unit_for(longest: int) -> int:
    """Return the least unit of which ``longest`` time units are at most ``LARGEST``."""
    return max(1, -(-longest // LARGEST))


def rounded(problem: Problem, unit: int) -> Problem:
    """Return the problem with its times in a larger unit, rounded down.

    Any order of the one is one of the other: to be timed exactly, time it for the problem itself.
    """
    if unit == 1:
        return problem
    stages = (
        replace(s, F=s.F // unit, B=s.B // unit, W=s.W // unit, BW=s.BW // unit)
        for s in problem.stages
    )
    links = {ends: Link(link.F // unit, link.B // unit) for ends, link in problem.links.items()}
    routes = tuple(_rounded_classes(problem, route, unit) for route in problem.routes)
    overlap = problem.overlap
    if overlap is not None:
        times = {kinds: max(1, time // unit) for kinds, time in overlap.times.items()}
        overlap = replace(overlap, times=times)
    return replace(problem, stages=tuple(stages), links=links, routes=routes, overlap=overlap)


def _rounded_classes(problem: Problem, route: Route, unit: int) -> Route:
    """State every class's times outright: factors would be of rounded times."""
    definitions = []
    for kind, definition in enumerate(route.definitions):
        outright = []
        for stage in route.stages:
            amounts = problem.resulting(stage, 0, kind)
            stated = tuple((key, getattr(amounts, key)) for key in HELD)
            times = tuple((key, getattr(amounts, key) // unit) for key in KINDS)
            outright.append((stage, (*times, *stated)))
        definitions.append(replace(definition, outright=tuple(outright)))
    return replace(route, definitions=tuple(definitions))
