"""List scheduling that pairs greedily by what is saved, for any placement, cap and kinds of pairs.

A device that falls idle takes, of all pairs of ops that could start, the one that saves most time
compared with its members alone. Where there is none it waits if a partner for what it could run is
known to arrive soon enough, and runs one op as :mod:`pipesat.heuristics.list_scheduling` would
otherwise. What keeps memory safe there keeps it safe here: the F of a pair starts only where it
could start alone, whatever the other member frees.

How many microbatches may be under way on each stage decides which ops meet as pairs, and no formula
for it suits every placement and capacity. From the limits of the best policy on, some stages'
limits change by one, or the wait for partners does; what is no worse is kept.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pipesat.bounds.feasibility import preflight
from pipesat.core.errors import Infeasible, NotApplicable, require_applicable
from pipesat.heuristics.list_scheduling import ListedRun, ListScheduler, Policy, affordable
from pipesat.heuristics.registry import GiveUp, never, published, unless_given_up
from pipesat.problem.plain_problems import without_modes
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule import Schedule

NAME = "greedy-pairs"

_WAITS = (1.0, 2.0, 0.0)
_LIMITS: tuple[tuple[float, int], ...] = ((0.75, 2), (1, 1), (1, 2), (1.25, 1), (1, 3))
_PACES = (2.0, 1.5, 2.5, 3.0)  # of a period without pairs: pairs make it up to half as long
_TRIES = 1000  # of the climb
_CHANGES = (1, 1, 2, 3)  # stages whose limits change at a time
_CLIMBING_WAITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
_OTHER_WAIT = 0.2  # probability


class GreedySetting(NamedTuple):
    """A policy, how long it waits for a partner, and limits per stage if not the policy's."""

    policy: Policy
    wait: float
    limits: tuple[int, ...] = ()


def pairing_policies(problem: Problem) -> Iterator[GreedySetting]:
    """Yield policies and how long each waits for a partner, the usually best ones first."""
    chunked = any(len(stages) > 1 for stages in problem.stages_on)
    bases = [Policy(in_flight=limit) for limit in _LIMITS[:2]]
    bases += [Policy(pace=pace) for pace in _PACES]
    bases += [Policy(in_flight=limit) for limit in (*_LIMITS[2:], None)]
    for deep_first in (True, False)[: 1 + chunked]:
        for patience in (0.0, 1.0, 0.5):
            for base in bases:
                for wait in _WAITS:
                    yield GreedySetting(
                        replace(base, patience=patience, deep_first=deep_first), wait
                    )


def climbed(scheduler: ListScheduler, start: GreedySetting, among: int = 1) -> Iterator[ListedRun]:
    """Yield all runs of a walk from a setting to others that end no later."""
    chance = random.Random(0)  # noqa: S311 (chance, not secrecy)
    here = start._replace(limits=scheduler.limits(start.policy))
    end = scheduler.run(*here).end
    for _ in affordable(scheduler.problem, range(_TRIES), among):
        limits, wait = [*here.limits], here.wait
        for _ in range(chance.choice(_CHANGES)):
            stage = chance.randrange(len(limits))
            limits[stage] = max(1, limits[stage] + chance.choice((-1, 1)))
        if chance.random() < _OTHER_WAIT:
            wait = chance.choice(_CLIMBING_WAITS)
        tried = here._replace(wait=wait, limits=tuple(limits))
        yield (run := scheduler.run(*tried))
        if run.end <= end:
            here, end = tried, run.end


def greedy_schedules(
    problem: Problem, give_up: GiveUp = never, among: int = 1
) -> Iterator[Schedule]:
    """Yield schedules of the policies, then of the climb, each shorter than those before.

    Each fits into memory. ``give_up`` is asked before every run; once it says yes, nothing more is
    yielded. ``among`` so many orders of microbatches, each has its part of the runs. There is none
    where one microbatch fits only if ops of length zero share instants.
    """
    scheduler = ListScheduler(problem)
    if scheduler.applies:
        yield from scheduler.shorter(_runs(scheduler, among), give_up, NAME)


def _runs(scheduler: ListScheduler, among: int) -> Iterator[ListedRun]:
    """Yield what all policies make, then what climbing from the best of them tries."""
    best: tuple[tuple[int, int], GreedySetting] | None = None
    for setting in affordable(scheduler.problem, pairing_policies(scheduler.problem), among):
        yield (run := scheduler.run(*setting))
        if best is None or run.value < best[0]:
            best = run.value, setting
    if best is not None:
        yield from climbed(scheduler, best[1], among)


@published(NAME, placement="any", pairs=True, source="pipesat", splits=True, slow=True)
def greedy_pairs(problem: Problem, give_up: GiveUp) -> Schedule:
    """Return the portfolio's schedule of least makespan, or what climbing from it finds.

    Among equals that of least span.

    Raises
    ------
    NotApplicable
        If the problem has no pairs, or nothing fits into memory.
    """
    require_applicable(problem.overlap is not None, "the problem allows no pairs (no `overlap`)")
    try:
        preflight(without_modes(problem))
    except Infeasible as error:
        raise NotApplicable("no schedule fits into memory") from error
    *_, schedule = [None, *greedy_schedules(problem, give_up)]
    unless_given_up(give_up)
    if schedule is None:
        raise NotApplicable("one microbatch fits only if ops of length zero share instants")
    return schedule
