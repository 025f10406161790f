"""Feasibility by arithmetic: the smallest capacity works, one unit less does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pipesat.bounds.feasibility import preflight, smallest_capacities
from pipesat.check.checker import check
from pipesat.core.errors import Infeasible
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from tests.support.greedy import by_each_policy
from tests.support.problems import chain, document, problems, vee


def test_needs_derived_by_hand() -> None:
    # V of 2 devices: a microbatch holds both chunks of a device at once, 2 x 3
    assert [n.capacity for n in smallest_capacities(vee(2, 4, held_after_F=3))] == [6, 6]
    # B adds 2 on the lower chunk (3 + 2) or on the upper one (3 + 3 + 2): 8
    split = vee(2, 4, held_after_F=3, held_after_B=5, backward="split")
    assert [n.capacity for n in smallest_capacities(split)] == [8, 8]
    # where it may be fused, BW adds nothing
    either = vee(2, 4, held_after_F=3, held_after_B=5, backward="either")
    assert [n.capacity for n in smallest_capacities(either)] == [6, 6]


def test_the_message_names_device_need_capacity_and_what_works() -> None:
    problem = parse_problem(
        document(chain(2, 3, held=(5, 2)), devices=[{"memory": 6, "static": 2, "name": "r0"}, {}])
    )
    with pytest.raises(Infeasible) as caught:
        preflight(problem)
    assert str(caught.value) == (
        "r0 has a capacity of 6 but needs 7 (its static 2 and one microbatch's 5 on stage 0); "
        "the smallest capacity that works is 7"
    )


def test_a_unit_with_a_number_in_front_is_multiplied_out() -> None:
    problem = document(chain(1, 1, held=(10, 0), cap=5), memory_unit="1e-1 GiB")
    with pytest.raises(Infeasible, match="has a capacity of 512 MiB but needs 1 GiB "):
        preflight(parse_problem(problem))


def test_static_memory_alone_can_be_too_much() -> None:
    problem = parse_problem(
        document(chain(1, 1), devices=[{"memory": 9}, {"memory": 4, "static": 5}])
    )
    with pytest.raises(
        Infeasible, match=r"device 1 has a capacity of 4 but needs 5 \(its static 5"
    ):
        preflight(problem)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(problems())
def test_the_smallest_capacity_works_and_one_less_does_not(problem: Problem) -> None:
    needs = smallest_capacities(problem)
    devices = [
        {"memory": n.capacity, "static": d.static}
        for n, d in zip(needs, problem.devices, strict=True)
    ]
    tight = parse_problem(document(problem, devices=devices))
    preflight(tight)
    assert all(check(tight, schedule) == [] for schedule in by_each_policy(tight))
    for device in range(len(devices)):
        if not devices[device]["memory"]:
            continue
        fewer = [dict(d) for d in devices]
        fewer[device]["memory"] -= 1
        short = parse_problem(document(problem, devices=fewer))
        with pytest.raises(Infeasible, match=f"device {device} has a capacity"):
            preflight(short)


def test_work_that_takes_no_time_may_hold_nothing() -> None:
    # F and backward of zero length can run in one instant: capacity 0 is not proven infeasible
    preflight(chain(1, 2, F=0, B=0, W=0, cap=0, held=(5, 5)))
