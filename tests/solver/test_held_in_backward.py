"""Backwards that hold more than usual: a key that says nothing, and the search where it matters."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import pipesat
from pipesat.problem.plain_problems import backward_excess
from pipesat.problem.problem_file import parse_problem

STAGE: dict[str, Any] = {"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 3, "held_after_B": 5}
ONE: dict[str, Any] = {"format": "pipesat.problem/1", "microbatches": 2, "devices": [{"memory": 9}]}


# While B runs, max(3, 5, x) is held; while BW runs, max(3, x).


@pytest.mark.parametrize(
    ("change", "excess"),
    [
        ({"held_in_backward": 3}, 0),
        ({"held_in_backward": 4}, 1),  # BW
        ({"held_in_backward": 5, "backward": "split"}, 0),
        ({"held_in_backward": 7, "backward": "split"}, 2),
        ({"held_in_backward": 7, "backward": "fused"}, 4),
        ({"held_in_backward": 7, "B": 0, "backward": "split"}, 0),  # an instant
        ({"held_in_backward": 7, "B": 0, "W": 0}, 0),
        ({"held_in_backward": 7, "B": 0}, 4),  # BW takes 1
        ({"held_in_backward": 3, "modes": [{"name": "less", "held_after_F": 1}]}, 2),
    ],
)
def test_what_the_key_adds(change: dict[str, Any], excess: int) -> None:
    document = ONE | {"stages": [STAGE | change]}
    problem = parse_problem(document)
    assert backward_excess(problem, 0) == excess
    assert problem.stages[0].held_in_backward == (change["held_in_backward"] if excess else 0)
    assert problem.document == document
    paired = document | {"overlap": {"pairs": [{"ops": ["0F", "0B"], "time": 2}]}}
    more = excess or 2 * ("B" in change)  # in a pair B takes time, 2 more than 5 or 4 more than 3
    assert backward_excess(parse_problem(paired), 0) >= more


def test_a_class_may_state_what_says_nothing() -> None:
    listed = [{"name": "a", "count": 1, "held": [2, 1]}, {"name": "b", "count": 1}]
    listed[1]["stages"] = {"0": {"held_in_backward": 2, "F": 2}}
    stages = [STAGE | {"held_in_backward": 3}]
    problem = parse_problem(ONE | {"microbatches": listed, "stages": stages})
    assert [problem.amounts(0, m).held_in_backward for m in (0, 1)] == [0, 0]
    assert [problem.amounts(0, m).F for m in (0, 1)] == [1, 2]
    listed[1]["stages"] = {"0": {"held_in_backward": 4}}
    problem = parse_problem(ONE | {"microbatches": listed, "stages": stages})
    assert [problem.amounts(0, m).held_in_backward for m in (0, 1)] == [6, 4]  # 3 x 2, stated


# Three pairs of 0BW and 1BW, 3 each: 9, all forwards take no time. Any op alone takes no less than
# a third of its pair's time, so 9 is the load with pairs. Memory: 3 a microbatch of route 0, and
# two backwards at once, one of them with 3 in the backward alone: 9 + 3 of 12.
PAIRED: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "routes": [{"stages": [0], "microbatches": 3}, {"stages": [1], "microbatches": 3}],
    "stages": [
        {"device": 0, "F": 0, "B": 2, "W": 0, "held_after_F": 3, "held_after_B": 1},
        {"device": 0, "F": 0, "B": 1, "W": 3, "held_after_B": 4, "held_in_backward": 3},
    ],
    "devices": [{"memory": 15, "static": 3}],
    "overlap": {"pairs": [{"ops": ["1BW", "0BW"], "time": 3}, {"ops": ["1BW", "1BW"], "time": 6}]},
}


def test_pairs_are_searched_where_the_key_matters() -> None:
    result = pipesat.solve(parse_problem(PAIRED), time_limit=60, deterministic=True)
    assert (result.status, result.value) == ("optimal", 9)


@pytest.mark.slow
def test_a_key_that_says_nothing_changes_no_answer() -> None:
    with_key = copy.deepcopy(PAIRED)
    for stage in with_key["stages"]:
        stage["held_in_backward"] = stage.get("held_after_F", 0)
    without = copy.deepcopy(with_key)
    for stage in without["stages"]:
        del stage["held_in_backward"]
    answers = [
        pipesat.solve(parse_problem(document), time_limit=0.15, deterministic=True)
        for document in (with_key, without)
    ]
    one, other = (
        [(step.value, step.bound, step.source) for step in answer.history] for answer in answers
    )
    assert one == other
    assert answers[0].problem.sha256 != answers[1].problem.sha256


# Keep needs 6 while BW runs, more than 5; the mode's BW takes no time, so it holds nothing but the
# 1 that its F left. F's of 3, each followed by its BW: 6 for two microbatches.
INSTANT: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{"memory": 5}],
    "mode_choice": "stage",
    "stages": [
        {"device": 0, "F": 3, "B": 0, "W": 0, "BW": 2, "backward": "fused", "held_in_backward": 6}
        | {"modes": [{"name": "recompute", "held_after_F": 1, "BW": 0}]}
    ],
}


def test_a_mode_whose_backward_takes_no_time_may_be_all_that_fits() -> None:
    result = pipesat.solve(parse_problem(INSTANT), time_limit=5, deterministic=True)
    assert (result.status, result.value) == ("optimal", 6)
