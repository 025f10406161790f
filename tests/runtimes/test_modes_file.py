"""The file of memory modes beside torch's order: what it says, what it refuses."""

from __future__ import annotations

import json

import pytest

from pipesat.check.checker import check
from pipesat.core.errors import BadInput, NotApplicable
from pipesat.problem.ops import Op
from pipesat.problem.problem import Problem
from pipesat.problem.problem_file import parse_problem
from pipesat.runtimes.torch.companions import ModeRow, modes_text, read_mode_rows, require_rows_of
from pipesat.runtimes.torch.lint import parse_action
from pipesat.schedule.timing import time_order

_RECOMPUTE = {"name": "recompute", "BW": 30, "held_after_F": 1, "held_in_backward": 10}
_OFFLOAD = {"name": "offload", "offload": {"out": 4, "in": 4, "held": 1}}


def one_device() -> Problem:
    stage = {"device": 0, "F": 10, "B": 10, "W": 10, "held_after_F": 10}
    return parse_problem(
        {
            "format": "pipesat.problem/1",
            "microbatches": 2,
            "devices": [{}],
            "stages": [stage | {"modes": [_RECOMPUTE, _OFFLOAD]}],
        }
    )


def text_of(problem: Problem, *ops: Op) -> str:
    schedule = time_order(problem, (ops,))
    assert not check(problem, schedule)
    return modes_text(problem, schedule)


def test_nothing_is_written_where_all_is_kept() -> None:
    problem = one_device()
    assert text_of(problem, Op(0, "F", 0), Op(0, "BW", 0), Op(0, "F", 1), Op(0, "BW", 1)) == ""


def test_what_is_not_kept_is_listed_by_what_it_does() -> None:
    ops = [Op(0, "F", 0, 2), Op(0, "F", 1, 1), Op(0, "BW", 0, 2), Op(0, "BW", 1, 1)]
    text = text_of(one_device(), *ops)
    assert json.loads(text) == {"recompute": [[0, 1, "recompute"]], "offload": [[0, 0, "offload"]]}
    rows = (ModeRow(0, 1, "recompute"), ModeRow(0, 0, "offload", offloads=True))
    assert read_mode_rows(text, "f") == rows


def test_a_split_backward_does_not_recompute() -> None:
    ops = [Op(0, "F", 0, 1), Op(0, "B", 0, 1), Op(0, "W", 0, 1), Op(0, "F", 1), Op(0, "BW", 1)]
    with pytest.raises(NotApplicable, match="0B0 recomputes its forward and splits its backward"):
        text_of(one_device(), *ops)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "f: got [], expected a JSON object"),
        ('{"recompute": []}', "f: offload: this key is required and missing"),
        ('{"recompute": [[0, 0, "a"]], "offload": [[0, 0, "b"]]}', "stage 0, microbatch 0: "),
        ('{"recompute": [[0, 0]], "offload": []}', "f: recompute[0]"),
        ('{"recompute": [["0", 0, "a"]], "offload": []}', "f: recompute[0][0]: got '0'"),
    ],
)
def test_a_wrong_file_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_mode_rows(text, "f")
    assert said in str(raised.value)


def test_rows_are_of_the_order() -> None:
    order = [*filter(None, map(parse_action, ["0F0", "0B0", "1F0", "1I0", "1W0"]))]
    require_rows_of([ModeRow(0, 0, "recompute")], order, "f")
    with pytest.raises(BadInput, match="no such forward"):
        require_rows_of([ModeRow(0, 1, "recompute")], order, "f")
    with pytest.raises(BadInput, match="its backward is split"):
        require_rows_of([ModeRow(1, 0, "recompute")], order, "f")
