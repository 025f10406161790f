"""A process that runs cases one after the other, each in a fork of its own, under limits.

``python -m pipesat.sweep.worker_main``: a job per line on standard input, an answer per line on
standard output, after a first line that says that everything is imported. Forks start in
milliseconds, with memory that no earlier case has touched. A fork is killed when it takes longer
or more memory than its job allows; when this process's standard input ends, because its parent
did, both end.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Final, NoReturn

from pipesat.sweep.run_case import Answer, Job, answer, run_case

READY: Final = b"ready\n"
_TICK: Final = 0.05  # seconds between two looks at time and memory
_STDIN: Final = 0
_LAST_WORDS: Final = 2000  # bytes


def main() -> None:
    """Serve until standard input ends."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    _import_everything()
    _write(answers, READY)
    with tempfile.TemporaryFile() as words:
        for line in sys.stdin.buffer:
            job = json.loads(line)
            _write(answers, json.dumps(run_in_fork(job, words), allow_nan=False).encode() + b"\n")


def run_in_fork(job: Job, words: IO[bytes]) -> Answer:
    """Run one job; ``words`` takes what its process writes to standard error."""
    words.seek(0)
    words.truncate()
    began = time.monotonic()
    result_end, child_result_end = os.pipe()
    child_life_end, life_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(life_end)
        _be_child(job, child_result_end, child_life_end, words.fileno())
    os.close(child_result_end)
    os.close(child_life_end)
    try:
        data, stopped = _watch(job, pid, result_end, began)
    finally:
        os.close(result_end)
        os.close(life_end)
    _, status, usage = os.wait4(pid, 0)
    found = _answer_of(data, stopped, status, words)
    unit = 1 << (20 if sys.platform == "darwin" else 10)  # of ru_maxrss: bytes there, KiB elsewhere
    found["peak_mib"] = round(usage.ru_maxrss / unit, 1)
    found["wall_s"] = round(time.monotonic() - began, 3)
    return found


def _be_child(job: Job, result_end: int, life_end: int, words: int) -> NoReturn:
    """Solve, say what came out and end, without the parent's clean-up."""
    os.dup2(words, 1)
    os.dup2(words, 2)
    threading.Thread(target=_end_with_parent, args=[life_end], daemon=True).start()
    with contextlib.suppress(BaseException):  # a broken pipe: nobody is left to tell
        found = run_case(job)
        _write(result_end, json.dumps(found, allow_nan=False).encode())
        os._exit(0)
    os._exit(1)


def _end_with_parent(life_end: int) -> None:
    os.read(life_end, 1)
    os._exit(1)


def _watch(job: Job, pid: int, result_end: int, began: float) -> tuple[bytes, Answer | None]:
    """Collect the child's words until it ends; kill it at a limit and say at which."""
    data: list[bytes] = []
    stopped = None
    while True:
        ready, _, _ = select.select([result_end, _STDIN], [], [], _TICK)
        if _STDIN in ready:  # nothing is sent before the answer: it is the end
            os.kill(pid, signal.SIGKILL)
            os._exit(1)
        if result_end in ready:
            part = os.read(result_end, 1 << 20)
            if not part:
                return b"".join(data), stopped
            data.append(part)
        if stopped is None:
            stopped = _limit(job, pid, time.monotonic() - began)
            if stopped is not None:
                os.kill(pid, signal.SIGKILL)


def _limit(job: Job, pid: int, seconds: float) -> Answer | None:
    if seconds > job["kill_after"]:
        return answer("out of time", f"killed after {job['kill_after']:g} s")
    limit = job["memory_limit"]
    if limit is not None and resident(pid) > limit:
        return answer("out of memory", f"killed at more than {limit / (1 << 20):.0f} MiB")
    return None


def resident(pid: int) -> int:
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


def _answer_of(data: bytes, stopped: Answer | None, status: int, words: IO[bytes]) -> Answer:
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        found: Answer = json.loads(data)
        return found
    if stopped is not None:
        return stopped
    words.seek(max(0, words.seek(0, os.SEEK_END) - _LAST_WORDS))
    lines = words.read().decode(errors="replace").strip().splitlines()
    last = f": {lines[-1]}" if lines else ""
    if os.WIFSIGNALED(status):
        return answer("killed", killed_by(os.WTERMSIG(status)) + last)
    return answer("error", f"ended with exit code {os.WEXITSTATUS(status)}{last}")


def killed_by(number: int) -> str:
    """Say which signal ended a process, and what that may mean."""
    text = f"killed by signal {number} ({signal.strsignal(number)})"
    killed = number == signal.SIGKILL
    return f"{text}; perhaps the machine ran out of memory" if killed else text


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _import_everything() -> None:
    """Load what every case needs; a fork would lose threads, so none may be left running."""
    from pipesat.files.limits import FORMAT as PROBLEM

    stage = {"device": 0, "F": 1, "B": 1, "W": 1}
    problem = {"format": PROBLEM, "microbatches": 1, "devices": [{}], "stages": [stage]}
    for target in (None, "torch"):
        solve = {"target": target, "time_limit": 1.0, "workers": 1}
        run_case({"problem": problem, "solve": solve, "schedule": True})


if __name__ == "__main__":
    main()
