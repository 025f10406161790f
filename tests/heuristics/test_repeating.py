"""What repeats is left out of greedy runs, and they come out the same."""

from __future__ import annotations

from collections import Counter

from pipesat.heuristics.list_scheduling import Policy, Simulation
from pipesat.heuristics.registry import never
from tests.support.problems import chain
from tests.support.repeating import left_out


def test_runs_with_parts_left_out_are_the_same() -> None:
    found = sum(map(left_out, range(24)), Counter[str]())
    assert found["alone: runs that leave out"] > 8
    assert found["in pairs: runs that leave out"] > 8


def test_a_long_run_is_hardly_simulated() -> None:
    run = Simulation(chain(3, 9000, F=4, B=5, W=3, cap=5, comm=1), Policy())
    assert run.order(never) is not None
    assert sum(map(len, run.rows)) < 100 * 9
    assert run.left_out is not None
    assert run.left_out.microbatches > 8900
