"""Pairs beside memory modes and lists, counted by class and mode: by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bound, closed_form_bounds
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem, read_problem
from pipesat.schedule.schedule import Objective
from tests.oracle.exact import optimum
from tests.support.paths import ROOT
from tests.support.problems import chain

OBJECTIVES: tuple[Objective, ...] = ("makespan", "span")


def with_a_mode(problem: Problem, BW: int) -> dict[str, Any]:
    """F may pair with BW of its stage, in 3; a mode leaves 1, takes so long and may not pair."""
    raw: dict[str, Any] = json.loads(json.dumps(problem.document))
    stages = range(len(raw["stages"]))
    raw["overlap"] = {"pairs": [{"ops": [f"{s}F", f"{s}BW"], "time": 3} for s in stages]}
    for stage in raw["stages"]:
        stage["modes"] = [{"name": "again", "BW": BW, "held_after_F": 1}]
    return raw


def test_who_may_pair_does_not_fit_and_who_fits_may_not_pair() -> None:
    """Room for 3, F and BW of 2 each: nothing pairs, F 2 and BW 3 four times.

    With the least of both modes, which hold 1, three pairs of 3 saved 6.
    """
    raw = with_a_mode(chain(1, 4, F=2, B=1, W=2, cap=3, held=(2, 0), backward="fused"), BW=7)
    for objective in OBJECTIVES:
        assert closed_form_bound(parse_problem(raw), objective).value == 4 * (2 + 3)
    assert optimum(raw, "makespan") == 4 * (2 + 3)


@pytest.mark.parametrize(("p", "c", "m"), [(4, 2, 8), (4, 3, 9), (3, 2, 6)])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_mode_that_takes_too_long_leaves_the_bound_as_it_is(
    p: int, c: int, m: int, objective: Objective
) -> None:
    """Every item takes 3; room for c that keep and for one in the other mode, which nobody wants.

    As without it: c enter one after the other and are back after 2p items.
    """
    problem = chain(p, m, F=3, B=2, W=1, cap=2 * c + 1, held=(2, 0), backward="fused")
    bound = closed_form_bound(parse_problem(with_a_mode(problem, BW=1000)), objective)
    assert bound.value == 3 * (2 * p * m + c * (c - 1)) // c
    assert bound.source.endswith("load and memory with pairs of all devices")


def test_the_longest_microbatch_has_to_pass() -> None:
    # 10 and 20 on each of two devices; a pair takes as long as its members
    raw: dict[str, Any] = json.loads(json.dumps(chain(2, 1, F=1, B=1, W=1).document))
    raw["microbatches"] = [
        {"name": "long", "count": 1, "time": [10, 1]},
        {"name": "short", "count": 1},
    ]
    raw["stages"] = [stage | {"backward": "fused"} for stage in raw["stages"]]
    raw["overlap"] = {"pairs": [{"ops": ["0F", "0BW"], "factor": [1, 1]}]}
    found = {b.source: b.value for b in closed_form_bounds(parse_problem(raw), "makespan")}
    assert found["closed form: longest pass of route 0"] == 2 * (10 + 20)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pairs-recompute-vee-p4-m10-cap0.6", 4_251_281),  # 3,930,893 with the least of all modes
        ("pairs-lengths-vee-p4-m12-free", 4_683_116),  # 4,637,366 by load and memory of all
    ],
)
def test_mixtures_of_the_benchmark(name: str, value: int) -> None:
    problem = read_problem(ROOT / "bench" / "mixed" / "problems" / f"mix-{name}.json")
    assert value <= closed_form_bound(problem, "makespan").value
