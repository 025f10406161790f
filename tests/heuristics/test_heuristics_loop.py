"""Schedules for several stages per device in a loop: interleaved ones and looped BFS."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.check.checker import check
from pipesat.compare.hand_written import baseline
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.interleaved import full_groups, groups_of, interleaved
from pipesat.problem.ops import Op, Pair, members
from pipesat.schedule.schedule import Schedule
from tests.support.problems import chain, loop, vee

LOOPS = (
    "interleaved-overlapped",
    "interleaved-zb",
    "interleaved-1f1b",
    "gis",
    "gis-h",
    "looped-bfs",
)


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
@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_any_number_of_microbatches_will_do(p: int) -> None:
    for v in (2, 3):
        for m in range(1, 2 * p + 3):
            for overlap in (None, (3, 4)):
                problem = loop(p, v, m, overlap=overlap)
                for name in set(LOOPS) - {"gis-h"}:
                    assert check(problem, BASELINES[name](problem)) == []
