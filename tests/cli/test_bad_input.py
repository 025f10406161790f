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
from pipesat.core.atomic import write_file, write_files
from pipesat.core.errors import BadInput
from pipesat.problem.problem_file import read_problem
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


# What is wrong with a file is held by tests/problem; here, that every command says so.
BAD = (
    ("hello", "not JSON"),
    (b"\xff\xfe", "not UTF-8"),
    (with_time(0.5), "stages[1].F"),
    (edited(**{"a\n\x1b[31m": 1}), r"a\n\x1b[31m"),
    (None, "No such file"),
)


@pytest.mark.parametrize(
    "command",
    [
        ["solve", "P", "-o", "F", "--json"],
        ["compare", "P", "--json"],
        ["export", "P", "1f1b", "--to", "schedule", "-o", "F"],
        ["check", "P", "S"],
        ["check", "P", "S", "--json"],
        ["export", "P", "S", "--to", "trace", "-o", "F"],
        ["show", "P", "S"],
    ],
    ids=" ".join,
)
def test_every_command_says_what_is_wrong_with_a_problem(
    cli: Run, save: Save, tmp_path: Path, command: list[str]
) -> None:
    for content, word in BAD:
        problem = tmp_path / "missing.json" if content is None else save(content)
        before = listing(tmp_path)
        places = {"P": problem, "S": tmp_path / "s.json", "F": tmp_path / "new"}
        one_bad_line(cli(*(places.get(part, part) for part in command)), str(problem), word)
        assert listing(tmp_path) == before


def test_what_an_option_says_is_said_of_the_option(cli: Run, save: Save) -> None:
    layers = save({"format": "pipesat.layers/1", "layers": [{"F": 1, "B": 1, "W": 1}] * 4})
    words = ("plan", layers, "--devices", 2, "--microbatches", 2)
    one_bad_line(cli(*words, "--speed", 0), "error: --speed: got '0', expected a number above 0")
    one_bad_line(cli(*words, "--memory", "1,2,3"), "error: --memory: 3 values, expected 2")
    deal = ("balance", save(chain(2, 2)), "--lengths", save([1] * 4, "l.json"), "--replicas", 2)
    one_bad_line(cli(*deal, "--reference", 1, "--schedule", "x"), "error: --schedule: got 'x'")
    lengths = save([10**6, 1], "long.json")
    words = ("balance", save(chain(2, 2)), "--lengths", lengths, "--reference", 1)
    one_bad_line(cli(*words), "long.json: [0]: its factor would be")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("null", "null"), ("true", "true"), ("NaN", "NaN"), ("[null]", "[null]"), ('"a"', "'a'")],
)
def test_a_value_is_shown_as_its_file_has_it(
    cli: Run, tmp_path: Path, text: str, shown: str
) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(with_time("?")).replace('"?"', text))
    one_bad_line(cli("solve", path), f"{path}: stages[1].F: got {shown}, expected an integer")


def test_what_is_missing_or_too_much_is_said_of_its_option(cli: Run, save: Save) -> None:
    path = save(GOOD)
    one_bad_line(cli("compare", path, "--noise", "5%"), "--noise: 0 schedules given, expected one")
    one_bad_line(cli("show", path, "--html", "p.html"), f"{path}: --html: expected a folder")
    new = ("problem", "new", "--devices", 2, "--microbatches", 2, "--times", "F=1,B=1,W=1")
    one_bad_line(cli(*new, "--units", "time=ms,time=us"), "--units time: got 'time=ms,time=us'")
    one_bad_line(cli("advise", "tiny", "--devices", 2, "--microbatches", 2), "--gpu: a", "h100")


@pytest.mark.parametrize(
    ("key", "said"),
    [("status", "format: this key is required"), ("fromat", "fromat: unknown key; the nearest")],
)
def test_a_file_of_something_else(cli: Run, save: Save, key: str, said: str) -> None:
    document = {key if name == "format" else name: value for name, value in GOOD.items()}
    one_bad_line(cli("solve", save(document)), f": {said}")


@pytest.mark.parametrize("command", ["solve", "compare"])
def test_a_directory_instead_of_a_problem(cli: Run, tmp_path: Path, command: str) -> None:
    one_bad_line(cli(command, tmp_path), str(tmp_path), "a folder, expected a file")


def test_a_file_name_is_shown_literally(cli: Run, tmp_path: Path) -> None:
    outcome = cli("solve", tmp_path / "[red]no\n\x1b[31m:fire:\udcff.json")
    one_bad_line(outcome, r"[red]no\n\x1b[31m:fire:\udcff.json: cannot read")


@pytest.mark.parametrize("command", ["check", "export", "show"])
def test_every_command_says_what_is_wrong_with_a_schedule(
    cli: Run, save: Save, tmp_path: Path, command: str
) -> None:
    other = {"format": "pipesat.schedule/1", "problem_sha256": "0" * 64, "devices": []}
    options = ["--to", "trace", "-o", tmp_path / "new"] if command == "export" else []
    problem = save(GOOD)
    for content, word in (
        ("hello", ". An order as text is a .csv: a line per rank, as 0F0,0F1,0B0"),
        (GOOD, "format: got 'pipesat.problem/1', expected \"pipesat.schedule/1\""),
        (other, "problem_sha256"),
        (None, "No such file"),
    ):
        schedule = tmp_path / "missing" if content is None else save(content, "s.json")
        before = listing(tmp_path)
        one_bad_line(cli(command, problem, schedule, *options), str(schedule), word)
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


def test_what_is_read_twice_is_no_pipe(cli: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    one_bad_line(cli("show", tmp_path / "fifo"), "fifo", "expected a file, not a pipe")


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
            monkeypatch.setattr("pipesat.core.atomic.os.replace", fail)
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
