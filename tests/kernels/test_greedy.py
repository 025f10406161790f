"""Compiled list scheduling, alone and in pairs, against plain queues: the same orders, op by op."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from pipesat.heuristics.greedy_pairs import GreedySetting, pairing_policies
from pipesat.heuristics.list_scheduling import ListScheduler, Policy, policies
from pipesat.problem.plain_problems import without_modes
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.arrays_of import order_of
from pipesat.schedule.timing import time_order
from tests.oracle.generator import of_family
from tests.oracle.kernels.greedy import Greedy
from tests.support.problems import chain, document

_MOST = 24  # microbatches of a route, or of an entry of a list


def problems(seed: int) -> Iterator[Problem]:
    """Any placement, lists, pairs and memory down to the least; few microbatches, and more."""
    chance = Random(seed)
    for family in ("mixtures", "pairs", "lists", "tight pairs"):
        found = of_family(family, seed)
        yield parse_problem(found)
        holders: list[Any] = found.get("routes", [found])
        entries = [holder["microbatches"] for holder in holders]
        for holder, own in zip(holders, entries, strict=True):
            for entry in own if isinstance(own, list) else ():
                entry["count"] = chance.randint(1, _MOST // 3)
            if isinstance(own, int):
                holder["microbatches"] = chance.randint(1, _MOST)
        yield parse_problem(found)


def compare(problem: Problem, setting: GreedySetting, *, pairs: bool) -> None:
    """Refuse an order that is not the oracle's, or that ended at another time than it."""
    scheduler = ListScheduler(problem)
    limits = setting.limits or scheduler.limits(setting.policy)
    oracle = Greedy(scheduler.problem, setting.policy, limits, setting.wait if pairs else None)
    run = scheduler.run(*setting) if pairs else scheduler.run(setting.policy, limits=limits)
    order = order_of(scheduler.problem, scheduler.arrays, run.order)
    assert order == oracle.order(), (problem.document, setting)
    assert run.end == max(oracle.busy_until)
    schedule = time_order(problem, order)
    assert run.value == (schedule.makespan, schedule.span)


@pytest.mark.parametrize("seed", range(16))
def test_orders_are_those_of_plain_queues(seed: int) -> None:
    chance = Random(seed)
    for problem in problems(seed):
        plain = without_modes(problem)
        if not ListScheduler(problem).applies:
            continue
        policy = chance.choice([*policies(plain)])
        compare(problem, GreedySetting(policy, 0.0), pairs=False)
        if problem.overlap is not None:
            setting = chance.choice([*pairing_policies(plain)])
            compare(problem, setting, pairs=True)
            limits = ListScheduler(problem).limits(setting.policy)
            near = tuple(max(1, limit + chance.choice((-1, 0, 1))) for limit in limits)
            compare(
                problem, GreedySetting(policy, chance.choice([0.0, 0.5, 3.0]), near), pairs=True
            )


def test_a_long_run_in_little_memory() -> None:
    compare(chain(3, 300, F=4, B=5, W=3, cap=5, comm=1), GreedySetting(Policy(), 0.0), pairs=False)


def test_times_beyond_those_that_floats_tell_apart() -> None:
    long = chain(2, 300, F=10**12 - 1, B=10**12 - 1, W=10**12 - 1, cap=3, comm=10**12 - 1)
    compare(long, GreedySetting(Policy(), 0.0), pairs=False)


def test_a_device_without_stages() -> None:
    short = chain(2, 20, F=4, B=5, W=3, cap=3, comm=1)
    problem = parse_problem(document(short, devices=[*document(short)["devices"], {}]))
    compare(problem, GreedySetting(Policy(), 0.0), pairs=False)


def test_a_route_that_outruns_a_shorter_one() -> None:
    """Late forwards have numbers above those of two early backwards, which pairs are chosen by."""
    times = {"0F 2F": 29, "1F 3F": 28, "1BW 3BW": 27, "0BW 2BW": 26}
    times |= {"0F 1F": 38, "1F 1BW": 37, "0F 1BW": 39, "0BW 0BW": 39}
    pairs = [{"ops": ops.split(), "time": time} for ops, time in times.items()]
    stage = {"device": 0, "F": 20, "B": 10, "W": 10, "backward": "fused"}
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}],
            "stages": [stage] * 4,
            "routes": [
                {"stages": [0, 1], "microbatches": 100},
                {"stages": [2, 3], "microbatches": 60},
            ],
            "overlap": {"pairs": pairs},
        }
    )
    compare(problem, GreedySetting(Policy(patience=0.0), 1.0), pairs=True)
