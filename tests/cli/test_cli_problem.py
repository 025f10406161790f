"""pipesat problem new: flags to a problem file that every other command reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipesat.problem.problem_file import parse_problem, read_problem
from tests.conftest import Run
from tests.support.outcomes import one_bad_line

BASIC = ("--devices", 2, "--microbatches", 4, "--times", "F=10,B=11,W=7")


def basic(*more: object) -> list[object]:
    """Return the basic options, of their times those that are not among more."""
    said = " ".join(map(str, more))
    times = [one for one in str(BASIC[-1]).split(",") if not re.search(rf"(^|[ ,]){one[:2]}", said)]
    return [*BASIC[:-2], *(("--times", ",".join(times)) if times else ()), *more]


def new(cli: Run, *more: object) -> Any:
    outcome = cli("problem", "new", *basic(*more))
    assert (outcome.code, outcome.err) == (0, "")
    parse_problem(outcome.json)
    return outcome.json


def test_the_least_that_has_to_be_said(cli: Run) -> None:
    stage = {"F": 10, "B": 11, "W": 7}
    assert new(cli) == {
        "format": "pipesat.problem/1",
        "microbatches": 4,
        "devices": [{}, {}],
        "stages": [{"device": 0} | stage, {"device": 1} | stage],
        "comm": {"default": 0},
    }


def test_every_flag(cli: Run) -> None:
    flags = (
        "--times BW=16,17 --link-delay 3 --memory 100,200,static=8,held_after_F=5,6,held_after_B=2 "
        "--backward fused --overlap 3/4 --name n --units time=us,memory=MiB"
    )
    document = new(cli, *flags.split())
    both = {"F": 10, "B": 11, "W": 7, "held_after_B": 2, "backward": "fused"}
    assert document == {
        "format": "pipesat.problem/1",
        "name": "n",
        "time_unit": "us",
        "memory_unit": "MiB",
        "microbatches": 4,
        "devices": [{"memory": 100, "static": 8}, {"memory": 200, "static": 8}],
        "stages": [
            both | {"device": 0, "BW": 16, "held_after_F": 5},
            both | {"device": 1, "BW": 17, "held_after_F": 6},
        ],
        "comm": {"default": 3},
        "overlap": {"FB": [3, 4]},
    }


def test_a_file_is_written_that_other_commands_read(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    outcome = cli("problem", "new", *BASIC, "--times", "layers=5", "-o", path)
    assert "2 devices, 2 stages of 5 layers, 4 microbatches" in outcome.out
    outcome = cli("problem", "new", *BASIC, "--placement", "vee", "-o", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 devices, 4 stages, 4 microbatches" in outcome.out
    assert len(read_problem(path).stages) == 4
    assert [file.name for file in tmp_path.iterdir()] == ["p.json"]
    assert path.read_text().count("\n") < 20  # a stage a line: to be read and edited


def test_decimals_of_a_unit_are_whole_numbers_of_a_finer_one(cli: Run) -> None:
    """As profilers print them: 11.2 ms are 11,200 us, and so are all times of the file."""
    times = ["--times", "F=11.2,12,B=12,W=9.25", "--units", "time=ms", "--link-delay", "0.6"]
    made = ["problem", "new", "--devices", 2, "--microbatches", 4, "--overlap", "pair=20.5"]
    document = json.loads(cli(*made, *times).out)
    assert document["time_unit"] == "us"
    assert [[stage[key] for key in "FBW"] for stage in document["stages"]] == [
        [11200, 12000, 9250],
        [12000, 12000, 9250],
    ]
    assert document["comm"] == {"default": 600}
    assert {pair["time"] for pair in document["overlap"]["pairs"]} == {20500}


def test_names_of_any_characters(cli: Run) -> None:
    name = '[red]ü\x1b\U0001f600"'
    outcome = cli("problem", "new", *BASIC, "--name", name)
    assert outcome.out.isascii()
    assert json.loads(outcome.out)["name"] == name


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (
            ["--times", "F=ten"],
            r"--times F: got 'ten', expected a number from 0 to 10\^12, or several",
        ),
        (["--times", "F=-1"], "--times F: got '-1', expected a number"),
        (["--times", "F=1_0"], "--times F: got '1_0', expected a number"),
        (["--times", "F=1e1"], "--times F: got '1e1', expected a number"),
        (["--times", "F=1.5"], r"--times F: got 1.5, .*decimals of s, ms or us \(time=ms\)"),
        (["--times", "W=1.0005", "--units", "time=ns"], "--times W: got 1.0005, .*whole ns"),
        (["--times", "F=1,,2"], "--times F: got '1,,2'"),
        (["--times", "F=١"], "--times F: got '١'"),
        (["--times", "F=1,2,B=1,2,3"], "--times B: 3 values, expected 2 as `--times F` says"),
        (
            ["--times", "layers=4", "--times", "W=1,2"],
            "--times W: 2 values, expected 4 as `--times layers` says",
        ),
        (
            ["--times", "layers=1"],
            "--times layers: 1 values, expected 2, one per stage .or more, one per layer.",
        ),
        (
            ["--times", "F=9999999999999"],
            "--times F: got '9999999999999', expected a number from",
        ),
        (["--placement", "chunks=2"], "--placement chunks: got 2, only a loop has a choice"),
        (["--placement", "loop,chunks=9000"], "--placement chunks: 18000 stages, expected at most"),
        (
            ["--placement", "bidirectional", "--microbatches", 1],
            "--microbatches: got 1, expected at least 2, one per direction",
        ),
        (["--slices", 7], "--slices: got 7, expected a divisor"),
        (["--slicing", "time"], "--slicing: got 'time', only with `--slices` of `--lengths`"),
        (["--memory", "1f1b*x"], r"--memory: got '1f1b\*x'"),
        (["--memory", "1,2,3"], "--memory: 3 values, expected 2, one per device"),
        (["--memory", "static=1,2,3"], "static: 3 values, expected 2"),
        (["--overlap", "0.75"], "--overlap: got '0.75', expected NUM/DEN"),
        (["--overlap", "0/4"], "--overlap: got '0/4', expected NUM/DEN"),
        (["--overlap", "pair=F+I=3"], r"--overlap pair: got 'F\+I=3', expected KIND\+KIND=TIME"),
        (["--overlap", "pair=BW+F=3", "--overlap", "pair=9"], r"F\+BW is there already"),
        (["--overlap", "pair=0"], "--overlap: got 0, expected an integer from 1"),
        (["--microbatches", 10**9], "expected an integer from 1 to 2000000"),
    ],
)
def test_bad_values(cli: Run, flags: list[object], complaint: str, tmp_path: Path) -> None:
    outcome = cli("problem", "new", *basic(*flags), "-o", tmp_path / "p.json")
    assert (outcome.code, outcome.out) == (2, "")
    assert re.fullmatch(rf"pipesat: error: .*{complaint}.*\n", outcome.err), outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["old"], ["new"], ["new", *BASIC[:-2]], ["new", *BASIC, "--placement", "ring"]],
)
def test_wrong_usage_exits_with_2(cli: Run, arguments: list[object]) -> None:
    one_bad_line(cli("problem", *arguments))


def test_a_group_alone_shows_its_commands(cli: Run) -> None:
    outcome = cli("problem")
    assert outcome.code == 2
    assert "Usage: pipesat problem" in outcome.err + outcome.out
