"""1F1B over slices and over graphs: the published counts and lengths, by formula."""

from __future__ import annotations

import pytest

from pipesat.check.checker import check
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.problem.problem import Problem
from pipesat.schedule.metrics import peak_memory

SHAPES = [(2, 2, 4), (4, 4, 16), (4, 3, 9), (3, 8, 8), (8, 2, 20), (1, 2, 4)]


def chain(p: int, n: int, m: int, comm: int = 0) -> Problem:
    return Problem.chain(p, m, F=2, B=1, W=2, backward="fused", held_after_F=1, slices=n, comm=comm)


@pytest.mark.parametrize(("p", "n", "m"), SHAPES)
def test_seq1f1b_on_a_uniform_chain(p: int, n: int, m: int) -> None:
    problem = chain(p, n, m)
    schedule = BASELINES["seq1f1b"](problem)
    assert check(problem, schedule) == []
    assert peak_memory(problem, schedule) == [min(p - d + n - 1, m) for d in range(p)]
    assert schedule.makespan == (m + p - 1) * (2 + 3)


@pytest.mark.parametrize(("p", "n", "m"), SHAPES)
def test_slimpipe_holds_two_more_slices_per_rank(p: int, n: int, m: int) -> None:
    problem = chain(p, n, m)
    schedule = BASELINES["slimpipe"](problem)
    assert check(problem, schedule) == []
    assert peak_memory(problem, schedule) == [min(n + 2 * (p - 1 - d), m) for d in range(p)]


def test_slimpipe_hides_delays_that_seq1f1b_waits_for() -> None:
    problem = chain(4, 4, 32, comm=1)
    assert BASELINES["slimpipe"](problem).makespan == 32 * 5 + 3 * (5 + 2)
    assert BASELINES["seq1f1b"](problem).makespan > 32 * 5 + 3 * (5 + 2)


@pytest.mark.parametrize(
    ("p", "v", "n", "m"), [(2, 2, 4, 8), (4, 2, 2, 16), (4, 3, 4, 16), (2, 2, 3, 6)]
)
def test_interleaved_over_slices_is_valid_and_shorter(p: int, v: int, n: int, m: int) -> None:
    problem = Problem.loop(p, m, chunks=v, F=2, B=1, W=2, backward="fused", slices=n)
    schedule = BASELINES["seq1f1b-interleaved"](problem)
    assert check(problem, schedule) == []
    assert schedule.makespan < v * (m + p - 1) * 5


def test_by_depth_warms_up_along_the_longest_way() -> None:
    stages = [{"device": d, "F": 2, "B": 1, "W": 2, "backward": "fused"} for d in range(4)]
    for stage in stages:
        stage["held_after_F"] = 1
    edges = [[0, 1], [1, 3], [2, 3]]
    problem = Problem.from_stages(stages, 8, edges=edges)
    schedule = BASELINES["1f1b-by-depth"](problem)
    assert check(problem, schedule) == []
    assert peak_memory(problem, schedule) == [3, 2, 2, 1]
    assert schedule.makespan == (8 + 2) * 5
    with pytest.raises(NotApplicable, match="needs a graph"):
        BASELINES["1f1b-by-depth"](Problem.chain(2, 4, F=1, B=1, W=1))
