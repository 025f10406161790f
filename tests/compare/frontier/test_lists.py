"""What memory buys where microbatches differ, held against trying everything."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from pipesat.compare.frontier.capacities import at_cap, attainable, least_feasible_cap, scale_of
from pipesat.compare.frontier.memory import frontier, min_memory
from pipesat.core.errors import BadInput
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from tests.oracle.exact import optimum


def two_long(order: str) -> dict[str, Any]:
    """Two devices; a long microbatch holds 6, each of two short ones 3."""
    stage = {"F": 2, "B": 2, "W": 1, "held_after_F": 3, "backward": "fused"}
    return {
        "format": "pipesat.problem/1",
        "devices": [{}, {}],
        "stages": [stage | {"device": device} for device in range(2)],
        "microbatches": [
            {"name": "short", "count": 1},
            {"name": "long", "count": 1, "time": [2, 1], "held": [2, 1]},
            {"name": "short", "count": 1},
        ],
        "order": order,
    }


def best_at(problem: Problem, cap: int) -> int | None:
    return optimum(at_cap(problem, cap).document)


def test_the_smallest_cap_is_that_of_the_largest_microbatch() -> None:
    problem = parse_problem(two_long("free"))
    assert least_feasible_cap(problem) == 6
    # short ones alone or together, beside the long one or without it
    assert list(attainable(problem, 12)) == [0, 3, 6, 9, 12]
    assert scale_of(problem) is None  # how much 1F1B holds depends on what comes when


@pytest.mark.parametrize("order", ["given", "same", "free"])
def test_values_and_bounds_agree_with_the_oracle(order: str) -> None:
    problem = parse_problem(two_long(order))
    caps = [6, 9, 12]
    found = frontier(problem, caps=caps, time_limit=4, workers=1)
    for row in found[None].rows[:-1]:
        best = best_at(problem, row.cap or 0)
        assert best is not None
        assert row.known is not None
        assert row.bound is not None
        assert row.bound.value <= best <= row.known.value
        assert row.standing.status != "optimal" or row.known.value == best
    assert all(a.known.value >= b.known.value for a, b in pairwise(found[None].rows))  # type: ignore[union-attr]


def test_the_smallest_cap_by_the_oracle() -> None:
    problem = parse_problem(two_long("same"))
    best = best_at(problem, 100)
    enough = [cap for cap in (6, 9, 12) if best_at(problem, cap) == best]
    found = min_memory(problem, within=0, time_limit=4, workers=1)
    cap = found.interval
    assert cap is not None
    assert found.cap is not None
    assert found.best.value == best
    assert found.cap >= min(enough)
    assert not cap.proven or found.cap == min(enough)
    assert cap.too_little is None or cap.too_little < min(enough)


def test_a_share_of_1f1bs_memory_has_no_meaning() -> None:
    with pytest.raises(BadInput, match=r"no share of 1F1B's memory, expected numbers"):
        frontier(parse_problem(two_long("free")), caps=["1f1b*0.5"])
