"""Compiled periods against unrolled runs, on orders drawn by chance."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from pipesat.check.checker import check
from pipesat.kernels.cycles import fits, moved, period_of
from pipesat.problem.problem import Problem
from pipesat.schedule.timing import time_order
from pipesat.solver.growth.periodic import _Annealing, _variants
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.model.left_out import with_microbatches
from tests.support.problems import chain, vee

_OFTEN = 12  # periods until a run goes on at its own


def found(problem: Problem, together: int) -> _Annealing:
    return _Annealing(problem, _variants(problem), together, 0)


def unrolled(search: _Annealing, problem: Problem, periods: int) -> tuple[float, bool]:
    """When so many periods have run, and whether they kept to memory."""
    search.problem = with_microbatches(problem, [periods * search.together])
    timed = time_order(search.problem, search.order(search.problem))
    return timed.makespan, not check(search.problem, timed)


@pytest.mark.parametrize("seed", range(12))
def test_the_period_is_what_a_long_run_takes_and_memory_what_it_holds(seed: int) -> None:
    chance = Random(seed)
    problem = chance.choice(
        [
            chain(3, 24, F=2, B=3, W=chance.choice([1, 2]), comm=seed % 2, cap=6, held=(2, 1)),
            vee(2, 24, cap=6, held_after_B=1),
        ]
    )
    search = found(problem, chance.choice([1, 2, 3]))
    c, row, turn = search.cycle, *next(search._starts(Clock(9.0)))
    kept = row.copy(), turn.copy()
    for _ in range(20):
        for _ in range(3):
            moved(c, row, turn, chance.randrange(len(row)), chance.choice([-3, -1, 1, 2]))
        (waits, circle), value = np.zeros((2, len(row) + 1), np.int64), np.zeros(len(row))
        period = period_of(c, row, turn, waits, value, circle, math.inf)
        if math.isinf(period):
            row[:], turn[:] = kept
            continue
        kept = row.copy(), turn.copy()
        search.best = np.stack(kept)
        (early, _), (late, keeps) = (unrolled(search, problem, n) for n in (4 * _OFTEN, 5 * _OFTEN))
        assert (late - early) / _OFTEN == pytest.approx(period)
        assert keeps == all(fits(c, row, turn, d) for d in range(len(c.slack)))
        assert math.isinf(period_of(c, row, turn, waits, value, circle, 0.99 * period))


def test_ops_that_wait_for_each_other_have_no_period() -> None:
    """On two devices, a backward of the second stage before its forward of a later microbatch."""
    search = found(chain(2, 8, cap=2), 1)
    c, (row, turn) = search.cycle, next(search._starts(Clock(9.0)))
    (waits, circle), value = np.zeros((2, len(row) + 1), np.int64), np.zeros(len(row))
    assert period_of(c, row, turn, waits, value, circle, math.inf) == 5  # F F B B, and W
    turn[search.numbers[0, 1, 0]] -= 1  # home before it has been there
    assert math.isinf(period_of(c, row, turn, waits, value, circle, math.inf))


def test_an_op_passes_no_other_of_its_stage_and_kind_or_microbatch() -> None:
    search = found(chain(1, 8), 2)
    c, (row, turn) = search.cycle, next(search._starts(Clock(9.0)))
    assert [search.ops[at].kind for at in row] == ["F", "B", "W", "F", "B", "W"]
    assert moved(c, row, turn, 2, 3) == 2  # W of the first, up to the other W
    assert [search.ops[at].kind for at in row] == ["F", "B", "F", "B", "W", "W"]
    assert moved(c, row, turn, 0, -1) == 1  # around: the F of a period before
    assert turn.tolist() == [-1, 0, 0, 0, 0, 1]
