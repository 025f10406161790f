"""Whether a problem with memory modes has a schedule, and the one that always exists then."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.bounds.feasibility import preflight, smallest_capacities, sure_order
from pipesat.check.checker import check
from pipesat.core.errors import Infeasible
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.timing import time_order

OFFLOAD = {"name": "offload", "offload": {"out": 1, "in": 1, "held": 1}}
RECOMPUTE = {"name": "recompute", "held_after_F": 2, "held_in_backward": 5}


def two_chunks(memory: int, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Problem:
    """Two chunks on one device, each holds 4; its backward is fused."""
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 4, "backward": "fused"}
    stages = [stage | {"modes": modes} for modes in (first, second)]
    devices = [{"memory": memory, "static": 10}]
    return parse_problem(
        {"format": FORMAT, "microbatches": 2, "devices": devices, "stages": stages}
    )


@pytest.mark.parametrize(
    ("first", "second", "need"),
    [
        ([], [], 8),  # both hold 4 at once
        ([OFFLOAD], [], 5),  # 1 beside the second's 4
        ([], [OFFLOAD], 8),  # the second's own copy helps nobody
        ([RECOMPUTE], [], 6),  # 2 beside 4; its own backward holds 5
        ([], [RECOMPUTE], 8),  # keep: 4 beside 4; recomputed, its backward would hold 4 + 5
        ([RECOMPUTE, OFFLOAD], [RECOMPUTE], 5),
        ([], [{"name": "less", "held_after_F": 2}], 6),  # 4 beside the second's 2: it is not kept
    ],
)
def test_the_smallest_capacity_is_that_of_the_best_modes(
    first: list[dict[str, Any]], second: list[dict[str, Any]], need: int
) -> None:
    (found,) = smallest_capacities(two_chunks(99, first, second))
    assert found.capacity == 10 + need
    problem = two_chunks(10 + need, first, second)
    assert check(problem, time_order(problem, sure_order(problem))) == []
    with pytest.raises(Infeasible, match=f"the smallest capacity that works is {10 + need}"):
        preflight(two_chunks(10 + need - 1, first, second))


def test_what_fits_is_kept() -> None:
    problem = two_chunks(18, [OFFLOAD], [OFFLOAD])
    assert {op.mode for row in sure_order(problem) for op in row} == {0}  # type: ignore[union-attr]
