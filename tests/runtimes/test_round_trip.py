"""What is exported for torch comes back: microbatches' own numbers, memory modes and copies."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pipesat
from pipesat.check.checker import check
from pipesat.compare.exports import import_order
from pipesat.core.errors import BadInput, Deadlock, NotApplicable, NotValid
from pipesat.problem.ops import members
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.schedule.schedule import Order, Schedule
from pipesat.schedule.timing import time_order
from tests.oracle.generator import MODES, ONE_ROUTE
from tests.support.orders import random_order
from tests.support.problems import of


@st.composite
def scheduled(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """A tiny problem with a list, with modes or both, and a valid random schedule of it."""
    chance = Random(draw(st.integers(0, 1 << 30)))
    kind = draw(st.sampled_from(["modes", "list", "both"]))
    more = {"modes": MODES if kind != "list" else ("",), "shapes": ONE_ROUTE}
    more["lists"] = ("free",) if kind != "modes" else ("",)
    problem = of("plain", chance.random(), ops=12, held=0.3, memory=("none", "any"), **more)
    assume(all(problem.stages_on))
    try:
        schedule = time_order(problem, random_order(problem, chance))
    except Deadlock:
        assume(condition=False)
    assume(not check(problem, schedule))
    return problem, schedule


def fused(order: Order) -> list[list[tuple[int, str, int, int]]]:
    """Every device's ops, without which backwards are written whole: all that export changes."""
    whole = {"F": "F", "B": "B", "BW": "B"}
    return [
        [
            (op.stage, whole[op.kind], op.microbatch, op.mode)
            for item in row
            for op in members(item)
            if op.kind != "W"
        ]
        for row in order
    ]


@pytest.mark.filterwarnings("ignore:torch.s order takes")
@settings(max_examples=60, deadline=None)
@given(scheduled())
def test_what_is_exported_comes_back(made: tuple[Problem, Schedule]) -> None:
    problem, schedule = made
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            exported = pipesat.export(problem, schedule, path=folder / "a.csv")
        except NotApplicable:  # recomputes and splits, or a capacity is exceeded once it is changed
            return
        back, _ = import_order(folder / "a.csv", problem)
        # the numbers are the problem's own where microbatches differ, torch's where they do not
        if problem.has_lists or not any("relabelled" in note for note in exported.notes):
            changed = any("whole" in note for note in exported.notes)
            assert changed or fused(back.order) == fused(schedule.order)
            assert back.modes == schedule.modes
            if not any("made whole" in n or "fused" in n for n in exported.notes) and not changed:
                # copies are timed anew, as those of any order
                assert back.devices == time_order(problem, schedule.order).devices
        assert sorted(back.modes.values()) == sorted(schedule.modes.values())
        # and what came back is written as it was, byte by byte
        again = pipesat.export(problem, back, path=folder / "b.csv", exact=True)
        assert (again.data, dict(again.beside)) == (exported.data, dict(exported.beside))


TWO = {
    "format": "pipesat.problem/1",
    "devices": [{"memory": 11}],
    "stages": [
        {"device": 0, "F": 10, "B": 10, "W": 10, "held_after_F": 10, "backward": "fused"}
        | {
            "modes": [
                {"name": "again", "BW": 30, "held_after_F": 1, "held_in_backward": 10},
                {"name": "host", "offload": {"out": 4, "in": 4, "held": 1}},
            ]
        }
    ],
    "microbatches": [{"name": "a", "count": 1}, {"name": "b", "count": 1, "time": [2, 1]}],
}


def modes(**listed: object) -> dict[str, object]:
    return {"recompute": [], "offload": []} | listed


AGAIN = modes(recompute=[[0, 1, "again"]])


def two_files(folder: Path, order: object = None, modes: object = None) -> Problem:
    """Microbatch b first: F 0-20, BW 20-60; then a: F 60-70, BW 70-90 (100 in the mode again)."""
    (folder / "x.csv").write_text("0F0,0B0,0F1,0B1\n")
    if order is not None:
        (folder / "x.order.json").write_text(json.dumps(order))
    if modes is not None:
        (folder / "x.modes.json").write_text(json.dumps(modes))
    return parse_problem(TWO)


def test_both_files_are_read_by_name(tmp_path: Path) -> None:
    problem = two_files(tmp_path, [1, 0], AGAIN)
    back, notes = import_order(tmp_path / "x.csv", problem)
    assert [[str(item) for item in row] for row in back.order] == [["0F1", "0BW1", "0F0", "0BW0"]]
    assert back.modes == {(0, 0): 1}  # torch's number 1 is microbatch a, whose own number is 0
    assert (back.makespan, notes) == (100, ())


def test_without_them_it_says_what_it_assumes(tmp_path: Path) -> None:
    problem = two_files(tmp_path)
    back, notes = import_order(tmp_path / "x.csv", problem)
    assert str(back.order[0][0]) == "0F0"
    assert notes == (
        "no x.order.json beside it: its microbatch numbers are taken for the problem's own",
        "no x.modes.json beside it: every microbatch is kept",
    )


def test_what_does_not_fit_without_them_says_so_too(tmp_path: Path) -> None:
    problem = two_files(tmp_path)
    (tmp_path / "x.csv").write_text("0F0,0F1,0B0,0B1\n")  # kept, both take 20 of 11
    with pytest.raises(NotValid, match=r"no x\.modes\.json beside it: every microbatch is kept\)"):
        import_order(tmp_path / "x.csv", problem)
    # b's copy out makes room for a, and a's end for the copy back
    (tmp_path / "x.modes.json").write_text('{"recompute": [], "offload": [[0, 0, "host"]]}')
    (tmp_path / "x.csv").write_text("0F0,0F1,0B1,0B0\n")
    back, _ = import_order(tmp_path / "x.csv", problem)
    # F0 0-10, O0 10-14, F1 14-34, BW1 34-74, L0 74-78, BW0 78-98
    assert [timed[1:] for timed in back.devices[0]] == [(0, 10), (14, 34), (34, 74), (78, 98)]
    assert [tuple(map(str, timed)) for timed in back.copies[0]] == [
        ("0O0", "10", "14"),
        ("0L0", "74", "78"),
    ]


def test_files_of_other_names_are_named(tmp_path: Path) -> None:
    problem = two_files(tmp_path, [0, 1])
    (tmp_path / "mine").write_text("[1, 0]")
    back, _ = import_order(tmp_path / "x.csv", problem, order=tmp_path / "mine")
    assert str(back.order[0][0]) == "0F1"
    with pytest.raises(BadInput, match=r"gone\.csv: cannot read"):
        import_order(tmp_path / "x.csv", problem, modes=tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("order", "modes", "said"),
    [
        ([0], None, "x.order.json: got [0], expected a list with each microbatch"),
        ({"0": 1}, None, 'x.order.json: got {"0": 1}, expected a list'),
        ([0, 0], None, "x.order.json: [1]: got 0, expected a list"),
        ([0, True], None, "x.order.json: [1]: got true, expected a list"),
        (
            None,
            modes(recompute=[[0, 0, "nap"]]),
            "'nap' is no mode of the problem that recomputes, expected one of",
        ),
        (
            None,
            modes(recompute=[[0, 2, "again"]]),
            "stage 0, microbatch 2: the order has no such",
        ),
        (
            None,
            modes(recompute=[[0, 0, "host"]]),
            "'host' is no mode of the problem that recomputes",
        ),
        (None, modes(offload=[[0, 0, "again"]]), "'again' is no mode of the problem that offloads"),
    ],
)
def test_a_file_that_contradicts_is_refused(
    tmp_path: Path, order: object, modes: object, said: str
) -> None:
    problem = two_files(tmp_path, order, modes)
    with pytest.raises(BadInput) as raised:
        import_order(tmp_path / "x.csv", problem)
    assert said in str(raised.value)


def test_an_order_leaves_no_file_of_the_one_before_it(tmp_path: Path) -> None:
    problem = two_files(tmp_path, [1, 0], AGAIN)
    back, _ = import_order(tmp_path / "x.csv", problem)
    kept = time_order(problem, tuple(tuple(op._replace(mode=0) for op in r) for r in back.order))  # type: ignore[union-attr]
    exported = pipesat.export(problem, kept, path=tmp_path / "x.csv")
    assert not (tmp_path / "x.modes.json").exists()
    assert "removed x.modes.json: of an earlier order under this name" in exported.notes
    assert json.loads((tmp_path / "x.order.json").read_text()) == [1, 0]
