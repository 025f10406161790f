"""Microbatches from lengths; expected factors by hand from the formula of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipesat.core.errors import BadInput
from pipesat.problem.lengths import microbatches_from_lengths, read_lengths
from pipesat.problem.problem_file import parse_problem


def test_factors_are_rounded_up_to_ten_thousandths() -> None:
    # x = 3/7: time 3/4 x + 1/4 x^2 = 9/28 + 9/196 = 72/196 = 0.36734..; others 0.42857..
    (entry,) = microbatches_from_lengths([3], 7, 0.25)
    factors = {"time": [3674, 10**4], "held": [4286, 10**4], "comm": [4286, 10**4]}
    assert entry == {"name": "3", "count": 1} | factors


def test_microbatches_keep_their_numbers() -> None:
    entries = microbatches_from_lengths([8, 4, 4, 8], 4)
    assert [(e["name"], e["count"]) for e in entries] == [("8", 1), ("4", 2), ("8", 1)]
    assert entries[0]["time"] == [20000, 10**4]
    assert set(entries[2]) == {"name", "count"}
    problem = parse_problem(
        {
            "format": "pipesat.problem/1",
            "devices": [{}],
            "stages": [{"device": 0, "F": 10, "B": 1, "W": 1}],
            "microbatches": entries,
        }
    )
    assert [problem.amounts(0, m).F for m in range(4)] == [20, 10, 10, 20]


def test_a_tolerance_joins_lengths_to_the_longest_of_their_class() -> None:
    # of 100: 110 joins nobody; 100 <= 1.1 * ... : 110 <= 1.1 * 100, so 100 joins; 110 > 1.1 * 99
    entries = microbatches_from_lengths([99, 100, 110, 90], 100, 0, 0.1)
    assert [(e["name"], e["count"]) for e in entries] == [("99", 1), ("110", 2), ("99", 1)]
    assert entries[1]["held"] == [11000, 10**4]
    # time grows with the square: 12100 > 1.1 * 10000, so 100 has a class of its own
    entries = microbatches_from_lengths([99, 100, 110], 100, 1, 0.1)
    assert [e["name"] for e in entries] == ["100", "110"]


@pytest.mark.parametrize(
    ("lengths", "reference", "rest", "wanted"),
    [
        ([], 1, {}, "lengths: expected at least one length"),
        ([1, 0], 1, {}, "lengths: [1]: got 0, expected an integer from 1 to 10^12"),
        ([1.5], 1, {}, "got 1.5, expected an integer"),
        ([True], 1, {}, "got True, expected an integer"),
        ([101], 1, {}, "its factor would be 1010000/10^4, expected 1 to 10^6 of these"),
        ([11], 1, {"quadratic": 1}, "its factor would be 1210000/10^4"),
        ([1], 0, {}, "reference: got 0"),
        ([1], 1, {"quadratic": 2}, "quadratic: got 2, expected a share from 0 to 1"),
        ([1], 1, {"tolerance": -1}, "tolerance: got -1"),
    ],
)
def test_bad_lengths(lengths: list[Any], reference: int, rest: dict[str, Any], wanted: str) -> None:
    with pytest.raises(BadInput) as caught:
        microbatches_from_lengths(lengths, reference, **rest)
    assert wanted in str(caught.value)


def test_files_are_a_list_or_a_column(tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    path.write_text("[3, 1]")
    assert read_lengths(path) == [3, 1]
    path.write_text("3\n1\n\n")
    assert read_lengths(path) == [3, 1]
    path.write_text("3,1\n")
    with pytest.raises(BadInput, match="line 1: got '3,1', expected an integer, one per line"):
        read_lengths(path)
    for text, said in (
        ('[3, "1"]', r"lengths: \[1\]: got '1', expected an integer from 1 to 10\^12"),
        ("3\n0\n", r"lengths: \[1\]: got 0, expected an integer from 1 to 10\^12"),
        ("", "lengths: expected at least one length"),
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match=f"{tmp_path}/{said}"):
            read_lengths(path)
