"""The campaign: its judge sees planted faults, and some dozens of its cases are clean."""

from __future__ import annotations

import copy
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pipesat.heuristics import BASELINES
from tests.support.class_documents import random_document
from tests.support.class_oracle import Oracle
from tests.support.oracle_by_instants import optimum
from tests.support.paths import ROOT
from tests.support.tiny_modes import tiny

CAMPAIGN = ROOT / "experiments" / "campaign"

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


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports one of the campaign's modules."""
    monkeypatch.syspath_prepend(str(CAMPAIGN.parent))
    return lambda name: importlib.import_module(f"campaign.{name}")


def schedule(judge: Any, document: dict[str, Any] = DOCUMENT) -> dict[str, Any]:
    digest = judge("judge.reading").digest(document)
    return {
        "format": "pipesat.schedule/1",
        "problem_sha256": digest,
        "devices": copy.deepcopy(ROWS),
    }


def broken(judge: Any, found: dict[str, Any], document: dict[str, Any] = DOCUMENT) -> set[str]:
    """First words of the broken rules."""
    reading = judge("judge.reading")
    pipe, digest = reading.pipe_of(document), reading.digest(document)
    rules = judge("judge.rules").broken_rules(pipe, digest, found)
    return {rule.partition(":")[0] for rule in rules}


def test_the_judge_imports_nothing_of_pipesat() -> None:
    for path in [*CAMPAIGN.glob("judge/*.py"), *CAMPAIGN.glob("problems/*.py")]:
        assert "import pipesat" not in path.read_text()
        assert "from pipesat" not in path.read_text()


def test_every_hand_written_schedule_is_tried(judge: Any) -> None:
    assert set(judge("commands.baseline").NAMES) == set(BASELINES)


def test_a_schedule_by_hand_has_its_figures(judge: Any) -> None:
    found, values = schedule(judge), judge("judge.values")
    assert broken(judge, found) == set()
    pipe = judge("judge.reading").pipe_of(DOCUMENT)
    timed, _ = judge("judge.timed").read_timed(found, 2)
    assert (values.makespan(timed), values.span(timed)) == (9, 9)
    assert [float(share) for share in values.bubbles(pipe, timed).values()] == pytest.approx(
        [1 - 12 / 18, 1 - 6 / 9]
    )
    assert values.peaks(pipe, timed) == [5, 2]


@pytest.mark.parametrize(
    ("rule", "device", "position", "entry"),
    [
        ("form", 0, 0, ["0F00", 0, 1]),
        ("form", 0, 0, ["0F0", 0.0, 1]),
        ("start", 0, 0, ["0F0", -1, 0]),
        ("duration", 0, 0, ["0F0", 0, 2]),
        ("missing", 0, 0, ["0F1", 0, 1]),
        ("backward", 0, 2, ["0B0", 4, 5]),
        ("overlap", 0, 1, ["0F1", 0, 1]),
        ("listing", 0, 3, ["0BW1", 2, 4]),
        ("input", 0, 2, ["0BW0", 3, 5]),
        ("pair", 0, 2, ["(0F1+0BW0)", 4, 6]),
    ],
)
def test_a_broken_rule_is_seen(
    judge: Any, rule: str, device: int, position: int, entry: list[Any]
) -> None:
    found = schedule(judge)
    found["devices"][device][position] = entry
    if rule == "pair":
        del found["devices"][0][1]
    assert rule in broken(judge, found)


def test_an_op_on_another_device_is_seen(judge: Any) -> None:
    found = schedule(judge)
    found["devices"][1].insert(0, found["devices"][0].pop(0))
    assert "device" in broken(judge, found)


def test_listed_pairs_are_judged(judge: Any) -> None:
    # 0F1 joins 0BW0 at 4, for 1 in all: less than BW alone; 1F1 follows 1BW0 as before
    pairs = [{"ops": ["0BW", "0F"], "time": 1}, {"ops": ["0F", "0F"], "time": 2}]
    listed = DOCUMENT | {"overlap": {"pairs": pairs}}
    found = schedule(judge, listed)
    found["devices"] = [
        [["0F0", 0, 1], ["(0BW0+0F1)", 4, 5], ["0BW1", 8, 10]],
        [["1F0", 1, 2], ["1BW0", 2, 4], ["1F1", 5, 6], ["1BW1", 6, 8]],
    ]
    assert broken(judge, found, listed) == set()
    timed, _ = judge("judge.timed").read_timed(found, 2)
    assert judge("judge.values").pair_counts(timed) == {"F+BW": 1}
    # one longer, 1F1 starts before its input is there
    for text, end, rules in (
        ("(0F1+0BW0)", 5, {"members"}),
        ("(0BW0+0F1)", 6, {"duration", "input"}),
    ):
        other = copy.deepcopy(found)
        other["devices"][0][1] = [text, 4, end]
        assert broken(judge, other, listed) == rules
    only_forwards = DOCUMENT | {"overlap": {"pairs": pairs[1:]}}
    found["problem_sha256"] = judge("judge.reading").digest(only_forwards)
    assert broken(judge, found, only_forwards) == {"pair"}


def test_modes_and_copies_are_judged(judge: Any) -> None:
    host = {"name": "host", "offload": {"out": 2, "in": 2, "held": 1}}
    stage = {"device": 0, "F": 2, "B": 1, "W": 1, "held_after_F": 4, "backward": "fused"}
    document = {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{"memory": 5, "copy_channels": 1}],
        "stages": [stage | {"modes": [host]}],
    }
    # 0F0 holds 4 to the end of its copy out and 1 from there on, so 0F1 fits at 4; once it is gone
    # the copy back takes 3 at 8
    found = {
        "format": "pipesat.schedule/1",
        "problem_sha256": judge("judge.reading").digest(document),
        "devices": [[["0F0", 0, 2], ["0F1", 4, 6], ["0BW1", 6, 8], ["0BW0", 10, 12]]],
        "modes": [[0, 0, "host"]],
        "copies": [[["0O0", 2, 4], ["0L0", 8, 10]]],
    }
    assert broken(judge, found, document) == set()
    values, pipe = judge("judge.values"), judge("judge.reading").pipe_of(document)
    timed, _ = judge("judge.timed").read_timed(found, 1)
    assert values.peaks(pipe, timed) == [5]
    assert values.mode_counts(pipe, timed) == {"keep": 1, "host": 1}
    for change, rules in (
        ({"copies": [[["0O0", 2, 4], ["0L0", 6, 8]]]}, {"memory"}),
        ({"copies": [[["0O0", 1, 3], ["0L0", 8, 10]]]}, {"copy"}),
        ({"copies": [[["0O0", 2, 4], ["0L0", 9, 11]]]}, {"copy"}),
        ({"copies": [[["0O0", 2, 4]]]}, {"copy"}),
        ({"copies": [[["0O0", 2, 4], ["0L0", 8, 9]]]}, {"duration"}),
        ({"modes": [], "copies": [[]]}, {"memory"}),
        ({"modes": [[0, 0, "keep"]], "copies": [[]]}, {"mode"}),
    ):
        assert broken(judge, found | change, document) == rules
    alike = document | {"mode_choice": "stage"}
    of_alike = found | {"problem_sha256": judge("judge.reading").digest(alike)}
    assert broken(judge, of_alike, alike) == {"mode"}


def test_the_order_of_a_list_is_judged(judge: Any) -> None:
    kinds = [{"name": "long", "count": 1, "time": [3, 2]}, {"name": "short", "count": 1}]
    stage = {"device": 0, "F": 1, "B": 1, "W": 1, "backward": "fused"}
    document = {
        "format": "pipesat.problem/1",
        "microbatches": kinds,
        "order": "same",
        "devices": [{}],
        "stages": [stage],
    }
    # of the long one F takes 3/2, so 2, B and W 2 each, and BW their sum
    row = [["0F1", 0, 1], ["0F0", 1, 3], ["0BW1", 3, 5], ["0BW0", 5, 9]]
    turned = [["0F1", 0, 1], ["0F0", 1, 3], ["0BW0", 3, 7], ["0BW1", 7, 9]]
    for order, rows, rules in (
        ("same", row, set()),
        ("same", turned, {"order"}),
        ("given", row, {"order"}),
        ("free", turned, set()),
    ):
        problem = document | {"order": order}
        digest = judge("judge.reading").digest(problem)
        found = {"format": "pipesat.schedule/1", "problem_sha256": digest, "devices": [rows]}
        assert broken(judge, found, problem) == rules


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_exact_oracle_agrees_with_those_of_the_suite(judge: Any, seed: int) -> None:
    exact, pipe_of = judge("judge.exact").exact, judge("judge.reading").pipe_of
    modes, classes = tiny(Random(seed)), random_document(seed)
    for objective in ("makespan", "span"):
        truth = exact(pipe_of(modes), objective, 60)
        assert truth.exact
        assert truth.upper == optimum(modes, objective)
        truth = exact(pipe_of(classes), objective, 60)
        assert truth.exact
        assert truth.upper == Oracle(classes).optimum(objective)


def test_memory_digest_and_ties_are_seen(judge: Any) -> None:
    less = copy.deepcopy(DOCUMENT)
    less["devices"][0]["memory"] = 4
    assert broken(judge, schedule(judge, less), less) == {"memory"}
    assert broken(judge, schedule(judge), less) == {"digest"}
    # a chain of ops of length 0 on one device, listed against its order
    zero = {
        "format": "pipesat.problem/1",
        "microbatches": 1,
        "devices": [{}],
        "stages": [{"device": 0, "F": 0, "B": 0, "W": 0, "backward": "fused"}],
    }
    row = [["0F0", 0, 0], ["0BW0", 0, 0]]
    for rows, rule in ((row, set()), (row[::-1], {"listing"})):
        found = schedule(judge, zero) | {"devices": [rows]}
        assert broken(judge, found, zero) == rule


def test_planted_false_claims_are_seen(judge: Any) -> None:
    claims = judge("judge.claims")
    truth = judge("judge.exact").exact(judge("judge.reading").pipe_of(DOCUMENT), "makespan")
    assert (truth.lower, truth.upper) == (9, 9)  # 9: the way of a microbatch and what waits for it
    true = {
        "status": "optimal",
        "objective": "makespan",
        "value": 9,
        "makespan": 9,
        "span": 9,
        "lower_bound": 9,
        "lower_bound_source": "",
        "gap": 0.0,
        "bubble": {"makespan": 1 / 3, "span": 1 / 3},
        "peak_memory": [5, 2],
        "baseline": {"name": "1f1b", "value": 9},
        "schedule": None,
        "wall_s": 0.1,
        "seed": 0,
        "workers": 1,
        "versions": {},
    }

    def false(change: dict[str, Any], code: int = 0, known: Any = truth) -> list[str]:
        judged = claims.Judged(DOCUMENT, "makespan", known)
        return list(claims.false_claims(judged, true | change, schedule(judge), code))

    assert false({}) == []
    planted: list[dict[str, Any]] = [
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
        {"baseline": {"name": "1f1b", "value": 8}},
        {"status": "infeasible"},
        {"status": "unknown"},
        {"value": None},
    ]
    for change in planted:
        assert false(change), change
    assert false({}, code=3)
    none = claims.Truth(9, feasible=False)
    assert any("no schedule exists" in claim for claim in false({}, known=none))
    lower = claims.Truth(10)
    assert any("none is below 10" in claim for claim in false({}, known=lower))


@pytest.mark.slow
def test_seven_cases(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(CAMPAIGN / "run.py"),
        "--cases",
        "7",
        "--seed",
        "7",
        "--output",
        str(tmp_path),
        "--quick",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    last = done.stdout.splitlines()[-1].split("|")
    assert last[1].strip() == "**all**"
    assert [last[-5].strip(), last[-2].strip()] == ["7", "0"]  # cases, violations


def test_a_false_case_leaves_a_folder_and_a_replay(judge: Any, tmp_path: Path) -> None:
    pool, commands = judge("pool"), judge("commands")

    def lies(case: Any) -> None:
        case.expect(False, "2 is 3")

    commands.KINDS["lies"] = lies
    try:
        (outcome,) = pool.run_all(iter([("lies", 4)]), tmp_path, 1)
    finally:
        del commands.KINDS["lies"]
    assert outcome.violations == ["2 is 3"]
    saved = json.loads((tmp_path / "lies-4" / "case.json").read_text())
    assert saved["replay"] == "python experiments/campaign/run.py --case lies:4"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("twice", "pipesat.files.folder._read", r"leaves \["),
        (
            "kill",
            "pipesat.files.strict_json.finish",
            "no result.json|schedule|digest|none of those",
        ),
        ("streams", "pipesat.cli.process.keep_streams", "exit code|a fault"),
    ],
)
def test_what_is_lost_in_a_folder_is_seen(
    judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, said: str
) -> None:
    """Without the list, without the readers that finish moves, without streams that are kept."""
    pool = judge("pool")
    judge("process").load()
    monkeypatch.setattr(name, lambda *_: {})
    for module in ("atomic", "folder") if kind == "kill" else ():
        monkeypatch.setattr(f"pipesat.files.{module}.finish", lambda _: None)
    cases = iter([(f"{kind}/chain", seed) for seed in range(12)])
    texts = (
        text for case in pool.run_all(cases, tmp_path, 2, quick=True) for text in case.violations
    )
    assert any(re.search(said, text) for text in texts)
