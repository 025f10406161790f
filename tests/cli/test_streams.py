"""A reader of standard output or error that leaves ends nothing: files are there, and the code."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipesat.cli.exits import CHECK_FAILED, exit_code_of
from tests.support.paths import ROOT
from tests.support.problems import chain

Save = Callable[..., Path]
PROBLEM = ROOT / "examples" / "zb-6.2B-p8-m24-cap0.75.json"


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a command; what it prints goes where ``options`` say, else nowhere."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipesat", *map(str, arguments)],
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options,
    )


def nobody() -> int:
    """Return the writing end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "into"),
    [("stdout", "nobody"), ("stdout", "/dev/full"), ("stderr", "closed")],
)
def test_a_stream_that_takes_nothing(save: Save, tmp_path: Path, stream: str, into: str) -> None:
    options: dict[str, Any] = {"stderr": subprocess.PIPE} if stream == "stdout" else {}
    if into == "closed":
        options |= {stream: None, "preexec_fn": lambda: os.close(2)}
    else:
        options |= {stream: nobody() if into == "nobody" else os.open(into, os.O_WRONLY)}
    done = start("solve", save(chain(2, 3)), "-q", "-o", tmp_path / "out", **options)
    said = (done.communicate(timeout=60)[1] or b"").decode()
    # the summary that a full disk has not taken is missed; nobody misses the others
    full = (stream, into) == ("stdout", "/dev/full")
    why = "pipesat: error: standard output: cannot write: No space left on device\n"
    assert (done.returncode, said) == ((2, why) if full else (0, ""))
    assert {"schedule.json", "result.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.slow
def test_one_signal_for_a_command_and_its_reader(tmp_path: Path) -> None:
    """As Ctrl-C does under ``2>&1 | tee log``."""
    run = start("solve", PROBLEM, "-o", tmp_path / "out", stderr=subprocess.PIPE)
    assert run.stderr is not None
    for line in run.stderr:
        if b"best" in line:
            break
    run.stderr.close()
    run.send_signal(signal.SIGINT)
    assert run.wait(120) == 130
    assert (tmp_path / "out" / "schedule.json").exists()


def test_text_is_not_written_into_a_file_that_has_the_number_of_a_closed_stream(
    save: Save, tmp_path: Path
) -> None:
    """The first file that is opened gets the lowest free number."""
    code = """
import os, sys
os.close(1)
os.close(2)
sys.stdout = sys.stderr = None  # as Python has them where they are closed
from pipesat.cli.process import keep_streams
keep_streams()
with open(sys.argv[1], "w") as file:
    print("told")
    print("told", file=sys.stderr)
    os.write(2, b"told")
    file.write("written")
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "a"], check=True, cwd=ROOT)
    assert (tmp_path / "a").read_text() == "written"


def test_a_full_pipe_that_does_not_block_takes_all() -> None:
    code = """
import os, sys
os.set_blocking(1, False)
from pipesat.cli.process import keep_streams
keep_streams()
print("x" * 1_000_000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert len(done.stdout) == 1_000_001


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),  # a pipe has no name
        OSError(errno.EMFILE, "Too many open files", "font.ttf"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory"),
    ],
)
def test_what_the_operating_system_refuses_is_no_bug_and_not_standard_output(
    error: OSError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error) == CHECK_FAILED
    said = capsys.readouterr().err
    assert said.startswith("pipesat: error: the operating system refused: [Errno ")
    assert said.count("\n") == 1


def test_a_file_that_we_looked_for_and_is_not_there_is_a_bug() -> None:
    assert exit_code_of(FileNotFoundError(errno.ENOENT, "No such file", "main.js")) is None


@pytest.mark.slow
def test_so_few_open_files_that_no_process_can_be_started(save: Save, tmp_path: Path) -> None:
    """A sweep's processes talk through pipes."""
    spec = tmp_path / "sweep.toml"
    save(chain(1, 2))
    spec.write_text(
        'format = "pipesat.sweep/1"\n[grid]\nproblem = "problem.json"\ntime_limit = 1\n'
    )
    run = start(
        "sweep",
        spec,
        "-o",
        tmp_path / "out",
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)),
    )
    last = run.communicate(timeout=60)[1].decode().splitlines()[-1]
    assert run.returncode == 1
    assert last.startswith("pipesat: error: the operating system refused: [Errno 24]")
