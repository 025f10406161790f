"""Bounds of a known order, given or of microbatches that are alike: by hand, and by an oracle."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.bounds.given_order import HeadsAndTails, bounds_of_given_order, least_lateness
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Objective
from tests.oracle.exact import optimum
from tests.support.problems import chain as uniform
from tests.support.problems import document, vee

LONG = {"name": "long", "count": 1, "time": [3, 1]}
SHORT = {"name": "short", "count": 1}


def chain(microbatches: list[dict[str, Any]], order: str, memory: int | None) -> dict[str, Any]:
    stage = {"F": 1, "B": 1, "W": 1, "backward": "fused", "held_after_F": 10}
    return {
        "format": FORMAT,
        "devices": [{"memory": memory}, {}],
        "stages": [{"device": 0} | stage, {"device": 1} | stage],
        "microbatches": microbatches,
        "order": order,
    }


def by_argument(document: dict[str, Any], objective: Objective = "makespan") -> dict[str, int]:
    bounds = closed_form_bounds(parse_problem(document), objective)
    return {bound.source: bound.value for bound in bounds}


def best(document: dict[str, Any]) -> int:
    bounds = bounds_of_given_order(parse_problem(document), "makespan")
    return max(bound.value for bound in bounds)


@pytest.mark.parametrize(
    ("jobs", "least"),
    [
        ([(0, 5, 0)], 5),
        ([(0, 5, 0), (0, 3, 7)], 10),  # the long tail first: 3 + 7, and 8
        ([(0, 5, 1), (2, 2, 9)], 13),  # the first is interrupted at 2: 4 + 9, and 7 + 1
        ([(4, 1, 0), (9, 2, 1)], 12),
        ([], 0),
    ],
)
def test_jobs_with_heads_and_tails(jobs: list[tuple[int, int, int]], least: int) -> None:
    assert least_lateness(jobs) == least


def test_what_comes_after_a_backward_are_those_of_later_microbatches() -> None:
    entries = [{"name": "a", "count": 1}, {"name": "b", "count": 1, "time": [2, 1]}]
    listed = document(uniform(1, 1, F=1, B=2, W=3), microbatches=entries, order="given")
    line = HeadsAndTails(parse_problem(listed), "makespan")
    line.find_tails()
    assert line.tail_back.tolist() == [[3 + 4 + 6, 6]]  # W of a, B and W of b


def test_a_long_microbatch_that_comes_first_holds_up_the_next_one() -> None:
    """F of 3 on both, BW of 6 on both, and then the short one's BW of 2 on the first device."""
    document = chain([LONG, SHORT], "given", None)
    assert best(document) == 20
    assert optimum(document, "makespan") == 20


def test_a_forward_waits_for_memory_that_an_earlier_backward_sets_free() -> None:
    """Both do not fit: 18 for the long one alone, then 1 + 1 + 2 + 2."""
    document = chain([LONG, SHORT], "given", 15)
    assert best(document) == 24
    assert optimum(document, "makespan") == 24


def test_only_a_known_order_has_heads_and_tails() -> None:
    document = chain([LONG, SHORT], "same", None)
    assert bounds_of_given_order(parse_problem(document), "makespan") == []


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(
    ("problem", "least"),
    [
        (uniform(3, 3, cap=2, held=(2, 1)), 21),  # one by one: away for 4 + 1, then B and W
        # two at a time: F's at 0, 1; B and W of both from 7 on, between them or after them F; the
        # last F has ended at 13, and comes back after 6, for B and W
        (uniform(4, 4, cap=4, held=(2, 1)), 21),
        # the turn's device has room for one: its second F at 2, then 3 on the way and 4 at work;
        # the third one's at 16, and then 3 on the way, B of three stages and W
        (vee(2, 3, cap=2), 23),
    ],
)
def test_forwards_wait_for_memory_that_whole_backwards_free(
    problem: Problem, least: int, objective: Objective
) -> None:
    found = max(bound.value for bound in bounds_of_given_order(problem, objective))
    assert found == least


@pytest.mark.parametrize(("order", "least"), [("given", 64), ("same", 64), ("free", None)])
def test_what_runs_while_a_large_microbatch_is_away(order: str, least: int | None) -> None:
    """The long one is away for 20 + 4 + 8 + 20; of four small ones 4 forwards, 4 backwards run.

    The load is 12 + 4 * 3. Without a rule about the order, small ones could overtake it.
    """
    large = {"name": "large", "count": 1, "time": [4, 1], "held": [4, 1]}
    small = {"name": "small", "count": 4, "held": [1, 10]}
    document = chain([large, small], order, 45) | {"comm": {"default": 20}}
    found = by_argument(document)
    assert found.get("closed form: load around one microbatch of device 0") == least
