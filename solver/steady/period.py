"""How many microbatches one period holds, and how short a period can be: arithmetic, no search.

The bounds here hold for schedules that repeat for ever. They do **not** bound finite makespans: a
finite schedule may use memory that a steady state would have to keep free, and may run faster than
any steady state for as long as it is short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipesat.bounds.device_terms import DeviceTerms
from pipesat.bounds.devices import work_of
from pipesat.core.problem import Problem

MOST_OPS = 1200  # ops of one period; beyond, the cyclic model is no longer quick


def microbatches_per_period(problem: Problem, least: int) -> tuple[int, ...]:
    """Return how many microbatches of each route a period holds that serves every route evenly.

    Routes with m_0, m_1, ... microbatches all end at about the same time if a period holds
    ``least * m_r / g`` of route r, g being the greatest common divisor of all m.
    """
    shared = math.gcd(*(route.microbatches for route in problem.routes))
    return tuple(least * route.microbatches // shared for route in problem.routes)


def why_not(problem: Problem, least: int) -> str | None:
    """Return the reason why the cyclic model leaves a problem out, or ``None``."""
    counts = microbatches_per_period(problem, least)
    ops = sum(len(r.stages) * k * 3 for r, k in zip(problem.routes, counts, strict=True))
    if ops > MOST_OPS:
        return f"a period of {'+'.join(map(str, counts))} microbatches has {ops} ops"
    if any(k > r.microbatches for r, k in zip(problem.routes, counts, strict=True)):
        return f"a period of {'+'.join(map(str, counts))} microbatches is longer than the schedule"
    return None


def period_bound(problem: Problem, counts: tuple[int, ...]) -> int:
    """Lower bound on the period, in time units, that serves ``counts[r]`` microbatches of route r.

    *Load*: a device computes for ``k (F + backward)`` per period and stage, one op at a time.

    *Area*: on average over a period a device holds, per stage, ``k x (what one microbatch holds) x
    (how long)``, and never more than its room. The residence of one microbatch is at least F, the
    way to the last stage and back, and the backward; W's part is held at least while W runs.

    *Slots*: of one stage's activations at most ``room // a`` fit at a time, so k residences fit
    into ``room // a`` periods.
    """
    return max((0, *_bounds(problem, counts)))


def _bounds(problem: Problem, counts: tuple[int, ...]) -> Iterator[int]:
    for device, stages in zip(problem.devices, problem.stages_on, strict=True):
        work = [work_of(problem, stage, counts[problem.route_of[stage]]) for stage in stages]
        for x in work:
            if device.room is not None and 0 < x.held <= device.room:
                yield -(-x.number * (x.F + x.stay + x.shortest) // (device.room // x.held))
        terms = DeviceTerms(work, (), device.room)
        yield from (terms.load, terms.area)
