"""Known hangs, rebuilt as files; sends and receives that a CSV of torch's has itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.support.paths import ROOT
from tests.support.problems import chain

HERE = ROOT / "experiments" / "hangs"
KNOWN: list[dict[str, Any]] = json.loads((HERE / "known.json").read_text())

FIRST = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"
EARLY = "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1"  # both receives before 1SEND_B0


def given(folder: Path, *rows: str) -> Path:
    file = folder / "order.csv"
    file.write_text("".join(f"{row}\n" for row in rows))
    return file


@pytest.mark.parametrize("known", KNOWN, ids=[one["file"] for one in KNOWN])
def test_known_hangs_are_found(cli: Run, known: dict[str, Any]) -> None:
    """What threads say that waits is what the verdict names, in each rank's turn."""
    name = known["file"]
    schedule = HERE / "known" / name if name.endswith(".csv") else name
    for rule, expected in known["verdicts"].items():
        problem = HERE / "known" / known["problem"]
        outcome = cli("check", problem, schedule, "--runtime", rule, "--json")
        said = outcome.json["runtime"]
        assert outcome.code == (0 if expected == "safe" else 1)
        assert said["safe"] == (expected == "safe")
        assert bool(said["crossed"]) == (expected == "crossed")
        assert said["hangs"] == (expected not in ("safe", "crossed"))
        if isinstance(expected, list):
            assert [wait["step"] for wait in said["cycle"]] == expected


def test_what_a_file_posts_is_judged_as_it_stands(cli: Run, save, tmp_path) -> None:
    problem = save(chain(2, 2))
    early = cli("check", problem, given(tmp_path, FIRST, EARLY), "--runtime", "pair-fifo")
    assert early.code == 0
    assert "the sends and receives of the file" in " ".join(early.out.split())
    late = EARLY.replace("1RECV_F1,", "").replace("1F1", "1RECV_F1,1F1")
    hangs = cli("check", problem, given(tmp_path, FIRST, late), "--runtime", "pair-fifo", "--json")
    assert hangs.code == 1
    assert [wait["step"] for wait in hangs.json["runtime"]["cycle"]] == [
        "SEND_F 0F1",
        "SEND_B 1BW0",
    ]
    bare = ",".join(cell for cell in FIRST.split(",") if "_" not in cell)
    only = given(tmp_path, bare, "1F0,1B0,1F1,1B1")
    assert "directly before" in cli("check", problem, only, "--runtime", "group").out


def test_waits_of_a_file_are_judged(cli: Run, save, tmp_path) -> None:
    """torch 2.15's waits: each rank waits for its send where the other has no receive yet."""
    rows = (
        "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1",
        "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B1",
    )
    problem, rule = save(chain(2, 2)), ("--runtime", "edge-fifo", "--json")
    said = cli("check", problem, given(tmp_path, *rows), *rule).json["runtime"]
    assert [one["step"] for one in said["cycle"]] == ["SEND_F 0F1", "SEND_B 1BW0"]
    waits_last = [
        ",".join(sorted(row.split(","), key=lambda cell: cell[1:5] == "WAIT")) for row in rows
    ]
    assert cli("check", problem, given(tmp_path, *waits_last), *rule).code == 0
    without = rows[0].replace("0WAIT_SEND_F1,", "")
    outcome = cli("check", problem, given(tmp_path, without, rows[1]), *rule)
    assert outcome.code == 2
    assert "nothing waits for 0SEND_F1" in outcome.err


def test_a_buffer_that_is_written_before_it_was_sent(cli: Run, save, tmp_path) -> None:
    """0F1 writes where 0F0 still has to be sent from."""
    first = FIRST.replace("0SEND_F0,0F1", "0F1,0SEND_F0")
    file, problem = given(tmp_path, first, EARLY), save(chain(2, 2))
    said = cli("check", problem, file, "--runtime", "graph", "--json").json["runtime"]
    assert said["cycle"] == [
        {"rank": 0, "step": "WAIT_SEND_F 0F0", "peer": 0, "needs": "SEND_F 0F0"}
    ]
    assert said["buffers"] == 2
    assert cli("check", problem, file, "--runtime", "edge-fifo").code == 0


def test_microbatches_have_their_own_numbers(cli: Run, save, tmp_path) -> None:
    """torch's 0 is the problem's 1: the file beside the CSV says so."""
    doc = {"microbatches": [{"name": "a", "count": 1}, {"name": "b", "count": 1, "time": [2, 1]}]}
    problem = save(dict(chain(2, 2).document) | doc | {"order": "free"})
    late = EARLY.replace("1RECV_F1,", "").replace("1F1", "1RECV_F1,1F1")
    file = given(tmp_path, FIRST, late)
    file.with_suffix(".order.json").write_text("[1, 0]")
    said = cli("check", problem, file, "--runtime", "rendezvous", "--json").json["runtime"]
    assert [wait["step"] for wait in said["cycle"]] == ["SEND_F 0F0", "SEND_B 1BW1"]


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (FIRST.replace("0SEND_F1,", ""), EARLY, "row 1: 0SEND_F1 is missing"),
        (f"{FIRST},0SEND_F9", EARLY, "row 1: got '0SEND_F9', it carries nothing of this order"),
        (f"{FIRST},0SEND_B0", EARLY, "row 1: got '0SEND_B0', it carries nothing of this order"),
        (
            f"{FIRST},0SEND_F1",
            EARLY,
            "row 1: got '0SEND_F1', it carries nothing of this order, or does so",
        ),
        (FIRST, f"{EARLY},0SEND_F1", "row 2: got '0SEND_F1', it carries nothing of this order"),
        (
            FIRST.replace("0F0,0SEND_F0", "0SEND_F0,0F0"),
            EARLY,
            "row 1: got 'SEND_F 0F0', it comes",
        ),
        (
            FIRST,
            EARLY.replace("1RECV_F0,1F0", "1F0,1RECV_F0"),
            "row 2: got '1F0', it comes",
        ),
        (
            "0F0,0F1,0SEND_F1,0RECV_B0,0B0,0SEND_F0,0RECV_B1,0B1",
            EARLY,
            "row 1: got 'SEND_F 0F0', it comes after the backward",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    cli: Run, save, tmp_path, first: str, second: str, text: str
) -> None:
    file = given(tmp_path, first, second)
    outcome = cli("check", save(chain(2, 2)), file, "--runtime", "edge-fifo")
    assert (outcome.code, outcome.out) == (2, "")
    assert text in outcome.err
    assert str(file) in outcome.err
