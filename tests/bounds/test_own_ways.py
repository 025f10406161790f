"""Bounds of microbatches that differ, whatever their order: by hand, and by an oracle."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipesat.bounds.closed_form import closed_form_bounds
from pipesat.bounds.memory_counts import shares
from pipesat.problem.problem_file import FORMAT, parse_problem
from tests.oracle.exact import optimum


def chain(
    devices: int, counts: dict[int, int], order: str, memory: int | None = None
) -> dict[str, Any]:
    """F = 1 and BW = 2 for length 1, which holds 1."""
    stage = {"F": 1, "B": 1, "W": 1, "backward": "fused", "held_after_F": 1}
    return {
        "format": FORMAT,
        "devices": [{"memory": memory}] * devices,
        "stages": [{"device": d} | stage for d in range(devices)],
        "microbatches": [
            {"name": str(x), "count": count, "time": [x, 1], "held": [x, 1]}
            for x, count in counts.items()
        ],
        "order": order,
    }


def bound_of(document: dict[str, Any], argument: str) -> int:
    bounds = closed_form_bounds(parse_problem(document), "makespan")
    return max(bound.value for bound in bounds if argument in bound.source)


@pytest.mark.parametrize("order", ["free", "same"])
def test_each_other_microbatch_adds_a_forward_to_the_pass_of_the_longest(order: str) -> None:
    """A pass of 4 (1 + 1 + 2 + 2), and two others: ahead of it F, or overtaking it, of 1 each."""
    document = chain(2, {4: 1, 1: 2}, order)
    assert bound_of(document, "those around it") == 24 + 2


@pytest.mark.parametrize("order", ["free", "same"])
def test_what_runs_until_the_longest_comes_has_to_fit(order: str) -> None:
    """If both others are ahead for good, device 1 has 2 F's and 2 BW's to run from 1 to 2 + 4.

    That is 1 too much. One that is behind on the way back adds BW of 2, not F of 1, as well.
    """
    document = chain(2, {4: 1, 1: 2}, order)
    assert bound_of(document, "counts around one of 4") == 24 + 2 + 1
    assert optimum(document, "makespan") == 27


def test_heads_and_tails_are_of_each_microbatch() -> None:
    """Device 1: the short F from 1 to 2, the long F to 4 and BW to 8, the short BW to 10.

    From there the short one's way home is 2; that of the long one, 4 from 8 on. All at rates of
    F = 1 and BW = 2: the load of 9 starts at 1, and only the short one may be first and last.
    """
    document = chain(2, {2: 1, 1: 1}, "free")
    assert bound_of(document, "own heads and tails of device 1") == 12


def test_two_that_do_not_fit_at_once_come_one_after_the_other() -> None:
    """Each holds 3 of 5 on the first device for 3 (1 + 1 + 2 + 2) = 18."""
    document = chain(2, {3: 2, 1: 1}, "free", memory=5)
    assert bound_of(document, "area of device 0") >= 36


@given(st.sets(st.integers(0, 12), min_size=2, max_size=4), st.integers(1, 12))
def test_shares_of_what_fits_are_at_most_the_whole(sizes: set[int], slack: int) -> None:
    for count in range(1, 6):
        for held in combinations_with_replacement(sorted(sizes), count):
            if sum(held) <= slack:
                for whole, share in shares(sizes, slack):
                    assert sum(map(share, held)) <= whole
