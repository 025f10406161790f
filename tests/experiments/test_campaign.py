"""The campaign: its judge sees planted faults, and some dozens of its cases are clean."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.campaign import commands, pool, process
from bench.campaign.case import Case
from bench.campaign.commands.advise import false_gains
from bench.campaign.commands.frontier import a_curve
from bench.campaign.commands.relations import Change, wrong
from bench.campaign.commands.remarks import false_remarks
from bench.campaign.judge import Judged, Truth, digest, exact, false_claims, lower_bound, retimed
from bench.campaign.problems import EVERY, problem_of
from tests.oracle.reading import Pipe
from tests.support.paths import ROOT

# Two devices, two microbatches, no split: device 0 F0 F1 . BW0 BW1, device 1 . F0 BW0 F1 BW1 with
# F = 1, BW = 2. F0 ends at 1, device 1 works from 1 to 7; BW1 of device 0 starts at 7, ends at 9.
DOCUMENT: dict[str, Any] = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{"memory": 5, "static": 1}, {}],
    "stages": [
        {"device": d, "F": 1, "B": 1, "W": 1, "held_after_F": 2, "backward": "fused"}
        for d in (0, 1)
    ],
}
ROWS = [
    [["0F0", 0, 1], ["0F1", 1, 2], ["0BW0", 4, 6], ["0BW1", 7, 9]],
    [["1F0", 1, 2], ["1BW0", 2, 4], ["1F1", 4, 5], ["1BW1", 5, 7]],
]
SCHEDULE = {"format": "pipesat.schedule/1", "problem_sha256": digest(DOCUMENT), "devices": ROWS}
RESULT: dict[str, Any] = {
    "status": "optimal",
    "objective": "makespan",
    "value": 9,
    "makespan": 9,
    "span": 9,
    "lower_bound": 9,
    "lower_bound_source": "",
    "gap": 0.0,
    "bubble": {"makespan": 1 / 3, "span": 1 / 3},  # 12 of 18, and 6 of 9 are work
    "peak_memory": [5, 2],
    "baseline": {"name": "1f1b", "value": 9},
    "schedule": None,
    "pairs": {},
    "modes": {"keep": 4},
    "wall_s": 0.1,
    "seed": 0,
    "workers": 1,
    "versions": {},
}
KNOWN = Truth(9, 9, feasible=True)  # 9: the way of a microbatch and what waits for it


def false(change: dict[str, Any], code: int = 0, known: Truth = KNOWN) -> list[str]:
    judged = Judged(DOCUMENT, "makespan", known)
    return [*false_claims(judged, RESULT | change, copy.deepcopy(SCHEDULE), code)]


def test_what_is_true_passes() -> None:
    assert false({}) == []
    assert exact(DOCUMENT, "makespan", 5.0).upper == 9


@pytest.mark.parametrize(
    "change",
    [
        {"value": 8},
        {"makespan": 10},
        {"span": 8},
        {"lower_bound": 10},
        {"gap": 0.1},
        {"status": "feasible"},
        {"lower_bound": 8, "gap": 1 / 9},
        {"objective": "span"},
        {"peak_memory": [4, 2]},
        {"bubble": {"makespan": 0.3, "span": 1 / 3}},
        {"pairs": {"F+BW": 1}},
        {"modes": {"keep": 3, "recompute": 1}},
        {"baseline": {"name": "1f1b", "value": 8}},
        {"status": "infeasible"},
        {"status": "unknown"},
        {"value": None},
    ],
)
def test_a_planted_false_claim_is_seen(change: dict[str, Any]) -> None:
    assert false(change)


def test_claims_against_what_is_known_are_seen() -> None:
    assert false({}, code=3)
    none = Truth(9, feasible=False)
    assert any("no schedule exists" in claim for claim in false({}, known=none))
    assert any("none is below 10" in claim for claim in false({}, known=Truth(10)))
    judged = Judged(DOCUMENT, "makespan", KNOWN)
    assert judged.judge(SCHEDULE | {"problem_sha256": "another"})[1] == ["digest"]
    spoiled = copy.deepcopy(SCHEDULE)
    spoiled["devices"][0][3][1:] = [6, 8]  # its input is there at 7
    assert judged.judge(spoiled)[1][0].startswith("input")


def test_bounds_of_larger_problems_hold_for_small_ones() -> None:
    """By hand, what a device has to do is 6, a microbatch's way 1 + 1 + 2 + 2."""
    assert lower_bound(Pipe(DOCUMENT), "makespan") == lower_bound(Pipe(DOCUMENT), "span") == 6
    assert lower_bound(Pipe(DOCUMENT | {"microbatches": 1}), "makespan") == 6
    for family in ("plain", "pairs", "modes", "lists"):
        for seed in range(2):
            document = problem_of(family, Random(seed))
            truth = exact(document, "makespan", 0.3)
            if truth.upper is not None:
                assert lower_bound(Pipe(document), "makespan") <= truth.upper


def test_times_with_a_divisor_are_divided() -> None:
    stages = [stage | {"F": 10**9, "B": 10**9, "W": 10**9} for stage in DOCUMENT["stages"]]
    large = DOCUMENT | {"stages": stages}
    truth = exact(large, "makespan", 5.0)
    assert truth.upper == 9 * 10**9
    judged = Judged(large, "makespan", truth)
    assert judged.judge(truth.schedule)[1] == []


def test_an_order_is_timed_as_early_as_possible_or_by_its_span() -> None:
    judged = Judged(DOCUMENT, "makespan", KNOWN)
    late = copy.deepcopy(SCHEDULE)
    for slot in (slot for row in late["devices"] for slot in row):
        slot[1:] = [slot[1] + 5, slot[2] + 5]
    again = retimed(judged, late, "makespan")
    assert again is not None
    assert again["devices"] == ROWS
    spread = retimed(judged, late, "span")
    assert spread is not None
    timed, _ = judged.judge(spread)
    assert timed is not None
    assert timed.span == 9  # F0 of device 0 before all of device 1, its BW1 after


def test_relations_that_do_not_hold_are_seen() -> None:
    one = {"status": "optimal", "value": 9, "lower_bound": 9}
    twice = Change("times x 2", DOCUMENT, 2)
    assert [*wrong(twice, one, one | {"value": 18, "lower_bound": 18})] == []
    assert [*wrong(twice, one, one | {"value": 17, "lower_bound": 17})] == ["2 x bound 9, but 17"]
    assert [*wrong(twice, one, one | {"value": 19, "lower_bound": 19})]
    assert [*wrong(twice, one, {"status": "infeasible", "value": None, "lower_bound": None})]
    assert [*wrong(Change("an idle key", DOCUMENT, same=True), one, one | {"lower_bound": 8})]
    freer = Change("more memory", DOCUMENT, equal=False)
    assert [*wrong(freer, one, one | {"value": 8, "lower_bound": 8})] == []


def test_a_false_curve_is_seen(tmp_path: Path) -> None:
    """One point without files: its status, gap and bound are wrong; the truth at cap 5 is 9."""
    case = Case("frontier/plain", 0, tmp_path)
    point = {"cap": 5, "value": None, "lower_bound": 10, "gap": 0.1, "status": "optimal"}
    a_curve(case, DOCUMENT, {"points": [point], "published": []}, "makespan")
    said = "; ".join(case.violations)
    assert re.search(r"status.*gap.*bound 10, 9 is possible", said)


def test_a_gain_over_what_no_row_takes_or_of_another_share_is_seen() -> None:
    text = "4.6 % shorter than 1F1B as shipped (65 ms). 8.8 % shorter than the best (68 ms)"
    rows = [{"makespan": value} for value in (62, 65, 68)]
    assert [*false_gains(text, 62, rows)] == []
    assert len([*false_gains(text, 62, rows[:2])]) == 1
    assert len([*false_gains(text, 61, rows)]) == 2


def test_a_remark_that_is_missing_or_not_due_is_seen() -> None:
    said = [{"path": "stages[1].BW", "value": 9, "text": "BW is longer than B + W"}]
    longer = copy.deepcopy(DOCUMENT)
    assert [*false_remarks(longer, [])] == []
    assert len([*false_remarks(longer, [said[0] | {"value": 2}])]) == 1
    longer["stages"][1] |= {"backward": "either", "BW": 9}
    assert [*false_remarks(longer, said)] == []
    assert len([*false_remarks(longer, [])]) == 1


def test_every_family_is_drawn_the_same_for_the_same_seed() -> None:
    for family in EVERY:
        assert problem_of(family, Random(3)) == problem_of(family, Random(3))


@pytest.mark.slow
def test_two_cases(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.campaign.run", "--cases", "2", "--seed", "7"]
    command += ["--output", str(tmp_path), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr + done.stdout
    name, cases, *_, false = map(str.strip, done.stdout.splitlines()[-1].strip("| ").split("|"))
    assert (name, cases, false) == ("**all**", "2", "0")


def test_a_false_case_leaves_a_folder_and_a_replay(tmp_path: Path) -> None:
    def lies(case: Any) -> None:
        case.expect(False, "2 is 3")

    commands.KINDS["lies"] = lies
    try:
        (outcome,) = pool.run_all(iter([("lies", 4)]), tmp_path, 1)
    finally:
        del commands.KINDS["lies"]
    assert outcome.violations == ["2 is 3"]
    saved = json.loads((tmp_path / "lies-4" / "case.json").read_text())
    assert saved["replay"] == "python -m bench.campaign.run --case lies:4"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("twice", "pipesat.core.folder._read", r"leaves \["),
        (
            "kill",
            "pipesat.core.strict_json.finish",
            "no result.json|schedule|digest|none of those",
        ),
        ("streams", "pipesat.cli.process.keep_streams", "exit code|a fault"),
    ],
)
def test_what_is_lost_in_a_folder_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, said: str
) -> None:
    """Without the list, without the readers that finish moves, without streams that are kept."""
    process.load()
    monkeypatch.setattr(name, lambda *_: {})
    for module in ("atomic", "folder") if kind == "kill" else ():
        monkeypatch.setattr(f"pipesat.core.{module}.finish", lambda _: None)
    cases = iter([(f"{kind}/plain", seed) for seed in range(12)])
    texts = (
        text for case in pool.run_all(cases, tmp_path, 1, quick=True) for text in case.violations
    )
    assert any(re.search(said, text) for text in texts)
