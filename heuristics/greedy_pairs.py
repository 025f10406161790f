"""List scheduling that pairs greedily by what is saved, for any placement, cap and kinds of pairs.

A device that falls idle takes, of all pairs of ops that could start, the one that saves most time
compared with its members alone. Where there is none it waits if a partner for what it could run is
known to arrive soon enough, and runs one op as :mod:`pipesat.heuristics.list_scheduling` would
otherwise. What keeps memory safe there keeps it safe here: the F of a pair starts only where it
could start alone, whatever the other member frees.

From the best policy on, :mod:`pipesat.heuristics.shared.climbing_pairs` looks for better limits on
microbatches in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from pipesat.bounds.feasibility import capacities_by_order, lacking, preflight
from pipesat.core.errors import Infeasible, NotApplicable
from pipesat.core.least import without_modes
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.heuristics.list_scheduling import Policy
from pipesat.heuristics.registry import GiveUp, published_slow, unless_given_up
from pipesat.heuristics.shared.climbing_pairs import climbed
from pipesat.heuristics.shared.pairing_simulation import PairingSimulation

NAME = "greedy-pairs"

_WAITS = (1.0, 2.0, 0.0)
_LIMITS: tuple[tuple[float, int], ...] = ((0.75, 2), (1, 1), (1, 2), (1.25, 1), (1, 3))
_PACES = (2.0, 1.5, 2.5, 3.0)  # of a period without pairs: pairs make it up to half as long
_MOST_OPS = 60_000  # simulated by all policies together: some two seconds
_MOST_POLICIES = 180
_FEWEST = 4


def pairing_policies(problem: Problem) -> Iterator[tuple[Policy, float]]:
    """Yield policies and how long each waits for a partner, the usually best ones first."""
    chunked = any(len(stages) > 1 for stages in problem.stages_on)
    bases = [Policy(in_flight=limit) for limit in _LIMITS[:2]]
    bases += [Policy(pace=pace) for pace in _PACES]
    bases += [Policy(in_flight=limit) for limit in (*_LIMITS[2:], None)]
    for deep_first in (True, False)[: 1 + chunked]:
        for patience in (0.0, 1.0, 0.5):
            for base in bases:
                for wait in _WAITS:
                    yield replace(base, patience=patience, deep_first=deep_first), wait


def paired_schedules(
    problem: Problem,
    give_up: Callable[[], bool] = lambda: False,
    chosen: Iterable[tuple[Policy, float]] | None = None,
) -> Iterator[Schedule]:
    """Yield one schedule per policy, as it is made; each fits into memory.

    ``give_up`` is asked now and then; once it says yes, nothing more is yielded. ``chosen`` are the
    policies; of large problems only as many as take a few seconds together unless given. None is
    made where one microbatch fits only if ops of length zero share instants.
    """
    own, problem = problem, without_modes(problem)
    if lacking(problem, capacities_by_order(problem)):
        return
    for policy, wait in _affordable(problem) if chosen is None else chosen:
        order = PairingSimulation(problem, policy, wait).order(give_up)
        if order is None:
            return
        yield time_order(own, order, source=NAME)


def greedy_schedules(problem: Problem, give_up: GiveUp, among: int = 1) -> Iterator[Schedule]:
    """Yield the schedules of which :data:`greedy_pairs` is the best, as they are made.

    ``among`` so many orders of microbatches, each has its part of the policies.
    """
    best = None
    for choice in _affordable(problem, among):
        for schedule in paired_schedules(problem, give_up, [choice]):
            yield schedule
            value = schedule.makespan, schedule.span
            best = (value, choice) if best is None or value < best[0] else best
    if best is not None:
        _, (policy, wait) = best
        for order in climbed(without_modes(problem), policy, wait, give_up):
            yield time_order(problem, order, source=NAME)


def _affordable(problem: Problem, among: int = 1) -> Iterator[tuple[Policy, float]]:
    most = max(_FEWEST, min(_MOST_POLICIES, _MOST_OPS // problem.op_count) // among)
    return islice(pairing_policies(problem), most)


@published_slow(NAME, placement="any", pairs=True, source="pipesat", equal=False)
def greedy_pairs(problem: Problem, give_up: GiveUp) -> Schedule:
    """Return the portfolio's schedule of least makespan, or what climbing from it finds.

    Among equals that of least span.

    Raises
    ------
    NotApplicable
        If the problem has no pairs, or nothing fits into memory.
    """
    if problem.overlap is None:
        raise NotApplicable("the problem allows no pairs (no `overlap`)")
    try:
        preflight(without_modes(problem))
    except Infeasible as error:
        raise NotApplicable("no schedule fits into memory") from error
    made = list(greedy_schedules(problem, give_up))
    unless_given_up(give_up)
    if not made:
        raise NotApplicable("one microbatch fits only if ops of length zero share instants")
    return min(made, key=lambda schedule: (schedule.makespan, schedule.span))
