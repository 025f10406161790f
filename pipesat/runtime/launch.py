"""Starting local processes and making sure that all of them end, whatever happens to one.

Each process is a fresh Python interpreter in a session of its own (a Ctrl-C reaches the parent
alone, which then ends them). Its standard input stays open as long as the parent lives, its output
goes to a file. The first that fails ends all; so do the time limit, ``stop``, and any exception.

``python -m pipesat.runtime.launch FOLDER NAME TIMEOUT`` is such a process of a parity or measured
run; NAME is ``reference`` or ``rank <number>``. The folder's jobs say what to run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipesat.core.errors import BadInput, PipesatError, RunFailed
from pipesat.runtime.job import FOLDER_PREFIX, REFERENCE, actions_so_far

FAILED = 1

Work = Callable[[Path, str, float], None]
"""What a process of a name does in a folder, within so many seconds."""


def main(folder: Path, name: str, timeout: float, work: Work | None = None) -> None:
    """Run one process of a parity or measured run, or other work; a failure never returns."""
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
    try:
        (work or _work)(folder, name, timeout)
    except BaseException as error:
        where = error.where if isinstance(error, BadInput) and not error.source else ""
        said = str(error).removeprefix(f"{where}: ")
        failure = {
            "time": time.monotonic(),
            "bad_input": isinstance(error, BadInput),
            "where": where,
            "message": said if isinstance(error, PipesatError) else _summary(error),
            "log": traceback.format_exc(),
        }
        partial = folder / f"{name}.partial"
        partial.write_text(json.dumps(failure))
        partial.rename(error_file(folder, name))
        os._exit(FAILED)  # torch's own clean-up may wait for ranks that are gone


def _work(folder: Path, name: str, timeout: float) -> None:
    if name == REFERENCE:
        from pipesat.runtime.pipeline import run_reference

        run_reference(folder)
        return
    from pipesat.runtime.torch_api import load_torch_api

    api = load_torch_api()  # before anything else of torch is imported
    from pipesat.runtime.pipeline import run_measured_rank

    rank = int(name.split()[1])
    run_measured_rank(api, folder, rank, timeout)


def _summary(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0].strip()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def error_file(folder: Path, name: str) -> Path:
    """Where a process says how it failed, before it ends."""
    return folder / f"{name}.error"


def _end_with_parent(folder: Path) -> None:
    """Wait for the end of standard input, which the parent holds open as long as it lives.

    A parent that was killed could not remove the run's folder either.
    """
    while os.read(0, 1):
        pass
    if folder.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(FAILED)


_POLL = 0.02  # seconds
_LAST_WORDS = 0.5  # seconds for the others to say how they failed: the first may be another one
_LOG_LINES = 12

Command = Callable[[str], Sequence[str]]
"""Command line of the process of a name."""


@dataclass
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    ended: float | None = None  # monotonic time at which its end was seen


def run_children(
    names: Sequence[str],
    folder: Path,
    *,
    timeout: float,
    stop: threading.Event | None = None,
    module: str = "pipesat.runtime.launch",
) -> None:
    """Run ``python -m module FOLDER NAME TIMEOUT`` for every name; else as :func:`run_processes`.

    ``-P`` keeps the caller's folder out of their import path.
    """

    def command(process: str) -> list[str]:
        return [sys.executable, "-P", "-m", module, str(folder), process, str(timeout)]

    run_processes(names, folder, command, timeout=timeout, stop=stop)


def run_processes(
    names: Sequence[str],
    folder: Path,
    command: Command,
    *,
    timeout: float,
    stop: threading.Event | None = None,
) -> None:
    """Run one process per name until all have ended well; none is left when this returns.

    Parameters
    ----------
    names
        Unique; a process's files in ``folder`` begin with its name.
    timeout
        Seconds for all of them together.
    stop
        Ends all when it is set.

    Raises
    ------
    RunFailed
        If one fails, the time is over or ``stop`` was set.
    BadInput
        If that is how the first of them failed.
    """
    deadline = time.monotonic() + timeout
    with _ending_all() as children:
        for name in names:
            children.append(_start(name, folder, command(name)))
        while _running(children) and not _failed(children):
            if stop is not None and stop.is_set():
                raise RunFailed("stopped, all processes were ended")
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"not finished after {timeout:g} s, all processes were ended",
                    [f"{child.name}: {_whereabouts(child, folder)}" for child in children],
                )
            time.sleep(_POLL)
        last_words = time.monotonic() + _LAST_WORDS
        while _running(children) and time.monotonic() < last_words:
            time.sleep(_POLL)
        if _failed(children):
            raise _failure(_failed(children), folder)


@contextmanager
def _ending_all() -> Iterator[list[_Child]]:
    children: list[_Child] = []
    try:
        yield children
    finally:
        for child in children:
            child.process.kill()
        for child in children:
            child.process.wait()
            if child.process.stdin is not None:
                child.process.stdin.close()


def _start(name: str, folder: Path, command: Sequence[str]) -> _Child:
    with _log_file(folder, name).open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
    return _Child(name, process)


def _environment(folder: Path) -> dict[str, str]:
    """Ours, with our import path, one thread, no accelerator, and gloo on the loopback alone.

    Temporary files go to ``folder``: importing torch alone leaves a cache of its compiler there.
    """
    environment = dict(os.environ) | {"TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback:  # else gloo takes the host name's address, which need not exist
        environment["GLOO_SOCKET_IFNAME"] = loopback[0]
    return environment


def _running(children: Sequence[_Child]) -> bool:
    for child in children:
        if child.ended is None and child.process.poll() is not None:
            child.ended = time.monotonic()
    return any(child.ended is None for child in children)


def _failed(children: Sequence[_Child]) -> list[_Child]:
    return [child for child in children if child.process.returncode]


def _failure(failed: Sequence[_Child], folder: Path) -> BadInput | RunFailed:
    """Return the error of the process that failed first: it made the others fail.

    The time is the one that the process itself noted. One that was killed, or that left without a
    word, could note none, but others failing do not do that to it (unlike an abort, to which a lost
    connection can lead). Bad input comes before everything: it may show in other ways too.
    """

    def order(child: _Child) -> tuple[bool, bool, float]:
        note = _note(child, folder)
        silent = not note and child.process.returncode != -signal.SIGABRT
        return not note.get("bad_input"), not silent, note.get("time") or child.ended or 0.0

    child = min(failed, key=order)
    note = _note(child, folder)
    if note.get("bad_input"):
        return BadInput(str(note["message"]), where=str(note.get("where", "")))
    log = str(note.get("log") or _log_file(folder, child.name).read_text(errors="replace"))
    lines = [line for line in log.splitlines() if line.strip()]
    message = note.get("message") or _end_of(child.process.returncode)
    return RunFailed(
        f"{child.name} failed ({_whereabouts(child, folder)}): {message}", lines[-_LOG_LINES:]
    )


def _note(child: _Child, folder: Path) -> dict[str, Any]:
    path = error_file(folder, child.name)
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _end_of(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def _whereabouts(child: _Child, folder: Path) -> str:
    """Say which action a process started last; one may have ended since it was last looked at."""
    if actions := actions_so_far(folder, child.name):
        return f"in {actions[-1]}, its action {len(actions)}"
    return "finished" if child.process.poll() == 0 else "before its first action"


def _log_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
