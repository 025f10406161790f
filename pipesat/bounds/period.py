"""The period: least time per microbatch of a long run of one route (docs/proofs/bounds.md, Period).

Per device a linear programme chooses in which variants its microbatches run, and which ops pair, in
shares of all: what that takes in compute time, in memory times time and in copies is no more than
the period. And where no more than N microbatches fit beside each other from F to the backward, N
periods are no less than one of them stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement
from operator import add
from typing import NamedTuple

from pipesat.bounds.counting import Programme, WeightedSum
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.modes import Counts
from pipesat.bounds.paired import least_times_of_each_class, with_least_times
from pipesat.core.claims import Bound
from pipesat.problem.ops import OpKind
from pipesat.problem.plain_problems import least_problem
from pipesat.problem.problem import Problem
from pipesat.problem.rules import round_trip
from pipesat.schedule.schedule import Objective

LONG = 4
"""Microbatches per device from which a run is long."""


class Steady(NamedTuple):
    """A bound of the period, in time units; ``argument`` names it.

    A run of m microbatches takes at least ``ends + (m - without) * rate`` time units.
    """

    rate: Fraction
    ends: int
    without: int
    argument: str

    def of_run(self, microbatches: int) -> Bound:
        """Return what follows for a run of so many microbatches."""
        more = (microbatches - self.without) * self.rate
        return Bound(self.ends + max(0, -(-more.numerator // more.denominator)), self.argument)


def has_period(problem: Problem) -> bool:
    """Whether it is a long run of one chain whose microbatches are a plain number."""
    (route, *others) = problem.routes
    long = route.microbatches >= LONG * len(problem.devices)
    return not others and route.classes is None and long and problem.chains_only


def steady_bounds(problem: Problem, objective: Objective) -> Iterator[Steady]:
    """Yield the bounds of the period of a single route with a plain number of microbatches.

    Which family of valid schedules it is, the limit of makespan / m as m grows is at least the
    ``rate`` of each, in time units per microbatch.
    """
    (one,) = least_times_of_each_class(problem)
    shown = problem if problem.overlap is None else with_least_times(least_problem(problem))
    stages, certain = problem.routes[0].stages, certain_activations(one)
    first = one.stages[stages[0]]
    through = first.F + round_trip(one, stages[0]) + first.least_backward_work
    for device, own in problem.busy.items():
        counts = Counts(shown, [one], device, absolute=objective == "makespan")
        name = problem.device_name(device)
        rate = _rate(problem, counts)
        yield Steady(
            rate, counts.start, 0, f"closed form: load and area of {name}, in the long run"
        )
        slack = one.devices[device].slack
        for stage, held in zip(own, accumulate(certain[s] for s in own), strict=True):
            if slack is not None and 0 < held <= slack and one.stages[stage].F:
                stay, apart = _stay(one, stage, held, slack)
                fit = slack // held
                yield Steady(stay, through, apart, f"closed form: {fit} at once on {name}")


def _stay(one: Problem, stage: int, held: int, slack: int) -> tuple[Fraction, int]:
    """Least time per microbatch at which memory lets them in, and how many apart that counts.

    When an F of the stage starts, some number of microbatches, this one included, are between it
    and their backwards' ends, and as many weight gradients pend as still fit.
    """
    data = one.stages[stage]
    way = data.F + round_trip(one, stage)
    ways = []
    for inside in range(1, slack // held + 1):
        known = [(Fraction(way + data.shortest_backward, inside), -inside)]
        if data.held_after_B:
            all_of = inside + (slack - inside * held) // data.held_after_B
            known.append((Fraction(way + data.least_backward_work, all_of), -all_of))
        ways.append(max(known))
    return min(rate for rate, _ in ways), max(-apart for _, apart in ways)


def _rate(problem: Problem, counts: Counts) -> Fraction:
    """Least time per microbatch of a device: shares of variants that keep within all it has."""
    rows, counted, variants = Programme(), counts.counted, counts.variants
    share = [rows.variable(0, 1) for _ in counted]
    out, back = [x.out for x in variants], [x.back for x in variants]
    together = problem.devices[counts.device].copy_channels == 1
    taken = [([*map(add, out, back)], 1)] if together else [(out, 1), (back, 1)]
    taken += [([x.area for x in counted], counts.slack)] if counts.slack else []
    taken += [([x.work for x in variants], 1)] if problem.overlap is None else []
    groups = [[n for n, x in enumerate(counted) if x.group == g] for g in range(len(counts.groups))]
    known = max(
        Fraction(sum(min(amounts[n] for n in own) for own in groups), capacity)
        for amounts, capacity in taken
    )
    if problem.overlap is None and len(counted) == len(groups):
        return known
    used = [
        (WeightedSum(zip(share, amounts, strict=True)), capacity) for amounts, capacity in taken
    ]
    if problem.overlap is not None:
        used.append((_paired(problem, counts, rows, share), 1))
    period = rows.variable(1, sum(sum(each.values()) for each, _ in used))  # all shares are 1
    for own in groups:
        rows.equals({share[n]: 1 for n in own}, 1)
    for each, capacity in used:
        rows.at_least(each * -1 + {period: capacity}, 0)
    return max(known, rows.relaxed_rate())


def _paired(problem: Problem, counts: Counts, rows: Programme, share: list[int]) -> WeightedSum:
    """Return the time of a device's items, alone and pairs, which run all ops of the shares."""
    least, overlap = least_problem(problem), problem.overlap
    assert overlap is not None  # noqa: S101
    runs: dict[OpKind, WeightedSum] = {}
    for number, (_, stage, variant, _) in zip(share, counts.counted, strict=True):
        for kind in ("F", "B", "W") if variant.split else ("F", "BW"):
            runs.setdefault((stage, kind), WeightedSum())[number] = -1
    alone = {op: int(getattr(least.stages[op[0]], op[1])) for op in runs}
    items: list[tuple[tuple[OpKind, ...], int]] = [((op,), time) for op, time in alone.items()]
    for pair in combinations_with_replacement(runs, 2):
        time = overlap.time(*pair, *(alone[op] for op in pair))
        items += [] if time is None else [(pair, time)]
    busy = WeightedSum()
    for members, time in items:
        number = rows.variable(0, 1)
        busy[number] = time
        for op in members:
            runs[op] += {number: 1}
    for count in runs.values():
        rows.equals(count, 0)
    return busy
