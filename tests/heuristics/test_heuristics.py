"""Hand-written schedules against their papers, and the list scheduler's safety."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from tests.support.greedy import by_each_policy
from tests.support.problems import chain, problems, vee


def row(problem: Problem, name: str, device: int) -> str:
    return " ".join(str(t.item) for t in BASELINES[name](problem).devices[device])


@pytest.mark.parametrize(
    "name", [name for name, entry in BASELINES.items() if entry.placement == "chain"]
)
def test_chain_schedules_say_why_they_do_not_apply(name: str) -> None:
    with pytest.raises(NotApplicable, match="exactly one stage per device"):
        BASELINES[name](vee(2, 2))
    one = {"F": 1, "B": 1, "W": 1}
    two_routes = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": [{"device": 0} | one, {"device": 1} | one],
            "routes": [{"stages": [s], "microbatches": 1} for s in (0, 1)],
        }
    )
    with pytest.raises(NotApplicable, match="single route"):
        BASELINES[name](two_routes)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(problems(max_devices=4, max_stages=6, max_microbatches=5))
def test_every_list_schedule_of_a_feasible_problem_is_valid(problem: Problem) -> None:
    """The strategy makes problems feasible, often with not one memory unit to spare."""
    for schedule in by_each_policy(problem):
        assert check(problem, schedule) == []


def test_list_scheduling_falls_back_to_one_microbatch_at_a_time() -> None:
    with pytest.raises(NotApplicable, match="the smallest capacity that works is 3"):
        BASELINES["list-scheduling"](chain(2, 2, cap=2, held=(3, 1)))
    # without time nothing is ever held: one microbatch after the other is valid
    instant = chain(2, 2, F=0, B=0, W=0, cap=2, held=(3, 1))
    assert row(instant, "list-scheduling", 0) == "0F0 0BW0 0F1 0BW1"
    assert check(instant, BASELINES["list-scheduling"](instant)) == []


def test_list_scheduling_keeps_room_for_a_backward_that_adds_memory() -> None:
    # F holds 4, B adds 3, room 11: two forwards (8) leave room for one B (11), three would not (12)
    problem = chain(1, 6, cap=11, held=(4, 7), backward="split")
    for schedule in by_each_policy(problem):
        assert check(problem, schedule) == []
        assert sum(t.item.kind == "F" for t in schedule.devices[0][:3]) <= 2
