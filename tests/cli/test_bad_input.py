"""Whatever is wrong with the input: one clear line, exit code 2, nothing written."""

from __future__ import annotations

import copy
import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pipesat
from pipesat.core.errors import BadInput
from pipesat.files.atomic import write_file, write_files
from pipesat.files.problem_file import read_problem
from tests.conftest import Run
from tests.support.outcomes import listing, one_bad_line
from tests.support.problems import chain

Save = Callable[..., Path]

GOOD = dict(chain(2, 2).document)


def edited(**changes: Any) -> dict[str, Any]:
    return GOOD | changes


def with_time(value: object) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    document["stages"][1]["F"] = value
    return document


def on_routes(*routes: list[int]) -> dict[str, Any]:
    document = edited(routes=[{"stages": list(r), "microbatches": 2} for r in routes])
    del document["microbatches"]
    return document


BAD_PROBLEMS = {
    "not JSON": ("hello", ["not JSON", "line 1 column 1"]),
    "half a document": (json.dumps(GOOD)[:-5], ["not JSON"]),
    "empty": ("", ["empty"]),
    "not UTF-8": (b"\xff\xfe", ["not UTF-8"]),
    "deep": ("[" * 100_000, ["nested too deeply"]),
    "not an object": ([GOOD], ["expected a JSON object"]),
    "wrong format": (edited(format="pipesat.problem/9"), ["format:", '"pipesat.problem/1"']),
    "unknown key": (edited(microbatch=3), ["microbatch:", "nearest known key is microbatches"]),
    "control characters": (edited(**{"a\n\x1b[31m": 1}), [r"a\n\x1b[31m", "unknown key"]),
    "duplicate key": ('{"stages": [{"F": 1, "F": 1}]}', ["stages[0].F", "twice"]),
    "float": (with_time(1.5), ["stages[1].F", "1.5", "integer from 0 to 10^12"]),
    "whole float": (with_time(1.0), ["stages[1].F", "1.0", "integer"]),
    "NaN": (with_time(float("nan")), ["stages[1].F", "nan", "integer"]),
    "Infinity": (with_time(float("inf")), ["stages[1].F", "inf", "integer"]),
    "boolean": (with_time(True), ["stages[1].F", "True", "integer"]),
    "negative": (with_time(-1), ["stages[1].F", "-1", "integer from 0"]),
    "10^30": (with_time(10**30), ["stages[1].F", "1000000", "to 10^12"]),
    "5000 digits": (json.dumps(with_time(7)).replace("7", "7" * 5000), ["thousands of digits"]),
    "string": (with_time("1\n2"), ["stages[1].F", r"'1\n2'", "integer"]),
    "missing device": (edited(devices=[{}]), ["stages[1].device", "got 1", "0 to 0"]),
    "no devices": (edited(devices=[]), ["devices", "at least 1"]),
    "no stages": (edited(stages=[]), ["stages", "at least 1"]),
    "zero microbatches": (edited(microbatches=0), ["microbatches", "got 0", "from 1"]),
    "too many ops": (edited(microbatches=10**12), ["ops", "at most 4000000"]),
    "a stage on two routes": (on_routes([0, 1], [1]), ["routes[1].stages[0]", "one route"]),
    "a stage on no route": (on_routes([0]), ["routes", "stage 1 is on no route"]),
    "backward edge": (
        edited(comm={"edges": [{"src": 1, "dst": 0}]}),
        ["comm.edges[0]", "not consecutive"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD_PROBLEMS)
def test_a_bad_problem(cli: Run, save: Save, tmp_path: Path, name: str) -> None:
    content, words = BAD_PROBLEMS[name]
    problem = save(content)
    before = listing(tmp_path)
    one_bad_line(cli("solve", problem, "-o", tmp_path / "out", "--json"), str(problem), *words)
    assert listing(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["solve", "P"],
        ["compare", "P"],
        ["compare", "P", "--json"],
        ["export", "P", "1f1b", "--to", "schedule", "-o", "F"],
        ["check", "P", "S"],
        ["check", "P", "S", "--json"],
        ["export", "P", "S", "--to", "trace", "-o", "F"],
        ["show", "P", "S"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("content", "word"), [("hello", "not JSON"), (with_time(0.5), "stages[1].F"), (None, "No such")]
)
def test_every_command_says_so(
    cli: Run, save: Save, tmp_path: Path, command: list[str], content: object, word: str
) -> None:
    problem = tmp_path / "missing.json" if content is None else save(content)
    before = listing(tmp_path)
    places = {"P": problem, "S": tmp_path / "s.json", "F": tmp_path / "new"}
    one_bad_line(cli(*(places.get(part, part) for part in command)), str(problem), word)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("command", ["solve", "compare"])
def test_a_directory_instead_of_a_problem(cli: Run, tmp_path: Path, command: str) -> None:
    one_bad_line(cli(command, tmp_path), str(tmp_path), "cannot read: Is a directory")


def test_a_file_name_is_shown_literally(cli: Run, tmp_path: Path) -> None:
    outcome = cli("solve", tmp_path / "[red]no\n\x1b[31m:fire:\udcff.json")
    one_bad_line(outcome, r"[red]no\n\x1b[31m:fire:\udcff.json: cannot read")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello", ["not JSON"]),
        ("", ["empty"]),
        (GOOD, ["format", '"pipesat.schedule/1"']),
        ({"format": "pipesat.schedule/1", "devices": []}, ["problem_sha256", "required"]),
        (
            {"format": "pipesat.schedule/1", "problem_sha256": chain(1, 1).sha256, "devices": []},
            ["problem_sha256", "a schedule of another problem"],
        ),
        (
            {
                "format": "pipesat.schedule/1",
                "problem_sha256": chain(2, 2).sha256,
                "devices": [[["0F0", 0, 1.0]]],
            },
            ["devices[0][0][2]", "times integers"],
        ),
        (None, ["No such file"]),
    ],
)
@pytest.mark.parametrize("command", ["check", "export", "show"])
def test_a_bad_schedule(
    cli: Run, save: Save, tmp_path: Path, command: str, content: object, words: list[str]
) -> None:
    schedule = tmp_path / "missing" if content is None else save(content, "s.json")
    options = ["--to", "trace", "-o", tmp_path / "new"] if command == "export" else []
    problem = save(GOOD)
    before = listing(tmp_path)
    one_bad_line(cli(command, problem, schedule, *options), str(schedule), *words)
    assert listing(tmp_path) == before


# Places that cannot be written


@pytest.mark.parametrize("place", ["file/out", "file", "/proc/out", "/proc/self/out"])
def test_an_unwritable_folder_is_known_before_solving(
    cli: Run, save: Save, tmp_path: Path, place: str
) -> None:
    problem = save(GOOD)
    (tmp_path / "file").write_text("mine")  # a regular file: not even root can write below it
    before = listing(tmp_path)
    folder = tmp_path / place
    one_bad_line(cli("solve", problem, "-o", folder), str(folder), "cannot write into this folder")
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("file/b.json", "Not a directory"),
        ("missing/b.json", "No such file"),
        ("/proc/b.json", "No such file"),
        ("x" * 300, "File name too long"),
        ("fifo", "Not a regular file"),
    ],
)
def test_an_unwritable_file(cli: Run, save: Save, tmp_path: Path, place: str, why: str) -> None:
    problem = save(GOOD)
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "fifo")  # renaming onto it would work, and replace it; so on /dev/null
    before = listing(tmp_path)
    one_bad_line(
        cli("export", problem, "1f1b", "--to", "schedule", "-o", tmp_path / place), place, why
    )
    assert listing(tmp_path) == before
    assert (tmp_path / "fifo").is_fifo()


@pytest.fixture(params=["tmpfs", "fsync", "rename"])
def full_disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder on a disk of 16 kB, 12 of them taken; or on one that says so when asked."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param != "tmpfs":

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        if request.param == "fsync":
            monkeypatch.setattr(os, "fsync", fail)
        else:
            monkeypatch.setattr("pipesat.files.atomic.os.replace", fail)
        yield folder
        return
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        (folder / "filler").write_bytes(b"x" * 12_288)
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_result_is_written(
    cli: Run, save: Save, full_disk: Path
) -> None:
    before = listing(full_disk)
    outcome = cli("solve", save(GOOD), "-o", full_disk, "--json")
    assert (outcome.code, outcome.out) == (2, "")
    *progress, error = outcome.err.splitlines()
    assert progress[0] == "pipesat: solving"
    assert all("best" in line for line in progress[1:])
    assert error.startswith(f"pipesat: error: {full_disk}/")
    assert error.endswith("cannot write: No space left on device")
    assert listing(full_disk) == before


def test_a_disk_that_fills_up_while_a_schedule_is_written(
    cli: Run, save: Save, full_disk: Path
) -> None:
    before = listing(full_disk)
    problem = save(chain(2, 200))  # a schedule of some 15 kB
    outcome = cli("export", problem, "1f1b", "--to", "schedule", "-o", full_disk / "b.json")
    one_bad_line(outcome, f"{full_disk}/b.json: cannot write: No space left on device")
    assert listing(full_disk) == before


# All or nothing


def test_several_files_are_written_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "b").mkdir()  # the last one cannot be written
    before = listing(tmp_path)
    with pytest.raises(BadInput, match="b: cannot write: Is a directory"):
        write_files(tmp_path, {"a": b"new", "c": b"new", "b": b"new"})
    assert listing(tmp_path) == before


def test_an_interrupt_while_writing_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"old")
    before = listing(tmp_path)
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a", b"new")
    assert listing(tmp_path) == before


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"new")
    (tmp_path / "b").write_bytes(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_complaint_names_the_parameter_and_on_the_command_line_the_option(
    cli: Run, save: Save, tmp_path: Path
) -> None:
    problem = save(GOOD)
    with pytest.raises(BadInput, match=r"^to: got 'nothing', expected one of"):
        pipesat.export(read_problem(problem), problem, to="nothing")
    outcome = cli("export", problem, problem, "--to", "nothing", "-o", tmp_path / "x")
    assert outcome.err.startswith("pipesat: error: --to: got 'nothing', expected one of")
