"""Compiled timing against an oracle that lets all starts grow until every rule holds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pipesat.core.errors import BadInput
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.kernels.timing import ends_of, makespan_of, over_slack, sequenced, tails_of
from pipesat.problem.ops import Op, Pair, members
from pipesat.problem.plain_problems import without_modes
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.problem.rules import duration, inputs_of, memory_in_order
from pipesat.schedule.arrays_of import arrays_of, coded, order_of
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import linearize
from pipesat.solver.growth.mode_starts import orders_from
from tests.support.greedy import by_each_policy, by_each_setting
from tests.support.problems import chain, of

SEEDS = range(40)


def drawn(seed: int) -> tuple[Problem, Order]:
    """A problem with all that problems have, and an order of it, in modes where there are some."""
    while True:
        problem = of("mixtures", seed)
        made = by_each_setting if problem.overlap else by_each_policy
        schedules = [*zip(range(3), made(problem), strict=False)]
        if schedules:
            order = schedules[seed % len(schedules)][1].order
            starts = [start.order for start in orders_from(problem, [schedules[0][1]])]
            return problem, starts[seed % len(starts)] if starts else order
        seed += 1000


def latest(problem: Problem, order: Order) -> dict[object, int]:
    """The least starts that keep every rule, by their definition: grow until nothing changes."""
    end_of = {}
    start = {item: 0 for row in order for item in row}
    changed = True
    while changed:
        changed = False
        for item, at in start.items():
            end_of |= {op.event: at + duration(problem, item) for op in members(item)}
        for row in order:
            for before, item in pairwise((None, *row)):
                least = 0 if before is None else start[before] + duration(problem, before)
                needs = [
                    need
                    for op in members(item)
                    if (need := next(iter(inputs_of(problem, op)), None))
                ]
                least = max([least, *(end_of[need.event] + need.delay for need in needs)])
                if least > start[item]:
                    start[item], changed = least, True
    return start


@pytest.mark.parametrize("seed", SEEDS)
def test_times_and_memory_are_those_of_the_rules(seed: int) -> None:
    problem, order = drawn(seed)
    arrays, codes = coded(problem, order)
    assert order_of(problem, arrays, codes) == order
    start = latest(problem, order)
    ends = [start[item] + duration(problem, item) for row in order for item in row]
    assert makespan_of(arrays, codes) == max(ends)
    sequence = sequenced(arrays, codes)
    found = ends_of(sequence, np.zeros(len(order), np.int64))
    assert dict(zip(sequence.item.tolist(), found.tolist(), strict=True)) == dict(enumerate(ends))
    # the longest path through an item is at most the makespan, and some item's is all of it
    through = found + tails_of(sequence, np.zeros(len(order), np.int64))
    assert max(through) == max(ends)
    over = []
    for device, row in enumerate(order):
        held, slack = 0, problem.devices[device].slack
        for item in row:
            change = memory_in_order(problem, item)
            if slack is not None and held + change.at_start > slack:
                over.append(device)
            held += change.net
    assert over_slack(arrays, codes) == min(over, default=-1)


def test_an_order_that_waits_in_a_circle_has_no_makespan() -> None:
    problem = chain(2, 2)
    order = next(iter(list_schedules(problem))).order
    turned = (order[0][::-1], order[1])
    arrays, codes = coded(problem, turned)
    assert makespan_of(arrays, codes) == -1


def test_microbatches_that_a_problem_lacks_are_timed_all_the_same() -> None:
    few, many = chain(2, 2), chain(2, 5)
    order = next(iter(list_schedules(many))).order
    assert linearize(few, order).duration == linearize(many, order).duration


def test_sums_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="choose larger units"):
        arrays_of(without_modes(chain(2, 400_000, F=10**12, B=10**12, W=10**12)))


def test_a_stated_time_of_a_pair_is_no_factor() -> None:
    """In nanoseconds, a second and a half beside as much would be beyond 2^61 as a product."""
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}],
            "stages": [{"device": 0, "F": 1_500_000_000, "B": 1_500_000_000, "W": 0}],
            "microbatches": 2,
            "overlap": {"pairs": [{"ops": ["0F", "0B"], "time": 2_000_000_000}]},
        }
    )
    pair = Pair(Op(0, "F", 1), Op(0, "B", 0))
    order: Order = ((Op(0, "F", 0), pair, Op(0, "W", 0), Op(0, "B", 1), Op(0, "W", 1)),)
    assert makespan_of(*coded(problem, order)) == 5_000_000_000
