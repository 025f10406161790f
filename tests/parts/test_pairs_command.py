"""``pipesat pairs``: what it writes, prints and refuses."""

from __future__ import annotations

import json

import pytest

from pipesat.core.ops import Op
from pipesat.core.rules import pair_time
from pipesat.files.problem_file import read_problem
from tests.support.parts import BY_HAND

PROBLEM = {
    "format": "pipesat.problem/1",
    "microbatches": 2,
    "devices": [{}],
    "stages": [{"device": 0, "F": 1, "B": 1, "W": 1}] * 2,
    "overlap": {"FB": [1, 2]},
}


def test_the_file_has_stages_and_pairs(cli, save, tmp_path) -> None:
    outcome = cli("problem", "pairs", save(BY_HAND, "parts.json"), "-o", tmp_path / "pairs.json")
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert "moe F + moe BW 12 20 12 optimal" in text
    assert "proven optimal" not in text
    assert " a model's times, " in text
    document = json.loads((tmp_path / "pairs.json").read_text())
    assert [*document] == ["stages", "overlap"]
    assert document["stages"][0] == {"device": 0, "F": 8, "B": 11, "W": 2, "BW": 12}
    assert {"ops": ["0F", "1BW"], "time": 12} in document["overlap"]["pairs"]


def test_a_problem_comes_out_ready_to_solve(cli, save, tmp_path) -> None:
    parts, problem, new = save(BY_HAND, "parts.json"), save(PROBLEM), tmp_path / "new.json"
    outcome = cli("problem", "pairs", parts, "--into", problem, "-o", new)
    assert outcome.code == 0
    assert f"the overlap that {problem} had is replaced" in " ".join(outcome.out.split())
    assert read_problem(new).stages[0].BW == 12
    assert (
        cli(
            "export", new, "list-scheduling", "--to", "schedule", "-o", tmp_path / "schedule.json"
        ).code
        == 0
    )


def test_factors_take_parts_to_microbatches_that_differ(cli, save, tmp_path) -> None:
    """0F and 1BW take 12 together, 8 and 12 alone: 3/5; of twice the length, ceil(40 * 3/5)."""
    several = [{"name": "long", "count": 1, "time": [2, 1]}, {"name": "short", "count": 1}]
    problem = save(PROBLEM | {"microbatches": several})
    parts, new = save(BY_HAND, "parts.json"), tmp_path / "new.json"
    refused = cli("problem", "pairs", parts, "--into", problem, "-o", new)
    assert refused.code == 2
    assert "--as: got 'time', expected factor: microbatches that are a list" in refused.err
    assert cli("problem", "pairs", parts, "--into", problem, "--as", "factor", "-o", new).code == 0
    entries = json.loads(new.read_text())["overlap"]["pairs"]
    assert {"ops": ["0F", "1BW"], "factor": [3, 5]} in entries
    assert pair_time(read_problem(new), Op(0, "F", 0), Op(1, "BW", 1)) == 17  # (16 + 12) 3/5, up
    assert (
        cli(
            "export", new, "list-scheduling", "--to", "schedule", "-o", tmp_path / "schedule.json"
        ).code
        == 0
    )


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_picture_of_the_streams(cli, save, tmp_path, suffix) -> None:
    parts, picture = save(BY_HAND, "parts.json"), tmp_path / f"streams.{suffix}"
    options = ("-o", tmp_path / "pairs.json", "--picture", picture, "--picture", "draw=0F+1BW")
    assert cli("problem", "pairs", parts, *options).code == 0
    begins = {"png": b"\x89PNG", "svg": b"<?xml"}[suffix]
    assert picture.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--picture", "draw=0F"), "--picture draw: got ['0F'], expected --picture FILE with it"),
        (
            ("--picture", "x.jpg"),
            "--picture: got 'x.jpg', expected a name that ends in .png, .svg or .pdf",
        ),
        (
            ("--picture", "x.png", "--picture", "draw=2F"),
            "--picture draw: got '2F', expected an op kind as 0BW",
        ),
        (
            ("--picture", "x.png", "--picture", "draw=0F+x"),
            "--picture draw: got '0F+x', expected an op kind",
        ),
        (("--as", "factor", "--map", "x"), "--as: got 'factor', not with --map"),
    ],
)
def test_options_that_say_nothing_are_refused(
    cli, save, tmp_path, monkeypatch, options, message
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = cli("problem", "pairs", save(BY_HAND, "parts.json"), "-o", "pairs.json", *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["parts.json"]


def test_another_problem_is_refused_before_the_search(cli, save, tmp_path) -> None:
    problem = save(PROBLEM | {"time_unit": "ms"})
    parts = save(BY_HAND, "parts.json")
    outcome = cli("problem", "pairs", parts, "--into", problem, "-o", tmp_path / "new.json")
    assert outcome.code == 2
    assert f"{problem}: time_unit: got 'ms', expected \"us\", as {parts} has" in outcome.err
    assert not (tmp_path / "new.json").exists()


def test_from_a_trace_to_parts(cli, save, tmp_path) -> None:
    events = [
        {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 1, "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5, "dur": 8.0}
        | {"args": {"correlation": 1, "stream": 7}},
    ]
    rules = [{"kind": "F", "name": "all", "annotation": None, "stream": "main"}]
    mapping = {"format": "pipesat.parts-map/1", "chunk": "moe", "streams": {"main": []}}
    given = save({"traceEvents": events}, "trace.json"), save(mapping | {"parts": rules}, "m.json")
    parts = tmp_path / "parts.json"
    outcome = cli("problem", "pairs", given[0], "--map", given[1], "-o", parts)
    assert outcome.code == 0, outcome.err
    assert cli("problem", "pairs", parts, "-o", tmp_path / "pairs.json").code == 0
    outcome = cli("problem", "pairs", given[0], "-o", parts)
    assert (outcome.code, "--map MAPPING" in outcome.err) == (2, True)


def test_solve_says_why_torch_gets_no_order(cli, save, tmp_path) -> None:
    # F + F of the two microbatches takes 1, each backward 10: 21
    entry = {"device": 0, "F": 10, "B": 5, "W": 5, "backward": "fused"}
    problem = {
        "format": "pipesat.problem/1",
        "microbatches": 2,
        "devices": [{}],
        "stages": [entry],
        "overlap": {"pairs": [{"ops": ["0F", "0F"], "time": 1}]},
    }
    path, out = save(problem), tmp_path / "out"
    outcome = cli("solve", path, "-o", out, "--time-limit", 100)
    assert (outcome.code, json.loads((out / "result.json").read_text())["value"]) == (0, 21)
    assert not (out / "schedule.csv").exists()
    told = " ".join(outcome.out.split())
    assert "no schedule.csv: torch overlaps an F with a full backward and nothing else" in told
    assert "`pipesat solve --for torch` leaves such pairs out" in told
