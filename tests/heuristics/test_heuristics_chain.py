"""Schedules for one stage per device: eager and overlapped 1F1B, ZB-H2, ZB-1P."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from pipesat.core.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.core.metrics import bubbles, peak_memory
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem, read_problem
from pipesat.heuristics import BASELINES
from tests.support.baselines import rules_broken
from tests.support.loops import uneven_loops
from tests.support.paths import ROOT
from tests.support.problems import chain, document, problems, vee

OURS = ("zb-h2", "zb-1p", "1f1b-overlapped", "eager-1f1b")
CHAINS = (*OURS, "zb-h1", "1f1b", "gpipe")

BENCH = ROOT / "experiments" / "bench"
REFERENCE = json.loads((BENCH / "reference.json").read_text())
TABLE_5 = sorted(name for name in REFERENCE if name.startswith("table5-") and "cap2" in name)


def row(problem: Problem, name: str, device: int) -> str:
    return " ".join(str(t.item) for t in BASELINES[name](problem).devices[device])


def with_pairs(problem: Problem, num: int, den: int) -> Problem:
    return parse_problem(document(problem, overlap={"FB": [num, den]}))


def span(problem: Problem, name: str) -> int:
    return time_order(problem, BASELINES[name](problem).order, "span").span


# Orders, written down by hand


def test_eager_1f1b_order() -> None:
    # 2 (p - 1 - d) warm-up forwards: 2 on rank 0, none on the last
    problem = chain(2, 4)
    assert row(problem, "eager-1f1b", 0) == "0F0 0F1 0F2 0BW0 0F3 0BW1 0BW2 0BW3"
    assert row(problem, "eager-1f1b", 1) == "1F0 1BW0 1F1 1BW1 1F2 1BW2 1F3 1BW3"


def test_overlapped_1f1b_order() -> None:
    problem = with_pairs(chain(2, 5), 3, 4)
    assert row(problem, "1f1b-overlapped", 0) == "0F0 0F1 0F2 (0F3+0BW0) (0F4+0BW1) 0BW2 0BW3 0BW4"
    last = "1F0 (1F1+1BW0) (1F2+1BW1) (1F3+1BW2) (1F4+1BW3) 1BW4"
    assert row(problem, "1f1b-overlapped", 1) == last


def test_without_pairs_their_members_run_in_turn() -> None:
    problem = chain(2, 5)
    in_turn = "0F0 0F1 0F2 0F3 0BW0 0F4 0BW1 0BW2 0BW3 0BW4"
    assert row(problem, "1f1b-overlapped", 0) == in_turn
    split = with_pairs(chain(1, 2, backward="split"), 3, 4)
    assert row(split, "1f1b-overlapped", 0) == "0F0 0F1 0B0 0W0 0B1 0W1"


def test_zb_h2_order() -> None:
    # p = 2: 2 (p - d) - 1 forwards before the first B (3, 1), and 2 d Ws moved to the end (0, 2)
    problem = chain(2, 4)
    first = "0F0 0F1 0F2 0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3"
    assert row(problem, "zb-h2", 0) == first
    assert row(problem, "zb-h2", 1) == "1F0 1B0 1F1 1B1 1F2 1B2 1W0 1F3 1B3 1W1 1W2 1W3"


def test_zb_1p_order() -> None:
    # rank 1 of 3: F1 is the 2nd forward, no W; F2 the 3rd: W0, then (4 forwards, 1 W): W1
    problem = chain(3, 4)
    assert row(problem, "zb-1p", 1) == "1F0 1F1 1B0 1F2 1B1 1W0 1F3 1B2 1W1 1B3 1W2 1W3"


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_zb_1p_is_zb_h1_unless_microbatches_are_very_few(p: int) -> None:
    """W of j follows F of j + p - 1 and B of j + d: the same place while forwards last."""
    for m in range(max(1, p - 1), 3 * p):
        problem = chain(p, m)
        assert BASELINES["zb-1p"](problem).order == BASELINES["zb-h1"](problem).order
    # 2 microbatches on rank 1 of 4: no steady state, so every B is followed by a W at once
    few = chain(4, 2)
    assert row(few, "zb-1p", 1) == "1F0 1F1 1B0 1W0 1B1 1W1"
    assert row(few, "zb-h1", 1) == "1F0 1F1 1B0 1B1 1W0 1W1"


# Memory


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("m", [1, 2, 5, 9, 16])
def test_activations_in_flight(p: int, m: int) -> None:
    ranks = range(p)
    held = {
        name: peak_memory(problem, BASELINES[name](problem))
        for name in CHAINS
        for problem in [with_pairs(chain(p, m), 1, 1)]
    }
    assert held["gpipe"] == [m for _ in ranks]
    assert held["1f1b"] == [min(p - d, m) for d in ranks]
    assert held["eager-1f1b"] == [min(2 * (p - d) - 1, m) for d in ranks]
    assert held["1f1b-overlapped"] == [min(2 * (p - d), m) for d in ranks]
    assert held["zb-1p"][0] == held["zb-h1"][0] == min(p, m)
    assert held["zb-h2"][0] == min(2 * p - 1, m)
    # forwards that are ahead on early ranks, Ws that wait on late ones
    assert max(held["zb-h2"]) == min(2 * p - 1, m)


# Closed forms


@pytest.mark.parametrize("p", [1, 2, 3, 6])
@pytest.mark.parametrize("costs", [(1, 1, 1), (3, 4, 2), (2, 1, 1), (4, 2, 3)])
def test_bubble_of_zb_h2(p: int, costs: tuple[int, int, int]) -> None:
    """(p - 1)(F + B - 2 W), as Qi et al., ICLR 2024, have it; zero if F = B = W."""
    f, b, w = costs
    for m in (2 * p - 1, 2 * p, 3 * p + 1):
        expected = m * (f + b + w) + (p - 1) * (f + b - 2 * w)
        assert span(chain(p, m, F=f, B=b, W=w), "zb-h2") == expected
        # with delays: a gradient's and an activation's per rank
        linked = chain(p, m, F=10 * f, B=10 * b, W=10 * w, comm=1)
        assert span(linked, "zb-h2") == 10 * expected + 2 * (p - 1)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_eager_1f1b_hides_delays_up_to_half_a_period(p: int) -> None:
    """The round trip to the last rank, (p - 1 - d)(F + BW + 2 c), fits 2 (p - 1 - d) periods."""
    for m in (1, p, 2 * p, 3 * p + 1):
        for c in (0, 1, 5, 15):
            problem = chain(p, m, F=10, B=12, W=8, comm=c)
            expected = m * 30 + (p - 1) * (30 + 2 * c)
            assert BASELINES["eager-1f1b"](problem).makespan == expected
            if c and m > p:  # 1F1B has no microbatch to spare for the round trip
                assert BASELINES["1f1b"](problem).makespan > expected
    late = chain(p, 3 * p, F=10, B=12, W=8, comm=16)
    assert BASELINES["eager-1f1b"](late).makespan > 3 * p * 30 + (p - 1) * (30 + 2 * 16)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize(("f", "bw", "pair"), [(2, 4, 5), (4, 2, 5), (1, 8, 8), (9, 1, 9)])
def test_makespan_of_overlapped_1f1b(p: int, f: int, bw: int, pair: int) -> None:
    """The last rank starts its pairs after p F, runs m - 1 of them, then one BW per rank is left.

    A pair lasts max(F, BW, ceil((F + BW) 3 / 4)).
    """
    for m in (1, 2, p, 2 * p, 3 * p + 2):
        problem = with_pairs(chain(p, m, F=f, B=bw - 1, W=1), 3, 4)
        expected = p * (f + bw) + (m - 1) * pair
        assert BASELINES["1f1b-overlapped"](problem).makespan == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE_5)
def test_table_5_of_the_zero_bubble_paper(name: str) -> None:
    """ZB-1P gives the printed rates of ZB-1p; ZB-H2 its closed form, above those of ZB-2p."""
    problem = read_problem(BENCH / "problems" / f"{name}.json")
    printed = REFERENCE[name]["printed_bubble_of_span"]
    order = BASELINES["zb-1p"](problem).order
    of_span = bubbles(problem, time_order(problem, order, "span"))[1]
    assert of_span is not None
    assert round(of_span, 4) == printed["ZB-1p"]
    stage, p, m = problem.stages[0], len(problem.devices), problem.microbatches[0]
    c = problem.links[0, 1].F
    expected = m * (stage.F + stage.B + stage.W)
    expected += (p - 1) * (stage.F + stage.B - 2 * stage.W + 2 * c)
    schedule = time_order(problem, BASELINES["zb-h2"](problem).order, "span")
    assert schedule.span == expected
    assert check(problem, schedule) == []  # 2 p activations are allowed
    rate = bubbles(problem, schedule)[1]
    assert rate is not None
    assert printed["ZB-2p"] < rate < printed["ZB-1p"]


# Where they apply


@pytest.mark.parametrize("name", OURS)
def test_they_say_why_they_do_not_apply(name: str) -> None:
    with pytest.raises(NotApplicable, match="exactly one stage per device"):
        BASELINES[name](vee(2, 2))


@pytest.mark.slow
@settings(max_examples=60)
@given(problem=uneven_loops(1, 1))
def test_every_chain_schedule_of_every_chain_is_valid(problem: Problem) -> None:
    for name in CHAINS:
        assert rules_broken(name, problem) <= {"memory"}


@pytest.mark.parametrize("name", OURS)
@settings(max_examples=40)
@given(problem=problems())
def test_they_break_no_rule_but_memory(name: str, problem: Problem) -> None:
    assert rules_broken(name, problem) <= {"memory"}
