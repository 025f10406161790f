"""Names and places that no file can have, or that only some system calls take: one clear line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

import pipesat
from tests.conftest import Run
from tests.support.outcomes import one_bad_line
from tests.support.paths import ROOT
from tests.support.problems import chain

Save = Callable[..., Path]
LONGEST = "n" * 255  # what Linux takes; a companion's name beside it is longer


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder 1,200 deep, above Python's limit of nested calls, with a problem in it."""
    pipesat.solve(chain(2, 2), time_limit=5).save(tmp_path / "made")
    home = os.getcwd()
    os.chdir(tmp_path)
    for _ in range(1200):
        os.mkdir("d")
        os.chdir("d")
    for name in ("problem.json", "schedule.json", "schedule.csv"):
        shutil.copy(tmp_path / "made" / name, name)
    os.chdir(home)
    yield tmp_path / "/".join(["d"] * 1200)
    subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # Python's own way fails


@pytest.mark.parametrize("name", [LONGEST, "", ".", "/"])
def test_no_order_for_torch_has_this_name(
    cli: Run, save: Save, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problem = save(chain(2, 2))
    monkeypatch.chdir(tmp_path)
    one_bad_line(cli("export", problem, name, "--to", "schedule", "-o", "back.json"), "expected")
    assert not (tmp_path / "back.json").exists()


def test_a_name_without_room_for_its_companions(cli: Run, tmp_path: Path) -> None:
    pipesat.solve(chain(2, 2), time_limit=5).save(tmp_path / "made")
    made, out = tmp_path / "made", tmp_path / "out"
    out.mkdir()
    files = (made / "problem.json", made / "schedule.json")
    outcome = cli("export", *files, "--to", "torch-csv", "-o", out / f"{LONGEST[4:]}.csv")
    assert outcome.code == 2
    assert outcome.err.endswith("cannot write: File name too long\n")
    assert not [*out.iterdir()]


@pytest.mark.slow
def test_commands_work_far_down(cli: Run, deep: Path) -> None:
    problem, schedule = deep / "problem.json", deep / "schedule.json"
    limit = ("--time-limit", 1)
    for words in (
        ("check", problem, schedule),
        ("solve", problem, "-o", deep / "new" / "solved", *limit),
        ("show", deep / "new" / "solved", "--html", deep / "new" / "report.html"),
        ("export", problem, schedule, "--to", "torch-csv", "-o", deep / "x.csv"),
        ("export", problem, deep / "schedule.csv", "--to", "schedule", "-o", deep / "b.json"),
    ):
        assert cli(*words).code == 0, words[0]
    one_bad_line(cli("plan", problem, "--devices", 2, "--microbatches", 2), "pipesat.problem/1")


def test_a_folder_whose_names_may_not_be_read(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    one_bad_line(
        cli("show", tmp_path, "--html", tmp_path / "report.html"),
        f"{tmp_path}: cannot read: Permission denied",
    )


def test_a_pattern_with_a_nul(cli: Run, tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text('format = "pipesat.sweep/1"\n[grid]\nproblem = "a\\u0000*.json"\n')
    one_bad_line(cli("sweep", spec, "-o", tmp_path / "out"), "problem[0]", "no such problem file")
    assert not (tmp_path / "out").exists()


def test_three_open_files_are_enough_to_write(tmp_path: Path) -> None:
    """``ulimit -n 6``: 0, 1, 2 and three more, one the lock. What cannot be drawn is said."""
    code = """
import pathlib, resource, sys
from pipesat.core.folder import write_folder
resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))
for text in (b"old", b"new"):
    write_folder(
        pathlib.Path(sys.argv[1]),
        {"problem.json": text, "caps/3/problem.json": text, text.decode(): text},
        pictures=lambda: {"gantt.png": [open("/dev/null") for _ in "1234"] and b""},
    )
"""
    words = [sys.executable, "-c", code, tmp_path / "D"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "no pictures: OSError: [Errno 24] Too many open files" in done.stderr
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    names = (".pipesat.json", "problem.json", "caps/3/problem.json", "new")
    assert found == {f"D/{name}" for name in names}
