"""Routes as graphs, sequences in slices, stages without a backward: files, rules, the checker."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pipesat.bounds.closed_form import closed_form_bound
from pipesat.bounds.feasibility import preflight, sure_order
from pipesat.check.checker import check
from pipesat.compare.compare import compare
from pipesat.compare.from_numbers import problem_from_numbers
from pipesat.core.errors import BadInput, Infeasible
from pipesat.heuristics import BASELINES
from pipesat.problem.lengths import slices_from_lengths
from pipesat.problem.ops import Op, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.rules import inputs_of, waits_for
from pipesat.schedule.timing import time_order


def document(**more: Any) -> dict[str, Any]:
    """Two stages that feed a third, each on its own device."""
    stages = [{"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 1} for d in range(3)]
    route = {"stages": [0, 1, 2], "edges": [[0, 2], [1, 2]], "microbatches": 2}
    return {
        "format": "pipesat.problem/1",
        "devices": [{} for _ in range(3)],
        "stages": stages,
        "comm": {"default": 3},
        "routes": [route],
    } | more


def test_a_stage_waits_along_every_edge() -> None:
    problem = Problem.from_document(document())
    needed = {(one.event, one.delay) for one in inputs_of(problem, Op(2, "F", 1))}
    assert needed == {((0, "F", 1), 3), ((1, "F", 1), 3)}
    assert [*inputs_of(problem, Op(2, "B", 0))] == [((2, "F", 0), 0)]
    assert [*inputs_of(problem, Op(1, "BW", 0))] == [((2, "B", 0), 3)]
    assert not waits_for(problem, Op(1, "F", 0), Op(0, "F", 0))
    assert waits_for(problem, Op(1, "B", 0), Op(0, "F", 0))  # through the third stage


def test_what_waits_for_what_follows_from_inputs() -> None:
    """Directly or through others, in a graph of two last stages with slices."""
    route = {"stages": [0, 1, 2], "edges": [[0, 1], [0, 2]], "microbatches": 4, "slices": 2}
    problem = Problem.from_document(document(routes=[route]))
    ops = [Op(s, kind, m) for s, kind, m in product(range(3), ("F", "B", "W"), range(4))]

    def walked(op: Op, other: Op) -> bool:
        seen, ahead = {op.event}, [op]
        while ahead:
            for event, _ in inputs_of(problem, ahead.pop()):
                if event not in seen:
                    seen.add(event)
                    ahead.append(Op(*event))
        return other != op and other.event in seen

    for op, other in product(ops, ops):
        assert waits_for(problem, op, other) == walked(op, other), (op, other)


def test_edges_that_state_the_chain_change_nothing() -> None:
    chain = {"stages": [0, 1, 2], "microbatches": 2}
    stated = Problem.from_document(document(routes=[chain | {"edges": [[1, 2], [0, 1]]}]))
    plain = Problem.from_document(document(routes=[chain]))
    assert stated.routes == plain.routes
    assert stated.document["routes"][0]["edges"] == [[1, 2], [0, 1]]
    assert closed_form_bound(stated, "makespan") == closed_form_bound(plain, "makespan")


@pytest.mark.parametrize(
    ("route", "where"),
    [
        ({"edges": [[2, 0]]}, "edges[0]"),
        ({"edges": [[0, 0]]}, "edges[0]"),
        ({"edges": [[0, 7]]}, "edges[0]"),
        ({"edges": [[0, 1], [0, 1]]}, "edges[1]"),
        ({"edges": [[0, 1]]}, "edges"),
        ({"edges": []}, "edges"),
        ({"stages": [1, 2, 0], "edges": [[1, 2]]}, "edges"),
        ({"edges": [[0, 1, 2]]}, "edges[0]"),
        ({"slices": 1}, "slices"),
        ({"slices": 3}, "slices"),
        ({"slices": True}, "slices"),
    ],
)
def test_what_a_route_may_not_say(route: dict[str, Any], where: str) -> None:
    own = {"stages": [0, 1, 2], "microbatches": 2} | route
    with pytest.raises(BadInput) as caught:
        Problem.from_document(document(routes=[own]))
    assert f"routes[0].{where}" in str(caught.value)


def test_a_stage_without_a_backward_has_none_before_it() -> None:
    stages = document()["stages"]
    stages[2] = {"device": 2, "F": 1, "B": 0, "W": 0, "backward": "none"}
    with pytest.raises(BadInput, match=r"stages\[2\].backward"):
        Problem.from_document(document(stages=stages))


def test_without_a_backward_memory_is_held_while_f_runs() -> None:
    problem = Problem.chain(
        2, 3, F=2, B=9, W=9, held_after_F=5, held_after_B=9, memory=5, backward="none"
    )
    schedule = time_order(problem, sure_order(problem))
    assert (schedule.makespan, check(problem, schedule)) == (2 + 3 * 2, [])
    assert problem.op_count == 6
    with pytest.raises(Infeasible):
        preflight(problem.with_memory(4))


def test_all_slices_of_a_sequence_are_held_at_once() -> None:
    problem = Problem.chain(2, 6, F=1, B=1, W=1, held_after_F=1, memory=3, slices=3)
    assert check(problem, time_order(problem, sure_order(problem))) == []
    with pytest.raises(Infeasible, match="at one time"):
        preflight(problem.with_memory(2))


def test_the_checker_sees_slices_out_of_turn() -> None:
    """Two slices on one stage: F0 F1, then the backwards in reverse."""
    free = Problem.chain(1, 2, F=1, B=1, W=1, backward="fused")
    sliced = Problem.chain(1, 2, F=1, B=1, W=1, backward="fused", slices=2)

    def rules(*texts: str) -> list[str]:
        order = (tuple(parse_item(text) for text in texts),)
        return [one.rule for one in check(sliced, time_order(free, order))]

    assert rules("0F0", "0F1", "0BW1", "0BW0") == []
    assert rules("0F0", "0F1", "0BW0", "0BW1") == ["input"]
    assert rules("0F1", "0F0", "0BW1", "0BW0") == ["input"]
    assert rules("0F0", "0BW0", "0F1", "0BW1") == ["input"]


def test_hand_written_schedules_of_chains_refuse_in_one_line() -> None:
    sliced = Problem.chain(2, 4, F=1, B=1, W=1, slices=2)
    for name in ("1f1b", "zb-h1", "gpipe"):
        with pytest.raises(Exception, match="sequences have slices"):
            BASELINES[name](sliced)
    assert not check(sliced, BASELINES["list-scheduling"](sliced))


def test_sequences_that_differ_are_compared_without_parting_their_slices() -> None:
    entries = slices_from_lengths([8, 4], 8, 0.5, 2)
    problem = Problem.chain(2, entries, F=10000, B=10000, W=10000, slices=2)
    names = {row.name for row in compare(problem, time_limit=1, workers=1).rows}
    assert {"solver", "seq1f1b", "slimpipe", "list-scheduling"} <= names


@pytest.mark.parametrize("slicing", ["tokens", "time"])
def test_slices_of_lengths_add_up_to_their_sequence(slicing: Any) -> None:
    lengths, reference, quadratic = [4096, 1000, 4096], 2048, 0.5
    entries = slices_from_lengths(lengths, reference, quadratic, 4, slicing)
    assert len(entries) == 12
    problem = problem_from_numbers(
        devices=2,
        F=1000,
        B=1000,
        W=1000,
        held_after_F=100,
        lengths=lengths,
        reference=reference,
        quadratic=quadratic,
        slices=4,
        slicing=slicing,
    )
    assert problem.routes[0].slices == 4
    for sequence, length in enumerate(lengths):
        x = length / reference
        own = [problem.amounts(0, 4 * sequence + at) for at in range(4)]
        assert 0 <= sum(one.F for one in own) - 1000 * (0.5 * x + 0.5 * x * x) < 8
        assert 0 <= sum(one.held_after_F for one in own) - 100 * x < 8
        if slicing == "time":
            assert max(one.F for one in own) - min(one.F for one in own) < 10
            assert own[0].held_after_F > own[-1].held_after_F
        else:
            assert [one.F for one in own] == sorted(one.F for one in own)
            assert max(one.held_after_F for one in own) - min(one.held_after_F for one in own) <= 1
