"""Pairs of any kinds, with times of their own: contract, section 7."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from pipesat.check.checker import check
from pipesat.core.errors import Deadlock, NotApplicable
from pipesat.problem.ops import PHASE_OF, Op, Pair, parse_item
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.problem.rules import duration, in_order, inputs_of, pair_time, waits_for
from pipesat.runtimes import problem_for
from pipesat.runtimes.torch.adapt import adapt
from pipesat.runtimes.torch.csv_file import torch_csv
from pipesat.runtimes.torch.hazards import makespan_in_turn
from pipesat.schedule.metrics import pair_counts, peak_memory
from pipesat.schedule.schedule import Schedule, Timed
from pipesat.schedule.schedule_file import read_schedule, write_schedule
from pipesat.schedule.timing import time_order
from tests.support.orders import order_of
from tests.support.problems import chain, document


def listed(*entries: tuple[str, str, int], **overlap: Any) -> dict[str, Any]:
    return {"pairs": [{"ops": [a, b], "time": time} for a, b, time in entries]} | overlap


def timed(*rows: list[tuple[str, int, int]]) -> Schedule:
    return Schedule(tuple(tuple(Timed(parse_item(t), a, b) for t, a, b in row) for row in rows))


def complaints(problem: Problem, *rows: list[tuple[str, int, int]]) -> list[str]:
    return [str(violation) for violation in check(problem, timed(*rows))]


# One device. A pair of F's takes 6 instead of 8, one of B and W 2, less than B or W alone.
ONE = parse_problem(
    document(
        chain(1, 2, F=4, B=3, W=3, BW=6, held=(5, 2)),
        overlap=listed(("0F", "0BW", 5), ("0F", "0F", 6), ("0W", "0B", 2)),
    )
)
ONE_ROW = [("(0F0+0F1)", 0, 6), ("0B0", 6, 9), ("(0W0+0B1)", 9, 11), ("0W1", 11, 14)]


def vee() -> Problem:
    """Stages 0 and 3 on device 0, 1 and 2 on device 1; stage 4, a route of its own, on 0."""
    one = {"F": 1, "B": 1, "W": 1}
    kinds = [f"{stage}{kind}" for stage in (0, 3, 4) for kind in PHASE_OF]
    pairs = [(a, b, 2) for i, a in enumerate(kinds) for b in kinds[i:]]
    return parse_problem(
        {
            "format": FORMAT,
            "devices": [{}, {}],
            "stages": [{"device": d} | one for d in (0, 1, 1, 0, 0)],
            "routes": [{"stages": s, "microbatches": 1} for s in ([0, 1, 2, 3], [4])],
            "overlap": listed(*pairs),
        }
    )


def test_listed_pairs_are_timed_as_listed() -> None:
    order = order_of("(0F1+0F0) 0B0 (0B1+0W0) 0W1")
    schedule = time_order(ONE, order)
    assert [(t.start, t.end) for t in schedule.devices[0]] == [(a, b) for _, a, b in ONE_ROW]
    # 2 x 5 from the start; B0 leaves 2 of its 5, the pair frees W0's 2 at its end
    assert peak_memory(ONE, schedule) == [10]
    assert check(ONE, schedule) == complaints(ONE, ONE_ROW) == []


def test_a_pair_may_be_shorter_than_its_members() -> None:
    assert duration(ONE, parse_item("(0F1+0BW0)")) == 5  # BW alone takes 6
    assert complaints(ONE, [("0F0", 0, 4), ("(0F1+0BW0)", 4, 9), ("0BW1", 9, 15)]) == []


def test_memory_of_members_is_held_as_long_as_the_pair() -> None:
    for capacity, fits in ((10, True), (9, False)):
        capped = parse_problem(document(ONE, devices=[{"memory": capacity}]))
        assert (complaints(capped, ONE_ROW) == []) is fits


def test_what_is_not_listed_may_not_pair() -> None:
    row = [("0F0", 0, 4), ("(0F1+0B0)", 4, 9), ("0W0", 9, 12), ("0BW1", 12, 18)]
    assert complaints(ONE, row) == ["kind: (0F1+0B0): `overlap` does not allow a pair of 0F and 0B"]
    with pytest.raises(ValueError, match=r"\(0F1\+0B0\): `overlap` has no pair of 0F and 0B"):
        time_order(ONE, order_of("0F0 (0F1+0B0) 0W0 0BW1"))


def test_a_listed_pair_goes_before_the_factor() -> None:
    problem = parse_problem(document(ONE, overlap=listed(("0BW", "0F", 5), FB=[1, 1])))
    assert duration(problem, parse_item("(0F1+0BW0)")) == 5
    vees = document(vee(), overlap=listed(("0F", "0BW", 9), FB=[1, 1]))
    # F and BW of stages 0 and 3: not listed, so max(1, 2, 3) by the factor
    assert pair_time(parse_problem(vees), Op(4, "F", 0), Op(0, "BW", 0)) == 3
    assert pair_time(parse_problem(vees), Op(4, "F", 0), Op(0, "B", 0)) is None


def test_one_waits_for_the_other_exactly_if_a_walk_finds_it() -> None:
    problem = vee()

    def walk(op: Op, other: Op) -> bool:
        """Follow inputs; an input gradient may come from B or BW."""
        need = next(iter(inputs_of(problem, op)), None)
        while need is not None:
            stage, phase, microbatch = need.event
            if (stage, phase) == (other.stage, PHASE_OF[other.kind]) and other.kind != "W":
                return True
            need = next(iter(inputs_of(problem, Op(stage, phase, microbatch))), None)
        return False

    ops = [Op(stage, kind, 0) for stage in range(5) for kind in PHASE_OF]
    for op, other in product(ops, ops):
        assert waits_for(problem, op, other) == walk(op, other), (op, other)
    assert not waits_for(problem, Op(0, "F", 0), Op(0, "F", 1))


def test_members_may_not_wait_for_each_other() -> None:
    problem = vee()
    assert pair_time(problem, Op(0, "F", 0), Op(3, "F", 0)) is None
    assert pair_time(problem, Op(0, "F", 0), Op(0, "BW", 0)) is None
    assert pair_time(problem, Op(3, "W", 0), Op(0, "B", 0)) == 2
    row = [("(0F0+3F0)", 0, 2), ("3BW0", 2, 4), ("0BW0", 6, 8), ("4F0", 8, 9), ("4BW0", 9, 11)]
    found = complaints(problem, row, [("1F0", 2, 3), ("2F0", 3, 4), ("2BW0", 4, 6), ("1BW0", 6, 8)])
    assert "kind: (0F0+3F0): 3F0 waits for 0F0, so they cannot run as one" in found
    text = re.escape("1F0 on device 1 waits for (0F0+3F0) on device 0")
    with pytest.raises(Deadlock, match=text):
        time_order(problem, order_of("(0F0+3F0) 3BW0 0BW0 4F0 4BW0", "1F0 2F0 2BW0 1BW0"))


def test_two_ops_of_one_microbatch_that_do_not_wait() -> None:
    order = order_of("(4F0+0F0) 4BW0 3F0 3B0 (0BW0+3W0)", "1F0 2F0 2BW0 1BW0")
    schedule = time_order(vee(), order)
    assert check(vee(), schedule) == []
    assert schedule.makespan == 2 + 1 + 1 + 1 + 1 + 2 + 2 + 2  # F's 0-3, 3B0, 2BW0, 1BW0, the pair


def test_one_op_is_not_a_pair() -> None:
    row = [("(0F0+0F0)", 0, 6), ("0F1", 6, 10), ("0BW0", 10, 16), ("0BW1", 16, 22)]
    found = complaints(ONE, row)
    assert found[0].startswith("doubled: 0F0 stands twice")
    assert "kind: (0F0+0F0): a pair needs two different (stage, microbatch)" in found


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("(0BW0+0F1)", "(0F1+0BW0)"),  # as listed
        ("(0B1+0W0)", "(0W0+0B1)"),
        ("(0F1+0F0)", "(0F0+0F1)"),  # the lower microbatch
        ("(0B1+0B0)", "(0B0+0B1)"),  # not allowed
        ("(0B1+0BW0)", "(0B1+0BW0)"),
    ],
)
def test_order_of_members(text: str, written: str) -> None:
    pair = parse_item(text)
    assert isinstance(pair, Pair)
    assert str(in_order(ONE, pair)) == written


def test_pairs_are_counted_by_kind() -> None:
    assert pair_counts(timed(ONE_ROW)) == {"F+F": 1, "B+W": 1}
    # kinds in the order F, B, W, BW, whatever the order of the members
    row = [("(0BW0+0F1)", 0, 1), ("(0BW1+0W2)", 1, 2), ("(0W3+0BW2)", 2, 3), ("0F4", 3, 4)]
    assert list(pair_counts(timed(row)).items()) == [("F+BW", 1), ("W+BW", 2)]
    assert pair_counts(timed([("0F0", 0, 1)])) == {}


def test_by_factor_the_forward_is_first() -> None:
    problem = parse_problem(document(ONE, overlap={"FB": [1, 1]}))
    assert str(in_order(problem, Pair(Op(0, "BW", 0), Op(0, "F", 1)))) == "(0F1+0BW0)"


def test_files_have_the_listed_order_whatever_was_given(tmp_path: Any) -> None:
    schedule = timed([("(0F1+0F0)", 0, 6), ("0B0", 6, 9), ("(0B1+0W0)", 9, 11), ("0W1", 11, 14)])
    path = tmp_path / "s.json"
    write_schedule(path, ONE, schedule)
    assert '"(0F0+0F1)"' in path.read_text()
    path.write_text(path.read_text().replace("(0W0+0B1)", "(0B1+0W0)"))
    assert read_schedule(path, ONE) == timed(ONE_ROW)


def test_stock_torch_runs_members_in_turn_the_forward_first() -> None:
    # F 4, BW 6, listed backward first in 5: 0F0 0-4, pair 4-9, 0BW1 9-15; in turn 4 + 4 + 6 + 6
    problem = parse_problem(document(ONE, overlap=listed(("0BW", "0F", 5))))
    schedule = time_order(problem, order_of("0F0 (0BW0+0F1) 0BW1"))
    assert schedule.makespan == 15
    adapted = adapt(problem, schedule).schedule
    assert adapted.order == order_of("0F0 (0F1+0BW0) 0BW1")
    assert makespan_in_turn(problem, adapted.order) == 20
    assert torch_csv(problem, adapted) == "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"
    with pytest.raises(NotApplicable, match=r"\(0F1\+0F0\) is another pair"):
        adapt(ONE, time_order(ONE, order_of("(0F1+0F0) 0BW0 0BW1")))
    kept = problem_for(ONE, "torch").overlap
    assert kept is not None
    assert [*kept.times] == [((0, "F"), (0, "BW"))]
