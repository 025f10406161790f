"""Starting local processes and making sure that all of them end, whatever happens to one.

One fresh Python interpreter, the host, imports torch and then forks a process for every name: a
run of many ranks imports once. All are in a session of their own (a Ctrl-C reaches the parent
alone, which then ends them). Standard input stays open as long as the parent lives, outputs go to a
file each. The first that fails ends all; so do the time limit, ``stop``, and any exception.

``python -m pipesat.runtime.launch FOLDER TIMEOUT NAME ...`` is the host of a parity or measured
run; a NAME is ``reference`` or ``rank <number>``. The folder's jobs say what to run.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pipesat.core.errors import BadInput, PipesatError, RunFailed
from pipesat.runtime.job import FOLDER_PREFIX, REFERENCE, actions_so_far

FAILED = 1
_POLL = 0.02  # seconds
_LAST_WORDS = 0.5  # seconds for the others to say how they failed: the first may be another one
_LOG_LINES = 12

Work = Callable[[Path, str, float], object]
"""What a process of a name does in a folder, within so many seconds."""


def main(work: Work, load: Callable[[], object] = lambda: None) -> None:
    """Be the host: import what all need by ``load``, fork, and tell how each process ends.

    What fails in ``load`` fails every process.
    """
    folder, timeout, *names = sys.argv[1:]
    loaded, done = os.pipe()
    guard = threading.Thread(target=_end_with_parent, args=[Path(folder), loaded], daemon=True)
    guard.start()
    failure = None
    try:
        load()
    except BaseException as error:
        failure = error
    os.close(done)
    guard.join()  # forks are made by one thread
    pids = {}
    for name in names:
        if not (pid := os.fork()):
            _be(Path(folder), name, float(timeout), work, failure)
        pids[pid] = name
    while pids:
        pid, status = os.wait()
        print(json.dumps([pids.pop(pid), os.waitstatus_to_exitcode(status)]), flush=True)  # noqa: T201


def _be(
    folder: Path, name: str, timeout: float, work: Work, failure: BaseException | None
) -> NoReturn:
    """Do the work of one process; say how it failed before it ends."""
    os.dup(1)  # the host's channel closes when all processes are gone
    with _log_file(folder, name).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
    try:
        if failure is not None:
            raise failure
        work(folder, name, timeout)
        sys.stdout.flush()
    except BaseException as error:
        where = error.where if isinstance(error, BadInput) and not error.source else ""
        said = str(error).removeprefix(f"{where}: ")
        note = {
            "time": time.monotonic(),
            "bad_input": isinstance(error, BadInput),
            "where": where,
            "message": said if isinstance(error, PipesatError) else _summary(error),
            "log": traceback.format_exc(),
        }
        partial = folder / f"{name}.partial"
        partial.write_text(json.dumps(note))
        partial.rename(_error_file(folder, name))
        os._exit(FAILED)  # torch's own clean-up may wait for ranks that are gone
    os._exit(0)


def _summary(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0].strip()
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _end_with_parent(folder: Path, loaded: int | None = None) -> None:
    """Wait for the end of standard input, which the parent holds open as long as it lives.

    A parent that was killed could not remove the run's folder either. Whoever has ``loaded`` needs
    no guard any more.
    """
    ready, _, _ = select.select([0, *([] if loaded is None else [loaded])], [], [])
    if 0 in ready:
        if folder.name.startswith(FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(FAILED)


def _work(folder: Path, name: str, timeout: float) -> None:
    from pipesat.runtime.pipeline import run_measured_rank, run_reference

    if name == REFERENCE:
        run_reference(folder)
    else:
        run_measured_rank(folder, int(name.split()[1]), timeout)


def _load() -> None:
    from pipesat.runtime.torch_api import load_torch_api

    load_torch_api()  # before anything else of torch is imported
    import pipesat.runtime.pipeline  # noqa: F401


@dataclass
class _Host:
    """The host of running processes, seen from the parent: how each of them has ended."""

    names: Sequence[str]
    process: subprocess.Popen[bytes]
    codes: dict[str, int] = field(default_factory=dict)
    said: bytes = b""

    def listen(self) -> bool:
        """Hear for a moment how processes end; return whether any still runs."""
        channel = self.process.stdout
        if channel is None or not select.select([channel], [], [], _POLL)[0]:
            return self.process.poll() is None
        part = os.read(channel.fileno(), 1 << 16)
        *lines, self.said = (self.said + part).split(b"\n")
        self.codes |= dict(map(json.loads, lines))
        return bool(part)

    @property
    def failed(self) -> list[str]:
        """Names of processes that failed; of all that are lost with their host."""
        if code := self.process.poll():
            self.codes = dict.fromkeys(self.names, code) | self.codes
        return [name for name, code in self.codes.items() if code]


def run_processes(
    names: Sequence[str],
    folder: Path,
    *,
    timeout: float,
    stop: threading.Event | None = None,
    module: str = "pipesat.runtime.launch",
) -> None:
    """Run one process per name until all have ended well; none is left when this returns.

    A process's files in ``folder`` begin with its name. ``timeout`` is in seconds for all together,
    ``stop`` ends all when it is set, ``module`` is the host.
    """
    deadline = time.monotonic() + timeout
    command = [sys.executable, "-P", "-m", module, str(folder), str(timeout), *names]
    with _host(names, folder, command) as host:
        while host.listen() and not host.failed:
            if stop is not None and stop.is_set():
                raise RunFailed("stopped, all processes were ended")
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"not finished after {timeout:g} s, all processes were ended",
                    [f"{name}: {_whereabouts(host, name, folder)}" for name in names],
                )
        last_words = time.monotonic() + _LAST_WORDS
        while time.monotonic() < last_words and host.listen():
            pass
        if host.failed:
            raise _failure(host, folder)


@contextmanager
def _host(names: Sequence[str], folder: Path, command: Sequence[str]) -> Iterator[_Host]:
    with (folder / "host.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
        )
    with process:
        try:
            yield _Host(names, process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if process.stdout is not None:
                process.stdout.read()  # ends with the last process


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


def _failure(host: _Host, folder: Path) -> BadInput | RunFailed:
    """Return the error of the process that failed first: it made the others fail.

    The time is the one that the process itself noted. One that was killed, or that left without a
    word, could note none, but others failing do not do that to it (unlike an abort, to which a lost
    connection can lead). Bad input comes before everything: it may show in other ways too.
    """

    def order(name: str) -> tuple[bool, bool, float]:
        note = _note(name, folder)
        silent = not note and host.codes[name] != -signal.SIGABRT
        return not note.get("bad_input"), not silent, note.get("time", 0.0)

    name = min(host.failed, key=order)
    note, code = _note(name, folder), host.codes[name]
    if note.get("bad_input"):
        return BadInput(str(note["message"]), where=str(note.get("where", "")))
    logs = [path for path in (_log_file(folder, name), folder / "host.log") if path.exists()]
    log = str(note.get("log") or "".join(path.read_text(errors="replace") for path in logs))
    lines = [line for line in log.splitlines() if line.strip()]
    ended = f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    message = note.get("message") or ended
    where = _whereabouts(host, name, folder)
    return RunFailed(f"{name} failed ({where}): {message}", lines[-_LOG_LINES:])


def _note(name: str, folder: Path) -> dict[str, Any]:
    path = _error_file(folder, name)
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _whereabouts(host: _Host, name: str, folder: Path) -> str:
    """Say which action a process started last."""
    if actions := actions_so_far(folder, name):
        return f"in {actions[-1]}, its action {len(actions)}"
    return "finished" if host.codes.get(name) == 0 else "before its first action"


def _error_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.error"


def _log_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.log"


if __name__ == "__main__":
    main(_work, _load)
