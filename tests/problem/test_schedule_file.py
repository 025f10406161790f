"""Schedule files: contract, section 4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.check.checker import check
from pipesat.compare.schedules import schedule_of
from pipesat.core.errors import BadInput, Deadlock
from pipesat.heuristics.list_scheduling import list_scheduling
from pipesat.problem.ops import Copy, Op, Pair, Unreadable
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Schedule, Timed, TimedCopy
from pipesat.schedule.schedule_file import (
    read_schedule,
    schedule_bytes,
    schedule_of_document,
    write_schedule,
)
from tests.support.problems import chain, problems

Save = Callable[..., Path]

FORMAT = "pipesat.schedule/1"
ALONE = chain(1, 1, F=2, B=3, W=1)
ROW = [["0F0", 0, 2], ["0B0", 2, 5], ["0W0", 5, 6]]


def document(problem: Problem = ALONE, **changes: Any) -> dict[str, Any]:
    """A schedule file's document; ``None`` removes a key."""
    whole = {"format": FORMAT, "problem_sha256": problem.sha256, "devices": [ROW]} | changes
    return {key: value for key, value in whole.items() if value is not None}


def test_reading_gives_the_ops_their_times_and_the_source(save: Save) -> None:
    schedule = read_schedule(save(document(source="by hand")), ALONE)
    rows = (Timed(Op(0, "F", 0), 0, 2), Timed(Op(0, "B", 0), 2, 5), Timed(Op(0, "W", 0), 5, 6))
    assert schedule == Schedule((rows,), "by hand")
    assert check(ALONE, schedule) == []


def test_the_source_is_optional(save: Save) -> None:
    assert read_schedule(save(document()), ALONE).source == ""


def test_writing_follows_the_contract(tmp_path: Path) -> None:
    schedule = Schedule(((Timed(Op(0, "F", 0), 0, 2),), ()), 'a "source" é\n')
    problem = chain(2, 1)
    write_schedule(tmp_path / "s.json", problem, schedule)
    assert json.loads((tmp_path / "s.json").read_bytes()) == {
        "format": FORMAT,
        "problem_sha256": problem.sha256,
        "source": 'a "source" é\n',
        "devices": [[["0F0", 0, 2]], []],
    }


@pytest.mark.slow
@settings(max_examples=40)
@given(problems(), st.text(st.characters(codec="utf-8"), max_size=8))
def test_writing_and_reading_are_inverse(
    tmp_path_factory: pytest.TempPathFactory, problem: Problem, source: str
) -> None:
    schedule = Schedule(list_scheduling(problem).devices, source)
    path = tmp_path_factory.getbasetemp() / "schedule.json"
    write_schedule(path, problem, schedule)
    assert read_schedule(path, problem) == schedule
    assert path.read_bytes() == schedule_bytes(problem, schedule)


def test_pairs_keep_their_text(save: Save) -> None:
    # F = 2, BW = 1 + 3 = 4; a pair lasts max(2, 4, ceil(6 * 3 / 4) = 5) = 5
    doc = {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{}],
        "stages": [{"device": 0, "F": 2, "B": 1, "W": 3}],
        "overlap": {"FB": [3, 4]},
    }
    problem = parse_problem(doc)
    rows = [[["0F0", 0, 2], ["(0F1+0BW0)", 2, 7], ["0BW1", 7, 11]]]
    schedule = read_schedule(save(document(problem, devices=rows)), problem)
    assert schedule.devices[0][1].item == Pair(Op(0, "F", 1), Op(0, "BW", 0))
    assert check(problem, schedule) == []
    assert json.loads(schedule_bytes(problem, schedule))["devices"] == rows


def test_an_unreadable_op_is_left_to_the_checker(save: Save) -> None:
    schedule = read_schedule(save(document(devices=[[*ROW, ["0I0", 6, 7]]])), ALONE)
    assert schedule.devices[0][3] == Timed(Unreadable("0I0"), 6, 7)
    assert [v.rule for v in check(ALONE, schedule)] == ["text"]


@pytest.mark.parametrize(
    ("changed", "where", "expected"),
    [
        (7, "", "a JSON object"),
        (document(format=None), "format", "required"),
        (document(format="pipesat.schedule/2"), "format", FORMAT),
        (dict(ALONE.document), "format", FORMAT),
        (document(problem_sha256=None), "problem_sha256", "required"),
        (document(problem_sha256=5), "problem_sha256", "digest"),
        (document(devices={}), "devices", "one list per device"),
        (document(devices=[{}]), "devices[0]", "one list per device"),
        (document(devices=[["0F0", 0, 2]]), "devices[0][0]", "one list per device"),
        (document(devices=[[["0F0", 0]]]), "devices[0][0][2]", "required"),
        (document(devices=[[["0F0", 0, 2, 3]]]), "devices[0][0]", "4 entries, expected at most 3"),
        (document(devices=[[[0, 0, 2]]]), "devices[0][0][0]", "op a string"),
        (document(devices=[[["0F0", 0.0, 2]]]), "devices[0][0][1]", "times integers"),
        (document(devices=[[["0F0", 0, float("nan")]]]), "devices[0][0][2]", "times integers"),
        (document(devices=[[["0F0", 0, 10**30]]]), "devices[0][0][2]", "at most 10^18"),
        (document(extra=1), "extra", "unknown key"),
    ],
)
def test_a_wrong_structure_names_the_place(
    save: Save, changed: object, where: str, expected: str
) -> None:
    path = save(changed, "s.json")
    with pytest.raises(BadInput) as caught:
        read_schedule(path, ALONE)
    assert (caught.value.source, caught.value.where) == (str(path), where)
    assert expected in str(caught.value)


def test_a_schedule_of_another_problem(save: Save) -> None:
    other = chain(1, 2)
    path = save(document(other), "s.json")
    with pytest.raises(BadInput, match="a schedule of another problem") as caught:
        read_schedule(path, ALONE)
    assert caught.value.where == "problem_sha256"
    assert other.sha256 in str(caught.value)  # what stands there
    assert ALONE.sha256 in str(caught.value)  # what would be right


WITH_MODES = parse_problem(
    {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{}, {}],
        "stages": [
            {"device": 0, "F": 2, "B": 2, "W": 1, "held_after_F": 4, "backward": "fused"}
            | {
                "modes": [
                    {"name": "recompute", "BW": 5, "held_after_F": 1},
                    {"name": "offload", "offload": {"out": 2, "in": 2, "held": 1}},
                ]
            },
            {"device": 1, "F": 2, "B": 2, "W": 1},
        ],
    }
)


def test_modes_and_copies_stand_beside_the_ops(tmp_path: Path) -> None:
    row = (
        Timed(Op(0, "F", 0, 2), 0, 2),
        Timed(Op(0, "F", 1, 1), 2, 4),
        Timed(Op(0, "BW", 0, 2), 6, 9),
        Timed(Op(0, "BW", 1, 1), 9, 14),
    )
    copies = (TimedCopy(Copy(0, "O", 0), 2, 4), TimedCopy(Copy(0, "L", 0), 4, 6))
    schedule = Schedule((row, ()), "by hand", (copies, ()))
    write_schedule(tmp_path / "s.json", WITH_MODES, schedule)
    assert json.loads((tmp_path / "s.json").read_bytes()) == {
        "format": FORMAT,
        "problem_sha256": WITH_MODES.sha256,
        "source": "by hand",
        "devices": [[["0F0", 0, 2], ["0F1", 2, 4], ["0BW0", 6, 9], ["0BW1", 9, 14]], []],
        "modes": [[0, 0, "offload"], [0, 1, "recompute"]],
        "copies": [[["0O0", 2, 4], ["0L0", 4, 6]], []],
    }
    assert read_schedule(tmp_path / "s.json", WITH_MODES) == schedule


def test_copies_are_one_list_per_device() -> None:
    said = document(WITH_MODES, devices=[[], []], copies=[[]])
    with pytest.raises(BadInput, match="copies: expected one list per device, 2, not 1"):
        schedule_of_document(said, WITH_MODES, "x")


def test_a_text_that_is_no_copy_is_left_to_the_checker(save: Save) -> None:
    copies = [[["0X0", 2, 4]], []]
    path = save(document(WITH_MODES, devices=[[], []], copies=copies))
    (timed,) = read_schedule(path, WITH_MODES).copies[0]
    assert timed.copy == Unreadable("0X0")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ([2, 0, "offload"], r"modes\[0\]\[0\]: got 2, expected a stage from 0 to 1"),
        (
            [0, 2, "offload"],
            r"modes\[0\]\[1\]: got 2, expected a microbatch of stage 0, from 0 to 1",
        ),
        ([0, 0, "ofload"], "expected a mode of stage 0, one of recompute, offload"),
        ([0, 0, "keep"], "one of recompute, offload; what is kept is not listed"),
        ([1, 0, "offload"], "expected a mode of stage 1, none: the stage has no modes"),
        (
            [0, "0", "offload"],
            r"expected a list of \[stage, microbatch, mode\], two integers and a",
        ),
        ([0, 0], r"modes\[0\]\[2\]: this entry is required and missing"),
    ],
)
def test_modes_that_are_wrong_are_refused(save: Save, entry: list[Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_schedule(save(document(WITH_MODES, devices=[[], []], modes=[entry])), WITH_MODES)


def test_a_mode_is_given_once(save: Save) -> None:
    modes = [[0, 0, "offload"], [0, 0, "recompute"]]
    with pytest.raises(BadInput, match=r"modes\[1\]: .*is given already"):
        read_schedule(save(document(WITH_MODES, devices=[[], []], modes=modes)), WITH_MODES)


def test_copies_are_lists_of_three(save: Save) -> None:
    path = save(document(WITH_MODES, devices=[[], []], copies=[[["0O0", 2.5, 4]], []]))
    with pytest.raises(BadInput, match=r"one list per device of \[copy, start, end\]"):
        read_schedule(path, WITH_MODES)


TWO = chain(2, 2)  # F = B = W = 1
LISTED = [["0F0", "0F1", "0BW0", "0BW1"], ["1F0", "1BW0", "1F1", "1BW1"]]


@pytest.mark.parametrize("as_list", [True, False])
def test_an_order_alone_is_timed_and_is_of_any_problem_with_its_ops(
    save: Save, as_list: bool
) -> None:
    path = save(LISTED if as_list else {"format": FORMAT, "source": "mine", "devices": LISTED})
    # 1F1B of 2 devices and 2 microbatches: (2 + 1) (F + BW), twice that with times twice as long
    for times, expected in ((1, 9), (2, 18)):
        problem = chain(2, 2, F=times, B=times, W=times)
        schedule = read_schedule(path, problem)
        assert schedule.makespan == expected
        assert check(problem, schedule) == []
        assert schedule_of(problem, LISTED).devices == schedule.devices
    assert schedule.source == ("" if as_list else "mine")


def test_an_order_is_run_in_its_modes_and_with_its_pairs(save: Save) -> None:
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 4}
    modes = [{"name": "recompute", "backward": "fused", "BW": 3, "held_after_F": 1}]
    paired = {"FB": [1, 2]}
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 2,
            "devices": [{}],
            "stages": [stage | {"modes": modes}],
            "overlap": paired,
        }
    )
    order = {"format": FORMAT, "devices": [["0F0", "(0F1+0BW0)", "0BW1"]]}
    # 1, then half of 1 + 2 rounded up, then 2, or 3 if it recomputes
    assert read_schedule(save(order), problem).makespan == 1 + 2 + 2
    assert read_schedule(save(order | {"modes": [[0, 1, "recompute"]]}), problem).makespan == 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": [["0F0"], ["1X0"]]}, "devices[1][0]: got '1X0', expected an op, <stage>"),
        ({"devices": [["0F0"]]}, "devices: the order has 1 device lists, the problem 2 devices"),
        ({"devices": [["0F0", "7F0"], []]}, "devices: 7F0: there is no stage 7"),
        ({"devices": [["0F0", ["0F1", 1, 2]], []]}, "devices[0][0]: got '0F0', expected one list"),
        ({"devices": [[["0F0", 0, 1]], []]}, "problem_sha256: this key is required and missing"),
        ({"problem_sha256": "0"}, "problem_sha256: got '0', a schedule of another problem"),
        ({"copies": [[["0O0", 0, 1]], []]}, "copies: expected none, as ops have no times"),
    ],
)
def test_wrong_orders_are_named(save: Save, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_schedule(save({"format": FORMAT, "devices": LISTED} | changes), TWO)
    assert f": {words}" in str(raised.value)


def test_an_order_that_cannot_run_names_what_waits_for_what() -> None:
    with pytest.raises(Deadlock, match="1F1 on device 1 waits for 0F1, which the order does not"):
        schedule_of(TWO, [["0F0", "0BW0", "0BW1"], LISTED[1]])
    with pytest.raises(Deadlock, match="1F1, which stands behind 1BW1 on device 1"):
        schedule_of(TWO, [LISTED[0], ["1F0", "1BW0", "1BW1", "1F1"]])
