"""The CP-SAT model where microbatches differ: its rules alone, and against trying everything."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from ortools.sat.python import cp_model

from pipesat.compare.solve import solve
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.solver.model.constraints import add_constraints
from pipesat.solver.model.times import model_times, rounded
from pipesat.solver.model.variables import Variables, add_variables


def two_classes(order: str, names: str = "ab") -> Problem:
    """Two devices; F 2, B 2, W 1, those of class b three times as long, and delays of 1 and 2."""
    entries: list[dict[str, Any]] = [{"name": name, "count": 1} for name in names]
    entries[names.index("b")] |= {"time": [3, 1], "comm": [2, 1]}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}, {}],
            "stages": [{"device": d, "F": 2, "B": 2, "W": 1} for d in range(2)],
            "microbatches": entries,
            "order": order,
            "comm": {"default": 1},
        }
    )


def feasible(problem: Problem, **starts: int) -> bool:
    """Whether a solution has ops at these starts; ``f01``: F of stage 0, microbatch 1."""
    v = add_variables(cp_model.CpModel(), problem, model_times(problem, 99), 99)
    add_constraints(v)
    pin(v, starts)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.solve(v.cp) == cp_model.OPTIMAL


def pin(v: Variables, starts: dict[str, int]) -> None:
    for name, start in starts.items():
        phase: Literal["F", "B", "W"] = name[0].upper()  # type: ignore[assignment]
        v.cp.add(v.tasks[phase][int(name[1])][int(name[2])].start == start)


@pytest.mark.parametrize(
    ("order", "agree", "differ"), [("free", True, True), ("same", True, False), ("given", 0, 0)]
)
def test_which_comes_first(order: str, agree: bool, differ: bool) -> None:
    problem = two_classes(order)  # b first: 0F1 ends at 6, 1F1 may start at 8
    assert feasible(problem, f01=0, f00=6, f11=8, f10=14) is bool(agree)
    assert feasible(problem, f01=0, f00=6, f10=9, f11=11) is bool(differ)
    assert feasible(problem, f00=0, f01=2)


def test_what_takes_no_time_keeps_to_the_order_of_the_others() -> None:
    document = two_classes("same").document
    short, long = document["microbatches"]
    entries = [short | {"stages": {"1": {"F": 0}}}, long]
    problem = parse_problem(document | {"microbatches": entries})  # 1F: none from 3 on, 6 from 10
    assert feasible(problem, f00=0, f01=2, f10=9, f11=10)
    assert not feasible(problem, f00=0, f01=2, f11=10, f10=16)


@pytest.mark.parametrize("order", ["free", "same", "given"])
def test_weight_gradients_are_free_and_classes_keep_their_numbers(order: str) -> None:
    assert feasible(two_classes(order), f00=0, f01=2, w01=60, w00=70)
    assert not feasible(two_classes(order, "baa"), f02=20, f01=30)
    assert not feasible(two_classes(order, "baa"), w02=60, w01=70)


def test_durations_and_delays_are_each_microbatchs_own() -> None:
    problem = two_classes("free")
    assert not feasible(problem, f01=0, f11=7)  # 6, and a delay of 2
    assert feasible(problem, f01=0, f11=8)
    assert not feasible(problem, f00=0, f10=2)  # 2, and a delay of 1
    assert feasible(problem, f00=0, f10=3)


def test_rounded_times_are_those_of_every_class() -> None:
    small = rounded(two_classes("free"), 2)  # F 2 and 6, B 2 and 6, W 1 and 3
    amounts = [small.amounts(0, microbatch) for microbatch in range(2)]
    assert [(x.F, x.B, x.W) for x in amounts] == [(1, 1, 0), (3, 3, 1)]


def test_a_list_with_a_factor_is_proven_optimal() -> None:
    """One device, F 4 and BW 8, then both three times as long; a pair takes 3/4 of its members.

    The short F first (4), then the long F beside the short BW (3/4 of 20), then the long BW (24):
    43. With the long one first, its F (12), its BW with the short F hidden in it (24), and 8: 44.
    """
    stage = {"device": 0, "F": 4, "B": 4, "W": 4, "backward": "fused"}
    document = {
        "format": "pipesat.problem/1",
        "devices": [{}],
        "stages": [stage],
        "microbatches": [
            {"name": "short", "count": 1},
            {"name": "long", "count": 1, "time": [3, 1]},
        ],
        "overlap": {"FB": [3, 4]},
    }
    result = solve(parse_problem(document), time_limit=5, deterministic=True)
    assert (result.status, result.value) == ("optimal", 43)
