"""One folder is one result: what another command wrote there goes, what the user has stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

import pipesat
from pipesat.advise.files import PLAIN
from pipesat.check.checker import check
from pipesat.compare import result_folder
from pipesat.core.atomic import finish, write_files
from pipesat.core.errors import BadInput, Contradiction
from pipesat.core.folder import FILES, FOLDERS, LIST, add_files, listed, write_folder
from pipesat.core.strict_json import read_bytes
from pipesat.problem.problem_file import read_problem
from pipesat.runtimes import RUNTIMES
from pipesat.runtimes.torch.companions import SUFFIXES
from pipesat.runtimes.torch.hazards import SUFFIX as HAZARDS
from pipesat.schedule.schedule_file import read_schedule
from tests.conftest import Run
from tests.support.problems import chain

Save = Callable[..., Path]
Files = dict[str, bytes]


def there(folder: Path) -> Files:
    """Every file in a folder and below, but for the list."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != LIST)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


OLD = {"problem.json": b"old", "schedule.csv": b"old", "caps/3/problem.json": b"old"}
NEW = {"problem.json": b"new", "result.json": b"new", "caps/4/problem.json": b"new"}


# Whose is it


def test_another_result_replaces_all_of_the_first(tmp_path: Path) -> None:
    write_folder(tmp_path, OLD)
    add_files(tmp_path, {"report.html": b"of the old one"})
    write_folder(tmp_path, NEW)
    assert there(tmp_path) == NEW
    assert sorted(listed(tmp_path) or ()) == sorted(NEW)
    assert not (tmp_path / "caps" / "3").exists()


def test_what_the_user_has_there_stays(tmp_path: Path) -> None:
    (tmp_path / "caps" / "3").mkdir(parents=True)
    mine = {"notes.txt": b"mine", "caps/3/notes.txt": b"mine", "layout.txt": b"mine"}
    for name, data in mine.items():
        (tmp_path / name).write_bytes(data)
    write_folder(tmp_path, OLD | {"layout.txt": b"ours", "plan.json": b"ours"})
    (tmp_path / "plan.json").write_bytes(b"changed by me")
    write_folder(tmp_path, NEW)
    # a name that we need is ours while we need it; it was there before us, so we do not remove it
    kept = mine | {"layout.txt": b"ours", "plan.json": b"changed by me"}
    assert there(tmp_path) == NEW | kept
    assert sorted(listed(tmp_path) or ()) == sorted(NEW)


def test_a_file_that_was_read_is_not_removed(tmp_path: Path) -> None:
    """``frontier D/problem.json -o D``: it was ours, now it is an input."""
    write_folder(tmp_path, {"problem.json": b"read", "gantt.png": b""})
    read_bytes(tmp_path / "problem.json", 10)
    for _ in range(2):
        write_folder(tmp_path, {"frontier.json": b""})
        assert there(tmp_path) == {"problem.json": b"read", "frontier.json": b""}


def test_parts_of_one_result_come_one_after_the_other(tmp_path: Path) -> None:
    write_folder(tmp_path, OLD)
    write_folder(tmp_path, {"chain/problem.json": b"1", "chain/schedule.json": b"1"})
    write_folder(tmp_path, {"vee/problem.json": b"1"}, keep=["chain"])
    assert [*there(tmp_path)] == ["chain/problem.json", "chain/schedule.json", "vee/problem.json"]
    write_folder(tmp_path, {"chain/problem.json": b"2"}, keep=["vee"])
    assert there(tmp_path) == {"chain/problem.json": b"2", "vee/problem.json": b"1"}
    add_files(tmp_path / "vee", {"report.html": b""})  # belongs to the whole
    write_folder(tmp_path, NEW)
    assert there(tmp_path) == NEW


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "pipesat.folder/1", "files": 3}', "[" * 99_999, "\udcff"]
)
def test_a_list_that_is_none_lists_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / LIST).write_bytes(text.encode(errors="surrogateescape"))
    (tmp_path / "schedule.csv").write_bytes(b"mine")
    assert listed(tmp_path) is None
    write_folder(tmp_path, NEW)
    assert there(tmp_path) == NEW | {"schedule.csv": b"mine"}


def test_a_list_from_elsewhere_removes_nothing_elsewhere(tmp_path: Path) -> None:
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # sha256sum of x
    (tmp_path / "mine").write_bytes(b"x")
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "link").symlink_to(tmp_path)
    for name in ("../mine", str(tmp_path / "mine"), "link/mine"):
        files = {"format": "pipesat.folder/1", "files": {name: digest}}
        (tmp_path / "D" / LIST).write_text(json.dumps(files))
        with pytest.raises(BadInput, match="is not below"):
            write_folder(tmp_path / "D", NEW)
        assert (tmp_path / "mine").exists()


# Pictures and claims


def test_a_picture_that_cannot_be_drawn_loses_nothing(tmp_path: Path) -> None:
    def draw() -> NoReturn:
        assert there(tmp_path) == NEW  # written by now
        raise OSError(24, "Too many open files", "font.ttf")

    write_folder(tmp_path, OLD | {"gantt.png": b"old"})
    with pytest.warns(UserWarning, match=r"no pictures: OSError: .*Too many open files"):
        write_folder(tmp_path, NEW, pictures=draw)
    assert there(tmp_path) == NEW


def test_claims_that_contradict_themselves_are_not_written(tmp_path: Path) -> None:
    def contradict() -> NoReturn:
        raise Contradiction("7 is less than 5")

    with pytest.raises(Contradiction) as error:
        write_folder(tmp_path, NEW, claims=contradict)
    assert error.value.kept == str(tmp_path)
    assert there(tmp_path) == NEW


def test_of_a_large_schedule_what_says_all_is_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a second Ctrl-C, while a trace or an order for torch is made, loses none of it."""
    result = pipesat.solve(chain(2, 2), time_limit=5)
    monkeypatch.setattr(result_folder, "_QUICK_OPS", 4)

    def killed_meanwhile(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setitem(result_folder.EXPORTERS, "trace", killed_meanwhile)
    with pytest.raises(KeyboardInterrupt):
        result.save(tmp_path)
    assert sorted(there(tmp_path)) == ["problem.json", "result.json", "schedule.json"]
    problem = read_problem(tmp_path / "problem.json")
    assert not check(problem, read_schedule(tmp_path / "schedule.json", problem))


def test_of_a_huge_schedule_nothing_else_is_written_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = pipesat.solve(chain(2, 2), time_limit=5)
    monkeypatch.setattr(result_folder, "_MOST_OPS_SHOWN", 4)
    with pytest.warns(UserWarning, match="pipesat export makes them"):
        result.save(tmp_path)
    written = {"problem.json", "result.json", "schedule.json", "solver.log"}
    assert there(tmp_path).keys() == written
    assert b"pipesat export makes them" in there(tmp_path)["solver.log"]


# Refused before any work


@pytest.mark.parametrize("name", ["schedule.json", "gantt.png", "report.html"])
def test_a_folder_with_the_name_of_a_file(cli: Run, save: Save, tmp_path: Path, name: str) -> None:
    (tmp_path / "D" / name).mkdir(parents=True)
    outcome = cli("solve", save(chain(2, 2)), "-o", tmp_path / "D")
    said = f"pipesat: error: {tmp_path}/D/{name}: cannot write: a folder has this name\n"
    assert (outcome.code, outcome.err) == (2, said)  # not a word of a search


def test_a_file_with_the_name_of_a_folder(cli: Run, save: Save, tmp_path: Path) -> None:
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "caps").touch()
    outcome = cli("frontier", save(chain(2, 2)), "-o", tmp_path / "D")
    said = f"pipesat: error: {tmp_path}/D/caps: cannot write: a file has this name\n"
    assert (outcome.code, outcome.err) == (2, said)


@pytest.mark.parametrize("name", ["caps/4/problem.json/x", "elsewhere/x"])
def test_what_cannot_be_moved_is_known_before_anything_is(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path / "D", NEW)
    (tmp_path / "other").mkdir()
    (tmp_path / "D" / "elsewhere").symlink_to(tmp_path / "other")
    before = there(tmp_path / "D")
    with pytest.raises(BadInput, match="cannot write"):
        write_files(tmp_path / "D", {"problem.json": b"", name: b""})
    assert there(tmp_path / "D") == before


# Killed at any moment


def killed(work: Callable[[], None], at: int) -> bool:
    """Do work in a process that is killed at its ``at``-th change of a folder; whether it was."""
    pid = os.fork()
    if not pid:
        count = 0

        def counted(change: Callable[..., object]) -> Callable[..., object]:
            def maybe(*arguments: object, **options: object) -> object:
                nonlocal count
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                done = change(*arguments, **options)
                count += 1  # what fails changes nothing
                return done

            return maybe

        for name in ("mkdir", "rename", "replace", "rmdir", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        work()
        os._exit(0)
    return os.waitpid(pid, 0)[1] != 0


BEFORE = 4
"""Changes until the new files count: two to try the folder, one to make one beside, its name."""


def test_a_process_that_is_killed_leaves_the_old_files_or_the_new(tmp_path: Path) -> None:
    at = 0
    while True:
        folder = tmp_path / str(at)
        write_folder(folder, OLD | {"gantt.png": b"old"})
        (folder / "notes.txt").write_bytes(b"mine")
        if not killed(lambda home=folder: write_folder(home, NEW), at):  # type: ignore[misc]
            break
        # the next reader mends it, even one that is killed itself
        while killed(lambda home=folder: finish(home / "caps"), 1):  # type: ignore[misc]
            pass
        found = there(folder)
        found = {name: data for name, data in found.items() if not name.startswith(".pipesat.")}
        assert found.pop("notes.txt") == b"mine"
        assert found == (OLD | {"gantt.png": b"old"} if at < BEFORE else NEW)
        assert sorted(listed(folder) or ()) == sorted(found)
        write_folder(folder, NEW)  # what the killed one left beside goes, too
        assert there(folder) == NEW | {"notes.txt": b"mine"}
        at += 1
    assert at >= BEFORE + 9  # 4 moves, 3 removals, 2 folders


def test_report_reads_what_a_killed_solve_has_written(cli: Run, save: Save, tmp_path: Path) -> None:
    new = pipesat.solve(chain(1, 2), time_limit=5)
    for at in (BEFORE - 1, BEFORE, BEFORE + 3, BEFORE + 9):
        folder = tmp_path / str(at)
        pipesat.solve(chain(2, 2), time_limit=5).save(folder)
        assert killed(lambda home=folder: new.save(home), at)  # type: ignore[misc]
        assert cli("show", folder, "--html", folder / "report.html").code == 0
        assert cli("check", folder / "problem.json", folder / "schedule.json").code == 0
        devices = json.loads((folder / "problem.json").read_bytes())["devices"]
        assert len(devices) == (2 if at < BEFORE else 1)


def test_a_reader_that_may_not_write_says_so(cli: Run, save: Save, tmp_path: Path) -> None:
    write_folder(tmp_path / "D", OLD)
    assert killed(lambda: write_folder(tmp_path / "D", NEW), BEFORE)
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object) -> NoReturn:
            raise PermissionError(13, "Permission denied")

        patch.setattr("pipesat.core.atomic.os.replace", refuse)
        outcome = cli("show", tmp_path / "D", "--html", tmp_path / "D" / "report.html")
    said = f"pipesat: error: {tmp_path}/D: cannot write: Permission denied\n"
    assert (outcome.code, outcome.err) == (2, said)


def test_a_single_file_is_written_after_what_a_killed_process_left(tmp_path: Path) -> None:
    write_folder(tmp_path, OLD)
    assert killed(lambda: write_folder(tmp_path, NEW), BEFORE)
    write_files(tmp_path, {"problem.json": b"newer"})
    finish(tmp_path)
    assert there(tmp_path) == NEW | {"problem.json": b"newer"}


def test_what_a_stranger_left_in_a_folder_of_all_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp anybody may leave moves for the files of others."""
    write_folder(tmp_path, OLD)
    assert killed(lambda: write_folder(tmp_path, NEW), BEFORE)
    lstat = os.lstat

    def by_another(path: Path) -> object:
        return SimpleNamespace(st_uid=lstat(path).st_uid + 1)

    with monkeypatch.context() as patch:
        patch.setattr("pipesat.core.atomic.os.lstat", by_another)
        finish(tmp_path)
    assert (tmp_path / "problem.json").read_bytes() == b"old"


def test_two_processes_write_into_one_folder(tmp_path: Path) -> None:
    """Whoever comes last has all of it."""
    code = (
        "import pathlib, sys\n"
        "from pipesat.core.folder import write_folder\n"
        "for _ in range(20):\n"
        "    write_folder(pathlib.Path(sys.argv[1]), "
        "{name: sys.argv[2].encode() for name in ('problem.json', 'result.json', sys.argv[2])})\n"
    )
    words = [[sys.executable, "-c", code, str(tmp_path), name] for name in ("a", "b")]
    runs = [subprocess.Popen(each) for each in words]
    assert [run.wait() for run in runs] == [0, 0]
    found = there(tmp_path)
    assert found["problem.json"] == found["result.json"] == found[found["problem.json"].decode()]


# Commands


@pytest.mark.slow
def test_a_second_command_leaves_nothing_of_the_first(cli: Run, save: Save, tmp_path: Path) -> None:
    problem, out = save(chain(2, 2)), tmp_path / "D"
    commands = [
        ["solve"],
        ["compare", "--layers-per-stage", 4],
        ["frontier", "--caps", "points=2"],
        ["frontier", "--within", "5%"],
    ]
    alone: list[set[str]] = []
    for number, (name, *options) in enumerate(commands):
        cli(name, problem, *options, "--time-limit", 2, "-o", tmp_path / str(number))
        alone.append({*there(tmp_path / str(number))})
    out.mkdir()
    (out / "notes.txt").write_bytes(b"mine")
    for number in (0, 1, 2, 3, 1, 0):
        name, *options = commands[number]
        assert cli(name, problem, *options, "--time-limit", 2, "-o", out).code == 0
        assert {*there(out)} == alone[number] | {"notes.txt"}
        if number < 2:
            assert cli("show", out, "--html", out / "report.html").code == 0
    cli("export", out / "problem.json", out / "schedule.json", "--to", "torchtitan", "-o", out)
    assert (out / "schedule.toml").exists()
    assert cli("solve", problem, "-o", out).code == 0
    assert {*there(out)} == alone[0] | {"notes.txt"}


def test_every_name_is_known_before_the_work() -> None:
    """So that a folder with the name of a file is refused in time."""
    made = {runtime.file for runtime in RUNTIMES.values()} | {"schedule.py"}
    made |= {f"schedule{suffix}" for suffix in (*SUFFIXES, HAZARDS)}
    assert made <= FILES
    assert PLAIN in FOLDERS


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("solve", []),
        ("frontier", ["--caps", "points=2", "--time-limit", 2]),
        ("frontier", ["--within", "5%", "--time-limit", 2]),
    ],
)
def test_a_command_s_names_are_known(
    cli: Run, save: Save, tmp_path: Path, command: str, options: list[object]
) -> None:
    cli(command, save(chain(2, 2)), *options, "-o", tmp_path)
    names = listed(tmp_path)
    assert names
    assert {name.split("/")[0] for name in names} <= FILES | FOLDERS
