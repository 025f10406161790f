"""Closed-form bounds: tight where the paper's formula is reached, never above the optimum."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bound, closed_form_bounds
from pipesat.bounds.feasibility import preflight
from pipesat.problem.problem_file import parse_problem, read_problem
from tests.oracle.exact import optimum
from tests.support.optimum import most_work
from tests.support.paths import ROOT
from tests.support.problems import chain, document

BENCH = ROOT / "bench" / "plain"
RECOMPUTE = {"name": "recompute", "BW": 3, "held_after_F": 0}
REFERENCE = json.loads((BENCH / "reference.json").read_text())


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 24)])
def test_equals_zb_h1_at_1f1b_s_memory(objective: str, p: int, m: int) -> None:
    """Head and tail give m(F+B+W) + (p-1)(B+2c) + (p-1)(F-W+2c), ZB-H1's span."""
    problem = chain(p, m, F=30, B=40, W=20, comm=1, cap=10 * p, held=(10, 5))
    expected = m * 90 + (p - 1) * (40 + 2) + (p - 1) * (30 - 20 + 2)
    assert closed_form_bound(problem, objective).value == expected


def test_the_load_of_the_last_device_after_its_start() -> None:
    # adaptis-p4-m8: 25 + 24 + 24 until stage 3 can begin, then 8 (33 + 55 + 19)
    bound = closed_form_bound(read_problem(BENCH / "problems" / "adaptis-p4-m8.json"), "makespan")
    assert bound.value == 25 + 24 + 24 + 8 * (33 + 55 + 19)
    assert bound.source == "closed form: load of device 3"


def test_the_span_sees_the_chain_through_a_heavy_device() -> None:
    # the same case: device 0's window holds the way to stage 3 (25 + 24 + 24), all F and B of stage
    # 3 (8 x 88), the way back (3 x 40) and one W (16): 73 + 704 + 120 + 16
    bound = closed_form_bound(read_problem(BENCH / "problems" / "adaptis-p4-m8.json"), "span")
    assert bound.value == 73 + 704 + 120 + 16


def test_one_microbatch_s_pass() -> None:
    # F, 3, F, B, 3, B, W with F = 2, B = 5, W = 1: 2 + 3 + 2 + 5 + 3 + 5 + 1
    assert closed_form_bound(chain(2, 1, F=2, B=5, W=1, comm=3), "makespan").value == 21


def test_weight_gradients_on_the_way_home_add_to_the_load_of_the_makespan() -> None:
    # device 1 begins at 1, has three times 2 + 3 to do and 4 until its last gradient has ended on
    # device 0; two W's fill that time, of backwards that are 1 longer for being split
    stages = [
        {"device": 0, "F": 1, "B": 2, "W": 1, "BW": 4, "backward": "fused"},
        {"device": 1, "F": 2, "B": 2, "W": 2, "BW": 3},
    ]
    problem = parse_problem(document(chain(2, 3), stages=stages))
    assert closed_form_bound(problem, "makespan").value == 1 + 3 * (2 + 3) + 2 * 1
    assert optimum(document(problem)) == 18


def test_the_span_does_not_wait_for_the_weight_gradients_of_other_devices() -> None:
    stages = [
        {"device": 0, "F": 2, "B": 2, "W": 3, "BW": 2, "held_after_F": 0, "held_after_B": 4},
        {"device": 1, "F": 3, "B": 1, "W": 2, "BW": 2, "held_after_F": 4, "held_after_B": 2},
        {"device": 1, "F": 1, "B": 3, "W": 1, "BW": 4, "held_after_F": 4, "held_after_B": 1},
    ]
    devices = [{"memory": 16}, {"memory": 10}]
    problem = parse_problem(document(chain(2, 2), stages=stages, devices=devices))
    assert closed_form_bound(problem, "span").value <= 21 == optimum(document(problem), "span")


def test_area_at_a_tight_capacity() -> None:
    # room for one activation, held from F to the end of B: device 0 runs microbatches one by one,
    # each F + way + B; W of the last one afterwards is not in the area: 4 (1 + 2 + 1) = 16, and the
    # activation of W's part (1 x 1) makes it 4 x 5 = 20
    assert closed_form_bound(chain(2, 4, cap=1), "makespan").value == 20


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_never_above_the_best_known_schedule_and_at_least_the_reference(name: str) -> None:
    problem = read_problem(BENCH / "problems" / f"{name}.json")
    known = REFERENCE[name]
    makespan = closed_form_bound(problem, "makespan").value
    span = closed_form_bound(problem, "span").value
    if "best_known_makespan" in known:
        assert makespan <= known["best_known_makespan"]
    for peer in known.get("peers", {}).values():
        if peer.get("within_cap"):
            assert makespan <= peer["makespan"]
            assert span <= peer["span"]
    if "closed_form_bound" in known:
        assert makespan >= known["closed_form_bound"]["makespan"]
        assert span >= known["closed_form_bound"]["span"]


def test_overlapped_pairs_loosen_the_load() -> None:
    plain = chain(1, 4, F=4, B=3, W=3, BW=6)
    paired = parse_problem(document(plain, overlap={"FB": [3, 4]}))
    assert closed_form_bound(plain, "makespan").value == 40
    # a pair takes 3/4 of 10, rounded up; the first F and the last backward run alone: 4 + 3 x 8 + 6
    assert closed_form_bound(paired, "makespan").value == 34


def test_most_work_is_a_knapsack() -> None:
    assert most_work([(10, 7, 5)], 34) == 21  # three whole items
    assert most_work([(10, 7, 5)], None) == 35
    # small ones first, then half of one, 3.5: as whole items no more than 15
    assert most_work([(10, 7, 2), (5, 4, 3)], 20) == 4 * 3 + 3
    assert most_work([(0, 3, 2), (4, 9, 1)], 0) == 6


def calls_of(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls: what it costs, on any machine."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("changes", [{}, {"held_in_backward": 2}, {"modes": [RECOMPUTE]}])
def test_the_bounds_of_four_times_the_devices_take_four_times_the_work(
    changes: dict[str, Any],
) -> None:
    """Not sixteen or sixty-four times, as where every device walks along the route for itself.

    F and the backward are as long as each other, so that whether all may pass in an instant is
    asked of each.
    """
    small, large = (chain(p, 1, cap=9, comm=1, **changes) for p in (12, 48))
    for problem in (small, large):
        preflight(problem)
    took, takes = (calls_of(lambda p=p: closed_form_bounds(p, "makespan")) for p in (small, large))
    assert takes < 6 * took
