"""The CP-SAT model: each constraint family alone, and model = replay both ways."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from ortools.sat.python import cp_model

from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.schedule.timing import time_order
from pipesat.solver.model.constraints import (
    add_constraints,
    add_dataflow,
    add_memory,
    add_microbatch_order,
    add_one_op_at_a_time,
)
from pipesat.solver.model.memory import stairs
from pipesat.solver.model.model import build_model
from pipesat.solver.model.times import model_times
from pipesat.solver.model.variables import Variables, add_variables
from tests.support.optimum import solved
from tests.support.problems import chain, problems, vee

FEASIBLE = (cp_model.OPTIMAL, cp_model.FEASIBLE)


def variables(problem: Problem, horizon: int = 60) -> Variables:
    return add_variables(cp_model.CpModel(), problem, model_times(problem, horizon), horizon)


def pin(v: Variables, phase: str, stage: int, microbatch: int, start: int) -> None:
    v.cp.add(v.tasks[phase][stage][microbatch].start == start)


def feasible(v: Variables) -> bool:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.solve(v.cp) in FEASIBLE


@pytest.mark.parametrize(("second", "expected"), [(1, False), (2, True)])
def test_one_op_at_a_time(second: int, expected: bool) -> None:
    v = variables(chain(1, 2, F=2))
    add_one_op_at_a_time(v)
    pin(v, "F", 0, 0, 0)
    pin(v, "F", 0, 1, second)
    assert feasible(v) is expected


@pytest.mark.parametrize(
    ("phase", "stage", "start", "expected"),
    [
        ("F", 1, 4, False),  # 0F0 ends at 2, travels 3
        ("F", 1, 5, True),
        ("B", 1, 6, False),  # 1F0 from 5 to 7
        ("B", 1, 7, True),
        ("B", 0, 10, False),  # 1B0 from 7 to 8, travels 3
        ("B", 0, 11, True),
        ("W", 1, 7, False),  # 1B0 ends at 8
        ("W", 1, 8, True),
    ],
)
def test_dataflow(phase: str, stage: int, start: int, expected: bool) -> None:
    v = variables(chain(2, 1, F=2, comm=3))
    add_dataflow(v)
    pin(v, "F", 0, 0, 0)
    if (phase, stage) != ("F", 1):
        pin(v, "F", 1, 0, 5)
    if (phase, stage) in {("B", 0), ("W", 1)}:
        pin(v, "B", 1, 0, 7)
    pin(v, phase, stage, 0, start)
    assert feasible(v) is expected


@pytest.mark.parametrize("phase", ["F", "B", "W"])
def test_microbatch_order(phase: str) -> None:
    for first, second, expected in ((0, 1, True), (1, 0, False)):
        v = variables(chain(1, 2))
        add_microbatch_order(v)
        pin(v, phase, 0, 0, first)
        pin(v, phase, 0, 1, second)
        assert feasible(v) is expected


# Memory alone, with every op pinned: one device, two microbatches, F 0-1 and 1-2, and then
# B0 2-3, W0 3-4, B1 4-5, W1 5-6. held_after_F a, held_after_B w.
PINNED = {("F", 0): 0, ("F", 1): 1, ("B", 0): 2, ("W", 0): 3, ("B", 1): 4, ("W", 1): 5}


@pytest.mark.parametrize(
    ("a", "w", "backward", "need"),
    [
        (3, 2, "split", 6),  # both activations at 1F1's start
        (3, 3, "split", 6),
        (3, 5, "split", 8),  # 0B0 adds 2 to both activations
        (3, 5, "either", 8),
        (0, 4, "split", 4),
        (3, 2, "fused", 6),
    ],
)
def test_memory_of_one_stage(a: int, w: int, backward: str, need: int) -> None:
    for cap, expected in ((need, True), (need - 1, False)):
        v = variables(chain(1, 2, cap=cap, held=(a, w), backward=backward))
        add_one_op_at_a_time(v)
        add_memory(v)
        for (phase, m), start in PINNED.items():
            if v.tasks[phase][0]:
                pin(v, phase, 0, m, start)
        for split in v.split[0]:
            if not isinstance(split, bool):
                v.cp.add(split == 1)
        assert feasible(v) is expected


def test_memory_of_two_chunks() -> None:
    # V of one device: F of both chunks of microbatch 0, then of 1: four activations of 3 at once
    for cap, expected in ((12, True), (11, False)):
        v = variables(vee(1, 2, cap=cap, held_after_F=3))
        add_one_op_at_a_time(v)
        add_microbatch_order(v)
        add_memory(v)
        for start, (stage, m) in enumerate(itertools.product((0, 1), (0, 1))):
            pin(v, "F", stage, m, start)
        for stage, m in itertools.product((0, 1), (0, 1)):
            v.cp.add(v.tasks["B"][stage][m].start >= 4)
        assert feasible(v) is expected


def test_stairs_by_hand() -> None:
    # a = 2, w = 1, room 4, before forward 3 (the fourth): 2 (4 - b) + (b - j) <= 4, so b + j >= 4:
    # (j, b) = (1, 3), (2, 2)
    assert stairs(2, 1, 4, 3) == [(1, 3), (2, 2)]
    assert stairs(2, 1, 4, 1) == [(0, 0)]
    assert stairs(2, 2, 4, 2) == [(1, 1)]  # B frees nothing: only W counts
    assert stairs(5, 1, 4, 0) == []


@settings(max_examples=100, deadline=None)
@given(problems(max_devices=1, max_stages=1))
def test_stairs_are_exactly_the_minimal_pairs(problem: Problem) -> None:
    (stage,) = problem.stages
    slack = problem.devices[0].slack
    a, w = stage.held_after_F, stage.held_after_B
    if slack is None or not a or w > a:
        return
    for k in range(6):
        pairs = itertools.product(range(k + 1), range(k + 1))
        fit = [(j, b) for j, b in pairs if j <= b and a * (k + 1 - b) + w * (b - j) <= slack]
        minimal = [x for x in fit if not any(y != x and y[0] <= x[0] and y[1] <= x[1] for y in fit)]
        assert stairs(a, w, slack, k) == sorted(minimal)


def test_times_are_divided_by_their_common_factor() -> None:
    problem = chain(2, 2, F=600, B=900, W=300, comm=1500)
    assert model_times(problem, 10_000).unit == 300
    order = BASELINES["zb-h1"](problem).order
    model = build_model(problem, "makespan", 0, time_order(problem, order).makespan)
    solver = solved(model.cp)
    assert time_order(problem, model.order(solver.value)).makespan == solver.objective_value * 300


def test_a_fused_backward_may_come_after_one_whose_weight_gradient_ends_last() -> None:
    problem = chain(1, 2, F=1, B=1, W=5, BW=3)  # F0 B0 F1 BW1 W0 end at 1 + 1 + 1 + 3 + 5 = 11
    v = variables(problem, 11)
    add_constraints(v)
    v.cp.add(v.split[0][0] == 1)
    v.cp.add(v.split[0][1] == 0)
    pin(v, "W", 0, 0, 6)
    assert feasible(v)
