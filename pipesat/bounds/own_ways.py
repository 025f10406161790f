"""Bounds where microbatches differ: each has its own way, and being overtaken takes time.

*Heads and tails.* An op starts no sooner than its own microbatch's way to it takes, and after its
end comes the rest of that way. With them each device is a machine for Jackson's rule.

*Around one.* Whatever is never ahead of a microbatch, or always, runs on the first stage before
that one comes or after it leaves. What is first behind it and then ahead has overtaken it on some
device, which it had to wait for. proofs/bounds.md has both arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pipesat.bounds.devices import classes_of, groups_on, time_from_backward, time_until_forward
from pipesat.bounds.given_order import least_lateness
from pipesat.core.arrays import Ints
from pipesat.core.claims import Bound
from pipesat.problem.problem import Problem
from pipesat.problem.rules import link_delay, round_trip
from pipesat.schedule.schedule import Objective

_MOST_CLASSES = 256  # that others are counted around: those with the longest ways


def bounds_of_own_ways(problem: Problem, objective: Objective) -> Iterator[Bound]:
    """Yield each device's and each route's bound, in time units; no pairs.

    None where all microbatches are alike: other arguments say as much of them.
    """
    problem, alone = classes_of(problem)
    if len(alone) == 1:
        return
    if objective == "makespan":
        for device in range(len(problem.devices)):
            jobs = [job for group in groups_on(problem, device) for job in _jobs(alone, *group)]
            name = problem.device_name(device)
            yield Bound(least_lateness(jobs), f"closed form: own heads and tails of {name}")
    free = problem.order == "free"
    if objective == "makespan" or len(problem.routes) == 1:
        for number, route in enumerate(problem.routes):
            passes = [pass_of(one, route.stages) for one in alone]
            value = _around_one(passes, route.counts, may_overtake=free or route.classes is None)
            yield Bound(value, f"closed form: one microbatch and those around it on route {number}")


def _jobs(
    alone: Sequence[Problem], stage: int, of_class: int, number: int
) -> list[tuple[int, int, int]]:
    """(head, length, tail) of all F's, of the backwards' first pieces, and of their rest."""
    one = alone[of_class]
    data, trip = one.stages[stage], round_trip(one, stage)
    ready = time_until_forward(one, stage)
    back, home = ready + data.F + trip, time_from_backward(one, stage, None)
    first, rest = data.shortest_backward, data.least_backward_work - data.shortest_backward
    after = home - first if one.previous[stage] is not None else rest
    jobs = [
        (ready, data.F, trip + home),
        (back, first, after),
        (back + first, rest, 0),
    ]
    return [(head, length * number, tail) for head, length, tail in jobs if length]


class Pass(NamedTuple):
    """A class's way: its F's and backwards, the delay before each, and the work at its end."""

    times: Ints
    delays: Ints
    work: int

    @property
    def length(self) -> int:
        """From the start of the first F to the end of all work on the first stage."""
        return int(self.times.sum() + self.delays.sum()) + self.work - int(self.times[-1])


def pass_of(one: Problem, stages: Sequence[int]) -> Pass:
    """Return the way of a class whose problem this is."""
    line = [one.stages[s] for s in stages]
    times = [x.F for x in line] + [x.shortest_backward for x in reversed(line)]
    there = [link_delay(one, s, "F") for s in stages[:-1]]
    back = [link_delay(one, s, "B") for s in reversed(stages[:-1])]
    delays = np.array([0, *there, 0, *back], dtype=np.int64)
    return Pass(np.array(times, dtype=np.int64), delays, line[0].least_backward_work)


def _around_one(passes: Sequence[Pass], counts: dict[int, int], *, may_overtake: bool) -> int:
    """The longest, over classes, of one microbatch's way and of what all others add to it."""
    ours = sorted(counts, key=lambda of: -passes[of].length)
    times = np.array([passes[of].times for of in ours])
    delays = np.array([passes[of].delays for of in ours])
    ends = np.minimum(times[:, 0], [passes[of].work for of in ours])
    longest = 0
    for number, of in enumerate(ours[:_MOST_CLASSES]):
        least = ends
        if may_overtake:
            free = np.maximum(0, delays[number, 1:] - times[:, :-1] - delays[:, 1:])
            least = np.minimum(ends, np.maximum(0, times[:, 1:] - free).min(axis=1))
        added = sum(counts[other] * int(least[at]) for at, other in enumerate(ours))
        longest = max(longest, passes[of].length + added - int(least[number]))
    return longest
