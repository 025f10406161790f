"""check, baseline, export and show; usage; exit codes. Contract, section 6."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.problem.problem import Problem
from pipesat.runtimes import EXPORTERS
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.problems import chain, vee

Save = Callable[..., Path]
Rows = list[list[list[Any]]]

# 1F1B of two devices and two microbatches, F = B = W = 1, BW = 2, no delays; each F holds 1 until
# its BW ends. By hand: (m + p - 1)(F + BW) = 3 * 3 = 9.
PROBLEM = chain(2, 2, cap=2)


def rows() -> Rows:
    return [
        [["0F0", 0, 1], ["0F1", 1, 2], ["0BW0", 4, 6], ["0BW1", 7, 9]],
        [["1F0", 1, 2], ["1BW0", 2, 4], ["1F1", 4, 5], ["1BW1", 5, 7]],
    ]


def schedule_text(devices: Rows, problem: Problem = PROBLEM) -> dict[str, Any]:
    return {"format": "pipesat.schedule/1", "problem_sha256": problem.sha256, "devices": devices}


# check


def test_check_passes_a_valid_schedule(cli: Run, save: Save) -> None:
    problem, schedule = save(PROBLEM), save(schedule_text(rows()), "s.json")
    assert cli("check", problem, schedule) == (0, "Valid  8 ops, makespan 9, span 9\n", "")
    outcome = cli("check", problem, schedule, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.json == {
        "valid": True,
        "makespan": 9,
        "span": 9,
        "peak_memory": [2, 1],
        "violations": [],
        "remarks": [],
    }


def drop_last(r: Rows) -> None:
    del r[1][3]


def test_check_lists_every_violation(cli: Run, save: Save) -> None:
    """Each rule's own violation is held by tests/core."""
    devices = rows()
    drop_last(devices)  # missing
    devices[0][3][2] = 10  # length
    devices[0].append(["0X9", 10, 11])  # text
    problem, schedule = save(PROBLEM), save(schedule_text(devices), "s.json")
    outcome = cli("check", problem, schedule)
    assert outcome.code == 1
    assert outcome.out.startswith("Not valid  violations: 3\n")
    document = cli("check", problem, schedule, "--json")
    assert (document.code, document.json["valid"]) == (1, False)
    assert sorted(v["rule"] for v in document.json["violations"]) == ["length", "missing", "text"]
    said = " ".join(outcome.out.split())
    assert all(f"{v['rule']}: {v['message']}" in said for v in document.json["violations"])


def test_check_reports_too_much_memory(cli: Run, save: Save) -> None:
    small = chain(2, 2, cap=1)  # device 0 holds two microbatches from 1 to 6
    outcome = cli("check", save(small), save(schedule_text(rows(), small), "s.json"))
    assert outcome.code == 1
    said = " ".join(outcome.out.split())
    assert "memory: device 0 holds up to 2 from 1 to 6, 1 over its capacity of 1" in said


# baseline


def test_a_baseline_that_needs_too_much_memory(cli: Run, save: Save, tmp_path: Path) -> None:
    outcome = cli(
        "export", save(chain(1, 3, cap=2)), "gpipe", "--to", "schedule", "-o", tmp_path / "b.json"
    )
    assert outcome.code == 1  # three forwards hold 3
    assert "memory: device 0 holds up to 3" in outcome.err
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("name", "problem", "expected"),
    [
        ("1f1b", vee(2, 2), "one stage per device"),
        ("2f2b", PROBLEM, "expected one of .*zb-h1,.* 1f1b,"),
    ],
)
def test_a_baseline_that_cannot_be_built(
    cli: Run, save: Save, tmp_path: Path, name: str, problem: Problem, expected: str
) -> None:
    outcome = cli("export", save(problem), name, "--to", "schedule", "-o", tmp_path / "b.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(rf"pipesat: error: .*{expected}.*\n", outcome.err)
    assert not (tmp_path / "b.json").exists()


# export and show


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_format_is_named_in_the_help_and_written(
    cli: Run, save: Save, tmp_path: Path, name: str
) -> None:
    (formats,) = re.findall(r"--to (.*?)--output", cli("export", "--help").out, re.DOTALL)
    assert re.search(rf"\b{re.escape(name)}\b", formats)
    schedule = save(schedule_text(rows()), "s.json")
    # Megatron's layout has no use without
    layers = ["--to", "layers=2"] if name == "megatron" else []
    problem = save(PROBLEM)
    if name == "olmo-core":  # two stages a rank
        problem = tmp_path / "loop.json"
        pipesat.Problem.loop(2, 4, F=1, B=1, W=1, backward="fused").write(problem)
        schedule = "interleaved-1f1b"
    outcome = cli("export", problem, schedule, "--to", name, "-o", tmp_path / "x", *layers)
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "x").stat().st_size > 0


def test_export_to_an_unknown_format(cli: Run, save: Save, tmp_path: Path) -> None:
    schedule = save(schedule_text(rows()), "s.json")
    outcome = cli("export", save(PROBLEM), schedule, "--to", "pdf", "-o", tmp_path / "x")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(
        r"pipesat: error: --to: got 'pdf', expected one of .*trace.*\n", outcome.err
    )


@pytest.mark.parametrize("command", ["export", "show"])
def test_nothing_is_made_of_an_invalid_schedule(
    cli: Run, save: Save, tmp_path: Path, command: str
) -> None:
    devices = rows()
    drop_last(devices)
    options = ["--to", "trace", "-o", tmp_path / "x"] if command == "export" else []
    outcome = cli(command, save(PROBLEM), save(schedule_text(devices), "s.json"), *options)
    assert (outcome.code, outcome.out) == (1, "")
    assert "missing: 1BW1" in outcome.err
    assert not (tmp_path / "x").exists()


def test_show_prints_grid_times_and_critical_path(cli: Run, save: Save) -> None:
    schedule = save(schedule_text(rows()), "s.json")
    outcome = cli("show", save(PROBLEM), schedule, "-v")
    assert (outcome.code, outcome.err) == (0, "")
    # makespan 9, load 6 on each of 2 devices: 1 - 12/18; span 9: 1 - 6/9
    assert re.search(r"Makespan +9 .*bubble 33.33 %\)\nSpan +9 .*bubble 33.33 %\)", outcome.out)
    # device 0 is busy 6, waits 2 for 1BW0 and 1 for 1BW1 and ends last; device 1 starts at 1,
    # never waits, ends at 7; columns: busy, warm-up, no input, no memory, unforced, cool-down, peak
    assert re.search(r"device 0 +6 +0 +3 +0 +0 +0 +2 *$", outcome.out, re.MULTILINE)
    assert re.search(r"device 1 +6 +1 +0 +0 +0 +2 +1 *$", outcome.out, re.MULTILINE)
    path = outcome.out.split("the chain")[1]
    # backward from the last end, 0BW1: its input 1BW1, then device 1 without a gap, then 0F0
    chain_of_ops = ["0F0", "1F0", "1BW0", "1F1", "1BW1", "0BW1"]
    assert re.findall(r"\d+(?:F|BW)\d+", path) == chain_of_ops


def test_what_only_exceeds_memory_is_shown_and_said_so(
    cli: Run, save: Save, tmp_path: Path
) -> None:
    """GPipe holds 4 of 3 on each of 2 devices, and no device waits for memory."""
    problem = save(dict(chain(2, 4, cap=3).document) | {"memory_unit": "GiB"})
    picture = tmp_path / "a.svg"
    for words in ((), ("--svg", picture)):
        outcome = cli("show", problem, "gpipe", *words)
        said = "gpipe does not fit into memory: 4 GiB of 3 GiB on device 0, the fullest device"
        assert (outcome.code, outcome.err.count(said)) == (0, 1)
    assert "Does not fit into memory: 4 GiB of 3 GiB" in picture.read_text()
    other = cli("show", problem, "gpipe", "--svg", tmp_path / "a.png")
    assert (other.code, (tmp_path / "a.png").exists()) == (2, False)
    assert other.err.startswith("pipesat: error: --svg: got ")
    assert "expected a .svg" in other.err
    shown = cli("show", problem, "gpipe", "--json").json
    assert all(row["memory"] == 0 for row in shown["devices"])
    assert shown["fits"] is False
    assert "fits" not in cli("show", problem, "1f1b", "--json").json
    assert cli("show", problem, "gpipe", "--steps").code == 1


def test_show_shows_names_literally(cli: Run, save: Save, tmp_path: Path) -> None:
    names = [{"name": "[red]\x1b[31m"}, {"name": ":fire:\n"}]
    problem = save(dict(PROBLEM.document) | {"devices": names})
    cli("export", problem, "1f1b", "--to", "schedule", "-o", tmp_path / "s.json")
    out = cli("show", problem, tmp_path / "s.json", "-v").out
    assert out.replace("\n", "").isprintable()
    assert r"[red]\x1b[31m" in out
    assert r":fire:\n" in out


# Usage and the process


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["solve"],
        ["solve", "p.json", "--frobnicate"],
        ["solve", "p.json", "--time-limit", "0"],
        ["solve", "p.json", "--time-limit", "soon"],
        ["solve", "p.json", "--workers", "0"],
        ["solve", "p.json", "--seed", "-1"],
        ["solve", "p.json", "--objective", "bubble"],
        ["solve", "p.json", "-o"],
        ["check", "p.json", "s.json", "more.json"],
        ["export", "p.json", "s.json", "--to", "trace"],
        ["export", "p.json", "s.json", "-o", "x"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(cli: Run, arguments: list[str]) -> None:
    outcome = cli(*arguments)
    one_bad_line(outcome)
    assert "Value error" not in outcome.err


def test_wrong_usage_says_what_would_be_right(cli: Run, save: Any, tmp_path: Path) -> None:
    """Whoever checks it for us: click's own words, and what it checks with, in one line."""
    path = save(PROBLEM)
    one_bad_line(
        cli("solve", path, "--workers", "0"),
        "--workers: got '0', expected an integer from 1 to 1024",
    )
    wrong = ("--objective", "spam")
    one_bad_line(
        cli("solve", path, *wrong),
        "--objective: got 'spam', expected one of makespan, span; the nearest is span",
    )
    missing = tmp_path / "no.json"  # said first, whatever else is wrong
    for words in (["solve", missing, *wrong], ["plan", missing], ["show", missing, "--steps"]):
        one_bad_line(cli(*words), f"{missing}: cannot read: No such file")
    one_bad_line(cli("solve"), "missing argument 'PROBLEM'; pipesat solve --help says more")


def test_help_and_version(cli: Run) -> None:
    commands = ["solve", "compare", "check", "export", "show"]
    overview = cli("--help")
    assert overview.code == 0
    assert all(f" {command} " in overview.out for command in commands)
    for command in commands:
        assert cli(command, "--help").code == 0
    assert re.fullmatch(r"pipesat \d+\.\d+\.\d+\S*\n", cli("--version").out)


@pytest.mark.slow
def test_names_that_stdout_cannot_encode(save: Save) -> None:
    problem = chain(1, 1, cap=1)
    document = dict(problem.document) | {"name": "東京", "devices": [{"name": "Gerät"}]}
    words = [sys.executable, "-m", "pipesat", "solve", str(save(document))]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, capture_output=True, check=True, timeout=60, env=environment)
    assert rb"Ger\xe4t" in done.stdout
