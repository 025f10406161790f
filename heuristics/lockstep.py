"""DualPipe's grid for any placement and capacity: microbatches enter as memory admits.

The steady states of DualPipe, DualPipeV and interleaved 1F1B with overlap have one thing in
common: every op has its slot, a forward and a backward share it, and no microbatch stops on its way
(:mod:`pipesat.heuristics.shared.slot_grid`). Where a device has less memory than they need, the
same grid serves with fewer microbatches in it: each enters in the first slot from which nobody is
in its way until its end, and all devices have room.

When to enter is then varied: a few gaps change, a stretch of them repeats, or a stretch gets a
rhythm of its own; what is hardly worse is where the walk goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipesat.core.errors import NotApplicable
from pipesat.core.least import without_modes
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.registry import GiveUp, never, published_slow, unless_given_up
from pipesat.heuristics.shared.slot_grid import Facts, SlotGrid
from pipesat.heuristics.shared.slot_replay import SlotReplay

NAME = "lockstep"

_MOST_OPS = 2_500_000  # placed in all: some three seconds
_LARGEST = 60_000  # ops of a problem for which it is made at all
_CHANGES = (1, 1, 2, 3)  # gaps that change at a time
_STEPS = (-3, -2, -1, 1, 2, 3, 6)  # by which
_GAPS = (1, 1, 2, 2, 2, 2, 4, 4, 6, 8, 10, 12)  # of a rhythm
_LONGEST = 8  # gaps of a rhythm
_SLACK = 0.01  # by how much, of the shortest, the walk may get longer
_PATIENCE = 40  # tries per microbatch without a shorter one


def lockstep_schedules(problem: Problem, give_up: GiveUp = never) -> Iterator[Schedule]:
    """Yield the schedule in which microbatches enter as soon as they may, then shorter ones.

    None if one microbatch alone does not fit, or the problem is very large. ``give_up`` is asked
    after each try.
    """
    own, problem = problem, without_modes(problem)
    if problem.op_count > _LARGEST:
        return
    grid, facts = SlotGrid(problem), Facts(problem)
    chance = random.Random(0)  # noqa: S311 (chance, not secrecy)
    here, at = [1] * len(grid.entering), 0.0  # where the walk is, and its makespan
    least = float("inf")
    known: dict[bool, float] = {}
    stale = 0
    for _ in range(2 + _MOST_OPS // problem.op_count):
        if give_up() or stale > _PATIENCE * len(here):
            return
        wait = not known if len(known) < 2 else known[True] <= known[False]
        gaps = here if len(known) < 2 else _changed(here, chance)
        entries = grid.entries(gaps)
        if entries is None:
            return
        value = SlotReplay(grid, facts, wait=wait).run(entries)
        known.setdefault(wait, value)
        stale += 1
        if value < least:
            stale, least = 0, value
            replay = SlotReplay(grid, facts, wait=wait, note=True)
            replay.run(entries)
            yield time_order(own, replay.order, source=NAME)
        if len(known) < 2 or value <= max(at, least * (1 + _SLACK * chance.random() ** 2)):
            here, at = gaps, value


def _changed(gaps: list[int], chance: random.Random) -> list[int]:
    """Change some gaps."""
    gaps, count = list(gaps), len(gaps)
    if chance.random() < 0.5:
        for _ in range(chance.choice(_CHANGES)):
            place = chance.randrange(count)
            gaps[place] = max(1, gaps[place] + chance.choice(_STEPS))
        return gaps
    begin, end = sorted(chance.choices(range(count + 1), k=2))
    if chance.random() < 0.5:
        back = chance.randint(1, _LONGEST)
        for place in range(max(begin, back), end):
            gaps[place] = gaps[place - back]
    else:
        rhythm = chance.choices(_GAPS, k=chance.randint(1, _LONGEST))
        for place in range(begin, end):
            gaps[place] = rhythm[place % len(rhythm)]
    return gaps


@published_slow(NAME, placement="any", pairs=True, source="pipesat")
def lockstep(problem: Problem, give_up: GiveUp) -> Schedule:
    """Return the shortest schedule of the grid; each fits into memory.

    Raises
    ------
    NotApplicable
        If the problem has no pairs, one microbatch alone does not fit, or there are too many ops.
    """
    if problem.overlap is None:
        raise NotApplicable("the problem allows no pairs (no `overlap`)")
    made = list(lockstep_schedules(problem, give_up))
    unless_given_up(give_up)
    if not made:
        few = problem.op_count <= _LARGEST
        raise NotApplicable("no microbatch fits alone" if few else "made for 60,000 ops at most")
    return min(made, key=lambda schedule: (schedule.makespan, schedule.span))
