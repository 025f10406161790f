"""Schedule files: contract, section 4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesat.core.checker import check
from pipesat.core.errors import BadInput
from pipesat.core.ops import Op, Pair, Unreadable
from pipesat.core.problem import Problem
from pipesat.core.schedule import Schedule, Timed
from pipesat.files.problem_file import parse_problem
from pipesat.files.schedule_file import read_schedule, schedule_bytes, write_schedule
from pipesat.heuristics.list_scheduling import list_scheduling
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
        ([], "", "a JSON object"),
        (None, "", "a JSON object"),
        (document(format=None), "format", "required"),
        (document(format="pipesat.schedule/2"), "format", FORMAT),
        (dict(ALONE.document), "format", FORMAT),
        (document(problem_sha256=None), "problem_sha256", "required"),
        (document(problem_sha256=5), "problem_sha256", "digest"),
        (document(source=5), "source", "a string"),
        (document(devices=None), "devices", "required"),
        (document(devices={}), "devices", "one list per device"),
        (document(devices=[{}]), "devices[0]", "one list per device"),
        (document(devices=[["0F0", 0, 2]]), "devices[0][0]", "one list per device"),
        (document(devices=[[["0F0", 0]]]), "devices[0][0][2]", "required"),
        (document(devices=[[["0F0", 0, 2, 3]]]), "devices[0][0]", "4 entries, expected at most 3"),
        (document(devices=[[[0, 0, 2]]]), "devices[0][0][0]", "op a string"),
        (document(devices=[[["0F0", 0.0, 2]]]), "devices[0][0][1]", "times integers"),
        (document(devices=[[["0F0", 0, "2"]]]), "devices[0][0][2]", "times integers"),
        (document(devices=[[["0F0", False, 2]]]), "devices[0][0][1]", "times integers"),
        (document(devices=[[["0F0", None, 2]]]), "devices[0][0][1]", "times integers"),
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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty"),
        (b"hello", "not JSON"),
        (b'{"format": 1, "format": 2}', "format: this key appears twice"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_good_json(save: Save, content: bytes, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        read_schedule(save(content), ALONE)
