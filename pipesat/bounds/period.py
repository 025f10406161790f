"""The period: least time per microbatch of a long run of one route (docs/proofs/bounds.md, Period).

Per device a linear programme chooses in which variants its microbatches run, and which ops pair, in
shares of all: what that takes in compute time, in memory times time and in copies is no more than
the period. And where no more than N microbatches fit beside each other from F to the backward, N
periods are no less than one of them stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from operator import add
from typing import NamedTuple

from pipesat.bounds.counting import Programme, WeightedSum
from pipesat.bounds.feasibility import certain_activations
from pipesat.bounds.memory_counts import in_whole_microbatches, with_slacks_in_use
from pipesat.bounds.modes import Counts
from pipesat.bounds.paired import least_times_of_each_class, with_least_times
from pipesat.bounds.paired_device import PairedDevice
from pipesat.bounds.paired_memory import delays_between
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
    if problem.overlap is not None:
        name = "closed form: load and memory with pairs of all devices, in the long run"
        yield Steady(_all_devices(with_slacks_in_use(least_problem(problem))), 0, 0, name)
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
    if len(counted) == len(groups):
        return known
    used = [
        (WeightedSum(zip(share, amounts, strict=True)), capacity) for amounts, capacity in taken
    ]
    period = rows.variable(1, sum(sum(each.values()) for each, _ in used))  # all shares are 1
    for own in groups:
        rows.equals({share[n]: 1 for n in own}, 1)
    for each, capacity in used:
        rows.at_least(each * -1 + {period: capacity}, 0)
    return max(known, rows.relaxed_rate())


def _all_devices(problem: Problem) -> Fraction:
    """Least time per microbatch in which all devices run their ops, alone and in pairs, and hold.

    Shares of all microbatches run in each item; who is held waits for the items on its way.
    """
    (route,) = problem.routes
    problem = replace(problem, routes=(replace(route, microbatches=2),))  # two may pair
    rows, times = Programme(), defaultdict[OpKind, WeightedSum](WeightedSum)
    homes = {device: PairedDevice(problem, device, alike=False) for device in problem.busy}
    alone = sum(home.one_after_the_other for home in homes.values())
    period = rows.variable(1, alone + delays_between(problem, route.stages))
    for device, home in homes.items():
        free, runs = WeightedSum({period: 1}), defaultdict[OpKind, WeightedSum](WeightedSum)
        for item, time in home.items.items():
            share = rows.variable(0, 1)
            free[share] = -time
            for group, kind in item:
                runs[group.stage, kind] += {share: 1}
                times[group.stage, kind] += {share: time}
        rows.at_least(free, 0)
        for stage in problem.stages_on[device]:
            rows.equals(runs[stage, "F"], 1)
            rows.equals(runs[stage, "B"] + runs[stage, "BW"], 1)
            rows.equals(runs[stage, "B"] - runs[stage, "W"], 0)
    for device in homes:
        for counted in (problem, *in_whole_microbatches(problem, device)):
            slack = counted.devices[device].slack or 0
            free, least = WeightedSum({period: slack}), 0
            for stage in problem.stages_on[device] if slack else ():
                onward = route.stages[problem.place_of[stage] :]
                data, held = counted.stages[stage], certain_activations(counted)[stage]
                a, w, x = data.held_after_F, data.held_after_B, data.held_in_backward
                least += held * delays_between(problem, onward)
                for later in onward:
                    free -= (times[later, "F"] + times[later, "B"] + times[later, "BW"]) * held
                free -= times[stage, "B"] * (max(a, w, x) - a)
                free -= times[stage, "BW"] * (max(a, x) - a) + times[stage, "W"] * w
            rows.at_least(free, least)
    return rows.relaxed_rate()
