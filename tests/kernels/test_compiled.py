"""The door to numba: where compiled code is kept, who may share it, and life without numba."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipesat.kernels import compiled as door
from tests.support.paths import ROOT

LOOP = """
from pipesat.kernels.compiled import compiled


@compiled
def doubled(number):
    return 2 * number


@compiled
def quadrupled(number):
    return doubled(doubled(number))
"""
CODE = """
import sys
sys.path.insert(0, {home!r})
from loop import quadrupled
from pipesat.kernels import compiled
print(quadrupled(4), compiled._folder(), compiled.why_interpreted())
"""


def started(home: Path, before: str = "", after: str = "", **more: str) -> subprocess.Popen[str]:
    if not (home / "loop.py").exists():  # its date is part of what code is kept under
        (home / "loop.py").write_text(LOOP)
    kept = {k: v for k, v in os.environ.items() if k not in ("XDG_CACHE_HOME", "HOME")}
    environment = kept | {"XDG_CACHE_HOME": str(home / "cache"), "HOME": str(home)} | more
    return subprocess.Popen(
        [sys.executable, "-c", before + CODE.format(home=str(home)) + after],
        env=environment | {"PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert not err
    return out.split(maxsplit=2)


def test_two_processes_fill_an_empty_cache_at_once_and_a_third_reads_it(tmp_path: Path) -> None:
    both = [started(tmp_path), started(tmp_path)]
    for value, folder, *_ in map(said, both):
        assert value == "16"
        assert folder.startswith(str(tmp_path / "cache" / "pipesat"))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")}
    assert kept
    assert said(started(tmp_path))[0] == "16"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.nbc")} == kept


def test_of_two_processes_one_compiles(tmp_path: Path) -> None:
    asked = "print(compiled._beside._process is not None)"
    both = [started(tmp_path, after=asked) for _ in range(2)]
    assert sorted(said(process)[2] for process in both) == ["False\n", "True\n"]


NOT_HERE = "from numba.core import dispatcher as d; d._FunctionCompiler.compile = None\n"


def test_another_process_compiles(tmp_path: Path) -> None:
    """Else it would hold the interpreter, and the search would wait."""
    assert said(started(tmp_path, NOT_HERE))[0] == "16"


@pytest.mark.parametrize("executable", ["", "/bin/false"])
def test_where_no_process_can_compile_this_one_does(tmp_path: Path, executable: str) -> None:
    process = started(tmp_path, f"import sys; sys.executable = {executable!r}\n")
    assert said(process)[0] == "16"
    assert list((tmp_path / "cache").rglob("*.nbc"))


def test_a_process_that_ends_while_it_compiles_ends_well(tmp_path: Path) -> None:
    at_once = "from pipesat.kernels import compiled as door\ndoor._WAIT = 0.0\n"
    meanwhile = "door.compiled = door.compiled_meanwhile\n"
    assert said(started(tmp_path, at_once + meanwhile))[0] == "16"


def test_a_process_forked_while_a_loop_compiles_goes_on(tmp_path: Path) -> None:
    """What its parent's thread holds, numba's own lock too, nobody there will ever release."""
    fork = """
import os
from pipesat.kernels import compiled as door
door._turn.acquire()
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert said(started(tmp_path, fork))[0] == "16"


def test_a_folder_that_others_may_write_is_passed_over(tmp_path: Path) -> None:
    (name,) = {Path(said(started(tmp_path))[1]).name}
    folder = tmp_path / "cache" / "pipesat" / name
    folder.chmod(0o777)
    assert said(started(tmp_path))[1].startswith(str(tmp_path / ".cache"))


def test_where_nothing_may_be_written_code_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file")  # a folder in a file can never be made
    process = started(tmp_path, XDG_CACHE_HOME=nowhere, HOME=nowhere, TMPDIR=nowhere)
    value, folder, *_ = said(process)
    assert value == "16"
    assert folder == "None" or not folder.startswith(nowhere)


@pytest.mark.parametrize("error", ["ImportError('needs numpy 9 or less')", ""])
def test_without_numba_loops_run_as_python(tmp_path: Path, error: str) -> None:
    hide = "import sys; sys.modules['numba'] = None\n"
    if error:  # what numba does beside a numpy that is too new for it
        (tmp_path / "numba.py").write_text(f"raise {error}")
        hide = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    value, _, why = said(started(tmp_path, hide))
    assert value == "16"
    assert why.startswith("numba does not load: ")


def test_small_calls_wait_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for numba's own import, and what a loop calls runs as Python with it."""
    released = threading.Event()
    monkeypatch.setattr(door, "why_interpreted", lambda: str(released.wait(60)))
    inner = door.compiled(lambda numbers: 2 * numbers.sum())
    outer = door.compiled_meanwhile(lambda numbers: inner(numbers) + 1)
    assert outer(np.arange(4)) == 13
    assert not released.is_set()
    released.set()


def test_numba_of_others_keeps_its_own_folder(tmp_path: Path) -> None:
    process = started(tmp_path, after="import numba; assert not numba.config.CACHE_DIR")
    assert said(process)[0] == "16"


def fourfold(numbers: Any) -> Any:
    """Without bounds as Python; compiled, of 64 bits."""
    return int(numbers[0]) * 4


LARGE = np.array([1 << 62])


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is compiled, nor waited for, before this is set; nothing is kept."""
    opened = threading.Event()

    @contextmanager
    def once_opened(name: str) -> Iterator[None]:
        opened.wait()
        yield

    monkeypatch.setattr(door, "_one_at_a_time", once_opened)
    monkeypatch.setattr(door, "_folder", lambda: None)
    monkeypatch.setattr(door, "_WAIT", 0.0)
    return opened


def test_small_calls_run_as_python_until_a_loop_is_compiled(gate: threading.Event) -> None:
    loop: Any = door.compiled_meanwhile(fourfold)
    assert [loop(LARGE) for _ in range(3)] == [1 << 64] * 3
    gate.set()
    loop._compiling.join()
    assert loop(LARGE) == 0
    assert loop((1 << 62, 1)) == 0  # of other types: compiled too


def test_large_calls_wait(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.set()
    monkeypatch.setattr(door, "_LARGEST", 0)
    loops = [door.compiled_meanwhile(fourfold), door.compiled(fourfold)]
    assert [loop(LARGE) for loop in loops] == [0, 0]


def either(number: int) -> int | str:
    """What no compiler can type."""
    return number if number else "none"


def test_an_error_in_compiling_is_raised(gate: threading.Event) -> None:
    loop: Any = door.compiled_meanwhile(either)
    assert loop(0) == "none"
    gate.set()
    loop._compiling.join()
    for broken in (loop, door.compiled(either)):
        with pytest.raises(Exception, match="annot unify"):
            broken(0)


def test_a_full_disk_and_one_without_locks_only_keep_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(door, "_folder", lambda: str(tmp_path))
    monkeypatch.setattr("numba.core.caching.FunctionCache.save_overload", fail)
    assert door.compiled(fourfold)(LARGE) == 0
    monkeypatch.setattr(fcntl, "flock", fail)
    assert door.compiled(fourfold)(LARGE) == 0


def test_nobody_waits_for_a_process_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "_folder", lambda: str(tmp_path))
    monkeypatch.setattr(door, "_OTHERS", 0.0)
    with open(tmp_path / "fourfold.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert door.compiled(fourfold)(LARGE) == 0


def test_what_another_thread_disturbs_is_compiled_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def disturbed(_: Any, types: Any) -> None:
        asked.append(types)
        if len(asked) % 2:
            raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(door.Compiled, "_load_or_compile", disturbed)
    loop = door.Compiled(lambda number: 2 * number, meanwhile=False)
    loop._make(3)
    assert len(asked) == 2
    assert loop._failure is None
    assert loop._ready is not None
    monkeypatch.setattr(door.Compiled, "_load_or_compile", lambda *_: 1 // 0)
    other = door.Compiled(lambda number: 2 * number, meanwhile=False)
    with pytest.raises(ZeroDivisionError):
        other(3)
