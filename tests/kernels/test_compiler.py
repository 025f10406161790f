"""The process that compiles for another: it answers, and it outlives nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipesat.kernels.compiler import Compiler
from tests.support.paths import ROOT

LOOPS = """
import os, pathlib, threading
here = pathlib.Path(__file__).parent

class Kept:
    class dispatcher:
        def compile(types):
            (here / "kept").write_text(f"{os.getpid()} {types}")

class Broken:
    class dispatcher:
        def compile(types):
            raise TypeError

class Endless:
    class dispatcher:
        def compile(types):
            (here / "pid").write_text(str(os.getpid()))
            threading.Event().wait()

class Deadly:
    class dispatcher:
        def compile(types):
            os._exit(1)
"""


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of things that can be compiled, without numba."""
    (tmp_path / "loops_of_a_test.py").write_text(LOOPS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_it_compiles_in_another_process_which_is_kept(loops: Path) -> None:
    compiler, answers = Compiler(), []
    for types in ((1,), (2,)):
        compiler.compile("loops_of_a_test", "Kept", types)
        answers.append((loops / "kept").read_text().split(maxsplit=1))
    compiler.close()
    assert [said for _, said in answers] == ["(1,)", "(2,)"]
    assert len({os.getpid(), *(int(pid) for pid, _ in answers)}) == 2


@pytest.mark.parametrize("name", ["Broken", "Missing", "Deadly"])
def test_it_goes_on_after_what_cannot_be_compiled(loops: Path, name: str) -> None:
    compiler = Compiler()
    compiler.compile("loops_of_a_test", name, ())
    compiler.compile("loops_of_a_test", "Kept", (3,))
    compiler.close()
    assert (loops / "kept").read_text().endswith(" (3,)")


def test_one_that_has_ended_is_started_again(loops: Path) -> None:
    """As it does when it has had nothing to do for a while."""
    compiler = Compiler()
    compiler.compile("loops_of_a_test", "Kept", (1,))
    assert compiler._process is not None
    compiler._process.kill()
    compiler.compile("loops_of_a_test", "Kept", (2,))
    compiler.close()
    assert (loops / "kept").read_text().endswith(" (2,)")


CODE = """
import os, pathlib, signal, sys, threading, time
from pipesat.kernels.compiler import Compiler
sys.path.insert(0, {home!r})
compiler, pid = Compiler(), pathlib.Path({home!r}) / "pid"
told = "loops_of_a_test", "Endless", ()
threading.Thread(target=compiler.compile, args=told, daemon=True).start()
while not (pid.exists() and pid.read_text()):
    time.sleep(0.01)
{then}
"""
FORK = """
os.register_at_fork(after_in_child=compiler.forget)
if not os.fork():
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "then",
    [
        *(f"os.kill(os.getpid(), signal.{name})" for name in ("SIGTERM", "SIGKILL")),
        "os.killpg(0, signal.SIGINT)",
        "compiler.close()",
        FORK,
    ],
)
def test_it_ends_with_whoever_started_it(loops: Path, then: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE.format(home=str(loops), then=then)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.wait()
    compiler = int((loops / "pid").read_text())
    until = time.monotonic() + 60  # beyond that it is at fault
    while _runs(compiler):
        assert time.monotonic() < until
        time.sleep(0.01)
    if then == FORK:
        os.killpg(process.pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
