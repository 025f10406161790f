"""The file of memory modes beside torch's order: what it says, what it refuses."""

from __future__ import annotations

import pytest

from pipesat.core.checker import check
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.core.ops import Op
from pipesat.core.problem import Problem
from pipesat.core.timing import time_order
from pipesat.export.torch.modes import (
    HEAD,
    ModeRow,
    modes_csv,
    read_mode_rows,
    require_rows_of,
    rows_text,
)
from pipesat.files.problem_file import parse_problem

_RECOMPUTE = {"name": "recompute", "BW": 30, "held_after_F": 1, "held_in_backward": 10}
_OFFLOAD = {"name": "offload", "offload": {"out": 4, "in": 4, "held": 1}}
HEAD_LINE = ",".join(HEAD)


def one_device(**device: int) -> Problem:
    stage = {"device": 0, "F": 10, "B": 10, "W": 10, "held_after_F": 10}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 2,
            "devices": [device],
            "stages": [stage | {"modes": [_RECOMPUTE, _OFFLOAD]}],
        }
    )


def csv_of(problem: Problem, *ops: Op) -> str:
    schedule = time_order(problem, (ops,))
    assert not check(problem, schedule)
    return modes_csv(problem, schedule)


def test_nothing_is_written_where_all_is_kept() -> None:
    problem = one_device()
    assert csv_of(problem, Op(0, "F", 0), Op(0, "BW", 0), Op(0, "F", 1), Op(0, "BW", 1)) == ""


def test_copies_say_what_they_wait_for() -> None:
    # F0 0-10, F1 10-20, BW0 20-40. O0 10-14; L0 in time for BW0: 16-20, while F1 runs, after the
    # end of F0. Nothing that takes memory starts after O0: a backward takes none here.
    ops = [Op(0, "F", 0, 2), Op(0, "F", 1, 1), Op(0, "BW", 0, 2), Op(0, "BW", 1, 1)]
    text = csv_of(one_device(), *ops)
    # BW1 in recompute takes 9 at its start: O0 has ended by then
    assert text.splitlines() == [HEAD_LINE, "0,0,offload,0,0B1,0,0F1,0F0", "0,1,recompute,,,,,"]


def test_an_op_waits_for_the_copy_that_makes_room() -> None:
    # Room for 11: F1 needs the 9 that O0 sets free at 14, so it runs 14-24, in recompute with 1
    # alone would fit at once; kept it takes 10.
    ops = [Op(0, "F", 0, 2), Op(0, "F", 1), Op(0, "BW", 1), Op(0, "BW", 0, 2)]
    lines = csv_of(one_device(memory=11), *ops).splitlines()
    # F1 14-24, BW1 24-44, and L0 must wait for its end: 44-48
    assert lines[1:] == ["0,0,offload,0,0F1,0,,0B1"]


def test_one_channel_counts_both_directions() -> None:
    ops = [Op(0, "F", 0, 2), Op(0, "F", 1), Op(0, "BW", 1), Op(0, "BW", 0, 2)]
    lines = csv_of(one_device(memory=11, copy_channels=1), *ops).splitlines()
    assert lines[1:] == ["0,0,offload,0,0F1,1,,0B1"]


def test_a_split_backward_does_not_recompute() -> None:
    ops = [Op(0, "F", 0, 1), Op(0, "B", 0, 1), Op(0, "W", 0, 1), Op(0, "F", 1), Op(0, "BW", 1)]
    with pytest.raises(NotApplicable, match="0B0 recomputes its forward and splits its backward"):
        csv_of(one_device(), *ops)


def test_the_file_reads_back() -> None:
    rows = (ModeRow(0, 0, "offload", 0, "0F1", 1, "0F2", ("0B1", "1O2")), ModeRow(1, 0, "half"))
    assert read_mode_rows(rows_text(rows), "f") == rows


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("0,0,offload,0,0F1,0", "line 2: "),
        ("x,0,offload,0,0F1,0,,", "line 2, stage: "),
        ("0,-1,recompute,,,,,", "line 2, microbatch: "),
        ("0,0,,,,,,", "line 2, mode: "),
        ("0,0,offload,0,,,,", "line 2: "),
        ("0,0,offload,0,0X1,0,,", "line 2, out_before: "),
        ("0,0,offload,0,,0,,0F1junk", "line 2, load_after: "),
    ],
)
def test_a_wrong_line_is_named(line: str, place: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_mode_rows(f"{HEAD_LINE}\n{line}\n", "f.modes.csv")
    assert str(raised.value).startswith(f"f.modes.csv: {place}")


def test_rows_are_of_the_order() -> None:
    order = [["0F0", "0B0"], ["1F0", "1I0", "1W0"]]
    require_rows_of([ModeRow(0, 0, "recompute")], order, "f")
    with pytest.raises(BadInput, match="no such forward"):
        require_rows_of([ModeRow(0, 1, "recompute")], order, "f")
    with pytest.raises(BadInput, match="its backward is split"):
        require_rows_of([ModeRow(1, 0, "recompute")], order, "f")
    with pytest.raises(BadInput, match="expected an op of its rank"):
        require_rows_of([ModeRow(0, 0, "offload", 0, "1F0", 0)], order, "f")
    with pytest.raises(BadInput, match="appears twice"):
        read_mode_rows(rows_text([ModeRow(0, 0, "a"), ModeRow(0, 0, "a")]), "f")
