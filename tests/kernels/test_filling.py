"""Compiled gap filling against the same greedy with a heap, op for op."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pipesat.bounds.feasibility import capacities_by_order
from pipesat.core.arrays_of import arrays_of, order_of
from pipesat.core.checker import check
from pipesat.core.geometry import ranks_of
from pipesat.core.problem import Problem
from pipesat.core.problem_file import FORMAT, parse_problem
from pipesat.core.timing import time_codes
from pipesat.heuristics.shared.gap_filling import Switches, fill_gaps
from pipesat.kernels.filling import CRITICAL, DEPTHS, PATTERNS
from tests.oracle.kernels import gap_filling as oracle


def drawn(chance: Random) -> Problem:
    """A feasible chain of unequal stages on devices in any order, often with no room to spare."""
    p = chance.randint(1, 9)

    def stage(device: int) -> dict[str, Any]:
        times = {kind: chance.randint(0, 6) for kind in ("F", "B", "W")}
        held = {"held_after_F": chance.randint(0, 4), "held_after_B": chance.randint(0, 6)}
        held["held_in_backward"] = chance.choice([0, chance.randint(0, 9)])
        way = {"backward": chance.choice(["split", "fused", "either"]), "BW": chance.randint(0, 12)}
        return {"device": device} | times | held | way

    document: dict[str, Any] = {
        "format": FORMAT,
        "microbatches": chance.randint(1, 2 * p + 2),
        "stages": [stage(device) for device in chance.sample(range(p), p)],
        "comm": {"default": chance.randint(0, 3)},
    }
    free = parse_problem(document | {"devices": [{}] * p})
    devices = [
        {"memory": need.capacity + 2 + chance.randint(0, 12), "static": 2}
        if chance.random() < 0.9
        else {}
        for need in capacities_by_order(free)
    ]
    return parse_problem(document | {"devices": devices})


def settings(chance: Random) -> Switches:
    return Switches(
        depth=chance.choice(DEPTHS),  # type: ignore[arg-type]
        late_first=chance.random() < 0.5,
        pattern=chance.choice(PATTERNS),  # type: ignore[arg-type]
        spare=chance.random() < 0.5,
        part=chance.choice([0.0, 0.25, 0.5, 0.75, 1.0]),
        critical=chance.choice(CRITICAL),  # type: ignore[arg-type]
        fuse=chance.choice(["split", "short"]),
        fused_ranks=frozenset(chance.sample(range(9), chance.randint(0, 6))),
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_same_valid_orders_with_their_makespans_and_spans(seed: int) -> None:
    chance = Random(seed)
    for _ in range(3):
        problem = drawn(chance)
        ranks = ranks_of(problem, "chain")
        for switches in (settings(chance) for _ in range(8)):
            found = fill_gaps(problem, ranks, switches)
            order = order_of(problem, arrays_of(problem), found.order)
            assert (found.makespan, found.span, order) == oracle.fill_gaps(problem, ranks, switches)
        schedule = time_codes(problem, found.order)
        assert check(problem, schedule) == []
        assert (schedule.makespan, schedule.span) == (found.makespan, found.span)
