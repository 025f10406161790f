"""Commands in processes of their own: forks of one that has everything loaded, or real ones."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ran:
    """How a command ended; ``cpu`` is its processor time."""

    code: int
    out: str
    err: str
    cpu: float
    hung: bool

    def json(self) -> Any:
        """Return its standard output as JSON; ``None`` if it is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None


def load() -> None:
    """Import what commands use, once for all forks."""
    import matplotlib as mpl

    mpl.use("Agg")
    import pipesat.advise.plan_search
    import pipesat.cli.app
    import pipesat.cli.terminal
    import pipesat.compare.compare
    import pipesat.compare.frontier.memory
    import pipesat.compare.result_folder
    import pipesat.solver

    del pipesat


def run_command(
    argv: list[str],
    folder: Path,
    number: int,
    *,
    hang: float,
    real: bool,
    before: Callable[[], None] | None = None,
) -> Ran:
    """Run ``pipesat ARGV`` in a folder; what it prints is kept beside as ``NUMBER.out``, ``.err``.

    A real process starts a Python of its own; else a fork of this one runs the command line, after
    it has done what is to be done ``before``.
    """
    out, err = folder / f"{number}.out", folder / f"{number}.err"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        if real and before is None:
            pid = subprocess.Popen(
                [sys.executable, "-m", "pipesat", *argv],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=to_out,
                stderr=to_err,
                start_new_session=True,
            ).pid
        else:
            pid = fork(lambda: _command(argv, folder, to_out.fileno(), to_err.fileno(), before))
        code, cpu, hung = wait(pid, hang)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in (out, err)]
    return Ran(code, texts[0], texts[1], cpu, hung)


def fork(work: Callable[[], None]) -> int:
    """Fork a child that leads a session of its own, does the work and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.setsid()
        _die_with_parent()
        _end(work)
    return pid


def _die_with_parent() -> None:
    """On Linux: nothing outlives the case that started it, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(work: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as Python itself ends
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _command(
    argv: list[str], folder: Path, out: int, err: int, before: Callable[[], None] | None
) -> None:
    from pipesat.cli import main

    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["pipesat", *argv]
    if before is not None:
        before()
    main()


def wait(pid: int, hang: float) -> tuple[int, float, bool]:
    """Wait for a child: its exit code (128 + signal), processor time, and whether it was killed."""
    until, pause = time.monotonic() + hang, 0.001
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else 128 - code), used.ru_utime + used.ru_stime, False
        if time.monotonic() > until:
            end_session(pid)
            return 137, 0.0, True
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)


def end_session(pid: int) -> None:
    """Kill a child with all that it started, and take note of its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
