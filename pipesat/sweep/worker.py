"""Processes that run cases one after the other, each in a fork of its own, under limits.

``python -m pipesat.sweep.worker HANDLE`` imports everything once and then answers jobs over a
connection. Its forks start in milliseconds, with memory that no earlier case has touched. A fork is
killed when it takes longer or more memory than its job allows; a process whose parent is gone ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import IO, Any, Final, TypeAlias

from pipesat.core.errors import BadInput, NotApplicable, RunFailed

Job: TypeAlias = Mapping[str, Any]
"""``problem`` (a document), ``solve`` (keyword arguments), ``kill_after`` in seconds,
``memory_limit`` in bytes, and whether the schedule is wanted: ``schedule``. Ready for JSON."""

Answer: TypeAlias = dict[str, Any]
"""``status``, ``why`` and ``result`` of a row, ``schedule``: a file's text or ``None``, and
``wall_s`` and ``peak_mib`` of the process, ``None`` where they are not known."""

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_TICK: Final = 0.05  # seconds between two looks at time and memory
_LOG_LINES: Final = 12
_FORK: Final = multiprocessing.get_context("fork")


def environment() -> dict[str, str]:
    """Ours, with our import path and no threads that a fork would lose."""
    path = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    return dict(os.environ) | _ONE_THREAD | {"PYTHONPATH": path}


class Worker:
    """A process that runs jobs; the next job replaces one that has ended.

    Each is in a session of its own: a Ctrl-C reaches the parent alone.
    """

    def __init__(self) -> None:
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        self._changing = threading.Lock()
        self._closed = self._works = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, job: Job) -> Answer:
        """Run a job, and wait for its answer."""
        with self._changing:
            if self._closed:
                return answer("killed", "the sweep ends")
            if self._process is None or self._process.poll() is not None:
                self._start()
        try:
            self._connection.send_bytes(json.dumps(job).encode())
            found: Answer = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):  # it has ended
            return self._end_of_process()
        self._works = True
        return found

    def close(self) -> None:
        """End the process and the case that it is running."""
        with self._changing:
            self._closed = True
            if self._process is not None:
                self._process.kill()  # its fork sees that and ends
                self._process.wait()
            self._words.close()

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  our own interpreter and module
                [sys.executable, "-P", "-m", "pipesat.sweep.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                env=environment(),
                start_new_session=True,
            )

    def _end_of_process(self) -> Answer:
        with self._changing:
            if self._closed or self._process is None:
                return answer("killed", "the sweep ends")
            code = self._process.wait()
            if not self._works and code >= 0:
                log = _last_lines(self._words, _LOG_LINES)
                raise RunFailed(f"a process for cases ended at once with exit code {code}", log)
        why = killed_by(-code) if code < 0 else f"its process ended with exit code {code}"
        return answer("killed", why)


def main(handle: int) -> None:
    """Answer jobs until the parent is gone."""
    parent = Connection(handle)
    _import_everything()
    with suppress(EOFError):
        while True:
            found = run_in_fork(json.loads(parent.recv_bytes()), parent)
            parent.send_bytes(json.dumps(found, allow_nan=False).encode())


def run_in_fork(job: Job, parent: Connection) -> Answer:
    """Run one job; end with it if ``parent`` does."""
    began, peak, stopped = time.monotonic(), 0, None
    result, theirs = _FORK.Pipe(duplex=False)
    with tempfile.TemporaryFile() as words, result:
        child = _FORK.Process(target=_be_child, args=[job, theirs, words])
        child.start()
        theirs.close()
        while stopped is None and result not in (ready := wait([result, parent], _TICK)):
            if ready:  # nothing is sent before the answer: it is the end of the parent
                child.kill()
                os._exit(1)
            peak = max(peak, resident(child.pid))
            stopped = _limit(job, peak, time.monotonic() - began)
        if stopped is None:
            with suppress(EOFError):
                stopped = json.loads(result.recv_bytes())
        else:
            child.kill()
        child.join()
        found = stopped or _end_of_child(child.exitcode or 0, words)
    found["peak_mib"] = found["peak_mib"] or round(peak / (1 << 20), 1)
    return found | {"wall_s": round(time.monotonic() - began, 3)}


def _be_child(job: Job, result: Connection, words: IO[bytes]) -> None:
    """Solve, say what came out and end, without the parent's clean-up."""
    os.dup2(words.fileno(), 1)
    os.dup2(words.fileno(), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    found = run_case(job)
    unit = 1 << (20 if sys.platform == "darwin" else 10)  # of ru_maxrss: bytes there, KiB elsewhere
    found["peak_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
    with suppress(BrokenPipeError):  # nobody is left to tell
        result.send_bytes(json.dumps(found, allow_nan=False).encode())
    os._exit(0)


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(1)


def _limit(job: Job, used: int, seconds: float) -> Answer | None:
    if seconds > job["kill_after"]:
        return answer("out of time", f"killed after {job['kill_after']:g} s")
    limit = job["memory_limit"]
    if limit is not None and used > limit:
        return answer("out of memory", f"killed at more than {limit / (1 << 20):.0f} MiB")
    return None


def resident(pid: int | None) -> int:
    """Bytes of a process's memory that are in use; 0 if it is gone.

    Not its address space: the search's threads reserve a lot more than they touch.
    """
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        pass  # no Linux
    done = subprocess.run(  # noqa: S603  a number
        ["ps", "-o", "rss=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout.strip() or 0) << 10


def _end_of_child(code: int, words: IO[bytes]) -> Answer:
    last = "".join(f": {line}" for line in _last_lines(words, 1))
    if code < 0:
        return answer("killed", killed_by(-code) + last)
    return answer("error", f"ended with exit code {code}{last}")


def _last_lines(words: IO[bytes], count: int) -> list[str]:
    words.seek(0)
    lines = words.read().decode(errors="replace").splitlines()
    return [line for line in lines if line.strip()][-count:]


def killed_by(number: int) -> str:
    """Say which signal ended a process, and what that may mean."""
    text = f"killed by signal {number} ({signal.strsignal(number)})"
    killed = number == signal.SIGKILL
    return f"{text}; perhaps the machine ran out of memory" if killed else text


def answer(status: str, why: str | None = None, result: Mapping[str, Any] | None = None) -> Answer:
    """Return an answer without a schedule."""
    nothing = dict.fromkeys(("schedule", "wall_s", "peak_mib"))
    return {"status": status, "why": why, "result": result, **nothing}


def run_case(job: Job) -> Answer:
    """Solve, in this process; whatever goes wrong is an answer too."""
    try:
        return _solved(job)
    except (BadInput, NotApplicable) as error:
        return answer("refused", str(error))
    except MemoryError:
        return answer("out of memory", "Python could get no more memory")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        return answer("error", f"{type(error).__name__}: {error} ({where})")


def _solved(job: Job) -> Answer:
    from pipesat.files.problem_file import parse_problem
    from pipesat.files.schedule_file import schedule_bytes
    from pipesat.sweep.rows import REFUTED
    from pipesat.workflows.solve import solve

    problem = parse_problem(job["problem"])
    result = solve(problem, **job["solve"])
    why = result.explanation if result.status in ("infeasible", "unknown") else None
    if result.contradictions:
        why = REFUTED + "; ".join(result.contradictions)
    found = answer(result.status, why, result.document())
    if job["schedule"] and result.schedule is not None:
        found["schedule"] = schedule_bytes(problem, result.schedule).decode()
    return found


def _import_everything() -> None:
    """Load what every case needs; a fork would lose threads, so none may be left running."""
    from pipesat.files.strict_json import FORMAT as PROBLEM

    stage = {"device": 0, "F": 1, "B": 1, "W": 1}
    problem = {"format": PROBLEM, "microbatches": 1, "devices": [{}], "stages": [stage]}
    for target in (None, "torch"):
        solve = {"target": target, "time_limit": 1.0, "workers": 1}
        run_case({"problem": problem, "solve": solve, "schedule": True})


if __name__ == "__main__":
    main(int(sys.argv[1]))
