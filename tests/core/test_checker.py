"""The checker refuses every broken rule, says which, and lists all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from pipesat.check.checker import check
from pipesat.core.errors import NotValid
from pipesat.heuristics.list_scheduling import list_schedules
from pipesat.problem.ops import Unreadable, parse_item, with_ops
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import FORMAT, parse_problem
from pipesat.schedule.schedule import Schedule, Timed
from tests.support.problems import chain, document, problems

# Two stages, one microbatch, all ops 1 long, delay 2, capacity exactly one activation:
# 0F0 0-1, 1F0 3-4, 1B0 4-5, 1W0 5-6, 0B0 7-8, 0W0 8-9.
PROBLEM = chain(2, 1, comm=2, cap=5, held=(5, 3))
VALID = (
    [("0F0", 0, 1), ("0B0", 7, 8), ("0W0", 8, 9)],
    [("1F0", 3, 4), ("1B0", 4, 5), ("1W0", 5, 6)],
)


def schedule_of(*rows: list[tuple[str, int, int]]) -> Schedule:
    def item(text: str):
        try:
            return parse_item(text)
        except ValueError:
            return Unreadable(text)

    return Schedule(tuple(tuple(Timed(item(t), a, b) for t, a, b in row) for row in rows))


def complaints(problem: Problem, *rows: list[tuple[str, int, int]]) -> list[str]:
    return [str(violation) for violation in check(problem, schedule_of(*rows))]


def test_the_valid_schedule_passes() -> None:
    assert complaints(PROBLEM, *VALID) == []


@pytest.mark.parametrize(
    ("row", "changed", "expected"),
    [
        (0, [("0F0", 0, 1), ("0B0", 7, 8)], "missing: 0W0 on device 0 is missing"),
        (0, [("0F0", 0, 1), ("0F0", 2, 3), *VALID[0][1:]], "doubled: 0F0 stands twice, at 0 and"),
        (0, [*VALID[0], ("1W0", 9, 10)], "device: 1W0 runs on device 0, but stage 1 lies on dev"),
        (0, [("0F0", 0, 1), ("0B0", 7, 8), ("0W0", 7, 8)], "overlap: 0W0 (7 to 8) overlaps 0B0"),
        (0, [("0F0", 0, 1), ("0B0", 7, 9), ("0W0", 9, 10)], "length: 0B0 on device 0 lasts 2"),
        (0, [("0F0", 0, 1), ("0B0", 6, 7), ("0W0", 7, 8)], "input: 0B0 starts at 6, but its inp"),
        (0, [("0F0", 0, 1), ("0W0", 6, 7), ("0B0", 7, 8)], "input: 0W0 starts at 6, but its inp"),
        (0, [("0F0", -1, 0), *VALID[0][1:]], "time: 0F0 starts at -1, before time 0"),
        (0, [("0G0", 0, 1), *VALID[0]], "text: '0G0' on device 0 is no op"),
        (0, [*VALID[0], ("0F1", 9, 10)], "name: 0F1 names microbatch 1, the last one of its ro"),
        (0, [*VALID[0], ("2F0", 9, 10)], "name: 2F0 names stage 2, the last one is 1"),
        (0, [*VALID[0], ("0BW0", 9, 11)], "kind: 0B0 on device 0, but 0BW0 already is the whole"),
        (0, [VALID[0][1], VALID[0][0], VALID[0][2]], "order: 0F0 (0 to 1) is listed after 0B0"),
        (1, [("1F0", 2, 3), *VALID[1][1:]], "input: 1F0 starts at 2, but its input 0F0 ends at 1"),
        (1, [("1B0", 3, 4), ("1F0", 4, 5), ("1W0", 5, 6)], "input: 1B0 starts at 3, but its"),
    ],
)
def test_each_broken_rule_is_named(row: int, changed: list, expected: str) -> None:
    rows = list(VALID)
    rows[row] = changed
    assert any(text.startswith(expected) for text in complaints(PROBLEM, *rows))


def test_all_violations_are_listed_not_the_first_alone() -> None:
    rules = [
        v.rule
        for v in check(
            PROBLEM,
            schedule_of(
                [("0F0", 0, 2), ("junk", 2, 3), ("0B0", 6, 7)],
                [("1F0", 3, 4), ("1B0", 4, 5), ("1W0", 5, 6), ("1W0", 6, 7)],
            ),
        )
    ]
    # 0F0 too long; junk; 1F0 before 0F0's output arrives at 4; 0B0 at 6 before 7; 0W0 missing;
    # 1W0 doubled
    assert sorted(rules) == ["doubled", "input", "input", "length", "missing", "text"]


def test_one_memory_unit_too_much_is_refused_with_place_and_amount() -> None:
    # capacity 4, activation 5: over by 1 from F's start to B's end, on both devices
    tight = parse_problem(document(PROBLEM, devices=[{"memory": 4}, {"memory": 4, "name": "r1"}]))
    assert complaints(tight, *VALID) == [
        "memory: device 0 holds up to 5 from 0 to 8, 1 over its capacity of 4",
        "memory: r1 holds up to 5 from 3 to 5, 1 over its capacity of 4",
    ]
    units = replace(tight, time_unit="ms", memory_unit="MiB")
    assert complaints(units, *VALID)[1].endswith("of 4 (times in ms, memory in MiB)")


def test_times_beyond_64_bits_are_checked_exactly() -> None:
    far = 10**30
    rows = [[(op, far + start, far + end) for op, start, end in row] for row in VALID]
    assert complaints(PROBLEM, *rows) == []
    rows[1][0] = ("1F0", far + 2, far + 3)  # its input ends at 1 and takes 2 to arrive
    assert complaints(PROBLEM, *rows) == [
        f"input: 1F0 starts at {far + 2}, but its input 0F0 ends at {far + 1} and takes 2 to "
        f"arrive: not before {far + 3}"
    ]


def test_two_ops_of_a_microbatch_in_a_mode_form_no_pair() -> None:
    mode = {"name": "recompute", "backward": "fused", "BW": 2}
    stages = [{"device": 0, "F": 1, "B": 1, "W": 1, "modes": [mode]} for _ in range(2)]
    pairs = {"pairs": [{"ops": ["0F", "1F"], "factor": [1, 1]}]}
    problem = parse_problem(
        {"format": FORMAT, "microbatches": 1, "devices": [{}], "stages": stages, "overlap": pairs}
    )
    pair, backwards = "(0F0+1F0)", [("1BW0", 2, 4), ("0BW0", 4, 6)]
    ops = [(parse_item(text), *times) for text, *times in [(pair, 0, 2), *backwards]]
    row = tuple(
        Timed(with_ops(item, lambda op: op._replace(mode=1)), *times) for item, *times in ops
    )
    texts = [str(violation) for violation in check(problem, Schedule((row,)))]
    assert "kind: (0F0+1F0): 1F0 waits for 0F0, so they cannot run as one" in texts


def test_static_memory_counts_even_without_ops() -> None:
    problem = parse_problem(document(PROBLEM, devices=[{"memory": 7, "static": 2}, {"static": 1}]))
    assert complaints(problem, *VALID) == []
    problem = parse_problem(document(PROBLEM, devices=[{"memory": 7, "static": 3}, {}]))
    assert complaints(problem, *VALID) == [
        "memory: device 0 holds up to 8 from 0 to 8, 1 over its capacity of 7"
    ]


def test_the_start_of_b_takes_the_difference_where_it_adds_memory() -> None:
    # held_after_F 5, held_after_B 8: 5 from F, 8 from the start of B to the end of W
    problem = chain(2, 1, comm=2, cap=7, held=(5, 8))
    assert complaints(problem, *VALID) == [
        "memory: device 0 holds up to 8 from 7 to 9, 1 over its capacity of 7",
        "memory: device 1 holds up to 8 from 4 to 6, 1 over its capacity of 7",
    ]


def test_an_op_that_starts_when_another_ends_sees_the_freed_memory() -> None:
    # one device, room for one microbatch: F B W of 0, then of 1, without a gap
    rows = [
        (f"0{kind}{m}", 3 * m + i, 3 * m + i + 1) for m in (0, 1) for i, kind in enumerate("FBW")
    ]
    assert complaints(chain(1, 2, cap=1), rows) == []


def test_an_interval_of_length_zero_holds_nothing() -> None:
    problem = chain(1, 1, F=0, B=0, W=0, cap=0, held=(9, 9))
    assert complaints(problem, [("0F0", 3, 3), ("0B0", 3, 3), ("0W0", 3, 3)]) == []
    assert complaints(problem, [("0F0", 3, 3), ("0B0", 4, 4), ("0W0", 4, 4)]) == [
        "memory: device 0 holds up to 9 from 3 to 4, 9 over its capacity of 0"
    ]


def test_an_op_of_length_zero_may_touch_but_not_lie_inside_another() -> None:
    problem = chain(1, 2, F=0, B=2, W=1)
    tail = [("0W0", 4, 5), ("0W1", 5, 6)]
    at_its_start = [("0F0", 0, 0), ("0F1", 0, 0), ("0B0", 0, 2), ("0B1", 2, 4), *tail]
    at_its_end = [("0F0", 0, 0), ("0B0", 0, 2), ("0F1", 2, 2), ("0B1", 2, 4), *tail]
    inside = [("0F0", 0, 0), ("0B0", 0, 2), ("0F1", 1, 1), ("0B1", 2, 4), *tail]
    assert complaints(problem, at_its_start) == []
    assert complaints(problem, at_its_end) == []
    assert complaints(problem, inside) == [
        "overlap: 0F1 (1 to 1) overlaps 0B0 (0 to 2) on device 0"
    ]


@pytest.mark.parametrize(
    ("backward", "rows", "expected"),
    [
        ("split", [("0F0", 0, 1), ("0BW0", 1, 3)], "kind: 0BW0 on device 0, but stage 0 allows o"),
        ("fused", [("0F0", 0, 1), ("0B0", 1, 2), ("0W0", 2, 3)], "kind: 0B0 on device 0, but sta"),
        ("fused", [("0F0", 0, 1)], "missing: 0BW0 on device 0 is missing"),
        ("either", [("0F0", 0, 1)], "missing: 0BW0 (or 0B0 and 0W0) on device 0 is missing"),
    ],
)
def test_backward_modes(backward: str, rows: list, expected: str) -> None:
    assert any(c.startswith(expected) for c in complaints(chain(1, 1, backward=backward), rows))


def test_a_fused_backward_frees_everything_at_its_end() -> None:
    problem = chain(1, 2, cap=5, held=(5, 8), backward="either")
    fused = [("0F0", 0, 1), ("0BW0", 1, 3), ("0F1", 3, 4), ("0BW1", 4, 6)]
    assert complaints(problem, fused) == []


PAIRED = parse_problem(document(chain(1, 2, F=4, B=3, W=3, BW=6, cap=2), overlap={"FB": [3, 4]}))


def test_overlapped_pairs() -> None:
    # max(4, 6, ceil(10 * 3 / 4)) = 8; F's memory from the pair's start, BW's until its end: 2 held
    good = [("0F0", 0, 4), ("(0F1+0BW0)", 4, 12), ("0BW1", 12, 18)]
    assert complaints(PAIRED, good) == []
    short = [("0F0", 0, 4), ("(0F1+0BW0)", 4, 11), ("0BW1", 11, 17)]
    assert any("lasts 7 (4 to 11), expected 8" in c for c in complaints(PAIRED, short))
    early = [("0F0", 0, 4), ("(0F1+0BW0)", 3, 11), ("0BW1", 11, 17)]
    assert {"overlap", "input"} <= {c.split(":")[0] for c in complaints(PAIRED, early)}
    with_itself = [("(0F0+0BW0)", 0, 8), ("0F1", 8, 12), ("0BW1", 12, 18)]
    assert any("two different (stage, microbatch)" in c for c in complaints(PAIRED, with_itself))
    tight = parse_problem(document(PAIRED, devices=[{"memory": 1}]))
    assert any(c.startswith("memory: device 0 holds up to 2") for c in complaints(tight, good))


def test_pairs_need_the_problem_to_allow_them() -> None:
    rows = [("0F0", 0, 4), ("(0F1+0BW0)", 4, 14), ("0BW1", 14, 20)]
    found = complaints(chain(1, 2, F=4, B=3, W=3, BW=6), rows)
    assert found == ["kind: (0F1+0BW0): this problem has no `overlap`, so pairs are not allowed"]


def test_the_number_of_device_lists_must_match() -> None:
    assert complaints(PROBLEM, VALID[0]) == [
        "device: 1 device lists, expected 2, one per device (empty if it has no ops)"
    ]


def test_routes_have_their_own_microbatches() -> None:
    one = {"device": 0, "F": 1, "B": 1, "W": 1}
    problem = parse_problem(
        {
            "format": FORMAT,
            "devices": [{}],
            "stages": [one, one],
            "routes": [{"stages": [0], "microbatches": 2}, {"stages": [1], "microbatches": 1}],
        }
    )
    rows = [
        (f"{stage}{kind}{m}", 3 * n + i, 3 * n + i + 1)
        for n, (stage, m) in enumerate([(0, 0), (0, 1), (1, 0)])
        for i, kind in enumerate("FBW")
    ]
    assert complaints(problem, rows) == []
    assert any("1F1 names microbatch 1" in c for c in complaints(problem, [*rows, ("1F1", 9, 10)]))


@settings(max_examples=40, deadline=None)
@given(problems())
def test_shifting_any_single_op_of_a_tight_schedule_is_noticed(problem: Problem) -> None:
    """The earliest timing has no slack to the left: every op moved 1 earlier breaks a rule."""
    schedule = next(iter(list_schedules(problem)))
    assert check(problem, schedule) == []
    for device, row in enumerate(schedule.devices):
        for index, timed in enumerate(row):
            moved = list(row)
            moved[index] = Timed(timed.item, timed.start - 1, timed.end - 1)
            rows = list(schedule.devices)
            rows[device] = tuple(moved)
            assert check(problem, Schedule(tuple(rows)))


def test_an_op_that_stands_twice_is_no_matter_of_the_order() -> None:
    listed = document(chain(1, 2), microbatches=[{"name": "a", "count": 2}], order="given")
    row = [("0F0", 0, 1), ("0F0", 1, 2), ("0F1", 2, 3), ("0BW0", 3, 5), ("0BW1", 5, 7)]
    (complaint,) = complaints(parse_problem(listed), row)
    assert complaint.startswith("doubled: 0F0 stands twice")


def test_an_error_names_the_first_violation_and_counts_the_others() -> None:
    told = [str(NotValid("no", found)) for found in ([], ["a"], ["a", "b"], ["a", "b", "c"])]
    assert told == ["no", "no: a", "no: a (and 1 more)", "no: a (and 2 more)"]


def instants(*times: tuple[int, int]) -> Problem:
    """A route of fused stages with these (device, F), whose backwards take no time."""
    stages = [{"device": d, "F": f, "B": 0, "W": 0, "backward": "fused"} for d, f in times]
    devices = [{} for _ in range(1 + max(d for d, _ in times))]
    document = {"format": "pipesat.problem/1", "microbatches": 1}
    return parse_problem(document | {"devices": devices, "stages": stages})


def test_an_op_of_length_zero_is_listed_before_what_starts_then() -> None:
    problem = instants((0, 0), (0, 2))
    rest = [("1BW0", 2, 2), ("0BW0", 2, 2)]
    assert complaints(problem, [("0F0", 0, 0), ("1F0", 0, 2), *rest]) == []
    assert complaints(problem, [("1F0", 0, 2), ("0F0", 0, 0), *rest]) == [
        "order: 0F0 (0 to 0) is listed after 1F0 (0 to 2) on device 0; "
        "lists are in order of (start, end)"
    ]


def test_ties_are_listed_in_order_of_execution() -> None:
    problem = instants((0, 0), (0, 2))
    rows = [("0F0", 0, 0), ("1F0", 0, 2), ("0BW0", 2, 2), ("1BW0", 2, 2)]
    (complaint,) = complaints(problem, rows)
    assert complaint.startswith("order: no order of execution at 2: ")
    assert "1BW0 is listed after 0BW0 on device 0" in complaint
    assert "0BW0 waits for 1BW0" in complaint


def test_ties_of_several_devices_that_wait_for_each_other() -> None:
    # 0 and 2 on device 0, 1 and 3 on device 1: 2F0 before 0F0, then 1F0 before 2F0 is no way out
    problem = instants((0, 0), (1, 0), (0, 0), (1, 0))
    back = [("3BW0", 0, 0), ("1BW0", 0, 0)], [("2BW0", 0, 0), ("0BW0", 0, 0)]
    forward = [("0F0", 0, 0), ("2F0", 0, 0)], [("1F0", 0, 0), ("3F0", 0, 0)]
    assert complaints(problem, forward[0] + back[1], forward[1] + back[0]) == []
    (complaint,) = complaints(problem, forward[0] + back[1], forward[1][::-1] + back[0])
    assert "1F0 is listed after 3F0 on device 1" in complaint
    assert "2F0 waits for 1F0" in complaint
    assert "3F0 waits for 2F0" in complaint
