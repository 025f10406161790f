"""Warm-ups of all devices together: by hand, by a formula, and never above the optimum."""

from __future__ import annotations

import pytest

from pipesat.bounds.closed_form import (
    WarmUps,
    closed_form_bound,
    closed_form_bounds,
    least_warm_ups,
)
from pipesat.check.checker import check
from pipesat.heuristics.zb_auto import zb_auto_span
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from tests.support.problems import chain


def line(*times: tuple[int, int, int], m: int, caps: list[int | None], delay: int = 0) -> Problem:
    """A chain of stages with times F, B, W that hold 1 after F and nothing after B."""
    stages = [
        {"device": d, "F": F, "B": B, "W": W, "held_after_F": 1, "held_after_B": 0}
        for d, (F, B, W) in enumerate(times)
    ]
    return parse_problem(
        {
            "format": FORMAT,
            "microbatches": m,
            "devices": [{"memory": cap} for cap in caps],
            "stages": stages,
            "comm": {"default": delay},
        }
    )


def test_idling_on_one_rank_or_depth_on_another() -> None:
    # stage 2's first B can start 1 after its first F, and stage 1's 1 + 4 + 1 = 6 after its own:
    # one F of 4 and 2 idle, or two F. Two make it 8, so that stage 0 needs 8 + 7 + 1 = 16, and two
    # F of 7 leave 2 idle; after 6 stage 0 needs 14, exactly two F.
    times = [(7, 1, 1), (4, 1, 4), (1, 1, 1)]
    problem = line(*times, m=2, caps=[2, 2, 2])
    assert least_warm_ups(problem, [18, 18, 6]) == WarmUps(20, (2, 1, 1), 0)
    # stage 0 has nothing to lose by idling: then stage 1 takes two
    assert least_warm_ups(problem, [10, 18, 6]) == WarmUps(18, (2, 2, 1), 1)


def test_without_idling_the_last_device_works_and_its_last_backward_goes_home() -> None:
    # it begins at 2 (2 + 1), works 2 (2 + 3), and the way home is 2 (1 + 3)
    problem = line((2, 3, 0), (2, 3, 0), (2, 3, 0), m=2, caps=[None] * 3, delay=1)
    of = {bound.source: bound.value for bound in closed_form_bounds(problem, "makespan")}
    (value,) = {value for source, value in of.items() if "warm-ups + load" in source}
    assert value == 6 + 10 + 8


def test_memory_that_holds_one_microbatch_leaves_the_whole_way_idle() -> None:
    # stage 1: 3 + 2 + 5 from its first F to its first B, stage 0: 10 + 4 + 6, with one F of 4
    problem = line((4, 1, 9), (3, 6, 1), (2, 5, 1), m=3, caps=[1, None, None])
    assert least_warm_ups(problem, [42, 0, 0]) == WarmUps(42 + 20 - 4, (1, 3, 1), 0)


def test_forwards_that_take_no_time_fill_none() -> None:
    problem = line((0, 1, 1), (2, 3, 1), m=2, caps=[None, None], delay=1)
    # from stage 0's first F to its first B: 1 + 2 + 3 + 1
    assert least_warm_ups(problem, [4, 12]).length == 12
    assert least_warm_ups(problem, [6, 12]).length == 6 + 7


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("p", [3, 4, 8, 13])
def test_uniform_chains(p: int, spare: int) -> None:
    """Where B + 2c = F + g, each rank's warm-up takes two F and g more than the next one's.

    2p - 1 microbatches let the ranks idle for g, 2g, ... (p-1) g. Each further one lets one rank
    run an F more instead, after which it starts again from 0: with k of them the p - 1 steps fall
    into k + 1 runs, and k of the steps cost nothing.
    """
    F, B, W, delay, g = 100, 96, 80, 5, 6
    m = 3 * p
    problem = chain(p, m, F=F, B=B, W=W, cap=10 * (2 * p - 1 + spare), comm=delay, held=(10, 0))
    longest_run = -(-(p - 1 - spare) // (spare + 1))
    expected = m * (F + B + W) + longest_run * g
    bound = closed_form_bound(problem, "span")
    assert bound.value == expected
    schedule = zb_auto_span(problem)
    assert schedule.span == expected
    assert not check(problem, schedule)
