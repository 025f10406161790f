"""Microbatches that differ: timing, checker, bounds and baselines against an oracle."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

import pipesat
from pipesat.check.checker import check
from pipesat.compare.hand_written import hand_written
from pipesat.core.errors import NotApplicable
from pipesat.heuristics import BASELINES
from pipesat.heuristics.microbatch_orders import RULES, permutation_by, permutations
from pipesat.problem.ops import Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.problem.rules import duration, inputs_of, memory_change
from pipesat.schedule.microbatch_order import (
    in_number_order,
    microbatch_order,
    permuted,
    relabelled,
)
from pipesat.schedule.schedule import Schedule, Timed
from pipesat.schedule.timing import time_order
from tests.oracle.exact import optimum
from tests.oracle.generator import of_family
from tests.oracle.reading import KINDS, Pipe
from tests.oracle.reading import Op as OracleOp
from tests.oracle.trying import Trying


@pytest.mark.parametrize("seed", range(24))
def test_amounts_are_those_of_the_oracle(seed: int) -> None:
    document = of_family("lists", seed)
    problem, pipe = parse_problem(document), Pipe(document)
    for (stage, m), modes in pipe.modes.items():
        wanted, found = modes["keep"], problem.amounts(stage, m)
        assert (found.held_after_F, found.held_after_B) == (wanted.a, wanted.w)
        for kind in KINDS:
            op = Op(stage, kind, m)
            assert duration(problem, op) == wanted.time[kind]
            taken, kept = wanted.change(kind)
            assert memory_change(problem, op) == (taken, kept - taken)
            delays = {need.delay for need in inputs_of(problem, op)}
            assert delays == {delay for _, delay in pipe.waits(OracleOp(*op[:3]))}


@pytest.mark.parametrize("family", ["lists", "plain"])
@pytest.mark.parametrize("seed", range(12))
def test_every_order_is_valid_and_timed_as_the_oracle_does(seed: int, family: str) -> None:
    """The least span is the first for which starts exist, by relaxation."""
    document = of_family(family, seed, ops=9)
    problem, trying = parse_problem(document), Trying(document)
    for rows in islice(trying.orders(), 0, 400, 9):
        order = tuple(tuple(Op(*op) for op in row) for row in rows)
        schedule = time_order(problem, order, "span")
        assert check(problem, schedule) == []
        assert schedule.span == trying.least_span(rows)


@pytest.mark.parametrize("seed", range(16))
def test_hand_written_schedules_in_every_order_are_no_better_than_the_optimum(seed: int) -> None:
    document = of_family("lists", seed)
    problem, best = parse_problem(document), optimum(document)
    for rule, permutation in permutations(problem).items():
        for entry in BASELINES.values():
            try:
                schedule = entry(problem, permutation=permutation)
            except NotApplicable:
                continue
            broken = {violation.rule for violation in check(problem, schedule)}
            assert broken <= {"memory", "sequence"}, (rule, entry.name)
            if not broken:
                assert best is not None
                assert schedule.makespan >= best


def example(order: str = "free", count: int = 1) -> Problem:
    """Two devices; one microbatch of 3 times the size, then small ones."""
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}, {}],
            "stages": [{"device": d, "F": 1, "B": 1, "W": 1, "backward": "fused"} for d in (0, 1)],
            "microbatches": [
                {"name": "long", "count": 1, "time": [3, 1]},
                {"name": "short", "count": count},
            ],
            "order": order,
        }
    )


def rows(*texts: str) -> Schedule:
    """A schedule of the example by hand: ``op start end`` of each device."""
    return Schedule(
        tuple(
            tuple(
                Timed(parse_item(words[0]), int(words[1]), int(words[2]))
                for words in (entry.split() for entry in text.split(","))
            )
            for text in texts
        )
    )


SWAPPED = rows("0F1 0 1,0F0 1 4,0BW1 4 6,0BW0 13 19", "1F1 1 2,1BW1 2 4,1F0 4 7,1BW0 7 13")
CROSSED = rows(  # the second stage takes the backwards the other way round
    "0F0 0 3,0F1 3 4,0BW1 9 11,0BW0 15 21", "1F0 3 6,1F1 6 7,1BW1 7 9,1BW0 9 15"
)


@pytest.mark.parametrize(
    ("order", "schedule", "complaint"),
    [
        ("free", SWAPPED, ""),
        ("same", SWAPPED, ""),
        ("given", SWAPPED, "stage 0 runs the forward of microbatch 1 before that of 0"),
        ("free", CROSSED, ""),
        ("given", CROSSED, "stage 0 runs the backward of microbatch 1 before that of 0"),
        ("same", CROSSED, "against the order of stage 0's forwards"),
    ],
)
def test_the_rule_about_the_order(order: str, schedule: Schedule, complaint: str) -> None:
    found = check(example(order), schedule)
    assert bool(found) == bool(complaint)
    assert {violation.rule for violation in found} <= {"sequence"}
    assert complaint in " ".join(map(str, found))


def test_the_order_of_a_result_is_that_of_the_first_stage_s_forwards() -> None:
    assert microbatch_order(example(), SWAPPED) == [[1, 0]]
    assert microbatch_order(example(), CROSSED) == [[0, 1]]


def test_zero_lengths_at_one_instant_are_in_the_order_of_the_list() -> None:
    stage = {"device": 0, "F": 0, "B": 0, "W": 0, "backward": "fused"}
    listed = [{"name": "a", "count": 2, "time": [2, 1]}]
    document = {"format": "pipesat.problem/1", "devices": [{}], "stages": [stage]}
    problem = parse_problem(document | {"microbatches": listed, "order": "given"})
    there = rows("0F0 0 0,0F1 0 0,0BW0 0 0,0BW1 0 0")
    assert check(problem, there) == []
    (wrong,) = check(problem, rows("0F1 0 0,0F0 0 0,0BW0 0 0,0BW1 0 0"))
    assert wrong.rule == "sequence"


def test_rules_of_thumb() -> None:
    # sizes by number: 3 long; of 5 microbatches 0 is the longest, the others are equal
    problem = example(count=4)
    assert permutation_by(problem, "given") == [[0, 1, 2, 3, 4]]
    assert permutation_by(problem, "descending") == [[0, 1, 2, 3, 4]]
    assert permutation_by(problem, "ascending") == [[4, 3, 2, 1, 0]]
    # descending is 0 1 2 3 4: [4, 2, 0] + [1, 3], the longest in the middle
    assert permutation_by(problem, "both-ends") == [[4, 2, 0, 1, 3]]
    assert list(permutations(problem)) == ["given", "ascending", "both-ends"]
    assert list(permutations(example("given", 4))) == ["given"]
    assert set(permutations(problem)) <= set(RULES)
    (route,) = example(count=5).routes
    sliced = replace(problem, routes=(replace(route, slices=2),))
    assert permutation_by(sliced, "ascending") == [[4, 5, 2, 3, 0, 1]]


def test_each_baseline_has_a_row_as_given_and_one_for_a_better_rule() -> None:
    table = [row for row in hand_written(example(count=4), "makespan") if row.makespan]
    for row in table:
        assert row.baseline in BASELINES
        assert row.name in (
            row.baseline,
            f"{row.baseline}, ascending",
            f"{row.baseline}, both-ends",
        )
    given = {row.name: row.makespan or 0 for row in table if row.name == row.baseline}
    for row in table:
        if row.name != row.baseline and row.valid:
            assert (row.makespan or 0) < given[row.baseline]


def test_a_permuted_problem_s_order_gets_its_own_numbers_back() -> None:
    problem = example()
    other = permuted(problem, [[1, 0]])
    assert [other.amounts(0, m).F for m in (0, 1)] == [1, 3]
    order = ((Op(0, "F", 0), Op(0, "F", 1)), ())
    assert relabelled(problem, order, [[1, 0]]) == ((Op(0, "F", 1), Op(0, "F", 0)), ())


def test_equal_microbatches_may_run_in_the_order_of_their_numbers() -> None:
    stage = {"device": 0, "F": 1, "B": 1, "W": 1}
    document = {"format": "pipesat.problem/1", "devices": [{}], "stages": [stage]}
    problem = parse_problem(
        document | {"microbatches": [{"name": "a", "count": 2}], "order": "given"}
    )
    crossed = rows("0F1 0 1,0F0 1 2,0B0 2 3,0B1 3 4,0W1 4 5,0W0 5 6")
    assert check(problem, crossed) != []
    ordered = in_number_order(crossed)
    assert check(problem, ordered) == []
    # each W follows its own B: the first backward, now 0, has the last W
    assert [str(timed.item) for timed in ordered.devices[0]] == [
        "0F0", "0F1", "0B0", "0B1", "0W1", "0W0",
    ]  # fmt: skip


EQUAL = [
    [{"name": "a", "count": 6}],
    [{"name": "a", "count": 2}, {"name": "a", "count": 4}],
    [{"name": "a", "count": 5}, {"name": "b", "count": 1, "time": [2, 2]}],
]


@pytest.mark.parametrize("order", ["given", "same", "free"])
@pytest.mark.parametrize("listed", EQUAL)
def test_equal_microbatches_give_the_plain_number_s_answer(
    listed: list[dict[str, Any]], order: str
) -> None:
    document = {
        "format": "pipesat.problem/1",
        "devices": [{"memory": 3}] * 3,
        "stages": [
            {"device": d, "F": 2 + d, "B": 3, "W": 2, "held_after_F": 1, "held_after_B": 1}
            for d in range(3)
        ],
        "comm": {"default": 1},
    }
    plain = pipesat.solve(
        parse_problem(document | {"microbatches": 6}), deterministic=True, time_limit=5
    )
    problem = parse_problem(document | {"microbatches": listed, "order": order})
    ours = pipesat.solve(problem, deterministic=True, time_limit=5)
    assert (ours.status, ours.value, ours.lower_bound) == (
        plain.status, plain.value, plain.lower_bound,
    )  # fmt: skip
    assert ours.status == "optimal"
    assert ours.schedule is not None
    assert check(problem, ours.schedule) == []
