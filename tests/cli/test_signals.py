"""A signal at any moment ends a command without a traceback: 130 or 143."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.problems import chain

PROBLEM = ROOT / "examples" / "zb-6.2B-p8-m24-cap0.75.json"

# Sends this process a signal when a module is about to be imported, then runs the command line.
SIGNAL_AT_IMPORT = """
import os, sys

class Send:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Send())
sys.argv = ["pipesat", *{arguments!r}]
from pipesat.cli import main
main()
"""


def run(module: str, number: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command that gets a signal at an import."""
    code = SIGNAL_AT_IMPORT.format(module=module, number=number, arguments=[*map(str, arguments)])
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "number", "arguments"),
    [
        ("click", signal.SIGINT, ["--version"]),  # before any command is known
        ("pipesat.cli.show", signal.SIGTERM, ["show", PROBLEM]),
        ("pydantic", signal.SIGTERM, ["show", PROBLEM, PROBLEM]),  # within a command
        (
            "pipesat.schedule.schedule_file",
            signal.SIGINT,
            ["compare", PROBLEM, PROBLEM, "--noise", "5%"],
        ),
        ("pipesat.doctor", signal.SIGINT, ["--doctor"]),
    ],
)
def test_a_signal_during_imports(module: str, number: int, arguments: list[object]) -> None:
    done = run(module, number, *arguments)
    assert done.returncode == 128 + number, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_signal_before_a_solve_begins(tmp_path: Path) -> None:
    """There is a schedule all the same, and its files."""
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps(chain(2, 3, cap=1).document))
    arguments = ["solve", problem, "-o", tmp_path / "out", "--json", "--time-limit", 600]
    done = run("pipesat.solver.search", signal.SIGTERM, *arguments)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads(done.stdout)
    assert result["value"] >= result["lower_bound"]
    assert (tmp_path / "out" / "schedule.json").exists()


def test_what_python_cannot_raise_ends_the_process() -> None:
    """A signal that is heard where exceptions are only printed, such as in ``__del__``."""
    code = f"""
import os
from pipesat.cli.process import end_quietly

class Deaf:
    def __del__(self):
        os.kill(os.getpid(), {signal.SIGINT.value})

end_quietly()()
Deaf()
print("still here")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


def test_the_second_signal_kills() -> None:
    code = f"""
import os
from pipesat.cli.process import Stopped, end_quietly

end_quietly()()
try:
    os.kill(os.getpid(), {signal.SIGINT.value})
except Stopped:
    os.kill(os.getpid(), {signal.SIGINT.value})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGINT


@pytest.mark.parametrize("runs", [True, False])
def test_a_process_ends_at_once_where_a_solve_left_something_behind(runs: bool) -> None:
    """The interpreter would take apart what a compiler in a thread uses."""
    code = f"""
import atexit, sys, threading
atexit.register(print, "the interpreter ends")
if {runs}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv = ["pipesat", "show", "nothing.json"]
from pipesat.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("pipesat: error: ")
    assert done.stdout == ("" if runs else "the interpreter ends\n")
