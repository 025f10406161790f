"""The campaign sees what is false among the levers of a frontier, and in the sentences on them."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

AGAIN = {"name": "again", "BW": 4, "held_after_F": 0}
DOCUMENT = {
    "devices": [{"memory": 2}],
    "stages": [{"device": 0, "F": 1, "B": 1, "W": 1, "held_after_F": 2, "modes": [AGAIN]}],
    "mode_choice": "stage",
}
CURVES = {"keep": [(2, 60), (None, 40)], "again": [(2, 45), (None, 40)]}
PEAKS = {60: 2, 45: 1, 40: 4}
SENTENCES = (
    "  at 2 (0.500 x 1F1B): again 45 (gap 2.23 %), 25.00 % shorter than waiting (keep), 60\n"
    "    (proven optimal)\nwith ample memory: 40 (proven optimal), reached by keep from 4 (1.000 x "
    "1F1B) on,\n    by again from 4 (1.000 x 1F1B) on; these are the least capacities found"
)


def standing(value: int, bound: int) -> dict[str, Any]:
    status = "optimal" if value == bound else "feasible"
    return {
        "status": status,
        "value": value,
        "lower_bound": bound,
        "gap": (value - bound) / value,
    }


ROW: dict[str, Any] = {
    "cap": 2,
    "best": "again",
    "levers": {"keep": standing(60, 60), "again": standing(45, 44)},
}


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports one of the campaign's modules."""
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return lambda name: importlib.import_module(f"campaign.{name}")


def case_and_levers(judge: Any, folder: Path) -> tuple[Any, Any]:
    levers = judge("commands.levers").levers_of(DOCUMENT)
    for lever in levers:
        points = CURVES[lever.name]
        lever.known = [(PEAKS[value], value) for _, value in points]
        lever.curve = {
            "points": [{"cap": c, "value": v, "peak_memory": [PEAKS[v]]} for c, v in points]
        }
    return judge("case").Case("frontier/modes", 1, folder), levers


def rows_judged(judge: Any, folder: Path, row: dict[str, Any], lower: int, upper: int) -> Any:
    case, levers = case_and_levers(judge, folder)
    truth = judge("judge.exact").Truth(lower, upper, feasible=True)
    judge("commands.levers").compared(case, levers, [row], lambda *_: truth)
    return case.violations


def test_a_lever_is_the_problem_with_some_of_its_modes(judge: Any) -> None:
    keep, again = judge("commands.levers").levers_of(DOCUMENT)
    assert (keep.name, again.name) == ("keep", "again")
    assert "modes" not in keep.document["stages"][0]
    assert "mode_choice" not in keep.document
    assert again.document == DOCUMENT


def test_a_true_row_passes(judge: Any, tmp_path: Path) -> None:
    assert rows_judged(judge, tmp_path, ROW, 44, 60) == []


@pytest.mark.parametrize(
    ("lever", "changed", "seen"),
    [
        ("again", standing(44, 44), "none of the schedules written has it"),
        ("again", standing(60, 44), "45 is known"),
        ("keep", standing(60, 60) | {"status": "feasible"}, "status"),
        ("keep", standing(60, 60) | {"gap": 0.1}, "gap"),
        ("keep", standing(60, 61), "though 60 is possible"),
        ("again", standing(45, 45) | {"status": "infeasible"}, "the oracle has 60"),
        ("keep", standing(43, 43), "below 44"),
    ],
)
def test_a_false_claim_of_a_lever_is_seen(
    judge: Any, tmp_path: Path, lever: str, changed: dict[str, Any], seen: str
) -> None:
    row = copy.deepcopy(ROW)
    row["levers"][lever] = changed
    assert any(seen in text for text in rows_judged(judge, tmp_path, row, 44, 60))


def test_a_bound_above_a_schedule_of_fewer_modes_is_seen(judge: Any, tmp_path: Path) -> None:
    case, levers = case_and_levers(judge, tmp_path)
    levers[0].known.append((2, 43))  # keep at 43 is a schedule of the other lever, too
    truth = judge("judge.exact").Truth(0)
    judge("commands.levers").compared(case, levers, [ROW], lambda *_: truth)
    assert any("but keep has 43" in text for text in case.violations)


def test_true_sentences_pass(judge: Any, tmp_path: Path) -> None:
    case, levers = case_and_levers(judge, tmp_path)
    judge("commands.levers").statements(case, levers, [ROW], SENTENCES, 2)
    assert case.violations == []


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("25.00 %", "25.40 %"),
        ("again 45", "again 44"),
        ("(keep), 60", "(keep), 61"),
        ("gap 2.23 %", "proven optimal"),
        ("gap 2.23 %", "gap 2.40 %"),
        ("again 45 (gap", "keep 45 (gap"),
        ("memory: 40", "memory: 39"),
        ("keep from 4", "keep from 3"),
        (", reached by keep from 4 (1.000 x 1F1B) on,", ", reached"),
        ("at 2 (", "at 3 ("),
    ],
)
def test_a_false_sentence_is_seen(judge: Any, tmp_path: Path, true: str, false: str) -> None:
    case, levers = case_and_levers(judge, tmp_path)
    assert true in SENTENCES
    text = SENTENCES.replace(true, false, 1)
    judge("commands.levers").statements(case, levers, [ROW], text, 2)
    assert case.violations
