"""Narrower problems: what is left without pairs, or with one mode, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.core.claims import Bound
from pipesat.problem.ops import Item, Op, Pair
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Objective, Order, Schedule
from pipesat.schedule.timing import time_order
from pipesat.solver.lanes.clock import Clock
from pipesat.solver.lanes.incumbent import Incumbent
from pipesat.solver.lanes.team import SearchReport
from pipesat.solver.narrower import narrower, search_narrower
from tests.support.lanes import by

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
IN_LESS: Order = (tuple(Op(0, kind, m, 1) for m in (0, 1) for kind in ("F", "BW")),)
PAIRED: Order = ((Op(0, "F", 0), Pair(Op(0, "F", 1), Op(0, "BW", 0)), Op(0, "BW", 1)),)


@pytest.mark.parametrize(
    ("memory", "names"),
    [(4, ["keep", "less", "no pairs"]), (1, ["less", "no pairs"])],  # away is no plain problem
)
def test_what_is_narrower(memory: int, names: list[str]) -> None:
    problem = parse_problem(PROBLEM | {"devices": [{"memory": memory}]})
    assert [narrow.name for narrow in narrower(problem)] == names


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known before the search of a narrower problem that would make it needless."""
    monkeypatch.setattr("pipesat.solver.narrower.closed_forms", lambda *_: ())
    monkeypatch.setattr("pipesat.solver.narrower._NEAR", 2.0)


@pytest.mark.usefixtures("nothing_known")
@pytest.mark.parametrize(("order", "objective"), [(PAIRED, "makespan"), (IN_LESS, "span")])
def test_starts_with_pairs_or_modes_are_none_of_the_problem_without(
    order: Order, objective: Objective
) -> None:
    problem = parse_problem(PROBLEM)
    start = time_order(problem, order)
    assert check(problem, start) == []
    searched: list[tuple[str, list[Schedule]]] = []

    def search(own: Incumbent, starts: list[Schedule]) -> SearchReport:
        searched.append((str(own.problem.overlap is None), starts))
        return SearchReport([], [])

    mine = Incumbent(problem, objective, Clock(60))
    report = search_narrower(by(search), mine, [start], narrower(problem))
    assert report.failed == []
    assert [alone for alone, _ in searched] == ["False", "False", "True"]
    assert mine.schedule is not None  # what was found in one mode is a schedule of the problem
    assert check(problem, mine.schedule) == []


@pytest.mark.parametrize(
    ("pairs", "given", "names"),
    [
        (7, True, []),  # 33: of no other is that much less
        (6, True, ["keep"]),  # 34: in less it is 41 or more, without pairs 40
        (6, False, []),  # what there is to start from takes 40, and that is far
    ],
)
def test_one_without_hope_is_not_searched(pairs: int, given: bool, names: list[str]) -> None:
    problem = parse_problem(PROBLEM | {"microbatches": 8})
    row: list[Item] = [Op(0, "F", 0)]
    for number in range(7):
        both = Op(0, "F", number + 1), Op(0, "BW", number)
        row += [Pair(*both)] if number < pairs else [*both[::-1]]
    start = time_order(problem, ((*row, Op(0, "BW", 7)),))
    assert start.makespan == 40 - pairs
    mine = Incumbent(problem, "makespan", Clock(60))
    mine.offer_timed(start)
    searched: list[Problem] = []

    def search(own: Incumbent, _starts: list[Schedule]) -> SearchReport:
        searched.append(own.problem)
        return SearchReport([], [])

    search_narrower(by(search), mine, [start] if given else [], narrower(problem))
    assert [one.name for one in narrower(problem) if one.problem in searched] == names


@pytest.mark.usefixtures("nothing_known")
def test_the_search_of_one_ends_when_it_finds_nothing_better_or_cannot() -> None:
    """A deterministic clock of 60 s: of the 24 for all, three have 8 each, and 5 is patience."""
    problem = parse_problem(PROBLEM)
    mine = Incumbent(problem, "makespan", Clock(60, deterministic=True))
    spent: dict[str, list[float]] = {}

    def search(own: Incumbent, starts: list[Schedule]) -> SearchReport:
        del starts
        assert own.value is not None
        begin, name = mine.clock.elapsed, str(len(spent))
        while not own.clock.over:
            own.clock.count(1.0)
            if name == "0" and own.clock.elapsed == 2.0:
                own.offer(PAIRED, "")
            if name == "1" and own.clock.elapsed == 3.0:
                own.raise_bound(Bound(mine.value or 0, "no better than what is known"))
        spent[name] = [mine.clock.elapsed - begin]
        return SearchReport([], [])

    search_narrower(by(search), mine, [], narrower(problem))
    assert {name: round(seconds) for name, (seconds,) in spent.items()} == {"0": 8, "1": 3, "2": 6}
