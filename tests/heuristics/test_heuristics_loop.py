"""Schedules for several stages per device in a loop: interleaved ones and looped BFS."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.core.checker import check
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.metrics import peak_memory
from pipesat.core.ops import Op, Pair, members
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule
from pipesat.heuristics import BASELINES
from pipesat.heuristics.interleaved import full_groups, groups_of, interleaved
from pipesat.workflows.hand_written import baseline
from tests.support.baselines import rules_broken
from tests.support.loops import loop, uneven_loops
from tests.support.problems import chain, problems, vee

LOOPS = (
    "interleaved-overlapped",
    "interleaved-zb",
    "interleaved-1f1b",
    "gis",
    "gis-h",
    "looped-bfs",
)


def text(schedule: Schedule, device: int) -> str:
    return " ".join(str(t.item) for t in schedule.devices[device])


def passes(schedule: Schedule, device: int, kind: str) -> tuple[list[int], list[int]]:
    """(microbatches, chunks) of a device's forwards or backwards, in order; two devices."""
    items = [t.item for t in schedule.devices[device]]
    ops = [op for op in items if isinstance(op, Op) and op.kind == kind]
    return [op.microbatch for op in ops], [op.stage // 2 for op in ops]


# Orders, written down by hand


@pytest.mark.parametrize("device", [0, 1])
def test_the_table_of_groups(device: int) -> None:
    """Megatron's example: 2 ranks, 5 microbatches, 2 chunks, groups of 3."""
    schedule = interleaved(loop(2, 2, 5), group=3)
    microbatches = [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    chunks = [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    assert passes(schedule, device, "F") == (microbatches, chunks)
    assert passes(schedule, device, "BW") == (microbatches, [1 - chunk for chunk in chunks])


@pytest.mark.parametrize("device", [0, 1])
def test_the_table_of_groups_in_pairs(device: int) -> None:
    """The same order, one more forward first: 3 + 2 (1 - d) + 1; then each F with the next BW."""
    schedule = baseline("interleaved-overlapped", loop(2, 2, 5, overlap=(3, 4)), group=3)
    items = [t.item for t in schedule.devices[device]]
    alone = 3 + 2 * (1 - device) + 1
    assert all(isinstance(item, Op) and item.kind == "F" for item in items[:alone])
    assert sum(isinstance(item, Pair) for item in items) == 10 - alone
    ops = [op for item in items for op in members(item)]
    microbatches = [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    chunks = [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    for kind, order in (("F", chunks), ("BW", [1 - chunk for chunk in chunks])):
        passed = [(op.microbatch, op.stage // 2) for op in ops if op.kind == kind]
        assert passed == [*zip(microbatches, order, strict=True)]


def test_interleaved_1f1b_order() -> None:
    # warm-up: one group of 2, and 2 per rank that follows
    schedule = BASELINES["interleaved-1f1b"](loop(2, 2, 4))
    first = "0F0 0F1 2F0 2F1 0F2 2BW0 0F3 2BW1 2F2 0BW0 2F3 0BW1 2BW2 2BW3 0BW2 0BW3"
    assert text(schedule, 0) == first
    last = "1F0 1F1 3F0 3BW0 3F1 3BW1 1F2 1BW0 1F3 1BW1 3F2 3BW2 3F3 3BW3 1BW2 1BW3"
    assert text(schedule, 1) == last


def test_gis_needs_one_warm_up_forward_less_per_rank() -> None:
    schedule = BASELINES["gis"](loop(2, 2, 2))
    assert text(schedule, 0) == "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1"
    assert text(schedule, 1) == "1F0 1F1 3F0 3BW0 3F1 3BW1 1BW0 1BW1"


def test_gis_h_goes_in_groups_of_half_the_ranks() -> None:
    # p = 2, g = 1: every microbatch passes both chunks before the next one
    schedule = BASELINES["gis-h"](loop(2, 2, 2))
    assert text(schedule, 0) == "0F0 2F0 0F1 2BW0 2F1 0BW0 2BW1 0BW1"


def test_interleaved_overlapped_order() -> None:
    schedule = BASELINES["interleaved-overlapped"](loop(2, 2, 2, overlap=(3, 4)))
    assert text(schedule, 0) == "0F0 0F1 2F0 2F1 2BW0 2BW1 0BW0 0BW1"  # all warm-up
    assert text(schedule, 1) == "1F0 1F1 3F0 (3F1+3BW0) 3BW1 1BW0 1BW1"
    in_turn = BASELINES["interleaved-overlapped"](loop(2, 2, 2))
    assert text(in_turn, 1) == "1F0 1F1 3F0 3F1 3BW0 3BW1 1BW0 1BW1"


def test_interleaved_zb_order_delays_w_by_the_rank() -> None:
    schedule = BASELINES["interleaved-zb"](loop(2, 2, 2))
    assert text(schedule, 0) == "0F0 0F1 2F0 2F1 2B0 2W0 2B1 2W1 0B0 0W0 0B1 0W1"
    assert text(schedule, 1) == "1F0 1F1 3F0 3B0 3F1 3B1 3W0 1B0 3W1 1B1 1W0 1W1"


def test_looped_bfs_order() -> None:
    schedule = BASELINES["looped-bfs"](loop(2, 2, 2))
    assert text(schedule, 0) == "0F0 0F1 2F0 2F1 2BW1 2BW0 0BW1 0BW0"


# Groups


@given(st.integers(1, 60), st.integers(1, 12))
def test_groups_cover_all_microbatches(m: int, size: int) -> None:
    short, full = groups_of(m, size), full_groups(m, size)
    assert sum(short) == sum(full) == m
    assert set(short[:-1]) <= {size}
    assert 0 < short[-1] <= size
    assert min(full) >= min(size, m)
    assert max(full) - min(full) <= 1
    if m % size == 0:
        assert short == full == [size] * (m // size)


def test_groups_from_outside_are_those_of_the_function() -> None:
    problem = loop(2, 2, 5)
    assert baseline("interleaved-1f1b", problem, group=3).order == (
        interleaved(problem, group=3).order
    )
    with pytest.raises(BadInput, match="group: got 3, only interleaved-1f1b and"):
        baseline("gis", problem, group=3)


def test_a_group_has_at_least_one_microbatch() -> None:
    with pytest.raises(BadInput, match="group: got 0, expected at least 1 microbatch"):
        interleaved(loop(2, 2, 2), group=0)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("per_hop", [1, 2])
def test_the_smallest_group_that_works(p: int, per_hop: int) -> None:
    """2 g >= per_hop (p - 1), with many groups of three chunks.

    Rank 0's F number k waits for F number k - g of the last rank; that one follows B number
    k - g - w - 1 there, w being the last rank's warm-up, which waits for rank 0's B number
    k - 2 g - w - 1. That B follows rank 0's F number k - 2 g - 1 + per_hop (p - 1), which must be
    an earlier one than k. (Two chunks can be lucky: those Bs are then the last stage's.)
    """
    for g in range(1, p + 2):
        problem = loop(p, 3, 6 * g)
        if 2 * g >= per_hop * (p - 1):
            assert check(problem, interleaved(problem, g, per_hop)) == []
        else:
            with pytest.raises(NotApplicable, match=f"a group of {g} is too small for {p} ranks"):
                interleaved(problem, g, per_hop)


# Memory and closed forms


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("v", [2, 3, 4])
def test_chunk_activations_in_flight(p: int, v: int) -> None:
    problem = loop(p, v, 3 * p)
    held = {name: peak_memory(problem, BASELINES[name](problem)) for name in LOOPS}
    assert held["interleaved-1f1b"] == [(v - 1) * p + 2 * (p - 1 - d) + 1 for d in range(p)]
    assert held["gis"] == [(v - 1) * p + (p - 1 - d) + 1 for d in range(p)]
    assert held["interleaved-zb"] == [v * p for _ in range(p)]  # d Ws wait on rank d
    assert held["looped-bfs"] == [3 * p * v for _ in range(p)]
    assert held["interleaved-overlapped"] == [
        (v - 1) * p + 2 * (p - 1 - d) + 2 for d in range(p)
    ]  # one more in the warm-up, none of which the first pair's backward frees before its end


@pytest.mark.parametrize(("p", "g"), [(2, 1), (3, 2), (4, 2), (4, 3), (6, 3), (6, 5), (7, 4)])
@pytest.mark.parametrize("v", [2, 3])
def test_memory_and_bubble_of_gis(p: int, g: int, v: int) -> None:
    """PipeOffload: g (v - 1) + p chunks, and (p - g)(v - 1) times F + BW more bubble."""
    problem = loop(p, v, 3 * g, F=2, B=1, W=1)
    schedule = interleaved(problem, g, per_hop=1)
    assert peak_memory(problem, schedule)[0] == g * (v - 1) + p
    assert schedule.makespan == 4 * (3 * g * v + p - 1 + (p - g) * (v - 1))
    if g == (p + 1) // 2:
        assert BASELINES["gis-h"](problem).order == schedule.order


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("v", [2, 3, 4])
@pytest.mark.parametrize("costs", [(1, 1, 1), (3, 4, 2), (4, 2, 1)])
def test_bubbles_without_delays(p: int, v: int, costs: tuple[int, int, int]) -> None:
    """(p - 1)(f + bw) and (p - 1)(f + b - w), f, b, w being a chunk's times."""
    f, b, w = costs
    for m in (p, 2 * p, 2 * p + 1, 3 * p + 2):
        problem = loop(p, v, m, F=f, B=b, W=w)
        fused = (m * v + p - 1) * (f + b + w)
        assert BASELINES["interleaved-1f1b"](problem).makespan == fused
        assert BASELINES["looped-bfs"](problem).makespan == fused
        if m % p == 0:
            assert BASELINES["gis"](problem).makespan == fused
        split = m * v * (f + b + w) + (p - 1) * (f + b - w)
        assert BASELINES["interleaved-zb"](problem).makespan == split


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("v", [2, 3])
@pytest.mark.parametrize(("f", "bw", "pair"), [(2, 4, 5), (4, 2, 5), (1, 8, 8), (9, 1, 9)])
def test_makespan_of_interleaved_overlapped(p: int, v: int, f: int, bw: int, pair: int) -> None:
    """The last rank reaches the last chunk after p v forwards of one microbatch, then pairs."""
    for m in (p, 2 * p, 4 * p):
        problem = loop(p, v, m, F=f, B=bw - 1, W=1, overlap=(3, 4))
        expected = p * v * (f + bw) + (m * v - (v - 1) * p - 1) * pair
        assert BASELINES["interleaved-overlapped"](problem).makespan == expected


# Where they apply


@pytest.mark.parametrize("name", LOOPS)
def test_they_say_why_they_do_not_apply(name: str) -> None:
    with pytest.raises(NotApplicable, match="at least two stages per device"):
        BASELINES[name](chain(2, 2))
    with pytest.raises(NotApplicable, match="go round the devices"):
        BASELINES[name](vee(2, 2))


def test_gis_h_says_when_its_last_group_is_too_small() -> None:
    # groups of 3 and 1 on 6 ranks
    with pytest.raises(NotApplicable, match="a group of 1 is too small for 6 ranks"):
        BASELINES["gis-h"](loop(6, 3, 4))


@pytest.mark.slow
@pytest.mark.parametrize("p", range(1, 8))
def test_any_number_of_microbatches_will_do(p: int) -> None:
    for v in (2, 3):
        for m in range(1, 2 * p + 3):
            for overlap in (None, (3, 4)):
                problem = loop(p, v, m, overlap=overlap)
                for name in set(LOOPS) - {"gis-h"}:
                    assert check(problem, BASELINES[name](problem)) == []


@pytest.mark.slow
@settings(max_examples=60)
@given(problem=uneven_loops(2, 4))
def test_every_loop_schedule_of_every_loop_is_valid(problem: Problem) -> None:
    for name in LOOPS:
        try:
            schedule = BASELINES[name](problem)
        except NotApplicable:
            assert name == "gis-h"
            continue
        assert {violation.rule for violation in check(problem, schedule)} <= {"memory"}


@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=40)
@given(problem=problems())
def test_they_break_no_rule_but_memory(name: str, problem: Problem) -> None:
    assert rules_broken(name, problem) <= {"memory"}
