"""The automatic schedule against bounds, printed rates and the published program's results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.shared.gap_filling import Switches, fill_gaps
from pipesat.heuristics.zb_auto import settings, zb_auto, zb_auto_span
from pipesat.problem.geometry import ranks_of
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem, read_problem
from pipesat.schedule.arrays_of import arrays_of, order_of
from pipesat.schedule.metrics import bubbles
from pipesat.schedule.schedule import Order
from pipesat.schedule.timing import time_order
from tests.support.paths import ROOT
from tests.support.problems import chain, vee
from tests.support.published_forms import zb_h1_span

BENCH = ROOT / "bench" / "plain"
REFERENCE = json.loads((BENCH / "reference.json").read_text())
# Table 5's largest rows give the same picture and take a minute; "large-..." stands for their size
LARGE = ("28.3B-p32", "p16-m128", "p16-m64")
TABLE_5 = [n for n in sorted(REFERENCE) if "table5" in n and not any(part in n for part in LARGE)]
PEERS = {
    name: known["peers"]["zb (auto schedule)"]
    for name, known in sorted(REFERENCE.items())
    if not any(part in name for part in LARGE)
    and known.get("peers", {}).get("zb (auto schedule)", {}).get("within_cap")
}
SMALL = 3_100  # ops, for what looks at several schedules of a problem


def bench(name: str) -> Problem:
    return read_problem(BENCH / "problems" / f"{name}.json")


def filled(problem: Problem, switches: Switches) -> Order:
    made = fill_gaps(problem, ranks_of(problem, "chain"), switches)
    return order_of(problem, arrays_of(problem), made.order)


def rows(problem: Problem, switches: Switches) -> list[str]:
    order = filled(problem, switches)
    return [" ".join(map(str, row)) for row in order]


def least_span(problem: Problem) -> int:
    return time_order(problem, zb_auto_span(problem).order, "span").span


# Orders by hand. Two ranks, F = B = 2 and W = 1, no delays.


def test_w_goes_where_the_gap_holds_it() -> None:
    # rank 1: F0 2-4, B0 4-6, F1 6-8 (its input came at 4), B1 8-10, W0 W1
    # rank 0: F0 0-2, F1 2-4, B0 6-8, then nothing to wait for but B1 at 10: the gap holds W0
    problem = chain(2, 2, F=2, B=2, W=1)
    assert rows(problem, Switches()) == ["0F0 0F1 0B0 0W0 0B1 0W1", "1F0 1B0 1F1 1B1 1W0 1W1"]


def test_w_waits_for_a_gap_of_its_length_unless_a_part_will_do() -> None:
    # as above, W = 3: the gap of 2 from B0's end at 8 to B1 at 10 holds half of it, not all
    problem = chain(2, 2, F=2, B=2, W=3)
    assert rows(problem, Switches())[0] == "0F0 0F1 0B0 0B1 0W0 0W1"
    assert rows(problem, Switches(part=0.5))[0] == "0F0 0F1 0B0 0W0 0B1 0W1"
    # idling 2 would make rank 0 the worst of all: so far no rank has idled
    assert rows(problem, Switches(critical="idle"))[0] == "0F0 0F1 0B0 0W0 0B1 0W1"


def test_memory_forces_w() -> None:
    # F and W hold 2 each, room 3: no second F before W0 has run
    problem = chain(1, 2, cap=3, held=(2, 2), backward="split")
    assert rows(problem, Switches()) == ["0F0 0B0 0W0 0F1 0B1 0W1"]


def test_a_warm_up_forward_that_delays_the_first_backward() -> None:
    # rank 0: the first B can start at 2 + 2 + 2 = 6; a third F would run from 4 to 7
    stages = [
        {"device": 0, "F": 2, "B": 2, "W": 2},
        {"device": 1, "F": 2, "B": 1, "W": 2},
    ]
    problem = parse_problem(
        {"format": FORMAT, "microbatches": 3, "devices": [{}, {}], "stages": stages}
    )
    assert rows(problem, Switches())[0].startswith("0F0 0F1 0B0 ")
    assert rows(problem, Switches(late_first=True))[0].startswith("0F0 0F1 0F2 0B0 ")


def test_ranks_that_fuse() -> None:
    problem = chain(2, 1, BW=2, backward="either")
    assert rows(problem, Switches()) == ["0F0 0B0 0W0", "1F0 1B0 1W0"]
    assert rows(problem, Switches(fused_ranks=frozenset({1}))) == ["0F0 0B0 0W0", "1F0 1BW0"]


# Quality


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch-6.2B-p4-m8-cap8", "torch-6.2B-p8-m32-cap24"])
def test_which_ranks_fuse_is_sought(name: str) -> None:
    problem = bench(name)
    tried = [
        fill_gaps(problem, ranks_of(problem, "chain"), each).makespan for each in settings(problem)
    ]
    assert zb_auto(problem).makespan < min(tried)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 3), (4, 7), (5, 20), (8, 16)])
def test_no_bubble_where_memory_and_equal_times_allow_it(p: int, m: int) -> None:
    """Qi et al., section 2.2: F = B = W and 2p - 1 activations give zero bubble, here for
    held_after_B = held_after_F, so that W still to run count in full."""
    problem = chain(p, m, F=5, B=5, W=5, cap=2 * p - 1)
    assert least_span(problem) == 15 * m


@pytest.mark.parametrize("p", [2, 3, 5, 8])
@pytest.mark.parametrize(("F", "B", "W", "delay"), [(10, 11, 6, 1), (9, 9, 9, 0), (12, 8, 4, 2)])
def test_at_1f1bs_memory_it_reaches_zb_h1(p: int, F: int, B: int, W: int, delay: int) -> None:
    for m in (2 * p, 3 * p):
        problem = chain(p, m, F=F, B=B, W=W, cap=2 * p, comm=delay, held=(2, 1))
        assert zb_auto(problem).makespan <= zb_h1_span(p, m, F, B, W, delay)


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_never_behind_the_published_program(name: str) -> None:
    """Its orders were replayed under this project's rules; see the benchmark's README."""
    problem = bench(name)
    schedule = zb_auto(problem)
    assert schedule.makespan <= PEERS[name]["makespan"]
    if problem.op_count <= SMALL:
        assert check(problem, schedule) == []
        assert least_span(problem) <= PEERS[name]["span"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE_5)
def test_table_5_of_the_zero_bubble_paper(name: str) -> None:
    """Qi et al., ICLR 2024, Table 5: the bubble rates of ZB-1p and ZB-2p, or less."""
    problem = bench(name)
    printed = REFERENCE[name]["printed_bubble_of_span"]["ZB-1p" if "cap1" in name else "ZB-2p"]
    order = zb_auto_span(problem).order
    of_span = bubbles(problem, time_order(problem, order, "span"))[1]
    assert of_span is not None
    assert round(of_span, 4) <= printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in REFERENCE if name.startswith(("lowcap-6.2B-p8", "torch", "adaptis"))]
)
def test_close_to_list_scheduling_where_memory_is_short(name: str) -> None:
    problem = bench(name)
    best = BASELINES["list-scheduling"](problem).makespan
    assert zb_auto(problem).makespan <= 1.02 * best


# Safety


def test_room_is_kept_for_a_backward_that_adds_memory() -> None:
    # F holds 4, B adds 3, room 11: two forwards (8) leave room for one B (11), three would not
    problem = chain(1, 6, cap=11, held=(4, 7), backward="split")
    for switches in settings(problem):
        order = filled(problem, switches)
        assert check(problem, time_order(problem, order)) == []
        assert sum(isinstance(item, Op) and item.kind == "F" for item in order[0][:3]) <= 2


@pytest.mark.parametrize("backward", ["split", "fused", "either"])
def test_room_is_kept_for_what_a_backward_holds_while_it_runs(backward: str) -> None:
    # F holds 4, a backward 7 as it runs: as above, though B leaves 2 alone
    problem = chain(1, 6, cap=11, held=(4, 2), backward=backward, BW=2, held_in_backward=7)
    for switches in settings(problem):
        assert check(problem, time_order(problem, filled(problem, switches))) == []


def test_unlimited_memory_needs_no_capacity() -> None:
    schedule = zb_auto(chain(3, 9))
    assert check(chain(3, 9), schedule) == []


@pytest.mark.parametrize("baseline", [zb_auto, zb_auto_span])
def test_it_says_why_it_does_not_apply(baseline: Any) -> None:
    with pytest.raises(NotApplicable, match="exactly one stage per device"):
        baseline(vee(2, 2))
    with pytest.raises(NotApplicable, match="memory for one microbatch"):
        baseline(chain(2, 2, cap=1, held=(2, 1)))
