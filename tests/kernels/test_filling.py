"""Compiled gap filling against the same greedy with a heap, op for op."""

from __future__ import annotations

from random import Random

import pytest

from pipesat.check.checker import check
from pipesat.heuristics.shared.gap_filling import Switches, fill_gaps
from pipesat.kernels.filling import CRITICAL, DEPTHS, PATTERNS
from pipesat.problem.geometry import ranks_of
from pipesat.schedule.arrays_of import arrays_of, order_of
from pipesat.schedule.timing import time_codes
from tests.oracle.generator import FIT
from tests.oracle.kernels import gap_filling as oracle
from tests.support.problems import of


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
    more = {"devices": (1, 9), "stages": 9, "microbatches": (1, 20), "ops": 10**4}
    more |= {"shapes": ("chain",), "memory": FIT, "held": 0.5, "zeros": (0.0, 0.2)}
    for number in range(3):
        problem = of("plain", f"{seed} {number}", **more)
        ranks = ranks_of(problem, "chain")
        for switches in (settings(chance) for _ in range(8)):
            found = fill_gaps(problem, ranks, switches)
            order = order_of(problem, arrays_of(problem), found.order)
            assert (found.makespan, found.span, order) == oracle.fill_gaps(problem, ranks, switches)
        schedule = time_codes(problem, found.order)
        assert check(problem, schedule) == []
        assert (schedule.makespan, schedule.span) == (found.makespan, found.span)
