"""Hand-written schedules against their papers, and the list scheduler's safety."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import bubbles
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.files.problem_file import FORMAT, parse_problem, read_problem
from pipesat.heuristics import BASELINES
from pipesat.heuristics.list_scheduling import list_schedules
from tests.support.baselines import rules_broken
from tests.support.paths import ROOT
from tests.support.problems import chain, document, problems, vee

BENCH = ROOT / "experiments" / "bench"
REFERENCE = json.loads((BENCH / "reference.json").read_text())
TABLE_5 = sorted(name for name in REFERENCE if name.startswith("table5-") and "cap1" in name)


def row(problem: Problem, name: str, device: int) -> str:
    return " ".join(str(t.item) for t in BASELINES[name](problem).devices[device])


def test_gpipe_order() -> None:
    assert row(chain(2, 3), "gpipe", 0) == "0F0 0F1 0F2 0BW0 0BW1 0BW2"


def test_1f1b_order_of_every_rank() -> None:
    # Narayanan et al. 2021, figure 4 (top): p - 1 - d forwards before the first F, BW pair
    problem = chain(3, 4)
    assert row(problem, "1f1b", 0) == "0F0 0F1 0F2 0BW0 0F3 0BW1 0BW2 0BW3"
    assert row(problem, "1f1b", 1) == "1F0 1F1 1BW0 1F2 1BW1 1F3 1BW2 1BW3"
    assert row(problem, "1f1b", 2) == "2F0 2BW0 2F1 2BW1 2F2 2BW2 2F3 2BW3"


def test_zb_h1_order_delays_w_by_the_rank() -> None:
    problem = chain(3, 4)
    assert row(problem, "zb-h1", 0) == "0F0 0F1 0F2 0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3"
    assert row(problem, "zb-h1", 2) == "2F0 2B0 2F1 2B1 2F2 2B2 2W0 2F3 2B3 2W1 2W2 2W3"


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 4, 9, 16])
def test_closed_forms_on_uniform_chains(p: int, m: int) -> None:
    """GPipe and 1F1B: (m + p - 1)(F + BW). ZB-H1, m >= 2p: m(F+B+W) + (p-1)(F+B-W+4c)."""
    f, b, w = 3, 4, 2
    problem = chain(p, m, F=f, B=b, W=w)
    for name in ("gpipe", "1f1b"):
        assert BASELINES[name](problem).makespan == (m + p - 1) * (f + b + w)
    if m >= 2 * p:
        linked = chain(p, m, F=30, B=40, W=20, comm=1)
        span = time_order(linked, BASELINES["zb-h1"](linked).order, "span").span
        assert span == m * 90 + (p - 1) * (30 + 40 - 20 + 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE_5)
def test_table_5_of_the_zero_bubble_paper(name: str) -> None:
    """Qi et al., ICLR 2024, Table 5: bubble rates of 1F1B and ZB-1p as printed, four decimals."""
    problem = read_problem(BENCH / "problems" / f"{name}.json")
    printed = REFERENCE[name]["printed_bubble_of_span"]
    for ours, theirs in (("1f1b", "1F1B"), ("zb-h1", "ZB-1p")):
        order = BASELINES[ours](problem).order
        of_span = bubbles(problem, time_order(problem, order, "span"))[1]
        assert of_span is not None
        assert round(of_span, 4) == printed[theirs]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
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


def test_the_stages_decide_whether_a_backward_is_split() -> None:
    assert row(chain(1, 1, backward="split"), "1f1b", 0) == "0F0 0B0 0W0"
    assert row(chain(1, 1, backward="fused"), "zb-h1", 0) == "0F0 0BW0"


def test_stages_may_lie_on_devices_in_any_order() -> None:
    problem = chain(3, 4)
    stages = [s | {"device": d} for s, d in zip(problem.document["stages"], (2, 0, 1), strict=True)]
    moved = parse_problem(document(problem, stages=stages))
    assert row(moved, "1f1b", 2) == row(problem, "1f1b", 0)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(problems(max_devices=4, max_stages=6, max_microbatches=5))
def test_every_list_schedule_of_a_feasible_problem_is_valid(problem: Problem) -> None:
    """The strategy makes problems feasible, often with not one memory unit to spare."""
    for schedule in list_schedules(problem):
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
    for schedule in list_schedules(problem):
        assert check(problem, schedule) == []
        assert sum(t.item.kind == "F" for t in schedule.devices[0][:3]) <= 2


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "gpipe"])
@settings(max_examples=30, deadline=None)
@given(problem=problems())
def test_baselines_break_no_rule_but_memory(name: str, problem: Problem) -> None:
    assert rules_broken(name, problem) <= {"memory"}


def test_every_schedule_stands_in_the_table_of_the_docs() -> None:
    page = (ROOT / "docs" / "schedules.md").read_text()
    assert [name for name in BASELINES if f"`{name}`" not in page] == []
