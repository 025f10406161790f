"""Compiled packing against its definition, op for op, on problems drawn by chance."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice, pairwise
from random import Random

import numpy as np
import pytest

from pipesat.check.checker import check
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.kernels.packing import Fusing, Jobs, Joins, Waits, pack
from pipesat.problem.ops import Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.exchange_times import PermutedOrder
from pipesat.solver.growth.mode_starts import packer
from pipesat.solver.growth.packing import Walk, jobs_of
from tests.oracle.kernels.packing import packed
from tests.support.greedy import by_each_policy, by_each_setting
from tests.support.problems import chain, of, vee


def drawn(seed: int) -> tuple[Problem, Order]:
    """A problem with some of all that problems have, or one of a usual shape; an order of it."""
    chance = Random(seed)
    while True:
        problem = chance.choice(
            [
                lambda: of("mixtures", chance.random(), modes=("",)),
                lambda: of("zeros", chance.random()),
                lambda: chain(3, 6, F=2, B=3, W=2, comm=chance.choice([0, 1]), cap=3),
                lambda: vee(3, 5, cap=chance.choice([None, 6, 7]), held_after_B=1),
            ]
        )()
        made = by_each_setting if problem.overlap else by_each_policy
        if schedules := [*islice(made(problem), 4)]:
            return problem, chance.choice(schedules).order


@pytest.mark.parametrize("seed", range(40))
def test_each_pass_decides_as_its_definition_does(seed: int) -> None:
    problem, order = drawn(seed)
    jobs, items = jobs_of(problem, order)
    row = np.arange(len(jobs.device))
    assert items.order(row) == order
    chance = Random(seed)
    for turn in range(6):
        patience = chance.choice((0.0, 0.25, 0.5, 1.0))
        # whole numbers of places: some items have equal ranks
        later = np.array([chance.choice((0.0, 0.0, 1.0, 3.0)) * (turn > 1) for _ in row])
        expected = packed(jobs, row.tolist(), turn % 2 == 1, patience, later.tolist())
        row, joined, fused, makespan = pack(jobs, row, turn % 2 == 1, patience, later)
        assert (row.tolist(), joined.tolist(), fused.tolist(), makespan) == expected
        assert max(joined, default=-1) == -1


@pytest.mark.parametrize("seed", range(40))
def test_each_pass_joins_what_its_definition_does(seed: int) -> None:
    problem, order = next(made for n in count(seed, 40) if (made := drawn(n))[0].overlap)
    loose = PermutedOrder(problem, order, loose=True)
    jobs = loose.jobs_in(loose.identity, loose.fused, loose.joined)
    row, chance, fused = np.arange(len(jobs.device)), Random(seed), loose.fused
    for turn in range(6):
        joins = jobs.joins._replace(
            reach=chance.choice((2.0, 50.0)), wait=chance.choice((0.0, 1.0))
        )
        backward = turn % 2 == 1
        fusing = joins.fusing._replace(fused=fused)
        own = jobs._replace(joins=joins._replace(fusing=fusing))
        later = np.array([chance.choice((0.0, 0.0, 1.0, 3.0)) * (turn > 1) for _ in row])
        expected = packed(own, row.tolist(), backward, 0.5, later.tolist())
        row, joined, fused, makespan = pack(own, row, backward, 0.5, later)
        assert (row.tolist(), joined.tolist(), fused.tolist(), makespan) == expected
        made = time_order(problem, loose.packed(row, joined, fused, loose.identity))
        assert made.makespan <= makespan
        assert check(problem, made) == []


@pytest.mark.parametrize("seed", range(10))
def test_passes_are_as_long_as_their_orders_and_keep_to_memory(seed: int) -> None:
    problem, order = drawn(seed)
    walk = Walk(*jobs_of(problem, order), Random(seed))
    for _ in range(9):
        makespan = walk.step()
        assert time_order(problem, walk.order).makespan == makespan
        jobs = walk.jobs
        for device, (begin, end) in enumerate(pairwise(jobs.begin)):
            own = walk.row[begin:end]
            held = np.cumsum(jobs.net[own]) - jobs.net[own] + jobs.taken[own]
            assert max(held, default=0) <= jobs.slack[device]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("slack", "row", "makespan"), [(1, [0, 1], 12), (2, [1, 0], 11)])
def test_what_keeps_memory_goes_first_only_if_the_rest_still_fits(
    backward: bool, slack: int, row: list[int], makespan: int
) -> None:
    """Item 0 needs memory while it runs, and an input from item 2 at 10; item 1 keeps memory."""
    none_fused = Fusing(np.full(3, -1), *np.zeros((5, 3), np.int64))
    way, none = Waits(*map(np.array, ([0, 1, 1, 1], [2], [0]))), [0, 0, 0, 1]
    jobs = Jobs(
        begin=np.array([0, 2, 3]),
        slack=np.array([slack, slack]),
        device=np.array([0, 0, 1]),
        duration=np.array([1, 1, 10]),
        taken=np.array([1, 1 - backward, 0]),  # backward in time, what is freed is taken
        net=np.array([0, -1 if backward else 1, 0]),
        chain=np.arange(3),
        inputs=way,
        outputs=Waits(np.array(none), np.array([0]), np.array([0])),
        joins=Joins(*np.full((2, 3), -1), *np.zeros((3, 0, 0, 0), np.int64), 0.0, 0.0, none_fused),
    )
    if backward:
        jobs = jobs._replace(inputs=jobs.outputs, outputs=jobs.inputs)
    turned = slice(None, None, -1 if backward else 1)
    guide = np.array([*[0, 1][turned], 2])
    found, _, _, length = pack(jobs, guide, backward, 0.0, np.zeros(3))
    assert (found.tolist(), length) == ([*row[turned], 2], makespan)


def test_room_is_left_for_copies_as_far_as_the_order_allows() -> None:
    # 1F1B's first stage holds 3, its last one 1: of 4 there, one is spare, and three are
    problem = chain(3, 4, cap=4)
    order = next(list_schedules(problem)).order
    most = [max(np.cumsum([{"F": 1, "B": 0, "W": -1}[op.kind] for op in row])) for row in order]
    jobs = packer(problem, order, [2, 2, 2], Random(0)).jobs
    assert jobs.slack.tolist() == [max(2, held) for held in most]
    # a device without a stage has nothing to hold
    idle = replace(problem, devices=(*problem.devices, problem.devices[0]))
    assert packer(idle, (*order, ()), [2] * 4, Random(0)).jobs.slack.tolist()[:3] == [*jobs.slack]


def test_no_backward_is_fused_whose_weight_gradient_runs_with_another() -> None:
    """F1 with BW0 would save most, but W0 runs with W1."""
    pairs = [{"ops": ["0W", "0W"], "factor": [1, 2]}]
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}],
            "stages": [{"device": 0, "F": 4, "B": 4, "W": 4}],
            "microbatches": 2,
            "overlap": {"FB": [1, 2], "pairs": pairs},
        }
    )
    together = Pair(Op(0, "W", 0), Op(0, "W", 1))
    alone = [Op(0, "F", 0), Op(0, "F", 1), Op(0, "B", 0), Op(0, "B", 1)]
    order: Order = ((*alone, together),)
    loose = PermutedOrder(problem, order, loose=True)
    jobs = loose.jobs_in(loose.identity, loose.fused, loose.joined)
    jobs = jobs._replace(joins=jobs.joins._replace(reach=50.0))
    row, joined, fused, makespan = pack(jobs, np.arange(6), False, 0.5, np.zeros(6))
    assert loose.packed(row, joined, fused, loose.identity) == order
    assert makespan == 20
