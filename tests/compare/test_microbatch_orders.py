"""`order`: the best order under a schedule that stays as it is, against trying all of them."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.check.checker import check
from pipesat.compare.hand_written import baseline
from pipesat.core.errors import BadInput
from pipesat.heuristics import BASELINES
from pipesat.heuristics.microbatch_orders import RULES
from pipesat.problem.lengths import microbatches_from_lengths
from pipesat.problem.problem_file import read_problem
from pipesat.schedule.microbatch_order import relabelled
from pipesat.schedule.timing import time_order
from tests.conftest import Run

LENGTHS = [5, 1, 3, 1, 2]


def chain(memory: int | None = None) -> pipesat.Problem:
    listed = microbatches_from_lengths(LENGTHS, 2, 0.25)
    return pipesat.Problem.chain(
        3, listed, F=64, B=80, W=48, held_after_F=6, memory=memory, comm=16, time_unit="ms"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "name", "memory"),  # each two of these meet in one
    [
        ("makespan", "1f1b", None),
        ("makespan", "zb-h1", 36),
        ("span", "1f1b", 36),
        ("span", "zb-h1", None),
    ],
)
def test_the_best_of_all_orders_is_found(objective: Any, name: str, memory: int | None) -> None:
    problem = chain(memory)
    found = pipesat.balance(
        problem, schedules=[name], objective=objective, time_limit=0.5, deterministic=True
    )
    (row,) = found
    order = BASELINES[name](problem).order
    values = {}
    for own in permutations(range(len(LENGTHS))):
        timed = time_order(problem, relabelled(problem, order, [own]), objective)
        if not check(problem, timed):
            values[own] = timed.value(objective)
    assert row.value == min(values.values())
    assert row.order is not None
    assert values[tuple(row.order[0])] == row.value
    assert row.values["given"] == values.get(tuple(range(len(LENGTHS))))
    descending = tuple(sorted(range(len(LENGTHS)), key=lambda m: -LENGTHS[m]))
    assert row.values["descending"] == values.get(descending)
    assert found.lower_bound <= row.value


@pytest.mark.slow
def test_no_rule_is_better_and_the_own_order_is_ignored() -> None:
    problem = chain()
    found = pipesat.balance(problem, time_limit=1, deterministic=True)
    given = problem.with_microbatches(problem.document["microbatches"], order="given")
    again = pipesat.balance(given, time_limit=1, deterministic=True)
    assert [row.values for row in found] == [row.values for row in again]
    assert {"1f1b", "zb-h1"} <= {row.name for row in found if row.value is not None}
    for row in found:
        if row.value is not None:
            assert all(row.value <= time for time in row.values.values() if time is not None)
            assert set(row.values) == {*RULES, "best"}
    assert found.best is not None
    assert found.seconds(found.best.value) == found.best.value / 1000  # type: ignore[operator]


@pytest.mark.slow
def test_lengths_take_the_place_of_the_problems_microbatches() -> None:
    plain = chain().with_microbatches(7)
    options: dict[str, Any] = {"schedules": ["1f1b"], "time_limit": 1, "deterministic": True}
    found = pipesat.balance(plain, lengths=LENGTHS, reference=2, quadratic=0.25, **options)
    assert found["1f1b"] == pipesat.balance(chain(), **options)["1f1b"]


def test_a_schedule_in_its_best_order_is_the_one_that_is_built_for_that_order() -> None:
    """List scheduling's ops depend on costs: in [0, 1, 2] it takes 1979, its places could 1785."""
    listed = [{"name": "a", "count": 2, "time": [1, 3]}, {"name": "b", "count": 1, "time": [2, 3]}]
    problem = pipesat.Problem.chain(3, listed, F=409, B=172, W=502)
    names = ["list-scheduling", "zb-h1"]
    found = pipesat.balance(problem, schedules=names, time_limit=0.1, deterministic=True)
    for row in found:
        assert row.value == BASELINES[row.name](problem, permutation=row.order).makespan
    gain = dict(found.facts())["Gain"]  # over what the user runs, and over the best known rule
    assert gain.startswith("5.91 % shorter than in the given order, as long as ")
    assert gain.endswith("both-ends under list-scheduling, the best rule")


def test_what_is_refused(tmp_path: Path, cli: Run) -> None:
    plain = chain().with_microbatches(7)
    with pytest.raises(BadInput, match="all are alike, so their order changes nothing"):
        pipesat.balance(plain)
    with pytest.raises(BadInput, match="go with them"):
        pipesat.balance(chain(), reference=3)
    with pytest.raises(BadInput, match="expected the length"):
        pipesat.balance(plain, lengths=LENGTHS)
    with pytest.raises(BadInput, match="one route"):
        pipesat.balance(
            pipesat.Problem.two_routes(2, 4, F=1, B=1, W=1), lengths=LENGTHS, reference=2
        )
    long = chain().with_microbatches(2).with_overlap({"pairs": [{"ops": ["0F", "0BW"], "time": 1}]})
    with pytest.raises(BadInput, match=r"^lengths: .* take no pairs by time"):
        pipesat.balance(long, lengths=LENGTHS, reference=2)
    with pytest.raises(BadInput, match="expected one of zb-h1"):
        pipesat.balance(chain(), schedules=["nothing"])
    plain.write(tmp_path / "plain.json")
    ran = cli("balance", tmp_path / "plain.json")
    assert (ran.code, ran.out) == (2, "")


def test_the_command_writes_the_list(tmp_path: Path, cli: Run) -> None:
    chain().write(tmp_path / "p.json")
    ran = cli("balance", tmp_path / "p.json", "--json", "-o", tmp_path / "out", "--time-limit", 0.5)
    assert ran.code == 0
    said = json.loads(ran.out)
    written = json.loads((tmp_path / "out" / "assignment.json").read_text())
    assert written["replicas"] == [[[number] for number in said["order"]]]
    assert written["makespans"] == [written["value"]] == [said["makespan"]]
    assert written["schedule"] == said["best"]
    new = read_problem(tmp_path / "out" / "problem.json")  # numbers are places in it now
    assert new.order == "given"
    assert baseline(said["best"], new).makespan == said["makespan"]
    assert sorted(said["order"]) == [*range(len(LENGTHS))]
    assert said["makespan"] == min(
        row["makespans"]["best"] for row in said["baselines"] if row["order"]
    )
    assert said["seconds"] == said["makespan"] / 1000
    words = ("--objective", "span", "--time-limit", 0.2, "--schedule", "1f1b")
    spans = json.loads(cli("balance", tmp_path / "p.json", "--json", *words).out)
    assert spans["objective"] == "span"
    assert spans["span"] == spans["baselines"][0]["spans"]["best"]
