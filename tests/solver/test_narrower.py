"""Narrower problems: what is left without pairs, or with one mode, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.core.checker import check
from pipesat.core.ops import Op, Pair
from pipesat.core.schedule import Schedule
from pipesat.core.timing import time_order
from pipesat.files.problem_file import parse_problem
from pipesat.solver.narrower import narrower, search_narrower
from pipesat.solver.portfolio import SearchReport
from pipesat.solver.run.clock import Clock
from pipesat.solver.run.incumbent import Incumbent

STAGE: dict[str, Any] = {"device": 0, "F": 2, "B": 2, "W": 1, "BW": 3, "held_after_F": 2}
LESS = {"name": "less", "backward": "fused", "BW": 4, "held_after_F": 1}
AWAY = {"name": "away", "offload": {"out": 1, "in": 1, "held": 0}}
PROBLEM: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{"memory": 4}],
    "stages": [STAGE | {"backward": "fused", "modes": [LESS, AWAY]}],
    "overlap": {"pairs": [{"ops": ["0F", "0BW"], "factor": [4, 5]}]},
}
PAIRED = ((Op(0, "F", 0), Pair(Op(0, "F", 1), Op(0, "BW", 0)), Op(0, "BW", 1)),)


@pytest.mark.parametrize(
    ("memory", "names"),
    [(4, ["keep", "less", "no pairs"]), (1, ["less", "no pairs"])],  # away is no plain problem
)
def test_what_is_narrower(memory: int, names: list[str]) -> None:
    problem = parse_problem(PROBLEM | {"devices": [{"memory": memory}]})
    assert [narrow.name for narrow in narrower(problem)] == names


def test_starts_with_pairs_are_none_of_the_problem_without() -> None:
    problem = parse_problem(PROBLEM)
    start = time_order(problem, PAIRED)
    assert check(problem, start) == []
    searched: list[tuple[str, list[Schedule]]] = []

    def search(own: Incumbent, starts: list[Schedule]) -> SearchReport:
        searched.append((str(own.problem.overlap is None), starts))
        return SearchReport([], [])

    mine = Incumbent(problem, "makespan", Clock(60))
    report = search_narrower(search, lambda _: [], mine, [start])
    assert report.failed == []
    assert [alone for alone, _ in searched] == ["False", "False", "True"]
    assert mine.schedule is not None  # what was found in one mode is a schedule of the problem
    assert check(problem, mine.schedule) == []
