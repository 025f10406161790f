"""DynaPipe's wait-free cyclic schedule: cycles by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.compare.balance import balance
from pipesat.compare.hand_written import baseline
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.microbatch_orders import permutations
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from tests.support.problems import chain, vee

NAME = "wait-free-cyclic"


def rows(problem: Problem, microbatches: str = "given") -> list[str]:
    made = baseline(NAME, problem, microbatches)
    return [" ".join(str(timed.item) for timed in row) for row in made.devices]


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 4), (3, 2), (4, 9)])
def test_with_room_a_chain_runs_as_eager_1f1b_does(p: int, m: int) -> None:
    """In a cycle each, F k of rank d runs in cycle k + d, its BW in cycle k + 2p - 1 - d."""
    problem = chain(p, m)
    assert BASELINES[NAME](problem).order == BASELINES["eager-1f1b"](problem).order


def test_a_new_microbatch_waits_until_it_fits() -> None:
    """Rank 0 has room for one: 0F1 of every cycle is put off until the one after 1BW0."""
    problem = chain(2, 3, cap=1)
    assert rows(problem) == ["0F0 0BW0 0F1 0BW1 0F2 0BW2", "1F0 1BW0 1F1 1BW1 1F2 1BW2"]


def lists(entries: list[dict[str, Any]], memory: int) -> Problem:
    stage = {"F": 1, "B": 1, "W": 1, "backward": "fused", "held_after_F": 2}
    return parse_problem(
        {
            "format": FORMAT,
            "devices": [{"memory": memory}, {}],
            "stages": [{"device": d} | stage for d in range(2)],
            "microbatches": entries,
            "order": "same",
        }
    )


def test_each_microbatch_counts_with_its_own_memory() -> None:
    """Room for 6: short, long hold 2 + 4; the next short one enters once the first has left."""
    long = {"name": "long", "count": 1, "held": [2, 1], "time": [2, 1]}
    short = {"name": "short", "count": 1}
    problem = lists([short, long, short], 6)
    # cycles of rank 0: F0 | F1 | - | BW0 F2 | BW1 | BW2; of rank 1 one later, up to its BW's
    assert rows(problem)[0] == "0F0 0F1 0BW0 0F2 0BW1 0BW2"
    assert rows(problem, "descending")[0] == "0F1 0F0 0BW1 0F2 0BW0 0BW2"
    for rule in permutations(problem):
        assert not check(problem, baseline(NAME, problem, rule))


def test_chunks_of_a_device_take_turns() -> None:
    """A V of two ranks: cycle 1 0F0; 2 1F0 0F1; 3 2F0 1F1 0F2; 4 rank 0 has 3F0, as 0F3 is none."""
    made = rows(vee(2, 3))
    assert made[0].split()[:5] == ["0F0", "0F1", "0F2", "3F0", "3BW0"]
    assert made[1].split()[:4] == ["1F0", "2F0", "1F1", "2F1"]


def test_it_stops_where_a_microbatch_does_not_fit() -> None:
    long = {"name": "long", "count": 1, "held": [9, 1]}
    with pytest.raises(NotApplicable, match="does not fit"):
        BASELINES[NAME](lists([{"name": "short", "count": 1}, long], 6))


def test_it_is_a_row_of_the_best_orders() -> None:
    long = {"name": "long", "count": 1, "held": [2, 1], "time": [2, 1]}
    problem = lists([{"name": "short", "count": 3}, long], 8)
    (row,) = balance(problem, schedules=[NAME], time_limit=0.1, deterministic=True).rows
    assert row.name == NAME
    assert row.value is not None
    made = baseline(NAME, problem, "descending")
    assert row.values["descending"] == made.makespan
    assert row.value <= made.makespan
